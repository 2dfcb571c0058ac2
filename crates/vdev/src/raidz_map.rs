//! Where a block's sectors are in a RAID-Z group (`vdev_raidz_map_alloc`, `module/zfs/vdev_raidz.c`).
//!
//! A block of `s` sectors at sector `b` of the group starts on child `b mod n` in row `b / n`, and takes a rectangle of
//! columns; the first `parity` of them are parity, the rest hold the data **column by column**:
//!
//! ```text
//! n = 5, parity 1, s = 6 at b = 0         child 0   1    2    3    4
//! rows of data: q = 6/4 = 1, r = 2               P   D0   D2   D4   D5
//! big columns: bc = r + parity = 3               P   D1   D3    X          X = skip sector
//! ```
//!
//! Invariants: columns of one map lie on distinct children; parity columns are as long as the longest data column;
//! data, parity and skip sectors together are what `Layout::asize_for` allocates.

use std::collections::BTreeSet;

/// A block's part on one child. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Index of the child.
    pub child: usize,
    /// Offset in the child's allocatable space.
    pub offset: u64,
    /// Length.
    pub size: usize,
}

/// The columns of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaidzMap {
    /// Parity columns, then data columns.
    pub columns: Vec<Column>,
    /// Number of parity columns.
    pub parity: usize,
    /// The sectors that pad the allocation, as (column, offset in its child); they follow their column, where that
    /// exists.
    pub skips: Vec<Skip>,
}

/// A padding sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The column it follows directly, unless it lies on a child without a column of this block.
    pub column: Option<usize>,
    /// Index of the child.
    pub child: usize,
    /// Offset in the child's allocatable space, bytes.
    pub offset: u64,
}

impl RaidzMap {
    /// Maps `size` bytes (a multiple of the sector) at `offset` of a group of `children` with `parity` and sectors of
    /// `1 << ashift` bytes. Panics on impossible geometry; the caller has checked it.
    pub fn new(offset: u64, size: u64, ashift: u8, children: usize, parity: usize) -> Self {
        let width = children as u64;
        let nparity = parity as u64;
        assert!(size > 0 && size.is_multiple_of(1 << ashift) && offset.is_multiple_of(1 << ashift));
        assert!((1..=3).contains(&parity) && children > parity);
        let (start, sectors) = (offset >> ashift, size >> ashift);
        let full_rows = sectors / (width - nparity);
        let remainder = sectors % (width - nparity);
        let big = if remainder == 0 { 0 } else { remainder + nparity };
        let total = sectors + nparity * sectors.div_ceil(width - nparity);
        let used = if full_rows == 0 { big } else { width };
        // Columns in which the allocation has any sector, be it padding.
        let spanned = if full_rows == 0 { width.min(big.next_multiple_of(nparity + 1)) } else { width };
        let skipped = total.next_multiple_of(nparity + 1) - total;

        // Child and offset of the first sector of a column.
        let place = |column: u64| {
            let position = start + column;
            ((position % width) as usize, (position / width) << ashift)
        };
        let rows = |column: u64| if column >= used { 0 } else { full_rows + u64::from(column < big) };
        let mut columns: Vec<Column> = (0..used)
            .map(|column| {
                let (child, offset) = place(column);
                Column { child, offset, size: (rows(column) << ashift) as usize }
            })
            .collect();
        let mut skips: Vec<Skip> = (0..skipped)
            .map(|index| {
                let column = (big + index) % spanned;
                let (child, offset) = place(column);
                let column_index = (column < used).then_some(column as usize);
                Skip { column: column_index, child, offset: offset + (rows(column) << ashift) }
            })
            .collect();
        // With one parity, the parity and the first data column trade places in every other MiB of the group.
        if parity == 1 && offset & (1 << 20) != 0 {
            columns.swap(0, 1);
            for column in skips.iter_mut().filter_map(|skip| skip.column.as_mut()) {
                *column = match *column {
                    0 => 1,
                    1 => 0,
                    other => other,
                };
            }
        }
        let map = Self { columns, parity, skips };
        debug_assert!(map.is_sound(size, total + skipped, ashift));
        map
    }

    /// Whether the invariants hold for a block of `size` bytes that takes `sectors` in all.
    fn is_sound(&self, size: u64, sectors: u64, ashift: u8) -> bool {
        let bytes = |columns: &[Column]| columns.iter().map(|column| column.size as u64).sum::<u64>();
        let (parity, data) = self.columns.split_at(self.parity);
        let longest = data.iter().map(|column| column.size).max();
        let children: BTreeSet<usize> = self.columns.iter().map(|column| column.child).collect();
        children.len() == self.columns.len()
            && parity.iter().all(|column| Some(column.size) == longest)
            && bytes(data) == size
            && bytes(&self.columns) + ((self.skips.len() as u64) << ashift) == sectors << ashift
    }

    /// The data columns.
    pub fn data(&self) -> &[Column] {
        &self.columns[self.parity..]
    }

    /// Where in the block the data of column `index` (counted among all columns, not a parity column) begins, in bytes.
    pub fn data_start(&self, index: usize) -> usize {
        self.columns[self.parity..index].iter().map(|column| column.size).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geometry::Layout;

    #[test]
    fn the_drawn_example() {
        let map = RaidzMap::new(0, 6 * 512, 9, 5, 1);
        let sizes: Vec<_> = map.columns.iter().map(|c| (c.child, c.offset, c.size / 512)).collect();
        assert_eq!(sizes, [(0, 0, 2), (1, 0, 2), (2, 0, 2), (3, 0, 1), (4, 0, 1)]);
        // 6 data + 2 parity = 8 is even already: no padding.
        assert!(map.skips.is_empty());
        let map = RaidzMap::new(0, 5 * 512, 9, 5, 1);
        assert_eq!(map.skips, [Skip { column: Some(2), child: 2, offset: 512 }]);
    }

    #[test]
    fn a_block_that_begins_late_wraps_to_the_next_row() {
        let map = RaidzMap::new(3 << 12, 2 << 12, 12, 4, 2);
        let places: Vec<_> = map.columns.iter().map(|c| (c.child, c.offset)).collect();
        assert_eq!(places, [(3, 0), (0, 4096), (1, 4096), (2, 4096)]);
    }

    #[test]
    fn single_parity_trades_places_in_odd_mebibytes() {
        let map = RaidzMap::new(1 << 20, 4096, 12, 3, 1);
        // Sector 256: 256 mod 3 = 1.
        assert_eq!(map.columns[0].child, 2);
        assert_eq!(map.columns[1].child, 1);
        let map = RaidzMap::new(1 << 20, 4096, 12, 4, 2);
        assert_eq!(map.columns[0].child, 0);
    }

    proptest! {
        #[test]
        fn a_map_covers_exactly_its_allocation(
            children in 2usize..16, parity in 1usize..=3, ashift in 9u8..=12, start in 0u64..5000, sectors in 1u64..300
        ) {
            prop_assume!(children > parity);
            let map = RaidzMap::new(start << ashift, sectors << ashift, ashift, children, parity);
            let data: usize = map.data().iter().map(|c| c.size).sum();
            prop_assert_eq!(data as u64, sectors << ashift);
            let longest = map.data().iter().map(|c| c.size).max().unwrap_or(0);
            prop_assert!(map.columns[..parity].iter().all(|c| c.size == longest));
            // Every sector of the allocation is used once, by a column or as padding.
            let mut seen = BTreeSet::new();
            let mut visit = |child: usize, offset: u64| {
                seen.insert((offset >> ashift) * children as u64 + child as u64)
            };
            for column in &map.columns {
                for row in 0..(column.size >> ashift) as u64 {
                    prop_assert!(visit(column.child, column.offset + (row << ashift)));
                }
            }
            for skip in &map.skips {
                prop_assert!(visit(skip.child, skip.offset));
                if let Some(index) = skip.column {
                    let column = map.columns[index];
                    prop_assert_eq!((column.child, column.offset + column.size as u64), (skip.child, skip.offset));
                }
            }
            let asize = Layout::Raidz { parity }.asize_for(children, ashift, sectors << ashift);
            let wanted: BTreeSet<u64> = (start..start + (asize >> ashift)).collect();
            prop_assert_eq!(seen, wanted);
        }
    }
}
