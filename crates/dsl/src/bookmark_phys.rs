//! What is on disk of a bookmark (`zfs_bookmark_phys_t`, `include/sys/dsl_bookmark.h`): the entry of its name in the
//! ZAP of its data set's bookmarks.
//!
//! ```text
//! first form:   guid │ group │ time
//! second form:  … │ redaction list │ flags │ referenced × 3 │ freed before the next snapshot × 3 │ ivset guid
//! ```
//! Each three are deflated, compressed and uncompressed bytes. A bookmark has the shortest form that holds it.

use platter_dmu::zap::ZapValue;
use platter_ondisk::dsl::{DeadlistPhys, DslDatasetPhys};
use platter_ondisk::{Guid, ObjectId, Txg};

use crate::used_space::{SpaceChange, difference};

/// Numbers of the first form (`BOOKMARK_PHYS_SIZE_V1`), and of the second (`BOOKMARK_PHYS_SIZE_V2`).
const NUMBERS: usize = 3;
const NUMBERS_LONG: usize = 12;
/// `ZBM_FLAG_HAS_FBN`: it has what its snapshot referenced, and what was freed of that before the next one.
const HAS_FREED: u64 = 1;
/// `ZBM_FLAG_SNAPSHOT_EXISTS`.
const SNAPSHOT_EXISTS: u64 = 2;

/// Bytes of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookmarkSpace {
    /// Deflated.
    pub used: u64,
    /// Compressed.
    pub compressed: u64,
    /// Uncompressed.
    pub uncompressed: u64,
}

impl BookmarkSpace {
    fn from_numbers(numbers: &[u64]) -> Self {
        Self { used: numbers[0], compressed: numbers[1], uncompressed: numbers[2] }
    }

    fn numbers(self) -> [u64; 3] {
        [self.used, self.compressed, self.uncompressed]
    }

    /// What is on a deadlist.
    pub fn of_deadlist(phys: &DeadlistPhys) -> Self {
        Self { used: phys.used, compressed: phys.comp, uncompressed: phys.uncomp }
    }

    /// What a data set references.
    pub fn referenced(phys: &DslDatasetPhys) -> Self {
        Self { used: phys.referenced_bytes, compressed: phys.compressed_bytes, uncompressed: phys.uncompressed_bytes }
    }

    /// With `more` of each.
    pub fn plus(self, more: SpaceChange) -> Self {
        Self {
            used: self.used.saturating_add_signed(more.used),
            compressed: self.compressed.saturating_add_signed(more.compressed),
            uncompressed: self.uncompressed.saturating_add_signed(more.uncompressed),
        }
    }

    /// As a gain.
    pub fn gain(self) -> SpaceChange {
        SpaceChange {
            used: difference(self.used, 0),
            compressed: difference(self.compressed, 0),
            uncompressed: difference(self.uncompressed, 0),
        }
    }
}

/// A bookmark's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BookmarkPhys {
    /// The snapshot's guid.
    pub guid: Guid,
    /// The group in which that was taken.
    pub creation_txg: Txg,
    /// When, in seconds since 1970.
    pub creation_time: u64,
    /// The list of what is left out of the snapshot, of a redaction bookmark.
    pub redaction: Option<ObjectId>,
    flags: u64,
    /// What the snapshot referenced; with [`has_freed`](Self::has_freed) only.
    pub referenced: BookmarkSpace,
    /// What of that was freed before the next snapshot, or until now where there is none; likewise.
    pub freed: BookmarkSpace,
    /// The initialization vectors of an encrypted data set (`zbm_ivset_guid`); zero of others.
    ivset_guid: u64,
}

impl BookmarkPhys {
    /// Of a snapshot, in the first form.
    pub fn of(phys: &DslDatasetPhys) -> Self {
        Self { guid: phys.guid, creation_txg: phys.creation_txg, creation_time: phys.creation_time, ..Self::default() }
    }

    /// A copy, which has no list of its own.
    pub fn without_list(self) -> Self {
        Self { redaction: None, ..self }
    }

    /// Whether it follows what was freed of its snapshot (feature `bookmark_written`).
    pub fn has_freed(&self) -> bool {
        self.flags & HAS_FREED != 0
    }

    /// Whether its snapshot exists, as far as one knows that follows what was freed.
    pub fn snapshot_exists(&self) -> bool {
        self.flags & SNAPSHOT_EXISTS != 0
    }

    /// It follows from now on what is freed of its snapshot, which exists.
    pub fn follow(&mut self, referenced: BookmarkSpace, freed: BookmarkSpace) {
        self.flags |= HAS_FREED | SNAPSHOT_EXISTS;
        (self.referenced, self.freed) = (referenced, freed);
    }

    /// Its snapshot was destroyed.
    pub fn outlive(&mut self) {
        self.flags &= !SNAPSHOT_EXISTS;
    }

    /// Whether it needs the second form (feature `bookmark_v2`).
    pub fn is_long(&self) -> bool {
        self.has_freed() || self.redaction.is_some() || self.ivset_guid != 0
    }

    /// The entry of the ZAP.
    pub fn encode(&self) -> ZapValue {
        let mut integers = vec![self.guid.0, self.creation_txg.0, self.creation_time];
        assert_eq!(integers.len(), NUMBERS, "the first form has three numbers");
        if self.is_long() {
            integers.extend([self.redaction.map_or(0, |list| list.0), self.flags]);
            integers.extend(self.referenced.numbers());
            integers.extend(self.freed.numbers());
            integers.push(self.ivset_guid);
            assert_eq!(integers.len(), NUMBERS_LONG, "the second form has twelve numbers");
        }
        ZapValue { integer_size: 8, integers }
    }

    /// What the entry says; `None` when it is of no known form.
    pub fn decode(value: &ZapValue) -> Option<Self> {
        let (NUMBERS | NUMBERS_LONG) = value.integers.len() else { return None };
        let mut numbers = [0; NUMBERS_LONG];
        numbers[..value.integers.len()].copy_from_slice(&value.integers);
        let [guid, txg, time, list, flags, ..] = numbers;
        Some(Self {
            guid: Guid(guid),
            creation_txg: Txg(txg),
            creation_time: time,
            redaction: Some(ObjectId(list)).filter(|list| list.is_some()),
            flags,
            referenced: BookmarkSpace::from_numbers(&numbers[5..8]),
            freed: BookmarkSpace::from_numbers(&numbers[8..11]),
            ivset_guid: numbers[11],
        })
    }
}

/// Whether an entry has the second form, whatever it says: what the pool's feature `bookmark_v2` counts.
pub fn is_long(value: &ZapValue) -> bool {
    value.integers.len() > NUMBERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_written() {
        let value = |integers: &[u64]| ZapValue { integer_size: 8, integers: integers.to_vec() };
        let short = value(&[7, 8, 9]);
        let long = value(&[7, 8, 9, 0, 3, 100, 200, 300, 1, 2, 3, 0]);
        for value in [&short, &long] {
            assert_eq!(BookmarkPhys::decode(value).expect("it is a bookmark").encode(), *value);
        }
        let mut phys = BookmarkPhys::decode(&long).expect("it is a bookmark");
        assert!(phys.has_freed() && phys.snapshot_exists() && is_long(&long) && !is_long(&short));
        assert_eq!(phys.freed.plus(phys.referenced.gain()).uncompressed, 303);
        phys.outlive();
        assert_eq!(phys.encode().integers[4], 1);
        for strange in [&[1][..], &[1, 2, 3, 4], &[0; 13]] {
            assert_eq!(BookmarkPhys::decode(&value(strange)), None);
        }
    }
}
