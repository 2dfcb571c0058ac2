//! `zpool status`.

use std::fmt::Write;

use platter_api::messages::PoolView;
use platter_api::report::{Detail, ScanReport, VdevReport};

use super::names::Naming;
use super::pools::{Repeat, Timestamp, views};
use super::status_errors;
use super::status_json;
use super::status_rebuild;
use super::status_style::{Style, has_errors, is_unhealthy};
use super::upgrade;
use crate::getopt::{Grammar, parse};
use crate::json;
use crate::nice;
use crate::out::{out, outln};
use crate::paint::{Paint, health, paint};
use crate::props::pool;
use crate::session::{Done, Session, usage};

const GRAMMAR: Grammar = Grammar {
    short: "c:jdDegiLpPstT:vx",
    long: &[
        ("json", "j"),
        ("json-int", "json-int"),
        ("json-flat-vdevs", "json-flat-vdevs"),
        ("json-pool-key-guid", "json-pool-key-guid"),
    ],
};

/// An estimate is given from this rate on, bytes/s.
const ESTIMATE_RATE_MIN: u64 = 10 << 20;

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    if parsed.has("c") {
        return Err(crate::session::refused("zpool status -c: scripts are not supported yet"));
    }
    let as_int = parsed.has("json-int");
    let as_json = parsed.has("j");
    for (option, name) in [
        ("json-flat-vdevs", "'--json-flat-vdevs'"),
        ("json-int", "'--json-int'"),
        ("json-pool-key-guid", "'json-pool-key-guid'"),
    ] {
        if parsed.has(option) && !as_json {
            return Err(usage(format!("{name} only works with '-j' option")));
        }
    }
    let style = Style {
        verbose: parsed.has("v"),
        literal: parsed.has("p") || as_int,
        unhealthy_only: parsed.has("e"),
        slow: parsed.has("s"),
        initialize: parsed.has("i"),
        trim: parsed.has("t"),
        naming: Naming::from(&parsed),
    };
    let explain = parsed.has("x");
    let timestamp = Timestamp::parse(parsed.last("T"))?;
    let mut pools = parsed.operands.clone();
    let repeat = Repeat::take(&mut pools)?;
    let mut round = 0;
    loop {
        let (mut found, code) = views(session, &pools, Detail { errors: style.verbose, extended: false })?;
        found.iter_mut().for_each(tell_disabled_features);
        if as_json {
            let mut object = json::schema("zpool status");
            if let Some(timestamp) = timestamp {
                let time = if as_int { nice::now().into() } else { timestamp.now().into() };
                object.insert("time".into(), time);
            }
            let shown = found.iter().filter(|view| !explain || !is_healthy(view));
            let options = status_json::Options {
                as_int,
                flat: parsed.has("json-flat-vdevs"),
                by_guid: parsed.has("json-pool-key-guid"),
            };
            object.insert("pools".into(), status_json::pools(shown, &style, options).into());
            json::print(object);
        } else {
            if let Some(timestamp) = timestamp {
                outln!("{}", timestamp.now());
            }
            out!("{}", all_text(&found, &style, explain, pools.is_empty()));
            if found.is_empty() && pools.is_empty() {
                eprintln!("no pools available");
            }
        }
        round += 1;
        if code != 0 || !repeat.again(session, round) {
            return Ok(code);
        }
    }
}

/// Says that features are not enabled, where there is nothing worse to say (`check_status`,
/// `lib/libzfs/libzfs_status.c`).
fn tell_disabled_features(view: &mut PoolView) {
    let report = &view.report;
    if report.status.is_some() || report.version < 5000 || upgrade::wanting(view).is_empty() {
        return;
    }
    view.report.status = Some(
        "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some \
         features are unavailable."
            .to_owned(),
    );
    view.report.action = Some(
        "Enable all features using 'zpool upgrade'. Once this is done,\n\tthe pool may no longer be accessible by \
         software that does not support\n\tthe features. See zpool-features(7) for details."
            .to_owned(),
    );
}

/// Whether `-x` has nothing to tell about it.
fn is_healthy(view: &PoolView) -> bool {
    let report = &view.report;
    match &report.status {
        None => report.error_count == 0,
        // Notes about versions and features are no trouble (no message id, all vdevs online).
        Some(_) => {
            report.state == "ONLINE"
                && scanning(&report.scan) != Some("resilvering")
                && !report.vdevs.is_rebuilding()
                && report.error_count == 0
                && !report.suspended
                && report.message_id.is_none()
                && !has_errors(&report.vdevs)
        }
    }
}

fn all_text(pools: &[PoolView], style: &Style, explain: bool, all_pools: bool) -> String {
    let mut out = String::new();
    let mut first = true;
    for view in pools {
        if explain && is_healthy(view) {
            if !all_pools {
                let _ = writeln!(out, "pool '{}' is healthy", view.report.name);
                first = false;
            }
            continue;
        }
        if !first {
            out.push('\n');
        }
        first = false;
        out.push_str(&text(view, style));
    }
    if explain && first && all_pools && !pools.is_empty() {
        out.push_str("all pools are healthy\n");
    }
    out
}

/// Lines of a note behind its heading: the first as it is, the others behind a tab.
fn note(heading: &str, text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().map(|line| line.trim_start_matches('\t')).collect();
    format!("{}{}\n", paint(Paint::Bold, heading), paint(Paint::Yellow, &lines.join("\n\t")))
}

/// One pool.
pub(super) fn text(view: &PoolView, style: &Style) -> String {
    let report = &view.report;
    let mut out = String::new();
    let _ = writeln!(out, "  {} {}", paint(Paint::Bold, "pool:"), report.name);
    let state = pool::health(view);
    let _ = writeln!(out, " {}{}", paint(Paint::Bold, "state: "), paint(health(state), state));
    if let Some(status) = &report.status {
        out.push_str(&note("status: ", status));
    }
    if let Some(action) = &report.action {
        out.push_str(&note("action: ", action));
    }
    if let Some(id) = &report.message_id {
        let _ = writeln!(out, "   {} https://openzfs.github.io/openzfs-docs/msg/{id}", paint(Paint::Bold, "see:"));
    }
    let errors = status_errors::text(&report.error_scrub, &report.scan, view.now);
    if let Some(errors) = &errors {
        let _ = writeln!(out, " {} {}", paint(Paint::Bold, "scrub:"), errors.trim_end());
    }
    if let Some(scan) = scan(&report.scan, view.now)
        && (errors.is_none() || report.scan.resilver)
        && status_rebuild::shows_scan(&report.scan, &report.vdevs)
    {
        let _ = write!(out, "  {} {scan}", paint(Paint::Bold, "scan:"));
    }
    out.push_str(&status_rebuild::text(&report.scan, &report.vdevs, &style.naming));
    let names = report.caches.iter().chain(&report.spares).map(|spare| style.naming.width(spare, 2));
    let width = names.fold(style.naming.width(&report.vdevs, 0).max(10), usize::max);
    out.push_str(&paint(Paint::Bold, "config:"));
    out.push_str("\n\n");
    let mut head = format!("\t{:<width$}  {:<8} {:>5} {:>5} {:>5}", "NAME", "STATE", "READ", "WRITE", "CKSUM");
    if style.slow {
        head.push_str("  SLOW");
    }
    out.push_str(&paint(Paint::Bold, &head));
    out.push('\n');
    add_vdev(&mut out, &report.vdevs, 0, width, style, scanning(&report.scan));
    if report.vdevs.logs().next().is_some() {
        out.push_str("\tlogs\t\n");
        report.vdevs.logs().for_each(|log| add_vdev(&mut out, log, 2, width, style, scanning(&report.scan)));
    }
    if !report.caches.is_empty() {
        out.push_str("\tcache\n");
        report.caches.iter().for_each(|cache| add_vdev(&mut out, cache, 2, width, style, None));
    }
    if !report.spares.is_empty() {
        out.push_str("\tspares\n");
        report.spares.iter().for_each(|spare| add_spare(&mut out, spare, width, style));
    }
    out.push('\n');
    match (report.error_count, style.verbose) {
        (0, _) => out.push_str("errors: No known data errors\n"),
        (count, false) => {
            out.push_str(&paint(Paint::Red, &format!("errors: {count} data errors, use '-v' for a list")));
            out.push('\n');
        }
        (_, true) => {
            out.push_str("errors: Permanent errors have been detected in the following files:\n\n");
            for file in &view.damaged_files {
                let _ = writeln!(out, "{:7} {file}", "");
            }
        }
    }
    out
}

/// What a scan that is under way does to devices.
fn scanning(scan: &ScanReport) -> Option<&'static str> {
    let word = if scan.resilver { "resilvering" } else { "repairing" };
    (scan.state == "scanning").then_some(word)
}

fn add_vdev(
    out: &mut String,
    vdev: &VdevReport,
    depth: usize,
    width: usize,
    style: &Style,
    scanning: Option<&'static str>,
) {
    if style.unhealthy_only && depth > 0 && !is_unhealthy(vdev) {
        return;
    }
    let name = style.naming.name(vdev);
    let start = format!("\t{:depth$}{name:<w$}  {:<8}", "", vdev.state, w = width.saturating_sub(depth));
    out.push_str(&paint(health(&vdev.state), &start));
    let counts = &vdev.counts;
    for number in [counts.read_errors, counts.write_errors, counts.checksum_errors] {
        let text = if style.literal { number.to_string() } else { nice::num(number) };
        out.push(' ');
        out.push_str(&paint(if number > 0 { Paint::Red } else { Paint::Plain }, &format!("{text:>5}")));
    }
    if style.slow {
        // Only leaves have slow transfers.
        let text = match (vdev.children.is_empty(), style.literal) {
            (false, _) => "-".to_owned(),
            (true, true) => counts.slow_ios.to_string(),
            (true, false) => nice::num(counts.slow_ios),
        };
        let _ = write!(out, " {text:>5}");
    }
    if let Some(note) = &vdev.note {
        let colour = if note.starts_with("was ") { Paint::Plain } else { Paint::Red };
        let _ = write!(out, "  {}", paint(colour, note));
    }
    if vdev.non_allocating {
        out.push_str("  (non-allocating)");
    }
    // What waits for the next resilver may have had a few blocks mended by this one.
    let is_given = vdev.repairing && vdev.note.as_deref() != Some(status_json::AWAITING);
    if let Some(word) = scanning.filter(|_| is_given && vdev.children.is_empty() && vdev.state == "ONLINE") {
        let _ = write!(out, "  ({word})");
    }
    out.push_str(&style.work(vdev));
    out.push('\n');
    let scanning = if vdev.is_rebuilt() { Some("resilvering") } else { scanning };
    for child in vdev.ordinary() {
        add_vdev(out, child, depth + 2, width, style, scanning);
    }
}

/// A spare has a state and nothing to count (`print_status_config` with `isspare`).
fn add_spare(out: &mut String, spare: &VdevReport, width: usize, style: &Style) {
    if style.unhealthy_only && spare.state == "AVAIL" {
        return;
    }
    let name = style.naming.name(spare);
    let start = format!("\t  {name:<w$}  {:<8}", spare.state, w = width - 2);
    let colour = if spare.state == "UNAVAIL" { health("UNAVAIL") } else { Paint::Plain };
    let note = spare.note.as_ref().map(|note| format!("  {note}")).unwrap_or_default();
    out.push_str(&paint(colour, &format!("{start}{note}")));
    out.push('\n');
}

/// What follows `scan:`, in one or more lines; `None` when there never was a scrub.
fn scan(scan: &ScanReport, now: u64) -> Option<String> {
    let mut out = String::new();
    let repaired = nice::bytes(scan.repaired);
    let (what, done_word) = if scan.resilver { ("resilver", "resilvered") } else { ("scrub", "scrub repaired") };
    match scan.state.as_str() {
        "finished" => {
            let time = nice::duration(scan.end_time.saturating_sub(scan.start_time));
            let _ = writeln!(
                out,
                "{done_word} {repaired} in {time} with {} errors on {}",
                scan.errors,
                nice::ctime(scan.end_time)
            );
            return Some(out);
        }
        "canceled" => {
            let _ = writeln!(out, "{what} canceled on {}", nice::ctime(scan.end_time));
            return Some(out);
        }
        "scanning" => {
            let _ = writeln!(out, "{what} in progress since {}", nice::ctime(scan.start_time));
        }
        "paused" => {
            let since = if scan.pause_time == 0 { now } else { scan.pause_time };
            let _ = writeln!(out, "scrub paused since {}", nice::ctime(since));
            let _ = writeln!(out, "\tscrub started on {}", nice::ctime(scan.start_time));
        }
        _ => return None,
    }
    let running = scan.state == "scanning";
    let elapsed = scan.elapsed_seconds.max(1);
    let scan_rate = if scan.rate > 0 { scan.rate } else { scan.examined / elapsed };
    // Issued bytes follow examined ones at the same rate, as far as is known.
    let issue_rate = if scan.rate > 0 { scan.rate } else { scan.issued / elapsed };
    let total = nice::bytes(scan.to_examine);
    let rate = |rate: u64| {
        if running && rate > 0 { format!(" at {}/s", nice::bytes(rate)) } else { String::new() }
    };
    let _ = writeln!(
        out,
        "\t{} / {total} scanned{}, {} / {total} issued{}",
        nice::bytes(scan.examined),
        rate(scan_rate),
        nice::bytes(scan.issued),
        rate(issue_rate)
    );
    let done = if scan.to_examine == 0 { 0.0 } else { 100.0 * scan.issued as f64 / scan.to_examine as f64 };
    let past = if scan.resilver { "resilvered" } else { "repaired" };
    let _ = write!(out, "\t{repaired} {past}, {done:.2}% done");
    if running {
        let left = scan.to_examine.saturating_sub(scan.issued);
        let seconds = scan.eta_seconds.or_else(|| left.checked_div(issue_rate));
        match seconds {
            Some(seconds) if issue_rate >= ESTIMATE_RATE_MIN && scan.issued > 0 => {
                let _ = write!(out, ", {} to go", nice::duration(seconds));
            }
            _ => out.push_str(", no estimated completion time"),
        }
    }
    out.push('\n');
    Some(out)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use platter_api::report::{IoCounts, PoolReport};
    use platter_api::report::{Property, PropertySource, PropertyValue};

    /// The reference pool `refz1` as the engine reports it.
    pub(crate) fn example() -> PoolView {
        let leaf = |index: usize| VdevReport {
            name: format!("/disk/d{index}"),
            kind: "file".into(),
            guid: 100 + index as u64,
            path: Some(format!("/disk/d{index}")),
            state: "ONLINE".into(),
            ashift: 12,
            physical_size: 128 << 20,
            replacement_size: 127 << 20,
            ..VdevReport::default()
        };
        let raidz = VdevReport {
            name: "raidz1-0".into(),
            kind: "raidz".into(),
            guid: 77,
            state: "ONLINE".into(),
            allocated: 151_584_768,
            size: 603_979_776,
            fragmentation: Some(24),
            deflated_size: 480_000_000,
            replacement_size: 620_000_000,
            children: (0..5).map(leaf).collect(),
            ..VdevReport::default()
        };
        let guid = 17_881_871_464_930_842_434;
        let root =
            VdevReport { name: "refz1".into(), kind: "root".into(), guid, children: vec![raidz.clone()], ..raidz };
        let number = |value| Property { value: PropertyValue::Number(value), source: PropertySource::None };
        let text = |value: &str, source| Property { value: PropertyValue::Text(value.into()), source };
        PoolView {
            report: PoolReport {
                name: "refz1".into(),
                guid,
                state: "ONLINE".into(),
                txg: 288,
                version: 5000,
                vdevs: root,
                scan: ScanReport { state: "none".into(), ..ScanReport::default() },
                ..PoolReport::default()
            },
            properties: [
                ("size", number(603_979_776)),
                ("allocated", number(151_584_768)),
                ("free", number(452_395_008)),
                ("capacity", number(25)),
                ("fragmentation", number(24)),
                ("dedupratio", number(200)),
                ("expandsize", number(0)),
                ("checkpoint", number(0)),
                ("guid", number(guid)),
                ("version", Property { value: PropertyValue::Number(5000), source: PropertySource::Default }),
                ("ashift", Property { value: PropertyValue::Number(12), source: PropertySource::Local }),
                ("altroot", text("-", PropertySource::Default)),
                ("failmode", text("wait", PropertySource::Default)),
                ("feature@lz4_compress", text("active", PropertySource::Local)),
                ("feature@async_destroy", text("enabled", PropertySource::Local)),
            ]
            .into_iter()
            .map(|(name, property)| (name.to_owned(), property))
            .collect(),
            damaged_files: Vec::new(),
            open_ns: 10_000_000_000,
            now: 1_795_218_000,
        }
    }

    #[test]
    fn a_healthy_pool_is_shown_as_openzfs_shows_it() {
        // From the reference pool's manifest, made by OpenZFS 2.3.2.
        let expected = "  pool: refz1
 state: ONLINE
config:

\tNAME          STATE     READ WRITE CKSUM
\trefz1         ONLINE       0     0     0
\t  raidz1-0    ONLINE       0     0     0
\t    /disk/d0  ONLINE       0     0     0
\t    /disk/d1  ONLINE       0     0     0
\t    /disk/d2  ONLINE       0     0     0
\t    /disk/d3  ONLINE       0     0     0
\t    /disk/d4  ONLINE       0     0     0

errors: No known data errors
";
        assert_eq!(text(&example(), &Style::default()), expected);
        assert_eq!(all_text(&[example()], &Style::default(), true, false), "pool 'refz1' is healthy\n");
        assert_eq!(all_text(&[example()], &Style::default(), true, true), "all pools are healthy\n");
    }

    #[test]
    fn a_pool_without_all_its_redundancy_is_not_called_healthy() {
        let mut view = example();
        view.report.status = Some("One or more devices is currently being resilvered.".into());
        view.report.scan = ScanReport { state: "scanning".into(), resilver: true, ..ScanReport::default() };
        view.report.vdevs.children[0].children[3].repairing = true;
        let told = all_text(&[view.clone()], &Style::default(), true, true);
        assert!(told.contains("\n\t    /disk/d3  ONLINE       0     0     0  (resilvering)\n"), "{told}");
        view.report.scan.resilver = false;
        assert!(text(&view, &Style::default()).contains("  (repairing)\n"));
        let mut waits = view.clone();
        waits.report.vdevs.children[0].children[3].note = Some("(awaiting resilver)".into());
        assert!(text(&waits, &Style::default()).contains("0  (awaiting resilver)\n"));
        view.report.status = None;
        assert_eq!(all_text(&[view], &Style::default(), true, true), "all pools are healthy\n");
    }

    #[test]
    fn a_degraded_pool_tells_what_is_wrong() {
        let mut view = example();
        view.report.state = "DEGRADED".into();
        view.report.status = Some(
            "One or more devices could not be opened.  Sufficient replicas exist for\n\
             the pool to continue functioning in a degraded state."
                .into(),
        );
        view.report.action = Some("Attach the missing device and online it using 'zpool online'.".into());
        view.report.message_id = Some("ZFS-8000-2Q".into());
        view.report.vdevs.state = "DEGRADED".into();
        let raidz = &mut view.report.vdevs.children[0];
        raidz.state = "DEGRADED".into();
        raidz.children.truncate(2);
        raidz.children[0].counts = IoCounts { checksum_errors: 1536, read_errors: 3, ..IoCounts::default() };
        raidz.children[1] = VdevReport {
            name: "12345678901234567890".into(),
            kind: "missing".into(),
            path: Some("/disk/d1".into()),
            state: "UNAVAIL".into(),
            note: Some("was /disk/d1".into()),
            ..VdevReport::default()
        };
        view.report.error_count = 2;
        view.damaged_files = vec!["/refz1/a".into(), "<metadata>:<0x1>".into()];
        let expected = "  pool: refz1
 state: DEGRADED
status: One or more devices could not be opened.  Sufficient replicas exist for
\tthe pool to continue functioning in a degraded state.
action: Attach the missing device and online it using 'zpool online'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
config:

\tNAME                      STATE     READ WRITE CKSUM
\trefz1                     DEGRADED     0     0     0
\t  raidz1-0                DEGRADED     0     0     0
\t    /disk/d0              ONLINE       3     0 1.50K
\t    12345678901234567890  UNAVAIL      0     0     0  was /disk/d1

errors: 2 data errors, use '-v' for a list
";
        assert_eq!(text(&view, &Style::default()), expected);
        let verbose = text(&view, &Style { verbose: true, literal: true, ..Style::default() });
        assert!(verbose.contains("\t    /disk/d0              ONLINE       3     0  1536\n"), "{verbose}");
        assert!(verbose.ends_with(concat!(
            "errors: Permanent errors have been detected in the following files:\n\n",
            "        /refz1/a\n        <metadata>:<0x1>\n"
        )));
        assert!(!is_healthy(&view));
    }

    #[test]
    fn scrubs_are_told_as_openzfs_tells_them() {
        let report = |state: &str| ScanReport {
            state: state.into(),
            start_time: 1_795_218_000,
            end_time: 1_795_218_001,
            to_examine: 3_650_722_202,
            examined: 1_288_490_189,
            issued: 1_099_511_628,
            rate: 300 << 20,
            eta_seconds: Some(12),
            elapsed_seconds: 4,
            ..ScanReport::default()
        };
        assert_eq!(scan(&report("none"), 0), None);
        let on = nice::ctime(1_795_218_001);
        assert_eq!(
            scan(&report("finished"), 0).unwrap(),
            format!("scrub repaired 0B in 00:00:01 with 0 errors on {on}\n")
        );
        assert_eq!(scan(&report("canceled"), 0).unwrap(), format!("scrub canceled on {on}\n"));
        let since = nice::ctime(1_795_218_000);
        assert_eq!(
            scan(&report("scanning"), 0).unwrap(),
            format!(
                "scrub in progress since {since}\n\
                 \t1.20G / 3.40G scanned at 300M/s, 1.02G / 3.40G issued at 300M/s\n\
                 \t0B repaired, 30.12% done, 00:00:12 to go\n"
            )
        );
        assert_eq!(
            scan(&report("paused"), 1_795_218_000).unwrap(),
            format!(
                "scrub paused since {since}\n\tscrub started on {since}\n\
                 \t1.20G / 3.40G scanned, 1.02G / 3.40G issued\n\t0B repaired, 30.12% done\n"
            )
        );
    }
}
