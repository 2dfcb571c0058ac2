//! The hook through which heavy computation passes.
//!
//! Without a meter, charging is nothing: no allocation, no yielding, no time. With one (the simulator's),
//! it takes the virtual time that the work would take on the machine that is simulated; the results are the same.

use std::sync::Arc;

use futures::future::BoxFuture;

/// Kinds of work; the numbers are those of the format (`enum zio_checksum`, `enum zio_compress`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CpuWork {
    /// A checksum of stored bytes, with this algorithm.
    Checksum(u8),
    /// Compression of logical bytes, with this algorithm.
    Compress(u8),
    /// Decompression to logical bytes, with this algorithm.
    Decompress(u8),
    /// So many columns of parity from stored bytes.
    Parity(usize),
    /// So many columns rebuilt; the bytes are those of the whole block.
    Rebuild(usize),
}

/// Lets work take time.
pub trait CpuMeter: Send + Sync + std::fmt::Debug {
    /// Returns when the work on `bytes` is done.
    fn charge(&self, work: CpuWork, bytes: u64) -> BoxFuture<'_, ()>;
}

/// Who is told about work: nobody, or a meter.
#[derive(Clone, Debug, Default)]
pub struct Cpu(Option<Arc<dyn CpuMeter>>);

impl Cpu {
    /// Work is free.
    pub const FREE: Self = Self(None);

    /// Work is measured.
    pub fn metered(meter: Arc<dyn CpuMeter>) -> Self {
        Self(Some(meter))
    }

    /// Called where `bytes` have been worked on.
    #[inline]
    pub async fn charge(&self, work: CpuWork, bytes: usize) {
        if let Some(meter) = &self.0 {
            meter.charge(work, bytes as u64).await;
        }
    }
}
