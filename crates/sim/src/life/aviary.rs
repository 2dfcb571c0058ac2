//! The canaries of lives: with a deliberate bug switched on, some drill or life must go wrong.
//!
//! What goes wrong without the canary as well does not count.

use platter_hooks::canary::{self, Canary};

use super::chapters::live;
use super::drill::drill;
use super::latecomers::late;
use super::sound::sound;
use super::story::Terms;
use platter_model::disk::History;

/// What became of one canary.
#[derive(Clone, Debug)]
pub struct Catch {
    /// Drills and lives until it was found, or in all.
    pub lives: u64,
    /// What went wrong; none: it was not found.
    pub found: Option<String>,
}

/// Does the drills from `seed` on, one after the other, with `canary` switched on, until one goes wrong or `lives` went
/// right; then as many lives, which have more in them and less of what the canary does. What drills do not have is
/// looked for in lives alone, and what only shows where nothing else is wrong in [sound pools](sound), or when somebody
/// [comes late](late).
pub fn hunt(canary: Canary, seed: u64, lives: u64) -> Catch {
    let in_drills = |seed| drill(seed, History::new(0));
    if canary == Canary::FreedSetRight {
        return watch(canary, seed..seed + lives, |seed| late(seed, History::new(0)));
    }
    if matches!(canary, Canary::RebuildRangeSkipped | Canary::FreedStillScanned) {
        return watch(canary, seed..seed + lives, |seed| sound(seed, History::new(0)));
    }
    let in_lives = |seed| live(seed, &Terms::default(), 0).map(drop);
    let only_in_lives = matches!(canary, Canary::CacheUnverified | Canary::TrimmedTooFar);
    let drills = if only_in_lives { 0 } else { lives };
    let mut catch = watch(canary, seed..seed + drills, in_drills);
    if catch.found.is_none() {
        catch = watch(canary, seed..seed + lives, in_lives);
        catch.lives += drills;
    }
    catch
}

fn watch(canary: Canary, seeds: std::ops::Range<u64>, happen: impl Fn(u64) -> Result<(), String>) -> Catch {
    let lives = seeds.end - seeds.start;
    for (number, seed) in (1..).zip(seeds) {
        canary::release(Some(canary));
        let sung = happen(seed);
        canary::release(None);
        let Err(what) = sung else { continue };
        match happen(seed) {
            Ok(()) => return Catch { lives: number, found: Some(what) },
            Err(what) => eprintln!("without any canary, seed {seed}: {what}"),
        }
    }
    Catch { lives, found: None }
}
