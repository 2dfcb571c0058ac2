//! The data sets' part of a group (`dsl_pool_sync`, `module/zfs/dsl_pool.c`): what is dirty in them is written, and
//! what that took or gave back is booked.
//!
//! Invariants: what was booked on a data set is in its totals, in those of its directory and of those above, and in its
//! deadlist, once its object set was written; nothing of it stays for the next group but what later passes of the MOS
//! add.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::{Result, Tx};
use platter_hooks::Canary;
use platter_ondisk::{BlkPtr, Txg};
use platter_zio::BlockStore;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::pool::{DslPool, slop};
use crate::snapshot::SnapshotBonus;
use crate::used_space::{SpaceChange, UsedKind, reserved_delta};
use crate::{bookmark_space, counting, deadlist, empty_bpobj, freeing, intent, livelist, resume_state, zapify};

/// Whether a data set has something to write in group `txg`.
pub fn any_dataset_is_dirty(dsl: &DslPool, txg: Txg) -> bool {
    dsl.tree.read().datasets.values().any(|ds| ds.open_objset().is_some_and(|os| os.is_dirty(txg)))
}

/// Writes what is dirty in the data sets, and books it, in sync pass `pass`.
///
/// # Errors
/// Device errors, damage in the MOS.
pub async fn sync_datasets(dsl: &Arc<DslPool>, tx: &Tx, pass: u32) -> Result<()> {
    let txg = tx.txg();
    let datasets: Vec<Arc<Dataset>> = dsl.tree.read().datasets.values().cloned().collect();
    for dataset in datasets {
        let Some(os) = dataset.open_objset() else { continue };
        let zil = dataset.zil.lock().clone();
        if let Some(zil) = zil.filter(|_| pass == 1) {
            zil.sync(tx)?;
            intent::note_feature(dsl, tx, &dataset, &zil).await?;
        }
        if os.count_is_wanted() {
            counting::begin(dsl, &dataset, &os);
        }
        if !os.is_dirty(txg) && dataset.accounting.is_empty() {
            continue;
        }
        crate::effects::note_features(dsl, tx, &dataset, &os).await?;
        let root = os.sync(txg, pass).await?;
        dataset.phys.lock().bp = root;
        apply_deltas(dsl, tx, &dataset, pass).await?;
        resume_state::sync(dsl, tx, &dataset).await?;
        dataset.store(&dsl.mos, tx).await?;
        assert!(dataset.accounting.is_empty(), "data set {}: something was booked after its sync", dataset.object);
    }
    Ok(())
}

/// What is in memory of data sets and directories is what the group writes, once nothing of it is dirty any more.
pub fn assert_stored(dsl: &DslPool) {
    let tree = dsl.tree.read();
    for dataset in tree.datasets.values() {
        dataset.assert_stored(&dsl.mos);
        dataset.dir.assert_stored(&dsl.mos);
    }
    for dir in [&tree.root_dir, &tree.mos_dir, &tree.free_dir, &tree.leak_dir].into_iter().flatten() {
        dir.assert_stored(&dsl.mos);
    }
}

/// Brings what was booked on a data set into its totals, its directory's, its deadlist and its features
/// (`dsl_dataset_block_born`, `dsl_dataset_block_kill`), in sync pass `pass`.
async fn apply_deltas(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, pass: u32) -> Result<()> {
    let deltas = dataset.accounting.take();
    let reserved = dataset.dir.local_number("refreservation");
    let (deadlist_object, felt) = {
        let mut phys = dataset.phys.lock();
        let felt = reserved_delta(reserved, phys.unique_bytes, deltas.own.used);
        let change = deltas.referenced;
        phys.referenced_bytes = phys.referenced_bytes.saturating_add_signed(change.used);
        phys.compressed_bytes = phys.compressed_bytes.saturating_add_signed(change.compressed);
        phys.uncompressed_bytes = phys.uncompressed_bytes.saturating_add_signed(change.uncompressed);
        phys.unique_bytes = phys.unique_bytes.saturating_add_signed(deltas.own.used);
        (phys.deadlist_obj, felt)
    };
    let change = SpaceChange { used: felt, ..deltas.own };
    let mut changed: BTreeMap<u64, Arc<Dir>> = BTreeMap::new();
    for dir in dataset.dir.book(change, UsedKind::Head, deltas.own.used, UsedKind::Refreservation) {
        changed.insert(dir.object.0, dir);
    }
    if !deltas.dead.is_empty() {
        hand_to_snapshots(dsl, tx, dataset, &deltas.dead).await?;
    }
    for dir in changed.values() {
        dir.store(&dsl.mos, tx).await?;
    }
    if !deltas.dead.is_empty() {
        let access = dsl.access();
        let empty = empty_bpobj::known(&access);
        let lost = usize::from(Canary::DeadlistEntryLost.sings());
        let dead = &deltas.dead[lost..];
        let own = deadlist::insert(&dsl.mos, tx, &dsl.store, deadlist_object, dead, empty).await?;
        empty_bpobj::give_back(&access, tx, own).await?;
    }
    if !deltas.freed.is_empty() && !Canary::BookmarkForgotten.sings() {
        bookmark_space::book(dsl, tx, dataset, &deltas.freed).await?;
    }
    livelist::follow(dsl, tx, dataset, &deltas.lives, pass).await?;
    for guid in deltas.features {
        zapify::activate(dsl, tx, dataset, guid).await?;
    }
    Ok(())
}

/// Books blocks that the head gave up and its snapshots still hold. They stay in the directory's space, under another
/// heading unless an origin outside holds them too; those that only the latest snapshot has are now unique to it.
async fn hand_to_snapshots(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, dead: &[BlkPtr]) -> Result<()> {
    let sum = |after: Txg| dead.iter().filter(|bp| bp.birth() > after).map(|bp| dsl.store.dsize(bp)).sum::<u64>();
    let origin = dataset.dir.phys.lock().origin_obj;
    let origin_txg = match origin.is_some() {
        true => SnapshotBonus::load(&dsl.mos, origin).await?.phys.creation_txg,
        false => Txg(0),
    };
    dataset.dir.transfer(UsedKind::Head, UsedKind::Snapshots, sum(origin_txg));
    let previous = dataset.phys.lock().prev_snap_obj;
    if previous.is_some() {
        let mut previous = SnapshotBonus::load(&dsl.mos, previous).await?;
        if previous.phys.next_snap_obj == dataset.object {
            let more = sum(previous.phys.prev_snap_txg);
            previous.phys.unique_bytes = previous.phys.unique_bytes.saturating_add(more);
            previous.store(tx)?;
        }
    }
    Ok(())
}

/// Books the MOS's own growth on `$MOS` (`dsl_pool_mos_diduse_space`); what later passes add is booked next time.
///
/// # Errors
/// Device errors.
pub async fn book_mos(dsl: &DslPool, tx: &Tx) -> Result<()> {
    let deltas = dsl.mos_accounting.take();
    let Some(dir) = dsl.tree.read().mos_dir.clone() else { return Ok(()) };
    if deltas.own == SpaceChange::default() {
        return Ok(());
    }
    for dir in dir.diduse(UsedKind::Head, deltas.own) {
        dir.store(&dsl.mos, tx).await?;
    }
    Ok(())
}

/// Sets how much may still be allocated, by whom.
pub fn update_available(dsl: &DslPool) {
    let (allocated, size, maturing) = {
        let allocator = dsl.store.state().allocator.lock();
        let (allocated, size) = allocator.deflated();
        (allocated, size, allocator.deferred())
    };
    let maturing = if freeing::is_active(dsl) { maturing.saturating_add(freeing::space(dsl).0) } else { maturing };
    let slop = slop(size);
    let room = |reserve: u64| size.saturating_sub(reserve).saturating_sub(allocated);
    let (writers, frees, last) = (room(slop), room(slop / 2), room(slop / 4));
    dsl.gate.set_room(platter_zio::Room { writers, frees, last, maturing });
}
