//! The daemon's log tells what happened to pools: which pool, which disk, which file, and each thing once.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use platter_itest::{Lab, damage, data};

fn log(lab: &Lab) -> String {
    fs::read_to_string(lab.home().join("daemon.log")).expect("the log")
}

/// Waits for a line that has all of `words`.
#[track_caller]
fn wait_for_line(lab: &Lab, words: &[&str]) -> String {
    let start = Instant::now();
    loop {
        let text = log(lab);
        if let Some(line) = text.lines().find(|line| words.iter().all(|word| line.contains(word))) {
            return line.to_owned();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no line with {words:?} in\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

// The log said "the file was deleted" without the file or the pool, nothing of DEGRADED, of a scrub's result, of
// imports and exports, and had a line for each failed read.
#[test]
fn what_happens_to_a_pool_is_in_the_log_with_its_name_and_repetitions_are_counted() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("-O compression=off", "tank", "mirror d0 d1");
    wait_for_line(&lab, &["INFO", "the pool was created", "pool=\"tank\""]);
    lab.create_fs("", "tank/media");
    wait_for_line(&lab, &["INFO", "pool=\"tank\"", "what=\"create\"", "tank/media"]);
    fs::write(mount.join("big"), data::random(1, 16 << 20)).expect("a file");
    lab.zpool("sync tank").ok();

    damage::overwrite_data_area(&lab.disk(1), 7);
    lab.zpool("scrub -w tank").ok();
    let broken = lab.disk(1);
    let vdev = format!("vdev=\"{}\"", broken.display());
    wait_for_line(&lab, &["INFO", "scrub started", "pool=\"tank\""]);
    wait_for_line(&lab, &["WARN", "a block's checksum is wrong", "pool=\"tank\"", &vdev]);
    let result = wait_for_line(&lab, &["INFO", "scrub finished", "pool=\"tank\"", "errors=0"]);
    let repaired = result.split("repaired=").nth(1).and_then(|rest| rest.split(' ').next()).expect("an amount");
    assert!(repaired.parse::<u64>().expect("bytes") >= 16 << 20, "{result}");
    wait_for_line(&lab, &["WARN", " more like it in ", "checksum is wrong", &vdev]);
    let lines = log(&lab).lines().filter(|line| line.contains("checksum is wrong")).count();
    assert!(lines < 60, "{lines} lines for 128 wrong blocks and more");

    // It disappears, and comes back.
    let away = lab.dev().join("away");
    fs::copy(&broken, &away).expect("a copy");
    fs::remove_file(&broken).expect("removed");
    fs::write(mount.join("more"), b"x").expect("a file");
    lab.zpool("sync tank").ok();
    wait_for_line(&lab, &["WARN", "a vdev's state changed", "pool=\"tank\"", &vdev, "the file was deleted"]);
    wait_for_line(&lab, &["WARN", "the pool is DEGRADED", "pool=\"tank\""]);
    fs::rename(&away, &broken).expect("brought back");
    lab.zpool("online tank d1").ok();
    wait_for_line(&lab, &["INFO", "resilver finished", "pool=\"tank\"", "errors=0"]);
    wait_for_line(&lab, &["INFO", "the pool is ONLINE again", "pool=\"tank\"", "DEGRADED"]);
    lab.export("tank");
    wait_for_line(&lab, &["INFO", "the pool was exported", "pool=\"tank\""]);
    lab.import("", "tank");
    wait_for_line(&lab, &["INFO", "the pool was imported", "pool=\"tank\""]);
    lab.zfs("destroy tank/media").ok();
    wait_for_line(&lab, &["INFO", "pool=\"tank\"", "what=\"destroy\"", "tank/media"]);
    lab.zpool("destroy tank").ok();
    wait_for_line(&lab, &["INFO", "the pool was destroyed", "pool=\"tank\""]);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("-o compression=off", "tank/media");
    fs::create_dir(mount.join("folder")).expect("a folder");
    let photo = data::random(3, 1 << 20);
    fs::write(mount.join("folder/photo"), &photo).expect("a file");
    lab.export("tank");
    let disk = fs::read(lab.disk(0)).expect("the disk");
    let at = disk
        .chunks(512)
        .position(|sector| sector == &photo[..512])
        .map(|sector| sector * 512)
        .expect("the file is on it");
    let device = fs::File::options().write(true).open(lab.disk(0)).expect("the disk");
    device.write_all_at(&[7; 4096], at as u64).expect("damaged");
    lab.import("", "tank");
    assert_eq!(fs::read(mount.join("folder/photo")).expect_err("it is damaged").raw_os_error(), Some(5));
    wait_for_line(&lab, &["WARN", "fs=\"tank/media\"", "file=\"/folder/photo\""]);
    lab.zpool("destroy tank").ok();
}
