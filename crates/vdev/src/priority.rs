//! The queue classes of I/O, and what is different for each of them.

use std::ops::{Index, IndexMut};

/// Queue class of an I/O (`zio_priority_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for the bytes.
    SyncRead,
    /// Prefetch.
    AsyncRead,
    /// Somebody waits for the bytes to be stable.
    SyncWrite,
    /// A transaction group's ordinary data.
    AsyncWrite,
    /// Scrub and resilver.
    Scrub,
    /// Giving up what is free.
    Trim,
    /// Writing over what is free.
    Initialize,
}

/// Read or write, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read = 0,
    Write = 1,
}

/// How the transfers of a class are treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassRules {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Transfers that go to the device as soon as they come, while fewer than these are with it
    /// (`zfs_vdev_*_min_active`).
    pub(crate) at_once: usize,
    /// Transfers that may be with the device at a time (`zfs_vdev_*_max_active`).
    pub(crate) active_max: usize,
    /// Whether none may be passed over too often.
    pub(crate) in_turn: bool,
    /// Where its transfers are counted, if they are somebody's reads or writes.
    pub(crate) counts_as: Option<Direction>,
    /// Whether somebody waits for it, or it makes way for those, or neither.
    pub(crate) stance: Stance,
}

/// What a class is to the others at the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stance {
    /// Others make way for it (`vdev_queue_is_interactive`).
    Awaited,
    /// It makes way.
    Background,
    /// Neither.
    Beside,
}

/// Of writes of a transaction group's data one goes at once (one less than `zfs_vdev_async_write_min_active`) while
/// little else waits. What comes meanwhile gathers to larger transfers: the device has the same work in fewer pieces,
/// and the locks of a file system below us are taken less often.
///
/// Of a scrub two are with a device, as one follows the other: of eight a disk that turns takes those first that lie on
/// its other tracks, and leaves the rest behind for half a second. Devices without seeks lose nothing by it where
/// waiting neighbours are joined, as almost all of a scrub's are.
const RULES: PerClass<ClassRules> = PerClass([
    ClassRules {
        name: "sync read",
        at_once: 10,
        active_max: 10,
        in_turn: false,
        counts_as: Some(Direction::Read),
        stance: Stance::Awaited,
    },
    ClassRules {
        name: "async read",
        at_once: 3,
        active_max: 3,
        in_turn: true,
        counts_as: Some(Direction::Read),
        stance: Stance::Awaited,
    },
    ClassRules {
        name: "sync write",
        at_once: 10,
        active_max: 10,
        in_turn: false,
        counts_as: Some(Direction::Write),
        stance: Stance::Awaited,
    },
    ClassRules {
        name: "async write",
        at_once: 1,
        active_max: 10,
        in_turn: false,
        counts_as: Some(Direction::Write),
        stance: Stance::Awaited,
    },
    ClassRules {
        name: "scrub",
        at_once: 2,
        active_max: 2,
        in_turn: false,
        counts_as: None,
        stance: Stance::Background,
    },
    ClassRules { name: "trim", at_once: 2, active_max: 2, in_turn: false, counts_as: None, stance: Stance::Beside },
    ClassRules {
        name: "initialize",
        at_once: 1,
        active_max: 1,
        in_turn: false,
        counts_as: Some(Direction::Write),
        stance: Stance::Background,
    },
]);

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// All of them, in the order in which they are reported.
    pub const ALL: [Self; Self::COUNT] =
        [Self::SyncRead, Self::AsyncRead, Self::SyncWrite, Self::AsyncWrite, Self::Scrub, Self::Trim, Self::Initialize];

    /// How its transfers are treated.
    pub(crate) const fn rules(self) -> &'static ClassRules {
        &RULES.0[self as usize]
    }
}

impl std::fmt::Display for Priority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.rules().name)
    }
}

const _: () = {
    let mut at = 0;
    while at < Priority::COUNT {
        assert!(Priority::ALL[at] as usize == at);
        let rules = Priority::ALL[at].rules();
        assert!(0 < rules.at_once && rules.at_once <= rules.active_max);
        // Of the background none waits for more to come.
        assert!(!matches!(rules.stance, Stance::Background) || rules.at_once == rules.active_max);
        at += 1;
    }
};

/// Something of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass<T>([T; Priority::COUNT]);

impl<T> PerClass<T> {
    /// What `make` makes of each class.
    pub fn from_fn(make: impl FnMut(Priority) -> T) -> Self {
        Self(Priority::ALL.map(make))
    }

    /// What `change` makes of each.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> PerClass<U> {
        PerClass(self.0.map(change))
    }

    /// References to each.
    pub fn each_ref(&self) -> PerClass<&T> {
        PerClass(self.0.each_ref())
    }

    /// Those of all classes, in the order of [`Priority::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Those of all classes, in the order of [`Priority::ALL`].
    pub fn into_array(self) -> [T; Priority::COUNT] {
        self.0
    }
}

impl<T> Index<Priority> for PerClass<T> {
    type Output = T;

    fn index(&self, class: Priority) -> &T {
        &self.0[class as usize]
    }
}

impl<T> IndexMut<Priority> for PerClass<T> {
    fn index_mut(&mut self, class: Priority) -> &mut T {
        &mut self.0[class as usize]
    }
}
