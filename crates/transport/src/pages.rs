//! Memory that begins and ends with a page.
//!
//! The kernel copies a request's data page by page. Where its page does not lie upon one of ours each page takes two
//! copies, and on some processors copies of such unequal places take more than twice as long.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A page of the kernel, bytes.
pub(crate) const PAGE: usize = 4096;

/// Zeroed pages; those that nobody has written to take no memory.
#[derive(Debug)]
pub(crate) struct Pages(NonNull<[u8]>);

// SAFETY: it owns its memory, like a `Vec<u8>`.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length, PAGE).expect("far less than the address space")
    }

    /// At least `length` bytes.
    pub fn new(length: usize) -> Self {
        let layout = Self::layout(length.max(1).next_multiple_of(PAGE));
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    /// At least `length` bytes, of which those take memory that are touched, page by page: the allocator asks for large
    /// pages, and then a name of ten bytes takes 2 MiB. For memory that is kept for long and used little.
    pub fn sparse(length: usize) -> Self {
        let mut pages = Self::new(length);
        // SAFETY: whole pages of its own, whose bytes stay as they are. The allocator may use them again when they are
        // freed, as small pages too. A kernel without large ones refuses, and needs no advice.
        let _ =
            unsafe { rustix::mm::madvise(pages.as_ptr().cast(), pages.0.len(), rustix::mm::Advice::LinuxNoHugepage) };
        // What lay there before may have been large.
        pages.clear();
        pages
    }

    /// Makes all bytes zero by giving the memory back to the system, to be had again page by page.
    pub fn clear(&mut self) {
        // SAFETY: whole pages of its own, which nothing has a reference to meanwhile; afterwards they are zero.
        let cleared =
            unsafe { rustix::mm::madvise(self.as_ptr().cast(), self.0.len(), rustix::mm::Advice::LinuxDontNeed) };
        if cleared.is_err() {
            self.fill(0);
        }
    }

    /// Where it lies, which does not change.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: it is its own, and was zeroed.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once.
        unsafe { dealloc(self.as_ptr(), Self::layout(self.0.len())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_aligned_and_cleared() {
        let mut pages = Pages::new(PAGE + 1);
        assert_eq!((pages.len(), pages.as_ptr() as usize % PAGE), (2 * PAGE, 0));
        assert!(pages.iter().all(|&byte| byte == 0));
        pages.fill(7);
        pages.clear();
        assert!(pages.iter().all(|&byte| byte == 0));
        pages[PAGE] = 1;
    }

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

    /// Eight mounts with rings had 280 MiB in large pages, for requests of a few hundred bytes.
    #[test]
    fn sparse_pages_are_small_ones() {
        let mut pages = Pages::sparse(1 << 20);
        assert!(pages.iter().all(|&byte| byte == 0));
        pages[1 << 19] = 1;
        let flags = flags_at(pages.as_ptr().addr() + (1 << 19));
        assert!(flags.contains(" nh"), "the kernel may make large pages there: {flags}");
    }
}
