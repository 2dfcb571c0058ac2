//! Where a log block lies (`l2arc_log_blkptr_t`), and whether it is still there (`l2arc_log_blkptr_valid`).

use super::{field, size_field, to_size_field};
use crate::checksum::Checksum;
use crate::compression::Compression;

/// Bytes of a log block before it is compressed.
pub const LOG_BLOCK_SIZE: usize = 64 << 10;
/// Words of a pointer.
pub(super) const WORDS: usize = 8;

/// A pointer to a log block. All offsets and sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPointer {
    /// Where the log block begins (`lbp_daddr`).
    pub offset: u64,
    /// What the blocks that it covers take together (`lbp_payload_asize`).
    pub payload_size: u64,
    /// Where the first of them begins (`lbp_payload_start`).
    pub payload_start: u64,
    /// Its properties, as they are stored (`lbp_prop`).
    pub(super) prop: u64,
    /// Fletcher-4 of what is stored (`lbp_cksum`).
    pub checksum: [u64; 4],
}

/// How far the writing on a device has come. All offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// The first byte of the ring.
    pub start: u64,
    /// The byte behind its last one.
    pub end: u64,
    /// Where the next write goes (`l2ad_hand`).
    pub hand: u64,
    /// What lies from the hand to here is given up: it may be overwritten already (`l2ad_evict`).
    pub evict: u64,
    /// Nothing was written over yet (`l2ad_first`).
    pub is_first: bool,
}

/// Whether `at` lies in the part of a ring from `bottom` to `top`, both included; with `bottom` behind `top` that part
/// leads over the ring's end (`l2arc_range_check_overlap`).
pub fn lies_between(bottom: u64, top: u64, at: u64) -> bool {
    match bottom.cmp(&top) {
        std::cmp::Ordering::Less => (bottom..=top).contains(&at),
        std::cmp::Ordering::Greater => at <= top || bottom <= at,
        std::cmp::Ordering::Equal => at == top,
    }
}

impl LogPointer {
    /// A pointer to a log block of `stored` bytes, which covers what begins at `payload_start`.
    pub fn new(offset: u64, stored: u64, compression: Compression, payload_start: u64, payload_size: u64) -> Self {
        let prop = to_size_field(LOG_BLOCK_SIZE as u64, 0)
            | to_size_field(stored, 16)
            | u64::from(compression.number()) << 32
            | u64::from(Checksum::FLETCHER_4.number()) << 40;
        Self { offset, payload_size, payload_start, prop, checksum: [0; 4] }
    }

    /// Bytes that the log block takes on the device.
    pub fn stored_size(&self) -> u64 {
        size_field(self.prop, 16)
    }

    /// How it is compressed.
    pub fn compression(&self) -> Compression {
        Compression::from_number(field(self.prop, 32, 7) as u8)
    }

    /// Whether the log block lies in the ring, and neither it nor what it covers was given up: what is not so must not
    /// be read. Also of a pointer that leads to nothing the answer is no.
    pub fn is_valid(&self, ring: &Ring) -> bool {
        let (first, size) = (self.payload_start, self.stored_size());
        let Some(last) = self.offset.checked_add(size - 1) else { return false };
        // What it covers may lead over the ring's end: then it begins behind the log block.
        let is_inside = |at: u64| (ring.start..ring.end).contains(&at);
        let is_inside = is_inside(first) && is_inside(self.offset) && is_inside(last);
        let is_given_up = lies_between(first, last, ring.hand)
            || lies_between(first, last, ring.evict)
            || lies_between(ring.hand, ring.evict, first)
            || lies_between(ring.hand, ring.evict, last);
        is_inside && size <= LOG_BLOCK_SIZE as u64 && (ring.is_first || !is_given_up)
    }

    pub(super) fn from_words(words: &[u64]) -> Self {
        Self {
            offset: words[0],
            payload_size: words[1],
            payload_start: words[2],
            prop: words[3],
            checksum: [words[4], words[5], words[6], words[7]],
        }
    }

    pub(super) fn to_words(self) -> [u64; WORDS] {
        let [a, b, c, d] = self.checksum;
        [self.offset, self.payload_size, self.payload_start, self.prop, a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring { start: 1000, end: 9000, hand: 4000, evict: 5000, is_first: false };

    fn at(payload_start: u64, offset: u64) -> LogPointer {
        LogPointer::new(offset, 512, Compression::OFF, payload_start, offset.saturating_sub(payload_start))
    }

    #[test]
    fn what_was_given_up_is_not_valid() {
        for (start, offset, expected) in [
            (1000, 2000, true),
            (2000, 3488, true),
            (2000, 3489, false),
            (3000, 4500, false),
            (4500, 4900, false),
            (4500, 6000, false),
            (5000, 6000, false),
            (5001, 6000, true),
            (3000, 6000, false),
            (6000, 8488, true),
            (6000, 8489, false),
            (999, 2000, false),
            (8000, 2000, true),
            (8000, 4000, false),
            (9000, 2000, false),
        ] {
            assert_eq!(at(start, offset).is_valid(&RING), expected, "{start}, {offset}");
        }
        // On the first round everything that is inside is there.
        let first = Ring { is_first: true, ..RING };
        assert!(at(3000, 4500).is_valid(&first) && !at(6000, 8489).is_valid(&first));
        assert!(!LogPointer::default().is_valid(&RING) && !LogPointer::default().is_valid(&first));
        assert!(!at(6000, u64::MAX - 100).is_valid(&first));
    }

    #[test]
    fn parts_of_a_ring_lead_over_its_end() {
        assert!(lies_between(3, 5, 3) && lies_between(3, 5, 5) && !lies_between(3, 5, 6));
        assert!(lies_between(5, 3, 6) && lies_between(5, 3, 1) && !lies_between(5, 3, 4));
        assert!(lies_between(4, 4, 4) && !lies_between(4, 4, 5));
    }
}
