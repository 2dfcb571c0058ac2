//! What the medium does next.
//!
//! Invariants: a disk that turns does one thing at a time, the one that its head reaches first; flash does everything
//! at once, as far as its units go. A write that overlaps an older one in the cache waits for that.

use std::sync::Arc;

use super::{Drive, Job, Medium, State, Step};

/// How many waiting jobs the drive compares.
const COMPARED_MAX: usize = 64;

impl Drive {
    /// The medium's next job: of what hosts wait for, unless the cache must be emptied; the one whose place is nearest.
    pub(super) fn choose(&self, state: &mut State) -> Option<Job> {
        let platters = match &state.medium {
            Medium::Platters(platters) if state.in_service == 0 => Some(platters),
            Medium::Chips(_) => None,
            Medium::Platters(_) | Medium::Nothing => return None,
        };
        let urgent = !state.flushes.is_empty() || state.cached_bytes > self.parameters.write_cache / 2;
        let waited_for = |job: &Job| !matches!(job, Job::Destage(_));
        let only_waited_for = !urgent && state.jobs.iter().any(waited_for);
        let may_go = |job: &Job| match job {
            Job::Destage(number) => {
                let after = state.cache.get(number).map(|cached| &cached.after);
                !only_waited_for && after.is_none_or(|after| !after.iter().any(|id| state.cache.contains_key(id)))
            }
            Job::Read(_) | Job::Write(_) => true,
        };
        let candidates = (0..state.jobs.len()).filter(|&index| may_go(&state.jobs[index])).take(COMPARED_MAX);
        let index = match platters {
            None => candidates.min(),
            Some(platters) => {
                let now = self.clock.now();
                candidates
                    .min_by_key(|&index| (platters.positioning(now, self.job_range(state, state.jobs[index]).0), index))
            }
        }?;
        Some(state.jobs.remove(index))
    }

    fn job_range(&self, state: &State, job: Job) -> (u64, u64) {
        match job {
            Job::Read(number) | Job::Write(number) => {
                let command = &state.commands[&number];
                (command.offset, command.length)
            }
            Job::Destage(number) => {
                let cached = &state.cache[&number];
                (cached.offset, cached.length)
            }
        }
    }

    pub(super) fn start(self: &Arc<Self>, state: &mut State, job: Job) {
        let (offset, length) = self.job_range(state, job);
        let now = self.clock.now();
        let done = match (&mut state.medium, job) {
            (Medium::Platters(platters), Job::Read(_)) => platters.read(now, offset, length),
            (Medium::Platters(platters), _) => platters.write(now, offset, length),
            (Medium::Chips(chips), Job::Read(_)) => chips.read(now, offset, length),
            (Medium::Chips(chips), _) => chips.write(now, offset, length),
            (Medium::Nothing, _) => now,
        };
        let across = if let Job::Write(number) = job { state.commands[&number].across } else { now };
        let done = done.max(across);
        let is_alone = !matches!(state.medium, Medium::Platters(_)) || state.in_service == 0;
        assert!(is_alone && done >= now, "a disk that turns does one thing at a time");
        state.in_service += 1;
        self.later(state, done, Step::Done(job));
    }
}
