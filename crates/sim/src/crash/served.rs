//! A pool while a workload runs on it, or while it is looked at: its file system mounted, its volume open.

use std::sync::Arc;

use platter_spa::Pool;
use platter_zpl::Zpl;

use super::model::{FILESYSTEM, Role, VOLUME};
use crate::volume::Volume;
use crate::world::{self, StandingClock};

/// See the module text.
pub struct Served {
    /// The pool.
    pub pool: Arc<Pool>,
    /// The file system.
    pub zpl: Arc<Zpl>,
    /// The volume.
    pub volume: Volume,
    /// What the disk is that is in no pool at first.
    pub role: Role,
}

impl Served {
    /// Mounts and opens; logs are replayed.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn new(pool: Arc<Pool>) -> Result<Self, String> {
        let zpl = world::mount(&pool, FILESYSTEM, Arc::new(StandingClock)).await?;
        let volume = Volume::open(&pool, VOLUME).await?;
        Ok(Self { pool, zpl, volume, role: Role::default() })
    }

    /// Unmounts and closes; the pool.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn end(self) -> Result<Arc<Pool>, String> {
        let Self { pool, zpl, volume, .. } = self;
        zpl.unmount().await.map_err(|error| error.to_string())?;
        drop(zpl);
        volume.close(&pool).await?;
        pool.dsl().close_filesystem(FILESYSTEM).await.map_err(|error| error.to_string())?;
        Ok(pool)
    }
}
