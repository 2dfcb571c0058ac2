//! Building an object's next block tree from the one on disk and what a group changed.
//!
//! The tree is walked from the top, only where something was freed or written. On the way down pointers of freed blocks
//! become holes (whole subtrees without being rewritten); on the way up written blocks give their new pointers to their
//! parents, whose contents are then written in turn, each once. An indirect block that is left with nothing but
//! holes becomes a hole itself.
//!
//! Invariants:
//! - a block is booked as born exactly once when its pointer enters the tree, in the group that it says, and as killed
//!   exactly once when it leaves; one that the store rewrote in place did neither, and takes what it took before;
//! - `used` changes by exactly the difference of what is booked;
//! - blocks are handed to the store in the order of their numbers, however many are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use platter_buffer::{Buf, BufMut};
use platter_ondisk::blkptr::BLKPTR_SIZE;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId, ObjectType, Txg};
use platter_zio::{Priority, Result, SpaceMet, WritePolicy, ZioError};
use tokio::sync::Semaphore;

use crate::blocktree::{pointer, shr, span};
use crate::core::Core;
use crate::dirty::DirtySlot;
use crate::numbers;
use crate::policy::{self, BlockKind};
use crate::properties::WriteProperties;
use crate::read::TreeReader;

/// Bytes of block writes in flight per object set: what gathers in the devices' queues meanwhile travels together.
/// Small blocks count as if they had the least size, since each is work whatever its size.
const BYTES_IN_FLIGHT: usize = 32 << 20;
const BYTES_LEAST: usize = 16 << 10;
/// Lowest-level indirect blocks in memory at a time, per object set.
const LEAVES_IN_FLIGHT: usize = 16;
/// Children of one indirect block worked on at a time.
const CHILDREN_IN_FLIGHT: usize = 1024;
/// Indirect blocks read at a time while a subtree is freed.
const FREES_IN_FLIGHT: usize = 8;

/// What all writes of one object set's sync share.
pub(crate) struct SyncContext {
    pub(crate) core: Arc<Core>,
    pub(crate) txg: Txg,
    pub(crate) properties: WriteProperties,
    pub(crate) hole_birth: bool,
    writes: Semaphore,
    leaves: Semaphore,
    /// Deflated bytes that were in use before anything of this sync was freed.
    space_used: u64,
    /// Deflated bytes that were allocated, without those of gang blocks.
    pub(crate) allocated: AtomicU64,
}

impl SyncContext {
    pub(crate) fn new(core: Arc<Core>, txg: Txg) -> Self {
        let properties = core.properties.read().clone();
        let hole_birth = core.hole_birth.load(Ordering::Relaxed);
        let (writes, leaves) = (Semaphore::new(BYTES_IN_FLIGHT), Semaphore::new(LEAVES_IN_FLIGHT));
        let space_used = core.store().space_used();
        let allocated = AtomicU64::new(0);
        Self { core, txg, properties, hole_birth, writes, leaves, space_used, allocated }
    }

    /// Writes one block through the store, on a task of its own (so that compressing and checksumming use all cores).
    pub(crate) async fn write(&self, data: Buf, policy: WritePolicy, previous: BlkPtr) -> Result<BlkPtr> {
        let counted = data.len().clamp(BYTES_LEAST, BYTES_IN_FLIGHT) as u32;
        let _permit = self.writes.acquire_many(counted).await.expect("never closed");
        let store = self.core.store().clone();
        let task = tokio::spawn(async move { store.write(data, policy, &previous).await });
        match task.await {
            Ok(written) => written,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(failed) => Err(ZioError::Io(format!("a block write was cancelled: {failed}"))),
        }
    }

    /// Books that `new` replaces `old`; returns the difference in space.
    pub(crate) fn book(&self, old: &BlkPtr, new: &BlkPtr) -> i64 {
        let (store, accounting) = (self.core.store(), &self.core.params.accounting);
        let on_disk = |bp: &BlkPtr| !bp.is_hole() && !bp.is_embedded();
        let in_place = old == new || on_disk(old) && on_disk(new) && old.dva(0) == new.dva(0);
        if !in_place {
            if !old.is_hole() {
                accounting.kill(self.txg, old);
            }
            if !new.is_hole() {
                assert_eq!(new.birth(), self.txg, "a block is born in the group that writes it");
                accounting.born(self.txg, new);
            }
        }
        let space = |bp: &BlkPtr| if on_disk(bp) { store.dsize(bp) as i64 } else { 0 };
        let (before, after) = (space(old), space(new));
        if cfg!(debug_assertions) && !in_place && !new.is_gang() {
            self.allocated.fetch_add(after as u64, Ordering::Relaxed);
        }
        debug_assert!(!in_place || before == after, "a block that was written to its place takes what it took");
        after - before
    }

    /// The hole that a freed pointer leaves.
    fn hole(&self, object_type: ObjectType, level: u8, size: u64) -> BlkPtr {
        if self.hole_birth { BlkPtr::hole_born(self.txg, object_type, level, size) } else { BlkPtr::HOLE }
    }
}

/// One object's tree under construction.
pub(crate) struct TreeSync<'a> {
    pub(crate) context: &'a SyncContext,
    pub(crate) object: ObjectId,
    /// The new dnode, its pointers still those of the old tree (possibly moved to a deeper level, see `seed`).
    pub(crate) shape: &'a DnodePhys,
    pub(crate) changes: &'a DirtySlot,
    /// The dnode's old pointers when the tree got higher: they become the start of the first indirect block of this
    /// level.
    pub(crate) seed: Option<(u8, Vec<BlkPtr>)>,
    /// Bytes by which the object's space changed.
    pub(crate) used: AtomicI64,
    /// Deflated bytes of the indirect blocks that were freed.
    pub(crate) interior_freed: SpaceMet,
}

impl TreeSync<'_> {
    fn reader(&self) -> TreeReader<'_> {
        self.context.core.reader(self.object, Priority::SyncRead)
    }

    fn epbs(&self) -> u32 {
        self.shape.pointers_per_indirect_shift()
    }

    fn block_size(&self, level: u8) -> u64 {
        if level == 0 { self.shape.data_block_size() } else { 1 << self.shape.indirect_shift }
    }

    /// Books a replaced pointer.
    pub(crate) fn replace(&self, old: &BlkPtr, new: &BlkPtr) {
        self.used.fetch_add(self.context.book(old, new), Ordering::Relaxed);
    }

    /// The next pointers of the dnode.
    pub(crate) async fn build(&self) -> Result<Vec<BlkPtr>> {
        let mut pointers = self.shape.blkptrs.clone();
        self.update(self.shape.levels, 0, &mut pointers).await?;
        Ok(pointers)
    }

    fn seeded(&self, level: u8, index: u64) -> bool {
        index == 0 && self.seed.as_ref().is_some_and(|&(seed, _)| level >= seed)
    }

    /// Which of `pointers`, blocks `first_index..` of `level`, have to be looked at.
    fn affected(&self, level: u8, first_index: u64, pointers: &[BlkPtr]) -> Vec<(usize, BlkPtr)> {
        let bits = u32::from(level) * self.epbs();
        let mut affected = Vec::new();
        let mut at = 0;
        while at < pointers.len() {
            let (first, _) = span(level, first_index + at as u64, self.epbs());
            let written = self.changes.blocks.range(first..).next().map(|(&blkid, _)| blkid);
            let next = written.into_iter().chain(self.changes.freed.next(first)).min();
            let seed = self.seeded(level, first_index + at as u64);
            if !seed {
                let Some(index) = next.map(|blkid| shr(blkid, bits)) else { break };
                at = usize::try_from(index - first_index).unwrap_or(usize::MAX);
            }
            let Some(bp) = pointers.get(at) else { break };
            let (_, last) = span(level, first_index + at as u64, self.epbs());
            // Freeing what is not there changes nothing.
            if seed || !bp.is_hole() || written.is_some_and(|blkid| blkid <= last) {
                affected.push((at, *bp));
            }
            at += 1;
        }
        debug_assert!(affected.is_sorted_by_key(|&(at, _)| at), "blocks are written in the order of their numbers");
        affected
    }

    /// Brings `pointers`, which are blocks `first_index..` of the level below `parent`, up to date. Tells whether any
    /// changed.
    fn update<'s>(&'s self, parent: u8, first_index: u64, pointers: &'s mut [BlkPtr]) -> BoxFuture<'s, Result<bool>> {
        async move {
            let level = parent - 1;
            let affected = self.affected(level, first_index, pointers);
            let mut changed = false;
            if level == 0 {
                let mut children = stream::iter(affected)
                    .map(|(at, old)| async move { (at, old, self.data(first_index + at as u64, &old).await) })
                    .buffered(CHILDREN_IN_FLIGHT);
                while let Some((at, old, new)) = children.next().await {
                    let new = new?;
                    self.replace(&old, &new);
                    changed |= old != new;
                    pointers[at] = new;
                }
            } else {
                let mut children = stream::iter(affected)
                    .map(
                        |(at, old)| async move { (at, old, self.indirect(level, first_index + at as u64, &old).await) },
                    )
                    .buffered(CHILDREN_IN_FLIGHT);
                while let Some((at, old, new)) = children.next().await {
                    let new = new?;
                    changed |= old != new;
                    pointers[at] = new;
                }
            }
            Ok(changed)
        }
        .boxed()
    }

    /// The new pointer of data block `blkid`.
    async fn data(&self, blkid: u64, old: &BlkPtr) -> Result<BlkPtr> {
        let Some(block) = self.changes.blocks.get(&blkid) else {
            return Ok(if old.is_hole() { *old } else { self.hole_for(old) });
        };
        let fill =
            if self.shape.object_type == ObjectType::DNODE { numbers::dnode_slots(block).count() as u64 } else { 1 };
        let context = self.context;
        let kind = BlockKind::Tree { level: 0, blkid };
        let passing = self.changes.passing.contains(&blkid);
        let policy = WritePolicy { passing, ..self.policy(kind, fill) };
        let new = context.write(block.clone(), policy, *old).await?;
        if self.object.is_some() {
            context.core.wrote(context.txg, block.len() as u64);
        }
        // A hole written over a hole of the same size changes nothing; one that was never born stays so.
        if new.is_hole() && old.is_hole() && (old.birth().0 == 0 || old.lsize() == new.lsize()) {
            return Ok(*old);
        }
        Ok(if new.is_hole() && !context.hole_birth { BlkPtr::HOLE } else { new })
    }

    fn policy(&self, kind: BlockKind, fill: u64) -> WritePolicy {
        let context = self.context;
        let objset = context.core.params.id;
        policy::for_block(&context.properties, context.txg, objset, self.object, self.shape, kind, fill)
    }

    fn hole_for(&self, old: &BlkPtr) -> BlkPtr {
        self.context.hole(old.object_type(), old.level(), old.lsize())
    }

    /// The new pointer of indirect block `index` of `level`; books everything at and below it.
    async fn indirect(&self, level: u8, index: u64, old: &BlkPtr) -> Result<BlkPtr> {
        let (first, last) = span(level, index, self.epbs());
        let written = self.changes.blocks.range(first..=last).next().is_some();
        if !written && !self.seeded(level, index) && self.changes.freed.covers(first, last) {
            self.free_tree(level, index, *old).await?;
            return Ok(if old.is_hole() { *old } else { self.hole_for(old) });
        }
        let _leaf = if level == 1 { Some(self.context.leaves.acquire().await.expect("never closed")) } else { None };
        let mut pointers = self.pointers(level, index, old).await?;
        if !self.update(level, index << self.epbs(), &mut pointers).await? && !self.seeded(level, index) {
            return Ok(*old);
        }
        let size = self.block_size(level);
        if pointers.iter().all(BlkPtr::is_hole) {
            if old.is_hole() && pointers.iter().all(|bp| bp.birth().0 == 0) {
                return Ok(*old);
            }
            let new = self.context.hole(self.shape.object_type, level, size);
            self.replace(old, &new);
            return Ok(new);
        }
        let fill = pointers.iter().filter(|bp| !bp.is_hole()).map(BlkPtr::fill).fold(0, u64::saturating_add);
        let mut block = BufMut::zeroed(size as usize);
        // Most blocks have few pointers.
        let encoded = pointers.iter().zip(block.chunks_exact_mut(BLKPTR_SIZE));
        encoded.filter(|(bp, _)| **bp != BlkPtr::HOLE).for_each(|(bp, bytes)| bp.encode(bytes));
        drop(pointers);
        let policy = self.policy(BlockKind::Tree { level, blkid: index }, fill);
        let new = self.context.write(block.freeze(), policy, *old).await?;
        self.replace(old, &new);
        Ok(new)
    }

    /// The contents of indirect block `index` of `level` before this sync.
    async fn pointers(&self, level: u8, index: u64, old: &BlkPtr) -> Result<Vec<BlkPtr>> {
        let count = 1usize << self.epbs();
        if let Some((seed, top)) = &self.seed
            && *seed == level
            && index == 0
        {
            let mut pointers = top.clone();
            pointers.resize(count, BlkPtr::HOLE);
            return Ok(pointers);
        }
        if old.is_hole() {
            // Children of a hole are as old as the hole itself.
            let child = match old.birth() {
                born if born.0 > 0 => {
                    BlkPtr::hole_born(born, self.shape.object_type, level - 1, self.block_size(level - 1))
                }
                _ => BlkPtr::HOLE,
            };
            return Ok(vec![child; count]);
        }
        let block = self.reader().indirect(self.shape, old, level, index).await?;
        Ok((0..count).map(|at| pointer(&block, at)).collect())
    }

    /// Counts an indirect block that is to be freed. They are never shared: where they take more than the pool has,
    /// some are met again and again, and a few of them may stand for more than anybody can walk.
    fn count_interior(&self, bp: &BlkPtr) -> Result<()> {
        let size = self.context.core.store().dsize(bp);
        if !self.interior_freed.add(size, || self.context.space_used) {
            return Err(ZioError::corrupt(
                "block tree",
                format!("object {}: its indirect blocks take more space than the pool has", self.object),
            ));
        }
        Ok(())
    }

    /// Books the death of a block and everything below it.
    pub(crate) fn free_tree(&self, level: u8, index: u64, bp: BlkPtr) -> BoxFuture<'_, Result<()>> {
        async move {
            if bp.is_hole() {
                return Ok(());
            }
            if level > 0 {
                self.count_interior(&bp)?;
                match self.reader().indirect(self.shape, &bp, level, index).await {
                    Ok(block) if level == 1 => {
                        for at in 0..1usize << self.epbs() {
                            self.replace(&pointer(&block, at), &BlkPtr::HOLE);
                        }
                    }
                    Ok(block) => {
                        let mut children = stream::iter(0..1usize << self.epbs())
                            .map(|at| (at, pointer(&block, at)))
                            .filter(|(_, bp)| futures::future::ready(!bp.is_hole()))
                            .map(|(at, bp)| self.free_tree(level - 1, (index << self.epbs()) + at as u64, bp))
                            .buffered(FREES_IN_FLIGHT);
                        while let Some(freed) = children.next().await {
                            freed?;
                        }
                    }
                    Err(error @ (ZioError::Checksum { .. } | ZioError::Corrupt { .. } | ZioError::Io(_))) => {
                        // What lies below cannot be known. Losing that space beats refusing ever to free the object.
                        let bookmark = self.reader().bookmark(level, index);
                        tracing::error!("freeing {bookmark}: the space below it is lost: {error}");
                    }
                    Err(error) => return Err(error),
                }
            }
            self.replace(&bp, &BlkPtr::HOLE);
            Ok(())
        }
        .boxed()
    }

    /// Writes a spill block.
    pub(crate) async fn spill(&self, block: &Buf, old: BlkPtr) -> Result<BlkPtr> {
        let new = self.context.write(block.clone(), self.policy(BlockKind::Spill, 1), old).await?;
        self.replace(&old, &new);
        Ok(new)
    }
}
