//! Records from bytes, checked (`recv_check_drr_*`, `module/zfs/dmu_recv.c`): what is returned has numbers that can be
//! computed with, types that are known, and a payload of one block at most.

use platter_nvlist::Endian;
use platter_ondisk::blkptr::{BLOCK_SIZE_MAX, EMBEDDED_PAYLOAD_MAX};
use platter_ondisk::dnode::{DNODES_PER_BLOCK, MAX_OBJECT, MAX_SLOTS, bonus_capacity};
use platter_ondisk::sector::SECTOR;
use platter_ondisk::{Checksum, Compression, Guid, ObjectId, ObjectType, ObjsetType};

use crate::begin::{Begin, HeaderKind, LIST_MAX, NAME_SIZE};
use crate::error::StreamError;
use crate::features::StreamFeatures;
use crate::fields::Fields;
use crate::record::{
    Embedded, Free, FreeObjects, MAGIC, OBJECT_END, ObjectRecord, RECORD_SIZE, Record, Spill, Write, kind, object_flags,
};

type Result<T> = std::result::Result<T, StreamError>;

/// Largest block of a stream without [`StreamFeatures::LARGE_BLOCKS`] (`SPA_OLD_MAXBLOCKSIZE`).
const OLD_BLOCK_SIZE_MAX: u64 = 128 << 10;
/// `drr_type` values that an object set can have, but one (`DMU_OST_NUMTYPES`).
const OBJSET_TYPES: u32 = 6;

fn refuse<T>(what: impl Into<String>) -> Result<T> {
    StreamError::malformed(what)
}

/// The byte order in which `bytes`, a BEGIN record, was written.
pub(crate) fn order_of(bytes: &[u8; RECORD_SIZE]) -> Result<Endian> {
    [Endian::Little, Endian::Big]
        .into_iter()
        .find(|&order| Fields { bytes, order }.u64(0) == MAGIC)
        .ok_or(StreamError::BadMagic)
}

/// A BEGIN record.
pub(crate) fn begin(fields: &Fields<'_>) -> Result<Begin> {
    if fields.u32_of_record(0) != kind::BEGIN || fields.u64(0) != MAGIC {
        return Err(StreamError::BadMagic);
    }
    let list_length = fields.u32_of_record(4);
    if list_length > LIST_MAX {
        return refuse(format!("a list of {list_length} bytes"));
    }
    if !list_length.is_multiple_of(4) {
        return refuse(format!("a list of {list_length} bytes, which are no whole words"));
    }
    let version = fields.u64(8);
    let kind = match version & 3 {
        1 => HeaderKind::Substream,
        2 => HeaderKind::Compound,
        other => return refuse(format!("header type {other}")),
    };
    let objset_type = fields.u32(24);
    if objset_type >= OBJSET_TYPES {
        return refuse(format!("object set type {objset_type}"));
    }
    let name = fields.bytes(48, NAME_SIZE);
    let Some(end) = name.iter().position(|&byte| byte == 0) else { return refuse("a name without end") };
    Ok(Begin {
        kind,
        features: StreamFeatures(version >> 2 & ((1 << 56) - 1)),
        creation_time: fields.u64(16),
        objset_type: ObjsetType::from_number(objset_type.into()),
        flags: fields.u32(28),
        to_guid: Guid(fields.u64(32)),
        from_guid: Guid(fields.u64(40)),
        to_name: String::from_utf8_lossy(&name[..end]).into_owned(),
        list_length,
    })
}

/// A record after BEGIN, of a stream with these features.
pub(crate) fn record(fields: &Fields<'_>, features: StreamFeatures) -> Result<Record> {
    match fields.u32_of_record(0) {
        kind::BEGIN => refuse("it begins again"),
        kind::OBJECT => object(fields, features).map(Record::Object),
        kind::FREE_OBJECTS => free_objects(fields).map(Record::FreeObjects),
        kind::WRITE => write(fields, features).map(Record::Write),
        kind::FREE => free(fields).map(Record::Free),
        kind::END => Ok(Record::End(fields.words(0))),
        kind::WRITE_BY_REFERENCE => {
            Err(StreamError::Unsupported("stream is deduplicated; 'zstream redup' makes it a plain one".into()))
        }
        kind::SPILL => spill(fields).map(Record::Spill),
        kind::WRITE_EMBEDDED => embedded(fields, features).map(Record::WriteEmbedded),
        kind::OBJECT_RANGE => Err(StreamError::Unsupported("stream is encrypted (raw)".into())),
        kind::REDACT if features.has(StreamFeatures::REDACTED) => free(fields).map(Record::Redact),
        kind::REDACT => refuse("something is left out of a stream that is whole"),
        other => refuse(format!("record type {other}")),
    }
}

/// A 32-bit object type.
fn object_type(number: u32) -> Result<ObjectType> {
    let found = u8::try_from(number).ok().map(ObjectType::from_number).filter(|found| found.is_valid());
    found.map_or_else(|| refuse(format!("object type {number}")), Ok)
}

fn object_number(number: u64) -> Result<ObjectId> {
    if number == 0 || number >= MAX_OBJECT {
        return refuse(format!("object {number}"));
    }
    Ok(ObjectId(number))
}

fn block_size(size: u64, features: StreamFeatures) -> Result<()> {
    let most = if features.has(StreamFeatures::LARGE_BLOCKS) { BLOCK_SIZE_MAX } else { OLD_BLOCK_SIZE_MAX };
    if size < SECTOR || size > most || !size.is_multiple_of(SECTOR) {
        return refuse(format!("a block of {size} bytes"));
    }
    Ok(())
}

fn object(fields: &Fields<'_>, features: StreamFeatures) -> Result<ObjectRecord> {
    let record = ObjectRecord {
        object: object_number(fields.u64(0))?,
        object_type: object_type(fields.u32(8))?,
        bonus_type: object_type(fields.u32(12))?,
        block_size: fields.u32(16),
        bonus_length: fields.u32(20),
        checksum: Checksum::from_number(fields.u8(24)),
        compression: Compression::from_number(fields.u8(25)),
        slots: fields.u8(26),
        flags: fields.u8(27),
        to_guid: Guid(fields.u64(32)),
    };
    block_size(record.block_size.into(), features)?;
    let slots = record.dnode_slots();
    let within = record.object.0 % DNODES_PER_BLOCK as u64;
    if slots > MAX_SLOTS || within + slots as u64 > DNODES_PER_BLOCK as u64 {
        return refuse(format!("object {} with a dnode of {slots} slots", record.object));
    }
    if slots > 1 && !features.has(StreamFeatures::LARGE_DNODE) {
        return refuse(format!("object {}: a large dnode in a stream without them", record.object));
    }
    let has_bonus = record.bonus_type != ObjectType::NONE;
    if record.object_type == ObjectType::NONE || has_bonus != (record.bonus_length > 0) {
        return refuse(format!("object {} of type {}", record.object, record.object_type));
    }
    let has_spill = record.flags & object_flags::SPILL != 0;
    if record.bonus_length as usize > bonus_capacity(slots, 1, has_spill) || fields.u32(28) != 0 {
        return refuse(format!("object {}: a bonus of {} bytes", record.object, record.bonus_length));
    }
    if record.flags & !object_flags::SPILL != 0 {
        return refuse(format!("object {}: flags {:#x}", record.object, record.flags));
    }
    Ok(record)
}

fn free_objects(fields: &Fields<'_>) -> Result<FreeObjects> {
    let record = FreeObjects { first: fields.u64(0), count: fields.u64(8), to_guid: Guid(fields.u64(16)) };
    match record.first.checked_add(record.count) {
        Some(_) => Ok(record),
        None => refuse(format!("{} objects from {}", record.count, record.first)),
    }
}

fn write(fields: &Fields<'_>, features: StreamFeatures) -> Result<Write> {
    let record = Write {
        object: object_number(fields.u64(0))?,
        object_type: object_type(fields.u32(8))?,
        offset: fields.u64(16),
        logical_size: fields.u64(24),
        to_guid: Guid(fields.u64(32)),
        checksum_type: Checksum::from_number(fields.u8(40)),
        flags: fields.u8(41),
        compression: Compression::from_number(fields.u8(42)),
        key: (fields.words(48), fields.u64(80)),
        compressed_size: fields.u64(88),
    };
    let name = format!("object {}: a block of {} bytes", record.object, record.logical_size);
    block_size(record.logical_size, features)?;
    if record.offset.checked_add(record.logical_size).is_none() {
        return refuse(format!("{name} at {}", record.offset));
    }
    if record.is_compressed() {
        if !features.has(StreamFeatures::COMPRESSED) || !platter_compress::is_supported(record.compression) {
            return refuse(format!("{name}, compressed with {}", record.compression));
        }
        if record.compressed_size == 0
            || record.compressed_size > record.logical_size
            || !record.compressed_size.is_multiple_of(8)
        {
            return refuse(format!("{name}, compressed to {}", record.compressed_size));
        }
    }
    Ok(record)
}

fn free(fields: &Fields<'_>) -> Result<Free> {
    let record = Free {
        object: object_number(fields.u64(0))?,
        offset: fields.u64(8),
        length: fields.u64(16),
        to_guid: Guid(fields.u64(24)),
    };
    if record.length != OBJECT_END && record.offset.checked_add(record.length).is_none() {
        return refuse(format!("object {}: {} bytes from {}", record.object, record.length, record.offset));
    }
    Ok(record)
}

fn spill(fields: &Fields<'_>) -> Result<Spill> {
    let record = Spill {
        object: object_number(fields.u64(0))?,
        length: fields.u64(8),
        to_guid: Guid(fields.u64(16)),
        flags: fields.u8(24),
    };
    // Spill blocks are never large.
    block_size(record.length, StreamFeatures::default())?;
    if fields.u8(25) != 0 || fields.u64(32) != 0 {
        return refuse(format!("object {}: a compressed spill block", record.object));
    }
    Ok(record)
}

fn embedded(fields: &Fields<'_>, features: StreamFeatures) -> Result<Embedded> {
    let record = Embedded {
        object: object_number(fields.u64(0))?,
        offset: fields.u64(8),
        length: fields.u64(16),
        to_guid: Guid(fields.u64(24)),
        compression: Compression::from_number(fields.u8(32)),
        kind: fields.u8(33),
        logical_size: fields.u32(40),
        payload_size: fields.u32(44),
    };
    let name = format!("object {}: an embedded block of {} bytes", record.object, record.logical_size);
    if !features.has(StreamFeatures::EMBED_DATA) || record.kind != 0 {
        return refuse(format!("{name}, of kind {}", record.kind));
    }
    block_size(record.length, features)?;
    if record.offset.checked_add(record.length).is_none() {
        return refuse(format!("{name} at {}", record.offset));
    }
    if record.payload_size == 0
        || record.payload_size as usize > EMBEDDED_PAYLOAD_MAX
        || u64::from(record.logical_size) > record.length
        || record.logical_size < record.payload_size
    {
        return refuse(format!("{name}, {} there", record.payload_size));
    }
    if !platter_compress::is_supported(record.compression) {
        return refuse(format!("{name}, compressed with {}", record.compression));
    }
    Ok(record)
}
