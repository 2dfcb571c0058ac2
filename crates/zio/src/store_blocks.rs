//! The store as the layers above know it ([`BlockStore`]): the cache first, then one block's way to the devices and
//! back.

use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_vdev::Priority;

use crate::block_store::BlockStore;
use crate::error::Result;
use crate::in_flight::Memory;
use crate::policy::{Bookmark, WritePolicy};
use crate::store::{ScrubbedBlock, Store};
use crate::{read, write};

impl Store {
    /// Reads every copy (and all parity) of a block, repairs what is wrong, and says how it went.
    ///
    /// # Errors
    /// [`crate::ZioError::Checksum`] when no copy is good.
    pub async fn scrub(&self, bp: &BlkPtr, bookmark: Bookmark) -> Result<ScrubbedBlock> {
        read::scrub(self, bp, bookmark).await
    }
}

impl BlockStore for Store {
    fn read<'a>(&'a self, bp: &'a BlkPtr, bookmark: Bookmark, priority: Priority) -> BoxFuture<'a, Result<Buf>> {
        async move {
            if let Some(contents) = self.state().cache.get(bp) {
                return Ok(contents);
            }
            read::read(self, bp, bookmark, priority).await
        }
        .boxed()
    }

    fn ahead_max(&self) -> Memory {
        self.state().large.ahead_max()
    }

    fn keeps_data(&self, objset: ObjectId) -> bool {
        self.state().cache.keeps_data(objset)
    }

    fn pass_on(&self, bp: &BlkPtr) {
        self.state().cache.remove(bp);
    }

    fn read_cached(&self, bp: &BlkPtr) -> Option<Buf> {
        self.state().cache.get(bp)
    }

    fn write<'a>(&'a self, data: Buf, policy: WritePolicy, previous: &'a BlkPtr) -> BoxFuture<'a, Result<BlkPtr>> {
        async move {
            let _memory = self.state().large.write(&self.state().cache, data.len() as u64, &policy).await;
            let _permit = self.state().write_slots.acquire().await.expect("never closed");
            write::write(self, data, &policy, previous).await
        }
        .boxed()
    }

    fn free(&self, _txg: Txg, bp: &BlkPtr) {
        if bp.is_hole() || bp.is_embedded() {
            return;
        }
        self.state().cache.remove(bp);
        if self.state().pass.load(Ordering::Relaxed) >= 2 {
            self.state().late_frees.lock().push(*bp);
            return;
        }
        if let Err(error) = read::free_all(self, bp) {
            self.state().free_error.lock().get_or_insert(error);
        }
    }

    fn dsize(&self, bp: &BlkPtr) -> u64 {
        let allocator = self.state().allocator.lock();
        bp.dvas().map(|dva| allocator.dsize(&dva)).sum()
    }

    fn space_used(&self) -> u64 {
        self.state().allocator.lock().deflated().0
    }

    fn most_space(&self, size: u64) -> u64 {
        self.state().vdevs.most_space(size)
    }
}
