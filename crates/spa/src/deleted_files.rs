//! Files of vdevs that were deleted while their pool has them open. They serve until they are closed, and are gone
//! then.

use std::collections::BTreeSet;

use platter_api::report::VdevReport;
use platter_device::file::DELETED;

/// Whether a leaf is such a file.
pub fn is_deleted(leaf: &VdevReport) -> bool {
    leaf.children.is_empty() && leaf.state == "DEGRADED" && leaf.note.as_deref() == Some(DELETED)
}

/// The first top-level vdev that is whole enough now, and is not any more once its deleted files are closed: the pool
/// could not be imported without it. What leaves are `lacking` yet, by guid, they could not give: none counts for a
/// copy. Intent logs do not count, as a pool that left in order needs none.
pub fn lost_when_closed<'a>(root: &'a VdevReport, lacking: &BTreeSet<u64>) -> Option<&'a VdevReport> {
    let mut tops = root.children.iter().filter(|top| !top.is_log && !top.is_cache);
    tops.find(|top| has_deleted(top) && !stays(top, lacking))
}

fn has_deleted(vdev: &VdevReport) -> bool {
    is_deleted(vdev) || vdev.children.iter().any(has_deleted)
}

/// Whether it is there with all that it has after it was closed.
fn stays(vdev: &VdevReport, lacking: &BTreeSet<u64>) -> bool {
    if vdev.children.is_empty() {
        let is_whole = matches!(vdev.state.as_str(), "ONLINE" | "DEGRADED") && !lacking.contains(&vdev.guid);
        return is_whole && !is_deleted(vdev);
    }
    let left = vdev.children.iter().filter(|child| stays(child, lacking)).count();
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
        lost_when_closed(&of("tank", vec![leaf("ONLINE", ""), top]), &BTreeSet::from([7])).is_some()
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
        let resilvering = VdevReport { guid: 7, ..online() };
        assert!(is_lost(of("mirror-1", vec![deleted(), resilvering.clone()])));
        assert!(is_lost(of("raidz1-1", vec![of("replacing-0", vec![deleted(), resilvering]), deleted(), online()])));
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
