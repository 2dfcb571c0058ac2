//! Booking block births and deaths (`dsl_dataset_block_born`, `dsl_dataset_block_kill`,
//! `dsl_pool_mos_diduse_space`).
//!
//! Invariants:
//! - a block is booked in the group that writes it: only so its birth tells whether a snapshot has it;
//! - born and kill only add to counters and lists here; the sync loop applies them to the MOS at defined moments, so
//!   that booking never dirties anything by itself;
//! - a block born after the latest snapshot is freed at once, an older one goes to the deadlist.

use platter_ondisk::features::Feature;
use std::collections::BTreeSet;

use parking_lot::Mutex;
use platter_dmu::bpobj::sizes;
use platter_hooks::Canary;
use platter_ondisk::{BlkPtr, Txg};
use platter_zio::Store;
use platter_zio::{BlockStore, SpaceAccounting};

use crate::used_space::SpaceChange;
use platter_api::block_properties;

/// `SPA_OLD_MAXBLOCKSIZE`: larger blocks need the feature `large_blocks`.
const OLD_BLOCK_MAX: u64 = 128 << 10;

/// Changes of space since they were last applied.
#[derive(Clone, Debug, Default)]
pub struct Deltas {
    /// What the data set references; `used` is deflated.
    pub referenced: SpaceChange,
    /// What its directory uses: what snapshots still hold stays in it.
    pub own: SpaceChange,
    /// Pointers for the deadlist: snapshots still hold them.
    pub dead: Vec<BlkPtr>,
    /// Features that a newborn block needs.
    pub features: BTreeSet<Feature>,
}

impl Deltas {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.referenced == SpaceChange::default()
            && self.own == SpaceChange::default()
            && self.dead.is_empty()
            && self.features.is_empty()
    }
}

/// What a block that takes `used` bytes adds to totals.
pub fn space(used: u64, bp: &BlkPtr) -> SpaceChange {
    let (compressed, uncompressed) = sizes(bp);
    SpaceChange { used: used as i64, compressed: compressed as i64, uncompressed: uncompressed as i64 }
}

/// Accounting of one data set, or (with `previous_snapshot` at zero) of the MOS.
pub struct Accounting {
    store: Store,
    previous_snapshot: Mutex<Txg>,
    deltas: Mutex<Deltas>,
}

impl Accounting {
    /// Accounting with nothing booked; blocks born up to group `previous_snapshot` belong to a snapshot too.
    pub fn new(store: Store, previous_snapshot: Txg) -> Self {
        Self { store, previous_snapshot: Mutex::new(previous_snapshot), deltas: Mutex::default() }
    }

    /// A snapshot was taken in group `txg`, or the last one is of that group now. Nothing is booked meanwhile.
    pub fn set_previous_snapshot(&self, txg: Txg) {
        assert!(self.is_empty(), "what was booked would be taken for another snapshot's");
        *self.previous_snapshot.lock() = txg;
    }

    /// Takes what was booked.
    pub fn take(&self) -> Deltas {
        std::mem::take(&mut *self.deltas.lock())
    }

    /// Whether anything is booked.
    pub fn is_empty(&self) -> bool {
        self.deltas.lock().is_empty()
    }
}

impl SpaceAccounting for Accounting {
    fn born(&self, txg: Txg, bp: &BlkPtr) {
        if bp.is_hole() {
            return;
        }
        assert_eq!(bp.birth(), txg, "a block is booked in the group in which it was born");
        debug_assert!(txg > *self.previous_snapshot.lock(), "a block is born that a snapshot would be taken to have");
        let change = space(self.store.dsize(bp), bp);
        let mut deltas = self.deltas.lock();
        deltas.referenced += change;
        deltas.own += change;
        if bp.lsize() > OLD_BLOCK_MAX {
            deltas.features.insert(Feature::LargeBlocks);
        }
        deltas.features.extend(block_properties::compression_feature(bp.compression()));
        deltas.features.extend(block_properties::checksum_feature(bp.checksum_kind()).filter(|_| !bp.is_embedded()));
    }

    fn kill(&self, txg: Txg, bp: &BlkPtr) {
        if bp.is_hole() {
            return;
        }
        let change = space(self.store.dsize(bp), bp);
        let mut deltas = self.deltas.lock();
        deltas.referenced -= change;
        if bp.birth() > *self.previous_snapshot.lock() || Canary::SnapshotForgotten.sings() {
            deltas.own -= change;
            drop(deltas);
            self.store.free(txg, bp);
        } else {
            deltas.dead.push(*bp);
        }
    }
}
