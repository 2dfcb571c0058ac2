//! Letting go of deduplicated blocks (`module/zfs/ddt.c`, `ddt_zap.c`, `ddt_stats.c`): the table of a checksum counts
//! how often each block is referenced, and only the last reference frees it. This program adds nothing to the tables.
//!
//! ```text
//! name of an entry:   checksum (4 words) | lsize, psize, compression as in a block pointer
//! its value:          algorithm (bit 7: little-endian) | 4 variants, compressed with zle
//! a variant:          three addresses (6 words) | references | physical birth
//! ```
//!
//! Variant 0 is obsolete ("ditto"), 1 to 3 are for blocks of that many copies.
//!
//! Invariants:
//! - an entry is in the table `duplicate` while it counts more than one reference, else in `unique`, and nowhere when
//!   it counts none;
//! - the statistics of a table are those of its entries.

use std::sync::Arc;

use platter_dmu::zap::{NewZap, Zap, ZapValue};
use platter_dmu::{Result, Tx, ZioError};
use platter_ondisk::names::dedup_table;
use platter_ondisk::zap::{FLAG_HASH64, FLAG_PRE_HASHED_KEY, FLAG_UINT64_KEY};
use platter_ondisk::{BlkPtr, Checksum, Compression, ObjectId, ObjectType};
use platter_zio::BlockStore;
use platter_zio::free_gang;

use crate::core::Core;
use platter_dsl::mos;

/// Tables an entry can be in; new ones are made as one of the last two.
const CLASSES: [&str; 3] = ["ditto", "duplicate", "unique"];
/// The only kind of table there is.
const TYPE: &str = "zap";
const VARIANTS: usize = 4;
const VARIANT_WORDS: usize = 8;
const WORDS: usize = VARIANTS * VARIANT_WORDS;
/// Word of a variant that counts references, and the one that holds the birth.
const REFERENCES: usize = 6;
const BIRTH: usize = 7;
/// Bit of an entry's first byte: the words are little-endian.
const LITTLE_ENDIAN: u8 = 0x80;
/// Words of a block pointer that hold addresses, and the one that describes it.
const DVA_WORDS: usize = 6;
const PROPERTIES: usize = 6;
/// Bit of the description that says "deduplicated".
const DEDUP_BIT: u64 = 1 << 62;
/// Bits of the description that belong to an entry's name: sizes and compression.
const NAME_BITS: u64 = (1 << 39) - 1;
/// Buckets of the statistics, by the logarithm of the references, and words of each.
const BUCKETS: usize = 64;
const BUCKET_WORDS: usize = 8;

/// An entry's variants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry([u64; WORDS]);

impl Entry {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        let mut plain = [0; WORDS * 8];
        match Compression::from_number(first & !LITTLE_ENDIAN) {
            Compression::ZLE => platter_compress::decompress(Compression::ZLE, rest, &mut plain).ok()?,
            _ => plain.copy_from_slice(rest.get(..WORDS * 8)?),
        }
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(plain.as_chunks::<8>().0) {
            let little = first & LITTLE_ENDIAN != 0;
            *word = if little { u64::from_le_bytes(*chunk) } else { u64::from_be_bytes(*chunk) };
        }
        Some(Self(words))
    }

    fn encode(&self) -> Vec<u8> {
        let plain: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut packed = vec![0; plain.len() - 1];
        let (kind, bytes) = match platter_compress::compress(Compression::ZLE, 0, &plain, &mut packed) {
            Some(length) => (Compression::ZLE, &packed[..length]),
            None => (Compression::OFF, &plain[..]),
        };
        let mut out = vec![kind.number() | LITTLE_ENDIAN];
        out.extend_from_slice(bytes);
        out
    }

    fn variant(&self, index: usize) -> &[u64] {
        &self.0[index * VARIANT_WORDS..(index + 1) * VARIANT_WORDS]
    }

    fn variant_mut(&mut self, index: usize) -> &mut [u64] {
        &mut self.0[index * VARIANT_WORDS..(index + 1) * VARIANT_WORDS]
    }

    /// The variant that `bp` refers to (`ddt_phys_select`).
    fn select(&self, bp: &BlkPtr) -> Option<usize> {
        (0..VARIANTS).find(|&index| {
            let variant = self.variant(index);
            variant[BIRTH] == bp.physical_birth().0 && variant[..2] == bp.words[..2]
        })
    }

    /// References to blocks that are not obsolete.
    fn references(&self) -> u64 {
        (1..VARIANTS).fold(0, |sum, index| sum.saturating_add(self.variant(index)[REFERENCES]))
    }

    /// What the entry adds to the statistics of its table, and to which bucket (`ddt_stat_generate`).
    fn statistics(&self, core: &Core, bp: &BlkPtr) -> Option<(usize, [u64; BUCKET_WORDS])> {
        let mut sums = [0u64; BUCKET_WORDS];
        for index in (0..VARIANTS).filter(|&index| self.variant(index)[BIRTH] != 0) {
            let block = self.block(index, bp);
            let each = [1, bp.lsize(), bp.psize(), core.dsl.store.dsize(&block)];
            for (at, value) in each.into_iter().enumerate() {
                sums[at] = sums[at].wrapping_add(value);
                let referenced = value.wrapping_mul(self.variant(index)[REFERENCES]);
                sums[at + each.len()] = sums[at + each.len()].wrapping_add(referenced);
            }
        }
        let references = sums[BUCKET_WORDS / 2];
        (references > 0).then(|| (references.ilog2() as usize, sums))
    }

    /// A pointer to the block of one variant, without the mark of deduplication: freeing it frees the space.
    fn block(&self, index: usize, bp: &BlkPtr) -> BlkPtr {
        let mut block = *bp;
        block.words[..DVA_WORDS].copy_from_slice(&self.variant(index)[..DVA_WORDS]);
        block.words[PROPERTIES] &= !DEDUP_BIT;
        block
    }
}

fn checksum_name(kind: Checksum) -> Option<&'static str> {
    Some(match kind {
        Checksum::SHA256 => "sha256",
        Checksum::SHA512 => "sha512",
        Checksum::SKEIN => "skein",
        Checksum::EDONR => "edonr",
        Checksum::BLAKE3 => "blake3",
        _ => return None,
    })
}

fn entry_name(bp: &BlkPtr) -> Vec<u8> {
    let [a, b, c, d] = bp.checksum();
    [a, b, c, d, bp.words[PROPERTIES] & NAME_BITS].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Takes one reference of the deduplicated block `bp` back, and frees the block with its last one.
///
/// # Errors
/// Damage in the tables, unreadable blocks. A block that no table knows stays allocated, with a warning.
pub async fn release(core: &Arc<Core>, tx: &Tx, bp: &BlkPtr) -> Result<()> {
    let Some(checksum) = checksum_name(bp.checksum_kind()) else {
        return Err(ZioError::corrupt("dedup table", format!("{bp:?} has a checksum that none is kept for")));
    };
    let name = entry_name(bp);
    for class in CLASSES {
        let object_name = dedup_table(checksum, TYPE, class);
        let Some(object) = core.dsl.directory.get_u64(object_name.as_bytes()).await? else { continue };
        let table = Zap::open(&core.dsl.mos, ObjectId(object)).await?;
        let Some(value) = table.get(&name).await? else { continue };
        let entry = value.to_bytes().and_then(|bytes| Entry::decode(&bytes));
        let before =
            entry.ok_or_else(|| ZioError::corrupt("dedup table", format!("{object_name}: entry of {bp:?}")))?;
        let Some(index) = before.select(bp) else { continue };
        let mut after = before.clone();
        let references = &mut after.variant_mut(index)[REFERENCES];
        *references = references.saturating_sub(1);
        assert!(after.references() <= before.references(), "letting go of a block gives it no references");

        for index in 0..VARIANTS {
            // What nobody refers to goes, and with the entry its obsolete variant.
            let unused = if index == 0 { after.references() == 0 } else { after.variant(index)[REFERENCES] == 0 };
            if after.variant(index)[BIRTH] == 0 || !unused {
                continue;
            }
            let block = after.block(index, bp);
            if block.is_gang() {
                free_gang(&core.dsl.store, &block).await?;
            } else {
                core.dsl.store.state().allocator.lock().free(&block)?;
            }
            after.variant_mut(index).fill(0);
        }
        count(core, tx, &object_name, &before, bp, false).await?;
        let class_after = if after.references() > 1 { "duplicate" } else { "unique" };
        if after.references() == 0 || class_after != class {
            table.remove(tx, &name).await?;
        }
        if after.references() > 0 {
            let object_name = dedup_table(checksum, TYPE, class_after);
            let table = self::table(core, tx, &object_name, bp.checksum_kind()).await?;
            table.put(tx, &name, &ZapValue::from_bytes(&after.encode())).await?;
            count(core, tx, &object_name, &after, bp, true).await?;
        }
        return Ok(());
    }
    tracing::warn!(?bp, "no dedup table knows this block: its space is leaked");
    Ok(())
}

/// The table called `name`, made when there is none yet.
async fn table(core: &Core, tx: &Tx, name: &str, kind: Checksum) -> Result<Zap> {
    if let Some(object) = core.dsl.directory.get_u64(name.as_bytes()).await? {
        return Zap::open(&core.dsl.mos, ObjectId(object)).await;
    }
    // A checksum that is strong enough is its own hash (`ZCHECKSUM_FLAG_DEDUP`).
    let hashed = if kind == Checksum::EDONR { 0 } else { FLAG_PRE_HASHED_KEY };
    let flags = FLAG_HASH64 | FLAG_UINT64_KEY | hashed;
    let new = NewZap { flags, ..mos::new_zap(ObjectType::DDT_ZAP, core.random()) };
    let table = Zap::create(&core.dsl.mos, tx, None, new).await?;
    core.dsl.directory.put_u64(tx, name.as_bytes(), table.dnode().object().0).await?;
    Ok(table)
}

/// Adds an entry to the statistics of its table, or takes it off.
async fn count(core: &Core, tx: &Tx, table: &str, entry: &Entry, bp: &BlkPtr, add: bool) -> Result<()> {
    let Some(object) = core.dsl.directory.get_u64(mos::DDT_STATS.as_bytes()).await? else { return Ok(()) };
    let Some((bucket, sums)) = entry.statistics(core, bp) else { return Ok(()) };
    let zap = Zap::open(&core.dsl.mos, ObjectId(object)).await?;
    let mut words = zap.get(table.as_bytes()).await?.map(|value| value.integers).unwrap_or_default();
    words.resize(BUCKETS * BUCKET_WORDS, 0);
    for (word, sum) in words[bucket * BUCKET_WORDS..].iter_mut().zip(sums) {
        *word = if add { word.wrapping_add(sum) } else { word.wrapping_sub(sum) };
    }
    zap.put(tx, table.as_bytes(), &ZapValue { integer_size: 8, integers: words }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let mut entry = Entry([0; WORDS]);
        entry.variant_mut(1).copy_from_slice(&[1, 2, 0, 0, 0, 0, 7, 55]);
        entry.variant_mut(3).copy_from_slice(&[9, 8, 7, 6, 5, 4, 2, 60]);
        entry
    }

    #[test]
    fn an_entry_survives_its_codec_in_every_form() {
        let entry = entry();
        assert!(entry.encode().len() < WORDS * 8);
        assert_eq!(Entry::decode(&entry.encode()), Some(entry.clone()));
        let mut big_endian = vec![Compression::OFF.number()];
        big_endian.extend(entry.0.iter().flat_map(|word| word.to_be_bytes()));
        assert_eq!(Entry::decode(&big_endian), Some(entry));
        assert_eq!(Entry::decode(&[]), None);
        assert_eq!(Entry::decode(&[Compression::OFF.number(), 1, 2]), None);
    }

    #[test]
    fn a_pointer_selects_the_variant_of_its_address_and_birth() {
        let mut bp = BlkPtr::HOLE;
        bp.words[..2].copy_from_slice(&[9, 8]);
        bp.set_birth(platter_ondisk::Txg(60));
        assert_eq!(entry().select(&bp), Some(3));
        bp.set_birth(platter_ondisk::Txg(61));
        assert_eq!(entry().select(&bp), None);
        assert_eq!(entry().references(), 9);
    }
}
