//! What serving threads, of whichever kind, know of a mount: how a message of the kernel becomes work.
//!
//! Invariant: a request's bytes live as long as its work.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::buffers::Borrowed;
use crate::connection::Connection;
use crate::operation::{self, Body};
use crate::place::Lease;
use crate::reply::Reply;
use crate::tasks::Task;
use crate::wire::InHeader;

/// Requests of up to so many bytes are copied out of where they came.
const COPIED_MAX: usize = 4096;

/// One mount.
pub(crate) trait Serve: Send + Sync {
    /// Work for a request. Its first steps may be taken on a thread that others wait for.
    fn task(self: Arc<Self>, header: InHeader, message: Message, reply: Option<Reply>) -> Task;

    /// Where work goes on that waits for something.
    fn runtime(&self) -> &Handle;
}

/// A request's bytes behind its header.
pub(crate) enum Message {
    /// Small ones are copied, so that their place is free for the answer or the next request: first part and rest, and
    /// where that begins.
    Copied(Vec<u8>, usize),
    /// In their place of a ring.
    InPlace(Arc<Lease>),
    /// Where they were read to.
    Read(Borrowed, Range<usize>),
}

impl Message {
    /// Of a request that came through a ring; `None` when its lengths do not fit each other.
    fn leased(header: &InHeader, lease: &Arc<Lease>) -> Option<Self> {
        let Body(first, rest) = lease.body(header)?;
        if rest.len() > COPIED_MAX {
            return Some(Self::InPlace(lease.clone()));
        }
        Some(Self::Copied([first, rest].concat(), first.len()))
    }

    /// What follows the request's header.
    pub fn body(&self, header: &InHeader) -> Body<'_> {
        match self {
            Self::Copied(bytes, first) => Body(&bytes[..*first], &bytes[*first..]),
            Self::InPlace(lease) => lease.body(header).unwrap_or_default(),
            Self::Read(buffer, range) => Body(&buffer[range.clone()], &[]),
        }
    }
}

/// Work for a request that came through a ring.
pub(crate) fn leased(server: &Arc<dyn Serve>, header: InHeader, lease: Arc<Lease>) -> Task {
    let message = Message::leased(&header, &lease);
    let reply = Reply::leased(lease, header.unique);
    match message {
        Some(message) => server.clone().task(header, message, Some(reply)),
        None => Box::pin(async {
            tracing::error!("the kernel sent a request whose lengths do not fit each other");
            reply.error(Errno::IO);
        }),
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
    let reply = (!operation::is_silent(&header)).then(|| Reply::new(connection.clone(), header.unique));
    let length = body.0.len();
    let message = if length <= COPIED_MAX {
        Message::Copied(body.0.to_vec(), length)
    } else {
        Message::Read(buffer.take()?, place.end - length..place.end)
    };
    Some(server.clone().task(header, message, reply))
}
