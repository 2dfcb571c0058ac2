//! Booking block births and deaths (`dsl_dataset_block_born`, `dsl_dataset_block_kill`,
//! `dsl_pool_mos_diduse_space`).
//!
//! Invariants:
//! - a block is booked in the group that writes it: only so its birth tells whether a snapshot has it;
//! - born and kill only add to counters and lists here; the sync loop applies them to the MOS at defined moments, so
//!   that booking never dirties anything by itself;
//! - a block born after the latest snapshot is freed at once, an older one goes to the deadlist.

use platter_ondisk::features::Feature;
use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use platter_dmu::bpobj::sizes;
use platter_hooks::Canary;
use platter_ondisk::{BlkPtr, Txg};
use platter_zio::Store;
use platter_zio::{BlockStore, SpaceAccounting};

use crate::lives::{Livelist, Lives};
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
    /// What died, snapshots or not, by the first group from its birth on of which there is a bookmark that follows.
    pub freed: BTreeMap<Txg, SpaceChange>,
    /// Features that a newborn block needs.
    pub features: BTreeSet<Feature>,
    /// Of a clone with a livelist: what was born after its origin, and what of that died.
    pub lives: Lives,
}

impl Deltas {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.referenced == SpaceChange::default()
            && self.own == SpaceChange::default()
            && self.dead.is_empty()
            && self.freed.is_empty()
            && self.features.is_empty()
            && self.lives.is_empty()
    }
}

/// What a block that takes `used` bytes adds to totals.
pub fn space(used: u64, bp: &BlkPtr) -> SpaceChange {
    let (compressed, uncompressed) = sizes(bp);
    SpaceChange { used: used as i64, compressed: compressed as i64, uncompressed: uncompressed as i64 }
}

/// What else may have a block that dies.
#[derive(Debug, Default)]
struct History {
    /// The group of the latest snapshot.
    snapshot: Txg,
    /// The groups of bookmarks at or after that, which follow what is freed; in order.
    bookmarks: Vec<Txg>,
    /// The livelist, which what was born after its group is put on.
    livelist: Option<Livelist>,
}

impl History {
    /// Whether `bp` is one for the livelist. Payload within a pointer needs no freeing.
    fn is_listed(&self, bp: &BlkPtr) -> bool {
        self.livelist.is_some_and(|list| bp.birth() > list.origin) && !bp.is_embedded()
    }
}

/// Accounting of one data set, or (with no snapshot) of the MOS.
pub struct Accounting {
    store: Store,
    history: Mutex<History>,
    deltas: Mutex<Deltas>,
}

impl Accounting {
    /// Accounting with nothing booked; blocks born up to group `snapshot`, the latest one's, belong to a snapshot too.
    pub fn new(store: Store, snapshot: Txg) -> Self {
        let history = History { snapshot, ..History::default() };
        Self { store, history: Mutex::new(history), deltas: Mutex::default() }
    }

    /// The latest snapshot is of group `snapshot` now, and bookmarks at or after it are of the groups `bookmarks`,
    /// which are in order.
    pub fn set_history(&self, snapshot: Txg, bookmarks: Vec<Txg>) {
        let is_later = bookmarks.first().is_none_or(|&first| first >= snapshot);
        assert!(is_later && bookmarks.is_sorted(), "groups go forward");
        let mut history = self.history.lock();
        let is_booked = !self.deltas.lock().is_empty();
        assert!(snapshot == history.snapshot || !is_booked, "what was booked would be taken for another snapshot's");
        *history = History { snapshot, bookmarks, livelist: history.livelist };
    }

    /// The livelist that is followed, if any.
    pub fn livelist(&self) -> Option<Livelist> {
        self.history.lock().livelist
    }

    /// Follows `livelist` from now on, or none.
    pub fn set_livelist(&self, livelist: Option<Livelist>) {
        let mut history = self.history.lock();
        let mut deltas = self.deltas.lock();
        assert!(livelist.is_none() || deltas.is_empty(), "what was booked before is not on the list");
        deltas.lives = Lives::default();
        history.livelist = livelist;
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
        let change = space(self.store.dsize(bp), bp);
        let history = self.history.lock();
        debug_assert!(txg > history.snapshot, "a block is born that a snapshot would be taken to have");
        let mut deltas = self.deltas.lock();
        if history.is_listed(bp) {
            deltas.lives.born.push(*bp);
        }
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
        let history = self.history.lock();
        let mut deltas = self.deltas.lock();
        deltas.referenced -= change;
        if history.is_listed(bp) {
            deltas.lives.died.push(*bp);
        }
        let first = history.bookmarks.partition_point(|&bookmark| bookmark < bp.birth());
        if let Some(&bookmark) = history.bookmarks.get(first) {
            *deltas.freed.entry(bookmark).or_default() += change;
        }
        if bp.birth() > history.snapshot || Canary::SnapshotForgotten.sings() {
            deltas.own -= change;
            drop((deltas, history));
            self.store.free(txg, bp);
        } else {
            deltas.dead.push(*bp);
        }
    }
}
