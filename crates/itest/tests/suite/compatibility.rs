//! What `zfs` shows next to what OpenZFS 2.3's kernel module showed of the same pool: every property of every data set,
//! in the same order, to the byte.

use std::collections::BTreeMap;

use platter_itest::reference::ReferencePool;
use platter_itest::{Lab, damage};

/// Data set → lines "property, value, source" in the order they are shown.
type Shown = BTreeMap<String, Vec<(String, String, String)>>;

fn parse(text: &str) -> Shown {
    let mut shown = Shown::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, property, value, source] = fields[..] else { panic!("{line:?}") };
        // Snapshots and bookmarks are not shown yet.
        if !name.contains(['@', '#']) {
            let row = (property.to_owned(), value.to_owned(), source.to_owned());
            shown.entry(name.to_owned()).or_default().push(row);
        }
    }
    shown
}

/// Why a property may differ; each of these stands in docs/compatibility.md.
fn reason(dataset: &str, property: &str) -> Option<&'static str> {
    let contents = ["version", "utf8only", "normalization", "casesensitivity", "volsize", "volblocksize", "keystatus"];
    let root = ["used", "usedbychildren", "logicalused"];
    if dataset.starts_with("refz1/enc") && contents.contains(&property) {
        return Some("the keys were loaded there");
    }
    match property {
        "mounted" => Some("the pool is imported without mounting"),
        "available" => Some("what deduplication and cloning save is not counted as available"),
        _ if dataset == "refz1" && root.contains(&property) => Some("the export changed the pool's own object set"),
        _ => None,
    }
}

#[test]
fn properties_are_those_that_openzfs_showed() {
    let (Some(pool), Some(lab)) = (ReferencePool::copy("refz1"), Lab::open()) else { return };
    let before = damage::fingerprints(&pool.disks());
    lab.zpool(&format!("import -f -N -o readonly=on -d {} refz1", pool.dir().display())).ok();
    let ours = parse(&lab.zfs("get -Hp -r all refz1").ok().stdout);
    let theirs = parse(&pool.note("zfs-get-all.txt"));
    let names = |shown: &Shown| shown.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    let (mut same, mut differences) = (0, Vec::new());
    for (dataset, rows) in &theirs {
        let keep = |rows: &[(String, String, String)]| -> Vec<(String, String, String)> {
            rows.iter().filter(|(property, ..)| reason(dataset, property).is_none()).cloned().collect()
        };
        let (expected, found) = (keep(rows), keep(&ours[dataset]));
        same += expected.len();
        if expected != found {
            differences
                .extend(expected.iter().filter(|row| !found.contains(row)).map(|row| format!("< {dataset} {row:?}")));
            differences
                .extend(found.iter().filter(|row| !expected.contains(row)).map(|row| format!("> {dataset} {row:?}")));
            differences.push(format!("the properties of {dataset} differ, or their order"));
        }
    }
    assert!(differences.is_empty(), "OpenZFS's (<) and ours (>):\n{}", differences.join("\n"));
    assert!(same > 3500, "only {same} properties were compared");
    lab.zpool("export refz1").ok();
    assert_eq!(before, damage::fingerprints(&pool.disks()));
}
