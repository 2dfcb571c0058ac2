//! Work on all that is free of a leaf, asked for by hand: its device is told (`zpool trim`, `module/zfs/vdev_trim.c`),
//! or it is written over (`zpool initialize`, `module/zfs/vdev_initialize.c`). How it changes, in memory and in the
//! leaf's ZAP, as OpenZFS has it there.
//!
//! Invariants:
//! - how far a leaf's work is changes in the sync loop only, in memory and on disk in one group;
//! - no more is on disk as done than is: a place is written down after the devices have done all before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::report::{LeafWork, LeafWorkState};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result, Tx};
use platter_dsl::history;
use platter_ondisk::label::VDEV_LABEL_START_SIZE;
use platter_ondisk::names::vdev_leaf_zap as names;
use platter_ondisk::{Guid, ObjectId};
use platter_vdev::{Layout, TopVdev};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::free_state::{Kind, STATES, Work, number};

/// A change of one leaf's work.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The leaf.
    pub leaf: Guid,
    /// Which work.
    pub kind: Kind,
    /// What becomes of it; `None`: it is forgotten.
    pub to: Option<LeafWorkState>,
    /// A new limit; 0 for none given.
    pub rate: u64,
    /// Whether it was asked for that nobody finds what was there.
    pub secure: bool,
}

/// What work is after a change, at `now` (`vdev_trim_change_state`).
fn after(before: Option<Work>, to: LeafWorkState, change: &Change, now: u64) -> Work {
    let mut work = before.unwrap_or_else(Work::new);
    if before.is_some_and(|work| work.state == to) {
        return work;
    }
    if work.state != LeafWorkState::Suspended || work.time == 0 {
        work.time = now;
    }
    if to == LeafWorkState::Active {
        if work.state != LeafWorkState::Suspended {
            (work.place, work.rate, work.secure, work.partial) = (0, 0, false, false);
        }
        work.rate = if change.rate > 0 { change.rate } else { work.rate };
        work.secure |= change.secure;
    }
    work.state = to;
    debug_assert!(to != LeafWorkState::Active || work.time > 0, "what goes on has begun");
    work
}

/// The configuration of a leaf that has a ZAP.
fn leaf_config(core: &Core, leaf: Guid) -> Option<VdevConfig> {
    let config = core.config.read();
    let found = config.vdev_tree.leaves().into_iter().find(|config| config.guid == leaf).cloned();
    found.filter(|config| config.leaf_zap.is_some())
}

/// Changes the work of some leaves, in the syncing group. One that has left is passed over.
///
/// # Errors
/// Out of space, device errors.
pub async fn apply(core: &Arc<Core>, tx: &Tx, changes: &[Change]) -> Result<()> {
    for change in changes {
        let Some(config) = leaf_config(core, change.leaf) else { continue };
        let key = (config.leaf_zap, change.kind);
        let before = core.works.known.lock().get(&key).copied();
        let path = config.path.as_deref().unwrap_or("-");
        let Some(to) = change.to else {
            core.works.known.lock().remove(&key);
            forget(core, tx, config.leaf_zap, change.kind).await?;
            let event = format!("un{}", change.kind.name());
            history::append_event(&core.dsl, tx, &event, &format!("vdev={path}")).await?;
            continue;
        };
        let is_under_way = |work: Work| matches!(work.state, LeafWorkState::Active | LeafWorkState::Suspended);
        if matches!(to, LeafWorkState::Suspended | LeafWorkState::Canceled) && !before.is_some_and(is_under_way) {
            // It came to its end meanwhile.
            continue;
        }
        let work = {
            // With the place and the runner that it has now: both change without a group.
            let mut known = core.works.known.lock();
            let work = after(known.get(&key).copied(), to, change, core.now());
            known.insert(key, work);
            work
        };
        store(core, tx, config.leaf_zap, change.kind, &work).await?;
        let was = before.map(|work| work.state);
        if was != Some(to) {
            tell(core, tx, change, was, path).await?;
        }
    }
    Ok(())
}

/// Tells that work has changed.
async fn tell(core: &Arc<Core>, tx: &Tx, change: &Change, was: Option<LeafWorkState>, path: &str) -> Result<()> {
    use LeafWorkState::{Active, Canceled, Complete, Suspended};
    let (said, event) = match change.to {
        Some(Active) if was == Some(Suspended) => ("activated", "resume"),
        Some(Active) => ("activated", "start"),
        Some(Suspended) => ("suspended", "suspend"),
        Some(Complete) => ("complete", "finish"),
        Some(Canceled) if matches!(was, Some(Active | Suspended)) => ("canceled", "cancel"),
        Some(Canceled) | None => return Ok(()),
    };
    // OpenZFS has events for trims only (`include/sys/sysevent/eventdefs.h`).
    if change.kind == Kind::Trim {
        let fields = vec![("vdev_guid", change.leaf.0.into()), ("vdev_path", path.into())];
        core.event(&format!("sysevent.fs.zfs.trim_{event}"), fields);
    }
    history::append_event(&core.dsl, tx, change.kind.name(), &format!("vdev={path} {said}")).await
}

async fn store(core: &Core, tx: &Tx, zap: ObjectId, kind: Kind, work: &Work) -> Result<()> {
    let zap = Zap::open(&core.dsl.mos, zap).await?;
    let [state, time, place] = kind.entries();
    zap.put_u64(tx, state.as_bytes(), number(work.state)).await?;
    zap.put_u64(tx, time.as_bytes(), work.time).await?;
    // On disk it counts from the beginning of the device.
    let offset = if work.place > 0 { work.place + VDEV_LABEL_START_SIZE } else { 0 };
    zap.put_u64(tx, place.as_bytes(), offset).await?;
    if kind == Kind::Trim {
        zap.put_u64(tx, names::TRIM_RATE.as_bytes(), work.rate).await?;
        zap.put_u64(tx, names::TRIM_PARTIAL.as_bytes(), work.partial.into()).await?;
        zap.put_u64(tx, names::TRIM_SECURE.as_bytes(), work.secure.into()).await?;
    }
    Ok(())
}

async fn forget(core: &Core, tx: &Tx, zap: ObjectId, kind: Kind) -> Result<()> {
    let zap = Zap::open(&core.dsl.mos, zap).await?;
    for name in kind.entries() {
        if zap.get(name.as_bytes()).await?.is_some() {
            zap.remove(tx, name.as_bytes()).await?;
        }
    }
    Ok(())
}

/// Writes down how far the work on a leaf has come, in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn store_place(core: &Arc<Core>, tx: &Tx, leaf: Guid, kind: Kind) -> Result<()> {
    let Some(config) = leaf_config(core, leaf) else { return Ok(()) };
    let work = core.works.known.lock().get(&(config.leaf_zap, kind)).copied();
    match work {
        Some(work) => store(core, tx, config.leaf_zap, kind, &work).await,
        None => Ok(()),
    }
}

/// What the leaves' ZAPs tell. What cannot be read is not gone on with.
pub async fn load(os: &Arc<Objset>, root: &VdevConfig, pool: &str) -> BTreeMap<(ObjectId, Kind), Work> {
    let mut all = BTreeMap::new();
    let leaves = root.leaves().into_iter().filter(|leaf| leaf.leaf_zap.is_some());
    for (leaf, kind) in leaves.flat_map(|leaf| Kind::ALL.map(|kind| (leaf, kind))) {
        match load_one(os, leaf.leaf_zap, kind).await {
            Ok(Some(work)) => _ = all.insert((leaf.leaf_zap, kind), work),
            Ok(None) => {}
            Err(error) => tracing::warn!(pool, %error, "{} of device {} is not known", kind.name(), leaf.guid),
        }
    }
    all
}

async fn load_one(os: &Arc<Objset>, zap: ObjectId, kind: Kind) -> Result<Option<Work>> {
    let zap = Zap::open(os, zap).await?;
    let [state, time, place] = kind.entries();
    let stored = zap.get_u64(state.as_bytes()).await?.unwrap_or(0);
    let Some(&state) = stored.checked_sub(1).and_then(|at| STATES.get(usize::try_from(at).ok()?)) else {
        return Ok(None);
    };
    let entry = async |name: &str| zap.get_u64(name.as_bytes()).await.map(|value| value.unwrap_or(0));
    let mut work = Work { state, time: entry(time).await?, ..Work::new() };
    work.place = entry(place).await?.saturating_sub(VDEV_LABEL_START_SIZE);
    if kind == Kind::Trim {
        work.rate = entry(names::TRIM_RATE).await?;
        work.partial = entry(names::TRIM_PARTIAL).await? != 0;
        work.secure = entry(names::TRIM_SECURE).await? != 0;
    }
    Ok(Some(work))
}

/// What there is to tell of a leaf's work.
pub fn report(core: &Core, config: &VdevConfig, top: &TopVdev, kind: Kind) -> Option<LeafWork> {
    let work = core.works.known.lock().get(&(config.leaf_zap, kind)).copied()?;
    let (done, total) = progress(core, config.guid, top, &work);
    Some(LeafWork { state: work.state, time: work.time, done, total })
}

/// Bytes that are done, and in all, as if what is free were spread evenly (`vdev_trim_calculate_progress`).
fn progress(core: &Core, leaf: Guid, top: &TopVdev, work: &Work) -> (u64, u64) {
    let children = if matches!(top.layout(), Layout::Raidz { .. }) { top.width() as u64 } else { 1 };
    let metaslabs: Vec<(u64, u64, u64)> = {
        let allocator = core.dsl.store.state().allocator.lock();
        let group = allocator.group(top.id() as u32);
        let metaslabs = group.into_iter().flat_map(|group| group.metaslabs());
        metaslabs.map(|metaslab| (metaslab.start, metaslab.size, metaslab.free_bytes() / children)).collect()
    };
    let total = metaslabs.iter().map(|(_, _, free)| free).sum();
    if work.state == LeafWorkState::Complete {
        return (total, total);
    }
    let mut done = 0;
    for (start, size, free) in metaslabs {
        let Some((from, length)) = top.on_leaf(leaf, (start, size)) else { continue };
        let passed = work.place.saturating_sub(from).min(length);
        done += (u128::from(free) * u128::from(passed) / u128::from(length.max(1))) as u64;
        if passed < length {
            break;
        }
    }
    (done, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(to: LeafWorkState, rate: u64, secure: bool) -> Change {
        Change { leaf: Guid(1), kind: Kind::Trim, to: Some(to), rate, secure }
    }

    #[test]
    fn what_was_suspended_goes_on_where_it_was_and_all_else_begins_anew() {
        use LeafWorkState::{Active, Complete, Suspended};
        let begun = after(None, Active, &change(Active, 5, true), 100);
        assert_eq!((begun.place, begun.rate, begun.secure, begun.time), (0, 5, true, 100));
        let far = Work { place: 1 << 20, ..begun };
        let suspended = after(Some(far), Suspended, &change(Suspended, 0, false), 200);
        let again = after(Some(suspended), Active, &change(Active, 0, false), 300);
        assert_eq!((again.place, again.rate, again.secure, again.time), (1 << 20, 5, true, 200));
        let done = after(Some(again), Complete, &change(Complete, 0, false), 400);
        let anew = after(Some(done), Active, &change(Active, 0, false), 500);
        assert_eq!((anew.place, anew.rate, anew.secure, anew.time), (0, 0, false, 500));
    }
}
