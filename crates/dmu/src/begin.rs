//! Joining a transaction group with a change of an object set: what it may need at most is promised to it.

use std::ops::Range;

use platter_ondisk::Txg;
use platter_ondisk::sector::SECTOR;
use platter_zio::{Needs, Result, Tx};

use crate::objset::Objset;

impl Objset {
    /// Joins the open transaction group (throttled), for a change of names or attributes.
    ///
    /// # Errors
    /// The pool stopped or is full, or the object set is read-only.
    pub async fn begin(&self) -> Result<Tx> {
        self.begin_writing(0..0, 0).await
    }

    /// As [`begin`](Self::begin), for one that also writes these bytes of an object in blocks of `block_size`.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub async fn begin_writing(&self, bytes: Range<u64>, block_size: u32) -> Result<Tx> {
        self.core.check_writable()?;
        let block_size = u64::from(block_size);
        let memory = match bytes.end.saturating_sub(bytes.start) {
            0 => 0,
            _ => (bytes.end.div_ceil(block_size.max(1)) - bytes.start / block_size.max(1)) * block_size,
        };
        let disk = self.core.cost_of_operation(bytes.end.saturating_sub(bytes.start), block_size);
        self.core.params.gate.begin_for(Needs { disk, memory }).await
    }

    /// How many of `bytes` one transaction should write in blocks of `block_size`, so that there is room for it: less
    /// than all of them only when the pool is nearly full, and at least a block.
    pub fn bytes_at_once(&self, bytes: u64, block_size: u32) -> u64 {
        let (share, block_size) = (self.core.params.gate.share(), u64::from(block_size).max(SECTOR));
        let mut at_once = bytes;
        while at_once > block_size && self.core.cost_of_operation(at_once, block_size) > share {
            at_once = (at_once / 2).next_multiple_of(block_size);
        }
        at_once.min(bytes)
    }

    /// Joins the open group for a change that frees more than it writes; works on a full pool.
    ///
    /// # Errors
    /// [`platter_zio::ZioError::Suspended`] once the pool stopped.
    pub async fn begin_net_free(&self) -> Result<Tx> {
        self.params().gate.begin_net_free(self.core.cost_of_operation(0, 0)).await
    }

    /// Promises group `txg` space for a block of the intent log of `bytes`; `false` when there is none to spare.
    pub fn promise_log(&self, txg: Txg, bytes: u64) -> bool {
        self.params().gate.promise_log(txg, self.params().store.most_space(bytes))
    }
}
