//! A life of readers who come late: they know where blocks lay, and ask for them when others may lie there. What they
//! find is no damage, and nothing of it is to be set right: of a block with two copies, one may still hold what it
//! held.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_ondisk::BlkPtr;
use platter_spa::Pool;
use platter_zio::{Bookmark, Priority, ZioError};

use super::drill::happen;
use super::story::Story;
use platter_model::disk::History;

/// Blocks that are remembered at a time.
const MOST: usize = 400;
/// How often that is done.
const ROUNDS: usize = 16;
/// How many rounds what is remembered is asked for.
const KEPT: usize = 6;
/// Work on files in each.
const WORK: usize = 3;
/// Groups of each that nothing else is in: what was freed is handed out again.
const GROUPS: usize = 3;

/// Blocks, with what they were called.
#[derive(Default)]
struct Remembered(Mutex<Vec<(Bookmark, BlkPtr)>>);

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

/// Lives that of `seed`; what happens is noted in `history`.
///
/// # Errors
/// What went wrong.
pub fn late(seed: u64, history: Arc<History>) -> Result<(), String> {
    happen("late", seed, history, async |story| story.come_late().await)
}

impl Story {
    async fn come_late(&mut self) -> Result<(), String> {
        // Padding of RAID-Z blocks is nobody's, and no trace of what lay there is looked for.
        if self.machine.groups.iter().any(|group| group.parity > 0) {
            return Ok(());
        }
        let pool = self.machine.create().await?;
        self.pool = Some(pool.clone());
        // What metaslabs have free is known all the time.
        pool.dsl().store.state().allocator.lock().set_budget(u64::MAX);
        self.create_filesystem_with("off", "on", "4K", "2").await?;
        self.create_filesystem_with("lz4", "on", "1K", "1").await?;
        let mut remembered = Vec::new();
        for _ in 0..ROUNDS {
            remembered.push(self.remember_blocks(&pool).await?);
            for _ in 0..WORK {
                self.work_on_files(&pool).await?;
            }
            for _ in 0..GROUPS {
                pool.sync().await.map_err(|error| format!("sync: {error}"))?;
            }
            for blocks in remembered.iter().rev().take(KEPT) {
                self.read_late(&pool, blocks).await;
            }
        }
        pool.scrub_start().await.map_err(|error| format!("scrub: {error}"))?;
        pool.scrub_wait().await.map_err(|error| format!("scrub: {error}"))?;
        self.finds_nothing(&pool, "the scrub after all").await?;
        drop(pool);
        self.verify(false).await?;
        self.export().await
    }

    /// Remembers where the blocks of all file systems lie that have more than one copy.
    async fn remember_blocks(&self, pool: &Pool) -> Result<Remembered, String> {
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
    async fn read_late(&mut self, pool: &Pool, remembered: &Remembered) {
        let blocks = remembered.0.lock().clone();
        let store = &pool.dsl().store;
        let mut gone = 0;
        for (bookmark, bp) in &blocks {
            gone += usize::from(store.read_stored(bp, *bookmark, Priority::AsyncRead).await.is_err());
        }
        self.note(&format!("of {} blocks, {gone} are nowhere any more", blocks.len()));
    }
}
