//! Hot spares: they stand in for disks that go away, by themselves or by hand, and are free again or stay, while files
//! are worked on, other disks are away and the power fails.
//!
//! What is demanded of the pool, or the life has gone wrong:
//! - a spare that was added is listed until it is removed or stays in another disk's place, whatever fails meanwhile;
//! - when everything was set right no spare is in use: one that came by itself has gone by itself.
//!
//! A spare stands in for a disk that may misbehave, and belongs to what redundancy does without; yet its own faults are
//! those of honest disks, so that its labels can be told from what they were.

use std::time::Duration;

use platter_api::report::{PoolReport, VdevReport};
use platter_api::request::{PoolChange, VdevRequest};
use platter_model::disk::{FaultKind, FaultPlan};
use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::machine::{Machine, Spare, find, label, report};
use super::story::Story;
use crate::world::SimDevices;

/// In one stretch of work of so many something is done with spares.
const EVERY: u32 = 2;
/// Most spares that are listed at a time, and that there are in a life.
const LISTED_MAX: usize = 2;
const DISKS_MAX: usize = 4;
/// Longest wait for a spare to stand in, in seconds: the pool has some patience with disks that are away.
const WAIT_MAX: usize = 60;
/// Longest time that a spare may take to be free when it is not needed any more.
const FREE_WITHIN: Duration = Duration::from_secs(600);
/// After so long the pool has seen that a disk came or went.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// Whether a spare is part of a vdev.
fn stands_in(report: &PoolReport, guid: u64) -> bool {
    find(&report.vdevs, &|vdev| vdev.guid == guid).is_some()
}

impl Story {
    /// Perhaps adds or removes a spare, or lets one stand in, go or stay.
    pub(super) async fn change_spares(&mut self, pool: &Pool) -> Result<(), String> {
        let Some(random) = self.sparing.as_mut() else { return Ok(()) };
        if !random.next_u32().is_multiple_of(EVERY) {
            return Ok(());
        }
        let (what, which) = (random.next_u32() % 10, random.next_u64() as usize);
        let listed = self.machine.listed_spares();
        let Some(&spare) = listed.get(which % listed.len().max(1)) else { return self.machine.add_spare(pool).await };
        match what {
            0 if listed.len() < LISTED_MAX => self.machine.add_spare(pool).await,
            1 => self.machine.remove_spare(pool, spare).await,
            2 => self.machine.let_stand_in(pool, spare, which).await,
            3 => self.machine.take_out_spare(pool, spare).await,
            _ => self.serve(pool, spare, which).await,
        }
    }

    /// A disk goes away, and a spare stands in for it; then it comes back, or the spare stays.
    async fn serve(&mut self, pool: &Pool, spare: usize, which: usize) -> Result<(), String> {
        let victims: Vec<usize> =
            self.machine.victims.iter().copied().filter(|victim| !self.machine.is_replaced(*victim)).collect();
        let Some(&victim) = victims.get(which % victims.len().max(1)) else { return Ok(()) };
        if !self.may(FaultKind::Disappearance) {
            return self.machine.let_stand_in(pool, spare, which).await;
        }
        self.machine.pull_out(victim);
        let seconds = self.spare_chance(WAIT_MAX) as u64;
        self.machine.clock.sleep(Duration::from_secs(seconds)).await;
        self.work_on_files(pool).await?;
        let shown = report(pool).await?;
        let serving = listed_in(&self.machine, &shown);
        self.outcome.spares_in += serving.len() as u64;
        self.note(&format!("disk {victim} is away, spares {serving:?} stand in"));
        if let Some(&first) = serving.first()
            && self.spare_chance(4) == 0
        {
            self.machine.pull_out(first);
            self.round(pool).await?;
            self.machine.put_back(first);
        }
        if self.spare_chance(3) == 0 {
            self.machine.let_stay(pool, victim).await?;
        }
        if self.spare_chance(2) == 0 {
            self.round(pool).await?;
        }
        self.machine.put_back(victim);
        if self.machine.victims.contains(&victim) && self.spare_chance(2) == 0 {
            // Or the pool sees it by itself.
            let _ = self.machine.online(pool, victim).await;
        }
        self.round(pool).await
    }

    fn spare_chance(&mut self, limit: usize) -> usize {
        let random = self.sparing.as_mut().expect("only asked where there are spares");
        random.next_u64() as usize % limit
    }

    /// Lets spares be slow, hang or refuse what they are given.
    pub(super) fn spares_misbehave(&mut self) {
        let Some(random) = self.sparing.as_mut() else { return };
        for number in self.machine.listed_spares() {
            let mut rate = |most: u32| random.next_u32() % 2 * (most / 2 + random.next_u32() % most);
            let plan = FaultPlan { slow: rate(120), hang: rate(150), host_full: rate(200), ..FaultPlan::default() };
            self.machine.disks[number].set_plan(self.terms.without.iter().fold(plan, |plan, kind| plan.without(*kind)));
        }
    }
}

/// The spares that stand in for others.
fn listed_in(machine: &Machine, shown: &PoolReport) -> Vec<usize> {
    machine.listed_spares().into_iter().filter(|&number| stands_in(shown, machine.guids[number])).collect()
}

impl Machine {
    /// The disks that are spares, in the order in which they were added.
    pub(super) fn listed_spares(&self) -> Vec<usize> {
        self.spares.iter().filter(|spare| spare.is_listed).map(|spare| spare.disk).collect()
    }

    fn spare(&mut self, number: usize) -> &mut Spare {
        self.spares.iter_mut().find(|spare| spare.disk == number).expect("it is a spare")
    }

    /// `zpool add` of a spare: of one that was removed, or of a new disk.
    async fn add_spare(&mut self, pool: &Pool) -> Result<(), String> {
        let number = match self.spares.iter().find(|spare| !spare.is_listed) {
            Some(spare) => spare.disk,
            None if self.spares.len() >= DISKS_MAX => return Ok(()),
            None => {
                let disk = self.add_disk();
                self.spares.push(Spare { disk, is_listed: false, is_changing: false, by_hand: false });
                disk
            }
        };
        self.list_spare(pool, number).await
    }

    async fn list_spare(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        self.spare(number).is_changing = true;
        // It is called as before if its label can be read, and otherwise anew: it is known by its place.
        self.guids[number] = 0;
        let vdevs = vec![VdevRequest::Spare(vec![SimDevices::path(self.places[number])])];
        let change = PoolChange::Add { vdevs, force: true, ashift: 0, any_ashift: true, dry_run: false };
        let added = pool.change(change).await.map(drop).map_err(|error| error.to_string());
        self.history.mark(format!("{} disk {number} is added as a spare: {added:?}", self.clock.now()));
        if added.is_ok() {
            (self.spare(number).is_listed, self.spare(number).is_changing) = (true, false);
        }
        self.take_census_of_spares(pool).await
    }

    /// `zpool remove` of a spare, which is refused while it stands in for another disk.
    async fn remove_spare(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        self.spare(number).is_changing = true;
        let change = PoolChange::Remove { device: self.guids[number].to_string() };
        let removed = pool.change(change).await.map(drop).map_err(|error| error.to_string());
        self.history.mark(format!("{} spare {number} is removed: {removed:?}", self.clock.now()));
        match removed {
            Ok(()) => (self.spare(number).is_listed, self.spare(number).is_changing) = (false, false),
            Err(error) if error.contains("is in use") => self.spare(number).is_changing = false,
            Err(error) => return Err(format!("remove spare {number}: {error}")),
        }
        self.take_census_of_spares(pool).await
    }

    /// `zpool replace` of a disk that may misbehave by a spare.
    async fn let_stand_in(&mut self, pool: &Pool, number: usize, which: usize) -> Result<(), String> {
        let victim = self.victims[which % self.victims.len()];
        let change = self.replacement(victim, number, false);
        // Refused while it is in use, or the disk is being replaced.
        let done = pool.change(change).await.map(drop).map_err(|error| error.to_string());
        self.spare(number).by_hand |= done.is_ok();
        self.history.mark(format!("{} spare {number} is to stand in for {victim}: {done:?}", self.clock.now()));
        self.take_census_of_spares(pool).await
    }

    /// `zpool detach` of a spare that stands in for another disk.
    async fn take_out_spare(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        let change = PoolChange::Detach { device: self.guids[number].to_string() };
        let done = pool.change(change).await.map(drop).map_err(|error| error.to_string());
        self.history.mark(format!("{} spare {number} is taken out: {done:?}", self.clock.now()));
        self.take_census_of_spares(pool).await
    }

    /// `zpool detach` of a disk: what stands in for it stays.
    async fn let_stay(&mut self, pool: &Pool, victim: usize) -> Result<(), String> {
        self.spares.iter_mut().for_each(|spare| spare.is_changing = true);
        // A mirror would let it go without one.
        if self.is_helped(pool, victim).await? {
            let change = PoolChange::Detach { device: self.guids[victim].to_string() };
            let done = pool.change(change).await.map(drop).map_err(|error| error.to_string());
            self.history.mark(format!("{} disk {victim} is given up for a spare: {done:?}", self.clock.now()));
        }
        self.take_census_of_spares(pool).await
    }

    /// Whether a spare stands in for a disk.
    async fn is_helped(&self, pool: &Pool, number: usize) -> Result<bool, String> {
        let guid = self.guids[number];
        let is_first = |vdev: &VdevReport| vdev.kind == "spare" && vdev.children.iter().any(|leaf| leaf.guid == guid);
        Ok(find(&report(pool).await?.vdevs, &is_first).is_some())
    }

    /// Finds out which disks are spares by now, and which of them stay in others' places.
    ///
    /// # Errors
    /// One is forgotten.
    pub(super) async fn take_census_of_spares(&mut self, pool: &Pool) -> Result<(), String> {
        if self.spares.is_empty() {
            return Ok(());
        }
        self.take_census(pool).await?;
        let shown = report(pool).await?;
        for spare in std::mem::take(&mut self.spares) {
            let (number, guid) = (spare.disk, self.guids[spare.disk]);
            let path = SimDevices::path(self.places[number]);
            let is_it = |listed: &&VdevReport| match guid {
                0 => listed.path.as_deref() == path.to_str(),
                guid => listed.guid == guid,
            };
            let listed = shown.spares.iter().find(is_it);
            let is_part = guid != 0 && stands_in(&shown, guid);
            if let Some(listed) = listed {
                self.guids[number] = listed.guid;
                let by_hand = spare.by_hand && is_part;
                self.spares.push(Spare { is_listed: true, is_changing: false, by_hand, ..spare });
            } else if spare.is_listed && !spare.is_changing {
                return Err(format!("WRONG: disk {number} was a spare and is forgotten"));
            } else if is_part {
                self.note_member(&shown.vdevs, number)?;
            } else {
                self.spares.push(Spare { is_listed: false, is_changing: false, by_hand: false, ..spare });
            }
        }
        self.assert_within_redundancy();
        Ok(())
    }

    /// A spare has stayed in another disk's place.
    fn note_member(&mut self, tree: &VdevReport, new: usize) -> Result<(), String> {
        let is_in = |top: &VdevReport, number: usize| find(top, &|vdev| vdev.guid == self.guids[number]).is_some();
        let top = tree.children.iter().find(|top| is_in(top, new));
        let top = top.ok_or_else(|| format!("WRONG: spare {new} is in no vdev"))?;
        let group = self.groups.iter().position(|group| group.disks.iter().any(|&disk| is_in(top, disk)));
        let group = group.ok_or_else(|| format!("WRONG: spare {new} is in a vdev of nobody's"))?;
        let gone: Vec<usize> = self.groups[group].disks.iter().copied().filter(|&disk| !is_in(top, disk)).collect();
        let [old] = gone[..] else { return Err(format!("WRONG: spare {new} has stayed in the place of {gone:?}")) };
        self.history.mark(format!("{} spare {new} stays in the place of {old}", self.clock.now()));
        self.groups[group].disks.iter_mut().filter(|disk| **disk == old).for_each(|disk| *disk = new);
        self.victims.iter_mut().filter(|victim| **victim == old).for_each(|victim| *victim = new);
        self.labels[new] = label(&self.disks[new]);
        self.spares_stayed += 1;
        Ok(())
    }

    /// Everything is resilvered: waits until no spare is in use any more, and all of them can be.
    ///
    /// # Errors
    /// One is in use still, or cannot be used.
    pub(super) async fn let_the_spares_go(&mut self, pool: &Pool) -> Result<(), String> {
        for _ in 0..FREE_WITHIN.as_secs() {
            self.take_census_of_spares(pool).await?;
            let shown = report(pool).await?;
            let serving = listed_in(self, &shown);
            if serving.is_empty() {
                return self.have_spares_free(pool).await;
            }
            for number in serving {
                if self.spare(number).by_hand {
                    self.take_out_spare(pool, number).await?;
                }
            }
            self.clock.sleep(Duration::from_secs(1)).await;
        }
        let serving = listed_in(self, &report(pool).await?);
        Err(format!("WRONG: everything is resilvered, and spares {serving:?} are still in use"))
    }

    /// A spare that cannot be used is plugged in anew; if that does not help it is removed and added again, as its
    /// owner would.
    async fn have_spares_free(&mut self, pool: &Pool) -> Result<(), String> {
        for number in self.listed_spares() {
            if self.state_of_spare(pool, number).await? != "AVAIL" {
                self.pull_out(number);
                self.clock.sleep(SEEN_WITHIN).await;
                self.put_back(number);
                self.clock.sleep(SEEN_WITHIN).await;
            }
            if self.state_of_spare(pool, number).await? != "AVAIL" {
                self.remove_spare(pool, number).await?;
                self.list_spare(pool, number).await?;
                let state = self.state_of_spare(pool, number).await?;
                if state != "AVAIL" {
                    return Err(format!("spare {number} is {state} after everything was set right"));
                }
            }
        }
        Ok(())
    }

    async fn state_of_spare(&self, pool: &Pool, number: usize) -> Result<String, String> {
        let listed = report(pool).await?.spares;
        let found = listed.into_iter().find(|shown| shown.guid == self.guids[number]);
        Ok(found.map_or_else(|| "not listed".to_owned(), |shown| shown.state))
    }
}
