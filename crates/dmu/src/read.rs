//! Reading an object's blocks (`dbuf_read`, `module/zfs/dbuf.c`; `arc_read`, `module/zfs/arc.c`).
//!
//! ```text
//! dirty? ─► pointer: the last indirect block, or from the top of the tree ─► cached? ─► under way? ─► the store reads
//! └────────────────────── memory has it: [`Dnode::look`] ──────────────────────┘
//! ```
//! Most blocks are in memory, and found there without waiting; what is missing is fetched by a future of its own, as it
//! would be part of every request otherwise. Who wants a block that somebody is already reading waits for the same
//! read: a prefetched block is never read twice, nor an indirect block by all the readers of the data below it.
//!
//! Invariants:
//! - no lock is held across an await; the state's lock is held for map look-ups and at most one block's copy;
//! - a block is given out in the object's block size;
//! - a block that was read through an outdated pointer (freed and reused meanwhile) fails its checksum; it is looked up
//!   again and the read repeated. The tree on disk never changes below a [`DnodePhys`] that names it.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{Shared, WeakShared};
use futures::stream::{FuturesOrdered, StreamExt};
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId};
use platter_zio::{BlockStore, Bookmark, Priority, Result, ZioError};

use crate::blocktree::{pointer, shr};
use crate::contents::{resized, zeros};
use crate::core::{Core, Dnode, Flight, Flights};
use crate::dirty::Newest;

/// How often a read is repeated because the tree changed under it.
const READ_ATTEMPTS: usize = 16;
/// Blocks of one read under way at a time.
const READ_WIDTH: usize = 64;
/// Entries above which forgotten reads (all waiters gone) are swept out; later at twice what a sweep has left, so that
/// many reads under way do not make each other's beginning slow.
const SWEEP_ABOVE: usize = 1024;

/// A block that memory does not have.
struct Missing {
    /// The object's dnode when it was looked for.
    tree: Arc<DnodePhys>,
    /// Bytes of the object's blocks then.
    size: usize,
    /// Its pointer in `tree`, unless indirect blocks on the way there are missing too.
    bp: Option<BlkPtr>,
}

/// What memory has of a block.
enum Found {
    /// Its contents, one block long.
    Here(Buf),
    /// No contents.
    Missing(Missing),
}

/// A block, and the tree in which it was looked up unless memory had it.
type Fetched = (Buf, Option<Arc<DnodePhys>>);

impl Dnode {
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
        match self.look(blkid) {
            Found::Here(block) => Ok(block),
            Found::Missing(missing) => {
                Box::pin(self.fetch(blkid, missing, priority, false)).await.map(|(block, _)| block)
            }
        }
    }

    /// As [`Self::read_block`], for an object of metadata: where blocks near each other are missing from memory, their
    /// neighbours are fetched too.
    ///
    /// # Errors
    /// A damaged block.
    pub(crate) async fn read_metadata(&self, blkid: u64) -> Result<Buf> {
        let missing = match self.look(blkid) {
            Found::Here(block) => return Ok(block),
            Found::Missing(missing) => missing,
        };
        let group = self.neighbours.lock().missed(blkid);
        if let Some((range, this)) = group.zip(self.this.upgrade()) {
            this.prefetch(range.start, range.end - range.start);
        }
        Box::pin(self.fetch(blkid, missing, Priority::SyncRead, false)).await.map(|(block, _)| block)
    }

    /// As [`Self::read_block`] when memory has the block: nothing is waited for.
    pub(crate) fn read_block_now(&self, blkid: u64) -> Option<Buf> {
        match self.look(blkid) {
            Found::Here(block) => Some(block),
            Found::Missing(_) => None,
        }
    }

    /// The pointer of a block as it is on disk; a hole when there is none.
    ///
    /// # Errors
    /// Indirect blocks on the way that are damaged or cannot be read.
    pub async fn block_pointer(&self, blkid: u64) -> Result<BlkPtr> {
        let tree = self.phys();
        self.core.reader(self.object(), Priority::SyncRead).resolve(&tree, blkid).await
    }

    /// As [`Self::read_block`], for a reader that keeps a copy: it is not cached any longer.
    ///
    /// # Errors
    /// A damaged block.
    pub async fn read_passing_block(&self, blkid: u64, priority: Priority) -> Result<Buf> {
        Ok(self.read_newest(blkid, priority, true).await?.0)
    }

    /// As [`Self::read_block`], with the tree in which the block was looked up, or `None` when no tree has it yet.
    /// When it is `passing` it is not cached any longer.
    ///
    /// # Errors
    /// A damaged block.
    pub(crate) async fn read_newest(&self, blkid: u64, priority: Priority, passing: bool) -> Result<Fetched> {
        match self.newest(blkid) {
            Found::Here(block) => Ok((block, None)),
            Found::Missing(missing) => Box::pin(self.fetch(blkid, missing, priority, passing)).await,
        }
    }

    /// The newest contents of block `blkid`, where memory has them.
    fn look(&self, blkid: u64) -> Found {
        let Missing { tree, size, bp } = match self.newest(blkid) {
            Found::Here(block) => return Found::Here(block),
            Found::Missing(missing) => missing,
        };
        let reader = self.core.reader(self.object(), Priority::SyncRead);
        let bp = bp.or_else(|| reader.resolve_now(&tree, blkid).map(|found| self.looked_up(&tree, blkid, found)));
        let found = match &bp {
            Some(bp) if bp.is_hole() => Some(zeros(size)),
            Some(bp) => reader.store.cache().get(bp).map(|block| resized(block, size)),
            None => None,
        };
        match found {
            Some(block) => Found::Here(block),
            None => Found::Missing(Missing { tree, size, bp }),
        }
    }

    /// What unsynced groups made of block `blkid`; else where it is on disk, with its pointer where that takes no
    /// look-up.
    fn newest(&self, blkid: u64) -> Found {
        let state = self.state.lock();
        let size = state.block_size as usize;
        match state.newest(blkid) {
            Newest::Dirty(block) => Found::Here(resized(block, size)),
            Newest::Hole => Found::Here(zeros(size)),
            Newest::Disk => Found::Missing(Missing { tree: state.disk.clone(), size, bp: state.pointer_nearby(blkid) }),
        }
    }

    /// The pointer of block `blkid` of `tree`, which was looked up there; the indirect block that has it is remembered.
    fn looked_up(&self, tree: &Arc<DnodePhys>, blkid: u64, (bp, parent): (BlkPtr, Option<Buf>)) -> BlkPtr {
        if let Some(parent) = parent {
            self.state.lock().looked_into(tree, blkid, parent);
        }
        bp
    }

    /// Reads block `blkid`, which is `missing`, and reads it anew when the tree was replaced meanwhile.
    async fn fetch(&self, blkid: u64, mut missing: Missing, priority: Priority, passing: bool) -> Result<Fetched> {
        let mut attempts = 1;
        loop {
            let error = match self.fetch_from(blkid, &missing, priority, passing).await {
                Ok(block) => {
                    assert_eq!(block.len(), missing.size, "a block is given out in the object's block size");
                    return Ok((block, Some(missing.tree)));
                }
                Err(error) => error,
            };
            if attempts == READ_ATTEMPTS {
                return Err(error);
            }
            attempts += 1;
            match self.newest(blkid) {
                Found::Here(block) => return Ok((block, None)),
                Found::Missing(newest) if Arc::ptr_eq(&newest.tree, &missing.tree) => return Err(error),
                Found::Missing(newest) => missing = newest,
            }
        }
    }

    async fn fetch_from(&self, blkid: u64, missing: &Missing, priority: Priority, passing: bool) -> Result<Buf> {
        let &Missing { ref tree, size, bp } = missing;
        let reader = self.core.reader(self.object(), priority);
        let bp = match bp {
            Some(bp) => bp,
            None => self.looked_up(tree, blkid, reader.resolve_with_parent(tree, blkid).await?),
        };
        if bp.is_hole() {
            return Ok(zeros(size));
        }
        let block = reader.block(&bp, 0, blkid).await;
        if passing {
            reader.store.cache().remove(&bp);
        }
        block.map(|block| resized(block, size))
    }
}

impl Core {
    /// Reads of `object`'s tree.
    pub(crate) fn reader(&self, object: ObjectId, priority: Priority) -> TreeReader<'_> {
        let flights = Some(&self.flights);
        TreeReader { store: &self.params.store, flights, objset: self.params.id, object, priority }
    }
}

/// Whose tree is read, from which store.
#[derive(Clone, Copy)]
pub(crate) struct TreeReader<'a> {
    pub(crate) store: &'a Arc<dyn BlockStore>,
    /// Reads under way, to be shared.
    pub(crate) flights: Option<&'a Mutex<Flights>>,
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
        if let Some(block) = self.store.cache().get(bp) {
            return Ok(block);
        }
        let bookmark = self.bookmark(level, blkid);
        match self.flights {
            Some(flights) if !bp.is_embedded() => self.join(flights, bp, bookmark).await,
            _ => self.store.read(bp, bookmark, self.priority).await,
        }
    }

    /// Waits for whoever is already reading the block, or is the first.
    async fn join(&self, flights: &Mutex<Flights>, bp: &BlkPtr, bookmark: Bookmark) -> Result<Buf> {
        let key = (bp.dva(0), bp.physical_birth());
        let flight = {
            let mut flights = flights.lock();
            let Flights { under_way, left } = &mut *flights;
            match under_way.get(&key).and_then(WeakShared::upgrade) {
                Some(flight) => flight,
                None => {
                    let (store, bp, priority) = (self.store.clone(), *bp, self.priority);
                    let flight: Flight = async move { store.read(&bp, bookmark, priority).await }.boxed();
                    let flight: Shared<Flight> = flight.shared();
                    if under_way.len() > SWEEP_ABOVE.max(2 * *left) {
                        under_way.retain(|_, flight| flight.upgrade().is_some());
                        *left = under_way.len();
                    }
                    if let Some(weak) = flight.downgrade() {
                        under_way.insert(key, weak);
                    }
                    flight
                }
            }
        };
        let result = flight.await;
        flights.lock().under_way.remove(&key);
        result
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
            let block = self.store.cache().get(&bp).filter(|block| block.len() == 1 << tree.indirect_shift)?;
            level -= 1;
            bp = pointer(&block, (shr(blkid, u32::from(level) * epbs) & ((1 << epbs) - 1)) as usize);
            parent = Some(block);
        }
        (level == 0).then_some((bp, parent))
    }
}
