//! The list behind a redaction bookmark: which blocks of its snapshot are left out of a stream, and for whose sake
//! (`redaction_list_phys_t`, `redact_block_phys_t`, `include/sys/dsl_bookmark.h`).
//!
//! ```text
//! object in the MOS:  bonus:     how far it is, entries, guids of snapshots
//!                     contents:  object, first block, block size and count │ …   in order, 32 bytes each
//! ```
//! What does not fit into a bonus is not made here: where OpenZFS puts it (feature `redaction_list_spill`), the pointer
//! of the spill block lies over the third pointer of the list.

use std::sync::Arc;

use platter_dmu::{Dnode, NewDnode, Objset, Tx};
use platter_ondisk::dnode::{MAX_INDIRECT_SHIFT, OLD_MAX_BONUS};
use platter_ondisk::features::Feature;
use platter_ondisk::{Guid, ObjectId, ObjectType, Sectors};
use platter_zio::{Result, ZioError};

use crate::pool::DslPool;

/// Bytes of an entry, and of what is in front of the guids.
const ENTRY: usize = 32;
const HEAD: usize = 32;
/// Entries read at a time.
const AT_ONCE: u64 = 4096;
/// Bits of an entry's count (`REDACT_BLOCK_MAX_COUNT`).
const COUNT_BITS: u32 = 48;
/// Blocks of the list (`SPA_OLD_MAXBLOCKSIZE`), in bytes.
const BLOCK_SIZE: u32 = 128 << 10;

/// Blocks of an object in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedactedBlocks {
    /// The object.
    pub object: ObjectId,
    /// The first block.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Bytes of a block.
    pub block_size: u64,
}

impl RedactedBlocks {
    /// Most blocks of one entry.
    pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

    fn encode(&self) -> [u8; ENTRY] {
        assert!(self.count > 0 && self.count <= Self::COUNT_MAX, "an entry has a block");
        let sizes = Sectors::of(self.block_size).0 << COUNT_BITS | (self.count - 1);
        let mut bytes = [0; ENTRY];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.object.0, self.first, sizes, 0]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let sizes = word(bytes, 2);
        Self {
            object: ObjectId(word(bytes, 0)),
            first: word(bytes, 1),
            count: (sizes & ((1 << COUNT_BITS) - 1)) + 1,
            block_size: Sectors(sizes >> COUNT_BITS).bytes(),
        }
    }
}

/// The 64-bit word number `at`.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"))
}

/// What a list says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactionHead {
    /// The last block that was looked at; `u64::MAX` for both when it is complete.
    pub last: (u64, u64),
    /// Entries.
    pub entries: u64,
    /// For whose sake: what none of these has in common with the snapshot is left out.
    pub snaps: Vec<Guid>,
}

impl RedactionHead {
    /// Whether all of the snapshot was looked at.
    pub fn is_complete(&self) -> bool {
        self.last == (u64::MAX, u64::MAX)
    }

    fn encode(&self) -> Vec<u8> {
        let words = [self.last.0, self.last.1, self.entries, self.snaps.len() as u64];
        words.into_iter().chain(self.snaps.iter().map(|guid| guid.0)).flat_map(u64::to_le_bytes).collect()
    }

    fn decode(object: ObjectId, bytes: &[u8]) -> Result<Self> {
        let damaged = |what: &str| ZioError::corrupt("redaction list", format!("object {object}: {what}"));
        if bytes.len() < HEAD {
            return Err(damaged("it is too short"));
        }
        let there = (bytes.len() - HEAD) as u64 / 8;
        let count = word(bytes, 3);
        if count > there {
            return Err(damaged("it has not all of its snapshots"));
        }
        let snaps = (0..count as usize).map(|at| Guid(word(bytes, 4 + at))).collect();
        Ok(Self { last: (word(bytes, 0), word(bytes, 1)), entries: word(bytes, 2), snaps })
    }
}

/// Most snapshots that a list can have.
pub const SNAPSHOTS_MAX: usize = (OLD_MAX_BONUS - HEAD) / 8;

/// Makes an empty list for the sake of these snapshots, at most [`SNAPSHOTS_MAX`]. Within a task.
///
/// # Errors
/// Out of space, device errors.
pub async fn create(dsl: &Arc<DslPool>, tx: &Tx, head: &RedactionHead) -> Result<ObjectId> {
    let bytes = head.encode();
    assert!(bytes.len() <= OLD_MAX_BONUS, "it was looked at how many there are");
    let new = NewDnode {
        object_type: ObjectType::OTN_UINT64_METADATA,
        block_size: BLOCK_SIZE,
        indirect_shift: MAX_INDIRECT_SHIFT,
        bonus_type: ObjectType::OTN_UINT64_METADATA,
        bonus_length: bytes.len() as u16,
        dnode_size: 0,
    };
    let dnode = dsl.mos.allocate(tx, new).await?;
    dsl.features.adjust(tx, Feature::RedactionBookmarks, 1).await?;
    dnode.set_bonus(tx, ObjectType::OTN_UINT64_METADATA, &bytes)?;
    Ok(dnode.object())
}

/// What the list says of itself.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(mos: &Arc<Objset>, object: ObjectId) -> Result<RedactionHead> {
    let dnode = mos.dnode(object).await?;
    if dnode.info().bonus_type != ObjectType::OTN_UINT64_METADATA {
        return Err(ZioError::corrupt("redaction list", format!("object {object} is something else")));
    }
    RedactionHead::decode(object, &dnode.bonus())
}

/// Appends entries, which come after those that are there, and says how far it is. Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn append(
    dsl: &DslPool,
    tx: &Tx,
    object: ObjectId,
    head: &mut RedactionHead,
    entries: &[RedactedBlocks],
) -> Result<()> {
    let dnode = dsl.mos.dnode(object).await?;
    let bytes: Vec<u8> = entries.iter().flat_map(RedactedBlocks::encode).collect();
    if !bytes.is_empty() {
        dnode.write(tx, head.entries * ENTRY as u64, &bytes).await?;
    }
    head.entries += entries.len() as u64;
    dnode.set_bonus(tx, ObjectType::OTN_UINT64_METADATA, &head.encode())
}

/// Removes a list with its bookmark. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn destroy(dsl: &DslPool, tx: &Tx, object: ObjectId) -> Result<()> {
    dsl.mos.free_object(tx, object).await?;
    dsl.features.adjust(tx, Feature::RedactionBookmarks, -1).await
}

/// Goes through a list, in order.
pub struct Entries {
    dnode: Arc<Dnode>,
    left: std::ops::Range<u64>,
    ahead: std::vec::IntoIter<RedactedBlocks>,
    /// What is left of the entry that is next.
    front: Option<RedactedBlocks>,
}

impl Entries {
    /// From the first on.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn of(mos: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        let head = load(mos, object).await?;
        let dnode = mos.dnode(object).await?;
        let mut entries = Self { dnode, left: 0..head.entries, ahead: Vec::new().into_iter(), front: None };
        entries.advance().await?;
        Ok(entries)
    }

    async fn advance(&mut self) -> Result<()> {
        self.front = self.ahead.next();
        if self.front.is_some() || self.left.is_empty() {
            return Ok(());
        }
        let count = (self.left.end - self.left.start).min(AT_ONCE);
        let mut bytes = vec![0; count as usize * ENTRY];
        self.dnode.read(self.left.start * ENTRY as u64, &mut bytes).await?;
        self.left.start += count;
        let entries: Vec<RedactedBlocks> = bytes.chunks_exact(ENTRY).map(RedactedBlocks::decode).collect();
        self.ahead = entries.into_iter();
        self.front = self.ahead.next();
        Ok(())
    }

    /// The next blocks; none at the end.
    pub fn peek(&self) -> Option<RedactedBlocks> {
        self.front
    }

    /// Passes over all in front of block `blkid` of `object`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn skip_to(&mut self, object: u64, blkid: u64) -> Result<()> {
        while let Some(front) = &mut self.front {
            let end = front.first.saturating_add(front.count);
            if front.object.0 > object || front.object.0 == object && front.first >= blkid {
                return Ok(());
            }
            if front.object.0 == object && end > blkid {
                (front.first, front.count) = (blkid, end - blkid);
                return Ok(());
            }
            self.advance().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_was_given() {
        for count in [1, 2, 1 << 20, RedactedBlocks::COUNT_MAX] {
            let entry = RedactedBlocks { object: ObjectId(77), first: 1 << 40, count, block_size: 16 << 20 };
            assert_eq!(RedactedBlocks::decode(&entry.encode()), entry);
        }
        let head = RedactionHead { last: (3, 4), entries: 5, snaps: vec![Guid(6), Guid(u64::MAX)] };
        let bytes = head.encode();
        assert_eq!(RedactionHead::decode(ObjectId(1), &bytes).unwrap(), head);
        for length in 0..bytes.len() {
            assert!(RedactionHead::decode(ObjectId(1), &bytes[..length]).is_err(), "{length} bytes");
        }
    }
}
