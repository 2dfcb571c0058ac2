//! Cache devices (L2ARC): filled, found again after export and crash, removed, and gone. Each on-disk change is judged
//! by zdb.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_itest::{Group, Lab, Run, data, judge, zdb};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// Only devices that end behind a gibibyte have a log, as in OpenZFS.
const CACHE_MIB: u64 = 1280;

/// What the daemon knows of a pool.
fn report(lab: &Lab) -> Value {
    let mut daemon = UnixStream::connect(lab.home().join("daemon.sock")).expect("the daemon listens");
    let look = r#"{"look":{"get_pool":{"pool":"tank"}}}"#;
    let request = format!(
        "POST /v2 HTTP/1.1\r\nHost: platter\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{look}",
        look.len()
    );
    daemon.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    daemon.read_to_string(&mut answer).expect("answered");
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let view: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    view["report"].clone()
}

/// A device by its name, among those in a list and below them.
fn device(vdevs: &Value, name: &str) -> Option<Value> {
    let vdevs = vdevs.as_array()?;
    let own = vdevs.iter().find(|vdev| vdev["name"].as_str().is_some_and(|own| own.ends_with(name))).cloned();
    own.or_else(|| vdevs.iter().find_map(|vdev| device(&vdev["children"], name)))
}

/// Bytes that were read from a device since its pool was opened.
fn bytes_read(lab: &Lab, name: &str) -> u64 {
    let report = report(lab);
    let found = device(&report["caches"], name).or_else(|| device(&report["vdevs"]["children"], name));
    found.unwrap_or_else(|| panic!("no {name} in {report}"))["counts"]["read_bytes"].as_u64().expect("a number")
}

/// Bytes that lie on a cache device.
fn allocated(lab: &Lab, name: &str) -> u64 {
    let report = report(lab);
    let found = device(&report["caches"], name).unwrap_or_else(|| panic!("no {name} in {report}"));
    found["allocated"].as_u64().expect("a number")
}

/// Waits until so many bytes lie on a cache device.
#[track_caller]
fn wait_for(lab: &Lab, device: &str, least: u64) {
    let start = Instant::now();
    while allocated(lab, device) < least {
        assert!(start.elapsed() < Duration::from_secs(30), "{} of {least} bytes", allocated(lab, device));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Reads a file past the kernel's page cache.
#[track_caller]
fn read(lab: &Lab, path: &Path) -> Vec<u8> {
    let copy = lab.tmp().join("copy");
    let (from, to) = (format!("if={}", path.display()), format!("of={}", copy.display()));
    lab.run("dd", [&*from, &*to, "bs=1M", "iflag=direct", "status=none"]).ok();
    fs::read(copy).expect("it was written")
}

/// The labels, the header and the log of a cache device, as zdb sees them.
fn judged(lab: &Lab, device: usize) -> Option<Run> {
    let zdb = judge::need("zdb")?;
    let run = lab.run(zdb.to_str().expect("a path"), ["-lll", lab.disk(device).to_str().expect("a path")]).ok();
    Some(run.says("L2ARC device header").says("0 with invalid cksum"))
}

fn number_behind(text: &str, label: &str) -> u64 {
    let rest = text.split(label).nth(1).unwrap_or_else(|| panic!("no {label} in {text}"));
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn what_a_cache_device_has_is_found_again() {
    let Some(lab) = Lab::open_long(Duration::from_secs(180)) else { return };
    lab.disks(2, 512);
    lab.add_disk(5, CACHE_MIB);
    lab.zpool("create -n tank mirror d0 d1 cache d5").ok().says("\tcache\n\t  ");
    let mount = lab.create("-O recordsize=128k", "tank", "mirror d0 d1 cache d5");
    let status = lab.zpool("status tank").ok().says("\tcache\n\t  ").says("state: ONLINE");
    assert!(status.stdout.find("mirror-0") < status.stdout.find("cache"), "{status}");
    lab.zpool("list -v tank").ok().says("\ncache  ").says("d5");
    lab.zpool("iostat -v tank").ok().says("\ncache  ").says("d5");
    lab.zpool("status -j tank").ok().says("\"l2cache\"").says("\"class\":\"l2cache\"");
    lab.zpool("list -v -j tank").ok().says("\"l2cache\"");

    let contents = data::random(7, 48 << 20);
    fs::write(mount.join("file"), &contents).expect("written");
    lab.export("tank");
    lab.import("", "tank");
    assert!(read(&lab, &mount.join("file")) == contents, "read from the pool");
    wait_for(&lab, "d5", 48 * MIB);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(run) = judged(&lab, 5) {
        run.clone().says("lb[   1]");
        assert!(number_behind(&run.stdout, "log_blk_count:") >= 5, "{run}");
        assert_eq!(number_behind(&run.stdout, "lb_count_refcount:"), number_behind(&run.stdout, "log_blk_count:"));
        assert_eq!(number_behind(&run.stdout, "lb_asize_refcount:"), number_behind(&run.stdout, "log_blk_asize:"));
    }

    // All that a full log block names comes from the cache device: that is 64 blocks each here.
    lab.import("", "tank");
    wait_for(&lab, "d5", 40 * MIB);
    assert!(read(&lab, &mount.join("file")) == contents, "read from the cache device");
    assert!(bytes_read(&lab, "d5") >= 38 * MIB, "{}", bytes_read(&lab, "d5"));
    assert!(bytes_read(&lab, "d0") + bytes_read(&lab, "d1") < 16 * MIB, "{}", bytes_read(&lab, "d0"));

    // The same after a crash.
    lab.kill_daemon(true);
    lab.revive("tank");
    wait_for(&lab, "d5", 40 * MIB);
    assert!(read(&lab, &mount.join("file")) == contents, "read after a crash");
    assert!(bytes_read(&lab, "d5") >= 38 * MIB, "{}", bytes_read(&lab, "d5"));

    // And what is damaged there is read from the pool.
    lab.export("tank");
    let device = OpenOptions::new().write(true).open(lab.disk(5)).expect("a device");
    for at in (0..48).map(|number| (5 << 20) + number * MIB) {
        device.write_all_at(&[0x5a; 4096], at).expect("damaged");
    }
    lab.import("", "tank");
    wait_for(&lab, "d5", MIB);
    assert!(read(&lab, &mount.join("file")) == contents, "read where the cache device lies");
    lab.zpool("status tank").ok().says("state: ONLINE").says("errors: No known data errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_pool_does_not_suffer_from_its_cache_devices() {
    let Some(lab) = Lab::open_long(Duration::from_secs(180)) else { return };
    lab.disks(4, 256);
    lab.add_disk(5, CACHE_MIB);
    lab.add_disk(6, 128);
    let mount = lab.create("-O secondarycache=all", "tank", "mirror d0 d1");
    let contents = data::random(3, 8 << 20);
    fs::write(mount.join("file"), &contents).expect("written");
    lab.zpool("add -n tank cache d5 d6").ok().says("\tcache\n");
    lab.zpool("add tank cache d5 d6").ok();
    lab.zpool("add tank cache d5").refused().says("d5");
    lab.zpool("create other d5").refused().says("d5");
    lab.zpool("create -f other cache d5").refused();
    lab.zpool("add tank cache mirror d2 d3").refused();

    // Gone when the pool is imported.
    lab.export("tank");
    fs::rename(lab.disk(5), lab.tmp().join("d5")).expect("moved");
    let mut wrong = fs::read(lab.disk(6)).expect("a device");
    wrong.fill(0);
    fs::write(lab.disk(6), &wrong).expect("wiped");
    lab.import("", "tank");
    let status = lab.zpool("status tank").ok().says("state: ONLINE").says("because the label is missing");
    let lines: Vec<&str> = status.stdout.split("\tcache\n").nth(1).expect("a section").lines().collect();
    assert!(lines[0].contains("/d5") && lines[0].contains("UNAVAIL") && lines[0].ends_with("cannot open"), "{status}");
    assert!(lines[1].contains("/d6") && lines[1].contains("FAULTED"), "{status}");
    assert!(lines[1].ends_with("corrupted data"), "{status}");
    assert!(read(&lab, &mount.join("file")) == contents, "the pool is whole");
    fs::rename(lab.tmp().join("d5"), lab.disk(5)).expect("moved back");
    lab.zpool("online tank d5").ok();
    let status = lab.zpool("status tank").ok();
    assert!(status.stdout.lines().any(|line| line.contains("/d5 ") && line.contains("ONLINE")), "{status}");
    lab.zpool("status tank").ok().says("is not the cache device that it was");
    lab.zpool("remove tank d6").ok();
    lab.zpool("status tank").ok().says_not("/d6").says_not("action:");

    // Offline, for now and for good.
    let state = |word: &str| {
        let status = lab.zpool("status tank").ok();
        assert!(status.stdout.lines().any(|line| line.contains("/d5 ") && line.contains(word)), "{word}: {status}");
    };
    lab.zpool("offline tank d5").ok();
    state("OFFLINE");
    assert_eq!(lab.health("tank"), "ONLINE");
    lab.export("tank");
    lab.import("", "tank");
    state("OFFLINE");
    lab.zpool("online tank d5").ok();
    state("ONLINE");
    lab.zpool("offline -t tank d5").ok();
    state("OFFLINE");
    lab.export("tank");
    lab.import("", "tank");
    state("ONLINE");
    lab.zpool("offline -f tank d5").ok();
    state("FAULTED");
    lab.zpool("clear tank d5").ok();
    lab.zpool("online tank d5").ok();
    state("ONLINE");

    // It is deleted while it is used.
    fs::remove_file(lab.disk(5)).expect("deleted");
    assert!(read(&lab, &mount.join("file")) == contents, "the pool is whole");
    state("REMOVED");
    lab.zpool("remove tank d5").ok();
    lab.zpool("status tank").ok().says_not("cache").says_not("action:");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Programs read and write all the time; cache devices come and go in between.
#[test]
fn cache_devices_come_and_go_under_load() {
    let Some(lab) = Lab::open_long(Duration::from_secs(180)) else { return };
    lab.disks(2, 512);
    lab.add_disk(5, CACHE_MIB);
    lab.add_disk(6, 256);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let contents = data::random(11, 24 << 20);
    fs::write(mount.join("file"), &contents).expect("written");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(read(&lab, &mount.join("file")) == contents, "read under load");
                fs::write(mount.join("other"), data::random(5, 4 << 20)).expect("written");
            }
        });
        for _ in 0..4 {
            lab.zpool("add tank cache d5 d6").ok();
            std::thread::sleep(Duration::from_millis(1500));
            lab.zpool("remove tank d6").ok();
            lab.zpool("offline tank d5").ok();
            lab.zpool("online tank d5").ok();
            lab.zpool("remove tank d5").ok();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // What left is nobody's: its label keeps nobody from using it, and goes when somebody says so.
    lab.zpool("create -m none other d5 cache d6").ok();
    lab.zpool("labelclear -f d6").refused().says("is a member").says("of pool \"other\"");
    lab.zpool("remove other d6").ok();
    lab.zpool("add other d6").ok();
    lab.zpool("destroy other").ok();
    lab.zpool("create -m none other d5 cache d6").ok();
    lab.zpool("destroy other").ok();
    lab.zpool("labelclear d6").ok();
    lab.zpool("labelclear d6").refused().says("failed to read label");
    if let Some(zdb) = judge::need("zdb") {
        let run = lab.run(zdb.to_str().expect("a path"), ["-l", lab.disk(6).to_str().expect("a path")]);
        assert!(run.code != 0 && run.stdout.contains("failed to unpack label"), "{run}");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// With little memory, what is read again comes from the cache device, while the pool stays imported.
#[test]
fn what_memory_has_no_room_for_comes_from_the_cache_device() {
    let Some(lab) = Lab::open_long(Duration::from_secs(240)) else { return };
    let Some(group) = Group::new("platter-cache", 256 << 20) else { return };
    lab.disks(1, 512);
    lab.add_disk(5, CACHE_MIB);
    lab.zpool_through(&group.enter(), &format!("create -m {} tank d0 cache d5", lab.mnt("tank").display())).ok();
    let mount = lab.mnt("tank");
    lab.wait_mounted(&mount);
    let contents = data::random(13, 128 << 20);
    fs::write(mount.join("file"), &contents).expect("written");
    let mut share = 0;
    for _ in 0..12 {
        let before = bytes_read(&lab, "d5");
        assert!(read(&lab, &mount.join("file")) == contents, "it is as it was written");
        share = (bytes_read(&lab, "d5") - before) * 100 / contents.len() as u64;
        if share >= 40 {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(share >= 40, "{share} % come from the cache device");
    lab.zfs("set secondarycache=none tank").ok();
    assert_eq!(group.killed(), 0);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    judged(&lab, 5);
}
