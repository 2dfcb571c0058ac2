//! A separate log that comes and goes, of one disk or mirrored, whose devices are pulled out and taken offline, while
//! files are worked on, other disks misbehave and the power fails.
//!
//! What was made stable in the last seconds is there alone, so its disks never lie, and of a mirror one at a time is
//! away until everything is set right. What is demanded of the pool, or the life has gone wrong:
//! - nothing that was made stable is lost, and no import asks to do without the log;
//! - a log that was added is the pool's until it is removed, and no longer;
//! - when everything was set right all of it is in use.

use platter_api::report::VdevReport;
use platter_api::request::{PoolChange, VdevRequest};
use platter_model::disk::{DiskId, FaultKind, Image, Link, LinkKind, Parameters, SimDisk, Surroundings};
use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::log_disks::{Away, FIRST_PLACE, LogDisks, SIZE};
use super::machine::{Machine, report};
use super::story::Story;

/// In one stretch of work of so many something is done to the log.
const EVERY: u32 = 2;

impl Story {
    /// Perhaps does something to the log.
    pub(super) async fn change_log(&mut self, pool: &Pool) -> Result<(), String> {
        let may_disappear = self.may(FaultKind::Disappearance);
        let Some(random) = self.logging.as_mut() else { return Ok(()) };
        if !random.next_u32().is_multiple_of(EVERY) {
            return Ok(());
        }
        let (what, which) = (random.next_u32() % 8, random.next_u32() as usize);
        let machine = &mut self.machine;
        let members = machine.log.members;
        match what {
            _ if members == 0 => machine.add_log(pool, 1 + which % 2).await,
            0 => machine.remove_log(pool).await,
            1 | 2 if members == 2 && may_disappear && machine.log.away.is_none() => {
                machine.pull_log_out(which % members);
                Ok(())
            }
            3 if machine.log.away.is_none() => machine.log_offline(pool, which % members).await,
            4 | 5 => machine.bring_log_back(pool).await,
            _ => Ok(()),
        }
    }
}

impl Machine {
    /// Two disks for a log, of which the pool has none yet.
    pub(super) fn plug_in_log_disks(&mut self) {
        for number in 0..2 {
            let surroundings = Surroundings {
                links: vec![Link::new(LinkKind::Sata { megabits: 3000 })],
                history: Some(self.history.clone()),
                image: Image::default(),
                supply: Some(self.supply.clone()),
            };
            let id = DiskId((FIRST_PLACE + number) as u32);
            let disk = SimDisk::within(&self.clock, self.seed, id, Parameters::instant(SIZE), surroundings);
            self.log.disks.push(disk);
        }
        self.connect_log_disks();
    }

    /// Those that are not pulled out are there.
    pub(super) fn connect_log_disks(&self) {
        for (place, disk) in self.log.places() {
            disk.come_back();
            self.plug(place, disk);
        }
    }

    fn note_log(&self, what: &str) {
        self.history.mark(format!("{} the log {what}", self.clock.now()));
    }

    /// Adds one. A disk that was in it before has old labels, so it is forced.
    async fn add_log(&mut self, pool: &Pool, members: usize) -> Result<(), String> {
        if (0..members).any(|number| self.log.is_pulled_out(number)) {
            return Ok(());
        }
        self.note_log(&format!("is to be added, of {members}"));
        self.log.is_changing = true;
        let vdevs = vec![VdevRequest::Log((0..members).map(LogDisks::path).collect())];
        let change = PoolChange::Add { vdevs, force: true, ashift: 0, any_ashift: true, dry_run: false };
        pool.change(change).await.map_err(|error| format!("add a log: {error}"))?;
        (self.log.is_changing, self.log.members) = (false, members);
        self.log.added += 1;
        self.take_census_of_log(pool).await
    }

    /// Removes it. It may be needed: what is in it waits for a data set to be mounted.
    async fn remove_log(&mut self, pool: &Pool) -> Result<(), String> {
        let Some(log) = self.log_of(pool).await? else { return Err("WRONG: the log has gone by itself".into()) };
        self.note_log("is to be removed");
        self.log.is_changing = true;
        let device = if log.children.is_empty() { log.guid.to_string() } else { log.name };
        pool.change(PoolChange::Remove { device }).await.map_err(|error| format!("remove the log: {error}"))?;
        (self.log.is_changing, self.log.members) = (false, 0);
        if let Some((number, Away::Offline)) = self.log.away {
            self.note_log(&format!("has lost disk {number}, which was offline"));
            self.log.away = None;
        }
        self.take_census_of_log(pool).await
    }

    fn pull_log_out(&mut self, number: usize) {
        self.note_log(&format!("loses disk {number}, which is pulled out"));
        self.log.disks[number].disappear();
        self.unplug(FIRST_PLACE + number);
        self.log.away = Some((number, Away::PulledOut));
    }

    /// One disk of it goes offline, also the only one: nothing is in it alone then.
    async fn log_offline(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        let device = self.log_guid(pool, number).await?.to_string();
        self.note_log(&format!("is to do without disk {number}"));
        self.log.away = Some((number, Away::Offline));
        let done = pool.change(PoolChange::Offline { device, temporary: false }).await;
        done.map(drop).map_err(|error| format!("offline of disk {number} of the log: {error}"))
    }

    /// The disk that is away, if any, is back. Until everything is set right, it may lack something, and the other one
    /// stays.
    pub(super) async fn bring_log_back(&mut self, pool: &Pool) -> Result<(), String> {
        let Some((number, away)) = self.log.away else { return Ok(()) };
        if away == Away::PulledOut {
            self.log.disks[number].come_back();
            self.plug(FIRST_PLACE + number, &self.log.disks[number]);
            // One that is offline is there.
            self.log.away = Some((number, Away::Offline));
        }
        if number < self.log.members {
            let device = self.log_guid(pool, number).await?.to_string();
            let done = pool.change(PoolChange::Online { device, expand: false }).await;
            let state = done.map_or_else(|error| error.to_string(), |changed| changed.state.unwrap_or_default());
            self.note_log(&format!("has disk {number} back: {state}"));
        }
        Ok(())
    }

    /// All of it is in use, after the pool was looked through.
    ///
    /// # Errors
    /// Something of it is not.
    pub(super) async fn set_log_right(&mut self, pool: &Pool) -> Result<(), String> {
        self.log.away = None;
        match self.log_of(pool).await? {
            Some(log) if log.state != "ONLINE" => {
                Err(format!("the log is {} after everything was set right: {log:?}", log.state))
            }
            _ => self.take_census_of_log(pool).await,
        }
    }

    /// Looks whether the pool has the log.
    ///
    /// # Errors
    /// It has, and should not; it has not, and should.
    pub(super) async fn take_census_of_log(&mut self, pool: &Pool) -> Result<(), String> {
        let found = self.log_of(pool).await?;
        let members = found.map_or(0, |log| log.children.len().max(1));
        if !self.log.is_changing && members != self.log.members {
            return Err(format!("WRONG: the pool's log has {members} disks, and should have {}", self.log.members));
        }
        (self.log.members, self.log.is_changing) = (members, false);
        Ok(())
    }

    async fn log_of(&self, pool: &Pool) -> Result<Option<VdevReport>, String> {
        Ok(report(pool).await?.vdevs.children.into_iter().find(|top| top.is_log))
    }

    async fn log_guid(&self, pool: &Pool, number: usize) -> Result<u64, String> {
        let log = self.log_of(pool).await?.ok_or("WRONG: the log has gone by itself")?;
        let path = LogDisks::path(number);
        let leaves = if log.children.is_empty() { vec![log] } else { log.children };
        let leaf = leaves.into_iter().find(|leaf| leaf.path.as_deref() == path.to_str());
        leaf.map(|leaf| leaf.guid).ok_or_else(|| format!("WRONG: disk {number} is no longer in the log"))
    }
}
