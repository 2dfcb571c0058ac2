//! A pool that is kept for this host.

use tokio::task::AbortHandle;

/// A pool that is this host's. It is kept so with heartbeats until this is dropped or [`beat`] takes over.
pub struct Claim(pub AbortHandle);

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.abort();
    }
}
