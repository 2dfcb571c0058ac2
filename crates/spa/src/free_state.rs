//! What is known of work on what is free of leaves: how far each is, and who works.
//!
//! Invariant: only what is to go on is worked on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use platter_api::report::LeafWorkState;
use platter_ondisk::names::vdev_leaf_zap as names;
use platter_ondisk::{ObjectId, Txg};
use tokio::sync::Notify;

/// What is done with what is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The device is told.
    Trim,
    /// It is written over.
    Initialize,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Trim, Self::Initialize];

    /// As the command is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trim => "trim",
            Self::Initialize => "initialize",
        }
    }

    /// Names of state, time and place in the leaf's ZAP.
    pub fn entries(self) -> [&'static str; 3] {
        match self {
            Self::Trim => [names::TRIM_STATE, names::TRIM_ACTION_TIME, names::TRIM_LAST_OFFSET],
            Self::Initialize => [names::INITIALIZE_STATE, names::INITIALIZE_ACTION_TIME, names::INITIALIZE_LAST_OFFSET],
        }
    }
}

/// As `vdev_trim_state_t` and `vdev_initializing_state_t` (`include/sys/fs/zfs.h`); 0 is none.
pub const STATES: [LeafWorkState; 4] =
    [LeafWorkState::Active, LeafWorkState::Canceled, LeafWorkState::Suspended, LeafWorkState::Complete];

/// The number of a state.
pub fn number(state: LeafWorkState) -> u64 {
    STATES.iter().position(|known| *known == state).expect("all are there") as u64 + 1
}

/// What is known of a leaf's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// How far it is.
    pub state: LeafWorkState,
    /// When it began, or ended; seconds since the epoch.
    pub time: u64,
    /// Everything before this byte of the leaf's allocatable space is done.
    pub place: u64,
    /// Bytes a second; 0 for no limit.
    pub rate: u64,
    /// Whether nobody is to find what was there.
    pub secure: bool,
    /// Whether only what was ever used is to be trimmed (`zfs_trim_metaslab_skip`).
    pub partial: bool,
    /// Who of this process works on it: another number each time.
    pub runner: Option<u64>,
    /// Whether that is to end.
    pub stopping: bool,
}

impl Work {
    /// One that has not begun.
    pub fn new() -> Self {
        Self {
            state: LeafWorkState::Canceled,
            time: 0,
            place: 0,
            rate: 0,
            secure: false,
            partial: false,
            runner: None,
            stopping: false,
        }
    }
}

/// The work of all leaves, by the leaf's ZAP: that stays the same when its guid does not.
#[derive(Debug, Default)]
pub struct Works {
    /// See above.
    pub known: Mutex<BTreeMap<(ObjectId, Kind), Work>>,
    /// Told when work of this process ends, or is to end.
    pub changed: Arc<Notify>,
    /// Who gives up by itself what becomes free (property `autotrim`).
    pub automatic: Mutex<Automatic>,
    /// Works of this process so far.
    begun: AtomicU64,
    /// Set while the pool is being left: nothing is begun any more.
    pub leaving: AtomicBool,
    /// The last group when the pool was opened: of what it freed nothing in memory tells.
    pub opened: Txg,
}

/// Who gives up by itself what becomes free.
#[derive(Debug, Default)]
pub struct Automatic {
    /// Whether somebody does.
    pub on: bool,
    /// Which one: it is another each time.
    pub number: u64,
    /// How many are at work on a metaslab.
    pub at_work: usize,
}

/// One who is at work.
pub struct AtWork<'a>(&'a Works);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let mut automatic = self.0.automatic.lock();
        automatic.at_work = automatic.at_work.checked_sub(1).expect("who ends has begun");
        drop(automatic);
        self.0.changed.notify_waiters();
    }
}

impl Works {
    /// What the pool remembers, when group `opened` is its last.
    pub fn new(known: BTreeMap<(ObjectId, Kind), Work>, opened: Txg) -> Self {
        Self { known: Mutex::new(known), opened, ..Self::default() }
    }

    /// Whether who gives up by itself what becomes free, the one of this number, is to go on. While what is returned is
    /// kept, it counts as being at work.
    pub fn go_on(&self, number: u64) -> Option<AtWork<'_>> {
        let mut automatic = self.automatic.lock();
        let goes_on = automatic.on && automatic.number == number && !self.leaving.load(Ordering::Acquire);
        goes_on.then(|| {
            automatic.at_work += 1;
            AtWork(self)
        })
    }

    /// Begins work of this process on what is to go on, unless there is somebody; the number of who works.
    pub fn begin(&self, key: (ObjectId, Kind)) -> Option<u64> {
        let mut known = self.known.lock();
        if self.leaving.load(Ordering::Acquire) {
            return None;
        }
        let work = known.get_mut(&key)?;
        if work.runner.is_some() || work.state != LeafWorkState::Active {
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        (work.runner, work.stopping) = (Some(number), false);
        assert_eq!(work.state, LeafWorkState::Active, "only what is to go on is worked on");
        Some(number)
    }

    /// Ends work of this process.
    pub fn end(&self, key: (ObjectId, Kind), number: u64) {
        // A leaf that got the ZAP of one that has left has its own.
        if let Some(work) = self.known.lock().get_mut(&key).filter(|work| work.runner == Some(number)) {
            (work.runner, work.stopping) = (None, false);
        }
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_openzfs_numbers() {
        assert_eq!(STATES.map(number), [1, 2, 3, 4]);
        assert_eq!(number(LeafWorkState::Suspended), 3);
    }

    #[test]
    fn one_works_on_what_is_to_go_on() {
        let (works, key) = (Works::default(), (ObjectId(7), Kind::Trim));
        assert_eq!(works.begin(key), None, "there is nothing to do");
        works.known.lock().insert(key, Work { state: LeafWorkState::Active, ..Work::new() });
        let first = works.begin(key).expect("there is");
        assert_eq!(works.begin(key), None);
        works.end(key, first);
        let second = works.begin(key).expect("that one has ended");
        works.end(key, first);
        assert_eq!(works.known.lock()[&key].runner, Some(second), "one ends only what it has begun");
        works.end(key, second);
        works.known.lock().insert(key, Work { state: LeafWorkState::Suspended, ..Work::new() });
        assert_eq!(works.begin(key), None);
    }

    #[test]
    fn nothing_is_begun_while_the_pool_is_left() {
        let (works, key) = (Works::default(), (ObjectId(7), Kind::Trim));
        works.known.lock().insert(key, Work { state: LeafWorkState::Active, ..Work::new() });
        works.automatic.lock().on = true;
        let at_work = works.go_on(0).expect("it is on");
        works.leaving.store(true, Ordering::Release);
        assert!(works.begin(key).is_none() && works.go_on(0).is_none());
        assert_eq!(works.automatic.lock().at_work, 1, "that one has still to come to its end");
        drop(at_work);
        assert_eq!(works.automatic.lock().at_work, 0);
    }
}
