//! Programs that people trust with their files: git, tar, rsync, SQLite, fio. What they check themselves holds, and zdb
//! finds the pool clean afterwards.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use platter_itest::{Lab, Tree, data, judge, rsync};

/// A pool with one file system for `work`, whose tree is compared across export and import.
fn on_a_pool(programs: &[&str], options: &str, work: impl FnOnce(&Lab, &Path)) {
    if programs.iter().any(|program| judge::need(program).is_none()) {
        return;
    }
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 512);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs(options, "tank/fs");
    work(&lab, &mount);
    lab.judge_and_return("tank", &mount, &Tree::of(&mount));
    lab.export("tank");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A tree with one of everything: kinds, links, holes, names, modes, owners, times, attributes.
fn make_tree(root: &Path) {
    for number in 0..300u64 {
        let folder = root.join(format!("part{}/unit{}", number % 7, number % 3));
        fs::create_dir_all(&folder).expect("a folder");
        let length = data::Rng::new(number).below(30_000) as usize;
        fs::write(folder.join(format!("source{number}.txt")), data::text(number, length)).expect("a file");
    }
    let at = |name: &str| root.join(name);
    fs::write(at("large"), data::mixed(1, 5_000_000, 60_000)).expect("a file");
    fs::hard_link(at("large"), at("part0/linked")).expect("a link");
    symlink("../large", at("part1/to-large")).expect("a symlink");
    symlink("nowhere", at("dangling")).expect("a symlink");
    fs::create_dir(at("empty")).expect("a folder");
    let sparse = fs::File::create(at("sparse")).expect("a file");
    sparse.write_all_at(b"in the middle", 3 << 20).expect("write");
    sparse.set_len(20 << 20).expect("truncate");
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"not utf-8 \xff\xfe")), "x").expect("a file");
    fs::write(at(&"n".repeat(255)), "x").expect("a file");
    fs::write(at("tool"), "#!/bin/sh\n").expect("a file");
    fs::set_permissions(at("tool"), fs::Permissions::from_mode(0o6755)).expect("chmod");
    fs::set_permissions(at("part2"), fs::Permissions::from_mode(0o1777)).expect("chmod");
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::from_raw_mode(0o640)).expect("mkfifo");
    for (name, value) in [("user.small", &b"value"[..]), ("user.large", &[9; 9_000])] {
        rustix::fs::setxattr(at("large"), name, value, rustix::fs::XattrFlags::empty()).expect("an attribute");
    }
    if rustix::process::geteuid().is_root() {
        chown(at("part3"), Some(1), Some(2)).expect("chown");
        let null = rustix::fs::makedev(1, 3);
        rustix::fs::mknodat(rustix::fs::CWD, at("null"), rustix::fs::FileType::CharacterDevice, 0o600.into(), null)
            .expect("mknod");
    }
    let old = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(at("large")).and_then(|file| file.set_modified(old)).expect("utimes");
}

fn sqlite(lab: &Lab, database: &Path, script: &str) -> String {
    lab.run("sqlite3", [text(database), script]).ok().stdout
}

#[test]
fn rsync_finds_no_difference() {
    on_a_pool(&["rsync", "setfacl"], "-o acltype=posix", |lab, mount| {
        let source = lab.create_fs("-o acltype=posix -o xattr=dir", "tank/source");
        make_tree(&source);
        lab.run("setfacl", ["-m", "u:1:r", text(&source.join("large"))]).ok();
        let copy = mount.join("copy");
        let (from, to) = (format!("{}/", source.display()), format!("{}/", copy.display()));
        lab.run("rsync", ["-aHAX", "--sparse", &from, &to]).ok();
        rsync::assert_no_difference(lab, &source, &copy);
        // And when much has changed, in place.
        fs::write(source.join("large"), data::mixed(2, 4_000_000, 60_000)).expect("a file");
        fs::remove_dir_all(source.join("part4")).expect("remove");
        fs::rename(source.join("part5"), source.join("moved")).expect("rename");
        lab.run("rsync", ["-aHAX", "--inplace", "--delete", &from, &to]).ok();
        rsync::assert_no_difference(lab, &source, &copy);
    });
}

#[test]
fn tar_brings_everything_back() {
    on_a_pool(&["tar"], "-o compression=zstd", |lab, mount| {
        let tree = mount.join("tree");
        fs::create_dir(&tree).expect("a folder");
        make_tree(&tree);
        let archive = mount.join("archive.tar");
        let pack = ["--xattrs", "--sparse", "--numeric-owner", "-C", text(&tree), "-cf", text(&archive), "."];
        lab.run("tar", pack).ok();
        let back = mount.join("back");
        fs::create_dir(&back).expect("a folder");
        let unpack = ["--xattrs", "--numeric-owner", "--same-owner", "-p", "-C", text(&back), "-xf", text(&archive)];
        lab.run("tar", unpack).ok();
        Tree::of(&tree).assert_same(&Tree::of(&back), "in an archive and out again");
        lab.run("tar", ["--compare", "-C", text(&tree), "-f", text(&archive)]).ok();
    });
}

#[test]
fn git_clones_and_finds_its_objects_whole() {
    on_a_pool(&["git"], "", |lab, mount| {
        let (first, second) = (mount.join("first"), mount.join("second"));
        let git = |folder: &Path, words: &str| {
            let who = ["-c", "user.name=itest", "-c", "user.email=itest@localhost", "-c", "core.fsync=all"];
            let place = ["-C", text(folder)];
            lab.run("git", place.iter().chain(&who).copied().chain(words.split_whitespace())).ok()
        };
        fs::create_dir(&first).expect("a folder");
        make_tree(&first);
        // What git does not know.
        for name in ["fifo", "null"] {
            let _ = fs::remove_file(first.join(name));
        }
        git(&first, "init -q");
        git(&first, "add -A");
        git(&first, "commit -qm one");
        for round in 0..2 {
            for number in 0..40 {
                fs::write(first.join(format!("part{}/new{number}", number % 7)), data::text(round, 2_000))
                    .expect("write");
            }
            git(&first, "add -A");
            git(&first, "commit -qm more");
        }
        git(&first, "gc -q --aggressive --prune=now");
        git(mount, &format!("clone -q file://{} second", first.display()));
        for repository in [&first, &second] {
            git(repository, "fsck --full --strict");
            let status = git(repository, "status --porcelain").stdout;
            assert!(status.is_empty(), "{status}");
        }
        let head = |repository: &Path| git(repository, "rev-parse HEAD").stdout;
        assert_eq!(head(&first), head(&second));
    });
}

#[test]
fn sqlite_stays_whole_in_both_of_its_modes() {
    on_a_pool(&["sqlite3"], "-o recordsize=4K", |lab, mount| {
        for mode in ["wal", "delete"] {
            let database = mount.join(format!("{mode}.db"));
            sqlite(
                lab,
                &database,
                &format!("pragma journal_mode={mode}; create table t (k integer primary key, v blob)"),
            );
            // Two writers at a time, which need locks that work, and a map of the file.
            let write = |from: u32| {
                (from..from + 4).for_each(|round| {
                    let insert = format!(
                        "pragma busy_timeout=60000; pragma mmap_size=67108864; pragma journal_mode={mode}; \
                         begin immediate; \
                         with recursive n(x) as (select 0 union all select x + 1 from n where x < 299) \
                         insert into t select {round} * 300 + x, randomblob(700) from n; \
                         update t set v = randomblob(900) where k % 7 = {round} % 7; commit"
                    );
                    sqlite(lab, &database, &insert);
                })
            };
            std::thread::scope(|scope| {
                scope.spawn(|| write(0));
                scope.spawn(|| write(4));
            });
            assert_eq!(sqlite(lab, &database, "pragma integrity_check; select count(*) from t"), "ok\n2400\n");
            sqlite(lab, &database, "delete from t where k % 3 = 0; vacuum");
            assert_eq!(sqlite(lab, &database, "pragma integrity_check; select count(*) from t"), "ok\n1600\n");
        }
    });
}

/// What fio finds when it reads back what it wrote. `limit` in seconds bounds each mix.
fn fio(size: &str, seconds: u32) {
    on_a_pool(&["fio"], "-o recordsize=16K -o compression=lz4", |lab, mount| {
        let mut kept: Option<PathBuf> = None;
        for (name, options) in [
            ("buffered", "--ioengine=psync --rw=randrw --bsrange=512-64k --fsync=64"),
            ("mapped", "--ioengine=mmap --rw=randrw --bs=4k"),
            ("direct", "--ioengine=libaio --iodepth=8 --rw=randrw --bsrange=4k-128k --direct=1"),
            (
                "overwritten",
                "--ioengine=psync --rw=randwrite --bsrange=1k-40k --bs_unaligned --norandommap --end_fsync=1",
            ),
        ] {
            let folder: PathBuf = mount.join(name);
            fs::create_dir(&folder).expect("a folder");
            let size = format!("--size={size}");
            let time = format!("--runtime={seconds}");
            let fixed =
                ["--numjobs=8", "--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--group_reporting"];
            let place = format!("--directory={}", folder.display());
            let named = format!("--name={name}");
            let run = lab.run(
                "fio",
                [&*named, &place, &size, &time, "--randseed=7"]
                    .into_iter()
                    .chain(fixed)
                    .chain(options.split_whitespace()),
            );
            run.ok().says("err= 0").says_not("verify failed");
            // Room for the next; the last is compared after export and import.
            if let Some(before) = kept.replace(folder) {
                fs::remove_dir_all(before).expect("the folder is removed");
            }
        }
    });
}

#[test]
fn fio_reads_back_what_eight_jobs_wrote() {
    fio("1m", 20);
}

#[test]
#[ignore = "takes minutes: make test-posix"]
fn fio_reads_back_what_eight_jobs_wrote_for_minutes() {
    fio("32m", 120);
}
