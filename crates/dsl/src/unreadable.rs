//! What freeing in the background meets that cannot be read.

use platter_zio::Bookmark;
use tokio::time::Instant;

/// A block that could not be read.
#[derive(Clone, Copy, Debug)]
pub struct Unreadable {
    /// Which.
    pub at: Bookmark,
    /// How often it was tried.
    pub tries: u32,
    /// When it was tried last.
    pub last: Instant,
}
