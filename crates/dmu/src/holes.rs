//! Where an object has data and where it has holes (`dnode_next_offset` in `module/zfs/dnode.c`).
//!
//! Blocks in a row that have the same answer are passed over together: those in memory up to [`AT_ONCE`] at a time, a
//! freed range as a whole, and on disk a subtree as a whole, whose pointer says whether it has data at all and whether
//! it has any hole (how many blocks lie below it). Between two steps others get their turn, and no lock is held. What
//! is changed meanwhile is seen or not.
//!
//! Invariants: each step passes over one block at least; what is found lies where the step looked.

use std::sync::Arc;

use platter_ondisk::BlkPtr;
use platter_zio::{Priority, Result};

use crate::blocktree::shl;
use crate::core::Dnode;
use crate::dirty::Source;

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
            if blkid > last {
                return if hole { at(blkid) } else { Ok(None) };
            }
            let end = end.min(last.saturating_add(1));
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
