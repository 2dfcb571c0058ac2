//! A list of block pointers in an object (`module/zfs/bpobj.c`): deferred frees, deadlists.

use std::sync::Arc;

use platter_ondisk::{BlkPtr, ObjectId};
use platter_zio::{Result, Tx};

use crate::objset::Objset;

/// Totals of a list: bytes used, compressed, uncompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpobjSpace {
    /// Deflated bytes.
    pub used: u64,
    /// Physical bytes.
    pub compressed: u64,
    /// Logical bytes.
    pub uncompressed: u64,
    /// Pointers, those of sub-lists included where known.
    pub count: u64,
}

/// An open list.
pub struct Bpobj {
    _private: (),
}

impl Bpobj {
    /// Allocates an empty list object (`block_size` bytes a block; 128 KiB in OpenZFS's use) and returns its number.
    pub async fn create(mos: &Arc<Objset>, tx: &Tx, block_size: u32) -> Result<ObjectId> {
        let _ = (mos, tx, block_size);
        todo!()
    }

    /// Opens list `object`.
    pub async fn open(mos: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        let _ = (mos, object);
        todo!()
    }

    /// Appends `bps` (`freed`: their sign when the list is a livelist; false in general).
    pub async fn append(&self, tx: &Tx, bps: &[BlkPtr]) -> Result<()> {
        let _ = (tx, bps);
        todo!()
    }

    /// Every pointer, sub-lists included, in order.
    pub async fn pointers(&self) -> Result<Vec<BlkPtr>> {
        todo!()
    }

    /// Empties the list (and frees sub-lists' objects).
    pub async fn clear(&self, tx: &Tx) -> Result<()> {
        let _ = tx;
        todo!()
    }

    /// Totals.
    pub async fn space(&self) -> Result<BpobjSpace> {
        todo!()
    }

    /// Frees the list's object (it must be empty or its pointers already dealt with), sub-lists included.
    pub async fn free(mos: &Arc<Objset>, tx: &Tx, object: ObjectId) -> Result<()> {
        let _ = (mos, tx, object);
        todo!()
    }
}
