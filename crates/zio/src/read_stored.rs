//! Reading a block as it is stored, for who passes it on as it is (`ZIO_FLAG_RAW_COMPRESS`).

use platter_buffer::Buf;
use platter_ondisk::BlkPtr;
use platter_vdev::Priority;

use crate::error::{Result, ZioError};
use crate::policy::Bookmark;
use crate::read::{ReadZio, stored};
use crate::store::Store;

impl Store {
    /// The bytes of a block as they are stored: compressed, as long as its pointer's physical size, verified. It passes
    /// the cache by. Waits for devices as [`read`](crate::BlockReader::read) does.
    ///
    /// # Errors
    /// A hole, what is in its pointer, what is encrypted; no copy is right.
    pub async fn read_stored(&self, bp: &BlkPtr, bookmark: Bookmark, priority: Priority) -> Result<Buf> {
        let zio = ReadZio { store: self, bp, bookmark, priority };
        if bp.is_hole() || bp.is_embedded() {
            return Err(ZioError::corrupt("block pointer", format!("{bookmark} is not stored as a block")));
        }
        zio.check()?;
        loop {
            let resumptions = self.suspension().resumptions();
            let lost = match stored(self, bp, priority, false).await {
                Ok(bytes) => return Ok(bytes),
                Err(lost) => lost,
            };
            if !zio.wait(resumptions, &lost).await {
                return Err(zio.report(&lost));
            }
        }
    }
}
