//! What is known of work on what is free of leaves: how far each is, and who works.
//!
//! Invariant: only what is to go on is worked on.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_api::report::LeafWorkState;
use platter_ondisk::ObjectId;
use platter_ondisk::names::vdev_leaf_zap as names;
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
    /// Whether this process works on it.
    pub running: bool,
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
            running: false,
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
}

/// Who gives up by itself what becomes free.
#[derive(Debug, Default)]
pub struct Automatic {
    /// Whether somebody does.
    pub on: bool,
    /// Which one: it is another each time.
    pub number: u64,
}

impl Works {
    /// Begins work of this process on what is to go on; whether there is nobody yet.
    pub fn begin(&self, key: (ObjectId, Kind)) -> bool {
        let mut known = self.known.lock();
        let Some(work) = known.get_mut(&key) else { return false };
        if work.running || work.state != LeafWorkState::Active {
            return false;
        }
        (work.running, work.stopping) = (true, false);
        true
    }

    /// Ends work of this process.
    pub fn end(&self, key: (ObjectId, Kind)) {
        if let Some(work) = self.known.lock().get_mut(&key) {
            assert!(work.running, "who ends has begun");
            (work.running, work.stopping) = (false, false);
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
        assert!(!works.begin(key), "there is nothing to do");
        works.known.lock().insert(key, Work { state: LeafWorkState::Active, ..Work::new() });
        assert!(works.begin(key) && !works.begin(key));
        works.end(key);
        works.known.lock().insert(key, Work { state: LeafWorkState::Suspended, ..Work::new() });
        assert!(!works.begin(key));
    }
}
