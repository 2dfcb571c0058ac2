//! From configuration to open vdevs, and from open vdevs to the allocator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_device::{BlockDevice, DeviceError, DeviceSource, OpenOptions};
use platter_dmu::{NewDnode, Objset, Tx};
use platter_ondisk::{Guid, ObjectType, Txg};
use platter_vdev::{AllocationClass, DeviceOpener, OpenError, TopVdev, VdevKind, VdevSpec};
use platter_zio::{Geometry, Group, Metaslab, TOP_VDEVS_MAX};

use crate::config::VdevConfig;
use crate::identity::{self, Member};
use crate::label_search::silence;
use crate::labels::Reached;
use crate::verdict_flags;
use platter_dsl::error::{PoolError, Result};

/// Opens leaves by guid: where each was found, not where the configuration says it was. What was found is looked at
/// once more, through the handle that will be used.
pub struct FoundDevices {
    /// The pool, as its labels call it.
    pub pool: Guid,
    /// No label of the pool's own is of a later group.
    pub newest: Txg,
    /// Path of each leaf that was found.
    pub paths: BTreeMap<u64, PathBuf>,
    /// Devices that did not answer when they were searched.
    pub silent: Vec<PathBuf>,
    /// Who opens them.
    pub devices: Arc<dyn DeviceSource>,
    /// How to open them.
    pub options: OpenOptions,
    /// The last groups that the devices which were opened have, by guid.
    pub reached: Mutex<BTreeMap<u64, Reached>>,
}

#[async_trait]
impl DeviceOpener for FoundDevices {
    async fn open(&self, spec: &VdevSpec) -> std::result::Result<Arc<dyn BlockDevice>, OpenError> {
        let Some(path) = self.paths.get(&spec.guid.0) else {
            let device = spec.path.as_ref().map_or_else(|| spec.guid.to_string(), |p| p.display().to_string());
            let is_silent = spec.path.as_ref().is_some_and(|path| self.silent.contains(path));
            let reason = if is_silent { silence() } else { "no device with its guid was found".into() };
            return Err(DeviceError::Gone { device, reason }.into());
        };
        // It was found by its own guid; how far it goes is seen from the uberblocks of all.
        let member = Member { pool: self.pool, leaf: spec.guid, newest: self.newest, complete: Txg(0) };
        let opened = async {
            let device = self.devices.open_vdev(path, spec.whole_disk, self.options).await?;
            let reached = member.check(&*device).await?;
            Ok::<_, OpenError>((device, reached))
        };
        // It answered the search, and may have fallen silent since.
        let (device, reached) = identity::in_time(path, opened).await?;
        self.reached.lock().insert(spec.guid.0, reached);
        Ok(device)
    }
}

/// The open devices of vdevs that are being made, by leaf: the very handles through which was looked at what is on them
/// (`member_check`). What has their paths meanwhile is not asked.
#[derive(Default)]
pub struct NewDevices(pub BTreeMap<u64, Arc<dyn BlockDevice>>);

#[async_trait]
impl DeviceOpener for NewDevices {
    async fn open(&self, spec: &VdevSpec) -> std::result::Result<Arc<dyn BlockDevice>, OpenError> {
        self.0.get(&spec.guid.0).cloned().ok_or_else(|| {
            let device = spec.path.as_ref().map_or_else(|| spec.guid.to_string(), |path| path.display().to_string());
            DeviceError::Gone { device, reason: "it was not opened".into() }.into()
        })
    }
}

/// The vdev layer's description of a configured vdev.
pub fn spec(config: &VdevConfig) -> VdevSpec {
    let mut spec = VdevSpec::new(VdevKind::from_label(&config.kind, config.nparity.unwrap_or(0)));
    spec.id = config.id;
    spec.guid = config.guid;
    spec.path = config.path.as_ref().map(PathBuf::from);
    spec.ashift = config.ashift as u8;
    spec.asize = config.asize;
    spec.metaslab_shift = config.metaslab_shift as u8;
    spec.whole_disk = config.whole_disk == Some(1);
    spec.offline = config.offline || config.offline_for_now;
    spec.faulted = config.faulted;
    spec.external = verdict_flags::is_external(config);
    spec.degraded = config.degraded;
    spec.removed = config.removed;
    spec.not_present = config.not_present;
    spec.class = if config.is_log { AllocationClass::Log } else { AllocationClass::Normal };
    spec.create_txg = Txg(config.create_txg);
    spec.children = config.children.iter().map(self::spec).collect();
    spec
}

/// Opens every top-level vdev of `root`; the result is indexed by vdev id, `None` for holes.
///
/// # Errors
/// A vdev type this version cannot open, by name.
pub async fn open_all(
    root: &VdevConfig,
    opener: &dyn DeviceOpener,
    writable: bool,
) -> Result<Vec<Option<Arc<TopVdev>>>> {
    let mut vdevs = Vec::new();
    for config in &root.children {
        let index = config.id as usize;
        if index >= TOP_VDEVS_MAX {
            return Err(PoolError::Unavailable(format!("top-level vdev {index} is beyond any possible number")));
        }
        if vdevs.len() <= index {
            vdevs.resize(index + 1, None);
        }
        if matches!(&*config.kind, "hole" | "missing") {
            continue;
        }
        let vdev = TopVdev::open(&spec(config), opener, writable)
            .await
            .map_err(|e| PoolError::Unsupported(format!("cannot open vdev {} ({}): {e}", config.id, config.kind)))?;
        vdevs[index] = Some(Arc::new(vdev));
    }
    Ok(vdevs)
}

/// The devices of all opened leaves, by guid.
pub fn leaf_devices(vdevs: &[Option<Arc<TopVdev>>]) -> BTreeMap<u64, Arc<dyn BlockDevice>> {
    let leaves = vdevs.iter().flatten().flat_map(|vdev| vdev.leaves());
    leaves.filter_map(|leaf| leaf.device().map(|device| (leaf.guid().0, device))).collect()
}

/// The space of a new top-level vdev: all free.
pub fn new_group(config: &VdevConfig, vdev: &Arc<TopVdev>) -> Group {
    let shift = config.metaslab_shift;
    let count = config.asize >> shift;
    let metaslabs = (0..count).map(|i| Metaslab::new(i, i << shift, 1 << shift)).collect();
    let geometry: Arc<dyn Geometry> = vdev.clone();
    Group::new(config.id as u32, geometry, metaslabs, shift as u32, vdev.width() as u64)
}

/// Makes the list of a new top-level vdev's space maps: none yet.
///
/// # Errors
/// Out of space, device errors.
pub async fn make_metaslab_array(os: &Arc<Objset>, tx: &Tx, top: &mut VdevConfig) -> platter_dmu::Result<()> {
    let array = os.allocate(tx, NewDnode::plain(ObjectType::OBJECT_ARRAY, 16 << 10)).await?;
    array.write(tx, 0, &vec![0; (top.asize >> top.metaslab_shift) as usize * 8]).await?;
    top.metaslab_array = array.object();
    Ok(())
}

/// log2 of the metaslab size for a vdev of `asize` bytes (`vdev_metaslab_set_size`): about 200 metaslabs of 512 MiB to
/// 16 GiB, at least 16 of at least 16 MiB, at most 131072.
pub fn metaslab_shift(asize: u64) -> u64 {
    const DEFAULT_SHIFT: u64 = 29;
    const MAX_SHIFT: u64 = 34;
    let highbit = |n: u64| u64::from(64 - n.leading_zeros());
    let count = asize >> DEFAULT_SHIFT;
    let shift = if count < 16 {
        highbit(asize / 16)
    } else if count > 200 {
        highbit(asize / 200)
    } else {
        DEFAULT_SHIFT
    };
    if shift < 24 {
        24
    } else if shift > MAX_SHIFT {
        if asize >> MAX_SHIFT > 1 << 17 { highbit(asize / (1 << 17)) } else { MAX_SHIFT }
    } else {
        shift
    }
}

#[cfg(test)]
mod tests {
    use super::metaslab_shift;

    #[test]
    fn metaslab_sizes_follow_the_vdev_size() {
        assert_eq!(metaslab_shift(64 << 20), 24);
        assert_eq!(metaslab_shift(1 << 30), 27);
        assert_eq!(metaslab_shift(16 << 30), 29);
        assert_eq!(metaslab_shift(1 << 40), 33);
        assert_eq!(metaslab_shift(100 << 40), 34);
    }
}
