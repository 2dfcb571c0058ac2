//! A daemon that is killed at any moment under a mixed load: what was acknowledged is there afterwards, the rest is in
//! a state it once had, and OpenZFS finds the pool consistent as it was left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_itest::load::{MappedWriter, Promises, Writer};
use platter_itest::{Lab, data, judge, zdb};

/// The file systems: name, options, what they promise, writers.
const DATASETS: [(&str, &str, Promises, u64); 4] = [
    ("standard", "", Promises::Synced, 3),
    ("always", "-o sync=always -o compression=lz4", Promises::Everything, 1),
    ("disabled", "-o sync=disabled", Promises::Nothing, 1),
    ("folders", "-o xattr=dir -o recordsize=16K", Promises::Synced, 1),
];

/// Lets all of them write, and kills the daemon `after` a while.
fn kill_beside(lab: &Lab, writers: &mut [Writer], mapped: &mut [MappedWriter], after: Duration, unmount: bool) {
    let stop = AtomicBool::new(false);
    mapped.iter_mut().for_each(MappedWriter::prepare);
    std::thread::scope(|scope| {
        for writer in writers {
            let stop = &stop;
            scope.spawn(move || writer.run(stop));
        }
        for writer in mapped {
            let stop = &stop;
            scope.spawn(move || writer.run(stop));
        }
        std::thread::sleep(after);
        lab.kill_daemon(unmount);
        stop.store(true, Ordering::Relaxed);
    });
}

/// Kills the daemon once more, while the pool is opened and its logs are replayed.
fn kill_while_it_opens(lab: &Lab, after: Duration, unmount: bool) {
    let mut opening = lab.command("sh");
    opening.args(["-c", "exec \"$0\" zpool list >/dev/null 2>&1"]).arg(platter_itest::binary::platter());
    let mut opening = opening.spawn().expect("the command starts");
    std::thread::sleep(after);
    lab.kill_daemon(unmount);
    let _ = opening.kill();
    let _ = opening.wait();
    lab.kill_daemon(false);
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Kills the daemon of a pool of this layout `rounds` times.
fn kill_under_load(lab: &Lab, layout: &str, disks: usize, rounds: u64) {
    lab.disks(disks, 1024);
    lab.create("-o ashift=12", "tank", layout);
    let mut rng = data::Rng::new(0x5eed + disks as u64);
    let mut writers = Vec::new();
    let mut mapped = Vec::new();
    let can_map = judge::need("python3").is_some();
    for (name, options, promises, count) in DATASETS {
        let mount = lab.create_fs(options, &format!("tank/{name}"));
        for number in 0..count {
            writers.push(Writer::new(mount.join(format!("w{number}")), promises, rng.next_u64()));
        }
        if can_map {
            mapped.push(MappedWriter::new(mount.join("mapped"), promises, rng.next_u64()));
        }
    }
    lab.zpool("sync tank").ok();
    let started = Instant::now();
    let mut down = Duration::ZERO;
    for round in 0..rounds {
        let after = Duration::from_millis(50 + rng.below(1200));
        kill_beside(lab, &mut writers, &mut mapped, after, round % 2 == 0);
        let when = format!("{layout}, kill {round}");
        // As it was left, log and all.
        zdb::assert_clean(&lab.dev(), "tank");
        if round % 4 == 3 {
            kill_while_it_opens(lab, Duration::from_millis(rng.below(400)), round % 8 == 3);
        }
        let start = Instant::now();
        lab.revive("tank");
        for (name, ..) in DATASETS {
            lab.wait_mounted(&lab.mnt(&format!("tank/{name}")));
        }
        down += start.elapsed();
        writers.iter_mut().for_each(|writer| writer.check(&when));
        mapped.iter_mut().for_each(|writer| writer.check(&when));
        if round % 20 == 19 {
            lab.scrub("tank").says("repaired 0B").says("with 0 errors");
            lab.export("tank");
            zdb::assert_clean(&lab.dev(), "tank");
            lab.import("", "tank");
            writers.iter_mut().for_each(|writer| writer.check(&when));
            mapped.iter_mut().for_each(|writer| writer.check(&when));
        }
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    let synced: u64 = mapped.iter().map(|writer| writer.acknowledged).sum();
    println!(
        "{layout}: {rounds} kills in {:?}, {acknowledged} acknowledged changes and {synced} synced mappings, none \
         lost; back after {:?} on average",
        started.elapsed(),
        down / rounds as u32
    );
    assert!(acknowledged > rounds, "{acknowledged} changes were acknowledged in {rounds} rounds");
    assert!(!can_map || synced > 0, "mapped pages were never acknowledged in {rounds} rounds");
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    writers.iter_mut().for_each(|writer| writer.check("at the end"));
    mapped.iter_mut().for_each(|writer| writer.check("at the end"));
    lab.export("tank");
}

#[test]
fn what_was_acknowledged_survives_kills_at_any_moment() {
    let Some(lab) = Lab::open() else { return };
    kill_under_load(&lab, "raidz d0 d1 d2", 3, 4);
}

#[test]
fn a_mirror_loses_nothing_either() {
    let Some(lab) = Lab::open() else { return };
    kill_under_load(&lab, "mirror d0 d1", 2, 2);
}

/// The long form: 200 kills in all.
fn kill_many(layout: &str, disks: usize, rounds: u64) {
    let Some(lab) = Lab::open_big(Duration::from_secs(2 * 3600)) else { return };
    kill_under_load(&lab, layout, disks, rounds);
}

#[test]
#[ignore = "takes a quarter of an hour: make test-crash"]
fn a_raidz_survives_80_kills() {
    kill_many("raidz d0 d1 d2", 3, 80);
}

#[test]
#[ignore = "takes a quarter of an hour: make test-crash"]
fn a_mirror_survives_80_kills() {
    kill_many("mirror d0 d1", 2, 80);
}

#[test]
#[ignore = "takes minutes: make test-crash"]
fn a_single_disk_survives_40_kills() {
    kill_many("d0", 1, 40);
}
