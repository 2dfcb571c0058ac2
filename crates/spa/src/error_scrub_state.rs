//! The state of a scrub of known errors ([`crate::error_scrub`]): what is on disk of it, and whether it runs here.

use std::sync::Arc;

use platter_api::report::ErrorScrubReport;
use platter_dsl::error::PoolError;
use platter_ondisk::dsl::{ErrorScrubPhys, scan_func, scan_state};
use tokio::sync::Notify;

/// An error scrub in memory.
#[derive(Default)]
pub struct ErrorScrub {
    /// As on disk.
    pub phys: ErrorScrubPhys,
    /// Whether one is under way in this process.
    pub running: bool,
    /// Whether it is to end at the end of the slice.
    pub halted: bool,
    /// When it was paused, in seconds since the epoch.
    pub pause_time: u64,
    /// Woken when it ends.
    pub done: Arc<Notify>,
}

impl ErrorScrub {
    /// What was on disk.
    pub fn loaded(mut phys: ErrorScrubPhys) -> Self {
        if phys.state == scan_state::ERRORSCRUBBING {
            // It begins anew: what was found whole is off the list.
            (phys.cursor, phys.examined, phys.errors) = (0, 0, 0);
        }
        Self { phys, ..Self::default() }
    }

    /// Whether it has begun and not ended, be it paused.
    pub fn is_under_way(&self) -> bool {
        self.phys.func == scan_func::ERRORSCRUB && self.phys.state == scan_state::ERRORSCRUBBING
    }

    /// Whether somebody paused it.
    pub fn is_paused(&self) -> bool {
        self.is_under_way() && self.phys.paused_flags != 0
    }

    /// Refuses what cannot be beside it.
    ///
    /// # Errors
    /// [`PoolError::Busy`] while it is under way or paused.
    pub fn check_none(&self) -> std::result::Result<(), PoolError> {
        match (self.is_under_way(), self.is_paused()) {
            (_, true) => {
                Err(PoolError::Busy("error scrub is paused; use 'zpool scrub -e' to resume error scrub".into()))
            }
            (true, _) => {
                Err(PoolError::Busy("currently error scrubbing; use 'zpool scrub -s' to cancel error scrub".into()))
            }
            _ => Ok(()),
        }
    }

    /// None is under way in this process any more.
    pub fn stand_still(&mut self) {
        self.running = false;
        self.done.notify_waiters();
    }

    /// What `zpool status` shows.
    pub fn report(&self) -> ErrorScrubReport {
        let state = match self.phys.state {
            _ if self.phys.func != scan_func::ERRORSCRUB => "none",
            scan_state::ERRORSCRUBBING if self.is_paused() => "paused",
            scan_state::ERRORSCRUBBING => "scanning",
            scan_state::FINISHED => "finished",
            scan_state::CANCELED => "canceled",
            _ => "none",
        };
        ErrorScrubReport {
            state: state.into(),
            start_time: self.phys.start_time,
            end_time: self.phys.end_time,
            pause_time: self.pause_time,
            to_examine: self.phys.to_examine,
            examined: self.phys.examined,
        }
    }
}
