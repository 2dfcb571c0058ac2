//! The canaries of lives: with a deliberate bug switched on, some life must go wrong.

use platter_zio::canary::{self, Canary};

use super::story::{Terms, live};

/// What became of one canary.
#[derive(Clone, Debug)]
pub struct Catch {
    /// Lives lived until it was found, or in all.
    pub lives: u64,
    /// What went wrong; none: it was not found.
    pub found: Option<String>,
}

/// Lives the lives from `seed` on, one after the other, with `canary` switched on, until one goes wrong or `lives` went
/// right.
pub fn hunt(canary: Canary, seed: u64, lives: u64) -> Catch {
    canary::release(Some(canary));
    let wrong = (0..lives).find_map(|life| live(seed + life, &Terms::default(), 0).err().map(|what| (life + 1, what)));
    canary::release(None);
    match wrong {
        Some((lives, what)) => Catch { lives, found: Some(what) },
        None => Catch { lives, found: None },
    }
}
