//! Commands that change a pool while it runs, or its identity; each on-disk change is judged by zdb.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use platter_itest::{Lab, Loop, Run, Tree, binary, judge, zdb};

/// Exports, lets zdb judge, imports, and compares the files.
#[track_caller]
fn judge_and_return(lab: &Lab, pool: &str, tree: &Tree) -> PathBuf {
    let mount = lab.mnt(pool);
    lab.judge_and_return(pool, &mount, tree);
    mount
}

#[track_caller]
fn property(lab: &Lab, pool: &str, name: &str) -> String {
    lab.zpool(&format!("get -Hp -o value {name} {pool}")).ok().stdout.trim().to_owned()
}

// After `rm` of a large file and `zpool sync`, ALLOC was what it had been until the second or third `zpool sync`: freed
// space rests for two groups and counts as allocated meanwhile, and OpenZFS's `zpool sync` waits for these.
#[test]
fn one_sync_after_a_removal_gives_its_space_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    let mount = lab.create("-O compression=off", "tank", "d0");
    let allocated = || -> u64 {
        lab.zpool("sync tank").ok();
        lab.zpool("list -Hp -o allocated tank").ok().stdout.trim().parse().expect("bytes")
    };
    let before = allocated();
    std::fs::write(mount.join("big"), vec![7; 100 << 20]).expect("it fits");
    let full = allocated();
    assert!(full > before + (100 << 20), "{before} {full}");
    std::fs::remove_file(mount.join("big")).expect("removed");
    let after = allocated();
    assert!(after < before + (2 << 20), "{before} {full} {after}");
}

#[test]
fn vdevs_can_be_added_when_they_protect_as_the_others_do() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(9, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    Tree::filled(&mount, 1);
    lab.zpool("add tank mirror d3 d4 d5").refused().says("mismatched replication level");
    lab.zpool("add tank d3").refused().says("pool uses raidz and new vdev is file");
    lab.zpool("add tank raidz d0 d3 d4").refused().says("is part of active pool 'tank'");
    let dry = lab.zpool("add -n tank raidz d3 d4 d5").ok().says("would update 'tank'").says("raidz1-0");
    assert_eq!(dry.stdout.matches("/d4").count(), 1, "{dry}");
    let before: u64 = property(&lab, "tank", "size").parse().expect("a size");
    lab.zpool("add tank raidz d3 d4 d5").ok();
    assert_eq!(property(&lab, "tank", "size").parse::<u64>().expect("a size"), 2 * before);
    let tree = Tree::filled(&mount, 2);
    lab.zpool("status tank").ok().says("raidz1-1");
    let mount = judge_and_return(&lab, "tank", &tree);
    lab.zpool("add -f tank d6").ok();
    lab.zpool("add -f -o ashift=12 tank mirror d7 d8").ok();
    let tree = Tree::filled(&mount, 3);
    judge_and_return(&lab, "tank", &tree);
    lab.scrub("tank").says("with 0 errors");
    lab.zpool("history tank").ok().says("zpool add tank raidz d3 d4 d5").says("zpool export tank");
}

#[test]
fn a_device_that_was_offline_is_resilvered_when_it_is_online_again() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    Tree::filled(&mount, 1);
    lab.zpool("offline tank nosuch").refused().says("no such device in pool");
    lab.zpool("offline tank d1").ok();
    lab.zpool("offline tank d2").refused().says("no valid replicas");
    lab.zpool("status tank").ok().says("OFFLINE").says("DEGRADED");
    let tree = Tree::filled(&mount, 2);
    // It stays offline over an export.
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    let mount = lab.import("", "tank");
    tree.assert_same(&Tree::of(&mount), "without the device");
    lab.zpool("status tank").ok().says("OFFLINE");
    lab.zpool("online tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    judge_and_return(&lab, "tank", &tree);
}

#[test]
fn a_device_taken_offline_for_now_is_back_after_import() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    lab.zpool("offline -t tank d0").ok();
    lab.zpool("status tank").ok().says("OFFLINE");
    let tree = Tree::filled(&mount, 1);
    judge_and_return(&lab, "tank", &tree);
    lab.wait_health("tank", "ONLINE");
    lab.zpool("wait tank").ok();
    lab.scrub("tank").says("with 0 errors");
}

#[test]
fn a_pool_gets_a_new_guid() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    let old = property(&lab, "tank", "guid");
    lab.zpool("reguid tank").ok();
    assert_ne!(property(&lab, "tank", "guid"), old);
    lab.zpool("reguid -g 0 tank").refused();
    lab.zpool("reguid -g 123456789 tank").ok();
    assert_eq!(property(&lab, "tank", "guid"), "123456789");
    judge_and_return(&lab, "tank", &tree);
    lab.export("tank");
    lab.zpool(&format!("import -d {} 123456789", lab.dev().display())).ok();
    lab.zpool("history -i tank").ok().says("guid change");
}

#[test]
fn labels_are_cleared_only_where_nothing_is_lost_by_surprise() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    lab.create("", "tank", "mirror d0 d1");
    let disk = lab.disk(0);
    lab.zpool(&format!("labelclear -f {}", disk.display())).refused().says("is a member").says("tank");
    lab.export("tank");
    lab.zpool(&format!("labelclear {}", disk.display())).refused().says("exported pool").says("use '-f'");
    lab.zpool(&format!("labelclear -f {}", disk.display())).ok();
    lab.zpool(&format!("labelclear {}", disk.display())).refused().says("failed to read label");
    if let Some(program) = judge::need("zdb") {
        let labels = Run::of(Command::new(program).arg("-l").arg(&disk), Duration::from_secs(60));
        assert!(labels.mentions("failed to unpack label") && !labels.mentions("tank"), "{labels}");
    }
    // The other half of the mirror still has everything.
    lab.import("", "tank");
}

#[test]
fn a_pool_without_features_is_openzfs_own_and_can_be_upgraded() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("-d", "tank", "raidz d0 d1 d2");
    for name in ["lz4_compress", "spacemap_v2", "log_spacemap", "hole_birth", "extensible_dataset"] {
        assert_eq!(property(&lab, "tank", &format!("feature@{name}")), "disabled");
    }
    let tree = Tree::filled(&mount, 1);
    let mount = judge_and_return(&lab, "tank", &tree);
    fs::remove_file(mount.join("1-0")).expect("a file can be removed");
    lab.zpool("upgrade").ok().says("lz4_compress");
    lab.zpool("upgrade tank").ok().says("Enabled the following features on 'tank'").says("log_spacemap");
    lab.zpool("upgrade tank").ok().says("already has all supported");
    let tree = Tree::filled(&mount, 2);
    judge_and_return(&lab, "tank", &tree);
    lab.zpool("upgrade -v").ok().says("read-only compatible");
    assert_eq!(lab.zpool("wait -H tank 0.1").ok().stdout, "0\t0\t0\t0\t0\t0\t0\t0\t0\n");
    assert_eq!(lab.zpool("wait -t scrub,free tank 1").ok().stdout, "    FREE   SCRUB\n       0       0\n");
    lab.zpool("wait -t nonsense tank").refused().says("invalid activity 'nonsense'");
}

#[test]
fn a_pool_has_only_the_features_of_its_compatibility_files() {
    let Some(lab) = Lab::open() else { return };
    if !Path::new("/usr/share/zfs/compatibility.d/zol-0.7").exists() {
        return judge::skip("compatibility files", "OpenZFS's are not installed");
    }
    lab.disks(2, 96);
    lab.zpool("create -o compatibility=no-such-file tank d0").refused().says("no-such-file");
    let mount = lab.create("-o compatibility=zol-0.7", "tank", "d0");
    assert_eq!(property(&lab, "tank", "compatibility"), "zol-0.7");
    assert_eq!(property(&lab, "tank", "feature@spacemap_v2"), "disabled");
    assert_ne!(property(&lab, "tank", "feature@lz4_compress"), "disabled");
    let tree = Tree::filled(&mount, 1);
    judge_and_return(&lab, "tank", &tree);
    assert_eq!(property(&lab, "tank", "compatibility"), "zol-0.7");
    lab.zpool("upgrade tank").ok().says("already has all supported and requested");
    let refused = lab.zpool("set feature@spacemap_v2=enabled tank").refused();
    refused.says("not specified in this pool's current compatibility set");
    lab.zpool("set compatibility=legacy tank").ok().says("are not present in this compatibility set");
    lab.zpool("upgrade tank").ok().says("already has all supported and requested");
    lab.zpool("set compatibility=off tank").ok();
    lab.zpool("upgrade tank").ok().says("spacemap_v2");
    judge_and_return(&lab, "tank", &tree);
}

#[test]
fn temporary_names_never_reach_the_disk() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 96);
    let mount = lab.mnt("tank");
    lab.zpool(&format!("create -t other -m {} tank d0", mount.display())).ok();
    let tree = Tree::filled(&mount, 1);
    lab.zpool("list -H -o name").ok().says("other").says_not("tank");
    lab.zpool("export other").ok();
    let mount = judge_and_return_named(&lab, &tree);
    drop(mount);
    lab.export("tank");
    lab.zpool(&format!("import -t -d {} tank second", lab.dev().display())).ok();
    lab.zpool("list -H -o name").ok().says("second");
    lab.zpool("export second").ok();
    judge_and_return_named(&lab, &tree);
}

fn judge_and_return_named(lab: &Lab, tree: &Tree) -> PathBuf {
    zdb::assert_clean(&lab.dev(), "tank");
    let mount = lab.import("", "tank");
    tree.assert_same(&Tree::of(&mount), "under its own name");
    mount
}

#[test]
fn a_destroyed_pool_can_be_imported_again() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("destroy tank").ok();
    let dev = lab.dev();
    lab.zpool(&format!("import -d {}", dev.display())).refused().says("no pools available");
    lab.zpool(&format!("import -D -d {}", dev.display())).ok().says("tank").says("(DESTROYED)");
    lab.zpool(&format!("import -d {} tank", dev.display())).refused().says("no such pool");
    lab.zpool(&format!("import -D -f -d {} tank", dev.display())).ok();
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "after import -D");
    judge_and_return(&lab, "tank", &tree);
}

#[test]
fn sizes_latencies_and_queues_are_told() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    Tree::filled(&mount, 1);
    lab.zpool("sync tank").ok();
    let list = lab.zpool("list -Hpv -o name,size tank").ok();
    assert_eq!(list.stdout.matches(&format!("\t{}\n", 128 << 20)).count(), 3, "{list}");
    let status = lab.zpool("status -j --json-int tank").ok();
    let json: serde_json::Value = serde_json::from_str(&status.stdout).expect("JSON");
    let raidz = &json["pools"]["tank"]["vdevs"]["tank"]["vdevs"]["raidz1-0"];
    let leaf = raidz["vdevs"].as_object().and_then(|leaves| leaves.values().next()).expect("a leaf");
    assert_eq!((&leaf["phys_space"], &leaf["slow_ios"]), (&(128 << 20).into(), &0.into()), "{status}");
    let number = |name: &str| raidz[name].as_u64().unwrap_or(0);
    assert!(number("def_space") > 0 && number("def_space") < number("total_space"), "{status}");
    assert!(number("rep_dev_size") >= number("total_space"), "{status}");

    let latency = lab.zpool("iostat -lHp tank").ok();
    let fields: Vec<&str> = latency.stdout.trim_end().split('\t').collect();
    assert_eq!(fields.len(), 1 + 6 + 11, "{latency}");
    assert!(fields[8].parse::<u64>().is_ok_and(|nanoseconds| nanoseconds > 0), "writes took time: {latency}");
    lab.zpool("iostat -q tank").ok().says("syncq_read").says("activ");
    let sizes = lab.zpool("iostat -rHp tank").ok();
    let written: u64 = sizes.stdout.lines().filter_map(|line| line.split('\t').nth(7)?.parse::<u64>().ok()).sum();
    assert!(written > 0, "async writes that travelled alone: {sizes}");
    lab.zpool("iostat -w tank").ok().says("total_wait").says("asyncq_wait");
    lab.zpool("iostat -vLP tank d1").ok().says("d1").says_not("d2");
    lab.zpool("iostat -w -l tank").refused().says("isn't allowed");
    assert_eq!(lab.zpool("iostat -yH tank 0.1 2").ok().stdout.lines().count(), 2);
}

#[test]
fn a_whole_disk_gets_openzfs_partitions_and_is_found_by_them() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 160);
    let loops: Vec<Loop> = (0..2).filter_map(|index| Loop::over(&lab.disk(index))).collect();
    let [a, b] = loops.as_slice() else {
        return judge::skip("loop devices", "losetup fails here");
    };
    // Loop devices are partitioned only when told so; the daemon has it from the command that starts it.
    let mount = lab.mnt("tank");
    let words = format!("zpool create -m {} tank mirror {} {}", mount.display(), a.0, b.0);
    let mut create = lab.command(binary::platter());
    create.args(words.split_whitespace()).env("PLATTER_WHOLE_DISKS", "loop");
    Run::of(&mut create, Duration::from_secs(60)).ok();
    lab.wait_mounted(&mount);
    let tree = Tree::filled(&mount, 1);
    let short = |disk: &Loop| disk.0.trim_start_matches("/dev/").to_owned();
    // A whole disk is shown without its partition.
    lab.zpool("status tank").ok().says(&format!("{}  ", short(a))).says_not(&format!("{}p1", short(a)));
    lab.zpool("status -P tank").ok().says(&format!("{}p1", a.0));
    lab.export("tank");
    // Only these two are shown to zdb: another "tank" on a disk of this machine is none of its business.
    let partitions = [&a.0, &b.0].map(|disk| format!("{disk}p1"));
    for partition in &partitions {
        let Some(program) = judge::need("zdb") else { break };
        let labels = Run::of(Command::new(&program).arg("-l").arg(partition), Duration::from_secs(60)).ok();
        labels.says("name: 'tank'").says("whole_disk: 1").says(&format!("path: '{partition}'"));
        let words = ["-e", "-p", &partitions[0], "-p", &partitions[1], "-bcc", "tank"];
        Run::of(Command::new(&program).args(words), Duration::from_secs(120)).ok().says("No leaks");
    }
    // A disk in a pool is not taken for another, although its own beginning has no label.
    lab.zpool(&format!("create again {}", a.0)).refused().says("exported pool 'tank'");
    for search in [format!("{0}p1 -d {1}p1", a.0, b.0), format!("{} -d {}", a.0, b.0)] {
        lab.zpool(&format!("import -d {search} tank")).ok();
        lab.wait_mounted(&mount);
        tree.assert_same(&Tree::of(&mount), &format!("imported with -d {search}"));
        lab.export("tank");
    }
}
