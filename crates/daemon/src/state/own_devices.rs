//! What may not become a device of a pool, as a pool that is open here has it, or is stored in it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use platter_api::request::VdevRequest;

use super::{Answer, Daemon, Entry, mounts};
use platter_api::messages::ErrorBody;

impl Daemon {
    /// Where something is mounted that is stored in this pool, also by way of another pool whose devices are files in
    /// it.
    pub(super) fn inside(&self, pool: &str) -> Vec<PathBuf> {
        let mut within = BTreeSet::from([pool.to_owned()]);
        loop {
            let known = within.len();
            let places: Vec<PathBuf> = {
                let mounts = self.mounts.read();
                let inside = mounts.iter().filter(|(dataset, _)| within.contains(mounts::pool_of(dataset)));
                inside.map(|(_, active)| active.at.clone()).collect()
            };
            let holds =
                |entry: &Entry| entry.real_devices.iter().any(|device| places.iter().any(|at| device.starts_with(at)));
            within.extend(self.pools.read().iter().filter(|(_, entry)| holds(entry)).map(|(name, _)| name.clone()));
            if within.len() == known {
                return places;
            }
        }
    }

    /// Whether a path leads to a spare of this pool.
    pub(super) async fn is_spare_of(&self, pool: &str, path: &Path) -> bool {
        let led = self.leading_among_devices(vec![path.to_owned()]).await;
        self.pools.read().get(pool).is_some_and(|entry| led.iter().any(|led| entry.real_spares().contains(led)))
    }

    /// Devices of pools that are imported here are refused with the pool's name; the engine would only see that they
    /// are open. Of a spare there may be several pools.
    pub(super) async fn refuse_own_devices(
        &self,
        vdevs: &[VdevRequest],
        into: Option<&str>,
        force: bool,
    ) -> Answer<()> {
        let given: Vec<(bool, PathBuf)> =
            vdevs.iter().flat_map(|vdev| vdev.leaves().iter().map(|leaf| (vdev.is_spare(), leaf.clone()))).collect();
        let led = self.leading_among_devices(given.iter().map(|(_, leaf)| leaf.clone()).collect()).await;
        let mut complaints = Vec::new();
        for (name, entry) in self.pools.read().iter() {
            let spares = entry.real_spares();
            for ((as_spare, leaf), led) in given.iter().zip(&led).filter(|(_, led)| entry.real_devices.contains(led)) {
                let is_spare = spares.contains(led);
                if is_spare && *as_spare && into != Some(name.as_str()) {
                    continue;
                }
                complaints.push(match is_spare {
                    true => format!("{} is reserved as a hot spare for pool '{name}'", leaf.display()),
                    false => format!("{} is part of active pool '{name}'", leaf.display()),
                });
            }
        }
        let inside = into.map(|pool| self.inside(pool)).unwrap_or_default();
        for ((_, leaf), led) in given.iter().zip(&led) {
            // Its own write would wait for the group that it is part of.
            if let Some(at) = inside.iter().find(|at| led.starts_with(at)) {
                return Err(ErrorBody::new(format!(
                    "invalid vdev specification\n'{}' lies in '{}', which is stored in the pool itself",
                    leaf.display(),
                    at.display()
                )));
            }
        }
        if complaints.is_empty() {
            return Ok(());
        }
        let heading = if force {
            "the following errors must be manually repaired:"
        } else {
            "use '-f' to override the following errors:"
        };
        Err(ErrorBody::new(format!("invalid vdev specification\n{heading}\n{}", complaints.join("\n"))))
    }
}
