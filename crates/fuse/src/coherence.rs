//! The kernel's pages and attributes, as the file system tells it what to forget.
//!
//! The kernel waits for its pages, and so for READ and WRITE requests to us, before it forgets them. Who only has it
//! forget attributes waits for nobody.

use std::ops::Range;

use platter_ondisk::ObjectId;
use platter_transport::{InitFlags, Kernel};
use platter_vfs::Caches;

use crate::nodes::Nodes;

/// The kernel's side of one mount.
pub(crate) struct KernelCaches {
    pub kernel: Kernel,
    pub nodes: Nodes,
}

impl Caches for KernelCaches {
    /// The kernel does not let every file that is open past its page cache be mapped.
    fn can_be_passed(&self) -> bool {
        self.kernel.has(InitFlags::DIRECT_IO_ALLOW_MMAP)
    }

    fn forget_attributes(&self, object: ObjectId) {
        self.kernel.forget_attributes(self.nodes.node(object));
    }

    fn forget_contents(&self, object: ObjectId, bytes: Range<u64>) {
        self.kernel.forget_pages(self.nodes.node(object), bytes.start, bytes.end - bytes.start);
    }
}
