//! Space and objects in use per user, group and project (`do_userquota_update`, `module/zfs/dmu_objset.c`).
//!
//! The totals are three ZAPs whose dnodes are in the object set's head: hexadecimal id → bytes, and `obj-` and the id →
//! number of objects. Only objects with a file's attributes in their bonus count.
//!
//! Invariants:
//! - a dnode's flags say whether it is in the totals (of space; of objects); what is in them is what its bonus and
//!   its used bytes on disk say, and 512 bytes more for the dnode itself;
//! - the totals change in the group in which the dnodes do;
//! - an id without anything has no entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_ondisk::dnode::{
    DNODE_SIZE, DNODES_PER_BLOCK, FLAG_USED_BYTES, FLAG_USEROBJUSED_ACCOUNTED, FLAG_USERUSED_ACCOUNTED, MAX_BLKPTRS,
    MAX_INDIRECT_SHIFT,
};
use platter_ondisk::objset::{OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE};
use platter_ondisk::sa::SaHeader;
use platter_ondisk::sector::SECTOR;
use platter_ondisk::znode::{ZnodePhys, flags as znode_flags};
use platter_ondisk::{DnodePhys, ObjectId, ObjectType, Txg};
use platter_zio::{Result, SpaceMet, Tx};

use crate::core::Dnode;
use crate::new_dnode::new_phys;
use crate::objset::Objset;
use crate::totals::{Totals, UserAccounting, complete_flags, possible};
use crate::zap::Zap;

/// What an object costs beyond its blocks (`DNODE_MIN_SIZE`).
const DNODE_BYTES: i64 = DNODE_SIZE as i64;
/// Start of the names under which objects are counted (`DMU_OBJACCT_PREFIX`).
pub const OBJECTS_PREFIX: &str = "obj-";

/// Owner, group and project that a file's bonus names (`zpl_get_file_info`); `None` when it is no file's.
fn owners(bonus_type: ObjectType, bonus: &[u8]) -> Option<[u64; 3]> {
    match bonus_type {
        ObjectType::ZNODE => ZnodePhys::decode(bonus).ok().map(|znode| [znode.uid, znode.gid, 0]),
        ObjectType::SA => {
            if bonus.get(..8)?.starts_with(&[0; 4]) {
                // A file that has not got its attributes yet.
                return Some([0; 3]);
            }
            let SaHeader { size: start, turned, .. } = SaHeader::of(bonus)?;
            let word = |at: usize| -> Option<u64> {
                let word = u64::from_le_bytes(bonus.get(start + at..start + at + 8)?.try_into().ok()?);
                Some(if turned { word.swap_bytes() } else { word })
            };
            // SA_UID_OFFSET and so on: the layouts of file systems all begin the same way.
            let has_project = start >= 8 && word(48)? & znode_flags::PROJID != 0;
            let project = if has_project { word(128)? } else { 0 };
            (start >= 8).then_some([word(24)?, word(32)?, project])
        }
        _ => None,
    }
}

/// Changes of the totals, summed up over a group.
#[derive(Default)]
pub(crate) struct Changes {
    by_id: BTreeMap<(Totals, u64), Change>,
}

/// What one id gets more, or less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    bytes: i64,
    objects: i64,
}

impl Changes {
    fn add(&mut self, keeps: UserAccounting, phys: &DnodePhys, sign: i64) {
        let (space, objects) =
            (phys.flags & FLAG_USERUSED_ACCOUNTED != 0, phys.flags & FLAG_USEROBJUSED_ACCOUNTED != 0);
        if !space && !objects {
            return;
        }
        let Some(ids) = owners(phys.bonus_type, &phys.bonus) else { return };
        for (totals, id) in Totals::ALL.into_iter().zip(ids) {
            if totals == Totals::Projects && !keeps.projects {
                continue;
            }
            let change = self.by_id.entry((totals, id)).or_default();
            if space {
                // What dnodes claim may add up to anything.
                let bytes = sign * DNODE_BYTES.saturating_add_unsigned(phys.used_bytes());
                change.bytes = change.bytes.saturating_add(bytes);
            }
            if objects {
                change.objects += sign;
            }
        }
    }

    /// Counts that a dnode turned from `old` into `new`, and marks the new one as counted; `in_project` says whether
    /// the old one was in its project's total.
    pub(crate) fn replace(
        &mut self,
        keeps: UserAccounting,
        (old, in_project): (Option<&DnodePhys>, bool),
        new: Option<&mut DnodePhys>,
    ) {
        if !keeps.space {
            return;
        }
        if let Some(old) = old {
            self.add(UserAccounting { projects: keeps.projects && in_project, ..keeps }, old, -1);
        }
        if let Some(new) = new {
            new.flags |= FLAG_USERUSED_ACCOUNTED;
            if keeps.objects {
                new.flags |= FLAG_USEROBJUSED_ACCOUNTED;
            }
            self.add(keeps, new, 1);
        }
    }

    /// Writes the changes into the ZAPs; with `fresh`, what was in those of projects is forgotten first.
    pub(crate) async fn apply(self, objset: &Arc<Objset>, keeps: UserAccounting, fresh: bool, txg: Txg) -> Result<()> {
        let tx = Tx::syncing(txg);
        let mut zaps: BTreeMap<Totals, Zap> = BTreeMap::new();
        // All exist from the first change on, also those without an entry.
        let wanted = Totals::ALL.into_iter().filter(|totals| *totals != Totals::Projects || keeps.projects);
        for totals in wanted {
            zaps.insert(totals, objset.totals_for_writing(&tx, totals).await?);
        }
        if let Some(projects) = zaps.get(&Totals::Projects).filter(|_| fresh) {
            for entry in projects.all().await? {
                projects.remove(&tx, &entry.name).await?;
            }
        }
        for ((totals, id), change) in self.by_id {
            let zap = zaps.get(&totals);
            assert!(zap.is_some(), "{totals:?} are not kept and were counted");
            let Some(zap) = zap else { continue };
            add(zap, &tx, &format!("{id:x}"), change.bytes).await?;
            add(zap, &tx, &format!("{OBJECTS_PREFIX}{id:x}"), change.objects).await?;
        }
        Ok(())
    }
}

async fn add(zap: &Zap, tx: &Tx, name: &str, change: i64) -> Result<()> {
    if change == 0 {
        return Ok(());
    }
    let before = zap.get_u64(name.as_bytes()).await?.unwrap_or(0);
    match before.wrapping_add_signed(change) {
        0 => zap.remove(tx, name.as_bytes()).await.map(drop),
        now => zap.put_u64(tx, name.as_bytes(), now).await,
    }
}

/// An empty dnode for totals.
pub(crate) fn new_totals() -> DnodePhys {
    let mut phys = new_phys(ObjectType::USERGROUP_USED, SECTOR as u32, MAX_INDIRECT_SHIFT, MAX_BLKPTRS, 1);
    phys.flags |= FLAG_USED_BYTES;
    phys
}

impl Objset {
    /// The totals, when the object set has any.
    pub fn totals(&self, totals: Totals) -> Option<Zap> {
        self.special.lock()[totals as usize].clone().map(Zap::from_dnode)
    }

    async fn totals_for_writing(self: &Arc<Self>, tx: &Tx, totals: Totals) -> Result<Zap> {
        if let Some(zap) = self.totals(totals) {
            return Ok(zap);
        }
        let dnode = Dnode::new(&self.core, totals.object(), new_totals(), false);
        // As arbitrary as OpenZFS's (an address), but the same every time.
        let salt = tx.txg().0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ totals.object().0.rotate_left(32);
        let zap = Zap::zapify(&dnode, tx, ObjectType::USERGROUP_USED, salt).await?;
        self.special.lock()[totals as usize] = Some(dnode);
        Ok(zap)
    }

    /// Which totals are kept.
    pub fn accounting(&self) -> UserAccounting {
        let head = self.head.read();
        possible(self.properties().accounting, head.phys.object_set_type, head.phys.size)
    }

    /// Whether the totals that are kept count every object.
    pub fn accounting_is_complete(&self) -> bool {
        let wanted = complete_flags(self.accounting());
        self.head.read().phys.flags & wanted == wanted
    }

    /// Whether every object is in the totals of users' and groups' space, if those are kept.
    pub fn space_is_counted(&self) -> bool {
        let wanted = complete_flags(UserAccounting { objects: false, projects: false, ..self.accounting() });
        self.head.read().phys.flags & wanted == wanted
    }

    /// Which totals have every object, or will have once a count that began ends well. Others are kept for what
    /// changes, and nobody reads them (`dmu_objset_id_quota_upgrade_cb`, `module/zfs/dmu_objset.c`, activates the
    /// features).
    pub fn counted(&self) -> UserAccounting {
        let keeps = self.accounting();
        let begun = self.counting.met.load(Ordering::Relaxed);
        UserAccounting {
            objects: keeps.objects && (begun || self.objects_are_counted()),
            projects: keeps.projects && (begun || self.counts_projects()),
            ..keeps
        }
    }

    /// Whether every object is in its user's and its group's number of objects (`dmu_objset_userobjspace_present`).
    pub fn objects_are_counted(&self) -> bool {
        self.head.read().phys.flags & OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE != 0
    }

    /// An object is about to be made or given to somebody else: what is not in the totals yet is to be counted, soon
    /// (`zfs_id_overobjquota`, `module/zfs/zfs_quota.c`).
    pub fn want_count(&self) {
        if self.params().read_only || self.counting.begun.load(Ordering::Relaxed) || self.accounting_is_complete() {
            return;
        }
        if !self.counting.wanted.swap(true, Ordering::Relaxed) {
            let gate = &self.params().gate;
            gate.ask_for(gate.open_txg());
        }
    }

    /// Whether a count [was wanted](Self::want_count) that nobody has begun.
    pub fn count_is_wanted(&self) -> bool {
        self.counting.wanted.swap(false, Ordering::Relaxed)
    }

    /// Whether somebody should now begin to [count everything](Self::account_everything) in the background: something
    /// is not in the totals, and this was not answered with yes before, unless that count ended well.
    pub fn takes_a_count(&self) -> bool {
        !self.params().read_only && !self.accounting_is_complete() && !self.counting.begun.swap(true, Ordering::Relaxed)
    }

    /// Ends a count that goes on, and waits until it has ended; what it did stays. To be called before the object set
    /// is closed.
    pub async fn give_up_count(&self) {
        self.counting.given_up.store(true, Ordering::Relaxed);
        drop(self.counting.running.lock().await);
    }

    /// Counts every object that is not in the totals yet (`dmu_objset_userspace_upgrade`); they are complete when this
    /// is done and synced.
    ///
    /// # Errors
    /// Read-only object set, no space, unreadable dnodes; the object set is being closed.
    pub async fn account_everything(self: &Arc<Self>) -> Result<()> {
        let _running = self.counting.running.lock().await;
        if self.accounting_is_complete() {
            return Ok(());
        }
        self.counting.met.store(true, Ordering::Relaxed);
        if self.accounting().projects && !self.counts_projects() {
            self.recount.lock().get_or_insert_default();
        }
        let mut object = ObjectId(0);
        let counted = SpaceMet::lenient();
        while let Some(next) = self.next_object(object).await? {
            object = next;
            if self.counting.given_up.load(Ordering::Relaxed) {
                return Err(platter_zio::ZioError::Invalid("the file system is being closed".into()));
            }
            if !counted.add(SPACE_LEAST, || self.core.store().space_used()) {
                let what = format!("its objects up to {object} take more space than the pool has in use");
                return Err(platter_zio::ZioError::corrupt("object set", what));
            }
            let tx = self.begin_net_free().await?;
            match self.dnode(object).await {
                // Freed meanwhile: not to be counted.
                Err(platter_zio::ZioError::NotFound(_)) => {}
                dnode => match dnode?.touch(&tx) {
                    Ok(()) | Err(platter_zio::ZioError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        let gate = self.params().gate.clone();
        // Whoever reads that the totals are complete must find them so.
        gate.wait_synced(gate.open_txg()).await?;
        let tx = self.begin_net_free().await?;
        let wanted = complete_flags(self.accounting());
        self.mark_complete(&tx, wanted);
        let txg = tx.txg();
        drop(tx);
        gate.wait_synced(txg).await?;
        // The pool may begin to count more later.
        self.counting.begun.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Whether every object is in the total of its project.
    pub fn counts_projects(&self) -> bool {
        self.head.read().phys.flags & OBJSET_FLAG_PROJECTQUOTA_COMPLETE != 0
    }
}

/// What an object takes at least, in bytes: a share of a compressed dnode block of one sector.
const SPACE_LEAST: u64 = SECTOR / DNODES_PER_BLOCK as u64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sa(uid: u64, gid: u64, flags: u64, project: u64) -> Vec<u8> {
        let mut bonus = vec![0; 160];
        bonus[..4].copy_from_slice(&platter_ondisk::sa::SA_MAGIC.to_le_bytes());
        bonus[4..6].copy_from_slice(&(2u16 | 1 << 10).to_le_bytes());
        for (at, word) in [(24, uid), (32, gid), (48, flags), (128, project)] {
            bonus[8 + at..16 + at].copy_from_slice(&word.to_le_bytes());
        }
        bonus
    }

    #[test]
    fn owners_are_found_in_both_byte_orders_and_never_past_the_end() {
        assert_eq!(owners(ObjectType::SA, &sa(7, 8, 0, 9)), Some([7, 8, 0]));
        let with_project = sa(7, 8, znode_flags::PROJID, 9);
        assert_eq!(owners(ObjectType::SA, &with_project), Some([7, 8, 9]));
        let mut turned = with_project.clone();
        turned[..4].reverse();
        turned[4..6].reverse();
        turned[8..].chunks_exact_mut(8).for_each(<[u8]>::reverse);
        assert_eq!(owners(ObjectType::SA, &turned), Some([7, 8, 9]));
        for length in 0..with_project.len() {
            let found = owners(ObjectType::SA, &with_project[..length]);
            assert!(found.is_none() || length >= 144, "{length}: {found:?}");
        }
        assert_eq!(owners(ObjectType::SA, &[0; 8]), Some([0; 3]));
        assert_eq!(owners(ObjectType::SA, &[1; 160]), None);
        assert_eq!(owners(ObjectType::DNODE, &with_project), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bonus_has_owners_or_none(kind in 0u8..60, bonus in proptest::collection::vec(0u8.., 0..400)) {
            let _ = owners(ObjectType::from_number(kind), &bonus);
        }
    }

    #[test]
    fn a_change_of_owner_moves_space_and_object() {
        let keeps = UserAccounting { space: true, objects: true, projects: true };
        let mut old = new_phys(ObjectType::PLAIN_FILE_CONTENTS, 512, 17, 1, 1);
        (old.bonus_type, old.bonus, old.used) = (ObjectType::SA, sa(1, 5, 0, 0), 1000);
        let mut changes = Changes::default();
        changes.replace(keeps, (None, false), Some(&mut old));
        let mut new = old.clone();
        (new.bonus, new.used) = (sa(2, 5, 0, 0), 3000);
        changes.replace(keeps, (Some(&old), true), Some(&mut new));
        let moved = Change { bytes: 3512, objects: 1 };
        let expected = BTreeMap::from([
            ((Totals::Users, 1), Change::default()),
            ((Totals::Users, 2), moved),
            ((Totals::Groups, 5), moved),
            ((Totals::Projects, 0), moved),
        ]);
        assert_eq!(changes.by_id, expected);

        // Counted long before projects were.
        let mut changes = Changes::default();
        changes.replace(keeps, (Some(&old), false), Some(&mut new));
        assert_eq!(changes.by_id[&(Totals::Projects, 0)], moved);
    }
}
