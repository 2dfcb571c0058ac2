//! What scrubs say that they repaired.

use std::fs;

use platter_itest::{Lab, damage, data};

#[test]
fn what_leads_to_others_is_among_what_a_scrub_repaired() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    let mount = lab.create("-o ashift=9 -O recordsize=512 -O compression=off", "tank", "raidz d0 d1 d2");
    // A tenth of its space is blocks that lead to others, a part of which the walk mends: 0.94 without them.
    fs::write(mount.join("file"), data::random(1, 8 << 20)).unwrap();
    lab.export("tank");
    damage::overwrite_data_area(&lab.disk(1), 1);
    lab.import("", "tank");
    let allocated: f64 = lab.zpool("list -Hp -o allocated tank").ok().stdout.trim().parse().unwrap();
    lab.scrub("tank").says("with 0 errors");
    let status = lab.zpool("status -j --json-int tank").ok().stdout;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let repaired = status["pools"]["tank"]["scan_stats"]["processed"].as_f64().expect("a number");
    // The import has read and mended some of it, and what was freed since was not looked at.
    let part = repaired / (allocated / 3.0);
    assert!((0.965..1.03).contains(&part), "{part} of what is on the disk: {status}");
}
