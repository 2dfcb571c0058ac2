//! The records of a stream (`struct dmu_replay_record`).

use platter_ondisk::{Checksum, Compression, Guid, ObjectId, ObjectType};

use crate::begin::Begin;

/// Size of a record without its payload, in bytes.
pub const RECORD_SIZE: usize = 312;
/// `DMU_OBJECT_END`: a length that means "to the end".
pub const OBJECT_END: u64 = u64::MAX;

/// `drr_flags` of an OBJECT record.
pub mod object_flags {
    /// It has a spill block.
    pub const SPILL: u8 = 1 << 2;
}

/// `drr_flags` of a SPILL record.
pub mod spill_flags {
    /// It is in the stream for old software only: who understands the flag has it already.
    pub const UNMODIFIED: u8 = 1 << 2;
}

/// A record. Each but [`Record::Begin`] also has the guid of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first.
    Begin(Begin),
    /// An object's dnode; its bonus follows.
    Object(ObjectRecord),
    /// Objects that are not there.
    FreeObjects(FreeObjects),
    /// A block; its contents follow.
    Write(Write),
    /// Bytes that are zero.
    Free(Free),
    /// A spill block, which follows.
    Spill(Spill),
    /// Bytes that are left out on purpose.
    Redact(Free),
    /// A block that was in its pointer; what was there follows.
    WriteEmbedded(Embedded),
    /// The last; the checksum of all before it.
    End([u64; 4]),
}

/// `struct drr_object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Its number.
    pub object: ObjectId,
    /// What its blocks hold.
    pub object_type: ObjectType,
    /// What its bonus holds.
    pub bonus_type: ObjectType,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of the bonus. As much follows, rounded up to eight.
    pub bonus_length: u32,
    /// `dn_checksum`, which nobody reads.
    pub checksum: Checksum,
    /// `dn_compress`, likewise.
    pub compression: Compression,
    /// Dnode size in units of 512 bytes; 0, from old software, means 1.
    pub slots: u8,
    /// [`object_flags`].
    pub flags: u8,
    /// The stream.
    pub to_guid: Guid,
}

impl ObjectRecord {
    /// Dnode size in units of 512 bytes.
    pub fn dnode_slots(&self) -> usize {
        usize::from(self.slots).max(1)
    }
}

/// `struct drr_freeobjects`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeObjects {
    /// The first number.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The stream.
    pub to_guid: Guid,
}

/// `struct drr_free`, and `struct drr_redact`, which is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// The object.
    pub object: ObjectId,
    /// The first byte.
    pub offset: u64,
    /// How many, or [`OBJECT_END`].
    pub length: u64,
    /// The stream.
    pub to_guid: Guid,
}

/// `struct drr_write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The object.
    pub object: ObjectId,
    /// What the block holds.
    pub object_type: ObjectType,
    /// Its first byte in the object.
    pub offset: u64,
    /// Its bytes, expanded.
    pub logical_size: u64,
    /// The stream.
    pub to_guid: Guid,
    /// The pool's checksum of the block: which (`drr_checksumtype`), and whether it identifies the block.
    pub checksum_type: Checksum,
    /// `drr_flags`.
    pub flags: u8,
    /// How the payload is compressed; [`Compression::from_number`]`(0)` when it is not.
    pub compression: Compression,
    /// `drr_key`: the checksum's words, and the block's sizes.
    pub key: ([u64; 4], u64),
    /// Bytes of the payload when it is compressed, else 0.
    pub compressed_size: u64,
}

impl Write {
    /// Whether the payload is compressed.
    pub fn is_compressed(&self) -> bool {
        self.compression.number() != 0
    }

    /// Bytes that follow.
    pub fn payload_size(&self) -> u64 {
        if self.is_compressed() { self.compressed_size } else { self.logical_size }
    }
}

/// `struct drr_spill`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spill {
    /// The object.
    pub object: ObjectId,
    /// Its bytes, expanded.
    pub length: u64,
    /// The stream.
    pub to_guid: Guid,
    /// [`spill_flags`].
    pub flags: u8,
}

/// `struct drr_write_embedded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// The object.
    pub object: ObjectId,
    /// The block's first byte in it.
    pub offset: u64,
    /// The block's bytes.
    pub length: u64,
    /// The stream.
    pub to_guid: Guid,
    /// How the payload is compressed.
    pub compression: Compression,
    /// `bp_embedded_type_t`.
    pub kind: u8,
    /// Bytes of the payload, expanded.
    pub logical_size: u32,
    /// Bytes of the payload. As much follows, rounded up to eight.
    pub payload_size: u32,
}

/// Numbers of the kinds (`drr_type`).
pub(crate) mod kind {
    pub(crate) const BEGIN: u32 = 0;
    pub(crate) const OBJECT: u32 = 1;
    pub(crate) const FREE_OBJECTS: u32 = 2;
    pub(crate) const WRITE: u32 = 3;
    pub(crate) const FREE: u32 = 4;
    pub(crate) const END: u32 = 5;
    pub(crate) const WRITE_BY_REFERENCE: u32 = 6;
    pub(crate) const SPILL: u32 = 7;
    pub(crate) const WRITE_EMBEDDED: u32 = 8;
    pub(crate) const OBJECT_RANGE: u32 = 9;
    pub(crate) const REDACT: u32 = 10;
}

/// Where a record other than BEGIN has the checksum of all before it, in bytes of the record.
pub(crate) const SUM_AT: usize = RECORD_SIZE - 32;
/// `DMU_BACKUP_MAGIC`.
pub(crate) const MAGIC: u64 = 0x2_f5ba_cbac;

impl Record {
    /// Bytes that follow the record.
    pub fn payload_length(&self) -> u64 {
        match self {
            Self::Begin(begin) => begin.list_length.into(),
            Self::Object(object) => u64::from(object.bonus_length).next_multiple_of(8),
            Self::Write(write) => write.payload_size(),
            Self::Spill(spill) => spill.length,
            Self::WriteEmbedded(embedded) => u64::from(embedded.payload_size).next_multiple_of(8),
            Self::FreeObjects(_) | Self::Free(_) | Self::Redact(_) | Self::End(_) => 0,
        }
    }
}
