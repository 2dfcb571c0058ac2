//! A life of scans of a sound pool: its disks fail in nothing, so that no scan has anything to set right, whatever is
//! written and freed beside it, and no reconstruction leaves anything to the scrub that verifies it.
//!
//! What is damaged in other lives hides what a scan itself does wrong: a range that a reconstruction skips is mended by
//! the scrub that follows, and a freed block that is looked at is taken for one that was lost.

use std::sync::Arc;
use std::time::Duration;

use platter_spa::Pool;

use super::drill::happen;
use super::machine::report;
use super::story::Story;
use platter_model::disk::History;

/// Scrubs.
const ROUNDS: usize = 2;
/// Work on files before each.
const WORK: usize = 12;
/// By how much disks are slower during scans, so that much happens beside them; by the second, scans take so long that
/// what was freed meanwhile is used again before they end.
const SLOWER: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// Lives that of `seed`; what happens is noted in `history`.
///
/// # Errors
/// What went wrong.
pub fn sound(seed: u64, history: Arc<History>) -> Result<(), String> {
    happen("sound", seed, history, async |story| story.stay_sound().await)
}

impl Story {
    async fn stay_sound(&mut self) -> Result<(), String> {
        let pool = self.machine.create().await?;
        self.pool = Some(pool.clone());
        self.create_filesystem_with("off", "on", "16K", "1").await?;
        self.create_filesystem_with("lz4", "on", "128K", "1").await?;
        let is_long = self.below(2);
        if is_long == 1 {
            self.take_ballast().await?;
        }
        for round in 0..ROUNDS {
            for _ in 0..WORK {
                self.work_on_files(&pool).await?;
            }
            self.machine.slow_down(SLOWER[is_long]);
            let pauses = self.below(2) == 0;
            pool.scrub_start().await.map_err(|error| format!("scrub: {error}"))?;
            self.work_beside(&pool, pauses).await?;
            self.machine.slow_down(Duration::ZERO);
            self.finds_nothing(&pool, &format!("scrub {round}")).await?;
        }
        if self.machine.groups[0].parity == 0 {
            let (old, new) = (self.machine.groups[0].disks[0], self.machine.add_disk());
            self.machine.reconstruct(&pool, old, new).await?;
            self.machine.let_the_old_leave(&pool).await?;
            pool.scrub_wait().await.map_err(|error| format!("the scrub of a reconstruction: {error}"))?;
            self.finds_nothing(&pool, "the scrub of a reconstruction").await?;
        }
        drop(pool);
        self.verify(false).await?;
        self.export().await
    }

    /// Works on files until no scan is under way.
    async fn work_beside(&mut self, pool: &Pool, mut pauses: bool) -> Result<(), String> {
        while report(pool).await?.scan.state == "scanning" {
            self.work_on_files(pool).await?;
            if std::mem::take(&mut pauses) && pool.scrub_pause().await.is_ok() {
                self.work_on_files(pool).await?;
                pool.scrub_continue().await.map_err(|error| format!("a scrub goes on: {error}"))?;
            }
        }
        Ok(())
    }

    /// Nothing was to be set right by the scan that has ended.
    pub(super) async fn finds_nothing(&mut self, pool: &Pool, what: &str) -> Result<(), String> {
        let scan = report(pool).await?.scan;
        self.note(&format!("{what}: {} after {} of {} bytes", scan.state, scan.examined, scan.to_examine));
        match (scan.state.as_str(), scan.errors, scan.repaired) {
            ("finished", 0, 0) => Ok(()),
            (state, errors, repaired) => {
                Err(format!("WRONG: {what} is {state}, with {errors} errors and {repaired} bytes set right"))
            }
        }
    }
}
