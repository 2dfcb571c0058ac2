//! Which groups a device missed (its DTL, `vdev_dtl_sync` and `vdev_dtl_load` in `module/zfs/vdev.c`): a space map over
//! group numbers, named by the leaf's configuration.
//!
//! Invariants:
//! - a leaf that cannot be written when a group begins to sync has that group in its list, and the list is on disk with
//!   that very group: after a crash nobody takes the leaf for complete;
//! - the list shrinks only by what a scan proved ([`crate::scan_proof`]).

use platter_ondisk::features::Feature;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use platter_dmu::{Objset, Result, Tx};
use platter_hooks::Canary;
use platter_ondisk::names::config::{REBUILD_TXG, RESILVER_TXG};
use platter_ondisk::spacemap::MapType;
use platter_ondisk::{Guid, ObjectId, Txg};
use platter_vdev::{Leaf, MissingRanges, TopVdev};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::labels::{self, Reached};
use crate::space_maps::{self, MapFormat, Tail, Words};

/// Block size of a DTL (`zfs_vdev_dtl_sm_blksz`).
const BLOCK_SIZE: u32 = 4096;
/// Longer lists, of all leaves together, are damage: a word or two for each time that a device was gone.
const WORDS_MAX: u64 = 1 << 20;
/// So long a device may take to tell what its labels say.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// All leaves.
pub fn leaves(core: &Core) -> Vec<Arc<Leaf>> {
    core.dsl.store.state().vdevs.iter().flatten().flat_map(|vdev| vdev.leaves()).collect()
}

/// Lists the group that is about to sync for every leaf that will not see it, and those before it in which nothing was
/// written: so the list begins right after the last group that the leaf's own labels tell of.
pub fn note_absent(core: &Core, txg: Txg) {
    let written = core.uberblock.lock().txg;
    for leaf in leaves(core).iter().filter(|leaf| !leaf.is_usable()) {
        leaf.note_lacking(written.plus(1).min(txg), txg);
        assert!(leaf.is_missing(txg), "leaf {} would be taken for complete after a crash", leaf.guid());
    }
}

/// The last group that a leaf has, as its list says, in a pool whose last group is `newest`.
pub fn last_complete(leaf: &Leaf, newest: Txg) -> Txg {
    leaf.missing().complete_until(newest)
}

/// Lists for a leaf all groups until those for which it was away, when its device only `reached` an earlier one. A
/// device that is put back from an old copy of itself lacks more than the groups during which it was away: also what it
/// lacked when the copy was made, and it may have been written elsewhere since. What that was nobody knows.
pub fn note_gap(core: &Core, leaf: &Leaf, reached: Txg, newest: Txg) {
    let complete = last_complete(leaf, newest);
    if reached < complete && !Canary::OldCopyBelieved.sings() {
        tracing::warn!(
            pool = core.name(),
            "device {} ({}) is an older copy of itself: it ends at group {reached}, and was at {complete}",
            leaf.guid(),
            leaf.name()
        );
        leaf.note_lacking(Txg(1), complete);
    }
}

/// The leaves that are behind others of their top-level vdev, when their devices `reached` these groups: what the
/// furthest did, and each leaf with what it reached. All get the same uberblocks, but for the last one when the power
/// fails.
fn behind(top: &TopVdev, reached: &BTreeMap<u64, Reached>) -> (Reached, Vec<(Arc<Leaf>, Txg)>) {
    let of = |leaf: &Arc<Leaf>| Some((leaf.clone(), reached.get(&leaf.guid().0)?.clone()));
    let all: Vec<(Arc<Leaf>, Reached)> = top.leaves().iter().filter_map(of).collect();
    let newest = all.iter().map(|(_, reached)| reached).max_by_key(|reached| (reached.last, reached.before));
    let newest = newest.cloned().unwrap_or_default();
    let behind = all.into_iter().filter(|(_, reached)| reached.last < newest.last);
    let behind = behind.map(|(leaf, reached)| (leaf, reached.last)).collect();
    (newest, behind)
}

/// Lists the last group for leaves that reached the one before it. When the power failed between two uberblocks they
/// have it all the same, but an old copy of a device looks no different: so none of them is believed, as long as the
/// others have that group without them.
fn note_last_group(top: &TopVdev, newest: &Reached, late: &[(Arc<Leaf>, Txg)]) {
    let leaves: Vec<Guid> =
        late.iter().filter(|(_, reached)| is_next(*reached, newest)).map(|(leaf, _)| leaf.guid()).collect();
    if Canary::OldCopyBelieved.sings() || !top.can_do_without_group(newest.last, &leaves) {
        return;
    }
    top.leaves()
        .iter()
        .filter(|leaf| leaves.contains(&leaf.guid()))
        .for_each(|leaf| leaf.note_lacking(newest.last, newest.last));
}

/// Whether the furthest device had one more uberblock written to it than what `reached` that group. Their numbers need
/// not be next to each other.
fn is_next(reached: Txg, newest: &Reached) -> bool {
    (reached == newest.before && reached > Txg(0)) || reached.plus(1) == newest.last
}

/// Lists what the leaves of a pool that is being opened seem to lack, before the first block is read: the lists
/// themselves are on disk, and reading them must neither trust nor blame what is old there. A device that takes another
/// one's place has current labels, and of older groups what the resilver got to: its configuration in `root` says so
/// (`ZPOOL_CONFIG_RESILVER_TXG` and `ZPOOL_CONFIG_REBUILD_TXG`, `module/zfs/vdev_label.c`).
pub fn expect_gaps(vdevs: &[Option<Arc<TopVdev>>], root: &VdevConfig, reached: &BTreeMap<u64, Reached>) {
    let mut incomplete = Vec::new();
    root.walk(&mut |vdev| {
        if vdev.other.contains(RESILVER_TXG) || vdev.other.contains(REBUILD_TXG) {
            incomplete.push(vdev.guid);
        }
    });
    for top in vdevs.iter().flatten() {
        let (newest, late) = behind(top, reached);
        for leaf in top.leaves().iter().filter(|leaf| incomplete.contains(&leaf.guid())) {
            leaf.note_lacking(Txg(1), newest.last);
        }
        for (leaf, reached) in late.iter().filter(|(_, reached)| !is_next(*reached, &newest)) {
            leaf.note_lacking(reached.plus(1), newest.last);
        }
        note_last_group(top, &newest, &late);
    }
}

/// Looks at all leaves of a pool that is being opened, whose devices `reached` these groups.
pub fn note_gaps(core: &Core, reached: &BTreeMap<u64, Reached>) {
    for top in core.dsl.store.state().vdevs.iter().flatten() {
        let (newest, late) = behind(top, reached);
        note_elsewhere(core, top, reached);
        for (leaf, reached) in late.iter().filter(|(_, reached)| !is_next(*reached, &newest)) {
            core.rebuilds.note_behind(leaf.guid());
            note_gap(core, leaf, *reached, newest.last);
        }
        note_last_group(top, &newest, &late);
    }
}

/// Lists everything for leaves that the pool was written to without the others: their last group is one that they
/// missed, as their list says, and no device of the pool as it is open here tells of the same. Older blocks than they
/// missed may be gone there, too: freed, and written over.
fn note_elsewhere(core: &Core, top: &TopVdev, reached: &BTreeMap<u64, Reached>) {
    let opened = core.uberblock.lock().clone();
    let opened = (opened.txg, labels::mark(&opened));
    let of_the_pool: Vec<&Reached> = reached.values().filter(|reached| reached.groups.contains(&opened)).collect();
    for leaf in top.leaves() {
        let Some(own) = reached.get(&leaf.guid().0) else { continue };
        if !own.groups.contains(&opened)
            && leaf.is_missing(own.last)
            && !of_the_pool.iter().any(|other| own.is_part_of(other))
        {
            believe_nothing(core, &leaf, own.last, opened.0);
        }
    }
}

fn believe_nothing(core: &Core, leaf: &Leaf, reached: Txg, newest: Txg) {
    tracing::warn!(
        pool = core.name(),
        "device {} ({}) was written to up to group {reached} without the pool's other devices: all of it is resilvered",
        leaf.guid(),
        leaf.name()
    );
    leaf.note_lacking(Txg(1), newest);
}

/// The same for one leaf that returns to a pool in use, whose device tells of `own`.
pub async fn note_elsewhere_meanwhile(core: &Core, leaf: &Leaf, own: &Reached) {
    if !leaf.is_missing(own.last) {
        return;
    }
    let written = core.uberblock.lock().clone();
    let opened = (written.txg, labels::mark(&written));
    let others: Vec<_> = leaves(core).iter().filter_map(|other| other.device()).collect();
    for other in others {
        // One that does not answer tells of nothing.
        if let Ok(Ok(other)) = tokio::time::timeout(ANSWER_MAX, labels::read(&*other)).await
            && let other = other.history()
            && other.groups.contains(&opened)
            && own.is_part_of(&other)
        {
            return;
        }
    }
    believe_nothing(core, leaf, own.last, written.txg);
}

/// Whether some list is not on disk as it is.
pub fn is_unsaved(core: &Core) -> bool {
    let stored = core.stored_missing.lock();
    leaves(core).iter().any(|leaf| stored.get(&leaf.guid().0).cloned().unwrap_or_default() != leaf.missing())
}

/// Writes the lists that changed.
///
/// # Errors
/// Out of space, device errors.
pub async fn sync(core: &Core, tx: &Tx) -> Result<()> {
    for leaf in leaves(core) {
        let ranges = leaf.missing();
        let stored = core.stored_missing.lock().get(&leaf.guid().0).cloned().unwrap_or_default();
        if ranges == stored {
            continue;
        }
        let mut object = ObjectId::NONE;
        core.config.read().vdev_tree.walk(&mut |vdev| {
            if vdev.guid == leaf.guid() {
                object = vdev.dtl;
            }
        });
        if !object.is_some() {
            object = space_maps::create(&core.dsl.mos, tx, MapFormat::of(&core.dsl.features), BLOCK_SIZE).await?;
            core.dsl.features.adjust(tx, Feature::SpacemapHistogram, 1).await?;
            core.config.write().vdev_tree.walk_mut(&mut |vdev| {
                if vdev.guid == leaf.guid() {
                    vdev.dtl = object;
                }
            });
            core.dsl.dirty_config();
        }
        write(core, tx, object, &ranges).await?;
        core.stored_missing.lock().insert(leaf.guid().0, ranges);
    }
    Ok(())
}

async fn write(core: &Core, tx: &Tx, object: ObjectId, ranges: &MissingRanges) -> Result<()> {
    core.dsl.mos.dnode(object).await?.free_range(tx, 0, u64::MAX).await?;
    let groups = ranges.iter().map(|(first, last)| last.0 - first.0 + 1).sum::<u64>();
    let tail = Tail { object, at: 0, allocated: groups as i64, histogram: None };
    space_maps::append(&core.dsl.mos, tx, MapFormat::of(&core.dsl.features), tail, |writer| {
        for (index, (first, last)) in ranges.iter().enumerate() {
            if index == 0 {
                writer.debug(MapType::Alloc, 1, tx.txg().0);
            }
            writer.segment(MapType::Alloc, None, first.0, last.0 - first.0 + 1);
        }
    })
    .await?;
    Ok(())
}

/// Loads every leaf's list, hands it to the leaf in place of what it had, and returns what is on disk.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(
    mos: &Arc<Objset>,
    root: &VdevConfig,
    leaves: impl Iterator<Item = Arc<Leaf>>,
) -> Result<BTreeMap<u64, MissingRanges>> {
    let mut all = BTreeMap::new();
    let mut words = Words::exactly(WORDS_MAX);
    for leaf in leaves {
        let Some(object) = object_of(root, leaf.guid()) else {
            leaf.set_missing(MissingRanges::new());
            continue;
        };
        let ranges = read(mos, object, &mut words).await?;
        leaf.set_missing(ranges.clone());
        all.insert(leaf.guid().0, ranges);
    }
    Ok(all)
}

/// What the list of one leaf has on disk.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn stored(mos: &Arc<Objset>, root: &VdevConfig, leaf: Guid) -> Result<MissingRanges> {
    match object_of(root, leaf) {
        Some(object) => read(mos, object, &mut Words::exactly(WORDS_MAX)).await,
        None => Ok(MissingRanges::new()),
    }
}

fn object_of(root: &VdevConfig, leaf: Guid) -> Option<ObjectId> {
    let mut object = None;
    root.walk(&mut |vdev| {
        if vdev.guid == leaf && vdev.dtl.is_some() {
            object = Some(vdev.dtl);
        }
    });
    object
}

async fn read(mos: &Arc<Objset>, object: ObjectId, words: &mut Words) -> Result<MissingRanges> {
    let mut ranges = MissingRanges::new();
    space_maps::for_each(mos, object, words, |segment| {
        if segment.kind == MapType::Alloc {
            ranges.note_range(Txg(segment.offset), Txg(segment.offset.saturating_add(segment.run - 1)));
        }
        Ok(())
    })
    .await?;
    Ok(ranges)
}

/// Whether a leaf that can be written now missed something before.
pub fn needs_resilver(core: &Core) -> bool {
    leaves(core).iter().any(|leaf| leaf.is_usable() && !leaf.missing().is_empty())
}
