//! What `zpool status` says is wrong with a pool, and what to do about it (`print_status_reason`,
//! `cmd/zpool/zpool_main.c`; `lib/libzfs/libzfs_status.c`).

use platter_api::report::{RebuildPhase, ScanReport, VdevReport};
use platter_dsl::watched;
use platter_zio::{FailMode, Phase};

use crate::deleted_files::is_deleted;
use crate::multihost;

/// What is wrong, and what to do.
pub struct Advice {
    /// The text after `status:`.
    pub status: &'static str,
    /// The text after `action:`.
    pub action: String,
    /// The number of the article about it.
    pub message_id: Option<&'static str>,
}

/// What of a pool there is to go by.
pub struct Signs<'a> {
    /// Whether it runs.
    pub phase: &'a Phase,
    /// Its scrub or resilver.
    pub scan: &'a ScanReport,
    /// Whether files are known to be damaged.
    pub has_damage: bool,
    /// Its vdevs.
    pub vdevs: &'a VdevReport,
    /// The devices with labels that are not its own, one in each line; empty when there are none.
    pub strangers: &'a str,
}

/// What can be wrong with a pool, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    OtherHost,
    Waiting,
    WaitingReadable,
    Bug,
    Stopped,
    Resilvering,
    Damage,
    LabelsWithoutReplicas,
    Labels,
    MissingWithoutReplicas,
    Missing,
    Faulted,
    Deleted,
    Errors,
    Offline,
    Removed,
    Unverified,
}

/// In OpenZFS's words.
const TEXTS: [(Trouble, &str, &str, Option<&str>); 17] = [
    (
        Trouble::OtherHost,
        "The pool is suspended because multihost writes failed or were delayed;\n\tanother system could import the \
         pool undetected.",
        "Make sure the pool's devices are connected, then reboot your system and\n\timport the pool or run 'zpool \
         clear' to resume the pool.",
        Some("ZFS-8000-MM"),
    ),
    (
        Trouble::Waiting,
        "One or more devices are faulted in response to IO failures.",
        "Make sure the affected devices are connected, then run 'zpool clear'.",
        Some("ZFS-8000-HC"),
    ),
    (
        Trouble::WaitingReadable,
        "One or more devices are faulted in response to IO failures.",
        "Make sure the affected devices are connected, then run 'zpool clear'.",
        Some("ZFS-8000-JQ"),
    ),
    (
        Trouble::Bug,
        "The pool has stopped after an error of the program itself; the log says which.",
        "Run 'zpool export -f' and 'zpool import': what was stable is on the devices.\n\tPlease report it.",
        None,
    ),
    (
        Trouble::Stopped,
        "The pool has stopped after IO failures.",
        "Make sure the affected devices are connected, then run 'zpool export' and\n\t'zpool import'.",
        Some("ZFS-8000-HC"),
    ),
    (
        Trouble::Resilvering,
        "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a \
         degraded state.",
        "Wait for the resilver to complete.",
        None,
    ),
    (
        Trouble::Damage,
        "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.",
        "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.",
        Some("ZFS-8000-8A"),
    ),
    (
        Trouble::LabelsWithoutReplicas,
        "One or more devices could not be used because the label is missing \n\tor invalid.  There are insufficient \
         replicas for the pool to continue\n\tfunctioning.",
        "Replace the device using 'zpool replace'.",
        Some("ZFS-8000-5E"),
    ),
    (
        Trouble::Labels,
        "One or more devices could not be used because the label is missing or\n\tinvalid.  Sufficient replicas exist \
         for the pool to continue\n\tfunctioning in a degraded state.",
        "Replace the device using 'zpool replace'.",
        Some("ZFS-8000-4J"),
    ),
    (
        Trouble::MissingWithoutReplicas,
        "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue \
         functioning.",
        "Attach the missing device and online it using 'zpool online'.",
        Some("ZFS-8000-3C"),
    ),
    (
        Trouble::Missing,
        "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning \
         in a degraded state.",
        "Attach the missing device and online it using 'zpool online'.",
        Some("ZFS-8000-2Q"),
    ),
    (
        Trouble::Faulted,
        "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for the pool \
         to continue functioning in a\n\tdegraded state.",
        "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
        Some("ZFS-8000-K4"),
    ),
    (
        Trouble::Removed,
        "One or more devices has been removed by the administrator.\n\tSufficient replicas exist for the pool to \
         continue functioning in a\n\tdegraded state.",
        "Online the device using zpool online' or replace the device with\n\t'zpool replace'.",
        None,
    ),
    (
        Trouble::Offline,
        "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool \
         to continue functioning in a\n\tdegraded state.",
        "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
        None,
    ),
    // OpenZFS does not see this.
    (
        Trouble::Deleted,
        "One or more of the pool's files were deleted.  They are used as long as\n\tthe pool stays open, and gone with \
         an export or the end of the daemon.",
        "Put another device in the place of each with 'zpool replace' before, or\n\tattach one to it with 'zpool \
         attach'.",
        None,
    ),
    (
        Trouble::Errors,
        "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  \
         Applications are unaffected.",
        "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the \
         device with 'zpool replace'.",
        Some("ZFS-8000-9P"),
    ),
    (
        Trouble::Unverified,
        "One or more devices have been sequentially resilvered, scrubbing\n\tthe pool is recommended.",
        "Use 'zpool scrub' to verify all data checksums.",
        None,
    ),
];

fn any(vdev: &VdevReport, check: &dyn Fn(&VdevReport) -> bool) -> bool {
    check(vdev) || vdev.children.iter().any(|child| any(child, check))
}

fn is_degraded_leaf(vdev: &VdevReport) -> bool {
    vdev.children.is_empty() && vdev.state == "DEGRADED"
}

impl Signs<'_> {
    /// What is to be said about the worst that is wrong; nothing when all is well.
    pub fn advice(&self) -> Option<Advice> {
        let trouble = self.of_the_pool().or_else(|| self.of_devices())?;
        let (_, status, action, message_id) = TEXTS.into_iter().find(|(of, ..)| *of == trouble)?;
        let mut action = action.to_owned();
        if matches!(trouble, Trouble::Labels | Trouble::LabelsWithoutReplicas) {
            action.push_str(self.strangers);
        }
        Some(Advice { status, action, message_id })
    }

    fn of_the_pool(&self) -> Option<Trouble> {
        match self.phase {
            Phase::Suspended { reason, .. } if reason == multihost::SUSPENDED => Some(Trouble::OtherHost),
            Phase::Suspended { mode: FailMode::Continue, .. } => Some(Trouble::WaitingReadable),
            Phase::Suspended { .. } => Some(Trouble::Waiting),
            Phase::Stopped(reason) if reason.starts_with(watched::INTERNAL) => Some(Trouble::Bug),
            Phase::Stopped(_) => Some(Trouble::Stopped),
            Phase::Running if self.scan.resilver && self.scan.state == "scanning" => Some(Trouble::Resilvering),
            Phase::Running if self.vdevs.is_rebuilding() => Some(Trouble::Resilvering),
            Phase::Running if self.is_unverified() => Some(Trouble::Unverified),
            Phase::Running if self.has_damage => Some(Trouble::Damage),
            Phase::Running => None,
        }
    }

    /// Whether no scrub has verified what was sequentially reconstructed (`lib/libzfs/libzfs_status.c`).
    fn is_unverified(&self) -> bool {
        let rebuilds = self.vdevs.children.iter().filter_map(|top| top.rebuild);
        let complete = rebuilds.filter(|rebuild| rebuild.phase == RebuildPhase::Complete);
        let Some(end) = complete.map(|rebuild| rebuild.end_time).max() else { return false };
        match self.scan.state.as_str() {
            "finished" => !self.scan.resilver && end > self.scan.end_time,
            state => state == "none",
        }
    }

    fn of_devices(&self) -> Option<Trouble> {
        let has = |state: &str| any(self.vdevs, &|vdev| vdev.state == state);
        let is_lost = self.vdevs.state == "UNAVAIL";
        if !self.strangers.is_empty() {
            return Some(if is_lost { Trouble::LabelsWithoutReplicas } else { Trouble::Labels });
        }
        if has("UNAVAIL") {
            return Some(if is_lost { Trouble::MissingWithoutReplicas } else { Trouble::Missing });
        }
        if has("FAULTED") {
            return Some(Trouble::Faulted);
        }
        if any(self.vdevs, &is_deleted) {
            return Some(Trouble::Deleted);
        }
        // The counts begin anew with each import; what was found then is in force.
        let has_errors = any(self.vdevs, &|vdev| {
            let counts = vdev.counts;
            let counted = counts.read_errors > 0 || counts.write_errors > 0 || counts.checksum_errors > 0;
            counted || is_degraded_leaf(vdev)
        });
        if has_errors {
            return Some(Trouble::Errors);
        }
        let states = [("OFFLINE", Trouble::Offline), ("REMOVED", Trouble::Removed)];
        states.into_iter().find(|(state, _)| has(state)).map(|(_, trouble)| trouble)
    }
}

#[cfg(test)]
mod tests {
    use platter_api::report::IoCounts;
    use platter_device::file::DELETED;

    use super::*;

    fn leaf(state: &str, note: &str, checksum_errors: u64) -> VdevReport {
        VdevReport {
            state: state.into(),
            note: Some(note.to_owned()).filter(|note| !note.is_empty()),
            counts: IoCounts { checksum_errors, ..IoCounts::default() },
            ..VdevReport::default()
        }
    }

    fn trouble(leaves: Vec<VdevReport>) -> Option<Trouble> {
        let state = if leaves.iter().all(|leaf| leaf.state == "ONLINE") { "ONLINE" } else { "DEGRADED" };
        let mirror = VdevReport { state: state.into(), children: leaves, ..VdevReport::default() };
        let vdevs = VdevReport { state: state.into(), children: vec![mirror], ..VdevReport::default() };
        let (phase, scan) = (Phase::Running, ScanReport::default());
        Signs { phase: &phase, scan: &scan, has_damage: false, vdevs: &vdevs, strangers: "" }.of_devices()
    }

    #[test]
    fn the_worst_of_the_devices_is_told() {
        let online = || leaf("ONLINE", "", 0);
        assert_eq!(trouble(vec![online(), online()]), None);
        assert_eq!(trouble(vec![online(), leaf("ONLINE", "", 1)]), Some(Trouble::Errors));
        assert_eq!(trouble(vec![online(), leaf("OFFLINE", "", 0)]), Some(Trouble::Offline));
        assert_eq!(trouble(vec![online(), leaf("REMOVED", "", 0)]), Some(Trouble::Removed));
        // Its counts are of another day.
        assert_eq!(trouble(vec![online(), leaf("DEGRADED", "too many errors", 0)]), Some(Trouble::Errors));
        assert_eq!(trouble(vec![leaf("OFFLINE", "", 0), leaf("DEGRADED", "", 0)]), Some(Trouble::Errors));
        assert_eq!(trouble(vec![leaf("REMOVED", "", 0), leaf("ONLINE", "", 5)]), Some(Trouble::Errors));
        assert_eq!(trouble(vec![leaf("FAULTED", "", 0), leaf("DEGRADED", "", 0)]), Some(Trouble::Faulted));
        let deleted = || leaf("DEGRADED", DELETED, 0);
        assert_eq!(trouble(vec![leaf("REMOVED", "", 0), deleted()]), Some(Trouble::Deleted));
        assert_eq!(trouble(vec![leaf("FAULTED", "", 0), deleted()]), Some(Trouble::Faulted));
    }
}
