//! What every device can do.
//!
//! What every [`BlockDevice`] promises, and whoever calls one relies on:
//! - offsets and lengths are bytes; a transfer lies wholly inside the device or fails without touching anything;
//! - a transfer's memory is owned by the transfer until it is over: dropping the future that waits for it is safe;
//! - what was written before a [`flush`](BlockDevice::flush) began is on stable storage when it returns;
//! - no call blocks the thread that polls it.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use platter_buffer::{Buf, BufMut};

use crate::error::{DeviceError, Operation, Result};
use crate::lease::Lease;
use crate::partition::Partition;
use crate::slot::ReadSlot;

/// Sector sizes of a device, in bytes; they decide the ashift of a new vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Smallest unit that can be transferred (`BLKSSZGET`).
    pub logical_block: u32,
    /// Smallest unit that is written without read-modify-write inside the device (`BLKPBSZGET`).
    pub physical_block: u32,
}

impl Geometry {
    /// What a regular file has: 512-byte sectors (OpenZFS gives files ashift 9).
    pub const FILE: Self = Self { logical_block: 512, physical_block: 512 };

    /// log2 of the logical block size.
    pub fn logical_ashift(&self) -> u8 {
        self.logical_block.max(512).ilog2() as u8
    }

    /// log2 of the physical block size.
    pub fn physical_ashift(&self) -> u8 {
        self.physical_block.max(self.logical_block).max(512).ilog2() as u8
    }
}

/// Whether what a device was opened as still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It does.
    Present,
    /// It does not (a shortened file, a pulled disk); the reason is for a person.
    Gone(String),
    /// It is a file that was deleted: whoever has it open can use it, nobody can open it again. The reason is for a
    /// person.
    Unlinked(String),
}

/// Whether a device can be told that bytes are not needed any more, so that it, or the file system below it, gives up
/// the room that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrimSupport {
    /// It can.
    pub plain: bool,
    /// Also so that nobody finds what was there, in whatever copy the device made of it.
    pub secure: bool,
}

/// How bytes are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimKind {
    /// What is read there afterwards is whatever the device likes.
    Plain,
    /// What was there is gone from the device for good.
    Secure,
}

/// Something with a fixed number of bytes that can be read and written. See the module text.
#[async_trait]
pub trait BlockDevice: Send + Sync + Debug {
    /// What to call the device in messages.
    fn name(&self) -> String;

    /// The path it was opened by, when it has one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Size in bytes.
    fn size(&self) -> u64;

    /// Sector sizes.
    fn geometry(&self) -> Geometry;

    /// Whether writes are accepted.
    fn is_writable(&self) -> bool;

    /// Fills `slots`, one after the other, with the bytes from `offset` on, and gives them back. After a failure
    /// ([`DeviceError::Truncated`] past the end, [`DeviceError::Io`] or [`DeviceError::Gone`] otherwise) their contents
    /// are undefined, and they may be lost.
    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>);

    /// Reads `length` bytes at `offset`.
    ///
    /// # Errors
    /// As [`read_into`](Self::read_into).
    async fn read(&self, offset: u64, length: usize) -> Result<BufMut> {
        let (assembly, slot) = ReadSlot::whole(length);
        let (slots, result) = self.read_into(offset, vec![slot]).await;
        drop(slots);
        result?;
        let bytes = assembly.finish().expect("a finished transfer keeps no slot");
        assert_eq!(bytes.len(), length, "a transfer fills what it was given");
        Ok(bytes)
    }

    /// Writes `data`, one buffer after the other, from `offset` on.
    ///
    /// # Errors
    /// [`DeviceError::ReadOnly`], [`DeviceError::Truncated`] past the end, [`DeviceError::Io`] or
    /// [`DeviceError::Gone`] otherwise. A failed write may have written any part of it.
    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<()>;

    /// Makes every write that returned before this call stable.
    ///
    /// # Errors
    /// [`DeviceError::Io`] or [`DeviceError::Gone`]; the writes may then be lost.
    async fn flush(&self) -> Result<()>;

    /// Whether it can be trimmed, as far as is known.
    fn trim_support(&self) -> TrimSupport {
        TrimSupport::default()
    }

    /// Gives up `length` bytes at `offset`: what is read there until they are written again is anything. Like a write
    /// it is not stable before the next flush, and is over, also inside the device, before what is written there later.
    ///
    /// # Errors
    /// [`DeviceError::NotTrimmable`]; else as [`write`](Self::write). A failed trim may have given up any part.
    async fn trim(&self, _offset: u64, _length: u64, _kind: TrimKind) -> Result<()> {
        Err(DeviceError::NotTrimmable(self.name()))
    }

    /// Looks whether the device has grown, and returns its size from now on, which is never less than before.
    async fn look_at_size(&self) -> u64 {
        self.size()
    }

    /// From now on a write is not handed to the kernel once `lease` has ended: it fails with
    /// [`DeviceError::TooLate`]. A device that hands writes on at once need not look: whoever calls it does.
    fn obey(&self, _lease: &Arc<Lease>) {}

    /// Tells the kernel what partitions the device has now, where it has any part in that.
    fn announce(&self, _partitions: &[&Partition]) {}

    /// What is under way to it, where that is counted.
    fn traffic(&self) -> Option<TrafficCount> {
        None
    }

    /// Parts from it for good, where that is possible ([`crate::Cutoff`]): whoever waits for a transfer is told so, as
    /// is who begins one. What the kernel has taken may still land.
    fn part(&self, _reason: &str) {}

    /// A cheap look whether the device is still there. Does not block on I/O to the device itself.
    fn presence(&self) -> Presence {
        Presence::Present
    }
}

/// Transfers of a device, of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Those that have begun and not ended.
    pub under_way: u64,
    /// Those that came to an end since it was opened, well or not.
    pub ended: u64,
}

/// Transfers of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCount {
    /// Reads.
    pub reads: Count,
    /// Writes, flushes and trims.
    pub writes: Count,
}

/// Checks that `length` bytes at `offset` lie within a device of `size` bytes.
///
/// # Errors
/// [`DeviceError::Truncated`] when they do not.
pub fn check_range(
    device: impl FnOnce() -> String,
    operation: Operation,
    offset: u64,
    length: usize,
    size: u64,
) -> Result<()> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(DeviceError::Truncated { device: device(), operation, offset, length: length as u64, size }),
    }
}
