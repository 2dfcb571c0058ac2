//! Mounts that somebody else keeps, or that are in use, when a command takes them away or makes them anew.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use platter_itest::{Lab, zdb};

/// A process whose name space has all mounts of this moment, as long as this lives.
struct Keeper(Child);

impl Keeper {
    fn new(lab: &Lab) -> Self {
        let keeper = Self(lab.apart(&[], "sleep").arg("600").spawn().expect("a process"));
        keeper.wait_for_sleep();
        keeper
    }

    fn wait_for_sleep(&self) {
        let began = Instant::now();
        while fs::read_to_string(format!("/proc/{}/comm", self.0.id())).expect("it lives").trim() != "sleep" {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where it sees `path`.
    fn sees(&self, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.0.id(), path.display()))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Long before the 30 seconds that a mount's end is waited for.
const SOON: Duration = Duration::from_secs(20);

/// What was kept by another name space was waited for, 30 seconds for each mount, and could not be mounted again.
#[test]
fn force_takes_mounts_that_are_in_use_and_kept_elsewhere() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "d0");
    let inner = lab.create_fs("", "tank/a");
    lab.create_fs("", "tank/a/b");
    fs::write(inner.join("file"), "kept").expect("written");
    let soon = |words: &str| {
        let began = Instant::now();
        let run = if words.starts_with("rename") { lab.zfs(words) } else { lab.zpool(words) }.ok();
        assert!(began.elapsed() < SOON, "{words} took {:?}", began.elapsed());
        run
    };
    let keeper = Keeper::new(&lab);
    let held = File::create(inner.join("held")).expect("made");
    soon("rename -f tank/a tank/c");
    assert!(held.write_at(b"late", 0).is_err(), "who had a file open writes past the move");
    assert!(fs::read(keeper.sees(&inner).join("file")).is_err(), "the other name space reads on");
    assert_eq!(fs::read(mount.join("c/file")).expect("mounted anew"), b"kept");
    drop(held);

    let keepers = (Keeper::new(&lab), keeper);
    let held = File::create(mount.join("c/held")).expect("made");
    soon("export -f tank");
    assert!(lab.mounts().is_empty(), "{:?}", lab.mounts());
    assert!(held.write_at(b"late", 0).is_err());
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    assert_eq!(fs::read(mount.join("c/file")).expect("mounted anew"), b"kept");
    drop((held, keepers));

    let keeper = Keeper::new(&lab);
    let held = File::create(mount.join("c/held")).expect("made");
    soon("destroy -f tank");
    assert!(lab.mounts().is_empty(), "{:?}", lab.mounts());
    assert!(held.write_at(b"late", 0).is_err());
    lab.create("", "tank", "d1");
    drop((held, keeper));
    lab.export("tank");
}

/// 300 ms were waited for each mount that another name space had: the export of a thousand took five minutes.
#[test]
fn an_export_does_not_wait_for_each_mount_that_is_kept_elsewhere() {
    const COUNT: u32 = 24;
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    for number in 0..COUNT {
        lab.create_fs("", &format!("tank/d{number}"));
    }
    let began = Instant::now();
    lab.export("tank");
    let alone = began.elapsed();
    lab.import("", "tank");
    let keeper = Keeper::new(&lab);
    let refused = lab.zpool("export tank").refused().says("is busy").says("has it in a mount namespace of its own");
    assert!(refused.mentions(&format!("process {} (sleep)", keeper.0.id())), "{refused}");
    let began = Instant::now();
    lab.zpool("export -f tank").ok();
    let kept = began.elapsed();
    assert!(kept < alone * 10 + COUNT * Duration::from_millis(150), "{kept:?}, {alone:?} when nobody keeps them");
    drop(keeper);
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `zfs set -u` left every property of mounts alone, and not only where they are. One that had to be made anew for a
/// property was not mounted again when it had been mounted by hand, and lost the options that it had been given.
#[test]
fn a_set_that_mounts_nothing_reaches_live_mounts() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let place = lab.create_fs("", "tank/a");
    let shown = |place: &Path| {
        let table = fs::read_to_string("/proc/self/mounts").expect("readable");
        let line = table.lines().find(|line| line.contains(&format!(" {} ", place.display())));
        line.unwrap_or_else(|| panic!("nothing is mounted at {}", place.display())).to_owned()
    };
    let held = File::create(place.join("held")).expect("made");
    lab.zfs("set -u setuid=off tank/a").ok();
    assert!(shown(&place).contains("nosuid"), "{}", shown(&place));
    drop(held);
    let other = lab.mnt("other");
    lab.zfs(&format!("set -u mountpoint={} readonly=on tank/a", other.display())).ok();
    assert!(fs::write(place.join("late"), "x").is_err(), "it can be written to: {}", shown(&place));
    assert!(!lab.mounts().contains(&other), "it was moved");
    lab.zfs("set -u canmount=off readonly=off tank/a").ok();
    fs::write(place.join("early"), "x").expect("it is mounted where it was, and can be written to");
    lab.zfs("set canmount=noauto tank/a").ok();
    lab.zfs("unmount tank/a").ok();
    lab.zfs("mount -o noexec tank/a").ok();
    lab.zfs("set readonly=on tank/a").ok();
    assert!(shown(&other).contains("noexec"), "{}", shown(&other));
    assert!(fs::write(other.join("late"), "x").is_err());
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Commands without `-f` took a data set away from a container that was at work in it, and ended with 0.
#[test]
fn what_a_container_uses_is_taken_from_it_by_force_only() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let place = lab.create_fs("", "tank/a");
    lab.create_fs("", "tank/b");
    fs::create_dir(place.join("given")).expect("made");
    let bound = lab.tmp().join("volume");
    fs::create_dir(&bound).expect("made");
    // It has a folder of the data set, and not the data set's own place.
    let script = format!(
        "mount --bind {0}/given {1} && umount {2}/b && umount {0} && umount {2} && exec sleep 600",
        place.display(),
        bound.display(),
        lab.mnt("tank").display()
    );
    let container = Keeper(lab.apart(&[], "sh").args(["-c", &script]).spawn().expect("a process"));
    container.wait_for_sleep();
    let inside = container.sees(&bound);
    let log = File::create(inside.join("log")).expect("the container's folder");
    let works = |when: &str| {
        log.write_at(b"line", 0).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(inside.join("log").exists(), "{when}");
    };
    for command in [
        "zfs set readonly=on tank",
        "zfs set acltype=posix tank/a",
        "zfs set mountpoint=none tank/a",
        "zfs rename tank/a tank/c",
        "zfs unmount tank/a",
        "zfs destroy tank/a",
        "zpool export tank",
        "zpool destroy tank",
    ] {
        let run = lab.platter(command.split(' ')).refused();
        assert_eq!(run.code, 1, "{run}");
        assert!(run.mentions("is busy") && run.mentions(&format!("process {} (sleep)", container.0.id())), "{run}");
        works(command);
    }
    lab.zfs("unmount -a").refused().says("process");
    works("unmount -a");
    // The mount is as it was, so with the last of them nothing is left to be done.
    lab.zfs("inherit readonly tank").refused();
    lab.zfs("inherit acltype tank/a").ok();
    lab.zfs("mount -a").ok();
    // What the host's other name spaces are told of is not in the way.
    lab.zfs("unmount tank/b").ok();
    lab.zfs("unmount -f tank/a").ok();
    assert!(log.write_at(b"late", 0).is_err(), "it was cut off");
    drop((log, container));
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `zpool export -f` and `zfs rename -f` of a healthy pool lost what was stored through mappings, and said nothing.
#[test]
fn force_writes_back_what_was_stored_through_mappings() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let place = lab.create_fs("", "tank/a");
    for (command, place) in [("zfs rename -f tank/a tank/c", place), ("zpool export -f tank", lab.mnt("tank/c"))] {
        let path = place.join("mapped");
        let script = format!(
            "import mmap,os,sys\nf=os.open('{}',os.O_RDWR|os.O_CREAT)\nos.ftruncate(f,65536)\nm=mmap.mmap(f,65536)\n\
             os.fsync(f)\nm[40000:40006]=b'stored'\nprint('ready',flush=True)\nsys.stdin.read()",
            path.display()
        );
        let mut python = lab.command("/usr/bin/python3");
        python.args(["-c", &script]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let Ok(mut child) = python.spawn() else { return };
        let mut said = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().expect("a pipe")), &mut said)
            .expect("it speaks");
        assert_eq!(said, "ready\n");
        lab.platter(command.split(' ')).ok();
        if command.starts_with("zpool") {
            lab.import("", "tank");
        }
        let found = fs::read(lab.mnt("tank/c").join("mapped")).expect("readable");
        assert_eq!(&found[40000..40006], b"stored", "{command}");
        let _ = child.kill();
        let _ = child.wait();
    }
    lab.export("tank");
}
