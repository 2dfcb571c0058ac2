//! What one operation on a top-level vdev works on: what never changes about the vdev, and the shape that it had when
//! the operation began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use platter_buffer::Buf;
use platter_hooks::Cpu;
use platter_ondisk::Txg;

use crate::child::Child;
use crate::error::VdevError;
use crate::geometry::Layout;
use crate::leaf::Leaf;
use crate::outcome::Rewritten;
use crate::priority::Priority;
use crate::purpose::Purpose;
use crate::shape::Shape;

/// What never changes about a top-level vdev, but for its size, which only grows.
#[derive(Debug)]
pub(crate) struct Frame {
    /// Its index in the pool.
    pub(crate) id: u64,
    /// log2 of the allocation unit in bytes.
    pub(crate) ashift: u8,
    /// Allocatable bytes, parity included.
    pub(crate) asize: AtomicU64,
    /// Whether the pool may write to it.
    pub(crate) writable: bool,
    /// Who is told about computing parity.
    pub(crate) cpu: OnceLock<Cpu>,
}

impl Frame {
    /// Allocatable bytes, parity included.
    pub(crate) fn asize(&self) -> u64 {
        self.asize.load(Ordering::Relaxed)
    }

    /// Who is told about computing parity.
    pub(crate) fn cpu(&self) -> &Cpu {
        self.cpu.get().unwrap_or(&Cpu::FREE)
    }

    /// A block's size in whole sectors.
    pub(crate) fn padded(&self, psize: u64) -> u64 {
        psize.next_multiple_of(1 << self.ashift)
    }
}

/// A top-level vdev in the shape on which one operation works.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) shape: &'a Shape,
}

impl<'a> View<'a> {
    pub(crate) fn children(&self) -> &'a [Child] {
        &self.shape.children
    }

    pub(crate) fn leaves(&self) -> &'a [Arc<Leaf>] {
        &self.shape.leaves
    }

    /// What the whole is called (`TopVdev::name`).
    pub(crate) fn name(&self) -> String {
        match self.shape.layout {
            Layout::Single => self.shape.leaves[0].name(),
            _ => format!("{}-{}", self.shape.kind, self.frame.id),
        }
    }

    /// Rewrites on one leaf what a block that was born in group `birth` should hold there.
    pub(crate) async fn rewrite(
        &self,
        leaf: &Leaf,
        offset: u64,
        birth: Txg,
        right: Buf,
        accounted: u64,
        by_scrub: bool,
    ) -> Rewritten {
        if !self.frame.writable {
            return Rewritten::default();
        }
        let priority = if by_scrub { Priority::Scrub } else { Priority::AsyncWrite };
        match leaf.write_for(Purpose::Again { birth }, offset, vec![right], priority).await {
            Ok(()) => {
                leaf.stats().note_repair(accounted, by_scrub);
                Rewritten { done: accounted, failed: 0 }
            }
            // What a device that is not there should hold it has missed, and gets when it is back.
            Err(VdevError::Unavailable { .. }) => Rewritten::default(),
            Err(_) => Rewritten { done: 0, failed: accounted },
        }
    }
}
