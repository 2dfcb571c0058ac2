//! What programs do to files, through the mount: the same before and after export and import, and in zdb's eyes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use platter_itest::{Lab, Tree, binary, data, judge, zdb};

/// A raidz pool of three disks with one file system; `work` gets its mount point. Afterwards the tree is compared
/// across export, zdb and import.
fn on_a_pool(options: &str, work: impl FnOnce(&Path)) {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs(options, "tank/fs");
    work(&mount);
    let before = Tree::of(&mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank/fs", &before, 4);
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    before.assert_same(&Tree::of(&mount), "after export and import");
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

fn write(path: PathBuf, bytes: &[u8]) {
    fs::write(&path, bytes).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

#[test]
fn directories_nest_and_count_their_links() {
    on_a_pool("", |root| {
        let deep: PathBuf = (0..60).map(|depth| format!("level{depth}")).collect();
        fs::create_dir_all(root.join(&deep)).expect("60 nested folders");
        write(root.join(&deep).join("bottom"), b"here");
        fs::create_dir(root.join("parent")).expect("a folder");
        for child in 0..10 {
            fs::create_dir(root.join(format!("parent/{child}"))).expect("a folder");
        }
        assert_eq!(fs::metadata(root.join("parent")).expect("metadata").nlink(), 12);
        fs::remove_dir(root.join("parent/3")).expect("an empty folder can be removed");
        assert_eq!(fs::metadata(root.join("parent")).expect("metadata").nlink(), 11);
        let error = fs::remove_dir(root.join("parent")).expect_err("a folder that is not empty stays");
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        let error = fs::create_dir(root.join("parent/4")).expect_err("it exists");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    });
}

#[test]
fn symlinks_keep_their_target_short_or_long() {
    on_a_pool("", |root| {
        write(root.join("file"), b"content");
        symlink("file", root.join("short")).expect("a symlink");
        symlink("/no/such/place", root.join("dangling")).expect("a symlink");
        symlink("x/".repeat(500), root.join("long")).expect("a long symlink");
        symlink("q".repeat(4000), root.join("longest")).expect("a very long symlink");
        assert_eq!(fs::read(root.join("short")).expect("followed"), b"content");
        assert_eq!(fs::read_link(root.join("long")).expect("a target").as_os_str().len(), 1000);
    });
}

#[test]
fn hard_links_share_one_file_until_the_last_is_gone() {
    on_a_pool("", |root| {
        write(root.join("a"), b"one");
        fs::create_dir(root.join("d")).expect("a folder");
        fs::hard_link(root.join("a"), root.join("b")).expect("a link");
        fs::hard_link(root.join("a"), root.join("d/c")).expect("a link in another folder");
        let meta = |name: &str| fs::metadata(root.join(name)).expect("metadata");
        assert_eq!((meta("a").nlink(), meta("a").ino()), (3, meta("d/c").ino()));
        write(root.join("b"), b"changed through b");
        assert_eq!(fs::read(root.join("d/c")).expect("content"), b"changed through b");
        fs::remove_file(root.join("a")).expect("removed");
        assert_eq!(meta("b").nlink(), 2);
        fs::remove_file(root.join("b")).expect("removed");
        assert_eq!(meta("d/c").nlink(), 1);
    });
}

#[test]
fn renames_move_and_replace() {
    on_a_pool("", |root| {
        let at = |name: &str| root.join(name);
        for dir in ["from/inner", "to", "empty"] {
            fs::create_dir_all(at(dir)).expect("a folder");
        }
        write(at("from/file"), b"moved");
        write(at("from/inner/leaf"), b"leaf");
        write(at("victim"), b"replaced");
        fs::rename(at("from/file"), at("to/file")).expect("to another folder");
        fs::rename(at("to/file"), at("victim")).expect("over a file");
        assert_eq!(fs::read(at("victim")).expect("content"), b"moved");
        fs::rename(at("from/inner"), at("empty")).expect("a folder over an empty folder");
        assert_eq!(fs::read(at("empty/leaf")).expect("content"), b"leaf");
        fs::rename(at("empty"), at("to/renamed")).expect("a folder to another folder");
        assert_eq!(fs::metadata(at("to")).expect("metadata").nlink(), 3);
        assert_eq!(fs::metadata(at("from")).expect("metadata").nlink(), 2);
        assert!(fs::rename(at("to"), at("to/renamed/loop")).is_err(), "a folder cannot move into itself");
        assert_eq!(fs::rename(at("none"), at("x")).expect_err("no source").kind(), ErrorKind::NotFound);
        assert!(fs::rename(at("to"), at("victim")).is_err(), "a folder cannot replace a file");
    });
}

#[test]
fn truncation_cuts_grows_and_zero_fills() {
    on_a_pool("-o recordsize=16K", |root| {
        let bytes = data::random(3, 100_000);
        let mut model = bytes.clone();
        let path = root.join("file");
        write(path.clone(), &bytes);
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("open");
        for len in [70_000usize, 90_000, 16_384, 16_385, 500_000, 1, 40_000] {
            file.set_len(len as u64).expect("truncate");
            model.resize(len, 0);
            assert_eq!(fs::read(&path).expect("content"), model, "after truncation to {len}");
        }
        file.write_all_at(&bytes[..50_000], 39_000).expect("write across the end");
        model.resize(89_000, 0);
        model[39_000..].copy_from_slice(&bytes[..50_000]);
        assert_eq!(fs::read(&path).expect("content"), model);
        file.sync_all().expect("fsync");
        file.set_len(0).expect("truncate");
        assert_eq!(fs::metadata(&path).expect("metadata").len(), 0);
        write(root.join("kept"), &model);
    });
}

/// The kernel asks for pages by the size that it knows, and puts zeros where no answer has bytes: of a file that is cut
/// and written again, one reader in ten got zeros that were never in it.
#[test]
fn who_reads_a_file_that_is_cut_and_written_again_gets_no_zeros() {
    on_a_pool("", |root| {
        let path = root.join("file");
        let contents = vec![b'x'; 4096];
        write(path.clone(), &contents);
        let over = std::sync::atomic::AtomicBool::new(false);
        let (mut reads, mut with_zeros) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    write(path.clone(), &contents);
                }
            });
            while reads < 4000 {
                let read = fs::read(&path).expect("it can be read");
                reads += 1;
                with_zeros += u32::from(read.contains(&0));
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        // A kernel thread may sleep for longer than its news is waited for.
        assert!(with_zeros * 100 < reads, "{with_zeros} of {reads} reads had zeros");
    });
}

#[test]
fn sparse_files_take_no_space_for_their_holes() {
    on_a_pool("", |root| {
        let file = File::create(root.join("sparse")).expect("create");
        file.write_all_at(b"start", 0).expect("write");
        file.write_all_at(b"middle", 50 << 20).expect("write");
        file.set_len(120 << 20).expect("truncate");
        file.sync_all().expect("fsync");
        let meta = fs::metadata(root.join("sparse")).expect("metadata");
        assert_eq!(meta.len(), 120 << 20);
        assert!(meta.blocks() * 512 < 4 << 20, "{} blocks of 512 bytes", meta.blocks());
        let mut back = [0; 6];
        file_at(&root.join("sparse")).read_exact_at(&mut back, 50 << 20).expect("read");
        assert_eq!(&back, b"middle");
        file_at(&root.join("sparse")).read_exact_at(&mut back, 80 << 20).expect("read");
        assert_eq!(back, [0; 6]);
    });
}

fn file_at(path: &Path) -> File {
    File::open(path).expect("open")
}

#[test]
fn a_directory_of_ten_thousand_entries_lists_each_once() {
    on_a_pool("", |root| {
        let dir = root.join("big");
        fs::create_dir(&dir).expect("a folder");
        for number in 0..10_000 {
            File::create(dir.join(format!("file-number-{number:05}-with-a-name-of-some-length"))).expect("create");
        }
        let names: Vec<_> =
            fs::read_dir(&dir).expect("list").map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names.len(), 10_000);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 10_000);
        for number in (0..10_000).step_by(2) {
            fs::remove_file(dir.join(format!("file-number-{number:05}-with-a-name-of-some-length"))).expect("remove");
        }
        assert_eq!(fs::read_dir(&dir).expect("list").count(), 5_000);
        assert!(dir.join("file-number-00001-with-a-name-of-some-length").exists());
        assert!(!dir.join("file-number-00002-with-a-name-of-some-length").exists());
    });
}

#[test]
fn names_of_every_byte_and_length_are_kept() {
    use std::os::unix::ffi::OsStrExt;
    on_a_pool("", |root| {
        let mut names: Vec<Vec<u8>> = vec![
            b" leading and trailing ".to_vec(),
            b"new\nline".to_vec(),
            b"quote'\"back\\slash".to_vec(),
            "umlaut-ü-kanji-漢".as_bytes().to_vec(),
            b"\xff\xfe not utf-8".to_vec(),
            b"-rf".to_vec(),
            vec![b'n'; 255],
        ];
        names.extend((1..=60).map(|len| vec![b'l'; len]));
        for name in &names {
            File::create(root.join(std::ffi::OsStr::from_bytes(name))).expect("create");
        }
        assert_eq!(fs::read_dir(root).expect("list").count(), names.len());
        let error = File::create(root.join("t".repeat(256))).expect_err("a name of 256 bytes is too long");
        assert_eq!(error.raw_os_error(), Some(36), "ENAMETOOLONG");
    });
}

#[test]
fn modes_owners_and_times_are_kept() {
    on_a_pool("", |root| {
        for mode in [0o000, 0o400, 0o644, 0o755, 0o777, 0o4755, 0o2755, 0o1777] {
            let path = root.join(format!("mode{mode:o}"));
            write(path.clone(), b"x");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
            assert_eq!(fs::metadata(&path).expect("metadata").mode() & 0o7777, mode);
        }
        fs::create_dir(root.join("dir")).expect("a folder");
        fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o2770)).expect("chmod");
        if rustix_is_root() {
            write(root.join("owned"), b"x");
            chown(root.join("owned"), Some(1234), Some(5678)).expect("chown");
            symlink("owned", root.join("link")).expect("a symlink");
            lchown(root.join("link"), Some(4321), Some(8765)).expect("lchown");
            let meta = fs::metadata(root.join("owned")).expect("metadata");
            assert_eq!((meta.uid(), meta.gid()), (1234, 5678));
        }
        for (name, time) in [
            ("old", UNIX_EPOCH + Duration::new(1, 123_456_789)),
            ("recent", UNIX_EPOCH + Duration::new(1_700_000_000, 999_999_999)),
            ("beyond-2038", UNIX_EPOCH + Duration::new(5_000_000_000, 1)),
        ] {
            write(root.join(name), b"x");
            file_at(&root.join(name)).set_modified(time).expect("utimes");
            assert_eq!(fs::metadata(root.join(name)).expect("metadata").modified().expect("mtime"), time);
        }
    });
}

/// Whether the files made here belong to root.
fn rustix_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

#[test]
fn changing_a_file_or_directory_moves_its_times() {
    on_a_pool("", |root| {
        write(root.join("file"), b"x");
        let stamp = |name: &str| {
            let meta = fs::metadata(root.join(name)).expect("metadata");
            ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
        };
        let pause = || std::thread::sleep(Duration::from_millis(20));
        let (before, dir_before) = (stamp("file"), stamp("."));
        pause();
        OpenOptions::new().append(true).open(root.join("file")).and_then(|mut f| f.write_all(b"y")).expect("append");
        assert!(stamp("file").0 > before.0 && stamp("file").1 > before.1, "a write moves mtime and ctime");
        let before = stamp("file");
        pause();
        fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o600)).expect("chmod");
        assert!(stamp("file").0 == before.0 && stamp("file").1 > before.1, "chmod moves ctime only");
        write(root.join("new"), b"");
        assert!(stamp(".").0 > dir_before.0, "a new entry moves the directory's mtime");
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    on_a_pool("", |root| {
        let bytes = data::random(9, 2_000_000);
        write(root.join("doomed"), &bytes);
        let mut file = OpenOptions::new().read(true).write(true).open(root.join("doomed")).expect("open");
        fs::remove_file(root.join("doomed")).expect("remove");
        file.seek(SeekFrom::End(0)).expect("seek");
        file.write_all(b"still writable").expect("write");
        file.rewind().expect("seek");
        let mut back = Vec::new();
        file.read_to_end(&mut back).expect("read");
        assert_eq!(back.len(), 2_000_014);
        assert_eq!(back[..2_000_000], bytes);
    });
}

#[test]
fn random_writes_agree_with_a_model() {
    on_a_pool("-o recordsize=8K -o compression=lz4", |root| {
        let mut rng = data::Rng::new(42);
        let path = root.join("model");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("create");
        let mut model: Vec<u8> = Vec::new();
        for step in 0..600 {
            let at = rng.below(400_000) as usize;
            let len = 1 + rng.below(if step % 10 == 0 { 100_000 } else { 5_000 }) as usize;
            match rng.below(10) {
                0 => {
                    file.set_len(at as u64).expect("truncate");
                    model.resize(at, 0);
                }
                1 => file.sync_all().expect("fsync"),
                2..=3 => {
                    let mut back = vec![0; len];
                    let n = file.read_at(&mut back, at as u64).expect("read");
                    let expected = model.get(at..(at + len).min(model.len())).unwrap_or(&[]);
                    assert_eq!(&back[..n], expected, "step {step}: {len} bytes at {at}");
                }
                _ => {
                    let bytes = data::mixed(rng.next_u64(), len, 1000);
                    file.write_all_at(&bytes, at as u64).expect("write");
                    if model.len() < at + len {
                        model.resize(at + len, 0);
                    }
                    model[at..at + len].copy_from_slice(&bytes);
                }
            }
        }
        assert_eq!(fs::read(&path).expect("read"), model);
    });
}

#[test]
fn parallel_workers_do_not_disturb_each_other() {
    on_a_pool("", |root| {
        std::thread::scope(|scope| {
            for worker in 0..8u64 {
                scope.spawn(move || {
                    let mut rng = data::Rng::new(worker);
                    let dir = root.join(format!("worker{worker}"));
                    fs::create_dir(&dir).expect("a folder");
                    for number in 0..60 {
                        let bytes = data::mixed(rng.next_u64(), rng.below(200_000) as usize, 9_000);
                        let path = dir.join(format!("file{number}"));
                        write(path.clone(), &bytes);
                        match number % 4 {
                            0 => fs::rename(&path, root.join(format!("moved-{worker}-{number}"))).expect("rename"),
                            1 => fs::remove_file(&path).expect("remove"),
                            2 => file_at(&path).sync_all().expect("fsync"),
                            _ => assert_eq!(fs::read(&path).expect("read"), bytes, "worker {worker}, file {number}"),
                        }
                    }
                    assert_eq!(fs::read_dir(&dir).expect("list").count(), 30);
                });
            }
        });
    });
}

#[test]
fn programs_that_map_files_into_memory_work() {
    if judge::need("rsync").is_none() {
        return;
    }
    on_a_pool("", |root| {
        // A linker-like user: cp and cmp through page cache and mmap.
        write(root.join("a"), &data::mixed(5, 3_000_000, 12_345));
        let status = std::process::Command::new("rsync")
            .args(["-a", "--inplace"])
            .arg(root.join("a"))
            .arg(root.join("b"))
            .status()
            .expect("rsync runs");
        assert!(status.success());
        assert_eq!(fs::read(root.join("a")).expect("read"), fs::read(root.join("b")).expect("read"));
    });
}

#[test]
fn freed_space_comes_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    let mount = lab.create("-O compression=off", "tank", "mirror d0 d1");
    let allocated = || -> u64 {
        lab.zpool("sync tank").ok();
        lab.zpool("list -Hp -o allocated tank").ok().stdout.trim().parse().expect("a number of bytes")
    };
    let empty = allocated();
    for round in 0..4 {
        write(mount.join("big"), &data::random(round, 60 << 20));
        let full = allocated();
        assert!(full > empty + (55 << 20), "round {round}: {full} bytes allocated after writing 60 MiB");
        fs::remove_file(mount.join("big")).expect("remove");
    }
    // A few txgs may pass until deferred frees are through.
    for _ in 0..4 {
        allocated();
    }
    let freed = allocated();
    assert!(freed < empty + (4 << 20), "{freed} bytes allocated after removing everything, {empty} before");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_full_pool_says_no_space_and_recovers() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("-O compression=off", "tank", "mirror d0 d1");
    let mut file = File::create(mount.join("filler")).expect("create");
    let chunk = data::random(1, 1 << 20);
    let mut written = 0u64;
    let error = loop {
        match file.write_all(&chunk).and_then(|()| if written.is_multiple_of(8) { file.sync_all() } else { Ok(()) }) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 200, "96 MiB hold more than 200 MiB");
    };
    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC after {written} MiB, not {error}");
    assert!(written > 30, "full after {written} MiB of 96");
    drop(file);
    fs::remove_file(mount.join("filler")).expect("a full pool can be emptied");
    lab.zpool("sync tank").ok();
    lab.zpool("sync tank").ok();
    write(mount.join("after"), &data::random(2, 5 << 20));
    let before = Tree::of(&mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank", &before, 1);
}

#[test]
fn df_agrees_with_zfs_list() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    let mount = lab.create("-O compression=off", "tank", "raidz d0 d1 d2");
    write(mount.join("file"), &data::random(1, 30 << 20));
    lab.zpool("sync tank").ok();
    let df = lab.run("df", ["-B1", "--output=used,avail", mount.to_str().expect("UTF-8")]).ok();
    let df: Vec<u64> = df.stdout.lines().nth(1).unwrap_or("").split_whitespace().flat_map(str::parse).collect();
    let zfs = lab.zfs("list -Hp -o referenced,available tank").ok();
    let zfs: Vec<u64> = zfs.stdout.split_whitespace().flat_map(str::parse).collect();
    assert_eq!((df.len(), zfs.len()), (2, 2));
    for (ours, theirs) in df.iter().zip(&zfs) {
        assert!(ours.abs_diff(*theirs) < 1 << 20, "df says {df:?} (used, available), zfs list {zfs:?}");
    }
    assert!(zfs[0].abs_diff(30 << 20) < 2 << 20, "30 MiB of data are {} bytes referenced", zfs[0]);
}

#[test]
fn properties_are_inherited_and_name_their_source() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 96);
    lab.create("-O compression=lz4", "tank", "d0");
    lab.create_fs("", "tank/a");
    lab.create_fs("-o recordsize=1M", "tank/a/b");
    let get = |property: &str, dataset: &str| {
        lab.zfs(&format!("get -H -o value,source {property} {dataset}")).ok().stdout.trim().to_owned()
    };
    assert_eq!(get("compression", "tank"), "lz4\tlocal");
    assert_eq!(get("compression", "tank/a/b"), "lz4\tinherited from tank");
    assert_eq!(get("recordsize", "tank/a"), "128K\tdefault");
    assert_eq!(get("recordsize", "tank/a/b"), "1M\tlocal");
    lab.zfs("set compression=zstd atime=off tank/a").ok();
    assert_eq!(get("compression", "tank/a/b"), "zstd\tinherited from tank/a");
    lab.zfs("set recordsize=64K tank/a/b").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    assert_eq!(get("compression", "tank/a/b"), "zstd\tinherited from tank/a");
    assert_eq!(get("recordsize", "tank/a/b"), "64K\tlocal");
    assert_eq!(get("atime", "tank/a/b"), "off\tinherited from tank/a");
}

#[test]
fn file_systems_mount_unmount_and_are_destroyed() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let a = lab.create_fs("", "tank/a");
    let b = lab.create_fs("", "tank/a/b");
    write(b.join("file"), b"in b");
    lab.zfs("unmount tank/a").ok();
    assert!(!lab.mounts().contains(&b) && !lab.mounts().contains(&a));
    lab.zfs("mount tank/a").ok();
    lab.zfs("mount -a").ok();
    lab.wait_mounted(&b);
    assert_eq!(fs::read(b.join("file")).expect("content"), b"in b");
    lab.zfs("destroy tank/a").refused().says("tank/a").says("-r");
    lab.zfs("destroy -r tank/a").ok();
    lab.zfs("list -H -o name").ok().says_not("tank/a");
    assert!(!lab.mounts().contains(&a));
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `zfs wait` ends when what was removed while it was open has been freed.
#[test]
fn what_is_removed_while_open_can_be_waited_for() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    lab.zfs("wait tank/fs").ok();
    lab.zfs("wait -t other tank/fs").refused().says("invalid activity 'other'");
    lab.zfs("wait tank/none").refused().says("cannot open 'tank/none': dataset does not exist");
    let open = File::create(mount.join("file")).expect("a file");
    fs::remove_file(mount.join("file")).expect("removed");
    let mut waiting = lab.command(binary::platter());
    let mut waiting = waiting.args(["zfs", "wait", "-t", "deleteq", "tank/fs"]).spawn().expect("it runs");
    std::thread::sleep(Duration::from_millis(500));
    assert!(waiting.try_wait().expect("its state").is_none(), "it is still open");
    drop(open);
    assert!(waiting.wait().expect("its end").success());
    lab.zfs("unmount tank/fs").ok();
    lab.zfs("wait tank/fs").ok();
}
