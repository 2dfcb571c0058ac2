//! Reading, writing and clearing.

use platter_buffer::Buf;
use platter_dmu::Tx;
use platter_dmu::bytes::{Extent, Keeper};
use platter_ondisk::zil::record::Record;
use platter_zil::Note;
use platter_zio::ZioError;

use crate::error::{Result, VolumeError};
use crate::volume::{DATA, SeekFor, Volume};

/// Most bytes written in one transaction.
const WRITE_MAX: usize = 32 << 20;

impl Volume {
    /// Up to `length` bytes from `offset`, as pieces of cached blocks; fewer at the end. `keeper` says whether the
    /// reader keeps what it gets.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn read(&self, offset: u64, length: u64, keeper: Keeper) -> Result<Vec<Buf>> {
        let _range = self.ranges.lock(offset, offset.saturating_add(length), false).await;
        let size = self.size();
        let end = offset.saturating_add(length).min(size);
        if offset >= end {
            return Ok(Vec::new());
        }
        Ok(self.bytes().read(offset..end, size, keeper).await?)
    }

    /// Writes `data` at `offset` and returns the bytes written: fewer at the end of the volume, and where an error came
    /// after some of them.
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`], [`VolumeError::BehindEnd`]; no space, damage.
    pub async fn write(&self, offset: u64, data: &[u8], keeper: Keeper) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..data.len().min(done + WRITE_MAX)];
            match self.write_some(offset.saturating_add(done as u64), rest, keeper).await {
                Ok(written) => done += written,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes in one transaction.
    async fn write_some(&self, offset: u64, data: &[u8], keeper: Keeper) -> Result<usize> {
        self.check_writable()?;
        let (block_size, end) = (self.block_size(), offset.saturating_add(data.len() as u64));
        let unit = u64::from(block_size);
        // Whole blocks: a part of one is written together with its rest.
        let locked_to = end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        let _range = self.ranges.lock(offset / unit * unit, locked_to, true).await;
        let size = self.size();
        if offset >= size {
            return Err(VolumeError::BehindEnd);
        }
        let fits = usize::try_from(size - offset).unwrap_or(usize::MAX).min(data.len());
        let mut data = &data[..self.os.bytes_at_once(fits as u64, block_size) as usize];
        match self.reserve(data.len() as u64).await {
            // What is left of a quota is less than this, but may be enough for a block.
            Err(VolumeError::Zio(ZioError::Quota)) if data.len() > block_size as usize => {
                data = &data[..block_size as usize];
                self.reserve(data.len() as u64).await?;
            }
            other => other?,
        }
        let end = offset + data.len() as u64;
        let tx = self.begin(offset..end).await?;
        let long = self.run.lock().goes_on(offset, end);
        let keeper = if long { Keeper::Caller } else { keeper };
        let (done, failed) = self.bytes().write(&tx, Extent { offset, block_size, size }, data, keeper).await;
        if done > 0 {
            self.note(&tx, Note::Data { object: DATA.0, generation: 0, offset, length: done as u64 });
        }
        match failed {
            Some(error) if done == 0 => Err(error.into()),
            _ => Ok(done),
        }
    }

    /// Makes `length` bytes from `offset` zeros, as far as there are any, and frees whole blocks among them.
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`]; a partly cleared block that is damaged; the pool stopped.
    pub async fn clear(&self, offset: u64, length: u64) -> Result<()> {
        self.check_writable()?;
        let unit = u64::from(self.block_size());
        let locked_to = offset.saturating_add(length).checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        let _range = self.ranges.lock(offset / unit * unit, locked_to, true).await;
        let end = offset.saturating_add(length).min(self.size());
        if offset >= end {
            return Ok(());
        }
        // A block at either end may have to be written; whatever lies between takes nothing.
        let parts = [offset, end].into_iter().filter(|at| !at.is_multiple_of(unit)).count() as u64;
        let tx = self.begin(0..parts * unit).await?;
        if let Err(error) = self.dnode.free_range(&tx, offset, end - offset).await {
            // Some of it may be cleared.
            if let Some(log) = self.log.as_ref().filter(|_| !self.is_replaying()) {
                log.note_unlogged(&tx, &[]);
            }
            return Err(error.into());
        }
        let length = end - offset;
        self.note(&tx, Note::Object(DATA.0, Record::Truncate { object: DATA.0, offset, length }));
        Ok(())
    }

    /// The next data or hole at or after `offset`, at block granularity; a hole begins at the end.
    ///
    /// # Errors
    /// [`VolumeError::NoSuchOffset`] behind the end or when no data follows; damage.
    pub async fn seek(&self, offset: u64, what: SeekFor) -> Result<u64> {
        let size = self.size();
        if offset >= size {
            return Err(VolumeError::NoSuchOffset);
        }
        let found = self.dnode.seek(offset, what == SeekFor::Hole).await?.filter(|&found| found < size);
        match what {
            SeekFor::Data => found.ok_or(VolumeError::NoSuchOffset),
            SeekFor::Hole => Ok(found.unwrap_or(size)),
        }
    }

    /// Tells the log of a change in `tx`; while the log is replayed that notes how far it is.
    fn note(&self, tx: &Tx, note: Note) {
        if let Some(log) = &self.log {
            log.note(tx, [note], &[]);
        }
    }
}
