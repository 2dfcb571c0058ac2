//! The geometry of an object's block tree.
//!
//! A tree of `levels` levels hangs off the one to three pointers of the dnode. Level 0 is data; a block of level n > 0
//! is an array of `2^epbs` pointers to blocks of level n-1. Block `b` of level 0 lies below block `b >> (n * epbs)` of
//! level n.

use platter_ondisk::BlkPtr;
use platter_ondisk::blkptr::BLKPTR_SIZE;
pub(crate) use platter_ondisk::dnode::levels_for;

/// `DMU_SPILL_BLKID`: the block number under which a spill block is known.
pub(crate) const SPILL_BLKID: u64 = u64::MAX - 1;

/// `value >> bits`, for any number of bits.
pub(crate) fn shr(value: u64, bits: u32) -> u64 {
    value.checked_shr(bits).unwrap_or(0)
}

/// `value << bits`, all ones when it does not fit.
pub(crate) fn shl(value: u64, bits: u32) -> u64 {
    if value == 0 {
        0
    } else if bits > value.leading_zeros() {
        u64::MAX
    } else {
        value << bits
    }
}

/// First and last block of level 0 below block `index` of `level`.
pub(crate) fn span(level: u8, index: u64, epbs: u32) -> (u64, u64) {
    let bits = u32::from(level) * epbs;
    let first = shl(index, bits);
    let size_less_one = if bits >= 64 { u64::MAX } else { (1u64 << bits) - 1 };
    (first, first.saturating_add(size_less_one))
}

/// Pointer `index` of an indirect block.
pub(crate) fn pointer(block: &[u8], index: usize) -> BlkPtr {
    let bytes = &block[index * BLKPTR_SIZE..][..BLKPTR_SIZE];
    // Most blocks have few pointers.
    if bytes == [0; BLKPTR_SIZE] { BlkPtr::HOLE } else { BlkPtr::decode(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pointer_is_zeros() {
        let mut bytes = [0; BLKPTR_SIZE];
        assert_eq!(BlkPtr::decode(&bytes), BlkPtr::HOLE);
        BlkPtr::HOLE.encode(&mut bytes);
        assert_eq!(bytes, [0; BLKPTR_SIZE]);
    }

    #[test]
    fn levels_grow_where_openzfs_grows_them() {
        // Three pointers, 1024 per indirect block.
        assert_eq!(levels_for(0, 3, 10), 1);
        assert_eq!(levels_for(2, 3, 10), 1);
        assert_eq!(levels_for(3, 3, 10), 2);
        assert_eq!(levels_for(3 * 1024 - 1, 3, 10), 2);
        assert_eq!(levels_for(3 * 1024, 3, 10), 3);
        assert_eq!(levels_for(u64::MAX, 1, 10), 8);
        // The meta-dnode of a file system holds 2^48 dnodes of 512 bytes in 16 KiB blocks.
        assert_eq!(levels_for((1 << 43) - 1, 3, 10), 6);
    }

    #[test]
    fn spans_are_inclusive_and_do_not_overflow() {
        assert_eq!(span(0, 7, 10), (7, 7));
        assert_eq!(span(1, 2, 10), (2048, 3071));
        assert_eq!(span(7, 0, 10), (0, u64::MAX));
        assert_eq!(span(7, 1, 10), (u64::MAX, u64::MAX));
    }
}
