//! Zeros that need no memory.
//!
//! Invariant: nobody can tell: the bytes read as before, and whoever owns them alone may write there as before.

use platter_buffer::{Buf, PAGE_SIZE};

/// Gives memory back to the system whose bytes are zero from some page to the buffer's end, and returns how many bytes
/// these are. Indirect blocks of small object sets are nearly all zeros, and each object set has several.
pub fn release_zeros(contents: &Buf) -> usize {
    let bytes: &[u8] = contents;
    let whole = bytes.len() / PAGE_SIZE * PAGE_SIZE;
    if whole == 0 || whole != bytes.len() || !(bytes.as_ptr() as usize).is_multiple_of(PAGE_SIZE) {
        return 0;
    }
    let is_zero = |page: &&[u8]| page.iter().fold(0, |all, byte| all | byte) == 0;
    let zeros = bytes.chunks_exact(PAGE_SIZE).rev().take_while(is_zero).count() * PAGE_SIZE;
    if zeros == 0 {
        return 0;
    }
    let start = bytes[whole - zeros..].as_ptr().cast_mut().cast();
    // SAFETY: whole pages of a buffer, which are memory of the heap and so private and of no file: the system gives
    // zero pages in their stead, and zeros are what is there. Nobody writes to a shared buffer.
    match unsafe { rustix::mm::madvise(start, zeros, rustix::mm::Advice::LinuxDontNeed) } {
        Ok(()) => zeros,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use platter_buffer::BufMut;

    use super::*;

    #[test]
    fn what_is_not_zero_stays_and_zeros_are_zeros() {
        let mut buffer = BufMut::zeroed(32 * PAGE_SIZE);
        buffer[..3 * PAGE_SIZE + 1].fill(7);
        let contents = buffer.freeze();
        assert_eq!(release_zeros(&contents), 28 * PAGE_SIZE);
        assert!(contents[..3 * PAGE_SIZE + 1].iter().all(|&byte| byte == 7));
        assert!(contents[3 * PAGE_SIZE + 1..].iter().all(|&byte| byte == 0));
        // Its memory goes to the next buffer, which is written to.
        drop(contents);
        let mut next = BufMut::zeroed(32 * PAGE_SIZE);
        next.fill(9);
        assert_eq!(release_zeros(&next.freeze()), 0);
        assert_eq!(release_zeros(&BufMut::zeroed(100).freeze()), 0);
    }
}
