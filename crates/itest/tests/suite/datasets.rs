//! Data sets: limits, renaming, statistics. What `zfs` shows is compared with what OpenZFS's `zdb` finds in the MOS.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use platter_itest::{Lab, data, zdb};

/// One object of the MOS as zdb dumps it: its type and its `name = value` lines.
#[derive(Default)]
pub(crate) struct MosObject {
    kind: String,
    fields: BTreeMap<String, String>,
}

impl MosObject {
    #[track_caller]
    pub(crate) fn number(&self, field: &str) -> u64 {
        let text = self.fields.get(field).unwrap_or_else(|| panic!("zdb shows no {field}: {:?}", self.fields));
        text.parse().unwrap_or_else(|_| panic!("{field} = {text}"))
    }
}

/// The directories and data sets of the MOS, by object number.
pub(crate) fn mos(dir: &Path, pool: &str) -> Option<BTreeMap<u64, MosObject>> {
    let run = zdb::zdb(dir, &["-Pdddd", pool])?.ok();
    let mut objects: BTreeMap<u64, MosObject> = BTreeMap::new();
    let mut current = 0;
    for line in run.stdout.lines() {
        if line.starts_with("Dataset ") && !line.contains("[META]") {
            break;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() > 8 && words[1..8].iter().all(|word| word.parse::<f64>().is_ok()) {
            current = words[0].parse().unwrap_or(0);
            objects.entry(current).or_default().kind = words[8..].join(" ");
        } else if words.len() > 3 && words[1] == "bonus" {
            // The type of a directory with counts is that of its ZAP.
            objects.entry(current).or_default().kind = words[2..].join(" ");
        } else if let Some((name, value)) = line.trim().split_once(" = ") {
            objects.entry(current).or_default().fields.insert(name.trim().into(), value.trim().into());
        }
    }
    Some(objects)
}

/// `zfs get -Hp -o value PROPERTY DATASET` as a number.
#[track_caller]
fn number(lab: &Lab, property: &str, dataset: &str) -> u64 {
    let text = lab.zfs(&format!("get -Hp -o value {property} {dataset}")).ok().stdout;
    text.trim().parse().unwrap_or_else(|_| panic!("{property} of {dataset} is {text:?}"))
}

/// `zfs` property, zdb's field of the data set.
const OF_DATASET: [(&str, &str); 2] = [("referenced", "used_bytes"), ("logicalreferenced", "uncompressed_bytes")];
/// `zfs` property, zdb's field of the directory.
const OF_DIRECTORY: [(&str, &str); 7] = [
    ("used", "used_bytes"),
    ("logicalused", "uncompressed_bytes"),
    ("quota", "quota"),
    ("reservation", "reserved"),
    ("usedbydataset", "used_breakdown[HEAD]"),
    ("usedbysnapshots", "used_breakdown[SNAP]"),
    ("usedbyrefreservation", "used_breakdown[REFRSRV]"),
];

/// What `zfs` shows for these data sets.
fn shown(lab: &Lab, datasets: &[&str]) -> BTreeMap<String, BTreeMap<&'static str, u64>> {
    let of = |dataset: &str| -> BTreeMap<&'static str, u64> {
        let own = ["objsetid", "usedbychildren", "written"];
        let names = OF_DATASET.iter().chain(&OF_DIRECTORY).map(|(name, _)| *name).chain(own);
        names.map(|name| (name, number(lab, name, dataset))).collect()
    };
    datasets.iter().map(|dataset| ((*dataset).to_owned(), of(dataset))).collect()
}

/// Asserts that zdb finds the same numbers, to the byte.
#[track_caller]
fn assert_as_zdb_says(dir: &Path, pool: &str, shown: &BTreeMap<String, BTreeMap<&'static str, u64>>) {
    let Some(mos) = mos(dir, pool) else { return };
    for (dataset, numbers) in shown {
        let object = &mos[&numbers["objsetid"]];
        assert_eq!(object.kind, "DSL dataset", "{dataset}");
        let directory = &mos[&object.number("dir_obj")];
        assert_eq!(directory.kind, "DSL directory", "{dataset}");
        for (name, field) in OF_DATASET {
            assert_eq!(numbers[name], object.number(field), "{name} of {dataset}");
        }
        assert_eq!(numbers["written"], object.number("unique"), "written of {dataset}");
        // The pool's root also has the MOS, which the export itself changes.
        let with_mos = |name: &str| !dataset.contains('/') && ["used", "logicalused", "usedbychildren"].contains(&name);
        for (name, field) in OF_DIRECTORY.into_iter().filter(|(name, _)| !with_mos(name)) {
            assert_eq!(numbers[name], directory.number(field), "{name} of {dataset}");
        }
        let children = directory.number("used_breakdown[CHILD]") + directory.number("used_breakdown[CHILD_RSRV]");
        if !with_mos("usedbychildren") {
            assert_eq!(numbers["usedbychildren"], children, "usedbychildren of {dataset}");
        }
    }
}

/// Writes to `path` until that fails; returns the error and what was written.
fn fill(path: &Path) -> (std::io::Error, u64) {
    let mut file = fs::File::create(path).expect("a new file");
    let block = data::random(7, 256 << 10);
    let mut written = 0;
    loop {
        match file.write_all(&block) {
            Ok(()) => written += block.len() as u64,
            Err(error) => return (error, written),
        }
        assert!(written < 512 << 20, "nothing stops the writer");
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn quotas_and_reservations_hold_and_are_booked_as_zdb_reads_them() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 512);
    lab.create("", "tank", "raidz d0 d1 d2");
    let a = lab.create_fs("-o quota=40M -o reservation=20M", "tank/a");
    let b = lab.create_fs("-o refreservation=8M -o refquota=12M", "tank/a/b");
    let c = lab.create_fs("", "tank/c");

    let (error, written) = fill(&b.join("full"));
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    assert!((10 * MIB..=12 * MIB).contains(&written), "refquota of 12M let {written} bytes through");
    let (error, written) = fill(&a.join("full"));
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    assert!((24 * MIB..=32 * MIB).contains(&written), "quota of 40M less 8 to 12M let {written} bytes through");
    let refused = lab.zfs("set quota=30M tank/a").refused();
    assert!(refused.mentions("size is less than current used or reserved space"), "{refused}");
    let refused = lab.zfs("set reservation=100G tank/c").refused();
    assert!(refused.mentions("size is greater than available space"), "{refused}");
    let refused = lab.zfs("create -o refreservation=100G tank/never").refused();
    assert!(refused.mentions("size is greater than available space"), "{refused}");
    lab.zfs("get used tank/never").refused();

    // What is deleted makes room at once, and what a sibling reserves is not available.
    fs::remove_file(a.join("full")).expect("deleting works over quota");
    fs::write(a.join("again"), data::random(8, 16 << 20)).expect("there is room again");
    let before = number(&lab, "available", "tank/c");
    lab.zfs("set reservation=100M tank/a").refused();
    lab.zfs("set quota=none tank/a").ok();
    lab.zfs("set reservation=100M tank/a").ok();
    let after = number(&lab, "available", "tank/c");
    assert!(before - after > 60 * MIB, "{before} -> {after}");
    fs::write(c.join("file"), data::mixed(9, 3_000_000, 100_000)).expect("a file");
    lab.zpool("sync tank").ok();

    let seen = shown(&lab, &["tank", "tank/a", "tank/a/b", "tank/c"]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    assert_as_zdb_says(&lab.dev(), "tank", &seen);

    // Everything is given back with the data sets that held it.
    lab.import("", "tank");
    assert_eq!(shown(&lab, &["tank/a", "tank/a/b", "tank/c"]), {
        let mut seen = seen;
        seen.remove("tank");
        seen
    });
    lab.zfs("destroy -r tank/a").ok();
    lab.zfs("destroy tank/c").ok();
    lab.zpool("sync tank").ok();
    assert_eq!(number(&lab, "usedbychildren", "tank") / MIB, 0);
    let seen = shown(&lab, &["tank"]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    assert_as_zdb_says(&lab.dev(), "tank", &seen);
}

#[test]
fn a_renamed_file_system_takes_space_and_mounts_along() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let a = lab.create_fs("-o reservation=30M", "tank/a");
    lab.create_fs("", "tank/a/deep");
    lab.create_fs("-o quota=100M", "tank/to");
    fs::write(a.join("file"), data::random(1, 5 << 20)).expect("a file");
    fs::write(a.join("deep/file"), data::random(2, 3 << 20)).expect("a file");

    lab.zfs("rename tank/a tank/a/deep/x").refused();
    lab.zfs("rename tank/a tank/to").refused();
    lab.zfs("rename tank/a other/a").refused();
    lab.zfs("rename tank tunk").refused();
    let long = format!("tank/{}", "n".repeat(248));
    lab.zfs(&format!("rename tank/a {long}")).refused();
    lab.zfs("rename tank/a tank/none/a").refused();
    // With -u the mounts stay where they are.
    lab.zfs("rename -u tank/a tank/u").ok();
    let mounts = lab.zfs("mount").ok().stdout;
    let line = format!("{:<30}  {}\n", "tank/u/deep", a.join("deep").display());
    assert!(mounts.contains(&line), "{mounts}");
    assert_eq!(fs::read(a.join("deep/file")).expect("still mounted"), data::random(2, 3 << 20));
    fs::write(a.join("more"), b"written under another name").expect("still writable");
    fs::remove_file(a.join("more")).expect("and removable");
    lab.zfs("rename -u tank/u tank/a").ok();
    assert_eq!(fs::read(a.join("deep/file")).expect("still there"), data::random(2, 3 << 20));

    lab.zfs("rename tank/a tank/to/moved").ok();
    let moved = lab.mnt("tank/to/moved");
    lab.wait_mounted(&moved.join("deep"));
    assert!(!a.exists(), "the old mount point is gone");
    assert_eq!(fs::read(moved.join("deep/file")).expect("moved"), data::random(2, 3 << 20));
    lab.zfs("set quota=20M tank/to").refused();
    lab.zfs("rename -p tank/to/moved/deep tank/p/q/deep").ok();
    assert_eq!(fs::read(lab.mnt("tank/p/q/deep").join("file")).expect("moved"), data::random(2, 3 << 20));
    lab.zfs("unmount tank/to/moved").ok();
    lab.zfs("rename -u tank/to/moved tank/back").ok();
    lab.zpool("sync tank").ok();

    let seen = shown(&lab, &["tank", "tank/back", "tank/to", "tank/p", "tank/p/q", "tank/p/q/deep"]);
    assert!(seen["tank/to"]["used"] < MIB, "{:?}", seen["tank/to"]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    assert_as_zdb_says(&lab.dev(), "tank", &seen);
    lab.import("", "tank");
    assert_eq!(fs::read(lab.mnt("tank/back").join("file")).expect("kept"), data::random(1, 5 << 20));
    lab.export("tank");
}

#[test]
fn a_filesystem_limit_counts_everything_below_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    for name in ["tank/a", "tank/a/1", "tank/a/1/x", "tank/b"] {
        lab.create_fs("", name);
    }
    lab.zfs("set filesystem_limit=3 tank/a").ok();
    lab.create_fs("", "tank/a/2");
    let refused = lab.zfs("create tank/a/1/y").refused();
    assert!(refused.mentions("'tank/a' has a filesystem_limit of 3"), "{refused}");
    lab.zfs("rename tank/b tank/a/b").refused();
    lab.zfs("rename tank/a/1 tank/b/1").ok();
    let counted = |lab: &Lab| {
        let names = ["tank/a", "tank/a/2", "tank/b/1"];
        names.map(|name| lab.zfs(&format!("get -Hp -o value filesystem_count {name}")).ok().stdout.trim().to_owned())
    };
    assert_eq!(counted(&lab), ["1", "0", "1"]);
    lab.zfs("destroy tank/a/2").ok();
    lab.zfs("rename tank/b/1 tank/a/1").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    assert_eq!(number(&lab, "filesystem_count", "tank/a"), 2);
    lab.zfs("set filesystem_limit=none tank/a").ok();
    lab.create_fs("", "tank/a/3");
    lab.create_fs("", "tank/a/4");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn properties_without_effect_are_refused_and_the_others_reach_the_disk() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    for (property, value) in
        [("nbmand", "on"), ("special_small_blocks", "4096"), ("utf8only", "on"), ("used", "1"), ("sharenfs", "on")]
    {
        lab.zfs(&format!("set {property}={value} tank")).refused();
    }
    let fs_ = lab.create_fs("-o utf8only=on -o dnodesize=2k -o redundant_metadata=none -o com.example:a=b", "tank/f");
    lab.zfs("create -o com.example:Bad=1 tank/g").refused();
    let bad = fs_.join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"wrong\xff"));
    assert_eq!(fs::write(&bad, b"x").unwrap_err().raw_os_error(), Some(84), "EILSEQ");
    for index in 0..40 {
        fs::write(fs_.join(format!("f{index}")), data::random(index, 5000)).expect("a file");
    }
    let own = lab.zfs("get -H -o value,source com.example:a tank/f").ok().stdout;
    assert_eq!(own.trim(), "b\tlocal");
    lab.zfs("inherit -S com.example:a tank/f").ok();
    assert_eq!(lab.zfs("get -H -o value com.example:a tank/f").ok().stdout.trim(), "-");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(run) = zdb::zdb(&lab.dev(), &["-dd", "tank/f"]) {
        let files = run.ok().stdout.lines().filter(|line| line.contains("ZFS plain file")).count();
        let large = zdb::zdb(&lab.dev(), &["-Pdd", "tank/f"]).expect("it was there").ok().stdout;
        let large = large.lines().filter(|line| line.contains("2048") && line.contains("ZFS plain file")).count();
        assert_eq!((files, large), (40, 40), "each file has a dnode of 2048 bytes");
    }
}

// Every object that a file system keeps for itself had a dnode as large as `dnodesize` says; at 16k the master node did
// not fit and the create failed. OpenZFS gives them one slot each, whatever the property says.
#[test]
fn only_files_and_directories_have_large_dnodes() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("-O dnodesize=16k", "tank", "d0");
    for (name, size) in [("tank/a", "auto"), ("tank/b", "8k"), ("tank/c", "16k")] {
        let mount = lab.create_fs(&format!("-o dnodesize={size} -o xattr=dir"), name);
        fs::create_dir(mount.join("folder")).expect("a folder");
        fs::write(mount.join("folder/file"), b"x").expect("a file");
        lab.zfs(&format!("set userquota@1=1M {name}")).ok();
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    for (name, bytes) in [("tank/a", "1024"), ("tank/b", "8192"), ("tank/c", "16384")] {
        let Some(run) = zdb::zdb(&lab.dev(), &["-Pdddd", name]) else { return };
        let text = run.ok().stdout;
        let mut seen = 0;
        // The line below each heading: object, levels, two block sizes, bytes on disk, bytes of the dnode, … type.
        let headings = text.lines().zip(text.lines().skip(1)).filter(|(heading, _)| heading.contains("dnsize"));
        for (_, object) in headings {
            let of_file = ["ZFS plain file", "ZFS directory", "DMU dnode"].iter().any(|kind| object.contains(kind));
            let size = object.split_whitespace().nth(5).expect("dnsize");
            if !of_file {
                assert_eq!(size, "512", "{name}: {object}");
                seen += 1;
            } else if !object.contains("DMU dnode") {
                assert_eq!(size, bytes, "{name}: {object}");
            }
        }
        assert!(seen >= 5, "{name}: master node, attributes, layouts, delete queue, …: {seen}\n{text}");
    }
    lab.import("", "tank");
    assert_eq!(fs::read(lab.mnt("tank/c").join("folder/file")).expect("it is there"), b"x");
    lab.export("tank");
}

/// A ratio as `zfs get -p` shows it, from what zdb reads.
fn ratio(object: &MosObject) -> String {
    let (logical, physical) = (object.number("uncompressed_bytes"), object.number("compressed_bytes"));
    let hundredths = (logical * 100).checked_div(physical).unwrap_or(100);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[test]
fn statistics_are_those_of_zdb_whatever_is_written() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 512);
    lab.create("", "tank", "raidz d0 d1 d2");
    let made = [
        ("tank/n", "-o compression=lz4"),
        ("tank/n/off", "-o compression=off -o recordsize=1M"),
        ("tank/n/off/gzip", "-o compression=gzip-6 -o recordsize=16K -o reservation=30M"),
        ("tank/n/off/gzip/zstd", "-o compression=zstd-fast-10 -o recordsize=4K -o copies=2"),
        ("tank/n/zle", "-o compression=zle -o recordsize=512 -o refreservation=20M"),
        ("tank/q", "-o quota=80M -o compression=zstd-19"),
        ("tank/q/r", "-o reservation=20M"),
        ("tank/q/ref", "-o refquota=10M -o checksum=sha512"),
    ];
    for (at, (name, options)) in made.into_iter().enumerate() {
        let mount = lab.create_fs(options, name);
        for file in 0..6u64 {
            let seed = at as u64 * 100 + file;
            fs::write(mount.join(format!("f{file}")), data::mixed(seed, 300_000 + 7 * file as usize, 20_000))
                .expect("a file");
        }
        fs::write(mount.join("small"), b"embedded").expect("a file");
        let hole = fs::File::create(mount.join("hole")).expect("a file");
        hole.set_len(100 << 20).expect("a hole");
        fs::remove_file(mount.join("f1")).expect("removed");
        fs::File::options().write(true).open(mount.join("f2")).and_then(|file| file.set_len(1234)).expect("cut");
    }
    lab.zpool("sync tank").ok();
    lab.zpool("sync tank").ok();
    let names: Vec<&str> = made.iter().map(|(name, _)| *name).collect();
    let seen = shown(&lab, &names);
    let ratios = |name: &str| lab.zfs(&format!("get -Hp -o value compressratio,refcompressratio {name}")).ok().stdout;
    let shown_ratios: BTreeMap<&str, String> = names.iter().map(|name| (*name, ratios(name))).collect();
    let available = |name: &str| number(&lab, "available", name);
    let (q, r, limited) = (available("tank/q"), available("tank/q/r"), available("tank/q/ref"));
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    assert_as_zdb_says(&lab.dev(), "tank", &seen);
    let Some(mos) = mos(&lab.dev(), "tank") else { return };
    let of = |name: &str| {
        let dataset = &mos[&seen[name]["objsetid"]];
        (dataset, &mos[&dataset.number("dir_obj")])
    };
    for (name, shown) in &shown_ratios {
        let (dataset, directory) = of(name);
        assert_eq!(*shown, format!("{}\n{}\n", ratio(directory), ratio(dataset)), "ratios of {name}");
    }
    // Where a quota is the limit, what is left is known to the byte.
    let left = of("tank/q").1.number("quota") - of("tank/q").1.number("used_bytes");
    assert_eq!(q, left, "available in tank/q");
    let unused = of("tank/q/r").1.number("reserved") - of("tank/q/r").1.number("used_bytes");
    assert_eq!(r, left + unused, "available in tank/q/r, which has room of its own");
    assert_eq!(limited, (10 * MIB) - of("tank/q/ref").0.number("used_bytes"), "available in tank/q/ref");
}

#[test]
fn over_quota_what_grows_is_refused_and_what_frees_works() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let full = lab.create_fs("-o quota=16M -o compression=off", "tank/full");
    for name in ["a", "b", "c"] {
        fs::write(full.join(name), data::random(3, 1 << 20)).expect("a file");
    }
    fs::create_dir(full.join("empty")).expect("a directory");
    let (error, _) = fill(&full.join("filler"));
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    // Small things may still fit; that ends soon.
    let mut refused = None;
    for index in 0..20_000 {
        if let Err(error) = fs::write(full.join(format!("small{index}")), data::random(index, 9000)) {
            refused = Some(error);
            break;
        }
    }
    let error = refused.expect("nothing stops small files");
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    for (what, result) in [
        ("mkdir", fs::create_dir(full.join("more"))),
        ("symlink", std::os::unix::fs::symlink("x".repeat(4000), full.join("link"))),
        ("write", fs::write(full.join("d"), data::random(4, 1 << 20))),
        ("rename", fs::rename(full.join("a"), full.join("e"))),
    ] {
        if let Err(error) = result {
            assert_eq!(error.raw_os_error(), Some(122), "{what}: {error}");
        }
    }
    fs::remove_dir(full.join("empty")).expect("a directory goes");
    fs::File::options().write(true).open(full.join("b")).and_then(|file| file.set_len(0)).expect("a file is emptied");
    fs::remove_file(full.join("filler")).expect("a file goes");
    lab.zpool("sync tank").ok();
    fs::write(full.join("again"), data::random(5, 4 << 20)).expect("there is room again");
    assert_eq!(fs::read(full.join("c")).expect("untouched"), data::random(3, 1 << 20));
    assert!(number(&lab, "used", "tank/full") <= 17 * MIB);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
