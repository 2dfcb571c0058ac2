//! Reading, and what is done when the kernel asks for more than there is.
//!
//! For its page cache the kernel asks for whole pages, of those that a file has by the size that it knows. While a file
//! is made shorter that size is out of date from the moment that we have done it until the kernel has heard of it, and
//! whoever reads then would get zeros for what we do not send, up to the old size (`fuse_short_read` leaves the size
//! alone meanwhile). So an answer that lacks a page waits, and what is there by then is sent.

use std::time::Duration;

use platter_transport::{NodeId, Reply};
use platter_vfs::{Access, Reading};

use crate::attr::errno;
use crate::server::{Caller, PlatterFs};

/// How long the kernel may take to hear that a file has become shorter.
const TRUNCATION: Duration = Duration::from_millis(10);
/// Bytes of the smallest page of any machine: less than that is missing at the end of most files.
const PAGE: u64 = 4096;

impl PlatterFs {
    pub(crate) async fn read(
        &self,
        caller: Caller,
        node: NodeId,
        (offset, size): (u64, u32),
        how: Reading,
        reply: Reply,
    ) {
        let object = self.object(node);
        match self.vfs.read(Access::Checked(&caller), object, offset, size.into(), how).await {
            Ok(pieces) => {
                let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
                let is_for_pages = !how.direct || how.fills_cache;
                if is_for_pages && bytes.next_multiple_of(PAGE) < u64::from(size) {
                    return self.read_later(caller, node, (offset, size), how, reply);
                }
                reply.data(&pieces);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Reads again when the kernel knows the size; no serving thread waits for that.
    fn read_later(&self, caller: Caller, node: NodeId, (offset, size): (u64, u32), how: Reading, reply: Reply) {
        let (vfs, object) = (self.vfs.clone(), self.object(node));
        self.runtime.spawn(async move {
            tokio::time::sleep(TRUNCATION).await;
            match vfs.read(Access::Checked(&caller), object, offset, size.into(), how).await {
                Ok(pieces) => reply.data(&pieces),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }
}
