//! The geometry of an object's block tree and looking things up in the tree on disk.
//!
//! A tree of `levels` levels hangs off the one to three pointers of the dnode. Level 0 is data; a block of level n > 0
//! is an array of `2^epbs` pointers to blocks of level n-1. Block `b` of level 0 lies below block `b >> (n * epbs)` of
//! level n.
//!
//! Everything here reads only: the tree on disk never changes below a [`DnodePhys`] that names it.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::blkptr::BLKPTR_SIZE;
use platter_ondisk::dnode::MAX_LEVELS;
pub(crate) use platter_ondisk::dnode::levels_for;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId};
use platter_zio::{BlockStore, Bookmark, Priority, Result, SpaceMet, ZioError};

use crate::flights::Flights;

/// `DMU_SPILL_BLKID`: the block number under which a spill block is known.
pub(crate) const SPILL_BLKID: u64 = u64::MAX - 1;

/// `value >> bits`, for any number of bits.
pub(crate) fn shr(value: u64, bits: u32) -> u64 {
    value.checked_shr(bits).unwrap_or(0)
}

/// `value << bits`, all ones when it does not fit.
pub(crate) fn shl(value: u64, bits: u32) -> u64 {
    if value == 0 {
        0
    } else if bits > value.leading_zeros() {
        u64::MAX
    } else {
        value << bits
    }
}

/// First and last block of level 0 below block `index` of `level`.
pub(crate) fn span(level: u8, index: u64, epbs: u32) -> (u64, u64) {
    let bits = u32::from(level) * epbs;
    let first = shl(index, bits);
    let size_less_one = if bits >= 64 { u64::MAX } else { (1u64 << bits) - 1 };
    (first, first.saturating_add(size_less_one))
}

/// Pointer `index` of an indirect block.
pub(crate) fn pointer(block: &[u8], index: usize) -> BlkPtr {
    BlkPtr::decode(&block[index * BLKPTR_SIZE..])
}

/// Whose tree is read, from which store.
#[derive(Clone, Copy)]
pub(crate) struct TreeReader<'a> {
    pub(crate) store: &'a Arc<dyn BlockStore>,
    /// Reads under way, to be shared.
    pub(crate) flights: Option<&'a Flights>,
    pub(crate) objset: ObjectId,
    pub(crate) object: ObjectId,
    pub(crate) priority: Priority,
}

impl TreeReader<'_> {
    pub(crate) fn bookmark(&self, level: u8, blkid: u64) -> Bookmark {
        Bookmark { objset: self.objset, object: self.object, level: level as i8, blkid }
    }

    /// Reads a block, without any waiting when it is cached.
    pub(crate) async fn block(&self, bp: &BlkPtr, level: u8, blkid: u64) -> Result<Buf> {
        if let Some(block) = self.store.read_cached(bp) {
            return Ok(block);
        }
        let bookmark = self.bookmark(level, blkid);
        match self.flights {
            Some(flights) => flights.read(self.store, bp, bookmark, self.priority).await,
            None => self.store.read(bp, bookmark, self.priority).await,
        }
    }

    /// Reads indirect block `index` of `level`, and checks that it is one.
    pub(crate) async fn indirect(&self, tree: &DnodePhys, bp: &BlkPtr, level: u8, index: u64) -> Result<Buf> {
        let damaged =
            |what: String| ZioError::corrupt("indirect block", format!("{}: {what}", self.bookmark(level, index)));
        if bp.level() != level || bp.is_embedded() {
            return Err(damaged(format!("its pointer is of level {}", bp.level())));
        }
        let block = self.block(bp, level, index).await?;
        if block.len() != 1 << tree.indirect_shift {
            return Err(damaged(format!("{} bytes long, not {}", block.len(), 1u32 << tree.indirect_shift)));
        }
        Ok(block)
    }

    /// The pointer of data block `blkid`; a hole when there is none.
    pub(crate) async fn resolve(&self, tree: &DnodePhys, blkid: u64) -> Result<BlkPtr> {
        Ok(self.resolve_with_parent(tree, blkid).await?.0)
    }

    /// As [`Self::resolve`], with the indirect block that has the pointer.
    pub(crate) async fn resolve_with_parent(&self, tree: &DnodePhys, blkid: u64) -> Result<(BlkPtr, Option<Buf>)> {
        let epbs = tree.pointers_per_indirect_shift();
        let mut level = tree.levels - 1;
        let top = shr(blkid, u32::from(level) * epbs);
        let Some(&(mut bp)) = usize::try_from(top).ok().and_then(|top| tree.blkptrs.get(top)) else {
            return Ok((BlkPtr::HOLE, None));
        };
        let mut parent = None;
        while level > 0 && !bp.is_hole() {
            let block = self.indirect(tree, &bp, level, shr(blkid, u32::from(level) * epbs)).await?;
            level -= 1;
            let index = shr(blkid, u32::from(level) * epbs) & ((1 << epbs) - 1);
            bp = pointer(&block, index as usize);
            parent = Some(block);
        }
        Ok(if level > 0 { (BlkPtr::HOLE, None) } else { (bp, parent) })
    }

    /// The pointer of data block `blkid`, with the indirect block that has it, when all on the way there is cached and
    /// what it should be.
    pub(crate) fn resolve_now(&self, tree: &DnodePhys, blkid: u64) -> Option<(BlkPtr, Option<Buf>)> {
        let epbs = tree.pointers_per_indirect_shift();
        let mut level = tree.levels - 1;
        let mut bp = *tree.blkptrs.get(usize::try_from(shr(blkid, u32::from(level) * epbs)).ok()?)?;
        let mut parent = None;
        while level > 0 && !bp.is_hole() {
            if bp.level() != level || bp.is_embedded() {
                return None;
            }
            let block = self.store.read_cached(&bp).filter(|block| block.len() == 1 << tree.indirect_shift)?;
            level -= 1;
            bp = pointer(&block, (shr(blkid, u32::from(level) * epbs) & ((1 << epbs) - 1)) as usize);
            parent = Some(block);
        }
        (level == 0).then_some((bp, parent))
    }

    /// The first data block in `from..=limit` whose pointer is wanted. `want(level, bp)` is asked for interior pointers
    /// too: "no" skips all below. A wanted interior hole ends the search at its first block.
    pub(crate) async fn find(
        &self,
        tree: &DnodePhys,
        from: u64,
        limit: u64,
        want: impl Fn(u8, &BlkPtr) -> bool,
    ) -> Result<Option<u64>> {
        let epbs = tree.pointers_per_indirect_shift();
        let mut blkid = from;
        let mut looked_at = LookedAt { latest: Default::default(), space: SpaceMet::lenient() };
        'from_the_top: loop {
            let mut level = tree.levels - 1;
            let mut node: Option<Buf> = None;
            loop {
                let bits = u32::from(level) * epbs;
                let mut index = shr(blkid, bits);
                let (first, count) = match &node {
                    None => (0, tree.blkptrs.len() as u64),
                    Some(_) => (index & !((1u64 << epbs) - 1), 1u64 << epbs),
                };
                let found = loop {
                    if blkid > limit {
                        return Ok(None);
                    }
                    if index - first >= count {
                        match node {
                            None => return Ok(None),
                            Some(_) => continue 'from_the_top,
                        }
                    }
                    let bp = match &node {
                        None => tree.blkptrs[index as usize],
                        Some(block) => pointer(block, (index - first) as usize),
                    };
                    if want(level, &bp) {
                        break bp;
                    }
                    let last = span(level, index, epbs).1;
                    if last == u64::MAX {
                        return Ok(None);
                    }
                    blkid = last + 1;
                    index += 1;
                };
                if level == 0 || found.is_hole() {
                    return Ok(Some(blkid));
                }
                looked_at.count(self, &found, level, index)?;
                node = Some(self.indirect(tree, &found, level, index).await?);
                level -= 1;
            }
        }
    }
}

/// The indirect blocks that a search has read. They are never shared: where they take more than the pool has in use,
/// some are met again and again, and six of them may stand for more than anybody can search.
struct LookedAt {
    /// The latest of each level: a search that comes from the top again passes those it knows.
    latest: [Option<u64>; MAX_LEVELS as usize],
    space: SpaceMet,
}

impl LookedAt {
    fn count(&mut self, reader: &TreeReader<'_>, bp: &BlkPtr, level: u8, index: u64) -> Result<()> {
        if self.latest[usize::from(level)].replace(index) == Some(index) {
            return Ok(());
        }
        if !self.space.add(bp.psize(), || reader.store.space_used()) {
            let place = reader.bookmark(level, index);
            let what = format!("{place}: indirect blocks up to here take more space than the pool has in use");
            return Err(ZioError::corrupt("block tree", what));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_grow_where_openzfs_grows_them() {
        // Three pointers, 1024 per indirect block.
        assert_eq!(levels_for(0, 3, 10), 1);
        assert_eq!(levels_for(2, 3, 10), 1);
        assert_eq!(levels_for(3, 3, 10), 2);
        assert_eq!(levels_for(3 * 1024 - 1, 3, 10), 2);
        assert_eq!(levels_for(3 * 1024, 3, 10), 3);
        assert_eq!(levels_for(u64::MAX, 1, 10), 8);
        // The meta-dnode of a file system holds 2^48 dnodes of 512 bytes in 16 KiB blocks.
        assert_eq!(levels_for((1 << 43) - 1, 3, 10), 6);
    }

    #[test]
    fn spans_are_inclusive_and_do_not_overflow() {
        assert_eq!(span(0, 7, 10), (7, 7));
        assert_eq!(span(1, 2, 10), (2048, 3071));
        assert_eq!(span(7, 0, 10), (0, u64::MAX));
        assert_eq!(span(7, 1, 10), (u64::MAX, u64::MAX));
    }
}
