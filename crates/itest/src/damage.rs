//! Doing to disks what time and accidents do to them.
//!
//! The geometry used here (which sectors of which disk hold a block) is written down a second time on purpose: a
//! mistake in the engine's own map must not hide itself.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::data::Rng;
use crate::zdb::Dva;

/// Two labels of 256 KiB and the boot block lie in front of the allocatable space (`include/sys/vdev_impl.h`).
pub const LABEL_START_BYTES: u64 = 4 << 20;
/// Two labels of 256 KiB lie behind it.
pub const LABEL_END_BYTES: u64 = 512 << 10;
/// Size of one label.
pub const LABEL_BYTES: u64 = 256 << 10;

/// Overwrites `range` of the file with random bytes.
///
/// # Panics
/// When the file cannot be written.
pub fn overwrite(path: &Path, range: Range<u64>, seed: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("a device file can be opened");
    let mut rng = Rng::new(seed ^ range.start);
    let mut buffer = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(buffer.len() as u64) as usize;
        rng.fill(&mut buffer[..len]);
        file.write_all_at(&buffer[..len], at).expect("a device file can be written");
        at += len as u64;
    }
    file.sync_all().expect("a device file can be synced");
}

/// The allocatable space of a device of `size` bytes: all but the labels and the boot block.
pub fn data_area(size: u64) -> Range<u64> {
    // The labels at the end start at a multiple of 256 KiB.
    LABEL_START_BYTES..(size / LABEL_BYTES * LABEL_BYTES - LABEL_END_BYTES)
}

/// Where label `index` (0 to 3) of a device of `size` bytes lies.
pub fn label(index: u64, size: u64) -> Range<u64> {
    let usable = size / LABEL_BYTES * LABEL_BYTES;
    let start = if index < 2 { index * LABEL_BYTES } else { usable - (4 - index) * LABEL_BYTES };
    start..start + LABEL_BYTES
}

/// Overwrites everything but the labels with random bytes.
pub fn overwrite_data_area(path: &Path, seed: u64) {
    overwrite(path, data_area(len(path)), seed);
}

/// Overwrites the whole device, labels included.
pub fn overwrite_all(path: &Path, seed: u64) {
    overwrite(path, 0..len(path), seed);
}

/// Overwrites `count` random stretches of up to `longest` bytes in the allocatable space.
pub fn overwrite_spots(path: &Path, seed: u64, count: usize, longest: u64) {
    let area = data_area(len(path));
    let mut rng = Rng::new(seed);
    for _ in 0..count {
        let start = area.start + rng.below(area.end - area.start);
        let end = (start + 1 + rng.below(longest)).min(area.end);
        overwrite(path, start..end, rng.next_u64());
    }
}

/// How a top-level vdev spreads its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One disk.
    Disk,
    /// Every disk holds everything.
    Mirror,
    /// raidz over this many disks.
    Raidz {
        /// Disks, parity included.
        disks: u64,
    },
}

/// The sectors of child `disk` that belong to the block at `dva`, as byte ranges of the device file.
///
/// raidz lays the sectors of a block (data, parity and padding) one after another over the disks: sector number
/// `s` of the vdev is sector `s / disks` of disk `s % disks` (`module/zfs/vdev_raidz.c`).
pub fn sectors_of(dva: &Dva, layout: Layout, ashift: u32, disk: u64) -> Vec<Range<u64>> {
    let sector = 1u64 << ashift;
    match layout {
        Layout::Disk | Layout::Mirror => {
            let start = LABEL_START_BYTES + dva.offset;
            std::iter::once(start..start + dva.asize).collect()
        }
        Layout::Raidz { disks } => {
            let first = dva.offset >> ashift;
            (first..first + (dva.asize >> ashift))
                .filter(|number| number % disks == disk)
                .map(|number| {
                    let start = LABEL_START_BYTES + number / disks * sector;
                    start..start + sector
                })
                .collect()
        }
    }
}

/// SHA-256 of each of the device files, for "nothing was changed".
pub fn fingerprints<P: AsRef<Path>>(paths: &[P]) -> Vec<(String, String)> {
    paths
        .iter()
        .map(|path| {
            let path = path.as_ref();
            let hash = File::open(path).and_then(crate::data::sha256_of).unwrap_or_else(|error| error.to_string());
            (path.display().to_string(), hash)
        })
        .collect()
}

/// Size of a device file in bytes.
pub fn len(path: &Path) -> u64 {
    fs::metadata(path).expect("a device file exists").len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_frame_the_data_area_without_overlap() {
        for size in [64 << 20, (64 << 20) + 4096, 128 << 20, 1_000_000_007] {
            let area = data_area(size);
            assert!(label(0, size).end == label(1, size).start && label(1, size).end <= area.start);
            assert!(area.end == label(2, size).start && label(2, size).end == label(3, size).start);
            assert!(label(3, size).end <= size);
        }
    }

    #[test]
    fn the_sectors_of_a_raidz_block_add_up_to_its_allocated_size() {
        let dva = Dva { vdev: 0, offset: 0xce78000, asize: 0x2e000 };
        let total: u64 = (0..5)
            .flat_map(|disk| sectors_of(&dva, Layout::Raidz { disks: 5 }, 12, disk))
            .map(|range| range.end - range.start)
            .sum();
        assert_eq!(total, dva.asize);
    }
}
