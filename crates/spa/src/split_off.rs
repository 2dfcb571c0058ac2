//! How a split ends in the pool whose devices leave: they are another pool's from then on, or come back
//! (`spa_vdev_split_mirror` and `spa_try_repair` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - the devices are away before anything of the new pool is written to them, and the configuration says so: after a
//!   crash the pool is opened without them;
//! - what became of them they say themselves. The new pool is there as soon as one of them has an uberblock of it, as
//!   all of them have its labels by then: so one is enough for all to leave. If none has, all come back, and lack what
//!   was written meanwhile;
//! - which of both is settled in one group.

use std::path::Path;
use std::sync::Arc;

use platter_dsl::error::Result;
use platter_ondisk::Guid;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::exchange::{self, Parting};
use crate::identity;
use crate::label_search;
use crate::place;
use crate::scan;
use crate::{free_commands, split_pairs};

/// Settles what a crash, or an error, has left of a split: after it the pool is whole, with the devices or without.
///
/// # Errors
/// The pool stopped; device errors.
pub async fn settle(core: &Arc<Core>) -> Result<()> {
    let leaving = split_pairs::leaving(&core.config.read());
    if leaving.is_empty() {
        return Ok(());
    }
    if have_left(core, &leaving).await { complete(core).await } else { undo(core, leaving).await }
}

/// Whether one of these leaves is another pool's.
async fn have_left(core: &Core, leaving: &[Guid]) -> bool {
    if leaving.iter().any(|guid| core.elsewhere.lock().contains(&guid.0)) {
        return true;
    }
    let pool = core.config.read().guid;
    let mut leaves = Vec::new();
    core.config.read().vdev_tree.walk(&mut |vdev| {
        if leaving.contains(&vdev.guid) {
            leaves.push(vdev.clone());
        }
    });
    for leaf in leaves {
        if owner(core, &leaf).await.is_some_and(|owner| owner != pool) {
            return true;
        }
    }
    false
}

/// The pool that the device at a leaf's path belongs to, if that is the leaf.
async fn owner(core: &Core, leaf: &VdevConfig) -> Option<Guid> {
    let (path, devices) = (leaf.path.as_deref().map(Path::new)?, &*core.environment.devices);
    let look = async {
        let device =
            devices.open_vdev(path, leaf.whole_disk == Some(1), platter_device::OpenOptions::read_only()).await?;
        Ok::<_, platter_device::DeviceError>(label_search::labels_of(&device).await)
    };
    let found = identity::in_time(path, look).await.ok()??;
    (found.config().device_guid == Some(leaf.guid)).then(|| found.pool())
}

/// The devices are the new pool's: they leave, all in one group.
///
/// # Errors
/// The pool stopped; device errors.
pub async fn complete(core: &Arc<Core>) -> Result<()> {
    core.task(async move |core, tx| {
        let leaving = split_pairs::leaving(&core.config.read());
        for guid in &leaving {
            if let Ok(place) = place::with_guid(&core, *guid) {
                exchange::part(&core, &tx, &place, Parting::SplitOff).await?;
            }
        }
        assert!(leaving.iter().all(|guid| place::with_guid(&core, *guid).is_err()), "a leaf would be in two pools");
        split_pairs::forget_leaving(&mut core.config.write());
        core.dsl.dirty_config();
        Ok(())
    })
    .await?;
    core.elsewhere.lock().clear();
    Ok(())
}

/// There is no new pool: the devices come back.
async fn undo(core: &Arc<Core>, leaving: Vec<Guid>) -> Result<()> {
    let back = leaving.clone();
    core.task(async move |core, _tx| {
        let mut config = core.config.write();
        config.vdev_tree.walk_mut(&mut |vdev| {
            if back.contains(&vdev.guid) {
                vdev.offline = false;
            }
        });
        split_pairs::forget_leaving(&mut config);
        drop(config);
        core.dsl.dirty_config();
        Ok(())
    })
    .await?;
    for guid in leaving {
        let Ok(place) = place::with_guid(core, guid) else { continue };
        if !place.open(core).await {
            tracing::warn!(pool = core.name(), "device {guid}, which was to leave in a split, did not come back");
        }
    }
    scan::resume(core);
    free_commands::resume(core);
    Ok(())
}
