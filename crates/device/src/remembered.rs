//! A device whose bytes are read once, however often they are asked for: who wants to know what a device is looks at
//! the same few places many times, which on a disk with heads takes a seek each.
//!
//! Invariants:
//! - it is for looking alone: nothing can be written through it, and what somebody else writes is not seen;
//! - of a part that could not be read as a whole each read is as it was asked for: the device tries a bad place no more
//!   often than without this;
//! - no more than [`PARTS_MAX`] parts are remembered.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;

use crate::block_device::{BlockDevice, Geometry, Presence, check_range};
use crate::error::{DeviceError, Operation, Result};
use crate::slot::ReadSlot;

/// What is read and remembered as one: bytes, at multiples of as many.
const PART: u64 = 64 << 10;
/// Most parts that are remembered: 8 MiB.
const PARTS_MAX: usize = 128;

/// See the module text.
#[derive(Debug)]
pub struct Remembered {
    inner: Arc<dyn BlockDevice>,
    size: u64,
    /// By number; none for what could not be read.
    parts: Mutex<BTreeMap<u64, Option<Buf>>>,
}

impl Remembered {
    /// A device of which nothing is known yet.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { size: inner.size(), inner, parts: Mutex::default() }
    }

    /// The parts of which bytes `offset .. end` are made, in order; those that are not known are read, neighbours in
    /// one piece. `None` when they do not let themselves be read whole, or are too many.
    async fn parts(&self, offset: u64, end: u64) -> Option<Vec<Buf>> {
        let numbers = offset / PART..end.div_ceil(PART);
        let mut unknown: Vec<u64> = {
            let known = self.parts.lock();
            let unknown: Vec<u64> = numbers.clone().filter(|number| !known.contains_key(number)).collect();
            if known.len() + unknown.len() > PARTS_MAX {
                return None;
            }
            unknown
        };
        while let Some(&first) = unknown.first() {
            let count = (first..).zip(&unknown).take_while(|(number, other)| number == *other).count();
            unknown.drain(..count);
            let (start, end) = (first * PART, ((first + count as u64) * PART).min(self.size));
            let read = self.inner.read(start, (end - start) as usize).await;
            let mut known = self.parts.lock();
            let Ok(bytes) = read else {
                known.extend((first..first + count as u64).map(|number| (number, None)));
                return None;
            };
            let bytes = bytes.freeze();
            let starts = (0..bytes.len()).step_by(PART as usize);
            let parts = starts.map(|at| Some(bytes.slice(at..bytes.len().min(at + PART as usize))));
            known.extend((first..).zip(parts));
        }
        let known = self.parts.lock();
        numbers.map(|number| known.get(&number).cloned().flatten()).collect()
    }
}

#[async_trait]
impl BlockDevice for Remembered {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn is_writable(&self) -> bool {
        false
    }

    async fn read_into(&self, offset: u64, mut slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
        let total = slots.iter().map(|slot| slot.len()).sum();
        if let Err(error) = check_range(|| self.name(), Operation::Read, offset, total, self.size) {
            return (slots, Err(error));
        }
        let Some(parts) = self.parts(offset, offset + total as u64).await else {
            return self.inner.read_into(offset, slots).await;
        };
        let mut at = (offset % PART) as usize;
        for slot in &mut slots {
            let mut rest = &mut slot[..];
            while !rest.is_empty() {
                let bytes = &parts[at / PART as usize][at % PART as usize..];
                let (now, later) = rest.split_at_mut(bytes.len().min(rest.len()));
                now.copy_from_slice(&bytes[..now.len()]);
                at += now.len();
                rest = later;
            }
        }
        (slots, Ok(()))
    }

    async fn write(&self, _offset: u64, _data: Vec<Buf>) -> Result<()> {
        Err(DeviceError::ReadOnly(self.name()))
    }

    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, FaultDevice, FaultKind};
    use crate::memory::MemDevice;

    /// Of a size that is no multiple of a part's.
    const SIZE: u64 = (16 << 20) + 4096;

    fn device() -> (Arc<MemDevice>, Arc<FaultDevice>, Remembered) {
        let memory = Arc::new(MemDevice::new("d", SIZE));
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 512 % 251) as u8).collect();
        memory.poke(0, &bytes);
        let counted = Arc::new(FaultDevice::new(memory.clone()));
        (memory, counted.clone(), Remembered::new(counted))
    }

    #[tokio::test]
    async fn every_part_is_read_once_and_right() {
        let (memory, counted, device) = device();
        for (offset, length) in
            [(0, 262_144), (512, 512), (262_144, 262_144), (SIZE - 512, 512), (SIZE - 70_000, 70_000), (65_535, 2)]
        {
            let mut there = vec![0; length];
            memory.peek(offset, &mut there);
            assert!(*device.read(offset, length).await.expect("read") == there[..], "{length} bytes at {offset}");
        }
        assert_eq!(counted.transfers().0, 4, "two labels, the last part, and the one before");
        let refused = device.write(0, vec![Buf::copy_from(&[1; 512])]).await;
        assert!(matches!(refused, Err(DeviceError::ReadOnly(_))) && !device.is_writable());
        assert!(matches!(device.read(SIZE, 512).await, Err(DeviceError::Truncated { .. })));
    }

    #[tokio::test]
    async fn a_bad_sector_costs_only_who_asks_for_it() {
        let (memory, counted, device) = device();
        counted.inject(Fault { kind: FaultKind::ReadError, offset: 8192, length: 512, times: u64::MAX });
        let mut there = [0; 512];
        memory.peek(4096, &mut there);
        assert!(*device.read(4096, 512).await.expect("another sector") == there);
        assert!(device.read(8192, 512).await.is_err());
        let before = counted.transfers().0;
        assert!(*device.read(4096, 512).await.expect("another sector") == there);
        assert_eq!(counted.transfers().0, before + 1, "the part as a whole is not tried again");
        counted.heal();
        assert!(device.read(8192, 512).await.is_ok(), "that it failed is not remembered");
    }

    #[tokio::test]
    async fn what_is_remembered_is_limited() {
        let (_, counted, device) = device();
        for offset in (0..16 << 20).step_by(1 << 20) {
            device.read(offset, 1 << 20).await.expect("read");
        }
        assert_eq!(device.parts.lock().len(), PARTS_MAX);
        let before = counted.transfers().0;
        device.read(0, 1 << 20).await.expect("read");
        assert_eq!(counted.transfers().0, before);
        device.read(15 << 20, 1 << 20).await.expect("read");
        assert_eq!(counted.transfers().0, before + 1);
    }
}
