//! Lives in a pool that is nearly full: one large file, in the pool's own data set, leaves little room to all others.
//!
//! It must be shortened without fail, however full the pool is: a life in which it is not has gone wrong.

use std::sync::Arc;

use platter_ondisk::ObjectId;
use platter_zpl::{NewFile, SetAttr, Zpl, ZplError};
use rand_chacha::rand_core::RngCore;

use super::machine::POOL;
use super::story::Story;
use crate::world;

const NAME: &[u8] = b"ballast";
const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
const NO_SPACE: i32 = 28;
const NOT_FOUND: i32 = 2;
/// How it is appended to, until there is no room for any of these.
const PIECES: [usize; 3] = [1 << 20, 64 << 10, 4 << 10];
/// At most so much is taken from it before it grows again, and so much is left free in the end.
const LIGHTER_MAX: usize = 3 << 20;
const ROOM_MAX: usize = 2 << 20;

impl Story {
    /// Fills the pool but for a little.
    pub(super) async fn take_ballast(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        let zpl = world::mount(&pool, POOL, self.machine.clock.clone()).await?;
        let taken = self.load(&zpl).await.map_err(|error| error.to_string());
        zpl.unmount().await.map_err(|error| format!("unmount: {error}"))?;
        drop(zpl);
        pool.dsl().close_filesystem(POOL).await.map_err(|error| format!("close: {error}"))?;
        let size = taken?;
        self.note(&format!("{size} bytes of ballast"));
        Ok(())
    }

    async fn load(&mut self, zpl: &Arc<Zpl>) -> Result<u64, ZplError> {
        let attr = match zpl.lookup(zpl.root(), NAME).await {
            Err(error) if error.errno() == NOT_FOUND => match zpl.create(zpl.root(), NAME, NEW).await {
                Err(error) if error.errno() == NO_SPACE => return Ok(0),
                created => created?,
            },
            found => found?,
        };
        let mut size = self.shorten(zpl, attr.object, attr.size, LIGHTER_MAX).await?;
        for piece in PIECES {
            let mut bytes = vec![0; piece];
            loop {
                self.random.fill_bytes(&mut bytes);
                match zpl.write(attr.object, size, &bytes, false).await {
                    Ok(written) => size += written as u64,
                    Err(error) if error.errno() == NO_SPACE => break,
                    Err(error) => return Err(error),
                }
            }
        }
        self.shorten(zpl, attr.object, size, ROOM_MAX).await
    }

    async fn shorten(&mut self, zpl: &Zpl, object: ObjectId, size: u64, most: usize) -> Result<u64, ZplError> {
        let size = size.saturating_sub(self.below(most) as u64);
        zpl.setattr(object, SetAttr { size: Some(size), ..SetAttr::default() }).await?;
        Ok(size)
    }
}
