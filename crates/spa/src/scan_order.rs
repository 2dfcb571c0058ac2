//! In which order a scan walks object sets, while snapshots of them come and go (`dsl_scan_ds_snapshotted`,
//! `dsl_scan_ds_destroyed`, `module/zfs/dsl_scan.c`, which move a scan's place instead).
//!
//! First comes the MOS, then the snapshots that there were when the scan began, the oldest first, then the heads, then
//! snapshots that were taken meanwhile. Each shows what was born after the snapshot before it.
//!
//! Invariants:
//! - what a snapshot had that is destroyed, the next one has or nobody: that one is walked later, and sees it;
//! - a head is walked from the last snapshot on that there was when the scan began, whatever was taken since;
//! - what died in a head before the walk came there, the first snapshot that was taken meanwhile has: of those, only
//!   what was born before the scan began is looked at.

use std::sync::Arc;

use platter_dmu::Result;
use platter_dsl::dataset::Dataset;
use platter_dsl::snapshot::{Snapshot, SnapshotBonus};
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::ZioError;

use crate::core::Core;
use crate::scan_place::ScanPlace;

/// The turn of heads: after that of any snapshot's group of creation.
const HEADS: u64 = 1 << 62;

/// One object set to walk.
pub struct Target {
    /// When it is walked.
    pub turn: u64,
    /// Its number.
    pub id: ObjectId,
    /// Blocks born up to here belong to an older snapshot and are seen there.
    pub after: Txg,
    /// Blocks born later need not be looked at.
    pub until: Txg,
    /// Which snapshot it is, if it is one.
    snapshot: Option<Snapshot>,
}

/// When a snapshot is walked by a scan that began with group `max` on disk.
fn turn_of(snapshot: &Snapshot, max: Txg) -> u64 {
    let born = snapshot.creation_txg.0.min(HEADS - 1);
    if snapshot.creation_txg <= max { born } else { HEADS + born }
}

/// The object set that is next from `place` on; `None` at the end.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn next(core: &Arc<Core>, place: ScanPlace) -> Result<Option<Target>> {
    let from = (place.turn, place.objset);
    let all = Txg(u64::MAX);
    if from == (0, ObjectId(0)) {
        return Ok(Some(Target { turn: 0, id: ObjectId(0), after: Txg(0), until: all, snapshot: None }));
    }
    let max = core.scan.lock().phys.max_txg;
    let (snapshots, head) = {
        let tree = core.dsl.tree.read();
        let mut snapshots: Vec<(u64, Snapshot)> =
            tree.snapshots.iter().map(|snapshot| (turn_of(snapshot, max), snapshot.clone())).collect();
        snapshots.retain(|(turn, snapshot)| (*turn, snapshot.object) >= from);
        snapshots.sort_by_key(|(turn, snapshot)| (*turn, snapshot.object));
        let heads = tree.datasets.values().filter(|dataset| (HEADS, dataset.object) >= from);
        (snapshots, heads.min_by_key(|dataset| dataset.object).cloned())
    };
    for (turn, snapshot) in snapshots {
        if turn >= HEADS && head.is_some() {
            break;
        }
        let Some(bonus) = still_there(core, &snapshot).await? else { continue };
        let (id, after) = (snapshot.object, bonus.phys.prev_snap_txg);
        let until = if turn >= HEADS { max } else { all };
        if after < until {
            return Ok(Some(Target { turn, id, after, until, snapshot: Some(snapshot) }));
        }
    }
    let Some(head) = head else { return Ok(None) };
    let after = last_before(core, &head, max).await?;
    assert!(after <= max, "a head is walked from a snapshot on that there was when the scan began");
    Ok(Some(Target { turn: HEADS, id: head.object, after, until: all, snapshot: None }))
}

/// When the last snapshot of a head was taken that there was when the scan began.
async fn last_before(core: &Core, head: &Dataset, max: Txg) -> Result<Txg> {
    let (mut at, mut taken) = {
        let phys = head.phys.lock();
        (phys.prev_snap_obj, phys.prev_snap_txg)
    };
    while taken > max && at.is_some() {
        let phys = SnapshotBonus::load(&core.dsl.mos, at).await?.phys;
        if phys.prev_snap_txg >= taken {
            return Err(ZioError::corrupt("snapshot", format!("object {at}: the chain of snapshots turns back")));
        }
        (at, taken) = (phys.prev_snap_obj, phys.prev_snap_txg);
    }
    Ok(taken)
}

/// A snapshot's bonus, unless it was destroyed.
async fn still_there(core: &Core, snapshot: &Snapshot) -> Result<Option<SnapshotBonus>> {
    let is_there = || core.dsl.tree.read().snapshots.contains(snapshot);
    if !is_there() {
        return Ok(None);
    }
    match SnapshotBonus::load(&core.dsl.mos, snapshot.object).await {
        Ok(bonus) => Ok((bonus.snapshot() == *snapshot).then_some(bonus)),
        Err(_) if !is_there() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The newest root of object set `id`, whatever it is; `None` when it is gone or empty.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn root_of_any(core: &Arc<Core>, id: ObjectId) -> Result<Option<BlkPtr>> {
    let snapshot = core.dsl.tree.read().snapshots.iter().find(|snapshot| snapshot.object == id).cloned();
    root_of(core, &Target { turn: 0, id, after: Txg(0), until: Txg(u64::MAX), snapshot }).await
}

/// The newest root of an object set; `None` when it is gone or empty.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn root_of(core: &Arc<Core>, target: &Target) -> Result<Option<BlkPtr>> {
    let root = match &target.snapshot {
        _ if target.id.0 == 0 => core.uberblock.lock().rootbp,
        Some(snapshot) => match still_there(core, snapshot).await? {
            Some(bonus) => bonus.phys.bp,
            None => return Ok(None),
        },
        None => {
            let head = core.dsl.tree.read().datasets.values().find(|ds| ds.object == target.id).cloned();
            let Some(head) = head else { return Ok(None) };
            head.phys.lock().bp
        }
    };
    Ok((!root.is_hole()).then_some(root))
}

#[cfg(test)]
mod tests {
    use platter_ondisk::Guid;

    use super::*;

    #[test]
    fn what_was_taken_since_comes_after_the_heads() {
        let turn = |txg| {
            let snapshot = Snapshot { object: ObjectId(9), guid: Guid(1), creation_txg: Txg(txg) };
            turn_of(&snapshot, Txg(100))
        };
        assert!(turn(5) < turn(100) && turn(100) < HEADS);
        assert!(HEADS < turn(101) && turn(101) < turn(102));
        assert!(turn(u64::MAX) > HEADS, "what is damaged wraps around nowhere");
    }
}
