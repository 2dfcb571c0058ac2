//! `dsl_dir_phys_t` (`include/sys/dsl_dir.h`): a node of the dataset tree, with the space that it and all below it use.

use crate::error::Error;
use crate::ids::ObjectId;
use crate::le::{put_words, words_at};

/// Size of `dsl_dir_phys_t`, in bytes.
pub const DSL_DIR_SIZE: usize = 256;
/// `used_breakdown` is kept.
pub const DD_FLAG_USED_BREAKDOWN: u64 = 1 << 0;

/// Words in use; the rest of the 256 bytes is zero.
const WORDS: usize = 19;
const _: () = assert!(WORDS * 8 + 13 * 8 == DSL_DIR_SIZE);

/// What `used_bytes` is made of, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedBreakdown {
    /// The head dataset's own.
    pub head: u64,
    /// Only in snapshots.
    pub snapshots: u64,
    /// Used by children.
    pub children: u64,
    /// Reserved for children beyond what they use.
    pub child_reservations: u64,
    /// Reserved for the head dataset beyond what it uses (`refreservation`).
    pub refreservation: u64,
}

/// `dsl_dir_phys_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DslDirPhys {
    /// Seconds since 1970; not used.
    pub creation_time: u64,
    /// The live dataset (`DMU_OT_DSL_DATASET`).
    pub head_dataset_obj: ObjectId,
    /// The parent (`DMU_OT_DSL_DIR`); none at the root.
    pub parent_obj: ObjectId,
    /// The snapshot this was cloned from; none if it was not.
    pub origin_obj: ObjectId,
    /// Children by name (ZAP).
    pub child_dir_zapobj: ObjectId,
    /// Space of this and everything below, in bytes, deflated.
    pub used_bytes: u64,
    /// Space after compression, in bytes.
    pub compressed_bytes: u64,
    /// Space before compression, in bytes.
    pub uncompressed_bytes: u64,
    /// Limit of `used_bytes`; 0 for none.
    pub quota: u64,
    /// Guaranteed bytes.
    pub reserved: u64,
    /// Properties set here (ZAP).
    pub props_zapobj: ObjectId,
    /// Delegated permissions (ZAP); may be none.
    pub deleg_zapobj: ObjectId,
    /// `DD_FLAG_*`.
    pub flags: u64,
    /// What `used_bytes` is made of.
    pub used_breakdown: UsedBreakdown,
    /// Clones of this directory's snapshots, by object (ZAP); may be none.
    pub clones: ObjectId,
}

impl DslDirPhys {
    /// Decodes a bonus of at least 256 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("DSL directory", bytes, DSL_DIR_SIZE)?;
        let w: [u64; WORDS] = words_at(bytes, 0);
        Ok(Self {
            creation_time: w[0],
            head_dataset_obj: ObjectId(w[1]),
            parent_obj: ObjectId(w[2]),
            origin_obj: ObjectId(w[3]),
            child_dir_zapobj: ObjectId(w[4]),
            used_bytes: w[5],
            compressed_bytes: w[6],
            uncompressed_bytes: w[7],
            quota: w[8],
            reserved: w[9],
            props_zapobj: ObjectId(w[10]),
            deleg_zapobj: ObjectId(w[11]),
            flags: w[12],
            used_breakdown: UsedBreakdown {
                head: w[13],
                snapshots: w[14],
                children: w[15],
                child_reservations: w[16],
                refreservation: w[17],
            },
            clones: ObjectId(w[18]),
        })
    }

    /// The bonus, 256 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let used = self.used_breakdown;
        let mut out = vec![0; DSL_DIR_SIZE];
        let words: [u64; WORDS] = [
            self.creation_time,
            self.head_dataset_obj.0,
            self.parent_obj.0,
            self.origin_obj.0,
            self.child_dir_zapobj.0,
            self.used_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.quota,
            self.reserved,
            self.props_zapobj.0,
            self.deleg_zapobj.0,
            self.flags,
            used.head,
            used.snapshots,
            used.children,
            used.child_reservations,
            used.refreservation,
            self.clones.0,
        ];
        put_words(&mut out, 0, &words);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_word_reads_back_at_its_place(words: [u64; WORDS]) {
            let mut bytes = vec![0; DSL_DIR_SIZE];
            put_words(&mut bytes, 0, &words);
            prop_assert_eq!(DslDirPhys::decode(&bytes).unwrap().encode(), bytes);
        }
    }

    #[test]
    fn a_short_bonus_is_refused() {
        assert!(DslDirPhys::decode(&[0; DSL_DIR_SIZE - 1]).is_err());
    }
}
