//! The walk of a sequential reconstruction: all that is allocated in a top-level vdev, metaslab after metaslab, is
//! copied to the devices that joined it (`vdev_rebuild_thread`, `module/zfs/vdev_rebuild.c`).
//!
//! Invariants:
//! - copying begins after all groups that the devices lack are on disk; what is written from then on they get from
//!   whoever writes it;
//! - everything that is not free to be handed out is copied, also what nobody knows to be free;
//! - the place on disk is never further than what devices have flushed;
//! - a device that was away for a moment, or refused something, gets a list that says more than this reconstruction
//!   can give it: whoever goes on with it, after a crash too, does not take it for complete;
//! - nothing is waited for while a metaslab is kept from being used but devices, and those not for long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{StreamExt, stream};
use platter_dsl::error::{PoolError, Result};
use platter_hooks::Canary;
use platter_ondisk::names::config::REBUILD_TXG;
use platter_ondisk::{Guid, Txg};
use platter_vdev::{Copied, Copies, FIRST_GROUP, Leaf, Opening, TopVdev};
use platter_zio::{MetaslabId, Phase, RangeSet};
use tokio::time::Instant;

use crate::core::Core;
use crate::free_walk::TURN;
use crate::rebuild_state::{Pass, Rebuild};
use crate::{rebuild_store, scan_store};

/// Most that is copied at a time (`zfs_rebuild_max_segment`).
const SEGMENT: u64 = 1 << 20;
/// Copies under way at a time: with the size of each the memory that a reconstruction takes.
const AT_ONCE: usize = 16;
/// The place is written down so often. Devices empty their caches for it and stand still.
const SAVE: Duration = Duration::from_secs(30);
/// Groups that may be open or closing (`TXG_CONCURRENT_STATES`), with one to spare.
const GROUPS_UNDER_WAY: u64 = 4;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything was copied.
    All,
    /// No device is there any more that needs it.
    Unneeded,
    /// It is to end: the pool is left or stopped, or it begins anew.
    Stopped,
}

/// One walk.
pub struct Walk {
    core: Arc<Core>,
    top: Arc<TopVdev>,
    /// Which one of this process's it is.
    number: u64,
    saved: Instant,
}

/// The leaves of a top-level vdev that joined it to be reconstructed.
pub fn joined(core: &Core, top: &TopVdev) -> Vec<Arc<Leaf>> {
    let mut marked = Vec::new();
    core.config.read().vdev_tree.walk(&mut |vdev| marked.extend(vdev.other.contains(REBUILD_TXG).then_some(vdev.guid)));
    top.leaves().into_iter().filter(|leaf| marked.contains(&leaf.guid())).collect()
}

/// Whether a leaf lacks what a reconstruction of all that is older than `max` gives it, and nothing else
/// (`vdev_dtl_should_excise`).
fn is_given(leaf: &Leaf, max: Txg) -> bool {
    let missing = leaf.missing();
    missing.contains(FIRST_GROUP) && missing.iter().all(|(_, last)| last < max)
}

/// A leaf is not brought up to date by the reconstruction of all that is older than `max`.
fn leave_out(core: &Core, leaf: &Leaf, max: Txg) {
    leaf.note_lacking(Txg(1), max.max(core.dsl.gate.synced_txg()));
    assert!(!is_given(leaf, max), "who goes on would take leaf {} for complete", leaf.guid());
}

impl Walk {
    /// The walk of this number over a top-level vdev.
    pub fn new(core: Arc<Core>, top: Arc<TopVdev>, number: u64) -> Self {
        Self { core, top, number, saved: Instant::now() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Rebuild) -> T) -> Option<T> {
        self.core.rebuilds.with(self.top.id(), self.number, change)
    }

    /// Walks from the place on, to the end unless something ends it before. Then everything is stable.
    ///
    /// # Errors
    /// The pool stopped, or is suspended.
    pub async fn run(&mut self) -> Result<End> {
        let copies = self.prepare().await?;
        self.wait_for_groups().await?;
        let end = self.everything(&copies).await;
        drop(copies);
        if end == End::All {
            self.note_lost();
            scan_store::make_stable(&self.core).await?;
            self.note_lost();
        }
        let end = self.obstacle().unwrap_or(end);
        if end == End::Stopped {
            self.save().await;
        }
        Ok(end)
    }

    /// Looks which devices are to be given everything, and lets nobody write beside a copy from now on.
    async fn prepare(&self) -> Result<Copies> {
        let (top, number) = (self.top.clone(), self.number);
        self.core
            .task(async move |core, _| {
                let begun = Copies::begin(top.clone()).await;
                let copies = begun.map_err(|error| PoolError::invalid(error.to_string()))?;
                let now = Instant::now();
                core.rebuilds.with(top.id(), number, |rebuild| {
                    let max = rebuild.phys.max_txg;
                    rebuild.members = choose(&core, &top, max);
                    let is_behind = |guid: &u64| core.rebuilds.is_behind(Guid(*guid));
                    if rebuild.members.keys().any(is_behind) {
                        // What it got may be gone.
                        let phys = &mut rebuild.phys;
                        (phys.last_offset, phys.bytes_scanned, phys.bytes_issued, phys.bytes_rebuilt) = (0, 0, 0, 0);
                    }
                    let before_ms = rebuild.phys.scan_time_ms;
                    rebuild.pass = Some(Pass { began: now, before_ms, scanned: 0, issued: 0 });
                });
                Ok(copies)
            })
            .await
    }

    /// Waits until the groups that the devices lack are on disk.
    async fn wait_for_groups(&self) -> Result<()> {
        let Some(max) = self.with(|rebuild| rebuild.phys.max_txg) else { return Ok(()) };
        // What a damaged pool says may be any number.
        let last = max.min(self.core.dsl.gate.open_txg().plus(GROUPS_UNDER_WAY));
        while self.core.uberblock.lock().txg < last && self.obstacle().is_none() {
            self.core.pass_group().await?;
        }
        Ok(())
    }

    /// Why it cannot go on.
    fn obstacle(&self) -> Option<End> {
        let is_stopped = matches!(self.core.dsl.store.suspension().phase(), Phase::Stopped(_));
        match self.with(|rebuild| rebuild.members.is_empty()) {
            _ if is_stopped || self.core.rebuilds.leaving.load(Ordering::Acquire) => Some(End::Stopped),
            None => Some(End::Stopped),
            Some(true) => Some(End::Unneeded),
            Some(false) => None,
        }
    }

    /// Waits as long as the pool's I/O waits.
    async fn wait_for_devices(&self) {
        let is_held = || self.core.dsl.store.suspension().is_suspended() || !self.top.condition().is_usable();
        while is_held() && self.obstacle().is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn everything(&mut self, copies: &Copies) -> End {
        let mut index = 0;
        loop {
            self.wait_for_devices().await;
            self.note_lost();
            if let Some(end) = self.obstacle() {
                return end;
            }
            let Some((start, size)) = self.metaslab(index) else { return End::All };
            let Some(place) = self.with(|rebuild| rebuild.phys.last_offset) else { return End::Stopped };
            if place >= start + size {
                index += 1;
            } else {
                self.estimate(index, place);
                let id = MetaslabId { vdev: self.top.id() as u32, index };
                if self.turn(copies, id, (start, size), place).await {
                    self.with(|rebuild| rebuild.phys.last_offset = start + size);
                    index += 1;
                }
            }
            // Who waited for the room has its turn.
            tokio::task::yield_now().await;
            if self.saved.elapsed() >= SAVE {
                self.save().await;
            }
        }
    }

    /// First byte and length of a metaslab in the vdev.
    fn metaslab(&self, index: usize) -> Option<(u64, u64)> {
        let allocator = self.core.dsl.store.state().allocator.lock();
        let metaslab = allocator.group(self.top.id() as u32)?.metaslabs().get(index)?;
        Some((metaslab.start, metaslab.size))
    }

    /// Notes how much there is in all, as far as is known before metaslab `index` (`vdev_rebuild_update_bytes_est`).
    fn estimate(&self, index: usize, place: u64) {
        let left: u64 = {
            let allocator = self.core.dsl.store.state().allocator.lock();
            let metaslabs = allocator.group(self.top.id() as u32).map_or(&[][..], |group| group.metaslabs());
            let rest = metaslabs.iter().skip(index);
            // Of one that is done in part, as if what is allocated were spread evenly.
            rest.map(|metaslab| {
                let done = place.saturating_sub(metaslab.start).min(metaslab.size);
                let share = u128::from(metaslab.allocated()) * u128::from(metaslab.size - done);
                (share / u128::from(metaslab.size.max(1))) as u64
            })
            .sum()
        };
        self.with(|rebuild| rebuild.phys.bytes_est = rebuild.phys.bytes_scanned.saturating_add(left));
    }

    /// Copies of a metaslab for a while, from `place` on; whether that was all of it.
    async fn turn(&self, copies: &Copies, id: MetaslabId, bounds: (u64, u64), place: u64) -> bool {
        // Where nobody knows what is free, all of it is copied.
        let disabled = self.core.dsl.store.disable(id).await;
        let free = disabled.as_ref().map_or(&[][..], |disabled| disabled.free());
        let pieces = pieces(bounds, free, place);
        let Some(targets) = self.with(|rebuild| rebuild.members.keys().map(|guid| Guid(*guid)).collect::<Vec<_>>())
        else {
            return false;
        };
        let began = Instant::now();
        let (count, mut done) = (pieces.len(), 0);
        let wanted = pieces.into_iter().take_while(|_| began.elapsed() < TURN && self.obstacle().is_none());
        let mut under_way = stream::iter(wanted)
            .map(|piece| {
                let targets = &targets;
                async move { (piece, copies.copy(piece, targets).await) }
            })
            .buffered(AT_ONCE);
        let mut goes_on = true;
        // To its end, also when one has failed: none may be under way when the metaslab is used again.
        while let Some((piece, copied)) = under_way.next().await {
            goes_on = goes_on && self.note(piece, copied, targets.len() as u64);
            done += usize::from(goes_on);
        }
        done == count
    }

    /// Notes what came of a piece; `false` when it is to be tried again.
    fn note(&self, (offset, length): (u64, u64), copied: Copied, targets: u64) -> bool {
        if !copied.was_read && !self.top.condition().is_usable() {
            return false;
        }
        self.with(|rebuild| {
            let phys = &mut rebuild.phys;
            assert!(phys.last_offset <= offset, "a walk goes on");
            phys.last_offset = offset + length;
            phys.bytes_scanned = phys.bytes_scanned.saturating_add(length);
            phys.bytes_issued = phys.bytes_issued.saturating_add(length);
            phys.bytes_rebuilt = phys.bytes_rebuilt.saturating_add(copied.written);
            phys.errors = phys.errors.saturating_add(u64::from(copied.written < length.saturating_mul(targets)));
            if let Some(pass) = &mut rebuild.pass {
                pass.scanned = pass.scanned.saturating_add(length);
                pass.issued = pass.issued.saturating_add(length);
            }
        })
        .is_some()
    }

    fn note_lost(&self) {
        note_lost(&self.core, &self.top, self.number);
    }

    /// Writes the place down, after everything before it is stable. The next one is when that fails.
    async fn save(&mut self) {
        self.saved = Instant::now();
        if let Err(error) = self.try_save().await {
            tracing::debug!(pool = self.core.name(), %error, "the place of a reconstruction is not written down");
        }
    }

    async fn try_save(&self) -> Result<()> {
        self.note_lost();
        let captured = self.with(|rebuild| {
            rebuild.note_time();
            (rebuild.phys.clone(), rebuild.members.len())
        });
        let Some((phys, members)) = captured else { return Ok(()) };
        scan_store::make_stable(&self.core).await?;
        self.note_lost();
        if self.with(|rebuild| rebuild.members.len()) != Some(members) {
            // The lists of those that are left out come first.
            return Ok(());
        }
        let (top, number) = (self.top.id(), self.number);
        self.core
            .task(async move |core, tx| {
                if core.rebuilds.with(top, number, |_| ()).is_some() {
                    rebuild_store::store(&core, &tx, top, &phys).await?;
                }
                Ok(())
            })
            .await
    }
}

/// Leaves out devices that went away for a moment, or refused something.
pub fn note_lost(core: &Core, top: &TopVdev, number: u64) {
    let members = core.rebuilds.with(top.id(), number, |rebuild| (rebuild.members.clone(), rebuild.phys.max_txg));
    let Some((members, max)) = members else { return };
    let leaves = top.leaves();
    for (guid, opening) in members {
        let leaf = leaves.iter().find(|leaf| leaf.guid().0 == guid);
        let has_all =
            |leaf: &&Arc<Leaf>| leaf.opening() == Some(opening) && leaf.noted().is_empty() && !leaf.is_interrupted();
        if leaf.filter(has_all).is_some() {
            continue;
        }
        core.rebuilds.with(top.id(), number, |rebuild| rebuild.members.remove(&guid));
        if let Some(leaf) = leaf {
            tracing::warn!(pool = core.name(), "device {} cannot be reconstructed sequentially", leaf.name());
            leave_out(core, leaf, max);
        }
    }
}

/// The devices that are given everything that is older than `max`, with what has to be known of each at the end. Those
/// that joined for it and are not there are left out.
fn choose(core: &Core, top: &TopVdev, max: Txg) -> BTreeMap<u64, Opening> {
    let mut members = BTreeMap::new();
    top.leaves().iter().for_each(|leaf| leaf.stats().begin_scan());
    for leaf in joined(core, top).into_iter().filter(|leaf| is_given(leaf, max)) {
        match leaf.opening() {
            Some(opening) => {
                leaf.begin_scan();
                members.insert(leaf.guid().0, opening);
            }
            None => leave_out(core, &leaf, max),
        }
    }
    members
}

/// What is not free of a metaslab, from `place` on, in pieces.
fn pieces((start, size): (u64, u64), free: &[(u64, u64)], place: u64) -> Vec<(u64, u64)> {
    let mut used = RangeSet::of(start, size);
    for (from, length) in free {
        used.clear_range(*from, *length);
    }
    let mut pieces = Vec::new();
    for (from, length) in used.iter() {
        let (from, end) = (from.max(place), from + length);
        if from < end {
            let starts = (from..end).step_by(SEGMENT as usize);
            pieces.extend(starts.map(|piece| (piece, SEGMENT.min(end - piece))));
        }
    }
    if Canary::RebuildRangeSkipped.sings() && pieces.len() > 1 {
        pieces.remove(1);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_not_free_is_copied_in_runs() {
        let metaslab = (16 << 20, 16 << 20);
        let all: Vec<(u64, u64)> = (16..32).map(|index| (index << 20, 1 << 20)).collect();
        assert_eq!(pieces(metaslab, &[], 0), all, "nobody knows what is free");
        let free = [(16 << 20, 4096), ((18 << 20) + 4096, 13 << 20)];
        let used = [((16 << 20) + 4096, 1 << 20), ((17 << 20) + 4096, 1 << 20), ((31 << 20) + 4096, (1 << 20) - 4096)];
        assert_eq!(pieces(metaslab, &free, 0), used);
        let rest = pieces(metaslab, &free, (17 << 20) + 8192);
        assert_eq!(rest, [((17 << 20) + 8192, (1 << 20) - 4096), used[2]]);
        assert_eq!(pieces(metaslab, &[metaslab], 0), []);
    }
}
