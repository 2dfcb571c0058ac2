//! Serving one mount: the first words with the kernel, then requests on several threads until it is unmounted.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use tokio::runtime::Handle;
use zerocopy::{FromBytes, IntoBytes};

use crate::connection::Connection;
use crate::operation::{self, Body, Request};
use crate::pages::{PAGE, Pages};
use crate::place::Lease;
use crate::reply::Reply;
use crate::ring::{self, Receiver, Ring};
use crate::tasks::Task;
use crate::types::{InitFlags, NodeId};
use crate::wire::{self, InHeader, opcode};

/// What lies before a write's data.
const WRITE_HEADERS: usize = size_of::<InHeader>() + size_of::<wire::WriteIn>();
/// Requests of up to so many bytes are copied out of their place in a ring.
const COPIED_MAX: usize = 4096;

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
    /// Threads that serve requests, at least 1; over io_uring it is one for each processor.
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
    supervisor: JoinHandle<io::Result<()>>,
}

/// What all serving threads share.
struct Server<F> {
    filesystem: F,
    agreed: InitFlags,
    request_max: u32,
    runtime: Handle,
}

impl Session {
    /// Agrees with the kernel and starts serving the mount that `device` belongs to. What takes longer than a moment is
    /// done in tasks of `runtime`, which must outlive the mount.
    ///
    /// # Errors
    /// What the device said; `Unsupported` when the kernel's protocol is too old (before Linux 5.4).
    pub fn start<F: Filesystem>(filesystem: F, device: OwnedFd, config: Config, runtime: Handle) -> io::Result<Self> {
        let first = Arc::new(Connection::new(device));
        let mut rings = None;
        let agreed = handshake(&first, &config, || {
            let started = start_rings::<F>(&first, config.request_max);
            rings = started.inspect_err(|error| tracing::warn!("FUSE over io_uring: {error}")).ok();
            rings.is_some()
        })?;
        let server = Arc::new(Server { filesystem, agreed, request_max: config.request_max, runtime });
        server.filesystem.started(Kernel { connection: Arc::downgrade(&first), agreed });
        let threads = if let Some(rings) = rings {
            tracing::debug!("{} threads serve a mount over io_uring", rings.len());
            // The kernel waits for all of them.
            rings.into_iter().filter_map(|ring| ring.serve(server.clone())).collect()
        } else {
            start_readers(&server, &first, config.threads)?
        };
        drop(first);
        let supervisor = Builder::new().name("fuse".into()).spawn(move || supervise(server, threads))?;
        Ok(Self { supervisor })
    }

    /// Whether the mount is gone and its last request answered.
    pub fn is_finished(&self) -> bool {
        self.supervisor.is_finished()
    }

    /// Waits until the mount is gone.
    ///
    /// # Errors
    /// What ended serving, other than unmounting.
    pub fn join(self) -> io::Result<()> {
        self.supervisor.join().unwrap_or_else(|_| Err(io::Error::other("the thread that serves the mount panicked")))
    }
}

type Thread = JoinHandle<io::Result<()>>;

/// Starts threads that read `/dev/fuse`; fewer than `count` will do.
fn start_readers<F: Filesystem>(
    server: &Arc<Server<F>>,
    first: &Arc<Connection>,
    count: usize,
) -> io::Result<Vec<Thread>> {
    let mut threads = Vec::new();
    for index in 0..count.max(1) {
        // One descriptor for all works too, with more waiting for its lock.
        let own = if index == 0 { None } else { first.cloned().ok().map(Arc::new) };
        let (server, connection) = (server.clone(), own.unwrap_or_else(|| first.clone()));
        match Builder::new().name(format!("fuse-{index}")).spawn(move || server.read(&connection)) {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => return Err(error),
            Err(error) => tracing::warn!("starting a thread to serve a mount: {error}"),
        }
    }
    Ok(threads)
}

/// A thread that has its ring and waits for the file system that it shall serve.
struct RingThread<F> {
    go: SyncSender<Arc<Server<F>>>,
    thread: Thread,
}

impl<F: Filesystem> RingThread<F> {
    /// Starts one, and returns when it has its ring.
    fn start(name: String, ring: impl FnOnce() -> io::Result<Ring> + Send + 'static) -> io::Result<Self> {
        let (go, wait) = sync_channel::<Arc<Server<F>>>(1);
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
            let _entered = server.runtime.enter();
            ring.run(&Leases(&server)).inspect_err(|error| tracing::error!("FUSE over io_uring: {error}"))
        })?;
        told.recv().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))?;
        Ok(Self { go, thread })
    }

    fn serve(self, server: Arc<Server<F>>) -> Option<Thread> {
        self.go.send(server).ok().map(|()| self.thread)
    }
}

/// Starts threads with a ring for each. All of them, or none: the kernel sends requests to each processor's queue.
fn start_rings<F: Filesystem>(connection: &Arc<Connection>, request_max: u32) -> io::Result<Vec<RingThread<F>>> {
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

fn supervise<F: Filesystem>(server: Arc<Server<F>>, threads: Vec<Thread>) -> io::Result<()> {
    let mut outcome = Ok(());
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")));
        outcome = outcome.and(ended);
    }
    // Tasks that have answered may still have something to put away.
    server.runtime.block_on(async {
        while Arc::strong_count(&server) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    server.filesystem.gone();
    outcome
}

/// A request's bytes behind its header.
enum Message {
    /// Small ones are copied, so that their place is free for the answer: first part and rest, and where that begins.
    Copied(Vec<u8>, usize),
    InPlace(Arc<Lease>),
}

impl Message {
    fn new(header: &InHeader, lease: &Arc<Lease>) -> Option<Self> {
        let Body(first, rest) = lease.body(header)?;
        if rest.len() > COPIED_MAX {
            return Some(Self::InPlace(lease.clone()));
        }
        Some(Self::Copied([first, rest].concat(), first.len()))
    }

    fn body(&self, header: &InHeader) -> Body<'_> {
        match self {
            Self::Copied(bytes, first) => Body(&bytes[..*first], &bytes[*first..]),
            Self::InPlace(lease) => lease.body(header).unwrap_or_default(),
        }
    }
}

/// Takes requests from rings.
struct Leases<'a, F>(&'a Arc<Server<F>>);

impl<F: Filesystem> Leases<'_, F> {
    fn task(&self, header: InHeader, message: Message, reply: Option<Reply>) -> Task {
        let server = self.0.clone();
        Box::pin(async move { server.serve(&header, message.body(&header), reply).await })
    }
}

impl<F: Filesystem> Receiver for Leases<'_, F> {
    fn leased(&self, header: InHeader, lease: Arc<Lease>) -> Task {
        let message = Message::new(&header, &lease);
        let reply = Reply::leased(lease, header.unique);
        match message {
            Some(message) => self.task(header, message, Some(reply)),
            None => Box::pin(async {
                tracing::error!("the kernel sent a request whose lengths do not fit each other");
                reply.error(Errno::IO);
            }),
        }
    }

    fn read(&self, message: &[u8], connection: &Arc<Connection>) -> Option<Task> {
        let (header, body, reply) = understood(connection, message)?;
        Some(self.task(header, Message::Copied(body.0.to_vec(), body.0.len()), reply))
    }
}

/// The parts of a message of `/dev/fuse`, and the right to answer it.
fn understood<'a>(connection: &Arc<Connection>, message: &'a [u8]) -> Option<(InHeader, Body<'a>, Option<Reply>)> {
    let Some((header, body)) = operation::split(message) else {
        tracing::error!("the kernel sent {} bytes that are no request", message.len());
        return None;
    };
    let reply = (!operation::is_silent(&header)).then(|| Reply::new(connection.clone(), header.unique));
    Some((header, body, reply))
}

fn complain(header: &InHeader) {
    tracing::error!("request {} of node {} panicked; this is a bug", header.opcode, header.nodeid);
}

impl<F: Filesystem> Server<F> {
    fn read(&self, connection: &Arc<Connection>) -> io::Result<()> {
        let mut pages = Pages::new(PAGE + self.request_max as usize + wire::REQUEST_EXTRA);
        let buffer = &mut pages[PAGE - WRITE_HEADERS..];
        while let Some(length) = connection.receive(buffer)? {
            let Some((header, body, reply)) = understood(connection, &buffer[..length]) else { continue };
            // A panic would take the thread along, and after a few of them the mount would hang.
            let served = AssertUnwindSafe(|| self.runtime.block_on(self.serve(&header, body, reply)));
            if panic::catch_unwind(served).is_err() {
                complain(&header);
            }
        }
        Ok(())
    }

    async fn serve(&self, header: &InHeader, body: Body<'_>, reply: Option<Reply>) {
        let extended = self.agreed.contains(InitFlags::SETXATTR_EXT);
        match operation::parse(header, body, extended) {
            Ok(request) => self.filesystem.serve(request, reply).await,
            Err(error) => {
                if let Some(reply) = reply {
                    reply.error(error);
                }
            }
        }
    }
}

/// The first request of a mount says what the kernel can; the answer says what is wanted of it.
/// `rings` prepares for requests over io_uring, when both want that, and says whether it can.
fn handshake(connection: &Arc<Connection>, config: &Config, mut rings: impl FnMut() -> bool) -> io::Result<InitFlags> {
    let mut buffer = vec![0; config.request_max as usize + wire::REQUEST_EXTRA];
    loop {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "it was unmounted before it was served");
        let length = connection.receive(&mut buffer)?.ok_or_else(gone)?;
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's first words are not understood");
        let (header, body) = operation::split(&buffer[..length]).ok_or_else(unknown)?;
        let mut reply = Reply::new(connection.clone(), header.unique);
        if header.opcode != opcode::INIT {
            reply.error(Errno::IO);
            return Err(unknown());
        }
        let (init, more) = wire::InitIn::read_from_prefix(body.0).map_err(|_| unknown())?;
        if init.major > wire::MAJOR {
            // It will ask again in our version.
            let ours = wire::InitOut { major: wire::MAJOR, minor: wire::MINOR, ..Default::default() };
            reply.say(0, &[ours.as_bytes()]);
            continue;
        }
        if init.major < wire::MAJOR || init.minor < wire::MINOR_LEAST {
            reply.error(Errno::PROTO);
            let said = format!("the kernel speaks FUSE {}.{}; Linux 5.4 or later is needed", init.major, init.minor);
            return Err(io::Error::new(io::ErrorKind::Unsupported, said));
        }
        let (agreed, answer) = agree(&init, more, config, &mut rings);
        reply.say(0, &[answer.as_bytes()]);
        return Ok(agreed);
    }
}

fn agree(
    init: &wire::InitIn,
    more: &[u8],
    config: &Config,
    rings: &mut impl FnMut() -> bool,
) -> (InitFlags, wire::InitOut) {
    let offered = InitFlags(init.flags.into());
    let extended = offered.contains(InitFlags::INIT_EXT);
    let high = wire::InitInMore::read_from_prefix(more).map_or(0, |(more, _)| more.flags2);
    let offered = if extended { InitFlags(offered.0 | u64::from(high) << 32) } else { offered };
    let always = InitFlags::BIG_WRITES | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
    let mut agreed = offered.and(config.wanted | always);
    if agreed.contains(InitFlags::OVER_IO_URING) && !rings() {
        agreed = agreed.without(InitFlags::OVER_IO_URING);
    }
    let answer = wire::InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR,
        max_readahead: init.max_readahead.min(config.readahead_max),
        flags: agreed.0 as u32,
        max_background: config.background_max,
        // Where the kernel calls the mount congested; its own choice is the same part.
        congestion_threshold: config.background_max / 4 * 3,
        max_write: config.request_max,
        // Times are exact to the nanosecond.
        time_gran: 1,
        max_pages: (config.request_max / PAGE as u32).min(u16::MAX.into()) as u16,
        flags2: (agreed.0 >> 32) as u32,
        ..Default::default()
    };
    (agreed, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_want_is_agreed() {
        let config = Config {
            threads: 1,
            wanted: InitFlags::ASYNC_READ | InitFlags::POSIX_ACL | InitFlags(1 << 33),
            request_max: 1 << 20,
            readahead_max: 1 << 20,
            background_max: 64,
        };
        let offered = InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        let init = wire::InitIn { major: 7, minor: 40, max_readahead: 128 << 10, flags: offered.0 as u32 };
        let more = wire::InitInMore { flags2: 2, ..Default::default() };
        let (agreed, answer) = agree(&init, more.as_bytes(), &config, &mut || true);
        assert_eq!(agreed, offered | InitFlags(1 << 33));
        assert_eq!((answer.max_readahead, answer.max_pages, answer.flags2), (128 << 10, 256, 2));
        // Without more than 32 flags, what is there is no word of flags.
        let init = wire::InitIn { flags: InitFlags::ASYNC_READ.0 as u32, ..init };
        assert_eq!(agree(&init, more.as_bytes(), &config, &mut || true).0, InitFlags::ASYNC_READ);
    }
}
