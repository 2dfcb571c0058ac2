//! A device that misbehaves on purpose.
//!
//! Invariant: what it does is decided by its list of faults and the bytes asked for, never by chance or time, so that a
//! failing test fails again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::{Buf, BufMut};

use crate::block_device::{BlockDevice, Geometry, Presence, TrimKind, TrimSupport};
use crate::error::{DeviceError, Operation, Result};
use crate::lease::Lease;
use crate::slot::ReadSlot;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Reads fail with EIO.
    ReadError,
    /// Writes fail with EIO.
    WriteError,
    /// Reads return bytes that differ from what was written (the device reports success). The seed chooses how.
    Corrupt(u64),
    /// Writes report success and change nothing.
    LostWrite,
    /// Flushes fail with EIO (the range does not matter).
    FlushError,
    /// Trims fail with EIO.
    TrimError,
}

/// A fault in a range of the device.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// First byte concerned.
    pub offset: u64,
    /// Bytes concerned.
    pub length: u64,
    /// How many transfers it hits before it is spent; `u64::MAX` for all.
    pub times: u64,
}

impl Fault {
    /// A fault that hits every transfer of the whole device.
    pub const fn everywhere(kind: FaultKind) -> Self {
        Self { kind, offset: 0, length: u64::MAX, times: u64::MAX }
    }

    fn hits(&self, offset: u64, length: u64) -> bool {
        offset < self.offset.saturating_add(self.length) && self.offset < offset.saturating_add(length)
    }
}

/// Wraps a device and injects faults. Counts the transfers that reach it.
#[derive(Debug)]
pub struct FaultDevice {
    inner: Arc<dyn BlockDevice>,
    faults: Mutex<Vec<Fault>>,
    gone: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

impl FaultDevice {
    /// A device without faults yet.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            faults: Mutex::default(),
            gone: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
        }
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.faults.lock().push(fault);
    }

    /// Adds `count` corrupt stretches of up to `longest` bytes each, spread by `seed` over `offset .. offset + length`.
    pub fn inject_seeded(&self, seed: u64, count: usize, offset: u64, length: u64, longest: u64) {
        let mut state = seed;
        for _ in 0..count {
            let start = offset + next(&mut state) % length.max(1);
            let extent = 1 + next(&mut state) % longest.max(1);
            let kind = FaultKind::Corrupt(next(&mut state));
            self.inject(Fault { kind, offset: start, length: extent, times: u64::MAX });
        }
    }

    /// Removes all faults, and brings a disappeared device back.
    pub fn heal(&self) {
        self.faults.lock().clear();
        self.gone.store(false, Ordering::SeqCst);
    }

    /// From now on every transfer fails as if the device had been pulled out.
    pub fn disappear(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Reads, writes and flushes that were asked for so far.
    pub fn transfers(&self) -> (u64, u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (count(&self.reads), count(&self.writes), count(&self.flushes))
    }

    fn check_present(&self) -> Result<()> {
        if self.gone.load(Ordering::SeqCst) {
            return Err(DeviceError::Gone { device: self.name(), reason: "injected".into() });
        }
        Ok(())
    }

    /// The faults that hit a transfer, each used once more.
    fn hit(&self, offset: u64, length: u64, wanted: impl Fn(FaultKind) -> bool) -> Vec<Fault> {
        let mut faults = self.faults.lock();
        let mut hits = Vec::new();
        for fault in faults.iter_mut().filter(|f| wanted(f.kind) && f.hits(offset, length)) {
            if fault.times != u64::MAX {
                fault.times -= 1;
            }
            hits.push(*fault);
        }
        faults.retain(|fault| fault.times > 0);
        hits
    }

    fn eio(&self, operation: Operation, offset: u64, length: u64) -> DeviceError {
        let source = Arc::new(std::io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        DeviceError::Io { device: self.name(), operation, offset, length, source }
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[async_trait]
impl BlockDevice for FaultDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    async fn look_at_size(&self) -> u64 {
        self.inner.look_at_size().await
    }

    async fn read_into(&self, offset: u64, mut slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if let Err(error) = self.check_present() {
            return (slots, Err(error));
        }
        let length: usize = slots.iter().map(|slot| slot.len()).sum();
        let hits = self.hit(offset, length as u64, |kind| matches!(kind, FaultKind::ReadError | FaultKind::Corrupt(_)));
        if hits.iter().any(|fault| fault.kind == FaultKind::ReadError) {
            return (slots, Err(self.eio(Operation::Read, offset, length as u64)));
        }
        if hits.is_empty() {
            return self.inner.read_into(offset, slots).await;
        }
        let mut bytes: BufMut = match self.inner.read(offset, length).await {
            Ok(bytes) => bytes,
            Err(error) => return (slots, Err(error)),
        };
        for fault in hits {
            let FaultKind::Corrupt(seed) = fault.kind else { continue };
            for (index, byte) in bytes.iter_mut().enumerate() {
                let position = offset + index as u64;
                if position >= fault.offset && position - fault.offset < fault.length {
                    // Never zero, so every byte of the range differs.
                    *byte ^= (next(&mut (seed ^ position)) as u8) | 1;
                }
            }
        }
        let mut rest: &[u8] = &bytes;
        for slot in &mut slots {
            let (part, after) = rest.split_at(slot.len());
            slot.copy_from_slice(part);
            rest = after;
        }
        (slots, Ok(()))
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.check_present()?;
        let length = data.iter().map(|buf| buf.len() as u64).sum();
        let hits = self.hit(offset, length, |kind| matches!(kind, FaultKind::WriteError | FaultKind::LostWrite));
        if hits.iter().any(|fault| fault.kind == FaultKind::WriteError) {
            return Err(self.eio(Operation::Write, offset, length));
        }
        if hits.is_empty() { self.inner.write(offset, data).await } else { Ok(()) }
    }

    async fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.check_present()?;
        if !self.hit(0, u64::MAX, |kind| kind == FaultKind::FlushError).is_empty() {
            return Err(self.eio(Operation::Flush, 0, 0));
        }
        self.inner.flush().await
    }

    fn trim_support(&self) -> TrimSupport {
        self.inner.trim_support()
    }

    async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<()> {
        self.check_present()?;
        if !self.hit(offset, length, |kind| kind == FaultKind::TrimError).is_empty() {
            return Err(self.eio(Operation::Trim, offset, length));
        }
        self.inner.trim(offset, length, kind).await
    }

    fn obey(&self, lease: &Arc<Lease>) {
        self.inner.obey(lease);
    }

    fn presence(&self) -> Presence {
        match self.check_present() {
            Ok(()) => self.inner.presence(),
            Err(_) => Presence::Gone("the device was removed".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    #[tokio::test]
    async fn faults_hit_their_range_as_often_as_told() {
        let device = FaultDevice::new(Arc::new(MemDevice::new("m", 1 << 20)));
        device.inject(Fault { kind: FaultKind::ReadError, offset: 4096, length: 1, times: 1 });
        device.inject(Fault { kind: FaultKind::Corrupt(7), offset: 8192, length: 10, times: u64::MAX });
        assert!(device.read(0, 4096).await.is_ok());
        assert!(device.read(0, 4097).await.is_err());
        assert!(device.read(0, 4097).await.is_ok());
        for _ in 0..2 {
            let bytes = device.read(8000, 1000).await.expect("read");
            let wrong: Vec<usize> = (0..1000).filter(|&i| bytes[i] != 0).collect();
            assert_eq!(wrong, (192..202).collect::<Vec<_>>());
        }
        device.inject(Fault::everywhere(FaultKind::LostWrite));
        device.write(0, vec![Buf::copy_from(&[1; 512])]).await.expect("lost");
        device.heal();
        assert!(device.read(0, 512).await.expect("read").iter().all(|&b| b == 0));
        device.disappear();
        assert!(device.read(0, 512).await.is_err() && device.flush().await.is_err());
    }
}
