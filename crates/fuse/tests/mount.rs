//! The kernel's view of a file system on blocks in memory. Skipped, saying so, where mounting is not possible.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use std::time::{Duration, Instant, UNIX_EPOCH};

use common::Fixture;
use platter_fuse::{FuseError, Mount, MountOptions, mount, mountinfo};
use platter_ondisk::ObjectId;

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_are_what_was_written_to_them() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let shown = mountinfo::find(mount.mountpoint()).unwrap();
    assert_eq!((shown.kind.as_str(), shown.source.as_str()), ("fuse.zfs", "tank/media"));

    let data = pattern(5_000_001, 7);
    fs::write(fixture.path("big"), &data).unwrap();
    assert!(fs::read(fixture.path("big")).unwrap() == data);
    let mut file = OpenOptions::new().read(true).write(true).open(fixture.path("big")).unwrap();
    file.write_all_at(b"in the middle", 1_000_000).unwrap();
    file.sync_all().unwrap();
    file.seek(SeekFrom::Start(999_999)).unwrap();
    let mut part = [0; 15];
    file.read_exact(&mut part).unwrap();
    assert_eq!(&part[1..14], b"in the middle");
    file.set_len(100).unwrap();
    file.set_len(300).unwrap();
    let mut all = fs::read(fixture.path("big")).unwrap();
    assert_eq!(all.split_off(100), [0; 200]);
    assert!(all == data[..100]);
    OpenOptions::new().append(true).open(fixture.path("big")).unwrap().write_all(b"end").unwrap();
    assert_eq!(fs::metadata(fixture.path("big")).unwrap().len(), 303);

    // What the engine has is what the kernel's cache showed.
    drop(file);
    mount.unmount(false).unwrap();
    assert!(!mount.is_alive());
    let mount = fixture.mount();
    assert_eq!(fs::metadata(fixture.path("big")).unwrap().len(), 303);
    assert!(fs::read(fixture.path("big")).unwrap()[..100] == data[..100]);
    mount.unmount(false).unwrap();
}

/// Readers and one who only writes, each seeing at once what the other did, whoever came first.
#[test]
fn what_is_written_past_the_cache_is_read_at_once() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let path = fixture.path("both");
    let read = |file: &File, at: u64| {
        let mut bytes = [0; 100_000];
        let found = file.read_at(&mut bytes, at).unwrap();
        bytes[..found].to_vec()
    };
    let (first, second) = (pattern(300_000, 1), pattern(300_000, 2));

    // The writer first: written past the cache, whoever reads meanwhile.
    let writer = File::create(&path).unwrap();
    writer.write_all_at(&first, 0).unwrap();
    let reader = File::open(&path).unwrap();
    let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert!(read(&reader, 150_000) == first[150_000..250_000]);
    writer.write_all_at(&second[150_000..250_000], 150_000).unwrap();
    assert!(read(&reader, 150_000) == second[150_000..250_000] && read(&both, 150_000) == second[150_000..250_000]);
    both.write_all_at(b"beside", 150_003).unwrap();
    assert_eq!(read(&reader, 150_003)[..6], *b"beside");
    drop((writer, both));
    // Nobody writes past the cache any more: what comes now is kept there.
    assert!(fs::read(&path).unwrap()[..150_000] == first[..150_000]);

    // A reader first: the writer stays with it in the cache. Odd places and lengths, over what is cached.
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    for at in [0, 4095, 131_071, 299_000] {
        assert!(!read(&reader, at).is_empty());
        writer.write_all_at(&second[7..5007], at).unwrap();
        assert!(read(&reader, at)[..5000] == second[7..5007]);
    }
    drop((reader, writer));

    // What earlier readers left in the cache does not outlive a writer who came alone.
    let cached = fs::read(&path).unwrap();
    let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
    writer.write_all(b"the end").unwrap();
    writer.set_len(10).unwrap();
    writer.write_all(&second).unwrap();
    drop(writer);
    let all = fs::read(&path).unwrap();
    assert!(all.len() == 300_010 && all[..10] == cached[..10] && all[10..] == second);
    mount.unmount(false).unwrap();
}

#[test]
fn names_behave_as_posix_says() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let path = |name: &str| fixture.path(name);
    assert!(fs::metadata(path("a")).is_err());
    fs::create_dir(path("d")).unwrap();
    fs::write(path("a"), "one").unwrap();
    fs::hard_link(path("a"), path("d/b")).unwrap();
    assert_eq!(fs::metadata(path("a")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(path("a")).unwrap().ino(), fs::metadata(path("d/b")).unwrap().ino());
    symlink("d/b", path("s")).unwrap();
    assert_eq!(fs::read_to_string(path("s")).unwrap(), "one");
    assert_eq!(fs::read_link(path("s")).unwrap(), Path::new("d/b"));
    assert_eq!(fs::remove_dir(path("d")).unwrap_err().kind(), std::io::ErrorKind::DirectoryNotEmpty);
    fs::rename(path("a"), path("c")).unwrap();
    assert!(fs::metadata(path("a")).is_err());
    assert_eq!(names(fixture.directory.path()), ["c", "d", "s"]);

    fs::set_permissions(path("c"), fs::Permissions::from_mode(0o4711)).unwrap();
    assert_eq!(fs::metadata(path("c")).unwrap().mode(), 0o104711);
    std::os::unix::fs::chown(path("c"), Some(1000), Some(100)).unwrap();
    let owner = fs::metadata(path("c")).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (1000, 100));
    let time = UNIX_EPOCH - Duration::new(86_400, 250_000_000);
    File::open(path("c")).unwrap().set_modified(time).unwrap();
    assert_eq!(fs::metadata(path("c")).unwrap().modified().unwrap(), time);

    use rustix::fs::{CWD, RenameFlags, renameat_with};
    fs::write(path("x"), "x").unwrap();
    assert!(renameat_with(CWD, path("x"), CWD, path("c"), RenameFlags::NOREPLACE).is_err());
    renameat_with(CWD, path("x"), CWD, path("c"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(path("c")).unwrap(), "x");
    assert_eq!(fs::read_to_string(path("x")).unwrap(), "one");

    rustix::fs::mknodat(CWD, path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, path("null"), rustix::fs::FileType::CharacterDevice, 0o666.into(), device).unwrap();
    assert_eq!(fs::metadata(path("null")).unwrap().rdev(), device);
    fs::write(path("null"), "gone").unwrap();

    // A removed file lives while it is open.
    let mut open = OpenOptions::new().read(true).write(true).open(path("x")).unwrap();
    fs::remove_file(path("x")).unwrap();
    fs::remove_file(path("d/b")).unwrap();
    open.write_all(b"still here").unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    drop(open);
    assert!(rustix::fs::getxattr(path("c"), "user.none", &mut [0; 8][..]).is_err());
    assert!(rustix::fs::statvfs(path("c")).unwrap().f_blocks > 0);
    mount.unmount(false).unwrap();
}

#[test]
fn a_large_directory_is_listed_whole() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let mut expected = Vec::new();
    for number in 0..5_000 {
        let name = format!("file-{number}-{}", "x".repeat(number % 60));
        File::create(fixture.path(&name)).unwrap();
        expected.push(name);
    }
    expected.sort();
    assert!(names(fixture.directory.path()) == expected);
    mount.unmount(false).unwrap();
    let mount = fixture.mount();
    assert!(names(fixture.directory.path()) == expected);
    fs::remove_dir_all(fixture.path("file-0-")).unwrap_err();
    for name in &expected {
        fs::remove_file(fixture.path(name)).unwrap();
    }
    assert!(names(fixture.directory.path()).is_empty());
    mount.unmount(false).unwrap();
}

#[test]
fn holes_are_found_and_made() {
    use rustix::fs::{FallocateFlags, SeekFrom};
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(fixture.path("sparse")).unwrap();
    let block = 128 << 10;
    file.write_all_at(&pattern(block, 1), 8 * block as u64).unwrap();
    file.sync_all().unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap(), 8 * block as u64);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(8 * block as u64)).unwrap(), 9 * block as u64);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 8 * block as u64, block as u64).unwrap();
    let mut bytes = vec![1; block];
    file.read_exact_at(&mut bytes, 8 * block as u64).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
    assert!(rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, block as u64).is_err());
    drop(file);
    mount.unmount(false).unwrap();
}

#[test]
fn the_control_directory_is_there_and_cannot_be_changed() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    assert!(names(fixture.directory.path()).is_empty());
    assert_eq!(names(&fixture.path(".zfs")), ["snapshot"]);
    assert!(names(&fixture.path(".zfs/snapshot")).is_empty());
    let meta = fs::metadata(fixture.path(".zfs/snapshot")).unwrap();
    assert_eq!((meta.mode(), meta.uid(), meta.ino()), (0o040_555, 0, 0xffff_ffff_fffd));
    assert!(fs::metadata(fixture.path(".zfs/other")).is_err());
    fs::write(fixture.path("file"), "x").unwrap();
    let denied = [
        fs::create_dir(fixture.path(".zfs/snapshot/new")),
        fs::write(fixture.path(".zfs/file"), "x"),
        fs::remove_dir(fixture.path(".zfs")),
        fs::rename(fixture.path("file"), fixture.path(".zfs/file")),
        fs::rename(fixture.path(".zfs"), fixture.path("other")),
        fs::set_permissions(fixture.path(".zfs"), fs::Permissions::from_mode(0o700)),
    ];
    for (number, result) in denied.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1), "{number}: {error}");
    }
    mount.unmount(false).unwrap();
}

#[test]
fn a_whiteout_takes_the_place_of_what_was_renamed() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    for target in ["new", "existing"] {
        fs::write(fixture.path("existing"), "old").unwrap();
        fs::write(fixture.path("file"), target).unwrap();
        renameat_with(CWD, fixture.path("file"), CWD, fixture.path(target), RenameFlags::WHITEOUT).unwrap();
        assert_eq!(fs::read_to_string(fixture.path(target)).unwrap(), target);
        let left = fs::symlink_metadata(fixture.path("file")).unwrap();
        assert_eq!((left.mode() & 0o170_000, left.rdev()), (0o020_000, 0));
        fs::remove_file(fixture.path("file")).unwrap();
    }
    mount.unmount(false).unwrap();
}

#[test]
fn attributes_and_copies_pass_through_the_kernel() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let file = fixture.path("file");
    fs::write(&file, pattern(300_000, 2)).unwrap();
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&file, "user.a", b"value", none).unwrap();
    rustix::fs::setxattr(&file, "trusted.b", &pattern(40_000, 3), none).unwrap();
    let mut buffer = vec![0; 65_536];
    assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut buffer[..]).unwrap(), 5);
    let small = rustix::fs::getxattr(&file, "user.a", &mut [0u8; 3][..]);
    assert_eq!(small.unwrap_err(), rustix::io::Errno::RANGE);
    assert_eq!(rustix::fs::getxattr(&file, "trusted.b", &mut buffer[..]).unwrap(), 40_000);
    assert!(buffer[..40_000] == pattern(40_000, 3));
    let length = rustix::fs::listxattr(&file, &mut buffer[..]).unwrap();
    assert_eq!(&buffer[..length], b"trusted.b\0user.a\0");
    rustix::fs::removexattr(&file, "user.a").unwrap();
    assert_eq!(rustix::fs::removexattr(&file, "user.a").unwrap_err(), rustix::io::Errno::NODATA);

    // std::fs::copy uses copy_file_range.
    let copied = fs::copy(&file, fixture.path("copy")).unwrap();
    assert_eq!(copied, 300_000);
    assert!(fs::read(fixture.path("copy")).unwrap() == pattern(300_000, 2));
    mount.unmount(false).unwrap();
}

#[test]
fn what_cannot_be_done_is_refused_as_openzfs_refuses_it() {
    use rustix::fs::{FallocateFlags, fallocate};
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let content = pattern(600_000, 4);
    fs::write(fixture.path("file"), &content).unwrap();
    let file = OpenOptions::new().write(true).open(fixture.path("file")).unwrap();
    let ranges = [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE, FallocateFlags::UNSHARE_RANGE];
    for flag in ranges {
        assert_eq!(fallocate(&file, flag, 131_072, 131_072).unwrap_err(), rustix::io::Errno::OPNOTSUPP, "{flag:?}");
    }
    assert!(fs::read(fixture.path("file")).unwrap() == content);
    assert_eq!(names(fixture.directory.path()), ["file"]);
    drop(file);
    mount.unmount(false).unwrap();
}

#[test]
fn names_are_exchanged_or_kept_as_asked() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    fs::write(fixture.path("file"), "content").unwrap();
    fs::create_dir_all(fixture.path("dir/below")).unwrap();
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, fixture.path(from), CWD, fixture.path(to), flags);
    let error = rename("file", "dir", RenameFlags::NOREPLACE).unwrap_err();
    assert_eq!(error, rustix::io::Errno::EXIST);
    rename("file", "dir/moved", RenameFlags::NOREPLACE).unwrap();
    // A file and a directory, in different directories.
    rename("dir/moved", "dir/below", RenameFlags::EXCHANGE).unwrap();
    assert!(fixture.path("dir/moved").is_dir());
    assert_eq!(fs::read(fixture.path("dir/below")).unwrap(), b"content");
    assert_eq!(fs::metadata(fixture.path("dir")).unwrap().nlink(), 3);
    assert_eq!(rename("dir/below", "none", RenameFlags::EXCHANGE).unwrap_err(), rustix::io::Errno::NOENT);
    assert_eq!(rename("dir", "dir/moved", RenameFlags::EXCHANGE).unwrap_err(), rustix::io::Errno::INVAL);
    mount.unmount(false).unwrap();
}

#[test]
fn file_flags_are_set_and_hold() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let (file, dir) = (fixture.path("file"), fixture.path("dir"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&dir).unwrap();
    let set = |path: &Path, flags: IFlags| ioctl_setflags(File::open(path).unwrap(), flags);
    let refused = |result: std::io::Result<()>| assert_eq!(result.unwrap_err().raw_os_error(), Some(1), "EPERM");

    set(&file, IFlags::IMMUTABLE | IFlags::NODUMP).unwrap();
    assert_eq!(ioctl_getflags(File::open(&file).unwrap()).unwrap(), IFlags::IMMUTABLE | IFlags::NODUMP);
    refused(OpenOptions::new().write(true).open(&file).map(|_| ()));
    refused(fs::remove_file(&file));
    refused(fs::rename(&file, fixture.path("other")));
    refused(fs::hard_link(&file, fixture.path("other")));
    refused(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)));

    set(&file, IFlags::APPEND).unwrap();
    refused(OpenOptions::new().write(true).open(&file).map(|_| ()));
    refused(OpenOptions::new().append(true).open(&file).and_then(|open| open.set_len(1)));
    refused(fs::set_permissions(&file, fs::Permissions::from_mode(0o600)));
    OpenOptions::new().append(true).open(&file).unwrap().write_all(b" and more").unwrap();
    refused(fs::remove_file(&file));
    set(&file, IFlags::empty()).unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"content and more");

    set(&dir, IFlags::IMMUTABLE).unwrap();
    refused(fs::write(dir.join("new"), ""));
    set(&dir, IFlags::empty()).unwrap();
    fs::write(dir.join("new"), "").unwrap();
    // What would have no effect is not taken.
    assert_eq!(set(&file, IFlags::COMPRESSED).unwrap_err(), rustix::io::Errno::OPNOTSUPP);
    fs::remove_file(&file).unwrap();
    mount.unmount(false).unwrap();
}

#[test]
fn a_mount_in_use_is_busy_and_yields_to_force() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let mut file = File::create(fixture.path("open")).unwrap();
    file.write_all(&pattern(1 << 20, 5)).unwrap();
    fs::remove_file(fixture.path("open")).unwrap();
    // Long enough for the blocks of earlier groups to be gone.
    std::thread::sleep(Duration::from_secs(2));
    let with_file = fixture.store.live_blocks();
    assert!(matches!(mount.unmount(false), Err(FuseError::Busy(_))));
    assert!(mount.is_alive());
    file.write_all(b"more").unwrap();
    mount.unmount(true).unwrap();
    assert!(!mount.is_alive());
    assert!(file.write_all(b"too late").is_err());
    assert!(mountinfo::find(mount.mountpoint()).is_none());
    // The removed file went with its last user.
    let deadline = Instant::now() + Duration::from_secs(20);
    while fixture.store.live_blocks() + 8 > with_file {
        assert!(Instant::now() < deadline, "the removed file's blocks are still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    fixture.runtime.block_on(fixture.zpl.unmount()).unwrap();
}

#[test]
fn a_mount_below_another_one_is_left_alone_and_says_so() {
    // A mount over ours made unmount() take the other one for "already unmounted" and wait for ever.
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let nothing = rustix::mount::MountFlags::empty();
    rustix::mount::mount("over", fixture.directory.path(), "tmpfs", nothing, None::<&std::ffi::CStr>).unwrap();
    for force in [false, true] {
        let refused = mount.unmount(force).unwrap_err();
        assert!(matches!(refused, FuseError::Covered { .. }));
        assert!(refused.to_string().contains("busy: something is mounted over it: over (tmpfs)"), "{refused}");
        assert!(mount.is_alive());
    }
    rustix::mount::unmount(fixture.directory.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    fs::write(fixture.path("a"), "b").unwrap();

    // So does another file system of the same type.
    let other = Fixture::new().unwrap();
    let options = MountOptions { source: "other".into(), ..MountOptions::default() };
    let over = mount_at(&other, fixture.directory.path(), options);
    assert!(matches!(mount.unmount(false), Err(FuseError::Covered { .. })));
    over.unmount(false).unwrap();
    assert_eq!(fs::read(fixture.path("a")).unwrap(), b"b");
    mount.unmount(false).unwrap();
}

fn mount_at(fixture: &Fixture, at: &Path, options: MountOptions) -> Mount {
    mount(fixture.serve(), at, options, fixture.runtime.handle().clone()).unwrap()
}

#[test]
fn a_mount_bound_elsewhere_yields_to_force() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let elsewhere = tempfile::tempdir().unwrap();
    rustix::mount::mount_bind(fixture.directory.path(), elsewhere.path()).unwrap();
    mount.unmount(true).unwrap();
    assert!(!mount.is_alive());
    assert!(fs::read_dir(elsewhere.path()).is_err());
    rustix::mount::unmount(elsewhere.path(), rustix::mount::UnmountFlags::empty()).unwrap();
}

/// A process that keeps a copy of all mounts in a name space of its own, and no signal of their end.
struct Elsewhere(std::process::Child);

impl Elsewhere {
    fn new() -> Self {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", "echo there; exec sleep 600"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut said = [0; 5];
        child.stdout.take().unwrap().read_exact(&mut said).unwrap();
        Self(child)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What another mount name space kept was waited for, 30 seconds, and then counted as mounted for ever; so did what was
/// unmounted lazily while a file of it was open.
#[test]
fn a_mount_that_is_kept_elsewhere_is_cut_off() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    fs::write(fixture.path("file"), "content").unwrap();
    let elsewhere = Elsewhere::new();
    let seen = std::path::PathBuf::from(format!("/proc/{}/root", elsewhere.0.id()))
        .join(fixture.path("file").strip_prefix("/").unwrap());
    assert_eq!(fs::read(&seen).unwrap(), b"content");
    let began = Instant::now();
    mount.unmount(false).unwrap();
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert!(!mount.is_alive());
    let error = fs::write(&seen, "lost").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(107), "ENOTCONN: {error}");

    let mount = fixture.mount();
    let mut file = File::create(fixture.path("open")).unwrap();
    let present = mountinfo::present().unwrap();
    assert!(!mount.is_detached(&present));
    rustix::mount::unmount(fixture.directory.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    file.write_all(b"still served").unwrap();
    assert!(mount.is_alive() && mount.is_detached(&mountinfo::present().unwrap()));
    mount.unmount(false).unwrap();
    assert!(file.write_all(b"cut off").is_err());
    let mount = fixture.mount();
    assert_eq!(fs::read(fixture.path("open")).unwrap(), b"still served");
    mount.unmount(false).unwrap();
}

#[test]
fn what_a_process_holds_without_opening_outlives_its_name() {
    // Removed objects that were not open were freed at once: an O_PATH descriptor or a working directory went stale,
    // and the number could come to mean another file.
    use rustix::fs::{CWD, Mode, OFlags};
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    fs::create_dir(fixture.path("d")).unwrap();
    fs::write(fixture.path("f"), pattern(1 << 20, 9)).unwrap();
    let directory = rustix::fs::openat(CWD, fixture.path("d"), OFlags::PATH, Mode::empty()).unwrap();
    let file = rustix::fs::openat(CWD, fixture.path("f"), OFlags::PATH, Mode::empty()).unwrap();
    fs::remove_dir(fixture.path("d")).unwrap();
    fs::remove_file(fixture.path("f")).unwrap();
    for number in 0..20 {
        fs::write(fixture.path(&format!("new{number}")), "x").unwrap();
    }
    let (d, f) = (rustix::fs::fstat(&directory).unwrap(), rustix::fs::fstat(&file).unwrap());
    assert_eq!((d.st_nlink, f.st_nlink, f.st_size), (0, 0, 1 << 20));
    let denied = rustix::fs::openat(&directory, "x", OFlags::CREATE | OFlags::WRONLY, Mode::from(0o644));
    assert_eq!(denied.unwrap_err(), rustix::io::Errno::NOENT);
    let object = ObjectId(f.st_ino);
    fixture.runtime.block_on(fixture.zpl.getattr(object)).unwrap();
    drop((directory, file));
    // The kernel forgets them now, and they go.
    let deadline = Instant::now() + Duration::from_secs(20);
    while fixture.runtime.block_on(fixture.zpl.getattr(object)).is_ok() {
        assert!(Instant::now() < deadline, "the removed file is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    mount.unmount(false).unwrap();
}

#[test]
fn an_unmount_by_somebody_else_is_noticed() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    fs::write(fixture.path("a"), "b").unwrap();
    rustix::mount::unmount(fixture.directory.path(), rustix::mount::UnmountFlags::empty()).unwrap();
    fixture.runtime.block_on(async { tokio::time::timeout(Duration::from_secs(10), mount.gone()).await }).unwrap();
    assert!(!mount.is_alive());
    mount.unmount(false).unwrap();
}

#[test]
fn a_mount_point_that_is_no_directory_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    fs::write(fixture.path("file"), "").unwrap();
    for name in ["file", "absent"] {
        let runtime = fixture.runtime.handle().clone();
        let refused = mount(fixture.serve(), &fixture.path(name), MountOptions::default(), runtime);
        assert!(matches!(refused, Err(FuseError::BadMountpoint { .. })));
    }
}

#[test]
#[ignore = "a measurement"]
fn throughput() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let chunk = pattern(1 << 20, 3);
    let total = 1024u64;
    let start = Instant::now();
    let mut file = File::create(fixture.path("seq")).unwrap();
    for _ in 0..total {
        file.write_all(&chunk).unwrap();
    }
    println!("write {:.0} MiB/s", total as f64 / start.elapsed().as_secs_f64());
    drop(file);
    mount.unmount(false).unwrap();
    let mount = fixture.mount();
    let start = Instant::now();
    let mut file = File::open(fixture.path("seq")).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..total {
        file.read_exact(&mut buffer).unwrap();
    }
    println!("read {:.0} MiB/s", total as f64 / start.elapsed().as_secs_f64());
    drop(file);
    let start = Instant::now();
    for number in 0..20_000 {
        File::create(fixture.path(&format!("f{number}"))).unwrap();
    }
    println!("create {:.0}/s", 20_000.0 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    let count = names(fixture.directory.path()).len();
    println!("list {count} in {:?}", start.elapsed());
    let start = Instant::now();
    for number in 0..20_000 {
        fs::metadata(fixture.path(&format!("f{number}"))).unwrap();
    }
    println!("stat {:.0}/s", 20_000.0 / start.elapsed().as_secs_f64());
    mount.unmount(false).unwrap();
}
