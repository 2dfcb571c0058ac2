//! A volume while disks misbehave and the power fails: written in pieces, cleared, made stable, destroyed, made anew;
//! its snapshots are in [`super::volume_snapshots`].
//!
//! Invariants: as of files; the volume is open while the pool is imported and its file systems are mounted.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::request::NewVolume;
use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::files::{Contents, Found, Tree};
use super::kept_volume::{CONTENTS, Held, name};
use super::story::{Pending, Story};
use crate::volume::Volume;

/// A write is done in pieces that no block's boundary divides: each is there as a whole or not at all.
const PIECE: usize = 4 << 10;
/// Longest write and longest range that is cleared, in bytes.
const WRITE_MAX: usize = 60_000;
const CLEAR_MAX: usize = 120_000;

impl Story {
    /// Makes, fills, clears or destroys the volume.
    pub(super) async fn volumes(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        let Some(random) = self.volumes.random.as_mut() else { return Ok(()) };
        let (choice, which) = (random.next_u32() % 16, random.next_u32() as usize);
        match (&self.volumes.held, choice) {
            (None, _) => self.make_volume(pool).await,
            (Some(_), 0) => self.destroy_volume(pool).await,
            (Some(_), 1) => {
                // Its log is replayed, or empty.
                self.close_volume(pool).await?;
                self.open_volume().await
            }
            (Some(_), 2 | 3) => self.take_volume_snapshot(pool).await,
            (Some(_), 4) => self.destroy_volume_snapshot(pool, which).await,
            (Some(_), 5) => self.roll_volume_back(pool).await,
            (Some(_), _) => self.work_on_volume().await,
        }
    }

    async fn make_volume(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        let random = self.volumes.random.as_mut().expect("there are volumes");
        let block_size = [4096, 8192, 16 << 10, 128 << 10][random.next_u32() as usize % 4];
        let size = block_size * (1 + random.next_u64() % (600_000 / block_size));
        let compression = ["off", "lz4", "zstd"][random.next_u32() as usize % 3];
        let asked = NewVolume { size, block_size: Some(block_size), sparse: true };
        let given = BTreeMap::from([("compression".to_owned(), compression.to_owned())]);
        self.pending = Some(Pending::VolumeMade(size as usize));
        let made = pool.dsl().create_volume(&name(), &asked, &given).await.map(drop).map_err(|error| error.to_string());
        self.pending = None;
        match made {
            Err(error) if self.crowded && error.contains("out of space") => return Ok(()),
            made => made.map_err(|error| format!("create a volume: {error}"))?,
        }
        self.volumes.held = Some(Held::new(size as usize));
        self.open_volume().await
    }

    async fn destroy_volume(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        self.destroy_volume_snapshots(pool).await?;
        self.close_volume(pool).await?;
        self.pending = Some(Pending::VolumeDestroyed);
        pool.dsl().destroy_dataset(&name()).await.map_err(|error| format!("destroy a volume: {error}"))?;
        self.pending = None;
        self.volumes.held = None;
        Ok(())
    }

    /// Opens the volume, if there is one.
    pub(super) async fn open_volume(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        if let Some(held) = &mut self.volumes.held {
            assert!(held.open.is_none(), "it is opened once");
            held.open = Some(Volume::open(&pool, &name()).await?);
        }
        Ok(())
    }

    /// Closes the volume, if there is one: all of it is stable then.
    pub(super) async fn close_volume(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        let Some(held) = &mut self.volumes.held else { return Ok(()) };
        if let Some(open) = held.open.take() {
            open.close(pool).await?;
        }
        held.files.synced();
        Ok(())
    }

    async fn work_on_volume(&mut self) -> Result<(), String> {
        let (Some(random), Some(held)) = (self.volumes.random.as_mut(), self.volumes.held.as_mut()) else {
            return Ok(());
        };
        let size = held.size();
        for _ in 0..1 + random.next_u32() % 6 {
            let offset = random.next_u64() as usize % size;
            let volume = held.open.as_ref().ok_or("the volume is not open")?;
            match random.next_u32() % 8 {
                0 => {
                    volume.fsync().await?;
                    held.files.fsynced(held.id);
                }
                1 => {
                    let length = (1 + random.next_u64() as usize % CLEAR_MAX).min(size - offset);
                    held.files.write_file(held.id, offset, &vec![0; length]);
                    refused(self.crowded, volume.clear(offset, length).await, || held.files.refuse_file(held.id))?;
                }
                _ => {
                    let length = (1 + random.next_u64() as usize % WRITE_MAX).min(size - offset);
                    let mut data = vec![0; length];
                    random.fill_bytes(&mut data);
                    let mut at = 0;
                    while at < length {
                        let position = offset + at;
                        let piece = (PIECE - position % PIECE).min(length - at);
                        held.files.write_file(held.id, position, &data[at..at + piece]);
                        let written = volume.write(position, &data[at..at + piece]).await;
                        if !refused(self.crowded, written, || held.files.refuse_file(held.id))? {
                            break;
                        }
                        self.outcome.done.written += piece as u64;
                        at += piece;
                    }
                }
            }
            self.outcome.done.operations += 1;
        }
        Ok(())
    }

    /// What the power failed in is done or not.
    pub(super) fn take_stock_of_volumes(&mut self, is_there: bool) -> Result<(), String> {
        match self.pending.take() {
            Some(Pending::VolumeMade(size)) if is_there => self.volumes.held = Some(Held::new(size)),
            Some(Pending::VolumeDestroyed) if !is_there => self.volumes.held = None,
            other => self.pending = other,
        }
        match self.volumes.held.is_some() == is_there {
            true => Ok(()),
            false => Err(format!("WRONG: whether there is a volume after the crash: {is_there}")),
        }
    }

    /// Reads the volume and compares.
    pub(super) async fn verify_volume(&mut self, crashed: bool) -> Result<(), String> {
        let Some(held) = &mut self.volumes.held else { return Ok(()) };
        let bytes = held.open.as_ref().ok_or("the volume is not open")?.read().await?;
        self.outcome.done.verified += bytes.len() as u64;
        let tree = tree(bytes);
        if let Some(perhaps) = held.perhaps.take().filter(|perhaps| perhaps.check(&tree).is_ok()) {
            held.files = perhaps;
            return Ok(());
        }
        let checked = if crashed { held.files.check_after_crash(&tree) } else { held.files.check(&tree) };
        checked.map_err(|error| format!("WRONG: the volume: {error}"))
    }
}

/// What a volume holds, as the model of files has it.
pub(super) fn tree(bytes: Vec<u8>) -> Tree {
    let contents = Contents { bytes: Arc::new(bytes), xattrs: BTreeMap::new() };
    Tree::from([(CONTENTS.to_owned(), Found::File(contents, 1))])
}

/// What a nearly full pool may refuse, which is taken back then; whether it was done.
fn refused(crowded: bool, done: Result<(), String>, back: impl FnOnce()) -> Result<bool, String> {
    match done {
        Err(error) if crowded && error.contains("out of space") => {
            back();
            Ok(false)
        }
        done => done.map(|()| true),
    }
}
