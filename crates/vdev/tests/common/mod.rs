//! A top-level vdev on devices in memory whose faults a test controls.
#![allow(dead_code)]

use std::sync::Arc;

use async_trait::async_trait;
use platter_buffer::Buf;
use platter_device::{BlockDevice, FaultDevice, MemDevice};
use platter_ondisk::Txg;
use platter_ondisk::label::VDEV_LABEL_START_SIZE as LABEL_START_SIZE;
use platter_vdev::Priority;
use platter_vdev::raidz_map::RaidzMap;
use platter_vdev::{DeviceOpener, Extent, OpenError, TopVdev, VdevKind, VdevSpec};

pub const DEVICE_SIZE: u64 = 128 << 20;

/// The devices, by the number in their leaf's path.
pub struct Shelf {
    pub memory: Vec<Arc<MemDevice>>,
    pub faulty: Vec<Arc<FaultDevice>>,
}

#[async_trait]
impl DeviceOpener for Shelf {
    async fn open(&self, spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(self.faulty[spec.id as usize].clone())
    }
}

pub struct Rig {
    pub shelf: Shelf,
    pub spec: VdevSpec,
    pub top: TopVdev,
}

pub fn spec(kind: VdevKind, width: usize, ashift: u8) -> VdevSpec {
    let leaves = (0..width).map(|index| VdevSpec::leaf(VdevKind::File, format!("d{index}"))).collect();
    let mut spec = if kind.is_leaf() { VdevSpec::leaf(kind, "d0") } else { VdevSpec::parent(kind, leaves) };
    spec.ashift = ashift;
    spec
}

impl Rig {
    pub async fn new(kind: VdevKind, width: usize, ashift: u8) -> Self {
        let memory: Vec<_> =
            (0..width).map(|index| Arc::new(MemDevice::new(format!("d{index}"), DEVICE_SIZE))).collect();
        let faulty = memory.iter().map(|device| Arc::new(FaultDevice::new(device.clone()))).collect();
        let shelf = Shelf { memory, faulty };
        let spec = spec(kind, width, ashift);
        let top = TopVdev::open(&spec, &shelf, true).await.expect("open");
        Self { shelf, spec, top }
    }

    pub async fn write(&self, offset: u64, data: &Buf, txg: u64) {
        self.top.write(offset, data.clone(), Txg(txg), Priority::AsyncWrite).await.expect("write");
    }

    pub async fn read(&self, offset: u64, data: &Buf) -> platter_vdev::Result<platter_vdev::ReadOutcome> {
        self.read_born(offset, data, 1).await
    }

    pub async fn read_born(
        &self,
        offset: u64,
        data: &Buf,
        birth: u64,
    ) -> platter_vdev::Result<platter_vdev::ReadOutcome> {
        let extent = Extent { offset, psize: data.len() as u64, birth: Txg(birth), speculative: false, checked: true };
        let (bytes, outcome) = self.top.read(extent, Priority::SyncRead, &|bytes: &[u8]| bytes == &data[..]).await?;
        assert_eq!(&bytes, data, "a read that succeeds returns what passed");
        Ok(outcome)
    }

    pub async fn scrub(&self, offset: u64, data: &Buf) -> platter_vdev::Result<platter_vdev::ScrubOutcome> {
        let extent = Extent { offset, psize: data.len() as u64, birth: Txg(1), speculative: false, checked: true };
        self.top.scrub(extent, &|bytes: &[u8]| bytes == &data[..]).await
    }

    /// Where a block lies: (child, offset on the device, bytes).
    pub fn places(&self, offset: u64, psize: u64) -> Vec<(usize, u64, usize)> {
        let padded = psize.next_multiple_of(1 << self.top.ashift());
        let width = self.top.leaves().len();
        match self.top.layout() {
            platter_vdev::Layout::Raidz { parity } => RaidzMap::new(offset, padded, self.top.ashift(), width, parity)
                .columns
                .iter()
                .map(|column| (column.child, LABEL_START_SIZE + column.offset, column.size))
                .collect(),
            _ => (0..width).map(|child| (child, LABEL_START_SIZE + offset, padded as usize)).collect(),
        }
    }

    /// Changes some bytes of a place, at least one.
    pub fn corrupt(&self, (child, offset, size): (usize, u64, usize), random: &mut Random) {
        let length = 1 + random.below(size as u64) as usize;
        let start = offset + random.below((size - length) as u64 + 1);
        let mut bytes = vec![0; length];
        self.shelf.memory[child].peek(start, &mut bytes);
        for byte in &mut bytes {
            *byte ^= random.next() as u8;
        }
        bytes[0] ^= 1;
        let mut old = vec![0; length];
        self.shelf.memory[child].peek(start, &mut old);
        if old == bytes {
            bytes[0] ^= 1;
        }
        self.shelf.memory[child].poke(start, &bytes);
    }

    /// Bytes of every device that belong to a block.
    pub fn image(&self, offset: u64, psize: u64) -> Vec<Vec<u8>> {
        self.places(offset, psize)
            .into_iter()
            .map(|(child, offset, size)| {
                let mut bytes = vec![0; size];
                self.shelf.memory[child].peek(offset, &mut bytes);
                bytes
            })
            .collect()
    }
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn buf(&mut self, length: usize) -> Buf {
        let words: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        Buf::copy_from(&words[..length])
    }
}

/// Every set of at most `most` of `0..total`.
pub fn subsets(total: usize, most: usize) -> Vec<Vec<usize>> {
    (0u32..1 << total)
        .filter(|mask| mask.count_ones() as usize <= most)
        .map(|mask| (0..total).filter(|index| mask >> index & 1 == 1).collect())
        .collect()
}
