//! Where requests over io_uring lie.
//!
//! Invariant: a place is the kernel's from the moment that its command is handed in until that completes, and ours from
//! then on until the next command: for that time it is in a `lease::Lease`.

use std::ptr::NonNull;
use std::sync::Arc;

use zerocopy::{FromZeros, IntoBytes};

use crate::pages::Pages;
use crate::wire::{self, RingHeaders};

/// Parts of a place: headers and payload.
pub(crate) const PARTS: usize = 2;

/// Memory that the kernel writes a request to and reads its answer from. It stays where it is: the kernel knows where.
/// `M` is what is known of a mount.
#[derive(Debug)]
pub(crate) struct Seat<M> {
    /// Whose requests come here.
    pub mount: Arc<M>,
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

const _: () = assert!(size_of::<IoVec>() == 2 * size_of::<usize>(), "as the kernel has it");

// SAFETY: the pointers are those of the place's own memory.
unsafe impl<M: Send + Sync> Send for Seat<M> {}
// SAFETY: a shared place is only read.
unsafe impl<M: Send + Sync> Sync for Seat<M> {}

impl<M> Seat<M> {
    /// For requests of `mount` from a processor, with up to `payload` bytes beside their headers.
    pub fn new(queue: u16, payload: usize, mount: Arc<M>) -> Self {
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

impl<M> Drop for Seat<M> {
    fn drop(&mut self) {
        // SAFETY: it was a box, and is freed once. A place that the kernel still has is never dropped (`Ring`).
        drop(unsafe { Box::from_raw(self.headers.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel may have put a request in a place while it took an answer, and tells of that later.
    #[test]
    fn memory_of_a_place_is_given_back_at_the_second_look_after_its_last_request() {
        let mut place = Seat::new(0, 8192, Arc::new(()));
        assert!(!place.has_memory() && !place.give_memory_back());
        for _ in 0..2 {
            place.used();
            place.payload[0] = 7;
            assert!(place.give_memory_back() && place.payload[0] == 7 && place.has_memory());
        }
        assert!(!place.give_memory_back() && place.payload[0] == 0);
        assert!(!place.has_memory());
    }
}
