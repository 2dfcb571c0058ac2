//! Files of vdevs that were deleted while their pool has them open. They serve until they are closed, and are gone then.

use platter_api::report::VdevReport;
use platter_device::file::DELETED;

/// Whether a leaf is such a file.
pub fn is_deleted(leaf: &VdevReport) -> bool {
    leaf.children.is_empty() && leaf.state == "DEGRADED" && leaf.note.as_deref() == Some(DELETED)
}

/// The first top-level vdev that is whole enough now, and cannot be opened any more once its deleted files are closed:
/// the pool could not be imported without it. Intent logs do not count, as a pool that left in order needs none.
pub fn lost_when_closed(root: &VdevReport) -> Option<&VdevReport> {
    root.children.iter().filter(|top| !top.is_log && !top.is_cache).find(|top| has_deleted(top) && !stays(top))
}

fn has_deleted(vdev: &VdevReport) -> bool {
    is_deleted(vdev) || vdev.children.iter().any(has_deleted)
}

/// Whether it can be opened again after it was closed.
fn stays(vdev: &VdevReport) -> bool {
    if vdev.children.is_empty() {
        return matches!(vdev.state.as_str(), "ONLINE" | "DEGRADED") && !is_deleted(vdev);
    }
    let left = vdev.children.iter().filter(|child| stays(child)).count();
    match parity(&vdev.name) {
        Some(parity) => vdev.children.len() - left <= parity,
        None => left > 0,
    }
}

/// How many children a vdev that is shown by this name can do without; none when it is not raidz.
fn parity(name: &str) -> Option<usize> {
    name.strip_prefix("raidz")?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(state: &str, note: &str) -> VdevReport {
        let note = Some(note.to_owned()).filter(|note| !note.is_empty());
        VdevReport { state: state.into(), note, ..VdevReport::default() }
    }

    fn of(name: &str, children: Vec<VdevReport>) -> VdevReport {
        VdevReport { name: name.into(), children, ..VdevReport::default() }
    }

    fn is_lost(top: VdevReport) -> bool {
        lost_when_closed(&of("tank", vec![leaf("ONLINE", ""), top])).is_some()
    }

    #[test]
    fn what_cannot_be_opened_again_is_known() {
        let (online, dead) = (|| leaf("ONLINE", ""), || leaf("FAULTED", "too many errors"));
        let deleted = || leaf("DEGRADED", DELETED);
        assert!(is_lost(deleted()));
        assert!(!is_lost(online()) && !is_lost(leaf("DEGRADED", "too many slow I/Os")));
        assert!(!is_lost(of("mirror-1", vec![deleted(), online()])));
        assert!(is_lost(of("mirror-1", vec![deleted(), deleted()])));
        assert!(is_lost(of("mirror-1", vec![deleted(), dead()])));
        assert!(!is_lost(of("raidz1-1", vec![deleted(), online(), online()])));
        assert!(is_lost(of("raidz1-1", vec![deleted(), dead(), online()])));
        assert!(!is_lost(of("raidz2-1", vec![deleted(), dead(), online(), online()])));
        let spare = of("spare-0", vec![deleted(), online()]);
        assert!(!is_lost(of("raidz1-1", vec![spare.clone(), dead(), online()])));
        assert!(is_lost(of("raidz1-1", vec![spare, dead(), deleted()])));
        // What is lost already is not lost by this.
        assert!(!is_lost(of("mirror-1", vec![dead(), dead()])));
        let log = VdevReport { is_log: true, ..deleted() };
        assert!(!is_lost(log));
    }
}
