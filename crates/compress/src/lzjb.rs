//! LZJB (`module/zfs/lzjb.c`): the compression of pools before lz4, and of metadata in pools without its feature.
//!
//! A stream is a sequence of groups: one map byte whose bits, lowest first, say for up to eight items whether each is a
//! match (1) or a literal byte (0). A match is two bytes: six bits of `length - 3`, then ten bits of distance, most
//! significant bits first. The stream does not say where it ends: the block's logical size does.

use crate::error::DecompressError;

const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = (1 << 6) + MATCH_MIN - 1;
/// The farthest distance a match may reach back.
const DISTANCE_MAX: usize = (1 << 10) - 1;
const TABLE_SIZE: usize = 1024;

fn slot(bytes: [u8; 3]) -> usize {
    let value = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
    (value.wrapping_mul(0x9e37_79b1) >> 22) as usize
}

pub(crate) fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    // Positions plus one; 0 means that nothing with this hash was seen.
    let mut seen = [0u32; TABLE_SIZE];
    let mut used = 0;
    let mut at = 0;
    while at < input.len() {
        let map_at = used;
        let mut map = 0u8;
        *output.get_mut(map_at)? = 0;
        used += 1;
        for bit in 0..8 {
            if at == input.len() {
                break;
            }
            let found = match input[at..].first_chunk::<3>() {
                Some(&key) => {
                    let slot = &mut seen[slot(key)];
                    let candidate = *slot as usize;
                    *slot = at as u32 + 1;
                    let near = candidate != 0 && at - (candidate - 1) <= DISTANCE_MAX;
                    (near && input[candidate - 1..candidate + 2] == key).then(|| candidate - 1)
                }
                None => None,
            };
            match found {
                Some(from) => {
                    let most = MATCH_MAX.min(input.len() - at);
                    let length = (MATCH_MIN..most).find(|&n| input[from + n] != input[at + n]).unwrap_or(most);
                    let item = ((length - MATCH_MIN) << 10 | (at - from)) as u16;
                    output.get_mut(used..used + 2)?.copy_from_slice(&item.to_be_bytes());
                    map |= 1 << bit;
                    used += 2;
                    at += length;
                }
                None => {
                    *output.get_mut(used)? = input[at];
                    used += 1;
                    at += 1;
                }
            }
        }
        output[map_at] = map;
    }
    Some(used)
}

pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    const CORRUPT: DecompressError = DecompressError::Corrupt("lzjb");
    let mut source = input.iter().copied();
    let mut done = 0;
    while done < output.len() {
        let map = source.next().ok_or(CORRUPT)?;
        for bit in 0..8 {
            if done == output.len() {
                break;
            }
            let first = source.next().ok_or(CORRUPT)?;
            if map & (1 << bit) == 0 {
                output[done] = first;
                done += 1;
                continue;
            }
            let item = usize::from(u16::from_be_bytes([first, source.next().ok_or(CORRUPT)?]));
            let distance = item & DISTANCE_MAX;
            let from = done.checked_sub(distance).ok_or(CORRUPT)?;
            if distance == 0 {
                return Err(CORRUPT);
            }
            // OpenZFS lets the last match overhang the block; so do we.
            let end = output.len().min(done + (item >> 10) + MATCH_MIN);
            for n in 0..end - done {
                output[done + n] = output[from + n];
            }
            done = end;
        }
    }
    Ok(())
}
