//! Which contents a crash may leave, given what had begun, ended and been acknowledged.
//!
//! The pool comes back as of one of its groups: the state after the first `n` steps, where `n` is at least what a sync
//! had acknowledged. On top of that the intent log may bring back steps up to the last `fsync` that began: names in
//! their order, and each file's own changes in theirs; what an `fsync` acknowledged must be among them.

use std::collections::{BTreeMap, BTreeSet};

use super::disks::DiskOperation;
use super::model::{Model, Step, Stream, View};
use super::operation::{Name, Operation};

/// A workload with the steps it consists of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The model before the first step.
    pub start: Model,
    /// All steps, in order.
    pub steps: Vec<Step>,
    /// Number of steps before each operation, and in all.
    pub bounds: Vec<usize>,
    /// The stream that each `fsync` waits for, and how many of all steps come before that.
    fsynced: Vec<Option<(Stream, usize)>>,
}

impl Plan {
    /// Plans `operations` from `start` on; `None` when one of them cannot be done where it stands. `first` is the
    /// number of the first operation.
    pub fn new(start: &Model, operations: &[Operation], first: usize) -> Option<Self> {
        let (mut model, mut steps, mut bounds, mut fsynced) = (start.clone(), Vec::new(), vec![0], Vec::new());
        for (index, operation) in operations.iter().enumerate() {
            let planned = operation.plan(first + index, &model)?;
            let stream = match operation {
                Operation::Fsync(name) => Some(Stream::File(node(&model, *name)?)),
                Operation::FsyncVolume | Operation::StableVolume(..) => Some(Stream::Volume),
                _ => None,
            };
            planned.iter().for_each(|step| model.apply(step));
            steps.extend(planned);
            fsynced.push(stream.map(|stream| (stream, steps.len())));
            bounds.push(steps.len());
        }
        Some(Self { operations: operations.to_vec(), start: start.clone(), steps, bounds, fsynced })
    }

    /// The model after all steps.
    pub fn end(&self) -> Model {
        self.after(self.steps.len())
    }

    /// Which operation splits the pool, and what it holds right before.
    pub fn split(&self) -> Option<(usize, View)> {
        let splits = [DiskOperation::Split, DiskOperation::SplitAttached].map(Operation::Disk);
        let index = self.operations.iter().position(|operation| splits.contains(operation))?;
        Some((index, self.after(self.bounds[index]).view()))
    }

    fn after(&self, count: usize) -> Model {
        let mut model = self.start.clone();
        self.steps[..count].iter().for_each(|step| model.apply(step));
        model
    }

    /// Everything that may be found after a crash when `begun` operations had begun and `ended` had returned.
    pub fn allowed(&self, begun: usize, ended: usize) -> Vec<View> {
        let done = self.bounds[begun];
        let synced = self.operations[..ended].iter().rposition(|operation| operation.is_sync());
        let least = synced.map_or(0, |index| self.bounds[index + 1]);
        let mut views: Vec<View> = Vec::new();
        for base in least..=done {
            let later = &self.steps[base..done];
            let streams: BTreeSet<Stream> = later.iter().map(Step::stream).filter(|s| *s != Stream::Pool).collect();
            let ranges: Vec<(Stream, usize, usize)> = streams
                .into_iter()
                .map(|stream| {
                    let logged = &self.steps[base..self.logged(stream, begun).max(base)];
                    let all = logged.iter().filter(|step| step.stream() == stream).count();
                    (stream, self.acknowledged(stream, base, ended), all)
                })
                .collect();
            for counts in combinations(&ranges) {
                let mut model = self.after(base);
                let mut left = counts;
                for step in later {
                    if let Some(count) = left.get_mut(&step.stream())
                        && *count > 0
                    {
                        *count -= 1;
                        model.apply(step);
                    }
                }
                let view = model.view();
                if !views.contains(&view) {
                    views.push(view);
                }
            }
        }
        views
    }

    /// Where the last fsync of `stream`'s log stood among the first `begun` operations: nothing later can be in it.
    fn logged(&self, stream: Stream, begun: usize) -> usize {
        let same_log = |of: Stream| (of == Stream::Volume) == (stream == Stream::Volume);
        let last = self.fsynced[..begun].iter().rev().flatten().find(|(of, _)| same_log(*of));
        last.map_or(0, |(_, steps)| *steps)
    }

    /// How many steps of `stream` from step `base` on an `fsync` among the first `ended` operations acknowledged.
    fn acknowledged(&self, stream: Stream, base: usize, ended: usize) -> usize {
        let covers = |fsynced: Stream| match (fsynced, stream) {
            // Names are logged in one order by every fsync of a file.
            (Stream::File(_), Stream::Names) => true,
            (fsynced, stream) => fsynced == stream,
        };
        let last = self.fsynced[..ended].iter().rev().flatten().find(|(fsynced, _)| covers(*fsynced));
        let end = last.map_or(0, |(_, steps)| *steps);
        self.steps.get(base..end).unwrap_or_default().iter().filter(|step| step.stream() == stream).count()
    }
}

fn node(model: &Model, name: Name) -> Option<usize> {
    model.find(name.place(model)?)
}

/// Every way to choose a number from each range.
fn combinations(ranges: &[(Stream, usize, usize)]) -> Vec<BTreeMap<Stream, usize>> {
    let mut all = vec![BTreeMap::new()];
    for &(stream, least, most) in ranges {
        all = all
            .iter()
            .flat_map(|chosen: &BTreeMap<Stream, usize>| {
                (least..=most).map(move |count| {
                    let mut chosen = chosen.clone();
                    chosen.insert(stream, count);
                    chosen
                })
            })
            .collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(operations: &[Operation]) -> Plan {
        let base = Plan::new(&Model::default(), &Operation::base(), 100).expect("it can be done");
        Plan::new(&base.end(), operations, 0).expect("it can be done")
    }

    const FOO: Name = Name("foo");
    const NEW: Name = Name("new");

    #[test]
    fn what_was_fsynced_is_in_every_allowed_view_and_nothing_else_must_be() {
        let plan =
            plan(&[Operation::Create(NEW), Operation::Append(NEW, 100), Operation::Fsync(NEW), Operation::Unlink(FOO)]);
        let before = plan.allowed(2, 2);
        assert!(before.iter().any(|view| !view.tree.contains_key("/new")));
        let after = plan.allowed(4, 3);
        assert!(after.iter().all(|view| view.tree["/new"].bytes.len() == 100));
        assert!(after.iter().any(|view| view.tree.contains_key("/foo")));
        assert!(after.iter().any(|view| !view.tree.contains_key("/foo")));
    }

    #[test]
    fn a_sync_leaves_one_view() {
        let plan = plan(&[Operation::Append(FOO, 20_000), Operation::Chmod(FOO), Operation::Sync]);
        assert!(plan.allowed(3, 2).len() > 2, "each block of the write can be missing");
        assert_eq!(plan.allowed(3, 3), [plan.end().view()]);
    }

    #[test]
    fn an_fsync_says_nothing_about_other_files() {
        let bar = Name("A/bar");
        let plan = plan(&[Operation::Overwrite(bar, 0, 100), Operation::Fsync(FOO)]);
        let sizes: Vec<bool> =
            plan.allowed(2, 2).iter().map(|view| view.tree["/A/bar"] == plan.end().view().tree["/A/bar"]).collect();
        assert_eq!(sizes.len(), 2, "{sizes:?}");
    }
}
