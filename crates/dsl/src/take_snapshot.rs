//! `zfs snapshot`: several at once, all in one group or none (`dsl_dataset_snapshot_check`,
//! `dsl_dataset_snapshot_sync_impl`, `module/zfs/dsl_dataset.c`).
//!
//! A snapshot is what the head's object set is when the group's data sets are written: the head's root, totals and
//! deadlist become the snapshot's, and the head goes on with an empty deadlist. From then on what was born before is
//! not freed when it dies in the head, but put on that list.
//!
//! Invariants:
//! - nothing of the group is written to the head after its snapshot was taken: what is born in a snapshot's group would
//!   be taken to be in it. Where something may be, and of a head that has a snapshot of this group, the task waits for
//!   the next group;
//! - space stays where it is: the head's alone becomes shared, and no total of a directory changes but for what a
//!   `refreservation` keeps free anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_api::names::{check_snapshot, split_snapshot};
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{NewDnode, Tx};
use platter_ondisk::dsl::{DSL_DATASET_SIZE, DslDatasetPhys, dataset_flags};
use platter_ondisk::{Guid, ObjectId, ObjectType, Txg};
use platter_zil::Zil;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::snapshot::{Snapshot, SnapshotBonus};
use crate::stored_property::StoredProperty;
use crate::used_space::{SpaceChange, UsedKind, difference};
use crate::{
    bookmark_space, deadlist_merge, history, intent, limits, snapshot_properties, snapshots_changed, space, zapify,
};

/// A snapshot that is to be taken.
#[derive(Clone)]
pub struct Site {
    head: Arc<Dataset>,
    full_name: String,
    name: String,
    /// The guid and the time, in seconds since 1970, of one that was received.
    received: Option<(Guid, u64)>,
}

impl Site {
    /// Of a snapshot that was received into `head`.
    pub fn of_received(head: &Arc<Dataset>, full_name: String, name: String, guid: Guid, time: u64) -> Self {
        Self { head: head.clone(), full_name, name, received: Some((guid, time)) }
    }

    /// The head.
    pub fn head(&self) -> &Arc<Dataset> {
        &self.head
    }
}

/// Names with what stands against each.
pub type Refusals = Vec<(String, PoolError)>;

/// What a check of several snapshots comes to.
pub enum Verdict<T> {
    /// All can be done.
    Fine(T),
    /// None is done, because of these.
    Refused(Refusals),
    /// Not in this group.
    Later,
}

/// In an old pool no snapshot may have a log (`SPA_VERSION_FAST_SNAP`): the heads' logs are ended meanwhile, and what
/// asks for `fsync` waits for its group.
pub(crate) struct EndedLogs(Vec<Arc<Zil>>);

impl EndedLogs {
    /// Ends the logs of the data sets of these snapshots, if none may be.
    ///
    /// # Errors
    /// What was in them cannot be written.
    pub async fn of(dsl: &DslPool, names: &[String]) -> Result<Self> {
        let mut ended = Self(Vec::new());
        if dsl.version().has_fast_snapshots() {
            return Ok(ended);
        }
        for (dataset, _) in names.iter().filter_map(|name| split_snapshot(name)) {
            let log = dsl.find(dataset).ok().and_then(|head| head.zil.lock().clone());
            if let Some(log) = log {
                ended.0.push(log.clone());
                log.retire().await?;
            }
        }
        Ok(ended)
    }
}

impl Drop for EndedLogs {
    fn drop(&mut self) {
        self.0.iter().for_each(|log| log.revive());
    }
}

/// Whether the head has a log where none may be, which is about to end.
fn has_log(dsl: &DslPool, head: &Dataset) -> bool {
    !dsl.version().has_fast_snapshots() && head.zil.lock().as_ref().is_some_and(|log| log.has_chain())
}

/// Whether the head has a log, where none may be, that waits for it to be mounted after a crash.
async fn has_waiting_log(dsl: &DslPool, head: &Dataset) -> Result<bool> {
    if dsl.version().has_fast_snapshots() || head.zil.lock().is_some() || head.phys.lock().bp.is_hole() {
        return Ok(false);
    }
    let os = match head.open_objset() {
        Some(os) => os,
        None => intent::open(dsl, head).await?,
    };
    Ok(!os.zil_header().log.is_hole())
}

/// Whether the head must not be captured in group `txg`, as it is not written yet, or has a snapshot of it already.
pub fn must_wait(head: &Dataset, txg: Txg) -> bool {
    let is_dirty = head.open_objset().is_some_and(|os| os.is_dirty(txg)) || !head.accounting.is_empty();
    is_dirty || head.phys.lock().prev_snap_txg >= txg
}

/// Whether limits count against a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// They do.
    Limited,
    /// They do not: it goes soon.
    Exempt,
}

/// Whether snapshots of these full names can be taken together in group `txg`.
///
/// # Errors
/// Damage, unreadable blocks; no space at all.
pub(crate) async fn check(dsl: &DslPool, names: &[String], txg: Txg, counting: Counting) -> Result<Verdict<Vec<Site>>> {
    space::check_task(dsl)?;
    let (mut sites, mut refusals): (Vec<Site>, Refusals) = (Vec::new(), Vec::new());
    for full_name in names {
        match site(dsl, full_name).await {
            Ok(site) => sites.push(site),
            Err(error @ PoolError::Engine(_)) => return Err(error),
            Err(error) => refusals.push((full_name.clone(), error)),
        }
    }
    let mut heads = BTreeSet::new();
    let twice = sites.iter().filter(|site| !heads.insert(site.head.object));
    let refuse =
        |site: &Site| (site.full_name.clone(), PoolError::invalid("multiple snapshots of same fs not allowed"));
    refusals.extend(twice.map(refuse));
    if sites.iter().any(|site| must_wait(&site.head, txg) || has_log(dsl, &site.head)) {
        return Ok(Verdict::Later);
    }
    if counting == Counting::Limited {
        refusals.extend(check_limits(dsl, &sites));
    }
    refusals.extend(check_reserved(dsl, &sites));
    Ok(if refusals.is_empty() { Verdict::Fine(sites) } else { Verdict::Refused(refusals) })
}

/// Where the snapshot goes, when its name is free.
async fn site(dsl: &DslPool, full_name: &str) -> Result<Site> {
    let (dataset, name) = check_snapshot(full_name)?;
    let head = dsl.find(dataset)?;
    if head.snapshot(&dsl.mos, name).await?.is_some() {
        return Err(PoolError::Exists("dataset already exists".into()));
    }
    let phys = head.phys.lock().clone();
    if phys.flags & dataset_flags::INCONSISTENT != 0 || has_waiting_log(dsl, &head).await? {
        return Err(PoolError::Busy("dataset is busy".into()));
    }
    // What the task will need of the MOS, so that damage is known of before anything changes.
    for object in [phys.deadlist_obj, phys.snapnames_zapobj] {
        dsl.mos.dnode(object).await?;
    }
    if phys.prev_snap_obj.is_some() {
        SnapshotBonus::load(&dsl.mos, phys.prev_snap_obj).await?;
    }
    Ok(Site { head, full_name: full_name.to_owned(), name: name.to_owned(), received: None })
}

/// What stands against a snapshot of what was received, but for its group.
pub async fn check_received(dsl: &DslPool, site: &Site) -> Result<Refusals> {
    if site.head.snapshot(&dsl.mos, &site.name).await?.is_some() {
        return Ok(vec![(site.full_name.clone(), PoolError::Exists("destination already exists".into()))]);
    }
    let mut refusals = check_limits(dsl, std::slice::from_ref(site));
    refusals.extend(check_reserved(dsl, std::slice::from_ref(site)));
    Ok(refusals)
}

/// Limits, each with all snapshots that are to be taken below it.
fn check_limits(dsl: &DslPool, sites: &[Site]) -> Refusals {
    let mut more: BTreeMap<ObjectId, (Arc<Dir>, u64)> = BTreeMap::new();
    for site in sites {
        let mut at = Some(site.head.dir.clone());
        while let Some(dir) = at {
            at = dir.parent();
            more.entry(dir.object).or_insert((dir, 0)).1 += 1;
        }
    }
    let refused = |(dir, more): (Arc<Dir>, u64)| {
        let error = limits::check_snapshots(dsl, &dir, more).err()?;
        Some((dir.full_name(dsl.name()), error))
    };
    more.into_values().find_map(refused).into_iter().collect()
}

/// What a `refreservation` keeps free for the head alone must be there anew once all it has is shared.
fn check_reserved(dsl: &DslPool, sites: &[Site]) -> Refusals {
    let mut taken: BTreeMap<ObjectId, u64> = BTreeMap::new();
    let mut refusals = Refusals::new();
    for site in sites {
        let reserved = kept_free_anew(&site.head);
        if reserved == 0 {
            continue;
        }
        let mut above = Vec::new();
        let mut at = Some(site.head.dir.clone());
        while let Some(dir) = at {
            above.push(dir.object);
            at = dir.parent();
        }
        let others = above.iter().filter_map(|object| taken.get(object)).copied().max().unwrap_or(0);
        if reserved.saturating_add(others) > space::available_in(dsl, &site.head.dir) {
            refusals.push((site.full_name.clone(), PoolError::invalid("out of space")));
        }
        for object in above {
            *taken.entry(object).or_default() += reserved;
        }
    }
    refusals
}

/// Bytes of the head that its `refreservation` covers until a snapshot has them, too.
fn kept_free_anew(head: &Dataset) -> u64 {
    head.dir.local_number("refreservation").min(head.phys.lock().unique_bytes)
}

/// Takes the snapshots that [`check`] found possible, with these properties of their own. Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn take(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    sites: &[Site],
    properties: &BTreeMap<String, Option<StoredProperty>>,
) -> Result<()> {
    // One moment for all of one command.
    let now = dsl.now();
    for site in sites {
        let mut made = take_one(dsl, tx, site, now).await?;
        snapshot_properties::set(dsl, tx, &mut made, properties).await?;
        made.store(tx)?;
        if !made.phys.bp.is_hole() {
            dsl.tree.write().snapshots.push(made.snapshot());
        }
        let object = made.snapshot().object;
        history::append_event(dsl, tx, "snapshot", &format!("{} ({object})", site.full_name)).await?;
    }
    Ok(())
}

/// Takes one, and makes the head what comes after it.
async fn take_one(dsl: &Arc<DslPool>, tx: &Tx, site: &Site, now: u64) -> platter_zio::Result<SnapshotBonus> {
    let head = &site.head;
    assert!(!must_wait(head, tx.txg()), "what is captured is all that the group has of it");
    let mos = dsl.access();
    limits::adjust(dsl, tx, &head.dir, 0, 1).await?;
    let before = head.phys.lock().clone();
    let (guid, time) = site.received.unwrap_or_else(|| (Guid(dsl.random()), now));
    let snapshot = store_new(dsl, tx, head, &before, (guid, time)).await?;
    link_before(dsl, tx, head, &before, snapshot.object).await?;

    let reserved = kept_free_anew(head);
    if reserved > 0 {
        let change = SpaceChange { used: difference(reserved, 0), ..SpaceChange::default() };
        for dir in head.dir.diduse(UsedKind::Refreservation, change) {
            dir.store(&dsl.mos, tx).await?;
        }
    }
    let mut more = bookmark_space::more_keys(head, before.prev_snap_txg);
    more.push(before.prev_snap_txg);
    let from = (before.deadlist_obj, before.prev_snap_obj);
    let fresh = deadlist_merge::for_head(&mos, tx, from, &more, dsl.random()).await?;
    {
        let mut phys = head.phys.lock();
        phys.deadlist_obj = fresh;
        phys.prev_snap_obj = snapshot.object;
        phys.prev_snap_txg = snapshot.creation_txg;
        phys.unique_bytes = 0;
        phys.flags |= dataset_flags::UNIQUE_ACCURATE;
    }
    head.store(&dsl.mos, tx).await?;
    head.book_by_history();
    let value = ZapValue::from_u64(snapshot.object.0);
    Zap::open(&dsl.mos, before.snapnames_zapobj).await?.add(tx, site.name.as_bytes(), &value).await?;
    snapshots_changed::note(dsl, tx, &head.dir).await?;
    SnapshotBonus::load(&dsl.mos, snapshot.object).await
}

/// The snapshot's own object, with what the head was.
async fn store_new(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    head: &Arc<Dataset>,
    before: &DslDatasetPhys,
    (guid, time): (Guid, u64),
) -> platter_zio::Result<Snapshot> {
    let new = NewDnode::bonus_only(ObjectType::DSL_DATASET, DSL_DATASET_SIZE as u16);
    let dnode = dsl.mos.allocate(tx, new).await?;
    let phys = DslDatasetPhys {
        next_snap_obj: head.object,
        snapnames_zapobj: ObjectId::NONE,
        num_children: 1,
        creation_time: time,
        creation_txg: tx.txg(),
        unique_bytes: 0,
        // unique_create() draws 56 bits.
        fsid_guid: dsl.random() >> 8,
        guid,
        next_clones_obj: ObjectId::NONE,
        props_obj: ObjectId::NONE,
        userrefs_obj: ObjectId::NONE,
        ..before.clone()
    };
    dnode.set_bonus(tx, ObjectType::DSL_DATASET, &phys.encode())?;
    zapify::copy(dsl, tx, head.object, dnode.object()).await?;
    Ok(Snapshot { object: dnode.object(), guid: phys.guid, creation_txg: phys.creation_txg })
}

/// The snapshot that was the head's last one comes before the new one now; where the head was a clone of it, so is the
/// new one.
async fn link_before(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    head: &Dataset,
    before: &DslDatasetPhys,
    new: ObjectId,
) -> platter_zio::Result<()> {
    if !before.prev_snap_obj.is_some() {
        return Ok(());
    }
    let mut previous = SnapshotBonus::load(&dsl.mos, before.prev_snap_obj).await?;
    if previous.phys.next_snap_obj == head.object {
        previous.phys.next_snap_obj = new;
        return previous.store(tx);
    }
    if previous.phys.next_clones_obj.is_some() {
        let clones = Zap::open(&dsl.mos, previous.phys.next_clones_obj).await?;
        // Old versions forgot to enter some.
        clones.remove_int(tx, head.object.0).await?;
        clones.add_int(tx, new.0).await?;
    }
    Ok(())
}

impl DslPool {
    /// `zfs snapshot` of these full names, all or none, each with these properties of its own. What was written before
    /// is in it. Returned are the names that stand in the way, with the reasons.
    ///
    /// # Errors
    /// A property that no snapshot can have; no space; the pool is read-only or stopped; damage.
    pub async fn take_snapshots(
        self: &Arc<Self>,
        names: &[String],
        properties: &BTreeMap<String, String>,
    ) -> Result<Refusals> {
        let properties: BTreeMap<String, Option<StoredProperty>> =
            snapshot_properties::parse(properties)?.into_iter().map(|(name, value)| (name, Some(value))).collect();
        let _ended = EndedLogs::of(self, names).await?;
        loop {
            let (names, properties) = (names.to_vec(), properties.clone());
            let check = async move |dsl: Arc<Self>, txg: Txg| check(&dsl, &names, txg, Counting::Limited).await;
            let make = async move |dsl: Arc<Self>, tx: Tx, verdict: Verdict<Vec<Site>>| match verdict {
                Verdict::Fine(sites) => take(&dsl, &tx, &sites, &properties).await.map(|()| Some(Refusals::new())),
                Verdict::Refused(refusals) => Ok(Some(refusals)),
                Verdict::Later => Ok(None),
            };
            if let Some(refusals) = self.checked_task_in_group(check, make).await? {
                return Ok(refusals);
            }
        }
    }
}
