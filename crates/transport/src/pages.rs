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
}
