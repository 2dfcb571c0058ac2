//! `zpool import`: from devices to an open pool (`spa_load`, `module/zfs/spa.c`).
//!
//! Invariants:
//! - nothing is written before everything that the pool needs was read and understood: what the first group writes is
//!   held back until all of it is there (`platter_device::held`). Only the claim of a pool that hosts share is written
//!   before that group, after everything was loaded;
//! - a pool is opened for writing only when every active feature is one this version can write and nothing in it asks
//!   for work this version cannot do (a removal to finish); else it is refused with the reason
//!   and the way to read it.

use platter_ondisk::features::Feature;
use platter_ondisk::sector::SECTOR_SHIFT;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use platter_device::OpenOptions;
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, ObjsetParams, TxgGate, ZioError};
use platter_ondisk::label::{VDEV_LABEL_END_SIZE, VDEV_LABEL_START_SIZE, usable_size};
use platter_ondisk::spacemap::{MapType, Segment};
use platter_ondisk::{ObjectId, Sectors, Txg, Uberblock};
use platter_vdev::leaf::READ_ONLY;
use platter_vdev::{AllocationClass, TopVdev};
use platter_zio::{Geometry, Group, Metaslab, Store};

use crate::absent_logs;
use crate::activity::Seen;
use crate::config::{PoolConfig, PoolState, VdevConfig};
use crate::core::{Core, OpenDevices, Stored};
use crate::discover::{self, Candidate, Scan};
use crate::environment::Environment;
use crate::error_heads::LostBlock;
use crate::error_scrub_state::ErrorScrub;
use crate::import_check;
use crate::label_search;
use crate::locked::{self, Locked};
use crate::logs::Logs;
use crate::map_reader::MosMaps;
use crate::open_vdevs::{self, FoundDevices};
use crate::pool_events;
use crate::rebuild_store;
use crate::scan_store;
use crate::space_maps::Words;
use crate::writable::{check_directory, check_features};
use crate::{
    allocating, caches, config_object, dtl, error_holders, error_log, error_scrub, free_work, multihost,
    pool_properties, salt, space_maps, spares, split_pairs, vdev_properties, vdev_zaps,
};
use platter_api::request::ImportRequest;
use platter_dsl::accounting::Accounting;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::features::Features;
use platter_dsl::mos_access::MosObjects;
use platter_dsl::mos_properties::first_mos_properties;
use platter_dsl::mos_properties::mos_properties;
use platter_dsl::pool::{DslPool, DslPoolParts};
use platter_dsl::stored_property::StoredProperty;
use platter_dsl::sync::update_available;
use platter_dsl::version::PoolVersion;
use platter_dsl::{freeing, intent, mos, tree};

/// Metaslabs of a vdev, at most: twice what `zfs_vdev_ms_count_limit` makes, as vdevs may grow.
const METASLABS_MAX: u64 = 1 << 18;

/// Headers of space maps that are read at one time.
const HEADERS_AT_ONCE: usize = 64;

/// Finds the one pool that a request means.
async fn choose(
    environment: &Environment,
    request: &ImportRequest,
    read_only: bool,
) -> Result<(Candidate, Option<Seen>)> {
    let Scan { pools, silent } = discover::scan(&*environment.devices, &request.search, &request.silent).await;
    let guid: Option<u64> = request.pool.parse().ok();
    let mut matching: Vec<Candidate> = pools
        .into_iter()
        .filter(|c| (c.config.state == PoolState::Destroyed) == request.destroyed)
        .filter(|c| guid.map_or(c.config.name == request.pool, |g| c.config.guid.0 == g))
        .collect();
    match matching.len() {
        0 => {
            let passed_over = silent.iter().map(|path| format!("\n{}: {}", path.display(), label_search::silence()));
            return Err(PoolError::NotFound(format!("no such pool available{}", passed_over.collect::<String>())));
        }
        1 => {}
        _ => {
            let guids: Vec<String> = matching.iter().map(|c| c.config.guid.to_string()).collect();
            return Err(PoolError::Invalid(format!(
                "more than one matching pool\nimport by numeric ID instead: {}",
                guids.join(", ")
            )));
        }
    }
    let mut candidate = matching.remove(0);
    if read_only {
        candidate.find_writer(environment).await;
    }
    let seen = multihost::check(environment, &candidate, read_only).await?;
    import_check::check_owner(environment, &candidate, request)?;
    import_check::check_version(&candidate)?;
    Ok((candidate, seen))
}

/// The properties `zpool import -o` takes.
fn options(environment: &Environment, request: &ImportRequest) -> Result<(bool, BTreeMap<String, StoredProperty>)> {
    let (mut read_only, mut properties) = (false, BTreeMap::new());
    for (name, value) in &request.properties {
        match (&**name, &**value) {
            ("readonly", "on") => read_only = true,
            ("readonly", "off") => read_only = false,
            ("readonly", _) => return Err(PoolError::invalid("'readonly' must be one of 'on | off'")),
            _ => {
                multihost::check_property(environment, name, value)?;
                properties.insert(name.clone(), pool_properties::parse(name, value)?);
            }
        }
    }
    Ok((read_only, properties))
}

/// Opens the vdevs and the MOS. The configuration in the MOS is the one to trust: the vdevs are opened again when it
/// describes others than the labels did.
///
/// # Errors
/// Devices missing, damage, unreadable blocks.
pub async fn open_as_stored(
    environment: &Environment,
    label_config: &PoolConfig,
    opener: &FoundDevices,
    paths: &BTreeMap<u64, PathBuf>,
    uberblock: &Uberblock,
    read_only: bool,
) -> Result<(Opened, PoolConfig)> {
    let vdevs = open_usable(&label_config.vdev_tree, opener, !read_only).await?;
    dtl::expect_gaps(&vdevs, &label_config.vdev_tree, &opener.reached.lock());
    let mut opened = Opened::new(environment, vdevs, uberblock).await?;
    let mut config = opened.config(label_config).await?;
    adopt_paths(&mut config.vdev_tree, paths);
    if shape(&config.vdev_tree) != shape(&label_config.vdev_tree) {
        drop(opened);
        let vdevs = open_usable(&config.vdev_tree, opener, !read_only).await?;
        dtl::expect_gaps(&vdevs, &config.vdev_tree, &opener.reached.lock());
        opened = Opened::new(environment, vdevs, uberblock).await?;
    }
    if config.vdev_tree.guid_sum() != uberblock.guid_sum {
        return Err(PoolError::Unavailable(format!(
            "the devices' guids add up to {:x}, the uberblock says {:x}: a device is missing from every label",
            config.vdev_tree.guid_sum(),
            uberblock.guid_sum
        )));
    }
    Ok((opened, config))
}

/// Opens a pool. Its sync loop is not running yet.
///
/// # Errors
/// No such pool; devices missing; features not supported; damage.
pub async fn import(mut environment: Environment, request: &ImportRequest) -> Result<Arc<Core>> {
    let (read_only, properties) = options(&environment, request)?;
    let devices = OpenDevices::none(&mut environment);
    let (candidate, seen) = choose(&environment, request, read_only).await?;
    let mut locked = Locked::default();
    if !read_only {
        locked.wait_for(&environment, candidate.config.guid).await?;
    }
    devices.cutoff.hold_back(environment.dirty_bytes_max, is_label);
    let uberblock = candidate
        .uberblock
        .clone()
        .ok_or_else(|| PoolError::Unavailable("no valid uberblock was found on any device".into()))?;
    let mut label_config = candidate.config.clone();
    adopt_paths(&mut label_config.vdev_tree, &candidate.paths);
    let options = if read_only { OpenOptions::read_only() } else { OpenOptions::exclusive() };
    let opener = FoundDevices {
        pool: label_config.guid,
        // Who only reads does not keep others from writing.
        newest: if read_only { Txg(u64::MAX) } else { uberblock.txg },
        paths: candidate.paths.clone(),
        silent: candidate.silent.clone(),
        devices: environment.devices.clone(),
        options,
        reached: Mutex::default(),
    };
    let incomplete = import_check::check_complete(&candidate).err();
    let found = open_as_stored(&environment, &label_config, &opener, &candidate.paths, &uberblock, read_only).await;
    let (opened, mut config) = found.map_err(|error| import_check::why(&candidate, incomplete, error))?;
    let lost_logs = absent_logs::names(&opened.vdevs, &opened.mos, &config.vdev_tree, uberblock.txg).await?;
    import_check::check_logs(&lost_logs, request)?;
    let features = opened.features(&config).await?;
    check_features(&features, &config, read_only)?;
    if !read_only {
        locked.wait_for(&environment, config.guid).await?;
        check_directory(&opened.directory).await?;
    }
    split_pairs::forget_origin(&mut config);
    let logs = opened.load_space(&config, environment.metaslab_bytes / environment.memory.shares()).await?;
    config.state = PoolState::Active;
    config.hostid = Some(environment.hostid());
    config.hostname = Some(environment.hostname.clone());
    if let Some(name) = &request.new_name {
        let stored = std::mem::replace(&mut config.name, name.clone());
        config.stored_name = request.temporary_name.then_some(stored);
    }
    let shared = !read_only && uberblock.is_multihost();
    // One that is offline, too, if something is in it after all.
    let is_log_lost = request.missing_logs && (!lost_logs.is_empty() || absent_logs::lacks_one(&opened.vdevs));
    let found = Found { opened, config, features, uberblock, is_log_lost };
    let core = finish(environment, devices, request.altroot.clone(), found, read_only, properties).await?;
    *core.locked.lock() = locked;
    *core.logs.lock() = Logs::found(logs);
    if !read_only {
        locked::note_leaves(&core.environment, &core.config.read(), &core.beside());
    }
    dtl::note_gaps(&core, &opener.reached.into_inner());
    note_search(&core, candidate);
    if shared {
        // Loading may have taken long, and another host may have come meanwhile: the claim compares with what was seen.
        let uberblock = core.uberblock.lock().clone();
        let (environment, lease) = (&core.environment, core.cutoff.lease());
        let claim = multihost::claim(environment, lease, &core.label_targets(), &uberblock, &uberblock, seen).await?;
        *core.multihost_claim.lock() = Some(claim);
    }
    Ok(core)
}

/// Notes what the search for the pool's devices has shown besides them.
fn note_search(core: &Core, candidate: Candidate) {
    for path in &candidate.silent {
        tracing::warn!(pool = core.name(), "{} was passed over: {}", path.display(), label_search::silence());
    }
    (*core.silent.lock(), *core.elsewhere.lock()) = (candidate.silent, candidate.elsewhere);
    if let Some(writer) = candidate.writer {
        core.is_borrowed.store(true, Ordering::Release);
        tracing::warn!(
            pool = core.name(),
            %writer,
            "open for writing elsewhere: what is changed there may read as damaged"
        );
    }
}

/// Whether a write at `offset` of a device of `size` bytes is one of labels and uberblocks.
pub fn is_label(offset: u64, size: u64) -> bool {
    offset < VDEV_LABEL_START_SIZE || offset >= usable_size(size).saturating_sub(VDEV_LABEL_END_SIZE)
}

/// What a vdev tree is made of, for comparison: all that its devices are opened by. That one is offline its own label
/// does not know, and of a vdev of one device there is no other.
fn shape(vdev: &VdevConfig) -> Vec<(u64, String, usize, u64, u64, bool)> {
    let mut parts = Vec::new();
    vdev.walk(&mut |v| {
        let parity = v.nparity.unwrap_or(0);
        parts.push((v.guid.0, v.kind.clone(), v.children.len(), v.ashift, parity, v.offline));
    });
    parts
}

/// Writes into the tree where each leaf was found.
pub fn adopt_paths(root: &mut VdevConfig, paths: &BTreeMap<u64, PathBuf>) {
    root.walk_mut(&mut |vdev| {
        if let Some(path) = paths.get(&vdev.guid.0) {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            vdev.path = Some(absolute.display().to_string());
        }
    });
}

/// Opens all that is needed, and the logs as far as they are there.
///
/// # Errors
/// The first vdev that cannot be used.
pub async fn open_usable(
    root: &VdevConfig,
    opener: &FoundDevices,
    writable: bool,
) -> Result<Vec<Option<Arc<TopVdev>>>> {
    let vdevs = open_vdevs::open_all(root, opener, writable).await?;
    for vdev in vdevs.iter().flatten() {
        if !vdev.condition().is_usable() && vdev.class() != AllocationClass::Log {
            let (mut text, mut is_read_only) = (format!("{} cannot be opened", vdev.name()), true);
            for leaf in vdev.leaves().iter().filter(|leaf| !leaf.is_usable()) {
                let condition = leaf.condition();
                let reason = condition.detail.clone().unwrap_or_else(|| condition.name().to_lowercase());
                text.push_str(&format!("\n\t{} ({}): {reason}", leaf.guid(), leaf.name()));
                is_read_only &= reason == READ_ONLY;
            }
            if is_read_only {
                text.push_str("\n'-o readonly=on' imports the pool without writing to it");
            }
            return Err(PoolError::Unavailable(text));
        }
    }
    Ok(vdevs)
}

/// The MOS and what is needed to read it.
pub struct Opened {
    store: Store,
    gate: Arc<TxgGate>,
    /// The MOS.
    pub mos: Arc<Objset>,
    accounting: Arc<Accounting>,
    /// The pool directory.
    pub directory: Zap,
    /// Its top-level vdevs.
    pub vdevs: Vec<Option<Arc<TopVdev>>>,
}

impl Opened {
    /// Opens the MOS that `uberblock` leads to.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn new(
        environment: &Environment,
        vdevs: Vec<Option<Arc<TopVdev>>>,
        uberblock: &Uberblock,
    ) -> Result<Self> {
        let store = Store::new(vdevs.clone(), environment.cache_bytes / environment.memory.shares());
        store.set_cpu(environment.cpu.clone());
        let gate = TxgGate::new(uberblock.txg.plus(1), environment.dirty_bytes_max);
        let accounting = Arc::new(Accounting::new(store.clone(), Txg(0)));
        let params = ObjsetParams {
            store: Arc::new(store.clone()),
            accounting: accounting.clone(),
            gate: gate.clone(),
            id: ObjectId::NONE,
            properties: first_mos_properties(),
            read_only: false,
        };
        let mos = Objset::open(params, uberblock.rootbp).await?;
        let directory = Zap::open(&mos, mos::DIRECTORY_OBJECT).await?;
        Ok(Self { store, gate, mos, accounting, directory, vdevs })
    }

    /// The configuration in the MOS.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn config(&self, label: &PoolConfig) -> Result<PoolConfig> {
        let object = self
            .directory
            .get_u64(mos::CONFIG.as_bytes())
            .await?
            .ok_or_else(|| PoolError::Unavailable("the pool directory names no configuration".into()))?;
        let list = config_object::read(&self.mos, ObjectId(object)).await?;
        let mut config =
            PoolConfig::parse(&list).map_err(|e| PoolError::Unavailable(format!("damaged pool configuration: {e}")))?;
        // The labels know the name after an import under a new one that was not written back.
        config.name = label.name.clone();
        Ok(config)
    }

    /// The features in the MOS.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn features(&self, config: &PoolConfig) -> Result<Features> {
        if !PoolVersion(config.version).has_features() {
            return Ok(Features::none());
        }
        Ok(Features::load(&self.mos, &self.directory).await?)
    }

    /// Hands the allocator what the headers of all space maps say, and what log space maps have beyond the maps: no
    /// map is read before something is to be allocated from it. Returns the logs.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn load_space(&self, config: &PoolConfig, budget: u64) -> Result<Vec<(Txg, ObjectId)>> {
        let mut found: BTreeMap<u64, (&VdevConfig, Arc<TopVdev>, Vec<Metaslab>)> = BTreeMap::new();
        for (top, vdev) in config.vdev_tree.children.iter().filter_map(|top| {
            let vdev = self.vdevs.get(top.id as usize)?.as_ref()?;
            Some((top, vdev))
        }) {
            if !top.metaslab_array.is_some() || top.metaslab_shift == 0 {
                continue;
            }
            let metaslabs = self.metaslabs(top, vdev).await?;
            found.insert(top.id, (top, vdev.clone(), metaslabs));
        }
        let sectors = found.values().map(|(top, ..)| top.asize >> top.ashift).fold(0, u64::saturating_add);
        let mut words = Words::of_logs(sectors);
        let logs = space_maps::logs(&self.mos, &self.directory).await?;
        for &(txg, log) in &logs {
            space_maps::for_each(&self.mos, log, &mut words, |segment| {
                let Some((top, _, metaslabs)) = found.get_mut(&u64::from(segment.vdev.unwrap_or(0))) else {
                    return Ok(());
                };
                note_logged(top, metaslabs, &segment, txg)
                    .map_err(|what| ZioError::corrupt("log space map", format!("object {log}: {what}")))
            })
            .await?;
        }
        self.store.set_map_reader(MosMaps::new(&self.mos, &config.name));
        let mut allocator = self.store.state().allocator.lock();
        allocator.set_budget(budget);
        for (id, (top, vdev, metaslabs)) in found {
            let width = vdev.width() as u64;
            let geometry: Arc<dyn Geometry> = vdev;
            allocator.add_group(Group::new(id as u32, geometry, metaslabs, top.metaslab_shift as u32, width));
        }
        Ok(logs)
    }

    /// The metaslabs of one vdev as the headers of their maps describe them, without what logs say.
    async fn metaslabs(&self, top: &VdevConfig, vdev: &TopVdev) -> Result<Vec<Metaslab>> {
        let count = top.asize >> top.metaslab_shift;
        if count > METASLABS_MAX
            || top.asize > vdev.asize() + (1 << top.metaslab_shift)
            || top.metaslab_shift < top.ashift.max(SECTOR_SHIFT.into())
        {
            return Err(PoolError::Unavailable(format!(
                "damaged pool configuration: vdev {} claims {count} metaslabs of 2^{} bytes in {} of {} bytes",
                top.id,
                top.metaslab_shift,
                top.asize,
                vdev.asize()
            )));
        }
        let array = self.mos.dnode(top.metaslab_array).await?;
        let mut objects = vec![0u8; count as usize * 8];
        array.read(0, &mut objects).await?;
        let unflushed = self.unflushed(top, count).await?;
        let mut words = Words::of_maps(top.asize >> top.ashift);
        let shifts = (top.metaslab_shift as u32, top.ashift as u32);
        let objects: Vec<ObjectId> = objects
            .chunks_exact(8)
            .map(|object| ObjectId(u64::from_le_bytes(object.try_into().expect("eight bytes"))))
            .collect();
        let headers = (0..).zip(objects).map(|(index, object)| {
            let mos = self.mos.clone();
            async move { space_maps::unloaded(&mos, object, index, shifts).await }
        });
        let mut headers = stream::iter(headers).buffered(HEADERS_AT_ONCE);
        let mut metaslabs: Vec<Metaslab> = Vec::with_capacity(count as usize);
        while let Some(metaslab) = headers.next().await {
            let mut metaslab = metaslab?;
            words.take(metaslab.space_map, metaslab.map_length)?;
            metaslab.unflushed_txg = Txg(unflushed[metaslabs.len()]);
            metaslabs.push(metaslab);
        }
        Ok(metaslabs)
    }

    /// The group since which each metaslab's changes are only in log space maps.
    async fn unflushed(&self, top: &VdevConfig, count: u64) -> Result<Vec<u64>> {
        let mut txgs = vec![0; count as usize];
        if !top.top_zap.is_some() {
            return Ok(txgs);
        }
        let zap = Zap::open(&self.mos, top.top_zap).await?;
        let name = platter_ondisk::names::vdev_top_zap::MS_UNFLUSHED_PHYS_TXGS;
        if let Some(object) = zap.get_u64(name.as_bytes()).await? {
            let mut bytes = vec![0u8; count as usize * 8];
            self.mos.dnode(ObjectId(object)).await?.read(0, &mut bytes).await?;
            for (txg, chunk) in txgs.iter_mut().zip(bytes.chunks_exact(8)) {
                *txg = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            }
        }
        Ok(txgs)
    }
}

/// Notes an entry of a log with the metaslab it belongs to.
fn note_logged(
    top: &VdevConfig,
    metaslabs: &mut [Metaslab],
    segment: &Segment,
    txg: Txg,
) -> std::result::Result<(), String> {
    // Log space maps count in 512-byte units over the whole vdev.
    let index = segment.offset >> top.metaslab_shift.saturating_sub(SECTOR_SHIFT.into());
    let Some(metaslab) = metaslabs.get_mut(usize::try_from(index).unwrap_or(usize::MAX)) else {
        return Err(format!("{segment:?} leaves its vdev"));
    };
    if txg < metaslab.unflushed_txg {
        return Ok(());
    }
    let unit = 1 << top.ashift.saturating_sub(SECTOR_SHIFT.into());
    if !(segment.offset | segment.run).is_multiple_of(unit) {
        return Err(format!("{segment:?} is not made of whole sectors"));
    }
    let end = Sectors::within(metaslab.start + metaslab.size).0;
    if segment.offset.checked_add(segment.run).is_none_or(|last| last > end) {
        return Err(format!("{segment:?} leaves its metaslab"));
    }
    let allocates = segment.kind == MapType::Alloc;
    metaslab
        .note_found(Sectors(segment.offset).bytes(), Sectors(segment.run).bytes(), allocates, txg)
        .map_err(|error| error.to_string())
}

/// The objects that the pool keeps at hand.
async fn well_known(os: &Arc<Objset>, directory: &Zap) -> Result<MosObjects> {
    let entry =
        async |name: &str| -> Result<ObjectId> { Ok(ObjectId(directory.get_u64(name.as_bytes()).await?.unwrap_or(0))) };
    Ok(MosObjects {
        config: entry(mos::CONFIG).await?,
        deferred: entry(mos::SYNC_BPOBJ).await?,
        history: entry(mos::HISTORY).await?,
        empty_bpobj: entry(mos::EMPTY_BPOBJ).await?,
        properties: entry(mos::PROPS).await?,
        bptree: entry(mos::BPTREE_OBJ).await?,
        deleted_clones: entry(mos::DELETED_CLONES).await?,
        frees: freeing::nonempty_list(os, entry(mos::FREE_BPOBJ).await?).await?,
    })
}

/// A pool that was found and opened.
pub struct Found {
    /// Its MOS and vdevs.
    pub opened: Opened,
    /// Its configuration from now on.
    pub config: PoolConfig,
    /// Its features.
    pub features: Features,
    /// The group that it begins with.
    pub uberblock: Uberblock,
    /// Log devices are missing, or offline, and it is opened all the same.
    pub is_log_lost: bool,
}

/// Reads what else is needed, and makes the pool of all of it.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn finish(
    environment: Environment,
    devices: OpenDevices,
    altroot: Option<PathBuf>,
    found: Found,
    read_only: bool,
    properties: BTreeMap<String, StoredProperty>,
) -> Result<Arc<Core>> {
    let Found { opened, config, features, uberblock, is_log_lost } = found;
    let Opened { store, gate, mos: os, accounting, directory, vdevs } = opened;
    let tree = tree::load(&os, &store, &directory, &config.name).await?;
    os.set_hole_birth(features.is_active(Feature::HoleBirth));
    os.set_properties(mos_properties(PoolVersion(config.version), &features));
    let objects = well_known(&os, &directory).await?;
    // Before any object set is opened: its blocks need it.
    salt::load(&directory, &store).await?;
    let claims = match read_only {
        true => Vec::new(),
        false => {
            let (accounting, gate) = (accounting.clone(), gate.clone());
            let (id, properties) = (ObjectId::NONE, first_mos_properties());
            let params =
                ObjsetParams { store: Arc::new(store.clone()), accounting, gate, id, properties, read_only: true };
            intent::claim(&store, &tree, &params, uberblock.txg.plus(1), is_log_lost).await?
        }
    };
    let mut pool_properties = pool_properties::load(&os, objects.properties).await?;
    let listed = error_log::load(&os, &directory, features.is_active(Feature::HeadErrlog)).await;
    let (scan, error_scrub) = (scan_store::load(&directory).await?, error_scrub::load(&directory).await?);
    let name = &config.name;
    let (spares, caches) = (spares::load(&os, &directory, name).await, caches::load(&os, &directory, name).await);
    let vdev_properties = vdev_zaps::load(&os, &config.vdev_tree, name).await;
    let works = free_work::load(&os, &config.vdev_tree, name).await;
    let rebuilds = rebuild_store::load(&os, &config.vdev_tree, name).await;
    let leaves = vdevs.iter().flatten().flat_map(|vdev| vdev.leaves());
    let missing = dtl::load(&os, &config.vdev_tree, leaves).await?;
    let dsl = DslPool::new(DslPoolParts {
        name: config.name.clone(),
        surroundings: environment.for_data_sets(),
        store,
        gate,
        mos: os,
        mos_accounting: accounting,
        directory,
        features,
        objects,
        tree,
        version: PoolVersion(config.version),
        read_only,
        altroot,
        claims,
    });
    pool_properties.extend(properties);
    let devices = OpenDevices { leaves: open_vdevs::leaf_devices(&vdevs), ..devices };
    let stored = Stored {
        pool_properties,
        uberblock,
        damaged: listed.damaged,
        scan,
        missing,
        spares,
        caches,
        vdev_properties,
        works,
        rebuilds,
    };
    let core = Core::new(environment, dsl, config, devices, stored);
    follow_what_is_stored(&core, error_scrub, listed.blocks).await;
    Ok(core)
}

/// Lets the pool follow what was stored with it.
async fn follow_what_is_stored(core: &Arc<Core>, error_scrub: ErrorScrub, lost: Vec<LostBlock>) {
    *core.error_scrub.lock() = error_scrub;
    error_holders::note(core, lost).await;
    vdev_properties::apply(core);
    allocating::apply(core);
    pool_events::listen_to_data_sets(core);
    update_available(&core.dsl);
}
