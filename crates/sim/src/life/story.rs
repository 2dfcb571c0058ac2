//! One lifetime as far as it has come: machine, pool and file systems, what is done to them, and what must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use platter_api::request::Setting;
use platter_spa::Pool;
use platter_zpl::Zpl;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::cache_disks::{self, Cached};
use super::files::Files;
use super::kept::Snapshots;
use super::kept_volume::{self, Volumes};
use super::layout::Disks;
use super::load::{Done, Mounted, size, walk};
use super::machine::{Machine, POOL};
use crate::world;
use platter_model::clock::SimClock;
use platter_model::disk::{FaultCounts, FaultKind, History, Route};

/// What a life came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// SHA-256 of everything that happened.
    pub history: String,
    /// Layout and disks.
    pub machine: String,
    /// Virtual time.
    pub seconds: u64,
    /// What was done to files.
    pub done: Done,
    /// Commands to disks.
    pub commands: u64,
    /// Faults that took effect.
    pub faults: FaultCounts,
    /// Power cuts.
    pub crashes: u64,
    /// Imports.
    pub imports: u64,
    /// Times that everything was set right.
    pub scrubs: u64,
    /// Reads that ended as reported loss, after more damage than redundancy covers.
    pub losses: u64,
    /// Ranges that disks were told to be free.
    pub trims: u64,
    /// What came of cache devices.
    pub cached: Cached,
    /// Pools that were split off.
    pub splits: u64,
    /// Times that a separate log was added.
    pub logs_added: u64,
    /// Vdevs that were added.
    pub vdevs_added: u64,
    /// Vdevs that became larger, as all their disks had.
    pub growths: u64,
    /// Times that a spare was found in the place of a disk that was away.
    pub spares_in: u64,
    /// Disks that were given up for their spares.
    pub spares_stayed: u64,
}

/// One file system: what it must hold, and its own chance.
pub(super) struct Filesystem {
    pub(super) files: Files,
    /// What it may hold as well after a crash, as a whole.
    pub(super) perhaps: Option<Files>,
    pub(super) zpl: Option<Arc<Zpl>>,
    /// Whether some of its blocks may have no checksum: damage to them is seen by nobody.
    pub(super) unchecked: bool,
    random: ChaCha20Rng,
}

/// What a data set or snapshot was about to become when the power failed.
pub(super) enum Pending {
    Created(String),
    Destroyed(String),
    /// A snapshot, which holds this.
    Taken(String, Files),
    SnapshotDestroyed(String),
    /// A file system goes back to what it held.
    RolledBack(String, Files),
    /// A clone of a snapshot, which holds this.
    Cloned(String, String, Files),
    /// The volume, of so many bytes.
    VolumeMade(usize),
    VolumeDestroyed,
    /// A snapshot of the volume, which holds this.
    VolumeTaken(String, Files),
    VolumeSnapshotDestroyed(String),
    /// The volume goes back to what it held.
    VolumeRolledBack(Files),
}

/// A pool and everything known about it.
pub(super) struct Story {
    pub(super) machine: Machine,
    pub(super) pool: Option<Arc<Pool>>,
    pub(super) filesystems: BTreeMap<String, Filesystem>,
    pub(super) random: ChaCha20Rng,
    pub(super) outcome: Outcome,
    pub(super) pending: Option<Pending>,
    made: u64,
    /// Snapshots and clones, in a life in which there are any: see [`super::snapshots`].
    pub(super) snapshots: Snapshots,
    /// The volume, in a life in which there is one.
    pub(super) volumes: Volumes,
    pub(super) terms: Terms,
    /// Whether its disks never lie: see [`super::returns`].
    pub(super) honest: bool,
    /// Whether it is nearly full all the time: see [`super::ballast`].
    pub(super) crowded: bool,
    /// The chance by which disks are replaced, in a life in which they are.
    pub(super) exchanging: Option<ChaCha20Rng>,
    /// The chance by which disks are told what is free, in a life in which they are.
    pub(super) trimming: Option<ChaCha20Rng>,
    /// The chance by which cache devices come and go, in a life in which there are any.
    pub(super) caching: Option<ChaCha20Rng>,
    /// The chance by which a separate log comes and goes, in a life in which there is one.
    pub(super) logging: Option<ChaCha20Rng>,
    /// The chance by which the pool becomes larger, in a life in which it does.
    pub(super) growing: Option<ChaCha20Rng>,
    /// The chance by which a pool of mirrors is split, in a life in which it is.
    pub(super) splitting: Option<ChaCha20Rng>,
    /// The chance by which spares come, serve and go, in a life in which there are any.
    pub(super) sparing: Option<ChaCha20Rng>,
    /// The ways to the disks of hosts that lost the pool, with the writes that had taken them by then.
    pub(super) given_up: Vec<(Arc<Route>, u64)>,
}

/// The power failed before it was done.
pub(super) struct PowerLost;

/// One life in so many is nearly full all the time, where no more than this has to be written for that.
const CROWDED_EVERY: u32 = 6;
const CROWDED_MIB_MAX: u64 = 200;
/// In one life of so many disks are replaced.
const EXCHANGING_EVERY: u32 = 2;
/// In one life of so many disks are told what is free.
const TRIMMING_EVERY: u32 = 2;

/// In one life of so many there are cache devices.
const CACHING_EVERY: u32 = 3;
/// In one life of so many there is a separate log.
const LOGGING_EVERY: u32 = 3;
/// In one life of so many the pool becomes larger.
const GROWING_EVERY: u32 = 3;
/// In one life of so many a pool of mirrors is split.
const SPLITTING_EVERY: u32 = 2;
/// In one life of so many there are hot spares.
const SPARING_EVERY: u32 = 3;
/// Where the chances begin that have a stream of their own: behind those of disks.
const STREAMS: u64 = 1 << 48;

/// A chance of its own, in one life of so many: what else happens stays what it would be.
fn own_chance(seed: u64, stream: u64, every: u32) -> Option<ChaCha20Rng> {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    random.set_stream(STREAMS + stream);
    random.next_u32().is_multiple_of(every).then_some(random)
}

/// What is left out of lives, to find out what one that goes wrong needs for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Chapters.
    pub chapters: usize,
    /// Faults that do not happen.
    pub without: Vec<FaultKind>,
    /// Whether zdb looks at the disks in the end.
    pub judged: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self { chapters: 10, without: Vec::new(), judged: false }
    }
}

impl Story {
    /// The beginning of the story of `seed`. `drill`: with what [`super::drill`] needs.
    pub(super) fn new(clock: &Arc<SimClock>, seed: u64, terms: Terms, history: Arc<History>, drill: bool) -> Self {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let growing = own_chance(seed, 1, GROWING_EVERY).filter(|_| !drill);
        let kind = match drill {
            true => Disks::Turning,
            false if growing.is_some() => Disks::Growing,
            false => Disks::Any,
        };
        let mut machine = Machine::new(clock, seed, &mut random, history, kind);
        let outcome = Outcome { machine: machine.describe(), ..Outcome::default() };
        let honest = drill || random.next_u32().is_multiple_of(3);
        let crowded =
            !drill && machine.data_mib() <= CROWDED_MIB_MAX && random.next_u32().is_multiple_of(CROWDED_EVERY);
        // To fill what has grown would take long.
        let growing = growing.filter(|_| !crowded);
        let sparing = own_chance(seed, 2, SPARING_EVERY).filter(|_| !drill);
        // A chance of its own: what else happens stays what it would be.
        let mut exchanging = ChaCha20Rng::seed_from_u64(!seed);
        let exchanging = (!drill && exchanging.next_u32().is_multiple_of(EXCHANGING_EVERY)).then_some(exchanging);
        let mut trimming = ChaCha20Rng::seed_from_u64(seed.rotate_left(32));
        let trimming = (!drill && trimming.next_u32().is_multiple_of(TRIMMING_EVERY)).then_some(trimming);
        let mut caching = own_chance(seed, 0, CACHING_EVERY).filter(|_| !drill);
        let caches = caching.as_mut().map(cache_disks::planned).unwrap_or_default();
        caches.iter().for_each(|plan| machine.plug_in_cache(plan));
        let logging = own_chance(seed, 3, LOGGING_EVERY).filter(|_| !drill);
        if logging.is_some() {
            machine.plug_in_log_disks();
        }
        let splitting = own_chance(seed, 4, SPLITTING_EVERY).filter(|_| !drill);
        let (snapshots, volumes) = (Snapshots::of(seed, !drill), Volumes::of(seed, !drill));
        let (filesystems, given_up) = (BTreeMap::new(), Vec::new());
        let (pool, pending, made) = (None, None, 0);
        Self {
            machine,
            pool,
            filesystems,
            random,
            outcome,
            pending,
            made,
            snapshots,
            volumes,
            terms,
            honest,
            crowded,
            exchanging,
            trimming,
            caching,
            logging,
            growing,
            splitting,
            sparing,
            given_up,
        }
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random.next_u64() as usize % limit.max(1)
    }

    pub(super) fn note(&self, what: &str) {
        self.machine.history.mark(format!("{} {what}", self.machine.clock.now()));
    }

    pub(super) fn may(&self, kind: FaultKind) -> bool {
        !self.terms.without.contains(&kind)
    }

    pub(super) fn pool(&self) -> Result<Arc<Pool>, String> {
        self.pool.clone().ok_or_else(|| "no pool is imported".to_owned())
    }

    /// Work on files; then time goes by.
    pub(super) async fn round(&mut self, pool: &Pool) -> Result<(), String> {
        self.work_on_files(pool).await?;
        let seconds = match self.below(4) {
            0 => 0,
            1 => self.below(20),
            2 => self.below(900),
            _ => self.below(12 * 3600),
        };
        self.machine.clock.sleep(Duration::from_secs(seconds as u64)).await;
        Ok(())
    }

    /// All file systems are worked on, side by side.
    pub(super) async fn work_on_files(&mut self, pool: &Pool) -> Result<(), String> {
        let steps = 2 + self.below(6);
        let work = self.filesystems.iter_mut().map(|(name, filesystem)| async move {
            let Filesystem { files, zpl, random, .. } = filesystem;
            let zpl = zpl.as_ref().ok_or("it is not mounted")?;
            let mut mounted = Mounted { zpl, files, random, done: Done::default() };
            for _ in 0..steps {
                mounted.step(pool).await.map_err(|error| format!("{name}: {error}"))?;
            }
            Ok(mounted.done)
        });
        let results: Vec<Result<Done, String>> = join_all(work).await;
        for done in results {
            self.outcome.done.add(&done?);
        }
        Ok(())
    }

    pub(super) async fn create_filesystem(&mut self) -> Result<(), String> {
        let compression = ["off", "lz4", "zstd", "gzip-1", "zle", "lzjb"][self.below(6)];
        let checksum = match self.below(2) {
            0 if self.honest => "off",
            _ => ["on", "sha256", "blake3", "skein", "edonr"][self.below(5)],
        };
        let recordsize = ["512", "4K", "16K", "128K", "1M"][self.below(5)];
        let copies = ["1", "1", "1", "1", "1", "1", "2", "3"][self.below(8)];
        self.create_filesystem_with(compression, checksum, recordsize, copies).await
    }

    pub(super) async fn create_filesystem_with(
        &mut self,
        compression: &str,
        checksum: &str,
        recordsize: &str,
        copies: &str,
    ) -> Result<(), String> {
        let pool = self.pool()?;
        let name = self.new_name();
        let given =
            [("compression", compression), ("checksum", checksum), ("recordsize", recordsize), ("copies", copies)];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        self.pending = Some(Pending::Created(name.clone()));
        let created = pool.dsl().create_dataset(&name, &given).await.map(|_| ());
        match created.map_err(|error| format!("create {name}: {error}")) {
            Err(error) if self.crowded && error.contains("out of space") => {
                self.pending = None;
                return Ok(());
            }
            created => created?,
        }
        self.pending = None;
        self.add_filesystem(name.clone(), Files::default(), checksum == "off");
        self.mount(&name).await
    }

    /// A name that no file system has had.
    pub(super) fn new_name(&mut self) -> String {
        self.made += 1;
        format!("{POOL}/f{}", self.made)
    }

    /// A file system is there, and holds this.
    pub(super) fn add_filesystem(&mut self, name: String, files: Files, unchecked: bool) {
        let random = ChaCha20Rng::seed_from_u64(self.random.next_u64());
        self.filesystems.insert(name, Filesystem { files, perhaps: None, zpl: None, unchecked, random });
    }

    pub(super) async fn destroy_filesystem(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        let index = self.below(self.filesystems.len());
        let name = self.filesystems.keys().nth(index).expect("there are more than one").clone();
        if !self.destroy_snapshots_of(&pool, &name).await? {
            return Ok(());
        }
        self.unmount(&name).await?;
        self.pending = Some(Pending::Destroyed(name.clone()));
        pool.dsl().destroy_dataset(&name).await.map_err(|error| format!("destroy {name}: {error}"))?;
        self.pending = None;
        self.filesystems.remove(&name);
        self.snapshots.origins.remove(&name);
        Ok(())
    }

    pub(super) async fn set_property(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        let index = self.below(self.filesystems.len());
        let name = self.filesystems.keys().nth(index).expect("there is one").clone();
        let (property, value) = [
            ("compression", "gzip"),
            ("compression", "off"),
            ("checksum", "sha512"),
            ("recordsize", "32K"),
            ("sync", "always"),
            ("sync", "standard"),
        ][self.below(6)];
        let setting = (property.to_owned(), Setting::Value(value.to_owned()));
        pool.dsl().set_dataset_properties(&name, &[setting]).await.map_err(|error| format!("set {property}: {error}"))
    }

    pub(super) async fn mount(&mut self, name: &str) -> Result<(), String> {
        let zpl = world::mount(&self.pool()?, name, self.machine.clock.clone()).await?;
        self.filesystems.get_mut(name).expect("it is known").zpl = Some(zpl);
        Ok(())
    }

    pub(super) async fn unmount(&mut self, name: &str) -> Result<(), String> {
        let pool = self.pool()?;
        let filesystem = self.filesystems.get_mut(name).expect("it is known");
        if let Some(zpl) = filesystem.zpl.take() {
            zpl.unmount().await.map_err(|error| format!("unmount {name}: {error}"))?;
        }
        pool.dsl().close_filesystem(name).await.map_err(|error| format!("close {name}: {error}"))?;
        filesystem.files.synced();
        Ok(())
    }

    pub(super) async fn export(&mut self) -> Result<(), String> {
        let names: Vec<String> = self.filesystems.keys().cloned().collect();
        for name in names {
            self.unmount(&name).await?;
        }
        let pool = self.pool()?;
        self.close_volume(&pool).await?;
        drop(pool);
        let pool = self.pool.take().ok_or("no pool is imported")?;
        self.count_cached(&pool);
        pool.export().await.map_err(|error| format!("export: {error}"))
    }

    pub(super) async fn import(&mut self) -> Result<(), String> {
        self.outcome.imports += 1;
        self.pool = Some(self.machine.import().await?);
        let names: Vec<String> = self.filesystems.keys().cloned().collect();
        for name in names {
            self.mount(&name).await?;
        }
        self.open_volume().await
    }

    /// The power fails; what comes back must be what is allowed. It may fail again on the way.
    pub(super) async fn crash(&mut self) -> Result<(), String> {
        for again in [true, true, false] {
            self.outcome.crashes += 1;
            self.filesystems.values_mut().for_each(|filesystem| filesystem.zpl = None);
            self.volumes.forget();
            let pool = self.pool.take();
            pool.iter().for_each(|pool| self.count_cached(pool));
            self.machine.power_cycle(pool).await;
            if again && self.below(3) == 0 {
                self.machine.supply.fails_after(20 + self.random.next_u64() % 300);
            }
            let supply = self.machine.supply.clone();
            let imported = tokio::select! {
                biased;
                () = supply.lost() => Err(PowerLost),
                imported = self.import_what_is_left() => Ok(imported),
            };
            match imported {
                Ok(result) if !self.machine.supply.is_out() => {
                    result?;
                    self.machine.supply.fails_after(u64::MAX);
                    return self.verify(true).await;
                }
                _ => self.note("the power failed again"),
            }
        }
        Err("the power failed without having been told to".into())
    }

    async fn import_what_is_left(&mut self) -> Result<(), String> {
        self.outcome.imports += 1;
        let pool = self.machine.import().await?;
        self.take_stock(pool).await
    }

    /// Finds the data sets of a pool that was imported after a crash, and mounts them.
    pub(super) async fn take_stock(&mut self, pool: Arc<Pool>) -> Result<(), String> {
        self.pool = Some(pool.clone());
        let reports = pool.dsl().datasets().await.map_err(|error| format!("datasets: {error}"))?;
        let mut found: BTreeSet<String> =
            reports.into_iter().map(|report| report.name).filter(|name| name != POOL).collect();
        self.take_stock_of_volumes(found.remove(&kept_volume::name()))?;
        match self.pending.take() {
            Some(Pending::Created(name)) if found.contains(&name) => {
                self.add_filesystem(name, Files::default(), self.honest);
            }
            Some(Pending::Destroyed(name)) if !found.contains(&name) => {
                self.filesystems.remove(&name);
                self.snapshots.origins.remove(&name);
            }
            other => self.pending = other,
        }
        self.take_stock_of_snapshots(&pool).await?;
        self.pending = None;
        let known: BTreeSet<String> = self.filesystems.keys().cloned().collect();
        if known != found {
            return Err(format!("data sets after the crash are {found:?} instead of {known:?}"));
        }
        for name in known {
            self.mount(&name).await?;
        }
        self.open_volume().await
    }

    /// Reads everything and compares.
    pub(super) async fn verify(&mut self, crashed: bool) -> Result<(), String> {
        for (name, filesystem) in &mut self.filesystems {
            let zpl = filesystem.zpl.as_ref().ok_or_else(|| format!("{name} is not mounted"))?;
            let tree = walk(zpl).await.map_err(|error| format!("{name}: {error}"))?;
            self.outcome.done.verified += size(&tree);
            let perhaps = filesystem.perhaps.take().filter(|perhaps| perhaps.check(&tree).is_ok());
            if let Some(perhaps) = perhaps {
                filesystem.files = perhaps;
                continue;
            }
            let checked =
                if crashed { filesystem.files.check_after_crash(&tree) } else { filesystem.files.check(&tree) };
            checked.map_err(|error| format!("WRONG: {name}: {error}"))?;
        }
        self.verify_volume(crashed).await?;
        self.verify_volume_snapshots().await?;
        self.verify_snapshots().await
    }
}
