//! Transfers through one io_uring that one thread owns.
//!
//! Invariants:
//! - only the ring's thread touches the ring; others append to a queue and, when that thread sleeps, wake it through a
//!   pipe on which the ring itself has a read pending;
//! - operations that were submitted are in [`Flights`], with their files and memory, until their completion was taken.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::flights::{Flights, allow_workers};
use crate::transfer::Op;

const ENTRIES: u32 = 256;
/// Most operations in the kernel at once; the completion queue (twice the entries by default) can hold them all.
const FLIGHT_MAX: usize = 2 * ENTRIES as usize - 16;
const _: () = assert!(FLIGHT_MAX < 2 * ENTRIES as usize, "the read of the pipe is one more");
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
    allow_workers(&ring.submitter());
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

struct RingThread {
    ring: IoUring,
    shared: Arc<Shared>,
    wake_reader: PipeReader,
    wake_bytes: Box<[u8; 64]>,
    flights: Flights,
}

impl RingThread {
    fn new(ring: IoUring, shared: Arc<Shared>, wake_reader: PipeReader) -> Self {
        Self { ring, shared, wake_reader, wake_bytes: Box::new([0; 64]), flights: Flights::new(FLIGHT_MAX) }
    }

    fn run(mut self) {
        let mut waking = false;
        loop {
            if !waking {
                waking = self.arm_wake();
            }
            self.submit_ready();
            self.shared.sleeping.store(true, Ordering::SeqCst);
            let more = !self.shared.incoming.lock().is_empty();
            let wait = if more || self.flights.has_next() { 0 } else { 1 };
            let entered = self.ring.submit_and_wait(wait);
            self.shared.sleeping.store(false, Ordering::SeqCst);
            if let Err(error) = entered
                && !matches!(error.raw_os_error().map(Errno::from_raw_os_error), Some(Errno::INTR | Errno::BUSY))
            {
                tracing::error!("io_uring_enter failed: {error}");
                // All waiters, present and future, learn that the engine is gone when their channels close.
                drop(self.flights);
                std::mem::forget(self.wake_bytes);
                loop {
                    self.shared.incoming.lock().clear();
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
            let completions: Vec<(u64, i32)> =
                self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            for (token, result) in completions {
                if token == WAKE {
                    debug_assert!(waking, "one read of the pipe is pending");
                    waking = false;
                } else {
                    self.flights.completed(token, result);
                }
            }
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
        self.shared.incoming.lock().drain(..).for_each(|op| self.flights.add(op));
        while let Some(entry) = self.flights.next() {
            let number = entry.get_user_data();
            // SAFETY: `flights` keeps what the entry names until its completion, or for ever.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                // The submission queue is full: it is emptied by the next enter.
                self.flights.refused(number);
                break;
            }
        }
    }
}
