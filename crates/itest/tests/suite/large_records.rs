//! Large records where memory is small: a few bytes written make a whole record dirty, so writers have to wait.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use platter_itest::data::{self, Rng};
use platter_itest::{Group, Lab, zdb};

/// Bytes of each writer's file.
const FILE: usize = 160 << 20;
/// Bytes of one write.
const PIECE: usize = 64 << 10;
/// How long each writer writes.
const TIME: Duration = Duration::from_secs(8);

/// Two threads change small pieces of two files with such records, anywhere, while the daemon may have 256 MiB.
fn random_writes_into(record_size: &str) {
    let Some(lab) = Lab::open() else { return };
    let Some(group) = Group::new(&format!("platter-records-{record_size}"), 256 << 20) else { return };
    lab.disks(1, 2048);
    let mount = lab.mnt("tank");
    let options = format!("-O recordsize={record_size} -O compression=lz4 -m {}", mount.display());
    lab.zpool_through(&group.enter(), &format!("create {options} tank d0")).ok();
    lab.wait_mounted(&mount);
    let written: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|seed| {
                scope.spawn({
                    let mount = &mount;
                    move || {
                        let mut contents = vec![0; FILE];
                        let mut rng = Rng::new(seed);
                        let path = mount.join(format!("file{seed}"));
                        let file = File::options().create(true).truncate(true).write(true).open(path).expect("made");
                        file.set_len(FILE as u64).expect("grown");
                        let begun = Instant::now();
                        while begun.elapsed() < TIME {
                            let at = rng.below((FILE / PIECE) as u64) as usize * PIECE;
                            let piece = data::random(rng.next_u64(), PIECE);
                            file.write_all_at(&piece, at as u64).expect("written");
                            contents[at..at + PIECE].copy_from_slice(&piece);
                        }
                        file.sync_all().expect("stable");
                        contents
                    }
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    assert_eq!(group.killed(), 0, "killed for want of memory");
    lab.export("tank");
    lab.import("", "tank");
    for (seed, contents) in written.iter().enumerate() {
        let found = fs::read(mount.join(format!("file{seed}"))).expect("readable");
        assert!(found == *contents, "file{seed} has other contents");
    }
    assert_eq!(group.killed(), 0, "killed for want of memory");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.platter(["daemon", "stop"]).ok();
}

/// Each of the writes under way took a record, and none was counted before it was read: within a second they had all of
/// the memory, and the daemon was killed.
#[test]
fn random_writes_into_records_of_16_mebibytes_wait_for_memory() {
    random_writes_into("16M");
}

#[test]
fn random_writes_into_records_of_4_mebibytes_wait_for_memory() {
    random_writes_into("4M");
}
