//! What scrubs say that they repaired.

use std::fs;

use platter_itest::{Lab, damage, data};

#[test]
fn what_leads_to_others_is_among_what_a_scrub_repaired() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    let mount = lab.create("-O recordsize=512 -O compression=off", "tank", "mirror d0 d1");
    // A fourth of its space is the blocks that lead to it.
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
    assert!(repaired > 0.93 * allocated, "{repaired} of {allocated}: {status}");
    assert!(repaired < 1.05 * allocated, "{repaired} of {allocated}: {status}");
}
