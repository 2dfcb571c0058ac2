//! Long work of a pool: what goes on after the command that began it has ended.

use serde::{Deserialize, Serialize};

/// A job's number; the daemon gives each only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Reads everything, and repairs what is wrong.
    Scrub,
    /// Gives a device what it missed.
    Resilver,
    /// Another device takes a device's place.
    Replace,
    /// Gives the space of destroyed data sets back.
    Free,
    /// Tells devices what is free of them.
    Trim,
    /// Writes over what is free of devices.
    Initialize,
}

impl JobKind {
    /// As `zpool wait -t` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scrub => "scrub",
            Self::Resilver => "resilver",
            Self::Replace => "replace",
            Self::Free => "free",
            Self::Trim => "trim",
            Self::Initialize => "initialize",
        }
    }
}

/// Whether a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It goes on.
    Running,
    /// It waits until somebody lets it go on.
    Paused,
}

/// A job that is not over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// The pool's name.
    pub pool: String,
    /// What it does.
    pub kind: JobKind,
    /// Whether it goes on.
    pub state: JobState,
    /// Bytes that are done.
    pub done: u64,
    /// Bytes to do all together, as far as is known.
    pub total: u64,
    /// Bytes a second, lately; 0 when unknown.
    pub rate: u64,
    /// Seconds to go at that rate.
    pub eta_seconds: Option<u64>,
    /// Bytes that it has repaired.
    #[serde(default)]
    pub repaired: u64,
}

impl Job {
    /// Bytes that remain of what goes on: what is not over has something left, whatever was estimated.
    pub fn remaining(&self) -> u64 {
        match self.state {
            JobState::Running => self.total.saturating_sub(self.done).max(1),
            JobState::Paused => 0,
        }
    }
}

/// Asks for the jobs of a pool, or of all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListJobs {
    /// The pool's name.
    #[serde(default)]
    pub pool: Option<String>,
}

/// What becomes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// It waits.
    Pause,
    /// It goes on.
    Resume,
    /// It ends, and is forgotten.
    Cancel,
}

/// Pauses, resumes or cancels a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlJob {
    /// Which one.
    pub job: JobId,
    /// What becomes of it.
    pub action: JobAction,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}
