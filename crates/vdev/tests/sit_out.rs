//! A RAID-Z group reads around a device that sits out, and has one sit that is far slower than the others.

mod common;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use common::{DEVICE_SIZE, Random};
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Geometry, MemDevice, ReadSlot};
use platter_ondisk::label::VDEV_LABEL_START_SIZE;
use platter_ondisk::{Guid, Txg};
use platter_vdev::sit_out::{INTERVAL, SIT_OUT};
use platter_vdev::{
    Condition, DeviceOpener, Extent, LeafTrouble, OpenError, Priority, TopVdev, VdevAux, VdevKind, VdevSpec, VdevState,
};

/// A device that takes its time to read, and counts what it is asked for behind its labels.
#[derive(Debug)]
struct SlowDevice {
    inner: MemDevice,
    late: Mutex<Duration>,
    reads: Mutex<usize>,
}

#[async_trait]
impl BlockDevice for SlowDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn is_writable(&self) -> bool {
        true
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        *self.reads.lock() += 1;
        let late = *self.late.lock();
        tokio::time::sleep(late).await;
        self.inner.read_into(offset, slots).await
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        self.inner.write(offset, data).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush().await
    }
}

struct Shelf(Vec<Arc<SlowDevice>>);

#[async_trait]
impl DeviceOpener for Shelf {
    async fn open(&self, spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(self.0[spec.id as usize].clone())
    }
}

/// A group with blocks of several sizes on it.
struct Rig {
    shelf: Shelf,
    top: TopVdev,
    blocks: Vec<(u64, Buf)>,
    /// The devices that began to sit out by themselves.
    sat: Arc<Mutex<Vec<String>>>,
}

const FAST: Duration = Duration::from_micros(200);
const SLOW: Duration = Duration::from_millis(100);

impl Rig {
    async fn new(parity: u8, width: usize) -> Self {
        let device = |index| {
            let inner = MemDevice::new(format!("d{index}"), DEVICE_SIZE);
            Arc::new(SlowDevice { inner, late: Mutex::new(FAST), reads: Mutex::default() })
        };
        let shelf = Shelf((0..width).map(device).collect());
        let top = TopVdev::open(&common::spec(VdevKind::Raidz { parity }, width, 9), &shelf, true).await.expect("open");
        let sat: Arc<Mutex<Vec<String>>> = Arc::default();
        for (index, leaf) in top.leaves().iter().enumerate() {
            leaf.set_guid(Guid(index as u64 + 1));
            let sat = sat.clone();
            leaf.set_listener(Box::new(move |leaf, trouble| {
                if let LeafTrouble::SitsOut { time } = trouble {
                    assert_eq!(*time, SIT_OUT);
                    sat.lock().push(leaf.name());
                }
            }));
        }
        let (mut random, mut offset, mut blocks) = (Random(7), 0, Vec::new());
        for size in [512, 1536, 4096, 8704, 100 << 10, 128 << 10].into_iter().cycle().take(48) {
            let data = random.buf(size);
            top.write(offset, data.clone(), Txg(1), Priority::AsyncWrite).await.expect("write");
            offset += top.asize_for(size as u64);
            blocks.push((offset - top.asize_for(size as u64), data));
        }
        Self { shelf, top, blocks, sat }
    }

    fn extent((offset, data): &(u64, Buf)) -> Extent {
        Extent { offset: *offset, psize: data.len() as u64, birth: Txg(1), speculative: false, checked: true }
    }

    /// Reads everything, and compares. How many reads each device had, and how long it took.
    async fn read_all(&self) -> (Vec<usize>, Duration) {
        let (before, began) = (self.reads(), tokio::time::Instant::now());
        for block in &self.blocks {
            let check = |bytes: &[u8]| bytes == &block.1[..];
            let (bytes, outcome) =
                self.top.read(Self::extent(block), Priority::SyncRead, &check).await.expect("it can be read");
            assert_eq!(bytes, block.1);
            assert!(outcome.bad_children.is_empty() && outcome.repaired_bytes == 0, "{outcome:?}");
        }
        let after = self.reads().into_iter().zip(before).map(|(after, before)| after - before).collect();
        (after, began.elapsed())
    }

    fn reads(&self) -> Vec<usize> {
        self.shelf.0.iter().map(|device| *device.reads.lock()).collect()
    }

    fn slow(&self, index: usize, late: Duration) {
        *self.shelf.0[index].late.lock() = late;
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_sits_out_is_not_read_and_everything_is_right_all_the_same() {
    for (parity, width) in [(1, 3), (1, 6), (2, 7), (3, 8)] {
        let rig = Rig::new(parity, width).await;
        let usual = rig.read_all().await.0;
        assert!(usual.iter().filter(|reads| **reads > 0).count() > usize::from(parity), "{usual:?}");
        for (index, leaf) in rig.top.leaves().iter().enumerate() {
            leaf.sit_out();
            assert_eq!(rig.read_all().await.0[index], 0, "raidz{parity} of {width}, device {index}");
            leaf.end_sit_out();
        }
        // As many as there is parity; with more nobody can be done without.
        for leaf in &rig.top.leaves()[..usize::from(parity)] {
            assert!(!rig.top.has_sitting_out_without(leaf));
            leaf.sit_out();
        }
        assert!(rig.top.has_sitting_out_without(&rig.top.leaves()[width - 1]));
        let (reads, _) = rig.read_all().await;
        assert!(reads[..usize::from(parity)].iter().all(|reads| *reads == 0), "{reads:?}");
        rig.top.leaves().iter().for_each(|leaf| leaf.sit_out());
        assert!(rig.read_all().await.0.iter().sum::<usize>() > 0, "they are read all the same");
        rig.top.clear_errors();
        assert!(rig.top.leaves().iter().all(|leaf| !leaf.sits_out()), "zpool clear ends it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_sits_out_is_read_when_it_is_needed_and_by_a_scrub() {
    let rig = Rig::new(2, 6).await;
    let leaves = rig.top.leaves();
    leaves[2].sit_out();
    // What another device holds is damaged: parity alone is not enough for both, and so the one that sits is asked.
    let (block, places) = rig
        .blocks
        .iter()
        .find_map(|block| {
            let map = platter_vdev::raidz_map::RaidzMap::new(block.0, block.1.len() as u64, 9, 6, 2);
            let columns: Vec<_> = map.data().iter().map(|column| (column.child, column.offset)).collect();
            (columns.len() == 4 && columns.iter().any(|(child, _)| *child == 2)).then_some((block, columns))
        })
        .expect("a block on device 2");
    let hurt: Vec<_> = places.iter().filter(|(child, _)| *child != 2).take(2).collect();
    for (child, offset) in &hurt {
        rig.shelf.0[*child].inner.poke(VDEV_LABEL_START_SIZE + offset, &[0xaa; 512]);
    }
    let before = rig.reads()[2];
    let check = |bytes: &[u8]| bytes == &block.1[..];
    let (bytes, outcome) = rig.top.read(Rig::extent(block), Priority::SyncRead, &check).await.expect("it is rebuilt");
    assert_eq!((&bytes, outcome.bad_children.len()), (&block.1, 2), "{outcome:?}");
    assert!(rig.reads()[2] > before, "it was needed");
    assert_eq!(leaves[2].stats().snapshot().checksum_errors, 0, "it is not to blame");
    assert_eq!(rig.read_all().await.0[2], 0);
    let before = rig.reads()[2];
    rig.top.scrub(Rig::extent(block), &check).await.expect("scrub");
    assert!(rig.reads()[2] > before, "a scrub reads everything");
    // While anything is missing of the group, nobody sits.
    leaves[5].close(Condition::new(VdevState::Offline, VdevAux::None));
    assert!(rig.read_all().await.0[2] > 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_far_slower_sits_out_for_ten_minutes_and_is_tried_again() {
    let rig = Rig::new(1, 6).await;
    rig.slow(4, SLOW);
    for _ in 0..20 {
        rig.read_all().await;
        tokio::time::sleep(INTERVAL).await;
    }
    assert!(rig.sat.lock().is_empty(), "nobody asked for it");
    rig.top.set_autosit(true);
    let (reads, slow) = rig.read_all().await;
    assert!(reads[4] > 0 && slow > 10 * SLOW, "{reads:?} {slow:?}");
    let mut rounds = 0;
    while rig.sat.lock().is_empty() {
        rig.read_all().await;
        tokio::time::sleep(INTERVAL).await;
        rounds += 1;
        assert!(rounds < 30, "it is found in half a minute");
    }
    assert_eq!(*rig.sat.lock(), ["d4"]);
    assert_eq!(rig.top.leaves()[4].histograms().slow(), 1);
    let (reads, quick) = rig.read_all().await;
    assert!(reads[4] == 0 && quick < slow / 10, "{reads:?} {quick:?}");
    // It is as slow as ever: tried again after its time, and found again.
    tokio::time::sleep(SIT_OUT).await;
    assert!(rig.read_all().await.0[4] > 0);
    for _ in 0..30 {
        rig.read_all().await;
        tokio::time::sleep(INTERVAL).await;
    }
    assert_eq!(*rig.sat.lock(), ["d4", "d4"]);
    // Another one is slower now, but there is parity for one.
    rig.slow(1, 10 * SLOW);
    for _ in 0..30 {
        rig.read_all().await;
        tokio::time::sleep(INTERVAL).await;
    }
    assert_eq!(rig.sat.lock().len(), 2);
    // Healed: it is read again and stays.
    rig.slow(1, FAST);
    rig.slow(4, FAST);
    tokio::time::sleep(SIT_OUT).await;
    for _ in 0..30 {
        assert!(rig.read_all().await.0[4] > 0);
        tokio::time::sleep(INTERVAL).await;
    }
    assert_eq!(rig.sat.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nobody_sits_out_by_itself_while_the_group_is_degraded() {
    let rig = Rig::new(2, 7).await;
    rig.top.set_autosit(true);
    rig.top.leaves()[0].close(Condition::new(VdevState::Offline, VdevAux::None));
    rig.slow(3, SLOW);
    for _ in 0..60 {
        rig.read_all().await;
        tokio::time::sleep(INTERVAL).await;
    }
    assert!(rig.sat.lock().is_empty());
}
