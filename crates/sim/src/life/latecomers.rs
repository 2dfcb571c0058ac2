//! Readers who come late: they know where blocks lay, and ask for them when others may lie there. What they find is no
//! damage, and nothing of it is to be set right: of a block with two copies, one may still hold what it held.

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_ondisk::BlkPtr;
use platter_spa::Pool;
use platter_zio::{Bookmark, Priority, ZioError};
use std::sync::Arc;

use super::story::Story;

/// Blocks that are remembered at a time.
const MOST: usize = 400;

/// Blocks, with what they were called.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Vec<(Bookmark, BlkPtr)>>);

impl Visitor for Remembered {
    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        let mut blocks = self.0.lock();
        // What is in its pointer lies nowhere, and of what has one copy nobody can put another's place right.
        if !bp.is_embedded() && bp.dvas().count() > 1 {
            blocks.push((bookmark, *bp));
        }
        let visit = if blocks.len() < MOST { Visit::Continue } else { Visit::Stop };
        async move { visit }.boxed()
    }

    fn damaged<'a>(&'a self, _: Bookmark, _: &'a BlkPtr, _: &'a ZioError) -> BoxFuture<'a, Visit> {
        async { Visit::Continue }.boxed()
    }
}

impl Story {
    /// Remembers where the blocks of all file systems lie that have more than one copy.
    pub(super) async fn remember_blocks(&self, pool: &Pool) -> Result<Remembered, String> {
        let (dsl, remembered) = (pool.dsl(), Remembered::default());
        let store: Arc<dyn platter_zio::BlockStore> = Arc::new(dsl.store.clone());
        for name in self.filesystems.keys() {
            let dataset = dsl.find(name).map_err(|error| error.to_string())?;
            let root = dataset.phys.lock().bp;
            let walked = visit(&store, dataset.object, &root, None, &remembered).await;
            walked.map_err(|error| format!("the blocks of {name}: {error}"))?;
        }
        Ok(remembered)
    }

    /// Reads them all, whatever lies there.
    pub(super) async fn read_late(&mut self, pool: &Pool, remembered: &Remembered) {
        let blocks = remembered.0.lock().clone();
        let store = &pool.dsl().store;
        let mut gone = 0;
        for (bookmark, bp) in &blocks {
            gone += usize::from(store.read_stored(bp, *bookmark, Priority::AsyncRead).await.is_err());
        }
        self.note(&format!("of {} blocks, {gone} are nowhere any more", blocks.len()));
    }
}
