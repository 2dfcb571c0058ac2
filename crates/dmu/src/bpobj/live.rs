//! Lists that say of blocks when they were born and when they died: a clone's livelist is made of them
//! (`dsl_process_sub_livelist`, `module/zfs/dsl_deadlist.c`).
//!
//! ```text
//! contents:  born A, born B, died A, born C, born A' (where A was)        live: B, C, A'
//! ```
//!
//! Invariants:
//! - a block is on the list as born before it is there as died, as often as it died; no other block is there as died;
//! - the header's totals are those of what is live.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use platter_hooks::Canary;

use super::*;

/// Pointers of one list at most, which is 16 times as many as a list usually has, and as one group can write.
pub const LIVE_LIST_MAX: u64 = 1 << 23;
/// Pointers read at a time.
const PART: u64 = 1024;

impl Bpobj {
    /// As [`create`](Self::create), of a list on which blocks can also die. Those of pools with feature `livelist`
    /// (`bpobj_alloc`).
    ///
    /// # Errors
    /// Those of allocating an object.
    pub async fn create_live(mos: &Arc<Objset>, tx: &Tx, block_size: u32) -> Result<ObjectId> {
        Self::create_sized(mos, tx, block_size, HEADER_V3).await
    }

    /// Appends that `bps` died, which are on the list as born.
    ///
    /// # Errors
    /// Those of writing; a list that is not of this kind.
    pub async fn append_died(&self, tx: &Tx, bps: &[BlkPtr]) -> Result<()> {
        self.append_as(tx, bps, Event::Died).await
    }

    /// How many births and how many deaths are on the list.
    ///
    /// # Errors
    /// A damaged header.
    pub fn births_and_deaths(&self) -> Result<(u64, u64)> {
        let header = self.header()?;
        let births = header.pointers.checked_sub(header.freed);
        let births = births.ok_or_else(|| self.corrupt("more of it died than was born".to_owned()))?;
        Ok((births, header.freed))
    }

    /// What was born and did not die, the newest first. Read from the end, since space is used again: only so is it
    /// known which of two blocks at one place died.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn live(&self) -> Result<Vec<BlkPtr>> {
        let header = self.header()?;
        if header.lists > 0 || header.pointers > LIVE_LIST_MAX {
            let what = format!("{} pointers and {} sub-lists of what lives", header.pointers, header.lists);
            return Err(self.corrupt(what));
        }
        self.check_length(&self.dnode, header.pointers, BLKPTR_SIZE as u64)?;
        let store = &self.os.params().store;
        let mut live = Gathered {
            pointers: Vec::new(),
            in_use: store.space_used(),
            space: SpaceMet::exact(),
            others: SpaceMet::exact(),
        };
        let mut died: HashMap<(u32, u64), u32> = HashMap::new();
        let mut end = header.pointers;
        while end > 0 {
            let start = end.saturating_sub(PART);
            let mut bytes = vec![0; (end - start) as usize * BLKPTR_SIZE];
            self.dnode.read(start * BLKPTR_SIZE as u64, &mut bytes).await?;
            for bytes in bytes.chunks_exact(BLKPTR_SIZE).rev() {
                let bp = BlkPtr::decode(bytes);
                if bp.is_hole() || bp.is_embedded() {
                    return Err(self.corrupt("something is on it that takes no space".to_owned()));
                }
                let place = (bp.dva(0).vdev, bp.dva(0).offset);
                if bp.words[FILL] & 1 != 0 {
                    if Canary::DeathForgotten.sings() {
                        continue;
                    }
                    *died.entry(place).or_default() += 1;
                    continue;
                }
                match died.entry(place) {
                    Entry::Occupied(mut deaths) => {
                        *deaths.get_mut() -= 1;
                        if *deaths.get() == 0 {
                            deaths.remove();
                        }
                    }
                    Entry::Vacant(_) if !live.take(bp, store.dsize(&bp)) => {
                        return Err(self.corrupt("what lives takes more space than the pool has in use".to_owned()));
                    }
                    Entry::Vacant(_) => (),
                }
            }
            end = start;
        }
        if !died.is_empty() {
            return Err(self.corrupt(format!("{} blocks died that were never born", died.len())));
        }
        Ok(live.pointers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{params_on, pointer};
    use super::*;
    use platter_ondisk::{ObjsetType, Txg};
    use platter_zio::memory::MemoryStore;

    async fn list(os: &Arc<Objset>, tx: &Tx) -> Bpobj {
        Bpobj::open(os, Bpobj::create_live(os, tx, 4096).await.unwrap()).await.unwrap()
    }

    fn offsets(live: &[BlkPtr]) -> Vec<u64> {
        live.iter().map(|bp| bp.dva(0).offset >> 20).collect()
    }

    #[tokio::test]
    async fn what_died_is_not_alive_and_space_is_used_again() {
        let tx = Tx::syncing(Txg(4));
        let os = Objset::create(params_on(Arc::new(MemoryStore::new())), ObjsetType::META, &tx);
        let list = list(&os, &tx).await;
        assert!(list.live().await.unwrap().is_empty());
        let many: Vec<_> = (0..3000).map(pointer).collect();
        list.append(&tx, &many).await.unwrap();
        list.append_died(&tx, &many[..2998]).await.unwrap();
        list.append(&tx, &many[5..6]).await.unwrap();
        list.append_died(&tx, &many[5..6]).await.unwrap();
        list.append(&tx, &many[5..7]).await.unwrap();
        assert_eq!(offsets(&list.live().await.unwrap()), [7, 6, 3000, 2999]);
        assert_eq!(list.births_and_deaths().unwrap(), (3003, 2999));
        let totals = list.totals().await.unwrap();
        assert_eq!((totals.used, totals.compressed, totals.uncompressed), (4 * 6144, 4 * 4096, 4 * 8192));
    }

    #[tokio::test]
    async fn deaths_without_births_and_other_lists_are_damage() {
        let tx = Tx::syncing(Txg(4));
        let os = Objset::create(params_on(Arc::new(MemoryStore::new())), ObjsetType::META, &tx);
        let other = Bpobj::open(&os, Bpobj::create(&os, &tx, 4096).await.unwrap()).await.unwrap();
        assert!(other.append_died(&tx, &[pointer(1)]).await.is_err());
        let list = list(&os, &tx).await;
        list.append(&tx, &[pointer(1), pointer(2)]).await.unwrap();
        list.append_died(&tx, &[pointer(2), pointer(3)]).await.unwrap();
        assert!(list.live().await.is_err());
    }
}
