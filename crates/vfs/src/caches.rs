//! What a server's clients keep of files, and can be asked to give up: a kernel's pages and attributes, what an NFS or
//! SMB client was promised.

use std::ops::Range;

use platter_ondisk::ObjectId;

/// The caches behind one server, which implements this for its protocol.
pub trait Caches: Send + Sync {
    /// Whether who opens a file past these caches can do all with it that others can, mapping it into memory included.
    fn can_be_passed(&self) -> bool;

    /// Whoever keeps attributes or access lists of `object` asks anew before he uses them again. Waits for nobody: it
    /// is called by who serves requests.
    fn forget_attributes(&self, object: ObjectId);

    /// Has these bytes of `object` written back where they were changed, and then forgotten; returns when they are.
    /// Blocks, as clients may have requests of their own to finish first: it is called on threads that serve nothing,
    /// and while nothing of the file is locked.
    fn forget_contents(&self, object: ObjectId, bytes: Range<u64>);
}
