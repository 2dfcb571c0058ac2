//! The right to a place while a request lies there, and the two threads to one of which the place goes back.
//!
//! Invariant: a place goes back when its request is answered and nobody looks at the request's bytes any more.

use std::sync::Arc;

use parking_lot::Mutex;
use zerocopy::{FromBytes, IntoBytes};

use crate::mailbox::Mailbox;
use crate::operation::Body;
use crate::seat::Seat;
use crate::wire::{self, InHeader};

/// Answers of more bytes than this are handed in elsewhere than on the processor that waits for them.
const FAR_LEAST: usize = 32 << 10;

/// What a thread that serves a ring has its mail in; `M` is what is known of a mount.
pub(crate) type Mail<M> = Mailbox<Seat<M>, News<M>>;

/// What happens to mounts.
#[derive(Debug)]
pub(crate) enum News<M> {
    /// Places to be registered with the kernel.
    Places(Vec<Seat<M>>),
    /// A mount whose `/dev/fuse` is to be looked at.
    Watch(Arc<M>),
    /// ... and is so no more, as the mount is gone.
    Ended(Arc<M>),
    /// The thread is not needed.
    Leave,
}

/// The two threads that share the places of some queues.
#[derive(Debug)]
pub(crate) struct Pair<M> {
    /// The one on the processor whose requests these are: what takes a moment is quickest there.
    pub near: Arc<Mail<M>>,
    /// One that runs wherever there is time: the kernel copies an answer on the thread that hands it in, and whoever
    /// reads ahead has better things to do meanwhile.
    pub far: Arc<Mail<M>>,
}

/// A request in its place, which is ours as long as this exists. Dropped, it goes back to the kernel with the answer.
#[derive(Debug)]
pub(crate) struct Lease<M> {
    pair: Arc<Pair<M>>,
    place: Option<Seat<M>>,
    /// An answer that could not be put in its place yet, as somebody may still look at the request.
    late: Mutex<Option<Vec<u8>>>,
}

impl<M> Lease<M> {
    /// Of a place that one of `pair` has.
    pub fn new(pair: Arc<Pair<M>>, place: Seat<M>) -> Self {
        Self { pair, place: Some(place), late: Mutex::default() }
    }

    fn place(&self) -> &Seat<M> {
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

impl<M> Drop for Lease<M> {
    fn drop(&mut self) {
        let Some(mut place) = self.place.take() else { return };
        if let Some(late) = self.late.get_mut().take()
            && let Ok((header, answer)) = wire::OutHeader::read_from_prefix(&late)
        {
            debug_assert!(answer.len() <= place.payload.len(), "an answer that was noted has room");
            place.payload[..answer.len()].copy_from_slice(answer);
            place.put_header(&header, answer.len());
        }
        let far = place.headers().place.payload_size as usize > FAR_LEAST;
        let mailbox = if far { &self.pair.far } else { &self.pair.near };
        mailbox.finish(place);
    }
}
