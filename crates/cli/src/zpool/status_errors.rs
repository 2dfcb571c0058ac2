//! What `zpool status` tells of a scrub of known errors (`print_err_scrub_status`, `cmd/zpool/zpool_main.c`).

use std::fmt::Write as _;

use platter_api::report::{ErrorScrubReport, ScanReport};

use crate::nice;

/// Whether it is told of: a scrub that began later is told of in its place.
pub(super) fn is_shown(errors: &ErrorScrubReport, scan: &ScanReport) -> bool {
    let is_known = !errors.state.is_empty() && errors.state != "none";
    let scrub = if scan.resilver || scan.state == "none" { 0 } else { scan.start_time };
    is_known && errors.start_time >= scrub
}

/// What follows `scrub:`, in one or more lines; `None` when it is not told of.
pub(super) fn text(errors: &ErrorScrubReport, scan: &ScanReport, now: u64) -> Option<String> {
    if !is_shown(errors, scan) {
        return None;
    }
    let (start, end) = (nice::ctime(errors.start_time), nice::ctime(errors.end_time));
    let mut out = String::new();
    match errors.state.as_str() {
        "finished" => {
            let seconds = errors.end_time.saturating_sub(errors.start_time);
            let (days, time) = (seconds / 86_400, nice::duration(seconds % 86_400));
            return Some(format!("scrubbed {} error blocks in {days} days {time} on {end}\n", errors.examined));
        }
        "canceled" => return Some(format!("error scrub canceled on {end}\n")),
        "paused" => {
            let since = if errors.pause_time == 0 { now } else { errors.pause_time };
            let _ = writeln!(out, "error scrub paused since {}", nice::ctime(since));
            let _ = writeln!(out, "\terror scrub started on {start}");
        }
        _ => {
            let _ = writeln!(out, "error scrub in progress since {start}");
        }
    }
    let all = errors.examined + errors.to_examine;
    let done = if all == 0 { 0.0 } else { 100.0 * errors.examined as f64 / all as f64 };
    let _ = writeln!(out, "\t{done:.2}% done, issued I/O for {} error blocks", errors.examined);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_told_as_openzfs_tells_them() {
        let errors = |state: &str| ErrorScrubReport {
            state: state.into(),
            start_time: 1_795_218_000,
            end_time: 1_795_218_061,
            pause_time: 1_795_218_030,
            to_examine: 3,
            examined: 1,
        };
        let (start, end, paused) = (nice::ctime(1_795_218_000), nice::ctime(1_795_218_061), nice::ctime(1_795_218_030));
        let told = |state: &str| text(&errors(state), &ScanReport::default(), 0);
        assert_eq!(told("none"), None);
        assert_eq!(told("finished").unwrap(), format!("scrubbed 1 error blocks in 0 days 00:01:01 on {end}\n"));
        assert_eq!(told("canceled").unwrap(), format!("error scrub canceled on {end}\n"));
        let progress = "\t25.00% done, issued I/O for 1 error blocks\n";
        assert_eq!(told("scanning").unwrap(), format!("error scrub in progress since {start}\n{progress}"));
        assert_eq!(
            told("paused").unwrap(),
            format!("error scrub paused since {paused}\n\terror scrub started on {start}\n{progress}")
        );
        let later = ScanReport { state: "finished".into(), start_time: 1_795_218_001, ..ScanReport::default() };
        assert_eq!(text(&errors("finished"), &later, 0), None);
        let resilver = ScanReport { resilver: true, ..later };
        assert!(text(&errors("finished"), &resilver, 0).is_some());
    }
}
