//! `zpool trim` and `zpool initialize`: what is refused of which device, and what is begun or ended
//! (`spa_vdev_trim` and `spa_vdev_initialize` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - each device is decided about alone; but a name that nobody knows keeps all from being touched;
//! - one walk at most runs for a leaf and kind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use platter_api::report::LeafWorkState;
use platter_api::request::{Changed, FreeWork, InitializeAction, TrimAction};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::watched;
use platter_ondisk::ObjectId;
use platter_vdev::TrimSupport;

use crate::core::Core;
use crate::free_state::{Kind, Work};
use crate::free_walk;
use crate::free_work::{self, Change};
use crate::place::{self, PlacedLeaf};

/// In OpenZFS's words (`libzfs_error_description`).
const NOT_TRIMMABLE: &str = "trim operations are not supported by this device";
const INVALID: &str = "invalid device";

/// What becomes of the work, and how.
struct Wanted {
    kind: Kind,
    to: Option<LeafWorkState>,
    rate: u64,
    secure: bool,
}

impl Wanted {
    fn of(work: FreeWork) -> Self {
        let plain = |kind, to| Self { kind, to, rate: 0, secure: false };
        match work {
            FreeWork::Trim(TrimAction::Start { rate, secure }) => {
                Self { rate, secure, ..plain(Kind::Trim, Some(LeafWorkState::Active)) }
            }
            FreeWork::Trim(TrimAction::Suspend) => plain(Kind::Trim, Some(LeafWorkState::Suspended)),
            FreeWork::Trim(TrimAction::Cancel) => plain(Kind::Trim, Some(LeafWorkState::Canceled)),
            FreeWork::Initialize(InitializeAction::Start) => plain(Kind::Initialize, Some(LeafWorkState::Active)),
            FreeWork::Initialize(InitializeAction::Suspend) => plain(Kind::Initialize, Some(LeafWorkState::Suspended)),
            FreeWork::Initialize(InitializeAction::Cancel) => plain(Kind::Initialize, Some(LeafWorkState::Canceled)),
            FreeWork::Initialize(InitializeAction::Uninitialize) => plain(Kind::Initialize, None),
        }
    }

    /// Why it cannot be done to a leaf.
    fn obstacle(&self, place: &PlacedLeaf, work: Option<&Work>) -> Option<&'static str> {
        use LeafWorkState::{Active, Canceled, Complete, Suspended};
        if !place.leaf.is_writable() || !place.config.leaf_zap.is_some() {
            return Some(INVALID);
        }
        if self.kind == Kind::Trim {
            let TrimSupport { plain, secure } = place.leaf.trim_support();
            if !plain || (self.secure && !secure) {
                return Some(NOT_TRIMMABLE);
            }
        }
        let (under_way, none) = match self.kind {
            Kind::Trim => ("currently trimming", "there is no active trim"),
            Kind::Initialize => ("currently initializing", "there is no active initialization"),
        };
        let state = work.map(|work| work.state);
        // A walk that has come to its end may not have been put away yet: `carry_out` waits for that.
        let is_running = state == Some(Active) && work.is_some_and(|work| work.runner.is_some());
        match self.to {
            Some(Active | Complete) | None => is_running.then_some(under_way),
            Some(Canceled) => (!matches!(state, Some(Active | Suspended))).then_some(none),
            Some(Suspended) => (state != Some(Active)).then_some(none),
        }
    }
}

fn work_of(core: &Core, place: &PlacedLeaf, kind: Kind) -> Option<Work> {
    core.works.known.lock().get(&(place.config.leaf_zap, kind)).copied()
}

/// The leaves that a command means, or what is wrong with names, a line each.
async fn places(core: &Core, kind: Kind, devices: &[String]) -> std::result::Result<Vec<PlacedLeaf>, Vec<String>> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for device in devices {
        match place::find(core, device).await {
            Ok(place) => found.push(place),
            // A vdev that is there, and no leaf.
            Err(PoolError::Invalid(_)) if place::interior(core, device).is_some() => {
                problems.push(format!("cannot {} '{device}': {INVALID}", kind.name()));
            }
            Err(error) => problems.push(format!("cannot {} '{device}': {error}", kind.name())),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

/// Does what a command asks for, to these devices or to all. What was refused is told beside.
///
/// # Errors
/// The pool stopped; device errors.
pub async fn run(core: &Arc<Core>, work: FreeWork, devices: &[String]) -> Result<Changed> {
    let wanted = Wanted::of(work);
    let kind = wanted.kind;
    let places = match devices {
        [] => Ok(place::leaves(core)),
        devices => places(core, kind, devices).await,
    };
    let places = match places {
        Ok(places) => places,
        Err(problems) => return Ok(Changed { problems, ..Changed::default() }),
    };
    let (mut meant, mut problems, mut unable) = (Vec::new(), Vec::new(), 0);
    let count = places.len();
    for place in places {
        let before = work_of(core, &place, kind);
        match wanted.obstacle(&place, before.as_ref()) {
            None => meant.push(place),
            // Of all devices those that never can are passed over (`check_trim_errs`).
            Some(NOT_TRIMMABLE) if devices.is_empty() && !wanted.secure => unable += 1,
            Some(why) => problems.push(format!("cannot {} '{}': {why}", kind.name(), shown(&place))),
        }
    }
    if unable > 0 && unable == count {
        problems.push("cannot trim: no devices in pool support trim operations".into());
    }
    if !meant.is_empty() {
        carry_out(core, &wanted, meant).await?;
    }
    Ok(Changed { problems, ..Changed::default() })
}

/// What a leaf is called in messages.
fn shown(place: &PlacedLeaf) -> String {
    place.config.path.clone().unwrap_or_else(|| place.config.guid.to_string())
}

async fn carry_out(core: &Arc<Core>, wanted: &Wanted, places: Vec<PlacedLeaf>) -> Result<()> {
    let starts = wanted.to == Some(LeafWorkState::Active);
    assert!(!places.is_empty(), "a command does something");
    let keys: Vec<_> = places.iter().map(|place| (place.config.leaf_zap, wanted.kind)).collect();
    stop(core, |key| keys.contains(&key)).await;
    let change = |place: &PlacedLeaf| Change {
        leaf: place.config.guid,
        kind: wanted.kind,
        to: wanted.to,
        rate: wanted.rate,
        secure: wanted.secure,
    };
    let changes: Vec<_> = places.iter().map(change).collect();
    core.task(async move |core, tx| Ok(free_work::apply(&core, &tx, &changes).await?)).await?;
    if starts {
        resume(core);
    }
    Ok(())
}

/// Ends walks of this process, and waits until they are over.
async fn stop(core: &Core, is_meant: impl Fn((ObjectId, Kind)) -> bool) {
    loop {
        let changed = core.works.changed.clone();
        let mut woken = std::pin::pin!(changed.notified());
        woken.as_mut().enable();
        {
            let mut known = core.works.known.lock();
            let mut running =
                known.iter_mut().filter(|(key, work)| work.runner.is_some() && is_meant(**key)).peekable();
            if running.peek().is_none() {
                return;
            }
            running.for_each(|(_, work)| work.stopping = true);
        }
        woken.await;
    }
}

/// For so long is waited for walks on leaves that cannot be used: one whose device hangs does not end.
const SETTLE: Duration = Duration::from_secs(5);

/// Waits until no walk of this process is on a leaf that cannot be used, unless that takes long.
pub async fn settle(core: &Core) {
    let _ = tokio::time::timeout(SETTLE, settled(core)).await;
}

async fn settled(core: &Core) {
    let is_over = || {
        let lost = place::leaves(core).into_iter().filter(|place| !place.leaf.is_usable());
        let mut keys = lost.flat_map(|place| Kind::ALL.map(|kind| (place.config.leaf_zap, kind)));
        let known = core.works.known.lock();
        !keys.any(|key| known.get(&key).is_some_and(|work| work.runner.is_some()))
    };
    loop {
        let changed = core.works.changed.clone();
        let mut woken = std::pin::pin!(changed.notified());
        woken.as_mut().enable();
        if is_over() {
            return;
        }
        woken.await;
    }
}

/// Ends all walks of this process, without changing what the pool remembers, and waits until nothing is under way: what
/// came late could hit what somebody else has written who has the pool by then. Nothing is begun any more.
pub async fn halt(core: &Core) {
    core.works.leaving.store(true, Ordering::Release);
    stop(core, |_| true).await;
    loop {
        let changed = core.works.changed.clone();
        let mut woken = std::pin::pin!(changed.notified());
        woken.as_mut().enable();
        if core.works.automatic.lock().at_work == 0 {
            return;
        }
        woken.await;
    }
}

/// The pool was not left: what was halted may go on.
pub fn stay(core: &Core) {
    core.works.leaving.store(false, Ordering::Release);
}

/// Goes on with what is not done and not suspended, on all leaves that are there (`vdev_trim_restart`).
pub fn resume(core: &Arc<Core>) {
    if core.dsl.read_only {
        return;
    }
    for place in place::leaves(core) {
        for kind in Kind::ALL {
            let key = (place.config.leaf_zap, kind);
            let Some(number) = place.leaf.is_writable().then(|| core.works.begin(key)).flatten() else { continue };
            let walk = free_walk::run(core.clone(), place.top.clone(), place.leaf.clone(), (key, number));
            drop(watched::spawn(&core.dsl, "a walk over what is free", walk));
        }
    }
}
