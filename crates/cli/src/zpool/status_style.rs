//! How `zpool status` shows a pool, as text or as JSON.

use platter_api::report::VdevReport;

use super::names::Naming;

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
    /// Names.
    pub naming: Naming,
}

pub(super) fn has_errors(vdev: &VdevReport) -> bool {
    let counts = &vdev.counts;
    counts.read_errors + counts.write_errors + counts.checksum_errors > 0 || vdev.children.iter().any(has_errors)
}

/// Whether a vdev or any below it is not healthy.
pub(super) fn is_unhealthy(vdev: &VdevReport) -> bool {
    vdev.state != "ONLINE" || has_errors(vdev) || vdev.children.iter().any(is_unhealthy)
}
