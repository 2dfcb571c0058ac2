//! One buffer filled by several transfers at once, without copies.
//!
//! Invariants:
//! - the [`ReadSlot`]s carved from one buffer never overlap, so each has exclusive access to its bytes wherever it
//!   travels (a ring, a thread);
//! - the buffer comes back from [`Assembly::finish`] only when no slot exists any more: nobody can write into it behind
//!   the reader's back, even when a transfer's waiter went away early.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use platter_buffer::BufMut;

struct Shared {
    base: *mut u8,
    /// Owns the memory that `base` points to; not touched while slots exist.
    buffer: BufMut,
}

// SAFETY: `base` points into `buffer`, whose memory may be used from any thread; access to it goes through slots, which
// are disjoint, and through `finish`, which has proved that it is the only owner.
unsafe impl Send for Shared {}
// SAFETY: as above; a shared reference to `Shared` alone gives no access to the bytes.
unsafe impl Sync for Shared {}

/// A buffer whose parts are being filled.
pub struct Assembly {
    shared: Arc<Shared>,
}

/// A part of an [`Assembly`]'s buffer: exclusive, writable, and free to move between threads.
pub struct ReadSlot {
    shared: Arc<Shared>,
    start: usize,
    length: usize,
}

impl Assembly {
    /// Cuts a buffer into consecutive parts of the given lengths (bytes). The buffer is as long as their sum; until
    /// they are filled its bytes are zero or stale.
    pub fn carve(lengths: &[usize]) -> (Self, Vec<ReadSlot>) {
        let total = lengths.iter().sum();
        let mut buffer = BufMut::unfilled(total);
        let base = buffer.as_mut_ptr();
        let shared = Arc::new(Shared { base, buffer });
        let mut start = 0;
        let slots = lengths
            .iter()
            .map(|&length| {
                let slot = ReadSlot { shared: shared.clone(), start, length };
                start += length;
                slot
            })
            .collect();
        assert_eq!(start, total, "the parts are the whole buffer");
        (Self { shared }, slots)
    }

    /// The filled buffer, or `None` while some slot is still alive.
    pub fn finish(self) -> Option<BufMut> {
        Arc::try_unwrap(self.shared).ok().map(|shared| shared.buffer)
    }
}

impl ReadSlot {
    /// A buffer that is one slot.
    pub fn whole(length: usize) -> (Assembly, Self) {
        let (assembly, mut slots) = Assembly::carve(&[length]);
        (assembly, slots.remove(0))
    }

    /// Address of the first byte, for the kernel. Valid as long as this slot exists.
    pub(crate) fn as_raw(&self) -> *mut u8 {
        // SAFETY: `carve` keeps start + length within the buffer.
        unsafe { self.shared.base.add(self.start) }
    }
}

impl Deref for ReadSlot {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the buffer (`carve`), its bytes are initialised (zero or stale), and no other
        // slot covers them, so nothing writes them while `self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.as_raw(), self.length) }
    }
}

impl DerefMut for ReadSlot {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.as_raw(), self.length) }
    }
}

impl fmt::Debug for ReadSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadSlot({}+{})", self.start, self.length)
    }
}

impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Assembly({} bytes)", self.shared.buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_their_own_part_and_the_buffer_waits_for_all_of_them() {
        let (assembly, mut slots) = Assembly::carve(&[3, 0, 5]);
        slots[0].fill(1);
        slots[2].fill(2);
        let last = slots.pop();
        drop(slots);
        let pending = Assembly { shared: assembly.shared.clone() };
        assert!(pending.finish().is_none());
        drop(last);
        assert_eq!(&assembly.finish().expect("all slots are gone")[..], &[1, 1, 1, 2, 2, 2, 2, 2]);
    }
}
