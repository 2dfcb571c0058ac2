//! A pool of mirrors from which one disk of each leaves, when everything is set right: they are a pool of their own
//! then, with everything that the other has. When that was looked through, they are attached again, empty.

use std::sync::Arc;

use platter_api::request::{ImportRequest, PoolChange};
use platter_api::splits::SplitRequest;
use platter_model::disk::Image;
use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::load::{size, walk};
use super::machine::{Machine, POOL, find, label, report};
use super::story::Story;
use crate::world::{self, SimDevices};

/// The name of the pool that is split off.
const TWIN: &str = "twin";
/// So often, of the times at which it could be split, it is.
const EVERY: u32 = 2;

impl Story {
    /// Perhaps splits the pool, of which everything was set right.
    pub(super) async fn split(&mut self) -> Result<(), String> {
        let is_simple = self.machine.groups.iter().all(|group| group.parity == 0) && self.sparing.is_none();
        let Some(random) = self.splitting.as_mut().filter(|_| is_simple) else { return Ok(()) };
        if !random.next_u32().is_multiple_of(EVERY) {
            return Ok(());
        }
        // Disks that changed places while they were open are where the pool does not look: an import finds them.
        self.export().await?;
        self.import().await?;
        let pool = self.pool()?;
        pool.sync().await.map_err(|error| format!("sync: {error}"))?;
        let request = SplitRequest { new_name: TWIN.into(), ..SplitRequest::default() };
        pool.split(request).await.map_err(|error| format!("split: {error}"))?;
        let gone = self.machine.gone(&pool).await?;
        self.note(&format!("disks {gone:?} were split off"));
        self.look_through(&gone).await.map_err(|error| format!("the pool that was split off: {error}"))?;
        for number in gone {
            self.machine.attach_again(&pool, number).await?;
        }
        pool.scrub_wait().await.map_err(|error| format!("resilver: {error}"))?;
        let found = report(&pool).await?;
        if found.vdevs.state != "ONLINE" || found.scan.errors > 0 {
            return Err(format!("the pool is {} after its disks were attached again", found.vdevs.state));
        }
        Ok(())
    }

    /// Everything that is in the pool is in the one that was split off.
    async fn look_through(&mut self, disks: &[usize]) -> Result<(), String> {
        let twin = self.machine.import_twin(disks).await?;
        for (name, filesystem) in &self.filesystems {
            let own = name.replacen(POOL, TWIN, 1);
            let zpl = world::mount(&twin, &own, self.machine.clock.clone()).await?;
            let tree = walk(&zpl).await.map_err(|error| format!("{own}: {error}"))?;
            self.outcome.done.verified += size(&tree);
            filesystem.files.check(&tree).map_err(|error| format!("WRONG: {own}: {error}"))?;
            zpl.unmount().await.map_err(|error| format!("unmount {own}: {error}"))?;
            twin.dsl().close_filesystem(&own).await.map_err(|error| format!("close {own}: {error}"))?;
        }
        twin.scrub_start().await.map_err(|error| format!("scrub: {error}"))?;
        twin.scrub_wait().await.map_err(|error| format!("scrub: {error}"))?;
        let found = report(&twin).await?;
        if found.error_count > 0 || found.scan.errors > 0 || found.scan.repaired > 0 {
            return Err(format!("WRONG: a scrub found {} errors: {:?}", found.scan.errors, found.errors));
        }
        self.outcome.splits += 1;
        twin.export().await.map_err(|error| format!("export: {error}"))
    }
}

impl Machine {
    /// The disks that are no longer the pool's: one of each mirror. Where one stays alone, it has the mirror's guid
    /// from now on (`vdev_remove_parent`, `module/zfs/vdev.c`), also in its labels.
    async fn gone(&mut self, pool: &Pool) -> Result<Vec<usize>, String> {
        let tree = report(pool).await?.vdevs;
        let mut gone = Vec::new();
        for group in self.groups.clone() {
            let mut left = Vec::new();
            for &number in &group.disks {
                match find(&tree, &self.is_at(number)) {
                    Some(leaf) => {
                        self.guids[number] = leaf.guid;
                        self.labels[number] = label(&self.disks[number]);
                    }
                    None => left.push(number),
                }
            }
            match *left {
                [one] => gone.push(one),
                _ => return Err(format!("WRONG: of the mirror of disks {:?}, {left:?} were split off", group.disks)),
            }
        }
        Ok(gone)
    }

    /// Imports the pool that these disks are, which nobody else sees.
    async fn import_twin(&self, disks: &[usize]) -> Result<Arc<Pool>, String> {
        let devices = Arc::new(SimDevices::default());
        for &number in disks {
            devices.insert(self.places[number], self.route.to(Arc::new(self.disks[number].connect())));
        }
        let mut environment = self.environment(self.seed ^ self.clock.now());
        environment.devices = devices;
        let search = vec![world::FOLDER.into()];
        let request = ImportRequest { pool: TWIN.into(), search, ..ImportRequest::default() };
        Pool::import(environment, request).await.map_err(|error| format!("import: {error}"))
    }

    /// A disk that was split off becomes a side of its mirror again, without anything on it.
    async fn attach_again(&mut self, pool: &Pool, number: usize) -> Result<(), String> {
        self.disks[number].set_image(Image::default());
        let group = self.groups.iter().find(|group| group.disks.contains(&number)).expect("it is in one");
        let other = group.disks.iter().copied().find(|other| *other != number).expect("a mirror has more than one");
        let change = PoolChange::Attach {
            device: self.guids[other].to_string(),
            new: SimDevices::path(self.places[number]),
            replaces: false,
            force: false,
            ashift: 0,
            sequential: false,
        };
        pool.change(change).await.map_err(|error| format!("attach disk {number}: {error}"))?;
        let tree = report(pool).await?.vdevs;
        let leaf = find(&tree, &self.is_at(number));
        self.guids[number] = leaf.ok_or_else(|| format!("WRONG: disk {number} is not beside disk {other}"))?.guid;
        self.labels[number] = label(&self.disks[number]);
        Ok(())
    }
}
