//! What a cache device (L2ARC) holds besides blocks (`include/sys/arc_impl.h`, `module/zfs/arc.c`): a header that says
//! where its log begins, and the blocks of that log, which say what lies where.
//!
//! ```text
//! 0     4M           start                                                             end     size
//! | labels | header | block block … log block | block block … log block | … free …      | labels |
//!              │                      ▲     └──── the one before the one before ◄─┘
//!              └─ the last two ───────┴──────────────────────────────────────────┘
//! ```
//!
//! The device is a ring: what is written goes behind what was written before, and at the end begins anew at the start.
//! Offsets here count from the device's own start. Each log block covers the blocks that were written since the one
//! before it. There are two chains of them, one beside the other: a log block leads to the one before the one before
//! it, so that of two neighbours one can be read while the other is looked at.
//!
//! All numbers are words in the writer's byte order, which the magic numbers tell.
//!
//! Nothing here is to be believed more than that it says where to look: a block that is found so has the checksum of
//! the pool's own pointer, or is none.

mod header;
mod log;
mod pointer;

pub use header::{DeviceHeader, HEADER_OFFSET, header_size};
pub use log::{LOG_ENTRIES_MAX, LogBlock, LogEntry};
pub use pointer::{LOG_BLOCK_SIZE, LogPointer, Ring, lies_between};

use crate::embedded::ByteOrder;

/// Devices that end before this have no log: with few blocks there is nothing to be gained
/// (`l2arc_rebuild_blocks_min_l2size`), bytes.
pub const LOGGED_SIZE_MIN: u64 = 1 << 30;

/// Entries of each log block on a device whose ring is `start..end`; 0 when it has no log. A ring holds what one log
/// block covers, however large the blocks are (`l2arc_rebuild_dev`). Rings that end before `logged_least` have none:
/// OpenZFS's is [`LOGGED_SIZE_MIN`], and a device whose header says another number begins anew there.
pub fn log_entries(start: u64, end: u64, logged_least: u64) -> u64 {
    if end < logged_least {
        return 0;
    }
    (end.saturating_sub(start) / crate::blkptr::BLOCK_SIZE_MAX).min(LOG_ENTRIES_MAX as u64)
}

fn turned(word: u64, order: ByteOrder) -> u64 {
    match order {
        ByteOrder::Little => word,
        ByteOrder::Big => word.swap_bytes(),
    }
}

/// `bits` of a word from bit `low` on.
fn field(word: u64, low: u32, bits: u32) -> u64 {
    (word >> low) & ((1 << bits) - 1)
}

/// A size in 16 bits, in sectors less one.
fn size_field(word: u64, low: u32) -> u64 {
    crate::Sectors(field(word, low, 16) + 1).bytes()
}

/// The other way round; sizes are whole sectors, from one sector to 32 MiB.
fn to_size_field(bytes: u64, low: u32) -> u64 {
    let sectors = crate::Sectors::of(bytes).0;
    assert!((1..=1 << 16).contains(&sectors), "a size of {bytes} bytes does not fit");
    (sectors - 1) << low
}
