//! What surrounds the daemon: where commands come from, the file system of its home, its end.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use platter_itest::{Lab, binary, data, zdb};

/// In a chroot, or where another folder is mounted, the daemon overwrote another file than the one that was named.
#[test]
fn a_path_that_means_another_file_to_the_daemon_is_refused() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lab.disks(2, 128);
    lab.create("", "tank", "d0");
    let (seen, other) = (lab.tmp().join("seen"), lab.tmp().join("other"));
    for folder in [&seen, &other] {
        fs::create_dir(folder).expect("made");
        fs::write(folder.join("x"), "precious").expect("made");
        File::options().write(true).open(folder.join("x")).and_then(|file| file.set_len(128 << 20)).expect("long");
    }
    let (seen, other) = (seen.display(), other.display());
    let elsewhere = |words: &str| {
        let script = format!("mount --bind {other} {seen} && exec {} zpool {words}", binary::platter().display());
        lab.run_command(lab.apart(&[], "sh").args(["-c", &script]))
    };
    for words in [
        format!("create -m none new {seen}/x"),
        format!("create -f -m none new {seen}/x"),
        format!("add -f tank {seen}/x"),
        format!("labelclear -f {seen}/x"),
        format!("import -d {seen}"),
    ] {
        let run = elsewhere(&words).refused();
        assert!(run.mentions("means another by it") && run.mentions("nsenter --target"), "{words}: {run}");
    }
    for folder in [format!("{seen}/x"), format!("{other}/x")] {
        assert!(fs::read(folder).expect("readable").starts_with(b"precious"));
    }
    // A bind of `/` has the same root and lies in the same name space, without what is mounted in it.
    let root = lab.tmp().join("root");
    fs::create_dir(&root).expect("made");
    let script = format!(
        "mount -t tmpfs none {seen} && truncate -s 128M {seen}/x && mount --bind / {root} \
         && mount -t proc none {root}/proc && chroot {root} env PLATTER_HOME={home} {platter} \
         zpool create -f -m none new {seen}/x; code=$?; umount {root}/proc {root} {seen}; exit $code",
        root = root.display(),
        home = lab.home().display(),
        platter = binary::platter().display()
    );
    lab.run("sh", ["-c", &script]).refused().says("means another by it");
    // What is the same file from there may be used from there.
    let d1 = lab.disk(1);
    elsewhere(&format!("create -m none new {}", d1.display())).ok();
    lab.export("new");
    // Another process name space, without a /proc of its own or of anybody's.
    let script = format!("umount -l /proc; exec {} zpool import -d {} new", binary::platter().display(), d1.display());
    lab.run_command(lab.apart(&["--pid", "--fork"], "sh").args(["-c", &script])).ok();
    lab.export("new");
    lab.export("tank");
}

/// The daemon waited for its log, and with it a group that had something to log: nothing of the pool could be synced.
#[test]
fn a_pool_works_on_while_the_file_system_of_the_log_hangs() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (image, place) = (lab.tmp().join("image"), lab.tmp().join("host"));
    File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("an image");
    fs::create_dir(&place).expect("made");
    let at = place.to_str().expect("UTF-8");
    lab.run("mkfs.ext4", ["-q", image.to_str().expect("UTF-8")]).ok();
    if lab.run("mount", ["-o", "loop", image.to_str().expect("UTF-8"), at]).code != 0 {
        eprintln!("skipped: no loop devices");
        return;
    }
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).expect("owner only");
    lab.disks(1, 128);
    let home = place.join("home");
    let zfs = |words: &str| {
        let mut command = lab.command(binary::platter());
        command.env("PLATTER_HOME", &home).arg("zpool").args(words.split(' '));
        command
    };
    let mount = lab.mnt("tank");
    let create = format!("create -O mountpoint={} tank {}", mount.display(), lab.disk(0).display());
    assert!(zfs(&create).status().expect("it runs").success());
    lab.run("sync", ["-f", at]).ok();
    lab.run("fsfreeze", ["-f", at]).ok();
    // Its own command may wait; what it logs must not.
    let mut waiting = lab.command(binary::platter());
    let words = ["zfs", "set", "atime=off", "tank"];
    let mut waiting = waiting.env("PLATTER_HOME", &home).args(words).spawn().expect("it runs");
    let file = mount.join("file");
    let written = lab.run(
        "timeout",
        ["20", "dd", "if=/dev/urandom", &format!("of={}", file.display()), "bs=1M", "count=8", "conv=fsync"],
    );
    lab.run("fsfreeze", ["-u", at]).ok();
    assert_eq!(written.code, 0, "{written}");
    assert!(waiting.wait().expect("it ends").success());
    assert!(zfs("export tank").status().expect("it runs").success());
    let stopped = lab.command(binary::platter()).env("PLATTER_HOME", &home).args(["daemon", "stop"]).status();
    assert!(stopped.expect("it runs").success());
    lab.umount(&place);
}

/// "dataset does not exist" was the answer while the daemon closed its pools: a script may believe it.
#[test]
fn a_command_that_meets_the_daemons_end_is_answered_by_the_next() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    (0..4).for_each(|number| drop(lab.create_fs("", &format!("tank/d{number}"))));
    for round in 0..4 {
        fs::write(mount.join("file"), data::random(round, 4 << 20)).expect("written");
        std::thread::scope(|scope| {
            scope.spawn(|| lab.platter(["daemon", "stop"]));
            for number in 0..4 {
                let lab = &lab;
                scope.spawn(move || {
                    for step in 0..6 {
                        lab.zfs(&format!("set a:b={round}.{step} tank/d{number}")).ok();
                    }
                });
            }
        });
    }
    for number in 0..4 {
        assert_eq!(lab.zfs(&format!("get -H -o value a:b tank/d{number}")).ok().stdout, "3.5\n");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// The reason that was shown was an empty line: the log could not be written either.
#[test]
fn a_home_without_room_is_named_when_the_daemon_cannot_start() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = lab.tmp().join("host");
    fs::create_dir(&place).expect("made");
    let at = place.to_str().expect("UTF-8");
    lab.run("mount", ["-t", "tmpfs", "-o", "size=64k,mode=700", "none", at]).ok();
    let home = place.join("home");
    fs::create_dir(&home).expect("made");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("owner only");
    // Names take no room there, and data has none.
    let _ = fs::write(place.join("in the way"), vec![1; 1 << 20]);
    let list = Command::new(binary::platter()).env("PLATTER_HOME", &home).args(["zpool", "list"]).output();
    let list = list.expect("it runs");
    let said = String::from_utf8_lossy(&list.stderr);
    assert!(!list.status.success(), "{said}");
    assert!(said.contains("cannot write in") && said.contains("No space left on device"), "{said}");
    lab.umount(Path::new(at));
}

/// Not a link: the daemon is started as the program that runs.
#[test]
fn a_copy_of_the_program_under_openzfs_name_starts_the_daemon() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let copy = lab.tmp().join("zpool");
    binary::copy_to(&copy);
    lab.run(copy.to_str().expect("text"), ["create", "-m", "none", "tank", &lab.disk(0).display().to_string()]).ok();
    lab.run(copy.to_str().expect("text"), ["export", "tank"]).ok();
}
