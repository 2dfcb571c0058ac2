//! Memory that large transfers take while they are under way: whoever would take more than there is waits his turn.
//!
//! Invariants:
//! - all transfers under way together take no more than the limit, but for one that is alone: so whatever the limit is,
//!   it goes on;
//! - they begin in the order in which they came, so that a large one is not passed over for ever by smaller ones;
//! - what is taken is the sum of what those under way were let in with.
//!
//! Whoever was let in must wait for devices and processors only, never for another one to be let in.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Bytes of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Memory {
    /// Bytes.
    pub bytes: u64,
}

/// See the module text.
#[derive(Debug)]
pub struct InFlight {
    state: Mutex<State>,
    /// Held by whoever is the next.
    turn: tokio::sync::Mutex<()>,
    /// Woken when there is more room.
    room: Notify,
}

#[derive(Debug)]
struct State {
    most: Memory,
    taken: Memory,
}

/// A transfer under way. Its memory counts until this is dropped.
#[derive(Debug)]
pub struct Admitted<'a> {
    all: &'a InFlight,
    memory: Memory,
}

impl InFlight {
    /// All transfers together may take so much.
    pub fn new(most: Memory) -> Self {
        let state = Mutex::new(State { most, taken: Memory::default() });
        Self { state, turn: tokio::sync::Mutex::default(), room: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All transfers together may take so much from now on.
    pub fn set_most(&self, most: Memory) {
        self.state().most = most;
        self.room.notify_one();
    }

    /// What all transfers together may take.
    pub fn most(&self) -> Memory {
        self.state().most
    }

    /// What those under way take.
    pub fn taken(&self) -> Memory {
        self.state().taken
    }

    /// Waits until a transfer that takes so much may begin.
    pub async fn admit(&self, memory: Memory) -> Admitted<'_> {
        let _turn = self.turn.lock().await;
        while !self.take(memory) {
            self.room.notified().await;
        }
        Admitted { all: self, memory }
    }

    fn take(&self, memory: Memory) -> bool {
        let mut state = self.state();
        let taken = state.taken.bytes.saturating_add(memory.bytes);
        let fits = state.taken.bytes == 0 || taken <= state.most.bytes;
        if fits {
            let is_alone = state.taken.bytes == 0;
            state.taken.bytes = taken;
            assert!(is_alone || state.taken <= state.most, "{taken:?} bytes are under way");
        }
        fits
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut state = self.all.state();
        let left = state.taken.bytes.checked_sub(self.memory.bytes);
        debug_assert!(left.is_some() || std::thread::panicking(), "a transfer gives back what it took, once");
        state.taken.bytes = left.unwrap_or(0);
        drop(state);
        self.all.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn one_alone_may_be_too_large_and_nobody_is_passed_over() {
        let all = InFlight::new(Memory { bytes: 10 });
        let admit = |bytes| Box::pin(all.admit(Memory { bytes }));
        let large = admit(100).now_or_never().expect("it is alone");
        let mut second = admit(9);
        let mut third = admit(1);
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(large);
        assert!((&mut third).now_or_never().is_none(), "the second is before it");
        let second = (&mut second).now_or_never().expect("there is room");
        let third = (&mut third).now_or_never().expect("there is room");
        assert!(admit(1).now_or_never().is_none());
        assert_eq!(all.taken(), Memory { bytes: 10 });
        drop((second, third));
        assert_eq!(all.taken(), Memory::default());
    }

    #[test]
    fn more_room_lets_others_in() {
        let all = InFlight::new(Memory { bytes: 1 });
        let first = all.admit(Memory { bytes: 1 }).now_or_never().expect("it is alone");
        let mut second = Box::pin(all.admit(Memory { bytes: 5 }));
        assert!((&mut second).now_or_never().is_none());
        all.set_most(Memory { bytes: 6 });
        assert!((&mut second).now_or_never().is_some());
        drop(first);
    }
}
