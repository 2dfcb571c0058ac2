//! Small appends, each of which has to be on disk before the next.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Done, Part, in_threads};
use crate::error::{Result, While, said};
use crate::interrupt;
use crate::noise::Noise;

const APPEND: usize = 4096;

/// Each of `threads` appends to a file of its own and calls fsync, for `time`; with `check` the last append of each is
/// read back.
///
/// # Errors
/// What the file system said, or that it gave back something else.
pub fn appends(folder: &Path, threads: usize, time: Duration, noise: &Noise, check: bool) -> Result<Done> {
    in_threads(threads, |thread| {
        let path = folder.join(format!("log-{thread}"));
        let what = || format!("appending to {}", path.display());
        let mut file = File::options().append(true).create(true).open(&path).on(what)?;
        let mut part = Part::default();
        let mut place = (thread as u64) << 20;
        let start = Instant::now();
        while start.elapsed() < time {
            interrupt::check()?;
            place += APPEND as u64;
            part.time(APPEND as u64, || {
                file.write_all(noise.at(place, APPEND)).and_then(|()| file.sync_all()).on(what)
            })?;
        }
        if check && part.operations > 0 {
            let whole = std::fs::read(&path).on(what)?;
            if whole.len() as u64 != part.bytes || !whole.ends_with(noise.at(place, APPEND)) {
                return said(format!("{}: other data came back than was written", path.display()));
            }
        }
        Ok(part)
    })
}
