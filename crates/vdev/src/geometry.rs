//! Sizes: what a device of a given size is worth to a pool (`module/zfs/vdev.c`, `vdev_raidz.c`).
//!
//! ```text
//! leaf   | label 0 | label 1 | boot 3.5 MiB | allocatable (asize) ...        | label 2 | label 3 |
//! offset 0        256K      512K            4 MiB                        psize-512K           psize
//! ```

use platter_ondisk::Sectors;
use platter_ondisk::label::{VDEV_LABEL_END_SIZE, VDEV_LABEL_START_SIZE};

use crate::error::{Result, VdevError};
use crate::spec::VdevKind;

/// Least size of a device, in bytes (`SPA_MINDEVSIZE`).
pub const DEVICE_SIZE_MIN: u64 = 64 << 20;
/// Least and greatest ashift.
pub const ASHIFT_RANGE: std::ops::RangeInclusive<u8> = 9..=16;
/// Greatest ashift that is chosen without being asked for (`zfs_vdev_max_auto_ashift`).
pub const ASHIFT_AUTO_MAX: u8 = 14;

/// How a top-level vdev spreads a block over its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One child.
    Single,
    /// Every child holds everything.
    Mirror,
    /// Columns with `parity` of them redundant.
    Raidz {
        /// Parity columns, 1 to 3.
        parity: usize,
    },
}

impl Layout {
    /// The layout of a kind of top-level vdev.
    ///
    /// # Errors
    /// [`VdevError::Unsupported`] for kinds without one; [`VdevError::Config`] for impossible widths.
    pub fn of(kind: &VdevKind, children: usize) -> Result<Self> {
        match kind {
            VdevKind::Disk | VdevKind::File | VdevKind::Missing => Ok(Self::Single),
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare if children >= 1 => Ok(Self::Mirror),
            VdevKind::Raidz { parity } => {
                let parity = usize::from(*parity);
                if !(1..=3).contains(&parity) || children < parity + 1 || children > 255 {
                    return Err(VdevError::Config(format!("raidz{parity} cannot have {children} devices")));
                }
                Ok(Self::Raidz { parity })
            }
            VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => {
                Err(VdevError::Config(format!("a {kind} without devices")))
            }
            other => Err(VdevError::Unsupported { vdev: other.to_string(), kind: other.label_name().to_owned() }),
        }
    }

    /// Children that may fail at once without loss.
    pub fn redundancy(&self, children: usize) -> usize {
        match self {
            Self::Single => 0,
            Self::Mirror => children - 1,
            Self::Raidz { parity } => *parity,
        }
    }

    /// Allocatable bytes of the vdev over children with `least_child` allocatable bytes each (the smallest counts).
    pub fn asize(&self, children: usize, least_child: u64) -> u64 {
        match self {
            Self::Single | Self::Mirror => least_child,
            Self::Raidz { .. } => least_child * children as u64,
        }
    }

    /// Allocatable bytes that each child needs for a vdev of `asize` (the inverse of [`Self::asize`]).
    pub fn child_asize(&self, children: usize, asize: u64) -> u64 {
        match self {
            Self::Single | Self::Mirror => asize,
            Self::Raidz { .. } => asize.div_ceil(children as u64),
        }
    }

    /// Space that a block of `psize` bytes takes (`vdev_psize_to_asize`): whole sectors, with parity and padded to a
    /// multiple of `parity + 1` sectors on raidz.
    pub fn asize_for(&self, children: usize, ashift: u8, psize: u64) -> u64 {
        let sectors = psize.div_ceil(1 << ashift);
        match self {
            Self::Single | Self::Mirror => sectors << ashift,
            Self::Raidz { parity } => {
                let parity = *parity as u64;
                let data_columns = children as u64 - parity;
                (sectors + parity * sectors.div_ceil(data_columns)).next_multiple_of(parity + 1) << ashift
            }
        }
    }

    /// How many of 512 allocated bytes count as used, in 1/512 (`vdev_deflate_ratio`): what a 128 KiB block loses to
    /// parity and padding is hidden from users. 512 without parity.
    pub fn deflate_ratio(&self, children: usize, ashift: u8) -> u64 {
        (1 << 17) / Sectors::within(self.asize_for(children, ashift, 1 << 17)).0
    }
}

/// Allocatable bytes of a leaf with a usable size of `psize`.
pub fn leaf_asize(psize: u64) -> u64 {
    psize.saturating_sub(VDEV_LABEL_START_SIZE + VDEV_LABEL_END_SIZE)
}

/// The ashift for a new top-level vdev over devices with these sector sizes (log2 each, logical and physical):
/// the greatest logical one, raised to the physical ones up to [`ASHIFT_AUTO_MAX`].
pub fn best_ashift(sectors: impl IntoIterator<Item = (u8, u8)>) -> u8 {
    let (mut logical, mut physical) = (*ASHIFT_RANGE.start(), 0);
    for (one_logical, one_physical) in sectors {
        logical = logical.max(one_logical);
        physical = physical.max(one_physical.min(ASHIFT_AUTO_MAX));
    }
    logical.max(physical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_allocation_sizes() {
        let z1 = Layout::Raidz { parity: 1 };
        // One 4 KiB sector takes itself, its parity, and no padding.
        assert_eq!(z1.asize_for(7, 12, 4096), 8192);
        assert_eq!(z1.asize_for(7, 12, 512), 8192);
        // 128 KiB over 6 data columns: 32 + 6 = 38 sectors.
        assert_eq!(z1.asize_for(7, 12, 131_072), 38 << 12);
        let z2 = Layout::Raidz { parity: 2 };
        assert_eq!(z2.asize_for(6, 9, 512), 3 << 9);
        assert_eq!(z2.asize_for(6, 9, 5 * 512), 9 << 9);
        assert_eq!(Layout::Mirror.asize_for(2, 12, 512), 4096);
    }

    #[test]
    fn known_deflate_ratios() {
        assert_eq!(Layout::Single.deflate_ratio(1, 9), 512);
        assert_eq!(Layout::Mirror.deflate_ratio(3, 12), 512);
        // 256 sectors + 64 parity = 320, already even.
        assert_eq!(Layout::Raidz { parity: 1 }.deflate_ratio(5, 9), (1 << 17) / 320);
    }

    #[test]
    fn labels_and_boot_area_are_not_allocatable() {
        assert_eq!(leaf_asize(100 << 20), (100 << 20) - (4 << 20) - (512 << 10));
        assert_eq!(leaf_asize(0), 0);
    }

    #[test]
    fn ashift_follows_the_coarsest_device() {
        assert_eq!(best_ashift([]), 9);
        assert_eq!(best_ashift([(9, 12), (9, 9)]), 12);
        assert_eq!(best_ashift([(12, 12), (9, 9)]), 12);
        assert_eq!(best_ashift([(9, 18)]), 14);
    }
}
