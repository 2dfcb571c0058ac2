//! What the kernel calls a node and the file system an object.
//!
//! ```text
//! bits 63–48: the place of a snapshot on the mount's shelf, 0 for the file system itself
//! bits 47–0:  the object; no object set has more of them (`DN_MAX_OBJECT`)
//! ```
//!
//! Invariant: the kernel's node 1 is the root directory of the file system itself; every other node number leads back
//! to its object, or to one of the control directory's. No file is object 1, which is where every object set begins.

use platter_ondisk::ObjectId;
use platter_transport::{NodeId, Operation};

const PLACE_SHIFT: u32 = 48;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes {
    root: ObjectId,
    place: u64,
}

/// Where on the shelf of snapshots a node is; 0 for one of the file system itself.
pub(crate) fn place_of(node: NodeId) -> u64 {
    node.0 >> PLACE_SHIFT
}

/// The second node that an operation is about, if it is.
pub(crate) fn other_node(operation: &Operation<'_>) -> Option<NodeId> {
    match operation {
        Operation::Link { target, .. } => Some(*target),
        Operation::Rename { new_parent, .. } => Some(*new_parent),
        Operation::CopyFileRange { to, .. } => Some(*to),
        _ => None,
    }
}

impl Nodes {
    /// Those of the file system itself, or with a `place` those of a snapshot.
    pub fn new(root: ObjectId, place: u64) -> Self {
        assert!(root.0 != NodeId::ROOT.0, "object 1 is the file system's master node");
        Self { root, place }
    }

    pub fn object(self, node: NodeId) -> ObjectId {
        let object = node.0 & ((1 << PLACE_SHIFT) - 1);
        if node == NodeId::ROOT { self.root } else { ObjectId(object) }
    }

    pub fn node(self, object: ObjectId) -> NodeId {
        if object == self.root && self.place == 0 { NodeId::ROOT } else { self.shown(object) }
    }

    /// The number that stat(2) tells of an object: another one in each snapshot, since all have the same device.
    pub fn shown(self, object: ObjectId) -> NodeId {
        NodeId(self.place << PLACE_SHIFT | object.0 & ((1 << PLACE_SHIFT) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_leads_back_to_its_object() {
        let (own, snapshot) = (Nodes::new(ObjectId(34), 0), Nodes::new(ObjectId(34), 0xFFFF));
        assert_eq!((own.node(ObjectId(34)), own.object(NodeId::ROOT)), (NodeId::ROOT, ObjectId(34)));
        for object in [2, 34, (1 << PLACE_SHIFT) - 1].map(ObjectId) {
            assert_eq!(own.object(own.node(object)), object);
            assert_eq!((snapshot.object(snapshot.node(object)), place_of(snapshot.node(object))), (object, 0xFFFF));
            assert_eq!(place_of(own.node(object)), 0);
            assert_ne!(own.shown(object), snapshot.shown(object));
        }
    }
}
