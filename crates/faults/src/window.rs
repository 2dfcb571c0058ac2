//! How many events there were lately (`cmd/zed/agents/fmd_serd.c`, with a bound on what is remembered).
//!
//! Invariants: events are noted in the order in which they happened; of a window of any length no more than
//! `BUCKETS_MAX` times are remembered.

use std::collections::VecDeque;
use std::time::Duration;

/// Times that are remembered: a window of ten minutes is exact to the second.
const BUCKETS_MAX: u32 = 600;

/// The events of one kind of one device. Times are since any beginning.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// When, and how many, oldest first.
    events: VecDeque<(Duration, u64)>,
}

impl Window {
    /// Notes so many events.
    pub fn note(&mut self, now: Duration, count: u64, within: Duration) {
        self.forget_older(now, within);
        let width = within / BUCKETS_MAX;
        match self.events.back_mut() {
            Some((since, before)) if now.saturating_sub(*since) < width => *before = before.saturating_add(count),
            _ => self.events.push_back((now, count)),
        }
        assert!(self.events.len() <= BUCKETS_MAX as usize + 2, "what is remembered is bounded");
        assert!(self.events.iter().is_sorted_by_key(|(at, _)| *at), "events come in their order");
    }

    fn forget_older(&mut self, now: Duration, within: Duration) {
        while self.events.front().is_some_and(|(at, _)| now.saturating_sub(*at) > within) {
            self.events.pop_front();
        }
    }

    /// How many there were within that time.
    pub fn count(&self, now: Duration, within: Duration) -> u64 {
        let recent = self.events.iter().filter(|(at, _)| now.saturating_sub(*at) <= within);
        recent.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
    }

    /// When the last one was.
    pub fn last(&self) -> Option<Duration> {
        self.events.back().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_what_is_recent_counts() {
        let mut window = Window::default();
        for second in [0, 100, 200, 700] {
            window.note(s(second), 2, s(600));
        }
        assert_eq!((window.count(s(700), s(600)), window.count(s(800), s(600))), (6, 4));
        assert_eq!(window.count(s(2000), s(600)), 0);
        assert_eq!(window.last(), Some(s(700)));
    }

    #[test]
    fn a_window_of_any_length_is_bounded() {
        for within in [s(1), s(600), s(86_400), s(u64::MAX)] {
            let mut window = Window::default();
            for second in 0..5000 {
                window.note(s(second), u64::MAX / 2, within);
            }
            assert!(window.events.len() <= 602, "{within:?}");
            assert!(window.count(s(4999), within) >= u64::MAX / 2);
        }
    }
}
