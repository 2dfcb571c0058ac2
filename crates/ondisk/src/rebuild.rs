//! The state of a sequential reconstruction of one top-level vdev (`vdev_rebuild_phys_t`,
//! `include/sys/vdev_rebuild.h`): an array of numbers in the vdev's ZAP, under
//! [`VDEV_REBUILD_PHYS`](crate::names::vdev_top_zap::VDEV_REBUILD_PHYS).

use crate::ids::Txg;

/// Numbers of the array (`REBUILD_PHYS_ENTRIES`).
const ENTRIES: usize = 12;

/// How far it is (`vdev_rebuild_state_t`, `include/sys/fs/zfs.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebuildState {
    /// There was none, or it is forgotten.
    #[default]
    None,
    /// It is to go on.
    Active,
    /// Nobody needed it any more before it was done.
    Canceled,
    /// It came to its end.
    Complete,
}

impl RebuildState {
    /// In the order of their numbers.
    const ALL: [Self; 4] = [Self::None, Self::Active, Self::Canceled, Self::Complete];

    fn number(self) -> u64 {
        Self::ALL.iter().position(|state| *state == self).expect("all are there") as u64
    }
}

/// A sequential reconstruction as it is on disk. Sizes and offsets in bytes, times in seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildPhys {
    /// How far it is.
    pub state: RebuildState,
    /// Everything before this offset of the top-level vdev is done.
    pub last_offset: u64,
    /// The group before the first one that devices lack.
    pub min_txg: Txg,
    /// The group after the last one that devices lack: what is older than it is made up for.
    pub max_txg: Txg,
    /// When it began.
    pub start_time: u64,
    /// When it ended.
    pub end_time: u64,
    /// How long it ran, in milliseconds.
    pub scan_time_ms: u64,
    /// Allocated bytes that were looked at.
    pub bytes_scanned: u64,
    /// Bytes that were read.
    pub bytes_issued: u64,
    /// Bytes that were written.
    pub bytes_rebuilt: u64,
    /// Allocated bytes in all, as far as is known.
    pub bytes_est: u64,
    /// What could not be read or written.
    pub errors: u64,
}

impl RebuildPhys {
    /// Reads the array; `None` when it is none. What a later version appends is left out.
    pub fn decode(words: &[u64]) -> Option<Self> {
        let (words, _) = words.split_first_chunk::<ENTRIES>()?;
        let [
            state,
            last_offset,
            min_txg,
            max_txg,
            start_time,
            end_time,
            scan_time_ms,
            bytes_scanned,
            bytes_issued,
            bytes_rebuilt,
            bytes_est,
            errors,
        ] = *words;
        let state = *RebuildState::ALL.get(usize::try_from(state).ok()?)?;
        let (min_txg, max_txg) = (Txg(min_txg), Txg(max_txg));
        Some(Self {
            state,
            last_offset,
            min_txg,
            max_txg,
            start_time,
            end_time,
            scan_time_ms,
            bytes_scanned,
            bytes_issued,
            bytes_rebuilt,
            bytes_est,
            errors,
        })
    }

    /// The array.
    pub fn encode(&self) -> [u64; ENTRIES] {
        [
            self.state.number(),
            self.last_offset,
            self.min_txg.0,
            self.max_txg.0,
            self.start_time,
            self.end_time,
            self.scan_time_ms,
            self.bytes_scanned,
            self.bytes_issued,
            self.bytes_rebuilt,
            self.bytes_est,
            self.errors,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_array_is_openzfs_own_and_anything_else_is_none() {
        let words: [u64; ENTRIES] = [1, 4096, 3, 40, 100, 0, 250, 11, 12, 13, 14, 15];
        let phys = RebuildPhys::decode(&words).expect("it is one");
        assert_eq!((phys.state, phys.last_offset, phys.max_txg), (RebuildState::Active, 4096, Txg(40)));
        assert_eq!((phys.bytes_issued, phys.bytes_rebuilt, phys.bytes_est, phys.errors), (12, 13, 14, 15));
        assert_eq!(phys.encode(), words);
        assert_eq!(RebuildPhys::decode(&[&words[..], &[7]].concat()), Some(phys));
        assert_eq!(RebuildPhys::decode(&words[..11]), None);
        assert_eq!(RebuildPhys::decode(&[4; ENTRIES]), None, "there is no such state");
        assert_eq!(RebuildPhys::decode(&[0; ENTRIES]), Some(RebuildPhys::default()));
    }
}
