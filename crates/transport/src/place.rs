//! Where requests over io_uring lie, and the right to one of them.
//!
//! Invariants:
//! - a place is the kernel's from the moment that its command is handed in until that completes, and ours from then on
//!   until the next command: for that time it is in a [`Lease`];
//! - it goes back when its request is answered and nobody looks at the request's bytes any more.

use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::mailbox::Mailbox;
use crate::operation::Body;
use crate::pages::Pages;
use crate::rings::Mount;
use crate::wire::{self, InHeader, RingHeaders};

/// Parts of a place: headers and payload.
pub(crate) const PARTS: usize = 2;
/// Answers of more bytes than this are handed in elsewhere than on the processor that waits for them.
const FAR_LEAST: usize = 32 << 10;

/// Memory that the kernel writes a request to and reads its answer from. It stays where it is: the kernel knows where.
#[derive(Debug)]
pub(crate) struct Place {
    /// Whose requests come here.
    pub mount: Arc<Mount>,
    /// The processor that it serves.
    pub queue: u16,
    headers: NonNull<RingHeaders>,
    /// What does not fit in the headers.
    pub payload: Pages,
    /// What tells the kernel where the two are.
    parts: Box<[IoVec; PARTS]>,
    memory: Memory,
}

/// What is known of a payload's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// It has none, as nothing was written there.
    None,
    /// It was not used since the last look, but has some from before.
    Idle,
    Used,
}

/// `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IoVec {
    base: *mut u8,
    length: usize,
}

// SAFETY: the pointers are those of the place's own memory.
unsafe impl Send for Place {}
// SAFETY: a shared place is only read.
unsafe impl Sync for Place {}

impl Place {
    /// For requests of `mount` from a processor, with up to `payload` bytes beside their headers.
    pub fn new(queue: u16, payload: usize, mount: Arc<Mount>) -> Self {
        let headers = NonNull::from(Box::leak(Box::new(RingHeaders::new_zeroed())));
        let payload = Pages::sparse(payload);
        let header = IoVec { base: headers.as_ptr().cast(), length: size_of::<RingHeaders>() };
        let parts = Box::new([header, IoVec { base: payload.as_ptr(), length: payload.len() }]);
        Self { mount, queue, headers, payload, parts, memory: Memory::None }
    }

    /// Those of the request, then those of the answer.
    pub fn headers(&self) -> &RingHeaders {
        // SAFETY: made from a box that is freed in `drop`; the kernel writes only while nobody has the place.
        unsafe { self.headers.as_ref() }
    }

    /// To change them.
    pub fn headers_mut(&mut self) -> &mut RingHeaders {
        // SAFETY: as above.
        unsafe { self.headers.as_mut() }
    }

    /// Where the kernel finds what it has to know to use the place, as long as that exists.
    pub fn parts(&self) -> *const IoVec {
        self.parts.as_ptr()
    }

    /// A request has come.
    pub fn used(&mut self) {
        self.memory = Memory::Used;
    }

    /// Whether the payload may have memory that can be given back.
    pub fn has_memory(&self) -> bool {
        self.memory != Memory::None
    }

    /// Gives the payload's memory back to the system, unless a request has come since this was called before. Returns
    /// whether there will be something to give back. The kernel has the place, and has told of all requests that it put
    /// there up to when this was called before.
    pub fn give_memory_back(&mut self) -> bool {
        self.memory = match self.memory {
            Memory::Used => Memory::Idle,
            Memory::Idle => {
                self.payload.clear();
                Memory::None
            }
            Memory::None => Memory::None,
        };
        self.has_memory()
    }

    /// Puts an answer's header in place, whose payload has `length` bytes.
    pub fn put_header(&mut self, header: &wire::OutHeader, length: usize) {
        let headers = self.headers_mut();
        headers.in_out[..size_of::<wire::OutHeader>()].copy_from_slice(header.as_bytes());
        headers.place.payload_size = length as u32;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: it was a box, and is freed once. A place that the kernel still has is never dropped (`Ring`).
        drop(unsafe { Box::from_raw(self.headers.as_ptr()) });
    }
}

/// The two threads that share the places of some queues.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The one on the processor whose requests these are: what takes a moment is quickest there.
    pub near: Arc<Mailbox>,
    /// One that runs wherever there is time: the kernel copies an answer on the thread that hands it in, and whoever
    /// reads ahead has better things to do meanwhile.
    pub far: Arc<Mailbox>,
}

/// A request in its place, which is ours as long as this exists. Dropped, it goes back to the kernel with the answer.
#[derive(Debug)]
pub(crate) struct Lease {
    pair: Arc<Pair>,
    place: Option<Place>,
    /// An answer that could not be put in its place yet, as somebody may still look at the request.
    late: Mutex<Option<Vec<u8>>>,
}

impl Lease {
    /// Of a place that one of `pair` has.
    pub fn new(pair: Arc<Pair>, place: Place) -> Self {
        Self { pair, place: Some(place), late: Mutex::default() }
    }

    fn place(&self) -> &Place {
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

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut place) = self.place.take() else { return };
        if let Some(late) = self.late.get_mut().take()
            && let Ok((header, answer)) = wire::OutHeader::read_from_prefix(&late)
        {
            place.payload[..answer.len()].copy_from_slice(answer);
            place.put_header(&header, answer.len());
        }
        let far = place.headers().place.payload_size as usize > FAR_LEAST;
        let mailbox = if far { &self.pair.far } else { &self.pair.near };
        mailbox.finish(place);
    }
}
