//! `zpool create`: checks first, then labels, then the first transaction group (`spa_create`, `dsl_pool_create`).

use platter_ondisk::features::Feature;
use std::sync::Arc;

use parking_lot::Mutex;

use platter_dmu::bpobj::Bpobj;
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, ObjsetParams, Tx, TxgGate, WriteProperties};
use platter_nvlist::NvList;
use platter_ondisk::{ObjectId, ObjectType, ObjsetType};
use platter_zio::Store;

use crate::config::{PoolConfig, PoolState};
use crate::core::{Core, OpenDevices, Stored};
use crate::environment::Environment;
use crate::labels::{self};
use crate::locked::Locked;
use crate::map_reader::MosMaps;
use crate::new_devices;
use crate::plan;
use crate::plan::Plan;
use crate::pool_events;
use crate::{caches, config_object, open_vdevs, pool_properties, salt, spares};
use platter_api::request::CreateRequest;
use platter_dsl::accounting::Accounting;
use platter_dsl::dataset::TXG_INITIAL;
use platter_dsl::dir::{Dir, FREE_DIR, MOS_DIR};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::features::Features;
use platter_dsl::mos_access::MosAccess;
use platter_dsl::mos_access::MosObjects;
use platter_dsl::mos_properties::first_mos_properties;
use platter_dsl::mos_properties::mos_properties;
use platter_dsl::new_dataset;
use platter_dsl::origin;
use platter_dsl::pool::{DslPool, DslPoolParts};
use platter_dsl::sync::update_available;
use platter_dsl::tree::Tree;
use platter_dsl::version::PoolVersion;
use platter_dsl::{history, mos};

/// Creates the pool. Its sync loop is not running yet: the first group waits to be synced.
///
/// # Errors
/// As [`plan`]; devices that cannot be opened or written.
pub async fn create(mut environment: Environment, request: &CreateRequest) -> Result<Arc<Core>> {
    let behind = OpenDevices::none(&mut environment);
    let mut plan = plan::plan(&environment, request).await?;
    let ashift = plan.ashift;
    let mut locked = Locked::default();
    locked.add(&environment, plan.root.guid)?;
    let mut devices = std::mem::take(&mut plan.devices);
    let spares = spares::prepare(&environment, std::mem::take(&mut plan.spares), &mut devices).await?;
    let caches = std::mem::take(&mut plan.caches);
    let caches = caches::prepare(&environment, caches, &mut devices, (plan.version, ashift)).await?;
    let vdevs = new_devices::open(&environment, &mut plan.root, devices, ashift).await?;
    let leaf_devices = open_vdevs::leaf_devices(&vdevs);
    let targets = new_devices::label_targets(&plan.root, &leaf_devices);
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
    let devices = OpenDevices { leaves: leaf_devices, ..behind };
    let core = build(environment, devices, request, plan, store).await?;
    spares::add(&core, &Tx::syncing(TXG_INITIAL), spares).await?;
    caches::add(&core, &Tx::syncing(TXG_INITIAL), caches).await?;
    *core.locked.lock() = locked;
    update_available(&core.dsl);
    Ok(core)
}

/// The meta object set of a pool that is being made.
struct NewMos {
    store: Store,
    gate: Arc<TxgGate>,
    os: Arc<Objset>,
    accounting: Arc<Accounting>,
    directory: Zap,
    features: Features,
    objects: Mutex<MosObjects>,
}

/// Makes the meta object set with its directory and its features.
async fn make_mos(environment: &Environment, plan: &Plan, store: Store, name: &str, tx: &Tx) -> Result<NewMos> {
    let gate = TxgGate::new(TXG_INITIAL, environment.dirty_bytes_max);
    let random = || environment.random_u64();
    let accounting = Arc::new(Accounting::new(store.clone(), platter_ondisk::Txg(0)));
    let params = ObjsetParams {
        store: Arc::new(store.clone()),
        accounting: accounting.clone(),
        gate: gate.clone(),
        id: ObjectId::NONE,
        properties: WriteProperties { format: plan.version.format(true), ..first_mos_properties() },
        read_only: false,
    };
    let os = Objset::create(params, ObjsetType::META, tx);
    store.set_map_reader(MosMaps::new(&os, name));
    let new = mos::new_zap(ObjectType::OBJECT_DIRECTORY, random());
    let directory = Zap::create(&os, tx, Some(mos::DIRECTORY_OBJECT), new).await?;
    let features = Features::none();
    if plan.version.has_features() {
        features.create(&os, &directory, tx, random).await?;
        for &feature in &plan.features {
            features.enable(&os, &directory, tx, feature, random).await?;
        }
    }
    os.set_properties(mos_properties(plan.version, &features));
    os.set_hole_birth(features.is_active(Feature::HoleBirth));
    if plan.version.has_features() {
        salt::create_if_missing(&directory, &store, tx, environment).await?;
    }
    Ok(NewMos { store, gate, os, accounting, directory, features, objects: Mutex::default() })
}

impl NewMos {
    /// Makes the directories, all but the root data set's contents.
    async fn make_tree(&self, environment: &Environment, version: PoolVersion, tx: &Tx) -> Result<Tree> {
        let (os, directory) = (&self.os, &self.directory);
        let now = environment.clock.now().0;
        let random = || environment.random_u64();
        let root_dir = Dir::create(os, directory, tx, None, "", now, random).await?;
        let below = async |name: &str| Dir::create(os, directory, tx, Some(root_dir.clone()), name, now, random).await;
        let mos_dir = Some(below(MOS_DIR).await?);
        let mut free_dir = None;
        if version.has_deadlists() {
            let free_list = Bpobj::create(os, tx, 128 << 10).await?;
            directory.put_u64(tx, mos::FREE_BPOBJ.as_bytes(), free_list.0).await?;
            free_dir = Some(below(FREE_DIR).await?);
        }
        let access = MosAccess { os, directory, features: &self.features, objects: &self.objects, version };
        let origin = Some(origin::create(&access, &self.store, tx, &root_dir, now, random).await?);
        Ok(Tree { mos_dir, free_dir, root_dir: Some(root_dir), origin, ..Tree::default() })
    }

    /// Makes the pool's own objects.
    async fn make_objects(&self, version: PoolVersion, tx: &Tx) -> Result<()> {
        let config = config_object::create(&self.os, &self.directory, tx).await?;
        self.directory.put_u64(tx, mos::CREATION_VERSION.as_bytes(), version.0).await?;
        self.directory.put_u64(tx, mos::DEFLATE.as_bytes(), 1).await?;
        let deferred = if version.has_deadlists() {
            Bpobj::create(&self.os, tx, 1 << 14).await?
        } else {
            Bpobj::create_plain(&self.os, tx, 1 << 14).await?
        };
        self.directory.put_u64(tx, mos::SYNC_BPOBJ.as_bytes(), deferred.0).await?;
        let mut objects = self.objects.lock();
        objects.config = config;
        objects.deferred = deferred;
        Ok(())
    }
}

/// The configuration of a new pool called `name`.
fn first_config(environment: &Environment, request: &CreateRequest, name: &str, plan: &mut Plan) -> PoolConfig {
    let root = std::mem::take(&mut plan.root);
    PoolConfig {
        version: plan.version.0,
        name: name.to_owned(),
        stored_name: request.temporary_name.is_some().then(|| request.name.clone()),
        state: PoolState::Active,
        txg: TXG_INITIAL,
        guid: root.guid,
        hostid: Some(environment.hostid()),
        hostname: Some(environment.hostname.clone()),
        comment: None,
        features_for_read: Vec::new(),
        has_vdev_zaps: false,
        vdev_children: root.children.len() as u64,
        holes: Vec::new(),
        top_guid: None,
        device_guid: None,
        vdev_tree: root,
        other: NvList::new(),
    }
}

async fn build(
    environment: Environment,
    devices: OpenDevices,
    request: &CreateRequest,
    mut plan: Plan,
    store: Store,
) -> Result<Arc<Core>> {
    let tx = Tx::syncing(TXG_INITIAL);
    let name = request.temporary_name.clone().unwrap_or_else(|| request.name.clone());
    let new = make_mos(&environment, &plan, store, &name, &tx).await?;
    let tree = new.make_tree(&environment, plan.version, &tx).await?;
    new.make_objects(plan.version, &tx).await?;
    for top in &mut plan.root.children {
        open_vdevs::make_metaslab_array(&new.os, &tx, top).await?;
    }
    let config = first_config(&environment, request, &name, &mut plan);
    let dsl = DslPool::new(DslPoolParts {
        name: name.clone(),
        surroundings: environment.for_data_sets(),
        store: new.store,
        gate: new.gate,
        mos: new.os,
        mos_accounting: new.accounting,
        directory: new.directory,
        features: new.features,
        objects: new.objects.into_inner(),
        tree,
        version: plan.version,
        read_only: false,
        altroot: request.altroot.clone(),
        claims: Vec::new(),
    });
    let core = Core::new(environment, dsl, config, devices, Stored::default());
    pool_events::listen_to_data_sets(&core);
    fill(&core, &tx, &plan).await?;
    history::create(&core.dsl, &tx).await?;
    if !request.history.is_empty() {
        let command = history::Command::now(&core.dsl, &request.history, 0);
        history::append_command(&core.dsl, &tx, &command).await?;
    }
    Ok(core)
}

/// Makes the root file system and sets the properties, those of the pool included.
async fn fill(core: &Arc<Core>, tx: &Tx, plan: &Plan) -> Result<()> {
    let root_dir = core.dsl.tree.read().root_dir.clone().expect("made with the tree");
    new_dataset::prepare(&core.dsl, tx, &root_dir, &plan.dataset_properties, None).await?;
    let root = new_dataset::add_filesystem(&core.dsl, tx, &root_dir, &plan.filesystem).await?;
    new_dataset::settle(&core.dsl, tx, core.name(), &root, &plan.dataset_properties).await?;
    for (name, value) in &plan.pool_properties {
        pool_properties::store(core, tx, name, value.clone()).await?;
    }
    Ok(())
}
