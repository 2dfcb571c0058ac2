//! Requests over io_uring (Linux 6.14 and later): each processor has a queue of its own, served by a thread that stays
//! on that processor, and one system call hands in answers and fetches the next requests. Against reads and writes of
//! `/dev/fuse` that saves a system call for each request, and waking another processor twice.
//!
//! Each such thread has a second one beside it that goes where there is time, with a ring of its own: it hands in large
//! answers, and gets the requests that follow in their places. A place goes back and forth between the two with what
//! its last answer was, so a stream is served on one processor while it is read on another, and what takes a moment is
//! served where it is asked for.
//!
//! What the kernel still sends through `/dev/fuse` (nodes that it forgets, requests taken back) is read by the first
//! thread, a moment later when there was something a moment ago: nobody waits for it, each look wakes the thread, and
//! what has gathered meanwhile comes at once.
//!
//! What a request reads from disks or writes there travels on the ring of the thread that serves it, in the same system
//! calls: no other thread is woken for it.
//!
//! Invariants:
//! - a command is handed in by the thread that has its place, and its completion comes to that thread;
//! - a thread ends when the kernel has given up all places of its pair, that is when the mount is gone, and its tasks
//!   and transfers have ended.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use platter_device::LocalTransfers;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::buffers::Buffers;
use crate::connection::Connection;
use crate::mailbox::Mailbox;
use crate::place::{Lease, PARTS, Pair, Place};
use crate::serve::{self, Serve};
use crate::tasks::Tasks;
use crate::wire::{self, InHeader, RingCommand};

/// Places of all queues together, where there are few processors.
const PLACES: usize = 64;
/// Places of one queue, whatever the number of processors; so many requests of a processor are served at once.
const PLACES_LEAST: usize = 4;
const PLACES_MOST: usize = 16;
/// Serving threads at most; with more processors each takes several queues.
const THREADS_MAX: usize = 16;

/// A thread without anything to do for so long gives memory back.
const IDLE: Duration = Duration::from_secs(10);

/// How long what comes through `/dev/fuse` may gather.
const GATHERING: Duration = Duration::from_millis(1);

/// Completions that are no request's.
const WAKE: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;
/// Transfers have numbers from here, requests below.
const TRANSFERS: u64 = 1 << 32;

/// Where the length lies in an entry of the submission queue (`struct io_uring_sqe`).
const SQE_LEN_AT: usize = 24;

/// A ring that is ready to be served by the thread that made it.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    connection: Arc<Connection>,
    pair: Arc<Pair>,
    mailbox: Arc<Mailbox>,
    tasks: Tasks,
    transfers: LocalTransfers,
    /// By their numbers, those whose commands this ring has handed in.
    places: Vec<Option<Place>>,
    /// Bytes that requests of `/dev/fuse` have; only in the ring that reads it.
    buffer: Option<usize>,
    buffers: Arc<Buffers>,
    /// [`GATHERING`], where the kernel reads it.
    gathering: Box<types::Timespec>,
    wakes: Box<u64>,
    /// Whether a place was used since their memory was given back.
    used: bool,
    /// What the kernel gave a place up with, other than that the mount is gone.
    refused: Option<i32>,
}

/// One more than the last number in one of the system's lists of processors, such as `0-3,8`.
fn processors(list: &str) -> u16 {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{list}")).unwrap_or_default();
    text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok()).map_or(1, |last| last + 1)
}

/// The queue of a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    processor: u16,
    /// Its places.
    depth: usize,
}

/// The queues that each serving thread takes.
pub(crate) fn queues() -> Vec<Vec<Queue>> {
    let (possible, online) = (processors("possible"), processors("online"));
    let threads = usize::from(online).clamp(1, THREADS_MAX);
    let depth = (PLACES / usize::from(online)).clamp(PLACES_LEAST, PLACES_MOST);
    let mut queues = vec![Vec::new(); threads];
    for processor in 0..possible {
        // What may be plugged in some day needs a place, but not more.
        let depth = if processor < online { depth } else { 1 };
        queues[usize::from(processor) % threads].push(Queue { processor, depth });
    }
    queues
}

/// Places for these queues, with up to `payload` bytes beside the headers, and the pair of threads
/// that shares them.
///
/// # Errors
/// What the system said to other descriptors.
pub(crate) fn places(queues: &[Queue], payload: usize) -> io::Result<(Vec<Place>, Arc<Pair>)> {
    let new = |queue: &Queue| {
        let Queue { processor, depth } = *queue;
        (0..depth).map(move |_| Place::new(processor, payload))
    };
    let places: Vec<_> = queues.iter().flat_map(new).collect();
    let live = AtomicUsize::new(places.len());
    let pair = Pair { near: Arc::new(Mailbox::new()?), far: Arc::new(Mailbox::new()?), live };
    Ok((places, Arc::new(pair)))
}

/// Binds the calling thread to the processors of these queues, as far as it may run there. Without that everything
/// works too, with more waking.
pub(crate) fn stay_near(queues: &[Queue]) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let mut affinity = rustix::thread::CpuSet::new();
    let known = queues.iter().map(|queue| queue.processor.into()).filter(|&at| at < rustix::thread::CpuSet::MAX_CPU);
    known.filter(|&at| allowed.is_set(at)).for_each(|at| affinity.set(at));
    if affinity.count() > 0
        && let Err(error) = rustix::thread::sched_setaffinity(None, &affinity)
    {
        tracing::debug!("binding a serving thread to its processors: {error}");
    }
}

impl Ring {
    /// The ring of one thread of `pair`, the calling one, whose mail comes to `mailbox`. `places` are those that it
    /// registers; with `buffer` bytes it also reads `/dev/fuse`.
    ///
    /// # Errors
    /// What the system said.
    pub fn new(
        connection: Arc<Connection>,
        pair: Arc<Pair>,
        mailbox: Arc<Mailbox>,
        places: Vec<Place>,
        buffer: Option<usize>,
    ) -> io::Result<Self> {
        let count = pair.live.load(Ordering::SeqCst);
        let entries = ((count + LocalTransfers::MOST) as u32 + 2).next_power_of_two();
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(entries)?;
        platter_device::allow_workers(&ring.submitter());
        let mut places: Vec<_> = places.into_iter().map(Some).collect();
        places.resize_with(count, || None);
        let tasks = Tasks::new(mailbox.clone());
        Ok(Self {
            ring,
            connection,
            pair,
            mailbox,
            tasks,
            transfers: LocalTransfers::adopt(),
            places,
            buffer,
            buffers: Buffers::new(),
            gathering: Box::new(GATHERING.into()),
            wakes: Box::new(0),
            used: false,
            refused: None,
        })
    }

    /// Serves requests until the mount is gone.
    ///
    /// # Errors
    /// What the kernel refused a place with.
    pub fn run(mut self, server: &Arc<dyn Serve>) -> io::Result<()> {
        self.watch_wake()?;
        if self.buffer.is_some() {
            self.connection.set_nonblocking()?;
            self.watch_device()?;
        }
        for index in 0..self.places.len() {
            self.register(index)?;
        }
        let mut completed = Vec::new();
        while !self.has_ended() {
            self.take_mail()?;
            self.hand_in_transfers()?;
            // Asked after the mailbox knows, as the partner may see the last place go just now.
            let busy = self.mailbox.going_to_sleep() || self.has_ended();
            let entered = self.enter(!busy);
            self.mailbox.awake();
            entered?;
            completed.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (data, result) in completed.drain(..) {
                match data {
                    WAKE => self.watch_wake()?,
                    DEVICE => self.read_device(server)?,
                    number if number >= TRANSFERS => self.transfers.completed(number - TRANSFERS, result),
                    index => self.completed(index as usize, result, server)?,
                }
            }
        }
        self.refused.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }

    fn has_ended(&self) -> bool {
        self.pair.live.load(Ordering::SeqCst) == 0 && self.tasks.is_empty() && self.transfers.is_empty()
    }

    /// Hands in what there is, and waits for something when `wait`. After a while without anything to do, the memory of
    /// the places goes back to the system.
    fn enter(&mut self, wait: bool) -> io::Result<()> {
        let entered = match (wait, self.used) {
            (true, true) => {
                let idle = types::Timespec::from(IDLE);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&idle))
            }
            _ => self.ring.submit_and_wait(usize::from(wait)),
        };
        let Err(error) = entered else { return Ok(()) };
        match error.raw_os_error() {
            Some(code) if is_passing(code) => Ok(()),
            Some(code) if code == Errno::TIME.raw_os_error() => {
                // Requests are put in their places by this thread while it waits: none is there that is not told.
                if self.ring.completion().is_empty() {
                    self.used = false;
                    self.places.iter_mut().flatten().for_each(Place::give_memory_back);
                    self.buffers.trim();
                }
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Ends without having served anything: the kernel has nothing of it.
    pub fn unused(&self) {
        self.pair.live.store(0, Ordering::SeqCst);
    }

    fn completed(&mut self, index: usize, result: i32, server: &Arc<dyn Serve>) -> io::Result<()> {
        if is_passing(-result) {
            return self.command_again(index);
        }
        let Some(place) = self.places.get_mut(index).and_then(Option::take) else { return Ok(()) };
        if result == 0 {
            self.used = true;
            let header = InHeader::read_from_prefix(&place.headers().in_out).map(|(header, _)| header).ok();
            let lease = Lease::new(self.pair.clone(), index, place);
            if let Some(header) = header {
                self.tasks.start(serve::leased(server, header, Arc::new(lease)));
            }
            return Ok(());
        }
        let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::NODEV];
        if !gone.iter().any(|errno| errno.raw_os_error() == -result) {
            self.refused = Some(-result);
        }
        if self.pair.live.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.pair.near.tell();
            self.pair.far.tell();
        }
        Ok(())
    }

    /// Goes on with tasks that were woken, then hands in answers, theirs too.
    fn take_mail(&mut self) -> io::Result<()> {
        let mut mail = self.mailbox.take();
        while !mail.woken.is_empty() || !mail.finished.is_empty() {
            mail.woken.into_iter().for_each(|task| self.tasks.go_on(task));
            for (index, place) in mail.finished {
                self.places[index] = Some(place);
                self.commit(index)?;
            }
            mail = self.mailbox.take();
        }
        Ok(())
    }

    /// Hands in what tasks read and write.
    fn hand_in_transfers(&mut self) -> io::Result<()> {
        while let Some(entry) = self.transfers.next_entry() {
            let number = entry.get_user_data() + TRANSFERS;
            // SAFETY: `transfers` keeps what the entry names until its completion, or for ever.
            unsafe { self.push(&entry.user_data(number).into())? };
        }
        Ok(())
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let Some(place) = &mut self.places[index] else { return Ok(()) };
        place.headers_mut().place.commit_id = 0;
        let parts = place.parts() as u64;
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
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(PARTS as u32) };
        }
        // SAFETY: the place's memory stays in `places`, where nobody touches it, until the command's completion. When
        // the thread ends before that, `drop` leaves the memory alone for good.
        unsafe { self.push(&entry) }
    }

    fn watch_wake(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.mailbox.raw_fd());
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

    fn look_later(&mut self) -> io::Result<()> {
        let entry = opcode::Timeout::new(&raw const *self.gathering).build().user_data(DEVICE);
        // SAFETY: the time is boxed and never changes; the kernel reads it when the entry is handed in, and the thread
        // ends after that or not at all.
        unsafe { self.push(&entry.into()) }
    }

    fn read_device(&mut self, server: &Arc<dyn Serve>) -> io::Result<()> {
        let Some(length) = self.buffer else { return Ok(()) };
        let mut any = false;
        let mut buffer = None;
        loop {
            let room = buffer.get_or_insert_with(|| self.buffers.borrow(length));
            match self.connection.try_receive(room) {
                Ok(length) => {
                    any = true;
                    if let Some(task) = serve::read(server, &self.connection, &mut buffer, 0..length) {
                        self.tasks.start(task);
                    }
                }
                Err(Errno::AGAIN) if any => return self.look_later(),
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
        if self.pair.live.load(Ordering::SeqCst) > 0 {
            std::mem::forget(std::mem::take(&mut self.places));
        }
        Box::leak(std::mem::replace(&mut self.wakes, Box::new(0)));
    }
}

fn is_passing(code: i32) -> bool {
    [Errno::AGAIN, Errno::INTR].iter().any(|errno| errno.raw_os_error() == code)
}
