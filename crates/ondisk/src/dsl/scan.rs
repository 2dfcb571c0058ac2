//! Scrub and resilver state (`include/sys/dsl_scan.h`): an array of 64-bit numbers under the name `scan` in the pool
//! directory (and `error_scrub` for error scrubs). Being numbers of a ZAP they have no byte order of their own.

use crate::error::Error;
use crate::ids::{ObjectId, Txg};

/// Numbers in `dsl_scan_phys_t`.
pub const SCAN_PHYS_NUMINTS: usize = 24;

/// `pool_scan_func_t`.
pub mod func {
    /// No scan ever.
    pub const NONE: u64 = 0;
    /// A scrub.
    pub const SCRUB: u64 = 1;
    /// A resilver.
    pub const RESILVER: u64 = 2;
    /// A scrub of known errors only.
    pub const ERRORSCRUB: u64 = 3;
}

/// `dsl_scan_state_t`.
pub mod state {
    /// No scan ever.
    pub const NONE: u64 = 0;
    /// Under way.
    pub const SCANNING: u64 = 1;
    /// Ended.
    pub const FINISHED: u64 = 2;
    /// Stopped before its end.
    pub const CANCELED: u64 = 3;
    /// An error scrub is under way.
    pub const ERRORSCRUBBING: u64 = 4;
}

/// `dsl_scan_flags_t`.
pub mod flags {
    /// The dataset being visited has to be visited again.
    pub const VISIT_DS_AGAIN: u64 = 1 << 0;
    /// The scrub is paused.
    pub const SCRUB_PAUSED: u64 = 1 << 1;
    /// A thorough scrub.
    pub const SCRUB_THOROUGH: u64 = 1 << 2;
}

/// `zbookmark_phys_t`: a block's place in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bookmark {
    /// The dataset's object number; 0 is the MOS.
    pub objset: u64,
    /// The object.
    pub object: ObjectId,
    /// Level in the block tree; negative for heads and logs.
    pub level: i64,
    /// Block number at that level.
    pub blkid: u64,
}

impl Bookmark {
    pub(crate) fn from_words([objset, object, level, blkid]: [u64; 4]) -> Self {
        Self { objset, object: ObjectId(object), level: level as i64, blkid }
    }

    pub(crate) fn to_words(self) -> [u64; 4] {
        [self.objset, self.object.0, self.level as u64, self.blkid]
    }
}

/// `ddt_bookmark_t`: a place in the dedup tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DdtBookmark {
    /// `ddt_class_t`.
    pub class: u64,
    /// `ddt_type_t`.
    pub table_type: u64,
    /// `enum zio_checksum` of the table, in a word of its own.
    pub table_checksum: u64,
    /// Place in the table.
    pub cursor: u64,
}

/// `dsl_scan_phys_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPhys {
    /// [`func`].
    pub func: u64,
    /// [`state`].
    pub state: u64,
    /// Datasets still to be visited (ZAP).
    pub queue_obj: ObjectId,
    /// Blocks born up to this group are left out.
    pub min_txg: Txg,
    /// Blocks born after this group are left out.
    pub max_txg: Txg,
    /// The same for the dataset being visited.
    pub cur_min_txg: Txg,
    /// The same for the dataset being visited.
    pub cur_max_txg: Txg,
    /// Seconds since 1970.
    pub start_time: u64,
    /// Seconds since 1970; 0 while under way.
    pub end_time: u64,
    /// Bytes to look at in all.
    pub to_examine: u64,
    /// Bytes looked at.
    pub examined: u64,
    /// Bytes left out.
    pub skipped: u64,
    /// Bytes read (scrub) or repaired (resilver).
    pub processed: u64,
    /// Errors met.
    pub errors: u64,
    /// Dedup table classes up to this one are scanned on their own.
    pub ddt_class_max: u64,
    /// Place in the dedup tables.
    pub ddt_bookmark: DdtBookmark,
    /// Place in the datasets.
    pub bookmark: Bookmark,
    /// [`flags`].
    pub flags: u64,
}

impl ScanPhys {
    /// Decodes the array. A shorter one, of an earlier version, lacks the last numbers.
    pub fn decode(words: &[u64]) -> Result<Self, Error> {
        if words.is_empty() || words.len() > SCAN_PHYS_NUMINTS {
            return Err(Error::field("scan state", "length", words.len() as u64));
        }
        let mut w = [0; SCAN_PHYS_NUMINTS];
        w[..words.len()].copy_from_slice(words);
        Ok(Self {
            func: w[0],
            state: w[1],
            queue_obj: ObjectId(w[2]),
            min_txg: Txg(w[3]),
            max_txg: Txg(w[4]),
            cur_min_txg: Txg(w[5]),
            cur_max_txg: Txg(w[6]),
            start_time: w[7],
            end_time: w[8],
            to_examine: w[9],
            examined: w[10],
            skipped: w[11],
            processed: w[12],
            errors: w[13],
            ddt_class_max: w[14],
            ddt_bookmark: DdtBookmark { class: w[15], table_type: w[16], table_checksum: w[17], cursor: w[18] },
            bookmark: Bookmark::from_words([w[19], w[20], w[21], w[22]]),
            flags: w[23],
        })
    }

    /// The array.
    pub fn encode(&self) -> [u64; SCAN_PHYS_NUMINTS] {
        let [objset, object, level, blkid] = self.bookmark.to_words();
        [
            self.func,
            self.state,
            self.queue_obj.0,
            self.min_txg.0,
            self.max_txg.0,
            self.cur_min_txg.0,
            self.cur_max_txg.0,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.skipped,
            self.processed,
            self.errors,
            self.ddt_class_max,
            self.ddt_bookmark.class,
            self.ddt_bookmark.table_type,
            self.ddt_bookmark.table_checksum,
            self.ddt_bookmark.cursor,
            objset,
            object,
            level,
            blkid,
            self.flags,
        ]
    }
}

/// `dsl_errorscrub_phys_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorScrubPhys {
    /// [`func`].
    pub func: u64,
    /// [`state`].
    pub state: u64,
    /// Place in the error log, a serialized ZAP cursor.
    pub cursor: u64,
    /// Seconds since 1970.
    pub start_time: u64,
    /// Seconds since 1970; 0 while under way.
    pub end_time: u64,
    /// Blocks to look at in all.
    pub to_examine: u64,
    /// Blocks looked at.
    pub examined: u64,
    /// Errors met.
    pub errors: u64,
    /// Not 0 while paused.
    pub paused_flags: u64,
}

impl ErrorScrubPhys {
    /// Decodes the array of nine numbers.
    pub fn decode(words: &[u64]) -> Result<Self, Error> {
        let &[func, state, cursor, start_time, end_time, to_examine, examined, errors, paused_flags] = words else {
            return Err(Error::field("error scrub state", "length", words.len() as u64));
        };
        Ok(Self { func, state, cursor, start_time, end_time, to_examine, examined, errors, paused_flags })
    }

    /// The array.
    pub fn encode(&self) -> [u64; 9] {
        [
            self.func,
            self.state,
            self.cursor,
            self.start_time,
            self.end_time,
            self.to_examine,
            self.examined,
            self.errors,
            self.paused_flags,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_reads_back(scan: [u64; SCAN_PHYS_NUMINTS], errors: [u64; 9]) {
            prop_assert_eq!(ScanPhys::decode(&scan).unwrap().encode(), scan);
            prop_assert_eq!(ErrorScrubPhys::decode(&errors).unwrap().encode(), errors);
        }
    }

    #[test]
    fn a_wrong_length_is_refused() {
        assert!(ScanPhys::decode(&[]).is_err() && ScanPhys::decode(&[0; 25]).is_err());
        assert!(ErrorScrubPhys::decode(&[0; 8]).is_err());
        assert!(ScanPhys::decode(&[1; 23]).is_ok());
    }
}
