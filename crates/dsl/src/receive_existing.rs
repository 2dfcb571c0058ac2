//! A receive into a data set that exists: it fills a clone of the snapshot it builds on, hidden below the target, which
//! takes the target's place at the end (`recv_begin_check_existing_impl`, `module/zfs/dmu_recv.c`;
//! `dsl_dataset_clone_swap_sync_impl`, `module/zfs/dsl_dataset.c`).
//!
//! Invariants:
//! - the clone and the target have the same latest snapshot when they are exchanged, and nothing of the group was
//!   written to either;
//! - what the target has after that is the clone's to the byte; what it had before goes with the clone.

use std::sync::Arc;

use platter_dmu::{Objset, Tx};
use platter_ondisk::features::Feature;
use platter_ondisk::{ObjectId, Txg};
use platter_stream::{StreamFeatures, begin_flags};

use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::named_snapshot::{self, NamedSnapshot};
use crate::pool::DslPool;
use crate::receive_begin::{Begun, ReceiveRequest, bad_stream, check_features, kind_of, mark};
use crate::resume_state::RECEIVING;
use crate::send::features_of;
use crate::snapshot::SnapshotBonus;
use crate::take_snapshot::{Site, must_wait};
use crate::used_space::{SpaceChange, UsedKind, difference};
use crate::{
    bookmark_space, bookmarks, clone, deadlist_merge, destroy, destroy_snapshot, effects, encryption, history, intent,
    livelist, new_dataset, redacted, resume_state, space, zapify,
};

/// So many bytes beyond its `refquota` a data set may receive: as many as one group can take it beyond where it comes
/// from (`DMU_MAX_ACCESS` and `spa_asize_inflation`, `dsl_dataset_clone_swap_check_impl`).
const REFQUOTA_SLACK: u64 = 24 * (64 << 20);

/// What a receive builds on.
pub(crate) struct Base {
    /// The directory below which the filled data set is.
    parent: Arc<Dir>,
    /// Its own name there, and its full name.
    name: (String, String),
    /// The head of the snapshot's data set.
    head: Arc<Dataset>,
    /// The snapshot of which the filled data set is a clone; none of a full stream.
    snapshot: Option<ObjectId>,
}

impl Base {
    /// Whether the snapshot was taken before group `txg`: a clone begins later than its origin.
    async fn is_earlier(&self, dsl: &DslPool, txg: Txg) -> platter_zio::Result<bool> {
        let Some(object) = self.snapshot else { return Ok(true) };
        Ok(SnapshotBonus::load(&dsl.mos, object).await?.phys.creation_txg < txg)
    }
}

fn not_matching(target: &str) -> PoolError {
    PoolError::Invalid(format!("most recent snapshot of {target} does not\nmatch incremental source"))
}

/// Whether files of `dataset` changed since the snapshot (`dsl_dataset_modified_since_snap`): a new log is no change.
async fn is_modified_since(dsl: &DslPool, dataset: &Dataset, snapshot: &SnapshotBonus) -> Result<bool> {
    let open = dataset.open_objset();
    if open.as_ref().is_some_and(|os| os.has_changes()) || !dataset.accounting.is_empty() {
        return Ok(true);
    }
    let root = dataset.phys.lock().bp;
    if root.birth() <= snapshot.phys.creation_txg {
        return Ok(false);
    }
    let now = match open {
        Some(os) => os.phys().meta_dnode,
        None => intent::open(dsl, dataset).await?.phys().meta_dnode,
    };
    let properties = effects::write_properties(dsl, &dataset.dir);
    let params = dsl.objset_params(snapshot.snapshot().object, dataset.accounting.clone(), properties, true);
    Ok(Objset::open(params, snapshot.phys.bp).await?.phys().meta_dnode != now)
}

/// The snapshot that an incremental stream builds on.
async fn base_snapshot(dsl: &DslPool, request: &ReceiveRequest, target: &Dataset) -> Result<ObjectId> {
    let all = named_snapshot::in_order(dsl, target).await?;
    let from = request.begin.from_guid;
    let Some((_, matching)) = all.iter().find(|(_, bonus)| bonus.phys.guid == from) else {
        return Err(not_matching(&request.target));
    };
    let object = matching.snapshot().object;
    if !redacted::takes(dsl, object, &request.begin, request.list.as_ref()).await? {
        return Err(bad_stream());
    }
    let latest = target.phys.lock().prev_snap_obj;
    if !request.force {
        if is_modified_since(dsl, target, matching).await? {
            let text = format!("destination {} has been modified\nsince most recent snapshot", request.target);
            return Err(PoolError::Invalid(text));
        }
        return Ok(latest);
    }
    let large = features_of(dsl, object).await?.contains(&Feature::LargeBlocks);
    if large && !request.begin.features.has(StreamFeatures::LARGE_BLOCKS) {
        let text = "incremental send stream requires -L (--large-block), to match previous receive.";
        return Err(PoolError::invalid(text));
    }
    Ok(object)
}

/// A volume stays one, and a file system, too.
fn check_kind(head: &Dataset, request: &ReceiveRequest) -> Result<()> {
    let (there, given) = (head.kind, kind_of(&request.begin));
    if there == given {
        return Ok(());
    }
    let text = format!("destination {} is a {}, and the stream has a {}", request.target, there.name(), given.name());
    Err(PoolError::Invalid(text))
}

async fn check(dsl: &DslPool, request: &ReceiveRequest) -> Result<Base> {
    check_features(dsl, &request.begin)?;
    let target = dsl.find(&request.target)?;
    if request.begin.flags & begin_flags::CLONE != 0 {
        return Err(PoolError::invalid("invalid backup stream"));
    }
    check_kind(&target, request)?;
    if encryption::of(&dsl.mos, &target.dir).await?.is_some() {
        return Err(PoolError::Unsupported("it is encrypted, which this version cannot write yet".into()));
    }
    let below = format!("{}/{RECEIVING}", request.target);
    if dsl.find(&below).is_ok() || resume_state::token(dsl, &target).await?.is_some() {
        let text = format!("destination {} contains partially-complete state from \"zfs receive -s\".", request.target);
        return Err(PoolError::Busy(text));
    }
    if target.snapshot(&dsl.mos, &request.snapshot).await?.is_some() {
        return Err(PoolError::Exists("destination already exists".into()));
    }
    space::check_task(dsl)?;
    crate::limits::check_snapshots(dsl, &target.dir, 1)?;
    let snapshot = match request.begin.from_guid.0 {
        0 if !request.force => return Err(PoolError::Exists("destination already exists".into())),
        0 => None,
        _ => Some(base_snapshot(dsl, request, &target).await?),
    };
    let name = (RECEIVING.to_owned(), format!("{}/{RECEIVING}", request.target));
    Ok(Base { parent: target.dir.clone(), name, head: target, snapshot })
}

/// Whether a clone of `origin` can be made of the stream.
async fn check_clone(dsl: &DslPool, request: &ReceiveRequest, origin: &str) -> Result<Base> {
    check_features(dsl, &request.begin)?;
    let absent = || PoolError::NotFound(format!("local origin for clone {} does not exist", request.target));
    let found = named_snapshot::find(dsl, origin).await?.ok_or_else(absent)?;
    check_kind(&found.head, request)?;
    let guid = SnapshotBonus::load(&dsl.mos, found.object).await?.phys.guid;
    let from = request.begin.from_guid;
    if from.0 == 0 && request.begin.flags & begin_flags::FREE_RECORDS == 0 {
        return Err(PoolError::invalid("invalid backup stream"));
    }
    if from.0 != 0 && from != guid {
        return Err(not_matching(&request.target));
    }
    if !redacted::takes(dsl, found.object, &request.begin, request.list.as_ref()).await? {
        return Err(bad_stream());
    }
    let new_dataset::Site { above, last } =
        new_dataset::check(dsl, &request.target, kind_of(&request.begin), &request.properties).await?;
    let name = (last, request.target.clone());
    Ok(Base { parent: above.dir.clone(), name, head: found.head, snapshot: Some(found.object) })
}

/// Makes the data set that is filled. Within a task.
async fn make(dsl: &Arc<DslPool>, tx: &Tx, request: &ReceiveRequest, base: Base) -> Result<Begun> {
    let (now, random) = (dsl.now(), || dsl.random());
    let is_new = base.name.0 != RECEIVING;
    let dir = Dir::create(&dsl.mos, &dsl.directory, tx, Some(base.parent), &base.name.0, now, random).await?;
    if is_new {
        new_dataset::prepare(dsl, tx, &dir, &request.properties, request.creator).await?;
    }
    let dataset = match base.snapshot {
        Some(object) => {
            let head = clone::head(dsl, tx, &dir, &base.head, object).await?;
            if is_new {
                livelist::create(dsl, tx, &head).await?;
            }
            head
        }
        None => new_dataset::empty_head(dsl, tx, &dir, kind_of(&request.begin)).await?,
    };
    mark(dsl, tx, &dataset, request).await?;
    let begins_empty = dataset.phys.lock().bp.is_hole();
    if begins_empty {
        dataset.set_open(&new_dataset::empty_objset(dsl, tx, &dataset, request.begin.objset_type));
    } else {
        // It may be open now: the log of the base's head is not its own.
        intent::forget(dsl, tx, &dataset).await?;
        if dataset.open_objset().is_none() {
            dataset.set_open(&intent::open(dsl, &dataset).await?);
        }
    }
    let name = base.name.1;
    if is_new {
        new_dataset::settle(dsl, tx, &name, &dataset, &request.properties).await?;
    } else {
        dsl.tree.write().datasets.insert(name.clone(), dataset.clone());
    }
    history::append_event(dsl, tx, "receive", &format!("{name} ({})", dataset.object)).await?;
    Ok(Begun { dataset, is_new, is_resumed: false, bytes: 0 })
}

/// Begins a receive into a data set that exists.
pub(crate) async fn begin(dsl: &Arc<DslPool>, request: ReceiveRequest) -> Result<Begun> {
    loop {
        let (asked, request) = (request.clone(), request.clone());
        let check = async move |dsl: Arc<DslPool>, txg: Txg| {
            let base = match &asked.origin {
                Some(origin) => check_clone(&dsl, &asked, origin).await?,
                None => check(&dsl, &asked).await?,
            };
            Ok(base.is_earlier(&dsl, txg).await?.then_some(base))
        };
        let make = async move |dsl: Arc<DslPool>, tx: Tx, base: Option<Base>| match base {
            Some(base) => make(&dsl, &tx, &request, base).await.map(Some),
            None => Ok(None),
        };
        if let Some(begun) = dsl.checked_task_in_group(check, make).await? {
            return Ok(begun);
        }
    }
}

/// Snapshots of `target` that are newer than the one that both have, the newest first.
async fn newer(dsl: &DslPool, target: &Arc<Dataset>, begun: &Begun) -> Result<Vec<NamedSnapshot>> {
    let (base, name) = (begun.dataset.phys.lock().prev_snap_txg, dsl.name_of(target.object).unwrap_or_default());
    let mut newer = Vec::new();
    for (own, bonus) in named_snapshot::in_order(dsl, target).await? {
        if bonus.phys.creation_txg > base {
            let (full_name, object) = (format!("{name}@{own}"), bonus.snapshot().object);
            newer.push(NamedSnapshot { head: target.clone(), full_name, name: own, object });
        }
    }
    newer.reverse();
    Ok(newer)
}

/// Whether what was received can take the target's place.
pub(crate) async fn check_end(
    dsl: &DslPool,
    request: &ReceiveRequest,
    begun: &Begun,
    target: &Arc<Dataset>,
) -> Result<()> {
    if target.open_objset().is_some() {
        return Err(PoolError::Busy("dataset is busy".into()));
    }
    let newer = newer(dsl, target, begun).await?;
    let base = begun.dataset.phys.lock().prev_snap_obj;
    if !request.force {
        let is_latest = target.phys.lock().prev_snap_obj == base;
        if !newer.is_empty() || !is_latest || is_modified_since_base(dsl, target, base).await? {
            let text = format!("destination {} has been modified\nsince most recent snapshot", request.target);
            return Err(PoolError::Invalid(text));
        }
    }
    for doomed in &newer {
        let phys = SnapshotBonus::load(&dsl.mos, doomed.object).await?.phys;
        let held = crate::holds::count(&dsl.mos, phys.userrefs_obj).await? > 0;
        if held || phys.num_children > 1 || dsl.in_use.has(doomed.object) {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        destroy_snapshot::check(dsl, doomed).await?;
    }
    let refquota = target.dir.local_number("refquota");
    let most = refquota.saturating_add(REFQUOTA_SLACK);
    if refquota != 0 && begun.dataset.phys.lock().referenced_bytes > most {
        return Err(PoolError::Invalid(format!("destination {} space quota exceeded.", request.target)));
    }
    destroy::check(dsl, &begun.dataset).await?;
    Ok(())
}

async fn is_modified_since_base(dsl: &DslPool, target: &Dataset, base: ObjectId) -> Result<bool> {
    let origin = dsl.tree.read().origin.as_ref().map(|origin| origin.snapshot.object);
    if !base.is_some() || Some(base) == origin {
        return Ok(false);
    }
    is_modified_since(dsl, target, &SnapshotBonus::load(&dsl.mos, base).await?).await
}

/// Exchanges what the target has and what was received. Within a task.
pub(crate) async fn swap(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    request: &ReceiveRequest,
    begun: &Begun,
    site: &Site,
) -> Result<()> {
    let (target, clone) = (site.head(), &begun.dataset);
    assert!(!must_wait(target, tx.txg()) && !must_wait(clone, tx.txg()), "nothing of this group is in either");
    for doomed in newer(dsl, target, begun).await? {
        assert!(request.force, "snapshots are destroyed only when that was asked for");
        destroy_snapshot::destroy(dsl, tx, &doomed).await?;
    }
    if request.force {
        let base = clone.phys.lock().prev_snap_txg;
        bookmarks::remove_newer(dsl, tx, target, base).await?;
    }
    *clone.objset.lock() = None;
    let (before, new) = (target.phys.lock().clone(), clone.phys.lock().clone());
    assert_eq!(before.prev_snap_obj, new.prev_snap_obj, "both come after the same snapshot");
    livelist::give_up(dsl, tx, target).await?;
    assert!(clone.accounting.livelist().is_none(), "what is filled to be exchanged has no livelist");
    book(dsl, tx, target, clone).await?;
    {
        let (mut target, mut clone) = (target.phys.lock(), clone.phys.lock());
        let (target, clone) = (&mut *target, &mut *clone);
        std::mem::swap(&mut target.bp, &mut clone.bp);
        std::mem::swap(&mut target.deadlist_obj, &mut clone.deadlist_obj);
        std::mem::swap(&mut target.referenced_bytes, &mut clone.referenced_bytes);
        std::mem::swap(&mut target.compressed_bytes, &mut clone.compressed_bytes);
        std::mem::swap(&mut target.uncompressed_bytes, &mut clone.uncompressed_bytes);
        std::mem::swap(&mut target.unique_bytes, &mut clone.unique_bytes);
    }
    exchange_features(dsl, tx, target, clone).await?;
    target.store(&dsl.mos, tx).await?;
    clone.store(&dsl.mos, tx).await?;
    if new.prev_snap_obj.is_some() {
        let base = SnapshotBonus::load(&dsl.mos, new.prev_snap_obj).await?.phys;
        bookmark_space::next_changed(dsl, tx, target, &base).await?;
    }
    *target.contents.lock() = Contents::Unknown;
    Ok(())
}

/// Books on both directories, and on the snapshot before, that their contents are exchanged.
async fn book(dsl: &Arc<DslPool>, tx: &Tx, target: &Arc<Dataset>, clone: &Arc<Dataset>) -> Result<()> {
    let (old, new) = (target.phys.lock().clone(), clone.phys.lock().clone());
    let all = Txg(u64::MAX);
    let origin = target.dir.phys.lock().origin_obj;
    let origin_txg = match origin.is_some() {
        true => SnapshotBonus::load(&dsl.mos, origin).await?.phys.creation_txg,
        false => Txg(0),
    };
    let of = async |list, after| deadlist_merge::space_between(&dsl.mos, &dsl.store, list, after, all).await;
    let (dead_old, dead_new) = (of(old.deadlist_obj, Txg(0)).await?, of(new.deadlist_obj, Txg(0)).await?);
    let snapshots =
        of(new.deadlist_obj, origin_txg).await?.used.saturating_sub(of(old.deadlist_obj, origin_txg).await?.used);
    let mut change = SpaceChange {
        used: difference(new.referenced_bytes, old.referenced_bytes),
        compressed: difference(new.compressed_bytes, old.compressed_bytes),
        uncompressed: difference(new.uncompressed_bytes, old.uncompressed_bytes),
    };
    change += dead_new;
    change -= dead_old;
    let reserved = target.dir.local_number("refreservation");
    let refreserved = difference(reserved.min(old.unique_bytes), reserved.min(new.unique_bytes));
    let mut changed = target.dir.diduse(UsedKind::Head, change);
    changed.extend(clone.dir.diduse(UsedKind::Head, -change));
    let refreserved = SpaceChange { used: refreserved, ..SpaceChange::default() };
    changed.extend(target.dir.diduse(UsedKind::Refreservation, refreserved));
    match u64::try_from(snapshots) {
        Ok(more) => target.dir.transfer(UsedKind::Head, UsedKind::Snapshots, more),
        Err(_) => target.dir.transfer(UsedKind::Snapshots, UsedKind::Head, snapshots.unsigned_abs()),
    }
    changed.push(target.dir.clone());
    for dir in changed {
        dir.store(&dsl.mos, tx).await?;
    }
    let pool_origin = dsl.tree.read().origin.as_ref().map(|origin| origin.snapshot.object);
    if old.prev_snap_obj.is_some() && Some(old.prev_snap_obj) != pool_origin {
        let mut previous = SnapshotBonus::load(&dsl.mos, old.prev_snap_obj).await?;
        let own = of(new.deadlist_obj, previous.phys.prev_snap_txg).await?;
        previous.phys.unique_bytes = u64::try_from(own.used).unwrap_or(0);
        previous.store(tx)?;
    }
    Ok(())
}

/// Each needs of the pool what its contents do.
async fn exchange_features(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    target: &Arc<Dataset>,
    clone: &Arc<Dataset>,
) -> platter_zio::Result<()> {
    let (of_target, of_clone) = (target.features.lock().clone(), clone.features.lock().clone());
    let missing = [target.object, clone.object].map(|object| redacted::snapshots_of(dsl, object));
    let [of_target_missing, of_clone_missing] = missing;
    let (of_target_missing, of_clone_missing) = (of_target_missing.await?, of_clone_missing.await?);
    for &feature in of_clone.difference(&of_target) {
        zapify::activate(dsl, tx, target, feature).await?;
        zapify::deactivate(dsl, tx, clone, feature).await?;
    }
    for &feature in of_target.difference(&of_clone) {
        zapify::deactivate(dsl, tx, target, feature).await?;
        zapify::activate(dsl, tx, clone, feature).await?;
    }
    redacted::replace(dsl, tx, target, of_clone_missing).await?;
    redacted::replace(dsl, tx, clone, of_target_missing).await
}

/// Destroys the clone, with what the target had. Within a task.
pub(crate) async fn remove_clone(dsl: &Arc<DslPool>, tx: &Tx, begun: &Begun) -> Result<()> {
    let clone = &begun.dataset;
    let name = dsl.name_of(clone.object).unwrap_or_default();
    remove(dsl, tx, &name, clone).await?;
    Ok(())
}

/// Destroys an unfinished data set. Within a task.
pub(crate) async fn remove(dsl: &Arc<DslPool>, tx: &Tx, name: &str, dataset: &Arc<Dataset>) -> platter_zio::Result<()> {
    destroy::destroy(dsl, tx, name, dataset).await?;
    Ok(())
}
