//! Writing what a group changed in an object set (`dmu_objset_sync`, `dnode_sync`).
//!
//! Order: what joins or leaves sets of numbers; the dirty objects' trees, all beside each other; the totals per user,
//! group and project; the dnodes into the meta-dnode's blocks; the meta-dnode's tree; the object set's head. Each
//! object's new tree replaces its old one in memory as soon as it is written; readers and writers of the next group
//! never wait for any of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::stream::{self, StreamExt, TryStreamExt};
use platter_buffer::Buf;
use platter_ondisk::dnode::{DNODE_SIZE, FLAG_SPILL_BLKPTR, FLAG_USED_BYTES};
use platter_ondisk::objset::{
    OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USERACCOUNTING_COMPLETE, OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE,
    OBJSET_PHYS_SIZE_V3,
};
use platter_ondisk::{BlkPtr, DnodePhys, Sectors, Txg};
use platter_zio::{Priority, Result, SpaceMet};

use crate::blocktree::levels_for;
use crate::core::Dnode;
use crate::dirty::{DirtySlot, slot_of};
use crate::number_set_zaps;
use crate::numbers::PER_BLOCK;
use crate::objset::Objset;
use crate::policy;
use crate::totals::{UserAccounting, complete_flags};
use crate::treesync::{SyncContext, TreeSync};
use crate::userused::Changes;

/// Objects worked on at a time; the blocks they have in flight together are bounded elsewhere.
const OBJECTS_IN_FLIGHT: usize = 64;

/// Totals that are not complete once anything changed that they do not follow.
const ACCOUNTING_FLAGS: u64 =
    OBJSET_FLAG_USERACCOUNTING_COMPLETE | OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE | OBJSET_FLAG_PROJECTQUOTA_COMPLETE;

/// What is left to do with an object whose tree was written.
struct Synced {
    dnode: Arc<Dnode>,
    /// Slots that it takes in its dnode block.
    slots: usize,
    allocated: bool,
    freed: bool,
    /// Whether its dnode block has (or is to have) it.
    in_block: bool,
    /// The dnode as it was on disk, if it was.
    before: Option<Arc<DnodePhys>>,
}

impl Objset {
    /// Sync context: writes everything changed in `txg` and returns the new root pointer. May be called again for the
    /// same group in a later pass when more was dirtied (the MOS converges that way). `pass` starts at 1.
    ///
    /// # Errors
    /// A block could not be written, or one needed to build the new tree not be read: the pool must stop, and what
    /// was dirty stays readable in memory.
    pub async fn sync(self: &Arc<Self>, txg: Txg, pass: u32) -> Result<BlkPtr> {
        let core = &self.core;
        number_set_zaps::apply(self, txg).await?;
        let head_dirty = std::mem::take(&mut self.head_dirty.lock()[slot_of(txg)]);
        let dirty = core.take_dirty(txg);
        if dirty.is_empty() && !head_dirty && self.meta.state.lock().slot_if_any(txg).is_none() {
            return Ok(self.root());
        }
        tracing::trace!(objset = core.params.id.0, txg = txg.0, pass, objects = dirty.len(), "sync");
        let context = SyncContext::new(core.clone(), txg);
        let result = run(self, &context, &dirty).await;
        core.forget_unsynced(txg);
        if result.is_ok() {
            if cfg!(debug_assertions) && !core.params.properties.is_mos {
                core.assert_promised(txg, context.allocated.into_inner());
            }
            let is_left = core.any_dirty(txg) || self.meta.state.lock().slot_if_any(txg).is_some();
            assert!(!is_left, "object set {}: something of group {txg} came after its sync", core.params.id);
        } else {
            // The pool stops here. What was dirty must stay readable, hence in memory.
            for dnode in dirty {
                core.register_dirty(txg, dnode);
            }
        }
        result
    }
}

async fn run(objset: &Arc<Objset>, context: &SyncContext, dirty: &[Arc<Dnode>]) -> Result<BlkPtr> {
    let (mut synced, mut with_blocks) = (Vec::with_capacity(dirty.len()), Vec::new());
    for dnode in dirty {
        match Work::begin(context, dnode) {
            // Most of many small changes: nothing to be waited for.
            Some(work) if work.is_of_dnode_only() => synced.push(work.keep_blocks()),
            Some(work) => with_blocks.push(work),
            None => {}
        }
    }
    let written = stream::iter(with_blocks).map(|work| work.write(context)).buffered(OBJECTS_IN_FLIGHT);
    synced.extend(written.try_collect::<Vec<_>>().await?);
    write_totals(objset, context, &synced).await?;
    write_dnodes(objset, context, &synced).await?;
    settle_numbers(objset, &synced);
    drop(synced);
    sync_object(context, &objset.meta).await?;
    write_head(objset, context).await
}

/// Books what the objects' changes mean for users, groups and projects, and writes those totals.
async fn write_totals(objset: &Arc<Objset>, context: &SyncContext, synced: &[Synced]) -> Result<()> {
    if context.properties.accounting.projects {
        // The pool began to count projects: from the first object on that is counted with its number of objects.
        let mut head = objset.head.write();
        head.phys.size = head.phys.size.max(OBJSET_PHYS_SIZE_V3);
    }
    let keeps = objset.accounting();
    if !keeps.space {
        return Ok(());
    }
    let is_complete = objset.counts_projects();
    let mut recount = objset.recount.lock().take().filter(|_| !is_complete);
    // Until every object is to be counted, there is nothing of projects to be kept up to date.
    let keeps = UserAccounting { projects: keeps.projects && (is_complete || recount.is_some()), ..keeps };
    let mut changes = Changes::default();
    for object in synced {
        let mut state = object.dnode.state.lock();
        let in_project =
            recount.as_mut().map_or(is_complete, |recount| recount.note(object.dnode.object(), !object.freed));
        let old = (object.before.as_deref(), in_project);
        if object.freed {
            changes.replace(keeps, old, None);
        } else {
            changes.replace(keeps, old, Some(Arc::make_mut(&mut state.disk)));
        }
    }
    let fresh = recount.as_mut().is_some_and(|recount| !std::mem::replace(&mut recount.begun, true));
    changes.apply(objset, keeps, fresh, context.txg).await?;
    if recount.is_some() {
        // Else one may have begun meanwhile, with the next group.
        *objset.recount.lock() = recount;
    }
    for dnode in context.core.take_dirty(context.txg) {
        sync_object(context, &dnode).await?;
    }
    Ok(())
}

/// Writes what the group changed in one object, if anything.
async fn sync_object(context: &SyncContext, dnode: &Arc<Dnode>) -> Result<()> {
    if let Some(work) = Work::begin(context, dnode) {
        work.write(context).await?;
    }
    Ok(())
}

/// What a group changed in an object, on its way to disk.
struct Work {
    dnode: Arc<Dnode>,
    changes: Arc<DirtySlot>,
    /// The dnode as it was, and whether it was on disk.
    disk: Arc<DnodePhys>,
    on_disk: bool,
}

impl Work {
    /// Takes the changes out of their slot; readers find them among those that are being synced. `None` when there are
    /// none.
    fn begin(context: &SyncContext, dnode: &Arc<Dnode>) -> Option<Self> {
        let mut state = dnode.state.lock();
        let changes: Arc<DirtySlot> = Arc::from(state.slots[slot_of(context.txg)].take()?);
        assert_eq!(changes.txg, context.txg, "the slot of another group");
        assert!(state.syncing.is_none(), "{dnode:?} is being synced already");
        state.syncing = Some(changes.clone());
        Some(Self { changes, disk: state.disk.clone(), on_disk: state.on_disk, dnode: dnode.clone() })
    }

    /// Whether no block is written or freed.
    fn is_of_dnode_only(&self) -> bool {
        let changes = &self.changes;
        let keeps_blocks =
            || changes.blocks.is_empty() && changes.freed.next(0).is_none() && changes.max_blkid.is_none();
        let has_none = || self.disk.spill.is_none() && self.disk.blkptrs.iter().all(BlkPtr::is_hole);
        changes.spill.is_none() && if changes.object_freed { has_none() } else { keeps_blocks() }
    }

    /// The dnode as it was, its used space in bytes.
    fn dnode_phys(&self) -> DnodePhys {
        let mut phys = (*self.disk).clone();
        phys.used = phys.used_bytes();
        phys.flags |= FLAG_USED_BYTES;
        phys
    }

    /// The new state, when the blocks stay as they are.
    fn keep_blocks(self) -> Synced {
        let mut phys = self.dnode_phys();
        if self.changes.object_freed {
            phys.used = 0;
        } else {
            apply_shape(&mut phys, &self.changes);
        }
        self.settle(phys)
    }

    /// Writes (or frees) the blocks.
    async fn write(self, context: &SyncContext) -> Result<Synced> {
        let phys =
            if self.changes.object_freed { self.free_blocks(context).await? } else { self.build(context).await? };
        Ok(self.settle(phys))
    }

    async fn free_blocks(&self, context: &SyncContext) -> Result<DnodePhys> {
        let mut phys = self.dnode_phys();
        let tree = tree_sync(context, &self.dnode, &phys, &self.changes, None);
        for (index, bp) in phys.blkptrs.iter().enumerate() {
            tree.free_tree(phys.levels - 1, index as u64, *bp).await?;
        }
        if let Some(spill) = phys.spill {
            tree.replace(&spill, &BlkPtr::HOLE);
        }
        drop(tree);
        phys.blkptrs.fill(BlkPtr::HOLE);
        phys.spill = None;
        phys.used = 0;
        Ok(phys)
    }

    async fn build(&self, context: &SyncContext) -> Result<DnodePhys> {
        let changes = &self.changes;
        let mut phys = self.dnode_phys();
        apply_shape(&mut phys, changes);
        let seed = grow(&mut phys);
        let tree = tree_sync(context, &self.dnode, &phys, changes, seed);
        let pointers = tree.build().await?;
        let spill = match &changes.spill {
            None => phys.spill,
            Some(None) => {
                if let Some(old) = phys.spill {
                    tree.replace(&old, &BlkPtr::HOLE);
                }
                None
            }
            Some(Some(block)) => Some(tree.spill(block, phys.spill.unwrap_or(BlkPtr::HOLE)).await?),
        };
        let delta = tree.used.into_inner();
        phys.blkptrs = pointers;
        phys.spill = spill;
        phys.flags = if spill.is_some() { phys.flags | FLAG_SPILL_BLKPTR } else { phys.flags & !FLAG_SPILL_BLKPTR };
        phys.used = phys.used.saturating_add_signed(delta);
        Ok(phys)
    }

    /// Makes the new state that of the disk.
    fn settle(self, phys: DnodePhys) -> Synced {
        let (freed, slots) = (self.changes.object_freed, phys.slots());
        {
            let mut state = self.dnode.state.lock();
            state.disk = Arc::new(phys);
            state.syncing = None;
            state.on_disk = !freed;
        }
        Synced {
            slots,
            allocated: self.changes.allocated,
            freed,
            in_block: !freed || self.on_disk,
            before: self.on_disk.then_some(self.disk),
            dnode: self.dnode,
        }
    }
}

fn tree_sync<'a>(
    context: &'a SyncContext,
    dnode: &Dnode,
    shape: &'a platter_ondisk::DnodePhys,
    changes: &'a DirtySlot,
    seed: Option<(u8, Vec<BlkPtr>)>,
) -> TreeSync<'a> {
    let (used, interior_freed) = (AtomicI64::new(0), SpaceMet::exact());
    TreeSync { context, object: dnode.object(), shape, changes, seed, used, interior_freed }
}

/// Takes over everything but the blocks.
fn apply_shape(phys: &mut platter_ondisk::DnodePhys, changes: &DirtySlot) {
    if let Some(object_type) = changes.object_type {
        phys.object_type = object_type;
    }
    if let Some((bonus_type, bonus)) = &changes.bonus {
        phys.bonus_type = *bonus_type;
        phys.bonus = bonus.to_vec();
        phys.bonus_length = bonus.len() as u16;
    }
    if let Some(size) = changes.block_size {
        phys.data_block_sectors = Sectors::of(size.into());
    }
    if let Some(max_blkid) = changes.max_blkid {
        phys.max_blkid = max_blkid;
    }
}

/// Adds levels when the last block needs them: the dnode's pointers move into a new indirect block, whose first
/// contents are returned with its level.
fn grow(phys: &mut platter_ondisk::DnodePhys) -> Option<(u8, Vec<BlkPtr>)> {
    let needed = levels_for(phys.max_blkid, phys.blkptrs.len(), phys.pointers_per_indirect_shift());
    if needed <= phys.levels {
        return None;
    }
    let level = phys.levels;
    phys.levels = needed;
    let empty = vec![BlkPtr::HOLE; phys.blkptrs.len()];
    let top = std::mem::replace(&mut phys.blkptrs, empty);
    // Nothing to move when no block was ever there.
    top.iter().any(|bp| *bp != BlkPtr::HOLE).then_some((level, top))
}

/// Puts the synced objects' dnodes into the meta-dnode's blocks.
async fn write_dnodes(objset: &Arc<Objset>, context: &SyncContext, synced: &[Synced]) -> Result<()> {
    let mut blocks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, object) in synced.iter().enumerate().filter(|(_, object)| object.in_block) {
        blocks.entry(object.dnode.object().0 / PER_BLOCK).or_default().push(at);
    }
    let mut read = stream::iter(blocks)
        .map(
            |(blkid, objects)| async move { (blkid, objects, objset.meta.read_block(blkid, Priority::SyncRead).await) },
        )
        .buffered(OBJECTS_IN_FLIGHT);
    while let Some((blkid, objects, block)) = read.next().await {
        let mut block: Buf = block?;
        let bytes = block.make_mut();
        for object in objects.into_iter().map(|at| &synced[at]) {
            let at = (object.dnode.object().0 % PER_BLOCK) as usize * DNODE_SIZE;
            let place = &mut bytes[at..at + object.slots * DNODE_SIZE];
            if object.freed {
                place.fill(0);
            } else {
                object.dnode.phys().encode(place);
            }
        }
        let mut state = objset.meta.state.lock();
        objset.meta.enter(&mut state, context.txg);
        state.put(context.txg, blkid, block);
    }
    objset.generation.fetch_add(1, Ordering::Release);
    Ok(())
}

/// Lets go of what only memory knew about the synced objects' numbers.
fn settle_numbers(objset: &Arc<Objset>, synced: &[Synced]) {
    for object in synced.iter().filter(|object| object.allocated || object.freed) {
        let (number, slots) = (object.dnode.object().0, object.slots as u8);
        if object.freed {
            drop(objset.cache.lock().remove(number));
        }
        let mut numbers = objset.numbers.lock();
        if object.allocated {
            numbers.pending.remove(number, slots);
        }
        if object.freed {
            numbers.freed.remove(number, slots);
            numbers.sparse.insert(number / PER_BLOCK);
        }
    }
}

async fn write_head(objset: &Arc<Objset>, context: &SyncContext) -> Result<BlkPtr> {
    let core = &context.core;
    let meta = objset.meta.phys();
    let fill = meta.blkptrs.iter().map(BlkPtr::fill).fold(0, u64::saturating_add);
    let kept = complete_flags(objset.accounting());
    let (old, block) = {
        let mut head = objset.head.write();
        head.phys.meta_dnode = (*meta).clone();
        head.phys.flags &= !ACCOUNTING_FLAGS | kept;
        let special = objset.special.lock();
        let [users, groups, projects] = [0, 1, 2].map(|at: usize| special[at].as_ref().map(|d| (*d.phys()).clone()));
        (head.phys.userused, head.phys.groupused, head.phys.projectused) = (users, groups, projects);
        drop(special);
        (head.root, Buf::copy_from(&head.phys.encode()))
    };
    let policy = policy::for_head(&context.properties, context.txg, core.params.id, fill);
    let new = context.write(block, policy, old).await?;
    context.book(&old, &new);
    objset.head.write().root = new;
    Ok(new)
}
