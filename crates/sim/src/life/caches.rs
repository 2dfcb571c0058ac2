//! Cache devices that lie, forget, hang, are pulled out, come back with what they held long ago, are removed and added,
//! while files are worked on, other disks are away and the power fails.
//!
//! What is demanded of the pool, or the life has gone wrong:
//! - whatever a cache device returns, no file is wrong, and no command that it is not about fails;
//! - one that was added is the pool's until it is removed, and no longer, whatever fails meanwhile;
//! - when everything was set right all of them are in use.

use platter_api::request::{PoolChange, VdevRequest};
use platter_model::disk::{DiskId, FaultKind, FaultPlan, Image, Link, LinkKind, SimDisk, Surroundings};
use platter_spa::Pool;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::cache_disks::{CacheDisk, CachePlan, Cached, FIRST_PLACE};
use super::machine::{Machine, report};
use super::story::Story;
use crate::world::SimDevices;

/// In one stretch of work of so many something is done to a cache device.
const EVERY: u32 = 2;

impl Story {
    /// Perhaps does something to a cache device.
    pub(super) async fn change_caches(&mut self, pool: &Pool) -> Result<(), String> {
        let may_disappear = self.may(FaultKind::Disappearance);
        let Some(random) = self.caching.as_mut() else { return Ok(()) };
        if !random.next_u32().is_multiple_of(EVERY) {
            return Ok(());
        }
        let (what, which) = (random.next_u32() % 12, random.next_u64() as usize);
        let number = which % self.machine.caches.len();
        let machine = &mut self.machine;
        let is_member = machine.caches[number].is_member;
        match what {
            0..3 if may_disappear => machine.pull_cache_out(number),
            3..6 if may_disappear => machine.bring_cache_back(pool, number, what, which).await,
            6 | 7 => machine.caches[number].copy = Some(machine.caches[number].disk.stable_image()),
            8 if is_member => {
                let device = machine.caches[number].guid.to_string();
                let done = pool.change(PoolChange::Offline { device, temporary: false }).await;
                done.map_err(|error| format!("offline of cache device {number}: {error}"))?;
                machine.note_cache(number, "is offline");
            }
            9 if is_member => machine.cache_online(pool, number).await,
            10 if is_member => machine.remove_cache(pool, number).await?,
            _ if !is_member => machine.add_cache(pool, number).await?,
            _ => {}
        }
        Ok(())
    }

    /// Lets cache devices misbehave, also in a life whose disks never lie.
    pub(super) fn caches_misbehave(&mut self) {
        if let Some(random) = self.caching.as_mut() {
            self.machine.caches_misbehave(random, &self.terms.without);
        }
    }

    /// Counts what came of the cache devices of a pool that is being left.
    pub(super) fn count_cached(&mut self, pool: &Pool) {
        self.outcome.cached.add(&Cached::of(pool));
    }
}

impl Machine {
    /// Plugs in a cache device, without anything on it, or as the pool is to be made with.
    pub(super) fn plug_in_cache(&mut self, plan: &CachePlan) {
        let number = FIRST_PLACE + self.caches.len();
        let surroundings = Surroundings {
            links: vec![Link::new(LinkKind::Sata { megabits: 3000 })],
            history: Some(self.history.clone()),
            image: Image::default(),
            supply: Some(self.supply.clone()),
        };
        let disk = SimDisk::within(&self.clock, self.seed, DiskId(number as u32), plan.parameters, surroundings);
        let is_member = plan.from_the_beginning;
        self.caches.push(CacheDisk { disk, place: number, guid: 0, is_member, is_changing: false, copy: None });
        self.connect_cache(self.caches.len() - 1);
    }

    fn connect_cache(&self, number: usize) {
        let CacheDisk { disk, place, .. } = &self.caches[number];
        self.plug(*place, disk);
    }

    /// What the pool is made with.
    pub(super) fn caches_from_the_beginning(&self) -> Option<VdevRequest> {
        let places = self.caches.iter().filter(|cache| cache.is_member).map(|cache| SimDevices::path(cache.place));
        let places: Vec<_> = places.collect();
        (!places.is_empty()).then_some(VdevRequest::Cache(places))
    }

    fn note_cache(&self, number: usize, what: &str) {
        self.history.mark(format!("{} cache device {number} {what}", self.clock.now()));
    }

    fn caches_misbehave(&self, random: &mut ChaCha20Rng, without: &[FaultKind]) {
        for cache in &self.caches {
            // Some are as good as new.
            let scale = [0, 1, 1, 6][random.next_u32() as usize % 4];
            let mut rate = |most: u32| match random.next_u32() % 3 * scale {
                0 => 0,
                _ => scale * (most / 2 + random.next_u32() % most),
            };
            let plan = FaultPlan {
                torn_write: rate(10),
                lost_write: rate(10),
                misdirected_write: rate(10),
                misdirected_read: rate(20),
                lying_flush: rate(6),
                bit_rot: rate(10),
                latent_sector_error: rate(60),
                slow: rate(40),
                hang: rate(80),
                host_full: rate(60),
            };
            cache.disk.set_plan(without.iter().fold(plan, |plan, kind| plan.without(*kind)));
        }
    }

    /// The power of all cache devices fails.
    pub(super) fn cut_power_of_caches(&self) {
        self.caches.iter().for_each(|cache| cache.disk.power_cut());
    }

    /// All cache devices are there, with power.
    pub(super) fn put_caches_back(&self) {
        for (number, cache) in self.caches.iter().enumerate() {
            cache.disk.come_back();
            self.connect_cache(number);
        }
    }

    fn pull_cache_out(&mut self, number: usize) {
        let cache = &self.caches[number];
        if cache.disk.is_present() {
            cache.disk.disappear();
            self.unplug(cache.place);
            self.note_cache(number, "is pulled out");
        }
    }

    /// A cache device is there again: with what it held, with what it held at another time, with what another one
    /// holds, or with nothing.
    async fn bring_cache_back(&mut self, pool: &Pool, number: usize, what: u32, which: usize) {
        self.pull_cache_out(number);
        let other = (number + 1) % self.caches.len();
        let contents = match which / self.caches.len() % 4 {
            0 => self.caches[number].copy.take(),
            1 => self.caches[other].copy.clone().or_else(|| Some(self.caches[other].disk.stable_image())),
            2 if what == 3 => Some(Image::default()),
            _ => None,
        };
        let how = if contents.is_some() { "is back, with other contents" } else { "is back" };
        if let Some(image) = contents {
            self.caches[number].disk.set_image(image);
        }
        self.caches[number].disk.come_back();
        self.connect_cache(number);
        self.note_cache(number, how);
        if self.caches[number].is_member {
            self.cache_online(pool, number).await;
        }
    }

    async fn cache_online(&self, pool: &Pool, number: usize) {
        let device = self.caches[number].guid.to_string();
        let done = pool.change(PoolChange::Online { device, expand: false }).await;
        let state = done.map_or_else(|error| error.to_string(), |changed| changed.state.unwrap_or_default());
        self.note_cache(number, &format!("online: {state}"));
    }

    /// Removes a cache device, which always can be done.
    async fn remove_cache(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        self.note_cache(number, "is to be removed");
        self.caches[number].is_changing = true;
        let change = PoolChange::Remove { device: self.caches[number].guid.to_string() };
        pool.change(change).await.map_err(|error| format!("remove cache device {number}: {error}"))?;
        (self.caches[number].is_changing, self.caches[number].is_member) = (false, false);
        self.take_census_of_caches(pool).await
    }

    /// Adds a cache device, which may refuse to be labelled.
    async fn add_cache(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        self.caches[number].is_changing = true;
        let vdevs = vec![VdevRequest::Cache(vec![SimDevices::path(self.caches[number].place)])];
        let change = PoolChange::Add { vdevs, force: true, ashift: 0, any_ashift: true, dry_run: false };
        let added = pool.change(change).await.map(drop).map_err(|error| error.to_string());
        self.note_cache(number, &format!("is added: {added:?}"));
        if added.is_ok() {
            (self.caches[number].is_changing, self.caches[number].is_member) = (false, true);
        }
        self.take_census_of_caches(pool).await
    }

    /// Finds out what the pool calls its cache devices.
    ///
    /// # Errors
    /// One is not the pool's that was, or the other way round.
    pub(super) async fn take_census_of_caches(&mut self, pool: &Pool) -> Result<(), String> {
        if self.caches.is_empty() {
            return Ok(());
        }
        let listed = report(pool).await?.caches;
        for (number, cache) in self.caches.iter_mut().enumerate() {
            let path = SimDevices::path(cache.place);
            let found = listed.iter().find(|shown| shown.path.as_deref() == path.to_str());
            let is_member = found.is_some();
            if !cache.is_changing && is_member != cache.is_member {
                return Err(format!("WRONG: whether cache device {number} is the pool's: {is_member}"));
            }
            (cache.is_member, cache.is_changing) = (is_member, false);
            cache.guid = found.map_or(0, |shown| shown.guid);
        }
        Ok(())
    }

    /// All cache devices behave, and those of the pool are in use. One whose labels say nothing any more is removed and
    /// added again, as its owner would.
    ///
    /// # Errors
    /// One is not in use.
    pub(super) async fn set_caches_right(&mut self, pool: &Pool) -> Result<(), String> {
        for number in 0..self.caches.len() {
            let disk = &self.caches[number].disk;
            disk.set_plan(FaultPlan::default());
            disk.release();
            disk.make_readable();
            if !disk.is_present() {
                disk.come_back();
                self.connect_cache(number);
            }
            if !self.caches[number].is_member {
                continue;
            }
            self.cache_online(pool, number).await;
            if self.state_of_cache(pool, number).await? != "ONLINE" {
                self.remove_cache(pool, number).await?;
                self.add_cache(pool, number).await?;
                let state = self.state_of_cache(pool, number).await?;
                if state != "ONLINE" {
                    return Err(format!("cache device {number} is {state} after everything was set right"));
                }
            }
        }
        Ok(())
    }

    async fn state_of_cache(&self, pool: &Pool, number: usize) -> Result<String, String> {
        let listed = report(pool).await?.caches;
        let found = listed.into_iter().find(|shown| shown.guid == self.caches[number].guid);
        Ok(found.map_or_else(|| "not listed".to_owned(), |shown| shown.state))
    }
}
