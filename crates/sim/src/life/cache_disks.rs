//! The cache devices (L2ARC) of a machine, beside its disks, and what came of reading from them.
//!
//! Nothing of a pool is there alone: so they may do what they like, all of them at a time, whatever redundancy covers,
//! also in a life whose disks never lie.

use std::sync::atomic::Ordering;

use platter_model::disk::{Image, Parameters, SimDisk};
use platter_spa::Pool;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

/// The first of them is plugged in here, the others behind it: away from the places of disks.
pub(super) const FIRST_PLACE: usize = 2000;
/// Bytes of memory for blocks in a life with cache devices: less than is worked on, or nothing would be read there.
pub(super) const MEMORY: u64 = 2 << 20;

/// Large enough for a log, from which blocks are found again after an import; and too small for one.
const LOGGED: u64 = (1 << 30) + (64 << 20);
const UNLOGGED: u64 = 96 << 20;

/// A cache device.
pub(super) struct CacheDisk {
    pub(super) disk: SimDisk,
    /// Where it is plugged in.
    pub(super) place: usize,
    /// What the pool calls it; 0 while it is none of the pool's.
    pub(super) guid: u64,
    /// Whether it is the pool's, as far as the pool said.
    pub(super) is_member: bool,
    /// Whether it is being added or removed: if the power fails then, it may be either.
    pub(super) is_changing: bool,
    /// What it held at some time.
    pub(super) copy: Option<Image>,
}

/// What the cache devices of a life are.
pub(super) struct CachePlan {
    pub(super) parameters: Parameters,
    /// Whether the pool is made with it; otherwise it may be added later.
    pub(super) from_the_beginning: bool,
}

/// One or two, as chance has it.
pub(super) fn planned(random: &mut ChaCha20Rng) -> Vec<CachePlan> {
    let count = 1 + random.next_u32() % 2;
    let plan = |_| {
        let size = if random.next_u32().is_multiple_of(4) { UNLOGGED } else { LOGGED };
        let parameters = match random.next_u32() % 3 {
            0 => Parameters::sata_ssd(size),
            _ => Parameters::instant(size),
        };
        CachePlan { parameters, from_the_beginning: !random.next_u32().is_multiple_of(3) }
    };
    (0..count).map(plan).collect()
}

/// What came of the cache devices of a life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Blocks that were written there.
    pub written: u64,
    /// Blocks that were read there instead of from the pool's devices.
    pub hits: u64,
    /// Blocks of which something else was there.
    pub wrong: u64,
    /// Reads that failed, or came to nothing in time.
    pub unanswered: u64,
}

impl Cached {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.hits += other.hits;
        self.wrong += other.wrong;
        self.unanswered += other.unanswered;
    }

    /// What came of them since the pool was opened.
    pub(super) fn of(pool: &Pool) -> Self {
        let counters = pool.dsl().store.state().l2arc.counters();
        let [written, hits, wrong, unanswered] =
            [&counters.written, &counters.hits, &counters.wrong, &counters.unanswered]
                .map(|counter| counter.load(Ordering::Relaxed));
        Self { written, hits, wrong, unanswered }
    }
}
