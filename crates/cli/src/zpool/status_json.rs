//! `zpool status -j`: OpenZFS's schema, with what the engine knows.

use platter_api::messages::PoolView;
use platter_api::report::{ErrorScrubReport, LeafWork, LeafWorkState, RebuildPhase, ScanReport, VdevReport};
use serde_json::Value;

use super::names::Naming;
use super::status_errors;
use super::status_style::{Style, is_unhealthy};
use crate::json::{self, Object};
use crate::nice;

/// What the `--json-…` options ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// Numbers as integers.
    pub as_int: bool,
    /// All vdevs in one object.
    pub flat: bool,
    /// Guids as keys.
    pub by_guid: bool,
}

#[derive(Clone, Copy)]
enum Format {
    Count,
    Bytes,
    Time,
    Nanoseconds,
    Exact,
}

/// The note at a device that waits for the next resilver.
pub(super) const AWAITING: &str = "(awaiting resilver)";

/// Adds numbers as the style asks.
struct Numbers {
    literal: bool,
    as_int: bool,
}

impl Numbers {
    fn add(&self, object: &mut Object, name: &str, value: u64, format: Format) {
        let text = match format {
            _ if self.as_int => {
                object.insert(name.into(), value.into());
                return;
            }
            Format::Exact => value.to_string(),
            _ if self.literal => value.to_string(),
            Format::Count => nice::num(value),
            Format::Bytes => nice::bytes(value),
            Format::Time => nice::date(value),
            Format::Nanoseconds => nice::time(value),
        };
        object.insert(name.into(), text.into());
    }
}

/// The value of `pools`.
pub(super) fn pools<'a>(views: impl Iterator<Item = &'a PoolView>, style: &Style, options: Options) -> Object {
    let numbers = Numbers { literal: style.literal, as_int: options.as_int };
    views
        .map(|view| {
            let report = &view.report;
            let mut object = json::pool_info(view, false, options.as_int);
            for (name, text) in [("status", &report.status), ("action", &report.action)] {
                if let Some(text) = text {
                    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_start).collect();
                    object.insert(name.into(), format!("{}\n", lines.join("\n\t")).into());
                }
            }
            if let Some(id) = &report.message_id {
                object.insert("msgid".into(), id.clone().into());
                object.insert("moreinfo".into(), format!("https://openzfs.github.io/openzfs-docs/msg/{id}").into());
            }
            let mut scans = Object::new();
            if report.scan.state != "none" && !report.scan.state.is_empty() {
                scans = scan(&report.scan, &numbers);
            }
            error_scrub(&mut scans, &report.error_scrub, &report.scan, &numbers);
            let rebuilds = rebuilds(&report.vdevs, style, &numbers);
            if !rebuilds.is_empty() {
                scans.insert("rebuild_stats".into(), rebuilds.into());
            }
            if !scans.is_empty() {
                object.insert("scan_stats".into(), scans.into());
            }
            let mut vdevs = Object::new();
            add(&mut vdevs, &report.vdevs, 0, None, style, options, &numbers);
            let (mut logs, mut caches, mut spares) = (Object::new(), Object::new(), Object::new());
            let root = style.naming.name(&report.vdevs);
            for log in report.vdevs.logs() {
                add(&mut logs, log, 2, Some(&root), style, options, &numbers);
            }
            for cache in &report.caches {
                add(&mut caches, cache, 2, None, style, options, &numbers);
            }
            report.spares.iter().for_each(|spare| add_spare(&mut spares, spare, style, options));
            if options.flat {
                vdevs.append(&mut logs);
                vdevs.append(&mut caches);
                vdevs.append(&mut spares);
            }
            object.insert("vdevs".into(), vdevs.into());
            for (class, vdevs) in [("logs", logs), ("l2cache", caches), ("spares", spares)] {
                if !vdevs.is_empty() {
                    object.insert(class.into(), vdevs.into());
                }
            }
            numbers.add(&mut object, "error_count", report.error_count, Format::Count);
            if report.error_count != 0 && style.verbose {
                object.insert("errlist".into(), view.damaged_files.clone().into());
            }
            let key = if options.by_guid { report.guid.to_string() } else { report.name.clone() };
            (key, Value::Object(object))
        })
        .collect()
}

fn scan(scan: &ScanReport, numbers: &Numbers) -> Object {
    let mut object = Object::new();
    object.insert("function".into(), if scan.resilver { "RESILVER" } else { "SCRUB" }.into());
    let state = match scan.state.as_str() {
        "finished" => "FINISHED",
        "canceled" => "CANCELED",
        _ => "SCANNING",
    };
    object.insert("state".into(), state.into());
    numbers.add(&mut object, "start_time", scan.start_time, Format::Time);
    numbers.add(&mut object, "end_time", scan.end_time, Format::Time);
    numbers.add(&mut object, "to_examine", scan.to_examine, Format::Bytes);
    numbers.add(&mut object, "examined", scan.examined, Format::Bytes);
    numbers.add(&mut object, "skipped", 0, Format::Bytes);
    numbers.add(&mut object, "processed", scan.repaired, Format::Bytes);
    numbers.add(&mut object, "errors", scan.errors, Format::Count);
    numbers.add(&mut object, "bytes_per_scan", scan.examined, Format::Bytes);
    numbers.add(&mut object, "pass_start", scan.start_time, Format::Exact);
    numbers.add(&mut object, "scrub_pause", scan.pause_time, Format::Time);
    let paused =
        scan.end_time.max(scan.start_time).saturating_sub(scan.start_time).saturating_sub(scan.elapsed_seconds);
    numbers.add(&mut object, "scrub_spent_paused", paused, Format::Exact);
    numbers.add(&mut object, "issued_bytes_per_scan", scan.issued, Format::Bytes);
    numbers.add(&mut object, "issued", scan.issued, Format::Bytes);
    object
}

/// Adds a scrub of known errors to `scan_stats` (`scan_status_nvlist`).
fn error_scrub(object: &mut Object, errors: &ErrorScrubReport, scan: &ScanReport, numbers: &Numbers) {
    if !status_errors::is_shown(errors, scan) {
        return;
    }
    let state = match errors.state.as_str() {
        "finished" => "FINISHED",
        "canceled" => "CANCELED",
        _ => "ERRORSCRUBBING",
    };
    object.insert("err_scrub_func".into(), "ERRORSCRUB".into());
    object.insert("err_scrub_state".into(), state.into());
    numbers.add(object, "err_scrub_start_time", errors.start_time, Format::Time);
    numbers.add(object, "err_scrub_end_time", errors.end_time, Format::Time);
    numbers.add(object, "err_scrub_examined", errors.examined, Format::Bytes);
    numbers.add(object, "err_scrub_to_examine", errors.to_examine, Format::Bytes);
    numbers.add(object, "err_scrub_pause", errors.pause_time, Format::Time);
}

/// The sequential reconstructions of all top-level vdevs.
fn rebuilds(vdevs: &VdevReport, style: &Style, numbers: &Numbers) -> Object {
    let mut all = Object::new();
    for top in &vdevs.children {
        let Some(rebuild) = &top.rebuild else { continue };
        let mut object = vdev_info(top, &style.naming, numbers.as_int);
        let state = match rebuild.phase {
            RebuildPhase::Active => "ACTIVE",
            RebuildPhase::Canceled => "CANCELED",
            RebuildPhase::Complete => "COMPLETE",
        };
        object.insert("state".into(), state.into());
        let nanoseconds = |milliseconds: u64| milliseconds.saturating_mul(1_000_000);
        for (name, value, format) in [
            ("start_time", rebuild.start_time, Format::Time),
            ("end_time", rebuild.end_time, Format::Time),
            ("scan_time", nanoseconds(rebuild.scan_time_ms), Format::Nanoseconds),
            ("scanned", rebuild.scanned, Format::Bytes),
            ("issued", rebuild.issued, Format::Bytes),
            ("rebuilt", rebuild.rebuilt, Format::Bytes),
            ("to_scan", rebuild.to_scan, Format::Bytes),
            ("errors", rebuild.errors, Format::Count),
            ("pass_time", nanoseconds(rebuild.pass_time_ms), Format::Nanoseconds),
            ("pass_scanned", rebuild.pass_scanned, Format::Bytes),
            ("pass_issued", rebuild.pass_issued, Format::Bytes),
            ("pass_skipped", rebuild.pass_skipped, Format::Bytes),
        ] {
            numbers.add(&mut object, name, value, format);
        }
        all.insert(style.naming.name(top), object.into());
    }
    all
}

/// What every vdev's object begins with.
pub(super) fn vdev_info(vdev: &VdevReport, naming: &Naming, as_int: bool) -> Object {
    let mut object = Object::new();
    object.insert("name".into(), naming.name(vdev).into());
    object.insert("vdev_type".into(), vdev.kind.clone().into());
    if vdev.guid != 0 {
        object.insert("guid".into(), json::number(vdev.guid, as_int));
    }
    if let Some(path) = &vdev.path {
        object.insert("path".into(), path.clone().into());
    }
    let is_spare = matches!(&*vdev.state, "AVAIL" | "INUSE");
    let class = match (is_spare, vdev.is_log) {
        _ if vdev.is_cache => "l2cache",
        (true, _) => "spare",
        (_, true) => "log",
        _ => "normal",
    };
    object.insert("class".into(), class.into());
    let state = if matches!(&*vdev.state, "UNAVAIL" | "SPLIT") { "CANT_OPEN" } else { &vdev.state };
    object.insert("state".into(), state.into());
    object
}

/// OpenZFS's name for the reason behind a note.
fn aux(note: &str) -> &'static str {
    match note {
        "cannot open" => "OPEN_FAILED",
        "corrupted data" => "CORRUPT_DATA",
        "insufficient replicas" => "NO_REPLICAS",
        "missing device" => "BAD_GUID_SUM",
        "invalid label" => "BAD_LABEL",
        "newer version" => "VERSION_NEWER",
        "unsupported feature(s)" => "UNSUP_FEAT",
        "too many errors" => "ERR_EXCEEDED",
        "experienced I/O failures" => "IO_FAILURE",
        "external device fault" => "EXTERNAL",
        "currently in use" => "ACTIVE",
        "split into new pool" => "SPLIT_POOL",
        "all children offline" => "CHILDREN_OFFLINE",
        _ => "CORRUPT_DATA",
    }
}

fn add(
    into: &mut Object,
    vdev: &VdevReport,
    depth: usize,
    parent: Option<&str>,
    style: &Style,
    options: Options,
    numbers: &Numbers,
) {
    if style.unhealthy_only && depth > 0 && !is_unhealthy(vdev) {
        return;
    }
    let name = style.naming.name(vdev);
    let mut object = vdev_info(vdev, &style.naming, options.as_int);
    if let Some(parent) = parent.filter(|_| options.flat) {
        object.insert("parent".into(), parent.into());
    }
    add_sizes(&mut object, vdev, numbers);
    let counts = &vdev.counts;
    numbers.add(&mut object, "read_errors", counts.read_errors, Format::Count);
    numbers.add(&mut object, "write_errors", counts.write_errors, Format::Count);
    numbers.add(&mut object, "checksum_errors", counts.checksum_errors, Format::Count);
    if counts.scan_processed != 0 {
        numbers.add(&mut object, "scan_processed", counts.scan_processed, Format::Bytes);
    }
    if vdev.note.as_deref() == Some(AWAITING) {
        numbers.add(&mut object, "resilver_deferred", 1, Format::Exact);
    }
    if vdev.children.is_empty() {
        numbers.add(&mut object, "slow_ios", counts.slow_ios, Format::Count);
    }
    // A device that waits for its resilver has no fault.
    if let Some(note) = vdev.note.as_ref().filter(|note| !note.starts_with('(')) {
        match note.strip_prefix("was ") {
            Some(was) => {
                numbers.add(&mut object, "not_present", 1, Format::Exact);
                object.insert("was".into(), was.into());
            }
            None => {
                object.insert("aux".into(), aux(note).into());
            }
        }
    }
    if vdev.non_allocating {
        numbers.add(&mut object, "noalloc", 1, Format::Exact);
    }
    if vdev.children.is_empty() && depth > 0 {
        add_work(&mut object, vdev, style, numbers);
    }
    if options.flat {
        for child in vdev.ordinary() {
            add(into, child, depth + 2, Some(&name), style, options, numbers);
        }
    } else {
        let mut children = Object::new();
        for child in vdev.ordinary() {
            add(&mut children, child, depth + 2, Some(&name), style, options, numbers);
        }
        if !children.is_empty() {
            object.insert("vdevs".into(), children.into());
        }
    }
    into.insert(name, object.into());
}

/// Sizes, where there are any.
fn add_sizes(object: &mut Object, vdev: &VdevReport, numbers: &Numbers) {
    for (name, value) in [
        ("alloc_space", vdev.allocated),
        ("total_space", vdev.size),
        ("def_space", vdev.deflated_size),
        ("rep_dev_size", vdev.replacement_size),
        ("ex_dev_size", vdev.expand_size),
        ("self_healed", vdev.counts.self_healed),
        ("phys_space", vdev.physical_size),
    ] {
        if value != 0 {
            numbers.add(object, name, value, Format::Bytes);
        }
    }
}

/// How far work on what is free of a leaf is, where that was asked for.
fn add_work(object: &mut Object, vdev: &VdevReport, style: &Style, numbers: &Numbers) {
    if style.initialize {
        let names = ["init_state", "initialized", "to_initialize", "init_time", "init_errors"];
        let errors = vdev.counts.initialize_errors;
        add_one_work(object, vdev.initialize.as_ref(), names, ("UNINITIALIZED", errors), numbers);
    }
    if style.trim {
        if vdev.trim_support {
            let names = ["trim_state", "trimmed", "to_trim", "trim_time", "trim_errors"];
            add_one_work(object, vdev.trim.as_ref(), names, ("UNTRIMMED", vdev.counts.trim_errors), numbers);
        }
        numbers.add(object, "trim_notsup", u64::from(!vdev.trim_support), Format::Exact);
    }
}

fn add_one_work(
    object: &mut Object,
    work: Option<&LeafWork>,
    [state, done, total, time, errors]: [&str; 5],
    (none, failed): (&str, u64),
    numbers: &Numbers,
) {
    let Some(work) = work else {
        object.insert(state.into(), none.into());
        return;
    };
    let name = match work.state {
        LeafWorkState::Active => "ACTIVE",
        LeafWorkState::Canceled => "CANCELED",
        LeafWorkState::Suspended => "SUSPENDED",
        LeafWorkState::Complete => "COMPLETE",
    };
    object.insert(state.into(), name.into());
    numbers.add(object, done, work.done, Format::Bytes);
    numbers.add(object, total, work.total, Format::Bytes);
    numbers.add(object, time, work.time, Format::Time);
    numbers.add(object, errors, failed, Format::Count);
}

/// A spare: `zpool status -j` tells its state only (`vdev_stats_nvlist` with `isspare`).
fn add_spare(into: &mut Object, spare: &VdevReport, style: &Style, options: Options) {
    let mut object = vdev_info(spare, &style.naming, options.as_int);
    object.insert("class".into(), "spare".into());
    if let Some(pool) = spare.note.as_deref().and_then(|note| note.strip_prefix("in use by pool '")) {
        object.insert("used_by".into(), pool.trim_end_matches('\'').into());
    }
    into.insert(style.naming.name(spare), object.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;

    #[test]
    fn vdevs_are_nested_as_in_openzfs() {
        let object = pools([&example()].into_iter(), &Style::default(), Options::default());
        let value = Value::Object(object);
        let pool = &value["refz1"];
        assert_eq!(pool["state"], "ONLINE");
        assert_eq!(pool["error_count"], "0");
        assert!(pool.get("scan_stats").is_none());
        let root = &pool["vdevs"]["refz1"];
        assert_eq!((&root["vdev_type"], &root["alloc_space"]), (&Value::from("root"), &Value::from("145M")));
        let leaf = &root["vdevs"]["raidz1-0"]["vdevs"]["/disk/d3"];
        let keys: Vec<&str> = leaf.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "name vdev_type guid path class state rep_dev_size phys_space read_errors write_errors \
                        checksum_errors slow_ios";
        assert_eq!(keys.join(" "), expected);
        assert_eq!((&leaf["phys_space"], &leaf["slow_ios"]), (&Value::from("128M"), &Value::from("0")));
        let keys: Vec<&str> = root["vdevs"]["raidz1-0"].as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "name vdev_type guid class state alloc_space total_space def_space rep_dev_size read_errors \
                        write_errors checksum_errors vdevs";
        assert_eq!(keys.join(" "), expected);
    }

    #[test]
    fn numbers_can_be_integers_and_vdevs_flat() {
        let mut view = example();
        view.report.error_count = 1;
        view.damaged_files = vec!["/refz1/x".into()];
        view.report.vdevs.children[0].children[0].note = Some("was /disk/d0".into());
        let style = Style { verbose: true, literal: true, ..Style::default() };
        let options = Options { as_int: true, flat: true, by_guid: true };
        let value = Value::Object(pools([&view].into_iter(), &style, options));
        let pool = &value["17881871464930842434"];
        assert_eq!(pool["pool_guid"], 17_881_871_464_930_842_434_u64);
        assert_eq!(pool["errlist"][0], "/refz1/x");
        let leaf = &pool["vdevs"]["/disk/d0"];
        assert_eq!((&leaf["parent"], &leaf["was"]), (&Value::from("raidz1-0"), &Value::from("/disk/d0")));
        assert_eq!(pool["vdevs"]["refz1"]["total_space"], 603_979_776);
    }
}
