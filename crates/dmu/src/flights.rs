//! Reads under way: whoever wants a block that somebody is already reading waits for the same read. A prefetched block
//! is then never read twice, nor an indirect block by all the readers of the data below it.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, Dva, Txg};
use platter_zio::{BlockStore, Bookmark, Priority, Result};
use rustc_hash::FxHashMap;

/// Entries above which forgotten reads (all waiters gone) are swept out.
const SWEEP_ABOVE: usize = 1024;

type Read = BoxFuture<'static, Result<Buf>>;

/// See the module text.
#[derive(Default)]
pub(crate) struct Flights {
    // Only ever looked up, never walked in an order that matters.
    reads: Mutex<FxHashMap<(Dva, Txg), WeakShared<Read>>>,
}

impl Flights {
    pub(crate) async fn read(
        &self,
        store: &Arc<dyn BlockStore>,
        bp: &BlkPtr,
        bookmark: Bookmark,
        priority: Priority,
    ) -> Result<Buf> {
        if bp.is_embedded() {
            return store.read(bp, bookmark, priority).await;
        }
        let key = (bp.dva(0), bp.physical_birth());
        let read = {
            let mut reads = self.reads.lock();
            match reads.get(&key).and_then(WeakShared::upgrade) {
                Some(running) => running,
                None => {
                    let (store, bp) = (store.clone(), *bp);
                    let read: Read = async move { store.read(&bp, bookmark, priority).await }.boxed();
                    let read: Shared<Read> = read.shared();
                    if reads.len() > SWEEP_ABOVE {
                        reads.retain(|_, read| read.upgrade().is_some());
                    }
                    if let Some(weak) = read.downgrade() {
                        reads.insert(key, weak);
                    }
                    read
                }
            }
        };
        let result = read.await;
        self.reads.lock().remove(&key);
        result
    }
}
