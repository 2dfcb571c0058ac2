//! Sectors against bytes: what the format counts in units of 512 bytes (`SPA_MINBLOCKSHIFT`, `include/sys/spa.h`), and
//! how it becomes bytes and back. Nobody else multiplies or shifts by that unit.
//!
//! Sizes and offsets in a DVA and in a block pointer are sectors, a dnode's block size, runs in a log space map, and
//! the `st_blocks` of a file. A sector of a device is another thing: its size is the vdev's `ashift`.

/// The unit, in bytes (`SPA_MINBLOCKSIZE`): every block's size is a multiple of it.
pub const SECTOR: u64 = 1 << SECTOR_SHIFT;
/// log2 of [`SECTOR`].
pub const SECTOR_SHIFT: u32 = 9;

/// So many sectors of 512 bytes, or the place that so many lie before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Sectors(pub u64);

impl Sectors {
    /// What `bytes`, a multiple of [`SECTOR`], are in sectors.
    #[inline]
    pub const fn of(bytes: u64) -> Self {
        debug_assert!(bytes.is_multiple_of(SECTOR), "whole sectors");
        Self::within(bytes)
    }

    /// The whole sectors in `bytes`.
    #[inline]
    pub const fn within(bytes: u64) -> Self {
        Self(bytes >> SECTOR_SHIFT)
    }

    /// `bytes` in sectors, rounded to the nearest.
    #[inline]
    pub const fn nearest(bytes: u64) -> Self {
        Self(bytes / SECTOR + (bytes % SECTOR >= SECTOR / 2) as u64)
    }

    /// The fewest sectors that hold `bytes`.
    #[inline]
    pub const fn holding(bytes: u64) -> Self {
        Self(bytes.div_ceil(SECTOR))
    }

    /// In bytes. The count is one that was checked, or has few enough bits where it is stored: 55 at most.
    #[inline]
    pub const fn bytes(self) -> u64 {
        debug_assert!(self.0 <= u64::MAX / SECTOR, "more bytes than can be counted");
        self.0 << SECTOR_SHIFT
    }

    /// In bytes, `u64::MAX` where they are more.
    #[inline]
    pub const fn saturating_bytes(self) -> u64 {
        self.0.saturating_mul(SECTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_sectors_become_each_other() {
        assert_eq!(SECTOR, 512);
        assert_eq!(
            (Sectors::of(1024), Sectors::within(1023), Sectors::holding(1)),
            (Sectors(2), Sectors(1), Sectors(1))
        );
        assert_eq!([255, 256, u64::MAX].map(Sectors::nearest), [Sectors(0), Sectors(1), Sectors(1 << 55)]);
        assert_eq!(Sectors(3).bytes(), 1536);
        assert_eq!(Sectors((1 << 55) - 1).bytes(), u64::MAX - (SECTOR - 1));
        assert_eq!(Sectors(1 << 55).saturating_bytes(), u64::MAX);
    }
}
