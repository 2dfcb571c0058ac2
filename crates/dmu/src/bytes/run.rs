//! Notices a file that is written from one place on without end: what a cache would keep of it is gone from there
//! before anybody asks for it again, and memory for that has to be found first, which costs as much as the writing.

/// Bytes after which a run is long: what is written beyond is not kept.
const LONG: u64 = 16 << 20;
/// Writes that overtake each other by up to so many bytes are of one run.
const NEAR: u64 = 8 << 20;

/// Where the latest writes to a file led.
#[derive(Debug, Default)]
pub struct Run {
    /// Where the next write is expected, in bytes.
    next: u64,
    /// Bytes written on the way there.
    length: u64,
}

impl Run {
    /// Takes note of a write of `offset..end`; whether it belongs to a long run.
    pub fn goes_on(&mut self, offset: u64, end: u64) -> bool {
        if offset.abs_diff(self.next) > NEAR {
            *self = Self { next: offset, length: 0 };
        }
        let is_long = self.length >= LONG;
        self.length = self.length.saturating_add(end.saturating_sub(self.next));
        self.next = self.next.max(end);
        is_long
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_long_after_a_while_and_ends_with_a_jump() {
        const MIB: u64 = 1 << 20;
        let mut run = Run::default();
        assert!((0..16).all(|at| !run.goes_on(at * MIB, (at + 1) * MIB)));
        // One overtook another.
        assert!(run.goes_on(17 * MIB, 18 * MIB) && run.goes_on(16 * MIB, 17 * MIB));
        assert!(!run.goes_on(100 * MIB, 101 * MIB));
    }

    #[test]
    fn the_same_place_again_and_again_is_no_run() {
        let mut run = Run::default();
        assert!((0..1000).all(|_| !run.goes_on(0, 1 << 20)));
        assert!(!run.goes_on(u64::MAX - 1, u64::MAX));
    }
}
