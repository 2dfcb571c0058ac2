//! Skein-512-256 as a keyed hash (The Skein Hash Function Family, version 1.3; `module/zfs/skein_zfs.c`).
//!
//! UBI chains the block cipher Threefish-512 over the blocks of one input; the tweak counts the bytes and names what
//! the input is. A keyed hash is UBI over key, configuration and message, and one more for the output.

type Block = [u64; 8];

/// Bytes of a block.
const BLOCK: usize = 64;

/// What an input is, as it stands in the tweak's top bits.
#[derive(Clone, Copy)]
enum Input {
    Key = 0,
    Configuration = 4,
    Message = 48,
    Output = 63,
}

const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;

/// Makes the key schedule's ninth word (`C240`).
const KEY_PARITY: u64 = 0x1bd1_1bda_a9fc_1a22;

/// Rotation of each of the four mixes of a round, by round modulo 8.
const TURNS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

/// Four rounds (`turns` of them), between which the words are permuted.
#[inline(always)]
fn rounds(words: &mut Block, turns: &[[u32; 4]]) {
    for turn in turns {
        for pair in 0..4 {
            words[2 * pair] = words[2 * pair].wrapping_add(words[2 * pair + 1]);
            words[2 * pair + 1] = words[2 * pair + 1].rotate_left(turn[pair]) ^ words[2 * pair];
        }
        let [a, b, c, d, e, f, g, h] = *words;
        *words = [c, b, e, h, g, f, a, d];
    }
}

/// Threefish-512 of `text`, joined with `text`: the step of UBI.
#[inline(always)]
fn step(key: &Block, tweak: [u64; 2], text: &Block) -> Block {
    let mut schedule = [KEY_PARITY; 9];
    schedule[..8].copy_from_slice(key);
    schedule[8] = key.iter().fold(KEY_PARITY, |sum, word| sum ^ word);
    let tweak = [tweak[0], tweak[1], tweak[0] ^ tweak[1]];
    let mut words = *text;
    let inject = |words: &mut Block, number: usize| {
        for (i, word) in words.iter_mut().enumerate() {
            *word = word.wrapping_add(schedule[(number + i) % 9]);
        }
        words[5] = words[5].wrapping_add(tweak[number % 3]);
        words[6] = words[6].wrapping_add(tweak[(number + 1) % 3]);
        words[7] = words[7].wrapping_add(number as u64);
    };
    for pair in 0..9 {
        inject(&mut words, 2 * pair);
        rounds(&mut words, &TURNS[..4]);
        inject(&mut words, 2 * pair + 1);
        rounds(&mut words, &TURNS[4..]);
    }
    inject(&mut words, 18);
    std::array::from_fn(|i| words[i] ^ text[i])
}

fn words_of(bytes: &[u8; BLOCK]) -> Block {
    std::array::from_fn(|i| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes")))
}

/// UBI over one whole input, which may be empty.
fn ubi(chain: &Block, input: Input, bytes: &[u8]) -> Block {
    let kind = (input as u64) << 56;
    // The last block, also when it is whole, is marked: so all but it are done in the loop.
    let before_last = bytes.len().saturating_sub(1) / BLOCK * BLOCK;
    let (blocks, last) = bytes.split_at(before_last);
    let mut state = *chain;
    let mut flags = FIRST;
    let mut position = 0;
    for block in blocks.as_chunks::<BLOCK>().0 {
        position += BLOCK as u64;
        state = step(&state, [position, kind | flags], &words_of(block));
        flags = 0;
    }
    let mut padded = [0; BLOCK];
    padded[..last.len()].copy_from_slice(last);
    step(&state, [position + last.len() as u64, kind | flags | FINAL], &words_of(&padded))
}

/// The state after configuration, for messages under one key (or none).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skein {
    chain: Block,
}

impl Skein {
    /// Hashes with `output_bits` bits of result (at most 512), keyed by `key` unless that is empty.
    pub(crate) fn new(output_bits: u64, key: &[u8]) -> Self {
        let start = if key.is_empty() { [0; 8] } else { ubi(&[0; 8], Input::Key, key) };
        let mut configuration = [0; 32];
        configuration[..4].copy_from_slice(b"SHA3");
        configuration[4] = 1;
        configuration[8..16].copy_from_slice(&output_bits.to_le_bytes());
        Self { chain: ubi(&start, Input::Configuration, &configuration) }
    }

    /// The first 512 bits of the result, as little-endian words.
    pub(crate) fn hash(&self, message: &[u8]) -> Block {
        let state = ubi(&self.chain, Input::Message, message);
        ubi(&state, Input::Output, &[0; 8])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(words: &[u64]) -> String {
        words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn unkeyed_hashes_are_the_specifications() {
        // Appendix C.2 of the specification: Skein-512-512 of FF, of FF..C0 and of FF..80.
        let down = |count: usize| (0..count).map(|i| 0xff - i as u8).collect::<Vec<u8>>();
        let skein = Skein::new(512, &[]);
        assert_eq!(
            hex(&skein.hash(&down(1))),
            "71b7bce6fe6452227b9ced6014249e5bf9a9754c3ad618ccc4e0aae16b316cc8\
             ca698d864307ed3e80b6ef1570812ac5272dc409b5a012df2a579102f340617a"
        );
        assert_eq!(
            hex(&skein.hash(&down(64))),
            "45863ba3be0c4dfc27e75d358496f4ac9a736a505d9313b42b2f5eada79fc17f\
             63861e947afb1d056aa199575ad3f8c9a3cc1780b5e5fa4cae050e989876625b"
        );
        assert_eq!(
            hex(&skein.hash(&down(128))),
            "91cca510c263c4ddd010530a33073309628631f308747e1bcbaa90e451cab92e\
             5188087af4188773a332303e6667a7a210856f742139000071f48e8ba2a5adb7"
        );
    }
}
