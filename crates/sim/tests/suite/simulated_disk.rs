//! What the simulated disk promises: a disk's rules about flushes and power, faults exactly as injected, and the same
//! history from the same seed.

use std::time::Duration;

use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Presence};
use platter_model::clock::{self, MILLISECOND, SECOND};
use platter_model::disk::{
    DiskId, Fault, FaultKind, FaultPlan, History, Link, LinkKind, Parameters, SimDisk, Surroundings,
};

const MIB: u64 = 1 << 20;

fn data(byte: u8, length: usize) -> Vec<Buf> {
    vec![Buf::copy_from(&vec![byte; length])]
}

async fn read_byte(disk: &SimDisk, offset: u64) -> u8 {
    disk.read(offset, 512).await.expect("read")[0]
}

/// Every kind of disk that behaves differently on the way to the medium.
fn kinds() -> [Parameters; 4] {
    [
        Parameters::instant(64 * MIB),
        Parameters::published_curve().sized(64 * MIB),
        Parameters::green_4k().sized(64 * MIB),
        Parameters::sata_ssd(64 * MIB),
    ]
}

/// A mixed load with overlapping writes, flushes, faults and a power cut; its history's hash.
fn busy_history(seed: u64, parameters: Parameters) -> (String, u64, [u8; 32]) {
    clock::run(|clock| async move {
        let history = History::new(0);
        let links = vec![Link::new(LinkKind::Sata { megabits: 3000 })];
        let surroundings = Surroundings { links, history: Some(history.clone()), ..Surroundings::default() };
        let disk = SimDisk::within(&clock, seed, DiskId(3), parameters, surroundings);
        disk.set_plan(FaultPlan {
            torn_write: 20,
            lost_write: 20,
            misdirected_write: 20,
            misdirected_read: 20,
            lying_flush: 5,
            bit_rot: 20,
            latent_sector_error: 50,
            slow: 50,
            hang: 100,
            host_full: 50,
        });
        for round in 0..3 {
            let tasks = (0..100_u64).map(|index| {
                let disk = disk.connect();
                async move {
                    let offset = (index * 7919 + round) % 500 * 4096;
                    match index % 5 {
                        0 => drop(disk.read(offset, 8192).await),
                        4 => drop(disk.flush().await),
                        _ => drop(disk.write(offset, data(index as u8, 512 * (1 + index as usize % 40))).await),
                    }
                }
            });
            let all = futures::future::join_all(tasks);
            // Long enough for some, too short for others.
            let _ = tokio::time::timeout(Duration::from_millis(150), all).await;
            disk.power_cut();
            disk.come_back();
        }
        (history.hash(), history.total(), disk.image().hash())
    })
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_seed_another() {
    for parameters in kinds() {
        let first = busy_history(1, parameters);
        assert!(first.1 > 50, "{first:?}");
        assert_eq!(first, busy_history(1, parameters));
        assert_ne!(first.0, busy_history(2, parameters).0);
    }
}

#[test]
fn debug_and_release_give_this_history() {
    // The hash was printed by a debug build; a release build must agree, and so must any other machine.
    let (hash, _, _) = busy_history(42, Parameters::green_4k().sized(64 * MIB));
    assert_eq!(hash, "e6d910d799d283f806874219afc43d7a6011256170bc8cf0a42731005af3a7ab");
}

#[test]
fn what_was_flushed_survives_every_power_cut_and_nothing_is_invented() {
    let mut fates = [0_u32; 4];
    for seed in 0..200 {
        let parameters = kinds()[seed as usize % 4];
        let seen = clock::run(|clock| async move {
            let disk = SimDisk::new(&clock, seed, DiskId(0), parameters);
            disk.write(0, data(1, 8192)).await.expect("write");
            disk.flush().await.expect("flush");
            for index in 1..=10_u64 {
                disk.write(index * 8192, data(2, 8192)).await.expect("write");
            }
            let before = disk.connect();
            disk.power_cut();
            assert!(matches!(before.read(0, 512).await, Err(DeviceError::Gone { .. })));
            disk.come_back();
            assert!(before.write(0, data(9, 512)).await.is_err(), "a dead connection stays dead");
            assert!(matches!(before.presence(), Presence::Gone(_)));
            let disk = disk.connect();
            assert_eq!(read_byte(&disk, 0).await, 1);
            let mut seen = Vec::new();
            for index in 1..=10_u64 {
                let bytes = disk.read(index * 8192, 8192).await.expect("read");
                assert!(bytes.chunks(512).all(|sector| sector.iter().all(|&b| b == sector[0])), "torn inside a sector");
                assert!(bytes.iter().all(|&b| b == 0 || b == 2));
                seen.push(match (bytes[0], bytes.iter().all(|&b| b == bytes[0])) {
                    (2, true) => 0,
                    (0, true) => 1,
                    _ => 2,
                });
            }
            assert_eq!(disk.image().hash(), disk.stable_image().hash());
            (seen, parameters.write_cache)
        });
        if seen.1 == 0 {
            assert!(seen.0.iter().all(|&fate| fate == 0), "a write without a cache is stable when it returns");
        }
        seen.0.iter().for_each(|&fate| fates[fate] += 1);
        fates[3] += u32::from(seen.0.windows(2).any(|pair| pair == [1, 0]));
    }
    // Survived, lost, torn, and lost while a later one survived.
    assert!(fates.iter().all(|&fate| fate > 20), "{fates:?}");
}

#[test]
fn a_lying_flush_covers_nothing_and_the_next_honest_one_everything() {
    for (lies, want) in [(1, vec![0, 1]), (0, vec![1])] {
        let mut seen = Vec::new();
        for seed in 0..20 {
            seen.push(clock::run(|clock| async move {
                let disk = SimDisk::new(&clock, seed, DiskId(0), Parameters::instant(MIB));
                disk.write(0, data(1, 512)).await.expect("write");
                disk.inject(Fault { kind: FaultKind::LyingFlush, range: 0..u64::MAX, times: lies });
                disk.flush().await.expect("it says so");
                assert_eq!(disk.fault_counts().of(FaultKind::LyingFlush), lies);
                disk.power_cut();
                disk.come_back();
                read_byte(&disk.connect(), 0).await
            }));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, want);
    }
}

/// A hanging disk answers nothing, and everything once it is released.
async fn assert_it_hangs_until_released(disk: &SimDisk) {
    disk.hang();
    assert!(tokio::time::timeout(Duration::from_secs(60), disk.read(0, 512)).await.is_err());
    let waiting = tokio::spawn({
        let disk = disk.clone();
        async move { disk.read(0, 512).await.map(|_| ()) }
    });
    tokio::task::yield_now().await;
    disk.release();
    waiting.await.expect("no panic").expect("read");
}

/// How often each fault of [`each_fault_does_what_its_name_says_and_is_counted`] has happened.
fn assert_all_counted(disk: &SimDisk) {
    for (kind, count) in disk.fault_counts().each() {
        let want = match kind {
            FaultKind::HostFull | FaultKind::BitRot => 2,
            FaultKind::ReorderedWrite | FaultKind::LyingFlush => 0,
            _ => 1,
        };
        assert_eq!(count, want, "{}", kind.name());
    }
}

#[test]
fn each_fault_does_what_its_name_says_and_is_counted() {
    for parameters in kinds() {
        clock::run(|clock| async move {
            let disk = SimDisk::new(&clock, 7, DiskId(0), parameters);
            let inject = |kind| disk.inject(Fault::next(kind));
            disk.write(0, data(1, 64 << 10)).await.expect("write");
            inject(FaultKind::LostWrite);
            disk.write(0, data(2, 8192)).await.expect("it says so");
            assert_eq!(read_byte(&disk, 0).await, 1);

            inject(FaultKind::TornWrite);
            disk.write(0, data(3, 8192)).await.expect("it says so");
            let bytes = disk.read(0, 8192).await.expect("read");
            assert!(bytes[0] == 3 && bytes[8191] == 1);

            inject(FaultKind::MisdirectedWrite);
            disk.write(32 << 10, data(4, 4096)).await.expect("it says so");
            assert_eq!(read_byte(&disk, 32 << 10).await, 1);
            let mut all = vec![0; 64 * MIB as usize];
            disk.image().read_at(0, &mut all);
            assert_eq!(all.iter().filter(|&&byte| byte == 4).count(), 4096);

            disk.write(MIB, data(5, 4096)).await.expect("write");
            inject(FaultKind::MisdirectedRead);
            assert_ne!(disk.read(MIB, 4096).await.expect("read")[..], data(5, 4096)[0][..]);
            assert_eq!(read_byte(&disk, MIB).await, 5);

            inject(FaultKind::HostFull);
            let full = disk.write(MIB, data(6, 4096)).await.expect_err("full");
            assert!(full.to_string().contains("space"), "{full}");
            disk.set_full(true);
            assert!(disk.write(MIB, data(6, 4096)).await.is_err());
            disk.set_full(false);

            disk.make_unreadable(MIB..MIB + 1);
            assert!(disk.read(MIB, 4096).await.is_err());
            assert!(disk.read(MIB + 4096, 4096).await.is_ok());
            disk.write(MIB, data(7, 4096)).await.expect("write");
            assert_eq!(read_byte(&disk, MIB).await, 7);

            let place = disk.rot().expect("something is stored");
            let before = disk.image();
            disk.damage(place..place + 10);
            assert_ne!(before.hash(), disk.image().hash());

            let (begin, usual) = (clock.now(), parameters);
            inject(FaultKind::Slow);
            disk.read(2 * MIB, 512).await.expect("read");
            assert!(clock.now() - begin > MILLISECOND, "{usual:?}");

            assert_it_hangs_until_released(&disk).await;

            disk.set_size(MIB);
            assert_eq!(disk.size(), MIB);
            assert!(matches!(disk.read(MIB, 512).await, Err(DeviceError::Truncated { .. })));
            disk.set_size(64 * MIB);

            disk.flush().await.expect("flush");
            disk.disappear();
            assert!(disk.write(0, data(1, 512)).await.is_err() && disk.connect().flush().await.is_err());
            disk.come_back();
            assert_eq!(read_byte(&disk.connect(), MIB).await, 7);
            assert_all_counted(&disk);
        });
    }
}

#[test]
fn overlapping_writes_in_the_cache_end_in_their_order() {
    // The drive empties its cache in the order that suits its head; what overlaps must not be turned round.
    for seed in 0..10 {
        clock::run(|clock| async move {
            let disk = SimDisk::new(&clock, seed, DiskId(0), Parameters::green_4k());
            for index in 0..200_u64 {
                let offset = (index * 31 + seed) % 17 * 4096 + (index % 3) * 1_000_000_000;
                disk.write(offset, data(index as u8, 4096 * (1 + index as usize % 3))).await.expect("write");
            }
            let seen = disk.image().hash();
            disk.flush().await.expect("flush");
            assert_eq!(disk.stable_image().hash(), seen);
        });
    }
}

#[test]
fn a_deep_queue_is_faster_than_a_shallow_one_and_a_shared_bus_is_shared() {
    let random_reads = |depth| {
        clock::run(move |clock| async move {
            let disk = SimDisk::new(&clock, 1, DiskId(0), Parameters::published_curve().queue_depth(depth));
            let reads = (0..200_u64).map(|index| disk.read(index * 7_919 % 200 * 2_000_000_000 + 4096, 4096));
            futures::future::join_all(reads).await;
            clock.now()
        })
    };
    let (shallow, deep) = (random_reads(1), random_reads(32));
    // One at a time: seek and half a rotation, about 12 ms. Sorted by the drive: a good deal less.
    assert!((2 * SECOND..3 * SECOND).contains(&shallow), "{shallow}");
    assert!(deep * 2 < shallow, "{deep} against {shallow}");

    let write_all = |disks: u32, bus: bool| {
        clock::run(move |clock| async move {
            let bus = bus.then(|| Link::new(LinkKind::Pci { bits: 32, kilohertz: 33_333 }));
            let writes = (0..disks).map(|id| {
                let mut links = vec![Link::new(LinkKind::Sata { megabits: 3000 })];
                links.extend(bus.clone());
                let surroundings = Surroundings { links, ..Surroundings::default() };
                let disk = SimDisk::within(&clock, 1, DiskId(id), Parameters::published_curve(), surroundings);
                async move {
                    let some = (0..32).map(|index| disk.write(index * MIB, data(1, MIB as usize)));
                    futures::future::join_all(some).await;
                }
            });
            futures::future::join_all(writes).await;
            u64::from(disks) * 32 * MIB * 1000 / (clock.now() / MILLISECOND) / 1_000_000
        })
    };
    assert!((220..=250).contains(&write_all(4, false)), "{}", write_all(4, false));
    assert!((85..=107).contains(&write_all(4, true)), "{}", write_all(4, true));
}
