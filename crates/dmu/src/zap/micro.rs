//! A live micro ZAP: one block, changed together with its index.
//!
//! Invariant: while an index exists it describes block 0 of the object, newest version; whoever changes the block
//! changes the index or drops it, under the ZAP's write lock.

use platter_ondisk::zap::micro::{self, MicroEntry, SLOT_SIZE};
use platter_zio::{Result, Tx};

use crate::core::Dnode;
use crate::zap_entries::index::Index;

impl Index {
    /// Writes a new entry to free slot `slot`.
    pub async fn insert(
        &mut self,
        dnode: &Dnode,
        tx: &Tx,
        slot: usize,
        hash: u64,
        name: &[u8],
        value: u64,
    ) -> Result<()> {
        let cd = self.unused_cd(hash);
        let bytes = micro::encode_slot(&MicroEntry { name, value, cd });
        dnode.write(tx, micro::slot_offset(slot) as u64, &bytes).await?;
        let is_new = self.order.insert((hash, cd, slot as u16));
        assert!(is_new, "slot {slot} was free in the block and not in its index");
        self.free_hint = slot + 1;
        Ok(())
    }

    /// Replaces the value in slot `slot`.
    pub async fn replace(&self, dnode: &Dnode, tx: &Tx, slot: usize, value: u64) -> Result<()> {
        dnode.write(tx, micro::slot_offset(slot) as u64, &value.to_le_bytes()).await
    }

    /// Clears slot `slot`, which holds an entry with this hash and differentiator.
    pub async fn remove(&mut self, dnode: &Dnode, tx: &Tx, slot: usize, hash: u64, cd: u32) -> Result<()> {
        dnode.write(tx, micro::slot_offset(slot) as u64, &[0; SLOT_SIZE]).await?;
        let was_there = self.order.remove(&(hash, cd, slot as u16));
        assert!(was_there, "slot {slot} was in the block and not in its index");
        self.free_hint = self.free_hint.min(slot);
        Ok(())
    }
}
