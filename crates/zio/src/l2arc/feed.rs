//! What waits to be written to the cache devices.
//!
//! Invariants:
//! - whoever offers a block waits for nothing: what there is no room for is left out;
//! - what waits takes no more memory than [`Feed::set_most`] allows.

use std::collections::VecDeque;

use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, ObjectId};

use crate::cache::Key;

/// A block that may be worth a place on a cache device.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: Key,
    pub(crate) bp: BlkPtr,
    /// The object set that it was read or written for.
    pub(crate) objset: ObjectId,
    /// As it is stored, verified.
    pub(crate) stored: Buf,
}

/// How a block came into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was read from the pool's devices: memory did not have it, so it may not have it the next time.
    Read,
    /// It was written.
    Written,
}

#[derive(Default)]
struct Waiting {
    candidates: VecDeque<Candidate>,
    bytes: u64,
    most: u64,
    /// Whether something was left out since somebody last asked.
    is_short: bool,
}

/// The blocks that wait, the first that came first.
#[derive(Default)]
pub(crate) struct Feed(Mutex<Waiting>);

impl Feed {
    /// Lets so many bytes wait at most.
    pub(crate) fn set_most(&self, bytes: u64) {
        self.0.lock().most = bytes;
    }

    /// Takes a block in, if there is room. What was written has half of it: a burst of writes must not keep out what
    /// somebody had to wait for.
    pub(crate) fn offer(&self, candidate: Candidate, origin: Origin) -> bool {
        let mut waiting = self.0.lock();
        let most = if origin == Origin::Read { waiting.most } else { waiting.most / 2 };
        let bytes = waiting.bytes + candidate.stored.len() as u64;
        if bytes > most {
            waiting.is_short = true;
            return false;
        }
        waiting.bytes = bytes;
        waiting.candidates.push_back(candidate);
        assert!(waiting.bytes <= waiting.most, "no more waits than may");
        true
    }

    /// The next block, if `fits` says that there is room for it.
    pub(crate) fn next_if(&self, fits: impl FnOnce(&Candidate) -> bool) -> Option<Candidate> {
        let mut waiting = self.0.lock();
        let candidate = waiting.candidates.front().filter(|candidate| fits(candidate))?.clone();
        waiting.candidates.pop_front();
        waiting.bytes -= candidate.stored.len() as u64;
        Some(candidate)
    }

    /// Whether there was no room for something since this was last asked.
    pub(crate) fn was_short(&self) -> bool {
        std::mem::take(&mut self.0.lock().is_short)
    }

    /// Forgets all of them.
    pub(crate) fn clear(&self) {
        let mut waiting = self.0.lock();
        (waiting.candidates, waiting.bytes) = (VecDeque::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(offset: u64) -> Candidate {
        let key = Key { vdev: 0, offset, birth: 1 };
        Candidate { key, bp: BlkPtr::HOLE, objset: ObjectId(5), stored: Buf::zeroed(4096) }
    }

    #[test]
    fn what_waits_is_bounded_and_writes_leave_room_for_reads() {
        let feed = Feed::default();
        assert!(!feed.offer(candidate(0), Origin::Read), "nothing is wanted yet");
        feed.set_most(16 << 10);
        let taken = |origin| (0..10).filter(|&n| feed.offer(candidate(n), origin)).count();
        assert_eq!((taken(Origin::Written), taken(Origin::Read)), (2, 2));
        assert!(feed.next_if(|_| false).is_none());
        assert_eq!(feed.next_if(|_| true).map(|first| first.key.offset), Some(0));
        assert_eq!(taken(Origin::Read), 1);
        assert!(feed.was_short() && !feed.was_short());
        feed.clear();
        assert!(feed.next_if(|_| true).is_none());
    }
}
