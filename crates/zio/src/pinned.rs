//! Freed space that is not to be reused for a while.

use crate::store::Store;

/// While it is there no freed space is reused: what was read of a pointer that leads to a block cannot be about another
/// block by then.
pub struct Pinned(Store);

impl Store {
    /// Keeps freed space from being reused.
    pub fn pin(&self) -> Pinned {
        self.state().allocator.lock().pin();
        Pinned(self.clone())
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.state().allocator.lock().unpin();
    }
}
