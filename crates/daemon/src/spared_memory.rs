//! The block cache gives way to whoever else needs memory, and takes it again when they need it no more, as OpenZFS's
//! ARC does (`arc_available_memory`, `arc_reduce_target_size`, `module/zfs/arc.c`). The kernel gives up its own cache
//! by itself; of ours it knows nothing, and would kill somebody.

use std::sync::Weak;
use std::time::Duration;

use platter_spa::{MemoryBudget, MemoryLimits};

use crate::memory_limit::{self, MemoryLimit};

/// How often memory is looked at while there is enough.
const SELDOM: Duration = Duration::from_secs(1);
/// How often while there is little.
const OFTEN: Duration = Duration::from_millis(100);
/// How long it takes the allocator to give back what was freed: until then it is not asked for again.
const GIVEN_BACK: Duration = Duration::from_millis(1200);
/// There is little when less than one part in so many is to be had.
const LITTLE: u64 = 8;
/// One part in so many is kept for others (`arc_sys_free` is half of that, in the kernel, where nobody has to wait for
/// a process to be woken).
const KEPT: u64 = 32;
/// What others took since the last look they may take so many times before the cache has given way.
const AHEAD: u64 = 2;
/// One part in so many of what the cache may take it keeps whatever the others need: an eighth of a quarter is
/// `arc_c_min`.
const LEAST: u64 = 8;
/// Of what nobody needs the cache may have one part in so many more, each time.
const REGAINED: u64 = 8;

/// Decides how much the cache may take.
#[derive(Debug)]
struct Sparing {
    /// All memory.
    limit: MemoryLimit,
    /// What the cache may take now, bytes.
    spared: u64,
    /// What was freed lately is not counted again before.
    settled: Duration,
    /// What was to be had when it was looked at before, bytes.
    before: u64,
}

impl Sparing {
    fn new(limit: MemoryLimit) -> Self {
        Self { limit, spared: limit.cache_bytes(), settled: Duration::ZERO, before: 0 }
    }

    /// Whether memory is to be looked at often.
    fn is_little(&self, available: u64) -> bool {
        available < self.limit.bytes / LITTLE
    }

    /// At time `now` so much is to be had, and the cache holds so much: what it may take from now on, where that
    /// changes.
    fn look(&mut self, now: Duration, available: u64, cached: u64) -> Option<u64> {
        let most = self.limit.cache_bytes();
        let (least, kept) = (most / LEAST, self.limit.bytes / KEPT);
        // The limit may be another one than it was.
        let had = self.spared.clamp(least, most);
        let held = cached.min(had);
        // Who takes it goes on while it is freed here.
        let taken = self.before.saturating_sub(available);
        self.before = available;
        let soon = available.saturating_sub(AHEAD * taken);
        let spared = if soon < kept {
            // The last half of what is kept waits for nothing.
            if now < self.settled && soon >= kept / 2 {
                had
            } else {
                self.settled = now + GIVEN_BACK;
                held.saturating_sub(2 * (kept - soon)).max(least)
            }
        } else if available > 2 * kept && now >= self.settled {
            self.settled = now + SELDOM;
            most.min(had + (available - 2 * kept) / REGAINED)
        } else {
            had
        };
        assert!((least..=most).contains(&spared), "the cache is between an eighth of its limit and its limit");
        (std::mem::replace(&mut self.spared, spared) != spared).then_some(spared)
    }
}

/// Looks at the memory as long as there are pools or may be, in a thread of its own: when there is little, whatever
/// else runs is slow.
///
/// # Errors
/// When there is no thread to be had.
pub fn watch(budget: Weak<MemoryBudget>, limits: MemoryLimits, limit: MemoryLimit) -> std::io::Result<()> {
    let work = move || {
        let (begun, mut sparing) = (std::time::Instant::now(), Sparing::new(limit));
        loop {
            let Some(budget) = budget.upgrade() else { return };
            let Some(available) = memory_limit::available() else {
                // It has its size until that is known again.
                drop(budget);
                std::thread::sleep(SELDOM);
                continue;
            };
            // A control group may have got less meanwhile.
            sparing.limit = limit.min(MemoryLimit::of_this_process());
            let (had, cached) = (sparing.spared, budget.cached());
            if let Some(spared) = sparing.look(begun.elapsed(), available, cached) {
                platter_buffer::releasing(platter_device::release, || budget.spare(limits, spared));
                tell(had, spared, limit, available);
            }
            drop(budget);
            std::thread::sleep(if sparing.is_little(available) { OFTEN } else { SELDOM });
        }
    };
    std::thread::Builder::new().name("memory".to_owned()).spawn(work).map(drop)
}

/// Says in the log when the cache begins to give way, and when it need not any more.
fn tell(had: u64, spared: u64, limit: MemoryLimit, available: u64) {
    let most = limit.cache_bytes();
    let [spared_mib, most_mib, available_mib] = [spared, most, available].map(|bytes| bytes >> 20);
    if had == most {
        tracing::info!(
            "others need memory, of which {available_mib} MiB are to be had: for now the block cache may take \
             {spared_mib} of {most_mib} MiB"
        );
    } else if spared == most {
        tracing::info!("there is memory enough again: the block cache may take {most_mib} MiB");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const LIMIT: MemoryLimit = MemoryLimit { bytes: 32 * GIB };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_others_lack_the_cache_gives() {
        let mut sparing = Sparing::new(LIMIT);
        assert_eq!(sparing.look(at(0), 20 * GIB, 8 * GIB), None, "there is enough");
        assert_eq!(sparing.look(at(1), 10 * GIB, 8 * GIB), Some(6 * GIB), "it goes so fast that there is none soon");
        assert_eq!(sparing.look(at(1) + OFTEN, 3 * GIB / 2, 6 * GIB), Some(4 * GIB));
        let mut sparing = Sparing::new(LIMIT);
        assert_eq!(sparing.look(at(0), 3 * GIB / 2, 8 * GIB), None, "neither too little nor plenty");
        sparing.before = 3 * GIB / 4;
        assert_eq!(sparing.look(at(2), 3 * GIB / 4, 7 * GIB), Some(13 * GIB / 2), "twice the quarter that is missing");
        // What was freed has not come back yet.
        assert_eq!(sparing.look(at(2) + OFTEN, 3 * GIB / 4, 13 * GIB / 2), None);
        // But there is hardly anything.
        sparing.before = GIB / 4;
        assert_eq!(sparing.look(at(2) + 2 * OFTEN, GIB / 4, 13 * GIB / 2), Some(5 * GIB));
        assert_eq!(sparing.look(at(9), 0, 5 * GIB), Some(3 * GIB));
        assert_eq!(sparing.look(at(10), 0, 3 * GIB), Some(GIB), "it keeps an eighth");
        assert_eq!(sparing.look(at(20), 0, GIB), None);
    }

    #[test]
    fn what_nobody_needs_it_takes_again_a_part_at_a_time() {
        let mut sparing = Sparing::new(LIMIT);
        assert_eq!(sparing.look(at(0), 0, 8 * GIB), Some(6 * GIB));
        assert_eq!(sparing.look(at(0) + OFTEN, 18 * GIB, 6 * GIB), None, "not at once");
        assert_eq!(sparing.look(at(2), 14 * GIB, 6 * GIB), Some(15 * GIB / 2));
        assert_eq!(sparing.look(at(2) + OFTEN, 14 * GIB, 6 * GIB), None);
        assert_eq!(sparing.look(at(3), 18 * GIB, 6 * GIB), Some(8 * GIB));
        assert_eq!(sparing.look(at(9), 18 * GIB, 8 * GIB), None, "it has all that it may");
    }

    /// The smaller limit was noted, and the caches never heard of it; after that the larger one was too much at a time.
    #[test]
    fn a_control_group_may_get_less_and_more_again() {
        let mut sparing = Sparing::new(LIMIT);
        sparing.limit = MemoryLimit { bytes: GIB / 2 };
        assert_eq!(sparing.look(at(0), 400 << 20, GIB), Some(GIB / 8), "there is enough of the little");
        assert_eq!(sparing.look(at(1), 0, GIB / 8), Some(96 << 20));
        sparing.limit = LIMIT;
        assert_eq!(sparing.look(at(9), 3 * GIB / 2, 0), Some(GIB), "an eighth, though there is not plenty");
        assert_eq!(sparing.look(at(10), 3 * GIB / 2, 0), None);
    }

    #[test]
    fn a_cache_that_holds_little_has_little_to_give() {
        let mut sparing = Sparing::new(LIMIT);
        assert_eq!(sparing.look(at(0), 0, 0), Some(GIB));
        assert!(sparing.is_little(0) && !sparing.is_little(4 * GIB));
    }
}
