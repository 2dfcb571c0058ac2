//! How far is measured: sizes, and the time there is for them.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::scenario::Context;
use crate::systems::{Layout, Platter, Shape};

/// Bytes of a sparse file for what takes little room.
const SPARSE: u64 = 64 << 30;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Names in a directory at most.
    pub names: u64,
    /// GiB in a pool at most.
    pub gib: u64,
    /// File systems in a pool at most.
    pub datasets: u64,
    /// For everything together.
    pub time: Duration,
}

/// The end of the time that something has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(pub(super) Instant);

impl Clock {
    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether there is time for something that takes `factor` times as long as what was done since `start`.
    pub(super) fn has_time_for(self, factor: u32, start: Instant) -> bool {
        start.elapsed() * factor < self.left()
    }

    pub(super) fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// Sizes to measure at: `first`, then each `factor` times the one before, up to `most`.
pub(super) fn steps(first: u64, factor: u32, most: u64) -> impl Iterator<Item = u64> {
    let all = std::iter::successors(Some(first), move |size| size.checked_mul(factor.into()));
    all.take_while(move |size| *size <= most)
}

/// Has `make` make number after number until there are `step` of them; `false` when the time was over before.
pub(super) fn make_up_to(
    step: u64,
    made: &mut u64,
    clock: Clock,
    mut make: impl FnMut(u64) -> Result<()>,
) -> Result<bool> {
    while *made < step && !clock.is_over() {
        make(*made)?;
        *made += 1;
    }
    Ok(*made >= step)
}

/// A new pool on one large sparse file, with blocks of `record` bytes.
pub(super) fn sparse_pool(platter: &mut Platter, context: &Context, record: u64, more: &[&str]) -> Result<()> {
    let shape = Shape { layout: Layout::Single, record, device: SPARSE, under: context.under.clone() };
    platter.create_with(&shape, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_made_one_by_one_while_there_is_time() {
        assert_eq!(steps(100, 10, 10_000).collect::<Vec<_>>(), [100, 1000, 10_000]);
        assert_eq!(steps(1, 4, 63).collect::<Vec<_>>(), [1, 4, 16]);
        let (mut made, mut all) = (0, Vec::new());
        let clock = Clock(Instant::now() + Duration::from_secs(50));
        for step in [2, 5] {
            let make = |number| {
                all.push(number);
                Ok(())
            };
            assert!(make_up_to(step, &mut made, clock, make).expect("nothing fails"));
        }
        assert_eq!((made, all), (5, vec![0, 1, 2, 3, 4]));
        assert!(!make_up_to(6, &mut made, Clock(Instant::now()), |_| Ok(())).expect("nothing fails"));
    }

    #[test]
    fn what_would_take_too_long_is_not_begun() {
        let start = Instant::now() - Duration::from_secs(10);
        let clock = Clock(Instant::now() + Duration::from_secs(50));
        assert!(clock.has_time_for(4, start) && !clock.has_time_for(10, start) && !clock.is_over());
        assert!(Clock(start).is_over());
    }
}
