//! Files made without a name (`O_TMPFILE`), which may get one later, and the time of birth that statx(2) tells.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use platter_itest::{Lab, data, zdb};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, linkat, open};
use rustix::io::Errno;

fn nameless(directory: &Path, flags: OFlags) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
    File::from(open(directory, flags, Mode::from_raw_mode(0o640)).expect("a file without a name"))
}

/// Gives the file a name, the way open(2) recommends.
fn name(file: &File, path: &Path) -> Result<(), Errno> {
    linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, path, AtFlags::SYMLINK_FOLLOW)
}

#[test]
fn a_file_without_a_name_is_used_like_any_and_gets_one_when_asked() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 160);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    let content = data::random(3, 700_001);
    let mut kept = nameless(&mount, OFlags::empty());
    kept.write_all(&content).expect("written");
    assert_eq!(kept.metadata().expect("metadata").nlink(), 0);
    assert_eq!(fs::read_dir(&mount).expect("listed").count(), 0);
    name(&kept, &mount.join("kept")).expect("it gets a name");
    assert_eq!(kept.metadata().expect("metadata").nlink(), 1);
    name(&kept, &mount.join("twice")).expect("it gets another name");
    assert_eq!(name(&kept, &mount.join("kept")), Err(Errno::EXIST));
    assert_eq!(fs::metadata(mount.join("kept")).expect("metadata").mode() & 0o7777, 0o640);

    // With O_EXCL it never gets one; nor does a file that had one and lost it.
    let mut never = nameless(&mount, OFlags::EXCL);
    never.write_all(b"scratch").expect("written");
    assert_eq!(name(&never, &mount.join("never")), Err(Errno::NOENT));
    let lost = File::create(mount.join("lost")).expect("a file");
    fs::remove_file(mount.join("lost")).expect("removed");
    assert_eq!(name(&lost, &mount.join("lost")), Err(Errno::NOENT));
    let mut read = String::new();
    never.seek(SeekFrom::Start(0)).expect("rewound");
    never.read_to_string(&mut read).expect("read");
    assert_eq!(read, "scratch");
    drop((kept, never, lost));
    fs::remove_file(mount.join("twice")).expect("removed");

    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    let mount = lab.import("", "tank");
    lab.wait_mounted(&mount);
    assert!(fs::read(mount.join("kept")).expect("read") == content);
    assert_eq!(fs::metadata(mount.join("kept")).expect("metadata").nlink(), 1);
}

#[test]
fn a_crash_keeps_what_was_named_and_synced_and_leaves_nothing_of_the_rest() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 160);
    let mount = lab.create("", "tank", "mirror d0 d1");
    lab.zpool("sync").ok();
    let content = data::random(5, 300_000);
    let mut named = nameless(&mount, OFlags::empty());
    named.write_all(&content).expect("written");
    name(&named, &mount.join("named")).expect("it gets a name");
    named.write_all(b"more").expect("written");
    named.sync_all().expect("synced");
    let mut left = nameless(&mount, OFlags::empty());
    left.write_all(&content).expect("written");
    left.sync_all().expect("synced");
    lab.kill_daemon(true);
    drop((named, left));

    lab.revive("tank");
    lab.wait_mounted(&mount);
    let names: Vec<_> = fs::read_dir(&mount).expect("listed").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(names, ["named"]);
    assert!(fs::read(mount.join("named")).expect("read") == [&content[..], b"more"].concat());
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn statx_tells_when_a_file_was_born() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 160);
    let mount = lab.create("", "tank", "d0");
    let path = mount.join("file");
    let before = SystemTime::now() - Duration::from_secs(1);
    fs::write(&path, b"one").expect("written");
    let born = fs::metadata(&path).expect("metadata").created().expect("a time of birth");
    assert!(before < born && born <= SystemTime::now());
    std::thread::sleep(Duration::from_millis(30));
    fs::write(&path, b"two").expect("written again");
    fs::rename(&path, mount.join("other")).expect("renamed");
    // The root is the kernel's node 1, and its number was that when statx(2) asked, but not when stat(2) did.
    let root = rustix::fs::statx(CWD, &mount, AtFlags::empty(), StatxFlags::ALL).expect("statx");
    assert_eq!(root.stx_ino, rustix::fs::stat(&mount).expect("stat").st_ino);
    assert_eq!(root.stx_ino, fs::metadata(&mount).expect("metadata").ino());
    lab.export("tank");
    let mount = lab.import("", "tank");
    lab.wait_mounted(&mount);
    let after = fs::metadata(mount.join("other")).expect("metadata");
    assert_eq!(after.created().expect("a time of birth"), born);
    assert!(after.modified().expect("a time") > born);
    lab.export("tank");
    let since = born.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_nanos() as i128;
    if let Some(dump) = zdb::zdb(&lab.dev(), &["-dddd", "tank/", &after.ino().to_string()]) {
        dump.says(&format!("crtime\t{}", zdb::ctime(since)));
    }
}
