//! What an object set has that it did not have in an earlier group, in the order of its objects: what `zfs send` sends
//! (`traverse_dataset` as `send_cb`, `module/zfs/dmu_send.c`, has it).
//!
//! A block that was born later is shown; below a pointer that was not nothing is. A hole that remembers no birth may be
//! of any time, and is shown always. Where a dnode block changed, all of its slots are shown, those without an object
//! too: an object of that number may have been there before.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::dnode::{DNODE_BLOCK_SIZE, DNODE_SIZE, DNODES_PER_BLOCK};
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId, ObjsetPhys, Txg};
use platter_zio::{BlockStore, Bookmark, Priority, Result, ZioError};
use tokio::task::JoinHandle;

use crate::blocktree::{SPILL_BLKID, pointer, span};
use crate::numbers::PER_BLOCK;
use crate::read::TreeReader;

/// Interior blocks read ahead of the walk, of each level.
const READ_AHEAD: usize = 8;
const META: ObjectId = ObjectId(0);

/// Something that changed.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object, whose dnode may be as it was.
    Object(ObjectId, Arc<DnodePhys>),
    /// There are no objects of these numbers: the first, and how many.
    NoObjects(u64, u64),
    /// A block of an object.
    Data {
        /// The object.
        object: ObjectId,
        /// Its dnode.
        dnode: Arc<DnodePhys>,
        /// Which block.
        blkid: u64,
        /// Where it is.
        bp: BlkPtr,
    },
    /// Blocks of an object that are not there.
    Hole {
        /// The object.
        object: ObjectId,
        /// Its dnode.
        dnode: Arc<DnodePhys>,
        /// The first block.
        first: u64,
        /// The last.
        last: u64,
    },
    /// An object's spill block.
    Spill(ObjectId, BlkPtr),
}

/// Sees what changed.
pub trait ChangeVisitor: Send + Sync {
    /// The next change. An error ends the walk.
    fn change(&self, change: Change) -> BoxFuture<'_, Result<()>>;
}

/// Where a walk begins: at this block of this object. The object itself is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct From {
    /// The object.
    pub object: ObjectId,
    /// Its first byte that may be shown.
    pub offset: u64,
}

/// Shows what object set `objset`, whose root is `root`, has since group `since`, from `from` on.
///
/// # Errors
/// Interior blocks that cannot be read or make no sense; what the visitor says.
pub async fn changes(
    store: &Arc<dyn BlockStore>,
    objset: ObjectId,
    root: &BlkPtr,
    since: Txg,
    from: From,
    visitor: &dyn ChangeVisitor,
) -> Result<()> {
    Walk { store, objset, since, from, contents: true, visitor }.whole(root).await
}

/// Shows which objects `objset`, whose root is `root`, has since group `since`, or may have no longer, but not what is
/// in them: of these numbers the blocks of dnodes changed.
///
/// # Errors
/// As [`changes`].
pub async fn changed_objects(
    store: &Arc<dyn BlockStore>,
    objset: ObjectId,
    root: &BlkPtr,
    since: Txg,
    visitor: &dyn ChangeVisitor,
) -> Result<()> {
    Walk { store, objset, since, from: From::default(), contents: false, visitor }.whole(root).await
}

struct Walk<'a> {
    store: &'a Arc<dyn BlockStore>,
    objset: ObjectId,
    since: Txg,
    from: From,
    /// Whether what is in objects is shown, too.
    contents: bool,
    visitor: &'a dyn ChangeVisitor,
}

impl Walk<'_> {
    async fn whole(&self, root: &BlkPtr) -> Result<()> {
        if root.is_hole() || root.birth() <= self.since {
            return Ok(());
        }
        let bookmark = Bookmark { objset: self.objset, object: META, level: -1, blkid: 0 };
        let head = self.store.read(root, bookmark, Priority::AsyncRead).await?;
        let head =
            ObjsetPhys::decode(&head).map_err(|e| ZioError::corrupt("object set", format!("{bookmark}: {e}")))?;
        let meta = Arc::new(head.meta_dnode);
        if meta.data_block_size() != DNODE_BLOCK_SIZE as u64 {
            return Err(ZioError::corrupt("meta-dnode", format!("blocks of {} bytes", meta.data_block_size())));
        }
        self.pointers(META, &meta, meta.levels - 1, 0, &meta.blkptrs).await
    }

    fn reader(&self, object: ObjectId) -> TreeReader<'_> {
        TreeReader { store: self.store, flights: None, objset: self.objset, object, priority: Priority::AsyncRead }
    }

    /// Whether a pointer is from before.
    fn is_old(&self, bp: &BlkPtr) -> bool {
        bp.birth() != Txg(0) && bp.birth() <= self.since
    }

    /// The first block of `object` that is to be shown.
    fn begins(&self, object: ObjectId, dnode: &DnodePhys) -> u64 {
        match object {
            META => self.from.object.0 / PER_BLOCK,
            object if object == self.from.object => self.from.offset / dnode.data_block_size(),
            _ => 0,
        }
    }

    /// Shows what is below pointers `first..` of `level`.
    fn pointers<'s>(
        &'s self,
        object: ObjectId,
        dnode: &'s Arc<DnodePhys>,
        level: u8,
        first: u64,
        pointers: &'s [BlkPtr],
    ) -> BoxFuture<'s, Result<()>> {
        async move {
            let (epbs, begins) = (dnode.pointers_per_indirect_shift(), self.begins(object, dnode));
            let wanted = |at: usize| {
                let (start, end) = span(level, first + at as u64, epbs);
                end >= begins && start <= dnode.max_blkid && !self.is_old(&pointers[at])
            };
            let shown: Vec<usize> = (0..pointers.len()).filter(|&at| wanted(at)).collect();
            let interior = level > 0 || object == META;
            let reads = shown.iter().filter(|&&at| interior && !pointers[at].is_hole());
            let mut ahead =
                Ahead::new(self, object, level, reads.map(|&at| (first + at as u64, pointers[at])).collect());
            for at in shown {
                let (index, bp) = (first + at as u64, &pointers[at]);
                if bp.is_hole() {
                    let (start, end) = span(level, index, epbs);
                    self.hole(object, dnode, start.max(begins), end).await?;
                } else if level > 0 {
                    let block = ahead.next().await?;
                    self.indirect(object, dnode, level, index, bp, &block).await?;
                } else if object == META {
                    let block = ahead.next().await?;
                    self.dnodes(index, &block).await?;
                } else {
                    self.data(object, dnode, index, bp).await?;
                }
            }
            Ok(())
        }
        .boxed()
    }

    async fn hole(&self, object: ObjectId, dnode: &Arc<DnodePhys>, first: u64, last: u64) -> Result<()> {
        debug_assert!(first <= last, "a hole has a block");
        if object != META {
            return self.visitor.change(Change::Hole { object, dnode: dnode.clone(), first, last }).await;
        }
        // Behind the last dnode block there never was an object.
        let last = last.min(dnode.max_blkid);
        let number = |block: u64| block.saturating_mul(PER_BLOCK);
        let (first, end) = (number(first).max(self.from.object.0), number(last.saturating_add(1)));
        if first >= end {
            return Ok(());
        }
        self.visitor.change(Change::NoObjects(first, end - first)).await
    }

    async fn indirect(
        &self,
        object: ObjectId,
        dnode: &Arc<DnodePhys>,
        level: u8,
        index: u64,
        bp: &BlkPtr,
        block: &Buf,
    ) -> Result<()> {
        let shift = dnode.pointers_per_indirect_shift();
        if block.len() != 1 << dnode.indirect_shift || bp.level() != level || bp.is_embedded() {
            let bookmark = self.reader(object).bookmark(level, index);
            let what = format!("{bookmark}: {} bytes, pointer of level {}", block.len(), bp.level());
            return Err(ZioError::corrupt("indirect block", what));
        }
        let children: Vec<BlkPtr> = (0..1 << shift).map(|at| pointer(block, at)).collect();
        self.pointers(object, dnode, level - 1, index << shift, &children).await
    }

    async fn data(&self, object: ObjectId, dnode: &Arc<DnodePhys>, blkid: u64, bp: &BlkPtr) -> Result<()> {
        if bp.lsize() != dnode.data_block_size() || bp.level() != 0 {
            let bookmark = self.reader(object).bookmark(0, blkid);
            let what = format!("{bookmark}: {} bytes in an object of {}", bp.lsize(), dnode.data_block_size());
            return Err(ZioError::corrupt("block pointer", what));
        }
        self.visitor.change(Change::Data { object, dnode: dnode.clone(), blkid, bp: *bp }).await
    }

    /// Shows the slots of one dnode block, and what is in the objects there.
    async fn dnodes(&self, blkid: u64, block: &Buf) -> Result<()> {
        if block.len() != DNODE_BLOCK_SIZE {
            return Err(ZioError::corrupt("dnode", format!("a block of {} bytes", block.len())));
        }
        let mut slot = 0;
        while slot < DNODES_PER_BLOCK {
            let object = ObjectId(blkid * PER_BLOCK + slot as u64);
            let decoded = DnodePhys::decode(&block[slot * DNODE_SIZE..]);
            let dnode = decoded.map_err(|error| ZioError::corrupt("dnode", format!("object {object}: {error}")))?;
            let slots = dnode.as_ref().map_or(1, DnodePhys::slots);
            if object >= self.from.object {
                match dnode {
                    Some(dnode) => self.object(object, Arc::new(dnode)).await?,
                    None => self.visitor.change(Change::NoObjects(object.0, 1)).await?,
                }
            }
            slot += slots;
        }
        Ok(())
    }

    async fn object(&self, object: ObjectId, dnode: Arc<DnodePhys>) -> Result<()> {
        self.visitor.change(Change::Object(object, dnode.clone())).await?;
        if !self.contents {
            return Ok(());
        }
        self.pointers(object, &dnode, dnode.levels - 1, 0, &dnode.blkptrs).await?;
        match dnode.spill.filter(|bp| !bp.is_hole() && !self.is_old(bp)) {
            Some(spill) => self.visitor.change(Change::Spill(object, spill)).await,
            None => Ok(()),
        }
    }
}

/// Interior blocks that the walk will need, read on tasks of their own, which end with it.
struct Ahead<'a> {
    walk: &'a Walk<'a>,
    object: ObjectId,
    level: u8,
    waiting: VecDeque<(u64, BlkPtr)>,
    running: VecDeque<JoinHandle<Result<Buf>>>,
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.running.iter().for_each(JoinHandle::abort);
    }
}

impl<'a> Ahead<'a> {
    fn new(walk: &'a Walk<'a>, object: ObjectId, level: u8, waiting: VecDeque<(u64, BlkPtr)>) -> Self {
        Self { walk, object, level, waiting, running: VecDeque::new() }
    }

    /// The next of them.
    async fn next(&mut self) -> Result<Buf> {
        while self.running.len() < READ_AHEAD
            && let Some((index, bp)) = self.waiting.pop_front()
        {
            let (store, bookmark) =
                (self.walk.store.clone(), self.walk.reader(self.object).bookmark(self.level, index));
            self.running.push_back(tokio::spawn(async move { store.read(&bp, bookmark, Priority::AsyncRead).await }));
        }
        let read = self.running.pop_front().expect("it is asked for as many blocks as there are");
        match read.await {
            Ok(block) => block,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(failed) => Err(ZioError::Io(format!("a read was cancelled: {failed}"))),
        }
    }
}

/// A spill block's number in bookmarks.
pub const SPILL_BLOCK: u64 = SPILL_BLKID;
