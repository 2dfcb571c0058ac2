//! How fast something goes lately.
//!
//! Invariants: samples are in the order of their times, and none but the newest is alone in more than the window.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time that counts as lately.
const WINDOW: Duration = Duration::from_secs(30);
/// The shortest time that says anything.
const LEAST: Duration = Duration::from_secs(1);
/// Samples nearer to each other than this are one.
const STEP: Duration = Duration::from_millis(200);

/// Amounts at moments.
#[derive(Debug, Default)]
pub(super) struct Meter(VecDeque<(Instant, u64)>);

impl Meter {
    /// Notes how much is done by now, and tells the amount a second; 0 while that is unknown.
    pub fn note(&mut self, now: Instant, done: u64) -> u64 {
        // Something began anew.
        if self.0.back().is_some_and(|(_, before)| *before > done) {
            self.0.clear();
        }
        // Many may look at once: the newest look counts.
        if self.0.len() > 1 && self.0.back().is_some_and(|(time, _)| now.saturating_duration_since(*time) < STEP) {
            self.0.pop_back();
        }
        let last = self.0.back().map_or(now, |(time, _)| *time);
        self.0.push_back((now.max(last), done));
        while self.0.len() > 2 && self.0[1].0 + WINDOW <= now {
            self.0.pop_front();
        }
        debug_assert!(self.0.iter().is_sorted(), "times and amounts only grow");
        let (first, last) = (self.0[0], self.0[self.0.len() - 1]);
        let time = last.0 - first.0;
        if time < LEAST { 0 } else { ((last.1 - first.1) as f64 / time.as_secs_f64()) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_while_counts() {
        let (mut meter, start) = (Meter::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(meter.note(at(0), 0), 0);
        assert_eq!(meter.note(at(0), 5), 0);
        assert_eq!(meter.note(at(10), 1000), 100);
        for second in 11..100 {
            meter.note(at(second), 1000 + (second - 10) * 10);
        }
        assert_eq!(meter.note(at(100), 1900), 10, "the fast beginning is forgotten");
        assert_eq!(meter.note(at(101), 3), 0, "another one began");
    }
}
