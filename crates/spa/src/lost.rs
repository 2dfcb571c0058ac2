//! Blocks that could not be had, as they are found: what is listed at once, and what is to be looked for elsewhere.
//!
//! Invariants:
//! - an object with a lost block is known at once, in the data set where it was found;
//! - every lost block is looked for in others, too, up to so many that memory allows.

use std::collections::{BTreeMap, BTreeSet};

use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::Bookmark;

/// Most blocks that are kept: 128 GiB of usual ones.
const BLOCKS_MAX: usize = 1 << 20;

/// An object with the data set or snapshot that has it.
pub type InDataset = (ObjectId, ObjectId);

/// Blocks of one object: level, number at that level, and when each was written, wherever it is.
pub type Blocks = BTreeSet<(i8, u64, Txg)>;

/// Blocks that are to be looked for in other data sets.
#[derive(Debug, Default)]
pub struct LostBlocks {
    blocks: BTreeMap<InDataset, Blocks>,
    count: usize,
}

impl LostBlocks {
    /// One more, if there is place for it.
    pub fn add(&mut self, bookmark: Bookmark, bp: &BlkPtr) {
        let block = (bookmark.level, bookmark.blkid, bp.physical_birth());
        self.extend([((bookmark.objset, bookmark.object), [block].into())].into());
    }

    /// More of them, as far as there is place.
    pub fn extend(&mut self, more: BTreeMap<InDataset, Blocks>) {
        for (object, blocks) in more {
            let place = BLOCKS_MAX - self.count;
            let of_it = self.blocks.entry(object).or_default();
            let before = of_it.len();
            of_it.extend(blocks.into_iter().take(place));
            self.count += of_it.len() - before;
        }
        assert!(self.count <= BLOCKS_MAX, "memory allows no more");
    }

    /// Takes all of them.
    pub fn take(&mut self) -> BTreeMap<InDataset, Blocks> {
        self.count = 0;
        std::mem::take(&mut self.blocks)
    }
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Lost {
    /// Objects that lack something.
    pub objects: BTreeSet<InDataset>,
    /// What they lack.
    pub blocks: LostBlocks,
}

impl Lost {
    /// From what is known already.
    pub fn with(objects: BTreeSet<InDataset>) -> Self {
        Self { objects, ..Self::default() }
    }

    /// A block could not be had.
    pub fn add(&mut self, bookmark: Bookmark, bp: &BlkPtr) {
        self.objects.insert((bookmark.objset, bookmark.object));
        self.blocks.add(bookmark, bp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_looked_for_once() {
        let mut lost = Lost::with([(ObjectId(5), ObjectId(6))].into());
        for blkid in (0..1000).chain(0..1000) {
            lost.add(Bookmark { objset: ObjectId(54), object: ObjectId(7), level: 0, blkid }, &BlkPtr::HOLE);
        }
        assert_eq!(lost.objects, [(ObjectId(5), ObjectId(6)), (ObjectId(54), ObjectId(7))].into());
        let blocks = lost.blocks.take();
        assert_eq!((blocks.len(), blocks[&(ObjectId(54), ObjectId(7))].len()), (1, 1000));
        assert!(lost.blocks.take().is_empty());
        // What was not looked for is put back.
        lost.blocks.extend(blocks.clone());
        assert_eq!(lost.blocks.take(), blocks);
    }
}
