//! Serving one mount: the first words with the kernel, then requests on threads that all mounts share, until it is
//! unmounted.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::connection::Connection;
use crate::handshake::handshake;
use crate::operation::{self, Request};
use crate::readers::{Readers, waiting_bytes};
use crate::reply::Reply;
use crate::ring::{self, Ring};
use crate::serve::{Message, Serve};
use crate::tasks::Task;
use crate::types::{InitFlags, NodeId};
use crate::wire::{self, InHeader};

/// What answers the requests of a mount.
pub trait Filesystem: Send + Sync + 'static {
    /// Does what is asked and answers, then or later, here or in another task. A `reply` to a request that waits for
    /// no answer must be `None`, and is. The first steps may be taken on a thread that others wait for, so this must
    /// not block.
    fn serve(&self, request: Request<'_>, reply: Option<Reply>) -> impl Future<Output = ()> + Send;

    /// Serving begins; `kernel` is for what nobody asked for.
    fn started(&self, kernel: Kernel) {
        let _ = kernel;
    }

    /// The kernel's side is gone: no request will come any more, and none is being served.
    fn gone(&self);
}

/// What is agreed on with the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that serve requests of all mounts, at least 1: as many as the mount that asks for most says; over
    /// io_uring it is one for each processor.
    pub threads: usize,
    /// Capabilities wanted; what the kernel lacks is done without.
    pub wanted: InitFlags,
    /// Bytes that a read or write may have, a multiple of 4096.
    pub request_max: u32,
    /// Bytes that the kernel may read ahead.
    pub readahead_max: u32,
    /// Requests that nobody waits for in flight.
    pub background_max: u16,
}

/// The kernel's side of a mount.
#[derive(Clone, Debug)]
pub struct Kernel {
    connection: Weak<Connection>,
    agreed: InitFlags,
}

impl Kernel {
    /// Whether the kernel may still send requests: somebody has the file system mounted, or files of it open.
    pub fn is_connected(&self) -> bool {
        self.connection.upgrade().is_some_and(|connection| connection.is_connected())
    }

    /// Whether these capabilities were agreed on.
    pub fn has(&self, capabilities: InitFlags) -> bool {
        self.agreed.contains(capabilities)
    }

    /// Has the kernel write back and forget what its page cache has of `length` bytes (0: all) of a node from `offset`.
    /// Waits for pages that are being read or written: not to be called by who serves requests.
    pub fn forget_pages(&self, node: NodeId, offset: u64, length: u64) {
        let clamped = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        // So that the end is not past all numbers.
        let length = if offset.checked_add(length).is_none_or(|end| i64::try_from(end).is_err()) { 0 } else { length };
        self.forget(node, clamped(offset), clamped(length));
    }

    /// Has the kernel forget a node's attributes and access lists, but no pages. Waits for nobody: whoever serves a
    /// request about the node may call it.
    pub fn forget_attributes(&self, node: NodeId) {
        self.forget(node, -1, 0);
    }

    fn forget(&self, node: NodeId, offset: i64, length: i64) {
        let Some(connection) = self.connection.upgrade() else { return };
        if let Err(error) = connection.forget(node, offset, length) {
            // Mostly that it does not know the node any more.
            tracing::debug!("having the kernel forget what it has of node {}: {error}", node.0);
        }
    }
}

/// A mount that is being served.
#[derive(Debug)]
pub struct Session {
    end: Arc<End>,
}

/// How serving ended, once it has.
#[derive(Debug, Default)]
struct End {
    outcome: Mutex<Option<io::Result<()>>>,
    told: Condvar,
}

/// What all that serve a mount share.
struct Server<F> {
    filesystem: F,
    agreed: InitFlags,
    runtime: Handle,
}

impl Session {
    /// Agrees with the kernel and starts serving the mount that `device` belongs to. What takes longer than a moment is
    /// done in tasks of `runtime`, which must outlive the mount.
    ///
    /// # Errors
    /// What the device said; `Unsupported` when the kernel's protocol is too old (before Linux 5.4).
    pub fn start<F: Filesystem>(filesystem: F, device: OwnedFd, config: Config, runtime: Handle) -> io::Result<Self> {
        let readers = Readers::get(config.threads)?;
        let first = Arc::new(Connection::new(device));
        let mut rings = None;
        let agreed = handshake(&first, &config, || {
            let Some(turn) = RingTurn::take() else { return false };
            let started = start_rings(&first, config.request_max);
            let started = started.inspect_err(|error| tracing::warn!("FUSE over io_uring: {error}"));
            rings = started.ok().map(|threads| (threads, turn));
            rings.is_some()
        })?;
        let server = Arc::new(Server { filesystem, agreed, runtime });
        server.filesystem.started(Kernel { connection: Arc::downgrade(&first), agreed });
        let end = Arc::new(End::default());
        if let Some((rings, turn)) = rings {
            tracing::debug!("{} threads serve a mount over io_uring", rings.len());
            // The kernel waits for all of them.
            let threads: Vec<_> = rings.into_iter().filter_map(|ring| ring.serve(server.clone())).collect();
            let tell = end.clone();
            Builder::new().name("fuse".into()).spawn(move || {
                let mut outcome = Ok(());
                for thread in threads {
                    let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")));
                    outcome = outcome.and(ended);
                }
                drop(turn);
                finish(&server, &tell, outcome);
            })?;
        } else {
            let length = config.request_max as usize + wire::REQUEST_EXTRA;
            let (own, tell) = (server.clone(), end.clone());
            readers.add(first, server, length, Box::new(move |outcome| finish_elsewhere(own, tell, outcome)))?;
        }
        Ok(Self { end })
    }

    /// Whether the mount is gone and its last request answered.
    pub fn is_finished(&self) -> bool {
        self.end.outcome.lock().is_some()
    }

    /// Waits until the mount is gone.
    ///
    /// # Errors
    /// What ended serving, other than unmounting.
    pub fn join(self) -> io::Result<()> {
        let mut outcome = self.end.outcome.lock();
        loop {
            match outcome.take() {
                Some(outcome) => return outcome,
                None => self.end.told.wait(&mut outcome),
            }
        }
    }
}

/// Waits for what is still done for a mount that is gone, and says that it is.
fn finish<F: Filesystem>(server: &Arc<Server<F>>, end: &End, outcome: io::Result<()>) {
    // Tasks that have answered may still have something to put away.
    server.runtime.block_on(async {
        while Arc::strong_count(server) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    server.filesystem.gone();
    *end.outcome.lock() = Some(outcome);
    end.told.notify_all();
}

/// As [`finish`], on a thread that may wait: those that serve must not.
fn finish_elsewhere<F: Filesystem>(server: Arc<Server<F>>, end: Arc<End>, outcome: io::Result<()>) {
    let runtime = server.runtime.clone();
    let work = Arc::new(Mutex::new(Some((server, end, outcome))));
    let own = work.clone();
    let finish = move || {
        let taken = own.lock().take();
        if let Some((server, end, outcome)) = taken {
            finish(&server, &end, outcome);
        }
    };
    if let Err(error) = Builder::new().name("fuse-end".into()).spawn(finish.clone()) {
        tracing::debug!("starting a thread for a mount's end: {error}");
        runtime.spawn_blocking(finish);
    }
}

type Thread = JoinHandle<io::Result<()>>;

/// Mounts that have rings. Each takes threads, and places for requests that may come to hold [`RING_BYTES`]: so they
/// are for the first few, where most machines have all of theirs, and further mounts are read through `/dev/fuse`.
static RINGS: AtomicUsize = AtomicUsize::new(0);
/// Mounts with rings at a time, however much memory there is.
const RINGS_MAX: usize = 8;
/// Memory to have for requests that wait (`set_waiting_bytes`) for each mount with rings.
const RING_BYTES: usize = 8 << 20;

/// The right of one mount to have rings.
struct RingTurn;

impl RingTurn {
    fn take() -> Option<Self> {
        let most = (waiting_bytes() / RING_BYTES).min(RINGS_MAX);
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        RINGS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok().map(|_| Self)
    }
}

impl Drop for RingTurn {
    fn drop(&mut self) {
        RINGS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A thread that has its ring and waits for the file system that it shall serve.
struct RingThread {
    go: SyncSender<Arc<dyn Serve>>,
    thread: Thread,
}

impl RingThread {
    /// Starts one, and returns when it has its ring.
    fn start(name: String, ring: impl FnOnce() -> io::Result<Ring> + Send + 'static) -> io::Result<Self> {
        let (go, wait) = sync_channel::<Arc<dyn Serve>>(1);
        let (tell, told) = sync_channel(1);
        let thread = Builder::new().name(name).spawn(move || {
            let ring = match ring() {
                Ok(ring) => ring,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return Ok(());
                }
            };
            let _ = tell.send(Ok(()));
            let Ok(server) = wait.recv() else {
                // Another thread could not be started.
                ring.unused();
                return Ok(());
            };
            let _entered = server.runtime().enter();
            ring.run(&server).inspect_err(|error| tracing::error!("FUSE over io_uring: {error}"))
        })?;
        told.recv().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))?;
        Ok(Self { go, thread })
    }

    fn serve(self, server: Arc<dyn Serve>) -> Option<Thread> {
        self.go.send(server).ok().map(|()| self.thread)
    }
}

/// Starts threads with a ring for each. All of them, or none: the kernel sends requests to each processor's queue.
fn start_rings(connection: &Arc<Connection>, request_max: u32) -> io::Result<Vec<RingThread>> {
    let mut threads = Vec::new();
    for (index, queues) in ring::queues().into_iter().enumerate() {
        let (places, pair) = ring::places(&queues, request_max as usize)?;
        let (first, own) = (connection.clone(), pair.clone());
        let buffer = (index == 0).then_some(request_max as usize + wire::REQUEST_EXTRA);
        threads.push(RingThread::start(format!("fuse-near-{index}"), move || {
            ring::stay_near(&queues);
            let mailbox = own.near.clone();
            Ring::new(first, own, mailbox, places, buffer)
        })?);
        let first = connection.clone();
        threads.push(RingThread::start(format!("fuse-far-{index}"), move || {
            let mailbox = pair.far.clone();
            Ring::new(first, pair, mailbox, Vec::new(), None)
        })?);
    }
    Ok(threads)
}

impl<F: Filesystem> Serve for Server<F> {
    fn task(self: Arc<Self>, header: InHeader, message: Message, reply: Option<Reply>) -> Task {
        let extended = self.agreed.contains(InitFlags::SETXATTR_EXT);
        Box::pin(async move {
            match operation::parse(&header, message.body(&header), extended) {
                Ok(request) => self.filesystem.serve(request, reply).await,
                Err(error) => {
                    if let Some(reply) = reply {
                        reply.error(error);
                    }
                }
            }
        })
    }

    fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
