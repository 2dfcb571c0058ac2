//! Pools of the versions before feature flags: made, written and read by Platter and zfs-fuse 0.7 (version 23), one
//! after the other, with equal hashes and a clean zdb after each.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use platter_itest::{Lab, Tree, ZfsFuse, data, zdb};

/// Everything whose layout depends on the version: short and long link targets, modes, hard links, holes, files of one
/// and of many blocks, a directory beyond a micro ZAP.
fn fill(dir: &Path, seed: u64) {
    let write = |name: &str, bytes: Vec<u8>| fs::write(dir.join(name), bytes).expect("a file can be written");
    write("empty", Vec::new());
    write("tiny", data::text(seed, 60));
    write("text", data::text(seed + 1, 700_000));
    write("random", data::random(seed + 2, 400_001));
    write("mixed", data::mixed(seed + 3, 3_000_000, 131_072));
    let holes = fs::File::create(dir.join("holes")).expect("a file can be made");
    holes.set_len(5_000_000).expect("a file can grow");
    fs::create_dir_all(dir.join("sub/deeper")).expect("a folder can be made");
    fs::create_dir(dir.join("many")).expect("a folder can be made");
    for index in 0..300 {
        fs::write(dir.join(format!("many/a-file-with-a-rather-long-name-{index:05}")), [index as u8; 10])
            .expect("a file can be written");
    }
    fs::write(dir.join("sub/deeper/file"), data::text(seed + 4, 5000)).expect("a file can be written");
    fs::hard_link(dir.join("text"), dir.join("sub/also-text")).expect("a link can be made");
    symlink("sub/deeper/file", dir.join("short-link")).expect("a link can be made");
    symlink("x".repeat(300), dir.join("long-link")).expect("a link can be made");
    for (name, mode) in [("tiny", 0o600), ("random", 0o444), ("sub", 0o711)] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).expect("a mode can be set");
    }
}

/// Changes what another program wrote, in the ways that touch old structures: overwriting, truncating, removing,
/// renaming, new modes.
fn change(dir: &Path, seed: u64) {
    fs::write(dir.join("text"), data::text(seed, 900_000)).expect("a file can be overwritten");
    fs::File::options()
        .write(true)
        .open(dir.join("mixed"))
        .and_then(|file| file.set_len(1_000_000))
        .expect("a file can be cut");
    fs::remove_file(dir.join("random")).expect("a file can be removed");
    fs::rename(dir.join("sub/deeper"), dir.join("moved")).expect("a folder can move");
    fs::remove_dir_all(dir.join("many")).expect("a folder can be removed");
    fs::create_dir(dir.join(format!("new-{seed}"))).expect("a folder can be made");
    fill(&dir.join(format!("new-{seed}")), seed);
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir.join("tiny"), fs::Permissions::from_mode(0o755)).expect("a mode can be set");
}

#[test]
fn zfs_fuse_reads_and_writes_a_pool_that_platter_made_and_the_other_way_round() {
    let Some(lab) = Lab::open() else { return };
    let Some(fuse) = ZfsFuse::start(lab.root()) else { return };
    let disks = lab.disks(4, 128).join(" ");
    lab.create("-o version=23", "elder", &format!("raidz {disks}"));
    lab.zpool("get -H -o value version elder").ok().says("23");
    lab.zfs("get -H -o value version elder").ok().says("4");
    for (name, options) in [
        ("gzip", "-o compression=gzip"),
        ("lzjb", "-o compression=lzjb"),
        ("zle", "-o compression=zle -o checksum=sha256"),
        ("three", "-o version=3 -o recordsize=16K"),
        ("copies", "-o copies=2 -o checksum=fletcher2"),
    ] {
        fill(&lab.create_fs(options, &format!("elder/{name}")), 10);
    }
    fill(&lab.mnt("elder"), 1);
    round_trips(&lab, &fuse, "elder");
}

#[test]
fn platter_reads_and_writes_a_pool_that_zfs_fuse_made_and_the_other_way_round() {
    let Some(lab) = Lab::open() else { return };
    let Some(fuse) = ZfsFuse::start(lab.root()) else { return };
    for (level, count) in [("raidz2", 5), ("mirror", 2), ("", 1)] {
        let disks: Vec<String> = lab.disks(count, 128);
        let pool = format!("ff{count}");
        let mount = lab.mnt(&pool);
        fuse.zpool(&format!("create -m {} {pool} {level} {}", mount.display(), disks.join(" "))).ok();
        fill(&mount, 1);
        // A snapshot keeps what is changed later on a deadlist.
        fuse.zfs(&format!("create -o compression=on {pool}/snapped")).ok();
        fill(&mount.join("snapped"), 2);
        fuse.zfs(&format!("snapshot {pool}/snapped@before")).ok();
        fuse.zfs(&format!("create {pool}/plain")).ok();
        fill(&mount.join("plain"), 3);
        let before = in_seconds(&mount);
        fuse.export(&pool);
        zdb::assert_clean(&lab.dev(), &pool);
        lab.zpool(&format!("import -f -d {} {pool}", lab.dev().display())).ok();
        lab.wait_mounted(&mount);
        before.assert_same(&in_seconds(&mount), "as zfs-fuse wrote it");
        round_trips(&lab, &fuse, &pool);
        for disk in disks {
            fs::remove_file(disk).expect("a disk can be removed");
        }
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

/// `pool` is imported by Platter: changed here, changed by zfs-fuse, and here again, compared and checked at each step.
fn round_trips(lab: &Lab, fuse: &ZfsFuse, pool: &str) {
    let root = lab.mnt(pool);
    let names = lab.zfs(&format!("list -H -o name -r {pool}")).ok().stdout;
    let mounts: Vec<_> = names.lines().map(|name| lab.mnt(name)).collect();
    for (round, mount) in mounts.iter().enumerate() {
        change(mount, 100 + round as u64);
    }
    let by_platter = in_seconds(&root);
    lab.scrub(pool).says("with 0 errors");
    lab.export(pool);
    zdb::assert_clean(&lab.dev(), pool);

    fuse.zpool(&format!("import -d {} {pool}", lab.dev().display())).ok();
    by_platter.assert_same(&in_seconds(&root), "read by zfs-fuse");
    for (round, mount) in mounts.iter().enumerate() {
        fill(&mount.join("moved"), 200 + round as u64);
        change(&mount.join("moved"), 300 + round as u64);
    }
    let by_fuse = in_seconds(&root);
    fuse.zpool(&format!("scrub {pool}")).ok();
    while fuse.zpool(&format!("status {pool}")).ok().mentions("scrub in progress") {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    fuse.zpool(&format!("status {pool}")).ok().says("No known data errors").says("with 0 errors");
    fuse.export(pool);
    zdb::assert_clean(&lab.dev(), pool);

    lab.import("", pool);
    for mount in &mounts {
        lab.wait_mounted(mount);
    }
    by_fuse.assert_same(&in_seconds(&root), "read back by Platter");
    if lab.zfs(&format!("list -H -o name {pool}/plain")).code == 0 {
        lab.zfs(&format!("destroy {pool}/plain")).ok();
    }
    lab.export(pool);
    zdb::assert_clean(&lab.dev(), pool);
}

#[test]
fn every_version_is_made_and_written() {
    let Some(lab) = Lab::open() else { return };
    for version in [15, 18, 22, 24, 25, 26, 28] {
        let disks = lab.disks(3, 96).join(" ");
        let pool = format!("v{version}");
        let mount = lab.create(&format!("-o version={version}"), &pool, &format!("raidz {disks}"));
        let child = lab.create_fs("-o compression=gzip-9", &format!("{pool}/child"));
        fill(&child, version);
        fill(&mount, version);
        lab.zpool(&format!("get -H -o value version {pool}")).ok().says(&version.to_string());
        lab.zfs(&format!("set compression=lz4 {pool}")).refused().says("lz4_compress");
        lab.zfs(&format!("set recordsize=1M {pool}")).refused().says("large_blocks");
        lab.zpool(&format!("set feature@lz4_compress=enabled {pool}")).refused().says("upgrade");
        let before = Tree::of(&mount);
        lab.export(&pool);
        zdb::assert_clean(&lab.dev(), &pool);
        lab.import("", &pool);
        lab.wait_mounted(&child);
        before.assert_same(&Tree::of(&mount), "after export and import");
        change(&child, version);
        let after = Tree::of(&child);
        lab.export(&pool);
        zdb::assert_clean(&lab.dev(), &pool);
        // zdb shows no target of a link that is a znode's data.
        if version >= 24 {
            zdb::assert_same_tree(&lab.dev(), &format!("{pool}/child"), &after, 2);
        }
        lab.import("", &pool);
        lab.zfs(&format!("destroy {pool}/child")).ok();
        lab.export(&pool);
        zdb::assert_clean(&lab.dev(), &pool);
    }
}

#[test]
fn versions_that_do_not_exist_or_do_not_fit_are_refused() {
    let Some(lab) = Lab::open() else { return };
    let disks = lab.disks(4, 96).join(" ");
    for version in ["0", "3", "14", "29", "4999", "5001", "x"] {
        lab.zpool(&format!("create -o version={version} tank raidz {disks}")).refused().says("version");
    }
    lab.zpool(&format!("create -o version=16 tank raidz3 {disks}")).refused().says("raidz3");
    lab.zpool(&format!("create -o version=23 -O version=5 tank raidz {disks}")).refused().says("too old");
    lab.zpool(&format!("create -o version=28 -o feature@lz4_compress=enabled tank raidz {disks}")).refused();
    lab.create("-o version=15", "tank", &format!("raidz {disks}"));
    lab.zfs("create -o version=5 tank/new").refused().says("24");
    lab.zfs("create -o compression=zle tank/new").refused().says("version 20");
}
