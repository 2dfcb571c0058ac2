//! Facts about an object, its bonus and its spill block (`module/zfs/dnode.c`).
//!
//! Whoever changes an object serialises that with other changes of the same object, and takes its locks *before* it
//! begins its transaction. Reads and the sync run beside it freely.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::{DnodePhys, ObjectType};
use platter_zio::{Priority, Result, ZioError};

use crate::blocktree::{SPILL_BLKID, levels_for};
use crate::core::Dnode;

/// Facts about an object for `stat` and friends.
#[derive(Clone, Debug)]
pub struct DnodeInfo {
    /// `dmu_object_type_t`.
    pub object_type: ObjectType,
    /// Bonus type.
    pub bonus_type: ObjectType,
    /// Data block size, bytes.
    pub block_size: u32,
    /// Levels of the block tree.
    pub levels: u8,
    /// Index of the last data block.
    pub max_blkid: u64,
    /// Allocated bytes on disk (as of the last sync).
    pub used: u64,
    /// Whether no sync that is to come changes that.
    pub settled: bool,
    /// Dnode size in bytes.
    pub dnode_size: u32,
    /// Indirect block shift.
    pub indirect_shift: u8,
}

impl Dnode {
    /// Current facts (open context: pending changes included, except `used`).
    pub fn info(&self) -> DnodeInfo {
        let state = self.state.lock();
        let disk = &state.disk;
        DnodeInfo {
            object_type: state.object_type,
            bonus_type: state.bonus_type,
            block_size: state.block_size,
            levels: disk.levels.max(levels_for(
                state.max_blkid,
                disk.blkptrs.len(),
                disk.pointers_per_indirect_shift(),
            )),
            max_blkid: state.max_blkid,
            used: disk.used_bytes(),
            settled: state.is_settled(),
            dnode_size: (disk.slots() * DNODE_SIZE) as u32,
            indirect_shift: disk.indirect_shift,
        }
    }

    /// The dnode as the last sync left it.
    pub fn phys(&self) -> Arc<DnodePhys> {
        self.state.lock().disk.clone()
    }

    /// Whether the object was freed (in memory or on disk) since it was opened.
    pub fn is_freed(&self) -> bool {
        self.state.lock().freed
    }

    /// Whether changes wait for a sync.
    pub fn is_dirty(&self) -> bool {
        self.state.lock().newest_first().next().is_some()
    }

    /// Data block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.state.lock().block_size
    }

    /// The bonus bytes, newest.
    pub fn bonus(&self) -> Arc<[u8]> {
        self.state.lock().bonus.clone()
    }

    /// Bytes the bonus may take (smaller while a spill block exists).
    pub fn bonus_capacity(&self, with_spill: bool) -> usize {
        let state = self.state.lock();
        platter_ondisk::dnode::bonus_capacity(state.disk.slots(), state.disk.blkptrs.len(), with_spill)
    }

    /// Whether a spill block exists (newest).
    pub fn has_spill(&self) -> bool {
        self.state.lock().has_spill
    }

    /// The spill block's contents, newest.
    ///
    /// # Errors
    /// A damaged spill block.
    pub async fn spill(&self) -> Result<Option<Buf>> {
        let mut failed: Option<(ZioError, Arc<DnodePhys>)> = None;
        loop {
            let tree = {
                let state = self.state.lock();
                if let Some(spill) = state.newest_first().find_map(|slot| slot.spill.as_ref()) {
                    return Ok(spill.clone());
                }
                state.disk.clone()
            };
            let Some(bp) = tree.spill.filter(|bp| !bp.is_hole()) else { return Ok(None) };
            if let Some((error, seen)) = &failed
                && Arc::ptr_eq(seen, &tree)
            {
                return Err(error.clone());
            }
            match self.core.reader(self.object(), Priority::SyncRead).block(&bp, 0, SPILL_BLKID).await {
                Ok(spill) => return Ok(Some(spill)),
                Err(error) => failed = Some((error, tree)),
            }
        }
    }
}

impl std::fmt::Debug for Dnode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "object {} of object set {}", self.object(), self.core.params.id)
    }
}
