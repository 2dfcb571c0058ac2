//! What the intent log asks of a volume: the bytes of a write that it did not keep.

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_ondisk::ObjectId;
use platter_zil::DataSource;

use crate::volume::{DATA, Volume};

impl DataSource for Volume {
    fn read(
        &self,
        object: ObjectId,
        _generation: u64,
        offset: u64,
        length: u64,
    ) -> BoxFuture<'_, platter_zio::Result<Option<Vec<u8>>>> {
        async move {
            if object != DATA {
                return Ok(None);
            }
            let end = offset.saturating_add(length);
            let _range = self.ranges.lock(offset, end, false).await;
            // What was cut off since is not told: the commit waits for the group.
            let mut bytes = vec![0; end.min(self.size()).saturating_sub(offset) as usize];
            self.dnode.read(offset, &mut bytes).await?;
            Ok(Some(bytes))
        }
        .boxed()
    }
}
