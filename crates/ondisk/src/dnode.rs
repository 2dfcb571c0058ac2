//! The dnode (`dnode_phys_t`, `include/sys/dnode.h`): what an object is and where its blocks are.
//!
//! A dnode takes one to 32 slots of 512 bytes within its 16 KiB block. After a fixed core of 64 bytes come one to three
//! block pointers, then the bonus buffer; the spill pointer, when there is one, is the last 128 bytes of the last slot.
//!
//! ```text
//! 0      64        64 + 128*n            64 + 128*n + bonus_length      slots*512 - 128     slots*512
//! | core | pointers | bonus               | zeros                        | spill (if flagged) |
//! ```
//!
//! A decoded dnode satisfies: type not NONE; 1..=3 pointers; 1..=[`MAX_LEVELS`] levels; block size a non-zero multiple
//! of 512 up to 16 MiB; the bonus fits; the offset of the last block fits 64 bits, and [`MAX_LEVELS`] reach it.

use crate::blkptr::{BLKPTR_SHIFT, BLKPTR_SIZE, BLOCK_SIZE_MAX, BlkPtr};
use crate::checksum::Checksum;
use crate::compression::Compression;
use crate::error::Error;
use crate::le::{put_u16, put_u64, u16_at, u64_at};
use crate::object_type::ObjectType;
use crate::sector::Sectors;

/// Size of one slot, in bytes (`DNODE_MIN_SIZE`).
pub const DNODE_SIZE: usize = 512;
/// log2 of [`DNODE_SIZE`].
pub const DNODE_SHIFT: u32 = 9;
/// Bytes before the first pointer.
pub const DNODE_CORE_SIZE: usize = 64;
/// Size of a block of dnodes, in bytes.
pub const DNODE_BLOCK_SIZE: usize = 16384;
/// log2 of [`DNODE_BLOCK_SIZE`].
pub const DNODE_BLOCK_SHIFT: u32 = 14;
/// Slots in a block of dnodes.
pub const DNODES_PER_BLOCK: usize = DNODE_BLOCK_SIZE / DNODE_SIZE;
/// log2 of [`DNODES_PER_BLOCK`].
pub const DNODES_PER_BLOCK_SHIFT: u32 = DNODE_BLOCK_SHIFT - DNODE_SHIFT;
/// Slots of the largest dnode.
pub const MAX_SLOTS: usize = DNODES_PER_BLOCK;
/// Pointers of a dnode, at most.
pub const MAX_BLKPTRS: usize = 3;
/// log2 of the smallest indirect block written today, in bytes.
pub const MIN_INDIRECT_SHIFT: u8 = 12;
/// log2 of the largest indirect block written today, in bytes.
pub const MAX_INDIRECT_SHIFT: u8 = 17;
/// `DN_MAX_LEVELS`: what the smallest indirect block needs to reach 2^64 bytes, data level included.
pub const MAX_LEVELS: u8 = 12;
/// Object numbers are below this (`DN_MAX_OBJECT`).
pub const MAX_OBJECT: u64 = 1 << 48;
/// Bonus capacity of a one-slot dnode with one pointer (`DN_OLD_MAX_BONUSLEN`).
pub const OLD_MAX_BONUS: usize = DNODE_SIZE - DNODE_CORE_SIZE - BLKPTR_SIZE;

/// log2 of the indirect blocks that decode accepts: early versions wrote 1 KiB ones, none can pass the block size
/// limit.
const ACCEPTED_INDIRECT_SHIFTS: std::ops::RangeInclusive<u8> = 10..=24;
/// The largest data block.
const MAX_DATA_BLOCK: Sectors = Sectors::of(BLOCK_SIZE_MAX);

/// `used` counts bytes, not sectors.
pub const FLAG_USED_BYTES: u8 = 1 << 0;
/// The object's space is in the user and group totals.
pub const FLAG_USERUSED_ACCOUNTED: u8 = 1 << 1;
/// The last 128 bytes are a spill pointer.
pub const FLAG_SPILL_BLKPTR: u8 = 1 << 2;
/// The object is in the user and group object counts.
pub const FLAG_USEROBJUSED_ACCOUNTED: u8 = 1 << 3;

const _: () = assert!(OLD_MAX_BONUS == 320);
const _: () = assert!(DNODE_CORE_SIZE + MAX_BLKPTRS * BLKPTR_SIZE <= DNODE_SIZE);

/// A dnode. See the module text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnodePhys {
    /// What the object's blocks hold ; never NONE.
    pub object_type: ObjectType,
    /// log2 of the size of an indirect block, in bytes.
    pub indirect_shift: u8,
    /// Height of the block tree; 1 means that the pointers name data blocks.
    pub levels: u8,
    /// What the bonus buffer holds.
    pub bonus_type: ObjectType,
    /// The object's own checksum choice ([`Checksum::INHERIT`]: none).
    pub checksum: Checksum,
    /// The object's own compression choice ([`Compression::INHERIT`]: none).
    pub compression: Compression,
    /// `FLAG_*`. The spill bit is kept equal to `spill.is_some()` by encode.
    pub flags: u8,
    /// Size of a data block: one to 32768 sectors.
    pub data_block_sectors: Sectors,
    /// Bytes of the bonus buffer in use; equals `bonus.len()`.
    pub bonus_length: u16,
    /// Slots beyond the first.
    pub extra_slots: u8,
    /// Largest block number ever written and not freed since.
    pub max_blkid: u64,
    /// Space taken: bytes with [`FLAG_USED_BYTES`], sectors without.
    pub used: u64,
    /// One to three pointers to the top of the block tree.
    pub blkptrs: Vec<BlkPtr>,
    /// The bonus buffer, `bonus_length` bytes.
    pub bonus: Vec<u8>,
    /// Pointer to attributes that did not fit the bonus.
    pub spill: Option<BlkPtr>,
}

/// Bytes that a bonus buffer may have in a dnode of `slots` slots with `nblkptr` pointers (and a spill pointer); 0 when
/// the pointers alone do not fit.
pub fn bonus_capacity(slots: usize, nblkptr: usize, spill: bool) -> usize {
    (slots * DNODE_SIZE).saturating_sub(DNODE_CORE_SIZE + (nblkptr + usize::from(spill)) * BLKPTR_SIZE)
}

/// Levels that a tree with `pointers` at the top, and `2^epbs` in each indirect block, needs to hold block
/// `max_blkid`: more than [`MAX_LEVELS`] where indirect blocks are too small for it.
pub fn levels_for(max_blkid: u64, pointers: usize, epbs: u32) -> u8 {
    let mut levels = 1;
    while max_blkid.checked_shr(u32::from(levels - 1) * epbs).unwrap_or(0) >= pointers as u64 {
        levels += 1;
    }
    levels
}

impl DnodePhys {
    /// Decodes the dnode at the start of `bytes`, a run of slots (to the end of the block, so that a large dnode fits);
    /// `None` for a free slot.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, Error> {
        const WHAT: &str = "dnode";
        Error::need(WHAT, bytes, DNODE_SIZE)?;
        let object_type = ObjectType::from_number(bytes[0]);
        if object_type == ObjectType::NONE {
            return Ok(None);
        }
        let (indirect_shift, levels, nblkptr, flags) = (bytes[1], bytes[2], bytes[3], bytes[7]);
        let data_block_sectors = Sectors(u16_at(bytes, 8).into());
        let bonus_length = u16_at(bytes, 10);
        let extra_slots = bytes[12];
        let (max_blkid, used) = (u64_at(bytes, 16), u64_at(bytes, 24));

        let slots = usize::from(extra_slots) + 1;
        if slots > MAX_SLOTS || slots * DNODE_SIZE > bytes.len() {
            return Err(Error::field(WHAT, "dn_extra_slots", extra_slots));
        }
        if !(1..=MAX_BLKPTRS).contains(&usize::from(nblkptr)) {
            return Err(Error::field(WHAT, "dn_nblkptr", nblkptr));
        }
        if !(1..=MAX_LEVELS).contains(&levels) {
            return Err(Error::field(WHAT, "dn_nlevels", levels));
        }
        if !ACCEPTED_INDIRECT_SHIFTS.contains(&indirect_shift) {
            return Err(Error::field(WHAT, "dn_indblkshift", indirect_shift));
        }
        if !(Sectors(1)..=MAX_DATA_BLOCK).contains(&data_block_sectors) {
            return Err(Error::field(WHAT, "dn_datablkszsec", data_block_sectors.0));
        }
        let has_spill = flags & FLAG_SPILL_BLKPTR != 0;
        let tail = DNODE_CORE_SIZE + (usize::from(nblkptr) + usize::from(has_spill)) * BLKPTR_SIZE;
        if tail > slots * DNODE_SIZE {
            return Err(Error::field(WHAT, "dn_nblkptr", nblkptr));
        }
        if usize::from(bonus_length) > bonus_capacity(slots, usize::from(nblkptr), has_spill) {
            return Err(Error::field(WHAT, "dn_bonuslen", bonus_length));
        }
        if max_blkid.checked_mul(data_block_sectors.bytes()).is_none()
            || levels_for(max_blkid, nblkptr.into(), u32::from(indirect_shift) - BLKPTR_SHIFT) > MAX_LEVELS
        {
            return Err(Error::field(WHAT, "dn_maxblkid", max_blkid));
        }

        let blkptrs =
            bytes[DNODE_CORE_SIZE..].chunks_exact(BLKPTR_SIZE).take(usize::from(nblkptr)).map(BlkPtr::decode).collect();
        let bonus_at = DNODE_CORE_SIZE + usize::from(nblkptr) * BLKPTR_SIZE;
        Ok(Some(Self {
            object_type,
            indirect_shift,
            levels,
            bonus_type: ObjectType::from_number(bytes[4]),
            checksum: Checksum::from_number(bytes[5]),
            compression: Compression::from_number(bytes[6]),
            flags,
            data_block_sectors,
            bonus_length,
            extra_slots,
            max_blkid,
            used,
            blkptrs,
            bonus: bytes[bonus_at..bonus_at + usize::from(bonus_length)].to_vec(),
            spill: has_spill.then(|| BlkPtr::decode(&bytes[slots * DNODE_SIZE - BLKPTR_SIZE..])),
        }))
    }

    /// Writes the dnode over all of `out`, which is exactly its slots.
    ///
    /// # Panics
    /// When the fields contradict each other: that would be written to disk otherwise.
    pub fn encode(&self, out: &mut [u8]) {
        let slots = self.slots();
        assert_eq!(out.len(), slots * DNODE_SIZE, "a dnode is encoded over all its slots");
        assert!(slots <= MAX_SLOTS && (1..=MAX_BLKPTRS).contains(&self.blkptrs.len()));
        assert_ne!(self.object_type, ObjectType::NONE, "a free slot is zeros, not a dnode");
        assert!((1..=MAX_LEVELS).contains(&self.levels));
        assert!((Sectors(1)..=MAX_DATA_BLOCK).contains(&self.data_block_sectors));
        assert_eq!(self.bonus.len(), usize::from(self.bonus_length), "bonus_length is the bonus's length");
        let fixed = DNODE_CORE_SIZE + (self.blkptrs.len() + usize::from(self.spill.is_some())) * BLKPTR_SIZE;
        assert!(fixed + self.bonus.len() <= out.len(), "the bonus must fit");

        out.fill(0);
        let spill_flag = if self.spill.is_some() { FLAG_SPILL_BLKPTR } else { 0 };
        out[0] = self.object_type.number();
        out[1] = self.indirect_shift;
        out[2] = self.levels;
        out[3] = self.blkptrs.len() as u8;
        out[4] = self.bonus_type.number();
        out[5] = self.checksum.number();
        out[6] = self.compression.number();
        out[7] = self.flags & !FLAG_SPILL_BLKPTR | spill_flag;
        put_u16(out, 8, self.data_block_sectors.0 as u16);
        put_u16(out, 10, self.bonus_length);
        out[12] = self.extra_slots;
        put_u64(out, 16, self.max_blkid);
        put_u64(out, 24, self.used);
        for (bp, chunk) in self.blkptrs.iter().zip(out[DNODE_CORE_SIZE..].chunks_exact_mut(BLKPTR_SIZE)) {
            bp.encode(chunk);
        }
        let bonus_at = DNODE_CORE_SIZE + self.blkptrs.len() * BLKPTR_SIZE;
        out[bonus_at..bonus_at + self.bonus.len()].copy_from_slice(&self.bonus);
        if let Some(spill) = &self.spill {
            let at = out.len() - BLKPTR_SIZE;
            spill.encode(&mut out[at..]);
        }
    }

    /// Slots the dnode takes, 1 to 32.
    pub fn slots(&self) -> usize {
        usize::from(self.extra_slots) + 1
    }

    /// Size of a data block in bytes.
    pub fn data_block_size(&self) -> u64 {
        self.data_block_sectors.bytes()
    }

    /// log2 of the pointers in one indirect block.
    pub fn pointers_per_indirect_shift(&self) -> u32 {
        u32::from(self.indirect_shift) - crate::blkptr::BLKPTR_SHIFT
    }

    /// Space taken, in bytes (`DN_USED_BYTES`).
    pub fn used_bytes(&self) -> u64 {
        if self.flags & FLAG_USED_BYTES != 0 { self.used } else { Sectors(self.used).saturating_bytes() }
    }

    /// Bytes that this dnode's bonus may grow to.
    pub fn bonus_capacity(&self) -> usize {
        bonus_capacity(self.slots(), self.blkptrs.len(), self.spill.is_some())
    }
}

/// Walks the dnodes of a decoded dnode block: the slot index within the block and what stands there. A free slot
/// counts one; a large dnode is given once, at its first slot. After a slot that does not decode the walk goes on with
/// the next slot.
pub fn dnodes_in_block(block: &[u8]) -> impl Iterator<Item = (usize, Result<DnodePhys, Error>)> + '_ {
    let mut slot = 0;
    std::iter::from_fn(move || {
        while (slot + 1) * DNODE_SIZE <= block.len() {
            let at = slot;
            match DnodePhys::decode(&block[at * DNODE_SIZE..]) {
                Ok(None) => slot += 1,
                Ok(Some(dnode)) => {
                    slot += dnode.slots();
                    return Some((at, Ok(dnode)));
                }
                Err(error) => {
                    slot += 1;
                    return Some((at, Err(error)));
                }
            }
        }
        None
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    pub(crate) fn any_blkptr() -> impl Strategy<Value = BlkPtr> {
        any::<[u64; 16]>().prop_map(|words| BlkPtr { words })
    }

    pub(crate) fn any_dnode(slots: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = DnodePhys> {
        (slots, 1..=3usize, any::<bool>())
            .prop_map(|(slots, nblkptr, spill)| (slots, nblkptr, spill && (slots > 1 || nblkptr < 3)))
            .prop_flat_map(|(slots, nblkptr, spill)| {
                let capacity = bonus_capacity(slots, nblkptr, spill);
                (
                    (1..=255u8, 10..=24u8, 1..=MAX_LEVELS, any::<[u8; 4]>()),
                    (1..=MAX_DATA_BLOCK.0, 0..1u64 << 33, any::<u64>()),
                    vec(any_blkptr(), nblkptr),
                    vec(any::<u8>(), 0..=capacity),
                    any_blkptr(),
                )
                    .prop_map(move |(head, sizes, blkptrs, bonus, spill_bp)| DnodePhys {
                        object_type: ObjectType::from_number(head.0),
                        indirect_shift: head.1,
                        levels: head.2,
                        bonus_type: ObjectType::from_number(head.3[0]),
                        checksum: Checksum::from_number(head.3[1]),
                        compression: Compression::from_number(head.3[2]),
                        flags: head.3[3] & !FLAG_SPILL_BLKPTR | if spill { FLAG_SPILL_BLKPTR } else { 0 },
                        data_block_sectors: Sectors(sizes.0),
                        bonus_length: bonus.len() as u16,
                        extra_slots: slots as u8 - 1,
                        max_blkid: sizes.1,
                        used: sizes.2,
                        blkptrs,
                        bonus,
                        spill: spill.then_some(spill_bp),
                    })
            })
    }

    proptest! {
        #[test]
        fn decode_gives_back_what_encode_wrote(dnode in any_dnode(1..=32)) {
            let mut bytes = vec![0xaa; dnode.slots() * DNODE_SIZE];
            dnode.encode(&mut bytes);
            prop_assert_eq!(DnodePhys::decode(&bytes).unwrap().unwrap(), dnode);
        }

        #[test]
        fn any_bytes_decode_or_fail_and_what_decodes_encodes(bytes in vec(any::<u8>(), 512..2048)) {
            if let Ok(Some(dnode)) = DnodePhys::decode(&bytes) {
                let mut out = vec![0; dnode.slots() * DNODE_SIZE];
                dnode.encode(&mut out);
                prop_assert_eq!(DnodePhys::decode(&out).unwrap().unwrap(), dnode);
            }
        }
    }

    // With indirect blocks of 1 KiB the last block may need 19 levels: the next sync of such an object panicked.
    #[test]
    fn a_last_block_that_no_tree_reaches_is_damage() {
        let mut bytes = vec![0; DNODE_SIZE];
        (bytes[0], bytes[1], bytes[2], bytes[3], bytes[8]) = (19, 10, 1, 1, 1);
        put_u64(&mut bytes, 16, (1 << 33) - 1);
        assert!(DnodePhys::decode(&bytes).unwrap().is_some());
        put_u64(&mut bytes, 16, 1 << 33);
        assert!(DnodePhys::decode(&bytes).is_err());
        // 4 KiB ones reach whatever fits 64 bits.
        bytes[1] = 12;
        put_u64(&mut bytes, 16, (1 << 55) - 1);
        assert!(DnodePhys::decode(&bytes).unwrap().is_some());
    }

    #[test]
    fn a_free_slot_is_no_dnode() {
        assert_eq!(DnodePhys::decode(&[0; 512]), Ok(None));
        assert!(matches!(DnodePhys::decode(&[0; 511]), Err(Error::Truncated { .. })));
    }

    #[test]
    fn the_walk_skips_the_inner_slots_of_large_dnodes() {
        let mut block = vec![0; DNODE_BLOCK_SIZE];
        let dnode = |slots: u8| DnodePhys {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            indirect_shift: 17,
            levels: 1,
            bonus_type: ObjectType::SA,
            checksum: Checksum::INHERIT,
            compression: Compression::INHERIT,
            flags: FLAG_USED_BYTES,
            data_block_sectors: Sectors(1),
            bonus_length: 500,
            extra_slots: slots - 1,
            max_blkid: 0,
            used: 0,
            blkptrs: vec![BlkPtr::HOLE],
            bonus: vec![19; 500],
            spill: None,
        };
        dnode(2).encode(&mut block[512..1536]);
        dnode(4).encode(&mut block[2048..4096]);
        let slots: Vec<_> = dnodes_in_block(&block).map(|(slot, dnode)| (slot, dnode.unwrap().slots())).collect();
        assert_eq!(slots, [(1, 2), (4, 4)]);
    }
}
