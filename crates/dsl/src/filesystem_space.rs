//! The space of one file system, as its writers ask for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::dataset::Dataset;
use crate::pool::DslPool;
use crate::space;

/// There is plenty of room when all that can wait for disk would fit so many times: it is written in two groups at most
/// before that is looked at again, and what it costs more on disk the gate looks after.
const PLENTY: u64 = 4;

/// Space of one file system; cheap to ask.
pub struct FilesystemSpace {
    dsl: Arc<DslPool>,
    dataset: Arc<Dataset>,
    /// The last group on disk when there was so much room that no group could fill it; what is used and what is allowed
    /// changes with the groups.
    plenty: AtomicU64,
}

impl FilesystemSpace {
    pub(crate) fn new(dsl: Arc<DslPool>, dataset: Arc<Dataset>) -> Self {
        Self { dsl, dataset, plenty: AtomicU64::new(u64::MAX) }
    }

    /// Bytes that can still be written: quotas and reservations included.
    pub fn available(&self) -> u64 {
        space::available(&self.dsl, &self.dataset)
    }

    /// Bytes that the file system references.
    pub fn referenced(&self) -> u64 {
        self.dataset.phys.lock().referenced_bytes
    }

    /// Whether what is on disk alone leaves room for `bytes` more.
    ///
    /// # Errors
    /// [`platter_zio::ZioError::Quota`] or [`platter_zio::ZioError::NoSpace`], as the limit is that is met first.
    pub fn check(&self, bytes: u64) -> platter_zio::Result<()> {
        if self.available() >= bytes {
            return Ok(());
        }
        space::limit_met(&self.dsl, &self.dataset, bytes).map_or(Ok(()), Err)
    }

    /// Whether `bytes` more may be written; `false` asks to try again when all that waits is on disk.
    ///
    /// # Errors
    /// [`platter_zio::ZioError::Quota`] or [`platter_zio::ZioError::NoSpace`] when it is certain that they may not.
    pub fn admit(&self, bytes: u64) -> platter_zio::Result<bool> {
        let (synced, most) = (self.dsl.gate.synced_txg(), self.dsl.gate.dirty_max());
        if bytes <= most && self.plenty.load(Ordering::Relaxed) == synced.0 {
            return Ok(true);
        }
        if bytes <= most && self.available() / PLENTY > most {
            self.plenty.store(synced.0, Ordering::Relaxed);
            return Ok(true);
        }
        match space::admit(&self.dsl, &self.dataset, bytes) {
            space::Admission::Yes => Ok(true),
            space::Admission::AfterSync => Ok(false),
            space::Admission::No(error) => Err(error),
        }
    }
}
