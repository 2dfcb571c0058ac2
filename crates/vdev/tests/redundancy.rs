//! Whatever redundancy covers is read right, repaired and blamed on the right child; whatever it does not cover is an
//! error and never wrong data.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Random, Rig, subsets};
use platter_buffer::Buf;
use platter_device::{BlockDevice, Fault, FaultKind};
use platter_ondisk::Txg;
use platter_ondisk::label::{BOOT_ENV_OFFSET, VDEV_LABELS, VDEV_PAD_SIZE, label_offset, usable_size};
use platter_vdev::Priority;
use platter_vdev::{Extent, LeafTrouble, VdevError, VdevKind, VdevState};
use proptest::prelude::*;

/// (kind, width, redundancy) of what the exhaustive tests run on.
fn levels() -> Vec<(VdevKind, usize, usize)> {
    let raidz = |parity, width| (VdevKind::Raidz { parity }, width, usize::from(parity));
    vec![
        (VdevKind::Mirror, 2, 1),
        (VdevKind::Mirror, 3, 2),
        raidz(1, 2),
        raidz(1, 3),
        raidz(1, 5),
        raidz(2, 3),
        raidz(2, 6),
        raidz(3, 4),
        raidz(3, 7),
    ]
}

fn sizes(ashift: u8) -> Vec<usize> {
    let sector = 1usize << ashift;
    vec![sector, 3 * sector, 8 * sector, 17 * sector, 128 << 10]
}

/// Every set of failed children × corruption of the remaining redundancy at unknown places.
#[tokio::test]
async fn every_failure_within_redundancy_is_survived_and_repaired() {
    let mut random = Random(1);
    for (kind, width, redundancy) in levels() {
        for ashift in [9, 12] {
            for gone in subsets(width, redundancy) {
                let rig = Rig::new(kind.clone(), width, ashift).await;
                let mut offset = 1 << 20;
                for size in sizes(ashift) {
                    let data = random.buf(size);
                    offset += rig.top.asize_for(size as u64) + (random.below(7) << ashift);
                    rig.write(offset, &data, 1).await;
                    let intact = rig.image(offset, size as u64);
                    let places = rig.places(offset, size as u64);
                    // Whole children fail first; what redundancy is left is used up by silent corruption.
                    let gone_here = places.iter().filter(|place| gone.contains(&place.0)).count();
                    for &child in &gone {
                        rig.shelf.faulty[child].inject(Fault::everywhere(FaultKind::ReadError));
                    }
                    let mut alive: Vec<_> = places.iter().copied().filter(|p| !gone.contains(&p.0)).collect();
                    let mut hurt = Vec::new();
                    for _ in 0..redundancy - gone_here {
                        if alive.len() > 1 {
                            let victim = alive.swap_remove(random.below(alive.len() as u64) as usize);
                            rig.corrupt(victim, &mut random);
                            hurt.push(victim.0);
                        }
                    }
                    rig.read(offset, &data).await.unwrap_or_else(|e| panic!("{kind} {width} {gone:?} {hurt:?}: {e}"));
                    rig.scrub(offset, &data).await.expect("scrub");
                    let again = rig.scrub(offset, &data).await.expect("second scrub");
                    assert!(again.bad_children.iter().all(|child| gone.contains(child)), "{again:?}");
                    for (index, place) in places.iter().enumerate() {
                        if !gone.contains(&place.0) {
                            assert_eq!(rig.image(offset, size as u64)[index], intact[index], "{kind} {place:?}");
                        }
                    }
                    for (child, leaf) in rig.top.leaves().iter().enumerate() {
                        let errors = leaf.stats().snapshot().checksum_errors;
                        assert_eq!(errors > 0, hurt.contains(&child), "{kind} child {child}: {errors}, {hurt:?}");
                    }
                    rig.top.clear_errors();
                    for device in &rig.shelf.faulty {
                        device.heal();
                    }
                    // Children that were given up come back for the next block.
                    for index in 0..width {
                        if !rig.top.leaves()[index].is_usable() {
                            rig.top.reopen_leaf(&rig.top.leaves()[index], &rig.spec.children[index], &rig.shelf).await;
                        }
                    }
                }
            }
        }
    }
}

/// One failure more than redundancy covers.
#[tokio::test]
async fn one_failure_too_many_is_an_error_and_never_wrong_data() {
    let mut random = Random(2);
    for (kind, width, redundancy) in levels().into_iter().chain([(VdevKind::File, 1, 0)]) {
        let rig = Rig::new(kind.clone(), width, 9).await;
        for size in sizes(9) {
            let data = random.buf(size);
            rig.write(0, &data, 1).await;
            let places = rig.places(0, size as u64);
            let is_raidz = matches!(kind, VdevKind::Raidz { .. });
            // The data columns come last: losing only parity loses nothing.
            for place in places.iter().rev().take(redundancy + 1) {
                rig.corrupt(*place, &mut random);
            }
            let before = rig.image(0, size as u64);
            let error = rig.read(0, &data).await.expect_err("too much is damaged");
            assert!(matches!(error, VdevError::Checksum { .. }), "{kind}: {error}");
            assert!(rig.scrub(0, &data).await.is_err());
            assert_eq!(rig.image(0, size as u64), before, "nothing is rewritten without proof");
            assert!(rig.top.stats().snapshot().checksum_errors >= 2 || !is_raidz);
        }
    }
}

/// Columns are read only when they are needed.
#[tokio::test]
async fn a_healthy_read_touches_no_parity_and_one_mirror_side() {
    let mut random = Random(3);
    for (kind, wanted) in [(VdevKind::Raidz { parity: 2 }, 4), (VdevKind::Mirror, 1)] {
        let rig = Rig::new(kind, 6, 12).await;
        let data = random.buf(64 << 10);
        rig.write(0, &data, 1).await;
        let before: u64 = rig.shelf.faulty.iter().map(|device| device.transfers().0).sum();
        let outcome = rig.read(0, &data).await.expect("read");
        assert_eq!(outcome, Default::default());
        let after: u64 = rig.shelf.faulty.iter().map(|device| device.transfers().0).sum();
        assert_eq!(after - before, wanted);
    }
}

/// Reads of a mirror are spread over its sides.
#[tokio::test]
async fn a_mirror_spreads_its_readers() {
    let rig = Rig::new(VdevKind::Mirror, 3, 12).await;
    let mut random = Random(4);
    let data = random.buf(4096);
    for stretch in 0..30u64 {
        rig.write(stretch << 20, &data, 1).await;
    }
    for stretch in 0..30u64 {
        rig.read(stretch << 20, &data).await.expect("read");
    }
    for leaf in rig.top.leaves() {
        assert_eq!(leaf.stats().snapshot().reads, 10);
    }
}

/// A sector that cannot be read is rebuilt and rewritten, and counts as a read error, not as a checksum error.
#[tokio::test]
async fn an_unreadable_sector_is_rebuilt_and_rewritten() {
    let mut random = Random(5);
    for (kind, width, _) in levels() {
        let rig = Rig::new(kind.clone(), width, 9).await;
        let data = random.buf(40 << 10);
        rig.write(0, &data, 1).await;
        let intact = rig.image(0, data.len() as u64);
        // The last place is a data column, or the mirror side that is asked last.
        let (child, offset, size) = *rig.places(0, data.len() as u64).last().expect("a place");
        let child = if kind == VdevKind::Mirror { 0 } else { child };
        rig.shelf.memory[child].poke(offset, &vec![0xaa; size]);
        rig.shelf.faulty[child].inject(Fault { kind: FaultKind::ReadError, offset, length: 1, times: 1 });
        let outcome = rig.read(0, &data).await.expect("read");
        assert_eq!(outcome.bad_children, [child], "{kind}");
        assert!(outcome.reconstructed && outcome.repaired_bytes >= size as u64);
        let stats = rig.top.leaves()[child].stats().snapshot();
        assert_eq!((stats.read_errors, stats.checksum_errors), (1, 0));
        assert_eq!(rig.top.leaves()[child].condition().state, VdevState::Healthy);
        assert_eq!(rig.image(0, data.len() as u64), intact);
    }
}

/// A device that vanishes is noticed, skipped, remembered to have missed groups, and brought up to date by a scrub.
#[tokio::test]
async fn a_removed_child_misses_groups_and_is_healed_on_return() {
    let mut random = Random(6);
    for (kind, width, redundancy) in levels() {
        let rig = Rig::new(kind.clone(), width, 12).await;
        let old = random.buf(100 << 10);
        rig.write(0, &old, 1).await;
        let gone: Vec<usize> = (0..redundancy).collect();
        for &child in &gone {
            rig.shelf.faulty[child].disappear();
        }
        assert!(rig.top.check_present());
        assert!(!rig.top.check_present(), "noticed once");
        assert_eq!(rig.top.condition().state, VdevState::Degraded);
        let new = random.buf(200 << 10);
        rig.write(4 << 20, &new, 7).await;
        rig.read(0, &old).await.expect("degraded read");
        rig.read_born(4 << 20, &new, 7).await.expect("degraded read");
        for &child in &gone {
            let leaf = &rig.top.leaves()[child];
            assert_eq!(leaf.condition().name(), "REMOVED");
            assert!(leaf.is_missing(Txg(7)) && !leaf.is_missing(Txg(1)));
            rig.shelf.faulty[child].heal();
            rig.top.reopen_leaf(leaf, &rig.spec.children[child], &rig.shelf).await;
            assert!(leaf.is_usable());
        }
        assert_eq!(rig.top.condition().state, VdevState::Healthy);
        // What it has missed is read around without blame.
        let outcome = rig.read_born(4 << 20, &new, 7).await.expect("stale read");
        assert_eq!(outcome.repaired_bytes, 0);
        let extent =
            Extent { offset: 4 << 20, psize: new.len() as u64, birth: Txg(7), speculative: false, checked: true };
        let outcome = rig.top.scrub(extent, &|bytes: &[u8]| bytes == &new[..]).await.expect("scrub");
        assert!(outcome.repaired_bytes > 0);
        for leaf in rig.top.leaves() {
            leaf.set_missing(Default::default());
            assert_eq!(leaf.stats().snapshot().checksum_errors, 0);
        }
        assert_eq!(rig.read_born(4 << 20, &new, 7).await.expect("read"), Default::default());
        assert_eq!(rig.scrub(4 << 20, &new).await.expect("scrub").bad_children, []);
    }
}

/// Blocks that only stale children hold are still found: the check has the last word.
#[tokio::test]
async fn stale_children_serve_when_nothing_else_can() {
    let mut random = Random(7);
    for (kind, width, _) in levels() {
        let rig = Rig::new(kind, width, 9).await;
        let data = random.buf(20 << 10);
        rig.write(0, &data, 3).await;
        for leaf in rig.top.leaves() {
            leaf.note_missing(Txg(3));
        }
        rig.read_born(0, &data, 3).await.expect("read");
    }
}

/// The head of a disk that is resilvered comes by once: what it is known to lack is not looked for there.
#[tokio::test]
async fn a_scrub_writes_what_was_missed_without_reading_it() {
    let mut random = Random(8);
    for (kind, width, redundancy) in levels().into_iter().filter(|level| level.2 > 0) {
        for stale in subsets(width, redundancy).into_iter().filter(|stale| !stale.is_empty()) {
            let rig = Rig::new(kind.clone(), width, 9).await;
            let data = random.buf(150 << 9);
            rig.write(0, &data, 1).await;
            let right = rig.image(0, data.len() as u64);
            for place in rig.places(0, data.len() as u64).into_iter().filter(|place| stale.contains(&place.0)) {
                rig.corrupt(place, &mut random);
            }
            for &child in &stale {
                rig.top.leaves()[child].note_missing(Txg(1));
                rig.shelf.faulty[child].inject(Fault {
                    kind: FaultKind::ReadError,
                    offset: 4 << 20,
                    length: 64 << 20,
                    times: u64::MAX,
                });
            }
            let reads = |child: &usize| rig.shelf.faulty[*child].transfers().0;
            let before: Vec<_> = stale.iter().map(reads).collect();
            let outcome = rig.scrub(0, &data).await.expect("the others have it");
            let case = format!("{kind} of {width} without {stale:?}");
            assert_eq!(outcome.bad_children, stale, "{case}");
            assert_eq!(stale.iter().map(reads).collect::<Vec<_>>(), before, "{case}: read where it is known to lack");
            assert!(rig.top.leaves().iter().all(|leaf| leaf.stats().snapshot().checksum_errors == 0), "{case}");
            assert_eq!(rig.image(0, data.len() as u64), right, "{case}");
            // One that nobody else has is looked for there all the same.
            for child in 0..width {
                rig.shelf.faulty[child].heal();
                rig.top.leaves()[child].note_missing(Txg(1));
            }
            let outcome = rig.scrub(0, &data).await.expect("all have it");
            assert_eq!((outcome.bad_children, outcome.repaired_bytes), (vec![], 0), "{case}");
        }
    }
}

/// Boot environments that cannot be read make no disk useless, as long as the blank areas can (found by the simulator).
#[tokio::test]
async fn a_disk_is_not_given_up_for_its_boot_environments() {
    let mut random = Random(9);
    for (area, state) in [(BOOT_ENV_OFFSET, VdevState::Healthy), (0, VdevState::Faulted)] {
        let rig = Rig::new(VdevKind::Mirror, 2, 9).await;
        let data = random.buf(16 << 10);
        rig.write(0, &data, 1).await;
        let psize = usable_size(rig.shelf.memory[0].size());
        for label in 0..VDEV_LABELS {
            let (offset, length) = (label_offset(psize, label) + area, 2 * VDEV_PAD_SIZE - area);
            rig.shelf.faulty[0].inject(Fault { kind: FaultKind::ReadError, offset, length, times: u64::MAX });
        }
        let offset = rig.places(0, data.len() as u64)[0].1;
        rig.shelf.faulty[0].inject(Fault { kind: FaultKind::ReadError, offset, length: 1, times: 1 });
        for _ in 0..2 {
            rig.read(0, &data).await.expect("read");
        }
        assert_eq!(rig.top.leaves()[0].condition().state, state, "{area}");
    }
}

/// Writes fail so many times, in the data area only: the labels still work, so the child stays.
fn refusal_of_data(times: u64) -> Fault {
    Fault { kind: FaultKind::WriteError, offset: 4 << 20, length: 64 << 20, times }
}

/// Write failures within redundancy are survived, remembered and followed by a probe; one more is an error.
#[tokio::test]
async fn writes_survive_failing_children_up_to_redundancy() {
    let mut random = Random(8);
    for (kind, width, redundancy) in levels() {
        let rig = Rig::new(kind.clone(), width, 9).await;
        let data = random.buf(64 << 10);
        for child in 0..redundancy {
            rig.shelf.faulty[child].inject(refusal_of_data(u64::MAX));
        }
        rig.write(0, &data, 9).await;
        for child in 0..redundancy {
            let leaf = &rig.top.leaves()[child];
            assert!(leaf.is_missing(Txg(9)) && leaf.is_usable());
            assert!(leaf.stats().snapshot().write_errors > 0);
        }
        rig.read_born(0, &data, 9).await.expect("read");
        // Now the whole device refuses writes: the probe gives it up.
        rig.shelf.faulty[0].inject(Fault::everywhere(FaultKind::WriteError));
        rig.write(1 << 20, &data, 10).await;
        assert_eq!(rig.top.leaves()[0].condition().name(), "FAULTED");
        assert_eq!(rig.top.leaves()[0].condition().aux_text(), "too many errors");
        rig.shelf.faulty[redundancy].inject(Fault::everywhere(FaultKind::WriteError));
        let result = rig.top.write(2 << 20, data.clone(), Txg(11), Priority::AsyncWrite).await;
        assert!(matches!(result, Err(VdevError::NoReplicas { .. })), "{kind}");
    }
}

/// What fails for a moment is tried again: else each child would lack another part of the group, and of a block without
/// checksum nobody could tell which (found by the simulator: a pool that was cut off and resumed stood still again).
#[tokio::test]
async fn a_write_that_fails_once_is_tried_again() {
    let mut random = Random(10);
    for (kind, width, _) in levels() {
        let rig = Rig::new(kind.clone(), width, 9).await;
        let data = random.buf(20 << 10);
        for device in &rig.shelf.faulty {
            device.inject(refusal_of_data(1));
        }
        rig.write(0, &data, 9).await;
        for leaf in rig.top.leaves() {
            assert!(leaf.is_usable() && !leaf.is_missing(Txg(9)), "{kind}");
            assert_eq!(leaf.stats().snapshot().write_errors, 1, "{kind}: it is counted");
        }
        rig.read_born(0, &data, 9).await.expect("read");
    }
}

/// A device that goes away while it refuses writes is given up, whichever of the two attempts it was, and each refusal
/// is told (the second one was counted only: the next transfer found out that the device had gone).
#[tokio::test]
async fn a_device_that_goes_between_the_attempts_of_a_write_is_given_up() {
    let mut random = Random(12);
    for last in 1..=2 {
        let rig = Rig::new(VdevKind::Mirror, 2, 9).await;
        let data = random.buf(20 << 10);
        rig.shelf.faulty[0].inject(refusal_of_data(u64::MAX));
        let (device, told) = (rig.shelf.faulty[0].clone(), Arc::new(AtomicUsize::new(0)));
        let heard = told.clone();
        rig.top.leaves()[0].set_listener(Box::new(move |_, trouble| {
            if matches!(trouble, LeafTrouble::Io { .. }) && heard.fetch_add(1, Ordering::SeqCst) + 1 == last {
                device.disappear();
            }
        }));
        rig.write(0, &data, 9).await;
        let leaf = &rig.top.leaves()[0];
        assert_eq!(told.load(Ordering::SeqCst), last, "each attempt that fails is told");
        assert!(!leaf.is_usable() && leaf.is_missing(Txg(9)), "attempt {last}");
        rig.read_born(0, &data, 9).await.expect("read");
    }
}

/// A block that too few children took is written again once the pool goes on; they have not missed it then. Only who
/// does without it says that they have.
#[tokio::test]
async fn a_write_that_fails_as_a_whole_is_not_on_the_lists() {
    let mut random = Random(11);
    for (kind, width, redundancy) in levels() {
        let rig = Rig::new(kind.clone(), width, 9).await;
        let data = random.buf(40 << 10);
        for device in &rig.shelf.faulty[..=redundancy] {
            device.inject(refusal_of_data(2));
        }
        let result = rig.top.write(0, data.clone(), Txg(9), Priority::AsyncWrite).await;
        assert!(matches!(result, Err(VdevError::NoReplicas { .. })), "{kind}");
        assert!(rig.top.leaves().iter().all(|leaf| leaf.missing().is_empty()), "{kind}");
        rig.write(0, &data, 9).await;
        assert!(rig.top.leaves().iter().all(|leaf| leaf.missing().is_empty()), "{kind}");
        rig.top.note_unwritten(Txg(9));
        assert!(rig.top.leaves().iter().all(|leaf| leaf.is_missing(Txg(9))), "{kind}");
    }
}

/// Damaged block pointers do not reach the devices.
#[tokio::test]
async fn addresses_outside_the_vdev_are_refused() {
    let rig = Rig::new(VdevKind::Raidz { parity: 1 }, 3, 12).await;
    let asize = rig.top.asize();
    for (offset, psize) in
        [(asize, 512), (asize - 4096, 8192), (u64::MAX - 4095, 4096), (0, 0), (0, 17 << 20), (512, 512)]
    {
        let extent = Extent { offset, psize, birth: Txg(1), speculative: false, checked: true };
        let result = rig.top.read(extent, Priority::SyncRead, &|_: &[u8]| true).await;
        assert!(matches!(result, Err(VdevError::OutOfRange { .. })), "{offset} {psize}");
    }
    assert!(rig.shelf.faulty.iter().all(|device| device.transfers().0 == 0));
}

/// The largest block there is.
#[tokio::test]
async fn sixteen_mebibytes_are_written_rebuilt_and_read() {
    let mut random = Random(10);
    for (kind, width, redundancy) in levels() {
        let rig = Rig::new(kind, width, 12).await;
        let data = random.buf(16 << 20);
        rig.write(3 << 20, &data, 1).await;
        let mut places = rig.places(3 << 20, data.len() as u64);
        for _ in 0..redundancy {
            let victim = places.swap_remove(random.below(places.len() as u64) as usize);
            rig.corrupt(victim, &mut random);
        }
        rig.read(3 << 20, &data).await.expect("read");
        rig.scrub(3 << 20, &data).await.expect("scrub");
        assert_eq!(rig.scrub(3 << 20, &data).await.expect("scrub").bad_children, []);
    }
}

/// Sizes that are no multiple of the sector are padded on disk and cut again.
#[tokio::test]
async fn small_blocks_on_large_sectors_are_padded() {
    let mut random = Random(9);
    for (kind, width, _) in levels() {
        let rig = Rig::new(kind, width, 12).await;
        for size in [512, 1536, 4608, 13 * 512, 70_144] {
            let data = random.buf(size);
            rig.write(0, &data, 1).await;
            assert_eq!(rig.read(0, &data).await.expect("read"), Default::default());
            rig.corrupt(*rig.places(0, size as u64).last().expect("a place"), &mut random);
            rig.scrub(0, &data).await.expect("scrub");
            assert_eq!(rig.scrub(0, &data).await.expect("scrub").bad_children, []);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What is written is read, for all widths and parities, with random corruption of up to `parity` columns.
    #[test]
    fn read_returns_what_was_written(
        width in 3usize..=12, parity in 1u8..=3, twelve in any::<bool>(), sectors in 1usize..400, start in 0u64..1000,
        seed in any::<u64>(), hurt in 0usize..=3,
    ) {
        prop_assume!(width > usize::from(parity));
        let ashift = if twelve { 12 } else { 9 };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("runtime");
        runtime.block_on(async {
            let mut random = Random(seed);
            let rig = Rig::new(VdevKind::Raidz { parity }, width, ashift).await;
            let data: Buf = random.buf(sectors << ashift);
            let offset = start << ashift;
            rig.write(offset, &data, 1).await;
            let mut places = rig.places(offset, data.len() as u64);
            let mut victims = Vec::new();
            for _ in 0..hurt.min(usize::from(parity)).min(places.len() - 1) {
                let victim = places.swap_remove(random.below(places.len() as u64) as usize);
                rig.corrupt(victim, &mut random);
                victims.push(victim.0);
            }
            rig.read(offset, &data).await.expect("read");
            rig.scrub(offset, &data).await.expect("scrub");
            for (child, leaf) in rig.top.leaves().iter().enumerate() {
                let errors = leaf.stats().snapshot().checksum_errors;
                assert_eq!(errors, u64::from(victims.contains(&child)), "child {child} of {victims:?}");
            }
            assert_eq!(rig.scrub(offset, &data).await.expect("scrub").bad_children, []);
        });
    }
}

#[tokio::test]
async fn a_child_that_fails_to_flush_has_missed_the_group() {
    // A failed flush within redundancy used to be forgotten: what the device then lost was known to nobody.
    for (kind, width, redundancy) in levels() {
        let rig = Rig::new(kind.clone(), width, 12).await;
        let data = Random(3).buf(64 << 10);
        rig.write(1 << 20, &data, 7).await;
        for child in 0..redundancy {
            rig.shelf.faulty[child].inject(Fault::everywhere(FaultKind::FlushError));
        }
        rig.top.flush(Txg(7)).await.expect("redundancy covers it");
        for (child, leaf) in rig.top.leaves().iter().enumerate() {
            assert_eq!(leaf.is_missing(Txg(7)), child < redundancy, "{kind} child {child}");
            assert!(!leaf.is_missing(Txg(6)) && !leaf.is_missing(Txg(8)));
        }
        rig.shelf.faulty[redundancy].inject(Fault::everywhere(FaultKind::FlushError));
        assert!(matches!(rig.top.flush(Txg(8)).await, Err(VdevError::NoReplicas { .. })), "{kind}");
    }
}

#[tokio::test]
async fn a_device_that_went_between_its_writes_and_the_flush_fails_the_flush() {
    // A device without redundancy that disappeared after its last write used to be passed over by the flush, and the
    // uberblock on the other devices would have pointed to what its cache had lost.
    let rig = Rig::new(VdevKind::File, 1, 12).await;
    rig.write(0, &Random(3).buf(4096), 7).await;
    rig.shelf.faulty[0].disappear();
    assert!(rig.top.check_present());
    assert!(matches!(rig.top.flush(Txg(7)).await, Err(VdevError::NoReplicas { .. })));
}

#[tokio::test]
async fn a_repair_says_nothing_of_what_is_away() {
    // A metadata block was mended from another copy while a complete disk was away: all that the block's group had
    // without checksum was then taken for missing on that disk, and could not be read any more when it was back.
    for (kind, width, redundancy) in levels() {
        let rig = Rig::new(kind.clone(), width, 12).await;
        let data = Random(5).buf(40_960);
        rig.write(0, &data, 5).await;
        rig.shelf.faulty[..redundancy].iter().for_each(|device| device.disappear());
        assert!(rig.top.check_present());
        let extent = Extent { offset: 0, psize: 40_960, birth: Txg(5), speculative: false, checked: true };
        rig.top.repair(extent, data.clone(), false).await.expect("enough are there");
        assert!(rig.top.leaves().iter().all(|leaf| !leaf.is_missing(Txg(5))), "{kind}");
        // One that is there and does not take it may have lost what it had.
        rig.shelf.faulty[redundancy].inject(Fault::everywhere(FaultKind::WriteError));
        assert!(rig.top.repair(extent, data, false).await.is_err(), "{kind}");
        for (child, leaf) in rig.top.leaves().iter().enumerate() {
            assert_eq!(leaf.is_missing(Txg(5)), child == redundancy, "{kind} child {child}");
        }
    }
}

#[tokio::test]
async fn a_repair_from_another_copy_writes_nothing_to_a_pool_that_is_read_only() {
    // It used to be tried: the write failed, was counted and made the leaf be probed.
    let rig = Rig::new(VdevKind::File, 1, 12).await;
    let top = platter_vdev::TopVdev::open(&rig.spec, &rig.shelf, false).await.expect("open");
    let extent = Extent { offset: 0, psize: 4096, birth: Txg(3), speculative: false, checked: true };
    assert_eq!(top.repair(extent, Random(1).buf(4096), true).await.expect("nothing to do"), 0);
    assert_eq!(top.leaves()[0].stats().snapshot().write_errors, 0);
    assert_eq!(rig.shelf.faulty[0].transfers().1, 0, "no write reached the device");
}

/// Levels with the sets of children that may be stale at once.
fn stale_sets() -> Vec<(VdevKind, usize, Vec<usize>)> {
    let of = |(kind, width, redundancy): (VdevKind, usize, usize)| {
        let sets = subsets(width, redundancy).into_iter().filter(|set| !set.is_empty());
        sets.map(move |set| (kind.clone(), width, set)).collect::<Vec<_>>()
    };
    levels().into_iter().flat_map(of).collect()
}

/// A disk was away while blocks without checksum were written. Reads took what it held for the truth whenever it was
/// asked, and a resilver computed parity from it and wrote that over the right one; on a mirror it repaired nothing.
#[tokio::test]
async fn what_a_child_missed_of_a_block_without_checksum_is_never_believed() {
    let mut random = Random(21);
    for (kind, width, stale) in stale_sets() {
        for size in [512, 3 << 9, 40 << 10] {
            let rig = Rig::new(kind.clone(), width, 9).await;
            let data = random.buf(size);
            rig.write(0, &data, 7).await;
            let intact = rig.image(0, size as u64);
            let places = rig.places(0, size as u64);
            for place in places.iter().filter(|place| stale.contains(&place.0)) {
                rig.corrupt(*place, &mut random);
            }
            for &child in &stale {
                rig.top.leaves()[child].note_missing(Txg(7));
            }
            let extent = Extent { offset: 0, psize: size as u64, birth: Txg(7), speculative: false, checked: false };
            for _ in 0..2 * width {
                let (bytes, _) = rig.top.read(extent, Priority::SyncRead, &|_: &[u8]| true).await.expect("read");
                assert_eq!(bytes, data, "{kind} {width} {stale:?}");
            }
            let outcome = rig.top.scrub(extent, &|_: &[u8]| true).await.expect("scrub");
            assert_eq!(rig.image(0, size as u64), intact, "{kind} {width} {stale:?} {size}");
            assert_eq!(outcome.unrepaired_bytes, 0);
            for leaf in rig.top.leaves() {
                assert_eq!(leaf.stats().snapshot().checksum_errors, 0, "nobody is blamed");
            }
            assert_eq!(rig.top.scrub(extent, &|_: &[u8]| true).await.expect("again").repaired_bytes, 0);
        }
    }
}

/// More children missed it than redundancy covers (each another block of the group, or all while the pool stood still):
/// what they hold counts only when everything agrees.
#[tokio::test]
async fn when_too_many_missed_a_block_without_checksum_only_agreement_counts() {
    let mut random = Random(22);
    for (kind, width, _) in levels().into_iter().chain([(VdevKind::File, 1, 0)]) {
        let rig = Rig::new(kind.clone(), width, 9).await;
        let data = random.buf(20 << 10);
        rig.write(0, &data, 7).await;
        for leaf in rig.top.leaves() {
            leaf.note_missing(Txg(7));
        }
        let extent = Extent { offset: 0, psize: data.len() as u64, birth: Txg(7), speculative: false, checked: false };
        let (bytes, _) = rig.top.read(extent, Priority::SyncRead, &|_: &[u8]| true).await.expect("read");
        assert_eq!(bytes, data, "{kind} {width}");
        assert_eq!(rig.top.scrub(extent, &|_: &[u8]| true).await.expect("scrub").repaired_bytes, 0);
        if width > 1 {
            rig.corrupt(rig.places(0, data.len() as u64)[1], &mut random);
            let before = rig.image(0, data.len() as u64);
            let error = rig.top.read(extent, Priority::SyncRead, &|_: &[u8]| true).await.expect_err("nobody knows");
            assert!(matches!(error, VdevError::Doubtful { .. }), "{kind}: {error}");
            assert!(rig.top.scrub(extent, &|_: &[u8]| true).await.is_err());
            assert_eq!(rig.image(0, data.len() as u64), before, "nothing is rewritten without proof");
        }
    }
}

/// A repair that the device refused counted as made: at the end of the resilver the device was taken for complete.
#[tokio::test]
async fn a_repair_that_fails_is_told_and_noted() {
    let mut random = Random(23);
    for (kind, width, _) in levels() {
        for by_scrub in [true, false] {
            let rig = Rig::new(kind.clone(), width, 9).await;
            let data = random.buf(40 << 10);
            rig.write(0, &data, 7).await;
            let (child, offset, size) = *rig.places(0, data.len() as u64).last().expect("a place");
            let child = if kind == VdevKind::Mirror { 0 } else { child };
            rig.shelf.memory[child].poke(offset, &vec![0xaa; size]);
            let times = u64::MAX;
            rig.shelf.faulty[child].inject(Fault { kind: FaultKind::WriteError, offset, length: 1, times });
            let leaf = &rig.top.leaves()[child];
            assert!(leaf.begin_scan().is_empty());
            let psize = data.len() as u64;
            let extent = Extent { offset: 0, psize, birth: Txg(7), speculative: false, checked: true };
            if by_scrub {
                let outcome = rig.top.scrub(extent, &|bytes: &[u8]| bytes == &data[..]).await.expect("scrub");
                assert_eq!((outcome.repaired_bytes, outcome.unrepaired_bytes), (0, size as u64), "{kind}");
            } else {
                rig.read_born(0, &data, 7).await.expect("read");
            }
            assert!(leaf.is_missing(Txg(7)) && leaf.is_usable(), "{kind} {by_scrub}");
            // The scan that found it does not take it off the list.
            let mut proven = platter_vdev::MissingRanges::new();
            proven.note_range(Txg(0), Txg(9));
            assert!(leaf.forget(&proven).missing.contains(Txg(7)));
            leaf.begin_scan();
            assert!(leaf.forget(&proven).missing.is_empty());
        }
    }
}

/// A disk that was pulled out and put back within one group has lost what it had in its cache, and looks as before.
#[tokio::test]
async fn a_child_that_was_away_between_two_flushes_has_missed_the_group() {
    let mut random = Random(24);
    let rig = Rig::new(VdevKind::Mirror, 2, 9).await;
    let data = random.buf(4096);
    rig.write(0, &data, 5).await;
    rig.top.flush(Txg(5)).await.expect("flush");
    let leaf = &rig.top.leaves()[0];
    let opening = leaf.opening();
    rig.write(1 << 20, &data, 6).await;
    rig.shelf.faulty[0].disappear();
    assert!(rig.top.check_present());
    assert_eq!(leaf.opening(), None);
    rig.shelf.faulty[0].heal();
    rig.top.reopen_leaf(leaf, &rig.spec.children[0], &rig.shelf).await;
    assert!(leaf.is_usable() && leaf.opening() != opening, "another opening");
    assert!(leaf.missing().is_empty());
    rig.top.flush(Txg(6)).await.expect("flush");
    assert!(leaf.is_missing(Txg(6)) && !rig.top.leaves()[1].is_missing(Txg(6)));
    rig.top.flush(Txg(9)).await.expect("flush");
    assert!(!leaf.is_missing(Txg(9)), "once");
}

/// A log whose blocks were allocated groups ago is flushed in between: the list named groups around those, and none of
/// which something was lost.
#[tokio::test]
async fn a_log_that_is_flushed_says_nothing_of_other_groups() {
    let mut random = Random(25);
    let rig = Rig::new(VdevKind::Mirror, 2, 9).await;
    let leaf = &rig.top.leaves()[0];
    rig.write(0, &random.buf(4096), 50).await;
    rig.shelf.faulty[0].disappear();
    assert!(rig.top.check_present());
    rig.shelf.faulty[0].heal();
    rig.top.reopen_leaf(leaf, &rig.spec.children[0], &rig.shelf).await;
    rig.top.flush_log(Txg(9)).await.expect("flush");
    assert!(leaf.is_missing(Txg(9)) && !leaf.is_missing(Txg(8)) && leaf.is_interrupted());
    rig.top.flush(Txg(50)).await.expect("flush");
    assert!(leaf.is_missing(Txg(50)) && leaf.is_missing(Txg(51)) && !leaf.is_interrupted());
    assert!(!rig.top.leaves()[1].is_missing(Txg(50)), "the other was there");
}

/// The configuration of a tampered pool said that a vdev is larger than its devices, and a block pointer led to where
/// their last labels are: what was taken for a repair was written over these.
#[tokio::test]
async fn a_vdev_that_says_that_it_is_larger_than_its_devices_writes_no_data_into_labels() {
    let rig = Rig::new(VdevKind::Mirror, 2, 9).await;
    let end = rig.top.asize();
    let mut spec = rig.spec.clone();
    (spec.asize, spec.metaslab_shift) = (2 * end, 62);
    let top = platter_vdev::TopVdev::open(&spec, &rig.shelf, true).await.expect("open");
    let mut random = Random(23);
    for (offset, fits) in [(end - 4096, true), (end - 512, false), (end, false), (end + 8192, false)] {
        let written = top.write(offset, random.buf(1024), Txg(7), Priority::AsyncWrite).await;
        assert_eq!(written.is_ok(), fits, "{offset:#x} of {end:#x}");
    }
    let mut labels = vec![0; 512 << 10];
    rig.shelf.memory[0].peek(common::DEVICE_SIZE - (512 << 10), &mut labels);
    assert!(labels.iter().all(|&byte| byte == 0), "labels are as they were");
    assert!(top.leaves().iter().all(|leaf| leaf.is_usable()), "no device is blamed");
}
