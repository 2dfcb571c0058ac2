//! A life of nothing but returns, on disks that turn, so that scans take time: what it takes to see whether a pool
//! knows which of its devices are complete. A device comes back in the middle of a scan, refuses what it is to be
//! given, or is somebody else's; some of what is stored has no checksum.
//!
//! As in [`super::returns`], what the pool says about itself is taken at its word after each return.

use std::sync::Arc;
use std::time::Duration;

use platter_spa::Pool;

use super::chapters::LIFE_MAX;
use super::machine::report;
use super::story::{Story, Terms};
use platter_model::clock;
use platter_model::disk::{FaultPlan, History};

/// How often everything goes away and comes back.
const ROUNDS: usize = 3;
/// Work on files before each, and while devices are away.
const WORK: usize = 6;
/// By how much disks are slower while others come back: many blocks take long then, and bringing one online, which is
/// some dozen commands one after the other, is over before the scan is.
const SLOWER: Duration = Duration::from_millis(10);
/// How far a scan is when the next one comes, in percent of what is allocated. Before a tenth it would begin anew, and
/// about half of that is what no block pointer leads to: what the last groups freed, and padding.
const LEAST_PERCENT: u64 = 11;
const WITHIN_PERCENT: usize = 30;
/// How often it is looked how far a scan is.
const LOOK: Duration = Duration::from_millis(5);

/// Lives the drill of `seed`; what happens is noted in `history`.
///
/// # Errors
/// What went wrong.
pub fn drill(seed: u64, history: Arc<History>) -> Result<(), String> {
    happen("drill", seed, history, async |story| story.drill().await)
}

/// Has what is called `name` happen to a pool of honest disks, from `seed` on.
pub(super) fn happen(
    name: &str,
    seed: u64,
    history: Arc<History>,
    life: impl AsyncFnOnce(&mut Story) -> Result<(), String>,
) -> Result<(), String> {
    clock::run(|clock| async move {
        let mut story = Story::new(&clock, seed, Terms::default(), history, true);
        let machine = story.machine.describe();
        let lived = tokio::time::timeout(LIFE_MAX, life(&mut story)).await;
        let lived = lived.unwrap_or_else(|_| Err("it hangs: 100 days went by".to_owned()));
        lived.map_err(|error| format!("{name} {seed}: {machine}: {error}"))
    })
}

impl Story {
    async fn drill(&mut self) -> Result<(), String> {
        let pool = self.machine.create().await?;
        self.pool = Some(pool.clone());
        drop(pool);
        self.create_filesystem_with("off", "off", "16K", "1").await?;
        self.create_filesystem_with("lz4", "on", "1K", "1").await?;
        for round in 0..ROUNDS {
            let done = self.drill_once().await;
            done.map_err(|error| format!("round {round}: {error}"))?;
        }
        self.export().await
    }

    async fn drill_once(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        self.machine.choose_victims(&mut self.random);
        // One may be restored from a copy of this moment, at its own place.
        let restored = (self.below(3) == 0).then(|| self.machine.victims.first().copied()).flatten();
        let restored = restored.map(|disk| (disk, self.machine.disks[disk].stable_image()));
        self.work_much(&pool).await?;
        let mut away = self.machine.victims.clone();
        for &victim in &away {
            match self.below(2) {
                _ if restored.as_ref().is_some_and(|(disk, _)| *disk == victim) => self.machine.pull_out(victim),
                0 => self.machine.pull_out(victim),
                _ => drop(self.machine.offline(&pool, victim).await),
            }
        }
        self.work_much(&pool).await?;
        for last in (1..away.len()).rev() {
            let other = self.below(last + 1);
            away.swap(last, other);
        }
        // A single one goes away again in the middle of its resilver.
        let flaps = away.len() == 1 && self.below(2) == 0;
        let refuses = away[self.below(away.len())];
        if self.below(3) == 0 {
            self.machine.visit(&pool, refuses, &mut self.random).await?;
        }
        if self.below(2) == 0 {
            let host_full = 2 + self.below(4) as u32;
            self.machine.disks[refuses].set_plan(FaultPlan { host_full, ..FaultPlan::default() });
        }
        if let Some((disk, copy)) = restored {
            self.note(&format!("disk {disk} is restored from an older copy of itself"));
            self.machine.disks[disk].set_image(copy);
        }
        self.machine.slow_down(SLOWER);
        for &victim in &away {
            self.machine.put_back(victim);
            let _ = self.machine.online(&pool, victim).await;
            self.wait_for_a_part(&pool).await?;
            if flaps {
                self.machine.pull_out(victim);
                self.machine.put_back(victim);
                let _ = self.machine.online(&pool, victim).await;
            }
            let scan = report(&pool).await?.scan;
            let (state, examined, of) = (scan.state, scan.examined, scan.to_examine);
            self.note(&format!("disk {victim} is back, a scan is {state} at {examined} of {of}"));
        }
        self.machine.slow_down(Duration::ZERO);
        let _ = pool.scrub_wait().await;
        drop(pool);
        self.take_at_its_word().await?;
        let pool = self.pool()?;
        self.machine.set_right(&pool).await?;
        self.verify(false).await
    }

    async fn work_much(&mut self, pool: &Pool) -> Result<(), String> {
        for _ in 0..WORK {
            self.work_on_files(pool).await?;
        }
        pool.sync().await.map_err(|error| format!("sync: {error}"))
    }

    /// Waits until a scan, if one is under way, has got somewhere.
    pub(super) async fn wait_for_a_part(&mut self, pool: &Pool) -> Result<(), String> {
        let percent = LEAST_PERCENT + self.below(WITHIN_PERCENT) as u64;
        loop {
            let scan = report(pool).await?.scan;
            let is_there = scan.examined * 100 >= scan.to_examine * percent;
            if scan.state != "scanning" || is_there {
                return Ok(());
            }
            self.machine.clock.sleep(LOOK).await;
        }
    }
}
