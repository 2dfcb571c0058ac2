//! What is open, and which of it goes past the kernel's page cache.
//!
//! Who opens a file only to write it gains nothing from the page cache: each byte would be copied once more, into
//! memory that has to be found first. So a file that nobody else has open is written past it.
//!
//! Invariants:
//! - while somebody writes past the cache, whoever else opens the file goes past it too: nobody reads from pages what
//!   has been written over behind them. The pages that remain belong to mappings; these are noted, and the kernel is
//!   told to forget them after each such write;
//! - what was open before the writer came stays in the cache, and the writer with it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use platter_ondisk::ObjectId;
use platter_transport::OpenFlags;

use crate::terms::{PAST_CACHE, how_alone, may_write};

/// One object.
#[derive(Debug, Default)]
struct Open {
    times: u64,
    /// Those that may write past the page cache.
    writers_past_cache: u64,
    /// Pages of it were read all the same.
    mapped: bool,
}

/// The open objects of a mount.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    all: Mutex<BTreeMap<ObjectId, Open>>,
}

impl Opens {
    /// `object` is open once more, with these `flags`; how that is to be answered, where the kernel lets files that
    /// are open past its cache be mapped (`can_pass`).
    pub fn add(&self, object: ObjectId, flags: i32, can_pass: bool) -> OpenFlags {
        let mut all = self.all.lock();
        let open = all.entry(object).or_default();
        let how = match open.times {
            _ if !can_pass => OpenFlags::KEEP_CACHE,
            0 => how_alone(flags),
            _ if open.writers_past_cache > 0 => PAST_CACHE,
            _ => OpenFlags::KEEP_CACHE,
        };
        open.times += 1;
        open.writers_past_cache += u64::from(writes_past_cache(flags, how));
        how
    }

    /// `object` is open once less, of the times that these `flags` were answered so; whether it was open at all.
    pub fn remove(&self, object: ObjectId, flags: i32, how: OpenFlags) -> bool {
        let mut all = self.all.lock();
        let Some(open) = all.get_mut(&object) else { return false };
        let writer = u64::from(writes_past_cache(flags, how));
        open.writers_past_cache = open.writers_past_cache.saturating_sub(writer);
        open.times -= 1;
        if open.times == 0 {
            all.remove(&object);
        }
        true
    }

    /// Pages of `object` are about to be read.
    pub fn note_pages(&self, object: ObjectId) {
        if let Some(open) = self.all.lock().get_mut(&object).filter(|open| open.writers_past_cache > 0) {
            open.mapped = true;
        }
    }

    /// Whether the kernel may have pages of `object` from before a write past them that is done now.
    pub fn has_stale_pages(&self, object: ObjectId) -> bool {
        self.all.lock().get(&object).is_some_and(|open| open.mapped && open.writers_past_cache > 0)
    }

    /// Forgets all of them, and says how often each was open.
    pub fn take(&self) -> Vec<(ObjectId, u64)> {
        std::mem::take(&mut *self.all.lock()).into_iter().map(|(object, open)| (object, open.times)).collect()
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

    fn passes(how: OpenFlags) -> bool {
        how.contains(OpenFlags::DIRECT_IO)
    }

    #[test]
    fn a_lone_writer_goes_past_the_cache_and_who_comes_meanwhile_too() {
        let opens = Opens::default();
        let writer = opens.add(FILE, WRITE_ONLY, true);
        let reader = opens.add(FILE, READ_ONLY, true);
        assert!(passes(writer) && passes(reader));
        assert!(opens.remove(FILE, WRITE_ONLY, writer));
        // Nobody writes past the cache now.
        assert!(!passes(opens.add(FILE, READ_ONLY, true)));
        // Others have it open.
        assert!(!passes(opens.add(FILE, WRITE_ONLY, true)));
        assert_eq!(opens.take(), vec![(FILE, 3)]);
        assert!(!opens.remove(FILE, READ_ONLY, reader));
        assert!(!passes(opens.add(FILE, READ_WRITE, true)) && !passes(opens.add(ObjectId(8), WRITE_ONLY, false)));
    }

    #[test]
    fn one_who_reads_and_writes_beside_a_writer_counts_as_one() {
        let opens = Opens::default();
        let (first, second) = (opens.add(FILE, WRITE_ONLY, true), opens.add(FILE, READ_WRITE, true));
        assert!(opens.remove(FILE, WRITE_ONLY, first) && passes(second));
        assert!(passes(opens.add(FILE, READ_ONLY, true)));
    }

    #[test]
    fn pages_are_stale_only_where_a_mapping_read_them_beside_such_a_writer() {
        let opens = Opens::default();
        opens.note_pages(FILE);
        let writer = opens.add(FILE, WRITE_ONLY, true);
        assert!(!opens.has_stale_pages(FILE));
        opens.note_pages(FILE);
        assert!(opens.has_stale_pages(FILE));
        opens.remove(FILE, WRITE_ONLY, writer);
        assert!(!opens.has_stale_pages(FILE));
    }
}
