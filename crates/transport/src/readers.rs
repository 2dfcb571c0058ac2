//! The threads that read `/dev/fuse`, one set for all mounts of the process.
//!
//! They wait for all descriptors at once, and who is woken takes what there is: a mount has neither a thread nor a
//! buffer of its own. A request's first steps are taken by who has read it; most need no more. One that has to wait
//! keeps its thread while enough others are free, since that thread is the quickest to wake; else it goes on as a task
//! of the runtime. So requests that nothing ends (a pool whose devices are gone) never take all threads.
//!
//! The kernel tells one thread of each request that comes (`EPOLLET`), but once of those that came before it looked.
//! So who is told reads until nothing is there, and has the kernel tell another thread as soon as there was a second
//! request, or before it waits.
//!
//! Invariants:
//! - a thread that waits for the kernel has read until nothing was there, or another thread has been told;
//! - at most [`WAITING_MAX`] requests of a mount wait in tasks, and one that takes a buffer along when those of all
//!   mounts have as much memory as they may: further ones stay with the kernel until one has ended;
//! - a descriptor is looked at until the kernel says that its mount is gone; that is told once.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::buffers::{Borrowed, Buffers};
use crate::connection::Connection;
use crate::mount::{Gone, Serve, Task};
use crate::pages::PAGE;
use crate::serve;
use crate::wire::{self, InHeader};

/// What lies before a write's data: that begins with a page.
const WRITE_HEADERS: usize = size_of::<InHeader>() + size_of::<wire::WriteIn>();
/// Requests of a mount that may wait in tasks.
const WAITING_MAX: usize = 128;
/// A thread without anything to do for so long gives memory back.
const IDLE: Duration = Duration::from_secs(10);

/// A mount whose descriptor is read.
struct Mount {
    connection: Arc<Connection>,
    server: Arc<dyn Serve>,
    /// Bytes that its longest request has.
    length: usize,
    /// Requests that wait in tasks.
    waiting: AtomicUsize,
    /// Those of them that took a buffer along.
    large: AtomicUsize,
    /// Whether requests were left with the kernel because of those.
    stalled: AtomicBool,
    gone: Mutex<Option<Gone>>,
}

/// See the module text.
pub(crate) struct Readers {
    epoll: std::os::fd::OwnedFd,
    mounts: RwLock<FxHashMap<u64, Arc<Mount>>>,
    next: AtomicU64,
    buffers: Arc<Buffers>,
    /// Threads there are.
    threads: Mutex<usize>,
    /// Those that wait for a request's end.
    held: AtomicUsize,
    held_max: AtomicUsize,
    /// Bytes of buffers that requests which wait in tasks took along.
    large: AtomicUsize,
}

/// Bytes of buffers that requests which wait may take along.
static LARGE_MAX: AtomicUsize = AtomicUsize::new(64 << 20);

/// Lets requests of all mounts that wait for something hold about so many bytes of data; one of each mount may in any
/// case.
pub fn set_waiting_bytes(bytes: usize) {
    LARGE_MAX.store(bytes, Ordering::Relaxed);
}

/// What [`set_waiting_bytes`] said.
pub(crate) fn waiting_bytes() -> usize {
    LARGE_MAX.load(Ordering::Relaxed)
}

/// Those of this process.
static READERS: Mutex<Option<Arc<Readers>>> = Mutex::new(None);

const EVENTS: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ET);

impl Readers {
    /// The threads of this process, of which there are at least `threads` afterwards, or at least one.
    ///
    /// # Errors
    /// What the system said to the first.
    pub fn get(threads: usize) -> io::Result<Arc<Self>> {
        let mut all = READERS.lock();
        let readers = match &*all {
            Some(readers) => readers.clone(),
            None => Arc::new(Self {
                epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
                mounts: RwLock::default(),
                next: AtomicU64::new(0),
                buffers: Buffers::new(),
                threads: Mutex::new(0),
                held: AtomicUsize::new(0),
                held_max: AtomicUsize::new(0),
                large: AtomicUsize::new(0),
            }),
        };
        let mut there = readers.threads.lock();
        while *there < threads.max(1) {
            let own = readers.clone();
            match Builder::new().name(format!("fuse-{there}")).spawn(move || own.run()) {
                Ok(_) => *there += 1,
                Err(error) if *there == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!("starting a thread to serve mounts: {error}");
                    break;
                }
            }
        }
        readers.held_max.store(*there / 2, Ordering::Relaxed);
        drop(there);
        *all = Some(readers.clone());
        Ok(readers)
    }

    /// Serves a mount, whose requests have up to `length` bytes, until it is gone.
    ///
    /// # Errors
    /// What the system said.
    pub fn add(
        &self,
        connection: Arc<Connection>,
        server: Arc<dyn Serve>,
        length: usize,
        gone: Gone,
    ) -> io::Result<()> {
        connection.set_nonblocking()?;
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let mount = Arc::new(Mount {
            connection,
            server,
            length,
            waiting: AtomicUsize::new(0),
            large: AtomicUsize::new(0),
            stalled: AtomicBool::new(false),
            gone: Mutex::new(Some(gone)),
        });
        self.mounts.write().insert(key, mount.clone());
        let added = epoll::add(&self.epoll, &*mount.connection, epoll::EventData::new_u64(key), EVENTS);
        if added.is_err() {
            self.mounts.write().remove(&key);
        }
        Ok(added?)
    }

    fn run(self: Arc<Self>) {
        let mut buffer = None;
        loop {
            let Some(key) = self.wait(&mut buffer) else { continue };
            let Some(mount) = self.mounts.read().get(&key).cloned() else { continue };
            if let Err(ended) = self.take_requests(key, &mount, &mut buffer) {
                self.remove(key, &mount, ended);
            }
        }
    }

    /// Waits for a descriptor with something to read. After a while without one, memory goes back to the system.
    fn wait(&self, buffer: &mut Option<Borrowed>) -> Option<u64> {
        let mut event = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let limit = buffer.is_some().then(|| Timespec { tv_sec: IDLE.as_secs() as i64, tv_nsec: 0 });
        match epoll::wait(&self.epoll, &mut event, limit.as_ref()) {
            Ok(0) => {
                if let Some(mut own) = buffer.take() {
                    own.clear();
                }
                self.buffers.trim();
                None
            }
            Ok(_) => Some(event[0].data.u64()),
            Err(Errno::INTR) => None,
            Err(error) => {
                // It cannot be, and must not take a processor.
                tracing::error!("waiting for requests: {error}");
                std::thread::park_timeout(Duration::from_millis(100));
                None
            }
        }
    }

    /// Has the kernel tell a thread when there is something to read.
    fn tell_another(&self, key: u64, mount: &Mount) {
        if let Err(error) = epoll::modify(&self.epoll, &*mount.connection, epoll::EventData::new_u64(key), EVENTS)
            && error != Errno::NOENT
        {
            tracing::error!("waiting for requests of a mount: {error}");
        }
    }

    /// Takes requests until there is none, or the mount has as many as it may. The error is how the mount ended.
    fn take_requests(
        self: &Arc<Self>,
        key: u64,
        mount: &Arc<Mount>,
        buffer: &mut Option<Borrowed>,
    ) -> Result<(), io::Result<()>> {
        const DATA_AT: usize = PAGE - WRITE_HEADERS;
        let _entered = mount.server.runtime().enter();
        for number in 0usize.. {
            if self.is_full(mount) {
                return Ok(());
            }
            let room = buffer.take().filter(|own| own.len() >= DATA_AT + mount.length);
            let room = buffer.insert(room.unwrap_or_else(|| self.buffers.borrow(DATA_AT + mount.length)));
            let length = match mount.connection.try_receive(&mut room[DATA_AT..]) {
                Ok(length) => length,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::NODEV) => return Err(Ok(())),
                Err(error) => return Err(Err(error.into())),
            };
            if number == 1 {
                self.tell_another(key, mount);
            }
            let place = DATA_AT..DATA_AT + length;
            let Some(task) = serve::read(&mount.server, &mount.connection, buffer, place) else { continue };
            let large = buffer.is_none();
            if let Some(task) = first_steps(task) {
                self.go_on(key, mount, task, large);
            }
        }
        Ok(())
    }

    /// Whether no more requests of a mount are taken until one of those that wait has ended, which then has a thread
    /// told.
    fn is_full(&self, mount: &Mount) -> bool {
        let full = || {
            mount.waiting.load(Ordering::SeqCst) >= WAITING_MAX
                || mount.large.load(Ordering::SeqCst) > 0 && self.large.load(Ordering::SeqCst) >= waiting_bytes()
        };
        if !full() {
            return false;
        }
        mount.stalled.store(true, Ordering::SeqCst);
        // The last one may have ended before it could know.
        full()
    }

    /// Sees to it that a request which waits for something goes on.
    fn go_on(self: &Arc<Self>, key: u64, mount: &Arc<Mount>, mut task: Task, large: bool) {
        if self.held.fetch_add(1, Ordering::Relaxed) < self.held_max.load(Ordering::Relaxed) {
            self.tell_another(key, mount);
            let work = AssertUnwindSafe(|| mount.server.runtime().block_on(&mut task));
            if panic::catch_unwind(work).is_err() {
                complain();
            }
            self.held.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        let bytes = if large { mount.length } else { 0 };
        let waits = Waits { readers: self.clone(), key, mount: mount.clone(), bytes };
        waits.count();
        // The runtime notes a panic, and drops what is left of the request: it is answered.
        mount.server.runtime().spawn(async move {
            // Dropped after the task, which has the buffer.
            let _waits = waits;
            let task = task;
            task.await;
        });
    }

    fn remove(&self, key: u64, mount: &Mount, ended: io::Result<()>) {
        self.mounts.write().remove(&key);
        let _ = epoll::delete(&self.epoll, &*mount.connection);
        let gone = mount.gone.lock().take();
        if let Some(gone) = gone {
            gone(ended);
        }
    }
}

/// A request that waits in a task.
struct Waits {
    readers: Arc<Readers>,
    key: u64,
    mount: Arc<Mount>,
    /// Of the buffer that it took along.
    bytes: usize,
}

impl Waits {
    fn count(&self) {
        self.mount.waiting.fetch_add(1, Ordering::SeqCst);
        if self.bytes > 0 {
            self.mount.large.fetch_add(1, Ordering::SeqCst);
            self.readers.large.fetch_add(self.bytes, Ordering::SeqCst);
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if std::thread::panicking() {
            complain();
        }
        if self.bytes > 0 {
            self.readers.large.fetch_sub(self.bytes, Ordering::SeqCst);
            self.mount.large.fetch_sub(1, Ordering::SeqCst);
        }
        let waited = self.mount.waiting.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(waited > 0, "who stops waiting has been counted");
        if self.mount.stalled.swap(false, Ordering::SeqCst) {
            self.readers.tell_another(self.key, &self.mount);
        }
    }
}

/// Takes the first steps of `task`, and returns it when it has to wait.
fn first_steps(mut task: Task) -> Option<Task> {
    let mut context = Context::from_waker(Waker::noop());
    // A panic would take the thread along, and after a few of them all mounts would hang.
    match panic::catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context))) {
        Ok(Poll::Pending) => Some(task),
        Ok(Poll::Ready(())) => None,
        Err(_) => {
            complain();
            None
        }
    }
}

fn complain() {
    tracing::error!("a request panicked; this is a bug");
}
