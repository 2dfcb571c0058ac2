//! Livelists: all that a clone has of its own, so that it can be destroyed without a walk through what it shares
//! (`dsl_flush_pending_livelist`, `dsl_dir_remove_livelist`, `module/zfs/dsl_dataset.c` and `dsl_dir.c`;
//! `spa_livelist_condense_sync`, `module/zfs/spa.c`).
//!
//! A livelist looks like a deadlist, a ZAP from birth group to list of pointers, but belongs to the clone's head: each
//! block that is born in it after its origin is put on a list, and again, as dead, when the head gives it up, whether
//! or not a snapshot still has it. A destroyed clone's livelist goes to the pool's list of deleted clones, where
//! [`deleted_clones`](crate::deleted_clones) frees what still lives on it.
//!
//! Invariants:
//! - a block's birth and its death are on the same list, which is that of its birth group: so a new list begins with a
//!   group, never within one;
//! - what lives on a livelist is what the head has and was born after the origin: the list is given up when the head
//!   gets other contents (a promotion, a rollback, a receive);
//! - the count of feature `livelist` is the number of livelists, those of deleted clones included.

use std::sync::Arc;

use platter_dmu::bpobj::Bpobj;
use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx, ZioError};
use platter_ondisk::names::dsl_dir_field;
use platter_ondisk::{ObjectId, Txg};

use crate::dataset::Dataset;
use crate::deadlist::{self, Kind};
use crate::lives::{FEATURE, Livelist, Lives};
use crate::pool::DslPool;
use crate::used_space::SpaceChange;
use crate::{deleted_clones, empty_bpobj, freeing, zapify};

/// Gives the new clone `dataset` a livelist, where the pool has that feature. Within the task that makes the clone.
///
/// # Errors
/// Out of space, device errors.
pub async fn create(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset) -> Result<()> {
    if !dsl.features.is_enabled(FEATURE) || !dsl.features.is_enabled(freeing::FEATURE) {
        return Ok(());
    }
    let origin = dataset.phys.lock().prev_snap_txg;
    assert!(origin > Txg(0) && origin < tx.txg(), "nothing is born in a clone before its origin was taken");
    let object = deadlist::create(&dsl.mos, tx, dsl.version(), dsl.random()).await?;
    let zap = zapify::ensure_dir(dsl, tx, &dataset.dir).await?;
    zap.put_u64(tx, dsl_dir_field::LIVELIST.as_bytes(), object.0).await?;
    dsl.features.adjust(tx, FEATURE, 1).await?;
    dsl.dirty_config();
    dataset.accounting.set_livelist(Some(Livelist { object, origin }));
    Ok(())
}

/// Takes the livelist from `dataset`; its object stays.
async fn take(dsl: &DslPool, tx: &Tx, dataset: &Dataset) -> Result<Option<Livelist>> {
    let Some(list) = dataset.accounting.livelist() else { return Ok(None) };
    let zap = Zap::open(&dsl.mos, dataset.dir.object).await?;
    zap.remove(tx, dsl_dir_field::LIVELIST.as_bytes()).await?;
    dataset.accounting.set_livelist(None);
    Ok(Some(list))
}

/// The data set has no livelist any more, if it had one: it is destroyed by a walk. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn give_up(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset) -> Result<()> {
    let Some(list) = take(dsl, tx, dataset).await? else { return Ok(()) };
    empty_bpobj::free_deadlist(&dsl.access(), tx, list.object).await?;
    dsl.features.adjust(tx, FEATURE, -1).await?;
    dsl.dirty_config();
    Ok(())
}

/// What is to be freed of the destroyed clone `dataset`, which takes `gone` (a loss), is what lives on its livelist:
/// that becomes the pool's. `false` when it has none, or one that does not tell the same. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn hand_over(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset, gone: SpaceChange) -> Result<bool> {
    let Some(list) = dataset.accounting.livelist() else { return Ok(false) };
    let listed = deadlist::space(&dsl.mos, list.object).await?;
    let has = -gone;
    // Payload within pointers is on no list, but counts as uncompressed.
    let is_same = [(listed.used, has.used), (listed.comp, has.compressed)]
        .into_iter()
        .all(|(listed, has)| i64::try_from(listed) == Ok(has));
    if !is_same {
        tracing::warn!(pool = dsl.name(), dataset = %dataset.object, ?listed, ?has, "a livelist is not believed");
        give_up(dsl, tx, dataset).await?;
        return Ok(false);
    }
    take(dsl, tx, dataset).await?;
    deleted_clones::add(dsl, tx, list.object, SpaceChange::of(&listed)).await?;
    Ok(true)
}

/// Brings the livelist up to date with what was born and died in sync pass `pass`.
///
/// # Errors
/// Device errors, damage.
pub async fn follow(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset, lives: &Lives, pass: u32) -> Result<()> {
    let Some(list) = dataset.accounting.livelist() else {
        assert!(lives.is_empty(), "only a clone with a livelist notes who lives");
        return Ok(());
    };
    match bring_up_to_date(dsl, tx, dataset, list, lives, pass).await {
        // Nobody needs it: without one, the clone is destroyed by a walk.
        Err(error @ ZioError::Corrupt { .. }) => {
            tracing::warn!(pool = dsl.name(), dataset = %dataset.object, %error, "a damaged livelist is left behind");
            take(dsl, tx, dataset).await?;
            dsl.features.adjust(tx, FEATURE, -1).await
        }
        done => done,
    }
}

async fn bring_up_to_date(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Dataset,
    list: Livelist,
    lives: &Lives,
    pass: u32,
) -> Result<()> {
    let keys = deadlist::keys(&dsl.mos, list.object).await?;
    let access = dsl.access();
    let is_full = match keys.last() {
        None => true,
        Some(_) if pass > 1 => false,
        Some(&(_, last)) => {
            Bpobj::open(&dsl.mos, last).await?.births_and_deaths()?.0 > dsl.surroundings.livelist_births
        }
    };
    if is_full {
        let fresh = empty_bpobj::empty_bpobj(&access, tx).await?;
        deadlist::add_key(&dsl.mos, tx, list.object, Txg(tx.txg().0 - 1), fresh).await?;
    }
    for (pointers, kind) in [(&lives.born, Kind::Births), (&lives.died, Kind::Deaths)] {
        let empty = empty_bpobj::known(&access);
        let own = deadlist::insert_as(&dsl.mos, tx, &dsl.store, list.object, pointers, empty, kind).await?;
        empty_bpobj::give_back(&access, tx, own).await?;
    }
    condense(dsl, tx, list.object).await?;
    match is_worth_it(dsl, dataset) {
        true => Ok(()),
        false => give_up(dsl, tx, dataset).await,
    }
}

/// Whether the clone still shares enough with its origin (`dsl_livelist_should_disable`).
fn is_worth_it(dsl: &DslPool, dataset: &Dataset) -> bool {
    let own = dataset.dir.phys.lock().used_breakdown.head;
    let referenced = dataset.phys.lock().referenced_bytes;
    let shared = u128::from(referenced.saturating_sub(own));
    referenced == 0 || shared * 100 / u128::from(referenced) > u128::from(dsl.surroundings.livelist_shared)
}

/// Makes one list of two neighbours that together have few births without a death, so that a livelist does not grow
/// with what is overwritten: one pair in a group, and never the newest list, which still grows.
async fn condense(dsl: &Arc<DslPool>, tx: &Tx, livelist: ObjectId) -> Result<()> {
    let keys = deadlist::keys(&dsl.mos, livelist).await?;
    let Some((_, older)) = keys.split_last() else { return Ok(()) };
    let mut balance = Vec::with_capacity(older.len());
    for &(_, list) in older {
        let (births, deaths) = Bpobj::open(&dsl.mos, list).await?.births_and_deaths()?;
        balance.push(births.saturating_sub(deaths));
    }
    let few = |pair: &[u64]| pair.iter().sum::<u64>() < dsl.surroundings.livelist_births;
    let Some(first) = balance.windows(2).position(few) else { return Ok(()) };
    let (keys, access) = ([older[first], older[first + 1]], dsl.access());
    let mut live = Vec::new();
    for &(_, list) in &keys {
        let mut part = Bpobj::open(&dsl.mos, list).await?.live().await?;
        part.reverse();
        live.append(&mut part);
    }
    let joined = Bpobj::create_live(&dsl.mos, tx, deadlist::BPOBJ_BLOCK).await?;
    Bpobj::open(&dsl.mos, joined).await?.append(tx, &live).await?;
    let (before, after) = (sum(dsl, &keys.map(|(_, list)| list)).await?, sum(dsl, &[joined]).await?);
    assert_eq!(before, after, "a list has the totals of what lives on it");
    for (_, list) in keys {
        empty_bpobj::free_list(&access, tx, list).await?;
    }
    deadlist::add_key(&dsl.mos, tx, livelist, keys[0].0, joined).await?;
    Zap::open(&dsl.mos, livelist).await?.remove_int(tx, keys[1].0.0).await.map(drop)
}

/// Deflated, compressed and uncompressed bytes on `lists`.
async fn sum(dsl: &DslPool, lists: &[ObjectId]) -> Result<[u64; 3]> {
    let mut sum = [0u64; 3];
    for &list in lists {
        let totals = Bpobj::open(&dsl.mos, list).await?.totals().await?;
        for (sum, more) in sum.iter_mut().zip([totals.used, totals.compressed, totals.uncompressed]) {
            *sum = sum.wrapping_add(more);
        }
    }
    Ok(sum)
}
