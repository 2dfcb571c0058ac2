//! Turning a block that a big-endian machine wrote into one this crate's decoders read (the `*_byteswap` functions of
//! `module/zfs`, chosen by object type as in `module/zfs/dmu.c`).
//!
//! Only blocks are turned here; labels, uberblocks and gang headers carry their own byte order. Bytes come from a
//! device: nothing in them may lead outside the block, and what makes no sense stays as it is, for the decoder to
//! refuse.

use crate::blkptr::BLKPTR_SIZE;
use crate::dnode::{DNODE_CORE_SIZE, DNODE_SIZE, FLAG_SPILL_BLKPTR, MAX_BLKPTRS};
use crate::object_type::{Byteswap, ObjectType};
use crate::objset::{OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3};

/// Turns a level-0 block (or bonus buffer) of an object of this type. A type that is not known stays as it is.
pub fn byteswap(object_type: ObjectType, block: &mut [u8]) {
    match object_type.byteswap() {
        None | Some(Byteswap::Uint8) => {}
        Some(Byteswap::Uint16) => turn::<2>(block),
        Some(Byteswap::Uint32) => turn::<4>(block),
        Some(Byteswap::Uint64) => turn::<8>(block),
        Some(Byteswap::Zap) => zap(block),
        Some(Byteswap::Dnode) => dnodes(block),
        Some(Byteswap::Objset) => objset(block),
        Some(Byteswap::Znode) => znode(block),
        Some(Byteswap::OldAcl) => old_acl(block),
        Some(Byteswap::Acl) => acl(block),
    }
}

/// Turns an indirect block of any object: an array of pointers, all 64-bit words.
pub fn byteswap_indirect(block: &mut [u8]) {
    turn::<8>(block);
}

/// Reverses every whole unit of `N` bytes.
fn turn<const N: usize>(bytes: &mut [u8]) {
    bytes.as_chunks_mut::<N>().0.iter_mut().for_each(|unit| unit.reverse());
}

/// Reverses the fields of these widths one after the other.
fn turn_fields(bytes: &mut [u8], widths: &[usize]) {
    let mut at = 0;
    for &width in widths {
        if let Some(field) = bytes.get_mut(at..at + width) {
            field.reverse();
        }
        at += width;
    }
}

fn dnodes(block: &mut [u8]) {
    let mut at = 0;
    while at + DNODE_SIZE <= block.len() {
        dnode(&mut block[at..]);
        let slots = if block[at] == ObjectType::NONE.number() { 1 } else { usize::from(block[at + 12]) + 1 };
        at += slots * DNODE_SIZE;
    }
}

/// The dnode at the start of `bytes`, which go on to the end of the block.
fn dnode(bytes: &mut [u8]) {
    if bytes[0] == ObjectType::NONE.number() {
        bytes[..DNODE_SIZE].fill(0);
        return;
    }
    let (nblkptr, bonus_type, flags) = (usize::from(bytes[3]), ObjectType::from_number(bytes[4]), bytes[7]);
    let size = (usize::from(bytes[12]) + 1) * DNODE_SIZE;
    let spill = if flags & FLAG_SPILL_BLKPTR != 0 { BLKPTR_SIZE } else { 0 };
    let bonus_at = DNODE_CORE_SIZE + nblkptr * BLKPTR_SIZE;
    if size > bytes.len() || nblkptr > MAX_BLKPTRS || bonus_at + spill > size {
        return;
    }
    let has_bonus = bytes[10..12] != [0, 0];
    turn::<2>(&mut bytes[8..12]);
    turn::<8>(&mut bytes[16..32]);
    turn::<8>(&mut bytes[DNODE_CORE_SIZE..bonus_at]);
    if has_bonus {
        byteswap(bonus_type, &mut bytes[bonus_at..size - spill]);
    }
    turn::<8>(&mut bytes[size - spill..size]);
}

fn objset(block: &mut [u8]) {
    if block.len() < OBJSET_PHYS_SIZE_V1 {
        return;
    }
    dnode(&mut block[..DNODE_SIZE]);
    // The ZIL header, the type and the flags; the MACs behind them are bytes.
    turn::<8>(&mut block[DNODE_SIZE..DNODE_SIZE + 192 + 16]);
    let totals = [
        (OBJSET_PHYS_SIZE_V1, OBJSET_PHYS_SIZE_V2),
        (OBJSET_PHYS_SIZE_V1 + DNODE_SIZE, OBJSET_PHYS_SIZE_V2),
        (OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3),
    ];
    for (at, since) in totals {
        if block.len() >= since {
            dnode(&mut block[at..at + DNODE_SIZE]);
        }
    }
}

/// `ZBT_MICRO` and `ZBT_LEAF`, `include/sys/zap_impl.h`.
const ZAP_MICRO: u64 = (1 << 63) + 3;
const ZAP_LEAF: u64 = 1 << 63;
const ZAP_LEAF_HEADER_SIZE: usize = 48;
const ZAP_CHUNK_SIZE: usize = 24;
const ZAP_MICRO_ENTRY_SIZE: usize = 64;

fn zap(block: &mut [u8]) {
    let Some(head) = block.first_chunk::<8>() else { return };
    match u64::from_be_bytes(*head) {
        ZAP_MICRO => {
            // The header is words; each entry a value, a collision differentiator, and a name.
            let (header, entries) = block.split_at_mut(ZAP_MICRO_ENTRY_SIZE.min(block.len()));
            turn::<8>(header);
            for entry in entries.chunks_exact_mut(ZAP_MICRO_ENTRY_SIZE) {
                turn_fields(entry, &[8, 4]);
            }
        }
        ZAP_LEAF => zap_leaf(block),
        // The header of a large ZAP and the blocks of its pointer table.
        _ => turn::<8>(block),
    }
}

fn zap_leaf(block: &mut [u8]) {
    let chunks_at = ZAP_LEAF_HEADER_SIZE + 2 * (block.len() / 32);
    if chunks_at > block.len() {
        return;
    }
    let (head, chunks) = block.split_at_mut(chunks_at);
    turn_fields(head, &[8, 8, 8, 4, 2, 2, 2, 2]);
    turn::<2>(&mut head[ZAP_LEAF_HEADER_SIZE..]);
    for chunk in chunks.chunks_exact_mut(ZAP_CHUNK_SIZE) {
        match chunk[0] {
            252 => turn_fields(chunk, &[1, 1, 2, 2, 2, 2, 2, 4, 8]), // entry
            251 | 253 => chunk[22..].reverse(),                      // array (its bytes are big-endian always), free
            _ => {}
        }
    }
}

/// Size of `ace_t` (who, access mask, flags, type), in bytes.
const OLD_ACE_SIZE: usize = 12;

fn old_acl(block: &mut [u8]) {
    block.chunks_exact_mut(OLD_ACE_SIZE).for_each(|ace| turn_fields(ace, &[4, 4, 2, 2]));
}

/// Size of `zfs_ace_hdr_t` (type, flags, access mask), of `zfs_ace_t` (and a FUID), of `zfs_object_ace_t` (and two
/// GUIDs).
const ACE_HEADER_SIZE: usize = 8;
const ACE_SIZE: usize = 16;
const OBJECT_ACE_SIZE: usize = 48;
/// `ACE_TYPE_FLAGS` and those of its values that need no FUID: owner, everyone, owning group.
const ACE_TYPE_FLAGS: u16 = 0x7040;
const ACES_WITHOUT_FUID: [u16; 3] = [0x1000, 0x4000, 0x2040];
/// `ACE_*_OBJECT_ACE_TYPE`.
const OBJECT_ACE_TYPES: std::ops::RangeInclusive<u16> = 5..=8;

fn acl(mut rest: &mut [u8]) {
    while rest.len() >= ACE_HEADER_SIZE {
        turn_fields(rest, &[2, 2, 4]);
        let kind = u16::from_le_bytes([rest[0], rest[1]]);
        let flags = u16::from_le_bytes([rest[2], rest[3]]);
        let size = if ACES_WITHOUT_FUID.contains(&(flags & ACE_TYPE_FLAGS)) {
            ACE_HEADER_SIZE
        } else {
            if let Some(fuid) = rest.get_mut(ACE_HEADER_SIZE..ACE_SIZE) {
                fuid.reverse();
            }
            if OBJECT_ACE_TYPES.contains(&kind) { OBJECT_ACE_SIZE } else { ACE_SIZE }
        };
        rest = rest.get_mut(size..).unwrap_or_default();
    }
}

/// `znode_phys_t`: 22 words, then the ACL's head (object, size, version, count) and 72 bytes of entries.
const ZNODE_WORDS: usize = 22 * 8;
const ZNODE_ACES_AT: usize = ZNODE_WORDS + 16;
const ZNODE_SIZE: usize = ZNODE_ACES_AT + 72;
const _: () = assert!(ZNODE_SIZE == 264);

fn znode(block: &mut [u8]) {
    if block.len() < ZNODE_SIZE {
        return;
    }
    turn::<8>(&mut block[..ZNODE_WORDS]);
    turn_fields(&mut block[ZNODE_WORDS..], &[8, 4, 2, 2]);
    let version = u16::from_le_bytes([block[ZNODE_WORDS + 12], block[ZNODE_WORDS + 13]]);
    let aces = &mut block[ZNODE_ACES_AT..ZNODE_SIZE];
    if version == 1 { acl(aces) } else { old_acl(aces) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnode::tests::any_dnode;
    use crate::{BlkPtr, Checksum, Compression, DnodePhys, ObjsetPhys, ObjsetType, Sectors};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_block_of_any_type_is_turned_without_panic(
            number: u8, mut block in prop::collection::vec(any::<u8>(), 0..2100), head in 0..4usize,
        ) {
            if block.len() >= 8 && head > 0 {
                block[..8].copy_from_slice(&[ZAP_MICRO, ZAP_LEAF, 1][head - 1].to_be_bytes());
            }
            byteswap(ObjectType::from_number(number), &mut block);
            byteswap_indirect(&mut block);
        }

        #[test]
        fn arrays_of_numbers_turn_back(words in prop::collection::vec(any::<u64>(), 0..40)) {
            let mut big: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let little: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            byteswap(ObjectType::SPACE_MAP, &mut big);
            prop_assert_eq!(big, little);
        }

        #[test]
        fn a_big_endian_dnode_decodes_to_the_same(mut dnode in any_dnode(1..=4)) {
            // With a bonus of words the big-endian form can be made independently: all but the core is words.
            dnode.bonus_type = ObjectType::DSL_DIR;
            dnode.bonus.truncate(dnode.bonus.len() & !7);
            dnode.bonus_length = dnode.bonus.len() as u16;
            let mut block = vec![0; dnode.slots() * DNODE_SIZE + DNODE_SIZE];
            let end = dnode.slots() * DNODE_SIZE;
            dnode.encode(&mut block[..end]);
            block[8..10].reverse();
            block[10..12].reverse();
            block[16..end].as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
            byteswap(ObjectType::DNODE, &mut block);
            prop_assert_eq!(DnodePhys::decode(&block).unwrap().unwrap(), dnode);
        }
    }

    #[test]
    fn turning_an_object_set_twice_gives_it_back() {
        let dnode = DnodePhys {
            object_type: ObjectType::DNODE,
            indirect_shift: 17,
            levels: 2,
            bonus_type: ObjectType::NONE,
            checksum: Checksum::INHERIT,
            compression: Compression::INHERIT,
            flags: 1,
            data_block_sectors: Sectors(32),
            bonus_length: 0,
            extra_slots: 0,
            max_blkid: 77,
            used: 123_456,
            blkptrs: vec![BlkPtr { words: std::array::from_fn(|i| i as u64) }; 3],
            bonus: Vec::new(),
            spill: None,
        };
        let mut objset = ObjsetPhys::new(ObjsetType::ZFS, dnode.clone());
        objset.projectused = Some(dnode);
        objset.zil_header = std::array::from_fn(|i| i as u8);
        let original = objset.encode();
        let mut block = original.clone();
        byteswap(ObjectType::OBJSET, &mut block);
        assert_ne!(block, original);
        byteswap(ObjectType::OBJSET, &mut block);
        assert_eq!(block, original);
    }

    #[test]
    fn aces_are_walked_by_their_kind() {
        // everyone@ (8 bytes), then a user's (16 bytes), big-endian.
        let mut block =
            vec![0, 1, 0x40, 0, 0, 0, 0, 7, /* */ 0, 0, 0, 0, 0, 0, 1, 0, /* */ 0, 0, 0, 0, 0, 0, 3, 0xe8];
        byteswap(ObjectType::ACL, &mut block);
        assert_eq!(block, [1, 0, 0, 0x40, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0xe8, 3, 0, 0, 0, 0, 0, 0]);
    }

    /// Little-endian and big-endian bytes of the same fields.
    fn both(fields: &[(u64, usize)]) -> (Vec<u8>, Vec<u8>) {
        let little: Vec<u8> = fields.iter().flat_map(|&(value, n)| value.to_le_bytes()[..n].to_vec()).collect();
        let big = fields.iter().flat_map(|&(value, n)| value.to_be_bytes()[8 - n..].to_vec()).collect();
        (little, big)
    }

    #[test]
    fn a_micro_zap_turns_field_by_field() {
        let head = [(ZAP_MICRO, 8), (0x1122_3344, 8), (0x10, 8)];
        let (mut little, mut big) = both(&head);
        little.resize(64, 0);
        big.resize(64, 0);
        let (entry_little, entry_big) = both(&[(0x0102_0304_0506_0708, 8), (0x0a0b_0c0d, 4), (0, 2)]);
        for (block, entry) in [(&mut little, entry_little), (&mut big, entry_big)] {
            block.extend_from_slice(&entry);
            block.extend_from_slice(b"a name of the entry");
            block.resize(192, 0);
        }
        byteswap(ObjectType::DIRECTORY_CONTENTS, &mut big);
        assert_eq!(big, little);
    }

    #[test]
    fn a_zap_leaf_turns_field_by_field_and_leaves_array_bytes() {
        let mut fields = vec![(ZAP_LEAF, 8), (0, 8), (0x1234, 8), (0x02ab_1eaf, 4), (7, 2), (1, 2), (3, 2), (2, 2)];
        fields.extend([(0, 1); 12]);
        fields.extend((0..16).map(|i| (0xff00 + i, 2)));
        // An entry, an array chunk, a free chunk.
        fields.extend([(252, 1), (8, 1), (0xffff, 2), (1, 2), (20, 2), (2, 2), (1, 2), (9, 4), (0xabcd_ef01, 8)]);
        fields.push((251, 1));
        fields.extend((0..21).map(|i| (i, 1)));
        fields.push((0x1617, 2));
        fields.push((253, 1));
        fields.extend([(0, 1); 21]);
        fields.push((0x0405, 2));
        let (mut little, mut big) = both(&fields);
        little.resize(512, 0);
        big.resize(512, 0);
        byteswap(ObjectType::OBJECT_DIRECTORY, &mut big);
        assert_eq!(big, little);
    }

    #[test]
    fn a_znode_turns_with_its_acl() {
        let mut fields: Vec<(u64, usize)> = (1..=22).map(|i| (i << 33 | i, 8)).collect();
        fields.extend([(77, 8), (0x18, 4), (1, 2), (2, 2)]);
        fields.extend([(1, 2), (0x4000, 2), (0x1234_5678, 4)]);
        fields.extend([(0, 2), (0, 2), (0x8765, 4), (1000, 8)]);
        let (mut little, mut big) = both(&fields);
        little.resize(ZNODE_SIZE, 0);
        big.resize(ZNODE_SIZE, 0);
        byteswap(ObjectType::ZNODE, &mut big);
        assert_eq!(big, little);
    }
}
