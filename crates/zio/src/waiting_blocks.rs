//! Blocks that wait to be looked at, by their places on the vdevs. The allocator takes those away that are gone.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use platter_hooks::Canary;
use platter_ondisk::{BlkPtr, ObjectId};

use crate::policy::Bookmark;

/// Where a block's first copy begins on its vdev, and whose it is: who shares a block waits beside the other.
pub(crate) type Place = (u64, Bookmark);

/// Comes before every other of its offset.
const FIRST: Bookmark = Bookmark { objset: ObjectId::NONE, object: ObjectId::NONE, level: i8::MIN, blkid: 0 };

#[derive(Default)]
pub(crate) struct Waiting {
    /// By vdev; none of them is empty.
    pub(crate) blocks: BTreeMap<u32, BTreeMap<Place, BlkPtr>>,
    pub(crate) count: usize,
    pub(crate) bytes: u64,
}

impl Waiting {
    /// Takes the blocks of `vdev` at these places, which it has.
    pub(crate) fn remove(&mut self, vdev: u32, places: &[Place]) -> Vec<BlkPtr> {
        let Some(of_vdev) = self.blocks.get_mut(&vdev) else { return Vec::new() };
        let taken: Vec<BlkPtr> = places.iter().filter_map(|place| of_vdev.remove(place)).collect();
        if of_vdev.is_empty() {
            self.blocks.remove(&vdev);
        }
        self.count -= taken.len();
        self.bytes -= taken.iter().map(BlkPtr::asize).sum::<u64>();
        taken
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
        waiting.remove(vdev, &gone);
    }
}
