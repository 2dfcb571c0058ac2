//! Memory that requests of `/dev/fuse` are read to. It belongs to the threads that read, and to the large requests that
//! wait for something.
//!
//! Invariant: no more memory waits here for the next one than [`IDLE_MAX`] pieces, and none while nothing is served.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::pages::Pages;

/// Pieces that wait for the next request.
const IDLE_MAX: usize = 4;

/// Pieces of one length.
#[derive(Debug)]
pub(crate) struct Buffers {
    idle: Mutex<Vec<Pages>>,
}

/// One of them, to be given back.
#[derive(Debug)]
pub(crate) struct Borrowed {
    pages: Option<Pages>,
    home: Arc<Buffers>,
}

impl Buffers {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { idle: Mutex::default() })
    }

    /// One of at least `length` bytes, with anything in it.
    pub fn borrow(self: &Arc<Self>, length: usize) -> Borrowed {
        let pages = self.idle.lock().pop().filter(|pages| pages.len() >= length);
        Borrowed { pages: Some(pages.unwrap_or_else(|| Pages::new(length))), home: self.clone() }
    }

    /// Gives back to the system what waits.
    pub fn trim(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        for mut pages in idle {
            // An allocator may keep for a while what is only freed.
            pages.clear();
        }
    }
}

impl Borrowed {
    /// Gives its memory back to the system, to be had again page by page.
    pub fn clear(&mut self) {
        if let Some(pages) = &mut self.pages {
            pages.clear();
        }
    }
}

impl Deref for Borrowed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.pages.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let Some(pages) = self.pages.take() else { return };
        let mut idle = self.home.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(pages);
            debug_assert!(idle.len() <= IDLE_MAX, "no more wait than may");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_wait_and_none_when_trimmed() {
        let buffers = Buffers::new();
        let many: Vec<_> = (0..IDLE_MAX + 3).map(|_| buffers.borrow(10_000)).collect();
        assert!(many.iter().all(|buffer| buffer.len() >= 10_000));
        drop(many);
        assert_eq!(buffers.idle.lock().len(), IDLE_MAX);
        // A larger one is wanted: what waits does not do.
        assert!(buffers.borrow(20_000).len() >= 20_000);
        buffers.trim();
        assert!(buffers.idle.lock().is_empty());
    }
}
