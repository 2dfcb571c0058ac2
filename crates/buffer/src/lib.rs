//! Page-aligned, reference-counted byte buffers: the one currency in which block contents travel from a front end
//! to a device and back.
//!
//! Invariants:
//! - a [`Buf`] is immutable while shared; cloning and slicing never copy bytes;
//! - the first byte of a [`BufMut`] (and of the `Buf` it freezes into) sits on a 4096-byte boundary, so that
//!   O_DIRECT transfers need no bounce buffer;
//! - the bytes between the length and the end of the last page are zero or stale, never read through this API;
//! - memory that somebody else made for a `Buf` is only read, and goes back to its maker.
#![forbid(unsafe_code)]

mod page;
mod pool;

use std::fmt;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::sync::{Arc, Weak};

use zerocopy::{FromZeros, IntoBytes};

pub use page::PAGE_SIZE;
use page::Page;
pub use pool::{Release, idle_max, releasing, set_idle_max, trim};

/// The memory of a buffer; it goes to the next one.
struct Pages(Vec<Page>);

impl Pages {
    /// For `length` bytes; `used_again` is told of those that are stale and not zero.
    fn new(length: usize, used_again: impl FnOnce(&mut [Page])) -> Self {
        let count = length.div_ceil(PAGE_SIZE);
        let stale = pool::take(count).map(|mut pages| {
            used_again(&mut pages);
            pages
        });
        Self(stale.unwrap_or_else(|| Page::new_vec_zeroed(count).expect("allocating a block buffer")))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        pool::give_back(std::mem::take(&mut self.0));
    }
}

/// Memory of somebody else: its bytes never change and stay where they are.
pub trait Lent: AsRef<[u8]> + Send + Sync {}

impl<T: AsRef<[u8]> + Send + Sync> Lent for T {}

/// Where a shared buffer's bytes are.
enum Memory {
    Own(Pages),
    Lent(Box<dyn Lent>),
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(pages) => pages.0.as_bytes(),
            Self::Lent(lent) => (**lent).as_ref(),
        }
    }
}

/// A writable, uniquely owned, page-aligned buffer. Lengths are in bytes.
pub struct BufMut {
    pages: Pages,
    length: usize,
}

impl BufMut {
    /// A buffer of `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        Self { pages: Pages::new(length, |stale| stale.as_mut_bytes().fill(0)), length }
    }

    /// A buffer of `length` bytes that are zero or left over from another buffer: for who overwrites all of them.
    pub fn unfilled(length: usize) -> Self {
        Self { pages: Pages::new(length, |_| {}), length }
    }

    /// A copy of `bytes`.
    pub fn copy_from(bytes: &[u8]) -> Self {
        if let Some(mut pages) = pool::take(bytes.len().div_ceil(PAGE_SIZE)) {
            pages.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
            return Self { pages: Pages(pages), length: bytes.len() };
        }
        // Page by page from the source: zeroing everything first would touch the memory twice.
        let mut pages = Vec::with_capacity(bytes.len().div_ceil(PAGE_SIZE));
        let (whole, rest) = bytes.as_chunks::<PAGE_SIZE>();
        pages.extend(whole.iter().map(|page| Page(*page)));
        if !rest.is_empty() {
            let mut last = Page([0; PAGE_SIZE]);
            last.0[..rest.len()].copy_from_slice(rest);
            pages.push(last);
        }
        Self { pages: Pages(pages), length: bytes.len() }
    }

    /// Makes the buffer shareable without copying.
    pub fn freeze(self) -> Buf {
        Buf { start: 0, length: self.length, memory: Arc::new(Memory::Own(self.pages)) }
    }

    /// Shortens the buffer to `length` bytes; longer lengths are ignored.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages.0.as_bytes()[..self.length]
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.0.as_mut_bytes()[..self.length]
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.length)
    }
}

/// A shared, immutable run of bytes. Cloning and slicing are O(1).
#[derive(Clone)]
pub struct Buf {
    memory: Arc<Memory>,
    start: usize,
    length: usize,
}

impl Buf {
    /// The empty buffer.
    pub fn empty() -> Self {
        BufMut::zeroed(0).freeze()
    }

    /// `length` zero bytes.
    pub fn zeroed(length: usize) -> Self {
        BufMut::zeroed(length).freeze()
    }

    /// A copy of `bytes`.
    pub fn copy_from(bytes: &[u8]) -> Self {
        BufMut::copy_from(bytes).freeze()
    }

    /// All bytes of somebody else's memory, which begins with a page; it is dropped with the last buffer that has it.
    pub fn lent(memory: impl Lent + 'static) -> Self {
        let bytes = memory.as_ref();
        let length = bytes.len();
        assert!(bytes.as_ptr().addr().is_multiple_of(PAGE_SIZE), "a buffer begins with a page");
        Self { memory: Arc::new(Memory::Lent(Box::new(memory))), start: 0, length }
    }

    /// A part of this buffer that shares its memory. `range` is in bytes; panics when it leaves the buffer.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let from = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&n) => n + 1,
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.length,
        };
        assert!(from <= to && to <= self.length, "slice {from}..{to} of a buffer of {}", self.length);
        Self { memory: self.memory.clone(), start: self.start + from, length: to - from }
    }

    /// A note of this buffer that does not keep its memory.
    pub fn downgrade(&self) -> WeakBuf {
        WeakBuf { memory: Arc::downgrade(&self.memory), start: self.start, length: self.length }
    }

    /// A writable buffer with these bytes: the same memory when this was the only owner of a whole buffer, else a copy.
    pub fn into_mut(self) -> BufMut {
        if self.start == 0 {
            let length = self.length;
            match Arc::try_unwrap(self.memory) {
                Ok(Memory::Own(pages)) => return BufMut { pages, length },
                Ok(Memory::Lent(lent)) => return BufMut::copy_from(&(*lent).as_ref()[..length]),
                Err(memory) => return BufMut::copy_from(&Self { memory, start: 0, length }),
            }
        }
        BufMut::copy_from(&self)
    }

    /// Whether the first byte is page-aligned (true unless this is an odd slice).
    pub fn is_page_aligned(&self) -> bool {
        self.start.is_multiple_of(PAGE_SIZE)
    }

    /// Whether no other `Buf` shares this memory.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// Write access to the bytes; copies them first when they are shared.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !matches!(Arc::get_mut(&mut self.memory), Some(Memory::Own(_))) {
            *self = Self::copy_from(self);
        }
        let (start, length) = (self.start, self.length);
        match Arc::get_mut(&mut self.memory) {
            Some(Memory::Own(pages)) => &mut pages.0.as_mut_bytes()[start..start + length],
            _ => unreachable!("just made its own"),
        }
    }
}

/// A note of a buffer by which that can be recognized, and with it its bytes: no memory is changed that there is a note
/// of.
pub struct WeakBuf {
    memory: Weak<Memory>,
    start: usize,
    length: usize,
}

impl WeakBuf {
    /// Whether `buf` is the same part of the same memory.
    pub fn is(&self, buf: &Buf) -> bool {
        // Where memory was that there is a note of, there is no other one.
        std::ptr::eq(self.memory.as_ptr(), Arc::as_ptr(&buf.memory))
            && (self.start, self.length) == (buf.start, buf.length)
    }

    /// Whether anybody has the memory.
    pub fn is_held(&self) -> bool {
        self.memory.strong_count() > 0
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[self.start..self.start + self.length]
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<BufMut> for Buf {
    fn from(buffer: BufMut) -> Self {
        buffer.freeze()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.length)
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_page_aligned() {
        for length in [1, 512, 4096, 4097, 131_072] {
            let buffer = Buf::zeroed(length);
            assert_eq!(buffer.as_ptr() as usize % PAGE_SIZE, 0);
            assert_eq!(buffer.len(), length);
        }
    }

    #[test]
    fn old_memory_shows_nowhere() {
        for length in [1, 4096, 100_000] {
            drop(Buf::copy_from(&vec![0xaa; length]));
            assert!(BufMut::zeroed(length).iter().all(|byte| *byte == 0));
            let data: Vec<u8> = (0..length).map(|index| index as u8).collect();
            assert_eq!(&BufMut::copy_from(&data)[..], &data[..]);
            assert_eq!(BufMut::unfilled(length).len(), length);
        }
    }

    #[test]
    fn a_shared_buffer_is_copied_before_it_is_written() {
        let original = Buf::copy_from(b"zfs in user space");
        let mut other = original.slice(4..);
        other.make_mut()[0] = b'I';
        assert_eq!(&original[..], b"zfs in user space");
        assert_eq!(&other[..], b"In user space");
    }

    #[test]
    fn a_note_is_of_the_same_bytes() {
        let buf = Buf::copy_from(&[1; 8192]);
        let note = buf.downgrade();
        assert!(note.is(&buf.clone()) && !note.is(&buf.slice(..4096)) && !note.is(&Buf::copy_from(&buf)));
        let mut own = buf.into_mut();
        assert!(!note.is_held());
        own[0] = 2;
        assert!(!note.is(&own.freeze()), "the memory may be the same, but not the bytes");
        let mut buf = Buf::copy_from(&[1; 8192]);
        let note = buf.downgrade();
        buf.make_mut()[0] = 2;
        assert!(!note.is(&buf));
    }

    #[test]
    fn lent_memory_is_only_read() {
        let pages = Pages::new(PAGE_SIZE, |stale| stale.as_mut_bytes().fill(0));
        struct Other(Pages);
        impl AsRef<[u8]> for Other {
            fn as_ref(&self) -> &[u8] {
                &self.0.0.as_bytes()[..100]
            }
        }
        let lent = Buf::lent(Other(pages));
        let (mut changed, whole) = (lent.slice(..), lent.clone());
        changed.make_mut()[1] = 7;
        assert_eq!((lent.len(), lent[1], changed[1]), (100, 0, 7));
        drop((lent, changed));
        let mut own = whole.into_mut();
        own[2] = 9;
        assert_eq!((own.len(), own[2]), (100, 9));
    }
}
