//! Blocks that are zeros but for a few pages, in memory where zeros cost nothing.
//!
//! Each object set has several indirect blocks of 128 KiB that hold a pointer or two. To give the zero pages behind
//! them back to the system is not enough where the allocator asks for large pages: the kernel goes round, sees one used
//! page in 2 MiB and makes all of them present again (`khugepaged`), 16 MiB in ten seconds. So such blocks lie in a
//! place of their own, of which the kernel knows that it has small pages.
//!
//! Invariants:
//! - nobody can tell: a block's bytes read as before, and its memory is lent ([`Buf::lent`]), so nobody writes there;
//! - a slot that waits for its next block is all zeros and has no memory.

use std::ptr::NonNull;

use parking_lot::Mutex;
use platter_buffer::{Buf, PAGE_SIZE};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

/// Bytes of a slot: the usual indirect block.
const SLOT: usize = 128 << 10;
/// Shorter blocks stay where they are: they save too little.
const LEAST: usize = SLOT / 2;
/// Slots that are asked of the system at once. They are addresses alone, and are kept.
const SLOTS: usize = 256;
const _: () = assert!(SLOT.is_multiple_of(PAGE_SIZE), "a slot is pages of its own, which are given back alone");

/// Slots that wait for a block.
static IDLE: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

/// Where a block is.
struct Slot(NonNull<u8>);

// SAFETY: it owns its addresses.
unsafe impl Send for Slot {}
// SAFETY: a shared one is only read.
unsafe impl Sync for Slot {}

/// A block in its slot; dropped, it gives the memory back and lets the next one have the slot.
struct Sparse {
    slot: Option<Slot>,
    length: usize,
}

impl Slot {
    /// `None` when the system has no addresses.
    fn take() -> Option<Self> {
        let mut idle = IDLE.lock();
        if let Some(slot) = idle.pop() {
            return Some(slot);
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new memory at a place that the system chooses.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), SLOTS * SLOT, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let start = start.ok()?.cast::<u8>();
        // SAFETY: just made, and its bytes stay as they are. A kernel without large pages refuses, and needs no advice.
        let _ = unsafe { madvise(start.cast(), SLOTS * SLOT, Advice::LinuxNoHugepage) };
        // SAFETY: inside of what was just made.
        idle.extend((0..SLOTS).rev().filter_map(|index| NonNull::new(unsafe { start.add(index * SLOT) }).map(Slot)));
        idle.pop()
    }
}

impl AsRef<[u8]> for Sparse {
    fn as_ref(&self) -> &[u8] {
        let start = self.slot.as_ref().expect("there until it is dropped").0;
        // SAFETY: its own slot, which is mapped for ever and longer than this; nobody writes to it any more.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.length) }
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        // SAFETY: private memory of its own, to which nothing refers any more; it reads as zeros afterwards.
        let cleared = unsafe { madvise(slot.0.as_ptr().cast(), SLOT, Advice::LinuxDontNeed) };
        // One that is not known to be zeros is not used again.
        if cleared.is_ok() {
            IDLE.lock().push(slot);
        }
    }
}

/// The same contents with the bytes of memory that they take: less than their length, when most of them are zeros.
pub fn without_zeros(contents: Buf) -> (Buf, usize) {
    let length = contents.len();
    if !(LEAST..=SLOT).contains(&length) {
        return (contents, length);
    }
    let is_used = |page: &&[u8]| page.iter().fold(0, |all, byte| all | byte) != 0;
    let used = contents.chunks(PAGE_SIZE).filter(is_used).count() * PAGE_SIZE;
    if used > length / 2 {
        return (contents, length);
    }
    let Some(slot) = Slot::take() else { return (contents, length) };
    for (index, page) in contents.chunks(PAGE_SIZE).enumerate().filter(|(_, page)| is_used(page)) {
        // SAFETY: a page lies in the slot, which is longer than the contents and nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), slot.0.as_ptr().add(index * PAGE_SIZE), page.len()) };
    }
    let sparse = Sparse { slot: Some(slot), length };
    debug_assert!(sparse.as_ref() == &contents[..], "a slot was all zeros, and nobody can tell");
    (Buf::lent(sparse), used)
}

#[cfg(test)]
mod tests {
    use platter_buffer::BufMut;

    use super::*;

    /// What the kernel says of the mapping that an address lies in.
    fn flags_at(address: usize) -> String {
        let all = std::fs::read_to_string("/proc/self/smaps").expect("the kernel tells");
        let is_it = |line: &str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let range = range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
            matches!(range, Some((Ok(from), Ok(to))) if (from..to).contains(&address))
        };
        let mut of_it = all.lines().skip_while(|line| !is_it(line));
        of_it.find(|line| line.starts_with("VmFlags")).expect("there").to_owned()
    }

    /// Where the allocator asks for large pages, the kernel gave back what was released: 1 000 file systems grew from
    /// 190 to 800 MiB while nobody did anything.
    #[test]
    fn zeros_take_no_memory_and_get_none_from_the_kernel() {
        let mut buffer = BufMut::zeroed(SLOT);
        buffer[..PAGE_SIZE + 1].fill(7);
        buffer[20 * PAGE_SIZE] = 1;
        let contents = buffer.freeze();
        let (sparse, bytes) = without_zeros(contents.clone());
        assert_eq!((&sparse, bytes), (&contents, 3 * PAGE_SIZE));
        let flags = flags_at(sparse.as_ptr().addr());
        assert!(flags.contains(" nh"), "the kernel may make large pages there: {flags}");
        drop(sparse);
        // The next block there finds no bytes of the last one.
        let mut other = BufMut::zeroed(LEAST);
        other[PAGE_SIZE] = 3;
        let other = other.freeze();
        assert_eq!(without_zeros(other.clone()), (other, PAGE_SIZE));
    }

    #[test]
    fn what_is_full_or_short_stays_where_it_is() {
        for length in [100, 4096, LEAST - 1, 2 * SLOT] {
            let contents = Buf::zeroed(length);
            let (same, bytes) = without_zeros(contents.clone());
            assert_eq!((same.as_ptr(), bytes), (contents.as_ptr(), length));
        }
        let full = Buf::copy_from(&[1; SLOT]);
        assert_eq!(without_zeros(full.clone()).0.as_ptr(), full.as_ptr());
    }
}
