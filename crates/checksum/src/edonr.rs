//! Edon-R with 512 bits (D. Gligoroski and others, second round tweak; `module/icp/algs/edonr`), and the keyed form in
//! which ZFS uses it (`module/zfs/edonr_zfs.c`).
//!
//! A block of 16 words goes through four rows of a quasigroup operation on vectors of eight words: [`star`]. The
//! operation is given by tables: each word of its operands' sums takes five of eight words, and each word of the result
//! three such sums of either side. The words here are little-endian on every host.

/// Bytes of a message block.
const BLOCK: usize = 128;

type Vector = [u64; 8];

/// First sum of each side has this constant added, the other side its complement.
const FIRST: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// The left operand: which words are summed, and how far the sum is rotated.
const LEFT: [([usize; 5], u32); 8] = [
    ([0, 1, 2, 4, 7], 0),
    ([0, 1, 3, 4, 7], 5),
    ([0, 1, 4, 6, 7], 15),
    ([2, 3, 5, 6, 7], 22),
    ([1, 2, 3, 5, 6], 31),
    ([0, 2, 3, 4, 5], 40),
    ([0, 1, 5, 6, 7], 50),
    ([2, 3, 4, 5, 6], 59),
];

/// The right operand.
const RIGHT: [([usize; 5], u32); 8] = [
    ([0, 1, 2, 5, 7], 0),
    ([0, 1, 3, 4, 6], 10),
    ([0, 1, 2, 3, 5], 19),
    ([2, 3, 4, 6, 7], 29),
    ([0, 1, 3, 4, 5], 36),
    ([2, 4, 5, 6, 7], 44),
    ([1, 2, 5, 6, 7], 48),
    ([0, 3, 4, 6, 7], 55),
];

/// For each word of the result: three rotated sums of the left side, three of the right.
const JOIN: [([usize; 3], [usize; 3]); 8] = [
    ([0, 1, 4], [0, 1, 5]),
    ([0, 4, 7], [2, 6, 7]),
    ([1, 6, 7], [0, 1, 3]),
    ([2, 3, 4], [0, 3, 4]),
    ([0, 1, 7], [1, 2, 5]),
    ([3, 5, 6], [3, 4, 6]),
    ([2, 5, 6], [2, 5, 7]),
    ([2, 3, 5], [4, 6, 7]),
];

#[inline(always)]
fn sums(words: &Vector, table: &[([usize; 5], u32); 8], first: u64) -> Vector {
    std::array::from_fn(|i| {
        let ([a, b, c, d, e], turn) = table[i];
        let start = if i == 0 { first } else { 0 };
        let sum = [a, b, c, d, e].into_iter().fold(start, |sum, word| sum.wrapping_add(words[word]));
        sum.rotate_left(turn)
    })
}

/// The quasigroup operation.
#[inline(always)]
fn star(left: &Vector, right: &Vector) -> Vector {
    let (s, t) = (sums(left, &LEFT, FIRST), sums(right, &RIGHT, !FIRST));
    std::array::from_fn(|i| {
        let ([a, b, c], [d, e, f]) = JOIN[i];
        (s[a] ^ s[b] ^ s[c]).wrapping_add(t[d] ^ t[e] ^ t[f])
    })
}

fn reversed(mut words: Vector) -> Vector {
    words.reverse();
    words
}

/// The state between blocks. Copies of one that has taken a key are the start of keyed hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdonR {
    low: Vector,
    high: Vector,
    /// Bytes of whole blocks taken in.
    bytes: u64,
}

impl EdonR {
    pub(crate) const fn new() -> Self {
        let (mut low, mut high) = ([0; 8], [0; 8]);
        let mut word = 0;
        while word < 8 {
            // The initial pipe counts bytes upwards from 0x80, most significant first.
            let start = 0x8081_8283_8485_8687;
            low[word] = start + 0x0808_0808_0808_0808 * word as u64;
            high[word] = start + 0x0808_0808_0808_0808 * (word as u64 + 8);
            word += 1;
        }
        Self { low, high, bytes: 0 }
    }

    fn block(&mut self, bytes: &[u8; BLOCK]) {
        let word = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        let a: Vector = std::array::from_fn(word);
        let b: Vector = std::array::from_fn(|i| word(i + 8));
        let p = star(&reversed(b), &a);
        let q = star(&p, &b);
        let p = star(&self.high, &p);
        let q = star(&p, &q);
        let p = star(&p, &self.low);
        let q = star(&q, &p);
        let p = star(&reversed(a), &p);
        let q = star(&p, &q);
        for i in 0..8 {
            self.low[i] ^= b[i] ^ p[i];
            self.high[i] ^= a[i] ^ q[i];
        }
        self.bytes += BLOCK as u64;
    }

    /// Takes in the last bytes (any number) and gives the digest of everything.
    pub(crate) fn finish(mut self, bytes: &[u8]) -> [u8; 64] {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        for block in blocks {
            self.block(block);
        }
        let bits = (self.bytes + rest.len() as u64) * 8;
        let mut tail = [0; BLOCK];
        tail[..rest.len()].copy_from_slice(rest);
        tail[rest.len()] = 0x80;
        if rest.len() >= BLOCK - 8 {
            self.block(&tail);
            tail = [0; BLOCK];
        }
        tail[BLOCK - 8..].copy_from_slice(&bits.to_le_bytes());
        self.block(&tail);
        let mut digest = [0; 64];
        for (slot, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(self.high) {
            *slot = word.to_le_bytes();
        }
        digest
    }

    /// The start of ZFS's keyed hash: the salt, hashed once and twice, makes the first block
    /// (`abd_checksum_edonr_tmpl_init`).
    pub(crate) fn keyed(salt: &[u8; 32]) -> Self {
        let once = Self::new().finish(salt);
        let twice = Self::new().finish(&once);
        let mut key = [0; BLOCK];
        key[..64].copy_from_slice(&once);
        key[64..].copy_from_slice(&twice);
        let mut state = Self::new();
        state.block(&key);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operation_is_a_quasigroup_on_samples() {
        // A quasigroup's tables are Latin: a change of one word of one operand always changes the result.
        let x: Vector = std::array::from_fn(|i| 0x0123_4567_89ab_cdef_u64.rotate_left(7 * i as u32));
        let y: Vector = std::array::from_fn(|i| 0xfedc_ba98_7654_3210_u64.rotate_left(5 * i as u32));
        let product = star(&x, &y);
        for word in 0..8 {
            for bit in [0, 17, 63] {
                let (mut left, mut right) = (x, y);
                left[word] ^= 1 << bit;
                right[word] ^= 1 << bit;
                assert_ne!(star(&left, &y), product);
                assert_ne!(star(&x, &right), product);
            }
        }
    }

    #[test]
    fn the_initial_pipe_is_the_submissions() {
        let state = EdonR::new();
        assert_eq!(state.low[0], 0x8081_8283_8485_8687);
        assert_eq!(state.high[7], 0xf8f9_fafb_fcfd_feff);
    }

    #[test]
    fn padding_that_does_not_fit_takes_a_block_of_its_own() {
        // Lengths around the place where the length field no longer fits must all differ.
        let mut seen = std::collections::BTreeSet::new();
        for length in 110..=130 {
            assert!(seen.insert(EdonR::new().finish(&vec![0; length])));
        }
    }
}
