//! Requests over io_uring (Linux 6.14 and later): each processor has a queue of its own, served by a thread that stays
//! on that processor, and one system call hands in answers and fetches the next requests. Against reads and writes of
//! `/dev/fuse` that saves a system call for each request, and waking another processor twice.
//!
//! Each such thread has a second one beside it that goes where there is time, with a ring of its own: it hands in large
//! answers, and gets the requests that follow in their places. A place goes back and forth between the two with what
//! its last answer was, so a stream is served on one processor while it is read on another, and what takes a moment is
//! served where it is asked for.
//!
//! What the kernel still sends through `/dev/fuse` (nodes that it forgets, requests taken back) is read by one of the
//! near threads, a moment later when there was something a moment ago: nobody waits for it, each look wakes the thread,
//! and what has gathered meanwhile comes at once.
//!
//! What a request reads from disks or writes there travels on the ring of the thread that serves it, in the same system
//! calls: no other thread is woken for it.
//!
//! A thread waits for the kernel alone: a request that waits for anything else is put aside until it is woken. So
//! whatever one mount waits for, the others are served.
//!
//! Invariants:
//! - a command is handed in by the thread that has its place, and its completion comes to that thread;
//! - memory of a place is given back only when its last request was answered before the previous look at all places:
//!   the kernel may have put a request there while it took the answer, and tells of that when it is entered next;
//! - an error that a command ends with is the end of that place, never of the thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use platter_device::LocalTransfers;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::buffers::Buffers;
use crate::lease::{Lease, Mail, News, Pair};
use crate::mount::Mount;
use crate::seat::{PARTS, Seat};
use crate::serve;
use crate::tasks::Tasks;
use crate::wire::{self, InHeader, RingCommand};

/// Entries that are handed in together at most; further ones take another system call.
const ENTRIES: u32 = 128;
/// Completions that find room at once; for further ones the kernel allocates memory.
const COMPLETIONS: u32 = 1024;

/// Memory that was not used for so long is given back, at the latest after twice that.
const IDLE: Duration = Duration::from_secs(10);

/// How long what comes through `/dev/fuse` may gather.
const GATHERING: Duration = Duration::from_millis(1);

/// Completions that are no request's.
const WAKE: u64 = u64::MAX;
const LOOK: u64 = u64::MAX - 1;
const NOBODYS: u64 = u64::MAX - 2;
/// Transfers have numbers from here, watched descriptors from there, places below.
const TRANSFERS: u64 = 1 << 32;
const DEVICES: u64 = 2 << 32;

const _: () = assert!(TRANSFERS < DEVICES && DEVICES < NOBODYS, "completions are told apart by their numbers");

/// Where the length lies in an entry of the submission queue (`struct io_uring_sqe`).
const SQE_LEN_AT: usize = 24;

const _: () = assert!(SQE_LEN_AT + size_of::<u32>() <= size_of::<squeue::Entry128>(), "inside of an entry");
const _: () = assert!(size_of::<RingCommand>() <= 80, "a command fits in an entry");

/// Things by numbers that are used again.
struct Numbered<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Numbered<T> {
    const NONE: Self = Self { slots: Vec::new(), free: Vec::new() };

    fn put(&mut self, what: T) -> usize {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[number] = Some(what);
        number
    }

    fn take(&mut self, number: usize) -> Option<T> {
        let what = self.slots.get_mut(number)?.take()?;
        self.free.push(number);
        Some(what)
    }
}

/// A ring that is ready to be served by the thread that made it.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    pair: Arc<Pair<Mount>>,
    mailbox: Arc<Mail<Mount>>,
    tasks: Tasks,
    transfers: LocalTransfers,
    /// Those whose commands this ring has handed in, by the numbers of these.
    places: Numbered<Seat<Mount>>,
    /// Mounts whose `/dev/fuse` this ring reads.
    devices: Numbered<Arc<Mount>>,
    buffers: Arc<Buffers>,
    /// Whether they were used since the last look.
    read: bool,
    /// [`GATHERING`] and [`IDLE`], where the kernel reads them.
    times: Box<[types::Timespec; 2]>,
    /// Whether a look at all places is to come.
    looks: bool,
    wakes: Box<u64>,
    leaves: bool,
}

impl Ring {
    /// The ring of one thread of `pair`, the calling one, whose mail comes to `mailbox`.
    ///
    /// # Errors
    /// What the system said.
    pub fn new(pair: Arc<Pair<Mount>>, mailbox: Arc<Mail<Mount>>) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)?;
        platter_device::allow_workers(&ring.submitter());
        let tasks = Tasks::new(mailbox.clone());
        Ok(Self {
            ring,
            pair,
            mailbox,
            tasks,
            transfers: LocalTransfers::adopt(),
            places: Numbered::NONE,
            devices: Numbered::NONE,
            buffers: Buffers::new(),
            read: false,
            times: Box::new([GATHERING.into(), IDLE.into()]),
            looks: false,
            wakes: Box::new(0),
            leaves: false,
        })
    }

    /// Serves requests until it is told to leave, which is said only to who has served none.
    pub fn run(mut self) {
        self.watch_wake();
        let mut completed = Vec::new();
        let mut look = false;
        loop {
            self.take_mail();
            if self.leaves {
                return;
            }
            self.hand_in_transfers();
            let busy = self.mailbox.going_to_sleep();
            self.enter(!busy);
            self.mailbox.awake();
            completed.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (data, result) in completed.drain(..) {
                match data {
                    WAKE => self.watch_wake(),
                    LOOK => look = true,
                    NOBODYS => {}
                    number if number >= DEVICES => self.read_device((number - DEVICES) as usize),
                    number if number >= TRANSFERS => self.transfers.completed(number - TRANSFERS, result),
                    number => self.completed(number as usize, result),
                }
            }
            // Whose request is there already is no longer among the places.
            if look && self.ring.completion().is_empty() {
                look = false;
                self.look_at_places();
            }
        }
    }

    /// Hands in what there is, and waits for something when `wait`.
    fn enter(&mut self, wait: bool) {
        if let Err(error) = self.ring.submit_and_wait(usize::from(wait)) {
            self.bear(&error);
        }
    }

    /// The kernel took nothing, or not all: it comes again.
    fn bear(&self, error: &io::Error) {
        let passing = [Errno::AGAIN, Errno::INTR, Errno::BUSY].map(Errno::raw_os_error);
        if !error.raw_os_error().is_some_and(|code| passing.contains(&code)) {
            // It cannot be, and must not take a processor.
            tracing::error!("waiting for requests over io_uring: {error}");
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    fn completed(&mut self, number: usize, result: i32) {
        let Some(mut place) = self.places.take(number) else { return };
        if is_passing(-result) {
            return self.command_again(place);
        }
        if result == 0 {
            place.used();
            let header = InHeader::read_from_prefix(&place.headers().in_out).map(|(header, _)| header).ok();
            let mount = place.mount.clone();
            let lease = Lease::new(self.pair.clone(), place);
            if let Some(header) = header {
                let task = serve::leased(&mount.server, header, Arc::new(lease));
                self.tasks.start(task, mount.server.runtime());
            }
            return;
        }
        let gone = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::NODEV];
        let refused = !gone.iter().any(|errno| errno.raw_os_error() == -result);
        let mount = place.mount.clone();
        drop(place);
        mount.lost_place(refused.then_some(-result));
    }

    /// Goes on with tasks that were woken, then hands in answers, theirs too.
    fn take_mail(&mut self) {
        let mut mail = self.mailbox.take();
        while !mail.is_empty() {
            mail.woken.into_iter().for_each(|task| self.tasks.go_on(task));
            mail.finished.into_iter().for_each(|place| self.commit(place));
            for news in mail.news {
                match news {
                    News::Places(places) => places.into_iter().for_each(|place| self.register(place)),
                    News::Watch(mount) => {
                        let number = self.devices.put(mount);
                        self.watch_device(number);
                    }
                    News::Ended(mount) => self.unwatch_device(&mount),
                    News::Leave => self.leaves = true,
                }
            }
            mail = self.mailbox.take();
        }
    }

    /// Hands in what tasks read and write.
    fn hand_in_transfers(&mut self) {
        while let Some(entry) = self.transfers.next_entry() {
            let number = entry.get_user_data() + TRANSFERS;
            // SAFETY: `transfers` keeps what the entry names until its completion, or for ever.
            unsafe { self.push(&entry.user_data(number).into()) };
        }
    }

    /// Sees to it that memory which is not used any more is given back.
    fn look_later(&mut self) {
        if self.looks {
            return;
        }
        self.looks = true;
        let entry = opcode::Timeout::new(&raw const self.times[1]).build().user_data(LOOK);
        // SAFETY: the times are boxed and never change; the kernel reads them when the entry is handed in, and the
        // thread ends after that or not at all.
        unsafe { self.push(&entry.into()) }
    }

    /// Gives back memory that was not used since the last look.
    fn look_at_places(&mut self) {
        let mut more = false;
        for place in self.places.slots.iter_mut().flatten() {
            more |= place.give_memory_back();
        }
        if std::mem::take(&mut self.read) {
            more = true;
        } else {
            self.buffers.trim();
        }
        self.looks = false;
        if more {
            self.look_later();
        }
    }

    fn register(&mut self, mut place: Seat<Mount>) {
        place.headers_mut().place.commit_id = 0;
        let parts = place.parts() as u64;
        let command = RingCommand { queue: place.queue, ..Default::default() };
        self.command(place, wire::RING_REGISTER, command, Some(parts));
    }

    fn commit(&mut self, place: Seat<Mount>) {
        // It may have been used elsewhere.
        if place.has_memory() {
            self.look_later();
        }
        let commit_id = place.headers().place.commit_id;
        let command = RingCommand { queue: place.queue, commit_id, ..Default::default() };
        self.command(place, wire::RING_COMMIT_AND_FETCH, command, None);
    }

    /// Hands in again what the kernel had no time for.
    fn command_again(&mut self, place: Seat<Mount>) {
        if place.headers().place.commit_id == 0 {
            self.register(place);
        } else {
            self.commit(place);
        }
    }

    fn command(&mut self, place: Seat<Mount>, code: u32, command: RingCommand, parts: Option<u64>) {
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(command.as_bytes());
        let fd = types::Fd(place.mount.connection.raw_fd());
        let number = self.places.put(place);
        let mut entry = opcode::UringCmd80::new(fd, code).cmd(bytes).addr(parts).build().user_data(number as u64);
        if parts.is_some() {
            // SAFETY: an entry is a `struct io_uring_sqe` of 128 bytes, whose `len` (a `u32`) lies there.
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(PARTS as u32) };
        }
        // SAFETY: the place's memory stays in `places`, where nobody touches it, until the command's completion. When
        // the thread ends before that, `drop` leaves the memory alone for good.
        unsafe { self.push(&entry) }
    }

    fn watch_wake(&mut self) {
        let fd = types::Fd(self.mailbox.raw_fd());
        let entry = opcode::Read::new(fd, (&raw mut *self.wakes).cast(), 8).build().user_data(WAKE);
        // SAFETY: the number is boxed, and is used by this read alone; when the thread ends it is left alone for good.
        unsafe { self.push(&entry.into()) }
    }

    fn watch_device(&mut self, number: usize) {
        const READABLE: u32 = 1;
        let Some(Some(mount)) = self.devices.slots.get(number) else { return };
        let fd = types::Fd(mount.connection.raw_fd());
        let entry = opcode::PollAdd::new(fd, READABLE).build().user_data(DEVICES + number as u64);
        // SAFETY: it names no memory.
        unsafe { self.push(&entry.into()) }
    }

    /// Has the watch of a mount that is gone end, also where the kernel has more to say there.
    fn unwatch_device(&mut self, mount: &Arc<Mount>) {
        let is_it = |device: &Option<Arc<Mount>>| device.as_ref().is_some_and(|device| Arc::ptr_eq(device, mount));
        let Some(number) = self.devices.slots.iter().position(is_it) else { return };
        let entry = opcode::PollRemove::new(DEVICES + number as u64).build().user_data(NOBODYS);
        // SAFETY: it names no memory.
        unsafe { self.push(&entry.into()) }
    }

    fn read_device_later(&mut self, number: usize) {
        let entry = opcode::Timeout::new(&raw const self.times[0]).build().user_data(DEVICES + number as u64);
        // SAFETY: as in `look_later`.
        unsafe { self.push(&entry.into()) }
    }

    fn read_device(&mut self, number: usize) {
        let Some(Some(mount)) = self.devices.slots.get(number) else { return };
        let mount = mount.clone();
        let mut any = false;
        let mut buffer = None;
        while !mount.is_over() {
            let room = buffer.get_or_insert_with(|| self.buffers.borrow(mount.length));
            match mount.connection.try_receive(room) {
                Ok(length) => {
                    any = true;
                    self.read = true;
                    if let Some(task) = serve::read(&mount.server, &mount.connection, &mut buffer, 0..length) {
                        self.tasks.start(task, mount.server.runtime());
                    }
                }
                Err(Errno::AGAIN) => {
                    if any {
                        self.read_device_later(number);
                    } else {
                        self.watch_device(number);
                    }
                    return self.look_later();
                }
                // The mount is gone: nothing comes here any more.
                Err(Errno::NODEV) => break,
                Err(error) => {
                    tracing::error!("reading what a mount's kernel says beside its rings: {error}");
                    break;
                }
            }
        }
        self.devices.take(number);
    }

    /// # Safety
    /// What the entry names must live until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry128) {
        // SAFETY: the caller's.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            if let Err(error) = self.ring.submit() {
                self.bear(&error);
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Whatever the kernel may still write to must not become somebody else's memory.
        std::mem::forget(std::mem::replace(&mut self.places, Numbered::NONE));
        Box::leak(std::mem::replace(&mut self.wakes, Box::new(0)));
    }
}

fn is_passing(code: i32) -> bool {
    [Errno::AGAIN, Errno::INTR].iter().any(|errno| errno.raw_os_error() == code)
}
