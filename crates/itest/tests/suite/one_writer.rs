//! A pool is written by one daemon, whatever ways lead to its devices: loop devices on each other, other mount name
//! spaces, overlays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use platter_itest::{Lab, Loop, Overlay, Run, Tree, binary, data, judge, zdb};

/// A second daemon on the machine, which is perhaps started by another program (`unshare`).
struct Second<'a> {
    lab: &'a Lab,
    home: PathBuf,
    through: Vec<String>,
}

impl<'a> Second<'a> {
    fn of(lab: &'a Lab) -> Self {
        Self { lab, home: lab.root().join("second-home"), through: Vec::new() }
    }

    /// In mount and network name spaces of its own, in which `script` was run: only the devices tell it of the lab's.
    fn elsewhere(lab: &'a Lab, script: &str) -> Self {
        let script = format!("{script}; exec \"$@\"");
        let mut second = Self::of(lab);
        second.through = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
        second
    }

    fn run(&self, words: &str) -> Run {
        let program = binary::platter().display().to_string();
        let all: Vec<&str> =
            self.through.iter().map(|word| &**word).chain([&*program]).chain(words.split_whitespace()).collect();
        let mut command = match self.through.is_empty() {
            true => self.lab.command(all[0]),
            false => self.lab.apart(&["--net"], all[0]),
        };
        Run::of(command.args(&all[1..]).env("PLATTER_HOME", &self.home), Duration::from_secs(60))
    }

    /// An import of `tank` through `device`.
    fn import(&self, options: &str, device: &str) -> Run {
        self.run(&format!("zpool import -N -d {device} {options} tank"))
    }
}

impl Drop for Second<'_> {
    fn drop(&mut self) {
        let _ = self.run("daemon stop");
    }
}

/// Whether [`Second::elsewhere`] is possible.
fn can_be_apart() -> bool {
    let run = Command::new("unshare").args(["-m", "-n", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    run.is_ok_and(|output| output.status.success())
}

fn fill(mount: &Path) -> Tree {
    for number in 0..4 {
        fs::write(mount.join(format!("{number}")), data::mixed(number, 600_000, 50_000)).expect("a file");
    }
    Tree::of(mount)
}

/// Of loop devices only the uppermost was looked behind.
#[test]
fn loop_devices_on_each_other_lead_to_one_file() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    let tree = fill(&mount);
    let over = |path: &Path| Loop::over(path);
    let Some(lower) = over(&lab.disk(0)) else { return judge::skip("loop devices", "losetup fails here") };
    let Some(middle) = over(Path::new(&lower.0)) else { return judge::skip("loop devices", "losetup fails here") };
    let Some(upper) = over(Path::new(&middle.0)) else { return judge::skip("loop devices", "losetup fails here") };
    if !can_be_apart() {
        return judge::skip("name spaces", "unshare fails here");
    }
    let second = Second::elsewhere(&lab, ":");
    for device in [&lower, &middle, &upper] {
        second.import("", &device.0).refused().says("in use");
        second.import("-o readonly=on", &device.0).refused().says("in use");
        lab.zpool(&format!("create -f -m none other {}", device.0)).refused().says("in use");
    }
    tree.assert_same(&Tree::of(&mount), "nobody wrote");
    // Its name space has the mount too, on a machine where nobody is told of what is unmounted.
    second.run("daemon stop").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    // And the other way round.
    lab.zpool(&format!("import -N -d {} tank", upper.0)).ok();
    for device in [&lower.0, &middle.0, &lab.disk(0).display().to_string()] {
        second.import("", device).refused().says("in use");
    }
    lab.export("tank");
    second.import("", &middle.0).ok();
    second.run("zpool export tank").ok();
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A file that was not at its path here counted as none.
#[test]
fn a_file_behind_a_loop_device_that_is_not_to_be_seen_here_is_not_written() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let hidden = lab.tmp().join("hidden");
    fs::create_dir(&hidden).and_then(|()| fs::rename(lab.disk(0), hidden.join("d0"))).expect("moved");
    let mount = lab.create("", "tank", &hidden.join("d0").display().to_string());
    let tree = fill(&mount);
    let Some(device) = Loop::over(&hidden.join("d0")) else {
        return judge::skip("loop devices", "losetup fails here");
    };
    if can_be_apart() {
        let second = Second::elsewhere(&lab, &format!("mount -t tmpfs none {}", hidden.display()));
        second.import("", &device.0).refused().says("in use");
        second.run(&format!("zpool create -f -m none other {}", device.0)).refused().says("in use");
    } else {
        judge::skip("a mount name space", "unshare fails here");
    }
    // Deleted it is still the pool's.
    fs::remove_file(hidden.join("d0")).expect("rm");
    let second = Second::elsewhere(&lab, ":");
    second.import("", &device.0).refused().says("in use");
    second.run(&format!("zpool create -f -m none other {}", device.0)).refused().says("in use");
    tree.assert_same(&Tree::of(&mount), "nobody wrote");
    // Whoever has it behind a device of his own cannot be known.
    lab.platter(["daemon", "stop"]).refused().says("'zpool export -f tank' gives it up");
    lab.zpool("export -f tank").ok();
    let run = second.import("", &device.0).refused();
    run.says("cannot be locked").says("is in use cannot be known").says("deleted");
    second.run(&format!("zpool create -f -m none other {}", device.0)).refused().says("cannot be locked");
    // To read it harms nobody.
    second.import("-o readonly=on", &device.0).ok();
    second.run("zpool export tank").ok();
}

/// The names of pools' locks that somebody has, in this network name space.
fn locks() -> String {
    fs::read_to_string("/proc/net/unix").expect("it can be read")
}

/// On an overlay the file has another number than below it, and other locks.
#[test]
fn a_file_on_an_overlay_is_not_written_from_below() {
    let Some(lab) = Lab::open() else { return };
    let Some(overlay) = Overlay::new() else { return judge::skip("overlayfs", "mount fails") };
    let disk = overlay.merged().join("d0");
    fs::File::create(&disk).and_then(|file| file.set_len(128 << 20)).expect("a sparse file");
    let mount = lab.create("", "tank", &disk.display().to_string());
    let tree = fill(&mount);
    let below = overlay.upper().display().to_string();
    let second = Second::of(&lab);
    second.import("", &below).refused().says("in use").says("platter, pid").says("reguid");
    second.import("-f", &below).refused().says("in use");
    second.import("-o readonly=on", &below).refused().says("pool is in use").says("-f -o readonly=on");
    second.run(&format!("zpool import -d {below}")).ok().says("currently imported by another process");
    second.import("-f -o readonly=on", &below).ok();
    second.run("zpool export tank").ok();
    // With a new guid, too, and the old one is anybody's.
    let guid = || lab.zpool("get -H -p -o value guid tank").ok().stdout.trim().to_owned();
    let old = guid();
    lab.zpool("reguid tank").ok();
    let new = guid();
    assert!(old != new && locks().contains(&format!("/{new}/")) && !locks().contains(&format!("/{old}/")));
    second.import("", &below).refused().says("in use").says(&new);
    // A daemon that is killed leaves nothing behind, and its successor has the pool again.
    lab.kill_daemon(true);
    lab.revive("tank");
    second.import("", &below).refused().says("in use");
    tree.assert_same(&Tree::of(&mount), "nobody wrote");
    lab.export("tank");
    assert!(!locks().contains(&format!("/{new}/")));
    second.import("", &below).ok();
    lab.zpool(&format!("import -N -d {} tank", disk.display())).refused().says("in use");
    second.run("zpool destroy tank").ok();
    assert!(!locks().contains(&format!("/{new}/")));
}

/// Partitions of a disk do not exclude each other, so a shared lock was all that was taken of the file behind two
/// loop devices; and `create -f` did not ask whether the pool in the label is open.
#[test]
fn partitions_of_two_loop_devices_may_be_the_same_bytes() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 300);
    let image = lab.disk(0);
    let table = "printf 'label: gpt\nstart=2048,size=262144\nstart=264192,size=262144\n' | sfdisk -q \"$0\"";
    let status = Command::new("sh").args(["-c", table]).arg(&image).status();
    assert!(status.is_ok_and(|status| status.success()), "sfdisk");
    let (Some(one), Some(two)) = (Loop::over(&image), Loop::over(&image)) else {
        return judge::skip("loop devices", "losetup fails here");
    };
    for device in [&one, &two] {
        let _ = Command::new("partx").args(["-a", &device.0]).output();
    }
    let partition = |device: &Loop, number: u32| format!("{}p{number}", device.0);
    if !Path::new(&partition(&two, 2)).exists() {
        return judge::skip("partitions of loop devices", "partx makes none here");
    }
    let mount = lab.create("", "tank", &partition(&one, 1));
    let tree = fill(&mount);
    let seconds = [Some(Second::of(&lab)), can_be_apart().then(|| Second::elsewhere(&lab, ":"))];
    for second in seconds.iter().flatten() {
        for device in [partition(&two, 1), two.0.clone(), one.0.clone(), image.display().to_string()] {
            second.run(&format!("zpool create -f -m none other {device}")).refused().says("in use");
        }
        second.import("-f", &partition(&two, 1)).refused().says("in use");
        second.run(&format!("zpool labelclear -f {}", partition(&two, 1))).refused().says("is a member (ACTIVE)");
        // The other partition is free.
        second.run(&format!("zpool create -f -m none other {}", partition(&two, 2))).ok();
        second.run("zpool destroy other").ok();
    }
    // The same daemon is no better; and a copy of a device is that device to all who look at it.
    lab.zpool(&format!("create -f -m none other {}", partition(&two, 1))).refused().says("in use");
    let copy = lab.tmp().join("copy");
    fs::copy(&image, &copy).expect("a copy");
    for run in [lab.zpool(&format!("create -f other {}", copy.display())), {
        seconds[0].as_ref().expect("one").run(&format!("zpool create -f other {}", copy.display()))
    }] {
        run.refused().says("1 is part of active pool 'tank'").says("has that pool open");
    }
    tree.assert_same(&Tree::of(&mount), "nobody wrote");
    lab.export("tank");
    lab.zpool(&format!("create -m none other {}", partition(&two, 1))).refused().says("is part of exported pool");
    lab.zpool(&format!("create -f -m none other {}", partition(&two, 1))).ok();
    lab.zpool("destroy other").ok();
    for device in [&one, &two] {
        let _ = Command::new("partx").args(["-d", &device.0]).output();
    }
}
