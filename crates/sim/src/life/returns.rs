//! Disks that go away and come back, several at once, in a life whose disks never lie: what the pool then says about
//! itself is taken at its word.
//!
//! How such a life goes:
//! - in such a life no disk loses or changes what it took: it may refuse, be slow, hang, or not be there. So blocks
//!   without checksum must be right too;
//! - when the pool says that everything is there again, as many of the disks that never were away are taken offline as
//!   redundancy covers, and everything must be right without them.

use std::time::Duration;

use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::machine::report;
use super::story::Story;
use platter_model::disk::{FaultKind, FaultPlan};

/// Longest pause between two returns, in milliseconds: a scan may be under way, or may be over.
const PAUSE_MAX: usize = 400;

impl Story {
    /// Work while several disks are away, and come back one after the other, perhaps during scans.
    pub(super) async fn several_absences(&mut self, pool: &Pool) -> Result<(), String> {
        self.round(pool).await?;
        let mut away = Vec::new();
        for victim in self.machine.victims.clone() {
            match self.below(4) {
                0 => {}
                1 if self.may(FaultKind::Disappearance) => {
                    self.machine.pull_out(victim);
                    away.push(victim);
                }
                // Refused when another one has not caught up yet.
                _ if self.machine.offline(pool, victim).await.is_ok() => away.push(victim),
                _ => {}
            }
        }
        self.round(pool).await?;
        if self.below(3) == 0 {
            // One may be running: a resilver of those that came before.
            let _ = pool.scrub_start().await;
        }
        for last in (1..away.len()).rev() {
            let other = self.below(last + 1);
            away.swap(last, other);
        }
        self.note(&format!("{away:?} come back"));
        for victim in away {
            self.bring_back(pool, victim).await?;
        }
        self.round(pool).await
    }

    async fn bring_back(&mut self, pool: &Pool, victim: usize) -> Result<(), String> {
        let plan = self.machine.disks[victim].plan();
        if self.may(FaultKind::HostFull) && self.below(3) == 0 {
            let host_full = 2 + self.below(4) as u32;
            self.machine.disks[victim].set_plan(FaultPlan { host_full, ..plan });
        }
        for again in [self.below(3) == 0, false] {
            self.machine.put_back(victim);
            let _ = self.machine.online(pool, victim).await;
            self.pause().await;
            if !again || !self.may(FaultKind::Disappearance) {
                break;
            }
            self.machine.pull_out(victim);
            if self.below(2) == 0 {
                self.round(pool).await?;
            }
        }
        self.machine.disks[victim].set_plan(plan);
        Ok(())
    }

    async fn pause(&mut self) {
        let length = [0, self.below(PAUSE_MAX), self.below(60_000)][self.below(3)];
        self.machine.clock.sleep(Duration::from_millis(length as u64)).await;
    }

    /// Lets everything come back, and then does without those that never were away.
    pub(super) async fn take_at_its_word(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        self.machine.bring_everything_back(&pool).await?;
        let mut chosen = Vec::new();
        for group in self.machine.groups.clone() {
            let mut steady: Vec<usize> =
                group.disks.into_iter().filter(|disk| !self.machine.victims.contains(disk)).collect();
            for _ in 0..group.spare.min(steady.len()) {
                chosen.push(steady.swap_remove(self.random.next_u64() as usize % steady.len()));
            }
        }
        self.note(&format!("everything came back; without {chosen:?} now"));
        for &disk in &chosen {
            let refused = self.machine.offline(&pool, disk).await;
            refused.map_err(|error| format!("after everything came back, disk {disk} is needed: {error}"))?;
        }
        drop(pool);
        self.export().await?;
        self.import().await?;
        self.verify(false).await.map_err(|error| format!("WRONG: without {chosen:?}: {error}"))?;
        let pool = self.pool()?;
        pool.scrub_start().await.map_err(|error| format!("scrub: {error}"))?;
        pool.scrub_wait().await.map_err(|error| format!("scrub: {error}"))?;
        let found = report(&pool).await?;
        if found.scan.errors > 0 || found.error_count > 0 {
            return Err(format!("WRONG: without {chosen:?} a scrub finds {} errors", found.scan.errors));
        }
        for &disk in &chosen {
            self.machine.online(&pool, disk).await?;
        }
        pool.scrub_wait().await.map_err(|error| format!("resilver: {error}"))
    }
}
