//! What `zpool status`, `list` and `iostat` are told.

use platter_vdev::{Condition, Leaf, StatsSnapshot, TopVdev, VdevState};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::discover::{leaf_name, vdev_name};
use crate::report::{DamagedObject, IoCounts, PoolReport, VdevReport};

fn counts(stats: StatsSnapshot) -> IoCounts {
    IoCounts {
        read_ops: stats.reads,
        write_ops: stats.writes,
        read_bytes: stats.bytes_read,
        write_bytes: stats.bytes_written,
        read_errors: stats.read_errors,
        write_errors: stats.write_errors,
        checksum_errors: stats.checksum_errors,
    }
}

fn state_name(condition: &Condition) -> String {
    match condition.state {
        VdevState::Closed | VdevState::CantOpen => "UNAVAIL",
        VdevState::Offline => "OFFLINE",
        VdevState::Removed => "REMOVED",
        VdevState::Faulted => "FAULTED",
        VdevState::Degraded => "DEGRADED",
        VdevState::Healthy => "ONLINE",
    }
    .to_owned()
}

fn leaf_report(config: &VdevConfig, leaf: &Leaf, scanning: bool) -> VdevReport {
    let condition = leaf.condition();
    let path = config.path.clone();
    let gone = matches!(condition.state, VdevState::CantOpen | VdevState::Closed);
    let name = match &path {
        Some(path) if !gone => leaf_name(config, path),
        _ => config.guid.to_string(),
    };
    let note = if gone {
        path.as_ref().map(|path| format!("was {path}"))
    } else if condition.aux_text().is_empty() {
        None
    } else {
        Some(condition.aux_text().to_owned())
    };
    let stats = leaf.stats().snapshot();
    VdevReport {
        name,
        kind: config.kind.clone(),
        guid: config.guid.0,
        path,
        state: state_name(&condition),
        note,
        repairing: scanning && stats.scrub_repaired_bytes > 0,
        ashift: config.ashift,
        counts: counts(stats),
        ..VdevReport::default()
    }
}

fn top_report(core: &Core, config: &VdevConfig, vdev: &TopVdev, scanning: bool) -> VdevReport {
    let (allocated, size, fragmentation) = {
        let allocator = core.store.state().allocator.lock();
        let group = allocator.group(config.id as u32);
        group.map_or((0, 0, None), |g| (g.allocated(), g.size(), Some(g.fragmentation())))
    };
    let leaves = vdev.leaves();
    if config.is_leaf() {
        let mut report = leaf_report(config, &leaves[0], scanning);
        (report.allocated, report.size, report.fragmentation) = (allocated, size, fragmentation);
        report.ashift = config.ashift;
        return report;
    }
    let condition = vdev.condition();
    VdevReport {
        name: vdev_name(config, "", None),
        kind: config.kind.clone(),
        guid: config.guid.0,
        state: state_name(&condition),
        note: (!condition.aux_text().is_empty()).then(|| condition.aux_text().to_owned()),
        allocated,
        size,
        fragmentation,
        ashift: config.ashift,
        counts: counts(vdev.stats().snapshot()),
        children: config.children.iter().zip(leaves).map(|(c, leaf)| leaf_report(c, leaf, scanning)).collect(),
        ..VdevReport::default()
    }
}

fn root_report(core: &Core, scanning: bool) -> VdevReport {
    let config = core.config.read().clone();
    let vdevs = &core.store.state().vdevs;
    let mut root =
        VdevReport { name: config.name.clone(), kind: "root".into(), guid: config.guid.0, ..VdevReport::default() };
    let mut worst = 0;
    for top in &config.vdev_tree.children {
        let Some(vdev) = vdevs.get(top.id as usize).and_then(Option::as_ref) else { continue };
        let report = top_report(core, top, vdev, scanning);
        worst = worst.max(match &*report.state {
            "ONLINE" => 0,
            "DEGRADED" => 1,
            _ => 2,
        });
        root.allocated += report.allocated;
        root.size += report.size;
        root.fragmentation = root.fragmentation.max(report.fragmentation);
        let (sum, own) = (&mut root.counts, report.counts);
        sum.read_ops += own.read_ops;
        sum.write_ops += own.write_ops;
        sum.read_bytes += own.read_bytes;
        sum.write_bytes += own.write_bytes;
        root.children.push(report);
    }
    root.state = ["ONLINE", "DEGRADED", "UNAVAIL"][worst].into();
    root
}

fn any(vdev: &VdevReport, check: &dyn Fn(&VdevReport) -> bool) -> bool {
    check(vdev) || vdev.children.iter().any(|child| any(child, check))
}

/// Everything about the pool; `with_errors` adds the objects with permanent errors.
pub fn pool(core: &Core, with_errors: bool) -> PoolReport {
    let scan = core.scrub.lock().report();
    let vdevs = root_report(core, scan.state == "scanning");
    let damaged = core.damaged.lock().clone();
    let config = core.config.read().clone();
    let suspended = core.gate.suspended();
    let bad = |states: &'static [&'static str]| any(&vdevs, &|v| states.contains(&&*v.state));
    let counted =
        any(&vdevs, &|v| v.counts.read_errors > 0 || v.counts.write_errors > 0 || v.counts.checksum_errors > 0);
    let (status, action, id) = if suspended.is_some() {
        (
            Some("One or more devices are faulted in response to IO failures."),
            Some("Make sure the affected devices are connected, then export and import the pool."),
            Some("ZFS-8000-HC"),
        )
    } else if !damaged.is_empty() {
        (
            Some(
                "One or more devices has experienced an error resulting in data\n\tcorruption.  \
                 Applications may be affected.",
            ),
            Some("Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup."),
            Some("ZFS-8000-8A"),
        )
    } else if bad(&["UNAVAIL"]) {
        (
            Some(
                "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue \
                 functioning in a degraded state.",
            ),
            Some("Attach the missing device and online it using 'zpool online'."),
            Some("ZFS-8000-2Q"),
        )
    } else if bad(&["FAULTED"]) {
        (
            Some(
                "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for \
                 the \
                 pool to continue functioning in a\n\tdegraded state.",
            ),
            Some("Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired."),
            Some("ZFS-8000-K4"),
        )
    } else if bad(&["REMOVED"]) {
        (
            Some(
                "One or more devices has been removed by the administrator.\n\tSufficient replicas exist for the pool \
                 to \
                 continue functioning in a\n\tdegraded state.",
            ),
            Some("Online the device using zpool online' or replace the device with\n\t'zpool replace'."),
            None,
        )
    } else if bad(&["OFFLINE"]) {
        (
            Some(
                "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the \
                 pool to continue functioning in a\n\tdegraded state.",
            ),
            Some("Online the device using 'zpool online' or replace the device with\n\t'zpool replace'."),
            None,
        )
    } else if counted {
        (
            Some(
                "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the \
                 error.  \
                 Applications are unaffected.",
            ),
            Some(
                "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace \
                 the \
                 device with 'zpool replace'.",
            ),
            Some("ZFS-8000-9P"),
        )
    } else {
        (None, None, None)
    };
    let names: std::collections::BTreeMap<u64, String> =
        core.tree.read().datasets.iter().map(|(name, ds)| (ds.object.0, name.clone())).collect();
    let errors = damaged.iter().map(|&(dataset_id, object)| DamagedObject {
        dataset_id,
        dataset: names.get(&dataset_id).cloned().unwrap_or_default(),
        object,
    });
    PoolReport {
        name: config.name.clone(),
        guid: config.guid.0,
        state: if suspended.is_some() { "SUSPENDED".into() } else { vdevs.state.clone() },
        txg: core.gate.synced_txg().0,
        version: config.version,
        status: status.map(str::to_owned),
        action: action.map(str::to_owned),
        message_id: id.map(str::to_owned),
        vdevs,
        scan,
        error_count: damaged.len() as u64,
        errors: if with_errors { errors.collect() } else { Vec::new() },
        read_only: core.read_only,
        altroot: core.altroot.as_ref().map(|p| p.display().to_string()),
        suspended: suspended.is_some(),
    }
}
