//! Transfers on threads with pread and pwrite: the way that works everywhere. Each device has threads of its own.
//!
//! Invariants:
//! - a device that hangs holds up nobody but itself: its threads serve no other device;
//! - threads are started when they are needed, up to a limit, and end when the device is closed and their last
//!   transfer is over;
//! - a transfer owns its memory and its file until it is over.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::transfer::{Op, SEGMENTS_MAX, Work};

/// Most threads of one device; each waits for one transfer. As many as a queue class has with a device at once
/// (`zfs_vdev_sync_read_max_active`), and some for the other classes.
const THREADS_MAX: usize = 16;

/// What a thread is asked to do.
enum Job {
    Transfer(Op),
    /// Anything else that may block for as long as the device likes.
    Call(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    inner: Mutex<Inner>,
    filled: Condvar,
}

/// The threads of one device; dropping it lets them end after what is queued.
#[derive(Default)]
pub(crate) struct Pool {
    queue: Arc<Queue>,
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.inner.lock().closed = true;
        self.queue.filled.notify_all();
    }
}

impl Pool {
    pub fn submit(&self, op: Op) {
        self.push(Job::Transfer(op));
    }

    /// Runs `call` on one of the threads.
    pub fn call(&self, call: impl FnOnce() + Send + 'static) {
        self.push(Job::Call(Box::new(call)));
    }

    fn push(&self, job: Job) {
        let mut inner = self.queue.inner.lock();
        inner.jobs.push_back(job);
        if inner.idle >= inner.jobs.len() || inner.threads >= THREADS_MAX {
            drop(inner);
            self.queue.filled.notify_one();
            return;
        }
        let queue = self.queue.clone();
        match std::thread::Builder::new().name("disk-io".into()).spawn(move || work(&queue)) {
            Ok(_) => {
                inner.threads += 1;
                debug_assert!(inner.threads <= THREADS_MAX);
            }
            Err(error) if inner.threads == 0 => {
                // Whoever waits learns it when its channel closes.
                tracing::error!("cannot start a disk I/O thread: {error}");
                inner.jobs.clear();
            }
            Err(_) => {}
        }
    }
}

fn work(queue: &Queue) {
    loop {
        let job = {
            let mut inner = queue.inner.lock();
            loop {
                if let Some(job) = inner.jobs.pop_front() {
                    break job;
                }
                if inner.closed {
                    inner.threads -= 1;
                    return;
                }
                inner.idle += 1;
                queue.filled.wait(&mut inner);
                inner.idle -= 1;
            }
        };
        match job {
            Job::Call(call) => call(),
            Job::Transfer(op) => {
                if let Some(mut op) = op.still_wanted() {
                    let result = carry_out(&op.file, op.offset, &mut op.work);
                    op.finish(result);
                }
            }
        }
    }
}

fn carry_out(file: &std::fs::File, mut position: u64, work: &mut Work) -> io::Result<()> {
    match work {
        Work::Read(slots) => {
            let mut segments: Vec<IoSliceMut<'_>> = slots.iter_mut().map(|slot| IoSliceMut::new(slot)).collect();
            let mut rest = &mut segments[..];
            IoSliceMut::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let count = rest.len().min(SEGMENTS_MAX);
                match rustix::io::preadv(file, &mut rest[..count], position) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => {
                        position += count as u64;
                        IoSliceMut::advance_slices(&mut rest, count);
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Work::Write(data) => {
            let mut segments: Vec<IoSlice<'_>> = data.iter().map(|buf| IoSlice::new(buf)).collect();
            let mut rest = &mut segments[..];
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                let count = rest.len().min(SEGMENTS_MAX);
                match rustix::io::pwritev(file, &rest[..count], position) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => {
                        position += count as u64;
                        IoSlice::advance_slices(&mut rest, count);
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Work::Flush => file.sync_data()?,
    }
    Ok(())
}
