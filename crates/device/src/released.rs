//! Memory that nobody needs goes back to the system, while the allocator keeps where it is.

use rustix::mm::{Advice, madvise};

/// Gives the memory of `pages` back: they have zeros from now on, and take none until somebody writes to them. Where
/// the system cannot, all stays as it is.
pub fn release(pages: &mut [u8]) {
    if pages.is_empty() {
        return;
    }
    // SAFETY: nobody else has these bytes, and any are valid, zeros among them. The kernel refuses a range that does
    // not begin with a page of its own; what it does not fill at the end it would round up to, so it is whole pages.
    unsafe {
        let whole = rustix::param::page_size();
        if (pages.as_ptr() as usize).is_multiple_of(whole) && pages.len().is_multiple_of(whole) {
            let _ = madvise(pages.as_mut_ptr().cast(), pages.len(), Advice::LinuxDontNeed);
        }
    }
}

#[cfg(test)]
mod tests {
    use platter_buffer::BufMut;

    use super::*;

    #[test]
    fn released_memory_can_be_used_again() {
        let mut buffer = BufMut::zeroed(1 << 20);
        buffer.fill(7);
        let (first, whole) = buffer.split_at_mut(4096);
        release(&mut whole[..8192]);
        assert!(first.iter().all(|&byte| byte == 7) && whole[8192..].iter().all(|&byte| byte == 7));
        assert!(whole[..8192].iter().all(|&byte| byte == 0));
        whole[..8192].fill(3);
        assert!(whole[..8192].iter().all(|&byte| byte == 3));
        release(&mut whole[1..100]);
        assert_eq!((whole[1], whole[99]), (3, 3), "no whole pages");
        release(&mut []);
    }
}
