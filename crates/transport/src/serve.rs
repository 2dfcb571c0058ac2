//! How a message of the kernel becomes a request and is served, on threads of whichever kind.

use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::buffers::Borrowed;
use crate::connection::Connection;
use crate::lease::Lease;
use crate::mount::{Message, Mount, Serve, Task, Way};
use crate::operation::{self, Body, Request};
use crate::reply::Reply;
use crate::types::{InitFlags, NodeId};
use crate::wire::InHeader;

/// Requests of up to so many bytes are copied out of where they came.
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

/// The kernel's side of a mount.
#[derive(Clone, Debug)]
pub struct Kernel {
    connection: Weak<Connection>,
    agreed: InitFlags,
}

impl Kernel {
    /// The one at the other end of `connection`, with what was agreed on.
    pub(crate) fn new(connection: &Arc<Connection>, agreed: InitFlags) -> Self {
        Self { connection: Arc::downgrade(connection), agreed }
    }

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

/// The bytes of a request that came through a ring; `None` when its lengths do not fit each other.
fn message(header: &InHeader, lease: &Arc<Lease<Mount>>) -> Option<Message> {
    let Body(first, rest) = lease.body(header)?;
    if rest.len() > COPIED_MAX {
        return Some(Message::InPlace(lease.clone()));
    }
    Some(Message::Copied([first, rest].concat(), first.len()))
}

/// Work for a request that came through a ring.
pub(crate) fn leased(server: &Arc<dyn Serve>, header: InHeader, lease: Arc<Lease<Mount>>) -> Task {
    let message = message(&header, &lease);
    let way = Way::Ring(lease);
    match message {
        Some(message) => server.clone().task(header, message, Some(way)),
        None => {
            let reply = Reply::new(way, header.unique);
            Box::pin(async {
                tracing::error!("the kernel sent a request whose lengths do not fit each other");
                reply.error(Errno::IO);
            })
        }
    }
}

/// Work for the request in `place` of `buffer`, which came through `/dev/fuse`. A large one takes the buffer along.
pub(crate) fn read(
    server: &Arc<dyn Serve>,
    connection: &Arc<Connection>,
    buffer: &mut Option<Borrowed>,
    place: Range<usize>,
) -> Option<Task> {
    let message = buffer.as_ref()?.get(place.clone())?;
    let Some((header, body)) = operation::split(message) else {
        tracing::error!("the kernel sent {} bytes that are no request", message.len());
        return None;
    };
    let way = (!operation::is_silent(&header)).then(|| Way::Device(connection.clone()));
    let length = body.0.len();
    let message = if length <= COPIED_MAX {
        Message::Copied(body.0.to_vec(), length)
    } else {
        Message::Read(buffer.take()?, place.end - length..place.end)
    };
    Some(server.clone().task(header, message, way))
}

/// What all that serve a mount share.
pub(crate) struct Server<F> {
    pub(crate) filesystem: F,
    pub(crate) agreed: InitFlags,
    pub(crate) runtime: Handle,
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
