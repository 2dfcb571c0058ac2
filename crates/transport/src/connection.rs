//! One descriptor of `/dev/fuse`: requests come out, answers go in.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::types::NodeId;
use crate::wire;

/// The kernel's side of FUSE.
pub const DEVICE: &str = "/dev/fuse";

/// A descriptor that belongs to a mount.
#[derive(Debug)]
pub(crate) struct Connection(OwnedFd);

impl Connection {
    pub fn new(device: OwnedFd) -> Self {
        Self(device)
    }

    /// Reads the next request into `buffer` and returns its length, `None` when the mount is gone. Blocks.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) | Err(Errno::NODEV) => return Ok(None),
                Ok(length) => return Ok(Some(length)),
                // NOENT: the request was taken back while it was being read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes [`Connection::try_receive`] possible, and [`Connection::receive`] impossible.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&self.0)?;
        Ok(rustix::fs::fcntl_setfl(&self.0, flags | rustix::fs::OFlags::NONBLOCK)?)
    }

    /// Reads a request that is there into `buffer` and returns its length.
    ///
    /// # Errors
    /// `EAGAIN` when there is none, `ENODEV` when the mount is gone.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) => return Err(Errno::NODEV),
                Err(Errno::NOENT | Errno::INTR) => {}
                other => return other,
            }
        }
    }

    /// Whether the kernel's side is still there: somebody has the file system mounted, or files of it open.
    pub fn is_connected(&self) -> bool {
        let mut asked = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::empty())];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // It always tells of an error, and that is the one it knows.
        rustix::event::poll(&mut asked, Some(&now)).is_ok_and(|told| told == 0)
    }

    /// The descriptor's number, for what is handed to the kernel with it.
    pub fn raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Has the kernel forget a node's attributes and, unless `offset` is negative, its pages of `length` bytes (0: all)
    /// from there, of which it writes back what was changed. It waits for pages that are being read or written.
    pub fn forget(&self, node: NodeId, offset: i64, length: i64) -> Result<(), Errno> {
        let what = wire::NotifyInvalInodeOut { ino: node.0, off: offset, len: length };
        let len = (size_of::<wire::OutHeader>() + size_of_val(&what)) as u32;
        // What nobody asked for has the number 0.
        let header = wire::OutHeader { len, error: wire::NOTIFY_INVAL_INODE, unique: 0 };
        self.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(what.as_bytes())])
    }

    /// Writes one answer.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        loop {
            match rustix::io::writev(&self.0, parts) {
                // The kernel takes an answer whole or not at all.
                Ok(_) => return Ok(()),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
