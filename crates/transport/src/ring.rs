//! Requests over io_uring (Linux 6.14 and later): each processor has a queue of its own, served by a thread that stays
//! on that processor, and one system call hands in answers and fetches the next requests. Against reads and writes of
//! `/dev/fuse` that saves a system call for each request, and waking another processor twice.
//!
//! What the kernel still sends through `/dev/fuse` (nodes that it forgets, requests taken back) is read by the first
//! thread.
//!
//! Invariants:
//! - a place for a request is the kernel's from the moment that its command is handed in until that completes, and ours
//!   from then on until the next command: see [`Lease`];
//! - a place is handed back when its request is answered and nobody looks at its bytes any more;
//! - a thread ends when the kernel has given up all its places, that is when the mount is gone.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::connection::Connection;
use crate::operation::Body;
use crate::pages::Pages;
use crate::wire::{self, InHeader, RingCommand, RingHeaders};

/// Places of all queues together, where there are few processors.
const PLACES: usize = 64;
/// Places of one queue, whatever the number of processors; so many requests of a processor are served at once.
const PLACES_LEAST: usize = 4;
const PLACES_MOST: usize = 16;
/// Serving threads at most; with more processors each takes several queues.
const THREADS_MAX: usize = 16;

/// Completions that are no request's.
const WAKE: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;

/// Where the length lies in an entry of the submission queue (`struct io_uring_sqe`).
const SQE_LEN_AT: usize = 24;
/// Parts of a place: headers and payload.
const PARTS: u32 = 2;

/// Memory that the kernel writes a request to and reads its answer from. It stays where it is, as the kernel knows where.
#[derive(Debug)]
struct Place {
    /// The processor that it serves.
    queue: u16,
    headers: NonNull<RingHeaders>,
    payload: Pages,
    /// What tells the kernel where the two are.
    parts: Box<[IoVec; 2]>,
}

/// `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct IoVec {
    base: *mut u8,
    length: usize,
}

// SAFETY: the pointers are those of the place's own memory.
unsafe impl Send for Place {}
// SAFETY: a shared place is only read.
unsafe impl Sync for Place {}

impl Place {
    fn new(queue: u16, payload: usize) -> Self {
        let headers = NonNull::from(Box::leak(Box::new(RingHeaders::new_zeroed())));
        let payload = Pages::new(payload);
        let header = IoVec { base: headers.as_ptr().cast(), length: size_of::<RingHeaders>() };
        let parts = Box::new([header, IoVec { base: payload.as_ptr(), length: payload.len() }]);
        Self { queue, headers, payload, parts }
    }

    fn headers(&self) -> &RingHeaders {
        // SAFETY: made from a box that is freed in `drop`; the kernel writes only while nobody has the place.
        unsafe { self.headers.as_ref() }
    }

    fn headers_mut(&mut self) -> &mut RingHeaders {
        // SAFETY: as above.
        unsafe { self.headers.as_mut() }
    }

    fn put_header(&mut self, header: &wire::OutHeader, length: usize) {
        let headers = self.headers_mut();
        headers.in_out[..size_of::<wire::OutHeader>()].copy_from_slice(header.as_bytes());
        headers.place.payload_size = length as u32;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: it was a box, and is freed once. A place that the kernel still has is never dropped (`Ring::drop`).
        drop(unsafe { Box::from_raw(self.headers.as_ptr()) });
    }
}

/// What the serving thread and whoever answers share.
#[derive(Debug)]
pub(crate) struct Shared {
    finished: Mutex<Vec<Finished>>,
    /// Whether the thread has to be told when something is finished.
    sleeps: AtomicBool,
    wake: OwnedFd,
}

/// A place whose request is answered.
#[derive(Debug)]
struct Finished {
    index: usize,
    place: Place,
}

impl Shared {
    fn finish(&self, finished: Finished) {
        self.finished.lock().push(finished);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // It can fail only when it is told already.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// A request in its place, which is ours as long as this exists. Dropped, it goes back to the kernel with the answer.
#[derive(Debug)]
pub(crate) struct Lease {
    shared: Arc<Shared>,
    index: usize,
    place: Option<Place>,
    /// An answer that could not be put in its place yet, as somebody may still look at the request.
    late: Mutex<Option<Vec<u8>>>,
}

impl Lease {
    fn place(&self) -> &Place {
        self.place.as_ref().expect("there until it is dropped")
    }

    /// What follows the request's header; `None` when that has another length.
    pub fn body(&self, header: &InHeader) -> Option<Body<'_>> {
        let headers = self.place().headers();
        let rest = self.place().payload.get(..headers.place.payload_size as usize)?;
        let first = (header.len as usize).checked_sub(size_of::<InHeader>())?.checked_sub(rest.len())?;
        Some(Body(headers.operation.get(..first)?, rest))
    }

    /// Notes an answer. `false` when it has more bytes than the kernel has room for.
    pub fn answer<T: AsRef<[u8]>>(lease: &mut Arc<Self>, error: i32, unique: u64, parts: &[T]) -> bool {
        let length = parts.iter().map(|part| part.as_ref().len()).sum::<usize>();
        if length > lease.place().payload.len() {
            return false;
        }
        let header = wire::OutHeader { len: (size_of::<wire::OutHeader>() + length) as u32, error, unique };
        match Arc::get_mut(lease) {
            Some(own) => {
                let place = own.place.as_mut().expect("there until it is dropped");
                let mut at = 0;
                for part in parts.iter().map(AsRef::as_ref) {
                    place.payload[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                place.put_header(&header, length);
            }
            None => {
                let mut bytes = header.as_bytes().to_vec();
                parts.iter().for_each(|part| bytes.extend_from_slice(part.as_ref()));
                *lease.late.lock() = Some(bytes);
            }
        }
        true
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut place) = self.place.take() else { return };
        if let Some(late) = self.late.get_mut().take()
            && let Ok((header, answer)) = wire::OutHeader::read_from_prefix(&late)
        {
            place.payload[..answer.len()].copy_from_slice(answer);
            place.put_header(&header, answer.len());
        }
        self.shared.finish(Finished { index: self.index, place });
    }
}

/// What is done with requests.
pub(crate) trait Receiver {
    /// A request that came through a ring.
    fn leased(&self, header: InHeader, lease: Arc<Lease>);
    /// A request that came through `/dev/fuse`.
    fn read(&self, message: &[u8], connection: &Arc<Connection>);
}

/// A ring that is ready to be served by the thread that made it.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    connection: Arc<Connection>,
    shared: Arc<Shared>,
    /// Those that are not leased. They are the kernel's while their command is handed in.
    places: Vec<Option<Place>>,
    /// Places that the kernel has not given up.
    live: usize,
    /// Where requests of `/dev/fuse` go; only in the ring that reads it.
    buffer: Option<Vec<u8>>,
    wakes: Box<u64>,
}

/// The processors whose queues each serving thread takes, the first the busiest.
pub(crate) fn queues() -> Vec<Vec<u16>> {
    let count = |kind: &str| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{kind}")).unwrap_or_default();
        // As in `0-3,8`: the last number decides.
        text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok()).map_or(1, |last| last + 1)
    };
    let (possible, online) = (count("possible"), count("online"));
    let threads = usize::from(online).clamp(1, THREADS_MAX);
    let mut queues = vec![Vec::new(); threads];
    (0..possible).for_each(|queue| queues[usize::from(queue) % threads].push(queue));
    queues
}

impl Ring {
    /// A ring for `queues`, whose requests have up to `payload` bytes beside their headers; with `reads` it also reads
    /// `/dev/fuse`. For the calling thread, which is bound to these processors.
    ///
    /// # Errors
    /// What the system said.
    pub fn new(connection: Arc<Connection>, queues: &[u16], payload: usize, reads: bool) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let depth = (PLACES / processors).clamp(PLACES_LEAST, PLACES_MOST);
        let mut places = Vec::new();
        let mut affinity = rustix::thread::CpuSet::new();
        for &queue in queues {
            // What may be plugged in some day needs a place, but not more.
            let depth = if usize::from(queue) < processors { depth } else { 1 };
            places.extend((0..depth).map(|_| Some(Place::new(queue, payload))));
            if usize::from(queue) < rustix::thread::CpuSet::MAX_CPU {
                affinity.set(queue.into());
            }
        }
        // Elsewhere it works too, with more waking.
        let _ = rustix::thread::sched_setaffinity(None, &affinity);
        let entries = (places.len() as u32 + 2).next_power_of_two();
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(entries)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { finished: Mutex::default(), sleeps: AtomicBool::new(false), wake });
        let buffer = reads.then(|| vec![0; payload + wire::REQUEST_EXTRA]);
        Ok(Self { ring, connection, shared, live: places.len(), places, buffer, wakes: Box::new(0) })
    }

    /// Serves requests until the mount is gone.
    ///
    /// # Errors
    /// What the kernel refused a place with.
    pub fn run(mut self, receiver: &impl Receiver) -> io::Result<()> {
        self.watch_wake()?;
        if self.buffer.is_some() {
            self.connection.set_nonblocking()?;
            self.watch_device()?;
        }
        for index in 0..self.places.len() {
            self.register(index)?;
        }
        let mut refused = None;
        let mut completed = Vec::new();
        while self.live > 0 {
            self.hand_in_finished()?;
            self.shared.sleeps.store(true, Ordering::SeqCst);
            let busy = !self.shared.finished.lock().is_empty();
            let entered = self.ring.submit_and_wait(usize::from(!busy));
            self.shared.sleeps.store(false, Ordering::SeqCst);
            match entered {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(code) if is_passing(code)) => {}
                Err(error) => return Err(error),
            }
            completed.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (data, result) in completed.drain(..) {
                match data {
                    WAKE => self.watch_wake()?,
                    DEVICE => self.read_device(receiver)?,
                    index => self.completed(index as usize, result, receiver, &mut refused)?,
                }
            }
        }
        refused.map_or(Ok(()), |code: i32| Err(io::Error::from_raw_os_error(code)))
    }

    /// Ends without having served anything.
    pub fn unused(mut self) -> io::Result<()> {
        self.live = 0;
        Ok(())
    }

    fn completed(
        &mut self,
        index: usize,
        result: i32,
        receiver: &impl Receiver,
        refused: &mut Option<i32>,
    ) -> io::Result<()> {
        match result {
            0 => {
                let Some(place) = self.places.get_mut(index).and_then(Option::take) else { return Ok(()) };
                let header = InHeader::read_from_prefix(&place.headers().in_out).map(|(header, _)| header).ok();
                let late = Mutex::default();
                let lease = Lease { shared: self.shared.clone(), index, place: Some(place), late };
                if let Some(header) = header {
                    receiver.leased(header, Arc::new(lease));
                }
                Ok(())
            }
            code if is_passing(-code) => self.command_again(index),
            code => {
                self.live -= 1;
                let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::NODEV];
                if !gone.iter().any(|errno| errno.raw_os_error() == -code) {
                    *refused = Some(-code);
                }
                Ok(())
            }
        }
    }

    fn hand_in_finished(&mut self) -> io::Result<()> {
        let finished = std::mem::take(&mut *self.shared.finished.lock());
        for Finished { index, place } in finished {
            self.places[index] = Some(place);
            self.commit(index)?;
        }
        Ok(())
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let Some(place) = &mut self.places[index] else { return Ok(()) };
        place.headers_mut().place.commit_id = 0;
        let parts = place.parts.as_ptr() as u64;
        let command = RingCommand { queue: place.queue, ..Default::default() };
        self.command(index, wire::RING_REGISTER, command, Some(parts))
    }

    fn commit(&mut self, index: usize) -> io::Result<()> {
        let Some(place) = &self.places[index] else { return Ok(()) };
        let commit_id = place.headers().place.commit_id;
        let command = RingCommand { queue: place.queue, commit_id, ..Default::default() };
        self.command(index, wire::RING_COMMIT_AND_FETCH, command, None)
    }

    /// Hands in again what the kernel had no time for.
    fn command_again(&mut self, index: usize) -> io::Result<()> {
        match &self.places[index] {
            Some(place) if place.headers().place.commit_id == 0 => self.register(index),
            _ => self.commit(index),
        }
    }

    fn command(&mut self, index: usize, code: u32, command: RingCommand, parts: Option<u64>) -> io::Result<()> {
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let fd = types::Fd(self.connection.raw_fd());
        let mut entry = opcode::UringCmd80::new(fd, code).cmd(bytes).addr(parts).build().user_data(index as u64);
        if parts.is_some() {
            // SAFETY: an entry is a `struct io_uring_sqe` of 128 bytes, whose `len` (a `u32`) lies there.
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(PARTS) };
        }
        // SAFETY: the place's memory stays in `places`, where nobody touches it, until the command's completion. When
        // the thread ends before that, `drop` leaves the memory alone for good.
        unsafe { self.push(&entry) }
    }

    fn watch_wake(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.shared.wake.as_raw_fd());
        let entry = opcode::Read::new(fd, (&raw mut *self.wakes).cast(), 8).build().user_data(WAKE);
        // SAFETY: the number is boxed, and is used by this read alone; when the thread ends it is left alone for good.
        unsafe { self.push(&entry.into()) }
    }

    fn watch_device(&mut self) -> io::Result<()> {
        const READABLE: u32 = 1;
        let fd = types::Fd(self.connection.raw_fd());
        let entry = opcode::PollAdd::new(fd, READABLE).build().user_data(DEVICE);
        // SAFETY: it names no memory.
        unsafe { self.push(&entry.into()) }
    }

    fn read_device(&mut self, receiver: &impl Receiver) -> io::Result<()> {
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        loop {
            match self.connection.try_receive(buffer) {
                Ok(length) => receiver.read(&buffer[..length], &self.connection),
                Err(Errno::AGAIN) => return self.watch_device(),
                // The mount is gone: nothing comes here any more.
                Err(Errno::NODEV) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// # Safety
    /// What the entry names must live until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: the caller's.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Whatever the kernel may still write to must not become somebody else's memory.
        if self.live > 0 {
            std::mem::forget(std::mem::take(&mut self.places));
        }
        Box::leak(std::mem::replace(&mut self.wakes, Box::new(0)));
    }
}

fn is_passing(code: i32) -> bool {
    [Errno::AGAIN, Errno::INTR].iter().any(|errno| errno.raw_os_error() == code)
}
