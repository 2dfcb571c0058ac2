//! Property `autotrim`: what becomes free is given up by itself (`vdev_autotrim_thread`, `module/zfs/vdev_trim.c`).
//!
//! Invariants:
//! - as of a trim by hand: only what has rested, and only while nothing is handed out of the metaslab;
//! - what is left out (small runs, devices that are away or being replaced) is found by a trim by hand only: nothing of
//!   it is remembered.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use platter_dsl::stored_property::StoredProperty;
use platter_dsl::watched;
use platter_ondisk::Guid;
use platter_vdev::{Leaf, TopVdev, TrimKind};
use platter_zio::{MetaslabId, Phase};
use tokio::time::Instant;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::free_state::Kind;
use crate::free_walk;

/// Runs that are given up before is looked at the time.
const RUNS: usize = 64;

fn is_on(core: &Core) -> bool {
    matches!(core.pool_properties.read().get("autotrim"), Some(StoredProperty::Text(word)) if word == "on")
}

/// Begins or ends it, as the property says.
pub fn follow(core: &Arc<Core>) {
    let wanted = is_on(core) && !core.dsl.read_only;
    core.dsl.store.state().allocator.lock().note_frees(wanted);
    let mut automatic = core.works.automatic.lock();
    if wanted && !automatic.on {
        automatic.number += 1;
        drop(watched::spawn(&core.dsl, "the automatic trim", watch(Arc::downgrade(core), automatic.number)));
    }
    automatic.on = wanted;
}

/// Whether this one still is the one that works.
fn is_the_one(core: &Core, number: u64) -> bool {
    let automatic = core.works.automatic.lock();
    automatic.on && automatic.number == number
}

/// Gives up a part of what became free as often as groups are written, at least.
async fn watch(weak: Weak<Core>, number: u64) {
    let mut turn = 0;
    loop {
        let wait = {
            let Some(core) = weak.upgrade() else { return };
            Duration::from_secs(core.environment.txg_timeout_seconds.max(1))
        };
        tokio::time::sleep(wait).await;
        let Some(core) = weak.upgrade() else { return };
        match core.dsl.store.suspension().phase() {
            _ if !is_the_one(&core, number) => return,
            Phase::Stopped(_) => return,
            Phase::Suspended { .. } => {}
            Phase::Running => a_part(&core, turn, number).await,
        }
        turn += 1;
    }
}

/// One of so many metaslabs has its turn each time (`zfs_trim_txg_batch`), so that neighbours have time to become free
/// too.
async fn a_part(core: &Arc<Core>, turn: usize, number: u64) {
    let step = core.environment.trim.txg_batch.max(1);
    let tops: Vec<_> = core.dsl.store.state().vdevs.iter().flatten().cloned().collect();
    for top in tops {
        let vdev = top.id() as u32;
        let has_some: Vec<usize> = {
            let allocator = core.dsl.store.state().allocator.lock();
            let metaslabs = allocator.group(vdev).map(|group| group.metaslabs()).unwrap_or_default();
            let mine = metaslabs.iter().enumerate().skip(turn % step).step_by(step);
            // What somebody works on by hand comes later.
            let has_some = mine.filter(|(_, metaslab)| !metaslab.trimmable.is_empty() && !metaslab.disabled.is_on());
            has_some.map(|(index, _)| index).collect()
        };
        for index in has_some {
            let Some(_at_work) = core.works.go_on(number) else { return };
            one(core, &top, MetaslabId { vdev, index }).await;
        }
    }
}

async fn one(core: &Arc<Core>, top: &Arc<TopVdev>, id: MetaslabId) {
    let Some(disabled) = core.dsl.store.disable_freed(id).await else { return };
    debug_assert!(disabled.free().is_sorted(), "what is free is told in order");
    let (leaves, began) = (eligible(core, top), Instant::now());
    let mut rest = disabled.free();
    while !rest.is_empty() && began.elapsed() < free_walk::TURN {
        let (part, after) = rest.split_at(RUNS.min(rest.len()));
        join_all(leaves.iter().map(|leaf| give_up(core, top, leaf, part))).await;
        rest = after;
    }
    // Who needs the room has its turn; what is left has another one.
    disabled.note_again(rest);
}

async fn give_up(core: &Core, top: &TopVdev, leaf: &Leaf, free: &[(u64, u64)]) {
    let limits = core.environment.trim;
    let sizes = (limits.extent_bytes_min, limits.extent_bytes_max);
    for piece in free_walk::pieces(top, leaf.guid(), free, 0, sizes) {
        // What fails is counted; nobody tries again.
        if top.trim(leaf.guid(), piece, TrimKind::Plain).await.is_err() && !leaf.is_usable() {
            return;
        }
    }
}

/// The leaves that are there and can be trimmed, but for those that somebody trims by hand, and those that are being
/// replaced or stood in for: they have enough to do.
fn eligible(core: &Core, top: &TopVdev) -> Vec<Arc<Leaf>> {
    let own = core.config.read().vdev_tree.children.iter().find(|config| config.id == top.id()).cloned();
    let Some(config) = own else { return Vec::new() };
    let by_hand: Vec<Guid> = {
        let known = core.works.known.lock();
        let work = |leaf: &VdevConfig| known.get(&(leaf.leaf_zap, Kind::Trim));
        let is_trimmed = |leaf: &&&VdevConfig| work(leaf).is_some_and(|work| work.runner.is_some());
        config.leaves().iter().filter(is_trimmed).map(|leaf| leaf.guid).collect()
    };
    let children = if config.is_leaf() { std::slice::from_ref(&config) } else { &config.children[..] };
    let plain: Vec<Guid> = children.iter().filter(|child| child.is_leaf()).map(|child| child.guid).collect();
    let takes = |leaf: &Arc<Leaf>| {
        let guid = leaf.guid();
        plain.contains(&guid) && !by_hand.contains(&guid) && leaf.is_writable() && leaf.trim_support().plain
    };
    top.leaves().into_iter().filter(takes).collect()
}
