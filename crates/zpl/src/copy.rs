//! Copying a range from file to file without a detour through a process (`copy_file_range`): holes stay holes.

use platter_ondisk::ObjectId;

use crate::attr::{Fallocate, SeekFor};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;

/// Bytes copied at a time.
const PIECE: u64 = 4 << 20;
/// Most bytes copied in one call, so that a request ends in reasonable time.
const CALL_MAX: u64 = 256 << 20;

impl Zpl {
    /// Copies up to `length` bytes from `from_offset` of file `from` to `to_offset` of file `to` and returns how many
    /// were: fewer at the end of the file, and when there is much to do.
    ///
    /// # Errors
    /// Those of reading and writing, when they strike before anything was copied.
    pub async fn copy_range(
        &self,
        from: ObjectId,
        from_offset: u64,
        to: ObjectId,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let size = self.getattr(from).await?.size;
        let length = length.min(size.saturating_sub(from_offset)).min(CALL_MAX);
        let mut done = 0;
        while done < length {
            let most = (length - done).min(PIECE);
            match self.copy_piece(from, from_offset + done, to, to_offset.saturating_add(done), most).await {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Copies a hole up to the next data, or some data; blocks of zeros in it become holes.
    async fn copy_piece(&self, from: ObjectId, at: u64, to: ObjectId, to_at: u64, most: u64) -> Result<u64> {
        let data = match self.seek(from, at, SeekFor::Data).await {
            Ok(found) => found.min(at + most),
            Err(ZplError::NoSuchOffset) => at + most,
            Err(error) => return Err(error),
        };
        if data > at {
            self.fallocate(to, Fallocate::ZeroRange { keep_size: false }, to_at, data - at).await?;
            return Ok(data - at);
        }
        let mut copied = 0;
        for piece in self.read(from, at, most).await? {
            let place = to_at.saturating_add(copied);
            let written = if piece.iter().all(|&byte| byte == 0) {
                self.fallocate(to, Fallocate::ZeroRange { keep_size: false }, place, piece.len() as u64).await?;
                piece.len()
            } else {
                self.write(to, place, &piece, false).await?
            };
            copied += written as u64;
            if written < piece.len() {
                break;
            }
        }
        Ok(copied)
    }
}
