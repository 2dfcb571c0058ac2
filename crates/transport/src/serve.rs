//! How a message of the kernel becomes work, on serving threads of whichever kind.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use crate::buffers::Borrowed;
use crate::connection::Connection;
use crate::lease::Lease;
use crate::mount::{Message, Mount, Serve, Task, Way};
use crate::operation::{self, Body};
use crate::reply::Reply;
use crate::wire::InHeader;

/// Requests of up to so many bytes are copied out of where they came.
const COPIED_MAX: usize = 4096;

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
