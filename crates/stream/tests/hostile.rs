//! Streams as anybody may send them: cut anywhere, with flipped bits, with checksums mended over damage, out of order.
//! Whatever comes, the parser answers with a record or an error, never asks for more than one block, and never takes
//! one record for another.

use platter_nvlist::Endian;
use platter_ondisk::{Checksum, Compression, Guid, ObjectId, ObjectType, ObjsetType};
use platter_stream::{
    Begin, Embedded, Framer, Free, FreeObjects, HeaderKind, OBJECT_END, ObjectRecord, Parser, RECORD_SIZE, Record,
    Spill, StreamError, StreamFeatures, Write,
};
use proptest::prelude::*;

const STREAM: Guid = Guid(0x1234_5678_9abc_def0);

fn begin(features: StreamFeatures, list_length: u32) -> Record {
    Record::Begin(Begin {
        kind: HeaderKind::Substream,
        features,
        creation_time: 1_700_000_000,
        objset_type: ObjsetType::ZFS,
        flags: 12,
        to_guid: STREAM,
        from_guid: Guid(7),
        to_name: "tank/a@b".into(),
        list_length,
    })
}

fn all_features() -> StreamFeatures {
    StreamFeatures::KNOWN
}

fn object(object: u64) -> Record {
    Record::Object(ObjectRecord {
        object: ObjectId(object),
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        bonus_type: ObjectType::SA,
        block_size: 131_072,
        bonus_length: 168,
        checksum: Checksum::INHERIT,
        compression: Compression::INHERIT,
        slots: 1,
        flags: 0,
        to_guid: STREAM,
    })
}

fn write(object: u64, size: u64) -> Record {
    Record::Write(Write {
        object: ObjectId(object),
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        offset: 1 << 20,
        logical_size: size,
        to_guid: STREAM,
        checksum_type: Checksum::FLETCHER_4,
        flags: 0,
        compression: Compression::INHERIT,
        key: ([1, 2, 3, 4], 5),
        compressed_size: 0,
    })
}

fn compressed(object: u64) -> Record {
    let Record::Write(write) = write(object, 131_072) else { panic!() };
    Record::Write(Write { compression: Compression::LZ4, compressed_size: 512, ..write })
}

fn records() -> Vec<Record> {
    vec![
        begin(all_features(), 64),
        Record::FreeObjects(FreeObjects { first: 0, count: 2, to_guid: STREAM }),
        object(128),
        Record::Free(Free { object: ObjectId(128), offset: 131_072, length: OBJECT_END, to_guid: STREAM }),
        write(128, 4096),
        compressed(128),
        Record::Spill(Spill { object: ObjectId(128), length: 1024, to_guid: STREAM, flags: 0 }),
        Record::WriteEmbedded(Embedded {
            object: ObjectId(129),
            offset: 0,
            length: 512,
            to_guid: STREAM,
            compression: Compression::LZ4,
            kind: 0,
            logical_size: 512,
            payload_size: 33,
        }),
    ]
}

/// A stream of these records, with payloads that differ.
fn stream(records: &[Record], order: Endian) -> Vec<u8> {
    let (mut framer, mut bytes) = (Framer::in_order(STREAM, order), Vec::new());
    for record in records {
        let payload: Vec<u8> = (0..record.payload_length()).map(|at| (at * 7 % 251) as u8).collect();
        bytes.extend_from_slice(&framer.frame(record, &payload));
        bytes.extend_from_slice(&payload);
    }
    bytes.extend_from_slice(&framer.end());
    bytes
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Whole(Vec<Record>),
    Cut,
    Refused(StreamError),
}

/// What comes of these bytes.
fn parse(bytes: &[u8]) -> Outcome {
    let Some(first) = bytes.first_chunk::<RECORD_SIZE>() else { return Outcome::Cut };
    let (mut parser, begin) = match Parser::begin(first) {
        Ok(begun) => begun,
        Err(error) => return Outcome::Refused(error),
    };
    let mut at = RECORD_SIZE;
    let list = begin.list_length as usize;
    let mut found = vec![Record::Begin(begin)];
    if list > 0 {
        let Some(payload) = bytes.get(at..at + list) else { return Outcome::Cut };
        parser.payload(payload).unwrap();
        at += list;
    }
    loop {
        let Some(next) = bytes[at..].first_chunk::<RECORD_SIZE>() else { return Outcome::Cut };
        let header = match parser.header(next) {
            Ok(header) => header,
            Err(error) => return Outcome::Refused(error),
        };
        at += RECORD_SIZE;
        assert!(header.payload <= 16 << 20, "{header:?}");
        if matches!(header.record, Record::End(_)) {
            assert!(parser.is_ended());
            return Outcome::Whole(found);
        }
        let Some(payload) = bytes.get(at..at + header.payload as usize) else { return Outcome::Cut };
        if header.payload > 0 {
            parser.payload(payload).unwrap();
        }
        at += header.payload as usize;
        found.push(header.record);
    }
}

#[test]
fn a_stream_in_either_byte_order_is_what_was_put_in() {
    for order in [Endian::Little, Endian::Big] {
        assert_eq!(parse(&stream(&records(), order)), Outcome::Whole(records()), "{order:?}");
    }
}

#[test]
fn a_stream_that_was_cut_is_never_whole() {
    let bytes = stream(&records(), Endian::Little);
    for length in 0..bytes.len() {
        assert_eq!(parse(&bytes[..length]), Outcome::Cut, "{length}");
    }
}

#[test]
fn no_flipped_bit_passes() {
    let bytes = stream(&records(), Endian::Little);
    for at in (0..bytes.len()).step_by(3) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1 << (at % 8);
        match parse(&bytes) {
            Outcome::Whole(found) => panic!("byte {at}: {found:?}"),
            Outcome::Cut | Outcome::Refused(_) => {}
        }
    }
}

#[test]
fn what_old_and_other_software_sends_is_named() {
    let bytes = stream(&records(), Endian::Little);
    assert_eq!(parse(&[0; RECORD_SIZE]), Outcome::Refused(StreamError::BadMagic));
    for (kind, said) in [(6, "deduplicated"), (9, "encrypted"), (10, "object 0")] {
        let mut changed = bytes.clone();
        changed[RECORD_SIZE + 64] = kind;
        // From before records had checksums.
        changed[RECORD_SIZE + 64 + 280..RECORD_SIZE + 64 + 312].fill(0);
        // This stream may be redacted, but not so.
        let text = match parse(&changed) {
            Outcome::Refused(StreamError::Unsupported(text)) if kind != 10 => text,
            Outcome::Refused(StreamError::Malformed(text)) if kind == 10 => text,
            outcome => panic!("{kind}: {outcome:?}"),
        };
        assert!(text.contains(said), "{text}");
    }
    let Outcome::Refused(StreamError::Malformed(text)) =
        parse(&stream(&[records(), records()].concat(), Endian::Little))
    else {
        panic!("it began twice")
    };
    assert!(text.contains("begins again"), "{text}");
}

#[test]
fn numbers_that_nobody_could_compute_with_are_refused() {
    let Record::Object(plain) = object(128) else { panic!() };
    let Record::Write(block) = write(128, 4096) else { panic!() };
    let Record::Write(small) = compressed(128) else { panic!() };
    let free = |offset, length| Record::Free(Free { object: ObjectId(1), offset, length, to_guid: STREAM });
    let embedded = |length, logical_size, payload_size| {
        Record::WriteEmbedded(Embedded {
            object: ObjectId(1),
            offset: 0,
            length,
            to_guid: STREAM,
            compression: Compression::LZ4,
            kind: 0,
            logical_size,
            payload_size,
        })
    };
    let bad = [
        Record::Object(ObjectRecord { object: ObjectId(0), ..plain }),
        Record::Object(ObjectRecord { object: ObjectId(1 << 48), ..plain }),
        Record::Object(ObjectRecord { object: ObjectId(31), slots: 2, ..plain }),
        Record::Object(ObjectRecord { slots: 33, ..plain }),
        Record::Object(ObjectRecord { block_size: 0, ..plain }),
        Record::Object(ObjectRecord { block_size: 513, ..plain }),
        Record::Object(ObjectRecord { block_size: u32::MAX - 511, ..plain }),
        Record::Object(ObjectRecord { bonus_length: 336, ..plain }),
        Record::Object(ObjectRecord { bonus_type: ObjectType::NONE, ..plain }),
        Record::Object(ObjectRecord { object_type: ObjectType::NONE, ..plain }),
        Record::Object(ObjectRecord { flags: 1, ..plain }),
        Record::Write(Write { logical_size: 0, ..block }),
        Record::Write(Write { logical_size: 32 << 20, ..block }),
        Record::Write(Write { offset: u64::MAX - 4095, ..block }),
        Record::Write(Write { compressed_size: 0, ..small }),
        Record::Write(Write { compressed_size: 131_080, ..small }),
        Record::Write(Write { compressed_size: 516, ..small }),
        Record::Write(Write { compression: Compression::from_number(99), ..small }),
        Record::FreeObjects(FreeObjects { first: 2, count: u64::MAX, to_guid: STREAM }),
        free(2, u64::MAX - 1),
        embedded(512, 512, 0),
        embedded(512, 512, 113),
        embedded(512, 1024, 100),
        embedded(512, 50, 100),
        Record::Spill(Spill { object: ObjectId(1), length: 0, to_guid: STREAM, flags: 0 }),
        Record::Spill(Spill { object: ObjectId(1), length: 256 << 10, to_guid: STREAM, flags: 0 }),
    ];
    for record in bad {
        let bytes = stream(&[begin(all_features(), 0)], Endian::Little);
        let mut framer = Framer::new(STREAM);
        framer.frame(&begin(all_features(), 0), &[]);
        let length = usize::try_from(record.payload_length()).unwrap_or(usize::MAX).min(64 << 20);
        let payload = vec![0; length];
        if record.payload_length() != length as u64 {
            continue;
        }
        let header = framer.frame(&record, &payload);
        let whole = [&bytes[..RECORD_SIZE], &header, &payload].concat();
        assert!(
            matches!(parse(&whole), Outcome::Refused(StreamError::Malformed(_))),
            "{record:?}: {:?}",
            parse(&whole)
        );
    }
}

#[test]
fn what_the_stream_did_not_announce_is_refused() {
    let plain = StreamFeatures::SA_SPILL;
    let Record::Object(ordinary) = object(128) else { panic!() };
    for record in [
        Record::Object(ObjectRecord { block_size: 1 << 20, ..ordinary }),
        Record::Object(ObjectRecord { slots: 2, ..ordinary }),
        write(128, 1 << 20),
        compressed(128),
        records().pop().unwrap(),
    ] {
        let whole = stream(&[begin(plain, 0), record.clone()], Endian::Little);
        assert!(matches!(parse(&whole), Outcome::Refused(StreamError::Malformed(_))), "{record:?}");
        assert!(matches!(parse(&stream(&[begin(all_features(), 0), record], Endian::Little)), Outcome::Whole(_)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Bytes of records are changed and the checksums mended over it, as somebody would who means harm.
    #[test]
    fn damage_under_right_checksums_is_survived(
        order in prop_oneof![Just(Endian::Little), Just(Endian::Big)],
        changes in proptest::collection::vec((0usize..8, 0usize..280, any::<u8>()), 1..6),
        sequence in proptest::collection::vec(0usize..8, 1..12),
    ) {
        let known = records();
        let mut chosen = vec![known[0].clone()];
        chosen.extend(sequence.iter().filter(|at| **at > 0).map(|at| known[*at].clone()));
        let bytes = stream(&chosen, order);
        let (mut sum, mut changed, mut at) = (platter_stream::RunningSum::new(order), Vec::new(), 0);
        for (index, record) in chosen.iter().enumerate() {
            let length = record.payload_length() as usize;
            let mut header: [u8; RECORD_SIZE] = bytes[at..at + RECORD_SIZE].try_into().unwrap();
            for (_, place, value) in changes.iter().filter(|(which, ..)| *which == index) {
                header[*place] = *value;
            }
            sum.add(&header[..280]);
            if index > 0 {
                for (word, place) in sum.words().into_iter().zip(header[280..].chunks_exact_mut(8)) {
                    let is_little = order == Endian::Little;
                    place.copy_from_slice(&if is_little { word.to_le_bytes() } else { word.to_be_bytes() });
                }
            }
            sum.add(&header[280..]);
            let payload = &bytes[at + RECORD_SIZE..at + RECORD_SIZE + length];
            sum.add(payload);
            changed.extend_from_slice(&header);
            changed.extend_from_slice(payload);
            at += RECORD_SIZE + length;
        }
        changed.extend_from_slice(&bytes[at..]);
        // Whatever it is, it is answered.
        let _ = parse(&changed);
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = parse(&bytes);
        let mut begun = stream(&[begin(all_features(), 0)], Endian::Little)[..RECORD_SIZE].to_vec();
        begun.extend_from_slice(&bytes);
        let _ = parse(&begun);
    }
}
