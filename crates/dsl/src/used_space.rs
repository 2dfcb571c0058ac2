//! Changes of space, and what it is used for.

use platter_ondisk::dsl::{DeadlistPhys, DslDirPhys, UsedBreakdown};

/// What a directory's space is used for (`dd_used_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedKind {
    /// The head data set.
    Head,
    /// Snapshots.
    Snapshots,
    /// Directories below.
    Child,
    /// Reservations of directories below.
    ChildReservation,
    /// What `refreservation` keeps for the head data set beyond what it uses.
    Refreservation,
}

impl UsedKind {
    /// Its part of a breakdown.
    pub fn of(self, breakdown: &mut UsedBreakdown) -> &mut u64 {
        match self {
            Self::Head => &mut breakdown.head,
            Self::Snapshots => &mut breakdown.snapshots,
            Self::Child => &mut breakdown.children,
            Self::ChildReservation => &mut breakdown.child_reservations,
            Self::Refreservation => &mut breakdown.refreservation,
        }
    }
}

/// A change of space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceChange {
    /// Deflated.
    pub used: i64,
    /// After compression.
    pub compressed: i64,
    /// Before compression.
    pub uncompressed: i64,
}

impl std::ops::AddAssign for SpaceChange {
    fn add_assign(&mut self, more: Self) {
        // Totals on disk may be anything.
        self.used = self.used.saturating_add(more.used);
        self.compressed = self.compressed.saturating_add(more.compressed);
        self.uncompressed = self.uncompressed.saturating_add(more.uncompressed);
    }
}

impl std::ops::Neg for SpaceChange {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            used: self.used.saturating_neg(),
            compressed: self.compressed.saturating_neg(),
            uncompressed: self.uncompressed.saturating_neg(),
        }
    }
}

impl std::ops::SubAssign for SpaceChange {
    fn sub_assign(&mut self, less: Self) {
        *self += -less;
    }
}

impl SpaceChange {
    /// All that is on a deadlist, as a gain.
    pub fn of(phys: &DeadlistPhys) -> Self {
        Self {
            used: difference(phys.used, 0),
            compressed: difference(phys.comp, 0),
            uncompressed: difference(phys.uncomp, 0),
        }
    }

    /// All of what `phys` uses, taken away.
    pub fn minus_all(phys: &DslDirPhys) -> Self {
        Self {
            used: difference(0, phys.used_bytes),
            compressed: difference(0, phys.compressed_bytes),
            uncompressed: difference(0, phys.uncompressed_bytes),
        }
    }
}

/// What of `delta` is felt outside when `reserved` bytes are counted as used anyway.
pub fn reserved_delta(reserved: u64, used: u64, delta: i64) -> i64 {
    let before = used.max(reserved);
    let after = used.saturating_add_signed(delta).max(reserved);
    difference(after, before)
}

/// `after - before`; what is beyond any pool's size is cut off.
pub fn difference(after: u64, before: u64) -> i64 {
    after.checked_signed_diff(before).unwrap_or(if after > before { i64::MAX } else { i64::MIN })
}
