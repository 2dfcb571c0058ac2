//! The machine a pool lives on: its disks, their power and their faults; how a pool comes and goes.
//!
//! Invariant: of each top-level vdev, no more disks misbehave than redundancy covers, and these remain the same ones
//! until everything has been set right.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::{Detail, VdevReport};
use platter_api::request::{CreateRequest, ImportRequest, PoolChange, VdevRequest};
use platter_hooks::Cpu;
use platter_ondisk::label::VDEV_LABEL_SIZE;
use platter_spa::{Environment, HostId, Pool};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::cache_disks::{self, CacheDisk};
use super::layout::{self, DISK_SIZE, Disks, Group};
use super::log_disks::LogDisks;
use crate::world::{self, SimDevices};
use platter_model::clock::SimClock;
use platter_model::cpu::{SimCpu, Speeds};
use platter_model::disk::{
    DiskId, FaultCounts, FaultKind, FaultPlan, History, Image, Link, LinkKind, Mechanism, Parameters, PowerSupply,
    Route, SimDisk, Surroundings,
};

/// So often what was given up meanwhile is brought back.
const GIVEN_UP_MAX: usize = 3;

/// Name of the pool.
pub const POOL: &str = "tank";
/// A disk that takes another's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) old: usize,
    pub(super) new: usize,
    /// Whether the pool said that it had joined.
    pub(super) joined: bool,
}

/// A disk that is a hot spare, or was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spare {
    pub(super) disk: usize,
    /// Whether it is one of the pool's spares, as far as the pool said.
    pub(super) is_listed: bool,
    /// Whether it is being added or removed, or a disk is given up for it: if the power fails then, it may be either.
    pub(super) is_changing: bool,
    /// Whether somebody put it where it is, so that somebody has to take it away.
    pub(super) by_hand: bool,
}

/// See the module text.
pub struct Machine {
    /// The clock.
    pub clock: Arc<SimClock>,
    /// What happened.
    pub history: Arc<History>,
    /// The disks.
    pub disks: Vec<SimDisk>,
    /// How they are arranged.
    pub groups: Vec<Group>,
    /// The power.
    pub supply: Arc<PowerSupply>,
    /// Disks that may misbehave at present.
    pub victims: Vec<usize>,
    /// Which disk is at which place: plugged in otherwise, a disk has another path.
    pub(super) places: Vec<usize>,
    /// The disks' guids in the pool: what they are called wherever they are. 0 for one that was never in it.
    pub(super) guids: Vec<u64>,
    /// How large they are at present, bytes.
    pub(super) sizes: Vec<u64>,
    /// Their first labels as they were when they joined the pool: which pool's and which disk each is.
    pub(super) labels: Vec<Vec<u8>>,
    /// Disks that are taking others' places.
    pub(super) exchanges: Vec<Exchange>,
    /// Its spares, which are disks too.
    pub(super) spares: Vec<Spare>,
    /// How many of them stayed in others' places.
    pub(super) spares_stayed: u64,
    /// A vdev that is being added: if the power fails then, it may be there or not.
    pub(super) adding: Option<Group>,
    /// Its cache devices, which are none of the disks.
    pub(super) caches: Vec<CacheDisk>,
    /// Its separate log, if it has one.
    pub(super) log: LogDisks,
    /// How many disks it had in the beginning.
    first: usize,
    /// Disks that do not belong to the pool: one without anything, one of another pool.
    strangers: Vec<SimDisk>,
    devices: Arc<SimDevices>,
    /// The way of the host that has the pool to the disks.
    pub(super) route: Arc<Route>,
    /// Which host that is.
    host: u64,
    pub(super) seed: u64,
    imports: u64,
    ashift: u64,
}

impl Machine {
    /// A machine with empty disks, as the seed has it.
    pub(super) fn new(
        clock: &Arc<SimClock>,
        seed: u64,
        random: &mut ChaCha20Rng,
        history: Arc<History>,
        kind: Disks,
    ) -> Self {
        let groups = layout::groups(random);
        let parameters = layout::parameters(random, kind);
        let supply = Arc::new(PowerSupply::default());
        let bus = Link::new(LinkKind::Pcie { generation: 2, lanes: 4, payload: 256 });
        let (devices, route) = (Arc::new(SimDevices::default()), Route::new(Duration::ZERO));
        let mut disks = Vec::new();
        for number in 0..groups.iter().map(|group| group.disks.len()).sum() {
            let surroundings = Surroundings {
                links: vec![Link::new(LinkKind::Sata { megabits: 3000 }), bus.clone()],
                history: Some(history.clone()),
                image: Image::default(),
                supply: Some(supply.clone()),
            };
            let disk = SimDisk::within(clock, seed, DiskId(number as u32), parameters, surroundings);
            disk.resize(DISK_SIZE);
            devices.insert(number, route.to(Arc::new(disk.clone())));
            disks.push(disk);
        }
        let ashift = [9, 9, 9, 12, 12, 13][random.next_u32() as usize % 6];
        let (clock, victims, places) = (clock.clone(), Vec::new(), (0..disks.len()).collect());
        let (guids, labels, strangers, exchanges, adding) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), None);
        let (first, caches, sizes) = (disks.len(), Vec::new(), vec![DISK_SIZE; disks.len()]);
        Self {
            clock,
            history,
            disks,
            groups,
            supply,
            victims,
            places,
            guids,
            sizes,
            labels,
            exchanges,
            spares: Vec::new(),
            spares_stayed: 0,
            adding,
            caches,
            log: LogDisks::default(),
            first,
            strangers,
            devices,
            route,
            host: 0,
            seed,
            imports: 0,
            ashift,
        }
    }

    /// Makes every command of all disks take so much longer.
    pub(super) fn slow_down(&self, time: Duration) {
        self.disks.iter().for_each(|disk| disk.set_slow(time));
    }

    /// How many disks were added to it.
    pub(super) fn new_disks(&self) -> usize {
        self.disks.len() - self.first
    }

    /// Plugs in another disk like the first, as large as that may grow, without anything on it. Returns its number.
    pub(super) fn add_disk(&mut self) -> usize {
        let number = self.disks.len();
        let surroundings = Surroundings {
            links: vec![Link::new(LinkKind::Sata { megabits: 3000 })],
            history: Some(self.history.clone()),
            image: Image::default(),
            supply: Some(self.supply.clone()),
        };
        let parameters = self.disks[0].parameters();
        self.disks.push(SimDisk::within(&self.clock, self.seed, DiskId(number as u32), parameters, surroundings));
        self.places.push(number);
        self.guids.push(0);
        self.sizes.push(parameters.size);
        self.labels.push(Vec::new());
        self.plug_in(number);
        number
    }

    /// What it is, for a person.
    pub fn describe(&self) -> String {
        let group = |group: &Group| match group.parity {
            0 => format!("mirror of {}", group.disks.len()),
            parity => format!("raidz{parity} of {}", group.disks.len()),
        };
        let groups: Vec<String> = self.groups.iter().map(group).collect();
        let mechanism = match self.disks[0].parameters().mechanism {
            Mechanism::Instant => "disks without time",
            Mechanism::Spinning(_) => "disks that turn",
            Mechanism::Flash(_) => "flash",
        };
        format!("{}, {mechanism}, ashift {}", groups.join(" + "), self.ashift)
    }

    /// Makes the pool.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn create(&mut self) -> Result<Arc<Pool>, String> {
        let vdevs = self.groups.iter().map(|group| {
            let children: Vec<PathBuf> = group.disks.iter().map(|&disk| SimDevices::path(disk)).collect();
            match group.parity {
                0 => VdevRequest::Mirror(children),
                parity => VdevRequest::Raidz { parity, children },
            }
        });
        let request = CreateRequest {
            name: POOL.into(),
            vdevs: vdevs.chain(self.caches_from_the_beginning()).collect(),
            pool_properties: [("ashift".to_owned(), self.ashift.to_string())].into(),
            history: "zpool create".into(),
            ..CreateRequest::default()
        };
        let environment = self.environment(self.seed);
        let pool = Pool::create(environment, request).await.map_err(|error| format!("create: {error}"))?;
        let report = report(&pool).await?;
        let guid = |number| {
            find(&report.vdevs, &|vdev| vdev.path.as_deref().map(Path::new) == Some(&SimDevices::path(number)))
        };
        self.guids = (0..self.disks.len()).filter_map(guid).map(|vdev| vdev.guid).collect();
        self.groups.iter_mut().zip(&report.vdevs.children).for_each(|(group, top)| group.size = top.size);
        pool.sync().await.map_err(|error| format!("sync: {error}"))?;
        self.labels = self.disks.iter().map(label).collect();
        self.take_census_of_caches(&pool).await?;
        self.make_strangers().await?;
        Ok(pool)
    }

    /// Makes the disks that belong to nobody and to somebody else. These have no time.
    async fn make_strangers(&mut self) -> Result<(), String> {
        for number in [1000, 1001] {
            let parameters = Parameters::instant(DISK_SIZE);
            self.strangers.push(SimDisk::new(&self.clock, self.seed, DiskId(number), parameters));
        }
        let other = Arc::new(SimDevices::default());
        other.insert(0, Arc::new(self.strangers[1].clone()));
        let environment = world::environment(self.seed ^ 1, other, self.clock.clone());
        let vdevs = vec![VdevRequest::Leaf(SimDevices::path(0))];
        let request = CreateRequest { name: "other".into(), vdevs, ..CreateRequest::default() };
        let pool = Pool::create(environment, request).await.map_err(|error| format!("create another pool: {error}"))?;
        pool.export().await.map_err(|error| format!("export the other pool: {error}"))
    }

    /// Puts a disk that is none of the pool's where `number`, which is pulled out, was; brings that one online, and
    /// looks what was done to the stranger.
    ///
    /// # Errors
    /// It was taken.
    pub async fn visit(&self, pool: &Pool, number: usize, random: &mut ChaCha20Rng) -> Result<(), String> {
        let stranger = &self.strangers[random.next_u32() as usize % self.strangers.len()];
        let before = stranger.traffic();
        self.devices.insert(self.places[number], Arc::new(stranger.connect()));
        // How it is refused is of no interest, and whether another victim hangs meanwhile.
        let _ = self.online(pool, number).await;
        self.clock.sleep(Duration::from_secs(20)).await;
        self.devices.remove(self.places[number]);
        if stranger.traffic().writes != before.writes {
            return Err(format!("WRONG: a disk of somebody else's at the place of disk {number} was written to"));
        }
        match self.is_missed(pool, number).await? {
            false if !self.is_replaced(number) => {
                Err(format!("WRONG: disk {number} is online, and somebody else's is at its place"))
            }
            _ => Ok(()),
        }
    }

    /// Two disks are plugged in again, each where the other was.
    pub fn exchange(&mut self, one: usize, other: usize) {
        let there = [one, other].map(|number| (number, self.devices.is_there(self.places[number])));
        there.iter().for_each(|&(number, _)| self.devices.remove(self.places[number]));
        self.places.swap(one, other);
        for (number, _) in there.iter().filter(|(_, is_there)| *is_there) {
            self.plug_in(*number);
        }
    }

    pub(super) fn environment(&self, seed: u64) -> Environment {
        let mut environment = world::environment(seed, self.devices.clone(), self.clock.clone());
        environment.host = Arc::new(HostId { id: environment.hostid() + self.host, is_derived: false });
        if self.disks[0].parameters().mechanism != Mechanism::Instant {
            environment.cpu = Cpu::metered(SimCpu::new(&self.clock, 4, Speeds::USUAL));
        }
        if !self.caches.is_empty() {
            environment.cache_bytes = cache_disks::MEMORY;
        }
        environment
    }

    /// Imports the pool.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn import(&mut self) -> Result<Arc<Pool>, String> {
        self.import_as(false).await
    }

    /// Imports the pool, with `-f` if `force`: another host had it.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn import_as(&mut self, force: bool) -> Result<Arc<Pool>, String> {
        self.imports += 1;
        let request = ImportRequest {
            pool: POOL.into(),
            force,
            search: vec![PathBuf::from(world::FOLDER)],
            history: "zpool import".into(),
            ..ImportRequest::default()
        };
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(self.imports);
        let environment = self.environment(seed);
        let pool = Pool::import(environment, request).await.map_err(|error| format!("import: {error}"))?;
        let mut absent = Vec::new();
        unusable(&report(&pool).await?.vdevs, &mut absent);
        self.history.mark(format!("{} imported, without [{}]", self.clock.now(), absent.join(", ")));
        self.take_census_of_vdevs(&pool).await?;
        self.take_census(&pool).await?;
        self.take_census_of_spares(&pool).await?;
        self.take_census_of_caches(&pool).await?;
        self.take_census_of_log(&pool).await?;
        Ok(pool)
    }

    /// The power fails, for all disks at once, and comes back.
    pub async fn power_cycle(&mut self, pool: Option<Arc<Pool>>) {
        for disk in &self.disks {
            disk.power_cut();
        }
        self.cut_power_of_caches();
        self.log.disks().for_each(SimDisk::power_cut);
        if let Some(pool) = pool {
            // The engine that was running is to notice that it is dead, as a machine without power would be.
            pool.stop("the power failed");
        }
        // Also one that was still importing: it finds none of the disks any more.
        self.devices.clear();
        self.devices = Arc::new(SimDevices::default());
        self.clock.sleep(Duration::from_secs(30)).await;
        self.supply.fails_after(u64::MAX);
        for number in 0..self.disks.len() {
            self.put_back(number);
        }
        self.put_caches_back();
        self.connect_log_disks();
    }

    fn plug_in(&self, number: usize) {
        self.plug(self.places[number], &self.disks[number]);
    }

    /// Something is plugged in at a place.
    pub(super) fn plug(&self, place: usize, disk: &SimDisk) {
        self.devices.insert(place, self.route.to(Arc::new(disk.connect())));
    }

    /// Nothing is plugged in at a place any more.
    pub(super) fn unplug(&self, place: usize) {
        self.devices.remove(place);
    }

    /// Another host gets all disks that are there, by a way of its own; what happens to the machine from now on happens
    /// to it. Returns the way of the one before.
    pub fn change_hosts(&mut self) -> Arc<Route> {
        self.host += 1;
        let before = std::mem::replace(&mut self.devices, Arc::new(SimDevices::default()));
        let route = std::mem::replace(&mut self.route, Route::new(Duration::ZERO));
        (0..self.disks.len()).filter(|&number| before.is_there(self.places[number])).for_each(|n| self.plug_in(n));
        let caches = self.caches.iter().filter(|cache| before.is_there(cache.place));
        caches.for_each(|cache| self.plug(cache.place, &cache.disk));
        self.connect_log_disks();
        route
    }

    /// MiB of data that fit on it, about.
    pub fn data_mib(&self) -> u64 {
        let data = |group: &Group| match group.parity {
            0 => 1,
            parity => group.disks.len() as u64 - u64::from(parity),
        };
        self.groups.iter().map(data).sum::<u64>() * (DISK_SIZE >> 20)
    }

    /// A disk is there (again), with power.
    pub fn put_back(&self, number: usize) {
        self.disks[number].come_back();
        self.plug_in(number);
    }

    /// A disk is pulled out.
    pub fn pull_out(&self, number: usize) {
        self.disks[number].disappear();
        self.devices.remove(self.places[number]);
    }

    /// All disks are unplugged and plugged in again, each somewhere else; but for spares, which are looked for where
    /// they were. No pool may be imported.
    pub fn swap_places(&mut self, random: &mut ChaCha20Rng) {
        let spares = self.listed_spares();
        let movable: Vec<usize> = (0..self.places.len()).filter(|number| !spares.contains(number)).collect();
        for last in (1..movable.len()).rev() {
            self.places.swap(movable[last], movable[random.next_u32() as usize % (last + 1)]);
        }
        for number in 0..self.disks.len() {
            self.plug_in(number);
        }
    }

    /// Chooses who may misbehave from now on. Everything must have been set right.
    pub fn choose_victims(&mut self, random: &mut ChaCha20Rng) {
        self.victims.clear();
        for group in &self.groups {
            let mut disks = group.disks.clone();
            for _ in 0..group.spare {
                self.victims.push(disks.swap_remove(random.next_u32() as usize % disks.len()));
            }
        }
        self.assert_within_redundancy();
    }

    /// No more disks of a top-level vdev may misbehave than it can do without.
    pub(super) fn assert_within_redundancy(&self) {
        for group in &self.groups {
            let victims = group.disks.iter().filter(|disk| self.victims.contains(disk)).count();
            assert!(victims <= group.spare && group.spare < group.disks.len(), "{:?} of {group:?}", self.victims);
        }
    }

    /// Lets the victims misbehave, but not in the ways of `without`.
    pub fn misbehave(&self, random: &mut ChaCha20Rng, without: &[FaultKind]) {
        for &victim in &self.victims {
            let mut rate = |most: u32| match random.next_u32() % 4 {
                0 => 0,
                _ => most / 2 + random.next_u32() % most,
            };
            let plan = FaultPlan {
                torn_write: rate(60),
                lost_write: rate(60),
                misdirected_write: rate(60),
                misdirected_read: rate(30),
                lying_flush: rate(6),
                bit_rot: rate(80),
                latent_sector_error: rate(100),
                slow: rate(120),
                hang: rate(150),
                host_full: rate(200),
            };
            self.disks[victim].set_plan(without.iter().fold(plan, |plan, kind| plan.without(*kind)));
        }
    }

    /// All disks behave.
    pub fn behave(&self) {
        for (disk, &size) in self.disks.iter().zip(&self.sizes) {
            disk.set_plan(FaultPlan::default());
            disk.set_full(false);
            disk.resize(size);
            disk.release();
        }
    }

    /// Brings a disk online.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn online(&self, pool: &Pool, number: usize) -> Result<(), String> {
        let device = self.guids[number].to_string();
        let done = pool.change(PoolChange::Online { device, expand: false }).await;
        let outcome =
            done.as_ref().map_or_else(|error| error.to_string(), |done| done.state.clone().unwrap_or_default());
        self.history.mark(format!("{} disk {number} online: {outcome}", self.clock.now()));
        done.map(|_| ()).map_err(|error| format!("online: {error}"))
    }

    /// Takes a disk offline.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn offline(&self, pool: &Pool, number: usize) -> Result<(), String> {
        let change = PoolChange::Offline { device: self.guids[number].to_string(), temporary: false };
        let done = pool.change(change).await.map(|_| ()).map_err(|error| format!("offline: {error}"));
        self.history.mark(format!("{} disk {number} offline: {done:?}", self.clock.now()));
        done
    }

    /// All disks behave and are in use; what they missed is resilvered.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn bring_everything_back(&mut self, pool: &Pool) -> Result<(), String> {
        self.behave();
        pool.clear(None).await.map_err(|error| format!("clear: {error}"))?;
        for victim in self.victims.clone() {
            if self.is_missed(pool, victim).await? {
                self.online(pool, victim).await?;
            }
        }
        for victim in self.victims.clone() {
            // All four labels are damaged, or have too many bad sectors to be read (those remap when they are written):
            // nobody but the administrator can tell whose disk it is. What has an old label only is taken for the disk
            // only where the disk was: it may be a backup of it.
            if self.is_missed(pool, victim).await? {
                self.put_in_place(pool, victim).await?;
                self.history.mark(format!("{} disk {victim} gets a label back", self.clock.now()));
                self.disks[victim].restore(0, &self.labels[victim]);
                self.online(pool, victim).await?;
            }
        }
        pool.scrub_wait().await.map_err(|error| format!("resilver: {error}"))?;
        self.let_the_old_leave(pool).await?;
        self.let_the_spares_go(pool).await
    }

    /// Repairs everything, with all disks there and behaving: what every victim missed or lost is written again.
    ///
    /// # Errors
    /// What the engine said; something is left damaged.
    pub async fn set_right(&mut self, pool: &Pool) -> Result<(), String> {
        // One whose labels cannot be read any more is given up when something else fails there, too: the first scrub
        // may find that out.
        self.bring_log_back(pool).await?;
        for _ in 0..GIVEN_UP_MAX {
            self.bring_everything_back(pool).await?;
            self.scrub(pool, false).await?;
            if self.not_in_use(pool).await?.is_none() {
                break;
            }
        }
        self.scrub(pool, true).await?;
        if let Some((number, state)) = self.not_in_use(pool).await? {
            let report = report(pool).await?;
            let mut why = Vec::new();
            unusable(&report.vdevs, &mut why);
            let action = report.action.unwrap_or_default();
            let why = why.join(", ");
            return Err(format!("disk {number} is {state} after everything was set right: {why}\n{action}"));
        }
        self.set_caches_right(pool).await?;
        self.set_log_right(pool).await?;
        // No scrub reads the parts of labels and the free space where these may lie; others fail from now on.
        self.disks.iter().for_each(SimDisk::make_readable);
        self.victims.clear();
        Ok(())
    }

    /// Scrubs; after the `last` one nothing may be left to be repaired.
    async fn scrub(&self, pool: &Pool, last: bool) -> Result<(), String> {
        pool.scrub_start().await.map_err(|error| format!("scrub: {error}"))?;
        pool.scrub_wait().await.map_err(|error| format!("scrub: {error}"))?;
        let report = report(pool).await?;
        if report.error_count > 0 || report.scan.errors > 0 {
            return Err(format!("a scrub found {} errors: {:?}", report.scan.errors, report.errors));
        }
        if last && report.scan.repaired > 0 {
            return Err(format!("a second scrub still had {} bytes to repair", report.scan.repaired));
        }
        Ok(())
    }

    /// A disk of the pool that is not in use, with its state.
    async fn not_in_use(&self, pool: &Pool) -> Result<Option<(usize, String)>, String> {
        for number in self.members() {
            let state = self.state_of(pool, number).await?;
            if state != "ONLINE" {
                return Ok(Some((number, state)));
            }
        }
        Ok(None)
    }

    /// Puts a disk where the pool looks for it.
    async fn put_in_place(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        let path = self.leaf_of(pool, number).await?.path.unwrap_or_default();
        let there = (0..self.disks.len()).find(|&other| SimDevices::path(self.places[other]) == Path::new(&path));
        if let Some(there) = there.filter(|there| *there != number) {
            self.history.mark(format!("{} disks {number} and {there} change places", self.clock.now()));
            self.exchange(number, there);
        }
        Ok(())
    }

    /// Whether a disk is not in use and should be: one that was replaced may leave at any moment.
    async fn is_missed(&self, pool: &Pool, number: usize) -> Result<bool, String> {
        match self.leaf_of(pool, number).await {
            Err(_) if self.is_replaced(number) => Ok(false),
            leaf => Ok(leaf?.state != "ONLINE"),
        }
    }

    async fn state_of(&self, pool: &Pool, number: usize) -> Result<String, String> {
        Ok(self.leaf_of(pool, number).await?.state)
    }

    /// Whether a device is the disk, by where it is.
    pub(super) fn is_at(&self, number: usize) -> impl Fn(&VdevReport) -> bool + use<> {
        let path = SimDevices::path(self.places[number]);
        move |vdev| vdev.path.as_deref().map(Path::new) == Some(&*path)
    }

    async fn leaf_of(&self, pool: &Pool, number: usize) -> Result<VdevReport, String> {
        let report = report(pool).await?;
        let found = find(&report.vdevs, &|vdev| vdev.guid == self.guids[number] && vdev.children.is_empty());
        found.cloned().ok_or_else(|| format!("disk {number} is no longer in the pool"))
    }

    /// Faults of all disks.
    pub fn fault_counts(&self) -> FaultCounts {
        let mut all = FaultCounts::default();
        self.all_disks().for_each(|disk| all.add(&disk.fault_counts()));
        all
    }

    /// Disks, cache devices, and those of the log.
    fn all_disks(&self) -> impl Iterator<Item = &SimDisk> {
        self.disks.iter().chain(self.caches.iter().map(|cache| &cache.disk)).chain(self.log.disks())
    }

    /// Ranges that disks were told to be free.
    pub fn trims(&self) -> u64 {
        self.all_disks().map(|disk| disk.traffic().trims).sum()
    }

    /// Reads, writes and flushes of all disks.
    pub fn commands(&self) -> u64 {
        let of = |disk: &SimDisk| {
            let traffic = disk.traffic();
            traffic.reads + traffic.writes + traffic.flushes
        };
        self.all_disks().map(of).sum()
    }
}

/// A disk's first label.
pub(super) fn label(disk: &SimDisk) -> Vec<u8> {
    let mut bytes = vec![0; VDEV_LABEL_SIZE as usize];
    disk.image().read_at(0, &mut bytes);
    bytes
}

/// Devices that are not in use, each with its state.
fn unusable(report: &VdevReport, found: &mut Vec<String>) {
    if let Some(path) = report.path.as_ref().filter(|_| report.state != "ONLINE") {
        found.push(format!("{path} {} {}", report.state, report.note.as_deref().unwrap_or_default()));
    }
    report.children.iter().for_each(|child| unusable(child, found));
}

pub(super) fn find<'a>(report: &'a VdevReport, is_meant: &dyn Fn(&VdevReport) -> bool) -> Option<&'a VdevReport> {
    if is_meant(report) {
        return Some(report);
    }
    report.children.iter().find_map(|child| find(child, is_meant))
}

/// The pool's report with its errors.
///
/// # Errors
/// What the engine said.
pub async fn report(pool: &Pool) -> Result<platter_api::report::PoolReport, String> {
    pool.report(Detail { errors: true, extended: false }).await.map_err(|error| format!("report: {error}"))
}
