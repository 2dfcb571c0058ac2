//! lz4: a raw LZ4 block behind its length as a big-endian u32 (`module/zfs/lz4_zfs.c`).

use std::cell::RefCell;
use std::ops::Range;

use lz4_flex::block;

use crate::error::DecompressError;

const HEADER: usize = 4;

thread_local! {
    /// The compressor wants room for the worst case, more than the caller is willing to store.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let (header, body) = output.split_first_chunk_mut::<HEADER>()?;
    SCRATCH.with_borrow_mut(|scratch| {
        let worst = block::get_maximum_output_size(input.len());
        if scratch.len() < worst {
            scratch.resize(worst, 0);
        }
        let length = block::compress_into(input, scratch).ok()?;
        body.get_mut(..length)?.copy_from_slice(&scratch[..length]);
        *header = u32::try_from(length).ok()?.to_be_bytes();
        Some(HEADER + length)
    })
}

pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
        return Err(DecompressError::BadLength { stated: HEADER, available: input.len() });
    };
    let length = u32::from_be_bytes(*header) as usize;
    let bad = DecompressError::BadLength { stated: length.saturating_add(HEADER), available: input.len() };
    let stream = rest.get(..length).ok_or(bad)?;
    let expected = output.len();
    match expand(stream, output) {
        Some(actual) if actual == expected => Ok(()),
        Some(actual) => Err(DecompressError::WrongSize { algorithm: "lz4", actual, expected }),
        None => Err(DecompressError::Corrupt("lz4")),
    }
}

/// Bytes that are copied at once where there is room for them, wanted or not: cheaper than to ask how many.
const CHUNK: usize = 16;
/// Lengths of this many continue in the following bytes.
const LENGTH_GOES_ON: u8 = 15;
/// Shortest match.
const MATCH_MIN: usize = 4;
/// What a sequence takes whose literals its token tells: token, literals as a chunk, offset.
const NEAR: usize = 1 + CHUNK + 2;
/// What such a sequence writes at most: its literals, and then a chunk and two bytes.
const ROOM: usize = 3 * CHUNK;
/// From here on what copies any length is faster than chunks.
const LONG: usize = 256;

/// For each length of a pattern, the bytes of a chunk that are whole patterns: a table, as each match asks.
const WHOLE: [usize; CHUNK] = {
    let mut whole = [0; CHUNK];
    let mut length = 1;
    while length < CHUNK {
        whole[length] = CHUNK / length * length;
        length += 1;
    }
    whole
};

/// Expands a raw block and returns the bytes made; `None`: it is none, or makes more than there is room for.
///
/// Most sequences are short and far from both ends: those take the first way, with one check for all that is read and
/// one for all that is written. Metadata is full of short patterns that repeat (zeros, half-empty records): [`repeat`]
/// writes those by [`CHUNK`]s, where lz4_flex, which compresses for us, copies byte by byte.
fn expand(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0usize, 0usize);
    let far = output.len().saturating_sub(ROOM);
    loop {
        if let Some(near) = input.get(from..).and_then(|rest| rest.first_chunk::<NEAR>())
            && to < far
            && near[0] >> 4 != LENGTH_GOES_ON
        {
            let literals = usize::from(near[0] >> 4);
            output[to..to + CHUNK].copy_from_slice(&near[1..=CHUNK]);
            let offset = usize::from(u16::from_le_bytes([near[1 + literals], near[2 + literals]]));
            (from, to) = (from + literals + 3, to + literals);
            let bits = near[0] & LENGTH_GOES_ON;
            if bits != LENGTH_GOES_ON && offset >= CHUNK {
                let start = to.checked_sub(offset)?;
                output.copy_within(start..start + CHUNK, to);
                output.copy_within(start + CHUNK..start + CHUNK + 2, to + CHUNK);
                to += usize::from(bits) + MATCH_MIN;
            } else {
                to = found(input, &mut from, output, to, offset, bits)?;
            }
            continue;
        }
        let token = *input.get(from)?;
        from += 1;
        let literals = length(input, &mut from, token >> 4)?;
        let (literals_end, end) = (from.checked_add(literals)?, to.checked_add(literals)?);
        take(input, from..literals_end, output, to..end)?;
        (from, to) = (literals_end, end);
        if from == input.len() {
            return Some(to);
        }
        let offset = usize::from(u16::from_le_bytes(*input.get(from..)?.first_chunk()?));
        from += 2;
        to = found(input, &mut from, output, to, offset, token & LENGTH_GOES_ON)?;
    }
}

/// A match at `to`, `offset` behind it, the first four bits of its length in `bits`; its end.
#[inline(always)]
fn found(input: &[u8], from: &mut usize, output: &mut [u8], to: usize, offset: usize, bits: u8) -> Option<usize> {
    let start = to.checked_sub(offset).filter(|_| offset > 0)?;
    let end = to.checked_add(length(input, from, bits)?)?.checked_add(MATCH_MIN)?;
    if end > output.len() {
        return None;
    }
    repeat(output, start, to, end);
    Some(end)
}

/// Copies literals; `None`: there are not as many, or no room for them.
#[inline(always)]
fn take(input: &[u8], from: Range<usize>, output: &mut [u8], to: Range<usize>) -> Option<()> {
    if from.len() < LONG && from.end + CHUNK <= input.len() && to.end + CHUNK <= output.len() {
        for (from, to) in from.step_by(CHUNK).zip(to.step_by(CHUNK)) {
            output[to..to + CHUNK].copy_from_slice(&input[from..from + CHUNK]);
        }
    } else {
        output.get_mut(to)?.copy_from_slice(input.get(from)?);
    }
    Some(())
}

/// A length whose first four bits are `bits`.
#[inline(always)]
fn length(input: &[u8], from: &mut usize, bits: u8) -> Option<usize> {
    let mut length = usize::from(bits);
    if bits == LENGTH_GOES_ON {
        loop {
            let more = *input.get(*from)?;
            *from += 1;
            length = length.checked_add(usize::from(more))?;
            if more != u8::MAX {
                break;
            }
        }
    }
    Some(length)
}

/// Fills `to..end` with what begins at `start`, over and over when that is nearer than the length.
#[inline]
fn repeat(output: &mut [u8], start: usize, to: usize, end: usize) {
    let offset = to - start;
    if end + CHUNK > output.len() || end - to >= LONG {
        // Near the end nothing may be written beyond it; what is long doubles with each copy.
        let mut done = to;
        while done < end {
            let count = (done - start).min(end - done);
            output.copy_within(start..start + count, done);
            done += count;
        }
    } else if offset >= CHUNK {
        for ahead in (0..end - to).step_by(CHUNK) {
            output.copy_within(start + ahead..start + ahead + CHUNK, to + ahead);
        }
    } else {
        let (pattern, step) = pattern(&output[start..], offset);
        for done in (to..end).step_by(step) {
            output[done..done + CHUNK].copy_from_slice(&pattern);
        }
    }
}

/// The first `offset` bytes, fewer than a chunk, over and over; and how many of a chunk are [`WHOLE`] patterns.
#[inline(always)]
fn pattern(bytes: &[u8], offset: usize) -> ([u8; CHUNK], usize) {
    let chunk = bytes.first_chunk().copied().unwrap_or_default();
    let mut pattern = u128::from_le_bytes(chunk) & ((1 << (8 * offset)) - 1);
    let mut filled = offset;
    while filled < CHUNK {
        pattern |= pattern << (8 * filled);
        filled *= 2;
    }
    (pattern.to_le_bytes(), WHOLE[offset])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(input: &[u8], room: usize) -> Option<Vec<u8>> {
        let mut output = vec![0xee; room];
        let length = expand(input, &mut output)?;
        output.truncate(length);
        Some(output)
    }

    #[test]
    fn patterns_of_every_length_repeat() {
        for offset in 1..40usize {
            for count in (4..80).chain([255 + 19, 1000]) {
                let literals: Vec<u8> = (1..=offset as u8).collect();
                let mut block = vec![0xff, 0xff];
                if offset < 15 {
                    block = vec![(offset as u8) << 4 | 15];
                } else {
                    block[1] = (offset - 15) as u8;
                }
                block.extend(&literals);
                block.extend((offset as u16).to_le_bytes());
                let mut rest = count.max(19) - 19;
                while rest >= 255 {
                    block.push(255);
                    rest -= 255;
                }
                block.push(rest as u8);
                block.push(0);
                let total = offset + count.max(19);
                let wanted: Vec<u8> = literals.iter().copied().cycle().take(total).collect();
                for room in [total, total + 1, total + 100] {
                    assert_eq!(expanded(&block, room).as_ref(), Some(&wanted), "offset {offset}, {count} bytes");
                }
                assert_eq!(expanded(&block, total - 1), None);
            }
        }
    }

    #[test]
    fn what_is_no_block_is_refused() {
        // Nothing; literals that are not there; an offset of 0; one before the beginning; cut off in the length.
        let blocks: [&[u8]; 5] = [b"", b"\x50ab", b"\x10a\0\0\0", b"\x10a\x02\0\0", b"\x1fa\x01\0\xff"];
        for block in blocks {
            assert_eq!(expanded(block, 1000), None, "{block:?}");
        }
    }

    #[test]
    fn the_library_reads_it_the_same_way() {
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed
        };
        let lengths = [0usize, 1, 13, 30, 47, 48, 49, 64, 65, 100, 500, 5000, 70_000];
        for (length, words) in lengths.into_iter().flat_map(|length| [(length, false), (length, true)]) {
            let mut data = Vec::with_capacity(length + 32);
            while data.len() < length {
                match random() {
                    bits if words => data.extend(format!("word number {}; ", bits >> 60).bytes()),
                    bits => data.push(if bits >> 62 == 0 { (bits >> 40) as u8 } else { 7 }),
                }
            }
            data.truncate(length);
            let block = block::compress(&data);
            for room in length..length + 3 {
                assert_eq!(expanded(&block, room).as_ref(), Some(&data));
            }
            // And what is damaged is the same to both, where the library sees it.
            for flip in 0..block.len().min(300) {
                for bit in 0..8 {
                    let mut damaged = block.clone();
                    damaged[flip] ^= 1 << bit;
                    let theirs = block::decompress(&damaged, length).ok();
                    assert_eq!(expanded(&damaged, length), theirs, "{length} bytes, byte {flip}, bit {bit}");
                }
            }
        }
    }
}
