//! Damage that readers came across and that is not on disk yet, and a bell for who writes it down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::lost::Lost;

/// Damage that is not on disk yet.
#[derive(Debug, Default)]
pub struct NewDamage {
    is_there: AtomicBool,
    /// What is to be looked for in other data sets before.
    pub found: Mutex<Lost>,
    /// Rung when there is some.
    pub noted: Arc<Notify>,
}

impl NewDamage {
    /// Some more is known.
    pub fn comes(&self) {
        self.is_there.store(true, Ordering::Release);
        self.noted.notify_one();
    }

    /// Whether there is any.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// What was being written is not on disk: whoever looks next is to write it.
    pub fn is_kept(&self) {
        self.is_there.store(true, Ordering::Release);
    }

    /// All that is known is being written.
    pub fn is_written(&self) {
        self.is_there.store(false, Ordering::Release);
    }
}
