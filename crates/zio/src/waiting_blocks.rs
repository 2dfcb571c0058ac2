//! Blocks that wait to be looked at, by their places on the vdevs. The allocator takes those away that are gone.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use platter_hooks::Canary;
use platter_ondisk::{BlkPtr, ObjectId};

use crate::policy::Bookmark;

/// Where a block's first copy begins on its vdev, and whose it is: who shares a block waits beside the other.
type Place = (u64, Bookmark);

/// Comes before every other of its offset.
const FIRST: Bookmark = Bookmark { objset: ObjectId::NONE, object: ObjectId::NONE, level: i8::MIN, blkid: 0 };

#[derive(Default)]
pub(crate) struct Waiting {
    /// By vdev; none of them is empty.
    blocks: BTreeMap<u32, BTreeMap<Place, BlkPtr>>,
    count: usize,
    bytes: u64,
}

impl Waiting {
    /// Adds a block; who comes to the same place twice is there once.
    pub(crate) fn add(&mut self, vdev: u32, offset: u64, bookmark: Bookmark, bp: &BlkPtr) {
        self.count += 1;
        self.bytes += bp.asize();
        if let Some(before) = self.blocks.entry(vdev).or_default().insert((offset, bookmark), *bp) {
            self.count -= 1;
            self.bytes -= before.asize();
        }
    }

    /// Takes the first block of `vdev`.
    pub(crate) fn take(&mut self, vdev: u32) -> Option<(Bookmark, BlkPtr)> {
        let place = *self.blocks.get(&vdev)?.first_key_value()?.0;
        Some((place.1, self.remove(vdev, &place)?))
    }

    fn remove(&mut self, vdev: u32, place: &Place) -> Option<BlkPtr> {
        let of_vdev = self.blocks.get_mut(&vdev)?;
        let bp = of_vdev.remove(place)?;
        if of_vdev.is_empty() {
            self.blocks.remove(&vdev);
        }
        self.count -= 1;
        self.bytes -= bp.asize();
        Some(bp)
    }

    /// The vdevs with blocks.
    pub(crate) fn vdevs(&self) -> Vec<u32> {
        self.blocks.keys().copied().collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The space that they take, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// What waits, shared with the allocator.
#[derive(Default)]
pub(crate) struct Shared(pub(crate) Mutex<Waiting>);

impl Shared {
    /// `length` bytes of `vdev` from `offset` on can be handed out again.
    pub(crate) fn forget(&self, vdev: u32, offset: u64, length: u64) {
        if Canary::FreedStillScanned.sings() {
            return;
        }
        let mut waiting = self.0.lock();
        let Some(of_vdev) = waiting.blocks.get(&vdev) else { return };
        let range = (offset, FIRST)..(offset.saturating_add(length), FIRST);
        let gone: Vec<Place> = of_vdev.range(range).map(|(place, _)| *place).collect();
        for place in &gone {
            waiting.remove(vdev, place).expect("just found");
        }
    }
}
