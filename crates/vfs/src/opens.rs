//! What is open, and which of it goes past the clients' caches.
//!
//! Who opens a file only to write it gains nothing from a cache in front of us (the kernel's pages): each byte would be
//! copied once more, into memory that has to be found first. So a file that nobody else has open is written past it.
//!
//! Invariants:
//! - while somebody writes past the cache because we said so, whoever else opens the file goes past it too: nobody
//!   reads from a cache what has been written over behind it. The contents that remain there belong to mappings;
//! - contents that a cache takes while somebody may write past it, for whatever reason, are noted, and it is told to
//!   forget them with each such write;
//! - what was open before the writer came stays in the cache, and the writer with it, unless all that he reads has to
//!   be heard of (`relatime=off`);
//! - every object that is open here is counted as open in [`platter_zpl::Zpl`] as often, so that what a server that
//!   went away has not closed is given back at the end; from then on nothing is opened.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use platter_ondisk::ObjectId;

/// What somebody opens a file for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// To read it.
    pub reads: bool,
    /// To write to it.
    pub writes: bool,
    /// All that he writes goes to the end.
    pub appends: bool,
    /// Past caches, because he says so.
    pub direct: bool,
}

/// How a client uses its cache for what it has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// What the cache has is good, and it goes on.
    Kept,
    /// The cache begins anew: the first read of each part from now on is heard of.
    Anew,
    /// Past the cache. What it has from before is as good as ever: it drops what is written over.
    Past,
    /// Past the cache, which is emptied: who maps a file reads from it all the same.
    PastEmptied,
}

impl Caching {
    /// Whether each transfer reaches us.
    pub fn is_past(self) -> bool {
        matches!(self, Self::Past | Self::PastEmptied)
    }

    /// Of a file that nobody else has open, where it can be had past the cache.
    pub fn alone(opening: Opening) -> Self {
        if opening.writes && !opening.reads { Self::Past } else { Self::Kept }
    }
}

/// One object.
#[derive(Debug, Default)]
struct Open {
    times: u64,
    /// Those that may write past the cache because we said so.
    writers_past_cache: u64,
    /// Those that may read and write: what it takes to change cached contents through a mapping. While it is mapped it
    /// is open.
    both_ways: u64,
    /// Somebody has it open, or had since it was opened first, to write past the cache because he said so (`O_DIRECT`,
    /// which may also be set later).
    direct: bool,
    /// Contents of it went to a cache since somebody may write past it.
    has_contents: bool,
}

impl Open {
    fn is_passed(&self) -> bool {
        self.direct || self.writers_past_cache > 0
    }
}

/// What decides, beside what a file is opened for, whether somebody goes past the cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passing {
    /// Files can be had past the cache and mapped all the same.
    pub can_pass: bool,
    /// Each read has to be heard of.
    pub every_read: bool,
}

#[derive(Debug, Default)]
struct All {
    open: BTreeMap<ObjectId, Open>,
    /// Whether nothing may be opened any more.
    closed: bool,
}

/// The open objects of a file system that is served.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    all: Mutex<All>,
    /// How many of them somebody may write past the cache. Changes while `all` is locked; most of the time there is
    /// none, and then nobody who reads has to look further.
    passed: AtomicUsize,
}

impl Opens {
    /// `object` is open once more, for this; how its client shall cache it. `None` when nothing may be opened any more.
    pub fn add(&self, object: ObjectId, opening: Opening, passing: Passing) -> Option<Caching> {
        let mut all = self.all.lock();
        if all.closed {
            return None;
        }
        let open = all.open.entry(object).or_default();
        let how = match open.times {
            _ if passing.every_read && passing.can_pass => Caching::PastEmptied,
            // The first read of each part since then.
            _ if passing.every_read => Caching::Anew,
            _ if !passing.can_pass => Caching::Kept,
            0 => Caching::alone(opening),
            _ if open.writers_past_cache > 0 => Caching::Past,
            _ => Caching::Kept,
        };
        let was_passed = open.is_passed();
        open.times += 1;
        open.writers_past_cache += u64::from(opening.writes && how.is_past());
        open.both_ways += u64::from(opening.reads && opening.writes);
        open.direct |= opening.writes && opening.direct;
        self.count(was_passed, open.is_passed());
        assert!(open.writers_past_cache <= open.times, "no more write than have it open");
        debug_assert!(self.passed.load(Ordering::SeqCst) <= all.open.len(), "no more are passed than are open");
        Some(how)
    }

    /// `object` is open once less, of the times that it was opened for this, `past` the cache or not; whether it was
    /// open at all.
    pub fn remove(&self, object: ObjectId, opening: Opening, past: bool) -> bool {
        let mut all = self.all.lock();
        let Some(open) = all.open.get_mut(&object) else { return false };
        let was_passed = open.is_passed();
        let writer = u64::from(opening.writes && past);
        open.writers_past_cache = open.writers_past_cache.saturating_sub(writer);
        open.both_ways = open.both_ways.saturating_sub(u64::from(opening.reads && opening.writes));
        open.times -= 1;
        self.count(was_passed, open.times > 0 && open.is_passed());
        if open.times == 0 {
            all.open.remove(&object);
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

    /// A cache is about to take contents of `object`.
    pub fn note_cached(&self, object: ObjectId) {
        if self.passed.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(open) = self.all.lock().open.get_mut(&object).filter(|open| open.is_passed()) {
            open.has_contents = true;
        }
    }

    /// Whether a write of `object` past the cache, which is done now, may leave contents there that are older.
    pub fn leaves_stale_contents(&self, object: ObjectId) -> bool {
        let mut all = self.all.lock();
        let Some(open) = all.open.get_mut(&object) else { return false };
        if !open.is_passed() {
            // `O_DIRECT` was set after the file was opened: contents were not noted until now.
            (open.direct, open.has_contents) = (true, true);
            self.count(false, true);
        }
        open.has_contents
    }

    /// Whether contents of `object` may have been changed in a cache, through a mapping, without our knowing.
    pub fn may_have_changed(&self, object: ObjectId) -> bool {
        self.all.lock().open.get(&object).is_some_and(|open| open.both_ways > 0)
    }

    /// Forgets all of them, and says how often each was open. Nothing is opened from then on.
    pub fn close_all(&self) -> Vec<(ObjectId, u64)> {
        let mut all = self.all.lock();
        all.closed = true;
        self.passed.store(0, Ordering::SeqCst);
        std::mem::take(&mut all.open).into_iter().map(|(object, open)| (object, open.times)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId(7);
    const OTHER: ObjectId = ObjectId(8);
    const READ_ONLY: Opening = Opening { reads: true, writes: false, appends: false, direct: false };
    const WRITE_ONLY: Opening = Opening { reads: false, writes: true, appends: false, direct: false };
    const READ_WRITE: Opening = Opening { reads: true, writes: true, appends: false, direct: false };
    const DIRECT: Opening = Opening { direct: true, ..READ_WRITE };
    const CAN: Passing = Passing { can_pass: true, every_read: false };

    /// Opens it, and says whether past the cache.
    fn opened(opens: &Opens, object: ObjectId, opening: Opening, passing: Passing) -> bool {
        opens.add(object, opening, passing).expect("it may be opened").is_past()
    }

    #[test]
    fn a_lone_writer_goes_past_the_cache_and_who_comes_meanwhile_too() {
        let opens = Opens::default();
        assert!(opened(&opens, FILE, WRITE_ONLY, CAN));
        assert!(opened(&opens, FILE, READ_ONLY, CAN));
        assert!(opens.remove(FILE, WRITE_ONLY, true));
        // Nobody writes past the cache now.
        assert!(!opened(&opens, FILE, READ_ONLY, CAN));
        // Others have it open.
        assert!(!opened(&opens, FILE, WRITE_ONLY, CAN));
        assert!(!opened(&opens, OTHER, READ_WRITE, CAN) && opens.remove(OTHER, READ_WRITE, false));
        assert!(!opened(&opens, OTHER, WRITE_ONLY, Passing::default()));
    }

    #[test]
    fn after_the_end_nothing_is_open_and_nothing_is_opened() {
        let opens = Opens::default();
        (0..3).for_each(|_| _ = opened(&opens, FILE, WRITE_ONLY, CAN));
        assert_eq!(opens.close_all(), vec![(FILE, 3)]);
        assert_eq!(opens.passed.load(Ordering::SeqCst), 0);
        assert!(!opens.remove(FILE, WRITE_ONLY, true));
        assert_eq!(opens.add(FILE, READ_ONLY, CAN), None);
        assert_eq!(opens.close_all(), vec![]);
    }

    #[test]
    fn one_who_reads_and_writes_beside_a_writer_counts_as_one() {
        let opens = Opens::default();
        let (first, second) = (opened(&opens, FILE, WRITE_ONLY, CAN), opened(&opens, FILE, READ_WRITE, CAN));
        assert!(opens.remove(FILE, WRITE_ONLY, first) && second);
        assert!(opened(&opens, FILE, READ_ONLY, CAN));
    }

    #[test]
    fn contents_are_stale_only_where_they_were_read_beside_such_a_writer() {
        let opens = Opens::default();
        opens.note_cached(FILE);
        let writer = opened(&opens, FILE, WRITE_ONLY, CAN);
        assert!(!opens.leaves_stale_contents(FILE));
        opens.note_cached(OTHER);
        assert!(!opens.leaves_stale_contents(FILE));
        opens.note_cached(FILE);
        assert!(opens.leaves_stale_contents(FILE));
        opens.remove(FILE, WRITE_ONLY, writer);
        assert_eq!(opens.passed.load(Ordering::SeqCst), 0);

        // One who says so himself, beside readers.
        let reader = opened(&opens, FILE, READ_ONLY, CAN);
        opens.note_cached(FILE);
        let direct = opened(&opens, FILE, DIRECT, CAN);
        assert!(!opens.leaves_stale_contents(FILE));
        opens.note_cached(FILE);
        assert!(opens.leaves_stale_contents(FILE));
        opens.remove(FILE, DIRECT, direct);
        opens.remove(FILE, READ_ONLY, reader);
        assert_eq!(opens.passed.load(Ordering::SeqCst), 0);

        // One who says so later.
        let (reader, late) = (opened(&opens, FILE, READ_ONLY, CAN), opened(&opens, FILE, READ_WRITE, CAN));
        opens.note_cached(FILE);
        assert!(opens.leaves_stale_contents(FILE));
        opens.remove(FILE, DIRECT, late);
        opens.remove(FILE, READ_ONLY, reader);
        assert_eq!(opens.passed.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn whose_reads_are_all_heard_of_goes_past_the_cache_beside_others() {
        let opens = Opens::default();
        let all = Passing { every_read: true, ..CAN };
        assert!(!opened(&opens, FILE, READ_ONLY, CAN));
        assert!(opened(&opens, FILE, READ_WRITE, all) && opened(&opens, FILE, READ_ONLY, all));
        // The contents of who came before.
        opens.note_cached(FILE);
        assert!(opens.leaves_stale_contents(FILE));
        let heard = Passing { every_read: true, ..Passing::default() };
        assert_eq!(opens.add(OTHER, READ_ONLY, heard), Some(Caching::Anew));
    }

    #[test]
    fn contents_are_changed_only_by_who_may_read_and_write() {
        let opens = Opens::default();
        let (reader, writer) = (opened(&opens, FILE, READ_ONLY, CAN), opened(&opens, FILE, WRITE_ONLY, CAN));
        assert!(!opens.may_have_changed(FILE));
        let both = opened(&opens, FILE, READ_WRITE, CAN);
        opens.remove(FILE, WRITE_ONLY, writer);
        assert!(opens.may_have_changed(FILE));
        opens.remove(FILE, READ_WRITE, both);
        assert!(!opens.may_have_changed(FILE));
        opens.remove(FILE, READ_ONLY, reader);
    }
}
