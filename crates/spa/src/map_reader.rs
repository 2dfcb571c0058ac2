//! Space maps for the allocator, which asks for one when it wants to allocate from a metaslab.

use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_dmu::{Objset, Result, ZioError};
use platter_zio::{MapAt, MapReader, MetaslabId, RangeSet};

use crate::space_maps;

/// Reads the maps in a pool's MOS.
pub struct MosMaps {
    /// The MOS holds the store that holds this.
    mos: Weak<Objset>,
    pool: String,
}

impl MosMaps {
    /// A reader for the pool with this MOS and name.
    pub fn new(mos: &Arc<Objset>, pool: &str) -> Arc<Self> {
        Arc::new(Self { mos: Arc::downgrade(mos), pool: pool.to_owned() })
    }
}

impl MapReader for MosMaps {
    fn free_ranges(&self, map: MapAt) -> BoxFuture<'_, Result<RangeSet>> {
        async move {
            let mos = self.mos.upgrade().ok_or_else(|| ZioError::Io("the pool is closed".into()))?;
            space_maps::free_ranges(&mos, &map).await
        }
        .boxed()
    }

    fn note_damage(&self, id: MetaslabId, reason: &str) {
        tracing::error!(
            pool = self.pool,
            vdev = id.vdev,
            metaslab = id.index,
            reason,
            "the space map of a metaslab is damaged: nothing is allocated there any more. What the pool holds can be \
             read; to have the space back, copy it to another pool"
        );
    }
}
