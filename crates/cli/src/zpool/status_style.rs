//! How `zpool status` shows a pool, as text or as JSON.

use platter_api::report::{LeafWork, LeafWorkState, VdevReport};

use super::names::Naming;
use crate::nice;

/// How to show.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    /// Names of damaged files.
    pub verbose: bool,
    /// Exact numbers.
    pub literal: bool,
    /// Only vdevs that are not healthy.
    pub unhealthy_only: bool,
    /// The SLOW column.
    pub slow: bool,
    /// How far initializing is, of all leaves.
    pub initialize: bool,
    /// How far trims are, of all leaves.
    pub trim: bool,
    /// Names.
    pub naming: Naming,
}

impl Style {
    /// What is said of work on what is free of a leaf (`print_status_initialize`, `print_status_trim`).
    pub fn work(&self, vdev: &VdevReport) -> String {
        if !vdev.children.is_empty() || vdev.kind == "root" {
            return String::new();
        }
        let initialize = work(vdev.initialize.as_ref(), self.initialize, ["initialized", "initializing"]);
        let trim = work(vdev.trim.as_ref(), self.trim, ["trimmed", "trimming"]);
        let none = |wanted: bool, word: &str| if wanted { format!("  ({word})") } else { String::new() };
        let untrimmed = if vdev.trim_support { "untrimmed" } else { "trim unsupported" };
        initialize.unwrap_or_else(|| none(self.initialize, "uninitialized"))
            + &trim.unwrap_or_else(|| none(self.trim, untrimmed))
    }
}

/// How far it is, when there is something to say of it.
fn work(work: Option<&LeafWork>, at_length: bool, [done, going_on]: [&str; 2]) -> Option<String> {
    let LeafWork { state, time, done: bytes, total } = work?;
    let since = match state {
        LeafWorkState::Canceled => return None,
        LeafWorkState::Active if !at_length => return Some(format!("  ({going_on})")),
        _ if !at_length => return None,
        LeafWorkState::Active => "started at",
        LeafWorkState::Suspended => "suspended, started at",
        LeafWorkState::Complete => "completed at",
    };
    let percent = match state {
        LeafWorkState::Complete => 100,
        _ => u128::from(*bytes) * 100 / (u128::from(*total) + 1),
    };
    Some(format!("  ({percent}% {done}, {since} {})", nice::ctime(*time)))
}

pub(super) fn has_errors(vdev: &VdevReport) -> bool {
    let counts = &vdev.counts;
    counts.read_errors + counts.write_errors + counts.checksum_errors > 0 || vdev.children.iter().any(has_errors)
}

/// Whether a vdev or any below it is not healthy.
pub(super) fn is_unhealthy(vdev: &VdevReport) -> bool {
    vdev.state != "ONLINE" || has_errors(vdev) || vdev.children.iter().any(is_unhealthy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_as_by_openzfs() {
        let (short, long) = (Style::default(), Style { initialize: true, trim: true, ..Style::default() });
        let of = |state| Some(LeafWork { state, time: 0, done: 50, total: 100 });
        let leaf = VdevReport { kind: "file".into(), trim_support: true, ..VdevReport::default() };
        assert_eq!((short.work(&leaf), long.work(&leaf)), (String::new(), "  (uninitialized)  (untrimmed)".into()));
        let unable = VdevReport { trim_support: false, ..leaf.clone() };
        assert_eq!(long.work(&unable), "  (uninitialized)  (trim unsupported)");
        let trimmed = VdevReport { trim: of(LeafWorkState::Active), ..leaf.clone() };
        assert_eq!(short.work(&trimmed), "  (trimming)");
        let time = nice::ctime(0);
        assert_eq!(long.work(&trimmed), format!("  (uninitialized)  (49% trimmed, started at {time})"));
        let done = VdevReport { trim: of(LeafWorkState::Complete), ..leaf.clone() };
        assert_eq!(long.work(&done), format!("  (uninitialized)  (100% trimmed, completed at {time})"));
        assert_eq!(short.work(&done), "");
        let waits = VdevReport { initialize: of(LeafWorkState::Suspended), ..leaf };
        assert_eq!(long.work(&waits), format!("  (49% initialized, suspended, started at {time})  (untrimmed)"));
    }
}
