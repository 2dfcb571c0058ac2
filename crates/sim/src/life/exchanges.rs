//! Disks that take another's place while files are worked on, others are away and the power fails.
//!
//! What is demanded of the pool, or the life has gone wrong:
//! - once the pool said that a new disk had joined, no failure makes it forget that;
//! - when everything was set right the new disk is the pool's and the old one is not, although it is still plugged in.

use std::time::Duration;

use platter_api::report::VdevReport;
use platter_api::request::PoolChange;
use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::machine::{Exchange, Machine, find, label, report};
use super::story::Story;
use crate::world::SimDevices;

/// Most new disks in a life.
const NEW_DISKS: usize = 4;
/// In one stretch of work of so many a disk is replaced.
const EVERY: u32 = 3;
/// Longest time that a disk may take to leave after the new one has everything.
const LEAVES_WITHIN: Duration = Duration::from_secs(600);

impl Story {
    /// Perhaps lets a new disk take the place of one that may misbehave.
    pub(super) async fn replace_a_victim(&mut self, pool: &Pool) -> Result<(), String> {
        let Some(random) = self.exchanging.as_mut() else { return Ok(()) };
        let chance = random.next_u64();
        if !random.next_u32().is_multiple_of(EVERY)
            || self.machine.is_exchanging()
            || self.machine.new_disks() >= NEW_DISKS
        {
            return Ok(());
        }
        let victims = &self.machine.victims;
        let old = victims[chance as usize % victims.len()];
        let new = self.machine.add_disk();
        self.machine.replace(pool, old, new).await
    }
}

impl Machine {
    pub(super) fn is_exchanging(&self) -> bool {
        !self.exchanges.is_empty()
    }

    /// Whether another disk is taking this one's place.
    pub(super) fn is_replaced(&self, number: usize) -> bool {
        self.exchanges.iter().any(|exchange| exchange.old == number)
    }

    /// The disks that are the pool's, in no order.
    pub fn members(&self) -> Vec<usize> {
        let joining = self.exchanges.iter().filter(|exchange| exchange.joined).map(|exchange| exchange.new);
        self.groups.iter().flat_map(|group| group.disks.iter().copied()).chain(joining).collect()
    }

    /// Lets disk `new` take the place of `old`; until everything is set right it is as little to be relied on.
    pub(super) async fn replace(&mut self, pool: &Pool, old: usize, new: usize) -> Result<(), String> {
        assert!(self.guids[new] == 0 && !self.is_replaced(old), "a disk that was in no pool takes one disk's place");
        self.exchanges.push(Exchange { old, new, joined: false });
        let is_side = self.groups.iter().any(|group| group.parity == 0 && group.disks.contains(&old));
        // Every other one is reconstructed sequentially, unless a resilver is under way.
        let ways: &[bool] = if is_side && new.is_multiple_of(2) { &[true, false] } else { &[false] };
        for &sequential in ways {
            if self.attach_beside(pool, old, new, sequential).await {
                break;
            }
        }
        self.take_census(pool).await
    }

    /// Lets empty disk `new` take the place of side `old` of a mirror, reconstructed sequentially.
    ///
    /// # Errors
    /// The pool refuses it.
    pub(super) async fn reconstruct(&mut self, pool: &Pool, old: usize, new: usize) -> Result<(), String> {
        self.exchanges.push(Exchange { old, new, joined: false });
        let attached = self.attach_beside(pool, old, new, true).await;
        self.take_census(pool).await?;
        if attached { Ok(()) } else { Err(format!("WRONG: disk {new} cannot replace {old}")) }
    }

    /// `zpool replace` of disk `old` by `new`.
    pub(super) fn replacement(&self, old: usize, new: usize, sequential: bool) -> PoolChange {
        PoolChange::Attach {
            device: self.guids[old].to_string(),
            new: SimDevices::path(self.places[new]),
            replaces: true,
            force: false,
            ashift: 0,
            sequential,
        }
    }

    /// Attaches disk `new`, which is to take the place of `old`; whether it has joined.
    async fn attach_beside(&mut self, pool: &Pool, old: usize, new: usize, sequential: bool) -> bool {
        let change = self.replacement(old, new, sequential);
        let done = pool.change(change).await.map(|_| ()).map_err(|error| error.to_string());
        let how = if sequential { "sequentially " } else { "" };
        self.history.mark(format!("{} disk {new} is to replace {old} {how}: {done:?}", self.clock.now()));
        if done.is_ok() {
            self.exchanges.iter_mut().for_each(|exchange| exchange.joined = true);
            self.victims.push(new);
        }
        done.is_ok()
    }

    /// Finds out which of the disks are the pool's by now.
    ///
    /// # Errors
    /// One that had joined is not there, or none is known at its place.
    pub(super) async fn take_census(&mut self, pool: &Pool) -> Result<(), String> {
        if self.exchanges.is_empty() {
            return Ok(());
        }
        let tree = report(pool).await?.vdevs;
        for exchange in std::mem::take(&mut self.exchanges) {
            let Exchange { old, new, joined } = exchange;
            let has_old = |vdev: &VdevReport| vdev.children.iter().any(|child| child.guid == self.guids[old]);
            let parent = find(&tree, &has_old);
            let among = match parent {
                Some(parent) if parent.kind == "replacing" => Some(parent),
                Some(_) if joined => return Err(format!("WRONG: disk {new} had joined beside {old} and is forgotten")),
                Some(_) => {
                    self.history.mark(format!("{} disk {new} is not the pool's", self.clock.now()));
                    self.victims.retain(|victim| *victim != new);
                    None
                }
                None => Some(&tree),
            };
            let Some(among) = among else { continue };
            let is_new = |vdev: &VdevReport| vdev.path.is_some() && !self.guids.contains(&vdev.guid);
            if self.guids[new] == 0 {
                let found = find(among, &is_new).ok_or_else(|| format!("WRONG: nobody is beside disk {old}"))?;
                self.guids[new] = found.guid;
                self.labels[new] = label(&self.disks[new]);
            }
            if !self.victims.contains(&new) {
                self.victims.push(new);
            }
            if parent.is_some() {
                self.exchanges.push(Exchange { joined: true, ..exchange });
                continue;
            }
            self.history.mark(format!("{} disk {new} has replaced {old}", self.clock.now()));
            self.victims.retain(|victim| *victim != old);
            let groups = self.groups.iter_mut();
            groups.flat_map(|group| &mut group.disks).filter(|disk| **disk == old).for_each(|disk| *disk = new);
        }
        self.assert_within_redundancy();
        Ok(())
    }

    /// Waits until the disks that were replaced have left; everything is resilvered.
    ///
    /// # Errors
    /// They do not.
    pub(super) async fn let_the_old_leave(&mut self, pool: &Pool) -> Result<(), String> {
        for _ in 0..LEAVES_WITHIN.as_secs() {
            self.take_census(pool).await?;
            if self.exchanges.is_empty() {
                return Ok(());
            }
            self.clock.sleep(Duration::from_secs(1)).await;
        }
        Err(format!("WRONG: everything is resilvered, and these still are to be replaced: {:?}", self.exchanges))
    }
}
