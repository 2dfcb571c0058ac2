//! The most space that what a group changes takes on its way to disk (`dmu_tx_count_write`, `module/zfs/dmu_tx.c`;
//! `spa_get_worst_case_asize`, `module/zfs/spa_misc.c`).
//!
//! Each thing is counted when it becomes dirty in a group for the first time: a data block, the indirect blocks above
//! it that no other change of the group touches, the dnode's block with those above it, the object set's head with what
//! the MOS has of it. Data count as if they did not compress, each block with all its copies on the vdev where it takes
//! the most.
//!
//! Invariant: what [`Core`] counts is never less than what the sync of that group allocates for this object set, gang
//! headers left out; the reserve has room for those and for the MOS's own changes.

use std::collections::BTreeSet;

use platter_ondisk::blkptr::BLKPTR_SIZE;
use platter_ondisk::sector::SECTOR;
use platter_ondisk::{DnodePhys, ObjectId, ObjectType, Txg};

use crate::blocktree::shr;
use crate::core::{Core, Dnode};
use crate::numbers::{PER_BLOCK, is_special};
use crate::place::{BlockPlace, neighbours, new_parents};
use crate::policy;

/// What a block costs besides its own space: two entries in space maps, three copies each, and one in a list of blocks
/// that snapshots hold, or that the next group frees.
const NOTE: u64 = 512;
/// Pointers that an indirect block has at least, about.
const POINTERS: u64 = 512;
/// Bytes of a dnode block.
const DNODE_BLOCK: u64 = 16 << 10;
/// Copies of what the MOS has.
const MOS_COPIES: u64 = 3;
/// Dnode blocks of the MOS that change with a data set: its own, its directory's and those above it.
const MOS_BLOCKS: u64 = 8;
/// Blocks of ZAPs that an operation on names or attributes changes at most, but for the largest: a leaf that splits, a
/// directory that stops being a single block.
const ZAP_BLOCKS: u64 = 16;

impl Core {
    /// The most that a block of `bytes` takes in so many copies.
    fn most(&self, bytes: u64, copies: u64) -> u64 {
        NOTE + self.params.store.most_space(bytes) * copies
    }

    fn copies(&self, object_type: ObjectType, level: u8) -> u64 {
        let metadata = level > 0 || object_type.is_metadata();
        policy::copies(&self.properties.read(), metadata.then_some((object_type, level, false))).into()
    }

    /// The most that a data block costs which a group changes for the first time, with what is above it.
    pub(crate) fn cost_of_block(&self, place: BlockPlace) -> u64 {
        self.most(place.size, self.copies(place.object_type, 0)) + self.cost_of_parents(place)
    }

    /// The most that the indirect blocks cost that a group has to write for a block.
    pub(crate) fn cost_of_parents(&self, place: BlockPlace) -> u64 {
        let size = 1u64 << place.indirect_shift;
        let epbs = u32::from(place.indirect_shift) - BLKPTR_SIZE.trailing_zeros();
        let parent = |level: u8| {
            let copies = self.copies(place.object_type, level);
            let below = shr(place.max_blkid, u32::from(level - 1) * epbs);
            let is_last = shr(below, epbs) == shr(place.blkid, u32::from(level) * epbs);
            // The lowest level fills up within the group; above, each block that is new counts its own pointer.
            let bytes = if level > 1 && is_last {
                let pointers = (below & ((1 << epbs) - 1)) + 1;
                // Pointers hardly compress, and a run of zeros to a sixteenth by any algorithm.
                (pointers * BLKPTR_SIZE as u64 * 9 / 8 + size / 16).min(size)
            } else {
                size
            };
            let pointer = if level > 1 { self.params.store.most_space(1) * copies } else { 0 };
            self.most(bytes, copies) + pointer
        };
        (1..=place.new_parents).map(parent).sum::<u64>() + u64::from(place.grown) * self.most(size, MOS_COPIES)
    }

    /// The most that a spill block of `bytes` costs.
    pub(crate) fn cost_of_spill(&self, bytes: u64) -> u64 {
        self.most(bytes, policy::copies(&self.properties.read(), Some((ObjectType::SA, 0, true))).into())
    }

    /// The most that freeing an object costs of which `used` bytes are on disk: the space maps' entries.
    pub(crate) fn cost_of_freeing(&self, used: u64, block_size: u64) -> u64 {
        used / self.params.store.most_space(1).max(block_size).max(SECTOR) * NOTE / 2
    }

    /// The most that a dnode costs which a group changes for the first time, `blocks` of whose dnode blocks it changes
    /// already.
    fn cost_of_dnode(&self, blocks: &BTreeSet<u64>, meta: &DnodePhys, blkid: u64) -> u64 {
        let parents = meta.levels.saturating_sub(1);
        let epbs = meta.pointers_per_indirect_shift();
        let block = self.cost_of_block(BlockPlace {
            object_type: ObjectType::DNODE,
            size: DNODE_BLOCK,
            blkid,
            max_blkid: meta.max_blkid.max(blkid),
            indirect_shift: meta.indirect_shift,
            new_parents: new_parents(neighbours(blocks, blkid), blkid, epbs, parents),
            grown: 0,
        });
        if blocks.is_empty() { block + self.cost_of_objset() } else { block }
    }

    /// The most that an object set costs of which a group changes anything: its head, the totals of users, and what the
    /// MOS has of it.
    fn cost_of_objset(&self) -> u64 {
        let head = self.most(4096, MOS_COPIES);
        let totals = 3 * self.most(DNODE_BLOCK, MOS_COPIES) + 3 * self.most(128 << 10, MOS_COPIES) / 2;
        head + totals + MOS_BLOCKS * self.most(DNODE_BLOCK, MOS_COPIES)
    }

    /// What the sync of group `txg` has just `allocated` was promised to it. For the intent log the head is written
    /// also where nothing else changed, which nothing counts then.
    pub(crate) fn assert_promised(&self, txg: Txg, allocated: u64) {
        let promised = self.take_promised(txg) + self.cost_of_objset();
        let id = self.params.id;
        assert!(allocated <= promised, "object set {id}: group {txg} took {allocated} bytes of {promised}");
    }

    /// The most that an operation costs that makes, changes or removes some names or attributes and writes `bytes` of
    /// data in blocks of `block_size`.
    pub(crate) fn cost_of_operation(&self, bytes: u64, block_size: u64) -> u64 {
        let most = |size: u64| self.most(size, MOS_COPIES);
        let names = ZAP_BLOCKS * most(DNODE_BLOCK) + 6 * most(128 << 10);
        if bytes == 0 {
            return names + self.cost_of_objset();
        }
        let blocks = bytes.div_ceil(block_size.max(SECTOR)) + 1;
        let copies = self.copies(ObjectType::PLAIN_FILE_CONTENTS, 0);
        let parents = (blocks / POINTERS + 1) * most(128 << 10);
        names + self.cost_of_objset() + blocks * self.most(block_size, copies) + parents
    }

    /// An object that is entered among what `blocks`' group changes: the most that costs.
    pub(crate) fn enter_block(&self, blocks: &mut BTreeSet<u64>, meta: &Dnode, object: ObjectId) -> u64 {
        let blkid = object.0 / PER_BLOCK;
        if self.params.properties.is_mos || is_special(object) || blocks.contains(&blkid) {
            return 0;
        }
        let tree = meta.state.lock().disk.clone();
        let cost = self.cost_of_dnode(blocks, &tree, blkid);
        blocks.insert(blkid);
        cost
    }
}
