//! Reading and writing regular files (`module/zfs/zfs_vnops.c`).
//!
//! A file's lock is shared by readers and by writers of whole or partial blocks in place, who then exclude each other
//! by block ranges; whoever changes the block size, appends or truncates takes it alone.
//!
//! # Block size
//! A file of one block has a block just as large as it needs (a multiple of 512 bytes), up to the record size; from
//! the second block on the size is fixed (`zfs_grow_blocksize`).

use std::sync::Arc;

use platter_buffer::Buf;
use platter_dmu::Tx;
use platter_dmu::bytes::{Extent, Keeper};
use platter_ondisk::ObjectId;
use platter_ondisk::sector::SECTOR;
use platter_ondisk::znode::flags;
use platter_zio::ZioError;

use crate::attr::{Fallocate, FileKind, SeekFor, SetAttr};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::log;
use crate::projects;
use crate::znode::Znode;

/// Largest size of a file, in bytes (`MAXOFFSET_T`).
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;
/// Most bytes written in one transaction.
const WRITE_MAX: u64 = 32 << 20;

impl Zpl {
    /// Up to `length` bytes from `offset`, as pieces of cached blocks; fewer at the end of the file.
    ///
    /// # Errors
    /// [`ZplError::IsDirectory`], damage.
    pub async fn read(&self, object: ObjectId, offset: u64, length: u64) -> Result<Vec<Buf>> {
        self.read_for(object, offset, length, Keeper::Nobody).await
    }

    /// As [`Self::read`]; `keeper` says whether the reader keeps what it gets.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub async fn read_for(&self, object: ObjectId, offset: u64, length: u64, keeper: Keeper) -> Result<Vec<Buf>> {
        let znode = self.file(object).await?;
        let _shared = znode.lock.read().await;
        let end = offset.saturating_add(length);
        let _range = znode.ranges.lock(offset, end, false).await;
        let size = {
            let state = znode.state.lock();
            if state.freed {
                return Err(ZplError::Stale);
            }
            state.phys.size
        };
        let end = end.min(size);
        if offset >= end {
            // Whoever finds the end has read all the same (`zpl_iter_read`, `module/os/linux/zfs/zpl_file.c`).
            self.accessed(&znode).await;
            return Ok(Vec::new());
        }
        let pieces = znode.bytes().read(offset..end, size, keeper).await?;
        self.accessed(&znode).await;
        Ok(pieces)
    }

    /// Writes `data` at `offset` (or, with `append`, at the end) and returns the bytes written.
    ///
    /// # Errors
    /// [`ZplError::FileTooLarge`], [`ZplError::NotPermitted`] for an immutable file, no space, damage. What was written
    /// before the error counts: the error comes only when that is nothing.
    pub async fn write(&self, object: ObjectId, offset: u64, data: &[u8], append: bool) -> Result<usize> {
        let at = if append { None } else { Some(offset) };
        self.write_for(object, at, data, Keeper::Nobody).await
    }

    /// As [`Self::write`], `at` an offset or the end; `keeper` says whether the writer keeps what it wrote.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub async fn write_for(&self, object: ObjectId, at: Option<u64>, data: &[u8], keeper: Keeper) -> Result<usize> {
        let done = self.write_all(object, at, data, keeper).await?;
        self.settle(object).await?;
        Ok(done)
    }

    async fn write_all(&self, object: ObjectId, offset: Option<u64>, data: &[u8], keeper: Keeper) -> Result<usize> {
        self.check_writable()?;
        let znode = self.file(object).await?;
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..data.len().min(done + WRITE_MAX as usize)];
            let at = offset.map(|offset| offset.saturating_add(done as u64));
            match self.write_some(&znode, at, rest, keeper).await {
                Ok(written) => done += written,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes in one transaction; `None` as the offset means at the end.
    async fn write_some(&self, znode: &Arc<Znode>, offset: Option<u64>, data: &[u8], keeper: Keeper) -> Result<usize> {
        let record_size = self.os.properties().record_size;
        // In place: the block size stays, so other blocks may be read and written meanwhile.
        if let Some(offset) = offset {
            let end = checked_end(offset, data.len() as u64)?;
            let _shared = znode.lock.read().await;
            let block_size = znode.dnode.block_size();
            if self.grown(znode, end, record_size) == block_size {
                let unit = u64::from(block_size);
                let range_end = end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
                let _range = znode.ranges.lock(offset / unit * unit, range_end, true).await;
                let place = Place { offset, block_size, eof: None };
                return self.write_locked(znode, place, data, keeper).await;
            }
        }
        let _alone = znode.lock.write().await;
        let offset = offset.unwrap_or_else(|| znode.state.lock().phys.size);
        let end = checked_end(offset, data.len() as u64)?;
        let block_size = self.grown(znode, end, record_size);
        self.write_locked(znode, Place { offset, block_size, eof: None }, data, keeper).await
    }

    /// Writes a whole block that a log record leads to; the file ends at `eof` at least, though the block may go on.
    pub(crate) async fn replay_block(&self, object: ObjectId, offset: u64, data: &[u8], eof: u64) -> Result<()> {
        let znode = self.file(object).await?;
        let _alone = znode.lock.write().await;
        let end = checked_end(offset, data.len() as u64)?;
        let block_size = self.grown(&znode, end, self.os.properties().record_size);
        let place = Place { offset, block_size, eof: Some(eof) };
        self.write_locked(&znode, place, data, Keeper::Nobody).await.map(|_| ())
    }

    /// The block size the file must have before it may reach `end`.
    fn grown(&self, znode: &Znode, end: u64, record_size: u32) -> u32 {
        let info = znode.dnode.info();
        let size = znode.state.lock().phys.size;
        if info.max_blkid > 0 || size > u64::from(info.block_size) {
            return info.block_size;
        }
        grown_block_size(info.block_size, end, record_size)
    }

    /// The block size for a file that gets these contents instead of its own.
    pub(crate) fn block_size_for(&self, znode: &Znode, length: u64) -> u32 {
        self.grown(znode, length, self.os.properties().record_size)
    }

    async fn write_locked(&self, znode: &Arc<Znode>, place: Place, data: &[u8], keeper: Keeper) -> Result<usize> {
        let Place { offset, block_size, eof } = place;
        let (size, takers) = {
            let state = znode.state.lock();
            if state.freed {
                return Err(ZplError::Stale);
            }
            let phys = &state.phys;
            let rewrites = if offset < phys.size { flags::APPENDONLY } else { 0 };
            self.check_flags(phys.flags, flags::IMMUTABLE | rewrites)?;
            (phys.size, projects::takers(phys))
        };
        self.check_quotas(takers, false).await?;
        let mut data = &data[..self.os.bytes_at_once(data.len() as u64, block_size) as usize];
        match self.reserve(data.len() as u64).await {
            // What is left of a quota is less than this, but may be enough for a block.
            Err(ZplError::Zio(ZioError::Quota)) if data.len() > block_size as usize => {
                data = &data[..block_size as usize];
                self.reserve(data.len() as u64).await?;
            }
            other => other?,
        }
        let tx = self.begin_writing(offset..offset.saturating_add(data.len() as u64), block_size).await?;
        if block_size != znode.dnode.block_size() {
            znode.dnode.set_block_size(&tx, block_size).await?;
        }
        znode.touched(tx.txg());
        let long = znode.run.lock().goes_on(offset, offset.saturating_add(data.len() as u64));
        let keeper = if long { Keeper::Caller } else { keeper };
        let extent = Extent { offset, block_size, size };
        let (done, failed) = znode.bytes().write(&tx, extent, data, keeper).await;
        if done > 0 {
            let now = self.now().to_words();
            let end = offset + done as u64;
            self.touch(znode, &tx, |phys| {
                phys.size = phys.size.max(eof.unwrap_or(end));
                phys.mtime = now;
                phys.ctime = now;
                phys.flags |= flags::ARCHIVE | flags::AV_MODIFIED;
            })
            .await?;
            log::written(&tx, znode, offset, done as u64);
        }
        match failed {
            Some(error) if done == 0 => Err(error.into()),
            _ => Ok(done),
        }
    }

    /// Sets the size within `tx`; the caller holds the file's lock alone and stores the attributes afterwards.
    pub(crate) async fn resize(&self, znode: &Arc<Znode>, tx: &Tx, size: u64) -> Result<()> {
        let old = znode.state.lock().phys.size;
        if size < old {
            znode.dnode.free_range(tx, size, u64::MAX).await?;
        } else if size > old {
            let block_size = self.grown(znode, size, self.os.properties().record_size);
            if block_size != znode.dnode.block_size() {
                znode.dnode.set_block_size(tx, block_size).await?;
            }
        }
        Ok(())
    }

    /// The next data or hole at or after `offset` (`SEEK_DATA`, `SEEK_HOLE`), at block granularity. The hole behind the
    /// last block begins there, the one that every file ends with at its size.
    ///
    /// # Errors
    /// [`ZplError::NoSuchOffset`] past the end or when no data follows.
    pub async fn seek(&self, object: ObjectId, offset: u64, what: SeekFor) -> Result<u64> {
        let znode = self.file(object).await?;
        // Without the file's lock, which writers would wait for as long as it takes: what they do meanwhile is found
        // or not.
        let size = znode.state.lock().phys.size;
        if offset >= size {
            return Err(ZplError::NoSuchOffset);
        }
        let found = znode.dnode.seek(offset, what == SeekFor::Hole).await?.filter(|&found| found < size);
        match what {
            SeekFor::Data => found.ok_or(ZplError::NoSuchOffset),
            SeekFor::Hole => Ok(found.unwrap_or(size)),
        }
    }

    /// `fallocate`.
    ///
    /// # Errors
    /// [`ZplError::Invalid`] for an empty range, [`ZplError::FileTooLarge`], no space.
    pub async fn fallocate(&self, object: ObjectId, what: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.change_range(object, what, offset, length).await?;
        self.settle(object).await
    }

    async fn change_range(&self, object: ObjectId, what: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.check_writable()?;
        if length == 0 {
            return Err(ZplError::Invalid("an empty range"));
        }
        let end = checked_end(offset, length)?;
        let znode = self.file(object).await?;
        let _alone = znode.lock.write().await;
        let size = {
            let state = znode.state.lock();
            if state.freed {
                return Err(ZplError::Stale);
            }
            self.check_flags(state.phys.flags, flags::IMMUTABLE | flags::APPENDONLY)?;
            state.phys.size
        };
        let (clear, keep_size) = match what {
            Fallocate::Allocate { keep_size } => {
                self.reserve(length).await?;
                (false, keep_size)
            }
            Fallocate::PunchHole => (true, true),
            Fallocate::ZeroRange { keep_size } => (true, keep_size),
        };
        let new_size = if keep_size { size } else { size.max(end) };
        let clear = clear && offset < size;
        if new_size == size && !clear {
            return Ok(());
        }
        let tx = self.begin().await?;
        if clear {
            znode.dnode.free_range(&tx, offset, end.min(size) - offset).await?;
        }
        self.resize(&znode, &tx, new_size).await?;
        let now = self.now().to_words();
        self.touch(&znode, &tx, |phys| {
            phys.size = new_size;
            phys.mtime = now;
            phys.ctime = now;
            phys.flags |= flags::ARCHIVE | flags::AV_MODIFIED;
        })
        .await?;
        if clear {
            log::zeroed(&tx, &znode, offset, end.min(new_size) - offset);
        } else {
            log::attributes_set(&tx, &znode, &SetAttr { size: Some(new_size), ..SetAttr::default() });
        }
        Ok(())
    }

    /// The znode of a regular file.
    pub(crate) async fn file(&self, object: ObjectId) -> Result<Arc<Znode>> {
        let znode = self.znode(object).await?;
        match znode.kind() {
            FileKind::Regular => Ok(znode),
            FileKind::Directory => Err(ZplError::IsDirectory),
            _ => Err(ZplError::Invalid("not a regular file")),
        }
    }
}

/// Where data goes.
#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    /// The block size that the file has by then.
    block_size: u32,
    /// Where the file ends at least; `None`: where the data does, or where it did.
    eof: Option<u64>,
}

fn checked_end(offset: u64, length: u64) -> Result<u64> {
    offset.checked_add(length).filter(|&end| end <= SIZE_MAX).ok_or(ZplError::FileTooLarge)
}

/// The size that a single block of `block_size` bytes takes so that the file may reach `end`.
fn grown_block_size(block_size: u32, end: u64, record_size: u32) -> u32 {
    if end <= u64::from(block_size) {
        return block_size;
    }
    // A block beyond the record size (the property was lowered) still grows to a power of two: other sizes are only
    // allowed for a single block.
    let most = if block_size > record_size { block_size.next_power_of_two() } else { record_size };
    let needed = end.checked_next_multiple_of(SECTOR).and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX);
    needed.min(most).max(block_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_block_grows_with_the_file_up_to_the_record_size() {
        const RECORD: u32 = 128 << 10;
        assert_eq!(grown_block_size(512, 1, RECORD), 512);
        assert_eq!(grown_block_size(512, 513, RECORD), 1024);
        assert_eq!(grown_block_size(1024, 100_000, RECORD), 100_352);
        assert_eq!(grown_block_size(100_352, 131_073, RECORD), RECORD);
        assert_eq!(grown_block_size(512, u64::MAX, RECORD), RECORD);
        assert_eq!(grown_block_size(RECORD, 1 << 40, RECORD), RECORD);
        // The record size was lowered while the file was one block.
        assert_eq!(grown_block_size(200 << 10, 1 << 20, RECORD), 256 << 10);
        assert_eq!(grown_block_size(256 << 10, 1 << 20, RECORD), 256 << 10);
    }
}
