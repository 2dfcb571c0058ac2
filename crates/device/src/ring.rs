//! Transfers through one io_uring that one thread owns.
//!
//! Invariants:
//! - only the ring's thread touches the ring; others append to a queue and, when that thread sleeps, wake it through a
//!   pipe on which the ring itself has a read pending;
//! - an operation stays in `flight`, with its file and memory, from its submission until its completion was taken;
//! - its memory is given back before anybody learns that it is over.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::engine::{IoVec, Op, Work};

const ENTRIES: u32 = 256;
/// Most operations in the kernel at once; the completion queue (twice the entries by default) can hold them all.
const FLIGHT_MAX: usize = 2 * ENTRIES as usize - 16;
/// Threads of the kernel's that carry out what cannot be asynchronous. A device that hangs holds one for each of its
/// transfers: the kernel's own limit (4 for each CPU) would stop all other devices with it.
const WORKERS_MAX: u32 = 256;
const WAKE: u64 = u64::MAX;

struct Shared {
    incoming: Mutex<Vec<Op>>,
    /// Whether the ring's thread sleeps, or is about to, and needs a byte in the pipe to look at `incoming`.
    sleeping: AtomicBool,
    wake: PipeWriter,
}

/// The way into the ring's thread, which lives as long as the process.
pub(crate) struct Ring {
    shared: Arc<Shared>,
}

impl Ring {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the kernel has no io_uring or forbids it.
    pub fn start() -> io::Result<Self> {
        let (wake_reader, wake) = io::pipe()?;
        let shared = Arc::new(Shared { incoming: Mutex::default(), sleeping: AtomicBool::new(false), wake });
        let (report, started) = std::sync::mpsc::sync_channel(1);
        let thread_shared = shared.clone();
        std::thread::Builder::new().name("disk-ring".into()).spawn(move || match new_ring() {
            Ok(ring) => {
                let _ = report.send(Ok(()));
                RingThread::new(ring, thread_shared, wake_reader).run();
            }
            Err(error) => {
                let _ = report.send(Err(error));
            }
        })?;
        started.recv().map_err(|_| io::Error::other("the ring's thread did not start"))??;
        Ok(Self { shared })
    }

    pub fn submit(&self, op: Op) {
        self.shared.incoming.lock().push(op);
        if self.shared.sleeping.swap(false, Ordering::SeqCst) {
            // A failure means that the ring's thread ended; the operation's waiter learns it when the queue is dropped.
            let _ = (&self.shared.wake).write_all(&[1]);
        }
    }
}

fn new_ring() -> io::Result<IoUring> {
    // One submitter and completions only when asked for: fewest interruptions (Linux 6.1); older kernels refuse it.
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(ENTRIES)
        .or_else(|_| IoUring::builder().build(ENTRIES))?;
    // Kernels before 5.15 have no such limit to raise.
    let _ = ring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
    let mut probe = io_uring::Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed =
        [opcode::Read::CODE, opcode::Write::CODE, opcode::Readv::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
    if needed.iter().all(|&code| probe.is_supported(code)) {
        Ok(ring)
    } else {
        Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel's io_uring is too old"))
    }
}

struct Flight {
    op: Op,
    done: usize,
    length: usize,
    /// What the kernel was given; it may read this array until it has consumed the submission.
    segments: Vec<IoVec>,
}

struct RingThread {
    ring: IoUring,
    shared: Arc<Shared>,
    wake_reader: PipeReader,
    wake_bytes: Box<[u8; 64]>,
    flight: Vec<Option<Flight>>,
    free: Vec<usize>,
    /// Operations to submit: new ones and the rest of partial ones.
    ready: std::collections::VecDeque<Flight>,
}

impl RingThread {
    fn new(ring: IoUring, shared: Arc<Shared>, wake_reader: PipeReader) -> Self {
        Self {
            ring,
            shared,
            wake_reader,
            wake_bytes: Box::new([0; 64]),
            flight: (0..FLIGHT_MAX).map(|_| None).collect(),
            free: (0..FLIGHT_MAX).rev().collect(),
            ready: Default::default(),
        }
    }

    fn run(mut self) {
        let mut waking = false;
        loop {
            if !waking {
                waking = self.arm_wake();
            }
            self.take_incoming();
            self.submit_ready();
            self.shared.sleeping.store(true, Ordering::SeqCst);
            let more = !self.shared.incoming.lock().is_empty();
            let wait = if more || (!self.ready.is_empty() && !self.free.is_empty()) { 0 } else { 1 };
            let entered = self.ring.submit_and_wait(wait);
            self.shared.sleeping.store(false, Ordering::SeqCst);
            if let Err(error) = entered
                && !matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::INTR | Errno::BUSY))
            {
                tracing::error!("io_uring_enter failed: {error}");
                // Nothing can be taken back from the kernel, so the memory of what is in flight is never freed; all
                // waiters, present and future, learn that the engine is gone when their channels close.
                std::mem::forget(std::mem::take(&mut self.flight));
                std::mem::forget(self.wake_bytes);
                loop {
                    self.shared.incoming.lock().clear();
                    self.ready.clear();
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
            let completions: Vec<(u64, i32)> =
                self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            for (token, result) in completions {
                if token == WAKE {
                    waking = false;
                } else {
                    self.complete(token as usize, result);
                }
            }
        }
    }

    fn take_incoming(&mut self) {
        for op in std::mem::take(&mut *self.shared.incoming.lock()) {
            let length = op.work.length();
            self.ready.push_back(Flight { op, done: 0, length, segments: Vec::new() });
        }
    }

    /// Puts a read of the wake pipe on the ring.
    fn arm_wake(&mut self) -> bool {
        let entry = opcode::Read::new(
            types::Fd(self.wake_reader.as_raw_fd()),
            self.wake_bytes.as_mut_ptr(),
            self.wake_bytes.len() as u32,
        )
        .build()
        .user_data(WAKE);
        // SAFETY: the bytes are boxed, live as long as the thread, and are used by this read alone (`waking`).
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    fn submit_ready(&mut self) {
        while let Some(&index) = self.free.last() {
            let Some(mut flight) = self.ready.pop_front() else { break };
            let entry = prepare(&mut flight).user_data(index as u64);
            // SAFETY: `flight`, which owns the file, the memory and the segment array (whose heap blocks do not move
            // with it), stays in `self.flight` until this entry's completion is taken.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_err() {
                // The submission queue is full: it is emptied by the next enter.
                self.ready.push_front(flight);
                break;
            }
            self.free.pop();
            self.flight[index] = Some(flight);
        }
    }

    fn complete(&mut self, index: usize, result: i32) {
        let Some(mut flight) = self.flight[index].take() else { return };
        self.free.push(index);
        if result < 0 {
            let error = Errno::from_raw_os_error(-result);
            if error == Errno::INTR || error == Errno::AGAIN {
                self.ready.push_back(flight);
            } else {
                finish(flight.op, Err(error.into()));
            }
            return;
        }
        flight.done += result as usize;
        if flight.done >= flight.length {
            finish(flight.op, Ok(()));
        } else if result == 0 {
            let kind = match flight.op.work {
                Work::Read(_) => io::ErrorKind::UnexpectedEof,
                _ => io::ErrorKind::WriteZero,
            };
            finish(flight.op, Err(kind.into()));
        } else {
            self.ready.push_back(flight);
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

fn finish(op: Op, result: io::Result<()>) {
    let Op { file, work, reply, .. } = op;
    drop(file);
    // Nobody waits any more when the future was dropped; the memory is freed here then.
    let _ = reply.send((work, result));
}
