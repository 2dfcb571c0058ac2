//! Flags in the configuration about devices that were judged (`ZPOOL_CONFIG_FAULTED`, `ZPOOL_CONFIG_DEGRADED` and
//! `ZPOOL_CONFIG_AUX_STATE`; `vdev_config_generate`, `module/zfs/vdev_label.c`).
//!
//! Invariants: a device has one verdict at most, and one that has none has no reason either.

use platter_ondisk::names::config::AUX_STATE;

use crate::config::{ERRORS, EXTERNAL, VdevConfig};

/// What is not done with a device any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It is not used.
    Faulted,
    /// It is used, and not relied on.
    Degraded,
}

/// Who judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// Its errors are too many.
    Errors,
    /// Somebody says so, for good.
    Somebody,
    /// Somebody says so, until the next import.
    SomebodyForNow,
}

/// Writes a verdict into a device's configuration.
pub fn judge(vdev: &mut VdevConfig, judged: Judged, judge: Judge) {
    (vdev.faulted, vdev.degraded) = (judged == Judged::Faulted, judged == Judged::Degraded);
    vdev.other.remove(AUX_STATE);
    match judge {
        Judge::Errors => _ = vdev.other.add_str(AUX_STATE, ERRORS),
        Judge::Somebody => _ = vdev.other.add_str(AUX_STATE, EXTERNAL),
        Judge::SomebodyForNow => {}
    }
    assert!(is_judged(vdev), "a verdict and its reason are written together");
}

/// Takes any verdict back.
pub fn acquit(vdev: &mut VdevConfig) {
    (vdev.faulted, vdev.degraded) = (false, false);
    vdev.other.remove(AUX_STATE);
    assert!(!is_judged(vdev), "nothing is left of a verdict");
}

/// Whether there is a verdict.
pub fn is_judged(vdev: &VdevConfig) -> bool {
    vdev.faulted || vdev.degraded
}

/// Whether the verdict is somebody's own.
pub fn is_external(vdev: &VdevConfig) -> bool {
    vdev.other.get_str(AUX_STATE) == Some(EXTERNAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_nvlist::NvList;

    #[test]
    fn a_verdict_survives_the_labels_and_leaves_nothing_behind() {
        let list = |vdev: &VdevConfig| vdev.to_nvlist(false, 2);
        let mut vdev = VdevConfig { kind: "file".into(), guid: platter_ondisk::Guid(7), ..VdevConfig::default() };
        let before = list(&vdev);
        for (judged, name) in [(Judged::Faulted, "faulted"), (Judged::Degraded, "degraded")] {
            judge(&mut vdev, judged, Judge::Errors);
            let written: NvList = list(&vdev);
            assert_eq!((written.get_u64(name), written.get_str("aux_state")), (Some(1), Some("err_exceeded")));
            let read = VdevConfig::parse(&written).expect("what was written is read");
            assert!(is_judged(&read) && !is_external(&read));
            acquit(&mut vdev);
            assert_eq!(list(&vdev), before);
        }
    }

    #[test]
    fn what_somebody_says_outlives_an_import_unless_it_was_for_now() {
        for (who, lasts) in [(Judge::Somebody, true), (Judge::SomebodyForNow, false)] {
            let mut vdev = VdevConfig { kind: "file".into(), guid: platter_ondisk::Guid(7), ..VdevConfig::default() };
            judge(&mut vdev, Judged::Faulted, who);
            let read = VdevConfig::parse(&vdev.to_nvlist(false, 2)).expect("what was written is read");
            assert_eq!((read.faulted, is_external(&read)), (lasts, lasts), "{who:?}");
        }
    }
}
