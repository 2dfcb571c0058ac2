//! Transfers on their way through an io_uring, whoever owns that.
//!
//! Invariants:
//! - an operation stays here, with its file and memory, from when its entry was given out until its completion came;
//! - its memory is given back before anybody learns that it is over;
//! - what the kernel may still use when all ends is never freed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{Submitter, opcode, squeue, types};
use rustix::io::Errno;

use crate::transfer::{IoVec, Op, Work};

/// Threads of the kernel's that carry out what cannot be asynchronous. A device that hangs holds one for each of its
/// transfers: the kernel's own limit (4 for each CPU) would stop all other devices with it.
const WORKERS_MAX: u32 = 256;

/// Has the kernel carry out as many transfers at a time as there may be, for a ring of the calling thread's.
pub fn allow_workers(submitter: &Submitter<'_>) {
    // Kernels before 5.15 have no such limit to raise.
    let _ = submitter.register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
}

struct Flight {
    op: Op,
    done: usize,
    length: usize,
    /// What the kernel was given; it may read this array until it has consumed the submission.
    segments: Vec<IoVec>,
}

/// Those of one ring, by numbers that are used again.
pub(crate) struct Flights {
    flying: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// New ones and the rest of partial ones.
    ready: VecDeque<Flight>,
}

impl Flights {
    /// None yet; at most `most` will be with the kernel at once.
    pub fn new(most: usize) -> Self {
        Self { flying: (0..most).map(|_| None).collect(), free: (0..most).rev().collect(), ready: VecDeque::new() }
    }

    /// Whether nothing waits and nothing is with the kernel.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.free.len() == self.flying.len()
    }

    /// How many wait or are with the kernel.
    pub fn count(&self) -> usize {
        self.ready.len() + self.flying.len() - self.free.len()
    }

    /// Whether [`Self::next`] would give something.
    pub fn has_next(&self) -> bool {
        !self.ready.is_empty() && !self.free.is_empty()
    }

    pub fn add(&mut self, op: Op) {
        let length = op.work.length();
        self.ready.push_back(Flight { op, done: 0, length, segments: Vec::new() });
    }

    /// What is to be handed in next, with its number as user data. The memory that it names stays until
    /// [`Self::completed`] gets that number, or for ever.
    pub fn next(&mut self) -> Option<squeue::Entry> {
        let &index = self.free.last()?;
        let mut flight = loop {
            let Flight { op, done, length, segments } = self.ready.pop_front()?;
            if let Some(op) = op.still_wanted() {
                break Flight { op, done, length, segments };
            }
        };
        self.free.pop();
        assert!(self.flying[index].is_none(), "a number is given out once at a time");
        // The segments' array is on the heap and does not move with the flight.
        let entry = prepare(&mut flight).user_data(index as u64);
        self.flying[index] = Some(flight);
        Some(entry)
    }

    /// The ring did not take what [`Self::next`] gave last: it comes again.
    pub fn refused(&mut self, number: u64) {
        if let Some(flight) = self.land(number) {
            self.ready.push_front(flight);
        }
    }

    fn land(&mut self, number: u64) -> Option<Flight> {
        let index = number as usize;
        let flight = self.flying.get_mut(index)?.take()?;
        self.free.push(index);
        Some(flight)
    }

    /// The kernel is done with `number`: its waiter is told, or the rest waits to be handed in.
    pub fn completed(&mut self, number: u64, result: i32) {
        let Some(mut flight) = self.land(number) else { return };
        if result < 0 {
            let error = Errno::from_raw_os_error(-result);
            if error == Errno::INTR || error == Errno::AGAIN {
                self.ready.push_back(flight);
            } else {
                flight.op.finish(Err(error.into()));
            }
            return;
        }
        flight.done += result as usize;
        if flight.done >= flight.length {
            flight.op.finish(Ok(()));
        } else if result == 0 {
            let kind = match flight.op.work {
                Work::Read(_) => io::ErrorKind::UnexpectedEof,
                _ => io::ErrorKind::WriteZero,
            };
            flight.op.finish(Err(kind.into()));
        } else {
            self.ready.push_back(flight);
        }
    }
}

impl Drop for Flights {
    /// Waiters learn that the engine is gone, as their channels close. Nothing can be taken back from the kernel.
    fn drop(&mut self) {
        for Flight { op: Op { file, work, .. }, segments, .. } in self.flying.drain(..).flatten() {
            std::mem::forget((file, work, segments));
        }
    }
}

fn prepare(flight: &mut Flight) -> squeue::Entry {
    let fd = types::Fd(flight.op.file.as_raw_fd());
    let position = flight.op.offset + flight.done as u64;
    flight.op.work.segments(flight.done, &mut flight.segments);
    let segments = &flight.segments;
    let count = segments.len() as u32;
    match (&flight.op.work, segments.as_slice()) {
        (Work::Flush, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        (Work::Read(_), [one]) => opcode::Read::new(fd, one.base, one.length as u32).offset(position).build(),
        (Work::Read(_), many) => opcode::Readv::new(fd, many.as_ptr().cast(), count).offset(position).build(),
        (Work::Write(_), [one]) => opcode::Write::new(fd, one.base, one.length as u32).offset(position).build(),
        (Work::Write(_), many) => opcode::Writev::new(fd, many.as_ptr().cast(), count).offset(position).build(),
    }
}
