//! An object as a long array of bytes that many read and write at once: what files and volumes share.
//!
//! Who may touch which bytes is locked ([`RangeLock`]); a reader that goes on in order, or in equal steps, is fetched
//! ahead for ([`Streams`]), and one that writes without end is told from others ([`Run`]). [`ByteRange`] moves the
//! bytes between blocks and whoever asked, without a copy where a block is handed out whole; [`Room`] says whether
//! more of them fit.

mod range_lock;
mod room;
mod run;
mod streams;
mod transfer;

pub use range_lock::{RangeGuard, RangeLock};
pub use room::{Room, SpaceInfo, UnlimitedSpace};
pub use run::Run;
pub use streams::Streams;
pub use transfer::{ByteRange, Extent, Keeper};
