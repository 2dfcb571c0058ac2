//! What depends on a data set or a snapshot: data sets and snapshots below, and clones, wherever they are
//! (`zfs_iter_dependents`, `lib/libzfs/libzfs_iter.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_api::messages::ErrorBody;
use platter_api::report::{DatasetReport, PropertyValue};

use platter_dsl::resume_state;

use super::mounts::is_under;
use super::{Answer, failed};
use crate::engine::PoolHandle;

/// What of a pool depends on what, as far as some data sets or snapshots are concerned.
#[derive(Debug, Default)]
pub(super) struct Dependents {
    /// Data sets of the pool.
    datasets: BTreeSet<String>,
    /// Snapshots of a data set, the oldest first.
    snapshots: BTreeMap<String, Vec<String>>,
    /// Clones of a snapshot.
    clones: BTreeMap<String, BTreeSet<String>>,
}

/// One walk.
struct Walk<'a> {
    of: &'a Dependents,
    /// Data sets that are being walked.
    stack: Vec<String>,
    found: Vec<String>,
    seen: BTreeSet<String>,
    /// Whether a data set that depends on itself is passed over.
    passes_circles: bool,
}

impl Walk<'_> {
    /// Everything that depends on `name` comes before it.
    fn visit(&mut self, name: &str, is_first: bool) -> Result<(), String> {
        if self.seen.contains(name) {
            return Ok(());
        }
        let below: Vec<String> = match name.contains('@') {
            true => self.of.clones.get(name).into_iter().flatten().cloned().collect(),
            false if self.stack.iter().any(|other| other == name) => {
                let circle = format!("cannot determine dependent datasets: recursive dependency at '{name}'");
                return if self.passes_circles { Ok(()) } else { Err(circle) };
            }
            false => {
                let depth = name.matches('/').count() + 1;
                let is_child = |other: &&String| is_under(other, name) && other.matches('/').count() == depth;
                let children = self.of.datasets.iter().filter(is_child);
                let own = self.of.snapshots.get(name).into_iter().flatten();
                children.chain(own).cloned().collect()
            }
        };
        self.stack.push(name.to_owned());
        let walked = below.iter().try_for_each(|other| self.visit(other, false));
        self.stack.pop();
        walked?;
        if !is_first && self.seen.insert(name.to_owned()) {
            self.found.push(name.to_owned());
        }
        Ok(())
    }
}

impl Dependents {
    /// Those of `names`, which are data sets or snapshots of the pool with these data sets.
    pub(super) async fn of(
        pool: &Arc<dyn PoolHandle>,
        reports: &[DatasetReport],
        names: &[String],
        what: &str,
    ) -> Answer<Self> {
        let mut all = Self { datasets: reports.iter().map(|report| report.name.clone()).collect(), ..Self::default() };
        for report in reports {
            if let Some(PropertyValue::Text(origin)) = report.properties.get("origin").map(|origin| &origin.value) {
                all.clones.entry(origin.clone()).or_default().insert(report.name.clone());
            }
        }
        if let Some(engine) = pool.engine_pool() {
            for name in names.iter().filter(|name| name.contains('@')) {
                let found = resume_state::unfinished_clone(engine.dsl(), name).await;
                let unfinished = found.map_err(|error| failed(what, error.into()))?;
                all.clones.entry(name.clone()).or_default().extend(unfinished);
            }
        }
        let mut work = names.to_vec();
        while let Some(name) = work.pop() {
            if name.contains('@') {
                work.extend(all.clones.get(&name).into_iter().flatten().cloned());
                continue;
            }
            let inside: Vec<String> =
                all.datasets.iter().filter(|other| **other == name || is_under(other, &name)).cloned().collect();
            for dataset in inside {
                if all.snapshots.contains_key(&dataset) {
                    continue;
                }
                let own = pool.snapshot_names(&dataset).await.map_err(|error| failed(what, error))?;
                work.extend(own.iter().filter(|snapshot| all.clones.contains_key(*snapshot)).cloned());
                all.snapshots.insert(dataset, own);
            }
        }
        Ok(all)
    }

    /// What depends on `name`, in the order in which it can be destroyed. A data set that depends on itself is passed
    /// over.
    pub(super) fn seen_from(&self, name: &str) -> Vec<String> {
        self.walk(name, true).unwrap_or_default()
    }

    /// As [`seen_from`](Self::seen_from), where it is to be destroyed.
    pub(super) fn in_order(&self, name: &str) -> Answer<Vec<String>> {
        self.walk(name, false).map_err(ErrorBody::new)
    }

    fn walk(&self, name: &str, passes_circles: bool) -> Result<Vec<String>, String> {
        let (found, seen) = (Vec::new(), BTreeSet::new());
        let mut walk = Walk { of: self, stack: Vec::new(), found, seen, passes_circles };
        walk.visit(name, true)?;
        Ok(walk.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(datasets: &[&str], snapshots: &[&str], clones: &[(&str, &str)]) -> Dependents {
        let mut all = Dependents { datasets: datasets.iter().map(|&name| name.into()).collect(), ..Default::default() };
        for snapshot in snapshots {
            let dataset = snapshot.split('@').next().unwrap().to_owned();
            all.snapshots.entry(dataset).or_default().push((*snapshot).into());
        }
        for (origin, clone) in clones {
            all.clones.entry((*origin).into()).or_default().insert((*clone).into());
        }
        all
    }

    #[test]
    fn what_depends_on_something_goes_before_it() {
        let all = family(
            &["t", "t/a", "t/a/b", "t/c", "t/c/d"],
            &["t/a@1", "t/a@2", "t/a/b@1", "t/c@x"],
            &[("t/a@1", "t/c")],
        );
        assert_eq!(all.seen_from("t/a"), ["t/a/b@1", "t/a/b", "t/c/d", "t/c@x", "t/c", "t/a@1", "t/a@2"]);
        assert_eq!(all.in_order("t/a@1").unwrap(), ["t/c/d", "t/c@x", "t/c"]);
        assert_eq!(all.in_order("t/a@2").unwrap(), [""; 0]);
    }

    // As after the promotion of what lies above its origin.
    #[test]
    fn what_depends_on_itself_is_told() {
        let all = family(&["t", "t/a", "t/a/b"], &["t/a/b@1"], &[("t/a/b@1", "t/a")]);
        assert_eq!(all.seen_from("t/a"), ["t/a/b@1", "t/a/b"]);
        let error = all.in_order("t/a").unwrap_err().message;
        assert_eq!(error, "cannot determine dependent datasets: recursive dependency at 't/a'");
    }
}
