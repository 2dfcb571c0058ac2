//! What the kernel calls a node and the file system an object.
//!
//! Invariant: the kernel's node 1 is the root directory; every other node number is an object's, or one of the control
//! directory's. No file is object 1, which is where every object set begins.

use platter_ondisk::ObjectId;
use platter_transport::NodeId;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes {
    root: ObjectId,
}

impl Nodes {
    pub fn new(root: ObjectId) -> Self {
        assert!(root.0 != NodeId::ROOT.0, "object 1 is the file system's master node");
        Self { root }
    }

    pub fn object(self, node: NodeId) -> ObjectId {
        if node == NodeId::ROOT { self.root } else { ObjectId(node.0) }
    }

    pub fn node(self, object: ObjectId) -> NodeId {
        if object == self.root { NodeId::ROOT } else { NodeId(object.0) }
    }
}
