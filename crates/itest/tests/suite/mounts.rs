//! What becomes of mounts: over a restart of the daemon, after its sudden death, and for a user who is not root.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platter_itest::{Lab, Run, Tree, binary, data, judge, zdb};

/// Bytes allocated in the pool once what was freed is free.
fn settled_bytes(lab: &Lab) -> u64 {
    for _ in 0..4 {
        lab.zpool("sync tank").ok();
    }
    lab.zpool("list -Hp -o allocated tank").ok().stdout.trim().parse().expect("a number of bytes")
}

#[test]
fn mounts_are_there_again_after_the_daemon_restarts() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    let child = lab.create_fs("-o recordsize=16K", "tank/child");
    let elsewhere = lab.tmp().join("else where");
    lab.platter(["zfs", "create", "-o", &format!("mountpoint={}", elsewhere.display()), "tank/away"]).ok();
    for (seed, place) in [&mount, &child, &elsewhere].into_iter().enumerate() {
        fs::write(place.join("file"), data::mixed(seed as u64, 300_000, 5_000)).expect("a file");
    }
    let trees = [Tree::of(&mount), Tree::of(&elsewhere)];
    lab.platter(["daemon", "stop"]).ok();
    assert!(lab.mounts().is_empty(), "a clean end leaves no mount: {:?}", lab.mounts());
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool("list tank").ok();
    lab.wait_mounted(&mount);
    lab.wait_mounted(&elsewhere);
    trees[0].assert_same(&Tree::of(&mount), "after a restart");
    trees[1].assert_same(&Tree::of(&elsewhere), "after a restart");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_killed_daemon_leaves_errors_instead_of_hangs_and_the_next_one_clears_up() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let child = lab.create_fs("", "tank/child");
    let bytes = data::random(1, 500_000);
    for place in [&mount, &child] {
        let mut file = File::create(place.join("file")).expect("create");
        file.write_all(&bytes).expect("write");
        file.sync_all().expect("fsync");
    }
    let mut open = OpenOptions::new().read(true).write(true).open(child.join("file")).expect("open");
    lab.kill_daemon(false);

    // ENOTCONN for what is asked from now on; ECONNABORTED, and ECANCELED over io_uring, while the kernel is taking the
    // connection down. Never a wait.
    let start = Instant::now();
    let canceled = Some(rustix::io::Errno::CANCELED.raw_os_error());
    let is_dead = |error: std::io::Error| {
        matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::ConnectionAborted)
            || error.raw_os_error() == canceled
    };
    assert!(is_dead(fs::metadata(mount.join("other")).expect_err("nobody serves it")));
    assert!(is_dead(open.write_all(b"x").and_then(|()| open.sync_all()).expect_err("nobody serves it")));
    assert!(is_dead(File::create(child.join("new")).expect_err("nobody serves it")));
    assert!(start.elapsed() < Duration::from_secs(5), "errors come at once");

    // Mounts at the same places, though a file of the dead one is still open.
    lab.zpool("list tank").ok();
    lab.wait_mounted(&child);
    let table = lab.mounts();
    assert_eq!(table.iter().filter(|path| path.starts_with(&mount)).count(), 2, "dead mounts are left: {table:?}");
    assert_eq!(fs::read(mount.join("file")).expect("read"), bytes);
    assert_eq!(fs::read(child.join("file")).expect("read"), bytes);
    let mut back = Vec::new();
    assert!(is_dead(open.read_to_end(&mut back).expect_err("the old one stays dead")));
    drop(open);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn files_without_a_name_are_freed_after_a_crash() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    let mount = lab.create("-O compression=off -O xattr=dir", "tank", "d0");
    let empty = settled_bytes(&lab);
    let mut files = Vec::new();
    for number in 0..8 {
        let path = mount.join(format!("doomed{number}"));
        let mut file = File::create(&path).expect("create");
        file.write_all(&data::random(number, 5 << 20)).expect("write");
        rustix::fs::setxattr(&path, "user.large", &[7; 60_000], rustix::fs::XattrFlags::empty()).expect("an attribute");
        fs::remove_file(&path).expect("remove");
        file.write_all(b"still there").expect("write without a name");
        files.push(file);
    }
    let folder = mount.join("folder");
    fs::create_dir(&folder).expect("a folder");
    let held = File::open(&folder).expect("a folder can be opened");
    fs::remove_dir(&folder).expect("remove");
    let files_and_folder = files.len() + 1;
    let full = settled_bytes(&lab);
    assert!(full > empty + (39 << 20), "{full} bytes with files open, {empty} without: they were freed too early");
    lab.kill_daemon(false);
    drop((files, held));
    zdb::assert_clean(&lab.dev(), "tank");
    assert_unlinked(&lab, files_and_folder);
    lab.zpool("list tank").ok();
    lab.wait_mounted(&mount);
    assert_eq!(fs::read_dir(&mount).expect("list").count(), 0);
    let after = settled_bytes(&lab);
    assert!(after < empty + (2 << 20), "{after} bytes after the crash, {empty} when it was empty");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    assert_unlinked(&lab, 0);
}

/// Asserts that zdb lists so many entries in the set of unlinked files.
#[track_caller]
fn assert_unlinked(lab: &Lab, count: usize) {
    let Some(run) = zdb::zdb(&lab.dev(), &["-dddd", "tank/"]) else { return };
    let run = run.ok();
    let set = run.stdout.split("\n    Object  lvl").find(|object| object.contains("ZFS delete queue"));
    let set = set.expect("zdb shows the unlinked set");
    let entries = [format!(", {count} entries"), format!("ZAP entries: {count}\n")];
    assert!(entries.iter().any(|entries| set.contains(entries)), "{count} entries expected\n{set}");
}

/// Somebody who is not root, with a home, disks and mount points of his own.
struct User {
    lab: Lab,
    program: PathBuf,
}

impl User {
    const NAME: &str = "nobody";
    const ID: u32 = 65_534;

    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            judge::skip("another user's mounts", "acting as another user takes root");
            return None;
        }
        for program in ["runuser", "fusermount3"] {
            judge::need(program)?;
        }
        let lab = Lab::open()?;
        lab.disks(2, 128);
        // Where the binary lies may be closed to others.
        let program = lab.tmp().join("platter");
        binary::copy_to(&program);
        fs::set_permissions(lab.root(), fs::Permissions::from_mode(0o755)).expect("permissions");
        for path in [lab.home(), lab.dev(), lab.root().join("mnt"), lab.tmp(), lab.disk(0), lab.disk(1)] {
            chown(&path, Some(Self::ID), Some(Self::ID)).expect("given away");
        }
        Some(Self { lab, program })
    }

    fn run(&self, words: &[&str]) -> Run {
        self.lab.run("runuser", ["-u", Self::NAME, "--"].iter().chain(words))
    }

    fn platter(&self, words: &str) -> Run {
        let program = self.program.to_str().expect("UTF-8");
        self.run(&[program].into_iter().chain(words.split_whitespace()).collect::<Vec<_>>())
    }

    fn shell(&self, script: &str) -> Run {
        self.run(&["sh", "-c", script])
    }
}

#[test]
fn an_ordinary_user_mounts_through_fusermount3() {
    let Some(user) = User::new() else { return };
    let lab = &user.lab;
    let mount = lab.mnt("tank");
    user.platter(&format!("zpool create -m {} tank mirror d0 d1", mount.display())).ok();
    lab.wait_mounted(&mount);
    // The helper may not enter a mount that is its user's alone: said, with the way out.
    let inside = user.platter("zfs create tank/inside");
    if !lab.mounts().contains(&mount.join("inside")) {
        inside.says("user_allow_other").says("mountpoint=");
    }
    user.platter("zfs destroy tank/inside").ok();
    let own = lab.mnt("own");
    user.platter(&format!("zfs create -o compression=lz4 -o mountpoint={} tank/own", own.display())).ok();
    lab.wait_mounted(&own);
    let shown = lab.root().join("mnt");
    let shown = shown.display();
    user.shell(&format!(
        "cd {shown}/own && head -c 3000000 /dev/urandom > a && cp a b && ln a c && ln -s a d && mkdir e && mv b e && \
         chmod 4711 a && cmp a e/b && sha256sum a e/b > sums"
    ))
    .ok();
    // Neither root's nor anybody else's: such a mount is its user's alone, and never honours set-uid or devices.
    let owned = user.shell(&format!("stat -c %U:%a {shown}/own {shown}/own/a")).ok();
    assert_eq!(owned.stdout, "nobody:755\nnobody:4711\n");
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table");
    let line = table.lines().find(|line| line.contains(own.to_str().expect("UTF-8"))).expect("mounted");
    assert!(line.contains("nosuid") && line.contains("nodev") && line.contains("fuse.zfs tank/own"), "{line}");
    user.shell(&format!("chown 0 {shown}/own/a")).refused();

    // In use: not without force.
    let mut holder = lab.command("runuser");
    holder.args(["-u", User::NAME, "--", "sh", "-c", &format!("cd {shown}/own && exec sleep 60")]);
    let mut holder = holder.spawn().expect("a process");
    let start = Instant::now();
    while user.platter("zfs unmount tank/own").code == 0 {
        // It had not got there yet.
        user.platter("zfs mount tank/own").ok();
        assert!(start.elapsed() < Duration::from_secs(20), "a mount in use is unmounted");
        let _ = holder.kill();
        let _ = holder.wait();
        let script = format!("cd {shown}/own && exec sleep 60");
        holder = lab.command("runuser").args(["-u", User::NAME, "--", "sh", "-c", &script]).spawn().expect("a process");
        std::thread::sleep(Duration::from_millis(300));
    }
    user.platter("zfs unmount tank/own").refused().says("busy");
    let _ = holder.kill();
    let _ = holder.wait();

    // Its daemon is killed: the next one of the same user takes the dead mounts away without root's help.
    user.shell(&format!("sync {shown}/own/sums")).ok();
    lab.kill_daemon(false);
    user.platter("zpool list tank").ok();
    lab.wait_mounted(&own);
    user.shell(&format!("cd {shown}/own && sha256sum -c sums")).ok();
    user.platter("zpool export tank").ok();
    assert!(lab.mounts().is_empty(), "left after export: {:?}", lab.mounts());
    zdb::assert_clean(&lab.dev(), "tank");
    user.platter(&format!("zpool import -d {} tank", lab.dev().display())).ok();
    lab.wait_mounted(&own);
    user.shell(&format!("cd {shown}/own && sha256sum -c sums && test $(stat -c %h a) = 2")).ok();
    user.platter("daemon stop").ok();
    zdb::assert_clean(&lab.dev(), "tank");
    let owner = fs::metadata(lab.disk(0)).expect("metadata").uid();
    assert_eq!(owner, User::ID);
}

#[test]
fn another_users_folder_is_no_mount_point() {
    let Some(user) = User::new() else { return };
    let place = user.lab.root().join("roots");
    fs::create_dir(&place).expect("a folder");
    let run = user.platter(&format!("zpool create -m {} tank d0", place.display()));
    // The pool is made; that it is not mounted is said, with the reason.
    run.says("mount").says_one_of(&["permission", "not permitted", "fusermount3"]);
    assert!(!user.lab.mounts().iter().any(|mount| mount.starts_with(&place)));
    user.platter("zpool export tank").ok();
    zdb::assert_clean(&user.lab.dev(), "tank");
    assert!(Path::new(&place).is_dir());
}

#[test]
fn what_was_unmounted_lazily_or_is_kept_by_another_name_space_is_mounted_anew() {
    // "already mounted" for ever, while writes went to the folder below.
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    let place = mount.to_str().expect("UTF-8").to_owned();
    let mut open = fs::File::create(mount.join("open")).expect("a file");
    lab.run("umount", ["-l", &place]).ok();
    lab.zfs("mount tank").ok();
    lab.wait_mounted(&mount);
    assert!(std::io::Write::write_all(&mut open, b"cut off").is_err(), "the old mount's files are cut off");
    fs::write(mount.join("new"), "x").expect("a file");

    let mut holder = lab.apart(&[], "sleep").arg("600").spawn().expect("a process");
    let seen = std::path::PathBuf::from(format!("/proc/{}/root{place}/new", holder.id()));
    let began = std::time::Instant::now();
    while fs::read_to_string(format!("/proc/{}/comm", holder.id())).expect("it lives").trim() != "sleep" {
        assert!(began.elapsed().as_secs() < 60, "no name space");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    lab.zfs("unmount tank").refused().says("is busy").says("(sleep) has it in a mount namespace of its own");
    assert_eq!(fs::read(&seen).expect("it is left to it"), b"x");
    lab.zfs("unmount -f tank").ok();
    assert_eq!(fs::read(&seen).expect_err("it is cut off there").raw_os_error(), Some(107), "ENOTCONN");
    lab.zfs("mount tank").ok();
    lab.wait_mounted(&mount);
    assert_eq!(fs::read(mount.join("new")).expect("a file"), b"x");
    // With -f too, what is busy stays.
    let busy = fs::File::open(mount.join("new")).expect("a file");
    lab.zfs("unmount -f tank").refused().says("pool or dataset is busy");
    drop(busy);
    // Nothing changes for a mount whose property is refused.
    let busy = fs::File::open(mount.join("new")).expect("a file");
    lab.zfs("set mountpoint=relative tank").refused().says_not("busy");
    for bad in ["/proc", "/dev", lab.dev().to_str().expect("UTF-8"), lab.home().to_str().expect("UTF-8")] {
        lab.zfs(&format!("set mountpoint={bad} tank")).refused().says("cannot be a mount point");
        lab.zfs(&format!("create -o mountpoint={bad} tank/bad")).refused().says("cannot be a mount point");
    }
    drop(busy);
    lab.export("tank");
    let _ = holder.kill();
    let _ = holder.wait();
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `daemon stop` left the pool as it was, said so, and ended with 0: what was written seconds ago was lost, and the
/// mount below the other one was dead.
#[test]
fn a_daemon_ends_in_order_though_something_is_mounted_over_its_mount() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return judge::skip("mount", "needs root");
    }
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    let child = lab.create_fs("", "tank/child");
    fs::write(child.join("file"), data::random(1, 100_000)).expect("written");
    fs::write(mount.join("file"), data::random(2, 100_000)).expect("written");
    let over = |arguments: &[&str]| {
        let status = std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(&mount).status();
        assert!(status.is_ok_and(|status| status.success()), "{arguments:?}");
    };
    over(&["mount", "-t", "tmpfs", "none"]);
    lab.zpool("export tank").refused().says("something is mounted over it");
    let run = lab.platter(["daemon", "stop"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("something is mounted over it"), "{}", run.stderr);
    assert!(run.stderr.contains("the daemon ends all the same"), "{}", run.stderr);
    assert!(run.stdout.contains("ended"), "{}", run.stdout);
    over(&["umount"]);
    zdb::assert_clean(&lab.dev(), "tank");
    // The next one takes away what is left and mounts anew.
    lab.zpool("list").ok();
    lab.wait_mounted(&child);
    assert!(fs::read(child.join("file")).expect("readable") == data::random(1, 100_000));
    assert!(fs::read(mount.join("file")).expect("readable") == data::random(2, 100_000));
    lab.export("tank");
}
