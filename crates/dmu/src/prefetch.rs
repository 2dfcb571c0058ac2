//! Fetching blocks before somebody asks for them (`dmu_prefetch`, `module/zfs/dmu.c`).

use std::sync::Arc;

use futures::future::join_all;
use futures::stream::StreamExt;
use platter_zio::Priority;

use crate::core::Dnode;

/// Bytes that one prefetch has under way at a time.
const PREFETCH_BYTES: usize = 32 << 20;
/// Bytes of it that one task looks after.
const PREFETCH_LOT: usize = 512 << 10;

impl Dnode {
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
        if range.is_empty() || !reader.store.cache().keeps_data(reader.objset) {
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
}
