//! Children of a RAID-Z group that are far slower than the others are found, and sit out of reads
//! (`vdev_child_slow_outlier`, `module/zfs/vdev_raidz.c` of OpenZFS 2.4).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::child::Child;
use crate::histograms::LATENCY_BUCKETS;
use crate::leaf::Leaf;
use crate::outlier::{CHILDREN_MIN, Outliers, Seen};
use crate::shape::Shape;
use crate::sit_out::{INTERVAL, SIT_OUT, Until};
use crate::state::VdevState;
use crate::trouble::LeafTrouble;

impl Leaf {
    /// Whether it shall not be read as long as others have what it has.
    pub fn sits_out(&self) -> bool {
        self.sit_out.is_on()
    }

    /// It sits out until that is ended, as somebody wishes.
    pub fn sit_out(&self) {
        self.sit_out.set(Some(Until::Told));
        self.histograms().note_slow();
    }

    /// It is read again.
    pub fn end_sit_out(&self) {
        self.sit_out.set(None);
    }

    /// It was found to be slow.
    fn sit_out_for(&self, time: Duration) {
        self.sit_out.set(Some(Until::Time(Instant::now() + time)));
        // Each time counts as something that was slow.
        self.histograms().note_slow();
        self.tell(&LeafTrouble::SitsOut { time });
    }
}

impl Child {
    /// Whether all that could be read of it sits out.
    pub(crate) fn sits_out(&self) -> bool {
        match self.leaves() {
            [leaf] => leaf.sits_out(),
            leaves => leaves.iter().filter(|leaf| leaf.is_usable()).all(|leaf| leaf.sits_out()),
        }
    }

    fn seen(&self) -> Seen {
        let mut reads = [0; LATENCY_BUCKETS];
        for leaf in self.leaves() {
            leaf.histograms().add_reads(&mut reads);
        }
        Seen {
            leaves: self.leaves().iter().map(|leaf| leaf.guid()).collect(),
            reads,
            sits: self.sits_out(),
            is_healthy: self.condition().state == VdevState::Healthy,
        }
    }
}

/// Whether a RAID-Z group looks for slow children by itself, and what it knows of them.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    is_on: AtomicBool,
    /// When it was looked last.
    looked: Mutex<Option<Instant>>,
    outliers: Mutex<Outliers>,
}

impl Watch {
    /// Whether it is time to look again; one of those who ask at the same time does.
    fn is_due(&self) -> bool {
        let Some(mut looked) = self.looked.try_lock() else { return false };
        let now = Instant::now();
        if looked.is_some_and(|looked| now.duration_since(looked) < INTERVAL) {
            return false;
        }
        *looked = Some(now);
        true
    }

    /// From now on slow children are found, or not.
    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Something was read: looks for a slow child when it is time, and has it sit out.
    pub(crate) fn look(&self, shape: &Shape, parity: usize) {
        if !self.is_on.load(Ordering::Relaxed) || shape.children.len() < CHILDREN_MIN || !self.is_due() {
            return;
        }
        let seen: Vec<Seen> = shape.children.iter().map(Child::seen).collect();
        let Some(slow) = self.outliers.lock().look(&seen, parity) else { return };
        for leaf in shape.children[slow].leaves() {
            leaf.sit_out_for(SIT_OUT);
        }
    }
}

/// Whether so many children sit out, the one with `leaf` aside, that it must not: as many as there is parity.
pub(crate) fn has_sitting_out_without(shape: &Shape, leaf: &Leaf) -> bool {
    let is_own = |child: &&Child| child.leaves().iter().any(|own| own.guid() == leaf.guid());
    let others = shape.children.iter().filter(|child| !is_own(child));
    others.filter(|child| child.sits_out()).count() >= shape.redundancy()
}
