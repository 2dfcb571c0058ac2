//! Sync tasks (`dsl_sync_task`, `module/zfs/dsl_synctask.c`): changes of the MOS that wait for the sync loop.
//!
//! Invariants:
//! - a task runs in the sync loop, in the group that is being synced, and nowhere else;
//! - no task runs in a group that was closed before the task was handed in: what somebody did before he asked is in its
//!   group, or in an earlier one;
//! - early tasks run before the group's data sets are written, ordinary ones after: those find in the MOS what the
//!   group made of the data sets.

use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::Result;
use platter_ondisk::Txg;

/// When a task runs in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the data sets are written (`dsl_early_sync_task`).
    Early,
    /// After the data sets are written, so that what it captures of them is this group's.
    Ordinary,
}

/// One change to be made in the sync loop.
pub struct Task {
    moment: Moment,
    not_before: Txg,
    run: Box<dyn FnOnce(Txg) -> BoxFuture<'static, Result<()>> + Send>,
}

impl Task {
    /// A task that is `run` at its moment in group `not_before`, which is open, or a later one, with that group's
    /// number. It fails only when it is done in part, so that its group must not be kept.
    pub fn new(
        moment: Moment,
        not_before: Txg,
        run: impl FnOnce(Txg) -> BoxFuture<'static, Result<()>> + Send + 'static,
    ) -> Self {
        Self { moment, not_before, run: Box::new(run) }
    }
}

/// The tasks that wait for the next group.
#[derive(Default)]
pub struct Tasks(Mutex<Vec<Task>>);

/// The tasks of one group.
pub struct GroupTasks {
    early: Vec<Task>,
    ordinary: Vec<Task>,
}

impl Tasks {
    /// Adds one, behind those that wait.
    pub fn push(&self, task: Task) {
        self.0.lock().push(task);
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Forgets all: whoever waits for one hears that it will not be done.
    pub fn clear(&self) {
        // Dropped without the lock: a task may hold the last handle of what adds tasks.
        drop(std::mem::take(&mut *self.0.lock()));
    }

    /// Takes those for group `txg`, which is to be synced.
    pub fn take(&self, txg: Txg) -> GroupTasks {
        let mut waiting = self.0.lock();
        let (due, later) = std::mem::take(&mut *waiting).into_iter().partition(|task| task.not_before <= txg);
        *waiting = later;
        drop(waiting);
        let due: Vec<Task> = due;
        let (early, ordinary) = due.into_iter().partition(|task| task.moment == Moment::Early);
        GroupTasks { early, ordinary }
    }
}

impl GroupTasks {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.early.is_empty() && self.ordinary.is_empty()
    }

    /// Runs those of this moment, in the order in which they came; asked again, there are none left.
    ///
    /// # Errors
    /// One is done in part; those behind it are not begun.
    pub async fn run(&mut self, moment: Moment, txg: Txg) -> Result<()> {
        assert!(moment == Moment::Early || self.early.is_empty(), "early tasks run before ordinary ones");
        let tasks = match moment {
            Moment::Early => &mut self.early,
            Moment::Ordinary => &mut self.ordinary,
        };
        for task in std::mem::take(tasks) {
            (task.run)(txg).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;
    use platter_zio::ZioError;

    use super::*;

    #[tokio::test]
    async fn early_tasks_run_first_and_each_runs_once() {
        let (tasks, ran) = (Tasks::default(), Arc::new(Mutex::new(Vec::new())));
        for (name, moment) in
            [("a", Moment::Ordinary), ("b", Moment::Early), ("c", Moment::Ordinary), ("d", Moment::Early)]
        {
            let ran = ran.clone();
            tasks.push(Task::new(moment, Txg(7), move |txg| {
                async move {
                    ran.lock().push((name, txg.0));
                    Ok(())
                }
                .boxed()
            }));
        }
        assert!(tasks.take(Txg(6)).is_empty() && !tasks.is_empty(), "they came when that group was closed");
        let mut group = tasks.take(Txg(7));
        assert!(tasks.is_empty() && !group.is_empty());
        group.run(Moment::Early, Txg(7)).await.unwrap();
        assert_eq!(*ran.lock(), [("b", 7), ("d", 7)]);
        for _ in 0..2 {
            group.run(Moment::Ordinary, Txg(7)).await.unwrap();
        }
        assert_eq!(*ran.lock(), [("b", 7), ("d", 7), ("a", 7), ("c", 7)]);
        assert!(group.is_empty());
    }

    #[tokio::test]
    async fn behind_one_that_is_done_in_part_none_is_begun() {
        let tasks = Tasks::default();
        let half = ZioError::corrupt("change", "half of it");
        tasks.push(Task::new(Moment::Ordinary, Txg(7), move |_| async move { Err(half) }.boxed()));
        tasks.push(Task::new(Moment::Ordinary, Txg(7), |_| async { unreachable!("it comes after the end") }.boxed()));
        let outcome = tasks.take(Txg(7)).run(Moment::Ordinary, Txg(7)).await;
        assert!(outcome.unwrap_err().to_string().contains("half of it"));
    }
}
