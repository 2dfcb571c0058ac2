//! Deliberate bugs, one of which can be switched on in a build with feature `canary`: the simulator must find each of
//! them, or it would not find its like. Without the feature every question is answered "no" at compile time.

#[cfg(feature = "canary")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Canary {
    /// The uberblock is written without flushing what it points to.
    UberblockBeforeFlush = 1,
    /// `fsync` returns without flushing the log's blocks.
    LogWithoutFlush,
    /// Parity is written rotated by one byte.
    ParityRotated,
    /// A mirror's side is believed without looking at the checksum.
    ChecksumUnverified,
    /// What is freed can be allocated at once, while the last group on disk still refers to it.
    FreedAtOnce,
    /// The intent log is replayed twice.
    ReplayedTwice,
    /// Blocks of logs that a crash left are not marked as allocated.
    LogUnclaimed,
    /// A label that is newer than the newest uberblock is believed.
    LabelFromTheFuture,
    /// A mirror leaves out its second side when it writes.
    MirrorHalfWritten,
    /// A device that returns is taken for what was at its path: nobody looks at its labels.
    StrangerTaken,
    /// The end of a scan empties the lists of all devices, also of those that came while it ran.
    LatecomerForgotten,
    /// A resilver passes over what was written in the first groups that a device missed.
    ResilverTooShallow,
    /// A device that is put back from an old copy of itself is believed to have what its list does not name.
    OldCopyBelieved,
    /// Of a block without checksum, what a device holds that missed it is believed.
    StaleBelieved,
    /// A repair that failed counts as made at the end of a scan.
    FailedRepairForgotten,
    /// A group that frees a destroyed data set does not note where the next one goes on.
    FreeingBegunAnew,
    /// A block that dies in a data set is freed, although its latest snapshot has it.
    SnapshotForgotten,
    /// Of the blocks that die in a group and that snapshots have, one is not put on the deadlist.
    DeadlistEntryLost,
    /// What dies in a data set is not booked on the bookmarks whose snapshots had it.
    BookmarkForgotten,
    /// What died in a clone is freed with what lives on its livelist.
    DeathForgotten,
    /// A trim goes 64 KiB further than what is free.
    TrimmedTooFar,
    /// A sequential reconstruction passes over a range of each metaslab.
    RebuildRangeSkipped,
    /// A scan reads what it found before it was freed, whatever lies there by now.
    FreedStillScanned,
    /// A cache device's block is believed without looking at the checksum.
    CacheUnverified,
    /// Where a block lay that was freed while it is read, what is wrong is set right.
    FreedSetRight,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::UberblockBeforeFlush,
        Self::LogWithoutFlush,
        Self::ParityRotated,
        Self::ChecksumUnverified,
        Self::FreedAtOnce,
        Self::ReplayedTwice,
        Self::LogUnclaimed,
        Self::LabelFromTheFuture,
        Self::MirrorHalfWritten,
        Self::StrangerTaken,
        Self::LatecomerForgotten,
        Self::ResilverTooShallow,
        Self::OldCopyBelieved,
        Self::StaleBelieved,
        Self::FailedRepairForgotten,
        Self::FreeingBegunAnew,
        Self::SnapshotForgotten,
        Self::DeadlistEntryLost,
        Self::BookmarkForgotten,
        Self::DeathForgotten,
        Self::TrimmedTooFar,
        Self::RebuildRangeSkipped,
        Self::FreedStillScanned,
        Self::CacheUnverified,
        Self::FreedSetRight,
    ];

    /// Whether this bug is switched on.
    #[inline]
    pub fn sings(self) -> bool {
        #[cfg(feature = "canary")]
        return ACTIVE.load(Ordering::Relaxed) == self as u8;
        #[cfg(not(feature = "canary"))]
        return false;
    }
}

#[cfg(feature = "canary")]
static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// Switches one bug on in the whole process, or all off.
#[cfg(feature = "canary")]
pub fn release(canary: Option<Canary>) {
    ACTIVE.store(canary.map_or(0, |canary| canary as u8), Ordering::Relaxed);
}
