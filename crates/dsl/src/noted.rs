//! How far a receive has come, as its transactions note it (`ds_resume_object`, `include/sys/dsl_dataset.h`).

use std::collections::BTreeMap;

use platter_ondisk::{ObjectId, Txg};

/// The last record that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// Its object.
    pub object: ObjectId,
    /// Its first byte there.
    pub offset: u64,
    /// Bytes of the stream up to its end.
    pub bytes: u64,
}

/// Points noted by groups that are not synced yet.
pub type Noted = BTreeMap<Txg, ResumePoint>;
