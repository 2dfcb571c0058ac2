//! Snapshots, clones and bookmarks while disks misbehave and the power fails: each snapshot holds to the end what its
//! file system held when it was taken, and each clone goes on from there.
//!
//! Invariants: the model knows of an attempt before the engine does, as of files; the snapshot that something is a
//! clone of is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_spa::Pool;
use platter_zpl::{MountOptions, UnlimitedSpace, Zpl};
use rand_chacha::rand_core::RngCore;

use super::files::Files;
use super::load::{size, walk};
use super::story::{Pending, Story};

/// In one stretch of work of so many something is done.
const EVERY: u32 = 2;
/// Most snapshots at a time, each of which is read as a whole again and again.
const SNAPSHOTS_MAX: usize = 6;
/// Most file systems, clones among them.
const FILESYSTEMS_MAX: usize = 4;

/// What a nearly full pool may refuse.
pub(super) fn unless_full(done: Result<(), String>, crowded: bool) -> Result<bool, String> {
    match done {
        Err(error) if crowded && error.contains("out of space") => Ok(false),
        done => done.map(|()| true),
    }
}

/// Takes a snapshot; whether it is there, or the pool is too full for it.
pub(super) async fn take(pool: &Pool, full: &str, crowded: bool) -> Result<bool, String> {
    let refused = pool.dsl().take_snapshots(&[full.to_owned()], &BTreeMap::new()).await;
    let done = match refused.map_err(|error| error.to_string()) {
        Ok(refused) => refused.into_iter().next().map_or(Ok(()), |(_, reason)| Err(reason.to_string())),
        Err(error) => Err(error),
    };
    unless_full(done.map_err(|error| format!("snapshot {full}: {error}")), crowded)
}

/// Destroys a snapshot.
pub(super) async fn destroy(pool: &Pool, full: &str) -> Result<(), String> {
    let refused = pool.dsl().destroy_snapshots(&[full.to_owned()], false).await;
    let refused = refused.map_err(|error| format!("destroy {full}: {error}"))?;
    match refused.first() {
        Some((_, reason)) => Err(format!("destroy {full}: {reason}")),
        None => Ok(()),
    }
}

impl Story {
    /// Perhaps takes, destroys, clones or bookmarks a snapshot, or goes back to one.
    pub(super) async fn snapshots(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        let Some(random) = self.snapshots.random.as_mut() else { return Ok(()) };
        if !random.next_u32().is_multiple_of(EVERY) {
            return Ok(());
        }
        let (what, which) = (random.next_u32() % 10, random.next_u64() as usize);
        match what {
            0..4 => self.take_snapshot(pool, which).await,
            4..6 => self.destroy_snapshot(pool, which).await,
            6 => self.roll_back(pool, which).await,
            7 => self.clone_snapshot(pool, which).await,
            _ => self.bookmark(pool, which).await,
        }
    }

    fn some_snapshot(&self, which: usize) -> Option<String> {
        let all: Vec<&String> = self.snapshots.taken.keys().collect();
        all.get(which % all.len().max(1)).map(|full| (*full).clone())
    }

    async fn take_snapshot(&mut self, pool: &Arc<Pool>, which: usize) -> Result<(), String> {
        if self.snapshots.taken.len() >= SNAPSHOTS_MAX {
            return Ok(());
        }
        let name = self.filesystems.keys().nth(which % self.filesystems.len()).expect("there is one").clone();
        self.snapshots.made += 1;
        let full = format!("{name}@s{}", self.snapshots.made);
        let mut held = self.filesystems[&name].files.clone();
        held.synced();
        self.pending = Some(Pending::Taken(full.clone(), held.clone()));
        let done = take(pool, &full, self.crowded).await;
        self.pending = None;
        if done? {
            // It has all that was done before, and it is on disk.
            self.filesystems.get_mut(&name).expect("it is there").files.synced();
            self.snapshots.taken.insert(full, held);
        }
        Ok(())
    }

    async fn destroy_snapshot(&mut self, pool: &Arc<Pool>, which: usize) -> Result<(), String> {
        let Some(full) = self.some_snapshot(which).filter(|full| !self.snapshots.is_cloned(full)) else {
            return Ok(());
        };
        self.destroy_this(pool, &full).await
    }

    async fn destroy_this(&mut self, pool: &Arc<Pool>, full: &str) -> Result<(), String> {
        self.pending = Some(Pending::SnapshotDestroyed(full.to_owned()));
        destroy(pool, full).await?;
        self.pending = None;
        self.snapshots.taken.remove(full);
        Ok(())
    }

    /// Destroys the snapshots of a file system that is to go; whether none is left.
    pub(super) async fn destroy_snapshots_of(&mut self, pool: &Arc<Pool>, name: &str) -> Result<bool, String> {
        let all = self.snapshots.of_dataset(name);
        if all.iter().any(|full| self.snapshots.is_cloned(full)) {
            return Ok(false);
        }
        for full in all {
            self.destroy_this(pool, &full).await?;
        }
        Ok(true)
    }

    async fn roll_back(&mut self, pool: &Arc<Pool>, which: usize) -> Result<(), String> {
        let Some(name) = self.some_snapshot(which).and_then(|full| Some(full.split_once('@')?.0.to_owned())) else {
            return Ok(());
        };
        // Numbers grow: the latest has the greatest.
        let number = |full: &String| full.rsplit_once("@s").and_then(|(_, number)| number.parse::<u64>().ok());
        let Some(full) = self.snapshots.of_dataset(&name).into_iter().max_by_key(number) else { return Ok(()) };
        let own = full.split_once('@').expect("it has a name of its own").1.to_owned();
        self.unmount(&name).await?;
        let held = self.snapshots.taken[&full].clone();
        self.pending = Some(Pending::RolledBack(name.clone(), held.clone()));
        let done = pool.dsl().rollback_dataset(&name, &own).await.map_err(|error| format!("rollback {full}: {error}"));
        let done = unless_full(done, self.crowded)?;
        self.pending = None;
        if done {
            self.filesystems.get_mut(&name).expect("it is there").files = held;
        }
        self.mount(&name).await
    }

    async fn clone_snapshot(&mut self, pool: &Arc<Pool>, which: usize) -> Result<(), String> {
        let Some(full) = self.some_snapshot(which).filter(|_| self.filesystems.len() < FILESYSTEMS_MAX) else {
            return Ok(());
        };
        let name = self.new_name();
        let held = self.snapshots.taken[&full].clone();
        self.pending = Some(Pending::Cloned(name.clone(), full.clone(), held.clone()));
        let done = pool.dsl().clone_snapshot(&full, &name, &BTreeMap::new()).await;
        let done = unless_full(done.map_err(|error| format!("clone {full}: {error}")), self.crowded)?;
        self.pending = None;
        if !done {
            return Ok(());
        }
        self.add_clone(name.clone(), full, held);
        self.mount(&name).await
    }

    fn add_clone(&mut self, name: String, origin: String, held: Files) {
        let unchecked =
            origin.split('@').next().is_some_and(|of| self.filesystems.get(of).is_none_or(|of| of.unchecked));
        assert!(self.snapshots.taken.contains_key(&origin), "a clone's origin is there as long as it is");
        self.add_filesystem(name.clone(), held, unchecked);
        self.snapshots.origins.insert(name, origin);
    }

    /// Bookmarks hold nothing; what they follow is booked beside the files' blocks.
    async fn bookmark(&mut self, pool: &Arc<Pool>, which: usize) -> Result<(), String> {
        let dsl = pool.dsl();
        let reports = dsl.bookmark_reports(None).await.map_err(|error| format!("bookmarks: {error}"))?;
        if let Some(report) = reports.get(which % 8) {
            return dsl.destroy_bookmark(&report.name).await.map_err(|error| format!("destroy a bookmark: {error}"));
        }
        let Some(full) = self.some_snapshot(which) else { return Ok(()) };
        self.snapshots.made += 1;
        let name = format!("{}#b{}", full.split('@').next().unwrap_or_default(), self.snapshots.made);
        let done = dsl.create_bookmark(&full, &name).await.map_err(|error| format!("bookmark {full}: {error}"));
        unless_full(done, self.crowded).map(drop)
    }

    /// What the power failed in is done or not; snapshots are all that there should be.
    pub(super) async fn take_stock_of_snapshots(&mut self, pool: &Arc<Pool>) -> Result<(), String> {
        let reports = pool.dsl().snapshots(None).await.map_err(|error| format!("snapshots: {error}"))?;
        let mut found: BTreeSet<String> = reports.into_iter().map(|report| report.name).collect();
        self.take_stock_of_volume_snapshots(&mut found)?;
        match self.pending.take() {
            Some(Pending::Taken(full, held)) if found.contains(&full) => {
                let name = full.split('@').next().unwrap_or_default();
                if let Some(filesystem) = self.filesystems.get_mut(name) {
                    filesystem.files.synced();
                }
                self.snapshots.taken.insert(full, held);
            }
            Some(Pending::SnapshotDestroyed(full)) if !found.contains(&full) => {
                self.snapshots.taken.remove(&full);
            }
            Some(Pending::RolledBack(name, held)) => {
                if let Some(filesystem) = self.filesystems.get_mut(&name) {
                    filesystem.perhaps = Some(held);
                }
            }
            Some(Pending::Cloned(name, full, held)) if pool.dsl().find(&name).is_ok() => {
                self.add_clone(name, full, held);
            }
            other => self.pending = other,
        }
        let known: BTreeSet<String> = self.snapshots.taken.keys().cloned().collect();
        match known == found {
            true => Ok(()),
            false => Err(format!("snapshots after the crash are {found:?} instead of {known:?}")),
        }
    }

    /// Reads every snapshot and compares.
    pub(super) async fn verify_snapshots(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        for (full, held) in &self.snapshots.taken {
            let os = pool.dsl().open_snapshot(full).await.map_err(|error| format!("WRONG: {full}: {error}"))?;
            let clock = self.machine.clock.clone();
            let zpl = Zpl::mount(os, MountOptions::default(), clock, Arc::new(UnlimitedSpace)).await;
            let zpl = zpl.map_err(|error| format!("{full}: {error}"))?;
            let tree = walk(&zpl).await.map_err(|error| format!("{full}: {error}"))?;
            self.outcome.done.verified += size(&tree);
            held.check(&tree).map_err(|error| format!("WRONG: {full}: {error}"))?;
        }
        Ok(())
    }
}
