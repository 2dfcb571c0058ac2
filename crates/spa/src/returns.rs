//! When a device that was away is opened again: at once when something else is at its path than was opened there last,
//! then ever more rarely. What is there may be another device, or have lost its labels, for days.

use std::time::Duration;

use platter_device::Stamp;
use tokio::time::Instant;

use crate::autoreplace;
use crate::core::Core;
use crate::path_look;
use crate::place::PlacedLeaf;

/// How often a path is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// When the same thing is opened again at the earliest, and at the latest.
const SOON: Duration = Duration::from_secs(30);
const RARELY: Duration = Duration::from_secs(300);

/// What is at a device's path, or where a new one would be that may take its place.
pub type There = (Option<Stamp>, Option<Stamp>);

/// Looks at the paths of a device; no device is opened for that.
pub async fn look(core: &Core, place: &PlacedLeaf) -> There {
    let own = std::path::PathBuf::from(place.config.path.as_deref().unwrap_or_default());
    let own = path_look::stamp(&*core.environment.devices, &own).await;
    (own, autoreplace::look(core, place).await)
}

/// Of one device; see the module's text.
#[derive(Default)]
pub struct Returns {
    looked: Option<Instant>,
    opened: Option<(Instant, There)>,
    pause: Duration,
}

impl Returns {
    /// Whether it is time for a [`look`], which is taken then.
    pub fn wants_look(&mut self, now: Instant) -> bool {
        let wants = self.looked.is_none_or(|looked| now - looked >= LOOK);
        if wants {
            self.looked = Some(now);
        }
        wants
    }

    /// Whether what is `there` is to be opened, which is done then.
    pub fn is_due(&mut self, there: There, now: Instant) -> bool {
        if there == (None, None) {
            *self = Self { looked: self.looked, ..Self::default() };
            return false;
        }
        match &self.opened {
            Some((last, was)) if *was == there && now - *last < self.pause => return false,
            Some((_, was)) if *was == there => self.pause = (self.pause * 2).min(RARELY),
            _ => self.pause = SOON,
        }
        self.opened = Some((now, there));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it is due, of the seconds from one up to before another, looked at every five.
    fn due(returns: &mut Returns, start: Instant, seconds: std::ops::Range<u64>, there: Option<Stamp>) -> Vec<u64> {
        let mut due = |second: &u64| returns.is_due((there, None), start + Duration::from_secs(*second));
        seconds.step_by(5).filter(|second| due(second)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_thing_is_opened_ever_more_rarely_and_another_one_at_once() {
        let (start, mut returns) = (Instant::now(), Returns::default());
        let (one, other) = (Some(Stamp::of_number(1)), Some(Stamp::of_number(2)));
        assert_eq!(due(&mut returns, start, 0..1500, one), [0, 30, 90, 210, 450, 750, 1050, 1350]);
        assert_eq!(due(&mut returns, start, 1500..1600, other), [1500, 1530, 1590]);
        assert!(due(&mut returns, start, 1600..1605, None).is_empty());
        assert_eq!(due(&mut returns, start, 1605..1640, other), [1605, 1635], "it went and came");
    }

    #[tokio::test(start_paused = true)]
    async fn paths_are_looked_at_now_and_then() {
        let (start, mut returns) = (Instant::now(), Returns::default());
        let looks = (0..20).filter(|second| returns.wants_look(start + Duration::from_secs(*second))).count();
        assert_eq!(looks, 4);
    }
}
