//! Where an object has data and where it has holes, and the search of a tree on disk for that (`dnode_next_offset` in
//! `module/zfs/dnode.c`).
//!
//! Blocks in a row that have the same answer are passed over together: those in memory up to [`AT_ONCE`] at a time, a
//! freed range as a whole, and on disk a subtree as a whole, whose pointer says whether it has data at all and whether
//! it has any hole (how many blocks lie below it). Between two steps others get their turn, and no lock is held. What
//! is changed meanwhile is seen or not.
//!
//! Invariants: each step passes over one block at least; what is found lies where the step looked.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::dnode::MAX_LEVELS;
use platter_ondisk::{BlkPtr, DnodePhys};
use platter_zio::{Priority, Result, SpaceMet, ZioError};

use crate::blocktree::{pointer, shl, shr, span};
use crate::core::Dnode;
use crate::dirty::Source;
use crate::read::TreeReader;

/// Blocks in memory that are passed over in one step.
const AT_ONCE: usize = 4096;

/// Whether there is a hole in what `bp`, of this level, leads to. Of a tree's last pointers it is said too: behind the
/// last block there is one.
fn has_hole(level: u8, bp: &BlkPtr, epbs: u32) -> bool {
    bp.is_hole() || level > 0 && bp.fill() < shl(1, u32::from(level) * epbs)
}

impl Dnode {
    /// The next byte offset at or after `offset` that is data (`hole == false`) or hole (`hole == true`), at block
    /// granularity; `None` when no data follows. Behind the last block everything is a hole.
    ///
    /// # Errors
    /// Damaged indirect blocks.
    pub async fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        self.seek_before(offset, hole, u64::MAX).await
    }

    /// As [`seek`](Self::seek), looking no further than the block in which byte `limit` is: `None`, too, when it is not
    /// before that.
    ///
    /// # Errors
    /// Damaged indirect blocks.
    pub async fn seek_before(&self, offset: u64, hole: bool, limit: u64) -> Result<Option<u64>> {
        let mut unit = u64::from(self.block_size());
        let mut blkid = offset / unit;
        loop {
            let (size, last, tree, (source, end)) = {
                let state = self.state.lock();
                let source = state.source(blkid, AT_ONCE);
                (u64::from(state.block_size), state.max_blkid, state.disk.clone(), source)
            };
            if size != unit {
                // The only block has grown.
                (unit, blkid) = (size, offset / size);
                continue;
            }
            let at = |blkid: u64| Ok(Some(blkid.saturating_mul(size).max(offset)));
            if blkid > limit / size {
                return Ok(None);
            }
            if blkid > last {
                return if hole { at(blkid) } else { Ok(None) };
            }
            let end = end.min(last.min(limit / size).saturating_add(1));
            assert!(blkid < end, "a step of a search passes over nothing");
            let here = match source {
                Source::Memory => (!hole).then_some(blkid),
                Source::Freed => hole.then_some(blkid),
                Source::Disk => {
                    let epbs = tree.pointers_per_indirect_shift();
                    let reader = self.core.reader(self.object(), Priority::SyncRead);
                    let wanted = |level, bp: &BlkPtr| if hole { has_hole(level, bp, epbs) } else { !bp.is_hole() };
                    let found = match reader.find(&tree, blkid, end - 1, wanted).await {
                        // A sync replaced the tree meanwhile.
                        Err(_) if !Arc::ptr_eq(&tree, &self.phys()) => continue,
                        found => found?,
                    };
                    assert!(found.is_none_or(|at| (blkid..end).contains(&at)), "it was looked for between these two");
                    // Behind what the tree on disk can hold.
                    let past = shl(tree.blkptrs.len() as u64, u32::from(tree.levels - 1) * epbs);
                    found.or_else(|| (hole && past < end).then(|| blkid.max(past)))
                }
            };
            if let Some(found) = here {
                debug_assert!(blkid <= found, "block {found} was passed over already");
                return at(found);
            }
            blkid = end;
            tokio::task::yield_now().await;
        }
    }
}

impl TreeReader<'_> {
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
