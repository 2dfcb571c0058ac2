//! The list of lost blocks as pools with feature `head_errlog` have it (`module/zfs/spa_errlog.c`): for each head a ZAP
//! of its own whose names are blocks (`zbookmark_err_phys_t`), with the group in which each was born. So snapshots and
//! clones that share a lost block can be [told](crate::error_holders) when the list is read, and what was freed or
//! written over is on it no more.
//!
//! Here objects are known to be damaged, not blocks: what is written is block 0 of each, with birth 0, which says of no
//! others than that data set itself that they lost it (`process_error_block`).
//!
//! What a log names is freed with it only when it is such a list.
//!
//! Invariant: a head has one list.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::zap::{Zap, ZapEntry, ZapValue};
use platter_dmu::{Objset, Result, Tx};
use platter_dsl::mos;
use platter_ondisk::{ObjectId, ObjectType, Txg};

use crate::core::Core;

/// A block that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostBlock {
    /// Where it was found: a head, or 0 for the MOS.
    pub head: ObjectId,
    /// The object it belongs to.
    pub object: ObjectId,
    /// Its level.
    pub level: i8,
    /// Its number at that level.
    pub blkid: u64,
    /// 0 when it is not known.
    pub birth: Txg,
}

impl LostBlock {
    /// What the name of an entry below `head` says; `None` when it makes no sense.
    fn parse(head: ObjectId, name: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(name).ok()?;
        let numbers: Option<Vec<u64>> = text.split(':').map(|part| u64::from_str_radix(part, 16).ok()).collect();
        let [object, level, blkid, birth] = numbers?[..] else { return None };
        let level = i8::try_from(level as i64).ok()?;
        Some(Self { head, object: ObjectId(object), level, blkid, birth: Txg(birth) })
    }
}

/// The list of one head, if an entry of a log names one.
fn list_of(entry: &ZapEntry) -> Option<(ObjectId, ObjectId)> {
    let head = u64::from_str_radix(std::str::from_utf8(&entry.name).ok()?, 16).ok()?;
    Some((ObjectId(head), ObjectId(*entry.value.integers.first().filter(|_| entry.value.integer_size == 8)?)))
}

/// Up to `limit` entries of a ZAP.
async fn entries(os: &Arc<Objset>, object: ObjectId, limit: usize) -> Result<Vec<ZapEntry>> {
    Zap::open(os, object).await?.entries(0, limit).await
}

/// Reads a log, up to `limit` blocks.
///
/// # Errors
/// The log itself cannot be read. Entries that make no sense are skipped, and lists that cannot be read.
pub async fn read(os: &Arc<Objset>, log: &Zap, limit: usize) -> Result<Vec<LostBlock>> {
    let mut lost = Vec::new();
    for (head, list) in log.entries(0, limit).await?.iter().filter_map(list_of) {
        let entries = entries(os, list, limit - lost.len()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the list of errors in data set {head} cannot be read");
            Vec::new()
        });
        lost.extend(entries.iter().filter_map(|entry| LostBlock::parse(head, &entry.name)));
        if lost.len() >= limit {
            break;
        }
    }
    Ok(lost)
}

/// Writes a log of these objects, each with its data set, in the order of these.
///
/// # Errors
/// Out of space, device errors.
pub async fn write(core: &Core, tx: &Tx, log: &Zap, damaged: impl Iterator<Item = (ObjectId, ObjectId)>) -> Result<()> {
    let mut list: Option<(ObjectId, Zap)> = None;
    for (objset, object) in damaged {
        if list.as_ref().is_none_or(|(of, _)| *of != objset) {
            assert!(list.as_ref().is_none_or(|(of, _)| *of < objset), "objects come by data set, in order");
            let made = mos::create_zap(&core.dsl.mos, tx, ObjectType::ERROR_LOG, core.random()).await?;
            log.put_u64(tx, format!("{:x}", objset.0).as_bytes(), made.0).await?;
            list = Some((objset, Zap::open(&core.dsl.mos, made).await?));
        }
        let (_, zap) = list.as_ref().expect("just made");
        let name = format!("{:x}:0:0:0", object.0);
        zap.put(tx, name.as_bytes(), &ZapValue { integer_size: 1, integers: vec![0] }).await?;
    }
    Ok(())
}

/// Frees the lists of the heads that a log names, before the log itself.
///
/// # Errors
/// Device errors. What cannot be read stays for good.
pub async fn free_lists(core: &Core, tx: &Tx, log: ObjectId) -> Result<()> {
    let entries = entries(&core.dsl.mos, log, usize::MAX).await.unwrap_or_default();
    // They may be anything, also the same one twice or the log itself.
    let lists: BTreeSet<ObjectId> = entries.iter().filter_map(list_of).map(|(_, list)| list).collect();
    for list in lists.into_iter().filter(|list| *list != log) {
        let Ok(dnode) = core.dsl.mos.dnode(list).await else { continue };
        let kind = dnode.info().object_type;
        if kind != ObjectType::ERROR_LOG {
            tracing::warn!(pool = core.name(), "object {list}, a {kind:?}, is taken for a list of errors: it stays");
            continue;
        }
        core.dsl.mos.free_object(tx, list).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_blocks_or_nothing() {
        let head = ObjectId(54);
        let block = LostBlock::parse(head, b"80:1:2f:1a0").expect("a block");
        let expected = LostBlock { head, object: ObjectId(0x80), level: 1, blkid: 0x2f, birth: Txg(0x1a0) };
        assert_eq!(block, expected);
        let spill = LostBlock::parse(head, b"80:fffffffffffffffe:ffffffffffffffff:5").expect("a block");
        assert_eq!((spill.level, spill.blkid), (-2, u64::MAX));
        for name in ["", "80", "80:0:0", "80:0:0:0:0", "80:100:0:0", "x:0:0:0", "80:0::0", "+80:0:0:0:", "é:0:0:0"] {
            assert_eq!(LostBlock::parse(head, name.as_bytes()), None, "{name}");
        }
    }
}
