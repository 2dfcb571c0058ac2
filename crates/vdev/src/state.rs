//! A vdev's condition, as `zpool status` tells it (`vdev_state_t` and `vdev_aux_t` in `include/sys/fs/zfs.h`).

/// How far a vdev can be used. Ordered from worst to best; the numbers are those of `vdev_state_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum VdevState {
    /// Not opened yet.
    Closed = 1,
    /// Taken offline by the administrator.
    Offline = 2,
    /// Was removed while in use.
    Removed = 3,
    /// Tried and failed to open.
    CantOpen = 4,
    /// Given up after errors.
    Faulted = 5,
    /// Used, with something wrong below or in it.
    Degraded = 6,
    /// Everything works.
    Healthy = 7,
}

impl VdevState {
    /// The number in the format.
    pub fn number(self) -> u64 {
        self as u64
    }
}

/// Why a vdev is in its state; the numbers are those of `vdev_aux_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum VdevAux {
    /// Nothing to add.
    #[default]
    None = 0,
    /// The device could not be opened.
    OpenFailed = 1,
    /// The label or the data on it does not fit.
    CorruptData = 2,
    /// Too few children work.
    NoReplicas = 3,
    /// The guids of the children do not add up.
    BadGuidSum = 4,
    /// The device is too small.
    TooSmall = 5,
    /// The label is wrong.
    BadLabel = 6,
    /// Part of another pool that is in use.
    Spared = 10,
    /// Too many errors.
    ErrorExceeded = 11,
    /// Taken out by the administrator (`zpool offline -f`).
    External = 14,
    /// It was split off, and is another pool's now.
    SplitPool = 15,
}

/// State and reason together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// How far it can be used.
    pub state: VdevState,
    /// Why, as the format knows it.
    pub aux: VdevAux,
    /// Why, in words for a person, when more is known.
    pub detail: Option<String>,
}

impl Condition {
    /// Everything works.
    pub const HEALTHY: Self = Self { state: VdevState::Healthy, aux: VdevAux::None, detail: None };

    /// A state with its reason.
    pub fn new(state: VdevState, aux: VdevAux) -> Self {
        Self { state, aux, detail: None }
    }

    /// The same with words.
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The condition of a vdev whose parts all hold the same: it can be used while one of them can
    /// (`vdev_mirror_state_change`). A single part's own.
    pub fn of_copies(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts: Vec<Self> = parts.into_iter().collect();
        match parts.len() {
            1 => parts.swap_remove(0),
            _ if !parts.iter().any(Self::is_usable) => Self::new(VdevState::CantOpen, VdevAux::NoReplicas),
            _ if parts.iter().any(|part| part.state != VdevState::Healthy) => {
                Self::new(VdevState::Degraded, VdevAux::None)
            }
            _ => Self::HEALTHY,
        }
    }

    /// The word in the STATE column (`zpool_state_to_name`).
    pub fn name(&self) -> &'static str {
        match (self.state, self.aux) {
            (VdevState::Closed | VdevState::Offline, _) => "OFFLINE",
            (VdevState::Removed, _) => "REMOVED",
            (VdevState::CantOpen, VdevAux::CorruptData) => "FAULTED",
            (VdevState::CantOpen, VdevAux::SplitPool) => "SPLIT",
            (VdevState::CantOpen, _) => "UNAVAIL",
            (VdevState::Faulted, _) => "FAULTED",
            (VdevState::Degraded, _) => "DEGRADED",
            (VdevState::Healthy, _) => "ONLINE",
        }
    }

    /// The words behind a device's line in `zpool status`; empty when there is nothing to say.
    pub fn aux_text(&self) -> &'static str {
        match self.aux {
            VdevAux::None => "",
            VdevAux::OpenFailed => "cannot open",
            VdevAux::CorruptData => "corrupted data",
            VdevAux::NoReplicas => "insufficient replicas",
            VdevAux::BadGuidSum => "missing device",
            VdevAux::TooSmall => "too small",
            VdevAux::BadLabel => "invalid label",
            VdevAux::ErrorExceeded => "too many errors",
            VdevAux::Spared => "currently in use",
            VdevAux::External => "external device fault",
            VdevAux::SplitPool => "split into new pool",
        }
    }

    /// Whether reads and writes go there at all.
    pub fn is_usable(&self) -> bool {
        self.state >= VdevState::Degraded
    }
}
