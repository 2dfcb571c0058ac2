//! What the pool does by itself about a device that is gone: tries to have it back, and has a spare stand in for it
//! (`cmd/zed/agents/zfs_retire.c`).
//!
//! The policy:
//! - a device counts as gone that cannot be used for [`GRACE`], whatever the reason and also when it was so at the
//!   import. One that somebody took offline does not, nor does one that its owner holds;
//! - one that was judged ([`verdicts`](crate::verdicts)) is helped at once, also when it is used on;
//! - it is looked for once more first, at its path and where else its disk may be. One that is back goes on, and one
//!   in whose place another disk is may be replaced by that ([`autoreplace`](crate::autoreplace));
//! - of the spares that nobody uses the smallest one that fits stands in, one for each device. When it fails too,
//!   another one follows;
//! - three devices or more that went within [`TOGETHER`] are a cable's or a controller's fault: no spare could help
//!   if they come back, and each would be used up. They are waited for for [`CABLE`];
//! - when somebody takes away a spare that stands in (`zpool detach`), none stands in for that device again until it
//!   has been in order, or fails altogether although it could be used;
//! - what could not be helped is tried again after [`PAUSE`], or at once when a spare becomes free;
//! - a device for which a spare stands in is opened again when it is seen at its path;
//! - what is there and cannot be used is opened ever more rarely ([`returns`]).
//!
//! The way back is in [`exchange`](crate::exchange): a spare is free again when what it stood in for has everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use platter_vdev::{AllocationClass, VdevState};
use tokio::time::Instant;

use crate::autoreplace;
use crate::config::VdevConfig;
use crate::core::Core;
use crate::exchange::{self, Joining};
use crate::free_commands;
use crate::place::{self, PlacedLeaf};
use crate::rebuild::{self, Giving};
use crate::returns::{self, Returns};
use crate::spare_flags;
use crate::spare_looks;
use crate::verdict_flags;

/// How often is looked.
const TICK: Duration = Duration::from_secs(1);
/// For so long a device may be away without more.
const GRACE: Duration = Duration::from_secs(5);
/// Devices that go within so long have one reason.
const TOGETHER: Duration = Duration::from_secs(10);
/// So many of them make it a cable's.
const MANY: usize = 3;
/// For so long devices are waited for that went together.
const CABLE: Duration = Duration::from_secs(300);
/// When what was in vain is tried again.
const PAUSE: Duration = Duration::from_secs(30);

/// A device that is away.
struct Away {
    since: Instant,
    /// Whether it was judged, so that nothing is left to wait for.
    judged: bool,
    /// When something was last tried.
    tried: Option<Instant>,
    returns: Returns,
}

/// What is known of devices that are not there, by guid.
#[derive(Default)]
struct Watch {
    away: BTreeMap<u64, Away>,
    /// Those that spares stand in for.
    replaced: BTreeMap<u64, Returns>,
}

/// Watches over the devices until the pool is closed.
pub async fn watch(weak: Weak<Core>) {
    let mut known = Watch::default();
    let mut seen = false;
    loop {
        let Some(core) = weak.upgrade() else { return };
        if core.is_over() {
            return;
        }
        let changed = core.spares.changed.clone();
        let notified = changed.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        // While nothing is written nobody else may see that a device has gone.
        for vdev in core.dsl.store.state().vdevs.iter().flatten() {
            vdev.check_present();
        }
        if seen {
            let moved = spare_looks::moved(&core).await;
            spare_looks::look_at_these(&core, &moved).await;
        } else {
            spare_looks::look(&core).await;
        }
        seen = !core.spares.is_empty();
        look(&core, &mut known).await;
        // Neither the pool nor its devices are held while nothing is done.
        drop(core);
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            () = notified => known.away.values_mut().for_each(|away| away.tried = None),
        }
    }
}

/// Looks for devices that are gone or back, and does what can be done about them.
async fn look(core: &Arc<Core>, known: &mut Watch) {
    forget_declined(core);
    let (now, gone) = (Instant::now(), gone(core));
    let away = &mut known.away;
    away.retain(|guid, _| gone.iter().any(|place| place.config.guid.0 == *guid));
    for place in &gone {
        let judged = verdict_flags::is_judged(&place.config);
        away.entry(place.config.guid.0)
            .or_insert(Away { since: now, judged, tried: None, returns: Returns::default() })
            .judged = judged;
    }
    if core.dsl.store.suspension().is_suspended() {
        return;
    }
    for place in gone {
        let guid = place.config.guid.0;
        if is_due(away, guid, now) {
            let Some(own) = away.get_mut(&guid) else { continue };
            let again = own.tried.replace(now).is_some();
            help(core, &place, again, &mut own.returns).await;
        } else if let Some(own) = away.get_mut(&guid).filter(|own| now - own.since >= GRACE)
            && own.returns.wants_look(now)
            && own.returns.is_due(returns::look(core, &place).await, now)
        {
            // Also while many are waited for that went together: no spare is used up by that.
            have_back_if(core, &place, self::gone).await;
        }
    }
    let replaced = replaced_by_spares(core);
    known.replaced.retain(|guid, _| replaced.iter().any(|place| place.config.guid.0 == *guid));
    for place in replaced {
        let returns = known.replaced.entry(place.config.guid.0).or_default();
        if returns.wants_look(now) && returns.is_due(returns::look(core, &place).await, now) {
            have_back_if(core, &place, replaced_by_spares).await;
        }
    }
}

/// What is in order again, or worse than when its spare was taken away, may have one.
fn forget_declined(core: &Core) {
    let declined = core.spares.declined.lock().clone();
    if declined.is_empty() {
        return;
    }
    let places = place::leaves_of(core, |leaf| declined.contains_key(&leaf.guid.0));
    let stays_so = |guid: u64, was_usable: bool| {
        let place = places.iter().find(|place| place.config.guid.0 == guid);
        place.is_some_and(|place| match place.leaf.is_usable() {
            true => verdict_flags::is_judged(&place.config),
            false => !was_usable,
        })
    };
    core.spares.declined.lock().retain(|guid, was_usable| stays_so(*guid, *was_usable));
}

/// Has a device back that is still among the `wanted` ones: a command may have come first.
async fn have_back_if(core: &Arc<Core>, place: &PlacedLeaf, wanted: fn(&Core) -> Vec<PlacedLeaf>) {
    let _one = core.changing.lock().await;
    if let Some(place) = wanted(core).into_iter().find(|now| now.config.guid == place.config.guid) {
        have_back(core, &place).await;
    }
}

/// Opens a device again, or replaces it by what is in its place; whether that worked.
async fn have_back(core: &Arc<Core>, place: &PlacedLeaf) -> bool {
    (may_return(place) && open(core, place).await) || autoreplace::replace(core, place).await
}

/// Whether it is worth trying to open a device again: nobody has decided that it is not to be used.
fn may_return(place: &PlacedLeaf) -> bool {
    matches!(place.leaf.condition().state, VdevState::CantOpen | VdevState::Removed)
        && !(place.config.offline || place.config.offline_for_now || place.config.faulted)
}

/// The devices that spares stand in for and that may return, or be replaced by what is in their places.
fn replaced_by_spares(core: &Core) -> Vec<PlacedLeaf> {
    let mut firsts = Vec::new();
    core.config.read().vdev_tree.walk(&mut |vdev| {
        firsts.extend(vdev.children.first().filter(|_| vdev.kind == "spare").map(|first| first.guid));
    });
    if firsts.is_empty() {
        return Vec::new();
    }
    let mut places = place::leaves_of(core, |leaf| firsts.contains(&leaf.guid));
    places.retain(|place| may_return(place) || autoreplace::may_replace(core, place));
    places
}

/// Opens a device again; whether it is back.
async fn open(core: &Arc<Core>, place: &PlacedLeaf) -> bool {
    let is_back = place.open(core).await;
    if is_back {
        tracing::info!(pool = core.name(), "device {} is back", place.config.guid);
        core.event("sysevent.fs.zfs.vdev_online", vec![("vdev_guid", place.config.guid.0.into())]);
        rebuild::resume(core);
        free_commands::resume(core);
    }
    is_back
}

/// Whether it is time to do something about a device.
fn is_due(away: &BTreeMap<u64, Away>, guid: u64, now: Instant) -> bool {
    let Some(own) = away.get(&guid) else { return false };
    let is_near = |other: &&Away| {
        let apart = own.since.max(other.since) - own.since.min(other.since);
        apart <= TOGETHER
    };
    let patience = match away.values().filter(|other| !other.judged).filter(is_near).count() {
        _ if own.judged => Duration::ZERO,
        MANY.. => CABLE,
        _ => GRACE,
    };
    now - own.since >= patience && own.tried.is_none_or(|tried| now - tried >= PAUSE)
}

/// The devices for which a spare should stand in.
fn gone(core: &Core) -> Vec<PlacedLeaf> {
    if all_are_good(core) {
        return Vec::new();
    }
    let vdevs = &core.dsl.store.state().vdevs;
    let opened = vdevs.iter().flatten().flat_map(|vdev| vdev.leaves());
    let usable: BTreeSet<u64> = opened.filter(|leaf| leaf.is_usable()).map(|leaf| leaf.guid().0).collect();
    let mut wanted = Vec::new();
    core.config.read().vdev_tree.walk(&mut |vdev| wanted.extend(unhelped(vdev, &usable)));
    wanted.retain(|guid| !core.environment.held.lock().contains(guid));
    let is_gone = |place: &PlacedLeaf| {
        !place.config.offline
            && !place.config.offline_for_now
            && place.top.class() != AllocationClass::Log
            && place.top.condition().is_usable()
            // A closed one is just being opened.
            && !matches!(place.leaf.condition().state, VdevState::Closed | VdevState::Offline)
    };
    place::leaves_of(core, |leaf| wanted.contains(&leaf.guid.0)).into_iter().filter(is_gone).collect()
}

/// Whether every device is in use and none was judged: so it is nearly always, and it is asked every second.
fn all_are_good(core: &Core) -> bool {
    let vdevs = &core.dsl.store.state().vdevs;
    let mut is_any_judged = false;
    core.config.read().vdev_tree.walk(&mut |vdev| is_any_judged |= verdict_flags::is_judged(vdev));
    !is_any_judged && vdevs.iter().flatten().all(|vdev| vdev.leaves().iter().all(|leaf| leaf.is_usable()))
}

/// The leaves right below a vdev that cannot be used and for which nothing stands in.
fn unhelped(vdev: &VdevConfig, usable: &BTreeSet<u64>) -> Vec<u64> {
    let is_good = |leaf: &VdevConfig| usable.contains(&leaf.guid.0) && !verdict_flags::is_judged(leaf);
    let is_unusable = |leaf: &&VdevConfig| leaf.is_leaf() && !is_good(leaf);
    match vdev.kind.as_str() {
        "mirror" | "raidz" => vdev.children.iter().filter(is_unusable).map(|leaf| leaf.guid.0).collect(),
        // The last spare, when all that there were have failed.
        "spare" if vdev.leaves().iter().all(|leaf| !is_good(leaf)) => {
            let last = vdev.children.last().filter(|leaf| leaf.is_leaf() && spare_flags::is_spare(leaf));
            last.into_iter().map(|leaf| leaf.guid.0).collect()
        }
        _ => Vec::new(),
    }
}

/// Has a device back, or a spare stand in for it. When that was tried before, disks are not searched for it `again`.
async fn help(core: &Arc<Core>, place: &PlacedLeaf, again: bool, returns: &mut Returns) {
    let _one = core.changing.lock().await;
    let (guid, name) = (place.config.guid, core.name());
    // A command may have come first.
    let Some(place) = gone(core).into_iter().find(|now| now.config.guid == guid) else { return };
    let is_due = returns.is_due(returns::look(core, &place).await, Instant::now());
    if (!again || is_due) && have_back(core, &place).await {
        return;
    }
    if core.spares.declined.lock().contains_key(&guid.0) {
        return;
    }
    // They are needed: what was there may not be any more, and what somebody else had may be free.
    spare_looks::look(core).await;
    for spare in spare_looks::available(core) {
        let path = PathBuf::from(spare.path.clone().unwrap_or_default());
        let device = guid.to_string();
        let joining =
            Joining { device, new: path.clone(), replaces: true, force: false, ashift: 0, how: Giving::Later };
        match exchange::attach(core, joining).await {
            Ok(()) => {
                let why = if place.leaf.is_usable() { "is not relied on" } else { "is gone" };
                tracing::warn!(pool = name, "device {guid} {why}: spare {} stands in for it", path.display());
                return;
            }
            Err(error) => {
                tracing::warn!(pool = name, %error, "spare {} cannot stand in for device {guid}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_that_go_together_are_waited_for() {
        let start = Instant::now();
        let away = |seconds: &[u64]| -> BTreeMap<u64, Away> {
            let at = |&seconds: &u64| Away {
                since: start + Duration::from_secs(seconds),
                judged: false,
                tried: None,
                returns: Returns::default(),
            };
            (0..).zip(seconds.iter().map(at)).collect()
        };
        let due = |map: &BTreeMap<u64, Away>, after: u64| {
            (0..map.len() as u64).filter(|guid| is_due(map, *guid, start + Duration::from_secs(after))).count()
        };
        assert_eq!((due(&away(&[0]), 4), due(&away(&[0]), 5)), (0, 1));
        assert_eq!(due(&away(&[0, 1]), 30), 2);
        assert_eq!(due(&away(&[0, 1, 9]), 30), 0);
        assert_eq!(due(&away(&[0, 1, 9]), 300), 1);
        assert_eq!(due(&away(&[0, 40, 80]), 100), 3);
        let mut tried = away(&[0]);
        tried.get_mut(&0).expect("it is there").tried = Some(start + Duration::from_secs(5));
        assert_eq!((due(&tried, 30), due(&tried, 35)), (0, 1));
        let mut judged = away(&[0, 1, 2]);
        judged.get_mut(&0).expect("it is there").judged = true;
        assert_eq!((due(&judged, 0), due(&judged, 30)), (1, 3), "it is nobody's cable");
    }
}
