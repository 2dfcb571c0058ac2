//! The canaries of lives: with a deliberate bug switched on, some drill must go wrong.

use platter_zio::canary::{self, Canary};

use super::drill::drill;
use crate::disk::History;

/// What became of one canary.
#[derive(Clone, Debug)]
pub struct Catch {
    /// Drills until it was found, or in all.
    pub lives: u64,
    /// What went wrong; none: it was not found.
    pub found: Option<String>,
}

/// Does the drills from `seed` on, one after the other, with `canary` switched on, until one goes wrong or `lives` went
/// right. What goes wrong without the canary as well is not its doing.
pub fn hunt(canary: Canary, seed: u64, lives: u64) -> Catch {
    let wrong = (0..lives).find_map(|life| {
        canary::release(Some(canary));
        let sung = drill(seed + life, History::new(0));
        canary::release(None);
        sung.err().map(|what| (life + 1, what))
    });
    let Some((lives, what)) = wrong else { return Catch { lives, found: None } };
    match drill(seed + lives - 1, History::new(0)) {
        Ok(()) => Catch { lives, found: Some(what) },
        Err(what) => {
            eprintln!("without any canary: {what}");
            Catch { lives, found: None }
        }
    }
}
