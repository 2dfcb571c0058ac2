//! What a top-level vdev is made of at one time: its type and its children. A shape never changes; it is exchanged for
//! another one while I/O runs (`zpool attach`, `detach`, `replace`).
//!
//! Invariants:
//! - an operation works on one shape from its beginning to its end;
//! - below a mirror or a single device each child is one leaf: leaves of nested vdevs are sides of the mirror
//!   themselves. Only RAID-Z has children of several leaves;
//! - who waits for a shape's end gets it when the last operation on it is over.

use std::sync::Arc;

use platter_ondisk::Guid;
use tokio::sync::oneshot;

use crate::child::Child;
use crate::error::{Result, VdevError};
use crate::geometry::Layout;
use crate::leaf::Leaf;
use crate::spec::{VdevKind, VdevSpec};
use crate::state::{Condition, VdevAux, VdevState};

/// The children of a top-level vdev, as given and as taken.
#[derive(Clone, Debug)]
pub struct Arrangement {
    /// Identity of the top-level vdev: a device that becomes a mirror gets a parent, whose guid is another.
    pub guid: Guid,
    /// Its type.
    pub kind: VdevKind,
    /// The leaves of each child, in order: those of one child hold the same bytes.
    pub children: Vec<Vec<Arc<Leaf>>>,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Shape {
    guid: Guid,
    pub(crate) kind: VdevKind,
    pub(crate) layout: Layout,
    pub(crate) children: Vec<Child>,
    /// The leaves of all children, in order.
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// Dropped with the shape.
    _gone: oneshot::Sender<()>,
}

/// Completes, with an error that means nothing, when the shape is no longer used.
pub(crate) type Gone = oneshot::Receiver<()>;

impl Shape {
    /// A shape, and what tells of its end.
    ///
    /// # Errors
    /// [`VdevError::Unsupported`] and [`VdevError::Config`].
    pub(crate) fn new(arrangement: Arrangement) -> Result<(Arc<Self>, Gone)> {
        let Arrangement { guid, kind, mut children } = arrangement;
        if children.iter().any(Vec::is_empty) {
            return Err(VdevError::Config(format!("a child of a {kind} without devices")));
        }
        if !matches!(kind, VdevKind::Raidz { .. }) {
            children = children.into_iter().flatten().map(|leaf| vec![leaf]).collect();
        }
        let layout = Layout::of(&kind, children.len())?;
        let leaves: Vec<Arc<Leaf>> = children.iter().flatten().cloned().collect();
        if layout == Layout::Single && leaves.len() != 1 {
            return Err(VdevError::Config(format!("{} devices in the place of one", leaves.len())));
        }
        let children: Vec<Child> = children.into_iter().map(Child::new).collect();
        let is_raidz = matches!(layout, Layout::Raidz { .. });
        assert!(is_raidz || children.len() == leaves.len(), "below a mirror each leaf is a child of its own");
        let (sender, gone) = oneshot::channel();
        Ok((Arc::new(Self { guid, kind, layout, children, leaves, _gone: sender }), gone))
    }

    /// Identity of the whole: a single device's own.
    pub(crate) fn guid(&self) -> Guid {
        match self.layout {
            Layout::Single => self.leaves[0].guid(),
            _ => self.guid,
        }
    }

    /// Whether blocks that were written in this shape are found in `other`: a mirror may have any number of sides, also
    /// one, but columns stay where they are.
    pub(crate) fn places_blocks_as(&self, other: &Self) -> bool {
        let is_copies = |layout| matches!(layout, Layout::Single | Layout::Mirror);
        (is_copies(self.layout) && is_copies(other.layout))
            || (self.layout == other.layout && self.children.len() == other.children.len())
    }

    /// The arrangement that this is the shape of.
    pub(crate) fn arrangement(&self) -> Arrangement {
        let children = self.children.iter().map(|child| child.leaves().to_vec()).collect();
        Arrangement { guid: self.guid(), kind: self.kind.clone(), children }
    }

    /// How many children may fail at once.
    pub(crate) fn redundancy(&self) -> usize {
        self.layout.redundancy(self.children.len())
    }

    /// Space that a block of `psize` bytes takes.
    pub(crate) fn asize_for(&self, ashift: u8, psize: u64) -> u64 {
        self.layout.asize_for(self.children.len(), ashift, psize)
    }

    /// Allocatable bytes over the leaves as they are now.
    pub(crate) fn asize(&self) -> u64 {
        let least = self.leaves.iter().map(|leaf| leaf.asize()).min().unwrap_or(0);
        self.layout.asize(self.children.len(), least)
    }

    /// The condition of the whole, from its children's (`vdev_propagate_state`).
    pub(crate) fn condition(&self) -> Condition {
        if self.layout == Layout::Single {
            return self.leaves[0].condition();
        }
        let conditions: Vec<Condition> = self.children.iter().map(Child::condition).collect();
        let unusable = conditions.iter().filter(|condition| !condition.is_usable()).count();
        if unusable > self.redundancy() {
            Condition::new(VdevState::CantOpen, VdevAux::NoReplicas)
        } else if conditions.iter().any(|condition| condition.state != VdevState::Healthy) {
            Condition::new(VdevState::Degraded, VdevAux::None)
        } else {
            Condition::HEALTHY
        }
    }

    /// Whether so few children lack something that the others have it. A child lacks what all its leaves lack.
    pub(crate) fn has_without(&self, lacks: impl Fn(&Leaf) -> bool) -> bool {
        let lacking = self.children.iter().filter(|child| child.leaves().iter().all(|leaf| lacks(leaf))).count();
        lacking <= self.redundancy()
    }
}

/// The leaves of each child of a top-level vdev, as described. Below a child's place there may be `replacing` and
/// `spare` vdevs, also within each other (a spare that is being replaced itself), and nothing else but leaves.
///
/// # Errors
/// [`VdevError::Unsupported`], [`VdevError::Config`].
pub(crate) fn leaf_specs(spec: &VdevSpec) -> Result<Vec<Vec<&VdevSpec>>> {
    if spec.kind.is_leaf() {
        return Ok(vec![vec![spec]]);
    }
    spec.children
        .iter()
        .map(|child| {
            let mut leaves = Vec::new();
            gather(spec, child, &mut leaves)?;
            Ok(leaves)
        })
        .collect()
}

fn gather<'s>(top: &VdevSpec, spec: &'s VdevSpec, leaves: &mut Vec<&'s VdevSpec>) -> Result<()> {
    let vdev = || format!("{}-{}", top.kind, top.id);
    match &spec.kind {
        kind if kind.is_leaf() => leaves.push(spec),
        VdevKind::Replacing | VdevKind::Spare if spec.children.is_empty() => {
            return Err(VdevError::Config(format!("a {} below {} without devices", spec.kind, vdev())));
        }
        VdevKind::Replacing | VdevKind::Spare => {
            for child in &spec.children {
                gather(top, child, leaves)?;
            }
        }
        kind => return Err(VdevError::Unsupported { vdev: vdev(), kind: kind.label_name().to_owned() }),
    }
    Ok(())
}
