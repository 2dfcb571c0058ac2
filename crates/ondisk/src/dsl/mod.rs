//! The structures of the dataset and snapshot layer (DSL): bonus buffers and arrays of 64-bit words in the MOS.
//!
//! All are little-endian words at fixed places. A bonus may be longer than its structure (a later version's) and, where
//! said so, shorter (an earlier one's).

mod bpobj;
mod dataset;
mod dir;
mod permissions;
mod scan;

pub use bpobj::{
    BPOBJ_SIZE, BPOBJ_SIZE_V0, BPOBJ_SIZE_V1, BPOBJ_SIZE_V2, BPTREE_ENTRY_SIZE, BPTREE_SIZE, BpobjPhys,
    BptreeEntryPhys, BptreePhys, DEADLIST_SIZE, DeadlistPhys,
};
pub use dataset::{DSL_DATASET_SIZE, DslDatasetPhys, flags as dataset_flags};
pub use dir::{DD_FLAG_USED_BREAKDOWN, DSL_DIR_SIZE, DslDirPhys, UsedBreakdown};
pub use permissions::{DELEGATION_NAME_MAX, Grantee, PermissionKey, Reach, is_permission_set};
pub use scan::{
    Bookmark, DdtBookmark, ErrorScrubPhys, SCAN_PHYS_NUMINTS, ScanPhys, flags as scan_flags, func as scan_func,
    state as scan_state,
};
