//! What bookmarks know of space: what their snapshots referenced, and what of that was freed before the next snapshot
//! (`zbm_*_freed_before_next_snap`, feature `bookmark_written`, `module/zfs/dsl_bookmark.c`). With both, `written#…`
//! can be told when the snapshot itself is long gone.
//!
//! ```text
//!   snapshots   ───O──────────O──────────head        freed before next: what the bookmark's snapshot had,
//!   bookmarks          b1           b2               of b1 until the snapshot after it, of b2 until now
//! ```
//! Invariants:
//! - a block that dies in the head is booked on every bookmark at or after the head's latest snapshot that had it, in
//!   the group in which it goes to the deadlist or is freed;
//! - deadlists part where such bookmarks are, as where snapshots are, until the last of a group is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx, ZioError};
use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::features::Feature;
use platter_ondisk::{ObjectId, Txg};

use crate::bookmark_phys::{BookmarkPhys, BookmarkSpace};
use crate::dataset::Dataset;
use crate::followed::{Following, names};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::used_space::SpaceChange;
use crate::{clone_keys, deadlist, deadlist_merge};

/// Lets a bookmark follow what is freed of its snapshot `phys` from now on, where the pool can.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn begin(dsl: &DslPool, bookmark: &mut BookmarkPhys, phys: &DslDatasetPhys) -> Result<()> {
    if !dsl.features.is_enabled(Feature::BookmarkWritten) {
        return Ok(());
    }
    let next = SnapshotBonus::load(&dsl.mos, phys.next_snap_obj).await?.phys;
    let freed = BookmarkSpace::of_deadlist(&deadlist::space(&dsl.mos, next.deadlist_obj).await?);
    bookmark.follow(BookmarkSpace::referenced(phys), freed);
    Ok(())
}

/// Changes what is stored of one bookmark.
async fn update(zap: &Zap, tx: &Tx, name: &[u8], change: impl FnOnce(&mut BookmarkPhys)) -> Result<()> {
    let stored = zap.get(name).await?;
    let Some(mut phys) = stored.as_ref().and_then(BookmarkPhys::decode) else {
        return Err(ZioError::corrupt("bookmark", format!("'{}' is not there", String::from_utf8_lossy(name))));
    };
    assert!(phys.has_freed(), "only bookmarks that follow what is freed are followed");
    change(&mut phys);
    zap.put(tx, name, &phys.encode()).await
}

/// The ZAP of the bookmarks of which some follow.
async fn open(dsl: &DslPool, head: &Dataset) -> Result<Zap> {
    let zap = names(&dsl.mos, head.object).await?;
    zap.ok_or_else(|| ZioError::corrupt("bookmarks", format!("those of data set {} are not there", head.object)))
}

/// Books what was freed in the head: `freed` has blocks by the first group from theirs on of which there is a bookmark
/// that follows. Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn book(dsl: &DslPool, tx: &Tx, head: &Dataset, freed: &BTreeMap<Txg, SpaceChange>) -> Result<()> {
    let previous = head.phys.lock().prev_snap_txg;
    let following = head.followed.lock().between(previous, Txg(u64::MAX));
    if following.is_empty() {
        return Ok(());
    }
    let zap = open(dsl, head).await?;
    let (mut sum, mut rest) = (SpaceChange::default(), freed.iter().peekable());
    for (txg, name) in following {
        while let Some((_, change)) = rest.next_if(|(first, _)| **first <= txg) {
            sum += *change;
        }
        if sum != SpaceChange::default() {
            update(&zap, tx, &name, |phys| phys.freed = phys.freed.plus(sum)).await?;
        }
    }
    Ok(())
}

/// The births at which the deadlist of a head, of which a snapshot is being taken, parts from now on because of
/// bookmarks: those after the snapshot before, taken in group `previous`.
pub fn more_keys(head: &Dataset, previous: Txg) -> Vec<Txg> {
    head.followed.lock().groups_from(Txg(previous.0.saturating_add(1)))
}

/// A snapshot of `head` is being destroyed, and is still in its place: bookmarks between it and the one before have
/// another next snapshot now, and its own outlive it. Whether there are such, so that deadlists go on parting there.
/// `next` is the deadlist of what comes after it. Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn outlive(dsl: &DslPool, tx: &Tx, head: &Dataset, doomed: &DslDatasetPhys, next: ObjectId) -> Result<bool> {
    let (between, own): (Vec<Following>, Vec<Following>) = {
        let followed = head.followed.lock();
        (followed.between(doomed.prev_snap_txg, doomed.creation_txg), followed.at(doomed.creation_txg))
    };
    if between.is_empty() && own.is_empty() {
        return Ok(false);
    }
    let zap = open(dsl, head).await?;
    for (txg, name) in between {
        // What it had, and was freed between the doomed one and the next.
        let more = deadlist_merge::space_between(&dsl.mos, &dsl.store, next, Txg(0), txg).await?;
        update(&zap, tx, &name, |phys| phys.freed = phys.freed.plus(more)).await?;
    }
    for (_, name) in &own {
        update(&zap, tx, name, BookmarkPhys::outlive).await?;
    }
    Ok(!own.is_empty())
}

/// What comes after the snapshot `origin`, whose bookmarks `head` has, is another now (`dsl_bookmark_next_changed`).
/// Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn next_changed(dsl: &DslPool, tx: &Tx, head: &Dataset, origin: &DslDatasetPhys) -> Result<()> {
    let own = head.followed.lock().at(origin.creation_txg);
    if own.is_empty() {
        return Ok(());
    }
    let next = SnapshotBonus::load(&dsl.mos, origin.next_snap_obj).await?.phys;
    let freed = BookmarkSpace::of_deadlist(&deadlist::space(&dsl.mos, next.deadlist_obj).await?);
    let zap = open(dsl, head).await?;
    for (_, name) in own {
        update(&zap, tx, &name, |phys| phys.freed = freed).await?;
    }
    Ok(())
}

/// What a bookmark that followed kept beside its entry goes with it: where no snapshot and no other bookmark is,
/// deadlists need not part. To be called when it is no more among those that follow. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn end(dsl: &Arc<DslPool>, tx: &Tx, head: &Dataset, bookmark: &BookmarkPhys) -> Result<()> {
    if !bookmark.has_freed() {
        return Ok(());
    }
    dsl.features.adjust(tx, Feature::BookmarkWritten, -1).await?;
    dsl.dirty_config();
    let (list, latest) = {
        let phys = head.phys.lock();
        (phys.deadlist_obj, phys.prev_snap_txg)
    };
    let txg = bookmark.creation_txg;
    if bookmark.snapshot_exists() || txg >= latest || !head.followed.lock().at(txg).is_empty() {
        return Ok(());
    }
    clone_keys::remove(dsl, tx, head.dir.object, txg).await?;
    deadlist_merge::remove_key(&dsl.access(), tx, list, txg).await
}
