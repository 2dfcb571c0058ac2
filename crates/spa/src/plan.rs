//! What a new pool, or new vdevs of one, will be: checked before anything on any device changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures::{StreamExt, stream};
use platter_device::{OpenOptions, PathKind};
use platter_ondisk::Guid;
use platter_ondisk::features::Feature;

use crate::config::VdevConfig;
use crate::environment::Environment;
use crate::open_vdevs::NewDevices;
use crate::{member_check, path_look, pool_properties, spare_label};
use platter_api::request::{CreateRequest, VdevRequest};
use platter_api::{block_properties, names, properties};
use platter_dsl::dataset::TXG_INITIAL;
use platter_dsl::environment::FilesystemOptions;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::features::{self, Features};
use platter_dsl::stored_property::StoredProperty;
use platter_dsl::version::PoolVersion;
use platter_dsl::version_limits;

/// A checked request: the configuration to write, and the devices.
pub struct Plan {
    /// The devices, open since they were checked.
    pub devices: NewDevices,
    /// Configuration without sizes.
    pub root: VdevConfig,
    /// Devices that are to be hot spares.
    pub spares: Vec<VdevConfig>,
    /// Devices that are to be cache devices.
    pub caches: Vec<VdevConfig>,
    /// `ashift` property, when given.
    pub ashift: u64,
    /// Pool properties to store.
    pub pool_properties: BTreeMap<String, StoredProperty>,
    /// Root data set properties to store.
    pub dataset_properties: BTreeMap<String, StoredProperty>,
    /// What the root file system is made with.
    pub filesystem: FilesystemOptions,
    /// Features to enable.
    pub features: Vec<Feature>,
    /// Version to create.
    pub version: PoolVersion,
}

/// Checks everything that can be checked without writing.
///
/// # Errors
/// The first thing that is wrong, named.
pub async fn plan(environment: &Environment, request: &CreateRequest) -> Result<Plan> {
    names::check_pool(&request.name)?;
    if let Some(name) = &request.temporary_name {
        names::check_pool(name)?;
    }
    if !request.vdevs.iter().any(VdevRequest::holds_data) {
        return Err(PoolError::Devices(
            "invalid vdev specification: at least one toplevel vdev must be specified".into(),
        ));
    }
    for (name, value) in &request.pool_properties {
        crate::multihost::check_property(environment, name, value)?;
    }
    let (ashift, pool_properties, features, version) = pool_properties::parse_for_create(&request.pool_properties)?;
    let mut dataset_properties = request.dataset_properties.clone();
    let filesystem = platter_dsl::at_creation::take_at_creation(&mut dataset_properties, version)?.below(None);
    let dataset_properties = properties::parse_all(&dataset_properties)?;
    if !version.has_features() {
        version_limits::check_all(&dataset_properties, version, &Features::none())?;
    }

    let pool_guid = Guid(environment.random_u64());
    let mut root = VdevConfig { kind: "root".into(), guid: pool_guid, ..VdevConfig::default() };
    let Planned { tops, spares, caches, devices } =
        plan_vdevs(environment, &request.vdevs, 0, version, request.force).await?;
    root.children = tops;
    let features = match version.has_features() {
        true => features::chosen(&features.disabled, &features.enabled),
        false => Vec::new(),
    };
    for (property, value) in &dataset_properties {
        block_properties::check_features(|feature| features.contains(&feature), property, value)?;
    }
    Ok(Plan {
        root,
        spares,
        caches,
        devices,
        ashift,
        pool_properties,
        dataset_properties,
        filesystem,
        features,
        version,
    })
}

/// Devices that are looked at together: each takes some seeks of its own.
const CHECKS_AT_ONCE: usize = 8;

/// New top-level vdevs, spares and cache devices, checked.
pub struct Planned {
    /// The vdevs, without sizes.
    pub tops: Vec<VdevConfig>,
    /// The spares.
    pub spares: Vec<VdevConfig>,
    /// The cache devices.
    pub caches: Vec<VdevConfig>,
    /// The devices of all of them, open since they were checked.
    pub devices: NewDevices,
}

/// Checks new top-level vdevs and gives them their place: ids from `first_id` on, and guids. Their devices stay open
/// from the check on. A device that is a spare already keeps its guid: several pools may share it.
///
/// # Errors
/// The first thing that is wrong, named.
pub async fn plan_vdevs(
    environment: &Environment,
    vdevs: &[VdevRequest],
    first_id: u64,
    version: PoolVersion,
    force: bool,
) -> Result<Planned> {
    let mut seen = BTreeSet::new();
    for path in vdevs.iter().flat_map(VdevRequest::leaves) {
        let real = path_look::look(&*environment.devices, path).await.real.unwrap_or_else(|| path.clone());
        if !seen.insert(real) {
            return Err(PoolError::Devices(format!("invalid vdev specification: {} is given twice", path.display())));
        }
    }
    for vdev in vdevs {
        check_width(vdev)?;
        if matches!(vdev, VdevRequest::Raidz { parity: 3, .. }) && !version.has_raidz3() {
            return Err(PoolError::invalid(format!("raidz3 needs pool version 17 or later, this would be {version}")));
        }
    }
    let (mut reasons, mut opened) = (Vec::new(), BTreeMap::new());
    let leaves = vdevs.iter().flat_map(|vdev| vdev.leaves().iter().map(move |path| (path, vdev.is_spare())));
    let checks: Vec<_> = leaves
        .map(|(path, is_spare)| async move { (path, member_check::check(environment, path, force, is_spare).await) })
        .collect();
    let mut checks = stream::iter(checks).buffered(CHECKS_AT_ONCE);
    while let Some((path, checked)) = checks.next().await {
        match checked {
            // All of these are told together, as they can be overridden together.
            Err(PoolError::NeedsForce { reason, .. }) => reasons.push(reason),
            checked => drop(opened.insert(path.display().to_string(), checked?)),
        }
    }
    drop(checks);
    if !reasons.is_empty() {
        return Err(PoolError::NeedsForce { reason: reasons.join("\n"), hint: member_check::OVERRIDE.into() });
    }
    if !force {
        for vdev in vdevs {
            check_sizes(environment, vdev).await?;
        }
    }
    let of_vdevs = vdevs.iter().filter(|vdev| vdev.is_top());
    let tops: Vec<_> = (first_id..).zip(of_vdevs).map(|(id, vdev)| top_config(environment, vdev, id)).collect();
    let mut spares = Vec::new();
    for path in vdevs.iter().filter(|vdev| vdev.is_spare()).flat_map(VdevRequest::leaves) {
        let mut spare = leaf_config(environment, path, 0);
        if let Some(device) = opened.get(&path.display().to_string())
            && let Some((label, in_partition)) = spare_label::search(device).await
            // What becomes one as a whole is another one than that in its partition.
            && (!in_partition || spare.whole_disk == Some(1))
        {
            spare.guid = label.guid;
        }
        spares.push(spare);
    }
    let caches = vdevs.iter().filter(|vdev| vdev.is_cache()).flat_map(VdevRequest::leaves);
    let caches: Vec<_> = caches.map(|path| leaf_config(environment, path, 0)).collect();
    let mut devices = BTreeMap::new();
    for config in tops.iter().chain(&spares).chain(&caches) {
        config.walk(&mut |vdev| {
            let device = vdev.path.as_ref().and_then(|path| opened.remove(path));
            devices.extend(device.map(|device| (vdev.guid.0, device)));
        });
    }
    Ok(Planned { tops, spares, caches, devices: NewDevices(devices) })
}

fn check_width(vdev: &VdevRequest) -> Result<()> {
    let too_few = |kind: &str, least: usize| {
        Err(PoolError::Devices(format!("invalid vdev specification: {kind} requires at least {least} devices")))
    };
    match vdev {
        VdevRequest::Mirror(children) if children.len() < 2 => too_few("mirror", 2),
        VdevRequest::Log(children) if children.is_empty() => {
            Err(PoolError::Devices("invalid vdev specification: log requires at least 1 device".into()))
        }
        VdevRequest::Raidz { parity, children } if children.len() < usize::from(*parity) + 1 => {
            too_few(&format!("raidz{parity}"), usize::from(*parity) + 1)
        }
        VdevRequest::Raidz { children, .. } if children.len() > 255 => {
            Err(PoolError::Devices("invalid vdev specification: raidz supports no more than 255 devices".into()))
        }
        _ => Ok(()),
    }
}

/// Devices of one group that differ in size waste space: that needs `-f`.
async fn check_sizes(environment: &Environment, vdev: &VdevRequest) -> Result<()> {
    let kind = match vdev {
        VdevRequest::Leaf(_) | VdevRequest::Spare(_) | VdevRequest::Cache(_) => return Ok(()),
        VdevRequest::Mirror(_) | VdevRequest::Log(_) => "mirror",
        VdevRequest::Raidz { .. } => "raidz",
    };
    let mut sizes = Vec::new();
    for path in vdev.leaves() {
        sizes.extend(environment.devices.open_path(path, OpenOptions::read_only()).await.map(|device| device.size()));
    }
    let (least, most) = (sizes.iter().min().copied().unwrap_or(0), sizes.iter().max().copied().unwrap_or(0));
    // zpool tolerates 50 MB of difference between disks (ZPOOL_FUZZ).
    if most - least > 50 << 20 {
        return Err(PoolError::NeedsForce {
            reason: format!("{kind} contains devices of different sizes"),
            hint: "use '-f' to override the following errors:".into(),
        });
    }
    Ok(())
}

fn leaf_config(environment: &Environment, path: &Path, id: u64) -> VdevConfig {
    let is_file = matches!(environment.devices.kind(path), PathKind::File(_));
    VdevConfig {
        kind: if is_file { "file".into() } else { "disk".into() },
        id,
        guid: Guid(environment.random_u64()),
        path: Some(path.display().to_string()),
        whole_disk: (!is_file).then(|| u64::from(environment.devices.is_whole_disk(path))),
        create_txg: TXG_INITIAL.0,
        ..VdevConfig::default()
    }
}

fn top_config(environment: &Environment, vdev: &VdevRequest, id: u64) -> VdevConfig {
    let parent = |kind: &str, nparity: Option<u64>, children: &[PathBuf]| VdevConfig {
        kind: kind.into(),
        id,
        guid: Guid(environment.random_u64()),
        nparity,
        create_txg: TXG_INITIAL.0,
        children: (0..).zip(children).map(|(id, path)| leaf_config(environment, path, id)).collect(),
        ..VdevConfig::default()
    };
    match vdev {
        VdevRequest::Leaf(path) => leaf_config(environment, path, id),
        VdevRequest::Mirror(children) => parent("mirror", None, children),
        VdevRequest::Raidz { parity, children } => parent("raidz", Some(u64::from(*parity)), children),
        VdevRequest::Log(paths) => {
            let vdev = match &paths[..] {
                [path] => leaf_config(environment, path, id),
                several => parent("mirror", None, several),
            };
            VdevConfig { is_log: true, ..vdev }
        }
        VdevRequest::Spare(_) | VdevRequest::Cache(_) => unreachable!("they are no part of the tree"),
    }
}
