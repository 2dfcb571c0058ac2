//! The index of a micro ZAP in memory: what its one block has, in hash order, so that no look-up is linear in its size.

use std::collections::BTreeSet;

use platter_buffer::Buf;
use platter_ondisk::ObjectId;
use platter_ondisk::zap::leaf::array_chunks;
use platter_ondisk::zap::micro::{self, MicroEntry, MicroHeader};
use platter_ondisk::zap::{FAT_BLOCK_SHIFT, MICRO_SIZE_MAX, cursor, cursor_parts};
use platter_zio::Result;

use crate::zap_entries::key::{Naming, damaged};
use crate::zap_entries::value::{ZapEntry, ZapValue};

/// Chunks of a 16 KiB leaf, and the most that one entry of a micro ZAP takes in it.
const LEAF_CHUNKS: usize = 638;
const ENTRY_CHUNKS: usize = 1 + array_chunks(micro::NAME_SIZE) + array_chunks(8);

const _: () = assert!(FAT_BLOCK_SHIFT == 14);

/// The entries of a micro ZAP in hash order.
#[derive(Debug)]
pub(crate) struct Index {
    naming: Naming,
    /// Hash, differentiator, slot.
    pub(crate) order: BTreeSet<(u64, u32, u16)>,
    /// No slot below this one is free.
    pub(crate) free_hint: usize,
}

/// What a write needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// This slot is free.
    Slot(usize),
    /// The block must grow to this many bytes first.
    Grow(u32),
    /// Only a fat ZAP can take the entry.
    Fat,
}

impl Index {
    /// Reads all of `block`.
    pub fn build(block: &[u8], object: ObjectId) -> Result<Self> {
        let header = MicroHeader::decode(block).map_err(damaged(object))?;
        let naming = Naming { salt: header.salt, normalization: header.normalization, flags: 0 };
        let mut order = BTreeSet::new();
        for entry in micro::entries(block) {
            let (slot, entry) = entry.map_err(damaged(object))?;
            order.insert((naming.hash_or_any(entry.name), entry.cd, slot as u16));
        }
        Ok(Self { naming, order, free_hint: 0 })
    }

    pub fn naming(&self) -> Naming {
        self.naming
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    fn with_hash(&self, hash: u64) -> impl Iterator<Item = (u32, usize)> {
        self.order.range((hash, 0, 0)..=(hash, u32::MAX, u16::MAX)).map(|&(_, cd, slot)| (cd, usize::from(slot)))
    }

    fn entry<'a>(&self, block: &'a [u8], slot: usize) -> Option<MicroEntry<'a>> {
        // The index was built from this block, so damage was noticed then.
        (slot < micro::slots(block.len())).then(|| micro::entry(block, slot).ok().flatten()).flatten()
    }

    /// The slot and value of the first entry whose name has `name`'s hash and satisfies `matches`.
    pub fn find<'a>(
        &self,
        block: &'a [u8],
        name: &[u8],
        matches: impl Fn(&[u8]) -> bool,
    ) -> Option<(usize, MicroEntry<'a>)> {
        self.with_hash(self.naming.hash_or_any(name))
            .filter_map(|(_, slot)| Some((slot, self.entry(block, slot)?)))
            .find(|(_, entry)| matches(entry.name))
    }

    /// Where an entry with this hash could go.
    pub fn room(&self, block: &[u8], hash: u64) -> Room {
        // In a fat ZAP all names of one hash share a leaf; do not collect more than fit.
        if (self.with_hash(hash).count() + 1) * ENTRY_CHUNKS >= LEAF_CHUNKS {
            return Room::Fat;
        }
        let slots = micro::slots(block.len());
        if self.order.len() < slots {
            let free = (self.free_hint..slots).find(|&slot| self.entry(block, slot).is_none());
            if let Some(slot) = free {
                return Room::Slot(slot);
            }
        }
        let size = block.len() + micro::GROWTH;
        if size > MICRO_SIZE_MAX { Room::Fat } else { Room::Grow(size as u32) }
    }

    pub(crate) fn unused_cd(&self, hash: u64) -> u32 {
        self.with_hash(hash).zip(0u32..).take_while(|((cd, _), index)| cd == index).count() as u32
    }

    /// Up to `limit` entries after `from`.
    pub fn entries(&self, block: &Buf, from: u64, limit: usize) -> Vec<ZapEntry> {
        let (hash, cd) = cursor_parts(from, 0);
        self.order
            .range((hash, cd, 0)..)
            .filter_map(|&(hash, cd, slot)| {
                let entry = self.entry(block, usize::from(slot))?;
                Some(ZapEntry {
                    name: entry.name.to_vec(),
                    value: ZapValue { integer_size: 8, integers: vec![entry.value] },
                    cursor: cursor(hash, cd.saturating_add(1), 0),
                })
            })
            .take(limit)
            .collect()
    }
}
