//! Blocks of one size at random places of one file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::{Done, Part, in_threads};
use crate::error::{Result, While, said};
use crate::interrupt;
use crate::noise::{Noise, Random};

/// How a file is accessed.
#[derive(Clone, Copy, Debug)]
pub struct RandomAccess {
    /// Bytes of the file, which [`super::write_files`] made as its only stream.
    pub length: u64,
    /// Bytes of each access.
    pub block: u64,
    /// Threads at the same time.
    pub threads: usize,
    /// For how long.
    pub time: Duration,
    /// Tells rounds apart.
    pub seed: u64,
}

impl RandomAccess {
    /// A place for one of the threads; no other thread gets the same.
    fn place(&self, thread: usize, random: &mut Random) -> u64 {
        let threads = self.threads as u64;
        let blocks = self.length / self.block / threads;
        (random.below(blocks) * threads + thread as u64) * self.block
    }

    fn random(&self, thread: usize) -> Random {
        Random::new(self.seed << 8 | thread as u64)
    }
}

/// Reads; with `check` the last block of each thread is compared.
///
/// # Errors
/// What the file system said, or that it gave back something else.
pub fn random_read(folder: &Path, access: RandomAccess, noise: &Noise, check: bool) -> Result<Done> {
    let path = folder.join("stream-0");
    let what = || format!("reading {}", path.display());
    in_threads(access.threads, |thread| {
        let file = File::open(&path).on(what)?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random).on(what)?;
        let mut buffer = vec![0; access.block as usize];
        let mut random = access.random(thread);
        let (mut part, mut place) = (Part::default(), 0);
        let start = Instant::now();
        while start.elapsed() < access.time {
            interrupt::check()?;
            place = access.place(thread, &mut random);
            part.time(access.block, || file.read_exact_at(&mut buffer, place).on(what))?;
        }
        if check && part.operations > 0 && !piece_is_right(&buffer, place, noise) {
            return said(format!("{}: other data came back than was written", path.display()));
        }
        Ok(part)
    })
}

/// Whether `bytes` are those that [`super::write_files`] wrote at `place`.
fn piece_is_right(bytes: &[u8], place: u64, noise: &Noise) -> bool {
    let chunk = place / crate::noise::CHUNK as u64 * crate::noise::CHUNK as u64;
    let inside = (place - chunk) as usize;
    noise.at(chunk, crate::noise::CHUNK)[inside..inside + bytes.len()] == *bytes
}

/// Writes, and ends with fsync, whose time counts; with `check` the last block of each thread is read back.
///
/// # Errors
/// What the file system said, or that it gave back something else.
pub fn random_write(folder: &Path, access: RandomAccess, noise: &Noise, check: bool) -> Result<Done> {
    let path = folder.join("stream-0");
    let what = || format!("writing {}", path.display());
    in_threads(access.threads, |thread| {
        let file = File::options().read(true).write(true).open(&path).on(what)?;
        let mut random = access.random(thread);
        let (mut part, mut last) = (Part::default(), None);
        let start = Instant::now();
        while start.elapsed() < access.time {
            interrupt::check()?;
            let place = access.place(thread, &mut random);
            let bytes = noise.at(random.next() & !7, access.block as usize);
            part.time(access.block, || file.write_all_at(bytes, place).on(what))?;
            last = Some((place, bytes));
        }
        file.sync_all().on(what)?;
        if let Some((place, bytes)) = last.filter(|_| check) {
            let mut buffer = vec![0; bytes.len()];
            file.read_exact_at(&mut buffer, place).on(what)?;
            if buffer != bytes {
                return said(format!("{}: other data came back than was written", path.display()));
            }
        }
        Ok(part)
    })
}
