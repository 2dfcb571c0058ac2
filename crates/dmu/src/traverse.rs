//! Walking every block that an object set references, from its root pointer alone (`module/zfs/dmu_traverse.c`): for
//! scrub, for destroying a dataset, for audits.
//!
//! Order: the head; then the meta-dnode's tree from the left, where below each dnode block come the trees of the
//! objects in it (each from the left, a block before what is below it, the spill block last); then the trees of the
//! dnodes in the head (space totals per project, group, user). Intent log blocks are not part of it.
//!
//! A walk that frees what it sees ([`visit_upwards`]) shows a block after what is below it, so that the rest can be
//! reached from the root at any time.
//!
//! Invariants:
//! - the visitor sees every non-hole pointer once, before anything below it, or after all of that;
//! - a walk that starts "after" a bookmark sees exactly what an undisturbed walk would have shown after that bookmark;
//! - damage (an unreadable or senseless interior block) is reported, skips what is below, and never ends the walk.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::dnode::{DNODE_SIZE, MAX_OBJECT};
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId, ObjsetPhys};
use platter_zio::{BlockStore, Bookmark, Priority, Result, ZioError};

use crate::blocktree::{SPILL_BLKID, pointer, span};
use crate::numbers::{PER_BLOCK, dnode_slots};
use crate::read::TreeReader;
use crate::traverse_ahead::{Ahead, ReadAhead, Started, Tops};
pub use crate::visitor::{Visit, Visitor};

const META: ObjectId = ObjectId(0);

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkEnd {
    /// Everything was shown.
    Complete,
    /// The visitor stopped it.
    Stopped,
}

/// Walks object set `objset` whose root block is `root`, everything after `from` when that is given.
///
/// # Errors
/// Only a store that stopped ([`ZioError::Suspended`]); damage goes to the visitor.
pub async fn visit(
    store: &Arc<dyn BlockStore>,
    objset: ObjectId,
    root: &BlkPtr,
    from: Option<Bookmark>,
    visitor: &dyn Visitor,
) -> Result<WalkEnd> {
    Walk { store, objset, order: Order::Downwards(from), visitor }.whole(root).await
}

/// As [`visit`], but a block comes after what is below it. It begins with the block `next` of level 0, when that is
/// given: where a walk was stopped at that block (`traverse_dataset_destroyed`, with a bookmark as `TRAVERSE_POST`
/// leaves it).
///
/// # Errors
/// As [`visit`].
pub async fn visit_upwards(
    store: &Arc<dyn BlockStore>,
    objset: ObjectId,
    root: &BlkPtr,
    next: Option<Bookmark>,
    visitor: &dyn Visitor,
) -> Result<WalkEnd> {
    Walk { store, objset, order: Order::Upwards(next), visitor }.whole(root).await
}

/// Ends a walk early.
enum Break {
    Stop,
    Error(ZioError),
}

type Walked = std::result::Result<(), Break>;

/// Where a block stands relative to where the walk resumes.
#[derive(PartialEq)]
enum Position {
    /// All of it was shown before.
    Before,
    /// Some of what is below it was shown. It was itself, where blocks come before what is below them.
    Around,
    /// All that is below it was shown, but not itself.
    Left,
    /// Nothing of it was shown.
    After,
}

/// Which of a block and those below it comes first, and where the walk resumes.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// The block; after this one, the last that was shown.
    Downwards(Option<Bookmark>),
    /// What is below it; with this one, the first of level 0 that was not shown.
    Upwards(Option<Bookmark>),
}

struct Walk<'a> {
    store: &'a Arc<dyn BlockStore>,
    objset: ObjectId,
    order: Order,
    visitor: &'a dyn Visitor,
}

impl Walk<'_> {
    fn reader(&self, object: ObjectId) -> TreeReader<'_> {
        TreeReader { store: self.store, flights: None, objset: self.objset, object, priority: Priority::Scrub }
    }

    fn ahead(&self, object: ObjectId, level: u8, first: u64) -> Ahead<'_> {
        Ahead { visitor: self.visitor, reader: self.reader(object), level, first }
    }

    async fn whole(&self, root: &BlkPtr) -> Result<WalkEnd> {
        match self.head(root).await {
            Ok(()) => Ok(WalkEnd::Complete),
            Err(Break::Stop) => Ok(WalkEnd::Stopped),
            Err(Break::Error(error)) => Err(error),
        }
    }

    fn is_upwards(&self) -> bool {
        matches!(self.order, Order::Upwards(_))
    }

    async fn head(&self, root: &BlkPtr) -> Walked {
        if root.is_hole() {
            return Ok(());
        }
        let bookmark = Bookmark { objset: self.objset, object: META, level: -1, blkid: 0 };
        if self.is_upwards() {
            if self.visitor.enters(root) {
                self.below_head(bookmark, root).await?;
                self.show(bookmark, root).await?;
            }
            return Ok(());
        }
        if self.order == Order::Downwards(None) && self.show(bookmark, root).await? == Visit::Skip {
            return Ok(());
        }
        self.below_head(bookmark, root).await
    }

    async fn below_head(&self, bookmark: Bookmark, root: &BlkPtr) -> Walked {
        let read = self.store.read(root, bookmark, Priority::Scrub).await;
        let head = read.and_then(|block| {
            ObjsetPhys::decode(&block).map_err(|e| ZioError::corrupt("object set", format!("{bookmark}: {e}")))
        });
        let head = match head {
            Ok(head) => head,
            Err(error) => return self.report(bookmark, root, error).await,
        };
        self.object(META, &head.meta_dnode, Started::default()).await?;
        let totals = [(u64::MAX - 2, &head.projectused), (u64::MAX - 1, &head.groupused), (u64::MAX, &head.userused)];
        for (object, dnode) in totals {
            if let Some(dnode) = dnode {
                self.object(ObjectId(object), dnode, Started::default()).await?;
            }
        }
        Ok(())
    }

    async fn show(&self, bookmark: Bookmark, bp: &BlkPtr) -> std::result::Result<Visit, Break> {
        match self.visitor.block(bookmark, bp).await {
            Visit::Stop => Err(Break::Stop),
            visit => Ok(visit),
        }
    }

    async fn report(&self, bookmark: Bookmark, bp: &BlkPtr, error: ZioError) -> Walked {
        if matches!(error, ZioError::Suspended(..)) {
            return Err(Break::Error(error));
        }
        match self.visitor.damaged(bookmark, bp, &error).await {
            Visit::Stop => Err(Break::Stop),
            Visit::Continue | Visit::Skip => Ok(()),
        }
    }

    /// Where block `index` of `level` of `object` stands. `span` are its first and last block of level 0.
    fn place(&self, object: ObjectId, level: u8, span: (u64, u64), epbs: u32) -> Position {
        match self.order {
            Order::Downwards(Some(from)) if from.level >= 0 => self.place_after(from, object, level, span, epbs),
            Order::Upwards(Some(next)) => place_from(next, object, level, span),
            _ => Position::After,
        }
    }

    fn place_after(&self, from: Bookmark, object: ObjectId, level: u8, span: (u64, u64), epbs: u32) -> Position {
        let (first, last) = span;
        if from.object == object {
            let (from_level, at) = (from.level as u8, from.blkid);
            let from_first =
                if at == SPILL_BLKID { at } else { crate::blocktree::shl(at, u32::from(from_level) * epbs) };
            return if first > from_first || first == from_first && level < from_level {
                Position::After
            } else if last >= from_first && (level > 0 || object == META) {
                Position::Around
            } else {
                Position::Before
            };
        }
        if object == META {
            if from.object.0 >= MAX_OBJECT {
                return Position::Before;
            }
            // Resuming inside an object: its dnode block and what leads there was shown.
            let block = from.object.0 / PER_BLOCK;
            return match (first > block, last < block) {
                (true, _) => Position::After,
                (_, true) => Position::Before,
                _ => Position::Around,
            };
        }
        if from.object == META || object > from.object { Position::After } else { Position::Before }
    }

    /// Whether the walk goes on behind this object.
    fn is_behind(&self, object: ObjectId) -> bool {
        let (Order::Downwards(resume) | Order::Upwards(resume)) = self.order;
        object != META && resume.is_some_and(|resume| resume.object != META && object < resume.object)
    }

    /// Whether all of this object is still to be shown: of one that the walk goes on in, a part may be freed.
    fn is_whole(&self, object: ObjectId) -> bool {
        let (Order::Downwards(resume) | Order::Upwards(resume)) = self.order;
        !self.is_behind(object) && resume.is_none_or(|resume| resume.object != object)
    }

    /// Walks one object's tree and spill block. Of the blocks at the top of the tree some may be read already.
    fn object<'s>(&'s self, object: ObjectId, dnode: &'s DnodePhys, started: Started) -> BoxFuture<'s, Walked> {
        async move {
            if self.is_behind(object) {
                return Ok(());
            }
            let top = (dnode.levels - 1, 0, &dnode.blkptrs[..]);
            self.pointers(object, dnode, top, started).await?;
            if let Some(spill) = dnode.spill.filter(|bp| !bp.is_hole())
                && matches!(self.place(object, 0, (SPILL_BLKID, SPILL_BLKID), 0), Position::After | Position::Left)
                && self.visitor.enters(&spill)
            {
                self.show(self.reader(object).bookmark(0, SPILL_BLKID), &spill).await?;
            }
            Ok(())
        }
        .boxed()
    }

    /// Walks pointers `first..` of `level`, of which some are read already.
    fn pointers<'s>(
        &'s self,
        object: ObjectId,
        dnode: &'s DnodePhys,
        (level, first, pointers): (u8, u64, &'s [BlkPtr]),
        started: Started,
    ) -> BoxFuture<'s, Walked> {
        async move {
            let epbs = dnode.pointers_per_indirect_shift();
            let interior = level > 0 || object == META;
            let ahead = self.ahead(object, level, first);
            let mut ahead = ReadAhead::new(ahead, if interior { pointers } else { &[] }, started);
            for (at, bp) in pointers.iter().enumerate() {
                if bp.is_hole() {
                    continue;
                }
                let index = first + at as u64;
                let place = self.place(object, level, span(level, index, epbs), epbs);
                if place == Position::Before {
                    continue;
                }
                let bookmark = self.reader(object).bookmark(level, index);
                if self.is_upwards() {
                    if !self.visitor.enters(bp) {
                        continue;
                    }
                } else if place == Position::After && self.show(bookmark, bp).await? == Visit::Skip {
                    continue;
                }
                if interior && place != Position::Left {
                    match ahead.take(at).await {
                        Ok(block) if level > 0 => self.indirect(object, dnode, level, index, bp, &block).await?,
                        Ok(block) => self.dnodes(index, bp, &block).await?,
                        Err(error) => self.report(bookmark, bp, error).await?,
                    }
                }
                if self.is_upwards() {
                    self.show(bookmark, bp).await?;
                }
            }
            Ok(())
        }
        .boxed()
    }

    async fn indirect(
        &self,
        object: ObjectId,
        dnode: &DnodePhys,
        level: u8,
        index: u64,
        bp: &BlkPtr,
        block: &Buf,
    ) -> Walked {
        let count = 1usize << dnode.pointers_per_indirect_shift();
        if block.len() != 1 << dnode.indirect_shift || bp.level() != level || bp.is_embedded() {
            let bookmark = self.reader(object).bookmark(level, index);
            let what = format!("{bookmark}: {} bytes, pointer of level {}", block.len(), bp.level());
            return self.report(bookmark, bp, ZioError::corrupt("indirect block", what)).await;
        }
        let children: Vec<BlkPtr> = (0..count).map(|at| pointer(block, at)).collect();
        let below = (level - 1, index << dnode.pointers_per_indirect_shift(), &children[..]);
        self.pointers(object, dnode, below, Started::default()).await
    }

    /// Walks the objects of one dnode block.
    async fn dnodes(&self, blkid: u64, bp: &BlkPtr, block: &Buf) -> Walked {
        let mut dnodes = Vec::new();
        for (slot, _) in dnode_slots(block) {
            let object = ObjectId(blkid * PER_BLOCK + slot as u64);
            let dnode = DnodePhys::decode(&block[slot * DNODE_SIZE..]);
            dnodes.push((object, dnode));
        }
        let mut tops = Tops::new();
        for (at, (object, dnode)) in dnodes.iter().enumerate() {
            let started =
                tops.take(at, &dnodes, |object, level| self.is_whole(object).then(|| self.ahead(object, level, 0)));
            match dnode {
                Ok(Some(dnode)) => self.object(*object, dnode, started).await?,
                Ok(None) => {}
                Err(error) => {
                    let bookmark = self.reader(META).bookmark(0, blkid);
                    let error = ZioError::corrupt("dnode", format!("object {object}: {error}"));
                    self.report(bookmark, bp, error).await?;
                }
            }
        }
        Ok(())
    }
}

/// Where a block stands in a walk upwards that begins with `next`.
fn place_from(next: Bookmark, object: ObjectId, level: u8, (first, last): (u64, u64)) -> Position {
    debug_assert_eq!(next.level, 0, "walks stop at blocks of level 0");
    // The block of level 0 of this object that the walk begins with, or begins below.
    let at = match (next.object == object, object == META) {
        (true, _) => next.blkid,
        (false, true) if next.object.0 >= MAX_OBJECT => return Position::Before,
        (false, true) => next.object.0 / PER_BLOCK,
        (false, false) if next.object == META || object > next.object => return Position::After,
        (false, false) => return Position::Before,
    };
    match (first > at, last < at) {
        (true, _) => Position::After,
        (_, true) => Position::Before,
        _ if level == 0 && next.object == object => Position::Left,
        _ => Position::Around,
    }
}
