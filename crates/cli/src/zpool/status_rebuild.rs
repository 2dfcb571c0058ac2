//! What `zpool status` tells of sequential reconstructions (`print_rebuild_status` in `cmd/zpool/zpool_main.c`).

use std::fmt::Write;

use platter_api::report::{RebuildPhase, RebuildReport, ScanReport, VdevReport};

use super::names::Naming;
use crate::nice;
use crate::paint::{Paint, paint};

/// Slower than so many bytes a second no time to go is told.
const ESTIMATE_RATE_MIN: u64 = 10 << 20;

/// When the last one ended; `None` when there was none, or one goes on.
fn last_end(vdevs: &VdevReport) -> Option<u64> {
    let ends = vdevs.children.iter().filter_map(|top| top.rebuild).map(|rebuild| rebuild.end_time);
    ends.max().filter(|end| *end > 0 && !vdevs.is_rebuilding())
}

/// Whether the resilver, or the scrub, that `scan` tells of is to be shown (`print_scan_status`): a scrub always is,
/// of resilvers and reconstructions the one under way, or the last one.
pub(super) fn shows_scan(scan: &ScanReport, vdevs: &VdevReport) -> bool {
    let is_last = || !vdevs.is_rebuilding() && last_end(vdevs).is_none_or(|end| scan.end_time > end);
    !scan.resilver || scan.state == "scanning" || is_last()
}

/// Whether reconstructions are to be shown.
fn shows_rebuilds(scan: &ScanReport, vdevs: &VdevReport) -> bool {
    let resilver = scan.resilver && scan.state == "scanning";
    let resilvered = if scan.resilver { scan.end_time } else { 0 };
    !resilver && (vdevs.is_rebuilding() || last_end(vdevs).is_some_and(|end| end > resilvered))
}

/// The lines of all top-level vdevs.
pub(super) fn text(scan: &ScanReport, vdevs: &VdevReport, naming: &Naming) -> String {
    let mut out = String::new();
    if shows_rebuilds(scan, vdevs) {
        for top in &vdevs.children {
            if let Some(rebuild) = &top.rebuild {
                let _ = write!(out, "  {} {}", paint(Paint::Bold, "scan:"), one(rebuild, &naming.name(top)));
            }
        }
    }
    out
}

fn one(rebuild: &RebuildReport, name: &str) -> String {
    let end = nice::ctime(rebuild.end_time);
    let rebuilt = nice::bytes(rebuild.rebuilt);
    match rebuild.phase {
        RebuildPhase::Complete => {
            let (time, errors) = (nice::duration(rebuild.scan_time_ms / 1000), rebuild.errors);
            return format!("resilvered ({name}) {rebuilt} in {time} with {errors} errors on {end}\n");
        }
        RebuildPhase::Canceled => return format!("resilver ({name}) canceled on {end}\n"),
        RebuildPhase::Active => {}
    }
    let mut out = format!("resilver ({name}) in progress since {}\n", nice::ctime(rebuild.start_time));
    let rate = |bytes: u64| bytes / (rebuild.pass_time_ms + 1) * 1000;
    let at = |rate: u64| if rate > 0 { format!(" at {}/s", nice::bytes(rate)) } else { String::new() };
    let scan_rate = rate(rebuild.pass_scanned);
    let to_issue = rebuild.to_scan.saturating_sub(rebuild.pass_skipped);
    let _ = writeln!(
        out,
        "\t{} / {} scanned{}, {} / {} issued{}",
        nice::bytes(rebuild.scanned),
        nice::bytes(rebuild.to_scan),
        at(scan_rate),
        nice::bytes(rebuild.issued),
        nice::bytes(to_issue),
        at(rate(rebuild.pass_issued))
    );
    let done = (rebuild.scanned as f64 * 100.0 / (rebuild.to_scan as f64 + 1.0)).min(100.0);
    let _ = write!(out, "\t{rebuilt} resilvered, {done:.2}% done");
    match rebuild.to_scan.checked_sub(rebuild.scanned).filter(|_| scan_rate >= ESTIMATE_RATE_MIN) {
        Some(left) => {
            let _ = writeln!(out, ", {} to go", nice::duration(left / scan_rate));
        }
        None => out.push_str(", no estimated completion time\n"),
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rebuild(phase: RebuildPhase) -> RebuildReport {
        RebuildReport {
            phase,
            start_time: 1_795_217_000,
            end_time: if phase == RebuildPhase::Active { 0 } else { 1_795_217_100 },
            scan_time_ms: 61_500,
            scanned: 512 << 20,
            issued: 512 << 20,
            rebuilt: 512 << 20,
            to_scan: 2 << 30,
            pass_time_ms: 9_999,
            pass_scanned: 200 << 20,
            pass_issued: 200 << 20,
            ..RebuildReport::default()
        }
    }

    fn pool(rebuild: RebuildReport) -> VdevReport {
        let top =
            |rebuild| VdevReport { name: "mirror-0".into(), kind: "mirror".into(), rebuild, ..Default::default() };
        VdevReport { children: vec![top(Some(rebuild)), top(None)], ..VdevReport::default() }
    }

    #[test]
    fn the_words_are_openzfs_own() {
        let on = nice::ctime(1_795_217_100);
        assert_eq!(
            one(&rebuild(RebuildPhase::Complete), "mirror-0"),
            format!("resilvered (mirror-0) 512M in 00:01:01 with 0 errors on {on}\n")
        );
        let canceled = one(&rebuild(RebuildPhase::Canceled), "mirror-0");
        assert_eq!(canceled, format!("resilver (mirror-0) canceled on {on}\n"));
        assert_eq!(
            one(&rebuild(RebuildPhase::Active), "mirror-0"),
            format!(
                "resilver (mirror-0) in progress since {}\n\t512M / 2G scanned at 20.0M/s, 512M / 2G issued at \
                 20.0M/s\n\t512M resilvered, 25.00% done, 00:01:16 to go\n",
                nice::ctime(1_795_217_000)
            )
        );
        let slow = RebuildReport { pass_scanned: 0, pass_issued: 0, ..rebuild(RebuildPhase::Active) };
        assert!(one(&slow, "mirror-0").ends_with("512M resilvered, 25.00% done, no estimated completion time\n"));
    }

    #[test]
    fn the_last_one_is_told_and_a_scrub_always_is() {
        let scan = |resilver, state: &str, end_time| ScanReport {
            resilver,
            state: state.into(),
            end_time,
            ..Default::default()
        };
        let (active, over) = (pool(rebuild(RebuildPhase::Active)), pool(rebuild(RebuildPhase::Complete)));
        let before = scan(true, "finished", 1);
        let after = scan(true, "finished", 1_795_217_200);
        let scrub = scan(false, "scanning", 0);
        for (scan, vdevs, shown) in [
            (&before, &active, (false, true)),
            (&after, &active, (false, true)),
            (&before, &over, (false, true)),
            (&after, &over, (true, false)),
            (&scrub, &over, (true, true)),
            (&scan(true, "scanning", 0), &over, (true, false)),
            (&after, &VdevReport::default(), (true, false)),
        ] {
            assert_eq!((shows_scan(scan, vdevs), shows_rebuilds(scan, vdevs)), shown, "{scan:?}");
        }
    }
}
