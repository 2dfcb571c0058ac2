//! `dsl_dataset_phys_t` (`include/sys/dsl_dataset.h`): a live dataset or a snapshot.
//!
//! Snapshots of one dataset form a list, from the head over `prev_snap_obj` to the origin `$ORIGIN@$ORIGIN`, and back
//! over
//! `next_snap_obj`. A live dataset has `num_children` 0 and a map of snapshot names.

use crate::blkptr::{BLKPTR_SIZE, BlkPtr};
use crate::error::Error;
use crate::ids::{Guid, ObjectId, Txg};
use crate::le::{put_words, words_at};

/// Size of `dsl_dataset_phys_t`, in bytes.
pub const DSL_DATASET_SIZE: usize = 320;

const BP_AT: usize = 16 * 8;
const TAIL_AT: usize = BP_AT + BLKPTR_SIZE;
const _: () = assert!(TAIL_AT + 3 * 8 + 5 * 8 == DSL_DATASET_SIZE);

/// `DS_FLAG_*`.
pub mod flags {
    /// A receive was cut off: what is here is neither the old nor the new state.
    pub const INCONSISTENT: u64 = 1 << 0;
    /// Must not be promoted (an old way to mark an unfinished receive).
    pub const NOPROMOTE: u64 = 1 << 1;
    /// `unique_bytes` is right.
    pub const UNIQUE_ACCURATE: u64 = 1 << 2;
    /// To be destroyed once the last hold or clone is gone.
    pub const DEFER_DESTROY: u64 = 1 << 3;
    /// File names match regardless of case.
    pub const CI_DATASET: u64 = 1 << 16;
}

/// `dsl_dataset_phys_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DslDatasetPhys {
    /// The directory (`DMU_OT_DSL_DIR`).
    pub dir_obj: ObjectId,
    /// The snapshot before this.
    pub prev_snap_obj: ObjectId,
    /// Group in which that snapshot was taken: blocks born later are not in it.
    pub prev_snap_txg: Txg,
    /// The snapshot (or live dataset) after this; none in a live dataset.
    pub next_snap_obj: ObjectId,
    /// Snapshots by name (ZAP); none in a snapshot.
    pub snapnames_zapobj: ObjectId,
    /// In a snapshot: the next snapshot or head, plus clones. 0 in a live dataset.
    pub num_children: u64,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// Group of creation.
    pub creation_txg: Txg,
    /// Blocks that the previous snapshot has and this has no more (`DMU_OT_DEADLIST`).
    pub deadlist_obj: ObjectId,
    /// Bytes reachable from here, shared ones included, deflated.
    pub referenced_bytes: u64,
    /// The same after compression.
    pub compressed_bytes: u64,
    /// The same before compression.
    pub uncompressed_bytes: u64,
    /// Bytes that only this holds.
    pub unique_bytes: u64,
    /// 56-bit identity that may change to stay unique in a system.
    pub fsid_guid: u64,
    /// Identity for ever.
    pub guid: Guid,
    /// [`flags`].
    pub flags: u64,
    /// The object set.
    pub bp: BlkPtr,
    /// Clones of this snapshot (ZAP); may be none.
    pub next_clones_obj: ObjectId,
    /// Properties of a snapshot (ZAP); may be none.
    pub props_obj: ObjectId,
    /// Holds (ZAP); may be none.
    pub userrefs_obj: ObjectId,
}

impl DslDatasetPhys {
    /// Decodes a bonus of at least 320 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("DSL dataset", bytes, DSL_DATASET_SIZE)?;
        let w: [u64; 16] = words_at(bytes, 0);
        let tail: [u64; 3] = words_at(bytes, TAIL_AT);
        Ok(Self {
            dir_obj: ObjectId(w[0]),
            prev_snap_obj: ObjectId(w[1]),
            prev_snap_txg: Txg(w[2]),
            next_snap_obj: ObjectId(w[3]),
            snapnames_zapobj: ObjectId(w[4]),
            num_children: w[5],
            creation_time: w[6],
            creation_txg: Txg(w[7]),
            deadlist_obj: ObjectId(w[8]),
            referenced_bytes: w[9],
            compressed_bytes: w[10],
            uncompressed_bytes: w[11],
            unique_bytes: w[12],
            fsid_guid: w[13],
            guid: Guid(w[14]),
            flags: w[15],
            bp: BlkPtr::decode(&bytes[BP_AT..]),
            next_clones_obj: ObjectId(tail[0]),
            props_obj: ObjectId(tail[1]),
            userrefs_obj: ObjectId(tail[2]),
        })
    }

    /// The bonus, 320 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; DSL_DATASET_SIZE];
        let words: [u64; 16] = [
            self.dir_obj.0,
            self.prev_snap_obj.0,
            self.prev_snap_txg.0,
            self.next_snap_obj.0,
            self.snapnames_zapobj.0,
            self.num_children,
            self.creation_time,
            self.creation_txg.0,
            self.deadlist_obj.0,
            self.referenced_bytes,
            self.compressed_bytes,
            self.uncompressed_bytes,
            self.unique_bytes,
            self.fsid_guid,
            self.guid.0,
            self.flags,
        ];
        put_words(&mut out, 0, &words);
        self.bp.encode(&mut out[BP_AT..]);
        put_words(&mut out, TAIL_AT, &[self.next_clones_obj.0, self.props_obj.0, self.userrefs_obj.0]);
        out
    }

    /// Whether this is a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.num_children != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_word_reads_back_at_its_place(head: [u64; 32], tail: [u64; 3]) {
            let mut bytes = vec![0; DSL_DATASET_SIZE];
            put_words(&mut bytes, 0, &head);
            put_words(&mut bytes, TAIL_AT, &tail);
            prop_assert_eq!(DslDatasetPhys::decode(&bytes).unwrap().encode(), bytes);
        }
    }

    #[test]
    fn a_short_bonus_is_refused() {
        assert!(DslDatasetPhys::decode(&[0; DSL_DATASET_SIZE - 1]).is_err());
    }
}
