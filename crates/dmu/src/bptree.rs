//! Object sets that are being freed in the background (`module/zfs/bptree.c`): a queue in an object.
//!
//! ```text
//! contents:  168-byte entries, densely: root pointer | group u64 | bookmark of four words
//! bonus:     first entry u64 | end u64 | used u64 | compressed u64 | uncompressed u64
//! ```
//!
//! Of an entry, the blocks that were born after its group are freed, from the bookmark on (all zeros: from the start).
//!
//! Invariants:
//! - the bonus's space is that of all blocks of all entries that are not freed yet;
//! - one writer at a time: the queue changes in sync context only.

use std::sync::Arc;

use platter_ondisk::dnode::MAX_INDIRECT_SHIFT;
use platter_ondisk::dsl::{BPTREE_ENTRY_SIZE, BPTREE_SIZE, BptreeEntryPhys, BptreePhys};
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::{Result, Tx, ZioError};

use crate::core::Dnode;
use crate::new_dnode::NewDnode;
use crate::objset::Objset;

/// Block size in bytes (`SPA_OLD_MAXBLOCKSIZE`).
const BLOCK: u32 = 128 << 10;
const ENTRY: u64 = BPTREE_ENTRY_SIZE as u64;

/// An open queue.
pub struct Bptree {
    dnode: Arc<Dnode>,
    /// The header.
    pub phys: BptreePhys,
}

impl Bptree {
    /// Allocates an empty queue and returns its object.
    ///
    /// # Errors
    /// Those of allocating an object.
    pub async fn create(mos: &Arc<Objset>, tx: &Tx) -> Result<ObjectId> {
        let new = NewDnode {
            object_type: ObjectType::OTN_UINT64_METADATA,
            block_size: BLOCK,
            indirect_shift: MAX_INDIRECT_SHIFT,
            bonus_type: ObjectType::OTN_UINT64_METADATA,
            bonus_length: BPTREE_SIZE as u16,
            dnode_size: 0,
        };
        let dnode = mos.allocate(tx, new).await?;
        dnode.set_bonus(tx, ObjectType::OTN_UINT64_METADATA, &BptreePhys::default().encode())?;
        Ok(dnode.object())
    }

    /// Opens queue `object`.
    ///
    /// # Errors
    /// No such object, no queue, or one that claims more entries than its object has room for.
    pub async fn open(mos: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        let dnode = mos.dnode(object).await?;
        let corrupt = |what: String| ZioError::corrupt("bptree", format!("object {object}: {what}"));
        let info = dnode.info();
        if info.bonus_type != ObjectType::OTN_UINT64_METADATA {
            return Err(corrupt(format!("its bonus has type {}", info.bonus_type)));
        }
        let phys = BptreePhys::decode(&dnode.bonus()).map_err(|error| corrupt(error.to_string()))?;
        let room = info.max_blkid.saturating_add(1).saturating_mul(u64::from(info.block_size)) / ENTRY;
        if phys.begin < phys.end && phys.end > room {
            return Err(corrupt(format!("{} entries where {room} fit", phys.end)));
        }
        Ok(Self { dnode, phys })
    }

    /// Writes the header.
    ///
    /// # Errors
    /// Those of writing.
    pub fn store(&self, tx: &Tx) -> Result<()> {
        assert!(self.phys.begin <= self.phys.end, "what was freed was there");
        self.dnode.set_bonus(tx, ObjectType::OTN_UINT64_METADATA, &self.phys.encode())
    }

    /// Whether nothing is left to be freed.
    pub fn is_empty(&self) -> bool {
        self.phys.begin == self.phys.end
    }

    /// Appends an entry; the space of its blocks is for the caller to add, and the header to store.
    ///
    /// # Errors
    /// Those of writing.
    pub async fn append(&mut self, tx: &Tx, entry: &BptreeEntryPhys) -> Result<()> {
        self.set(tx, self.phys.end, entry).await?;
        self.phys.end += 1;
        Ok(())
    }

    /// Entry `index`.
    ///
    /// # Errors
    /// Unreadable blocks, senseless contents.
    pub async fn get(&self, index: u64) -> Result<BptreeEntryPhys> {
        let mut bytes = vec![0; BPTREE_ENTRY_SIZE];
        self.dnode.read(index * ENTRY, &mut bytes).await?;
        let entry = BptreeEntryPhys::decode(&bytes)
            .map_err(|error| ZioError::corrupt("bptree", format!("entry {index}: {error}")))?;
        if entry.bookmark.level != 0 {
            return Err(ZioError::corrupt("bptree", format!("entry {index} goes on at {:?}", entry.bookmark)));
        }
        Ok(entry)
    }

    /// Writes entry `index`.
    ///
    /// # Errors
    /// Those of writing.
    pub async fn set(&self, tx: &Tx, index: u64, entry: &BptreeEntryPhys) -> Result<()> {
        self.dnode.write(tx, index * ENTRY, &entry.encode()).await
    }

    /// Takes the first entry away; the header is for the caller to store.
    ///
    /// # Errors
    /// Those of writing.
    pub async fn remove_first(&mut self, tx: &Tx) -> Result<()> {
        assert!(!self.is_empty(), "an entry that is there is removed");
        let at = self.phys.begin * ENTRY;
        self.dnode.free_range(tx, at, ENTRY).await?;
        self.phys.begin += 1;
        Ok(())
    }
}
