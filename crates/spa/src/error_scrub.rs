//! A scrub of what is known to be damaged (`zpool scrub -e`; `dsl_errorscrub_sync`, `module/zfs/dsl_scan.c`): what is
//! whole again leaves the list of known errors.
//!
//! OpenZFS goes through the blocks of its log, which it knows with feature `head_errlog` only. Here objects are known,
//! and all of an object's blocks are looked at, in pools without that feature as well.
//!
//! Invariants:
//! - an object leaves the list only when everything that its data set, those that it descends from and those that
//!   descend from it have of it was read and verified just now. Of a data set that is gone nobody knows who these are:
//!   it stays on the list until the end of a whole scrub;
//! - while it is under way or paused no scrub begins, nor does it beside a scan;
//! - its state is on disk when it begins, pauses and ends: one that was under way begins anew after an import.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use platter_dmu::Result;
use platter_dmu::traverse::{Visit, Visitor, WalkEnd, visit};
use platter_dmu::zap::{Zap, ZapValue};
use platter_dsl::error::PoolError;
use platter_dsl::watched;
use platter_ondisk::dsl::{ErrorScrubPhys, scan_func, scan_state};
use platter_ondisk::{BlkPtr, ObjectId, names};
use platter_zio::{BlockStore, Bookmark, ZioError};
use tokio::time::Instant;

use crate::core::Core;
use crate::error_scrub_state::ErrorScrub;
use crate::object_path::{self, LOG_LEVEL, ObjectPath};
use crate::{family, scan_issue, scan_order, wait_while};

/// Blocks that are read at a time.
const AT_ONCE: usize = 32;
/// Objects that the front end cannot name begin here: totals for users, groups and projects.
const TOTALS: u64 = u64::MAX - 2;

/// Starts one, or lets a paused one go on. Where nothing is known to be damaged there is nothing to do.
///
/// # Errors
/// [`PoolError::Busy`] when another scan is under way or a scrub is paused; a read-only pool.
pub async fn start(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    core.dsl.check_writable()?;
    core.dsl.check_running()?;
    if core.rebuilds.is_active() {
        return Err(PoolError::Busy("currently resilvering".into()));
    }
    // Everybody sees its end before that is written down; only then can the next one begin.
    wait_while(core, |own| own.running && !own.is_under_way()).await;
    let before = {
        let scan = core.scan.lock();
        scan.check_none()?;
        if scan.is_paused() && scan.phys.state == scan_state::SCANNING {
            let how = "scrub is paused; use 'zpool scrub' to resume or 'zpool scrub -s' to cancel scrub";
            return Err(PoolError::Busy(how.into()));
        }
        let mut own = core.error_scrub.lock();
        let before = own.phys.clone();
        let known = core.damaged.lock().len() as u64;
        if own.is_under_way() && !own.running {
            // Paused, or left in the middle by a failure. Of one that is just being paused a walk still runs.
            own.phys.paused_flags = 0;
            own.pause_time = 0;
        } else {
            own.check_none()?;
            if known == 0 {
                return Ok(());
            }
            own.phys = ErrorScrubPhys {
                func: scan_func::ERRORSCRUB,
                state: scan_state::ERRORSCRUBBING,
                start_time: core.now(),
                to_examine: known,
                ..ErrorScrubPhys::default()
            };
        }
        (own.running, own.halted) = (true, false);
        before
    };
    if let Err(error) = persist(core).await {
        let mut own = core.error_scrub.lock();
        own.phys = before;
        own.stand_still();
        return Err(error);
    }
    core.event("sysevent.fs.zfs.errorscrub_start", Vec::new());
    watched::spawn(&core.dsl, "the error scrub", run(core.clone()));
    Ok(())
}

/// Goes on with what was under way when the pool was last open, or when it stopped.
pub fn resume(core: &Arc<Core>) {
    if core.dsl.read_only {
        return;
    }
    {
        let mut own = core.error_scrub.lock();
        if own.running || !own.is_under_way() || own.is_paused() {
            return;
        }
        own.phys.to_examine = core.damaged.lock().len() as u64;
        (own.running, own.halted) = (true, false);
    }
    watched::spawn(&core.dsl, "the error scrub", run(core.clone()));
}

/// Pauses it (`zpool scrub -p`).
///
/// # Errors
/// [`PoolError::Busy`] when it is paused; the pool is suspended.
pub async fn pause(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    {
        let mut own = core.error_scrub.lock();
        if own.is_paused() {
            return own.check_none();
        }
        own.phys.paused_flags = 1;
        own.pause_time = core.now();
    }
    halt(core).await;
    core.event("sysevent.fs.zfs.errorscrub_paused", Vec::new());
    persist(core).await
}

/// Ends it, be it paused (`zpool scrub -s`).
///
/// # Errors
/// The pool is suspended.
pub async fn stop(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    halt(core).await;
    {
        let mut own = core.error_scrub.lock();
        if !own.is_under_way() {
            return Err(PoolError::NotFound("there is no active scrub".into()));
        }
        own.phys.state = scan_state::CANCELED;
        own.phys.paused_flags = 0;
        own.phys.end_time = core.now();
    }
    core.event("sysevent.fs.zfs.errorscrub_abort", Vec::new());
    persist(core).await
}

/// Ends the walk of this process, if any, without changing what the pool remembers.
pub async fn halt(core: &Arc<Core>) {
    core.error_scrub.lock().halted = true;
    wait_while(core, |own| own.running).await;
}

async fn wait_while(core: &Arc<Core>, condition: impl Fn(&ErrorScrub) -> bool) {
    let done = core.error_scrub.lock().done.clone();
    wait_while::wait_while(done, || condition(&core.error_scrub.lock())).await;
}

async fn run(core: Arc<Core>) {
    let complete = match all(&core).await {
        Ok(complete) => complete,
        Err(error) => {
            tracing::warn!(pool = core.name(), %error, "the error scrub ends before its end");
            false
        }
    };
    if complete {
        let mut own = core.error_scrub.lock();
        own.phys.state = scan_state::FINISHED;
        own.phys.end_time = core.now();
    }
    if let Err(error) = persist(&core).await {
        tracing::warn!(pool = core.name(), %error, "the error scrub's end could not be recorded");
    }
    if complete {
        core.event("sysevent.fs.zfs.errorscrub_finish", Vec::new());
    }
    core.error_scrub.lock().stand_still();
}

/// Looks at all objects of the list; `false` when halted.
async fn all(core: &Arc<Core>) -> Result<bool> {
    let mut last = None;
    loop {
        let from = last.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let next = core.damaged.lock().range((from, std::ops::Bound::Unbounded)).next().copied();
        let Some((objset, object)) = next else { return Ok(true) };
        let Some(is_whole) = judge(core, objset, object).await? else { return Ok(false) };
        let mut own = core.error_scrub.lock();
        own.phys.examined += 1;
        own.phys.to_examine = own.phys.to_examine.saturating_sub(1);
        own.phys.errors += u64::from(!is_whole);
        last = Some((objset, object));
    }
}

/// Whether an object leaves the list: nobody has anything of it that is lost. Others that have are on the list then.
/// `None` when halted.
async fn judge(core: &Arc<Core>, objset: ObjectId, object: ObjectId) -> Result<Option<bool>> {
    match verify(core, objset, object).await? {
        Some(true) => {}
        other => return Ok(other),
    }
    // What is lost there no more (it was freed, or written over) snapshots and clones may have still.
    let Some(relatives) = family::relatives(core, objset).await? else { return Ok(Some(false)) };
    for relative in relatives {
        // Those that are listed have their own turn.
        if core.damaged.lock().contains(&(relative, object)) {
            continue;
        }
        match verify(core, relative, object).await? {
            Some(true) => {}
            Some(false) => drop(core.damaged.lock().insert((relative, object))),
            None => return Ok(None),
        }
    }
    core.damaged.lock().remove(&(objset, object));
    core.new_damage.becomes_less();
    Ok(Some(true))
}

/// Whether all of an object can be had; `None` when halted.
async fn verify(core: &Arc<Core>, objset: ObjectId, object: ObjectId) -> Result<Option<bool>> {
    let store: Arc<dyn BlockStore> = Arc::new(core.dsl.store.clone());
    let mut from = object_path::before(objset, object);
    let lost = AtomicBool::new(false);
    loop {
        if core.error_scrub.lock().halted {
            return Ok(None);
        }
        scan_issue::let_mature(core).await;
        let _pinned = core.dsl.store.pin();
        let Some(root) = scan_order::root_of_any(core, objset).await? else { break };
        let look = Look {
            core,
            object,
            lost: &lost,
            end: Instant::now() + core.environment.scan_slice,
            seen: Mutex::default(),
            path: ObjectPath::to(object),
        };
        let end = visit(&store, objset, &root, from, &look).await?;
        look.verify().await;
        let seen = look.seen.into_inner();
        if end == WalkEnd::Complete || seen.is_past {
            break;
        }
        from = seen.last.or(from);
    }
    Ok(Some(!lost.load(Ordering::Acquire)))
}

/// What a stretch of the walk has seen.
#[derive(Default)]
struct Seen {
    waiting: Vec<(Bookmark, BlkPtr)>,
    last: Option<Bookmark>,
    /// Whether what comes now is behind the object.
    is_past: bool,
}

/// A stretch of the walk through one object during which freed space is pinned.
struct Look<'a> {
    core: &'a Arc<Core>,
    object: ObjectId,
    lost: &'a AtomicBool,
    end: Instant,
    seen: Mutex<Seen>,
    path: ObjectPath,
}

impl Look<'_> {
    /// Verifies what waits.
    async fn verify(&self) {
        let waiting = std::mem::take(&mut self.seen.lock().waiting);
        let scrubs = waiting.iter().map(|(bookmark, bp)| self.core.dsl.store.scrub(bp, *bookmark));
        let is_lost = join_all(scrubs).await.into_iter().any(|block| block.is_err());
        self.lost.fetch_or(is_lost, Ordering::AcqRel);
    }
}

impl Visitor for Look<'_> {
    fn reads_ahead(&self, bookmark: Bookmark, _bp: &BlkPtr) -> bool {
        bookmark.object == self.object || self.path.may_lead(bookmark)
    }

    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            if bookmark.object == self.object && bookmark.level > LOG_LEVEL {
                let is_full = {
                    let mut seen = self.seen.lock();
                    seen.waiting.push((bookmark, *bp));
                    seen.waiting.len() >= AT_ONCE
                };
                if is_full {
                    self.verify().await;
                }
            } else if bookmark.object > self.object && bookmark.object.0 < TOTALS && self.object.0 != 0 {
                self.seen.lock().is_past = true;
                return Visit::Stop;
            } else if !self.path.comes(bookmark) {
                return Visit::Skip;
            }
            self.seen.lock().last = Some(bookmark);
            if Instant::now() >= self.end || self.core.error_scrub.lock().halted {
                return Visit::Stop;
            }
            Visit::Continue
        }
        .boxed()
    }

    fn damaged<'a>(&'a self, bookmark: Bookmark, _bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        async move {
            if let ZioError::Suspended(..) = error {
                return Visit::Stop;
            }
            // What is below it cannot be reached.
            if self.path.is_part(bookmark) {
                self.lost.store(true, Ordering::Release);
            }
            Visit::Continue
        }
        .boxed()
    }
}

/// Writes its state, and what is still known to be damaged.
async fn persist(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    core.task(async |core, tx| {
        crate::error_log::write(&core, &tx).await?;
        if core.dsl.version().has_scan() {
            let integers = core.error_scrub.lock().phys.encode().to_vec();
            let name = names::pool_directory::ERRORSCRUB.as_bytes();
            core.dsl.directory.put(&tx, name, &ZapValue { integer_size: 8, integers }).await?;
        }
        Ok(())
    })
    .await
}

/// Loads its state from the pool directory.
///
/// # Errors
/// Unreadable blocks; a state that makes no sense counts as none.
pub async fn load(directory: &Zap) -> Result<ErrorScrub> {
    let value = directory.get(names::pool_directory::ERRORSCRUB.as_bytes()).await?;
    let phys = value.and_then(|value| ErrorScrubPhys::decode(&value.integers).ok()).unwrap_or_default();
    Ok(ErrorScrub::loaded(phys))
}
