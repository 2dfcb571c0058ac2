//! `zfs send` and `zfs receive`: what was received is what was sent, in files, holes, attributes and identity;
//! OpenZFS's `zstream` reads every stream, zdb every pool, and whatever breaks off leaves the target as it was.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use platter_itest::binary::platter as binary;
use platter_itest::{Lab, Run, Tree, ZfsFuse, data, judge, zdb};

const MIB: u64 = 1 << 20;
/// Bytes of a record without its payload.
const RECORD: u64 = 312;

/// Runs a shell script with `$ZFS` as our command.
pub(crate) fn sh(lab: &Lab, script: &str) -> Run {
    let zfs = format!("{} zfs", binary().display());
    lab.run("sh", ["-c", &format!("zfs() {{ {zfs} \"$@\"; }}\n{script}")])
}

#[track_caller]
pub(crate) fn value(lab: &Lab, property: &str, name: &str) -> String {
    lab.zfs(&format!("get -Hp -o value {property} {name}")).ok().stdout.trim().to_owned()
}

/// A stream in a file, and what `zstream dump` says of it.
#[track_caller]
pub(crate) fn dumped(lab: &Lab, words: &str, file: &str) -> (PathBuf, Option<String>) {
    let path = lab.tmp().join(file);
    let run = sh(lab, &format!("zfs send {words} > {}", path.display())).ok();
    assert_eq!(run.stderr, "", "{words}");
    let said = judge::need("zstream").map(|zstream| {
        let said = lab.run(zstream.to_str().unwrap(), ["dump", "-v", path.to_str().unwrap()]).ok().stdout;
        assert!(said.contains("END checksum"), "{words}: {said}");
        said
    });
    (path, said)
}

/// A stream in a file: which `zstream` accepts.
#[track_caller]
pub(crate) fn sent(lab: &Lab, words: &str, file: &str) -> PathBuf {
    let (path, _) = dumped(lab, words, file);
    if let Some(zstream) = judge::need("zstream") {
        let redup = lab.tmp().join("redup");
        let script = format!("{} redup {} > {}", zstream.display(), path.display(), redup.display());
        lab.run("sh", ["-c", &script]).ok();
        let (made, given) = (fs::read(&redup).unwrap(), fs::read(&path).unwrap());
        // The record after a package's list gets a checksum of its own.
        assert_eq!(made.len(), given.len(), "{words}: redup finds nothing to do");
        assert!(made == given || words.contains(['R', 'I', 'p']), "{words}: redup finds nothing to do");
    }
    path
}

pub(crate) fn receive(lab: &Lab, words: &str, stream: &Path) -> Run {
    sh(lab, &format!("zfs receive {words} < {}", stream.display()))
}

/// Files of all kinds.
pub(crate) fn fill(mount: &Path, seed: u64) {
    for file in 0..20 {
        fs::write(mount.join(format!("small{seed}-{file}")), data::text(seed + file, 100 * (file as usize + 1)))
            .unwrap();
    }
    let folder = mount.join(format!("folder{seed}"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("big"), data::mixed(seed, 3_000_000, 200_000)).unwrap();
    fs::write(folder.join("empty"), b"").unwrap();
    symlink("big", folder.join("link")).unwrap();
    fs::hard_link(folder.join("big"), folder.join("hard")).unwrap();
    fs::set_permissions(folder.join("big"), fs::Permissions::from_mode(0o4751)).unwrap();
    let sparse = fs::File::create(mount.join(format!("sparse{seed}"))).unwrap();
    sparse.set_len(40 * MIB).unwrap();
    sparse.write_all_at(&data::random(seed, 5000), 20 * MIB + 17).unwrap();
    for number in 0..300 {
        fs::write(folder.join(format!("a rather long name of a file, number {number}")), number.to_string()).unwrap();
    }
}

/// Attributes that make spill blocks, and access control lists.
pub(crate) fn decorate(lab: &Lab, mount: &Path, seed: u64) {
    let path = mount.join(format!("small{seed}-1"));
    let name = path.to_str().unwrap();
    for (attribute, length) in [("user.short", 10), ("user.long", 3000), ("user.longer", 20_000)] {
        let value = data::printable(&data::text(seed, length)).replace(['\\', '\n', '"'], "x");
        if judge::need("setfattr").is_some() {
            lab.run("setfattr", ["-n", attribute, "-v", &value, name]).ok();
        }
    }
    if judge::need("setfacl").is_some() {
        lab.run("setfacl", ["-m", "u:1234:rwx,g:77:r", mount.join(format!("small{seed}-2")).to_str().unwrap()]).ok();
    }
}

pub(crate) fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks()
}

#[test]
fn what_is_received_is_what_was_sent() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 512);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let options = "-o atime=off -o compression=lz4 -o xattr=sa -o acltype=posix -o recordsize=1M -o dnodesize=auto";
    let mount = lab.create_fs(options, "tank/fs");
    fill(&mount, 1);
    decorate(&lab, &mount, 1);
    lab.zfs("snapshot tank/fs@a").ok();
    let first = Tree::of(&mount);
    fill(&mount, 2);
    decorate(&lab, &mount, 2);
    fs::remove_file(mount.join("small1-3")).unwrap();
    fs::remove_dir_all(mount.join("folder1")).unwrap();
    fs::File::options().write(true).open(mount.join("sparse1")).unwrap().set_len(3 * MIB).unwrap();
    fs::File::options().write(true).open(mount.join("folder2/big")).unwrap().write_all_at(b"changed", MIB).unwrap();
    lab.zfs("snapshot tank/fs@b").ok();
    let second = Tree::of(&mount);

    for (number, flags) in ["", "-L", "-c", "-Le", "-w"].into_iter().enumerate() {
        let target = format!("pond/copy{number}");
        let full = sent(&lab, &format!("{flags} tank/fs@a"), "full");
        receive(&lab, &format!("-o atime=off -o acltype=posix -o xattr=sa {target}"), &full).ok();
        let copy = lab.mnt(&target);
        first.assert_same(&Tree::of(&copy), "received in full");
        for property in ["guid", "creation"] {
            let same = [value(&lab, property, "tank/fs@a"), value(&lab, property, &format!("{target}@a"))];
            assert_eq!(same[0], same[1], "{property}");
        }
        assert!(blocks(&copy.join("sparse1")) < 3 * 2048, "holes are sent as holes");
        let more = sent(&lab, &format!("{flags} -i @a tank/fs@b"), "more");
        receive(&lab, &target, &more).ok();
        second.assert_same(&Tree::of(&copy), "received what changed");
        Tree::of(&copy.join(".zfs/snapshot/b"));
        lab.zfs(&format!("rollback {target}@b")).ok();
        second.assert_same(&Tree::of(&copy), "gone back to what was received");
    }
    // And on from there, in both directions.
    sh(&lab, "zfs snapshot pond/copy4@c && zfs send -L -i @b pond/copy4@c | zfs receive -F tank/fs").ok();
    assert_eq!(value(&lab, "guid", "tank/fs@c"), value(&lab, "guid", "pond/copy4@c"));
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
    zdb::assert_same_tree(&lab.dev(), "pond/copy0@a", &first, 4);
    zdb::assert_same_tree(&lab.dev(), "pond/copy3@b", &second, 4);
}

#[test]
fn a_target_that_cannot_take_it_stays_as_it_is() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("one"), "1").unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    fs::write(mount.join("two"), "2").unwrap();
    lab.zfs("snapshot tank/fs@b").ok();
    let full = sent(&lab, "tank/fs@a", "full");
    let more = sent(&lab, "-i @a tank/fs@b", "more");
    let new = "cannot receive new filesystem stream";
    let incremental = "cannot receive incremental stream";
    receive(&lab, "tank/copy", &more).refused().says(&format!("{incremental}: destination 'tank/copy' does not exist"));
    receive(&lab, "tank/no/copy", &full).refused().says("cannot open 'tank/no': dataset does not exist");
    receive(&lab, "tank/copy", &full).ok();
    receive(&lab, "tank/copy", &full)
        .refused()
        .says(&format!("{new}: destination 'tank/copy' exists\nmust specify -F to overwrite it"));
    receive(&lab, "-F tank/copy", &full)
        .refused()
        .says(&format!("{new}: destination has snapshots (eg. tank/copy@a)\nmust destroy them to overwrite it"));
    let copy = lab.mnt("tank/copy");
    fs::write(copy.join("mine"), "mine").unwrap();
    receive(&lab, "tank/copy", &more)
        .refused()
        .says(&format!("{incremental}: destination tank/copy has been modified\nsince most recent snapshot"));
    assert_eq!(fs::read_to_string(copy.join("mine")).unwrap(), "mine");
    lab.zfs("snapshot tank/copy@mine").ok();
    receive(&lab, "-F tank/copy", &more).ok();
    assert!(!copy.join("mine").exists() && copy.join("two").exists());
    assert_eq!(lab.zfs("list -H -o name -t snapshot tank/copy").ok().stdout, "tank/copy@a\ntank/copy@b\n");
    receive(&lab, "-F tank/copy", &more).refused().says("destination already exists");
    lab.zfs("snapshot tank/fs@c").ok();
    let later = sent(&lab, "-i @b tank/fs@c", "later");
    lab.zfs("destroy tank/copy@b").ok();
    receive(&lab, "tank/copy", &later)
        .refused()
        .says("most recent snapshot of tank/copy does not\nmatch incremental source");
    // What is sent.
    let cannot = "warning: cannot send 'tank/fs@a'";
    sh(&lab, "zfs send -i @b tank/fs@a > /dev/null").refused().says(&format!("{cannot}: not an earlier snapshot"));
    sh(&lab, "zfs send -i @x tank/fs@b > /dev/null").refused().says("incremental source (tank/fs@x) does not exist");
    for options in ["-I @x", "-R -I @x", "-R -i tank/fs@x"] {
        sh(&lab, &format!("zfs send {options} tank/fs@b > /dev/null"))
            .refused()
            .says("cannot open 'tank/fs@x': dataset does not exist");
    }
    sh(&lab, "zfs send tank/fs@x > /dev/null").refused().says("cannot open 'tank/fs@x': dataset does not exist");
    let dry = sh(&lab, "zfs send -nvP -i @a tank/fs@b").ok().stdout;
    assert!(dry.starts_with("incremental\ttank/fs@a\ttank/fs@b\t"), "{dry}");
    let verbose = sh(&lab, "zfs send -v tank/fs@a > /dev/null").ok();
    assert!(verbose.stderr.starts_with("full send of tank/fs@a estimated size is "), "{}", verbose.stderr);
    let said = receive(&lab, "-nv tank/other", &full).ok().stdout;
    assert_eq!(said, "would receive full stream of tank/fs@a into tank/other@a\n");
    lab.zfs("list tank/other").refused();
    receive(&lab, "-v -d tank/copy", &full).ok().says("receiving full stream of tank/fs@a into tank/copy/fs@a");
    receive(&lab, "-e -u tank/copy", &full).refused().says("destination 'tank/copy/fs' exists");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Where records begin, in bytes of the stream; from `zstream`, which is not asked of a long one.
fn cuts(length: u64, count: u64) -> Vec<u64> {
    (1..=count).map(|part| (length * part / (count + 1)).max(RECORD + 1)).collect()
}

/// What is left beside a data set is a clone of its snapshot, and told as one.
fn left_beside(lab: &Lab, first: &Tree) {
    sh(lab, "zfs send tank/fs@a | zfs receive pond/kept && zfs snapshot pond/kept@later").ok();
    let between = sent(lab, "-i @a tank/fs@b", "stream");
    lab.zfs("rollback -r pond/kept@a").ok();
    let half = format!("head -c 300000 {} | zfs receive -s pond/kept", between.display());
    sh(lab, &half).refused();
    assert_eq!(value(lab, "inconsistent", "pond/kept/%recv"), "1");
    assert_eq!(value(lab, "inconsistent", "pond/kept"), "0");
    let destroyed = lab.zfs("destroy pond/kept@a").refused();
    let told = "cannot destroy 'pond/kept@a': snapshot has dependent clones\n\
                use '-R' to destroy the following datasets:\npond/kept/%recv\n";
    assert_eq!(destroyed.stderr, told);
    lab.zfs("destroy -R pond/kept@a").ok();
    assert_eq!(value(lab, "receive_resume_token", "pond/kept"), "-");
    lab.zfs("destroy pond/kept").ok();
    // Over what is there and has nothing in common, it takes `-F` in the end as in the beginning.
    lab.zfs("create pond/over").ok();
    let full = sent(lab, "tank/fs@a", "stream");
    sh(lab, &format!("head -c 300000 {} | zfs receive -s -F pond/over", full.display())).refused();
    let token = value(lab, "receive_resume_token", "pond/over");
    let rest = sent(lab, &format!("-t {token}"), "rest");
    receive(lab, "-s pond/over", &rest).refused().says("must specify -F to overwrite it");
    receive(lab, "-s -F pond/over", &rest).ok();
    first.assert_same(&Tree::of(&lab.mnt("pond/over")), "received over another");
}

#[test]
fn a_receive_that_broke_off_goes_on() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 512);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let mount = lab.create_fs("-o compression=lz4 -o recordsize=16k", "tank/fs");
    fill(&mount, 1);
    lab.zfs("snapshot tank/fs@a").ok();
    let first = Tree::of(&mount);
    fill(&mount, 2);
    lab.zfs("snapshot tank/fs@b").ok();
    let second = Tree::of(&mount);
    for (round, flags) in ["-c tank/fs@a", "-i @a tank/fs@b"].into_iter().enumerate() {
        let stream = sent(&lab, flags, "stream");
        let length = fs::metadata(&stream).unwrap().len();
        for (number, cut) in cuts(length, 12).into_iter().enumerate() {
            let target = format!("pond/r{round}n{number}");
            if round == 1 {
                sh(&lab, &format!("zfs send tank/fs@a | zfs receive {target}")).ok();
            }
            let part = format!("head -c {cut} {} | zfs receive -s {target}", stream.display());
            let failed = sh(&lab, &part).refused().says("Partially received snapshot is saved");
            let token = value(&lab, "receive_resume_token", &target);
            assert!(failed.stderr.contains(&format!("    zfs send -t {token}")), "{}", failed.stderr);
            if round == 1 {
                first.assert_same(&Tree::of(&lab.mnt(&target)), "as before what broke off");
            }
            // The wrong stream is not taken.
            receive(&lab, &format!("-s {target}"), &stream).refused();
            if number == 3 {
                // What was received is kept by the pool.
                lab.kill_daemon(true);
                lab.revive("pond");
                lab.revive("tank");
                assert_eq!(value(&lab, "receive_resume_token", &target), token);
            }
            let rest = sent(&lab, &format!("-t {token}"), "rest");
            assert!(number == 0 || fs::metadata(&rest).unwrap().len() < length, "it goes on where it was");
            receive(&lab, &format!("-s {target}"), &rest).ok();
            let expected = if round == 0 { &first } else { &second };
            expected.assert_same(&Tree::of(&lab.mnt(&target)), "received in two parts");
            assert_eq!(value(&lab, "receive_resume_token", &target), "-");
            lab.zfs(&format!("destroy -r {target}")).ok();
        }
    }
    // Given up instead.
    let stream = sent(&lab, "tank/fs@a", "stream");
    sh(&lab, &format!("head -c 300000 {} | zfs receive -s pond/gone", stream.display())).refused();
    lab.zfs("receive -A pond/gone").ok();
    lab.zfs("list pond/gone").refused();
    lab.zfs("receive -A pond").refused().says("does not have any resumable receive state to abort");
    left_beside(&lab, &first);
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

#[test]
fn damaged_streams_change_nothing() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("file"), data::mixed(1, 400_000, 10_000)).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let bytes = fs::read(sent(&lab, "tank/fs@a", "stream")).unwrap();
    let bad = lab.tmp().join("bad");
    let mut random = data::Rng::new(7);
    for round in 0..40 {
        let mut changed = bytes.clone();
        match round % 4 {
            0 => changed.truncate(random.below(bytes.len() as u64) as usize),
            1 => changed[random.below(bytes.len() as u64) as usize] ^= 1 << random.below(8),
            2 => {
                let at = random.below(bytes.len() as u64 - 700) as usize;
                changed.drain(at..at + 312);
            }
            _ => {
                let at = random.below(bytes.len() as u64 - 700) as usize;
                random.fill(&mut changed[at..at + 600]);
            }
        }
        fs::write(&bad, &changed).unwrap();
        let run = receive(&lab, "tank/copy", &bad).refused();
        assert!(run.stderr.starts_with("cannot receive"), "{round}: {}", run.stderr);
        lab.zfs("list tank/copy").refused();
    }
    fs::write(&bad, b"no stream at all").unwrap();
    receive(&lab, "tank/copy", &bad).refused().says("cannot receive: ");
    receive(&lab, "tank/copy", Path::new("/dev/null")).refused();
    assert_eq!(lab.zfs("list -H -o name -r tank").ok().stdout, "tank\ntank/fs\n");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_full_pool_a_kill_and_two_at_once() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("file"), data::random(1, 100 << 20)).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let stream = sent(&lab, "tank/fs@a", "stream");
    lab.zfs("create -o quota=30M pond/small").ok();
    receive(&lab, "pond/small/copy", &stream).refused().says_one_of(&["quota exceeded", "out of space"]);
    lab.zfs("list pond/small/copy").refused();
    // Two of one name: the second is refused. Of two names both come through.
    let slow =
        format!("(head -c 1000000 {0}; sleep 2; tail -c +1000001 {0}) | zfs receive pond/slow", stream.display());
    let script = format!("({slow}) & sleep 1; zfs receive pond/slow < {0}; echo $?; wait $!", stream.display());
    let run = sh(&lab, &script).ok();
    assert!(run.stdout.starts_with("1\n"), "{}{}", run.stdout, run.stderr);
    assert_eq!(value(&lab, "guid", "pond/slow@a"), value(&lab, "guid", "tank/fs@a"));
    lab.zfs("destroy -r pond/slow").ok();
    lab.zpool("wait -t free pond").ok();
    // A pool with a stream is busy; one that loses its daemon forgets what was not finished.
    let part = format!("(head -c 30000000 {}; sleep 30) | zfs receive pond/part", stream.display());
    let mut child = lab.command("sh");
    child.args(["-c", &format!("zfs() {{ {} zfs \"$@\"; }}\n{part}", binary().display())]);
    let mut child = child.spawn().unwrap();
    while lab.zfs("list pond/part").code != 0 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    lab.zfs("mount pond/part").refused();
    lab.platter(["zpool", "export", "pond"]).refused().says("pool is busy");
    lab.zpool("sync").ok();
    lab.kill_daemon(true);
    let _ = child.kill();
    let _ = child.wait();
    lab.revive("pond");
    lab.revive("tank");
    lab.zfs("list pond/part").refused();
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// Limits asked for with `-o` were dropped, and what a compression asks of the pool was not noted.
#[test]
fn properties_asked_for_at_a_receive_have_their_effects() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("file"), data::text(1, 900_000)).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let full = sent(&lab, "tank/fs@a", "full");
    let active = |lab: &Lab| lab.zpool("get -H -o value feature@zstd_compress tank").ok().stdout;
    assert_eq!(active(&lab), "enabled\n");
    receive(&lab, "-o quota=20M -o compression=zstd tank/copy", &full).ok();
    assert_eq!((value(&lab, "quota", "tank/copy"), active(&lab)), ((20 << 20).to_string(), "active\n".to_owned()));
    Tree::of(&mount).assert_same(&Tree::of(&lab.mnt("tank/copy")), "received");
    fs::write(lab.mnt("tank/copy").join("more"), data::random(2, 30_000_000)).expect_err("over the quota");
    receive(&lab, "-o reservation=900M tank/no", &full).refused().says("greater than available space");
    lab.zfs("list tank/no").refused();
    lab.zfs("destroy -r tank/copy").ok();
    lab.zpool("wait -t free tank").ok();
    assert_eq!(active(&lab), "enabled\n", "nobody uses it any more");
    // So it is with a pool's first file system.
    lab.create("-O compression=zstd -O snapshot_limit=3", "pond", "d1");
    lab.zpool("get -H -o value feature@zstd_compress pond").ok().says("active");
    assert_eq!(
        (value(&lab, "snapshot_limit", "pond"), value(&lab, "snapshot_count", "pond")),
        ("3".into(), "0".into())
    );
    for pool in ["tank", "pond"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

// What was received took the log of the snapshot's head for its own: the log was freed twice, and the next crash left a
// pool that could not be imported.
#[test]
fn what_is_received_has_no_log_of_others() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    let stable = |name: &str, seed| {
        let path = mount.join(name);
        fs::write(&path, data::random(seed, 20_000)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
    };
    // A replay sets times anew.
    let files = || {
        let all = fs::read_dir(&mount).unwrap().map(|entry| entry.unwrap().path());
        all.map(|path| (path.clone(), fs::read(path).unwrap())).collect::<std::collections::BTreeMap<_, _>>()
    };
    stable("first", 1);
    lab.zfs("snapshot tank/fs@a").ok();
    receive(&lab, "tank/copy", &sent(&lab, "tank/fs@a", "full")).ok();
    fs::write(lab.mnt("tank/copy").join("more"), data::random(2, 50_000)).unwrap();
    lab.zfs("snapshot tank/copy@b").ok();
    let more = sent(&lab, "-i @a tank/copy@b", "more");
    lab.zfs("clone tank/fs@a tank/clone").ok();
    // A clone of the snapshot, and one that takes its head's place.
    receive(&lab, "-o origin=tank/fs@a tank/new", &more).ok();
    for number in 0..5 {
        stable(&format!("later {number}"), 10 + number);
    }
    let before = files();
    lab.kill_daemon(true);
    lab.revive("tank");
    assert!(before == files(), "something is lost after a crash");
    lab.zpool("scrub -w tank").ok();

    stable("much later", 30);
    lab.zfs("snapshot tank/fs@c").ok();
    receive(&lab, "-F tank/fs", &more).ok();
    Tree::of(&lab.mnt("tank/copy")).assert_same(&Tree::of(&mount), "received over it");
    stable("and on", 31);
    let before = files();
    lab.kill_daemon(true);
    lab.revive("tank");
    assert!(before == files(), "something is lost after another crash");
    lab.zfs("destroy -R tank/fs").ok();
    lab.zpool("wait -t free tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn bookmarks_stand_for_snapshots_that_are_gone() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("-O atime=off", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("one"), "1").unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    sh(&lab, "zfs send tank/fs@a | zfs receive tank/copy").ok();
    lab.zfs("bookmark tank/fs@a tank/fs#m").ok();
    lab.zfs("bookmark tank/fs@a #m").refused().says("cannot create bookmark 'tank/fs#m': bookmark exists");
    lab.zfs("bookmark tank/fs#m tank/fs#n").ok();
    assert_eq!(lab.zfs("list -H -o name -t bookmark tank/fs#m").ok().stdout, "tank/fs#m\n");
    lab.zfs("list -t bookmark tank/fs#none").refused().says("cannot open 'tank/fs#none': dataset does not exist");
    assert_eq!(lab.zfs("get -H -o value type tank/fs#m").ok().stdout, "bookmark\n");
    let listed = lab.zfs("list -H -o name,guid -p -t bookmark -r tank").ok().stdout;
    let guid = value(&lab, "guid", "tank/fs@a");
    assert_eq!(listed, format!("tank/fs#m\t{guid}\ntank/fs#n\t{guid}\n"));
    lab.zfs("destroy tank/fs@a").ok();
    fs::write(mount.join("two"), "2").unwrap();
    lab.zfs("snapshot tank/fs@b").ok();
    let more = sent(&lab, "-i tank/fs#m tank/fs@b", "more");
    receive(&lab, "tank/copy", &more).ok();
    Tree::of(&mount).assert_same(&Tree::of(&lab.mnt("tank/copy")), "received since a bookmark");
    lab.zfs("bookmark tank/fs@x tank/fs#x").refused();
    lab.zfs("bookmark tank/fs@b tank/copy#x").refused().says("not an ancestor");
    lab.zfs("destroy tank/fs#n").ok();
    lab.zfs("destroy tank/fs#n").refused().says("bookmark 'tank/fs#n' does not exist.");
    sh(&lab, "zfs send -i tank/fs#n tank/fs@b > /dev/null")
        .refused()
        .says("incremental source (tank/fs#n) does not exist");
    // What the origin and those before it are called by goes with them to a clone that is promoted.
    lab.zfs("clone tank/fs@b tank/clone").ok();
    lab.zfs("snapshot tank/fs@c").ok();
    lab.zfs("bookmark tank/fs@c tank/fs#c").ok();
    lab.zfs("promote tank/clone").ok();
    let listed = lab.zfs("list -H -o name -t bookmark -r tank").ok().stdout;
    assert_eq!(listed, "tank/clone#m\ntank/fs#c\n");
    sh(&lab, "zfs send -i tank/clone#m tank/clone@b > /dev/null").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.zfs("destroy -r tank/fs").ok();
    lab.zfs("destroy -r tank/clone").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn several_snapshots_travel_in_one_stream() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    lab.create("-O atime=off", "tank", "d0");
    lab.create("-O atime=off", "pond", "d1");
    let top = lab.create_fs("-o compression=gzip", "tank/a");
    let below = lab.create_fs("-o my:own=x -o recordsize=16k", "tank/a/b");
    for round in 1..=3 {
        fill(&top, round);
        fs::write(below.join(format!("file{round}")), data::mixed(round, 200_000, 5000)).unwrap();
        lab.zfs(&format!("snapshot -r tank/a@{round}")).ok();
    }
    let (trees, all) = ([Tree::of(&top), Tree::of(&below)], "tank/a@1\ntank/a@2\ntank/a@3\n");
    let stream = sent(&lab, "-R -X tank/a/c tank/a@2", "all");
    receive(&lab, "-d pond", &stream).ok();
    assert_eq!(lab.zfs("get -H -o value,source compression pond/a").ok().stdout, "gzip\treceived\n");
    assert_eq!(
        lab.zfs("get -H -o value,source my:own,recordsize pond/a/b").ok().stdout,
        "x\treceived\n16K\treceived\n"
    );
    let more = sent(&lab, "-R -I @1 tank/a@3", "more");
    let said = receive(&lab, "-v -d pond", &more).ok().stdout;
    assert!(said.contains("snap pond/a@2 already exists; ignoring"), "{said}");
    for (name, tree) in [("pond/a", &trees[0]), ("pond/a/b", &trees[1])] {
        tree.assert_same(&Tree::of(&lab.mnt(name)), "received with all snapshots");
        let expected = all.replace("tank/a", name);
        assert_eq!(lab.zfs(&format!("list -H -o name -t snapshot {name}")).ok().stdout, expected);
    }
    // One data set, with and without its properties.
    let some = sent(&lab, "-p tank/a/b@3", "some");
    receive(&lab, "-x recordsize -o my:own=y pond/one", &some).ok();
    let shown = lab.zfs("get -H -o value,source my:own,recordsize pond/one").ok().stdout;
    assert_eq!(shown, "y\tlocal\n128K\tdefault\n");
    // What came is known, whatever hides it, and can be had back.
    let received = |name: &str| lab.zfs(&format!("get -H -o received my:own,recordsize {name}")).ok().stdout;
    assert_eq!(received("pond/one"), "x\n16K\n");
    lab.zfs("inherit my:own pond/a/b").ok();
    assert_eq!(lab.zfs("get -H -o value,received,source my:own pond/a/b").ok().stdout, "-\tx\t-\n");
    lab.zfs("inherit -S my:own pond/a/b").ok();
    assert_eq!(lab.zfs("get -H -o value,received,source my:own pond/a/b").ok().stdout, "x\tx\treceived\n");
    let between = sent(&lab, "-I @1 tank/a/b@3", "between");
    sh(&lab, "zfs send tank/a/b@1 | zfs receive pond/two").ok();
    receive(&lab, "pond/two", &between).ok();
    trees[1].assert_same(&Tree::of(&lab.mnt("pond/two")), "received with those in between");
    let said = sh(&lab, "zfs send -nvP -I @1 tank/a/b@3").ok().stdout;
    assert!(said.starts_with("incremental\ttank/a/b@1\ttank/a/b@2\t"), "{said}");
    receive(&lab, "pond/two@x", &more).refused().says("cannot specify snapshot name for multi-snapshot stream");
    sh(&lab, "zfs send -R tank/a@4 > /dev/null").refused().says("cannot open 'tank/a@4': dataset does not exist");
    // A pool without large blocks has none of their size.
    lab.create("-d", "old", "d2");
    lab.zfs("set recordsize=1M tank/a/b").ok();
    lab.zfs("snapshot tank/a/b@large").ok();
    sh(&lab, "zfs send -p tank/a/b@large | zfs receive old/b").ok();
    assert_eq!(lab.zfs("get -H -o value,received recordsize old/b").ok().stdout, "128K\t-\n");
    for pool in ["tank", "pond", "old"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// The tree with times in whole seconds, which is all that zfs-fuse's mounts show.
fn in_seconds(root: &Path) -> Tree {
    let mut tree = Tree::of(root);
    for entry in tree.0.values_mut() {
        entry.mtime_ns -= entry.mtime_ns.rem_euclid(1_000_000_000);
    }
    tree
}

#[test]
fn zfs_fuse_and_platter_exchange_streams() {
    let Some(lab) = Lab::open() else { return };
    let Some(fuse) = ZfsFuse::start(lab.root()) else { return };
    let judges = std::env::var("PLATTER_JUDGES").unwrap_or_else(|_| "/opt/platter-judges".into());
    let theirs = format!("{judges}/zfs-fuse/sbin/zfs");
    let disks = lab.disks(2, 128);
    let mount = lab.mnt("ffs");
    fuse.zpool(&format!("create -m {} ffs {}", mount.display(), disks[0])).ok();
    fuse.zfs("create -o atime=off ffs/fs").ok();
    fill(&mount.join("fs"), 1);
    fuse.zfs("snapshot ffs/fs@a").ok();
    let first = in_seconds(&mount.join("fs"));
    lab.create("-O atime=off", "pond", "d1");
    sh(&lab, &format!("{theirs} send ffs/fs@a | zfs receive pond/copy")).ok();
    let copy = lab.mnt("pond/copy");
    first.assert_same(&in_seconds(&copy), "received from zfs-fuse");
    fill(&copy, 2);
    fs::remove_dir_all(copy.join("folder1")).unwrap();
    lab.zfs("snapshot pond/copy@b").ok();
    let second = in_seconds(&copy);
    sh(&lab, &format!("zfs send -i @a pond/copy@b | {theirs} receive -F ffs/fs")).ok();
    second.assert_same(&in_seconds(&mount.join("fs")), "received by zfs-fuse what changed");
    sh(&lab, &format!("zfs send pond/copy@b | {theirs} receive ffs/whole")).ok();
    second.assert_same(&in_seconds(&mount.join("whole")), "received by zfs-fuse in full");
    fuse.zfs("snapshot ffs/whole@c").ok();
    sh(&lab, &format!("{theirs} send -I b ffs/whole@c | zfs receive -F pond/copy")).ok();
    second.assert_same(&in_seconds(&copy), "and back");
    fuse.export("ffs");
    lab.export("pond");
    for pool in ["ffs", "pond"] {
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// Who reads the pipe hears that nothing comes: it waited for ever.
#[test]
fn a_send_that_fails_closes_its_pipe() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.zfs("snapshot tank@a").ok();
    for words in ["tank@nope", "-i @nope tank@a", "-I @nope tank@a", "-R tank@nope", "-p -i @nope tank@a"] {
        let run = sh(&lab, &format!("zfs send {words} | timeout 30 cat")).ok();
        assert_eq!(run.stdout, "", "{words}");
    }
}
