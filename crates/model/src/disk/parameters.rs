//! What a simulated disk is: size, sectors, mechanics, cache; and some disks by name.

use platter_device::Geometry;

use super::flash::Flash;
use super::spinning::Spinning;
use crate::clock::{MICROSECOND, MILLISECOND, Nanos};

/// What takes the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mechanism {
    /// Nothing: every command is over before it returns, and what is not flushed stays in the cache. For the
    /// exploration of states, where time does not matter.
    Instant,
    /// Turning platters.
    Spinning(Spinning),
    /// Chips.
    Flash(Flash),
}

/// A disk's properties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Size in bytes.
    pub size: u64,
    /// Sector sizes.
    pub geometry: Geometry,
    /// What takes the time.
    pub mechanism: Mechanism,
    /// What the drive needs for every command before anything happens.
    pub overhead: Nanos,
    /// Commands that the drive takes at once (1 to 32).
    pub queue_depth: usize,
    /// Bytes of write cache; 0: a write returns when it is on the medium.
    pub write_cache: u64,
}

impl Parameters {
    /// A disk without time, with a write cache without limit: what was not flushed may or may not survive.
    pub const fn instant(size: u64) -> Self {
        Self {
            size,
            geometry: Geometry::FILE,
            mechanism: Mechanism::Instant,
            overhead: 0,
            queue_depth: 32,
            write_cache: u64::MAX,
        }
    }

    /// The disk of the published curve: 60 MB/s (the medium gives a little more, or 8 MiB at a time with a lost
    /// rotation each could not give 59), write cache off. Small I/Os take just over 8 ms: 7200 rpm. What is not said
    /// there is as in data sheets of such disks (around 2006).
    pub const fn published_curve() -> Self {
        Self {
            size: 500_000_000_000,
            geometry: Geometry::FILE,
            mechanism: Mechanism::Spinning(Spinning {
                rpm: 7200,
                outer_rate: 62_000_000,
                inner_rate: 34_000_000,
                heads: 4,
                seek_one: 1_400 * MICROSECOND,
                seek_average: 8_500 * MICROSECOND,
                seek_full: 18 * MILLISECOND,
                head_switch: 1_200 * MICROSECOND,
                access_on_arrival: true,
                look_ahead: 2 << 20,
            }),
            overhead: 200 * MICROSECOND,
            queue_depth: 32,
            write_cache: 0,
        }
    }

    /// A green disk of 2 TB: 5400 rpm, sectors of 4 KiB behind a face of 512 bytes, 64 MB of cache.
    pub const fn green_4k() -> Self {
        Self {
            size: 2_000_398_934_016,
            geometry: Geometry { logical_block: 512, physical_block: 4096 },
            mechanism: Mechanism::Spinning(Spinning {
                rpm: 5400,
                outer_rate: 110_000_000,
                inner_rate: 55_000_000,
                heads: 6,
                seek_one: 2 * MILLISECOND,
                seek_average: 14 * MILLISECOND,
                seek_full: 28 * MILLISECOND,
                head_switch: 1_200 * MICROSECOND,
                access_on_arrival: true,
                look_ahead: 8 << 20,
            }),
            overhead: 100 * MICROSECOND,
            queue_depth: 32,
            write_cache: 64 << 20,
        }
    }

    /// A SATA SSD of any size.
    pub const fn sata_ssd(size: u64) -> Self {
        Self {
            size,
            geometry: Geometry { logical_block: 512, physical_block: 4096 },
            mechanism: Mechanism::Flash(Flash {
                channels: 8,
                dies: 4,
                read: 60 * MICROSECOND,
                program: 700 * MICROSECOND,
                erase: 3 * MILLISECOND,
                page: 16 << 10,
                block_pages: 128,
                spare_percent: 7,
            }),
            overhead: 20 * MICROSECOND,
            queue_depth: 32,
            write_cache: 32 << 20,
        }
    }

    /// The same disk with another size.
    pub const fn sized(mut self, size: u64) -> Self {
        self.size = size;
        self
    }

    /// The same disk with a write cache of so many bytes.
    pub const fn write_cache(mut self, bytes: u64) -> Self {
        self.write_cache = bytes;
        self
    }

    /// The same disk with another queue depth.
    pub const fn queue_depth(mut self, depth: usize) -> Self {
        self.queue_depth = depth;
        self
    }

    /// The data sheet, when it turns.
    pub const fn spinning(&self) -> Option<Spinning> {
        match self.mechanism {
            Mechanism::Spinning(sheet) => Some(sheet),
            _ => None,
        }
    }

    /// The data sheet, when it is flash.
    pub const fn flash(&self) -> Option<Flash> {
        match self.mechanism {
            Mechanism::Flash(sheet) => Some(sheet),
            _ => None,
        }
    }
}
