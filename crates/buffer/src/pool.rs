//! Memory of buffers that are gone, kept for the next ones.
//!
//! Memory from the system comes as pages that the kernel clears at the first touch: for a block of 128 KiB that costs
//! more than copying it. So the pages of a dropped buffer wait here for one of the same size.
//!
//! Invariants:
//! - never more bytes wait than [`set_idle_max`] allows;
//! - what [`trim`] finds to have waited unused since its last call goes back to the allocator;
//! - within [`releasing`] nothing waits: what is dropped goes back to the system at once. The allocator keeps what
//!   belongs to a thread until that thread needs memory again, which may never be.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::page::{PAGE_SIZE, Page};

/// Most bytes that wait, until somebody says how many.
const IDLE_MAX: usize = 64 << 20;
/// Buffers of up to this many pages are kept, each number of pages for itself.
const PAGES_MAX: usize = 512;

/// Buffers of one size.
struct Shelf {
    idle: Vec<Vec<Page>>,
    /// Fewest that were idle since the last [`trim`]: nobody needed these.
    unused: usize,
}

struct Pool {
    shelves: [Mutex<Shelf>; PAGES_MAX],
    /// Buffers on each shelf: most have none, and need not be locked to be passed over.
    counts: [AtomicUsize; PAGES_MAX],
    /// Bytes that wait.
    idle: AtomicUsize,
    /// Most of them.
    most: AtomicUsize,
    /// How many want nothing to wait at the moment.
    releasing: AtomicUsize,
}

static POOL: Pool = Pool::new();

/// Gives the memory of whole pages, of which nothing is needed any more, back to the system. It stays where it is, and
/// has any bytes afterwards.
pub type Release = fn(&mut [u8]);

/// How it is done.
static RELEASE: OnceLock<Release> = OnceLock::new();

struct Releasing<'a>(&'a Pool);

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        self.0.releasing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What buffers are dropped during `work`, by whomever, goes back to the system with `release`, and so does what waits.
/// The first `release` is the one that counts.
pub fn releasing<T>(release: Release, work: impl FnOnce() -> T) -> T {
    RELEASE.get_or_init(|| release);
    POOL.releasing(work)
}

fn release(mut pages: Vec<Page>) {
    if let Some(release) = RELEASE.get() {
        release(pages.as_mut_bytes());
    }
}

impl Pool {
    const fn new() -> Self {
        let shelves = [const { Mutex::new(Shelf { idle: Vec::new(), unused: 0 }) }; PAGES_MAX];
        let counts = [const { AtomicUsize::new(0) }; PAGES_MAX];
        Self {
            shelves,
            counts,
            idle: AtomicUsize::new(0),
            most: AtomicUsize::new(IDLE_MAX),
            releasing: AtomicUsize::new(0),
        }
    }

    fn shelf(&self, pages: usize) -> Option<(&Mutex<Shelf>, &AtomicUsize)> {
        let index = pages.checked_sub(1)?;
        Some((self.shelves.get(index)?, self.counts.get(index)?))
    }

    fn take(&self, count: usize) -> Option<Vec<Page>> {
        let (shelf, waiting) = self.shelf(count)?;
        let mut shelf = shelf.lock();
        let pages = shelf.idle.pop()?;
        waiting.store(shelf.idle.len(), Ordering::Relaxed);
        shelf.unused = shelf.unused.min(shelf.idle.len());
        let before = self.idle.fetch_sub(count * PAGE_SIZE, Ordering::Relaxed);
        debug_assert!(before >= count * PAGE_SIZE, "all bytes that wait are counted");
        Some(pages)
    }

    fn give_back(&self, pages: Vec<Page>) {
        if self.releasing.load(Ordering::Relaxed) > 0 {
            return release(pages);
        }
        let Some((shelf, waiting)) = self.shelf(pages.len()) else { return };
        let bytes = pages.len() * PAGE_SIZE;
        if self.idle.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most.load(Ordering::Relaxed) {
            self.idle.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            let mut shelf = shelf.lock();
            shelf.idle.push(pages);
            waiting.store(shelf.idle.len(), Ordering::Relaxed);
        }
    }

    fn releasing<T>(&self, work: impl FnOnce() -> T) -> T {
        self.releasing.fetch_add(1, Ordering::Relaxed);
        let _until_then = Releasing(self);
        self.empty();
        work()
    }

    /// Releases all that waits.
    fn empty(&self) {
        self.clear(|_| 0, release);
    }

    fn trim(&self) {
        self.clear(|shelf| shelf.idle.len() - shelf.unused, drop);
    }

    /// Leaves so many buffers on each shelf, of which nobody has needed any yet, and gives the others `away`.
    fn clear(&self, kept: impl Fn(&Shelf) -> usize, away: impl Fn(Vec<Page>)) {
        for (index, (shelf, waiting)) in self.shelves.iter().zip(&self.counts).enumerate() {
            if waiting.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let unused = {
                let mut shelf = shelf.lock();
                let keep = kept(&shelf);
                shelf.unused = keep;
                waiting.store(keep, Ordering::Relaxed);
                shelf.idle.split_off(keep)
            };
            self.idle.fetch_sub(unused.len() * (index + 1) * PAGE_SIZE, Ordering::Relaxed);
            unused.into_iter().for_each(&away);
        }
    }
}

/// `count` pages with stale contents.
pub(crate) fn take(count: usize) -> Option<Vec<Page>> {
    POOL.take(count)
}

/// Keeps `pages` when there is room.
pub(crate) fn give_back(pages: Vec<Page>) {
    POOL.give_back(pages);
}

/// Gives memory back to the system that no buffer has needed since the last call. To be called now and then, such as
/// after each transaction group.
pub fn trim() {
    POOL.trim();
}

/// Lets at most `bytes` wait. Worth as much as is written and freed again between two transaction groups.
pub fn set_idle_max(bytes: usize) {
    POOL.most.store(bytes, Ordering::Relaxed);
}

/// What [`set_idle_max`] allows.
pub fn idle_max() -> usize {
    POOL.most.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn pages(count: usize) -> Vec<Page> {
        Page::new_vec_zeroed(count).expect("memory")
    }

    #[test]
    fn memory_is_used_again_and_given_back_when_nobody_needs_it() {
        let pool = Pool::new();
        let idle = |pool: &Pool| pool.idle.load(Ordering::Relaxed) / PAGE_SIZE;
        let first = pages(37);
        let place = first.as_ptr();
        assert!(pool.take(37).is_none());
        pool.give_back(first);
        assert_eq!(idle(&pool), 37);
        assert!(pool.take(36).is_none());
        let again = pool.take(37).expect("it is there");
        assert_eq!((again.as_ptr(), idle(&pool)), (place, 0));
        pool.give_back(again);
        // Needed since the last call, then no more.
        pool.trim();
        assert_eq!(idle(&pool), 37);
        pool.trim();
        assert_eq!(idle(&pool), 0);
    }

    #[test]
    fn what_is_dropped_while_memory_is_released_is_gone() {
        let pool = Pool::new();
        pool.give_back(pages(3));
        pool.releasing(|| {
            assert!(pool.take(3).is_none(), "what waited, too");
            pool.give_back(pages(2));
        });
        assert!(pool.take(2).is_none() && pool.take(3).is_none());
        assert_eq!(pool.idle.load(Ordering::Relaxed), 0);
        pool.give_back(pages(2));
        assert!(pool.take(2).is_some(), "and after that it waits again");
    }

    #[test]
    fn no_more_waits_than_allowed() {
        let pool = Pool::new();
        for _ in 0..IDLE_MAX / (PAGES_MAX * PAGE_SIZE) + 3 {
            pool.give_back(pages(PAGES_MAX));
        }
        pool.give_back(pages(PAGES_MAX + 1));
        pool.give_back(pages(0));
        assert_eq!(pool.idle.load(Ordering::Relaxed), IDLE_MAX);
        assert!(pool.take(0).is_none() && pool.take(PAGES_MAX + 1).is_none());
    }
}
