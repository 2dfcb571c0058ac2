//! Scrubs of what is known to be damaged (`zpool scrub -e`): only that is looked at, and what is whole again is off the
//! list.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use platter_itest::{Lab, data, zdb};
use serde_json::Value;

const SIZE: usize = 3 << 20;

/// Where on a device these bytes are.
fn place_of(disk: &Path, bytes: &[u8]) -> u64 {
    let device = fs::read(disk).expect("a device file");
    let at = device.chunks(512).position(|sector| sector == &bytes[..512]).expect("they are there");
    at as u64 * 512
}

/// Damages the block that begins with these bytes.
fn spoil(disk: &Path, bytes: &[u8]) {
    let device = File::options().write(true).open(disk).expect("a device file");
    device.write_all_at(&[0x5a; 4096], place_of(disk, bytes)).expect("damage");
}

/// What `zpool status -j` tells of scans.
fn scans(lab: &Lab) -> Value {
    let told = lab.zpool("status -j --json-int tank").ok();
    let json: Value = serde_json::from_str(&told.stdout).expect("JSON");
    json["pools"]["tank"]["scan_stats"].clone()
}

#[test]
fn what_is_whole_again_is_off_the_list() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("-O compression=off -O recordsize=128k", "tank", "d0");
    let contents: Vec<Vec<u8>> = (0..3).map(|seed| data::random(seed, SIZE)).collect();
    for (name, bytes) in ["mended", "lost", "untouched"].iter().zip(&contents) {
        fs::write(mount.join(name), bytes).expect("a file");
    }
    lab.zpool("scrub -e tank").ok();
    lab.zpool("status tank").ok().says_not("error scrub").says_not("error blocks");
    lab.export("tank");
    let disk = lab.disk(0);
    let places = [place_of(&disk, &contents[0][1 << 20..]), place_of(&disk, &contents[1][2 << 20..])];
    let device = File::options().read(true).write(true).open(&disk).expect("a device file");
    places.iter().for_each(|place| device.write_all_at(&[0x5a; 4096], *place).expect("damage"));
    lab.import("", "tank");
    lab.zpool("scrub -w tank").ok();
    let listed = |present: &[&str]| {
        let status = lab.zpool("status -v tank").ok();
        for name in ["mended", "lost", "untouched"] {
            let line = format!("{}/{name}\n", mount.display());
            assert_eq!(status.stdout.contains(&line), present.contains(&name), "{name}: {status}");
        }
    };
    listed(&["mended", "lost"]);

    // Nothing has changed: nothing leaves the list, of which two were looked at.
    lab.zpool("scrub -e -w tank").ok();
    listed(&["mended", "lost"]);
    lab.zpool("status tank").ok().says(" scrub: scrubbed 2 error blocks in 0 days 00:00:0").says_not("  scan: ");
    let told = scans(&lab);
    assert_eq!((&told["err_scrub_state"], &told["err_scrub_examined"]), (&"FINISHED".into(), &2.into()), "{told}");

    // One is whole again, by whatever magic.
    lab.export("tank");
    device.write_all_at(&contents[0][1 << 20..(1 << 20) + 4096], places[0]).expect("mended");
    lab.import("", "tank");
    listed(&["mended", "lost"]);
    lab.zpool("scrub -e -w tank").ok();
    listed(&["lost"]);
    lab.zpool("events -H").ok().says("sysevent.fs.zfs.errorscrub_start").says("sysevent.fs.zfs.errorscrub_finish");

    // The list is on disk, and a file that is gone leaves it.
    lab.export("tank");
    lab.import("", "tank");
    listed(&["lost"]);
    lab.zpool("status tank").ok().says("scrubbed 2 error blocks");
    fs::remove_file(mount.join("lost")).expect("removed");
    lab.zpool("sync tank").ok();
    lab.zpool("scrub -e -w tank").ok();
    lab.zpool("status tank").ok().says("errors: No known data errors");
    // A whole scrub is told of instead.
    std::thread::sleep(std::time::Duration::from_secs(1));
    lab.zpool("scrub -w tank").ok();
    lab.zpool("status tank").ok().says("  scan: scrub repaired 0B").says_not("error blocks");
    for (name, bytes) in ["mended", "untouched"].iter().zip([&contents[0], &contents[2]]) {
        assert!(&fs::read(mount.join(name)).expect("it can be read") == bytes, "{name}");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn what_cannot_be_is_refused_in_openzfs_words() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    for option in ["p", "s", "C"] {
        let refused = lab.zpool(&format!("scrub -e -{option} tank")).refused();
        refused.says(&format!("invalid option combination: -e and -{option} are mutually exclusive"));
    }
    lab.zpool("scrub -e nowhere").refused().says("no such pool");
    lab.zpool("scrub -p tank").refused().says("there is no active scrub");
    lab.export("tank");
    lab.zpool(&format!("import -o readonly=on -d {} tank", lab.dev().display())).ok();
    lab.zpool("scrub -e tank").refused().says("read-only");
    lab.export("tank");
}

/// A pool on one device, with one damaged file `f` that a snapshot may have, too; whole scrubs have listed it.
fn damaged(lab: &Lab, snapshot_before: bool) -> std::path::PathBuf {
    lab.disks(1, 128);
    let mount = lab.create("-O compression=off -O recordsize=128k", "tank", "d0");
    let bytes = data::random(7, SIZE);
    fs::write(mount.join("f"), &bytes).expect("a file");
    lab.zpool("sync tank").ok();
    if snapshot_before {
        lab.zfs("snapshot tank@s").ok();
    }
    lab.export("tank");
    spoil(&lab.disk(0), &bytes[1 << 20..]);
    lab.import("", "tank");
    lab.zpool("scrub -w tank").ok();
    lab.zpool("status tank").ok().says_not("No known data errors");
    mount
}

#[test]
fn what_is_gone_in_one_place_stays_listed_while_others_have_it() {
    // It left the list with the snapshot that it was found in, and the head could still not be read.
    let Some(lab) = Lab::open() else { return };
    let mount = damaged(&lab, true);
    lab.zfs("destroy tank@s").ok();
    lab.zpool("sync tank").ok();
    lab.zpool("scrub -e -w tank").ok();
    lab.zpool("status tank").ok().says_not("No known data errors");
    assert!(fs::read(mount.join("f")).is_err());
    lab.zpool("scrub -w tank").ok();
    lab.zpool("status -v tank").ok().says(&format!("{}/f\n", mount.display()));
    lab.export("tank");
}

#[test]
fn a_file_that_is_removed_stays_listed_where_snapshots_and_clones_have_it() {
    let Some(lab) = Lab::open() else { return };
    let mount = damaged(&lab, false);
    lab.zfs("snapshot tank@s").ok();
    lab.zfs("clone tank@s tank/c").ok();
    fs::remove_file(mount.join("f")).expect("removed");
    lab.zpool("sync tank").ok();
    lab.zpool("scrub -e -w tank").ok();
    let status = lab.zpool("status -v tank").ok().says("tank@s:/f\n");
    status.says(&format!("{}/c/f\n", mount.display())).says_not(&format!("{}/f\n", mount.display()));
    lab.zfs("destroy -r tank/c").ok();
    lab.zfs("destroy tank@s").ok();
    lab.zpool("scrub -w tank").ok();
    lab.zpool("status tank").ok().says("No known data errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn there_is_one_at_a_time() {
    // One that was started when the end of another was being written down ran beside a third.
    let Some(lab) = Lab::open() else { return };
    damaged(&lab, false);
    for _ in 0..5 {
        lab.zpool("scrub -e tank").ok();
        // The next is refused until that one has ended, and then taken.
        while lab.zpool("scrub -e tank").code != 0 {}
        lab.zpool("wait -t scrub tank").ok();
        lab.zpool("status tank").ok().says("scrubbed 1 error blocks");
    }
    let events = lab.zpool("events -H tank").ok();
    let told: Vec<&str> = events.stdout.lines().filter_map(|line| line.split("errorscrub_").nth(1)).collect();
    assert!(told.len() >= 20 && told.chunks(2).all(|pair| pair == ["start", "finish"]), "{told:?}");
    lab.export("tank");
}

#[test]
fn errors_that_a_reader_comes_across_are_known_after_the_export() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("-O compression=off -O recordsize=128k", "tank", "d0");
    lab.zpool("get -H -o value feature@head_errlog tank").ok().says("active");
    let bytes = data::random(9, SIZE);
    fs::write(mount.join("f"), &bytes).expect("a file");
    lab.export("tank");
    spoil(&lab.disk(0), &bytes[1 << 20..]);
    lab.import("", "tank");
    assert!(fs::read(mount.join("f")).is_err());
    lab.export("tank");
    // It looks for objects of the MOS that nobody refers to.
    if let Some(judged) = zdb::zdb(&lab.dev(), &["-d", "tank"]) {
        judged.ok().says_not("leaked");
    }
    lab.import("", "tank");
    lab.zpool("status -v tank").ok().says(&format!("{}/f\n", mount.display()));
    lab.zpool("clear tank").ok();
    lab.zpool("status tank").ok().says("No known data errors");
    fs::remove_file(mount.join("f")).expect("removed");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_device_that_is_taken_offline_in_a_scrub_is_no_error() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 512);
    let mount = lab.create("-O compression=off -O recordsize=8k", "tank", "mirror d0 d1");
    fs::write(mount.join("f"), data::random(3, 120 << 20)).expect("a file");
    lab.zpool("sync tank").ok();
    let disk = lab.disk(0).display().to_string();
    for _ in 0..6 {
        lab.zpool("scrub tank").ok();
        lab.zpool(&format!("offline tank {disk}")).ok();
        lab.zpool("wait -t scrub tank").ok();
        lab.zpool("status tank").ok().says("with 0 errors").says("No known data errors");
        lab.zpool(&format!("online tank {disk}")).ok();
        lab.zpool("wait -t resilver tank").ok();
        lab.zpool("status tank").ok().says("with 0 errors");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Waits until `zpool status -v` lists just these of `all`.
fn until_listed(lab: &Lab, all: &[String], wanted: &[&String]) {
    let begin = std::time::Instant::now();
    loop {
        let status = lab.zpool("status -v tank").ok();
        let is_listed = |path: &&String| status.stdout.lines().any(|line| line.trim() == **path);
        if all.iter().filter(is_listed).eq(wanted.iter().copied()) {
            return;
        }
        assert!(begin.elapsed().as_secs() < 60, "{wanted:?} are not listed: {status}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn a_loss_is_told_wherever_it_is_shared() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("-O compression=off -O recordsize=128k", "tank", "d0");
    let contents = data::random(7, SIZE);
    fs::write(mount.join("file"), &contents).expect("a file");
    lab.zfs("snapshot tank@old").ok();
    lab.zfs("clone tank@old tank/clone").ok();
    lab.zfs("snapshot tank@new").ok();
    lab.export("tank");
    spoil(&lab.disk(0), &contents[1 << 20..]);
    lab.import("", "tank");
    let all = [
        mount.join("file").display().to_string(),
        mount.join("clone/file").display().to_string(),
        "tank@old:/file".to_owned(),
        "tank@new:/file".to_owned(),
    ];
    let [head, clone, old, new] = &all;
    // A scrub comes to it once, a reader where he reads it.
    lab.zpool("scrub -w tank").ok();
    until_listed(&lab, &all, &[head, clone, old, new]);
    lab.zpool("clear tank").ok();
    until_listed(&lab, &all, &[]);
    fs::read(mount.join("clone/file")).expect_err("it is lost");
    until_listed(&lab, &all, &[head, clone, old, new]);
    // What is destroyed is not missed.
    lab.zfs("destroy tank/clone").ok();
    until_listed(&lab, &all, &[head, old, new]);
    lab.zfs("destroy tank@new").ok();
    until_listed(&lab, &all, &[head, old]);
    fs::remove_file(mount.join("file")).expect("removed");
    lab.zfs("destroy tank@old").ok();
    lab.zpool("scrub -w tank").ok();
    lab.zpool("status tank").ok().says("No known data errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

const BLOCK: usize = 128 << 10;

/// Reads one block of a file past the kernel's cache, which fails.
fn cannot_read(file: &Path, block: usize) {
    let (input, skip) = (format!("if={}", file.display()), format!("skip={block}"));
    let dd = Command::new("dd").args([&*input, &*skip, "of=/dev/null", "bs=128k", "count=1", "iflag=direct"]).output();
    assert!(!dd.expect("dd runs").status.success(), "block {block} is lost");
}

#[test]
fn a_loss_is_told_where_only_a_part_of_it_is_shared() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("-O compression=off -O recordsize=128k", "tank", "d0");
    let (file, old, new) = (mount.join("file"), data::random(1, 8 * BLOCK), data::random(2, 6 * BLOCK));
    fs::write(&file, &old).expect("a file");
    lab.zfs("snapshot tank@s").ok();
    File::options().write(true).open(&file).expect("it").write_all_at(&new, 0).expect("written over");
    lab.export("tank");
    (0..8).for_each(|block| spoil(&lab.disk(0), &old[block * BLOCK..]));
    lab.import("", "tank");
    let all = [file.display().to_string(), "tank@s:/file".to_owned()];
    let [head, snapshot] = &all;
    lab.zpool("scrub -w tank").ok();
    until_listed(&lab, &all, &[head, snapshot]);
    lab.zfs("destroy tank@s").ok();
    until_listed(&lab, &all, &[head]);
    cannot_read(&file, 7);
}

#[test]
fn each_block_that_a_reader_misses_is_looked_for_elsewhere() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("-O compression=off -O recordsize=128k", "tank", "d0");
    let (file, old, new) = (mount.join("file"), data::random(1, 8 * BLOCK), data::random(2, BLOCK));
    fs::write(&file, &old).expect("a file");
    lab.zfs("snapshot tank@s").ok();
    File::options().write(true).open(&file).expect("it").write_all_at(&new, 0).expect("written over");
    lab.export("tank");
    spoil(&lab.disk(0), &new);
    spoil(&lab.disk(0), &old[7 * BLOCK..]);
    lab.import("", "tank");
    let all = [file.display().to_string(), "tank@s:/file".to_owned()];
    let [head, snapshot] = &all;
    cannot_read(&file, 0);
    std::thread::sleep(std::time::Duration::from_secs(7));
    until_listed(&lab, &all, &[head]);
    cannot_read(&file, 7);
    until_listed(&lab, &all, &[head, snapshot]);
    // What is cleared does not come back by itself.
    lab.zpool("clear tank").ok();
    cannot_read(&file, 7);
    lab.zpool("clear tank").ok();
    std::thread::sleep(std::time::Duration::from_secs(7));
    until_listed(&lab, &all, &[]);
    // An export does not wait for who looks.
    cannot_read(&file, 7);
    lab.export("tank");
    lab.import("", "tank");
    until_listed(&lab, &all, &[head, snapshot]);
    // Nor does it need a pool that can be written.
    lab.zpool("clear tank").ok();
    lab.export("tank");
    lab.import("-o readonly=on", "tank");
    cannot_read(&file, 7);
    until_listed(&lab, &all, &[head, snapshot]);
}
