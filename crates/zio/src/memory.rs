//! A [`BlockStore`] in memory, for tests of the layers above: it verifies that nothing freed is read and nothing is
//! freed twice.

use std::collections::HashMap;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, Compression, Dva, Txg};
use platter_vdev::Priority;

use crate::accounting::SpaceAccounting;
use crate::block_store::{BlockReader, BlockStore};
use crate::cache::BlockCache;
use crate::error::{Result, ZioError};
use crate::policy::{Bookmark, WritePolicy};

/// Bytes of blocks that are found without waiting.
const CACHE_BYTES: u64 = 64 << 20;

/// Blocks in a map; offsets grow and are never reused, so a stale pointer is always noticed.
pub struct MemoryStore {
    inner: Mutex<Inner>,
    cache: BlockCache,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self { inner: Mutex::default(), cache: BlockCache::new(CACHE_BYTES) }
    }
}

#[derive(Default)]
struct Inner {
    /// What it claims to have in use; `None` for no limit.
    space_used: Option<u64>,
    next: u64,
    blocks: HashMap<u64, Buf>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Claims to have `bytes` in use from now on.
    pub fn claim_space_used(&self, bytes: u64) {
        self.inner.lock().expect("store").space_used = Some(bytes);
    }

    /// Blocks written and not freed.
    pub fn live_blocks(&self) -> usize {
        self.inner.lock().expect("store").blocks.len()
    }
}

impl BlockReader for MemoryStore {
    fn cache(&self) -> &BlockCache {
        &self.cache
    }

    fn read<'a>(&'a self, bp: &'a BlkPtr, bookmark: Bookmark, _priority: Priority) -> BoxFuture<'a, Result<Buf>> {
        async move {
            if bp.is_embedded() {
                let mut bytes = bp.embedded_payload();
                bytes.resize(bp.lsize() as usize, 0);
                return Ok(Buf::copy_from(&bytes));
            }
            let block = self.inner.lock().expect("store").blocks.get(&bp.dva(0).offset).cloned();
            block.ok_or_else(|| ZioError::Checksum { bookmark, detail: format!("{bp:?} was freed") })
        }
        .boxed()
    }
}

impl BlockStore for MemoryStore {
    fn write<'a>(&'a self, data: Buf, policy: WritePolicy, _previous: &'a BlkPtr) -> BoxFuture<'a, Result<BlkPtr>> {
        async move {
            if policy.hole && policy.level == 0 && data.iter().all(|&b| b == 0) {
                return Ok(BlkPtr::hole_born(policy.txg, policy.object_type, 0, data.len() as u64));
            }
            let mut inner = self.inner.lock().expect("store");
            let size = data.len() as u64;
            inner.next += 1 << 24;
            let offset = inner.next;
            let mut bp = BlkPtr::describe(
                size,
                size,
                Compression::OFF,
                policy.checksum,
                policy.object_type,
                policy.level,
                policy.txg,
            );
            bp.set_fill(policy.fill);
            for copy in 0..policy.copies {
                bp.set_dva(usize::from(copy), Dva { vdev: u32::from(copy), offset, asize: size, gang: false });
            }
            self.cache.insert(policy.bookmark.objset, &bp, data.clone());
            inner.blocks.insert(offset, data);
            Ok(bp)
        }
        .boxed()
    }

    fn free(&self, _txg: Txg, bp: &BlkPtr) {
        if bp.is_hole() || bp.is_embedded() {
            return;
        }
        self.cache.remove(bp);
        let gone = self.inner.lock().expect("store").blocks.remove(&bp.dva(0).offset);
        assert!(gone.is_some(), "freed twice: {bp:?}");
    }

    fn dsize(&self, bp: &BlkPtr) -> u64 {
        bp.asize()
    }

    fn space_used(&self) -> u64 {
        self.inner.lock().expect("store").space_used.unwrap_or(u64::MAX)
    }
}

/// Accounting that frees at once and counts nothing.
pub struct FreeAtOnce(pub std::sync::Arc<dyn BlockStore>);

impl SpaceAccounting for FreeAtOnce {
    fn born(&self, _txg: Txg, _bp: &BlkPtr) {}

    fn kill(&self, txg: Txg, bp: &BlkPtr) {
        self.0.free(txg, bp);
    }
}
