//! Property `multihost` in a life: the pool's host loses sight of its disks for a while, and another one looks at them,
//! or takes the pool.
//!
//! What is demanded of the engine, or the life has gone wrong:
//! - while a host writes its heartbeat, no other one gets the pool; one that was cut off for longer than the limit
//!   writes nothing until it has looked;
//! - who has lost its pool writes nothing any more, as long as it lives.

use std::sync::Arc;
use std::time::Duration;

use platter_api::request::ImportRequest;
use platter_spa::{HostId, Pool};

use super::story::Story;
use crate::world::{self, SimDevices};
use platter_model::disk::Route;

/// A heartbeat may stall for so long, in milliseconds: with the pause before it that is less than the limit.
const SHORT_MAX: usize = 6_000;
/// After so long without a heartbeat a host may not write any more.
const LIMIT: Duration = Duration::from_secs(10);

impl Story {
    /// Lets all disks behave, and the host's way to them be blocked.
    pub(super) async fn heartbeat_stalls(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        self.machine.behave();
        pool.set_property("multihost", "on").await.map_err(|error| error.to_string())?;
        pool.sync().await.map_err(|error| format!("sync: {error}"))?;
        self.machine.clock.sleep(Duration::from_secs(3)).await;
        // Of what was written now, some waits for its group.
        self.work_on_files(&pool).await?;
        match self.below(3) {
            0 => self.stall(&pool).await?,
            1 => self.cut_off(&pool).await?,
            _ => self.lose_the_pool(pool.clone()).await?,
        }
        drop(pool);
        let pool = self.pool()?;
        pool.set_property("multihost", "off").await.map_err(|error| error.to_string())?;
        self.verify(false).await
    }

    /// For less than the limit; meanwhile another host looks.
    async fn stall(&mut self, pool: &Pool) -> Result<(), String> {
        let length = Duration::from_millis(self.below(SHORT_MAX) as u64);
        self.note(&format!("no heartbeat for {length:?}"));
        let (route, clock) = (self.machine.route.clone(), self.machine.clock.clone());
        let stalling = async {
            route.stall();
            clock.sleep(length).await;
            route.open();
        };
        let ((), taken) = tokio::join!(stalling, self.machine.look_from_elsewhere());
        if taken {
            return Err("WRONG: another host got a pool that is in use".into());
        }
        if pool.is_suspended() {
            return Err(format!("the pool is suspended after a stall of {length:?}"));
        }
        Ok(())
    }

    /// For more than the limit, and nobody comes.
    async fn cut_off(&mut self, pool: &Pool) -> Result<(), String> {
        let length = LIMIT * 2 + Duration::from_millis(self.below(60_000) as u64);
        self.note(&format!("cut off for {length:?}"));
        self.machine.route.cut();
        self.machine.clock.sleep(length).await;
        self.machine.route.open();
        self.machine.clock.sleep(LIMIT).await;
        if !pool.is_suspended() {
            return Err(format!("WRONG: the pool goes on after {length:?} without a heartbeat"));
        }
        pool.clear(None).await.map_err(|error| format!("clear: {error}"))?;
        pool.sync().await.map_err(|error| format!("sync: {error}"))
    }

    /// Another host takes the pool while the first one is cut off; which then sees its disks again.
    async fn lose_the_pool(&mut self, pool: Arc<Pool>) -> Result<(), String> {
        self.note("cut off, and another host takes the pool");
        self.machine.route.cut();
        // What the disks had been asked before comes to its end: a slow one takes two seconds.
        self.machine.clock.sleep(Duration::from_secs(3)).await;
        let route = self.machine.change_hosts();
        let before = route.writes();
        self.outcome.imports += 1;
        let taken = self.machine.import_as(true).await?;
        route.open();
        let pause = LIMIT + Duration::from_millis(self.below(60_000) as u64);
        self.machine.clock.sleep(pause).await;
        if pool.clear(None).await.is_ok() {
            return Err("WRONG: a host resumed a pool that another one has".into());
        }
        self.filesystems.values_mut().for_each(|filesystem| filesystem.zpl = None);
        self.volumes.forget();
        self.count_cached(&pool);
        pool.stop("another host has it");
        drop(pool);
        self.given_up.push((route, before));
        self.take_stock(taken).await?;
        self.verify(true).await?;
        self.nobody_wrote_who_had_given_up()
    }

    /// Hosts that lost the pool are quiet.
    pub(super) fn nobody_wrote_who_had_given_up(&self) -> Result<(), String> {
        match self.given_up.iter().find(|(route, before)| route.writes() != *before) {
            Some((route, before)) => {
                let more = route.writes() - before;
                Err(format!("WRONG: a host that had lost the pool wrote {more} times"))
            }
            None => Ok(()),
        }
    }
}

impl super::machine::Machine {
    /// Whether a host that is none of the pool's gets it with `-f`.
    async fn look_from_elsewhere(&self) -> bool {
        let devices = Arc::new(SimDevices::default());
        let route = Route::new(Duration::ZERO);
        for (number, disk) in self.disks.iter().enumerate().filter(|(_, disk)| disk.is_present()) {
            devices.insert(number, route.to(Arc::new(disk.connect())));
        }
        for (place, disk) in self.log.places() {
            devices.insert(place, route.to(Arc::new(disk.connect())));
        }
        let mut environment = world::environment(self.clock.now(), devices, self.clock.clone());
        environment.host = Arc::new(HostId { id: 0xbad, is_derived: false });
        let search = vec![world::FOLDER.into()];
        let request = ImportRequest { pool: super::machine::POOL.into(), search, force: true, ..Default::default() };
        Pool::import(environment, request).await.is_ok()
    }
}
