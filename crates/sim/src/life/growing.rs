//! Pools that become larger while files are worked on, disks are away and the power fails: the disks of a vdev grow, or
//! larger ones take their places, and vdevs are added.
//!
//! What is demanded of the pool, or the life has gone wrong:
//! - once the pool said that a vdev was added it is there, also after the power failed;
//! - when everything was set right and all disks of a vdev are larger, the vdev is larger as soon as that is asked for,
//!   and stays so when the power fails right then.

use platter_api::request::{PoolChange, VdevRequest};
use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::layout::{DISK_SIZE, GROWN_SIZE, Group, group};
use super::machine::{Machine, find, label, report};
use super::story::Story;
use crate::world::SimDevices;

/// In one stretch of work of so many something grows, or is said about it.
const EVERY: u32 = 3;
/// Most top-level vdevs.
const VDEVS_MAX: usize = 3;
/// Larger disks take the places of all disks of a vdev that has no more than so many.
const EXCHANGED_MAX: usize = 3;

impl Story {
    /// Perhaps lets disks grow, or adds a vdev.
    pub(super) async fn grow(&mut self, pool: &Pool) -> Result<(), String> {
        let Some(random) = self.growing.as_mut() else { return Ok(()) };
        if !random.next_u32().is_multiple_of(EVERY) {
            return Ok(());
        }
        let (what, which) = (random.next_u32() % 6, random.next_u64() as usize);
        match what {
            0 if self.machine.groups.len() < VDEVS_MAX => {
                let parity = (which % 2) as u8;
                self.machine.add_vdev(pool, parity).await?;
                self.outcome.vdevs_added += 1;
            }
            1 => {
                let value = if which.is_multiple_of(3) { "off" } else { "on" };
                let set = pool.set_property("autoexpand", value).await;
                set.map_err(|error| format!("autoexpand={value}: {error}"))?;
                self.note(&format!("autoexpand={value}"));
            }
            2 | 3 => {
                let index = which % self.machine.groups.len();
                self.machine.grow_disks(index);
                // How it goes while some of them are away is of no interest.
                match what {
                    2 => self.machine.expand(pool, index).await.unwrap_or_else(|error| self.note(&error)),
                    _ => drop(pool.change(PoolChange::Reopen).await),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Everything was set right: vdevs all of whose disks are larger become larger, which the power's failing does not
    /// undo.
    pub(super) async fn let_it_grow(&mut self) -> Result<(), String> {
        let Some(random) = self.growing.as_mut() else { return Ok(()) };
        let (exchanges, by_itself) = (random.next_u32().is_multiple_of(3), random.next_u32().is_multiple_of(2));
        let (fails, which) = (random.next_u32().is_multiple_of(2), random.next_u64() as usize);
        let pool = self.pool()?;
        if exchanges {
            let index = which % self.machine.groups.len();
            self.machine.exchange_by_larger(&pool, index).await?;
        }
        let value = if by_itself { "on" } else { "off" };
        pool.set_property("autoexpand", value).await.map_err(|error| format!("autoexpand={value}: {error}"))?;
        let mut grown = Vec::new();
        for index in 0..self.machine.groups.len() {
            if !self.machine.may_be_larger(index) {
                continue;
            }
            match by_itself {
                true => drop(pool.change(PoolChange::Reopen).await.map_err(|error| format!("reopen: {error}"))?),
                false => self.machine.expand(&pool, index).await?,
            }
            grown.push((index, self.machine.must_be_larger(&pool, index).await?));
        }
        drop(pool);
        if grown.is_empty() {
            return Ok(());
        }
        self.outcome.growths += grown.len() as u64;
        if fails {
            self.crash().await.map_err(|error| format!("right after vdevs grew: {error}"))?;
        }
        let pool = self.pool()?;
        for (index, size) in grown {
            let now = self.machine.size_of_vdev(&pool, index).await?;
            if now != size {
                return Err(format!("WRONG: vdev {index} has {now} bytes again, after it had {size}"));
            }
            self.machine.groups[index].size = size;
        }
        Ok(())
    }
}

impl Machine {
    /// All disks of a vdev are larger from now on, those too that are away.
    fn grow_disks(&mut self, index: usize) {
        for &number in &self.groups[index].disks {
            self.disks[number].resize(GROWN_SIZE);
            self.sizes[number] = GROWN_SIZE;
        }
        self.history.mark(format!("{} the disks of vdev {index} grow", self.clock.now()));
    }

    /// `zpool online -e` of all disks of a vdev.
    async fn expand(&self, pool: &Pool, index: usize) -> Result<(), String> {
        for &number in &self.groups[index].disks {
            let device = self.guids[number].to_string();
            let done = pool.change(PoolChange::Online { device, expand: true }).await;
            done.map_err(|error| format!("online -e of disk {number}: {error}"))?;
        }
        self.history.mark(format!("{} vdev {index} is to use what its disks have", self.clock.now()));
        Ok(())
    }

    /// Whether all disks of a vdev are larger than when it was made, and it was not seen to be.
    fn may_be_larger(&self, index: usize) -> bool {
        let Group { disks, has_grown, .. } = &self.groups[index];
        !has_grown && disks.iter().all(|&number| self.sizes[number] == GROWN_SIZE)
    }

    /// The size of a vdev that must be larger by now.
    async fn must_be_larger(&mut self, pool: &Pool, index: usize) -> Result<u64, String> {
        // It may have begun to grow by itself, when the last small disk left.
        pool.sync().await.map_err(|error| format!("sync: {error}"))?;
        let (before, size) = (self.groups[index].size, self.size_of_vdev(pool, index).await?);
        if size <= before {
            return Err(format!("WRONG: all disks of vdev {index} have grown, and it still has {size} bytes"));
        }
        self.groups[index].has_grown = true;
        self.history.mark(format!("{} vdev {index} has {size} bytes, it had {before}", self.clock.now()));
        Ok(size)
    }

    async fn size_of_vdev(&self, pool: &Pool, index: usize) -> Result<u64, String> {
        let tree = report(pool).await?.vdevs;
        let guid = self.guids[self.groups[index].disks[0]];
        let top = tree.children.iter().find(|top| find(top, &|vdev| vdev.guid == guid).is_some());
        top.map(|top| top.size).ok_or_else(|| format!("vdev {index} is no longer in the pool"))
    }

    /// Larger disks take the places of all disks of a vdev, one after the other. Everything is right.
    async fn exchange_by_larger(&mut self, pool: &Pool, index: usize) -> Result<(), String> {
        let disks = self.groups[index].disks.clone();
        let small: Vec<usize> = disks.into_iter().filter(|&number| self.sizes[number] < GROWN_SIZE).collect();
        if small.len() > EXCHANGED_MAX {
            return Ok(());
        }
        for old in small {
            let new = self.add_disk();
            self.replace(pool, old, new).await?;
            pool.scrub_wait().await.map_err(|error| format!("resilver: {error}"))?;
            self.let_the_old_leave(pool).await?;
            if !self.groups[index].disks.contains(&new) {
                return Err(format!("WRONG: larger disk {new} did not take the place of {old}"));
            }
            // It has behaved.
            self.victims.clear();
        }
        Ok(())
    }

    /// `zpool add`: a mirror, or with so much parity.
    async fn add_vdev(&mut self, pool: &Pool, parity: u8) -> Result<(), String> {
        let first = self.disks.len();
        for _ in 0..2 + parity {
            let number = self.add_disk();
            self.disks[number].resize(DISK_SIZE);
            self.sizes[number] = DISK_SIZE;
        }
        let new = group(first..self.disks.len(), parity);
        let children = new.disks.iter().map(|&disk| SimDevices::path(self.places[disk])).collect();
        let vdev = match parity {
            0 => VdevRequest::Mirror(children),
            parity => VdevRequest::Raidz { parity, children },
        };
        self.history.mark(format!("{} disks {:?} are added", self.clock.now(), new.disks));
        self.adding = Some(new);
        let change = PoolChange::Add { vdevs: vec![vdev], force: true, ashift: 0, any_ashift: false, dry_run: false };
        pool.change(change).await.map_err(|error| format!("add: {error}"))?;
        let vdevs = self.groups.len();
        self.take_census_of_vdevs(pool).await?;
        match self.groups.len() > vdevs {
            true => Ok(()),
            false => Err("WRONG: the vdev that was added is not there".into()),
        }
    }

    /// Finds out whether the vdev that was being added is the pool's.
    ///
    /// # Errors
    /// A part of it is.
    pub(super) async fn take_census_of_vdevs(&mut self, pool: &Pool) -> Result<(), String> {
        let Some(mut group) = self.adding.clone() else { return Ok(()) };
        let tree = report(pool).await?.vdevs;
        self.adding = None;
        let top = tree.children.iter().find(|top| find(top, &self.is_at(group.disks[0])).is_some());
        let Some(top) = top else {
            self.history.mark(format!("{} disks {:?} are not the pool's", self.clock.now(), group.disks));
            return Ok(());
        };
        for &number in &group.disks {
            let leaf = find(top, &self.is_at(number))
                .ok_or_else(|| format!("WRONG: disk {number} was not added with others"))?;
            self.guids[number] = leaf.guid;
            self.labels[number] = label(&self.disks[number]);
        }
        group.size = top.size;
        self.groups.push(group);
        Ok(())
    }
}
