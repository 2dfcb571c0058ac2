//! Doing again what a crash left in the intent log (`zvol_replay_vector`, `module/zfs/zvol.c`).
//!
//! Invariants:
//! - each record is done in one transaction, which notes its number: it happened wholly or not at all;
//! - a record that cannot be done keeps the volume from being opened. Nothing of the log is thrown away then.

use std::sync::atomic::Ordering;

use platter_dmu::bytes::{Extent, Keeper};
use platter_ondisk::zil::record::{Record, RecordHeader, Write, WriteData};
use platter_zil::{Note, Zil};
use platter_zio::ZioError;

use crate::error::{Result, VolumeError};
use crate::volume::{DATA, Volume};

impl Volume {
    /// Replays the claimed log, if there is one, and destroys it.
    ///
    /// # Errors
    /// A record that cannot be done, damage, unreadable blocks.
    pub(crate) async fn replay_log(&self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        if log.needs_replay() {
            self.replaying.store(true, Ordering::Relaxed);
            let done = self.replay_chain(log).await;
            self.replaying.store(false, Ordering::Relaxed);
            log.set_replaying(0);
            let records = done?;
            tracing::info!(objset = %self.os.params().id, records, "intent log replayed");
        }
        Ok(log.destroy_claimed().await?)
    }

    async fn replay_chain(&self, log: &Zil) -> Result<u64> {
        let (mut records, mut done) = (log.replay(), 0);
        while let Some((of, record)) = records.next().await? {
            assert!(self.is_replaying(), "a record that is done again would be logged again");
            self.replay_record(log, &record).await.map_err(|error| cannot(of, &record, &error))?;
            done += 1;
        }
        Ok(done)
    }

    async fn replay_record(&self, log: &Zil, record: &Record) -> Result<()> {
        match record {
            Record::Write(write) if write.object == DATA.0 => self.replay_write(log, write).await,
            Record::Truncate { object, offset, length } if *object == DATA.0 => self.clear(*offset, *length).await,
            other => {
                let what = format!("a volume's log has no record '{}' of this kind", other.type_name());
                Err(VolumeError::Zio(ZioError::Invalid(what)))
            }
        }
    }

    async fn replay_write(&self, log: &Zil, write: &Write) -> Result<()> {
        let read;
        let (offset, data) = match &write.data {
            WriteData::Inline(data) => (write.offset, data),
            WriteData::Block(bp) => {
                let (offset, data) = log.written_block(write, bp).await?;
                read = data;
                (offset, &read)
            }
        };
        // The size may have been made smaller since.
        let size = self.size();
        let fits = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        let data = &data[..fits];
        if data.is_empty() {
            return Ok(());
        }
        let tx = self.begin(offset..offset + data.len() as u64).await?;
        let extent = Extent { offset, block_size: self.block_size(), size };
        let (_, failed) = self.bytes().write(&tx, extent, data, Keeper::Nobody).await;
        if let Some(error) = failed {
            return Err(error.into());
        }
        // While the log is replayed this notes the record's number.
        log.note(&tx, [Note::Data { object: DATA.0, generation: 0, offset, length: data.len() as u64 }], &[]);
        Ok(())
    }
}

/// Why the log cannot be replayed.
fn cannot(of: RecordHeader, record: &Record, error: &VolumeError) -> VolumeError {
    VolumeError::Zio(ZioError::Invalid(format!(
        "record {} ({}) of its intent log: {error}\nImport the pool with \"-o readonly=on\" to read the state before \
         the log, or on an OpenZFS system to have it replayed there",
        of.sequence,
        record.type_name()
    )))
}
