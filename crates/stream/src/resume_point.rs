//! How far a receive gets with a stream: what its resume token would be.

use platter_nvlist::NvList;
use platter_ondisk::{Guid, ObjectId};

use crate::begin::Begin;
use crate::features::StreamFeatures;
use crate::record::Record;
use crate::token::ResumeToken;

/// The last record that a receive noted (`save_resume_state`, `module/zfs/dmu_recv.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    object: ObjectId,
    offset: u64,
    bytes: u64,
}

impl Default for ResumePoint {
    fn default() -> Self {
        Self { object: ObjectId(1), offset: 0, bytes: 0 }
    }
}

impl ResumePoint {
    /// A record was taken in, with which `bytes` of the stream end.
    pub fn note(&mut self, record: &Record, bytes: u64) {
        let place = match record {
            Record::Object(object) => (object.object, 0),
            Record::Write(write) => (write.object, write.offset),
            Record::WriteEmbedded(embedded) => (embedded.object, embedded.offset),
            _ => return,
        };
        *self = Self { object: place.0, offset: place.1, bytes };
    }

    /// The token, of a stream that begins so and has this list.
    pub fn token(&self, begin: &Begin, list: Option<&NvList>) -> ResumeToken {
        let has = |feature| begin.features.has(feature);
        let snaps = |name: &str| {
            let snaps = list?.get_u64_array(name)?;
            Some(snaps.iter().map(|&guid| Guid(guid)).collect())
        };
        ResumeToken {
            from_guid: Some(begin.from_guid).filter(|guid| guid.0 != 0),
            object: self.object,
            offset: self.offset,
            bytes: self.bytes,
            to_guid: begin.to_guid,
            to_name: begin.to_name.clone(),
            large_blocks: has(StreamFeatures::LARGE_BLOCKS),
            embedded: has(StreamFeatures::EMBED_DATA),
            compressed: has(StreamFeatures::COMPRESSED),
            raw: has(StreamFeatures::RAW),
            redacted: snaps("redact_snaps").filter(|_| has(StreamFeatures::REDACTED)),
            from_redacted: snaps("redact_from_snaps"),
        }
    }
}
