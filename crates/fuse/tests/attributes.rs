//! What the kernel tells of files, on blocks in memory. Skipped, saying so, where mounting is not possible.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use common::Fixture;
use platter_zpl::AtimeMode;

const HANDLES: &str = include_str!("attributes/handles.py");
const IDMAPPED: &str = include_str!("attributes/idmapped.py");
const WHO: &str = include_str!("attributes/who.py");

fn atime(path: &Path) -> SystemTime {
    fs::symlink_metadata(path).unwrap().accessed().unwrap()
}

/// Whether `read` moves the access time of what is at `path`, each of three times.
fn moves(path: &Path, mut read: impl FnMut()) -> [bool; 3] {
    [(); 3].map(|()| {
        let before = atime(path);
        std::thread::sleep(Duration::from_millis(5));
        read();
        atime(path) > before
    })
}

/// `relatime=off`: however the kernel could answer by itself.
#[test]
fn every_read_moves_the_access_time_where_it_shall() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.zpl.set_atime(AtimeMode::Always);
    let mount = fixture.mount();
    let (full, empty) = (fixture.path("full"), fixture.path("empty"));
    let (link, directory) = (fixture.path("link"), fixture.path("directory"));
    // Written through the page cache, so that all of it is there.
    let mut both = OpenOptions::new().read(true).write(true).create_new(true).open(&full).unwrap();
    both.write_all(&[7; 300_000]).unwrap();
    File::create(&empty).unwrap();
    symlink("full", &link).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("inside"), "").unwrap();

    assert_eq!(moves(&full, || assert_eq!(fs::read(&full).unwrap().len(), 300_000)), [true; 3], "opened anew");
    let reader = File::open(&full).unwrap();
    let mut bytes = [0; 4096];
    assert_eq!(moves(&full, || assert_eq!(reader.read_at(&mut bytes, 8192).unwrap(), 4096)), [true; 3], "held open");
    assert_eq!(moves(&full, || assert_eq!(both.read_at(&mut bytes, 0).unwrap(), 4096)), [true; 3], "open both ways");
    assert_eq!(moves(&empty, || assert_eq!(fs::read(&empty).unwrap().len(), 0)), [true; 3], "empty");
    assert_eq!(moves(&link, || drop(fs::read_link(&link).unwrap())), [true; 3], "link");
    assert_eq!(moves(&directory, || assert_eq!(fs::read_dir(&directory).unwrap().count(), 1)), [true; 3], "directory");
    // What is written is read all the same, by whoever has it open and however.
    both.write_all_at(&[9; 100], 8190).unwrap();
    let mut writer = OpenOptions::new().append(true).open(&full).unwrap();
    writer.write_all(b"end").unwrap();
    assert!(reader.read_at(&mut bytes, 8192).unwrap() == 4096 && bytes[..98] == [9; 98] && bytes[98..] == [7; 3998]);
    assert_eq!(both.read_at(&mut bytes, 299_999).unwrap(), 4);
    assert_eq!(bytes[..4], *b"\x07end");
    drop((reader, both, writer));
    mount.unmount(false).unwrap();
}

/// `relatime=on`: an empty file is read as others are, and the second time changes nothing.
#[test]
fn the_first_read_of_an_empty_file_moves_its_access_time() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let empty = fixture.path("empty");
    File::create(&empty).unwrap();
    assert_eq!(moves(&empty, || assert_eq!(fs::read(&empty).unwrap().len(), 0)), [true, false, false]);
    // A reader from before there was anything sees what is written.
    let mut reader = File::open(&empty).unwrap();
    fs::write(&empty, "text").unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    drop(reader);
    assert_eq!(fs::metadata(&empty).unwrap().size(), 4);
    mount.unmount(false).unwrap();
}

/// What a program of ours prints, which must succeed.
fn lines_of(program: &str, words: &[&OsStr]) -> Vec<String> {
    let output = Command::new("python3").arg("-c").arg(program).args(words).output().expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A handle as [`HANDLES`] has it, of an object of another generation.
fn of_another_life(handle: &str) -> String {
    let (start, generation) = handle.split_at(handle.len() - 8);
    format!("{start}{:08x}", u32::from_str_radix(generation, 16).unwrap() ^ 0x0100_0000)
}

/// An NFS server gives its clients handles, and is asked for files that the kernel has long forgotten.
#[test]
fn a_handle_finds_its_file_whatever_the_kernel_knows() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let place = fixture.directory.path();
    fs::create_dir_all(place.join("a/b/c")).unwrap();
    fs::write(place.join("a/b/file"), "text").unwrap();
    fs::write(place.join("gone"), "text").unwrap();
    fs::write(place.join("a/b/c/inside"), "").unwrap();
    let paths = ["", "a/b/file", "a/b/c", "gone"].map(|name| place.join(name));
    let words: Vec<&OsStr> =
        [OsStr::new("take")].into_iter().chain(paths.iter().map(|path| path.as_os_str())).collect();
    let handles = lines_of(HANDLES, &words);
    let [root, file, directory, gone] = &handles[..] else { panic!("{handles:?}") };
    fs::remove_file(place.join("gone")).unwrap();
    mount.unmount(false).unwrap();

    let mount = fixture.mount();
    let (old_file, old_directory) = (of_another_life(file), of_another_life(directory));
    let mut words = vec![OsStr::new("open"), place.as_os_str()];
    words.extend([root, file, directory, gone, &old_file, &old_directory].map(OsStr::new));
    let found = lines_of(HANDLES, &words);
    assert_eq!(found[0], format!("{} a", place.display()));
    assert!(found[1].ends_with(" text"), "{found:?}");
    assert_eq!(found[2], format!("{} inside", place.join("a/b/c").display()));
    assert_eq!(found[3..], ["ESTALE", "ESTALE", "ESTALE"]);
    mount.unmount(false).unwrap();
}

/// Container tools show a file system to each container with its own ids.
#[test]
fn mounts_with_mapped_ids() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let place = fixture.directory.path();
    for (name, owner) in [("of-root", 0), ("of-1000", 1000)] {
        fs::write(place.join(name), "").unwrap();
        chown(place.join(name), Some(owner), Some(owner)).unwrap();
    }
    for (name, mode, owner) in [("home", 0o755, 1000), ("all", 0o777, 0)] {
        fs::create_dir(place.join(name)).unwrap();
        fs::set_permissions(place.join(name), Permissions::from_mode(mode)).unwrap();
        chown(place.join(name), Some(owner), Some(owner)).unwrap();
    }
    fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::set_permissions(other.path(), Permissions::from_mode(0o755)).unwrap();
    let said = lines_of(IDMAPPED, &[place.as_os_str(), other.path().as_os_str()]);
    if release_is_since(6, 12) {
        assert_eq!(
            said,
            [
                "of-root 0:0 10000:10000",
                "of-1000 1000:1000 11000:11000",
                "home/file 1000:1000 11000:11000",
                "home/directory 1000:1000 11000:11000",
                "home/link 1000:1000 11000:11000",
                "home/pipe 1000:1000 11000:11000",
                "Value too large for defined data type",
                "Permission denied",
                "of-1000 2000:2001 12000:12001",
                "text",
            ]
        );
    } else {
        assert!(!release_is_since(6, 12), "this kernel has them: {said:?}");
        eprintln!("skipped: FUSE has no mounts with mapped ids before Linux 6.12");
    }
    mount.unmount(false).unwrap();
}

fn release_is_since(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// With mapped ids the kernel tells no longer who asks; root is known all the same.
#[test]
fn root_alone_sees_trusted_attributes_and_keeps_privileges() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let file = fixture.path("file");
    fs::write(&file, "text").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o6777)).unwrap();
    fs::set_permissions(fixture.directory.path(), Permissions::from_mode(0o755)).unwrap();
    let said = lines_of(WHO, &[file.as_os_str()]);
    assert_eq!(said, ["0 trusted.one,user.two", "65534 user.two", "0 allocates: 6777", "65534 allocates: 777",]);
    mount.unmount(false).unwrap();
}

/// `zfs_getattr_fast`: the size of its blocks, or what they are going to have.
#[test]
fn the_preferred_size_of_a_transfer_is_the_block_size() {
    let Some(fixture) = Fixture::new() else { return };
    let mount = fixture.mount();
    let block_size = |name: &str| fs::metadata(fixture.path(name)).unwrap().blksize();
    // A kernel rounds down to a power of two.
    let files = [("empty", 0, 128 << 10), ("small", 5, 512), ("kilo", 1000, 1024), ("big", 300_000, 128 << 10)];
    for (name, length, _) in files {
        fs::write(fixture.path(name), vec![7; length]).unwrap();
    }
    for (name, _, expected) in files {
        assert_eq!(block_size(name), expected, "{name}");
    }
    fs::write(fixture.path("empty"), "some").unwrap();
    assert_eq!(block_size("empty"), 512);
    mount.unmount(false).unwrap();
    let mount = fixture.mount();
    for (name, _, expected) in &files[1..] {
        assert_eq!(block_size(name), *expected, "{name}");
    }
    mount.unmount(false).unwrap();
}
