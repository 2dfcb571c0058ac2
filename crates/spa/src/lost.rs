//! Blocks that could not be had, as they are found: what is listed at once, and what is still to be looked for elsewhere.
//!
//! Invariants:
//! - an object with a lost block is known at once, in the data set where it was found;
//! - of one object only some blocks are looked for in others: where one is shared, most are.

use std::collections::{BTreeMap, BTreeSet};

use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::Bookmark;

/// Blocks of one object that are looked for elsewhere.
const BLOCKS_EACH: usize = 4;
/// Objects of which blocks are looked for elsewhere.
const OBJECTS_MAX: usize = 10_000;

/// Where a block was found to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLost {
    /// Its place there.
    pub bookmark: Bookmark,
    /// When it was written, wherever it is.
    pub birth: Txg,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Lost {
    /// Objects that lack something, each with its data set.
    pub objects: BTreeSet<(ObjectId, ObjectId)>,
    blocks: BTreeMap<(ObjectId, ObjectId), Vec<FoundLost>>,
}

impl Lost {
    /// From what is known already.
    pub fn with(objects: BTreeSet<(ObjectId, ObjectId)>) -> Self {
        Self { objects, blocks: BTreeMap::new() }
    }

    /// A block could not be had.
    pub fn add(&mut self, bookmark: Bookmark, bp: &BlkPtr) {
        let object = (bookmark.objset, bookmark.object);
        let found = FoundLost { bookmark, birth: bp.physical_birth() };
        self.objects.insert(object);
        if self.blocks.len() >= OBJECTS_MAX && !self.blocks.contains_key(&object) {
            return;
        }
        let blocks = self.blocks.entry(object).or_default();
        if blocks.len() < BLOCKS_EACH && !blocks.contains(&found) {
            blocks.push(found);
        }
        assert!(blocks.len() <= BLOCKS_EACH, "only some are looked for");
    }

    /// Takes the blocks that are to be looked for in other data sets.
    pub fn take_blocks(&mut self) -> Vec<FoundLost> {
        std::mem::take(&mut self.blocks).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_blocks_of_each_object_are_looked_for() {
        let mut lost = Lost::with([(ObjectId(5), ObjectId(6))].into());
        let bp = BlkPtr::HOLE;
        for object in 0..OBJECTS_MAX as u64 + 10 {
            for blkid in 0..10 {
                let bookmark = Bookmark { objset: ObjectId(54), object: ObjectId(object), level: 0, blkid };
                lost.add(bookmark, &bp);
                lost.add(bookmark, &bp);
            }
        }
        assert_eq!(lost.objects.len(), OBJECTS_MAX + 11);
        let blocks = lost.take_blocks();
        assert_eq!(blocks.len(), OBJECTS_MAX * BLOCKS_EACH);
        assert_eq!(blocks[1].bookmark.blkid, 1, "each once");
        assert!(lost.take_blocks().is_empty());
    }
}
