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
    /// The places of one of the threads, none twice, in no order that could be foreseen; no other thread has them.
    fn places(&self, thread: usize, random: &mut Random) -> Vec<u64> {
        let blocks = (self.length / self.block) as usize;
        let mut places: Vec<u64> = (thread..blocks).step_by(self.threads).map(|at| at as u64 * self.block).collect();
        for index in (1..places.len()).rev() {
            places.swap(index, random.below(index as u64 + 1) as usize);
        }
        places
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
        let (mut part, mut last) = (Part::default(), None);
        let places = access.places(thread, &mut random);
        let start = Instant::now();
        // A place that is read again would come from a cache, so a fast system ends with the last place.
        for place in places {
            if start.elapsed() >= access.time {
                break;
            }
            interrupt::check()?;
            last = Some(place);
            part.time(access.block, || file.read_exact_at(&mut buffer, place).on(what))?;
        }
        if check && last.is_some_and(|place| !piece_is_right(&buffer, place, noise)) {
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
        let places = access.places(thread, &mut random);
        let mut places = places.iter().cycle();
        let start = Instant::now();
        while start.elapsed() < access.time {
            interrupt::check()?;
            let Some(&place) = places.next() else { break };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Version;

    #[test]
    fn threads_share_all_places_and_none_comes_twice() {
        let access = RandomAccess { length: 40 << 12, block: 4096, threads: 3, time: Duration::ZERO, seed: 1 };
        let mut all: Vec<u64> = (0..3).flat_map(|thread| access.places(thread, &mut access.random(thread))).collect();
        assert_ne!(all, (0..40).map(|at| at * 4096).collect::<Vec<u64>>());
        all.sort_unstable();
        assert_eq!(all, (0..40).map(|at| at * 4096).collect::<Vec<u64>>());
    }

    #[test]
    fn what_was_written_is_read_and_wrong_data_is_found() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let noise = Noise::new(4);
        crate::work::write_files(folder.path(), 1, 2 << 20, &noise).expect("written");
        let time = Duration::from_secs(5);
        let access = RandomAccess { length: 2 << 20, block: 16 << 10, threads: 2, time, seed: 7 };
        assert_eq!(random_read(folder.path(), access, &noise, true).expect("read").operations, 128);
        let short = RandomAccess { time: Duration::from_millis(20), ..access };
        assert!(random_write(folder.path(), short, &noise, true).expect("written").operations > 0);
        std::fs::write(folder.path().join("stream-0"), vec![0; 2 << 20]).expect("overwritten");
        assert!(random_read(folder.path(), access, &noise, true).is_err());
        assert!(crate::work::read_files(folder.path(), 1, 2 << 20, &noise, Version::First, true).is_err());
    }
}
