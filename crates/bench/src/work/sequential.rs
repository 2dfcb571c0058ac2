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

/// Which bytes a file has: when it is overwritten, it gets others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// As [`write_files`] wrote it.
    First,
    /// As [`rewrite_files`] overwrote it.
    Second,
}

/// Each stream has its own bytes in each version.
fn place(stream: usize, offset: u64, version: Version) -> u64 {
    let version = if version == Version::First { 0 } else { (3 << 20) + (1 << 10) };
    stream as u64 * (7 << 20) + offset + version
}

fn stream_length(total: u64, streams: usize) -> u64 {
    total / streams as u64 / CHUNK as u64 * CHUNK as u64
}

/// Writes `total` bytes, a file for each of `streams` threads, each ended with fsync.
///
/// # Errors
/// What the file system said.
pub fn write_files(folder: &Path, streams: usize, total: u64, noise: &Noise) -> Result<Done> {
    write(folder, streams, total, noise, Version::First)
}

/// Overwrites in place what [`write_files`] wrote, in the same way.
///
/// # Errors
/// What the file system said.
pub fn rewrite_files(folder: &Path, streams: usize, total: u64, noise: &Noise) -> Result<Done> {
    write(folder, streams, total, noise, Version::Second)
}

fn write(folder: &Path, streams: usize, total: u64, noise: &Noise, version: Version) -> Result<Done> {
    in_threads(streams, |stream| {
        let path = path(folder, stream);
        let what = || format!("writing {}", path.display());
        let file = File::options().write(true).create_new(version == Version::First).open(&path).on(what)?;
        let length = stream_length(total, streams);
        for offset in (0..length).step_by(CHUNK) {
            interrupt::check()?;
            file.write_all_at(noise.at(place(stream, offset, version), CHUNK), offset).on(what)?;
        }
        file.sync_all().on(what)?;
        Ok(Part { bytes: length, operations: length / CHUNK as u64, latencies: Vec::new() })
    })
}

/// Reads what was written; with `check` the last piece of each file is compared.
///
/// # Errors
/// What the file system said, or that it gave back something else.
pub fn read_files(
    folder: &Path,
    streams: usize,
    total: u64,
    noise: &Noise,
    version: Version,
    check: bool,
) -> Result<Done> {
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
        if check && buffer != noise.at(place(stream, length - CHUNK as u64, version), CHUNK) {
            return said(format!("{}: other data came back than was written", path.display()));
        }
        Ok(Part { bytes: length, operations: length / CHUNK as u64, latencies: Vec::new() })
    })
}

/// Removes what was written.
///
/// # Errors
/// What the file system said.
pub fn remove_files(folder: &Path, streams: usize) -> Result<()> {
    (0..streams).map(|stream| path(folder, stream)).try_for_each(|path| {
        let removed = std::fs::remove_file(&path);
        removed.on(|| format!("removing {}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overwritten_is_told_from_what_was() {
        let (folder, noise) = (tempfile::tempdir().expect("a temporary folder"), Noise::new(4));
        let read = |version| read_files(folder.path(), 2, 4 << 20, &noise, version, true);
        assert_eq!(write_files(folder.path(), 2, 4 << 20, &noise).expect("written").bytes, 4 << 20);
        assert!(read(Version::First).is_ok() && read(Version::Second).is_err());
        assert_eq!(rewrite_files(folder.path(), 2, 4 << 20, &noise).expect("overwritten").operations, 4);
        assert!(read(Version::First).is_err() && read(Version::Second).is_ok());
    }
}
