//! Giving a block's space back (`zio_free`, `module/zfs/zio.c`).

use std::sync::atomic::Ordering;

use platter_ondisk::BlkPtr;

use crate::error::Result;
use crate::gang_tree::blocks;
use crate::store::Store;

/// See [`crate::BlockStore::free`].
pub(crate) fn free(store: &Store, bp: &BlkPtr) {
    if bp.is_hole() || bp.is_embedded() {
        return;
    }
    let state = store.state();
    state.cache.remove(bp);
    state.l2arc.forget(bp);
    // Of a block that is deduplicated the table that counts its references must be read first, of a gang block its
    // members: that is done with the deferred frees, where awaiting is possible.
    let is_deferred = bp.is_dedup() || bp.dvas().any(|dva| dva.gang);
    if is_deferred || state.pass.load(Ordering::Relaxed) >= 2 {
        state.late_frees.lock().push(*bp);
        return;
    }
    let freed = state.allocator.lock().free(bp);
    if let Err(error) = freed {
        state.free_error.lock().get_or_insert(error);
    }
}

/// Frees a gang block: its header and, after reading it, its parts. Nothing is freed unless everything can be.
///
/// # Errors
/// When a header cannot be read; a double free.
pub async fn free_gang(store: &Store, bp: &BlkPtr) -> Result<()> {
    let blocks = blocks(store, bp).await?;
    let mut allocator = store.state().allocator.lock();
    for block in &blocks {
        if block.is_gang() {
            allocator.free_gang_header(block)?;
        } else {
            allocator.free(block)?;
        }
    }
    Ok(())
}
