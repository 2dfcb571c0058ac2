//! Memory that other programs need comes from the block cache, and goes back to it.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use platter_itest::group::Group;
use platter_itest::{Lab, data};

const MIB: u64 = 1 << 20;
/// What the daemon and the other program may have together.
const MEMORY: u64 = 1 << 30;
/// What the other program takes in the end: more than is left while the cache is full.
const TAKEN_MIB: u64 = 840;
/// Longer than anything here may take, however slow the machine.
const LIMIT: Duration = Duration::from_secs(90);

/// Bytes that the cache holds, and may hold.
fn cache(lab: &Lab) -> (u64, u64) {
    let said = lab.platter(["daemon", "status", "--json"]).ok().stdout;
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let number = |name: &str| said[name].as_u64().expect("a number");
    (number("cached"), number("cache_most"))
}

fn wait_for(lab: &Lab, what: &str, is_so: impl Fn((u64, u64)) -> bool) {
    let begun = Instant::now();
    while !is_so(cache(lab)) {
        assert!(begun.elapsed() < LIMIT, "{what}: the cache is {:?}", cache(lab));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_cache_gives_way_and_grows_again() {
    let Some(lab) = Lab::open() else { return };
    let Some(group) = Group::new("platter-spared", MEMORY) else { return };
    lab.disks(1, 700);
    // What is started in the group stays there.
    let enter = group.enter();
    let mount = lab.mnt("tank");
    lab.zpool_through(&enter, &format!("create -O compression=off -m {} tank d0", mount.display())).ok();
    lab.wait_mounted(&mount);
    let bytes = data::random(7, (400 * MIB) as usize);
    fs::write(mount.join("large"), &bytes).expect("a file");
    lab.export("tank");
    lab.import("", "tank");
    // Read at random, it is not left to the kernel alone.
    let large = mount.join("large");
    for first in 0..2 {
        let each = format!("dd if={} of=/dev/null bs=1M count=1 skip=$i iflag=direct status=none", large.display());
        lab.run("sh", ["-c", &format!("for i in $(seq {first} 3 399); do {each}; done")]).ok();
    }
    let (held, most) = cache(&lab);
    assert_eq!(most, MEMORY / 4, "there is enough for all");
    assert!(held > most / 4 * 3, "it is full: {held} of {most}");

    // tail(1) keeps what it reads: 100 MiB a second.
    let zeros = format!("for i in $(seq {}); do head -c 10M /dev/zero; sleep 0.1; done", TAKEN_MIB / 10);
    let hog = format!("{{ {zeros}; sleep 15; }} | tail -c {TAKEN_MIB}M >/dev/null");
    let mut other = Command::new("sh");
    other.args(["-c", &enter, "sh", "sh", "-c", &hog]).stdout(Stdio::null());
    let mut other = other.spawn().expect("a program");
    wait_for(&lab, "others need memory", |(held, most)| most < MEMORY / 8 && held <= most);
    assert!(other.wait().expect("it ends").success());
    assert_eq!(group.killed(), 0, "there was enough for all");
    wait_for(&lab, "nobody needs it any more", |(_, most)| most == MEMORY / 4);
    assert!(fs::read(mount.join("large")).expect("the file") == bytes);
    lab.export("tank");
    lab.platter(["daemon", "stop"]).ok();
}
