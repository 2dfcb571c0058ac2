//! DSL directories: the name space and space totals of data sets (`module/zfs/dsl_dir.c`).
//!
//! Invariants:
//! - `used_bytes` of a directory is its own data sets' use plus its children's, with reservations counted as used;
//! - the breakdown sums to `used_bytes` (where the pool keeps one: `DD_FLAG_USED_BREAKDOWN`): in a pool that came
//!   otherwise, no change adds to the difference;
//! - `phys` in memory is what the bonus will be after the running sync: every change is written back in the same group.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{NewDnode, Objset, Result, Tx, ZioError};
use platter_ondisk::dsl::{DD_FLAG_USED_BREAKDOWN, DSL_DIR_SIZE, DslDirPhys, UsedBreakdown};
use platter_ondisk::{ObjectId, ObjectType};

use crate::counts::{self, Counts};
use crate::mos;
use crate::stored_property::{INHERIT, NEWER, RECEIVED, StoredProperty, from_zap, is_newer, to_zap};
use crate::used_space::{SpaceChange, UsedKind, difference, reserved_delta};

/// Reserved directories at the root.
pub use platter_ondisk::names::special_dir::{
    FREE as FREE_DIR, LEAK as LEAK_DIR, MOS as MOS_DIR, ORIGIN as ORIGIN_DIR,
};

/// Gives the plain names the values that are in force, where older software is shown others. What is not known here
/// either stays as it is.
fn show_newer(properties: &mut BTreeMap<String, StoredProperty>) {
    let newer: Vec<String> = properties.keys().filter_map(|key| key.strip_suffix(NEWER)).map(str::to_owned).collect();
    for name in newer {
        let key = format!("{name}{NEWER}");
        if properties.get(&key).is_some_and(|value| is_newer(&name, value))
            && let Some(value) = properties.remove(&key)
        {
            properties.insert(name, value);
        }
    }
}

/// By how much the breakdown is off; what a damaged pool has may be anything.
fn imbalance(phys: &DslDirPhys) -> u64 {
    let UsedBreakdown { head, snapshots, children, child_reservations, refreservation } = phys.used_breakdown;
    [head, snapshots, children, child_reservations, refreservation].into_iter().fold(phys.used_bytes, u64::wrapping_sub)
}

/// Where a directory is in the tree.
pub struct DirPlace {
    /// The directory above; none for the root.
    pub parent: Option<Arc<Dir>>,
    /// Its own part of the name; empty for the root.
    pub name: String,
}

/// A directory in memory.
pub struct Dir {
    /// Its object in the MOS.
    pub object: ObjectId,
    /// Changes when it is renamed.
    pub place: RwLock<DirPlace>,
    /// The bonus.
    pub phys: Mutex<DslDirPhys>,
    /// Locally set properties.
    pub properties: RwLock<BTreeMap<String, StoredProperty>>,
    /// File systems and snapshots below, once a limit on them was set here or above.
    pub counts: Mutex<Option<Counts>>,
}

impl Dir {
    /// Loads directory `object`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn load(
        os: &Arc<Objset>,
        object: ObjectId,
        parent: Option<Arc<Self>>,
        name: String,
    ) -> Result<Arc<Self>> {
        let dnode = os.dnode(object).await?;
        if dnode.info().bonus_type != ObjectType::DSL_DIR {
            return Err(ZioError::corrupt("DSL directory", format!("object {object} ({name}) is something else")));
        }
        let phys = DslDirPhys::decode(&dnode.bonus())
            .map_err(|e| ZioError::corrupt("DSL directory", format!("object {object}: {e}")))?;
        let mut properties = BTreeMap::new();
        if phys.props_zapobj.is_some() {
            for entry in Zap::open(os, phys.props_zapobj).await?.all().await? {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                properties.insert(name, from_zap(&entry.value));
            }
            show_newer(&mut properties);
        }
        let counts = counts::load(&dnode).await?;
        Ok(Arc::new(Self {
            object,
            place: RwLock::new(DirPlace { parent, name }),
            phys: Mutex::new(phys),
            properties: RwLock::new(properties),
            counts: Mutex::new(counts),
        }))
    }

    /// Makes a directory below `parent` (`dsl_dir_create_sync`); without one it becomes the pool's root.
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn create(
        os: &Arc<Objset>,
        directory: &Zap,
        tx: &Tx,
        parent: Option<Arc<Self>>,
        name: &str,
        now: u64,
        mut salt: impl FnMut() -> u64,
    ) -> Result<Arc<Self>> {
        let dnode = os.allocate(tx, NewDnode::bonus_only(ObjectType::DSL_DIR, DSL_DIR_SIZE as u16)).await?;
        let object = dnode.object();
        match &parent {
            Some(parent) => {
                let children = parent.phys.lock().child_dir_zapobj;
                let zap = Zap::open(os, children).await?;
                let value = ZapValue { integer_size: 8, integers: vec![object.0] };
                zap.add(tx, name.as_bytes(), &value).await?;
            }
            None => directory.put_u64(tx, mos::ROOT_DATASET.as_bytes(), object.0).await?,
        }
        let phys = DslDirPhys {
            creation_time: now,
            parent_obj: parent.as_ref().map_or(ObjectId::NONE, |p| p.object),
            props_zapobj: mos::create_zap(os, tx, ObjectType::DSL_PROPS, salt()).await?,
            child_dir_zapobj: mos::create_zap(os, tx, ObjectType::DSL_DIR_CHILD_MAP, salt()).await?,
            flags: DD_FLAG_USED_BREAKDOWN,
            ..DslDirPhys::default()
        };
        dnode.set_bonus(tx, ObjectType::DSL_DIR, &phys.encode())?;
        Ok(Arc::new(Self {
            object,
            place: RwLock::new(DirPlace { parent, name: name.to_owned() }),
            phys: Mutex::new(phys),
            properties: RwLock::default(),
            counts: Mutex::default(),
        }))
    }

    /// The directory above; none for the root.
    pub fn parent(&self) -> Option<Arc<Self>> {
        self.place.read().parent.clone()
    }

    /// Its own part of the name; empty for the root.
    pub fn name(&self) -> String {
        self.place.read().name.clone()
    }

    /// Its name from that of the pool on.
    pub fn full_name(self: &Arc<Self>, pool: &str) -> String {
        let mut parts = Vec::new();
        let mut at = Some(self.clone());
        while let Some(here) = at {
            let (parent, name) = (here.parent(), here.name());
            parts.push(if parent.is_some() { name } else { pool.to_owned() });
            at = parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// The number in force as property `name` of this directory itself, set here or with a stream; 0 without one.
    pub fn local_number(&self, name: &str) -> u64 {
        match self.own_property(name) {
            Some((StoredProperty::Number(number), _)) => number,
            _ => 0,
        }
    }

    /// Writes the bonus back.
    ///
    /// # Errors
    /// Device errors.
    pub async fn store(&self, os: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let bytes = self.phys.lock().encode();
        os.dnode(self.object).await?.set_bonus(tx, ObjectType::DSL_DIR, &bytes)
    }

    /// What is in memory of it is what the running sync writes: nobody changed it without storing it. Of what has left
    /// memory nothing is said.
    pub fn assert_stored(&self, os: &Arc<Objset>) {
        let Some(stored) = os.dnode_now(self.object) else { return };
        let Ok(stored) = DslDirPhys::decode(&stored.bonus()) else { return };
        let phys = self.phys.lock();
        // `origin` keeps the clones of its own directory; where a damaged pool says it is, may be another one.
        let stored = DslDirPhys { clones: phys.clones, ..stored };
        assert_eq!(stored, *phys, "directory {}: a change is not stored", self.object);
    }

    /// Sets or clears a local property, on disk and in memory.
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn set_property(
        &self,
        os: &Arc<Objset>,
        tx: &Tx,
        name: &str,
        value: Option<StoredProperty>,
    ) -> Result<()> {
        let object = self.phys.lock().props_zapobj;
        let zap = Zap::open(os, object).await?;
        let (inherit, received) = (format!("{name}{INHERIT}"), format!("{name}{RECEIVED}"));
        let masks_received = self.properties.read().contains_key(&received);
        let store = async |name: &str, value: StoredProperty| {
            if is_newer(name, &value) {
                zap.put(tx, format!("{name}{NEWER}").as_bytes(), &to_zap(&value)).await?;
                zap.put(tx, name.as_bytes(), &to_zap(&StoredProperty::Number(0))).await?;
            } else {
                self.forget_newer(&zap, tx, name).await?;
                zap.put(tx, name.as_bytes(), &to_zap(&value)).await?;
            }
            self.properties.write().insert(name.to_owned(), value);
            Ok(())
        };
        match value {
            Some(value) => {
                self.remove_property(&zap, tx, &inherit).await?;
                store(name, value).await
            }
            None => {
                self.remove_property(&zap, tx, name).await?;
                // A value that came with a stream must not show through.
                if masks_received { store(&inherit, StoredProperty::Number(0)).await } else { Ok(()) }
            }
        }
    }

    async fn remove_property(&self, zap: &Zap, tx: &Tx, name: &str) -> Result<()> {
        if self.properties.read().contains_key(name) {
            self.forget_newer(zap, tx, name).await?;
            zap.remove(tx, name.as_bytes()).await?;
            self.properties.write().remove(name);
        }
        Ok(())
    }

    /// Removes the value of `name` that older software does not know.
    async fn forget_newer(&self, zap: &Zap, tx: &Tx, name: &str) -> Result<()> {
        let has_one = self.properties.read().get(name).is_some_and(|value| is_newer(name, value));
        let newer = format!("{name}{NEWER}");
        if has_one && zap.get(newer.as_bytes()).await?.is_some() {
            zap.remove(tx, newer.as_bytes()).await?;
        }
        Ok(())
    }

    /// Goes back to the value that came with a stream, or else inherits (`zfs inherit -S`).
    ///
    /// # Errors
    /// Device errors.
    pub async fn revert_property(&self, os: &Arc<Objset>, tx: &Tx, name: &str) -> Result<()> {
        let object = self.phys.lock().props_zapobj;
        let zap = Zap::open(os, object).await?;
        self.remove_property(&zap, tx, name).await?;
        self.remove_property(&zap, tx, &format!("{name}{INHERIT}")).await
    }

    /// The value of `name` that came with a stream.
    pub fn received(&self, name: &str) -> Option<StoredProperty> {
        self.properties.read().get(&format!("{name}{RECEIVED}")).cloned()
    }

    /// The value in force here by itself, and whether it came with a stream; `None` when it is inherited.
    pub fn own_property(&self, name: &str) -> Option<(StoredProperty, bool)> {
        let properties = self.properties.read();
        if let Some(value) = properties.get(name) {
            return Some((value.clone(), false));
        }
        if properties.contains_key(&format!("{name}{INHERIT}")) {
            return None;
        }
        properties.get(&format!("{name}{RECEIVED}")).map(|value| (value.clone(), true))
    }

    /// Books a change of space of `kind` here and in every directory above (`dsl_dir_diduse_space`). Returns the
    /// directories that changed, to be stored.
    pub fn diduse(self: &Arc<Self>, kind: UsedKind, change: SpaceChange) -> Vec<Arc<Self>> {
        self.book(change, kind, change.used, kind)
    }

    /// Books a change of space of which `share` belongs to `to` and the rest, so that they sum to the change, to `from`
    /// (`dsl_dir_diduse_transfer_space`): what is used within a reservation moves from one share to the other. Returns
    /// the directories that changed, to be stored.
    pub fn book(self: &Arc<Self>, change: SpaceChange, to: UsedKind, share: i64, from: UsedKind) -> Vec<Arc<Self>> {
        let mut changed = Vec::new();
        let (mut dir, mut used, mut share, mut to, mut from) = (self.clone(), change.used, share, to, from);
        loop {
            let accounted = {
                let mut phys = dir.phys.lock();
                let accounted = reserved_delta(phys.reserved, phys.used_bytes, used);
                let before = imbalance(&phys);
                let mut is_exact = phys.used_bytes.checked_add_signed(used).is_some();
                phys.used_bytes = phys.used_bytes.saturating_add_signed(used);
                phys.compressed_bytes = phys.compressed_bytes.saturating_add_signed(change.compressed);
                phys.uncompressed_bytes = phys.uncompressed_bytes.saturating_add_signed(change.uncompressed);
                if phys.flags & DD_FLAG_USED_BREAKDOWN != 0 {
                    for (kind, bytes) in [(to, share), (from, used.saturating_sub(share))] {
                        let place = kind.of(&mut phys.used_breakdown);
                        is_exact &= place.checked_add_signed(bytes).is_some();
                        *place = place.saturating_add_signed(bytes);
                    }
                    // What a damaged pool has may be less than what is taken off.
                    assert!(!is_exact || imbalance(&phys) == before, "directory {}: space has no kind", dir.object);
                }
                accounted
            };
            let parent = dir.parent();
            changed.push(dir);
            let Some(parent) = parent else { return changed };
            (share, used, to, from) = (used, accounted, UsedKind::Child, UsedKind::ChildReservation);
            dir = parent;
        }
    }

    /// Moves space from one share to another (`dsl_dir_transfer_space`).
    pub fn transfer(&self, from: UsedKind, to: UsedKind, bytes: u64) {
        let mut phys = self.phys.lock();
        if phys.flags & DD_FLAG_USED_BREAKDOWN == 0 {
            return;
        }
        let before = imbalance(&phys);
        let source = from.of(&mut phys.used_breakdown);
        let mut is_exact = source.checked_sub(bytes).is_some();
        *source = source.saturating_sub(bytes);
        let target = to.of(&mut phys.used_breakdown);
        is_exact &= target.checked_add(bytes).is_some();
        *target = target.saturating_add(bytes);
        assert!(!is_exact || imbalance(&phys) == before, "directory {}: space has no kind", self.object);
    }

    /// Changes what is guaranteed to this directory (`dsl_dir_set_reservation_sync_impl`). Returns the directories that
    /// changed, to be stored.
    pub fn set_reservation(self: &Arc<Self>, value: u64) -> Vec<Arc<Self>> {
        let used = {
            let mut phys = self.phys.lock();
            let before = phys.used_bytes.max(phys.reserved);
            phys.reserved = value;
            difference(phys.used_bytes.max(value), before)
        };
        let mut changed = vec![self.clone()];
        if let Some(parent) = self.parent() {
            changed.extend(parent.diduse(UsedKind::ChildReservation, SpaceChange { used, ..SpaceChange::default() }));
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use platter_ondisk::dsl::UsedBreakdown;

    use super::*;

    fn dir(parent: Option<&Arc<Dir>>, reserved: u64) -> Arc<Dir> {
        let phys = DslDirPhys { flags: DD_FLAG_USED_BREAKDOWN, reserved, ..DslDirPhys::default() };
        Arc::new(Dir {
            object: ObjectId(1),
            place: RwLock::new(DirPlace { parent: parent.cloned(), name: String::new() }),
            phys: Mutex::new(phys),
            properties: RwLock::default(),
            counts: Mutex::default(),
        })
    }

    fn sums(dir: &Dir) -> (u64, UsedBreakdown) {
        let phys = dir.phys.lock();
        let parts = phys.used_breakdown;
        let sum = parts.head + parts.snapshots + parts.children + parts.child_reservations + parts.refreservation;
        assert_eq!(phys.used_bytes, sum, "the breakdown sums to what is used");
        (phys.used_bytes, parts)
    }

    // What a child used within its reservation was booked on its parent a second time, with the wrong sign.
    #[test]
    fn use_within_a_reservation_only_changes_the_parents_breakdown() {
        let root = dir(None, 0);
        let child = dir(Some(&root), 0);
        child.set_reservation(1000);
        assert_eq!(sums(&root), (1000, UsedBreakdown { child_reservations: 1000, ..UsedBreakdown::default() }));
        child.diduse(UsedKind::Head, SpaceChange { used: 300, ..SpaceChange::default() });
        assert_eq!(sums(&child).0, 300);
        let expected = UsedBreakdown { children: 300, child_reservations: 700, ..UsedBreakdown::default() };
        assert_eq!(sums(&root), (1000, expected));
        child.diduse(UsedKind::Head, SpaceChange { used: 900, ..SpaceChange::default() });
        assert_eq!(sums(&root), (1200, UsedBreakdown { children: 1200, ..UsedBreakdown::default() }));
        child.diduse(UsedKind::Head, SpaceChange { used: -1200, ..SpaceChange::default() });
        assert_eq!(sums(&root), (1000, UsedBreakdown { child_reservations: 1000, ..UsedBreakdown::default() }));
        child.set_reservation(0);
        assert_eq!(sums(&root).0, 0);
    }

    // Such totals were negated and subtracted as if they were sizes, which ended a debug build.
    #[test]
    fn totals_beyond_any_pool_are_cut_off() {
        for total in [1 << 63, u64::MAX] {
            let phys = DslDirPhys { used_bytes: total, compressed_bytes: total, ..DslDirPhys::default() };
            let gone = SpaceChange::minus_all(&phys);
            assert_eq!((gone.used, gone.compressed), (i64::MIN, i64::MIN));
            assert_eq!((-gone).used, i64::MAX);
            let (root, child) = (dir(None, 0), dir(None, 0));
            root.phys.lock().used_bytes = total;
            root.diduse(UsedKind::Head, gone);
            root.set_reservation(total);
            child.set_reservation(total);
            child.diduse(UsedKind::Head, -gone);
            root.transfer(UsedKind::Head, UsedKind::Snapshots, total);
            root.transfer(UsedKind::Head, UsedKind::Snapshots, total);
        }
        assert_eq!(reserved_delta(u64::MAX, 0, 5), 0);
        assert_eq!(reserved_delta(0, 1 << 63, i64::MIN), i64::MIN);
    }

    #[test]
    fn a_refreservation_is_eaten_up_by_what_is_written() {
        let own = dir(None, 0);
        own.diduse(UsedKind::Refreservation, SpaceChange { used: 500, ..SpaceChange::default() });
        let felt = reserved_delta(500, 0, 200);
        own.book(SpaceChange { used: felt, ..SpaceChange::default() }, UsedKind::Head, 200, UsedKind::Refreservation);
        assert_eq!(sums(&own), (500, UsedBreakdown { head: 200, refreservation: 300, ..UsedBreakdown::default() }));
        let felt = reserved_delta(500, 200, 400);
        own.book(SpaceChange { used: felt, ..SpaceChange::default() }, UsedKind::Head, 400, UsedKind::Refreservation);
        assert_eq!(sums(&own), (600, UsedBreakdown { head: 600, ..UsedBreakdown::default() }));
    }
}
