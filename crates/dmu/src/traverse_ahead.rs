//! What a walk will need soon is read before it comes there: of interior blocks the next ones of the same level, and
//! those at the top of the next objects' trees. Disks would else move their heads once for each, one after the other.
//!
//! No read outlives the walk: what it has read ahead may be freed soon, and be another block's then.
//!
//! Invariants:
//! - reads are kept in the order in which the walk comes to their blocks;
//! - nothing is read ahead that the visitor would leave out, as far as it says so.

use std::collections::VecDeque;

use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId};
use platter_zio::{Bookmark, Result, ZioError};
use tokio::task::JoinHandle;

use crate::read::TreeReader;
use crate::visitor::Visitor;

/// Interior blocks of one level that are read ahead of the walk.
const READ_AHEAD: usize = 8;
/// Blocks at the top of objects that are read ahead of the walk.
const TOPS: usize = 16;

/// Reads that were begun, by the index of the pointer.
#[derive(Default)]
pub(crate) struct Started(VecDeque<(usize, JoinHandle<Result<Buf>>)>);

impl Drop for Started {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, read)| read.abort());
    }
}

/// The blocks from `first` on of one level of an object.
pub(crate) struct Ahead<'a> {
    pub visitor: &'a dyn Visitor,
    pub reader: TreeReader<'a>,
    pub level: u8,
    pub first: u64,
}

impl Ahead<'_> {
    fn bookmark(&self, at: usize) -> Bookmark {
        self.reader.bookmark(self.level, self.first + at as u64)
    }

    /// Begins to read block `at`, when there is anything to see.
    fn start(&self, started: &mut Started, at: usize, bp: BlkPtr) {
        assert!(started.0.back().is_none_or(|(before, _)| *before < at), "reads are begun in order");
        let bookmark = self.bookmark(at);
        if !bp.is_hole() && self.visitor.reads_ahead(bookmark, &bp) {
            let (store, priority) = (self.reader.store.clone(), self.reader.priority);
            let read = tokio::spawn(async move { store.read(&bp, bookmark, priority).await });
            started.0.push_back((at, read));
        }
    }
}

/// The interior blocks of one level, each with later ones on their way.
pub(crate) struct ReadAhead<'a> {
    ahead: Ahead<'a>,
    pointers: &'a [BlkPtr],
    next: usize,
    started: Started,
}

impl<'a> ReadAhead<'a> {
    /// Of `pointers`; the reads in `started` were begun for the first of them.
    pub fn new(ahead: Ahead<'a>, pointers: &'a [BlkPtr], started: Started) -> Self {
        let next = started.0.back().map_or(0, |(last, _)| last + 1);
        assert!(next <= pointers.len(), "what was begun is among the pointers");
        Self { ahead, pointers, next, started }
    }

    /// The contents of block `at`; later ones are on their way when this returns.
    ///
    /// # Errors
    /// As the store says.
    pub async fn take(&mut self, at: usize) -> Result<Buf> {
        while let Some((_, passed)) = self.started.0.pop_front_if(|&mut (index, _)| index < at) {
            passed.abort();
        }
        self.next = self.next.max(at);
        while self.started.0.len() <= READ_AHEAD && self.next < self.pointers.len() {
            self.ahead.start(&mut self.started, self.next, self.pointers[self.next]);
            self.next += 1;
        }
        let bookmark = self.ahead.bookmark(at);
        let Some((_, read)) = self.started.0.pop_front_if(|&mut (index, _)| index == at) else {
            let TreeReader { store, priority, .. } = self.ahead.reader;
            return store.read(&self.pointers[at], bookmark, priority).await;
        };
        match read.await {
            Ok(block) => block,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Err(failed) => Err(ZioError::Io(format!("{bookmark}: the read was cancelled: {failed}"))),
        }
    }
}

/// What is in a slot of a dnode block.
pub(crate) type Decoded = std::result::Result<Option<DnodePhys>, platter_ondisk::Error>;

/// The objects of a dnode block, each with the tops of later ones' trees on their way.
pub(crate) struct Tops {
    next: usize,
    started: VecDeque<Started>,
}

impl Tops {
    pub fn new() -> Self {
        Self { next: 0, started: VecDeque::new() }
    }

    /// What was begun for the first of the objects that `dnodes` tells of from the index `at` on, one after the other.
    /// `ahead` is `None` for what the walk leaves out.
    pub fn take<'a>(
        &mut self,
        at: usize,
        dnodes: &[(ObjectId, Decoded)],
        ahead: impl Fn(ObjectId, u8) -> Option<Ahead<'a>>,
    ) -> Started {
        assert_eq!(self.next, at + self.started.len(), "objects are taken one after the other");
        let mut under_way: usize = self.started.iter().map(|started| started.0.len()).sum();
        while let Some((object, dnode)) = dnodes.get(self.next).filter(|_| under_way < TOPS) {
            let mut started = Started::default();
            if let Ok(Some(dnode)) = dnode
                && dnode.levels > 1
                && let Some(ahead) = ahead(*object, dnode.levels - 1)
            {
                let pointers = dnode.blkptrs.iter().enumerate();
                pointers.for_each(|(at, bp)| ahead.start(&mut started, at, *bp));
            }
            under_way += started.0.len();
            self.started.push_back(started);
            self.next += 1;
        }
        self.started.pop_front().unwrap_or_default()
    }
}
