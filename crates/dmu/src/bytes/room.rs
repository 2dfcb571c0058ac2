//! Whether there is room for more, as whoever owns the object set sees it: quotas and reservations included.

use std::sync::Arc;

use platter_zio::{Result, TxgGate, ZioError};

/// How often a writer waits for a sync before it believes that there is no room.
const ATTEMPTS: usize = 3;

/// Space as the data set sees it (quotas and reservations included), for `statfs` and for refusing what does not fit.
pub trait SpaceInfo: Send + Sync + 'static {
    /// Bytes that can still be written.
    fn available(&self) -> u64;

    /// Bytes the data set references.
    fn referenced(&self) -> u64;

    /// Called before `bytes` more are written.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`] or [`ZioError::Quota`].
    fn check(&self, bytes: u64) -> Result<()> {
        if self.available() < bytes { Err(ZioError::NoSpace) } else { Ok(()) }
    }

    /// Whether `bytes` more fit, together with what waits to be written (`waiting` bytes in the whole pool). `false`
    /// asks to try again when all that waits is on disk, since only then its true size is known.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`] or [`ZioError::Quota`] when it is certain that they do not.
    fn admit(&self, bytes: u64, waiting: u64) -> Result<bool> {
        // Parity of small blocks and indirect blocks come on top of what writers count.
        if self.check(bytes.saturating_add(waiting).saturating_add(waiting / 4)).is_ok() {
            return Ok(true);
        }
        self.check(bytes).map(|()| false)
    }
}

/// Space without a limit, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnlimitedSpace;

impl SpaceInfo for UnlimitedSpace {
    fn available(&self) -> u64 {
        1 << 50
    }

    fn referenced(&self) -> u64 {
        0
    }
}

/// The room of one object set, in the groups that pass `gate`.
pub struct Room<'a> {
    /// What there is.
    pub space: &'a dyn SpaceInfo,
    /// Where groups pass.
    pub gate: &'a Arc<TxgGate>,
}

impl Room<'_> {
    /// Makes sure that `bytes` more fit, together with what waits to be written already. Near the limit it waits for
    /// that to be on disk, since only then its true size is known.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`] or [`ZioError::Quota`]; the pool stopped.
    pub async fn reserve(&self, bytes: u64) -> Result<()> {
        for _ in 0..ATTEMPTS {
            if self.space.admit(bytes, self.gate.dirty())? {
                return Ok(());
            }
            self.gate.wait_synced(self.gate.open_txg()).await?;
        }
        // Others keep the limit busy: what is on disk decides.
        self.space.check(bytes)
    }
}
