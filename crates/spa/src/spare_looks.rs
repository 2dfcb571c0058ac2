//! How it is with a pool's spares, seen by looks at them that hold nobody up.
//!
//! Invariants:
//! - no look is waited for longer than [`LOOK_MAX`], and no second one begins at a device before the first one is over;
//! - disks that stand still are not woken up without need: only a spare that came or went is looked at by itself.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use parking_lot::Mutex;
use platter_device::{BlockDevice, DeviceError, OpenOptions};
use platter_hooks::Watch;
use platter_ondisk::Guid;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::identity;
use crate::path_look;
use crate::spare_label::{self, Found};
use crate::spare_list::{Looked, Looks, Standing};

/// For how long a look is waited for.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Whether the spare of this guid stands in for a device of this pool.
pub fn is_in_use(core: &Core, guid: Guid) -> bool {
    core.config.read().vdev_tree.leaves().iter().any(|leaf| leaf.guid == guid)
}

/// What the labels of an open device make of a spare.
pub fn standing(device: &dyn BlockDevice, found: &Found) -> Standing {
    match found {
        Found::Idle | Found::Left | Found::Freed | Found::Released => Standing::Available(device.size()),
        Found::Taken(pool) => Standing::Elsewhere(pool.clone()),
        Found::Stranger(why) => Standing::Unusable(why.clone()),
    }
}

/// Looks at all spares that are not in use. Disks that stand still are woken up.
pub async fn look(core: &Core) {
    look_at(core, |_| true).await;
}

/// Looks at those that another pool may have taken, or given back.
pub async fn look_at_shared(core: &Core) {
    let pool = core.config.read().guid;
    look_at(core, |spare| core.environment.pool_locks.is_listed_elsewhere(spare.guid, pool)).await;
}

/// Looks at those of these guids.
pub async fn look_at_these(core: &Core, guids: &[Guid]) {
    look_at(core, |spare| guids.contains(&spare.guid)).await;
}

async fn look_at(core: &Core, which: impl Fn(&VdevConfig) -> bool) {
    let spares = core.spares.configs().into_iter().filter(|spare| which(spare) && !is_in_use(core, spare.guid));
    let looks = spares.map(|spare| async move {
        let looked = look_at_one(core, &spare).await;
        let has_left = looked.has_left;
        core.spares.note(spare.guid, looked);
        if has_left
            && !core.dsl.read_only
            && let Err(error) = relabel(core, &spare).await
        {
            tracing::warn!(pool = core.name(), %error, "the labels of spare {}, which is free, stay", spare.guid);
        }
    });
    join_all(looks).await;
}

/// Whether the label says something that is over.
fn has_left(found: &Found) -> bool {
    matches!(found, Found::Left | Found::Released)
}

async fn look_at_one(core: &Core, spare: &VdevConfig) -> Looked {
    let silent =
        || Looked { is_there: None, standing: Standing::Unusable("it does not answer".into()), has_left: false };
    let (began, told) = begin(core, spare);
    let left = LOOK_MAX.saturating_sub(began.elapsed());
    match tokio::time::timeout(left, told.wait_for(Option::is_some)).await {
        Ok(looked) => looked.unwrap_or_else(silent),
        Err(_) => silent(),
    }
}

/// Makes the label of a spare that left its place say so, a crash came between, and that of one whose pool was
/// destroyed and is here again. Who takes the spare or gives it back at this moment has its device open.
async fn relabel(core: &Core, spare: &VdevConfig) -> Result<(), DeviceError> {
    let path = PathBuf::from(spare.path.clone().unwrap_or_default());
    let (pool, whole_disk) = (core.config.read().guid, spare.whole_disk == Some(1));
    let devices = &*core.environment.devices;
    let opened = spare_label::open(devices, (&path, whole_disk), OpenOptions::exclusive(), (pool, spare.guid));
    let (device, found) = identity::in_time(&path, opened).await?;
    // The open may have taken long. When the pool was given up meanwhile, its successor may have the spare in use.
    if has_left(&found) && core.spares.is_listed(spare.guid) && !is_in_use(core, spare.guid) && !core.is_over() {
        spare_label::write(&*device, core.dsl.version().0, spare.guid).await?;
    }
    Ok(())
}

/// A look that is under way: since when, and where its end is told.
type Pending = (Instant, Arc<Watch<Option<Looked>>>);

/// Begins a look at a spare, unless one is under way.
fn begin(core: &Core, spare: &VdevConfig) -> Pending {
    // It may outlast the pool, of which it holds nothing.
    let devices = core.environment.devices.clone();
    let (path, whole_disk) = (PathBuf::from(spare.path.clone().unwrap_or_default()), spare.whole_disk == Some(1));
    let (pool, guid) = (core.config.read().guid, spare.guid);
    begin_once(&core.spares.looks, guid, core.spares.changed.clone(), async move {
        let is_there = path_look::is_there(&*devices, &path).await;
        let opened = spare_label::open(&*devices, (&path, whole_disk), OpenOptions::read_only(), (pool, guid));
        match opened.await {
            Ok((device, found)) => {
                Looked { is_there, standing: standing(&*device, &found), has_left: has_left(&found) }
            }
            Err(error) => Looked { is_there, standing: Standing::Unusable(error.to_string()), has_left: false },
        }
    })
}

/// Has `look` done by a task of its own, unless one at this spare is under way. Also one that panics ends: otherwise
/// nobody would look there again.
fn begin_once(
    looks: &Arc<Mutex<Looks>>,
    guid: Guid,
    changed: Arc<Notify>,
    look: impl Future<Output = Looked> + Send + 'static,
) -> Pending {
    let mut pending = looks.lock();
    if let Some(earlier) = pending.get(&guid.0) {
        return earlier.clone();
    }
    let own = (Instant::now(), Arc::new(Watch::new(None)));
    pending.insert(guid.0, own.clone());
    drop(pending);
    let (looks, (began, tell)) = (looks.clone(), own.clone());
    tokio::spawn(async move {
        let failed = |_| Looked {
            is_there: None,
            standing: Standing::Unusable("the look at it failed".into()),
            has_left: false,
        };
        let looked = AssertUnwindSafe(look).catch_unwind().await.unwrap_or_else(failed);
        let known = looks.lock().remove(&guid.0);
        assert!(known.is_some(), "one look at a time");
        tell.set(Some(looked));
        if began.elapsed() >= LOOK_MAX {
            // Nobody waited for it. It answers now.
            changed.notify_waiters();
        }
    });
    own
}

/// The spares that came or went since they were looked at, as far as that is seen at their paths.
pub async fn moved(core: &Core) -> Vec<Guid> {
    let list = core.spares.list.lock().clone();
    let looks = list.into_iter().filter(|spare| !is_in_use(core, spare.config.guid)).map(|spare| async move {
        let path = PathBuf::from(spare.config.path.as_deref().unwrap_or_default());
        let is_there = path_look::is_there(&*core.environment.devices, &path).await;
        (is_there.is_some() && is_there != spare.was_there).then_some(spare.config.guid)
    });
    join_all(looks).await.into_iter().flatten().collect()
}

/// Those that nobody uses, as far as is known, the smallest first; of equal ones that which was added first.
pub fn available(core: &Core) -> Vec<VdevConfig> {
    let list = core.spares.list.lock().clone();
    let mut sizes: Vec<(u64, VdevConfig)> = list
        .into_iter()
        .filter(|spare| !is_in_use(core, spare.config.guid))
        .filter_map(|spare| match spare.standing {
            Standing::Available(size) => Some((size, spare.config)),
            _ => None,
        })
        .collect();
    sizes.sort_by_key(|(size, _)| *size);
    sizes.into_iter().map(|(_, spare)| spare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle() -> Looked {
        Looked { is_there: None, standing: Standing::Available(7), has_left: false }
    }

    /// A look that panicked stayed among those under way: whoever asked later waited for it, and nobody looked again.
    #[tokio::test]
    async fn a_look_that_panics_ends() {
        let looks = Arc::default();
        let look = |panics: bool| async move {
            assert!(!panics, "as this test wants it");
            idle()
        };
        for (panics, is_usable) in [(true, false), (false, true)] {
            let (_, told) = begin_once(&looks, Guid(3), Arc::default(), look(panics));
            let looked = told.wait_for(Option::is_some).await.expect("it ends");
            assert_eq!(matches!(looked.standing, Standing::Available(7)), is_usable);
        }
        assert!(looks.lock().is_empty());
    }

    #[tokio::test]
    async fn one_look_is_under_way_at_a_time() {
        let looks = Arc::default();
        let (_, first) = begin_once(&looks, Guid(3), Arc::default(), async { idle() });
        let (_, second) = begin_once(&looks, Guid(3), Arc::default(), std::future::pending());
        assert!(Arc::ptr_eq(&first, &second));
    }
}
