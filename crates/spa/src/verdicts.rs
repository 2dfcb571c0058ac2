//! What is done to a device that was judged: it is given up, or used on and not relied on (`vdev_fault` and
//! `vdev_degrade` in `module/zfs/vdev.c`). Who judges is no business of this crate's.
//!
//! Invariants:
//! - no verdict takes the last good copy away: a device that the others cannot do without is degraded instead;
//! - the verdict is on disk in the group in which the device is given up, and so is that the device misses this group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use platter_api::event::EventValue;
use platter_api::faults::{Cause, DeviceSigns, DeviceState, Verdict};
use platter_api::request::Changed;
use platter_dmu::Tx;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;
use platter_ondisk::Guid;
use platter_vdev::{Condition, VdevAux, VdevState};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::place::{self, PlacedLeaf};
use crate::verdict_flags::{self, Judge, Judged};
use crate::{dtl, pool_events, spare_flags, vdev_zaps};

/// Why a device is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has too many errors of this kind.
    Errors(Cause),
    /// Somebody says that it has failed (`zpool offline -f`), perhaps until the next import only.
    Somebody {
        /// Until the next import.
        temporary: bool,
    },
}

impl Why {
    fn verdict(self) -> Verdict {
        match self {
            Self::Errors(cause) => cause.verdict(),
            Self::Somebody { .. } => Verdict::Faulted,
        }
    }

    fn judge(self) -> Judge {
        match self {
            Self::Errors(_) => Judge::Errors,
            Self::Somebody { temporary: false } => Judge::Somebody,
            Self::Somebody { temporary: true } => Judge::SomebodyForNow,
        }
    }

    fn aux(self) -> VdevAux {
        match self {
            Self::Errors(_) => VdevAux::ErrorExceeded,
            Self::Somebody { .. } => VdevAux::External,
        }
    }
}

/// Carries a verdict on a device out; the state that it has then.
///
/// # Errors
/// No such device; a pool that waits or has stopped.
pub async fn carry_out(core: &Arc<Core>, device: &str, why: Why) -> Result<Changed> {
    let guid = place::find(core, device).await?.config.guid;
    let called_off = Arc::new(AtomicBool::new(false));
    let watched = called_off.clone();
    // It may have left meanwhile, or the others may need it now: looked at once nothing changes any more.
    let check = async move |core: Arc<Core>| {
        if watched.load(Ordering::Acquire) {
            return Err(PoolError::Unavailable("the verdict was called off".into()));
        }
        let place = place::with_guid(&core, guid)?;
        let dispensable = place.top.can_do_without(&place.leaf);
        Ok((place, dispensable))
    };
    let judged = core
        .checked_task(check, async move |core, tx, (place, dispensable)| {
            let judged = match (why.verdict(), dispensable) {
                (Verdict::Faulted, true) => Judged::Faulted,
                _ => Judged::Degraded,
            };
            judge(&core, &tx, &place, judged, why).await?;
            Ok(place.leaf.condition().name().to_owned())
        })
        .await;
    if judged.is_err() {
        // A suspended pool may be resumed by a command that forgives all errors.
        called_off.store(true, Ordering::Release);
    }
    let state = judged?;
    // A spare need not be waited for any longer.
    core.spares.changed.notify_waiters();
    Ok(Changed { state: Some(state), ..Changed::default() })
}

/// Parts from a device that does not answer, or not soon, at once: no group can be written while something waits for
/// it, so neither could a verdict. Whether that was done: not with one that the others cannot do without.
pub fn part_from(core: &Core, guid: Guid, reason: &str) -> bool {
    let Ok(place) = place::with_guid(core, guid) else { return false };
    if !place.leaf.is_usable() || !place.top.can_do_without(&place.leaf) {
        return false;
    }
    let device = place.leaf.device();
    // First, so that nobody who is told now tries again there.
    place.leaf.close(Condition::new(VdevState::Faulted, VdevAux::ErrorExceeded).with_detail(reason));
    core.leaf_devices.lock().remove(&guid.0);
    if let Some(device) = device {
        device.part(reason);
    }
    assert!(!place.leaf.is_usable(), "nothing more is asked of it");
    pool_events::tell_state(core, &place.leaf);
    true
}

async fn judge(core: &Arc<Core>, tx: &Tx, place: &PlacedLeaf, judged: Judged, why: Why) -> Result<()> {
    let guid = place.config.guid;
    if place.config.faulted || (judged == Judged::Degraded && place.config.degraded) {
        return Ok(());
    }
    match judged {
        Judged::Faulted => {
            place.leaf.close(Condition::new(VdevState::Faulted, why.aux()));
            core.leaf_devices.lock().remove(&guid.0);
            // It misses this very group already.
            dtl::note_absent(core, tx.txg());
            assert!(!place.leaf.is_usable(), "what was given up is not used");
        }
        Judged::Degraded => _ = place.leaf.distrust(why.aux()),
    }
    place::change_config(core, place, |vdev| verdict_flags::judge(vdev, judged, why.judge()));
    if let Why::Errors(cause) = why {
        let mut fields: Vec<(&str, EventValue)> = pool_events::leaf_fields(&place.leaf);
        fields.push(("vdev_state_text", place.leaf.condition().name().into()));
        core.event(cause.class(), fields);
    }
    if judged == Judged::Faulted {
        // One that is degraded has told so itself.
        pool_events::tell_state(core, &place.leaf);
    }
    let (what, path) = match judged {
        Judged::Faulted => ("vdev fault", place.config.path.as_deref()),
        Judged::Degraded => ("vdev degrade", place.config.path.as_deref()),
    };
    let reason = match why {
        Why::Errors(cause) => cause.name(),
        Why::Somebody { .. } => "external",
    };
    let event = format!("vdev={} reason={reason}", path.unwrap_or("a device"));
    Ok(history::append_event(&core.dsl, tx, what, &event).await?)
}

/// What is seen of each device.
pub fn signs(core: &Core) -> Vec<DeviceSigns> {
    let tree = core.config.read().vdev_tree.clone();
    let helpers = helpers(&tree);
    let held = core.environment.held.lock().clone();
    let limits = vdev_zaps::limits(&core.vdev_properties, &tree);
    let places = place::leaves(core);
    let whole = |guid: Guid| places.iter().any(|place| place.config.guid == guid && place.leaf.is_complete());
    let sign = |place: &PlacedLeaf| {
        let (config, stats) = (&place.config, place.leaf.stats().snapshot());
        let condition = place.leaf.condition();
        let helper = helpers.iter().find(|(helped, _)| *helped == config.guid).map(|(_, helper)| helper);
        let traffic = place.leaf.device().and_then(|device| device.traffic()).unwrap_or_default();
        DeviceSigns {
            guid: config.guid.0,
            name: config.path.clone().unwrap_or_else(|| config.guid.to_string()),
            state: state(&condition),
            is_in_transit: condition.state == VdevState::Closed || core.stopping.load(Ordering::Acquire),
            reason: condition.detail.clone().or_else(|| {
                let words = condition.aux_text();
                (!words.is_empty()).then(|| words.to_owned())
            }),
            io_errors: stats.read_errors + stats.write_errors,
            checksum_errors: stats.checksum_errors.saturating_sub(stats.scan_checksum_errors),
            scan_errors: stats.scan_checksum_errors,
            slow_ios: place.leaf.histograms().slow(),
            reads: (traffic.reads.under_way, traffic.reads.ended),
            writes: (traffic.writes.under_way, traffic.writes.ended),
            limits: limits.get(&config.guid).copied().unwrap_or_default(),
            is_judged: verdict_flags::is_judged(config),
            is_held: held.contains(&config.guid.0),
            has_everything: place.leaf.is_complete(),
            helper: helper.map(|helper| helper.path.clone().unwrap_or_else(|| helper.guid.to_string())),
            helper_has_everything: helper.is_some_and(|helper| whole(helper.guid)),
        }
    };
    places.iter().map(sign).collect()
}

fn state(condition: &Condition) -> DeviceState {
    match condition.state {
        VdevState::Healthy => DeviceState::Online,
        VdevState::Degraded => DeviceState::Degraded,
        VdevState::Faulted => DeviceState::Faulted,
        VdevState::Removed => DeviceState::Removed,
        VdevState::Offline => DeviceState::Offline,
        VdevState::CantOpen | VdevState::Closed => DeviceState::Unavailable,
    }
}

/// The devices for which others stand in, or whose places they take, with the last of those.
fn helpers(tree: &VdevConfig) -> Vec<(Guid, VdevConfig)> {
    let mut helpers = Vec::new();
    tree.walk(&mut |vdev| {
        if matches!(&*vdev.kind, "spare" | "replacing")
            && let [first, .., last] = vdev.children.as_slice()
        {
            let last = last.leaves().last().copied().unwrap_or(last).clone();
            helpers.extend(first.leaves().iter().map(|leaf| (leaf.guid, last.clone())));
        }
    });
    helpers
}

/// Takes back the verdict on a device (`vdev_clear`, `module/zfs/vdev.c`); a spare that stands in for it is to go when
/// the device has everything.
pub fn acquit(core: &Core, place: &mut PlacedLeaf) {
    let judged = verdict_flags::is_judged(&place.config);
    verdict_flags::acquit(&mut place.config);
    if judged {
        place::change_config(core, place, verdict_flags::acquit);
        if place.leaf.is_usable() {
            spare_flags::note_wanted_back(core, place.config.guid);
        }
    }
}
