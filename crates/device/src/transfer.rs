//! What a file's transfer is, whoever carries it out (the ring or the thread pool).
//!
//! An [`Op`] owns its file, its memory and its position until it is over, so that neither a dropped future nor a closed
//! device can pull memory from under the kernel.

use std::io;
use std::sync::Arc;

use platter_buffer::Buf;
use tokio::sync::oneshot;

use crate::lease::{Lease, TooLate};
use crate::open_file::OpenFile;
use crate::slot::ReadSlot;

/// The memory of a transfer.
pub(crate) enum Work {
    Read(Vec<ReadSlot>),
    Write(Vec<Buf>),
    Flush,
}

/// A pointer and a length as the kernel's `struct iovec` lays them out.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IoVec {
    pub base: *mut u8,
    pub length: usize,
}

// SAFETY: an `IoVec` is only ever kept beside the `Work` that owns the memory it names; moving both to another thread
// is moving the owner.
unsafe impl Send for IoVec {}

/// Most segments the kernel takes at once (`IOV_MAX`).
pub(crate) const SEGMENTS_MAX: usize = 1024;
/// Most bytes of one transfer; the kernel's own limit is just below 2 GiB.
const BYTES_MAX: usize = 1 << 30;

impl Work {
    /// Bytes in all.
    pub fn length(&self) -> usize {
        match self {
            Self::Read(slots) => slots.iter().map(|slot| slot.len()).sum(),
            Self::Write(data) => data.iter().map(|buf| buf.len()).sum(),
            Self::Flush => 0,
        }
    }

    /// The segments that remain after `done` bytes, at most what the kernel takes at once. For a write the memory is
    /// only read through them.
    pub fn segments(&self, done: usize, out: &mut Vec<IoVec>) {
        out.clear();
        let mut skip = done;
        let mut room = BYTES_MAX;
        let mut add = |base: *mut u8, length: usize| {
            let skipped = skip.min(length);
            skip -= skipped;
            let length = (length - skipped).min(room);
            if length > 0 && out.len() < SEGMENTS_MAX {
                room -= length;
                // `skipped` stays within the segment, so this is a pointer into it.
                out.push(IoVec { base: base.wrapping_add(skipped), length });
            }
        };
        match self {
            Self::Read(slots) => slots.iter().for_each(|slot| add(slot.as_raw(), slot.len())),
            Self::Write(data) => data.iter().for_each(|buf| add(buf.as_ptr().cast_mut(), buf.len())),
            Self::Flush => {}
        }
    }
}

/// One transfer under way.
pub(crate) struct Op {
    pub file: Arc<OpenFile>,
    pub offset: u64,
    pub work: Work,
    /// Looked at when it is handed to the kernel.
    pub lease: Option<Arc<Lease>>,
    pub reply: oneshot::Sender<(Work, io::Result<()>)>,
}

impl Op {
    /// Ends it with `result`, once its file has been let go.
    pub fn finish(self, result: io::Result<()>) {
        let Self { file, work, reply, .. } = self;
        drop(file);
        // Nobody waits any more when the future was dropped; the memory is freed here then.
        let _ = reply.send((work, result));
    }

    /// The operation, if it is still to be handed to the kernel: whoever parted from a device while it waited for its
    /// turn wants it no more, and a lease may have ended.
    pub fn still_wanted(self) -> Option<Self> {
        if self.reply.is_closed() {
            return None;
        }
        if self.lease.as_ref().is_some_and(|lease| !lease.holds()) {
            self.finish(Err(io::Error::other(TooLate)));
            return None;
        }
        Some(self)
    }
}
