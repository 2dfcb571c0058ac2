//! A daemon that is killed at any moment: what fsync acknowledged is there afterwards, the rest is there whole or not
//! at all, and OpenZFS finds the pool consistent as it was left.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_itest::{Lab, data, zdb};

/// Kills the daemon: what it handed to the kernel stays, all else is gone. Its dead mounts are removed by `unmount`, or
/// left to the next daemon.
fn kill(lab: &Lab, unmount: bool) {
    for pid in lab.daemon_pids() {
        let _ = lab.run("kill", ["-KILL", &pid.to_string()]);
    }
    let start = Instant::now();
    while !lab.daemon_pids().is_empty() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for mount in lab.mounts().into_iter().filter(|_| unmount) {
        let _ = lab.run("umount", ["-l", mount.to_str().expect("UTF-8")]);
    }
}

/// Writes files with fsync until the daemon is gone. Returns the acknowledged ones with their hashes.
fn write_until_killed(dir: &Path, seed: u64, stop: &AtomicBool) -> BTreeMap<String, String> {
    let mut acknowledged = BTreeMap::new();
    let mut rng = data::Rng::new(seed);
    for number in 0..100_000 {
        let name = format!("round{seed}-{number}");
        let bytes = data::mixed(rng.next_u64(), rng.below(400_000) as usize, 20_000);
        let written =
            File::create(dir.join(&name)).and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()));
        // And some that nobody waits for.
        let unsynced = fs::write(dir.join(format!("unsynced{seed}-{number}")), &bytes);
        match written {
            Ok(()) => acknowledged.insert(name, data::sha256(&bytes)),
            Err(_) => break,
        };
        if number % 3 == 0
            && let Some((old, _)) = acknowledged.iter().next().map(|(name, hash)| (name.clone(), hash.clone()))
            && acknowledged.len() > 5
        {
            // Removed files may or may not be there: nobody asked to have that acknowledged.
            acknowledged.remove(&old);
            let _ = fs::remove_file(dir.join(old));
        }
        if unsynced.is_err() || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    acknowledged
}

#[test]
fn a_killed_daemon_loses_nothing_that_was_acknowledged() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 512);
    let mount = lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    for round in 0..5u64 {
        let stop = AtomicBool::new(false);
        let acknowledged = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_killed(&mount, round, &stop));
            std::thread::sleep(Duration::from_millis(700 + round * 431));
            kill(&lab, round % 2 == 0);
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("the writer ends")
        });
        assert!(!acknowledged.is_empty(), "round {round}: nothing was acknowledged in time");
        // As it was left: no export, no repair.
        zdb::assert_clean(&lab.dev(), "tank");
        // The daemon may bring its pools back by itself.
        if lab.zpool("list -H tank").code != 0 {
            lab.zpool(&format!("import -f -d {} tank", lab.dev().display())).ok();
        }
        lab.wait_mounted(&mount);
        for (name, hash) in &acknowledged {
            match fs::read(mount.join(name)) {
                Ok(bytes) => assert_eq!(&data::sha256(&bytes), hash, "round {round}: {name} was acknowledged"),
                Err(error) => panic!("round {round}: {name} was acknowledged and is lost: {error}"),
            }
        }
        for entry in fs::read_dir(&mount).expect("list") {
            let path = entry.expect("an entry").path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("unsynced")) {
                fs::remove_file(path).expect("remove");
            }
        }
        lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
