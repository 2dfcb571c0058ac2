//! Bad input: the message names the thing and the way out, the exit code is OpenZFS's (1, or 2 for usage), and nothing
//! is changed.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use platter_itest::{Lab, Run, damage, data, zdb, zhack};

/// Disks that no refused command may touch.
struct Watched {
    lab: Lab,
    disks: Vec<PathBuf>,
    before: Vec<(String, String)>,
}

impl Watched {
    /// Watches the first `count` device files as they are now.
    fn new(lab: Lab, count: usize) -> Watched {
        let disks: Vec<PathBuf> = (0..count).map(|disk| lab.disk(disk)).collect();
        let before = damage::fingerprints(&disks);
        Watched { lab, disks, before }
    }

    /// `zpool WORDS` must be refused and leave every disk as it was.
    #[track_caller]
    fn zpool(&self, words: &str) -> Run {
        self.untouched(self.lab.zpool(words).refused())
    }

    #[track_caller]
    fn untouched(&self, run: Run) -> Run {
        assert_eq!(self.before, damage::fingerprints(&self.disks), "a refused command changed a disk\n{run}");
        assert!(self.lab.mounts().is_empty(), "a refused command left a mount\n{run}");
        run
    }
}

fn watched(disks: usize, size_mib: u64) -> Option<Watched> {
    let lab = Lab::open()?;
    lab.disks(disks, size_mib);
    Some(Watched::new(lab, disks))
}

#[test]
fn too_few_devices_for_the_level() {
    let Some(watched) = watched(4, 96) else { return };
    for (layout, level, least) in [
        ("mirror d0", "mirror", "2"),
        ("raidz d0", "raidz", "2"),
        ("raidz2 d0 d1", "raidz2", "3"),
        ("raidz3 d0 d1 d2", "raidz3", "4"),
    ] {
        let run = watched.zpool(&format!("create tank {layout}")).says(level).says(least);
        assert_eq!(run.code, 1, "{run}");
    }
    let run = watched.zpool("create tank");
    assert_eq!(run.code, 2, "no devices at all is a usage error\n{run}");
    watched.zpool("create tank raidz4 d0 d1").says("raidz4");
    watched.zpool("create tank mirror d0 d0").says("d0");
}

#[test]
fn different_sizes_need_force() {
    let Some(lab) = Lab::open() else { return };
    lab.add_disk(0, 96);
    lab.add_disk(1, 160);
    let watched = Watched::new(lab, 2);
    watched.zpool("create tank mirror d0 d1").says("-f").says("different sizes");
    watched.lab.create("-f", "tank", "mirror d0 d1");
    watched.lab.export("tank");
    zdb::assert_clean(&watched.lab.dev(), "tank");
}

#[test]
fn different_redundancy_needs_force() {
    let Some(watched) = watched(5, 96) else { return };
    // A mirror of two and a raidz1 both survive one loss: that is no mismatch, as in OpenZFS. A raidz2 survives two.
    watched.zpool("create tank mirror d0 d1 raidz2 d2 d3 d4").says("-f").says("mismatched replication level");
    watched.zpool("create tank d0 mirror d1 d2").says("-f").says("mismatched replication level");
}

#[test]
fn devices_below_64_mib_are_too_small() {
    let Some(watched) = watched(2, 63) else { return };
    watched.zpool("create tank d0").says_one_of(&["64M", "64 MiB"]);
    watched.zpool("create -f tank mirror d0 d1").says_one_of(&["64M", "64 MiB"]);
    watched.lab.add_disk(0, 64);
    watched.lab.create("", "tank", "d0");
    watched.lab.export("tank");
    zdb::assert_clean(&watched.lab.dev(), "tank");
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let Some(watched) = watched(1, 96) else { return };
    watched.zpool("create tank d0 nosuchdisk").says("nosuchdisk");
    watched.zpool("create tank /no/such/path").says("/no/such/path");
    watched.zpool(&format!("create tank {}", watched.lab.tmp().display())).says("tmp");
}

#[test]
fn a_device_in_a_pool_is_refused_with_the_pool_s_name() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 96);
    lab.create("", "first", "mirror d0 d1");
    // In use: not even force helps.
    lab.zpool("create second d0").refused().says("d0").says("first");
    lab.zpool("create -f second d0").refused().says("d0").says("first");
    lab.zpool("create first d2").refused().says("first").says("exists");
    lab.export("first");
    let watched = Watched::new(lab, 3);
    // Exported: force helps, and the message says so.
    watched.zpool("create second d0").says("d0").says("first").says("-f");
    watched.lab.create("-f", "second", "d0");
    watched.lab.export("second");
    zdb::assert_clean(&watched.lab.dev(), "second");
}

#[test]
fn reserved_and_malformed_pool_names() {
    let Some(watched) = watched(1, 96) else { return };
    for name in ["mirror", "raidz", "raidz2", "raidz1-0", "mirror-1", "draid", "spare", "log"] {
        watched.zpool(&format!("create {name} d0")).says(name).says("reserved");
    }
    for name in ["1tank", "-tank", "tank/fs", "tank@snap", "tank!", "ta%nk", "_tank", "tänk"] {
        let run = watched.zpool(&format!("create {name} d0"));
        assert!(run.code == 2 || run.mentions("name") || run.mentions("character"), "{run}");
    }
    let long = "t".repeat(256);
    watched.zpool(&format!("create {long} d0")).says("too long");
}

#[test]
fn malformed_file_system_names() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 96);
    lab.create("", "tank", "d0");
    for name in ["tank/", "tank//a", "tank/..", "tank/a/", "/tank/a", "tank/a@b/c", "tank/a%"] {
        let run = lab.platter(["zfs", "create", name]).refused();
        assert!(run.mentions("cannot create") || run.code == 2, "{run}");
    }
    lab.zfs("create nopool/a").refused().says("nopool");
    lab.zfs("create tank/no/parent").refused().says("parent");
    lab.zfs("create tank").refused().says("missing dataset name");
    lab.zfs("create -p nopool").refused().says("missing dataset name");
    // As OpenZFS: what `-p` wants is there.
    lab.zfs("create -p tank").ok();
    let long = format!("tank/{}", "l".repeat(260));
    lab.zfs(&format!("create {long}")).refused().says("too long");
    assert_eq!(lab.zfs("list -H -o name").ok().stdout, "tank\n");
}

#[test]
fn unknown_properties_and_values_are_named() {
    let Some(watched) = watched(1, 96) else { return };
    for (option, word) in [
        ("-o nosuch=1", "nosuch"),
        ("-o ashift=8", "ashift"),
        ("-o ashift=17", "ashift"),
        ("-o ashift=twelve", "ashift"),
        ("-O nosuch=on", "nosuch"),
        ("-O compression=squash", "compression"),
        ("-O recordsize=100K", "recordsize"),
        ("-O recordsize=64M", "recordsize"),
        ("-O checksum=crc", "checksum"),
        ("-o ashift", "="),
        ("-O atime=maybe", "atime"),
    ] {
        watched.zpool(&format!("create {option} tank d0")).says(word);
    }
    let lab = &watched.lab;
    lab.create("", "tank", "d0");
    for (words, word) in [
        ("set nosuch=1 tank", "nosuch"),
        ("set compression=squash tank", "compression"),
        ("set used=1 tank", "used"),
        ("set recordsize=3000 tank", "recordsize"),
        ("create -o nosuch=1 tank/a", "nosuch"),
        ("get nosuch tank", "nosuch"),
        ("get compression tank/none", "tank/none"),
        ("set compression=lz4 none", "none"),
        ("inherit nosuch tank", "nosuch"),
    ] {
        lab.zfs(words).refused().says(word);
    }
    for (words, word) in [
        ("set nosuch=1 tank", "nosuch"),
        ("set size=1 tank", "size"),
        ("get nosuch tank", "nosuch"),
        ("get size none", "none"),
        ("status none", "none"),
        ("scrub none", "none"),
        ("export none", "none"),
        ("destroy none", "none"),
    ] {
        lab.zpool(words).refused().says(word);
    }
    assert_eq!(lab.zfs("list -H -o name").ok().stdout, "tank\n");
}

#[test]
fn usage_errors_exit_with_2_and_show_the_usage() {
    let Some(lab) = Lab::open() else { return };
    for words in [
        "zpool",
        "zpool nosuchcommand",
        "zpool create",
        "zpool create -Z tank d0",
        "zfs",
        "zfs nosuchcommand",
        "zfs create",
    ] {
        let run = lab.platter(words.split(' '));
        assert_eq!(run.code, 2, "{run}");
        assert!(run.mentions("usage"), "{run}");
    }
}

/// A pool of `vdev` with one file, exported.
fn exported(lab: &Lab, vdev: &str, disks: usize) {
    lab.disks(disks, 96);
    let mount = lab.create("", "tank", vdev);
    fs::write(mount.join("file"), data::random(1, 500_000)).expect("a file");
    lab.export("tank");
}

#[test]
fn a_missing_device_is_named_by_guid_and_last_path() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab, "raidz d0 d1 d2 d3", 4);
    let guids: Vec<Option<String>> = (0..4).map(|disk| zdb::label_guid(&lab.disk(disk))).collect();
    let away = lab.tmp().join("away");
    fs::create_dir(&away).expect("a folder");
    for disk in [1, 2] {
        fs::rename(lab.disk(disk), away.join(format!("d{disk}"))).expect("a device file can be moved");
    }
    let kept = [lab.disk(0), lab.disk(3)];
    let before = damage::fingerprints(&kept);
    let run = lab.zpool("import -d . tank").refused().says("tank");
    for disk in [1, 2] {
        let path = lab.disk(disk).display().to_string();
        assert!(run.mentions(&path), "the last path {path} is named\n{run}");
        if let Some(guid) = &guids[disk] {
            assert!(run.mentions(guid), "the guid {guid} of d{disk} is named\n{run}");
        }
    }
    // The listing says the same and does not fail.
    let list = lab.zpool("import -d .").ok().says("tank").says("UNAVAIL");
    assert!(list.mentions("d1") && list.mentions("d2"), "{list}");
    assert_eq!(before, damage::fingerprints(&kept));
    for disk in [1, 2] {
        fs::rename(away.join(format!("d{disk}")), lab.disk(disk)).expect("a device file can be moved");
    }
    lab.import("", "tank");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_truncated_device_degrades_or_is_named() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab, "raidz d0 d1 d2", 3);
    let cut = |disk: usize, len: u64| {
        OpenOptions::new().write(true).open(lab.disk(disk)).and_then(|file| file.set_len(len)).expect("truncate");
    };
    cut(1, 20 << 20);
    let mount = lab.import("", "tank");
    assert_eq!(lab.health("tank"), "DEGRADED");
    assert_eq!(data::sha256(&fs::read(mount.join("file")).expect("read")), data::sha256(&data::random(1, 500_000)));
    lab.export("tank");
    cut(2, 30 << 20);
    let watched = Watched::new(lab, 3);
    watched.zpool("import -d . tank").says("tank").says("d2");
    for len in [0, 1000, 300 << 10] {
        for disk in 0..3 {
            OpenOptions::new().write(true).open(watched.lab.disk(disk)).and_then(|f| f.set_len(len)).expect("truncate");
        }
        watched.lab.zpool("import -d . tank").refused().says("tank");
    }
}

#[test]
fn garbage_in_every_label_is_no_pool() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab, "mirror d0 d1", 2);
    for disk in 0..2 {
        let path = lab.disk(disk);
        for label in 0..4 {
            damage::overwrite(&path, damage::label(label, damage::len(&path)), label);
        }
    }
    let watched = Watched::new(lab, 2);
    watched.zpool("import -d . tank").says("tank").says("no such pool");
    let none = watched.lab.zpool("import -d .");
    assert!(none.code <= 1 && none.mentions("no pools available"), "{none}");
}

#[test]
fn garbage_in_every_uberblock_is_refused_and_says_where() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab, "mirror d0 d1", 2);
    for disk in 0..2 {
        let path = lab.disk(disk);
        for label in 0..4 {
            let start = damage::label(label, damage::len(&path)).start;
            damage::overwrite(&path, start + (128 << 10)..start + (256 << 10), label);
        }
    }
    let watched = Watched::new(lab, 2);
    watched.zpool("import -d . tank").says("tank");
}

#[test]
fn garbage_in_all_metadata_is_refused_or_read_only_never_a_crash() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab, "d0", 1);
    // The labels are good; everything they point to is not.
    damage::overwrite_data_area(&lab.disk(0), 3);
    let watched = Watched::new(lab, 1);
    watched.zpool("import -d . tank").says("tank");
    assert_eq!(watched.lab.daemon_pids().len(), 1, "the daemon is alive");
}

#[test]
fn an_unsupported_feature_is_refused_by_name() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab, "mirror d0 d1", 2);
    let feature = "com.example:time_travel";
    if zhack::enable_feature(&lab.dev(), "tank", feature).is_none() {
        return;
    }
    // Enabled but not active: nothing on disk needs it.
    lab.import("", "tank");
    lab.export("tank");
    zhack::activate_feature(&lab.dev(), "tank", feature, true);
    let watched = Watched::new(lab, 2);
    let run = watched.zpool("import -d . tank").says("tank").says(feature);
    assert_eq!(run.code, 1, "{run}");
    watched.zpool("import -o readonly=on -d . tank").says(feature);
    // The listing says it too and does not fail.
    let list = watched.lab.zpool("import -d .").ok().says("tank").says(feature);
    watched.untouched(list);
}

#[test]
fn a_feature_needed_only_for_writing_allows_a_read_only_import() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab, "mirror d0 d1", 2);
    let feature = "com.example:read_me";
    if zhack::zhack(&lab.dev(), &["feature", "enable", "-r", "-d", "for a test", "tank", feature])
        .map(Run::ok)
        .is_none()
    {
        return;
    }
    zhack::activate_feature(&lab.dev(), "tank", feature, false);
    lab.zpool("import -d . tank").refused().says(feature).says("readonly");
    let before = damage::fingerprints(&[lab.disk(0), lab.disk(1)]);
    lab.zpool("import -o readonly=on -d . tank").ok();
    let mount = lab.mnt("tank");
    lab.wait_mounted(&mount);
    assert_eq!(data::sha256(&fs::read(mount.join("file")).expect("read")), data::sha256(&data::random(1, 500_000)));
    lab.export("tank");
    assert_eq!(before, damage::fingerprints(&[lab.disk(0), lab.disk(1)]), "a read-only import writes nothing");
}
