//! Writing what is in a file anew, as the properties of today have it: compression, checksum, copies, and where new
//! blocks go (`zfs_rewrite`, `module/zfs/zfs_vnops.c`). What the file holds does not change, nor do its times.

use std::sync::Arc;

use platter_dmu::bytes::{Extent, Keeper};
use platter_ondisk::ObjectId;

use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::projects;
use crate::znode::Znode;

/// Bytes in one transaction, at most.
const PIECE: u64 = 4 << 20;

impl Zpl {
    /// Writes the data in `length` bytes from `offset` on anew, up to the end with 0; holes stay as they are. Returns
    /// how many bytes were written.
    ///
    /// # Errors
    /// A read-only file system, no space, a quota; damage: what was written before stays so.
    pub async fn rewrite(&self, object: ObjectId, offset: u64, length: u64) -> Result<u64> {
        self.check_writable()?;
        let znode = self.file(object).await?;
        let size = znode.state.lock().phys.size;
        let end = if length == 0 { size } else { offset.saturating_add(length).min(size) };
        let (mut at, mut done) = (offset, 0);
        while at < end {
            // Neither search goes further than it is of use: a file may be long.
            let found = znode.dnode.seek_before(at, false, end).await?;
            let Some(data) = found.filter(|&found| found < end) else { break };
            let piece_end = end.min(data.saturating_add(PIECE));
            let hole = znode.dnode.seek_before(data, true, piece_end).await?;
            let most = hole.map_or(piece_end, |hole| hole.min(piece_end)) - data;
            let written = self.rewrite_piece(&znode, data, most).await?;
            if written == 0 {
                break;
            }
            done += written;
            at = data + written;
        }
        Ok(done)
    }

    async fn rewrite_piece(&self, znode: &Arc<Znode>, at: u64, most: u64) -> Result<u64> {
        let _shared = znode.lock.read().await;
        let block_size = znode.dnode.block_size();
        let unit = u64::from(block_size);
        // Nobody writes in these blocks between what is read and what is written.
        let range_end = (at + most).checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        let _range = znode.ranges.lock(at / unit * unit, range_end, true).await;
        let (size, takers) = {
            let state = znode.state.lock();
            if state.freed {
                return Err(ZplError::Stale);
            }
            (state.phys.size, projects::takers(&state.phys))
        };
        let most = self.os.bytes_at_once(most, block_size).min(size.saturating_sub(at));
        if most == 0 {
            return Ok(0);
        }
        self.check_quotas(takers, false).await?;
        let pieces = znode.bytes().read(at..at + most, size, Keeper::Nobody).await?;
        self.reserve(most).await?;
        let tx = self.begin_writing(at..at + most, block_size).await?;
        // The log needs no record of it: whoever replays finds the same bytes either way.
        tx.needs_no_record();
        let mut done = 0u64;
        for piece in pieces {
            let extent = Extent { offset: at + done, block_size, size };
            let (written, failed) = znode.bytes().write(&tx, extent, &piece, Keeper::Nobody).await;
            done += written as u64;
            if let Some(error) = failed {
                return if done > 0 { Ok(done) } else { Err(error.into()) };
            }
        }
        Ok(done)
    }
}
