//! Damage and repair: what redundancy can give back is given back and repaired on disk; what it cannot is named, and
//! nothing else is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platter_itest::damage::{self, Layout};
use platter_itest::{Lab, Run, Tree, data, zdb};

/// Disks of 128 MiB hold this in any layout used here.
fn fill(root: &Path, seed: u64) {
    let write = |name: String, bytes: Vec<u8>| fs::write(root.join(name), bytes).expect("a file can be written");
    for dir in 0..4 {
        fs::create_dir_all(root.join(format!("dir{dir}/sub"))).expect("a folder");
        for file in 0..25 {
            let seed = seed + dir * 100 + file;
            write(format!("dir{dir}/small{file}"), data::text(seed, 200 + 300 * file as usize));
            if file % 5 == 0 {
                write(format!("dir{dir}/sub/mixed{file}"), data::mixed(seed, 400_000, 30_000));
            }
        }
        write(format!("dir{dir}/big"), data::random(seed + dir, 5_000_000));
    }
}

struct Level {
    word: &'static str,
    disks: usize,
    /// Disks that may be lost at once.
    redundancy: usize,
}

const LEVELS: [Level; 5] = [
    Level { word: "mirror", disks: 2, redundancy: 1 },
    Level { word: "mirror", disks: 3, redundancy: 2 },
    Level { word: "raidz1", disks: 4, redundancy: 1 },
    Level { word: "raidz2", disks: 6, redundancy: 2 },
    Level { word: "raidz3", disks: 7, redundancy: 3 },
];

fn vdev(level: &Level) -> String {
    let disks: Vec<String> = (0..level.disks).map(|disk| format!("d{disk}")).collect();
    format!("{} {}", level.word, disks.join(" "))
}

/// `redundancy` different disks of the level.
fn victims(level: &Level, rng: &mut data::Rng) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    while chosen.len() < level.redundancy {
        chosen.insert(rng.below(level.disks as u64) as usize);
    }
    chosen
}

/// READ, WRITE and CKSUM counts of the vdev whose name ends in `name`.
fn counts(status: &Run, name: &str) -> Option<[String; 3]> {
    status.stdout.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let named = words.first().is_some_and(|word| *word == name || word.ends_with(&format!("/{name}")));
        (named && words.len() >= 5).then(|| [words[2].to_owned(), words[3].to_owned(), words[4].to_owned()])
    })
}

#[track_caller]
fn assert_healed(lab: &Lab, victims: &BTreeSet<usize>, before: &Tree, mount: &Path, what: &str) {
    let first = lab.scrub("tank").says("with 0 errors").says("errors: No known data errors");
    for victim in victims {
        let Some([_, _, checksum]) = counts(&first, &format!("d{victim}")) else {
            panic!("{what}: no d{victim}\n{first}")
        };
        assert_ne!(checksum, "0", "{what}: d{victim} was damaged and counts no checksum error\n{first}");
    }
    assert!(!first.mentions("repaired 0B"), "{what}: nothing repaired\n{first}");
    lab.zpool("clear tank").ok();
    let second = lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    for victim in victims {
        let Some([_, _, checksum]) = counts(&second, &format!("d{victim}")) else { panic!("no d{victim}\n{second}") };
        assert_eq!(checksum, "0", "{what}: the second scrub found errors\n{second}");
    }
    before.assert_same(&Tree::of(mount), what);
}

#[test]
fn scrub_heals_whole_regions_of_as_many_disks_as_there_is_redundancy_while_imported() {
    for (number, level) in LEVELS.iter().enumerate() {
        let Some(lab) = Lab::open() else { return };
        lab.disks(level.disks, 128);
        let mount = lab.create("-o ashift=12", "tank", &vdev(level));
        fill(&mount, number as u64);
        lab.zpool("sync tank").ok();
        let before = Tree::of(&mount);
        let victims = victims(level, &mut data::Rng::new(number as u64));
        for victim in &victims {
            damage::overwrite_data_area(&lab.disk(*victim), *victim as u64);
        }
        assert_healed(&lab, &victims, &before, &mount, &format!("{} {}", level.word, level.disks));
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        zdb::assert_same_tree(&lab.dev(), "tank", &before, 3);
    }
}

#[test]
fn scrub_heals_disks_overwritten_with_half_of_their_labels() {
    for (number, level) in LEVELS.iter().enumerate() {
        let Some(lab) = Lab::open() else { return };
        lab.disks(level.disks, 128);
        let mount = lab.create("-o ashift=9", "tank", &vdev(level));
        fill(&mount, 10 + number as u64);
        lab.zpool("sync tank").ok();
        let before = Tree::of(&mount);
        let victims = victims(level, &mut data::Rng::new(77 + number as u64));
        for victim in &victims {
            let path = lab.disk(*victim);
            let len = damage::len(&path);
            // The first two labels, the boot block and all data; or all data and the last two labels.
            let range = if victim % 2 == 0 { 0..damage::data_area(len).end } else { damage::data_area(len).start..len };
            damage::overwrite(&path, range, *victim as u64);
        }
        assert_healed(&lab, &victims, &before, &mount, &format!("{} {}", level.word, level.disks));
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        // Export wrote all labels anew: either half alone is enough to import.
        for (disk, label) in (0..level.disks).flat_map(|disk| (0..4).map(move |label| (disk, label))) {
            if (label < 2) == (disk % 2 == 0) {
                damage::overwrite(&lab.disk(disk), damage::label(label, 128 << 20), label);
            }
        }
        let mount = lab.import("", "tank");
        assert_eq!(lab.health("tank"), "ONLINE");
        before.assert_same(&Tree::of(&mount), "after export and import");
    }
}

#[test]
fn a_scrub_writes_the_labels_anew_that_no_block_pointer_leads_to() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    fs::write(mount.join("file"), data::random(1, 100_000)).expect("written");
    lab.zpool("sync tank").ok();
    let before = Tree::of(&mount);
    let disk = lab.disk(1);
    let guid = zdb::label_guid(&disk);
    for label in 0..4 {
        damage::overwrite(&disk, damage::label(label, 128 << 20), label);
    }
    lab.scrub("tank").says("with 0 errors");
    // Its end is known before the group is on disk in which it ends, with the labels.
    lab.zpool("sync tank").ok();
    // A disk without labels would be a foreign one from now on. (An export would have written them, too.)
    lab.kill_daemon(true);
    assert_eq!(zdb::label_guid(&disk), guid);
    lab.revive("tank");
    assert_eq!(lab.health("tank"), "ONLINE");
    before.assert_same(&Tree::of(&mount), "after the daemon died");
}

#[test]
fn disks_overwritten_from_end_to_end_cost_no_file() {
    // Without any label a disk may be healed in place or be taken for a foreign one (as OpenZFS does when it opens it
    // anew): both keep every file.
    for (number, level) in LEVELS.iter().enumerate() {
        let Some(lab) = Lab::open() else { return };
        lab.disks(level.disks, 128);
        let mount = lab.create("", "tank", &vdev(level));
        fill(&mount, 30 + number as u64);
        lab.zpool("sync tank").ok();
        let before = Tree::of(&mount);
        let victims = victims(level, &mut data::Rng::new(99 + number as u64));
        for victim in &victims {
            damage::overwrite_all(&lab.disk(*victim), *victim as u64);
        }
        lab.scrub("tank").says("with 0 errors").says("errors: No known data errors");
        before.assert_same(&Tree::of(&mount), "after scrub");
        let health = lab.health("tank");
        assert!(health == "ONLINE" || health == "DEGRADED", "{health}");
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        zdb::assert_same_tree(&lab.dev(), "tank", &before, 2);
        let mount = lab.import("", "tank");
        before.assert_same(&Tree::of(&mount), "after export and import");
    }
}

#[test]
fn damage_done_while_exported_is_healed_by_reading_and_by_scrub() {
    for (number, level) in LEVELS.iter().enumerate() {
        let Some(lab) = Lab::open() else { return };
        lab.disks(level.disks, 128);
        let mount = lab.create("", "tank", &vdev(level));
        fill(&mount, 20 + number as u64);
        let before = Tree::of(&mount);
        lab.export("tank");
        let victims = victims(level, &mut data::Rng::new(123 + number as u64));
        for victim in &victims {
            damage::overwrite_data_area(&lab.disk(*victim), 1000 + *victim as u64);
        }
        // Metadata included: even the import needs reconstruction. Nothing is cached, so every read goes to the disks.
        let mount = lab.import("", "tank");
        before.assert_same(&Tree::of(&mount), "read from damaged disks");
        let status = lab.zpool("status -v tank").ok().says("errors: No known data errors");
        for victim in &victims {
            let Some([_, _, checksum]) = counts(&status, &format!("d{victim}")) else {
                panic!("no d{victim}\n{status}")
            };
            assert_ne!(checksum, "0", "d{victim} was read and counts no checksum error\n{status}");
        }
        lab.scrub("tank").says("with 0 errors");
        lab.zpool("clear tank").ok();
        lab.scrub("tank").says("repaired 0B").says("with 0 errors");
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        zdb::assert_same_tree(&lab.dev(), "tank", &before, 3);
    }
}

#[test]
fn spots_of_rot_spread_over_every_disk_are_healed_when_no_stripe_loses_too_much() {
    // Each third of the disk space rots on another disk: every disk is bad somewhere, every stripe at one place only.
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("-o ashift=12", "tank", "raidz1 d0 d1 d2");
    fill(&mount, 40);
    lab.zpool("sync tank").ok();
    let before = Tree::of(&mount);
    let area = damage::data_area(128 << 20);
    let third = (area.end - area.start) / 3 / 4096 * 4096;
    // One mebibyte between the regions: a block never spans two of them.
    for disk in 0..3u64 {
        let start = area.start + disk * third;
        damage::overwrite(&lab.disk(disk as usize), start..start + third - (1 << 20), disk);
    }
    let scrub = lab.scrub("tank").says("with 0 errors").says("No known data errors");
    assert!(!scrub.mentions("repaired 0B"), "{scrub}");
    lab.zpool("clear tank").ok();
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    before.assert_same(&Tree::of(&mount), "after healing");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn ditto_copies_heal_metadata_without_any_other_redundancy() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    fs::create_dir(mount.join("dir")).expect("a folder");
    for number in 0..500 {
        fs::write(mount.join(format!("dir/file-{number}")), data::text(number, 300)).expect("a file");
    }
    let before = Tree::of(&mount);
    lab.export("tank");
    let Some(listing) = zdb::list(&lab.dev(), "tank") else { return };
    let Some(blocks) = zdb::blocks(&lab.dev(), "tank", listing["dir"].object) else { return };
    assert!(!blocks.is_empty(), "the directory has blocks");
    for block in &blocks {
        assert!(block.dvas.len() >= 2, "directories are kept twice: {block:?}");
        for range in damage::sectors_of(&block.dvas[0], Layout::Disk, 9, 0) {
            damage::overwrite(&lab.disk(0), range, 5);
        }
    }
    let mount = lab.import("", "tank");
    before.assert_same(&Tree::of(&mount), "with the first copy of a directory destroyed");
    lab.scrub("tank").says("with 0 errors");
    lab.zpool("clear tank").ok();
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn every_copy_but_one_of_a_file_with_copies_can_be_lost() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("-o ashift=9", "tank", "d0");
    let mut before = BTreeMap::new();
    for (copies, checksum) in [(2, "skein"), (3, "edonr")] {
        let dataset = format!("tank/copies{copies}");
        let mount = lab.create_fs(&format!("-o copies={copies} -o checksum={checksum} -o compression=off"), &dataset);
        fs::write(mount.join("file"), data::random(copies, 1_000_000)).expect("a file");
        before.insert(dataset, (copies, Tree::of(&mount)));
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    for (dataset, (copies, _)) in &before {
        let Some(listing) = zdb::list(&lab.dev(), dataset) else { return };
        let Some(blocks) = zdb::blocks(&lab.dev(), dataset, listing["file"].object) else { return };
        assert_eq!(blocks.len(), 8);
        for (number, block) in blocks.iter().enumerate() {
            assert_eq!(block.dvas.len() as u64, *copies, "{block:?}");
            let spared = number % block.dvas.len();
            for (_, dva) in block.dvas.iter().enumerate().filter(|(copy, _)| *copy != spared) {
                for range in damage::sectors_of(dva, Layout::Disk, 9, 0) {
                    damage::overwrite(&lab.disk(0), range, number as u64);
                }
            }
        }
    }
    lab.import("", "tank");
    // One is read, the other only scrubbed: either puts every copy right.
    let (read, (_, tree)) = before.first_key_value().expect("two");
    lab.wait_mounted(&lab.mnt(read));
    tree.assert_same(&Tree::of(&lab.mnt(read)), "with one copy left");
    lab.scrub("tank").says("with 0 errors").says_not("repaired 0B");
    lab.zpool("clear tank").ok();
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    for (dataset, (_, tree)) in &before {
        lab.wait_mounted(&lab.mnt(dataset));
        tree.assert_same(&Tree::of(&lab.mnt(dataset)), "after the scrub");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_scrub_goes_on_after_an_import_where_it_was() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    let mount = lab.create("-o ashift=9 -O recordsize=4K -O compression=off", "tank", "d0");
    for number in 0..6 {
        fs::write(mount.join(format!("file{number}")), data::random(number, 20 << 20)).expect("a file");
    }
    let examined = || -> u64 {
        let status = lab.zpool("status -j --json-int tank").ok().stdout;
        let json: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        json["pools"]["tank"]["scan_stats"]["examined"].as_u64().expect("a number of bytes")
    };
    lab.zpool("sync tank").ok();
    // A machine that is busy with other things may have scrubbed everything before it comes to pausing.
    let is_paused = (0..20).any(|_| {
        lab.zpool("scrub tank").ok();
        lab.zpool("scrub -p tank").code == 0
    });
    assert!(is_paused, "no scrub could be paused");
    let paused = examined();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    assert_eq!(examined(), paused, "what was examined before the export counts");
    lab.zpool("scrub -w tank").ok();
    let total = examined();
    lab.zpool("status tank").ok().says("scrub repaired 0B").says("with 0 errors");
    lab.zpool("scrub -w tank").ok();
    let whole = examined();
    assert!(total.abs_diff(whole) < 4 << 20, "{total} bytes in two parts ({paused} in the first), {whole} in one go");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Destroys one block each of `doomed` on one disk more than the layout can lose; then exactly these files are lost.
/// `scrub -C` reads what is new, heals it, and leaves alone what an earlier scrub has seen and what that found lost.
#[test]
fn a_scrub_can_begin_where_the_last_one_ended() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("-O primarycache=metadata", "tank", "mirror d0 d1");
    fill(&mount, 1);
    let last = |lab: &Lab| -> u64 {
        let value = lab.zpool("get -Hp -o value last_scrubbed_txg tank").ok().stdout;
        value.trim().parse().expect("a group")
    };
    assert_eq!(last(&lab), 0);
    lab.zpool("scrub -C -p tank").refused().says("-C cannot be used with -p or -s");
    lab.zpool("sync tank").ok();
    lab.scrub("tank").says("with 0 errors");
    let first = last(&lab);
    assert!(first > 0);
    fill(&mount.join("dir0/sub"), 1000);
    lab.zpool("sync tank").ok();
    let tree = Tree::of(&mount);
    lab.export("tank");
    // Of old and new the same part is damaged.
    damage::overwrite_data_area(&lab.disk(1), 3);
    lab.import("", "tank");
    assert_eq!(last(&lab), first, "it is in the pool");
    lab.zpool("scrub -C -w tank").ok();
    let status = lab.zpool("status -j --json-int tank").ok().stdout;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let scan = &status["pools"]["tank"]["scan_stats"];
    let of = |name: &str| scan[name].as_u64().expect("a number");
    let (all, issued, repaired) = (of("to_examine"), of("issued"), of("processed"));
    assert!(issued < all * 3 / 4 && repaired > 1 << 20 && of("errors") == 0, "{scan}");
    assert!(last(&lab) > first);
    lab.scrub("tank").says("with 0 errors").says_not("repaired 0B");
    lab.scrub("tank").says("repaired 0B");
    lab.judge_and_return("tank", &mount, &tree);
    lab.export("tank");
}

fn one_disk_too_many(vdev: &str, disks: usize, layout: Layout, ruined: &[usize]) {
    let Some(lab) = Lab::open() else { return };
    lab.disks(disks, 128);
    lab.create("-o ashift=12", "tank", vdev);
    let mount = lab.create_fs("-o compression=off -o recordsize=128K", "tank/fs");
    fill(&mount, 60);
    let before = Tree::of(&mount);
    lab.export("tank");
    let doomed: BTreeSet<String> = ["dir1/big", "dir2/small7", "dir3/sub/mixed10"].map(String::from).into();
    let Some(listing) = zdb::list(&lab.dev(), "tank/fs") else { return };
    for path in &doomed {
        let Some(blocks) = zdb::blocks(&lab.dev(), "tank/fs", listing[path].object) else { return };
        let block = &blocks[blocks.len() / 2];
        for (index, disk) in ruined.iter().enumerate() {
            for range in damage::sectors_of(&block.dvas[0], layout, 12, *disk as u64) {
                damage::overwrite(&lab.disk(*disk), range, index as u64);
            }
        }
    }
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    // Everything else reads back; the lost files say EIO.
    let intact = Tree(
        before.0.iter().filter(|(path, _)| !doomed.contains(*path)).map(|(p, e)| (p.clone(), e.clone())).collect(),
    );
    match Tree::read(&mount, &doomed) {
        Ok(found) => intact.assert_same(&found, "in the files that are not lost"),
        Err(error) => panic!("a file that is not lost cannot be read: {error}"),
    }
    for path in &doomed {
        let error = fs::read(mount.join(path)).expect_err("a destroyed file cannot be read");
        assert_eq!(error.raw_os_error(), Some(5), "{path}: EIO, not {error}");
    }
    let status = lab.scrub("tank");
    let listed: BTreeSet<&str> = status
        .stdout
        .lines()
        .skip_while(|line| !line.contains("Permanent errors"))
        .skip(1)
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(listed.len(), doomed.len(), "exactly the lost files are listed: {listed:?}\n{status}");
    for path in &doomed {
        assert!(listed.iter().any(|line| line.ends_with(path.as_str())), "{path} is not listed\n{status}");
    }
    assert!(!status.mentions("No known data errors"), "{status}");
    // Removing the lost files and scrubbing twice leaves a sound pool.
    for path in &doomed {
        fs::remove_file(mount.join(path)).expect("a lost file can be removed");
    }
    lab.zpool("sync tank").ok();
    lab.zpool("clear tank").ok();
    lab.scrub("tank");
    lab.scrub("tank").says("with 0 errors").says("No known data errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_stripe_names_the_files_it_lost() {
    one_disk_too_many("d0", 1, Layout::Disk, &[0]);
}

#[test]
fn a_mirror_damaged_on_all_sides_names_the_files_it_lost() {
    one_disk_too_many("mirror d0 d1", 2, Layout::Mirror, &[0, 1]);
}

#[test]
fn a_raidz1_damaged_on_two_disks_names_the_files_it_lost() {
    // Small files lie on two sectors: which disks those are differs, so all disks are ruined at their places.
    one_disk_too_many("raidz1 d0 d1 d2 d3", 4, Layout::Raidz { disks: 4 }, &[0, 1, 2, 3]);
}

#[test]
fn a_raidz2_damaged_on_three_disks_names_the_files_it_lost() {
    one_disk_too_many("raidz2 d0 d1 d2 d3 d4", 5, Layout::Raidz { disks: 5 }, &[0, 1, 2, 3, 4]);
}

#[test]
fn reads_survive_damage_up_to_the_parity_and_fail_just_beyond_it() {
    // Big records span every disk: ruin 0, 1, 2, 3 disks' parts of one block of a raidz2.
    for ruined in 0..=3usize {
        let Some(lab) = Lab::open() else { return };
        lab.disks(5, 128);
        let mount = lab.create("-o ashift=12 -O compression=off", "tank", "raidz2 d0 d1 d2 d3 d4");
        fs::write(mount.join("file"), data::random(1, 1_000_000)).expect("a file");
        let before = Tree::of(&mount);
        lab.export("tank");
        let Some(listing) = zdb::list(&lab.dev(), "tank") else { return };
        let Some(blocks) = zdb::blocks(&lab.dev(), "tank", listing["file"].object) else { return };
        for disk in 0..ruined {
            for range in damage::sectors_of(&blocks[3].dvas[0], Layout::Raidz { disks: 5 }, 12, disk as u64) {
                damage::overwrite(&lab.disk(disk), range, disk as u64);
            }
        }
        let mount = lab.import("", "tank");
        if ruined <= 2 {
            before.assert_same(&Tree::of(&mount), &format!("with {ruined} parts of a block ruined"));
        } else {
            let error = fs::read(mount.join("file")).expect_err("three of five parts are too many for raidz2");
            assert_eq!(error.raw_os_error(), Some(5), "{error}");
            lab.zpool("status -v tank").ok().says("file");
        }
    }
}

/// Waits until the pool's state is `wanted`, touching it meanwhile so that a missing disk is noticed.
#[track_caller]
fn wait_health(lab: &Lab, mount: &Path, wanted: &str) {
    let start = Instant::now();
    let mut number = 0;
    while lab.health("tank") != wanted {
        assert!(start.elapsed() < Duration::from_secs(30), "not {wanted} after 30 s\n{}", lab.zpool("status tank"));
        fs::write(mount.join("touch"), data::random(number, 200_000)).expect("a degraded pool still writes");
        lab.zpool("sync tank").ok();
        number += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    let _ = fs::remove_file(mount.join("touch"));
}

#[test]
fn a_disk_removed_while_imported_leaves_a_degraded_pool_that_reads_and_writes() {
    for (vdev, disks, removed) in
        [("mirror d0 d1", 2, vec![1]), ("raidz1 d0 d1 d2 d3", 4, vec![2]), ("raidz2 d0 d1 d2 d3 d4", 5, vec![0, 3])]
    {
        let Some(lab) = Lab::open() else { return };
        lab.disks(disks, 128);
        let mount = lab.create("-o ashift=12", "tank", vdev);
        fill(&mount, 80);
        lab.zpool("sync tank").ok();
        let before = Tree::of(&mount);
        for disk in &removed {
            fs::remove_file(lab.disk(*disk)).expect("a device file can be removed");
        }
        wait_health(&lab, &mount, "DEGRADED");
        before.0.iter().for_each(|(path, entry)| {
            if let Some(hash) = &entry.sha256 {
                let found = data::sha256(&fs::read(mount.join(path)).expect("a degraded pool still reads"));
                assert_eq!(&found, hash, "{path}");
            }
        });
        let status = lab.zpool("status tank").ok().says("DEGRADED").says("errors: No known data errors");
        for disk in &removed {
            let line = status.stdout.lines().find(|line| line.contains(&format!("d{disk} ")));
            let line = line.unwrap_or_else(|| panic!("no d{disk} in\n{status}"));
            assert!(["UNAVAIL", "REMOVED", "FAULTED"].iter().any(|state| line.contains(state)), "{line}");
        }
        fs::write(mount.join("while-degraded"), data::random(4, 3_000_000)).expect("a degraded pool still writes");
        let after = Tree::of(&mount);
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        zdb::assert_same_tree(&lab.dev(), "tank", &after, 2);
        let mount = lab.import("", "tank");
        assert_eq!(lab.health("tank"), "DEGRADED");
        after.assert_same(&Tree::of(&mount), "imported without the removed disks");
    }
}

#[test]
fn a_disk_missing_at_import_leaves_a_degraded_pool_that_takes_it_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let mount = lab.create("-o ashift=12", "tank", "raidz1 d0 d1 d2 d3");
    fill(&mount, 90);
    let before = Tree::of(&mount);
    lab.export("tank");
    let away = lab.tmp().join("d1");
    fs::rename(lab.disk(1), &away).expect("a device file can be moved");
    let mount = lab.import("", "tank");
    assert_eq!(lab.health("tank"), "DEGRADED");
    before.assert_same(&Tree::of(&mount), "without d1");
    fs::write(mount.join("while-away"), data::random(5, 2_000_000)).expect("a degraded pool still writes");
    let after = Tree::of(&mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    // The disk comes back with what it knew: it lacks the last writes, and a scrub brings it up to date.
    fs::rename(&away, lab.disk(1)).expect("a device file can be moved");
    let mount = lab.import("", "tank");
    after.assert_same(&Tree::of(&mount), "with d1 back");
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    fs::remove_file(lab.disk(2)).expect("a device file can be removed");
    let mount = lab.import("", "tank");
    after.assert_same(&Tree::of(&mount), "with d1 back and d2 gone: d1 was really brought up to date");
}

#[test]
fn scrub_can_be_paused_stopped_and_watched() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    for number in 0..6 {
        fs::write(mount.join(format!("file{number}")), data::random(number, 20 << 20)).expect("a file");
    }
    lab.zpool("scrub tank").ok();
    // It may be through already; both answers are OpenZFS's.
    let pause = lab.zpool("scrub -p tank");
    if pause.code == 0 {
        lab.zpool("status tank").ok().says_one_of(&["paused", "scrub repaired"]);
        lab.zpool("scrub tank").ok();
    } else {
        pause.refused().says_one_of(&["no active scrub", "not currently", "no scrub"]);
    }
    let stop = lab.zpool("scrub -s tank");
    if stop.code == 0 {
        lab.zpool("status tank").ok().says_one_of(&["canceled", "scrub repaired"]);
    } else {
        stop.refused();
    }
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.zpool("scrub -s tank").refused().says("tank");
}

#[test]
fn random_garbage_everywhere_never_stops_the_daemon() {
    // No redundancy, rot in every structure: errors are fine, wrong data, a panic or a dead daemon are not.
    for seed in 0..6u64 {
        let Some(lab) = Lab::open() else { return };
        lab.disks(1, 96);
        let mount = lab.create("", "tank", "d0");
        fill(&mount, seed);
        let before = Tree::of(&mount);
        lab.export("tank");
        damage::overwrite_spots(&lab.disk(0), seed, 3 << seed, 64 << 10);
        let import = lab.zpool(&format!("import -d {} tank", lab.dev().display()));
        assert!(!import.mentions("panicked"), "{import}");
        if import.code != 0 {
            import.refused().says("tank");
            assert_eq!(lab.daemon_pids().len(), 1, "the daemon is alive");
            continue;
        }
        lab.wait_mounted(&mount);
        let readable: BTreeMap<PathBuf, Vec<u8>> = before
            .files()
            .filter_map(|(path, _)| fs::read(mount.join(path)).ok().map(|bytes| (PathBuf::from(path), bytes)))
            .collect();
        for (path, bytes) in readable {
            let expected = &before.0[path.to_str().expect("UTF-8")];
            assert_eq!(Some(data::sha256(&bytes)), expected.sha256, "{}: wrong data were delivered", path.display());
        }
        lab.zpool("scrub -w tank").ok();
        let status = lab.zpool("status -v tank").ok();
        assert!(!status.mentions("panicked"), "{status}");
        assert_eq!(lab.daemon_pids().len(), 1, "the daemon is alive");
    }
}
