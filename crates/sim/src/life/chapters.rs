//! One lifetime from beginning to end.
//!
//! A life has chapters. In each, files are worked on for hours while some disks misbehave, go away or are taken
//! offline; each ends in a crash, an export, or with everything set right. After each, every file is read and compared.

use std::sync::Arc;
use std::time::Duration;

use platter_spa::Pool;
use rand_chacha::rand_core::RngCore;

use super::layout::DISK_SIZE;
use super::loss;
use super::machine::report;
use super::story::{Outcome, PowerLost, Story, Terms};
use crate::crash::judge;
use platter_model::clock::{self, SECOND, SimClock};
use platter_model::disk::{FaultKind, History, Image};

/// How a chapter ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Crash,
    Export,
    SetRight,
}

/// How one disk is not there for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absence {
    None,
    PulledOut,
    Offline,
}

/// Longest life; nothing takes that long that does not hang.
pub(super) const LIFE_MAX: Duration = Duration::from_secs(100 * 86_400);
/// Most data sets.
const FILESYSTEMS_MAX: usize = 3;
/// In one chapter of so many the pool's host loses sight of its disks.
const STALL_EVERY: usize = 12;

/// Lives the life of `seed`. `keep` lines of its history are kept for the error in case it goes wrong.
///
/// # Errors
/// What went wrong, with the end of the history.
pub fn live(seed: u64, terms: &Terms, keep: usize) -> Result<Outcome, String> {
    live_noting(seed, terms, History::new(keep))
}

/// As [`live`]; what happens is noted in `history`.
///
/// # Errors
/// As for [`live`].
pub fn live_noting(seed: u64, terms: &Terms, history: Arc<History>) -> Result<Outcome, String> {
    let (noted, terms) = (history.clone(), terms.clone());
    let result = clock::run(|clock| async move {
        let story = tell(clock, seed, terms, noted);
        tokio::time::timeout(LIFE_MAX, story).await.map_err(|_| "it hangs: 100 days went by".to_owned())?
    });
    result.map_err(|error| {
        let lines = history.lines();
        if lines.is_empty() { error } else { format!("{error}\nhistory:\n  {}", lines.join("\n  ")) }
    })
}

async fn tell(clock: Arc<SimClock>, seed: u64, terms: Terms, history: Arc<History>) -> Result<Outcome, String> {
    let mut story = Story::new(&clock, seed, terms, history.clone(), false);
    let where_it_went = story.machine.describe();
    story.live().await.map_err(|error| format!("{where_it_went}: at {} s: {error}", clock.now() / SECOND))?;
    let mut outcome = story.outcome;
    outcome.faults = story.machine.fault_counts();
    outcome.commands = story.machine.commands();
    outcome.trims = story.machine.trims();
    outcome.spares_stayed = story.machine.spares_stayed;
    outcome.logs_added = story.machine.log.added;
    outcome.seconds = clock.now() / SECOND;
    outcome.history = history.hash();
    Ok(outcome)
}

impl Story {
    async fn live(&mut self) -> Result<(), String> {
        self.pool = Some(self.machine.create().await?);
        self.create_filesystem().await?;
        for chapter in 0..self.terms.chapters {
            let end = match self.below(10) {
                _ if chapter + 1 == self.terms.chapters => End::SetRight,
                0..5 => End::Crash,
                5..7 => End::Export,
                _ => End::SetRight,
            };
            self.note(&format!("chapter {chapter} ends with {end:?}"));
            self.chapter(end).await.map_err(|error| format!("chapter {chapter} ({end:?}): {error}"))?;
        }
        self.export().await?;
        if self.terms.judged {
            let members = self.machine.members().into_iter();
            let disks: Vec<(Image, u64)> =
                members.map(|number| (self.machine.disks[number].image(), self.machine.sizes[number])).collect();
            let disks: Vec<(Image, u64)> = disks.into_iter().chain(self.machine.log.images()).collect();
            judge::verdict(&disks)?;
        }
        self.import().await?;
        self.verify(false).await.map_err(|error| format!("in the end: {error}"))?;
        loss::too_much(self).await?;
        self.nobody_wrote_who_had_given_up()
    }

    async fn chapter(&mut self, end: End) -> Result<(), String> {
        if self.below(STALL_EVERY) == 0 {
            self.heartbeat_stalls().await.map_err(|error| format!("a heartbeat stalls: {error}"))?;
        }
        if self.machine.victims.is_empty() {
            self.machine.choose_victims(&mut self.random);
        }
        if self.crowded {
            self.take_ballast().await.map_err(|error| format!("ballast: {error}"))?;
        }
        let mut without = self.terms.without.clone();
        if self.honest {
            without.extend(FaultKind::ALL.into_iter().filter(|kind| !kind.is_honest()));
        }
        self.machine.misbehave(&mut self.random, &without);
        self.caches_misbehave();
        self.spares_misbehave();
        let crash = end == End::Crash;
        if crash {
            let commands = [60, 300, 1500, 4000][self.below(4)];
            self.machine.supply.fails_after(5 + self.random.next_u64() % commands);
        }
        let supply = self.machine.supply.clone();
        let done = tokio::select! {
            biased;
            () = supply.lost() => Err(PowerLost),
            done = self.work() => Ok(done),
        };
        match done {
            // What fails because the power has failed is no failure.
            Ok(result) if !supply.is_out() => result?,
            _ => self.note("the power failed"),
        }
        match end {
            End::Crash => self.crash().await?,
            End::Export => {
                self.export().await?;
                self.import().await?;
                self.verify(false).await?;
            }
            End::SetRight => {
                if self.honest {
                    self.take_at_its_word().await?;
                }
                let pool = self.pool()?;
                self.machine.set_right(&pool).await?;
                drop(pool);
                self.outcome.scrubs += 1;
                self.let_it_grow().await?;
                self.split().await?;
                if self.below(3) == 0 {
                    // While all can be read: one that cannot is looked for where it was.
                    self.export().await?;
                    self.machine.swap_places(&mut self.random);
                    self.import().await?;
                }
                self.verify(false).await?;
            }
        }
        Ok(())
    }

    /// Some hours of work.
    async fn work(&mut self) -> Result<(), String> {
        let pool = self.pool()?;
        match self.below(6) {
            0 if self.filesystems.len() < FILESYSTEMS_MAX => self.create_filesystem().await?,
            1 if self.filesystems.len() > 1 => self.destroy_filesystem().await?,
            2 => self.set_property().await?,
            _ => {}
        }
        for _ in 0..2 + self.below(5) {
            self.replace_a_victim(&pool).await?;
            self.trim(&pool).await;
            self.change_caches(&pool).await?;
            self.change_log(&pool).await?;
            self.grow(&pool).await?;
            self.change_spares(&pool).await?;
            self.snapshots(&pool).await?;
            self.volumes(&pool).await?;
            match self.below(3) {
                0 => self.several_absences(&pool).await?,
                _ => self.absence(&pool).await?,
            }
        }
        self.round(&pool).await?;
        if self.below(4) == 0 {
            // Two at a time are refused; a resilver may be running.
            let _ = pool.scrub_start().await;
        }
        self.round(&pool).await?;
        // What a scan finds may have been freed and its place used again: that is no loss.
        match report(&pool).await?.error_count {
            0 => Ok(()),
            count => Err(format!("WRONG: {count} errors in a pool whose redundancy covers what is wrong")),
        }
    }

    /// Work while one disk is there, is away, and is there again.
    async fn absence(&mut self, pool: &Pool) -> Result<(), String> {
        let index = self.below(self.machine.victims.len());
        let victim = self.machine.victims[index];
        let absence = match self.below(4) {
            0 | 1 if self.may(FaultKind::Disappearance) => Absence::PulledOut,
            2 => Absence::Offline,
            _ => Absence::None,
        };
        self.round(pool).await?;
        match absence {
            Absence::PulledOut => self.machine.pull_out(victim),
            // Refused when another victim has not caught up yet.
            Absence::Offline => drop(self.machine.offline(pool, victim).await),
            Absence::None => {}
        }
        self.round(pool).await?;
        match absence {
            Absence::PulledOut => {
                if self.below(3) == 0 {
                    self.machine.visit(pool, victim, &mut self.random).await?;
                }
                let other = self.below(3) == 0;
                let other = other.then(|| self.below(self.machine.disks.len()));
                // A spare is looked for where it was.
                let is_spare = |number: &usize| self.machine.listed_spares().contains(number);
                if let Some(other) = other.filter(|number| !is_spare(number)) {
                    self.note(&format!("disks {victim} and {other} change places"));
                    self.machine.exchange(victim, other);
                }
                self.machine.put_back(victim);
                if self.may(FaultKind::WrongSize) {
                    // It comes back smaller than it was, which cannot be used, and then as it was.
                    self.machine.disks[victim].set_size(DISK_SIZE / 2);
                    let _ = self.machine.online(pool, victim).await;
                    self.machine.disks[victim].resize(self.machine.sizes[victim]);
                }
                let _ = self.machine.online(pool, victim).await;
            }
            Absence::Offline => drop(self.machine.online(pool, victim).await),
            Absence::None => {}
        }
        Ok(())
    }
}
