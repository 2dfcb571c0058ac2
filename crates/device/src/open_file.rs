//! An open descriptor with what is locked for it.
//!
//! Invariant: the locks end with the last transfer that was begun, also when it hangs and nobody waits for it any more.
//! Until then nobody opens the device for writing: what still lands could land on something newer.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// A descriptor of a device; each transfer has its share of it.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    /// What lies behind a loop device, locked.
    _behind: Vec<File>,
    /// The descriptor that has the lock, when this one has not.
    _locked: Option<Arc<Self>>,
}

impl OpenFile {
    /// The descriptor that has the lock, with what was locked behind it.
    pub(crate) fn locked(file: File, behind: Vec<File>) -> Arc<Self> {
        Arc::new(Self { file, _behind: behind, _locked: None })
    }

    /// Another descriptor of the same device: a lock belongs to the descriptor that took it.
    pub(crate) fn beside(file: File, locked: &Arc<Self>) -> Arc<Self> {
        assert!(locked._locked.is_none(), "the lock is another descriptor's");
        Arc::new(Self { file, _behind: Vec::new(), _locked: Some(locked.clone()) })
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for OpenFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
