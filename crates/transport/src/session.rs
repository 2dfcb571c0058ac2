//! Serving one mount: the first words with the kernel, then requests on threads that all mounts share, until it is
//! unmounted.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::config::Config;
use crate::connection::Connection;
use crate::handshake::handshake;
use crate::mount::{Message, Serve, Task, Way};
use crate::operation::{self, Request};
use crate::readers::Readers;
use crate::reply::Reply;
use crate::rings::{self, Rings, Turn};
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
        let payload = config.request_max as usize;
        let length = payload + wire::REQUEST_EXTRA;
        let mut rings = None;
        let agreed = handshake(&first, &config, || {
            let Some(turn) = Turn::take(payload) else { return false };
            let all = Rings::get().inspect_err(|error| tracing::warn!("FUSE over io_uring: {error}"));
            rings = all.ok().map(|all| (all, turn));
            rings.is_some()
        })?;
        let server = Arc::new(Server { filesystem, agreed, runtime });
        server.filesystem.started(Kernel { connection: Arc::downgrade(&first), agreed });
        let end = Arc::new(End::default());
        let (own, tell) = (server.clone(), end.clone());
        if let Some((rings, turn)) = rings {
            let gone = Box::new(move |outcome| {
                drop(turn);
                finish_elsewhere(own, tell, outcome);
            });
            rings.add(first, server, payload, length, gone)?;
        } else {
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
        rings::leave();
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

impl<F: Filesystem> Serve for Server<F> {
    fn task(self: Arc<Self>, header: InHeader, message: Message, way: Option<Way>) -> Task {
        let reply = way.map(|way| Reply::new(way, header.unique));
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
