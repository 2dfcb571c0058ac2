//! Devices that sit out of reads: a RAID-Z group rebuilds from parity what a device much slower than its siblings would
//! have been asked for (`vdev_sit_out_reads` and `vdev_raidz_sit_child`, `module/zfs/vdev_raidz.c` of OpenZFS 2.4).
//!
//! Sitting out is a wish, not a state of the vdev: whether a read does without a device is decided for each read
//! (`raidz_attempt`), and it never does when the device is needed.
//!
//! Invariants:
//! - nothing of it is stored: when the pool is opened nobody sits;
//! - it ends by itself, unless it was wished for by hand, and with the leaf's errors being cleared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::child::Child;
use crate::histograms::LATENCY_BUCKETS;
use crate::leaf::Leaf;
use crate::outlier::{CHILDREN_MIN, Outliers, Seen};
use crate::shape::Shape;
use crate::state::VdevState;
use crate::top::TopVdev;
use crate::trouble::LeafTrouble;

/// For how long a device sits that was found to be slow (`vdev_read_sit_out_secs`).
pub const SIT_OUT: Duration = Duration::from_secs(600);
/// How often it is looked who is slow (`vdev_raidz_outlier_check_interval_ms`).
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Until when a device sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Then it is read again.
    Time(Instant),
    /// Somebody says that it is over.
    Told,
}

/// Whether a leaf sits out.
#[derive(Debug, Default)]
pub(crate) struct SitOut {
    /// Whether there is anything in `until`: what each read looks at.
    is_set: AtomicBool,
    until: Mutex<Option<Until>>,
}

impl SitOut {
    fn set(&self, until: Option<Until>) {
        let mut current = self.until.lock();
        *current = until;
        self.is_set.store(until.is_some(), Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        if !self.is_set.load(Ordering::Relaxed) {
            return false;
        }
        let mut until = self.until.lock();
        let is_over = matches!(*until, Some(Until::Time(end)) if end <= Instant::now());
        if is_over {
            *until = None;
            self.is_set.store(false, Ordering::Relaxed);
        }
        until.is_some()
    }
}

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
}

impl TopVdev {
    /// Whether children that are much slower than the others are found and sit out (property `autosit`). What is no
    /// RAID-Z group has none.
    pub fn set_autosit(&self, is_on: bool) {
        self.watch.is_on.store(is_on, Ordering::Relaxed);
    }

    /// Whether so many children sit out that no other one may: as many as there is parity.
    pub fn has_sitting_out_without(&self, leaf: &Leaf) -> bool {
        let shape = self.shape();
        let is_own = |child: &&Child| child.leaves().iter().any(|own| own.guid() == leaf.guid());
        let others = shape.children.iter().filter(|child| !is_own(child));
        others.filter(|child| child.sits_out()).count() >= shape.redundancy()
    }

    /// Something was read: looks for a slow child when it is time.
    pub(crate) fn look_for_slow(&self, shape: &Shape, parity: usize) {
        if !self.watch.is_on.load(Ordering::Relaxed) || shape.children.len() < CHILDREN_MIN || !self.watch.is_due() {
            return;
        }
        let seen: Vec<Seen> = shape.children.iter().map(Child::seen).collect();
        let Some(slow) = self.watch.outliers.lock().look(&seen, parity) else { return };
        for leaf in shape.children[slow].leaves() {
            leaf.sit_out_for(SIT_OUT);
        }
    }
}
