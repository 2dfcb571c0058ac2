//! Copying what lies on sides of a mirror that have everything to sides that lack it, without knowing which blocks
//! there are (`vdev_rebuild_range`, `module/zfs/vdev_rebuild.c`; `module/zfs/vdev_mirror.c`).
//!
//! No checksum tells whether what is copied is right. Invariants:
//! - it is taken only from a side that has everything, before it is read and after;
//! - nobody writes to the range meanwhile (`turns`);
//! - a side that did not take it says so by a group on its list.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_device::ReadSlot;
use platter_ondisk::{Guid, Txg};

use crate::error::Result;
use crate::geometry::Layout;
use crate::leaf::Leaf;
use crate::priority::Priority;
use crate::purpose::Purpose;
use crate::queue::finish;
use crate::shape::Shape;
use crate::top::TopVdev;

/// The first group of a pool (`TXG_INITIAL`, `include/sys/txg.h`): who lacks it lacks what any group wrote.
pub const FIRST_GROUP: Txg = Txg(4);

/// What came of copying a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Whether a side that has everything could be read.
    pub was_read: bool,
    /// Bytes written, on all sides together.
    pub written: u64,
}

/// Says that ranges of a top-level vdev are copied, as long as it is kept.
#[derive(Debug)]
pub struct Copies(Arc<TopVdev>);

impl Drop for Copies {
    fn drop(&mut self) {
        self.0.turns.end_copies();
    }
}

impl Copies {
    /// Prepares for copying: returns when no write is under way that began before. As this takes the place of an
    /// exchange, none may be made at the same time.
    ///
    /// # Errors
    /// None at present.
    pub async fn begin(top: Arc<TopVdev>) -> Result<Self> {
        top.turns.begin_copies();
        let copies = Self(top);
        copies.0.exchange(copies.0.arrangement()).await?;
        Ok(copies)
    }

    /// Copies a range of whole sectors to the leaves `targets` from a side that has everything. A target that could not
    /// take it has [`FIRST_GROUP`] noted as missed, or is not there.
    pub async fn copy(&self, (offset, length): (u64, u64), targets: &[Guid]) -> Copied {
        let Self(top) = self;
        assert!(top.turns.are_taken(), "who writes must know that ranges are copied");
        let shape = top.shape();
        let is_mirror = matches!(shape.layout, Layout::Single | Layout::Mirror);
        if !is_mirror || top.check(&shape, offset, length).is_err() {
            return Copied::default();
        }
        let _turn = top.turns.copy((offset, length)).await;
        let Some(data) = read_complete(&shape, (offset, length), targets).await else { return Copied::default() };
        top.stats().note_read(length);
        let sides = shape.leaves.iter().filter(|leaf| targets.contains(&leaf.guid()));
        let writes = sides.map(|leaf| write(leaf, offset, data.clone()));
        let written = futures::future::join_all(writes).await.into_iter().sum();
        Copied { was_read: true, written }
    }
}

/// The bytes of a side that has everything.
async fn read_complete(shape: &Shape, (offset, length): (u64, u64), targets: &[Guid]) -> Option<Buf> {
    let is_source = |leaf: &&Arc<Leaf>| leaf.is_complete() && !targets.contains(&leaf.guid());
    let mut sources: Vec<&Arc<Leaf>> = shape.leaves.iter().filter(is_source).collect();
    sources.sort_by_cached_key(|leaf| leaf.load());
    for leaf in sources {
        let opening = leaf.opening();
        let (assembly, slot) = ReadSlot::whole(length as usize);
        let was_read = leaf.read_data(offset, slot, Priority::Scrub).await.is_ok();
        // A device that was away in between may have lost what it had taken.
        if was_read && opening.is_some() && leaf.opening() == opening && leaf.is_complete() {
            return Some(finish(assembly).freeze());
        }
    }
    None
}

/// Bytes written.
async fn write(leaf: &Leaf, offset: u64, data: Buf) -> u64 {
    let length = data.len() as u64;
    let purpose = Purpose::Again { birth: FIRST_GROUP };
    match leaf.write_for(purpose, offset, vec![data], Priority::Scrub).await {
        Ok(()) => {
            leaf.stats().note_repair(length, true);
            length
        }
        Err(_) => 0,
    }
}
