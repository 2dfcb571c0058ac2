//! A ZAP of numbers copied block by block: what would take an addition for each key takes one look at each block, or
//! none where memory knows which keys have another value.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::ObjectId;
use platter_ondisk::zap::micro::{entries, slot_offset};
use platter_ondisk::zap::{BlockKind, FatHeader, Leaf, LeafMut, Outcome};
use platter_zio::{Result, Tx, ZioError};

use crate::core::Dnode;
use crate::objset::Objset;
use crate::zap::fat::{Fat, IfPresent};
use crate::zap::live::{MEMORY_MAX, NewZap, Zap};
use crate::zap::numbers::name;
use crate::zap_entries::key::damaged;
use crate::zap_entries::value::ZapValue;

/// Bytes of the values.
const VALUE_SIZE: u8 = 8;

/// A fat ZAP of smaller blocks gets blocks of this size, in bytes (`SPA_OLD_MAXBLOCKSIZE`, the largest that
/// `zap_create_flags` takes): a copy is written as a whole, in fewer pieces.
const BLOCK_SIZE: u32 = 128 << 10;

/// One of more blocks is not copied but built: a damaged header may claim any number.
const BLOCKS_MAX: u64 = 1024;

/// So many keys with another value are set one by one, and no block is looked at.
const OTHERS_MAX: usize = 64;

impl Zap {
    /// Makes a ZAP in a new object that has the keys of `from`, a ZAP of numbers, each with `value`.
    ///
    /// # Errors
    /// Out of space, device errors, damage.
    pub async fn create_with_keys_of(os: &Arc<Objset>, tx: &Tx, from: &Self, new: NewZap, value: u64) -> Result<Self> {
        let zap = Self::create(os, tx, None, new).await?;
        let guards = (from.shared().lock.read().await, zap.shared().lock.write().await);
        zap.shared().forget();
        let numbers = from.take_numbers().await?;
        let others = numbers.as_ref().map(|numbers| others(numbers, value)).filter(|others| others.len() <= OTHERS_MAX);
        let (source, copy) = (from.dnode(), zap.dnode());
        let head = source.read_metadata(0).await?;
        match BlockKind::of(&head).map_err(damaged(source.object()))? {
            BlockKind::Micro => {
                copy.set_block_size(tx, source.block_size()).await?;
                copy.write_block(tx, 0, micro_with(source.object(), &head, value)?).await?;
            }
            BlockKind::Header => {
                let header = FatHeader::decode(&head).map_err(damaged(source.object()))?;
                let is_copied = source.block_size() >= BLOCK_SIZE && header.free_block <= BLOCKS_MAX;
                match (is_copied, others) {
                    (true, Some(others)) => copy_but(tx, source, copy, (head, header), (&others, value)).await?,
                    (true, None) => copy_fat(tx, source, copy, (head, header), value).await?,
                    (false, _) => build(tx, source, copy, &head, value).await?,
                }
            }
        }
        zap.keep(numbers, |numbers| numbers.iter_mut().for_each(|(_, old)| *old = value));
        drop(guards);
        Ok(zap)
    }
}

/// The keys that have another value than this one.
fn others(numbers: &[(u64, u64)], value: u64) -> Vec<u64> {
    numbers.iter().filter(|&&(_, other)| other != value).map(|&(key, _)| key).collect()
}

/// Copies a fat ZAP, of which `head` is the first block, as it is, and then sets these keys to `value`.
async fn copy_but(
    tx: &Tx,
    source: &Dnode,
    copy: &Dnode,
    (head, header): (Buf, FatHeader),
    (others, value): (&[u64], u64),
) -> Result<()> {
    copy.set_block_size(tx, source.block_size()).await?;
    copy.write_block(tx, 0, head.clone()).await?;
    for number in 1..header.free_block {
        copy.write_block(tx, number, source.read_metadata(number).await?).await?;
    }
    let (mut fat, value) = (Fat::open(copy, &head)?, ZapValue::from_u64(value));
    for key in others {
        let (key, hash) = fat.naming().key_for_writing(name(*key).as_bytes())?;
        fat.set(tx, &key, hash, None, &value, IfPresent::Replace).await?;
    }
    Ok(())
}

/// Copies a fat ZAP, of which `head` is the first block.
async fn copy_fat(tx: &Tx, source: &Dnode, copy: &Dnode, (head, header): (Buf, FatHeader), value: u64) -> Result<()> {
    copy.set_block_size(tx, source.block_size()).await?;
    copy.write_block(tx, 0, head).await?;
    let (table, blocks) = (header.table, header.table.blocks);
    let is_table = |block: u64| {
        let among = |first: u64, count: u64| first != 0 && (first..first.saturating_add(count)).contains(&block);
        among(table.block, blocks) || among(table.next_block, blocks * 2)
    };
    for number in 1..header.free_block {
        let block = source.read_metadata(number).await?;
        let block = if is_table(number) { block } else { leaf_with(source.object(), block, value)? };
        copy.write_block(tx, number, block).await?;
    }
    Ok(())
}

/// Builds a fat ZAP of larger blocks with the keys of another one, of which `head` is the first block.
async fn build(tx: &Tx, source: &Dnode, copy: &Dnode, head: &[u8], value: u64) -> Result<()> {
    let old = Fat::open(source, head)?;
    copy.set_block_size(tx, BLOCK_SIZE).await?;
    let mut new = Fat::format(copy, tx, old.naming()).await?;
    let value = ZapValue::from_u64(value);
    for entry in old.entries(0, usize::MAX, MEMORY_MAX).await? {
        let (key, hash) = old.naming().key_for_writing(&entry.name)?;
        new.set(tx, &key, hash, None, &value, IfPresent::Fail).await?;
    }
    Ok(())
}

/// A micro ZAP's block with this value in each entry.
fn micro_with(object: ObjectId, block: &Buf, value: u64) -> Result<Buf> {
    let mut copy = block.clone();
    for entry in entries(block) {
        let (slot, _) = entry.map_err(damaged(object))?;
        let at = slot_offset(slot);
        copy.make_mut()[at..at + usize::from(VALUE_SIZE)].copy_from_slice(&value.to_le_bytes());
    }
    Ok(copy)
}

/// A fat ZAP's leaf with this value in each entry.
fn leaf_with(object: ObjectId, mut block: Buf, value: u64) -> Result<Buf> {
    let (damaged, wanted) = (damaged(object), value.to_be_bytes());
    if block.iter().all(|&byte| byte == 0) {
        // Where a table was before it grew.
        return Ok(block);
    }
    let leaf = Leaf::open(&block).map_err(&damaged)?;
    let mut others = Vec::new();
    for entry in leaf.entries_from(0, 0).map_err(&damaged)? {
        if leaf.value(&entry).map_err(&damaged)? != wanted {
            others.push(entry);
        }
    }
    for entry in others {
        let mut leaf = LeafMut::open(block.make_mut()).map_err(&damaged)?;
        match leaf.update(&entry, VALUE_SIZE, &wanted).map_err(&damaged)? {
            Outcome::Done => {}
            Outcome::Full => return Err(ZioError::corrupt("ZAP", format!("object {object}: a value is no number"))),
        }
    }
    Ok(block)
}
