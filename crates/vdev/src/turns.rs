//! Who may work on which bytes of a top-level vdev while ranges of it are copied from one side to another.
//!
//! Invariants:
//! - while a range is copied nothing is written there, and nothing is copied where something is being written: what a
//!   copy writes is never older than what it finds;
//! - who writes takes no turn, and no lock, as long as nobody copies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// First byte and length.
type Range = (u64, u64);

/// What somebody does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Write,
    Copy,
}

#[derive(Debug, Default)]
struct Held {
    /// Turns so far.
    last: u64,
    /// Who has one.
    turns: BTreeMap<u64, (Work, Range)>,
}

impl Held {
    /// Whether somebody who does something else has part of the range.
    fn is_taken(&self, work: Work, (start, length): Range) -> bool {
        let meets = |(from, size): Range| from < start + length && start < from + size;
        self.turns.values().any(|(other, range)| *other != work && meets(*range))
    }
}

/// The turns of one top-level vdev.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// How many have ranges copied.
    copying: AtomicUsize,
    held: Mutex<Held>,
    changed: Notify,
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.held.lock().turns.remove(&self.number);
        self.turns.changed.notify_waiters();
    }
}

impl Turns {
    /// From now on who writes takes turns. What began before has none.
    pub(crate) fn begin_copies(&self) {
        self.copying.fetch_add(1, Ordering::SeqCst);
    }

    /// The counterpart of [`begin_copies`](Self::begin_copies).
    pub(crate) fn end_copies(&self) {
        let before = self.copying.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "copies end once for each time that they began");
    }

    /// Whether ranges are copied.
    pub(crate) fn are_taken(&self) -> bool {
        self.copying.load(Ordering::SeqCst) > 0
    }

    /// A turn for a write, when anybody copies.
    pub(crate) async fn write(&self, range: Range) -> Option<Turn<'_>> {
        if !self.are_taken() {
            return None;
        }
        Some(self.enter(Work::Write, range).await)
    }

    /// A turn for a copy.
    pub(crate) async fn copy(&self, range: Range) -> Turn<'_> {
        self.enter(Work::Copy, range).await
    }

    async fn enter(&self, work: Work, range: Range) -> Turn<'_> {
        loop {
            // What ends after this line is heard of.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let mut held = self.held.lock();
                if !held.is_taken(work, range) {
                    held.last += 1;
                    let number = held.last;
                    held.turns.insert(number, (work, range));
                    return Turn { turns: self, number };
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_copy_and_a_write_of_one_byte_come_one_after_the_other() {
        let turns = Turns::default();
        assert!(turns.write((0, 10)).await.is_none(), "nobody copies");
        turns.begin_copies();
        let copy = turns.copy((100, 50)).await;
        let beside = turns.write((150, 10)).await;
        let other = turns.write((90, 10)).await;
        assert!(turns.write((149, 1)).now_or_never().is_none() && turns.write((0, 101)).now_or_never().is_none());
        assert!(turns.copy((120, 10)).now_or_never().is_some(), "copies do not disturb each other");
        drop(copy);
        let write = turns.write((100, 1)).await;
        assert!(turns.copy((0, 1000)).now_or_never().is_none());
        drop((write, beside, other));
        assert!(turns.copy((0, 1000)).now_or_never().is_some());
        turns.end_copies();
        assert!(turns.write((0, 10)).await.is_none());
    }

    #[tokio::test]
    async fn who_waits_hears_of_the_end() {
        let turns = std::sync::Arc::new(Turns::default());
        turns.begin_copies();
        let copy = turns.copy((0, 10)).await;
        let waiting = {
            let turns = turns.clone();
            tokio::spawn(async move { turns.write((5, 1)).await.is_some() })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(copy);
        assert!(waiting.await.expect("no panic"));
    }
}
