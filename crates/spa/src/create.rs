//! `zpool create`: checks first, then labels, then the first transaction group (`spa_create`, `dsl_pool_create`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use platter_device::{BlockDevice, Cutoff, OpenOptions, PathKind};
use platter_dmu::bpobj::Bpobj;
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, ObjsetParams, Tx, TxgGate, WriteProperties};
use platter_nvlist::NvList;
use platter_ondisk::types::object_type;
use platter_ondisk::{Guid, ObjectId};
use platter_vdev::TopVdev;
use platter_zio::Store;

use crate::config::{PoolConfig, PoolState, VdevConfig};
use crate::core::{Core, OpenDevices, Stored};
use crate::environment::Environment;
use crate::labels::{self, LabelTarget};
use crate::map_reader::MosMaps;
use crate::open_vdevs::NewDevices;
use crate::pool_locks::Locked;
use crate::request::{CreateRequest, VdevRequest};
use crate::{config_object, member_check, open_vdevs, pool_properties, salt, spare_label, spares};
use platter_dsl::accounting::Accounting;
use platter_dsl::dataset::TXG_INITIAL;
use platter_dsl::dir::{Dir, FREE_DIR, MOS_DIR, StoredProperty};
use platter_dsl::environment::FilesystemOptions;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::features::{self, Features};
use platter_dsl::mos_access::MosAccess;
use platter_dsl::mos_access::MosObjects;
use platter_dsl::mos_properties::first_mos_properties;
use platter_dsl::mos_properties::mos_properties;
use platter_dsl::new_dataset::{add_filesystem, set_limit};
use platter_dsl::origin;
use platter_dsl::pool::{DslPool, DslPoolParts};
use platter_dsl::sync::update_available;
use platter_dsl::tree::Tree;
use platter_dsl::version::PoolVersion;
use platter_dsl::{block_properties, history, mos, names, properties, space, version_limits};

/// Least size of a device (`SPA_MINDEVSIZE`).
pub const DEVICE_SIZE_MIN: u64 = 64 << 20;

/// A checked request: the configuration to write, and the devices.
pub struct Plan {
    /// The devices, open since they were checked.
    pub devices: NewDevices,
    /// Configuration without sizes.
    pub root: VdevConfig,
    /// Devices that are to be hot spares.
    pub spares: Vec<VdevConfig>,
    /// `ashift` property, when given.
    pub ashift: u64,
    /// Pool properties to store.
    pub pool_properties: BTreeMap<String, StoredProperty>,
    /// Root data set properties to store.
    pub dataset_properties: BTreeMap<String, StoredProperty>,
    /// What the root file system is made with.
    pub filesystem: FilesystemOptions,
    /// Features to enable.
    pub features: Vec<&'static str>,
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
    if request.vdevs.iter().all(VdevRequest::is_spare) {
        return Err(PoolError::invalid("invalid vdev specification: at least one toplevel vdev must be specified"));
    }
    for (name, value) in &request.pool_properties {
        crate::multihost::check_property(environment, name, value)?;
    }
    let (ashift, pool_properties, features, version) = pool_properties::parse_for_create(&request.pool_properties)?;
    let mut dataset_properties = request.dataset_properties.clone();
    let filesystem = properties::take_at_creation(&mut dataset_properties, version)?.below(None);
    let dataset_properties = properties::parse_all(&dataset_properties)?;
    if !version.has_features() {
        version_limits::check_all(&dataset_properties, version, &Features::none())?;
    }

    let pool_guid = Guid(environment.random_u64());
    let mut root = VdevConfig { kind: "root".into(), guid: pool_guid, ..VdevConfig::default() };
    let Planned { tops, spares, devices } = plan_vdevs(environment, &request.vdevs, 0, version, request.force).await?;
    root.children = tops;
    let features = match version.has_features() {
        true => features::chosen(&features.disabled, &features.enabled),
        false => Vec::new(),
    };
    for (property, value) in &dataset_properties {
        block_properties::check_features(|guid| features.contains(&guid), property, value)?;
    }
    Ok(Plan { root, spares, devices, ashift, pool_properties, dataset_properties, filesystem, features, version })
}

/// New top-level vdevs and spares, checked.
pub struct Planned {
    /// The vdevs, without sizes.
    pub tops: Vec<VdevConfig>,
    /// The spares.
    pub spares: Vec<VdevConfig>,
    /// The devices of both, open since they were checked.
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
        let real = environment.devices.canonical(path).unwrap_or_else(|| path.clone());
        if !seen.insert(real) {
            return Err(PoolError::invalid(format!("invalid vdev specification: {} is given twice", path.display())));
        }
    }
    for vdev in vdevs {
        check_width(vdev)?;
        if matches!(vdev, VdevRequest::Raidz { parity: 3, .. }) && !version.has_raidz3() {
            return Err(PoolError::invalid(format!("raidz3 needs pool version 17 or later, this would be {version}")));
        }
    }
    let (mut reasons, mut opened) = (Vec::new(), BTreeMap::new());
    for vdev in vdevs {
        for path in vdev.leaves() {
            match member_check::check(environment, path, force, vdev.is_spare()).await {
                // All of these are told together, as they can be overridden together.
                Err(PoolError::NeedsForce { reason, .. }) => reasons.push(reason),
                checked => drop(opened.insert(path.display().to_string(), checked?)),
            }
        }
    }
    if !reasons.is_empty() {
        return Err(PoolError::NeedsForce { reason: reasons.join("\n"), hint: member_check::OVERRIDE.into() });
    }
    if !force {
        for vdev in vdevs {
            check_sizes(environment, vdev).await?;
        }
    }
    let of_vdevs = vdevs.iter().filter(|vdev| !vdev.is_spare());
    let tops: Vec<_> = (first_id..).zip(of_vdevs).map(|(id, vdev)| top_config(environment, vdev, id)).collect();
    let mut spares = Vec::new();
    for path in vdevs.iter().filter(|vdev| vdev.is_spare()).flat_map(VdevRequest::leaves) {
        let mut spare = leaf_config(environment, path, 0);
        if let Some(device) = opened.get(&path.display().to_string())
            && let Some((guid, _)) = spare_label::search(device).await
        {
            spare.guid = guid;
        }
        spares.push(spare);
    }
    let mut devices = BTreeMap::new();
    for config in tops.iter().chain(&spares) {
        config.walk(&mut |vdev| {
            let device = vdev.path.as_ref().and_then(|path| opened.remove(path));
            devices.extend(device.map(|device| (vdev.guid.0, device)));
        });
    }
    Ok(Planned { tops, spares, devices: NewDevices(devices) })
}

fn check_width(vdev: &VdevRequest) -> Result<()> {
    let too_few = |kind: &str, least: usize| {
        Err(PoolError::invalid(format!("invalid vdev specification: {kind} requires at least {least} devices")))
    };
    match vdev {
        VdevRequest::Mirror(children) if children.len() < 2 => too_few("mirror", 2),
        VdevRequest::Raidz { parity, children } if children.len() < usize::from(*parity) + 1 => {
            too_few(&format!("raidz{parity}"), usize::from(*parity) + 1)
        }
        VdevRequest::Raidz { children, .. } if children.len() > 255 => {
            Err(PoolError::invalid("invalid vdev specification: raidz supports no more than 255 devices"))
        }
        _ => Ok(()),
    }
}

/// Devices of one group that differ in size waste space: that needs `-f`.
async fn check_sizes(environment: &Environment, vdev: &VdevRequest) -> Result<()> {
    let kind = match vdev {
        VdevRequest::Leaf(_) | VdevRequest::Spare(_) => return Ok(()),
        VdevRequest::Mirror(_) => "mirror",
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
        VdevRequest::Spare(_) => unreachable!("spares are no vdevs"),
    }
}

/// Makes vdevs of the planned ones' devices, whole disks partitioned, and fills in their sizes. The result is indexed
/// by id.
///
/// # Errors
/// The first device that cannot be had.
pub async fn open(
    environment: &Environment,
    root: &mut VdevConfig,
    mut devices: NewDevices,
    ashift: u64,
) -> Result<Vec<Option<Arc<TopVdev>>>> {
    for top in &mut root.children {
        let mut disks = Vec::new();
        top.walk_mut(&mut |v| {
            if v.whole_disk == Some(1) {
                disks.push(v.guid);
            }
        });
        for guid in disks {
            label_disk(environment, top, guid, &mut devices).await?;
        }
        top.ashift = ashift;
    }
    let vdevs = open_vdevs::open_all(root, &devices, true).await.map_err(|e| PoolError::Busy(e.to_string()))?;
    for (config, vdev) in root.children.iter_mut().zip(vdevs.iter().flatten()) {
        for leaf in vdev.leaves() {
            if !leaf.is_usable() {
                let condition = leaf.condition();
                let reason = condition.detail.unwrap_or_else(|| "one or more devices is currently unavailable".into());
                return Err(PoolError::Busy(format!("{}: {reason}", leaf.name())));
            }
            if leaf.psize() < DEVICE_SIZE_MIN {
                return Err(PoolError::invalid(format!(
                    "one or more devices is less than the minimum size (64M): {} has {} bytes",
                    leaf.name(),
                    leaf.psize()
                )));
            }
        }
        config.ashift = u64::from(vdev.ashift());
        config.asize = vdev.asize();
        config.metaslab_shift = open_vdevs::metaslab_shift(vdev.asize());
    }
    Ok(vdevs)
}

/// Partitions a whole disk and points the configuration to the partition.
async fn label_disk(
    environment: &Environment,
    top: &mut VdevConfig,
    guid: Guid,
    devices: &mut NewDevices,
) -> Result<()> {
    let mut random = [0; 56];
    for chunk in random.chunks_exact_mut(8) {
        chunk.copy_from_slice(&environment.random_u64().to_le_bytes());
    }
    let mut path = None;
    top.walk_mut(&mut |v| {
        if v.guid == guid {
            path = v.path.clone();
        }
    });
    let path = path.unwrap_or_default();
    let ids = platter_device::gpt::GptIds::from_random(&random);
    let disk = devices.0.remove(&guid.0).ok_or_else(|| PoolError::Busy(format!("{path} was not opened")))?;
    let device = platter_device::label_whole_disk(disk, Path::new(&path), &ids)
        .await
        .map_err(|e| PoolError::Busy(e.to_string()))?;
    let partition = device.path().map(|p| p.display().to_string()).unwrap_or(path);
    devices.0.insert(guid.0, device);
    top.walk_mut(&mut |v| {
        if v.guid == guid {
            v.path = Some(partition.clone());
        }
    });
    Ok(())
}

/// Creates the pool. Its sync loop is not running yet: the first group waits to be synced.
///
/// # Errors
/// As [`plan`]; devices that cannot be opened or written.
pub async fn create(mut environment: Environment, request: &CreateRequest) -> Result<Arc<Core>> {
    let cutoff = Arc::new(Cutoff::default());
    environment.devices = cutoff.around(environment.devices);
    let mut plan = plan(&environment, request).await?;
    let ashift = plan.ashift;
    let mut locked = Locked::default();
    locked.add(&environment, plan.root.guid)?;
    let mut devices = std::mem::take(&mut plan.devices);
    let spares = spares::prepare(&environment, std::mem::take(&mut plan.spares), &mut devices).await?;
    let vdevs = open(&environment, &mut plan.root, devices, ashift).await?;
    let leaf_devices = open_vdevs::leaf_devices(&vdevs);
    let targets = label_targets(&plan.root, &leaf_devices);
    spares::label(&spares, plan.version.0).await?;
    labels::wipe(&targets).await.map_err(PoolError::Unavailable)?;

    let store = Store::new(vdevs.clone(), environment.cache_bytes / environment.memory.shares());
    store.set_cpu(environment.cpu.clone());
    {
        let mut allocator = store.state().allocator.lock();
        allocator.set_budget(environment.metaslab_bytes / environment.memory.shares());
        for (config, vdev) in plan.root.children.iter().zip(vdevs.iter().flatten()) {
            allocator.add_group(open_vdevs::new_group(config, vdev));
        }
    }
    let core = build(environment, cutoff, request, plan, store, leaf_devices).await?;
    spares::add(&core, &Tx::syncing(TXG_INITIAL), spares).await?;
    *core.locked.lock() = locked;
    update_available(&core.dsl);
    Ok(core)
}

/// New leaves, to be labelled.
pub fn label_targets(root: &VdevConfig, devices: &BTreeMap<u64, Arc<dyn BlockDevice>>) -> Vec<LabelTarget> {
    let leaves = root
        .children
        .iter()
        .enumerate()
        .flat_map(|(top, vdev)| vdev.leaves().into_iter().map(move |leaf| (top, vdev.ashift, leaf.guid)));
    leaves
        .filter_map(|(top, ashift, guid)| {
            let device = devices.get(&guid.0)?.clone();
            Some(LabelTarget { device, guid, top, ashift: ashift as u32 })
        })
        .collect()
}

async fn build(
    environment: Environment,
    cutoff: Arc<Cutoff>,
    request: &CreateRequest,
    mut plan: Plan,
    store: Store,
    leaf_devices: BTreeMap<u64, Arc<dyn BlockDevice>>,
) -> Result<Arc<Core>> {
    let gate = TxgGate::new(TXG_INITIAL, environment.dirty_bytes_max);
    let tx = Tx::syncing(TXG_INITIAL);
    let now = environment.clock.now().0;
    let random = || environment.random_u64();
    let mos_accounting = Arc::new(Accounting::new(store.clone(), platter_ondisk::Txg(0)));
    let params = ObjsetParams {
        store: Arc::new(store.clone()),
        accounting: mos_accounting.clone(),
        gate: gate.clone(),
        id: ObjectId::NONE,
        properties: WriteProperties { format: plan.version.format(true), ..first_mos_properties() },
        read_only: false,
    };
    let os = Objset::create(params, 1, &tx);
    store.set_map_reader(MosMaps::new(&os, request.temporary_name.as_ref().unwrap_or(&request.name)));
    let directory =
        Zap::create(&os, &tx, Some(mos::DIRECTORY_OBJECT), mos::new_zap(object_type::OBJECT_DIRECTORY, random()))
            .await?;
    let version = plan.version;
    let features = Features::none();
    if version.has_features() {
        features.create(&os, &directory, &tx, random).await?;
        for guid in &plan.features {
            features.enable(&os, &directory, &tx, guid, random).await?;
        }
    }
    os.set_properties(mos_properties(version, &features));
    os.set_hole_birth(features.is_active("com.delphix:hole_birth"));
    let objects = Mutex::new(MosObjects::default());

    if version.has_features() {
        salt::create_if_missing(&directory, &store, &tx, &environment).await?;
    }
    let root_dir = Dir::create(&os, &directory, &tx, None, "", now, random).await?;
    let mos_dir = Dir::create(&os, &directory, &tx, Some(root_dir.clone()), MOS_DIR, now, random).await?;
    let free_dir = if version.has_deadlists() {
        let free_list = Bpobj::create(&os, &tx, 128 << 10).await?;
        directory.put_u64(&tx, mos::FREE_BPOBJ.as_bytes(), free_list.0).await?;
        Some(Dir::create(&os, &directory, &tx, Some(root_dir.clone()), FREE_DIR, now, random).await?)
    } else {
        None
    };
    let access = MosAccess { os: &os, directory: &directory, features: &features, objects: &objects, version };
    let origin = origin::create(&access, &store, &tx, &root_dir, now, random).await?;

    let config = config_object::create(&os, &directory, &tx).await?;
    directory.put_u64(&tx, mos::CREATION_VERSION.as_bytes(), version.0).await?;
    directory.put_u64(&tx, mos::DEFLATE.as_bytes(), 1).await?;
    let deferred = if version.has_deadlists() {
        Bpobj::create(&os, &tx, 1 << 14).await?
    } else {
        Bpobj::create_plain(&os, &tx, 1 << 14).await?
    };
    directory.put_u64(&tx, mos::SYNC_BPOBJ.as_bytes(), deferred.0).await?;
    {
        let mut objects = objects.lock();
        objects.config = config;
        objects.deferred = deferred;
    }
    for top in &mut plan.root.children {
        open_vdevs::make_metaslab_array(&os, &tx, top).await?;
    }

    let name = request.temporary_name.clone().unwrap_or_else(|| request.name.clone());
    let pool_config = PoolConfig {
        version: version.0,
        name: name.clone(),
        stored_name: request.temporary_name.is_some().then(|| request.name.clone()),
        state: PoolState::Active,
        txg: TXG_INITIAL.0,
        guid: plan.root.guid,
        hostid: Some(environment.hostid()),
        hostname: Some(environment.hostname.clone()),
        comment: None,
        features_for_read: Vec::new(),
        has_vdev_zaps: false,
        vdev_children: plan.root.children.len() as u64,
        top_guid: None,
        device_guid: None,
        vdev_tree: plan.root,
        other: NvList::new(),
    };
    let tree = Tree {
        mos_dir: Some(mos_dir),
        free_dir,
        root_dir: Some(root_dir.clone()),
        origin: Some(origin),
        ..Tree::default()
    };
    let dsl = DslPool::new(DslPoolParts {
        name: name.clone(),
        surroundings: environment.for_data_sets(),
        store,
        gate,
        mos: os,
        mos_accounting,
        directory,
        features,
        objects: objects.into_inner(),
        tree,
        version,
        read_only: false,
        altroot: request.altroot.clone(),
        claims: Vec::new(),
    });
    let devices = OpenDevices { leaves: leaf_devices, cutoff };
    let core = Core::new(environment, dsl, pool_config, devices, Stored::default());
    let (limits_set, plain): (Vec<_>, Vec<_>) =
        plan.dataset_properties.iter().partition(|(name, _)| space::is_limit(name) || *name == "filesystem_limit");
    for (name, value) in plain {
        root_dir.set_property(&core.dsl.mos, &tx, name, Some(value.clone())).await?;
    }
    let root = add_filesystem(&core.dsl, &tx, &root_dir, &plan.filesystem).await?;
    core.dsl.tree.write().datasets.insert(name.clone(), root.clone());
    for (property, value) in limits_set {
        set_limit(&core.dsl, &tx, &name, &root, property, value).await?;
    }
    for (name, value) in &plan.pool_properties {
        pool_properties::store(&core, &tx, name, value.clone()).await?;
    }
    history::create(&core.dsl, &tx).await?;
    if !request.history.is_empty() {
        history::append_command(&core.dsl, &tx, &request.history).await?;
    }
    Ok(core)
}
