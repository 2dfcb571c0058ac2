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

/// Entries above which forgotten reads (all waiters gone) are swept out; later at twice what a sweep has left, so that
/// many reads under way do not make each other's beginning slow.
const SWEEP_ABOVE: usize = 1024;

type Read = BoxFuture<'static, Result<Buf>>;

/// See the module text.
#[derive(Default)]
pub(crate) struct Flights {
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    // Only ever looked up, never walked in an order that matters.
    reads: FxHashMap<(Dva, Txg), WeakShared<Read>>,
    /// Entries that the last sweep has left.
    left: usize,
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
            let mut under_way = self.under_way.lock();
            let UnderWay { reads, left } = &mut *under_way;
            match reads.get(&key).and_then(WeakShared::upgrade) {
                Some(running) => running,
                None => {
                    let (store, bp) = (store.clone(), *bp);
                    let read: Read = async move { store.read(&bp, bookmark, priority).await }.boxed();
                    let read: Shared<Read> = read.shared();
                    if reads.len() > SWEEP_ABOVE.max(2 * *left) {
                        reads.retain(|_, read| read.upgrade().is_some());
                        *left = reads.len();
                    }
                    if let Some(weak) = read.downgrade() {
                        reads.insert(key, weak);
                    }
                    read
                }
            }
        };
        let result = read.await;
        self.under_way.lock().reads.remove(&key);
        result
    }
}
