//! What is open, and which of it goes past the kernel's page cache.
//!
//! Who opens a file only to write it gains nothing from the page cache: each byte would be copied once more, into
//! memory that has to be found first. So a file that nobody else has open is written past it.
//!
//! Invariants:
//! - while somebody writes past the cache because we said so, whoever else opens the file goes past it too: nobody
//!   reads from pages what has been written over behind them. The pages that remain belong to mappings;
//! - pages that are read while somebody may write past them, for whatever reason, are noted, and the kernel is told to
//!   forget them with each such write;
//! - what was open before the writer came stays in the cache, and the writer with it, unless all that he reads has to
//!   be heard of (`relatime=off`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use platter_ondisk::ObjectId;
use platter_transport::OpenFlags;

use crate::terms::{PAST_CACHE, WITHOUT_CACHE, how_alone, may_write, reads_and_writes};

/// The flag of open(2).
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// One object.
#[derive(Debug, Default)]
struct Open {
    times: u64,
    /// Those that may write past the page cache because we said so.
    writers_past_cache: u64,
    /// Those that may read and write: what it takes to change pages through a mapping. While it is mapped it is open.
    both_ways: u64,
    /// Somebody has it open, or had since it was opened first, to write past the cache because he said so (`O_DIRECT`,
    /// which may also be set later).
    direct: bool,
    /// Pages of it were read since somebody may write past them.
    has_pages: bool,
}

impl Open {
    fn is_passed(&self) -> bool {
        self.direct || self.writers_past_cache > 0
    }
}

/// What decides beside the flags of open(2) whether somebody goes past the page cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passing {
    /// The kernel lets files that are open past its cache be mapped.
    pub can_pass: bool,
    /// Each read has to be heard of.
    pub every_read: bool,
}

/// The open objects of a mount.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    all: Mutex<BTreeMap<ObjectId, Open>>,
    /// How many of them somebody may write past the cache. Changes while `all` is locked; most of the time there is
    /// none, and then nobody who reads has to look further.
    passed: AtomicUsize,
}

impl Opens {
    /// `object` is open once more, with these `flags`; how that is to be answered.
    pub fn add(&self, object: ObjectId, flags: i32, passing: Passing) -> OpenFlags {
        let mut all = self.all.lock();
        let open = all.entry(object).or_default();
        let how = match open.times {
            _ if passing.every_read && passing.can_pass => WITHOUT_CACHE,
            // The first read of each page since then.
            _ if passing.every_read => OpenFlags::default(),
            _ if !passing.can_pass => OpenFlags::KEEP_CACHE,
            0 => how_alone(flags),
            _ if open.writers_past_cache > 0 => PAST_CACHE,
            _ => OpenFlags::KEEP_CACHE,
        };
        let was_passed = open.is_passed();
        open.times += 1;
        open.writers_past_cache += u64::from(writes_past_cache(flags, how));
        open.both_ways += u64::from(reads_and_writes(flags));
        open.direct |= may_write(flags) && flags & O_DIRECT != 0;
        self.count(was_passed, open.is_passed());
        debug_assert!(self.passed.load(Ordering::SeqCst) <= all.len(), "no more are passed than are open");
        how
    }

    /// `object` is open once less, of the times that these `flags` were answered so; whether it was open at all.
    pub fn remove(&self, object: ObjectId, flags: i32, how: OpenFlags) -> bool {
        let mut all = self.all.lock();
        let Some(open) = all.get_mut(&object) else { return false };
        let was_passed = open.is_passed();
        let writer = u64::from(writes_past_cache(flags, how));
        open.writers_past_cache = open.writers_past_cache.saturating_sub(writer);
        open.both_ways = open.both_ways.saturating_sub(u64::from(reads_and_writes(flags)));
        open.times -= 1;
        self.count(was_passed, open.times > 0 && open.is_passed());
        if open.times == 0 {
            all.remove(&object);
        }
        true
    }

    fn count(&self, was_passed: bool, is_passed: bool) {
        match (was_passed, is_passed) {
            (false, true) => _ = self.passed.fetch_add(1, Ordering::SeqCst),
            (true, false) => _ = self.passed.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
    }

    /// Pages of `object` are about to be read.
    pub fn note_pages(&self, object: ObjectId) {
        if self.passed.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(open) = self.all.lock().get_mut(&object).filter(|open| open.is_passed()) {
            open.has_pages = true;
        }
    }

    /// Whether a write of `object` past the cache, which is done now, may leave pages in the kernel that are older.
    pub fn leaves_stale_pages(&self, object: ObjectId) -> bool {
        let mut all = self.all.lock();
        let Some(open) = all.get_mut(&object) else { return false };
        if !open.is_passed() {
            // `O_DIRECT` was set after the file was opened: pages were not noted until now.
            (open.direct, open.has_pages) = (true, true);
            self.count(false, true);
        }
        open.has_pages
    }

    /// Whether pages of `object` may have been changed in the kernel, through a mapping, without our knowing.
    pub fn may_have_changed_pages(&self, object: ObjectId) -> bool {
        self.all.lock().get(&object).is_some_and(|open| open.both_ways > 0)
    }

    /// Forgets all of them, and says how often each was open.
    pub fn take(&self) -> Vec<(ObjectId, u64)> {
        let mut all = self.all.lock();
        self.passed.store(0, Ordering::SeqCst);
        std::mem::take(&mut *all).into_iter().map(|(object, open)| (object, open.times)).collect()
    }
}

fn writes_past_cache(flags: i32, how: OpenFlags) -> bool {
    how.contains(OpenFlags::DIRECT_IO) && may_write(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId(7);
    const READ_ONLY: i32 = 0o0;
    const WRITE_ONLY: i32 = 0o1;
    const READ_WRITE: i32 = 0o2;
    const CAN: Passing = Passing { can_pass: true, every_read: false };

    fn passes(how: OpenFlags) -> bool {
        how.contains(OpenFlags::DIRECT_IO)
    }

    #[test]
    fn a_lone_writer_goes_past_the_cache_and_who_comes_meanwhile_too() {
        let opens = Opens::default();
        let writer = opens.add(FILE, WRITE_ONLY, CAN);
        let reader = opens.add(FILE, READ_ONLY, CAN);
        assert!(passes(writer) && passes(reader));
        assert!(opens.remove(FILE, WRITE_ONLY, writer));
        // Nobody writes past the cache now.
        assert!(!passes(opens.add(FILE, READ_ONLY, CAN)));
        // Others have it open.
        assert!(!passes(opens.add(FILE, WRITE_ONLY, CAN)));
        assert_eq!(opens.take(), vec![(FILE, 3)]);
        assert!(!opens.remove(FILE, READ_ONLY, reader));
        assert!(
            !passes(opens.add(FILE, READ_WRITE, CAN))
                && !passes(opens.add(ObjectId(8), WRITE_ONLY, Passing::default()))
        );
    }

    #[test]
    fn one_who_reads_and_writes_beside_a_writer_counts_as_one() {
        let opens = Opens::default();
        let (first, second) = (opens.add(FILE, WRITE_ONLY, CAN), opens.add(FILE, READ_WRITE, CAN));
        assert!(opens.remove(FILE, WRITE_ONLY, first) && passes(second));
        assert!(passes(opens.add(FILE, READ_ONLY, CAN)));
    }

    #[test]
    fn pages_are_stale_only_where_they_were_read_beside_such_a_writer() {
        let opens = Opens::default();
        opens.note_pages(FILE);
        let writer = opens.add(FILE, WRITE_ONLY, CAN);
        assert!(!opens.leaves_stale_pages(FILE));
        opens.note_pages(ObjectId(8));
        assert!(!opens.leaves_stale_pages(FILE));
        opens.note_pages(FILE);
        assert!(opens.leaves_stale_pages(FILE));
        opens.remove(FILE, WRITE_ONLY, writer);
        assert_eq!(opens.passed.load(Ordering::SeqCst), 0);

        // One who says so himself, beside readers.
        let reader = opens.add(FILE, READ_ONLY, CAN);
        opens.note_pages(FILE);
        let direct = opens.add(FILE, READ_WRITE | O_DIRECT, CAN);
        assert!(!opens.leaves_stale_pages(FILE));
        opens.note_pages(FILE);
        assert!(opens.leaves_stale_pages(FILE));
        opens.remove(FILE, READ_WRITE | O_DIRECT, direct);
        opens.remove(FILE, READ_ONLY, reader);
        assert_eq!(opens.passed.load(Ordering::SeqCst), 0);

        // One who says so later.
        let (reader, late) = (opens.add(FILE, READ_ONLY, CAN), opens.add(FILE, READ_WRITE, CAN));
        opens.note_pages(FILE);
        assert!(opens.leaves_stale_pages(FILE));
        opens.remove(FILE, READ_WRITE | O_DIRECT, late);
        opens.remove(FILE, READ_ONLY, reader);
        assert_eq!(opens.passed.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn whose_reads_are_all_heard_of_goes_past_the_cache_beside_others() {
        let opens = Opens::default();
        let all = Passing { every_read: true, ..CAN };
        let before = opens.add(FILE, READ_ONLY, CAN);
        assert!(!passes(before));
        let both = opens.add(FILE, READ_WRITE, all);
        assert!(passes(both) && passes(opens.add(FILE, READ_ONLY, all)));
        // The pages of who came before.
        opens.note_pages(FILE);
        assert!(opens.leaves_stale_pages(FILE));
        assert_eq!(opens.add(ObjectId(8), READ_ONLY, Passing { every_read: true, ..Passing::default() }).0, 0);
    }

    #[test]
    fn pages_are_changed_only_by_who_may_read_and_write() {
        let opens = Opens::default();
        let (reader, writer) = (opens.add(FILE, READ_ONLY, CAN), opens.add(FILE, WRITE_ONLY, CAN));
        assert!(!opens.may_have_changed_pages(FILE));
        let both = opens.add(FILE, READ_WRITE, CAN);
        opens.remove(FILE, WRITE_ONLY, writer);
        assert!(opens.may_have_changed_pages(FILE));
        opens.remove(FILE, READ_WRITE, both);
        assert!(!opens.may_have_changed_pages(FILE));
        opens.remove(FILE, READ_ONLY, reader);
    }
}
