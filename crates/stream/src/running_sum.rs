//! The checksum that runs through a stream (`fletcher_4_incremental_native`, `fletcher_4_incremental_byteswap`).
//!
//! Fletcher-4 of all bytes is computed piece by piece: of each piece from zero, by the fast kernels, and then put
//! behind what came before. With `n` words in the piece each of the four sums grows by the binomial shares of the
//! former ones.

use platter_checksum::{Words, fletcher_4, fletcher_4_swapped};
use platter_nvlist::Endian;

/// Fletcher-4 of all bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningSum {
    words: Words,
    order: Endian,
}

impl RunningSum {
    /// Of no bytes, of a stream in this byte order.
    pub fn new(order: Endian) -> Self {
        Self { words: [0; 4], order }
    }

    /// Takes in `bytes`, a multiple of four.
    pub fn add(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len().is_multiple_of(4), "records and payloads are made of whole words");
        let piece = match self.order {
            Endian::Little => fletcher_4(bytes),
            Endian::Big => fletcher_4_swapped(bytes),
        };
        let n = (bytes.len() / 4) as u128;
        // How often a former sum is counted again by the sum one, two and three after it; all is modulo 2^64.
        let (one, two, three) = (n as u64, (n * (n + 1) / 2) as u64, (n * (n + 1) * (n + 2) / 6) as u64);
        let [a, b, c, d] = self.words;
        let times = u64::wrapping_mul;
        self.words = [
            a.wrapping_add(piece[0]),
            b.wrapping_add(times(one, a)).wrapping_add(piece[1]),
            c.wrapping_add(times(one, b)).wrapping_add(times(two, a)).wrapping_add(piece[2]),
            d.wrapping_add(times(one, c))
                .wrapping_add(times(two, b))
                .wrapping_add(times(three, a))
                .wrapping_add(piece[3]),
        ];
    }

    /// The byte order.
    pub fn order(&self) -> Endian {
        self.order
    }

    /// The sum.
    pub fn words(&self) -> Words {
        self.words
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_give_what_all_at_once_gives(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 0..8),
        ) {
            for order in [Endian::Little, Endian::Big] {
                let (mut sum, mut whole) = (RunningSum::new(order), Vec::new());
                for piece in &pieces {
                    let piece = &piece[..piece.len() / 4 * 4];
                    sum.add(piece);
                    whole.extend_from_slice(piece);
                }
                let expected = if order == Endian::Little { fletcher_4(&whole) } else { fletcher_4_swapped(&whole) };
                prop_assert_eq!(sum.words(), expected);
            }
        }
    }
}
