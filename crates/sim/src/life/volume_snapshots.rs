//! Snapshots of the volume: each holds to the end what the volume held when it was taken, and the volume goes back to
//! the latest.
//!
//! Invariants: as of file systems' snapshots; each has a name of its own, and is destroyed before the volume is.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_spa::Pool;

use super::files::Files;
use super::kept_volume::name;
use super::snapshots::{destroy, take, unless_full};
use super::story::{Pending, Story};
use super::volumes::tree;
use crate::volume;

/// Most of them at a time.
const SNAPSHOTS_MAX: usize = 3;

impl Story {
    /// Takes one.
    pub(super) async fn take_volume_snapshot(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        let Some(held) = self.volumes.held.as_ref().filter(|held| held.snapshots.len() < SNAPSHOTS_MAX) else {
            return Ok(());
        };
        self.snapshots.made += 1;
        let full = format!("{}@v{:06}", name(), self.snapshots.made);
        let mut files = held.files.clone();
        files.synced();
        self.pending = Some(Pending::VolumeTaken(full.clone(), files.clone()));
        let done = take(pool, &full, self.crowded).await?;
        self.pending = None;
        if done {
            self.volume_snapshot_is_there(full, files);
        }
        Ok(())
    }

    /// It has all that was done before, and it is on disk.
    fn volume_snapshot_is_there(&mut self, full: String, files: Files) {
        if let Some(held) = &mut self.volumes.held {
            held.files.synced();
            let before = held.snapshots.insert(full, files);
            assert!(before.is_none(), "each has a name of its own");
        }
    }

    /// Destroys one of them: the one after `which`, in turn.
    pub(super) async fn destroy_volume_snapshot(&mut self, pool: &Arc<Pool>, which: usize) -> Result<(), String> {
        let Some(held) = &self.volumes.held else { return Ok(()) };
        let Some(full) = held.snapshots.keys().nth(which % held.snapshots.len().max(1)).cloned() else {
            return Ok(());
        };
        self.pending = Some(Pending::VolumeSnapshotDestroyed(full.clone()));
        destroy(pool, &full).await?;
        self.pending = None;
        if let Some(held) = &mut self.volumes.held {
            held.snapshots.remove(&full);
        }
        Ok(())
    }

    /// Destroys all of them.
    pub(super) async fn destroy_volume_snapshots(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        while self.volumes.held.as_ref().is_some_and(|held| !held.snapshots.is_empty()) {
            self.destroy_volume_snapshot(pool, 0).await?;
        }
        Ok(())
    }

    /// Goes back to the latest.
    pub(super) async fn roll_volume_back(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        let Some((full, files)) = self.volumes.held.as_ref().and_then(|held| held.snapshots.last_key_value()) else {
            return Ok(());
        };
        let (full, files) = (full.clone(), files.clone());
        let own = full.split_once('@').expect("it has a name of its own").1;
        self.close_volume(pool).await?;
        self.pending = Some(Pending::VolumeRolledBack(files.clone()));
        let done = pool.dsl().rollback_dataset(&name(), own).await.map_err(|error| format!("rollback {full}: {error}"));
        let done = unless_full(done, self.crowded)?;
        self.pending = None;
        if let Some(held) = self.volumes.held.as_mut().filter(|_| done) {
            held.files = files;
        }
        self.open_volume().await
    }

    /// What the power failed in is done or not. Takes those of the volume out of the snapshots that were found.
    pub(super) fn take_stock_of_volume_snapshots(&mut self, found: &mut BTreeSet<String>) -> Result<(), String> {
        let is_its = |full: &String| full.split('@').next() == Some(&name());
        let (its, others): (BTreeSet<String>, BTreeSet<String>) = std::mem::take(found).into_iter().partition(is_its);
        *found = others;
        match self.pending.take() {
            Some(Pending::VolumeTaken(full, files)) if its.contains(&full) => {
                self.volume_snapshot_is_there(full, files);
            }
            Some(Pending::VolumeSnapshotDestroyed(full)) if !its.contains(&full) => {
                self.volumes.held.as_mut().map(|held| held.snapshots.remove(&full));
            }
            Some(Pending::VolumeRolledBack(files)) => {
                self.volumes.held.as_mut().map(|held| held.perhaps.replace(files));
            }
            other => self.pending = other,
        }
        let known: BTreeSet<String> =
            self.volumes.held.iter().flat_map(|held| held.snapshots.keys().cloned()).collect();
        match known == its {
            true => Ok(()),
            false => Err(format!("WRONG: the volume's snapshots after the crash are {its:?} instead of {known:?}")),
        }
    }

    /// Reads each of them and compares.
    pub(super) async fn verify_volume_snapshots(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        let Some(held) = &self.volumes.held else { return Ok(()) };
        for (full, files) in &held.snapshots {
            let bytes = volume::read_snapshot(&pool, full).await.map_err(|error| format!("WRONG: {full}: {error}"))?;
            self.outcome.done.verified += bytes.len() as u64;
            files.check(&tree(bytes)).map_err(|error| format!("WRONG: {full}: {error}"))?;
        }
        Ok(())
    }
}
