//! The jobs of open pools: what they are, and what a client does to them.

use std::time::Instant;

use platter_api::job::{ControlJob, Job, JobAction, JobKind};
use platter_api::messages::{ErrorBody, ErrorKind, OperatePool, Outcome};
use platter_api::report::{Detail, PoolReport};
use platter_api::request::{PoolOperation, ScrubAction};

use super::{Answer, Daemon, failed};

impl Daemon {
    /// The jobs of a pool that has this report now.
    pub(super) fn jobs_of(&self, report: &PoolReport) -> Vec<Job> {
        self.jobs.of(report, Instant::now())
    }

    /// The jobs of a pool, or of all. One that could not be opened has none.
    pub async fn jobs(&self, pool: Option<&str>) -> Answer<Vec<Job>> {
        let names = match pool {
            Some(name) if self.unavailable.read().contains_key(name) => Vec::new(),
            Some(name) => vec![name.to_owned()],
            None => self.pools.read().keys().cloned().collect(),
        };
        self.jobs.keep_only(|guid| self.pools.read().values().any(|entry| entry.pool.guid() == guid));
        let mut jobs = Vec::new();
        for name in names {
            let entry = match self.pool(&name) {
                // It left while others were looked at.
                Err(_) if pool.is_none() => continue,
                entry => entry?,
            };
            let report = entry.report(Detail::default()).await;
            jobs.extend(self.jobs_of(&report.map_err(|error| failed(&format!("cannot open '{name}'"), error))?));
        }
        Ok(jobs)
    }

    /// Pauses, resumes or cancels a job.
    pub async fn control_job(&self, call: ControlJob) -> Answer<Outcome> {
        let no_such =
            || ErrorBody::of_kind(ErrorKind::NotFound, format!("no such job: {}; it may be over", call.job.0));
        let (guid, kind) = self.jobs.find(call.job).ok_or_else(no_such)?;
        let action = match (kind, call.action) {
            (JobKind::Scrub | JobKind::Resilver, JobAction::Pause) => ScrubAction::Pause,
            (JobKind::Scrub | JobKind::Resilver, JobAction::Resume) => ScrubAction::Start,
            (JobKind::Scrub, JobAction::Cancel) => ScrubAction::Stop,
            (kind, _) => {
                let text = format!("cannot do that to job {}: a {} goes on to its end", call.job.0, kind.name());
                return Err(ErrorBody::of_kind(ErrorKind::Unsupported, text));
            }
        };
        let here = self.pools.read().iter().find(|(_, entry)| entry.pool.guid() == guid).map(|(name, _)| name.clone());
        let pool =
            here.ok_or_else(|| ErrorBody::of_kind(ErrorKind::NoSuchPool, "the job's pool is not open any more"))?;
        // It may have ended since somebody saw it: what is started again then would be another job.
        if !self.jobs(Some(&pool)).await?.iter().any(|job| job.id == call.job) {
            return Err(no_such());
        }
        let operation = PoolOperation::Scrub(action);
        self.operate_pool(OperatePool { pool, operation, command: call.command }).await?;
        Ok(Outcome::default())
    }
}
