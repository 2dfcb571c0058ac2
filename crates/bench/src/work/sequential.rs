//! One or several streams of large pieces.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Done, Part, in_threads};
use crate::error::{Result, While, said};
use crate::interrupt;
use crate::noise::{CHUNK, Noise};

fn path(folder: &Path, stream: usize) -> PathBuf {
    folder.join(format!("stream-{stream}"))
}

/// Each stream has its own bytes.
fn place(stream: usize, offset: u64) -> u64 {
    stream as u64 * (7 << 20) + offset
}

fn stream_length(total: u64, streams: usize) -> u64 {
    total / streams as u64 / CHUNK as u64 * CHUNK as u64
}

/// Writes `total` bytes, a file for each of `streams` threads, each ended with fsync.
///
/// # Errors
/// What the file system said.
pub fn write_files(folder: &Path, streams: usize, total: u64, noise: &Noise) -> Result<Done> {
    in_threads(streams, |stream| {
        let path = path(folder, stream);
        let what = || format!("writing {}", path.display());
        let file = File::create(&path).on(what)?;
        let length = stream_length(total, streams);
        for offset in (0..length).step_by(CHUNK) {
            interrupt::check()?;
            file.write_all_at(noise.at(place(stream, offset), CHUNK), offset).on(what)?;
        }
        file.sync_all().on(what)?;
        Ok(Part { bytes: length, operations: length / CHUNK as u64, latencies: Vec::new() })
    })
}

/// Reads what [`write_files`] wrote; with `check` the last piece of each is compared.
///
/// # Errors
/// What the file system said, or that it gave back something else.
pub fn read_files(folder: &Path, streams: usize, total: u64, noise: &Noise, check: bool) -> Result<Done> {
    in_threads(streams, |stream| {
        let path = path(folder, stream);
        let what = || format!("reading {}", path.display());
        let file = File::open(&path).on(what)?;
        let length = stream_length(total, streams);
        let mut buffer = vec![0; CHUNK];
        for offset in (0..length).step_by(CHUNK) {
            interrupt::check()?;
            file.read_exact_at(&mut buffer, offset).on(what)?;
        }
        if check && buffer != noise.at(place(stream, length - CHUNK as u64), CHUNK) {
            return said(format!("{}: other data came back than was written", path.display()));
        }
        Ok(Part { bytes: length, operations: length / CHUNK as u64, latencies: Vec::new() })
    })
}
