//! Records to bytes.

use platter_nvlist::Endian;
use platter_ondisk::Guid;

use crate::begin::{Begin, HeaderKind, NAME_SIZE};
use crate::fields::FieldsMut;
use crate::record::{Embedded, Free, MAGIC, ObjectRecord, RECORD_SIZE, Record, Spill, Write, kind};

/// The record, all zeros where the running checksum goes. `stream` is the guid for the END record.
pub(crate) fn encode(record: &Record, stream: Guid, order: Endian) -> [u8; RECORD_SIZE] {
    let mut bytes = [0; RECORD_SIZE];
    let mut fields = FieldsMut { bytes: &mut bytes, order };
    let number = match record {
        Record::Begin(begin) => {
            fields.u32_of_record(4, begin.list_length);
            encode_begin(begin, &mut fields);
            kind::BEGIN
        }
        Record::Object(object) => encode_object(object, &mut fields),
        Record::FreeObjects(free) => {
            for (at, value) in [(0, free.first), (8, free.count), (16, free.to_guid.0)] {
                fields.u64(at, value);
            }
            kind::FREE_OBJECTS
        }
        Record::Write(write) => encode_write(write, &mut fields),
        Record::Free(free) => encode_free(free, kind::FREE, &mut fields),
        Record::Redact(free) => encode_free(free, kind::REDACT, &mut fields),
        Record::Spill(spill) => encode_spill(spill, &mut fields),
        Record::WriteEmbedded(embedded) => encode_embedded(embedded, &mut fields),
        Record::End(sum) => {
            fields.words(0, *sum);
            fields.u64(32, stream.0);
            kind::END
        }
    };
    fields.u32_of_record(0, number);
    bytes
}

fn encode_begin(begin: &Begin, fields: &mut FieldsMut<'_>) {
    let header: u64 = match begin.kind {
        HeaderKind::Substream => 1,
        HeaderKind::Compound => 2,
    };
    fields.u64(0, MAGIC);
    fields.u64(8, header | begin.features.0 << 2);
    fields.u64(16, begin.creation_time);
    fields.u32(24, begin.objset_type.number() as u32);
    fields.u32(28, begin.flags);
    fields.u64(32, begin.to_guid.0);
    fields.u64(40, begin.from_guid.0);
    let name = begin.to_name.as_bytes();
    fields.put(48, &name[..name.len().min(NAME_SIZE - 1)]);
}

fn encode_free(free: &Free, kind: u32, fields: &mut FieldsMut<'_>) -> u32 {
    for (at, value) in [(0, free.object.0), (8, free.offset), (16, free.length), (24, free.to_guid.0)] {
        fields.u64(at, value);
    }
    kind
}

fn encode_object(object: &ObjectRecord, fields: &mut FieldsMut<'_>) -> u32 {
    fields.u64(0, object.object.0);
    fields.u32(8, object.object_type.number().into());
    fields.u32(12, object.bonus_type.number().into());
    fields.u32(16, object.block_size);
    fields.u32(20, object.bonus_length);
    fields.put(24, &[object.checksum.number(), object.compression.number(), object.slots, object.flags]);
    fields.u64(32, object.to_guid.0);
    kind::OBJECT
}

fn encode_write(write: &Write, fields: &mut FieldsMut<'_>) -> u32 {
    fields.u64(0, write.object.0);
    fields.u32(8, write.object_type.number().into());
    fields.u64(16, write.offset);
    fields.u64(24, write.logical_size);
    fields.u64(32, write.to_guid.0);
    fields.put(40, &[write.checksum_type.number(), write.flags, write.compression.number()]);
    fields.words(48, write.key.0);
    fields.u64(80, write.key.1);
    fields.u64(88, write.compressed_size);
    kind::WRITE
}

fn encode_spill(spill: &Spill, fields: &mut FieldsMut<'_>) -> u32 {
    fields.u64(0, spill.object.0);
    fields.u64(8, spill.length);
    fields.u64(16, spill.to_guid.0);
    fields.u8(24, spill.flags);
    kind::SPILL
}

fn encode_embedded(embedded: &Embedded, fields: &mut FieldsMut<'_>) -> u32 {
    fields.u64(0, embedded.object.0);
    fields.u64(8, embedded.offset);
    fields.u64(16, embedded.length);
    fields.u64(24, embedded.to_guid.0);
    fields.put(32, &[embedded.compression.number(), embedded.kind]);
    fields.u32(40, embedded.logical_size);
    fields.u32(44, embedded.payload_size);
    kind::WRITE_EMBEDDED
}
