//! The cache devices of a pool while it is open: opened, fed, judged, closed, removed
//! (`spa_vdev_remove` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - no group, no command but those about it, and no reader waits for a cache device for longer than a bound;
//! - one that cannot be used is shown as what it is, and the pool goes on as if it had none;
//! - nothing is written to one by a pool that is being left, has stopped, or may be another host's by now.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use platter_api::request::Changed;
use platter_device::{BlockDevice, DeviceSource, OpenOptions};
use platter_dsl::error::Result;
use platter_dsl::history;
use platter_ondisk::Guid;
use platter_vdev::geometry::best_ashift;
use platter_vdev::{Condition, DeviceOpener, Leaf, OpenError, VdevAux, VdevSpec, VdevState};
use platter_zio::{CacheDevice, Phase};

use crate::cache_list::Cache;
use crate::config::VdevConfig;
use crate::core::Core;
use crate::verdict_flags::{Judge, Judged};
use crate::{cache_label, caches, locked, open_vdevs, pool_events, verdict_flags};

/// How long the opening of a cache device is waited for. It goes on by itself.
const OPEN_WAIT: Duration = Duration::from_secs(5);
/// How long a device that is closed may take to end the round of writes that is under way.
const REST_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether a suspended pool goes on.
const SUSPENDED_PAUSE: Duration = Duration::from_secs(1);
/// Other places at which a device is looked for that is not where it was.
const PLACES_MAX: usize = 64;

/// Opens a cache device whose label says which one it is.
struct Opener {
    devices: Arc<dyn DeviceSource>,
    options: OpenOptions,
    guid: Guid,
    /// Where it may be.
    places: Vec<PathBuf>,
}

#[async_trait]
impl DeviceOpener for Opener {
    async fn open(&self, spec: &VdevSpec) -> std::result::Result<Arc<dyn BlockDevice>, OpenError> {
        let mut first = None;
        for path in &self.places {
            let failed = match self.devices.open_vdev(path, spec.whole_disk, self.options).await {
                Ok(device) if cache_label::read(&*device).await == Some(self.guid) => return Ok(device),
                Ok(device) => OpenError::Refused {
                    aux: VdevAux::CorruptData,
                    detail: format!("{} is not the cache device that it was", device.name()),
                },
                Err(error) => error.into(),
            };
            first.get_or_insert(failed);
        }
        let detail = "its path is not known".to_owned();
        Err(first.unwrap_or(OpenError::Refused { aux: VdevAux::OpenFailed, detail }))
    }
}

/// Where a cache device may be: at its path, or by the same name beside the pool's other devices.
fn places(core: &Core, config: &VdevConfig) -> Vec<PathBuf> {
    let Some(path) = config.path.as_ref().map(PathBuf::from) else { return Vec::new() };
    let config = core.config.read();
    let paths = config.vdev_tree.leaves().into_iter().filter_map(|leaf| leaf.path.as_ref().map(PathBuf::from));
    let folders: BTreeSet<PathBuf> = paths.filter_map(|path| path.parent().map(PathBuf::from)).collect();
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    let others = folders.into_iter().map(|folder| folder.join(&name)).filter(|other| *other != path);
    let others: Vec<PathBuf> = others.take(PLACES_MAX).collect();
    std::iter::once(path).chain(others).collect()
}

/// Opens all that are not open. Waits for that for a moment at most.
pub async fn open_all(core: &Arc<Core>) {
    let closed = core.caches.list.lock().iter().filter(|cache| cache.device.is_none()).cloned().collect::<Vec<_>>();
    join_all(closed.iter().map(|cache| open(core, cache.config.guid))).await;
}

/// Opens a cache device and has it used; waits for a moment at most.
async fn open(core: &Arc<Core>, guid: Guid) {
    let opening = tokio::spawn(open_now(core.clone(), guid));
    if tokio::time::timeout(OPEN_WAIT, opening).await.is_err() {
        tracing::warn!(pool = core.name(), "cache device {guid} does not answer: the pool goes on without it for now");
    }
}

async fn open_now(core: Arc<Core>, guid: Guid) {
    let Some(Cache { config, .. }) = core.caches.get(guid) else { return };
    let read_only = core.dsl.read_only;
    let opener = Opener {
        devices: core.cache_source.clone(),
        options: if read_only { OpenOptions::read_only() } else { OpenOptions::exclusive() },
        guid,
        places: places(&core, &config),
    };
    let leaf = Leaf::open(&open_vdevs::spec(&config), &opener, !read_only, 0).await;
    pool_events::listen(&core, &leaf);
    let device = leaf.device().map(|found| {
        let geometry = found.geometry();
        let (logical, physical) = (geometry.logical_ashift(), geometry.physical_ashift());
        let ashift = if config.ashift == 0 { best_ashift([(logical, physical)]) } else { config.ashift as u8 };
        let ashift = u32::from(ashift.clamp(logical.max(9), 16));
        core.dsl.store.state().l2arc.add(core.config.read().guid, leaf.clone(), ashift)
    });
    let (l2arc, new) = (&core.dsl.store.state().l2arc, device.clone());
    let (mut was_open, mut has_moved) = (false, false);
    let path = leaf.path().map(|path| path.display().to_string());
    let is_listed = core.caches.change(guid, |cache| {
        was_open = cache.device.is_some();
        if !was_open {
            (cache.leaf, cache.device) = (Some(leaf.clone()), new);
            has_moved = path.is_some() && path != cache.config.path;
            cache.config.path = path.or(cache.config.path.take());
        }
    });
    let is_over = core.stopping.load(Ordering::Acquire);
    if was_open || !is_listed || is_over {
        // Somebody was faster, it was removed meanwhile, or the pool is being left.
        device.inspect(|device| l2arc.remove(device, &core.dsl.store.state().cache));
        leaf.close(Condition::new(VdevState::Closed, VdevAux::None));
        return;
    }
    if let Some(device) = device {
        tokio::spawn(work(core.clone(), device));
    }
    if has_moved && !read_only {
        note_place(&core, guid).await;
    }
}

/// Writes down where a cache device is now. Otherwise it is looked for there again the next time.
async fn note_place(core: &Arc<Core>, guid: Guid) {
    let noted = core.task(async |core, tx| caches::store(&core, &tx).await).await;
    if let Err(error) = noted {
        tracing::warn!(pool = core.name(), %error, "where cache device {guid} is now was not noted");
    }
}

/// Finds what a device has from before, and writes to it from then on. It does not keep the pool.
async fn work(core: Arc<Core>, device: Arc<CacheDevice>) {
    let store = core.dsl.store.clone();
    let weak = Arc::downgrade(&core);
    let pool = core.name().to_owned();
    drop(core);
    let rebuilt = store.state().l2arc.rebuild(&device, &store.state().cache).await;
    if rebuilt.blocks > 0 {
        tracing::info!(pool, "cache device {} has {} blocks from before", device.leaf().name(), rebuilt.blocks);
    }
    loop {
        match weak.upgrade() {
            Some(core) if !is_over(&core) => {}
            _ => return,
        }
        if store.suspension().is_suspended() {
            // The pool may be another host's by now.
            tokio::time::sleep(SUSPENDED_PAUSE).await;
            continue;
        }
        let pause = store.state().l2arc.round(&store.state().cache, &device).await;
        if device.has_left() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

fn is_over(core: &Core) -> bool {
    matches!(core.dsl.store.suspension().phase(), Phase::Stopped(_)) || core.stopping.load(Ordering::Acquire)
}

/// Closes a cache device; with `at_rest` when the round of writes that is under way has ended, or does not soon.
pub async fn close(core: &Core, cache: &Cache, at_rest: bool) {
    let state = core.dsl.store.state();
    if let Some(device) = &cache.device {
        if at_rest {
            let _ = tokio::time::timeout(REST_MAX, state.l2arc.at_rest(device)).await;
        }
        state.l2arc.remove(device, &state.cache);
    }
    if let Some(leaf) = &cache.leaf {
        leaf.close(Condition::new(VdevState::Closed, VdevAux::None));
        assert!(!leaf.is_usable(), "nothing more is asked of it");
    }
}

/// The pool is left: closes all of them. `core.stopping` is set.
pub async fn close_all(core: &Core) {
    let all: Vec<Cache> = core.caches.list.lock().clone();
    join_all(all.iter().map(|cache| close(core, cache, true))).await;
    core.caches.list.lock().iter_mut().for_each(|cache| (cache.leaf, cache.device) = (None, None));
}

/// Closes a cache device that is still listed, as `condition` says.
async fn put_away(core: &Core, guid: Guid, condition: Condition) {
    let Some(cache) = core.caches.get(guid) else { return };
    close(core, &cache, true).await;
    if let Some(leaf) = &cache.leaf {
        leaf.close(condition);
        pool_events::tell_state(core, leaf);
    }
    core.caches.change(guid, |cache| cache.device = None);
}

/// Changes what the list says of a cache device, and waits until that is on disk.
async fn change_config(
    core: &Arc<Core>,
    guid: Guid,
    event: &'static str,
    change: impl Fn(&mut VdevConfig) + Send + 'static,
) -> Result<()> {
    core.task(async move |core, tx| {
        core.caches.change(guid, |cache| change(&mut cache.config));
        history::append_event(&core.dsl, &tx, event, &format!("vdev={guid}")).await?;
        caches::store(&core, &tx).await
    })
    .await
}

/// `zpool offline` of a cache device.
///
/// # Errors
/// The pool cannot note it.
pub async fn offline(core: &Arc<Core>, guid: Guid, temporary: bool) -> Result<()> {
    change_config(core, guid, "vdev offline", move |config| {
        (config.offline, config.offline_for_now) = (!temporary, temporary);
    })
    .await?;
    put_away(core, guid, Condition::new(VdevState::Offline, VdevAux::None)).await;
    Ok(())
}

/// `zpool offline -f` of a cache device.
///
/// # Errors
/// The pool cannot note it.
pub async fn fault(core: &Arc<Core>, guid: Guid, temporary: bool) -> Result<Changed> {
    let judge = if temporary { Judge::SomebodyForNow } else { Judge::Somebody };
    change_config(core, guid, "vdev fault", move |config| verdict_flags::judge(config, Judged::Faulted, judge)).await?;
    put_away(core, guid, Condition::new(VdevState::Faulted, VdevAux::External)).await;
    Ok(Changed { state: Some("FAULTED".into()), ..Changed::default() })
}

/// `zpool online` of a cache device: what it has is found again.
///
/// # Errors
/// The pool cannot note it.
pub async fn online(core: &Arc<Core>, guid: Guid) -> Result<Changed> {
    change_config(core, guid, "vdev online", |config| {
        (config.offline, config.offline_for_now, config.removed) = (false, false, false);
        verdict_flags::acquit(config);
    })
    .await?;
    reopen(core, guid).await;
    core.event("sysevent.fs.zfs.vdev_online", vec![("vdev_guid", guid.0.into())]);
    let leaf = core.caches.get(guid).and_then(|cache| cache.leaf);
    let condition = leaf.map(|leaf| leaf.condition());
    let (state, reason) = match condition {
        Some(condition) if condition.is_usable() => (condition.name().to_owned(), None),
        Some(condition) => ("UNAVAIL".to_owned(), condition.detail),
        None => ("UNAVAIL".to_owned(), None),
    };
    Ok(Changed { state: Some(state), reason, ..Changed::default() })
}

/// Forgets the errors of a cache device, and opens it again if it could not be used (`zpool clear`, `zpool reopen`).
pub async fn reopen(core: &Arc<Core>, guid: Guid) {
    // Two at a time would each close and open it, and one of them be forgotten while it is written to.
    let _one = core.opening.lock().await;
    let Some(cache) = core.caches.get(guid) else { return };
    if let Some(leaf) = cache.leaf.as_ref().filter(|leaf| leaf.is_usable()) {
        leaf.clear_errors();
        return;
    }
    if cache.config.offline || cache.config.offline_for_now || cache.config.faulted {
        return;
    }
    close(core, &cache, true).await;
    core.caches.change(guid, |cache| cache.device = None);
    open(core, guid).await;
}

/// As [`reopen`], for all of them.
pub async fn reopen_all(core: &Arc<Core>) {
    join_all(core.caches.configs().iter().map(|config| reopen(core, config.guid))).await;
}

/// `zpool remove` of a cache device. Nothing of the pool is there alone: it goes at once.
///
/// # Errors
/// Out of space, device errors of the pool's own.
pub async fn remove(core: &Arc<Core>, guid: Guid) -> Result<()> {
    let cache = core.caches.get(guid);
    core.task(async move |core, tx| {
        core.caches.list.lock().retain(|cache| cache.config.guid != guid);
        core.event("sysevent.fs.zfs.vdev_remove_aux", vec![("vdev_guid", guid.0.into())]);
        history::append_event(&core.dsl, &tx, "vdev remove", &format!("vdev={guid} type=l2cache")).await?;
        caches::store(&core, &tx).await
    })
    .await?;
    locked::note_leaves(&core.environment, &core.config.read(), &core.beside());
    if let Some(cache) = cache {
        close(core, &cache, false).await;
    }
    Ok(())
}
