//! What `zpool status`, `list` and `iostat` are told.

use std::sync::Arc;

use platter_ondisk::ObjectId;
use platter_vdev::{AllocationClass, Condition, Leaf, StatsSnapshot, TopVdev, VdevAux, VdevKind, VdevState};
use platter_zio::Phase;

use crate::advice::Signs;
use crate::cache_list::Cache;
use crate::config::VdevConfig;
use crate::core::Core;
use crate::free_state::Kind;
use crate::free_work;
use crate::scan_state::AWAITING;
use crate::spares;
use crate::vdev_names::{leaf_name, vdev_name};
use crate::vdev_zaps::{self, Place};
use platter_api::report::{DamagedObject, Detail, ExtendedStats, IoCounts, PoolReport, VdevReport};
use platter_api::vdev_properties::VdevProperties;
use platter_dsl::freeing;

fn counts(stats: StatsSnapshot) -> IoCounts {
    IoCounts {
        read_ops: stats.reads,
        write_ops: stats.writes,
        read_bytes: stats.bytes_read,
        write_bytes: stats.bytes_written,
        read_errors: stats.read_errors,
        write_errors: stats.write_errors,
        checksum_errors: stats.checksum_errors,
        slow_ios: 0,
        self_healed: stats.self_healed_bytes,
        scan_processed: stats.scrub_repaired_bytes,
        trim_ops: stats.trims,
        trim_bytes: stats.bytes_trimmed,
        trim_errors: stats.trim_errors,
        initialize_errors: stats.initialize_errors,
    }
}

fn extended(leaf: &Leaf) -> ExtendedStats {
    let depth = leaf.queue_depth();
    let histograms = leaf.histograms().snapshot();
    ExtendedStats {
        pending: depth.map(|(_, waiting)| waiting as u64).into_array(),
        active: depth.map(|(active, _)| active as u64).into_array(),
        total_wait: histograms.total,
        disk_wait: histograms.device,
        queue_wait: histograms.queue.into_array(),
        individual: histograms.individual.into_array(),
        aggregated: histograms.aggregated.into_array(),
    }
}

fn state_name(condition: &Condition) -> String {
    match condition.state {
        VdevState::CantOpen => condition.name(),
        VdevState::Closed => "UNAVAIL",
        VdevState::Offline => "OFFLINE",
        VdevState::Removed => "REMOVED",
        VdevState::Faulted => "FAULTED",
        VdevState::Degraded => "DEGRADED",
        VdevState::Healthy => "ONLINE",
    }
    .to_owned()
}

/// Whether there is a device whose labels keep it from being used.
fn has_wrong_label(condition: &Condition) -> bool {
    condition.state == VdevState::CantOpen && matches!(condition.aux, VdevAux::CorruptData | VdevAux::BadLabel)
}

/// What each device with wrong labels is instead, a line each.
fn wrong_labels(core: &Core) -> String {
    let mut text = String::new();
    let leaves = core.dsl.store.state().vdevs.iter().flatten().flat_map(|vdev| vdev.leaves());
    let caches: Vec<_> = core.caches.list.lock().iter().filter_map(|cache| cache.leaf.clone()).collect();
    for leaf in leaves.chain(caches) {
        let condition = leaf.condition();
        if has_wrong_label(&condition)
            && let Some(detail) = &condition.detail
        {
            text.push_str(&format!("\n\t{detail}"));
        }
    }
    text
}

/// What the reports of all vdevs have in common.
#[derive(Clone, Copy)]
struct Frame {
    scanning: bool,
    detail: Detail,
}

/// What is to be said of a leaf that misses something which nothing under way is giving it.
fn remark(core: &Core, leaf: &Leaf, top: &TopVdev) -> Option<&'static str> {
    let remark = core.scan.lock().remark(leaf)?;
    match core.rebuilds.is_active() {
        true if core.rebuilds.gives(top.id(), leaf.guid()) => None,
        true => Some(AWAITING),
        false => Some(remark),
    }
}

fn leaf_report(core: &Core, config: &VdevConfig, leaf: &Leaf, top: &TopVdev, frame: Frame) -> VdevReport {
    let condition = leaf.condition();
    let path = config.path.clone();
    let gone = matches!(condition.state, VdevState::CantOpen | VdevState::Closed) && !has_wrong_label(&condition);
    let name = match &path {
        Some(path) if !gone => leaf_name(config, path),
        _ => config.guid.to_string(),
    };
    let note = if gone {
        path.as_ref().map(|path| format!("was {path}"))
    } else if condition.state == VdevState::Degraded && condition.detail.is_some() {
        condition.detail.clone()
    } else if condition.aux_text().is_empty() {
        remark(core, leaf, top).map(str::to_owned)
    } else {
        Some(condition.aux_text().to_owned())
    };
    let stats = leaf.stats().snapshot();
    let slow_ios = leaf.histograms().slow();
    VdevReport {
        name,
        kind: config.kind.clone(),
        guid: config.guid.0,
        path,
        state: state_name(&condition),
        note,
        repairing: (frame.scanning || core.rebuilds.gives(top.id(), leaf.guid())) && stats.scrub_repaired_bytes > 0,
        ashift: u64::from(top.ashift()),
        physical_size: leaf.psize(),
        replacement_size: top.replacement_size(config.metaslab_shift),
        counts: IoCounts { slow_ios, ..counts(stats) },
        extended: frame.detail.extended.then(|| extended(leaf)),
        properties: properties(core, config, if config.guid == top.guid() { Place::Top } else { Place::Below }),
        sits_out: matches!(top.kind(), VdevKind::Raidz { .. }).then(|| leaf.sits_out()),
        trim_support: leaf.trim_support().plain,
        trim: free_work::report(core, config, top, Kind::Trim),
        initialize: free_work::report(core, config, top, Kind::Initialize),
        ..VdevReport::default()
    }
}

fn properties(core: &Core, config: &VdevConfig, place: Place) -> VdevProperties {
    vdev_zaps::of(&core.vdev_properties, config, place)
}

/// What to say of a vdev with so many metaslabs whose space maps are damaged.
fn damaged_note(metaslabs: usize) -> Option<String> {
    (metaslabs > 0).then(|| format!("space maps of {metaslabs} metaslabs are damaged: their free space is not used"))
}

/// A vdev below a top-level one: a leaf of it, or a `replacing` or `spare` vdev with its own below. None while leaves
/// are being exchanged and the configuration is not yet that of the open ones.
fn below_report(
    core: &Core,
    config: &VdevConfig,
    leaves: &[Arc<Leaf>],
    top: &TopVdev,
    frame: Frame,
) -> Option<VdevReport> {
    if config.children.is_empty() {
        let leaf = leaves.iter().find(|leaf| leaf.guid() == config.guid)?;
        return Some(leaf_report(core, config, leaf, top, frame));
    }
    let own = config.leaves();
    let below = leaves.iter().filter(|leaf| own.iter().any(|config| config.guid == leaf.guid()));
    let condition = Condition::of_copies(below.map(|leaf| leaf.condition()));
    let mut report = VdevReport {
        name: vdev_name(config, "", None),
        kind: config.kind.clone(),
        guid: config.guid.0,
        state: state_name(&condition),
        note: (!condition.aux_text().is_empty()).then(|| condition.aux_text().to_owned()),
        ashift: u64::from(top.ashift()),
        ..VdevReport::default()
    };
    let below = config.children.iter().filter_map(|child| below_report(core, child, leaves, top, frame));
    adopt(&mut report, below.collect());
    Some(report)
}

fn top_report(core: &Core, config: &VdevConfig, vdev: &TopVdev, frame: Frame) -> VdevReport {
    let (allocated, size, fragmentation, damaged) = {
        let allocator = core.dsl.store.state().allocator.lock();
        let group = allocator.group(config.id as u32);
        group.map_or((0, 0, None, 0), |g| (g.allocated(), g.size(), g.fragmentation(), g.damaged()))
    };
    let expand_size = vdev.expandable() >> config.metaslab_shift << config.metaslab_shift;
    let deflated_size = vdev.deflate(size);
    let leaves = vdev.leaves();
    if config.is_leaf() {
        let leaf = leaves.iter().find(|leaf| leaf.guid() == config.guid).unwrap_or(&leaves[0]);
        let mut own = leaf_report(core, config, leaf, vdev, frame);
        own.note = own.note.or_else(|| damaged_note(damaged));
        let non_allocating = config.non_allocating;
        return VdevReport { allocated, size, fragmentation, expand_size, deflated_size, non_allocating, ..own };
    }
    let condition = vdev.condition();
    let mut report = VdevReport {
        name: vdev_name(config, "", None),
        kind: config.kind.clone(),
        guid: config.guid.0,
        state: state_name(&condition),
        note: (!condition.aux_text().is_empty())
            .then(|| condition.aux_text().to_owned())
            .or_else(|| damaged_note(damaged)),
        allocated,
        size,
        fragmentation,
        expand_size,
        deflated_size,
        replacement_size: vdev.asize() >> config.metaslab_shift << config.metaslab_shift,
        ashift: config.ashift,
        properties: properties(core, config, Place::Top),
        ..VdevReport::default()
    };
    let children = config.children.iter().filter_map(|child| below_report(core, child, &leaves, vdev, frame)).collect();
    // Errors are the vdev's own, transfers those of its leaves (`vdev_get_stats_ex_impl`).
    let own = counts(vdev.stats().snapshot());
    report.counts = IoCounts { read_ops: 0, write_ops: 0, read_bytes: 0, write_bytes: 0, ..own };
    adopt(&mut report, children);
    set_non_allocating(&mut report, config.non_allocating);
    report
}

/// What is true of a top-level vdev is so of all below it.
fn set_non_allocating(report: &mut VdevReport, is_true: bool) {
    report.non_allocating = is_true;
    report.children.iter_mut().for_each(|child| set_non_allocating(child, is_true));
}

/// Hangs `children` below `parent` and adds their transfers to its own.
fn adopt(parent: &mut VdevReport, children: Vec<VdevReport>) {
    for child in &children {
        parent.counts.add_transfers(&child.counts);
        if let Some(below) = &child.extended {
            parent.extended.get_or_insert_default().add(below);
        }
    }
    parent.children = children;
}

fn root_report(core: &Core, frame: Frame) -> VdevReport {
    let config = core.config.read().clone();
    let vdevs = &core.dsl.store.state().vdevs;
    let mut root =
        VdevReport { name: config.name.clone(), kind: "root".into(), guid: config.guid.0, ..VdevReport::default() };
    root.properties = properties(core, &config.vdev_tree, Place::Root);
    let (mut worst, mut children) = (0, Vec::new());
    for top in &config.vdev_tree.children {
        let Some(vdev) = vdevs.get(top.id as usize).and_then(Option::as_ref) else { continue };
        let report = VdevReport { is_log: top.is_log, ..top_report(core, top, vdev, frame) };
        worst = worst.max(badness(&report.state, report.is_log));
        // The pool's space is that of its data (`spa_get_dspace`).
        if !report.is_log {
            root.allocated += report.allocated;
            root.size += report.size;
            root.expand_size += report.expand_size;
            root.deflated_size += report.deflated_size;
            root.fragmentation = root.fragmentation.max(report.fragmentation);
        }
        children.push(VdevReport { rebuild: core.rebuilds.report(top.id), ..report });
    }
    adopt(&mut root, children);
    root.state = ["ONLINE", "DEGRADED", "UNAVAIL"][worst].into();
    root
}

/// The pool's state as its vdevs make it: that of the worst.
pub fn health(core: &Core) -> &'static str {
    let vdevs = &core.dsl.store.state().vdevs;
    let worst = vdevs.iter().flatten();
    let worst = worst.map(|vdev| badness(&state_name(&vdev.condition()), vdev.class() == AllocationClass::Log));
    ["ONLINE", "DEGRADED", "UNAVAIL"][worst.max().unwrap_or(0)]
}

/// What a top-level vdev in this state makes of the pool. Without a log it goes on (`vdev_propagate_state`,
/// `module/zfs/vdev.c`).
fn badness(state: &str, is_log: bool) -> usize {
    match state {
        "ONLINE" => 0,
        "DEGRADED" => 1,
        _ if is_log => 1,
        _ => 2,
    }
}

/// All cache devices.
fn caches(core: &Core, detail: Detail) -> Vec<VdevReport> {
    let list = core.caches.list.lock().clone();
    for leaf in list.iter().filter_map(|cache| cache.leaf.as_ref()) {
        // A file that was deleted is of no use to anybody once the pool is closed.
        leaf.check_present(|| true);
    }
    list.iter().map(|cache| cache_report(cache, detail)).collect()
}

/// A cache device: counted and named as any leaf, with space of its own.
fn cache_report(cache: &Cache, detail: Detail) -> VdevReport {
    let (config, leaf) = (&cache.config, cache.leaf.as_deref());
    let path = config.path.clone();
    let unopened = || Condition::new(VdevState::CantOpen, VdevAux::OpenFailed);
    let condition = leaf.map_or_else(unopened, Leaf::condition);
    let stats = leaf.map(|leaf| leaf.stats().snapshot()).unwrap_or_default();
    let (size, allocated) = cache.device.as_ref().map_or((0, 0), |device| (device.size(), device.allocated()));
    let slow_ios = leaf.map_or(0, |leaf| leaf.histograms().slow());
    VdevReport {
        name: path.as_ref().map_or_else(|| config.guid.to_string(), |path| leaf_name(config, path)),
        kind: config.kind.clone(),
        guid: config.guid.0,
        path,
        state: state_name(&condition),
        note: Some(condition.aux_text().to_owned()).filter(|text| !text.is_empty()),
        ashift: config.ashift,
        physical_size: leaf.map_or(0, Leaf::psize),
        size,
        deflated_size: size,
        allocated,
        fragmentation: (size > 0).then_some(0),
        counts: IoCounts { slow_ios, ..counts(stats) },
        extended: leaf.filter(|_| detail.extended).map(extended),
        trim_support: leaf.is_some_and(|leaf| leaf.trim_support().plain),
        is_cache: true,
        ..VdevReport::default()
    }
}

/// All devices of which something may be said: what is wrong with a cache device is told, too (`find_vdev_problem`,
/// `lib/libzfs/libzfs_status.c`).
fn with_caches(vdevs: &VdevReport, caches: &[VdevReport]) -> VdevReport {
    let mut all = vdevs.clone();
    all.children.extend(caches.iter().cloned());
    all
}

/// Everything about the pool.
pub fn pool(core: &Core, detail: Detail) -> PoolReport {
    let scan = core.scan.lock().report();
    let vdevs = root_report(core, Frame { scanning: scan.state == "scanning", detail });
    let damaged = core.damaged.lock().clone();
    let config = core.config.read().clone();
    let phase = core.dsl.store.suspension().phase();
    let strangers = wrong_labels(core);
    let caches = caches(core, detail);
    let (has_damage, vdevs_and_caches) = (!damaged.is_empty(), with_caches(&vdevs, &caches));
    let signs = Signs { phase: &phase, scan: &scan, has_damage, vdevs: &vdevs_and_caches, strangers: &strangers };
    let advice = signs.advice();
    let names: std::collections::BTreeMap<ObjectId, String> =
        core.dsl.tree.read().datasets.iter().map(|(name, ds)| (ds.object, name.clone())).collect();
    let errors = damaged.iter().map(|&(dataset, object)| DamagedObject {
        dataset_id: dataset.0,
        dataset: names.get(&dataset).cloned().unwrap_or_default(),
        object: object.0,
    });
    PoolReport {
        name: config.name.clone(),
        guid: config.guid.0,
        state: if phase == Phase::Running { vdevs.state.clone() } else { "SUSPENDED".into() },
        txg: core.dsl.gate.synced_txg().0,
        version: config.version,
        status: advice.as_ref().map(|advice| advice.status.to_owned()),
        action: advice.as_ref().map(|advice| advice.action.clone()),
        message_id: advice.and_then(|advice| advice.message_id).map(str::to_owned),
        vdevs,
        caches,
        spares: spares::report(core),
        scan,
        error_scrub: core.error_scrub.lock().report(),
        freeing: if freeing::is_active(&core.dsl) { freeing::space(&core.dsl).0.max(1) } else { 0 },
        error_count: damaged.len() as u64,
        errors: if detail.errors { errors.collect() } else { Vec::new() },
        read_only: core.dsl.read_only,
        altroot: core.dsl.altroot.as_ref().map(|p| p.display().to_string()),
        suspended: phase != Phase::Running,
    }
}
