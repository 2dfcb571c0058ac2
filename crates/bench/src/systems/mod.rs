//! What is measured: file systems that can be made, mounted, made cold and destroyed, all in the same way.

mod btrfs;
mod in_kernel;
mod loops;
mod null;
mod platter;
mod zfs_fuse;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Result, While};

pub use in_kernel::{InKernel, Kind};
pub use null::Null;
pub use platter::{BEFORE, Platter, THROUGH_DEVICE};
pub use zfs_fuse::ZfsFuse;

/// How data is spread over device files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layout {
    /// One device.
    Single,
    /// Over 7, without redundancy.
    Stripe,
    /// Over 7, of which one may be lost.
    Raidz1,
    /// Over 7, of which two may be lost.
    Raidz2,
    /// Over 7, of which three may be lost.
    Raidz3,
    /// Over 3 pairs.
    Mirrors,
    /// One pair.
    Mirror,
}

impl Layout {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Stripe => "stripe",
            Self::Raidz1 => "raidz1",
            Self::Raidz2 => "raidz2",
            Self::Raidz3 => "raidz3",
            Self::Mirrors => "3x2-mirror",
            Self::Mirror => "mirror",
        }
    }

    /// Device files, and how many of them hold data and not its redundancy.
    pub fn widths(self) -> (u64, u64) {
        match self {
            Self::Single => (1, 1),
            Self::Stripe => (7, 7),
            Self::Raidz1 => (7, 6),
            Self::Raidz2 => (7, 5),
            Self::Raidz3 => (7, 4),
            Self::Mirrors => (6, 3),
            Self::Mirror => (2, 1),
        }
    }

    /// The operands of `zpool create`: vdevs of `files`.
    fn vdevs(self, files: &[PathBuf]) -> Vec<String> {
        let (word, group) = match self {
            Self::Single | Self::Stripe => (None, 7),
            Self::Raidz1 => (Some("raidz"), 7),
            Self::Raidz2 => (Some("raidz2"), 7),
            Self::Raidz3 => (Some("raidz3"), 7),
            Self::Mirrors | Self::Mirror => (Some("mirror"), 2),
        };
        let name = |file: &PathBuf| file.display().to_string();
        files
            .chunks(group)
            .flat_map(|group| word.map(str::to_owned).into_iter().chain(group.iter().map(name)))
            .collect()
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Shape {
    /// How data is spread.
    pub layout: Layout,
    /// Bytes of a block of file data (`recordsize`), where the system lets one choose.
    pub record: u64,
    /// Bytes of each device file.
    pub device: u64,
    /// The folder that the device files' folder is made in.
    pub under: PathBuf,
}

impl Shape {
    /// Makes sparse device files `d0 d1 ...` in the folder `name`, which holds nothing else.
    fn make_files(&self, name: &str) -> Result<Vec<PathBuf>> {
        let folder = self.under.join(name);
        remove_folder(&folder);
        std::fs::create_dir_all(&folder).on(|| format!("making {}", folder.display()))?;
        let file = |index: u64| {
            let path = folder.join(format!("d{index}"));
            let file = std::fs::File::create(&path).and_then(|file| file.set_len(self.device));
            file.on(|| format!("making {}", path.display())).map(|()| path)
        };
        (0..self.layout.widths().0).map(file).collect()
    }

    /// As much room for data on one device.
    fn on_one(&self) -> Self {
        Self { layout: Layout::Single, device: self.device * self.layout.widths().1, ..self.clone() }
    }
}

/// Removes a folder of device files, if it is there.
pub fn remove_folder(folder: &Path) {
    if folder.exists()
        && let Err(error) = std::fs::remove_dir_all(folder)
    {
        eprintln!("could not remove {}: {error}", folder.display());
    }
}

/// How much a scrub read, and in what time.
#[derive(Clone, Copy, Debug)]
pub struct Scrub {
    /// Bytes on the devices that were in use, with their redundancy.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
}

/// A file system under measurement. Dropping it leaves neither a process, nor a mount, nor a loop device.
pub trait FileSystem {
    /// Its name in the table.
    fn name(&self) -> &'static str;

    /// Why it cannot be measured on this machine; `None` when it can.
    fn missing(&self) -> Option<String>;

    /// Whether it has such a layout.
    fn has(&self, layout: Layout) -> bool;

    /// Whether what was written can be read back and imported.
    fn keeps_data(&self) -> bool {
        true
    }

    /// Whether it can read and check everything.
    fn can_scrub(&self) -> bool {
        true
    }

    /// Whether a process serves it.
    fn is_served(&self) -> bool {
        true
    }

    /// Makes a fresh one and mounts it. What was there before is gone.
    fn create(&mut self, shape: &Shape) -> Result<()>;

    /// Where it is mounted.
    fn mountpoint(&self) -> PathBuf;

    /// Puts it away and brings it back with no cache filled. Returns how long bringing it back took.
    fn cold(&mut self) -> Result<Duration>;

    /// The process that serves it; `None` for one in the kernel.
    fn server(&self) -> Option<u32>;

    /// Reads and checks everything.
    fn scrub(&mut self) -> Result<Scrub>;

    /// Ends it and removes its files.
    fn destroy(&mut self) -> Result<()>;
}

/// Empties the kernel's caches.
///
/// # Errors
/// When this process may not.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").on(|| "dropping caches".into())
}

/// Whether something is mounted at `path`.
fn is_mounted(path: &Path) -> bool {
    crate::leftovers::mounts_below(path).iter().any(|mount| mount == path)
}

/// How long `work` took.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vdevs_are_grouped_as_the_layout_says() {
        let files: Vec<PathBuf> = (0..6).map(|index| PathBuf::from(format!("d{index}"))).collect();
        let words = Layout::Mirrors.vdevs(&files).join(" ");
        assert_eq!(words, "mirror d0 d1 mirror d2 d3 mirror d4 d5");
        assert_eq!(Layout::Raidz2.vdevs(&files).join(" "), "raidz2 d0 d1 d2 d3 d4 d5");
        assert_eq!(Layout::Stripe.vdevs(&files[..2]).join(" "), "d0 d1");
    }
}
