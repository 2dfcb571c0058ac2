//! What the intent log asks of a file system: the bytes of a write that it did not keep.

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_ondisk::ObjectId;
use platter_zil::{DataSource, SyncMode};

use crate::error::{Result, ZplError};
use crate::fs::Zpl;

impl DataSource for Zpl {
    fn read(
        &self,
        object: ObjectId,
        generation: u64,
        offset: u64,
        length: u64,
    ) -> BoxFuture<'_, platter_zio::Result<Option<Vec<u8>>>> {
        async move {
            match self.read_for_log(object, generation, offset, length).await {
                Ok(data) => Ok(data),
                Err(ZplError::Zio(error)) => Err(error),
                Err(_) => Ok(None),
            }
        }
        .boxed()
    }
}

impl Zpl {
    /// Bytes of a file as they are now; `None` when it is gone.
    async fn read_for_log(
        &self,
        object: ObjectId,
        generation: u64,
        offset: u64,
        length: u64,
    ) -> Result<Option<Vec<u8>>> {
        let znode = match self.znode(object).await {
            Ok(znode) => znode,
            Err(ZplError::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        let _shared = znode.lock.read().await;
        let end = offset.saturating_add(length);
        let _range = znode.ranges.lock(offset, end, false).await;
        let size = {
            let state = znode.state.lock();
            if state.freed || state.phys.generation != generation {
                return Ok(None);
            }
            state.phys.size
        };
        let mut bytes = vec![0; end.min(size).saturating_sub(offset) as usize];
        znode.dnode.read(offset, &mut bytes).await?;
        Ok(Some(bytes))
    }

    /// After every change: with `sync=always` nothing is answered before it is stable. No lock may be held.
    pub(crate) async fn settle(&self, object: ObjectId) -> Result<()> {
        match &self.log {
            Some(log) if log.mode() == SyncMode::Always && !log.needs_replay() => Ok(log.commit(Some(object)).await?),
            _ => Ok(()),
        }
    }
}
