//! What is done for guests (other users than the daemon's owner) at one time: little, so that none of them keeps it
//! from the others.
//!
//! Invariant: what is done counts until it is done, whether its command is still there or not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use platter_dsl::permissions::Asker as Guest;
use tokio::sync::OwnedSemaphorePermit;

/// What is done for guests at one time, streams among it.
const WORK_MAX: usize = 32;
/// What is done for one of them.
const WORK_OF_USER_MAX: usize = 4;

/// What is done for guests at this moment, by user.
#[derive(Clone, Default)]
pub struct Guests(Arc<Mutex<BTreeMap<u32, usize>>>);

/// Something is done for a guest.
pub struct Working {
    guests: Guests,
    user: u32,
    connection: Arc<Use>,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.connection.working.fetch_sub(1, Ordering::Relaxed);
        let mut guests = self.guests.0.lock();
        if let Some(count) = guests.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&self.user);
            }
        }
    }
}

/// How a connection is used.
struct Use {
    /// What is done for it: as long as there is something it does not end.
    working: AtomicUsize,
    /// Its place among those who look.
    slot: Mutex<Option<OwnedSemaphorePermit>>,
}

/// Who is at the other end of a connection.
#[derive(Clone)]
pub struct Peer {
    /// Who it is.
    pub guest: Guest,
    guests: Guests,
    connection: Arc<Use>,
}

impl Peer {
    /// Somebody who has just connected, in this place.
    pub fn new(guest: Guest, guests: Guests, slot: OwnedSemaphorePermit) -> Self {
        let connection = Arc::new(Use { working: AtomicUsize::new(0), slot: Mutex::new(Some(slot)) });
        Self { guest, guests, connection }
    }

    /// Whether something is done for it.
    pub fn is_working(&self) -> bool {
        self.connection.working.load(Ordering::Relaxed) > 0
    }

    /// A place for what is to be done; none when there is none.
    pub fn begin_work(&self) -> Option<Working> {
        let mut guests = self.guests.0.lock();
        let all: usize = guests.values().sum();
        let own = guests.entry(self.guest.uid).or_insert(0);
        if *own >= WORK_OF_USER_MAX || all >= WORK_MAX {
            guests.retain(|_, count| *count > 0);
            return None;
        }
        *own += 1;
        assert!(*own <= WORK_OF_USER_MAX && all < WORK_MAX, "what is done for guests is bounded");
        drop(guests);
        self.connection.working.fetch_add(1, Ordering::Relaxed);
        // Others may look meanwhile.
        *self.connection.slot.lock() = None;
        Some(Working { guests: self.guests.clone(), user: self.guest.uid, connection: self.connection.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_done_for_guests_is_little_at_a_time() {
        let slots = Arc::new(tokio::sync::Semaphore::new(100));
        let guests = Guests::default();
        let peer = |uid| {
            let slot = slots.clone().try_acquire_owned().unwrap();
            Peer::new(Guest { uid, ..Guest::default() }, guests.clone(), slot)
        };
        let joe = peer(1);
        let mut working: Vec<Working> = (0..WORK_OF_USER_MAX).map(|_| joe.begin_work().expect("a place")).collect();
        assert!(joe.begin_work().is_none() && peer(1).begin_work().is_none(), "no more of one user");
        assert_eq!(slots.available_permits(), 100, "his place is another's");
        working.extend((2..90).map_while(|uid| peer(uid).begin_work()));
        assert_eq!(working.len(), WORK_MAX, "no more of all");
        working.clear();
        assert!(guests.0.lock().is_empty() && !joe.is_working());
        assert!(joe.begin_work().is_some());
    }
}
