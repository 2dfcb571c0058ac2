//! Top-level vdevs that use what their devices have more than before (`vdev_expand`, `module/zfs/vdev.c`):
//! `zpool online -e`, property `autoexpand`.
//!
//! Invariants:
//! - a vdev grows by whole metaslabs, behind those that it has, and never becomes smaller;
//! - the configuration, the list of space maps and the allocator say the same size in the same group.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;
use platter_dsl::stored_property::StoredProperty;
use platter_vdev::TopVdev;
use platter_zio::Metaslab;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::labels;

/// Whether vdevs grow by themselves (property `autoexpand`).
pub fn is_automatic(core: &Core) -> bool {
    matches!(core.pool_properties.read().get("autoexpand"), Some(StoredProperty::Text(word)) if word == "on")
}

/// Grows what can grow, if the pool's owner wants that. What fails is logged.
pub async fn expand_all(core: &Arc<Core>) {
    if !is_automatic(core) || core.dsl.read_only {
        return;
    }
    let tops: Vec<_> = core.dsl.store.state().vdevs.iter().flatten().cloned().collect();
    for top in tops {
        if let Err(error) = expand(core, &top).await {
            tracing::warn!(pool = core.name(), %error, "{} does not grow", top.name());
        }
    }
}

/// Makes a vdev use all that its devices have, if that is at least a metaslab more.
///
/// # Errors
/// The pool stopped; device errors.
pub async fn expand(core: &Arc<Core>, top: &Arc<TopVdev>) -> Result<()> {
    let id = top.id();
    // Twice in one group it does not grow: what came between is there for the next one.
    let more = move |core: &Core, top: &TopVdev| {
        let config = core.config.read().vdev_tree.children.iter().find(|config| config.id == id).cloned();
        let is_settled =
            core.dsl.store.state().allocator.lock().group(id as u32).is_some_and(|group| !group.is_growing());
        config.filter(|config| {
            let shift = config.metaslab_shift;
            let grows = (top.asize() + top.expandable()) >> shift > config.asize >> shift;
            config.metaslab_array.is_some() && grows && is_settled
        })
    };
    if more(core, top).is_none() {
        return Ok(());
    }
    let (looked, top) = (top.clone(), top.clone());
    let check = async move |core: Arc<Core>| Ok(more(&core, &looked));
    core.checked_task(check, async move |core, tx, config| match config {
        Some(config) => grow(&core, &tx, &top, &config).await,
        None => Ok(()),
    })
    .await
}

async fn grow(core: &Arc<Core>, tx: &Tx, top: &TopVdev, config: &VdevConfig) -> Result<()> {
    let (shift, asize) = (config.metaslab_shift, top.expand());
    assert!(asize >= config.asize, "a vdev never becomes smaller");
    let (first, end) = (config.asize >> shift, asize >> shift);
    let array = core.dsl.mos.dnode(config.metaslab_array).await?;
    array.write(tx, first * 8, &vec![0; (end - first) as usize * 8]).await?;
    let new = (first..end).map(|index| Metaslab::new(index, index << shift, 1 << shift)).collect();
    {
        let mut allocator = core.dsl.store.state().allocator.lock();
        let group = allocator.groups_mut().iter_mut().find(|group| u64::from(group.vdev) == config.id);
        let group = group.ok_or_else(|| PoolError::invalid("the vdev has left meanwhile"))?;
        assert_eq!(group.metaslabs().len() as u64, first, "as many metaslabs as the configuration says");
        group.extend(new);
    }
    core.config.write().vdev_tree.walk_mut(&mut |vdev| {
        if vdev.guid == config.guid {
            vdev.asize = asize;
        }
    });
    core.dsl.dirty_config();
    for target in
        core.label_targets().iter().filter(|target| top.leaves().iter().any(|leaf| leaf.guid() == target.guid))
    {
        if let Err(error) = labels::copy_uberblocks(target).await {
            tracing::warn!(pool = core.name(), %error, "a device's last labels have no older uberblocks");
        }
    }
    let more = (end - first) << shift;
    let size = core.dsl.store.state().allocator.lock().size() + more;
    let event = format!("pool '{}' size: {size}(+{more})", core.name());
    history::append_event(&core.dsl, tx, "vdev online", &event).await?;
    core.event("sysevent.fs.zfs.vdev_autoexpand", vec![("vdev_guid", config.guid.0.into())]);
    tracing::info!(pool = core.name(), "{} has {} metaslabs now, it had {first}", top.name(), end);
    Ok(())
}
