//! The work itself: ordinary threads and system calls on ordinary paths, the same for every file system.

mod appends;
mod mail;
mod names;
mod plain;
mod random;
mod sequential;
mod trees;

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Result, While, said};

pub use appends::appends;
pub use mail::{deliver, serve_mail};
pub use names::{create_files, create_more, delete_files, list_files, stat_files, stat_some};
pub use plain::{remove_small, write_constant, write_small};
pub use random::{RandomAccess, random_read, random_write};
pub use sequential::{Version, read_files, remove_files, rewrite_files, write_files};
pub use trees::SourceTree;

/// What was done and how long it took.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Bytes of file data that were moved.
    pub bytes: u64,
    /// Operations.
    pub operations: u64,
    /// By the clock.
    pub elapsed: Duration,
    /// How long each operation took, nanoseconds, sorted; empty where nobody asks.
    pub latencies: Vec<u64>,
}

/// Waits until everything below `folder` is on disk.
///
/// # Errors
/// What the file system said.
pub fn sync(folder: &Path) -> Result<()> {
    let what = || format!("syncing {}", folder.display());
    let folder = File::open(folder).on(what)?;
    rustix::fs::syncfs(&folder).on(what)
}

impl Done {
    fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64().max(1e-9)
    }

    /// MiB per second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / (1u64 << 20) as f64 / self.seconds()
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds()
    }
}

/// What one thread did.
#[derive(Debug, Default)]
struct Part {
    bytes: u64,
    operations: u64,
    latencies: Vec<u64>,
}

impl Part {
    /// Does one operation and notes how long it took.
    fn time<T>(&mut self, bytes: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let done = work()?;
        self.latencies.push(start.elapsed().as_nanos() as u64);
        self.bytes += bytes;
        self.operations += 1;
        Ok(done)
    }
}

/// Runs `work` in `count` threads, each with its number, and puts together what they did. The time is that of all,
/// until the last has ended.
fn in_threads(count: usize, work: impl Fn(usize) -> Result<Part> + Sync) -> Result<Done> {
    let start = Instant::now();
    let parts: Vec<Result<Part>> = std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || work(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| said("a thread panicked"))).collect()
    });
    let mut done = Done { elapsed: start.elapsed(), ..Done::default() };
    for part in parts {
        let part = part?;
        done.bytes += part.bytes;
        done.operations += part.operations;
        done.latencies.extend(part.latencies);
    }
    done.latencies.sort_unstable();
    Ok(done)
}
