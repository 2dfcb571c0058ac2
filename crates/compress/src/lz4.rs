//! lz4: a raw LZ4 block behind its length as a big-endian u32 (`module/zfs/lz4_zfs.c`).

use std::cell::RefCell;

use lz4_flex::block;

use crate::DecompressError;

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
const LENGTH_GOES_ON: usize = 15;
/// Shortest match.
const MATCH_MIN: usize = 4;

/// Expands a raw block and returns the bytes made; `None`: it is none, or makes more than there is room for.
///
/// Metadata is full of short patterns that repeat (zeros, half-empty records). lz4_flex, which compresses for us,
/// copies those byte by byte; here it is [`CHUNK`]s of the pattern.
fn expand(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0usize, 0usize);
    loop {
        let token = usize::from(*input.get(from)?);
        from += 1;
        let literals = length(input, &mut from, token >> 4)?;
        let (literals_end, end) = (from.checked_add(literals)?, to.checked_add(literals)?);
        if literals <= CHUNK && from + CHUNK <= input.len() && to + CHUNK <= output.len() {
            output[to..to + CHUNK].copy_from_slice(&input[from..from + CHUNK]);
        } else {
            output.get_mut(to..end)?.copy_from_slice(input.get(from..literals_end)?);
        }
        if literals_end > input.len() || end > output.len() {
            return None;
        }
        (from, to) = (literals_end, end);
        if from == input.len() {
            return Some(to);
        }
        let offset = input.get(from..from + 2)?;
        let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
        from += 2;
        let start = to.checked_sub(offset).filter(|_| offset > 0)?;
        let end = to.checked_add(length(input, &mut from, token & LENGTH_GOES_ON)?)?.checked_add(MATCH_MIN)?;
        if end > output.len() {
            return None;
        }
        repeat(output, start, to, end);
        to = end;
    }
}

/// A length whose first four bits are `bits`.
#[inline(always)]
fn length(input: &[u8], from: &mut usize, bits: usize) -> Option<usize> {
    let mut length = bits;
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
#[inline(always)]
fn repeat(output: &mut [u8], start: usize, to: usize, end: usize) {
    let offset = to - start;
    if end + CHUNK > output.len() {
        // Near the end nothing may be written beyond it.
        let mut done = to;
        while done < end {
            let count = (done - start).min(end - done);
            output.copy_within(start..start + count, done);
            done += count;
        }
    } else if offset >= CHUNK {
        let (mut source, mut done) = (start, to);
        while done < end {
            output.copy_within(source..source + CHUNK, done);
            (source, done) = (source + CHUNK, done + CHUNK);
        }
    } else {
        let mut pattern = [0; CHUNK];
        let mut source = start;
        for byte in &mut pattern {
            *byte = output[source];
            source += 1;
            if source == to {
                source = start;
            }
        }
        // Only whole patterns: the next chunk begins with the pattern's first byte again.
        let step = CHUNK / offset * offset;
        let mut done = to;
        while done < end {
            output[done..done + CHUNK].copy_from_slice(&pattern);
            done += step;
        }
    }
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
        for length in [0usize, 1, 13, 64, 500, 5000, 70_000] {
            let data: Vec<u8> = (0..length)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    if seed >> 62 == 0 { (seed >> 40) as u8 } else { 7 }
                })
                .collect();
            let block = block::compress(&data);
            assert_eq!(expanded(&block, length).as_ref(), Some(&data));
            // And what is damaged is the same to both, where the library sees it.
            for flip in 0..block.len().min(300) {
                let mut damaged = block.clone();
                damaged[flip] ^= 1 << (flip % 8);
                let theirs = block::decompress(&damaged, length).ok();
                assert_eq!(expanded(&damaged, length), theirs, "{length} bytes, byte {flip}");
            }
        }
    }
}
