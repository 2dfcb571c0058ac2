//! Leaves with their place in a pool: found by name, opened when their device is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_device::{BlockDevice, OpenOptions};
use platter_dsl::error::{PoolError, Result};
use platter_ondisk::{Guid, Txg};
use platter_vdev::{Condition, DeviceOpener, Leaf, OpenError, TopVdev, VdevAux, VdevSpec, VdevState};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::identity::Returning;
use crate::vdev_names::{called, vdev_name};
use crate::{dtl, open_vdevs, spare_flags};

/// A leaf with its place.
pub struct PlacedLeaf {
    /// The leaf's configuration.
    pub config: VdevConfig,
    /// Its top-level vdev.
    pub top: Arc<TopVdev>,
    /// The leaf itself.
    pub leaf: Arc<Leaf>,
}

impl PlacedLeaf {
    /// Closes the device, which is so from then on. As long as the old handle is there, it is in use: by this very
    /// process.
    pub fn let_go(&self, core: &Core, condition: Condition) {
        self.leaf.close(condition);
        core.leaf_devices.lock().remove(&self.config.guid.0);
    }

    /// Opens the device, if its labels say that it is this leaf; whether it is in use then. Where it was found is
    /// written into the configuration. One that is in use already stays as it is.
    pub async fn open(&self, core: &Core) -> bool {
        let _one = core.opening.lock().await;
        // Somebody else may have opened it while this waited for its turn.
        if self.leaf.is_usable() {
            return true;
        }
        self.let_go(core, Condition::new(VdevState::Closed, VdevAux::None));
        let written = core.uberblock.lock().txg;
        let all = leaves(core);
        let opener = Returning {
            devices: &core.environment.devices,
            options: if core.dsl.read_only { OpenOptions::read_only() } else { OpenOptions::exclusive() },
            pool: core.config.read().guid,
            // Who only reads does not keep others from writing.
            newest: if core.dsl.read_only { Txg(u64::MAX) } else { core.dsl.gate.open_txg() },
            complete: all.iter().map(|place| (place.config.guid.0, dtl::last_complete(&place.leaf, written))).collect(),
            places: all.into_iter().filter_map(|place| place.config.path.map(PathBuf::from)).collect(),
            seen: Mutex::default(),
            reached: Mutex::default(),
        };
        let noting = Noting { opener, core, leaf: &self.leaf, written };
        self.top.reopen_leaf(&self.leaf, &open_vdevs::spec(&self.config), &noting).await;
        let Some(device) = self.leaf.device() else { return false };
        // It may have left the pool meanwhile, and would be held for as long as that is open.
        if !core.config.read().vdev_tree.leaves().iter().any(|leaf| leaf.guid == self.leaf.guid()) {
            self.let_go(core, Condition::new(VdevState::Closed, VdevAux::None));
            return false;
        }
        if let Some(path) = device.path() {
            self.adopt(core, path, &noting.opener.seen.into_inner());
        }
        core.leaf_devices.lock().insert(self.config.guid.0, device);
        core.dsl.dirty_config();
        spare_flags::note_wanted_back(core, self.config.guid);
        // When it goes once more, a spare may stand in again.
        core.spares.declined.lock().remove(&self.config.guid.0);
        true
    }

    /// Notes that this leaf's device is at `path`. A leaf that had it so far is where it was `seen` meanwhile.
    fn adopt(&self, core: &Core, path: &Path, seen: &BTreeMap<u64, PathBuf>) {
        let path = path.display().to_string();
        if self.config.path.as_ref() == Some(&path) {
            return;
        }
        let was = self.config.path.as_deref().unwrap_or("an unknown path");
        tracing::info!(pool = core.name(), "device {} is at {path} now, it was at {was}", self.config.guid);
        core.config.write().vdev_tree.walk_mut(&mut |vdev| {
            if vdev.guid == self.config.guid {
                vdev.path = Some(path.clone());
            } else if vdev.path.as_ref() == Some(&path)
                && let Some(other) = seen.get(&vdev.guid.0)
            {
                vdev.path = Some(other.display().to_string());
            }
        });
    }
}

/// Opens a leaf's device and lists what it lacks, before anything is read from it.
struct Noting<'a> {
    opener: Returning<'a>,
    core: &'a Core,
    leaf: &'a Leaf,
    /// The last group that was on disk before.
    written: Txg,
}

#[async_trait]
impl DeviceOpener for Noting<'_> {
    async fn open(&self, spec: &VdevSpec) -> std::result::Result<Arc<dyn BlockDevice>, OpenError> {
        let device = self.opener.open(spec).await?;
        let reached = self.opener.reached.lock().get(&spec.guid.0).cloned().unwrap_or_default();
        dtl::note_gap(self.core, self.leaf, reached.last, self.written);
        dtl::note_elsewhere_meanwhile(self.core, self.leaf, &reached).await;
        Ok(device)
    }
}

/// All leaves, also those of nested vdevs.
pub fn leaves(core: &Core) -> Vec<PlacedLeaf> {
    leaves_of(core, |_| true)
}

/// Those leaves that are `wanted`.
pub fn leaves_of(core: &Core, wanted: impl Fn(&VdevConfig) -> bool) -> Vec<PlacedLeaf> {
    let config = core.config.read();
    let mut places = Vec::new();
    for top in &config.vdev_tree.children {
        let Some(vdev) = core.dsl.store.state().vdevs.get(top.id as usize).and_then(Option::as_ref) else { continue };
        let opened = vdev.leaves();
        for config in top.leaves().into_iter().filter(|config| wanted(config)) {
            let Some(leaf) = opened.iter().find(|leaf| leaf.guid() == config.guid) else { continue };
            places.push(PlacedLeaf { config: config.clone(), top: vdev.clone(), leaf: leaf.clone() });
        }
    }
    places
}

/// The leaf that a command means.
///
/// # Errors
/// There is none.
pub async fn find(core: &Core, name: &str) -> Result<PlacedLeaf> {
    let (devices, places) = (&*core.environment.devices, leaves(core));
    let called = called(&configs(&places), devices, name).await;
    if let Some(place) = places.into_iter().find(|place| called.contains(&place.config.guid)) {
        return Ok(place);
    }
    if core.caches.find(devices, name).await.is_some() {
        return Err(PoolError::invalid("device is in use as a cache"));
    }
    Err(match interior(core, name) {
        None => missing(core.spares.find(devices, name).await.is_some()),
        Some(vdev) => PoolError::invalid(format!("it is a {} vdev; name one of its devices", vdev.kind)),
    })
}

/// The leaf of this guid. Looks at no path, as a task must not: the group would wait for it.
///
/// # Errors
/// There is none.
pub fn with_guid(core: &Core, guid: Guid) -> Result<PlacedLeaf> {
    let found = leaves(core).into_iter().find(|place| place.config.guid == guid);
    found.ok_or_else(|| missing(core.spares.is_listed(guid)))
}

fn missing(is_spare: bool) -> PoolError {
    match is_spare {
        true => PoolError::Invalid("device is reserved as a hot spare".into()),
        false => PoolError::NotFound("no such device in pool".into()),
    }
}

fn configs(places: &[PlacedLeaf]) -> Vec<&VdevConfig> {
    places.iter().map(|place| &place.config).collect()
}

/// The vdev with devices of its own that a command means: by its name or its guid.
pub fn interior(core: &Core, name: &str) -> Option<VdevConfig> {
    let mut found = None;
    core.config.read().vdev_tree.walk(&mut |vdev| {
        if !vdev.is_leaf()
            && vdev.kind != "root"
            && (vdev_name(vdev, "", None) == name || vdev.guid.to_string() == name)
        {
            found = Some(vdev.clone());
        }
    });
    found
}

/// The leaves that a command means which may be given a vdev with several of them, too.
pub async fn find_below(core: &Core, name: &str) -> Vec<PlacedLeaf> {
    let places = leaves(core);
    let below = interior(core, name).map(|vdev| vdev.leaves().iter().map(|leaf| leaf.guid).collect::<Vec<_>>());
    let meant = match below {
        Some(below) => below,
        None => called(&configs(&places), &*core.environment.devices, name).await,
    };
    places.into_iter().filter(|place| meant.contains(&place.config.guid)).collect()
}

/// Changes the flags of one leaf in the configuration.
pub fn change_config(core: &Core, place: &PlacedLeaf, change: impl Fn(&mut VdevConfig)) {
    core.config.write().vdev_tree.walk_mut(&mut |vdev| {
        if vdev.guid == place.config.guid {
            change(vdev);
        }
    });
    core.dsl.dirty_config();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use platter_api::request::{CreateRequest, VdevRequest};

    use super::*;
    use crate::exchange::{self, Joining};
    use crate::pool::Pool;
    use crate::rebuild::Giving;
    use crate::test_environment::environment;

    /// A mirror with a hot spare, on files of `folder`.
    async fn mirror(folder: &Path) -> Arc<Pool> {
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("a file");
            path
        };
        let vdevs = vec![VdevRequest::Mirror(vec![file("a"), file("b")]), VdevRequest::Spare(vec![file("spare")])];
        let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
        Pool::create(environment(1), request).await.expect("created")
    }

    /// The spare is to take the place of `device`.
    fn replaced_by_spare(folder: &Path, device: Guid, how: Giving) -> Joining {
        let (device, new) = (device.to_string(), folder.join("spare"));
        Joining { device, new, replaces: true, force: false, ashift: 0, how }
    }

    /// The second of two commands closed what the first had just opened, with I/O on its way to it.
    #[tokio::test]
    async fn two_that_open_a_device_at_once_open_it_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = mirror(folder.path()).await;
        let core = &pool.core;
        let place = leaves(core).remove(1);
        place.let_go(core, Condition::new(VdevState::CantOpen, VdevAux::OpenFailed));
        assert!(place.open(core).await);
        let first = place.leaf.device().expect("it is open");
        assert!(place.open(core).await);
        assert!(Arc::ptr_eq(&first, &place.leaf.device().expect("it is open")), "it was closed, and opened anew");
        pool.export().await.expect("exported");
    }

    /// A spare whose preparation took long joined a disk that was back by then, and stayed there.
    #[tokio::test]
    async fn a_spare_that_nobody_asked_for_does_not_join_what_is_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let pool = mirror(folder.path()).await;
        let device = leaves(&pool.core).remove(1).config.guid;
        let joining = |how| replaced_by_spare(folder.path(), device, how);
        let refused = exchange::attach(&pool.core, joining(Giving::Later)).await;
        let error = refused.expect_err("it is in use").to_string();
        assert!(error.contains("in use again"), "{error}");
        exchange::attach(&pool.core, joining(Giving::ByBlock)).await.expect("somebody asks for it");
        pool.scrub_wait().await.expect("resilvered");
        pool.export().await.expect("exported");
    }

    /// What was written to the configuration while a device's joining waited for a transfer under way was lost.
    #[tokio::test]
    async fn what_is_noted_while_a_device_joins_stays() {
        use platter_vdev::{Extent, Priority};
        let folder = tempfile::tempdir().expect("a folder");
        let pool = mirror(folder.path()).await;
        let core = &pool.core;
        let place = leaves(core).remove(1);
        let joining = replaced_by_spare(folder.path(), place.config.guid, Giving::ByBlock);
        let extent = Extent { offset: 0, psize: 4096, birth: Txg(4), speculative: true, checked: false };
        // A read that has not ended is what the joining waits for. On a busy machine the device may answer before the
        // poll asks it.
        let read = loop {
            let mut read = Box::pin(place.top.read(extent, Priority::SyncRead, &|_: &[u8]| true));
            if futures::poll!(&mut read).is_pending() {
                break read;
            }
        };
        let attach = tokio::spawn({
            let core = core.clone();
            async move { exchange::attach(&core, joining).await }
        });
        while place.top.leaves().len() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        change_config(core, &place, |config| config.path = Some("/elsewhere".into()));
        assert!(!attach.is_finished(), "it waits for the read");
        drop(read);
        attach.await.expect("no panic").expect("attached");
        let tree = core.config.read().vdev_tree.clone();
        let paths: Vec<_> = tree.leaves().iter().filter_map(|leaf| leaf.path.clone()).collect();
        assert!(paths.len() == 3 && paths.contains(&"/elsewhere".to_owned()), "{paths:?}");
        pool.scrub_wait().await.expect("resilvered");
        pool.export().await.expect("exported");
    }
}
