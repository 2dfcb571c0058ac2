//! Who carries out a file's transfers: the ring of the thread that starts them, the ring that all threads share, or
//! threads of the device's own.
//!
//! A thread that waits on an io_uring for other reasons (requests of the kernel's) hands its transfers in with what it
//! hands in anyway, and takes their completions with its own: nobody else has to be woken for them, twice.
//!
//! Invariants:
//! - what such a thread started is in its [`LocalTransfers`] until that is told that it is over;
//! - those are at most [`LocalTransfers::MOST`]; what is started beyond goes to the ring that all threads share, so
//!   that a pool whose devices hang leaves the others of the thread a way.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use io_uring::squeue;
use tokio::sync::oneshot;

use crate::flights::Flights;
use crate::lease::Lease;
use crate::open_file::OpenFile;
use crate::pool::Pool;
use crate::ring::Ring;
use crate::transfer::{Op, Work};

/// Who carries out the transfers of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// io_uring, or threads where the kernel has none.
    #[default]
    Auto,
    /// Threads with pread and pwrite.
    Threads,
}

/// Who carries out a device's transfers.
pub(crate) enum Engine {
    /// The ring of the thread that asks, if it has one, else that which all share.
    Ring(&'static Ring),
    /// Threads of the device's own.
    Pool(Pool),
}

impl Engine {
    /// The engine for a device. The ring is for devices whose transfers the kernel submits without waiting for them
    /// (`submits_at_once`): its one thread, and with it every other device, would wait too. FUSE, for one, waits for
    /// its server's answer while the transfer is submitted.
    pub fn get(kind: EngineKind, submits_at_once: bool) -> Self {
        static RING: OnceLock<Option<Ring>> = OnceLock::new();
        if kind != EngineKind::Threads && submits_at_once {
            let ring = RING.get_or_init(|| match Ring::start() {
                Ok(ring) => Some(ring),
                Err(error) => {
                    tracing::info!("io_uring is not available ({error}); using threads for disk I/O");
                    None
                }
            });
            if let Some(ring) = ring {
                return Self::Ring(ring);
            }
        }
        Self::Pool(Pool::default())
    }

    /// Carries a transfer out; gives its memory back with the result. A read that meets the end of the file fails with
    /// `UnexpectedEof`.
    pub async fn run(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        work: Work,
        lease: Option<Arc<Lease>>,
    ) -> (Work, io::Result<()>) {
        let (reply, answer) = oneshot::channel();
        let op = Op { file: file.clone(), offset, work, lease, reply };
        match self {
            Self::Ring(ring) => {
                if let Err(op) = submit_here(op) {
                    ring.submit(op);
                }
            }
            Self::Pool(pool) => pool.submit(op),
        }
        answer.await.unwrap_or_else(|_| (Work::Flush, Err(io::Error::other("the I/O thread ended"))))
    }
}

thread_local! {
    static INCOMING: RefCell<Option<Rc<Incoming>>> = const { RefCell::new(None) };
}

/// What a thread has started since its ring last looked.
#[derive(Default)]
struct Incoming {
    ops: RefCell<Vec<Op>>,
    /// Those that the ring has.
    before: Cell<usize>,
}

/// Gives `op` to the calling thread's own ring; gives it back when there is none, or that has enough.
fn submit_here(op: Op) -> Result<(), Op> {
    INCOMING.with_borrow(|incoming| match incoming {
        Some(incoming) if incoming.before.get() + incoming.ops.borrow().len() < LocalTransfers::MOST => {
            incoming.ops.borrow_mut().push(op);
            Ok(())
        }
        _ => Err(op),
    })
}

/// What the calling thread started, for the ring that it owns.
pub struct LocalTransfers {
    incoming: Rc<Incoming>,
    flights: Flights,
}

impl std::fmt::Debug for LocalTransfers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalTransfers")
    }
}

impl LocalTransfers {
    /// Transfers at a time; their numbers are below this.
    pub const MOST: usize = 256;

    /// From now on the calling thread's transfers come here, until this is dropped.
    pub fn adopt() -> Self {
        let incoming = Rc::default();
        INCOMING.set(Some(Rc::clone(&incoming)));
        Self { incoming, flights: Flights::new(Self::MOST) }
    }

    /// Whether the thread waits for none.
    pub fn is_empty(&self) -> bool {
        self.incoming.ops.borrow().is_empty() && self.flights.is_empty()
    }

    /// What is to be handed in next, with its number as user data. The memory that it names stays until
    /// [`Self::completed`] gets that number, or for ever.
    pub fn next_entry(&mut self) -> Option<squeue::Entry> {
        self.incoming.ops.borrow_mut().drain(..).for_each(|op| self.flights.add(op));
        debug_assert!(self.flights.count() <= Self::MOST);
        let next = self.flights.next();
        self.incoming.before.set(self.flights.count());
        next
    }

    /// The kernel is done with `number`, with this result.
    pub fn completed(&mut self, number: u64, result: i32) {
        self.flights.completed(number, result);
        self.incoming.before.set(self.flights.count());
    }
}

impl Drop for LocalTransfers {
    fn drop(&mut self) {
        INCOMING.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use io_uring::IoUring;
    use platter_buffer::Buf;
    use tokio::time::Instant;

    use super::*;
    use crate::{BlockDevice, DeviceError, FileDevice, Lease, OpenOptions};

    const LENGTH: usize = 256 << 10;

    /// A device of the kind whose transfers travel on rings, if the kernel has any.
    fn device() -> (tempfile::NamedTempFile, FileDevice) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(LENGTH as u64).expect("its length");
        let device = FileDevice::open(file.path(), OpenOptions::exclusive()).expect("it opens");
        (file, device)
    }

    /// What a serving thread does: polls, hands in, waits, tells.
    fn carry<T>(transfers: &mut LocalTransfers, ring: &mut IoUring, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return done;
            }
            let mut handed_in = 0;
            while let Some(entry) = transfers.next_entry() {
                // SAFETY: `transfers` keeps what the entry names until its completion.
                unsafe { ring.submission().push(&entry) }.expect("room");
                handed_in += 1;
            }
            assert!(handed_in > 0, "whatever is waited for was handed in here");
            ring.submit_and_wait(handed_in).expect("the kernel takes it");
            let done: Vec<_> = ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            done.into_iter().for_each(|(number, result)| transfers.completed(number, result));
        }
    }

    #[test]
    fn a_threads_transfers_go_through_its_own_ring() {
        let Ok(mut ring) = IoUring::new(LocalTransfers::MOST as u32) else {
            eprintln!("the kernel has no io_uring here");
            return;
        };
        let (_file, device) = device();
        let mut transfers = LocalTransfers::adopt();
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at / 512) as u8).collect();
        let data = vec![Buf::copy_from(&bytes)];
        carry(&mut transfers, &mut ring, device.write(0, data)).expect("written");
        carry(&mut transfers, &mut ring, device.flush()).expect("flushed");
        // As many at once as may be.
        let reads = (0..LocalTransfers::MOST).map(|at| device.read((at as u64 % 64) * 4096, 4096));
        let all = carry(&mut transfers, &mut ring, futures::future::join_all(reads));
        for (at, read) in all.into_iter().enumerate() {
            let from = (at % 64) * 4096;
            assert_eq!(&read.expect("read")[..], &bytes[from..from + 4096]);
        }
        assert!(carry(&mut transfers, &mut ring, device.read(0, 4096)).is_ok() && transfers.is_empty());
    }

    /// A pool whose devices hang took all of a thread's transfers: other pools of that thread waited with it.
    #[test]
    fn others_go_on_when_a_threads_ring_has_enough() {
        let (_file, device) = device();
        let mut transfers = LocalTransfers::adopt();
        let hanging = (0..LocalTransfers::MOST).map(|_| device.read(0, 4096));
        let mut hanging = pin!(futures::future::join_all(hanging));
        let mut context = Context::from_waker(Waker::noop());
        assert!(hanging.as_mut().poll(&mut context).is_pending());
        if transfers.is_empty() {
            eprintln!("the kernel has no io_uring here");
            return;
        }
        // They are handed in, but the thread never hears of them.
        while transfers.next_entry().is_some() {}
        futures::executor::block_on(device.read(4096, 4096)).expect("read elsewhere");
        // One that is over makes room.
        transfers.completed(0, 4096);
        let mut next = pin!(device.read(4096, 4096));
        assert!(next.as_mut().poll(&mut context).is_pending() && transfers.next_entry().is_some());
    }

    /// A write had passed the look at the time, waited for its ring while the process stood still, and was then handed
    /// to the kernel, though another host had the pool by then.
    #[test]
    fn what_waits_for_its_ring_for_longer_than_its_lease_is_not_handed_in() {
        let Ok(mut ring) = IoUring::new(LocalTransfers::MOST as u32) else {
            eprintln!("the kernel has no io_uring here");
            return;
        };
        let (file, device) = device();
        let (lease, limit) = (Arc::new(Lease::default()), Duration::from_millis(50));
        device.obey(&lease);
        let mut transfers = LocalTransfers::adopt();
        // In time, the process stands still only afterwards.
        lease.renew(Instant::now(), 1000 * limit);
        carry(&mut transfers, &mut ring, device.write(0, vec![Buf::copy_from(&[1; 4096])])).expect("in time");
        lease.renew(Instant::now(), limit);
        let mut late = pin!(device.write(0, vec![Buf::copy_from(&[2; 4096])]));
        let mut context = Context::from_waker(Waker::noop());
        assert!(late.as_mut().poll(&mut context).is_pending());
        std::thread::sleep(2 * limit);
        assert!(transfers.next_entry().is_none() && transfers.is_empty());
        assert!(matches!(late.as_mut().poll(&mut context), Poll::Ready(Err(DeviceError::TooLate(_)))));
        assert_eq!(std::fs::read(file.path()).expect("readable")[..4096], [1; 4096]);
        // Reads are as they were.
        carry(&mut transfers, &mut ring, device.read(0, 4096)).expect("read");
    }

    #[test]
    fn who_waits_for_a_ring_that_is_gone_is_told() {
        let (_file, device) = device();
        let transfers = LocalTransfers::adopt();
        let mut read = pin!(device.read(0, 4096));
        let mut context = Context::from_waker(Waker::noop());
        if read.as_mut().poll(&mut context).is_ready() || transfers.is_empty() {
            eprintln!("the kernel has no io_uring here");
            return;
        }
        drop(transfers);
        assert!(matches!(read.as_mut().poll(&mut context), Poll::Ready(Err(_))));
        // The thread's next ones go where all others do.
        futures::executor::block_on(device.read(0, 4096)).expect("read");
    }
}
