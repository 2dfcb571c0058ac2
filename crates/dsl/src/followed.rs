//! Which of a data set's bookmarks follow what is freed of their snapshots, by the snapshots' groups: in memory, so
//! that a block that dies finds those that had it without a look at the disk (`ds_bookmarks`,
//! `module/zfs/dsl_bookmark.c`).

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result};
use platter_ondisk::{ObjectId, ObjectType, Txg};

use crate::bookmark_phys::BookmarkPhys;

/// Where a data set's object names the ZAP of its bookmarks (`DS_FIELD_BOOKMARK_NAMES`).
pub const FIELD: &str = "com.delphix:bookmarks";

/// The ZAP of the bookmarks of data set `object`, when it has one.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn names(os: &Arc<Objset>, object: ObjectId) -> Result<Option<Zap>> {
    let dnode = os.dnode(object).await?;
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    match Zap::from_dnode(dnode).get_u64(FIELD.as_bytes()).await? {
        Some(names) if names != 0 => Zap::open(os, ObjectId(names)).await.map(Some),
        _ => Ok(None),
    }
}

/// A bookmark that follows: its snapshot's group, and its name as it is in the ZAP.
pub type Following = (Txg, Vec<u8>);

/// Those of one data set.
#[derive(Debug, Default)]
pub struct Followed(BTreeSet<Following>);

impl Followed {
    /// Reads those of data set `object`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn load(os: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        let mut all = Self::default();
        let Some(zap) = names(os, object).await? else { return Ok(all) };
        for entry in zap.all().await? {
            if let Some(phys) = BookmarkPhys::decode(&entry.value) {
                all.note(&entry.name, &phys);
            }
        }
        Ok(all)
    }

    /// The bookmark called `name` is there now.
    pub fn note(&mut self, name: &[u8], phys: &BookmarkPhys) {
        if phys.has_freed() {
            self.0.insert((phys.creation_txg, name.to_vec()));
        }
    }

    /// The bookmark called `name` is gone.
    pub fn forget(&mut self, name: &[u8], phys: &BookmarkPhys) {
        self.0.remove(&(phys.creation_txg, name.to_vec()));
    }

    /// Those from group `from` on, before group `until`, by group; none where damage has groups go backwards.
    pub fn between(&self, from: Txg, until: Txg) -> Vec<Following> {
        if from >= until {
            return Vec::new();
        }
        self.0.range((from, Vec::new())..(until, Vec::new())).cloned().collect()
    }

    /// Those of group `txg`.
    pub fn at(&self, txg: Txg) -> Vec<Following> {
        self.between(txg, Txg(txg.0.saturating_add(1)))
    }

    /// The groups from `from` on of which there is one, each once, in order.
    pub fn groups_from(&self, from: Txg) -> Vec<Txg> {
        let mut groups: Vec<Txg> = self.0.range((from, Vec::new())..).map(|(txg, _)| *txg).collect();
        groups.dedup();
        groups
    }
}
