//! What freeing in the background meets that cannot be read.

use std::time::Duration;

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

/// A block that cannot be read is tried this often before what it led to counts as leaked, so long apart: devices may
/// be on their way out, or back.
const TRIES: u32 = 4;
/// How long it is left alone after each.
pub const TRY_AGAIN: Duration = Duration::from_secs(5);

impl Unreadable {
    /// Block `at` could not be read. Whether that was the last try: the note is gone then.
    pub fn note(noted: &mut Option<Self>, at: Bookmark) -> bool {
        let tries = noted.filter(|block| block.at == at).map_or(1, |block| block.tries + 1);
        *noted = (tries < TRIES).then(|| Self { at, tries, last: Instant::now() });
        noted.is_none()
    }
}
