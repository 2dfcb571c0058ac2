//! Snapshots that data sets get by themselves: property `platter:snap` says which, and `platter:prune` whether those
//! that are too many go again. `platter_schedule` is the policy; here it is carried out.
//!
//! Invariants:
//! - where the property came with a stream nothing is taken, since that would part a replica from where it comes from;
//! - what is held or cloned stays, and so does whatever the policy does not name;
//! - a snapshot that has the name of an hour, and was taken at another time, is not that hour's: it neither stands for
//!   it nor makes another one surplus, and it stays;
//! - a pool that waits for its devices is left alone, and holds up no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use platter_api::schedule::{PRUNE, SNAP, Schedule};
use platter_api::schedules::{ListSchedules, ScheduleReport};
use platter_api::snapshots::{DestroySnapshots, TakeSnapshots};
use platter_dsl::inheritance::InForce;
use platter_schedule::{Moment, Slot, due, next, surplus};

use super::mounts::{is_under, pool_of};
use super::schedule_notes::Kept;
use super::{Answer, Daemon};
use crate::engine::PoolHandle;
use crate::machine::now_seconds;

/// The longest until properties and pools are looked at again.
const LOOK: Duration = Duration::from_secs(5);
/// Seconds until what failed is tried again.
const TRY_AGAIN: u64 = 60;

/// A data set that is to be looked after, with its own snapshots by their names behind the @.
struct Due {
    dataset: String,
    schedule: Schedule,
    text: String,
    received: bool,
    prunes: bool,
    problem: Option<String>,
}

fn own_names(names: &[String]) -> impl Iterator<Item = &str> {
    names.iter().filter_map(|name| Some(name.split_once('@')?.1))
}

/// Data sets of which all that is taken stays.
fn unpruned(pool: &Arc<dyn PoolHandle>) -> BTreeSet<String> {
    pool.in_force(PRUNE).into_iter().filter(|prune| prune.value == "off").map(|prune| prune.dataset).collect()
}

/// Those of a data set's snapshots that were taken by schedule, by their names behind the @.
async fn scheduled(pool: &Arc<dyn PoolHandle>, names: &[String]) -> Vec<String> {
    let mut ours = Vec::new();
    for name in names {
        let own = name.split_once('@').map_or("", |(_, own)| own);
        let Some(slot) = Slot::named(own) else { continue };
        let taken = pool.snapshot(name).await.ok().and_then(|report| report.number("creation"));
        if taken.is_some_and(|taken| slot.is_of(Moment(taken))) {
            ours.push(own.to_owned());
        }
    }
    ours
}

/// What keeps a snapshot that is due now from being taken: somebody took one of its name at another time.
async fn taken_by_others(pool: &Arc<dyn PoolHandle>, one: &Due, names: &[String], now: Moment) -> Option<String> {
    let wanted: Vec<String> = due(&one.schedule, now, []).iter().map(|own| format!("{}@{own}", one.dataset)).collect();
    let there: Vec<String> = names.iter().filter(|name| wanted.contains(name)).cloned().collect();
    let ours = scheduled(pool, &there).await;
    let is_ours = |name: &&String| ours.iter().any(|own| name.ends_with(&format!("@{own}")));
    let other = there.iter().find(|name| !is_ours(name))?;
    Some(format!("'{other}' was taken by somebody else at another time, and stands in the way"))
}

/// Looks after schedules for as long as the daemon lives.
async fn keep(daemon: Weak<Daemon>) {
    loop {
        let wait = {
            let Some(daemon) = daemon.upgrade() else { return };
            daemon.begin_schedules()
        };
        tokio::time::sleep(wait).await;
    }
}

impl Daemon {
    /// Takes snapshots by schedule from now on.
    pub fn keep_schedules(self: &Arc<Self>) {
        tokio::spawn(keep(Arc::downgrade(self)));
    }

    /// Has every pool looked after that is not at it already; answers when to look again.
    fn begin_schedules(self: &Arc<Self>) -> Duration {
        let pools = self.handles();
        let (now, mut live) = (Moment(now_seconds()), BTreeSet::new());
        for (name, pool) in pools {
            let in_force = pool.in_force(SNAP);
            live.extend(in_force.iter().map(|one| one.dataset.clone()));
            let waits = pool.is_suspended() || self.silent_device(&name).is_some();
            if waits || in_force.is_empty() || !self.schedules.busy.lock().insert(name.clone()) {
                continue;
            }
            let daemon = self.clone();
            tokio::spawn(async move {
                daemon.keep_schedules_of(&pool, in_force, now).await;
                daemon.schedules.busy.lock().remove(&name);
            });
        }
        // Of others nothing is due any more.
        self.schedules.kept.lock().retain(|dataset, _| live.contains(dataset));
        let soonest = self.schedules.kept.lock().values().filter_map(|kept| kept.until).min();
        let wait = soonest.map_or(LOOK, |soonest| Duration::from_secs(soonest.0.saturating_sub(now.0)));
        wait.clamp(Duration::from_secs(1), LOOK)
    }

    /// The data sets of a pool of which something may be due, or whose schedule is another one.
    fn data_sets_due(&self, pool: &Arc<dyn PoolHandle>, in_force: Vec<InForce>, now: Moment) -> Vec<Due> {
        let unpruned = unpruned(pool);
        let known = self.schedules.kept.lock();
        let mut found = Vec::new();
        for InForce { dataset, value, received } in in_force {
            let prunes = !unpruned.contains(&dataset);
            let is_as_before = |kept: &Kept| {
                let is_same = kept.schedule == value && kept.received == received && kept.prunes == prunes;
                // A clock that was set back finds its slots again.
                is_same && kept.until.is_some_and(|until| now < until && until.0 - now.0 < 2 * 366 * 86_400)
            };
            if known.get(&dataset).is_some_and(is_as_before) {
                continue;
            }
            let (schedule, problem) = match Schedule::parse(&value) {
                Ok(schedule) => (schedule, None),
                Err(refused) => (Schedule::default(), Some(refused.to_string())),
            };
            found.push(Due { dataset, schedule, text: value, received, prunes, problem });
        }
        found
    }

    async fn keep_schedules_of(&self, pool: &Arc<dyn PoolHandle>, in_force: Vec<InForce>, now: Moment) {
        let mut all = self.data_sets_due(pool, in_force, now);
        let mut wanted: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, one) in all.iter_mut().enumerate() {
            match pool.snapshot_names(&one.dataset).await {
                Ok(names) if !one.received => {
                    one.problem = one.problem.take().or(taken_by_others(pool, one, &names, now).await);
                    for name in due(&one.schedule, now, own_names(&names)) {
                        wanted.entry(name).or_default().push(at);
                    }
                }
                Ok(_) => {}
                Err(error) => one.problem = Some(error.to_string()),
            }
        }
        for (name, these) in wanted {
            let full_names = these.iter().map(|at| format!("{}@{name}", all[*at].dataset)).collect();
            if self.take_scheduled(full_names).await.is_ok() {
                continue;
            }
            for at in these {
                let full_name = format!("{}@{name}", all[at].dataset);
                if let Err(reason) = self.take_scheduled(vec![full_name]).await {
                    all[at].problem = Some(reason);
                }
            }
        }
        for one in &mut all {
            // Also where none can be taken: it may be for those that are too many.
            if one.prunes
                && let Err(reason) = self.prune(pool, one, now).await
            {
                one.problem.get_or_insert(reason);
            }
        }
        self.note_schedules(all, now);
    }

    /// Takes these together.
    async fn take_scheduled(&self, names: Vec<String>) -> Result<(), String> {
        let call = TakeSnapshots { names, ..TakeSnapshots::default() };
        self.take_snapshots(&call).await.map(drop).map_err(|error| error.message)
    }

    /// Destroys what is too many.
    async fn prune(&self, pool: &Arc<dyn PoolHandle>, one: &Due, now: Moment) -> Result<(), String> {
        let names = pool.snapshot_names(&one.dataset).await.map_err(|error| error.to_string())?;
        // Without a look at any of them: of fewer, no more are too many.
        if surplus(&one.schedule, now, own_names(&names)).is_empty() {
            return Ok(());
        }
        let ours = scheduled(pool, &names).await;
        let surplus = surplus(&one.schedule, now, ours.iter().map(String::as_str));
        let destroy = async |which: String| {
            assert!(which.split(',').all(|name| Slot::named(name).is_some()), "nobody else's snapshots are destroyed");
            let call = DestroySnapshots { dataset: one.dataset.clone(), which, ..DestroySnapshots::default() };
            self.destroy_snapshots(&call).await
        };
        if surplus.is_empty() || destroy(surplus.join(",")).await.is_ok() {
            return Ok(());
        }
        for name in surplus {
            // What is held, cloned or in use stays until it is not.
            if let Err(error) = destroy(name).await {
                tracing::debug!("'{}': {}", one.dataset, error.message);
            }
        }
        Ok(())
    }

    /// Remembers how it went, and tells once of each thing that goes wrong.
    fn note_schedules(&self, all: Vec<Due>, now: Moment) {
        let mut known = self.schedules.kept.lock();
        for Due { dataset, schedule, text, received, prunes, problem } in all {
            // A schedule of which nothing is due is looked at again once it changes.
            let later = |seconds: u64| Moment(now.0.saturating_add(seconds));
            let next = next(&schedule, now).unwrap_or(later(86_400));
            let until = Some(if problem.is_some() { next.min(later(TRY_AGAIN)) } else { next });
            let before = known.get(&dataset).and_then(|kept| kept.problem.clone());
            if let Some(problem) = problem.as_ref().filter(|problem| before.as_ref() != Some(problem)) {
                tracing::warn!("'{dataset}': its scheduled snapshots: {problem}");
                let pool = pool_of(&dataset);
                let text = format!("'{dataset}' does not get its snapshots: {problem}");
                let action = "'platter schedule' shows all schedules.".to_owned();
                self.tell_of_pool(pool, "sysevent.platter.schedule_failed", text, action);
            }
            known.insert(dataset, Kept { schedule: text, received, prunes, until, problem });
        }
    }

    /// `platter schedule`.
    pub async fn schedules(&self, call: &ListSchedules) -> Answer<Vec<ScheduleReport>> {
        let mut pools: Vec<Arc<dyn PoolHandle>> = Vec::new();
        match &call.under {
            Some(name) => {
                let pool = self.pool_with(name)?;
                self.data_sets(&pool, name, false).await?;
                pools.push(pool);
            }
            None => pools.extend(self.pools.read().values().map(|entry| entry.pool.clone())),
        }
        let is_meant = |dataset: &str| match &call.under {
            Some(top) => dataset == top || is_under(dataset, top),
            None => true,
        };
        let (mut reports, now) = (Vec::new(), Moment(now_seconds()));
        for pool in pools {
            let unpruned = unpruned(&pool);
            for InForce { dataset, value, received } in pool.in_force(SNAP) {
                // An empty value is how an inherited schedule is put out of force.
                if !is_meant(&dataset) || value.is_empty() {
                    continue;
                }
                let names = pool.snapshot_names(&dataset).await.unwrap_or_default();
                let ours = scheduled(&pool, &names).await;
                let ours: Vec<Slot> = ours.iter().filter_map(|name| Slot::named(name)).collect();
                let schedule = Schedule::parse(&value).unwrap_or_default();
                let problem = self.schedules.kept.lock().get(&dataset).and_then(|kept| kept.problem.clone());
                reports.push(ScheduleReport {
                    schedule: value,
                    received,
                    prunes: !unpruned.contains(&dataset),
                    kept: ours.len() as u64,
                    newest: ours
                        .iter()
                        .filter(|slot| slot.begin <= now)
                        .max_by_key(|slot| slot.begin)
                        .map(Slot::to_string),
                    next: next(&schedule, now).filter(|_| !received).map(|next| next.0),
                    problem,
                    dataset,
                });
            }
        }
        Ok(reports)
    }
}
