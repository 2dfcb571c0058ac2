//! Round trips of everything in the intent log, and garbage.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::attributes::Attributes;
use super::block::{self, Layout};
use super::record::{self, Create, LoggedAcl, Made, NewObject, Record, RecordHeader, RenameKind, SetAttr, Write};
use super::record::{WriteData, records};
use super::*;
use crate::dnode::tests::any_blkptr;
use crate::embedded::{ZEC_MAGIC, test_hash};

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..40)
}

fn object() -> impl Strategy<Value = u64> {
    0..1u64 << 48
}

prop_compose! {
    fn new_object()(object in object(), slots in 1..=256u16, words: [u64; 4], ids: [u32; 2], rdev: u64) -> NewObject {
        NewObject {
            object,
            slots,
            mode: words[0],
            uid: ids[0].into(),
            gid: ids[1].into(),
            generation: words[1],
            create_time: [words[2], words[3]],
            rdev,
        }
    }
}

prop_compose! {
    fn attributes()(
        mask in vec(any::<u32>(), 1..=5), values: u64, create_time: [u64; 2], stamp: [u8; 32],
    ) -> Attributes {
        Attributes { mask, values, create_time, stamp }
    }
}

prop_compose! {
    fn acl()(
        count: u64, flags: u64, entries in vec(any::<u8>(), 0..80), owners in vec(any::<u64>(), 0..3),
        domains in vec(name(), 0..3),
    ) -> LoggedAcl {
        LoggedAcl { count, flags, entries, owners, domains }
    }
}

prop_compose! {
    fn create()(
        made in prop_oneof![
            Just(Made::File), Just(Made::Directory), Just(Made::XattrDirectory), name().prop_map(Made::Symlink),
        ],
        any_case: bool,
        parent: u64,
        mut new in new_object(),
        attributes in option::of(attributes()),
        acl in option::of(acl()),
        domain in option::of(name()),
        name in name(),
    ) -> Create {
        let plain = matches!(made, Made::XattrDirectory | Made::Symlink(_));
        let (attributes, acl) = (attributes.filter(|_| !plain), acl.filter(|_| !plain));
        let domain = domain.filter(|_| acl.is_none() && !matches!(made, Made::Symlink(_)));
        if domain.is_some() {
            new.uid |= 7 << 32;
            new.gid |= 7 << 32;
        }
        Create { made, any_case, parent, new, attributes, acl, domains: domain.into_iter().collect(), name }
    }
}

prop_compose! {
    fn setattr()(
        object in object(), mask in 0..1u64 << 31, words: [u64; 6], ids: [u32; 2],
        attributes in option::of(attributes()),
    ) -> SetAttr {
        SetAttr {
            object,
            mask,
            mode: words[0],
            uid: ids[0].into(),
            gid: ids[1].into(),
            size: words[1],
            atime: [words[2], words[3]],
            mtime: [words[4], words[5]],
            attributes,
            domains: Vec::new(),
        }
    }
}

fn any_record() -> impl Strategy<Value = Record> {
    let rename = prop_oneof![
        Just(RenameKind::Replace),
        Just(RenameKind::Exchange),
        new_object().prop_map(RenameKind::Whiteout),
    ];
    prop_oneof![
        create().prop_map(|create| Record::Create(Box::new(create))),
        (any::<bool>(), any::<bool>(), any::<u64>(), name())
            .prop_map(|(any_case, directory, parent, name)| Record::Remove { any_case, directory, parent, name }),
        (any::<bool>(), any::<u64>(), any::<u64>(), name()).prop_map(|(any_case, parent, object, name)| Record::Link {
            any_case,
            parent,
            object,
            name
        }),
        (any::<bool>(), rename, any::<u64>(), any::<u64>(), name(), name()).prop_map(
            |(any_case, kind, from, to, name, new_name)| Record::Rename { any_case, kind, from, to, name, new_name }
        ),
        (object(), any::<u64>(), vec(any::<u8>(), 1..200)).prop_map(|(object, offset, data)| {
            Record::Write(Write { object, offset, length: data.len() as u64, data: WriteData::Inline(data) })
        }),
        (object(), any::<u64>(), any::<u64>(), any_blkptr()).prop_map(|(object, offset, length, bp)| {
            Record::Write(Write { object, offset, length, data: WriteData::Block(Box::new(bp)) })
        }),
        (object(), any::<u64>(), any::<u64>()).prop_map(|(object, offset, length)| Record::Grow {
            object,
            offset,
            length
        }),
        (object(), any::<u64>(), any::<u64>()).prop_map(|(object, offset, length)| Record::Truncate {
            object,
            offset,
            length
        }),
        setattr().prop_map(|change| Record::SetAttr(Box::new(change))),
        (object(), vec(any::<[u8; 12]>(), 0..4))
            .prop_map(|(object, entries)| Record::OldAcl { object, entries: entries.concat() }),
        (object(), acl()).prop_map(|(object, acl)| Record::Acl { object, acl }),
        (object(), name(), vec(any::<u8>(), 0..60)).prop_map(|(object, name, value)| Record::SetXattr {
            object,
            name,
            value
        }),
        (object(), any::<u64>(), any::<u64>(), any::<u64>(), vec(any_blkptr(), 0..3)).prop_map(
            |(object, offset, length, block_size, blocks)| Record::Clone { object, offset, length, block_size, blocks }
        ),
    ]
}

proptest! {
    #[test]
    fn a_header_reads_back(words: [u64; 5], log in any_blkptr()) {
        let header = ZilHeader {
            claim_txg: Txg(words[0]),
            replay_seq: words[1],
            log,
            claim_blk_seq: words[2],
            flags: words[3],
            claim_lr_seq: words[4],
        };
        let mut bytes = [0xff; ZIL_HEADER_SIZE];
        header.encode(&mut bytes);
        prop_assert_eq!(ZilHeader::decode(&bytes).unwrap(), header);
    }

    #[test]
    fn a_chain_link_reads_back(next in any_blkptr(), used: u64, magic: u64, checksum: [u64; 4]) {
        let link = ZilChain { next, used, magic, checksum };
        let mut bytes = [0xff; ZIL_CHAIN_SIZE];
        link.encode(&mut bytes);
        prop_assert_eq!(ZilChain::decode(&bytes).unwrap(), link);
    }

    #[test]
    fn records_read_back_one_after_the_other(
        written in vec((any_record(), any::<u64>(), any::<u64>()), 0..6),
    ) {
        let written: Vec<(RecordHeader, Record)> = written
            .into_iter()
            .map(|(record, txg, sequence)| (RecordHeader { txg: Txg(txg), sequence }, record))
            .collect();
        let mut bytes = Vec::new();
        for (header, record) in &written {
            record.encode(*header, &mut bytes);
            prop_assert!(bytes.len().is_multiple_of(8));
        }
        let read: Vec<_> = records(&bytes).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(read, written);
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in vec(any::<u8>(), 0..400), kind in 0..26u64, lie: bool) {
        let mut bytes = bytes;
        if bytes.len() >= 32 && !lie {
            let length = bytes.len() as u64;
            put_words(&mut bytes, 0, &[kind, length]);
        }
        let _ = record::decode(&bytes);
        let _ = records(&bytes).count();
    }

    #[test]
    fn a_block_opens_with_its_own_seed_only(
        slim: bool, sectors in 1..4usize, records in vec(any::<u8>(), 0..3000), seed: [u64; 4],
        flip: prop::sample::Index,
    ) {
        let layout = if slim { Layout::Slim } else { Layout::Trailing };
        let mut next = BlkPtr::HOLE;
        next.set_checksum(block::next_seed(seed));
        let size = sectors * 4096;
        let mut bytes = block::build(layout, size, &next, &records, seed, test_hash);
        prop_assert_eq!(bytes.len(), size);
        prop_assert_eq!(block::open(layout, &bytes, seed, test_hash), Ok((next, &records[..])));
        prop_assert!(block::open(layout, &bytes, block::next_seed(seed), test_hash).is_err());
        // Every byte that counts is covered: all of an old block, what is used of a slim one.
        let covered = if slim { (ZIL_CHAIN_SIZE + records.len()).next_multiple_of(4096) } else { size };
        bytes[flip.index(covered)] ^= 0x10;
        prop_assert!(block::open(layout, &bytes, seed, test_hash).is_err());
    }

    #[test]
    fn any_bytes_open_or_fail(bytes in vec(any::<u8>(), 0..9000), used: u64, slim: bool) {
        let mut bytes = bytes;
        if bytes.len() > ZIL_CHAIN_SIZE {
            let at = if slim { 0 } else { bytes.len() - ZIL_CHAIN_SIZE };
            put_words(&mut bytes, at + 8 + BLKPTR_SIZE, &[used % 20_000, ZEC_MAGIC]);
        }
        let layout = if slim { Layout::Slim } else { Layout::Trailing };
        let _ = block::open(layout, &bytes, [1, 2, 3, 4], |_| [0; 4]);
    }
}

// Its checksum covered nothing, and was looked for in that.
#[test]
fn a_block_with_nothing_in_use_is_no_log_block() {
    let mut bytes = vec![0; 4096];
    ZilChain { next: BlkPtr::HOLE, used: 0, magic: ZEC_MAGIC, checksum: [0; 4] }.encode(&mut bytes);
    assert!(block::open(Layout::Slim, &bytes, [0; 4], test_hash).is_err());
}

#[test]
fn sizes_are_those_of_the_format() {
    let header = RecordHeader::default();
    let size = |record: Record| {
        let mut out = Vec::new();
        record.encode(header, &mut out);
        out.len()
    };
    let new = NewObject { object: 15, slots: 1, ..NewObject::default() };
    let create = Create {
        made: Made::File,
        any_case: false,
        parent: 34,
        new,
        attributes: None,
        acl: None,
        domains: Vec::new(),
        name: b"sync16".to_vec(),
    };
    // As zdb shows them for a log of OpenZFS.
    assert_eq!(size(Record::Create(Box::new(create))), 112);
    let write = |length| Write { object: 1, offset: 0, length, data: WriteData::Inline(vec![0; length as usize]) };
    assert_eq!(size(Record::Write(write(1))), 200);
    assert_eq!(size(Record::Write(write(64))), 256);
    assert_eq!(size(Record::Truncate { object: 1, offset: 0, length: 0 }), 56);
    assert_eq!(size(Record::SetAttr(Box::default())), 112);
}
