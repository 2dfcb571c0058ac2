//! One object: its dnode, its dirty blocks per transaction group, and reading and writing its contents
//! (`module/zfs/dnode.c`, `module/zfs/dbuf.c`).

use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::ObjectId;
use platter_zio::{Priority, Result, Tx};

use crate::objset::Objset;

/// What a new object is made of.
#[derive(Clone, Debug)]
pub struct NewDnode {
    /// `dmu_object_type_t`.
    pub object_type: u8,
    /// Data block size in bytes: a multiple of 512, 512 B..16 MiB.
    pub block_size: u32,
    /// log2 of the indirect block size; 17 (128 KiB) in general.
    pub indirect_shift: u8,
    /// `dmu_object_type_t` of the bonus; 0 for none.
    pub bonus_type: u8,
    /// Bonus bytes in use.
    pub bonus_length: u16,
    /// Dnode size in bytes (512..16384); 0 takes the object set's default.
    pub dnode_size: u32,
}

/// Facts about an object for `stat` and friends.
#[derive(Clone, Debug)]
pub struct DnodeInfo {
    /// `dmu_object_type_t`.
    pub object_type: u8,
    /// Bonus type.
    pub bonus_type: u8,
    /// Data block size, bytes.
    pub block_size: u32,
    /// Levels of the block tree.
    pub levels: u8,
    /// Index of the last data block.
    pub max_blkid: u64,
    /// Allocated bytes on disk (as of the last sync).
    pub used: u64,
    /// Dnode size in bytes.
    pub dnode_size: u32,
    /// Indirect block shift.
    pub indirect_shift: u8,
}

/// An open object.
pub struct Dnode {
    /// State of the ZAP in this object, when it is one.
    zap: crate::zap::Shared,
}

impl Dnode {
    /// What the [`Zap`](crate::zap::Zap)s over this object share (starts as `Default::default()`).
    pub(crate) fn zap_state(&self) -> &crate::zap::Shared {
        &self.zap
    }

    /// Its number.
    pub fn object(&self) -> ObjectId {
        todo!()
    }

    /// Its object set.
    pub fn objset(&self) -> Arc<Objset> {
        todo!()
    }

    /// Current facts (open context: pending changes included, except `used`).
    pub fn info(&self) -> DnodeInfo {
        todo!()
    }

    /// Data block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.info().block_size
    }

    /// Fills `out` from byte `offset`; holes and what lies past the end read as zeros.
    pub async fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let _ = (offset, out);
        todo!()
    }

    /// The newest contents of data block `blkid` (zeros for a hole), always one block long, without copying.
    pub async fn read_block(&self, blkid: u64, priority: Priority) -> Result<Buf> {
        let _ = (blkid, priority);
        todo!()
    }

    /// Starts reading blocks `blkid..blkid+count` into the cache; returns at once.
    pub fn prefetch(self: &Arc<Self>, blkid: u64, count: u64) {
        let _ = (blkid, count);
    }

    /// Writes `data` at byte `offset`. Grows the tree as needed. Does not grow the block size.
    pub async fn write(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        let _ = (tx, offset, data);
        todo!()
    }

    /// Replaces whole block `blkid` with `data` (exactly one block), without copying.
    pub async fn write_block(&self, tx: &Tx, blkid: u64, data: Buf) -> Result<()> {
        let _ = (tx, blkid, data);
        todo!()
    }

    /// Makes bytes `offset..offset+length` read as zeros and frees whole blocks inside; `length` of `u64::MAX` means to
    /// the end (and `max_blkid` shrinks).
    pub async fn free_range(&self, tx: &Tx, offset: u64, length: u64) -> Result<()> {
        let _ = (tx, offset, length);
        todo!()
    }

    /// The next byte offset at or after `offset` that is data (`hole == false`) or hole (`hole == true`), at block
    /// granularity; `None` when there is none below the last block.
    pub async fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let _ = (offset, hole);
        todo!()
    }

    /// Changes the data block size (bytes); allowed only while at most block 0 exists. Existing data is kept.
    pub async fn set_block_size(&self, tx: &Tx, size: u32) -> Result<()> {
        let _ = (tx, size);
        todo!()
    }

    /// The bonus bytes, newest.
    pub fn bonus(&self) -> Vec<u8> {
        todo!()
    }

    /// Bytes the bonus may take (smaller while a spill block exists).
    pub fn bonus_capacity(&self, with_spill: bool) -> usize {
        let _ = with_spill;
        todo!()
    }

    /// Replaces the bonus with `bytes` (its new length) of type `bonus_type`.
    pub fn set_bonus(&self, tx: &Tx, bonus_type: u8, bytes: &[u8]) -> Result<()> {
        let _ = (tx, bonus_type, bytes);
        todo!()
    }

    /// The spill block's contents, newest.
    pub async fn spill(&self) -> Result<Option<Buf>> {
        todo!()
    }

    /// Replaces or removes the spill block (`Some`: length a multiple of 512, at most 128 KiB).
    pub fn set_spill(&self, tx: &Tx, data: Option<Buf>) -> Result<()> {
        let _ = (tx, data);
        todo!()
    }
}
