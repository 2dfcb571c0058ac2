//! The disks for a separate log of a machine, beside its other disks.

use platter_model::disk::{Image, SimDisk};

use crate::world::SimDevices;

/// The first of them is plugged in here: away from the places of disks and cache devices.
pub(super) const FIRST_PLACE: usize = 3000;
/// Bytes of each.
pub(super) const SIZE: u64 = 96 << 20;

/// Where one of the log's disks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Away {
    PulledOut,
    Offline,
}

/// The disks for a log of a machine, and whether they are the pool's.
#[derive(Default)]
pub(super) struct LogDisks {
    pub(super) disks: Vec<SimDisk>,
    /// How many of them the pool's log has, as far as the pool said: 0, 1 or 2.
    pub(super) members: usize,
    /// Whether it is being added or removed: if the power fails then, it may be either.
    pub(super) is_changing: bool,
    /// The one that is not in use, until everything is set right.
    pub(super) away: Option<(usize, Away)>,
    /// How often one was added.
    pub(super) added: u64,
}

impl LogDisks {
    pub(super) fn path(number: usize) -> std::path::PathBuf {
        SimDevices::path(FIRST_PLACE + number)
    }

    pub(super) fn is_pulled_out(&self, number: usize) -> bool {
        self.away == Some((number, Away::PulledOut))
    }

    /// All of them.
    pub(super) fn disks(&self) -> impl Iterator<Item = &SimDisk> {
        self.disks.iter()
    }

    /// Those that are plugged in, each with its place.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, &SimDisk)> {
        let places = self.disks.iter().enumerate().filter(|(number, _)| !self.is_pulled_out(*number));
        places.map(|(number, disk)| (FIRST_PLACE + number, disk))
    }

    /// What those of the pool hold, each with its size.
    pub(super) fn images(&self) -> Vec<(Image, u64)> {
        self.disks.iter().take(self.members).map(|disk| (disk.image(), SIZE)).collect()
    }
}
