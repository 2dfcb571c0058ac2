//! ZLE: runs of zeros only (`module/zfs/zle.c`, with the fixed parameter 64 of `zio_compress_table`).
//!
//! A stream is a sequence of length bytes. A length byte `l < 64` is followed by `l + 1` literal bytes; a length byte
//! `l >= 64` stands for `l - 63` zeros, so one byte covers up to 192 of them.

use crate::error::DecompressError;

/// Length bytes below this introduce literals; also the longest literal run.
const LITERAL_MAX: usize = 64;
/// The longest run of zeros of one length byte.
const ZEROS_MAX: usize = 256 - LITERAL_MAX;

/// The length of the run of zeros at the front of `bytes`, counting no further than `limit`.
fn zeros_ahead(bytes: &[u8], limit: usize) -> usize {
    bytes.iter().take(limit).take_while(|&&byte| byte == 0).count()
}

/// The length of the literal run at the front of `bytes`: up to a pair of zeros, since one zero alone costs less as a
/// literal than as a run that splits the literals.
fn literals_ahead(bytes: &[u8]) -> usize {
    let window = &bytes[..bytes.len().min(LITERAL_MAX + 1)];
    let end = window.windows(2).position(|pair| pair == [0, 0]).unwrap_or(window.len());
    end.min(LITERAL_MAX)
}

pub(crate) fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let mut rest = input;
    let mut used = 0;
    while let Some(&first) = rest.first() {
        if first == 0 {
            let run = zeros_ahead(rest, ZEROS_MAX);
            *output.get_mut(used)? = (LITERAL_MAX - 1 + run) as u8;
            used += 1;
            rest = &rest[run..];
        } else {
            let run = literals_ahead(rest);
            let target = output.get_mut(used..used + 1 + run)?;
            target[0] = (run - 1) as u8;
            target[1..].copy_from_slice(&rest[..run]);
            used += 1 + run;
            rest = &rest[run..];
        }
    }
    Some(used)
}

pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    const CORRUPT: DecompressError = DecompressError::Corrupt("zle");
    let mut rest = input;
    let mut done = 0;
    while done < output.len() {
        let (&length, tail) = rest.split_first().ok_or(CORRUPT)?;
        rest = tail;
        let length = usize::from(length);
        if length < LITERAL_MAX {
            let run = length + 1;
            let literals = rest.get(..run).ok_or(CORRUPT)?;
            output.get_mut(done..done + run).ok_or(CORRUPT)?.copy_from_slice(literals);
            rest = &rest[run..];
            done += run;
        } else {
            let run = length + 1 - LITERAL_MAX;
            output.get_mut(done..done + run).ok_or(CORRUPT)?.fill(0);
            done += run;
        }
    }
    Ok(())
}
