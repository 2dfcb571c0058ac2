//! Facts about an object and reading it: contents, bonus and spill block (`module/zfs/dnode.c`, `module/zfs/dbuf.c`).
//!
//! No lock is held across an await; the state's lock is held for map look-ups and at most one block's copy. Whoever
//! changes an object serialises that with other changes of the same object, and takes its locks *before* it begins its
//! transaction. Reads and the sync run beside it freely: a block that was read through an outdated pointer (freed and
//! reused meanwhile) fails its checksum; it is looked up again and the read repeated.

use std::sync::Arc;

use futures::future::join_all;
use futures::stream::{FuturesOrdered, StreamExt};
use platter_buffer::Buf;
use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectType};
use platter_zio::{Priority, Result, ZioError};

use crate::blocktree::{SPILL_BLKID, levels_for};
use crate::contents::{resized, zeros};
use crate::core::Dnode;
use crate::dirty::Newest;

/// How often a read is repeated because the tree changed under it.
const READ_ATTEMPTS: usize = 16;
/// Blocks of one read under way at a time.
const READ_WIDTH: usize = 64;
/// Bytes that one prefetch has under way at a time.
const PREFETCH_BYTES: usize = 32 << 20;
/// Bytes of it that one task looks after.
const PREFETCH_LOT: usize = 512 << 10;

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

/// Where the newest contents of a block are.
enum FoundAt {
    /// Here they are, one block long.
    Memory(Buf),
    /// On disk below `tree`, in blocks of `size` bytes; `nearby` is the pointer, where it takes no look-up.
    Disk { tree: Arc<DnodePhys>, size: usize, nearby: Option<BlkPtr> },
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

    /// Fills `out` from byte `offset`; holes and what lies past the end read as zeros.
    ///
    /// # Errors
    /// Damaged blocks.
    pub async fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let size = u64::from(self.block_size());
        let last_byte = offset
            .checked_add(out.len() as u64 - 1)
            .ok_or_else(|| ZioError::Invalid(format!("a read at {offset} leaves the 64-bit range")))?;
        let (first, last) = (offset / size, last_byte / size);
        if first == last {
            let block = self.read_block(first, Priority::SyncRead).await?;
            let at = (offset % size) as usize;
            out.copy_from_slice(&block[at..at + out.len()]);
            return Ok(());
        }
        let mut blocks = FuturesOrdered::new();
        let (mut next, mut done) = (first, 0);
        loop {
            while next <= last && blocks.len() < READ_WIDTH {
                blocks.push_back(self.read_block(next, Priority::SyncRead));
                next += 1;
            }
            let Some(block) = blocks.next().await else { return Ok(()) };
            let block = block?;
            let at = ((offset + done as u64) % size) as usize;
            let length = (out.len() - done).min(block.len() - at);
            out[done..done + length].copy_from_slice(&block[at..at + length]);
            done += length;
        }
    }

    /// The newest contents of data block `blkid` (zeros for a hole), always one block long, without copying.
    ///
    /// # Errors
    /// A damaged block.
    pub async fn read_block(&self, blkid: u64, priority: Priority) -> Result<Buf> {
        Ok(self.read_with_tree(blkid, priority).await?.0)
    }

    /// As [`Self::read_block`], for an object of metadata: where blocks near each other are missing from memory, their
    /// neighbours are fetched too.
    ///
    /// # Errors
    /// A damaged block.
    pub(crate) async fn read_metadata(&self, blkid: u64) -> Result<Buf> {
        if let Some(block) = self.read_block_now(blkid) {
            return Ok(block);
        }
        let group = self.neighbours.lock().missed(blkid);
        if let Some((range, this)) = group.zip(self.this.upgrade()) {
            this.prefetch(range.start, range.end - range.start);
        }
        // In a place of its own: seldom needed, it would be part of every look-up.
        Box::pin(self.read_block(blkid, Priority::SyncRead)).await
    }

    /// As [`Self::read_block`] when memory has the block: nothing is waited for.
    pub(crate) fn read_block_now(&self, blkid: u64) -> Option<Buf> {
        let (tree, size, nearby) = match self.place_of(blkid) {
            FoundAt::Memory(block) => return Some(block),
            FoundAt::Disk { tree, size, nearby } => (tree, size, nearby),
        };
        let reader = self.core.reader(self.object(), Priority::SyncRead);
        let bp = match nearby {
            Some(bp) => bp,
            None => self.looked_up(&tree, blkid, reader.resolve_now(&tree, blkid)?),
        };
        if bp.is_hole() { Some(zeros(size)) } else { reader.store.read_cached(&bp).map(|block| resized(block, size)) }
    }

    /// Where the newest contents of block `blkid` are.
    fn place_of(&self, blkid: u64) -> FoundAt {
        let state = self.state.lock();
        let size = state.block_size as usize;
        match state.newest(blkid) {
            Newest::Dirty(block) => FoundAt::Memory(resized(block, size)),
            Newest::Hole => FoundAt::Memory(zeros(size)),
            Newest::Disk => FoundAt::Disk { tree: state.disk.clone(), size, nearby: state.pointer_nearby(blkid) },
        }
    }

    /// The pointer of block `blkid` of `tree`, which was looked up there; the indirect block that has it is remembered.
    fn looked_up(&self, tree: &Arc<DnodePhys>, blkid: u64, (bp, parent): (BlkPtr, Option<Buf>)) -> BlkPtr {
        if let Some(parent) = parent {
            self.state.lock().looked_into(tree, blkid, parent);
        }
        bp
    }

    /// As [`Self::read_block`], for a reader that keeps a copy: it is not cached any longer.
    ///
    /// # Errors
    /// A damaged block.
    pub async fn read_passing_block(&self, blkid: u64, priority: Priority) -> Result<Buf> {
        Ok(self.read_newest(blkid, priority, true).await?.0)
    }

    /// Also gives the tree in which the block was looked up, or `None` when memory had it.
    pub(crate) async fn read_with_tree(&self, blkid: u64, priority: Priority) -> Result<(Buf, Option<Arc<DnodePhys>>)> {
        self.read_newest(blkid, priority, false).await
    }

    pub(crate) async fn read_newest(
        &self,
        blkid: u64,
        priority: Priority,
        passing: bool,
    ) -> Result<(Buf, Option<Arc<DnodePhys>>)> {
        let mut failed: Option<(ZioError, Arc<DnodePhys>)> = None;
        for _ in 0..READ_ATTEMPTS {
            let (tree, size, nearby) = match self.place_of(blkid) {
                FoundAt::Memory(block) => return Ok((block, None)),
                FoundAt::Disk { tree, size, nearby } => (tree, size, nearby),
            };
            if let Some((error, seen)) = &failed
                && Arc::ptr_eq(seen, &tree)
            {
                return Err(error.clone());
            }
            let reader = self.core.reader(self.object(), priority);
            let pointer = match nearby {
                Some(bp) => Ok(bp),
                None => {
                    let found = reader.resolve_with_parent(&tree, blkid).await;
                    found.map(|found| self.looked_up(&tree, blkid, found))
                }
            };
            let block = match pointer {
                Ok(bp) if bp.is_hole() => Ok(zeros(size)),
                Ok(bp) => {
                    let block = reader.block(&bp, 0, blkid).await;
                    if passing {
                        reader.store.pass_on(&bp);
                    }
                    block.map(|block| resized(block, size))
                }
                Err(error) => Err(error),
            };
            match block {
                Ok(block) => return Ok((block, Some(tree))),
                Err(error) => failed = Some((error, tree)),
            }
        }
        Err(failed.expect("only a failed read is repeated").0)
    }

    /// Starts reading blocks `blkid..blkid+count` into the cache; returns at once.
    pub fn prefetch(self: &Arc<Self>, blkid: u64, count: u64) {
        let (last, size) = {
            let state = self.state.lock();
            (state.max_blkid, state.block_size as usize)
        };
        let reader = self.core.reader(self.object(), Priority::AsyncRead);
        let width = (PREFETCH_BYTES / size).clamp(4, 2048);
        let most = reader.store.ahead_max().bytes / size as u64;
        let range = blkid..blkid.saturating_add(count.min(most)).min(last.saturating_add(1));
        if range.is_empty() || !reader.store.keeps_data(reader.objset) {
            return;
        }
        let this = self.clone();
        // Each lot is a task of its own: one alone would verify and decompress all blocks on one processor.
        let lot = (PREFETCH_LOT / size).max(1);
        tokio::spawn(async move {
            let lots = range.clone().step_by(lot).map(|first| {
                let (this, end) = (this.clone(), range.end.min(first + lot as u64));
                tokio::spawn(async move {
                    // Whoever wants the block later meets the error himself.
                    join_all((first..end).map(|blkid| this.read_block(blkid, Priority::AsyncRead))).await;
                })
            });
            futures::stream::iter(lots).buffer_unordered((width / lot).max(1)).for_each(|_| async {}).await;
        });
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
