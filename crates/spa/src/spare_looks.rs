//! How it is with a pool's spares, seen by looks at them that hold nobody up.
//!
//! Invariants:
//! - no look is waited for longer than [`LOOK_MAX`], and no second one begins at a device before the first one is over;
//! - disks that stand still are not woken up without need: only a spare that came or went is looked at by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use platter_device::{BlockDevice, DeviceError, OpenOptions};
use platter_hooks::Watch;
use platter_ondisk::Guid;
use tokio::time::Instant;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::identity;
use crate::path_look;
use crate::spare_label::{self, Found};
use crate::spare_list::{Looked, Standing};

/// For how long a look is waited for.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Whether the spare of this guid stands in for a device of this pool.
pub fn is_in_use(core: &Core, guid: Guid) -> bool {
    core.config.read().vdev_tree.leaves().iter().any(|leaf| leaf.guid == guid)
}

/// What the labels of an open device make of a spare.
pub fn standing(device: &dyn BlockDevice, found: &Found) -> Standing {
    match found {
        Found::Idle | Found::Left | Found::Freed => Standing::Available(device.size()),
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

/// Makes the label of a spare that left its place say so: a crash came between. Who takes the spare or gives it back at
/// this moment has its device open.
async fn relabel(core: &Core, spare: &VdevConfig) -> Result<(), DeviceError> {
    let path = PathBuf::from(spare.path.clone().unwrap_or_default());
    let (pool, whole_disk) = (core.config.read().guid, spare.whole_disk == Some(1));
    let devices = &*core.environment.devices;
    let opened = spare_label::open(devices, (&path, whole_disk), OpenOptions::exclusive(), (pool, spare.guid));
    let (device, found) = identity::in_time(&path, opened).await?;
    if found == Found::Left && core.spares.is_listed(spare.guid) && !is_in_use(core, spare.guid) {
        spare_label::write(&*device, core.dsl.version().0, spare.guid).await?;
    }
    Ok(())
}

/// Begins a look at a spare, unless one is under way; since when that is, and where its end is told.
fn begin(core: &Core, spare: &VdevConfig) -> (Instant, Arc<Watch<Option<Looked>>>) {
    let mut looks = core.spares.looks.lock();
    if let Some(earlier) = looks.get(&spare.guid.0) {
        return earlier.clone();
    }
    let tell = Arc::new(Watch::new(None));
    let own = (Instant::now(), tell.clone());
    looks.insert(spare.guid.0, own.clone());
    drop(looks);
    // It may outlast the pool, of which it holds nothing.
    let (devices, looks, changed) =
        (core.environment.devices.clone(), core.spares.looks.clone(), core.spares.changed.clone());
    let (path, whole_disk) = (PathBuf::from(spare.path.clone().unwrap_or_default()), spare.whole_disk == Some(1));
    let (pool, guid, began) = (core.config.read().guid, spare.guid, own.0);
    tokio::spawn(async move {
        let is_there = path_look::is_there(&*devices, &path).await;
        let opened = spare_label::open(&*devices, (&path, whole_disk), OpenOptions::read_only(), (pool, guid));
        let standing = match opened.await {
            Ok((device, found)) => (standing(&*device, &found), found == Found::Left),
            Err(error) => (Standing::Unusable(error.to_string()), false),
        };
        let (standing, has_left) = standing;
        let known = looks.lock().remove(&guid.0);
        debug_assert!(known.is_some(), "one look at a time");
        tell.set(Some(Looked { is_there, standing, has_left }));
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
