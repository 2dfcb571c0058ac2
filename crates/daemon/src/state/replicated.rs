//! What an incremental replication stream says of what is here already: data sets and snapshots have other names, are
//! promoted or gone where it was sent, and become so here (`recv_incremental_replication`,
//! `lib/libzfs/libzfs_sendrecv.c`). They are known by the guids of their snapshots.
//!
//! Invariants:
//! - what the stream does not know is destroyed by `-F` only;
//! - each pass begins with what is there then, and the next one comes only when something was done.

use std::sync::Arc;

use platter_api::ask::Ask;
use platter_api::messages::{DestroyDataset, ErrorBody, RenameDataset};
use platter_api::names::split_snapshot;
use platter_api::snapshots::{DestroySnapshots, PromoteDataset, RenameSnapshot};
use platter_dsl::local_replica::{LocalDataset, LocalSnapshot};
use platter_dsl::{DslPool, PoolError};
use platter_nvlist::{NvList, Value};
use platter_ondisk::{Guid, Txg};

use super::{Answer, Daemon};
use crate::asker::Asker;
use crate::secpolicy;

/// A data set in the list of a package.
#[derive(Clone, Debug)]
struct Streamed<'a> {
    name: &'a str,
    parent_from: Guid,
    origin: Option<Guid>,
    snapshots: Vec<(&'a str, Guid)>,
    list: &'a NvList,
}

/// A package's list of data sets.
#[derive(Clone, Debug)]
pub struct Replica<'a> {
    datasets: Vec<Streamed<'a>>,
}

/// What is to become of something here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Promote(String),
    DestroySnapshot(String),
    /// Full name, and the new one without its data set.
    RenameSnapshot(String, String),
    DestroyDataset(String),
    /// The new name, where that is known already.
    RenameDataset(String, Option<String>),
}

/// How the stream is received.
#[derive(Clone, Copy, Debug)]
struct How<'a> {
    /// The topmost data set here.
    top: &'a str,
    /// The snapshot from which the stream goes on.
    from: &'a str,
    /// Whether the topmost data set is called as where it was sent (`-d`, `-e`).
    named_as_sent: bool,
    force: bool,
}

impl<'a> Replica<'a> {
    /// Reads a package's list; what is damaged in it is left out.
    pub fn of(package: &'a NvList) -> Self {
        let lists = package.get_list("fss").into_iter().flat_map(NvList::iter);
        let datasets = lists.filter_map(|(_, value)| match value {
            Value::List(list) => Some(Streamed {
                name: list.get_str("name")?,
                parent_from: Guid(list.get_u64("parentfromsnap").unwrap_or(0)),
                origin: list.get_u64("origin").map(Guid),
                snapshots: list
                    .get_list("snaps")?
                    .iter()
                    .filter_map(|(own, guid)| match guid {
                        Value::Uint64(guid) => Some((own, Guid(*guid))),
                        _ => None,
                    })
                    .collect(),
                list,
            }),
            _ => None,
        });
        Self { datasets: datasets.collect() }
    }

    /// The data set with this snapshot, and how that is called there.
    fn find(&self, snapshot: Guid) -> Option<(&Streamed<'a>, &'a str)> {
        self.datasets.iter().find_map(|dataset| {
            let (own, _) = dataset.snapshots.iter().find(|(_, guid)| *guid == snapshot)?;
            Some((dataset, *own))
        })
    }

    /// The list called `kind` of the data set with this snapshot.
    pub fn properties(&self, snapshot: Guid) -> Option<&'a NvList> {
        self.find(snapshot)?.0.list.get_list("props")
    }

    /// Of the snapshot itself: its properties, or with `snapholds` its tags.
    pub fn of_snapshot(&self, snapshot: Guid, kind: &str) -> Option<&'a NvList> {
        let (dataset, own) = self.find(snapshot)?;
        dataset.list.get_list(kind)?.get_list(own)
    }
}

/// The group of the snapshot with this guid, and its data set.
fn created(here: &[LocalDataset], guid: Guid) -> Option<(Txg, &LocalDataset)> {
    here.iter().find_map(|dataset| {
        let snapshot = dataset.snapshots.iter().find(|snapshot| snapshot.guid == guid)?;
        Some((snapshot.created, dataset))
    })
}

/// The last part of a name below another one.
fn tail(name: &str) -> Option<&str> {
    name.rsplit_once('/').map(|(_, tail)| tail)
}

/// What of the stream's knowledge one data set has to follow.
fn steps_of(here: &[LocalDataset], dataset: &LocalDataset, replica: &Replica<'_>, how: How<'_>) -> Vec<Step> {
    let found = dataset.snapshots.iter().find_map(|snapshot| replica.find(snapshot.guid));
    let Some((mut streamed, _)) = found else {
        let mut steps: Vec<Step> = dataset.snapshots.iter().map(|snapshot| gone(dataset, snapshot)).collect();
        steps.push(Step::DestroyDataset(dataset.name.clone()));
        return if how.force { steps } else { Vec::new() };
    };
    if dataset.origin != streamed.origin {
        let theirs = streamed.origin.and_then(|guid| created(here, guid));
        let ours = dataset.origin.and_then(|guid| created(here, guid));
        let is_promoted = match (streamed.origin, ours) {
            // It is a clone here, and there it was promoted to be none.
            (None, Some(_)) => true,
            (Some(_), Some((ours, _))) => theirs.is_some_and(|(theirs, _)| theirs < ours),
            (_, None) => false,
        };
        // Its list of snapshots is another one afterwards: the next pass sees to them.
        return if is_promoted { vec![Step::Promote(dataset.name.clone())] } else { Vec::new() };
    }
    let (mut steps, mut goes_on) = (Vec::new(), false);
    for snapshot in &dataset.snapshots {
        match replica.find(snapshot.guid) {
            None if how.force => steps.push(gone(dataset, snapshot)),
            None => {}
            Some((found, own)) => {
                // Its newest says what it is: older ones go to others with a promotion.
                streamed = found;
                if own != snapshot.own {
                    let name = format!("{}@{}", dataset.name, snapshot.own);
                    steps.push(Step::RenameSnapshot(name, own.to_owned()));
                }
                goes_on |= own == how.from;
            }
        }
    }
    let is_moved = dataset.parent_from.is_some_and(|own| streamed.parent_from.0 != 0 && streamed.parent_from != own);
    let is_renamed = (how.named_as_sent || how.top != dataset.name)
        && matches!((tail(&dataset.name), tail(streamed.name)), (Some(own), Some(theirs)) if own != theirs);
    if goes_on && (is_moved || is_renamed) {
        let parent = created(here, streamed.parent_from).map(|(_, parent)| &parent.name);
        let to = parent.zip(tail(streamed.name)).map(|(parent, tail)| format!("{parent}/{tail}"));
        steps.push(Step::RenameDataset(dataset.name.clone(), to));
    }
    steps
}

fn gone(dataset: &LocalDataset, snapshot: &LocalSnapshot) -> Step {
    Step::DestroySnapshot(format!("{}@{}", dataset.name, snapshot.own))
}

/// A name that nobody has, in the place of the last part of `name`, or of what stands behind its @.
fn other_name(name: &str, top: &str, taken: usize) -> Option<String> {
    let own = format!("recv-{}-{taken}", std::process::id());
    match split_snapshot(name) {
        Some((_, before)) if before.starts_with("recv-") => None,
        Some((dataset, _)) => Some(format!("{dataset}@{own}")),
        None if name == top || name.strip_prefix(top)?.starts_with("/recv-") => None,
        None => Some(format!("{top}/{own}")),
    }
}

impl Daemon {
    /// Follows the stream in what it says of what is here, before it is received or afterwards. What cannot be
    /// followed yet has another name until then; answers whether nothing is left to do.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub(super) async fn follow_replica(
        &self,
        dsl: &Arc<DslPool>,
        package: &NvList,
        top: &str,
        (named_as_sent, force): (bool, bool),
        asker: &Asker,
    ) -> Result<bool, PoolError> {
        let Some(from) = package.get_str("fromsnap") else { return Ok(true) };
        let (replica, how) = (Replica::of(package), How { top, from, named_as_sent, force });
        let mut taken = 0;
        loop {
            let here = dsl.local_replica(top, from).await?;
            let has_common =
                |dataset: &LocalDataset| dataset.snapshots.iter().any(|snapshot| replica.find(snapshot.guid).is_some());
            if !here.iter().any(|dataset| dataset.name == top && has_common(dataset)) {
                // It goes on from nothing that is here, which it will be told: nothing is destroyed for it.
                return Ok(true);
            }
            self.set_of_snapshots(dsl, &here, &replica, asker).await?;
            let (mut progress, mut again) = (false, false);
            // What lies below goes first: it has other names once what is above is called otherwise.
            for dataset in here.iter().rev() {
                for step in steps_of(&here, dataset, &replica, how) {
                    let destroys = matches!(step, Step::DestroySnapshot(_) | Step::DestroyDataset(_));
                    assert!(force || !destroys, "what the stream does not know is destroyed by -F only");
                    let done = self.take_step(dsl, &step, asker).await;
                    progress |= done.is_ok();
                    again |= done.is_err() || matches!(step, Step::Promote(_));
                    if let (Err(error), Some(name)) = (done, step.name()) {
                        tracing::debug!("replication: {step:?}: {}", error.message);
                        taken += 1;
                        if let Some(other) = other_name(name, top, taken) {
                            let _ = self.take_step(dsl, &step.aside(&other), asker).await;
                        }
                    }
                }
            }
            if !(again && progress) {
                return Ok(!again);
            }
        }
    }

    /// Gives the snapshots that are here the properties that they have in the stream.
    async fn set_of_snapshots(
        &self,
        dsl: &Arc<DslPool>,
        here: &[LocalDataset],
        replica: &Replica<'_>,
        asker: &Asker,
    ) -> Result<(), PoolError> {
        for dataset in here {
            for snapshot in &dataset.snapshots {
                let name = format!("{}@{}", dataset.name, snapshot.own);
                if let Some(list) = replica.of_snapshot(snapshot.guid, "snapprops")
                    && self.lacking(asker, secpolicy::of_user_properties(&name)).await.is_empty()
                {
                    dsl.set_received_of_snapshot(&name, list).await?;
                }
            }
        }
        Ok(())
    }

    /// Each step is something that whoever receives may do by himself, or is not done.
    async fn take_step(&self, dsl: &DslPool, step: &Step, asker: &Asker) -> Answer<()> {
        match step {
            Step::Promote(name) => {
                let call = PromoteDataset { name: name.clone(), ..PromoteDataset::default() };
                self.permit_part(asker, &call.clone().operation()).await?;
                self.promote_dataset(&call).await.map(drop)
            }
            Step::DestroySnapshot(name) => {
                let (dataset, own) = split_snapshot(name).unwrap_or_default();
                let call = DestroySnapshots {
                    dataset: dataset.to_owned(),
                    which: own.to_owned(),
                    defer: true,
                    ..DestroySnapshots::default()
                };
                self.permit_part(asker, &call.clone().operation()).await?;
                self.destroy_snapshots(&call).await?;
                // What somebody holds or has cloned goes later.
                match dsl.snapshot_guid(name).await {
                    Ok(None) => Ok(()),
                    _ => Err(ErrorBody::new("it is still in use")),
                }
            }
            Step::RenameSnapshot(from, own) => {
                let (dataset, _) = split_snapshot(from).unwrap_or_default();
                let to = format!("{dataset}@{own}");
                let call = RenameSnapshot { from: from.clone(), to, ..RenameSnapshot::default() };
                self.permit_part(asker, &call.clone().operation()).await?;
                self.rename_snapshot(&call).await.map(drop)
            }
            Step::DestroyDataset(name) => {
                let force = asker.may_mount();
                let call = DestroyDataset { name: name.clone(), force, ..DestroyDataset::default() };
                self.permit_part(asker, &call.clone().operation()).await?;
                self.destroy_dataset(&call).await.map(drop)
            }
            Step::RenameDataset(_, None) => Err(ErrorBody::new("its new parent is not here yet")),
            Step::RenameDataset(from, Some(to)) => {
                let (from, to) = (from.clone(), to.clone());
                let call = RenameDataset { from, to, force: asker.may_mount(), ..RenameDataset::default() };
                self.permit_part(asker, &call.clone().operation()).await?;
                self.rename_dataset(&call, asker).await.map(drop)
            }
        }
    }
}

impl Step {
    /// What gets out of the way when this cannot be done.
    fn name(&self) -> Option<&str> {
        match self {
            Self::Promote(_) => None,
            Self::DestroySnapshot(name) | Self::RenameSnapshot(name, _) => Some(name),
            Self::DestroyDataset(name) | Self::RenameDataset(name, _) => Some(name),
        }
    }

    /// The way out of the way.
    fn aside(&self, other: &str) -> Self {
        match self {
            Self::Promote(name) => Self::Promote(name.clone()),
            Self::DestroySnapshot(name) | Self::RenameSnapshot(name, _) => {
                let own = split_snapshot(other).map_or(other, |(_, own)| own);
                Self::RenameSnapshot(name.clone(), own.to_owned())
            }
            Self::DestroyDataset(name) | Self::RenameDataset(name, _) => {
                Self::RenameDataset(name.clone(), Some(other.to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(name: &str, snapshots: &[(&str, u64)], origin: Option<u64>, parent_from: Option<u64>) -> LocalDataset {
        let snapshots = snapshots
            .iter()
            .map(|(own, guid)| LocalSnapshot { own: (*own).to_owned(), guid: Guid(*guid), created: Txg(*guid) })
            .collect();
        LocalDataset { name: name.to_owned(), snapshots, origin: origin.map(Guid), parent_from: parent_from.map(Guid) }
    }

    /// A package of data sets: name, snapshots, origin, and the snapshot of the parent.
    fn package(all: &[(&str, &[(&str, u64)], Option<u64>, u64)]) -> NvList {
        let mut fss = NvList::new();
        for (name, snapshots, origin, parent_from) in all {
            let (mut list, mut snaps) = (NvList::new(), NvList::new());
            for (own, guid) in *snapshots {
                snaps.add_u64((*own).to_owned(), *guid);
            }
            list.add_str("name", (*name).to_owned()).add_u64("parentfromsnap", *parent_from);
            if let Some(origin) = origin {
                list.add_u64("origin", *origin);
            }
            list.add_list("snaps", snaps);
            fss.add_list((*name).to_owned(), list);
        }
        let mut package = NvList::new();
        package.add_list("fss", fss);
        package
    }

    fn steps(here: &[LocalDataset], package: &NvList, force: bool) -> Vec<Step> {
        let how = How { top: "b/r", from: "1", named_as_sent: false, force };
        let replica = Replica::of(package);
        here.iter().flat_map(|dataset| steps_of(here, dataset, &replica, how)).collect()
    }

    #[test]
    fn what_is_as_in_the_stream_stays() {
        let here = [local("b/r", &[("1", 10)], None, None), local("b/r/x", &[("1", 11)], None, Some(10))];
        let sent = package(&[("a", &[("1", 10), ("2", 20)], None, 0), ("a/x", &[("1", 11), ("2", 21)], None, 10)]);
        assert_eq!(steps(&here, &sent, true), []);
    }

    #[test]
    fn what_the_stream_does_not_know_goes_by_force_only() {
        let here = [local("b/r", &[("0", 9), ("1", 10)], None, None), local("b/r/x", &[("1", 11)], None, Some(10))];
        let sent = package(&[("a", &[("1", 10), ("2", 20)], None, 0)]);
        assert_eq!(steps(&here, &sent, false), []);
        let expected = [
            Step::DestroySnapshot("b/r@0".into()),
            Step::DestroySnapshot("b/r/x@1".into()),
            Step::DestroyDataset("b/r/x".into()),
        ];
        assert_eq!(steps(&here, &sent, true), expected);
    }

    #[test]
    fn names_follow() {
        let here = [
            local("b/r", &[("zero", 9), ("1", 10)], None, None),
            local("b/r/x", &[("1", 11)], None, Some(10)),
            local("b/r/x/y", &[("1", 12)], None, Some(11)),
        ];
        // x is called z, y lies beside it.
        let sent = package(&[
            ("a", &[("0", 9), ("1", 10), ("2", 20)], None, 0),
            ("a/z", &[("1", 11), ("2", 21)], None, 10),
            ("a/y", &[("1", 12), ("2", 22)], None, 10),
        ]);
        let expected = [
            Step::RenameSnapshot("b/r@zero".into(), "0".into()),
            Step::RenameDataset("b/r/x".into(), Some("b/r/z".into())),
            Step::RenameDataset("b/r/x/y".into(), Some("b/r/y".into())),
        ];
        assert_eq!(steps(&here, &sent, false), expected);
        // Its new parent comes with the stream.
        let sent = package(&[
            ("a", &[("zero", 9), ("1", 10), ("2", 20)], None, 0),
            ("a/new/x", &[("1", 11), ("2", 21)], None, 30),
            ("a/new/x/y", &[("1", 12), ("2", 21)], None, 11),
        ]);
        assert_eq!(steps(&here, &sent, false), [Step::RenameDataset("b/r/x".into(), None)]);
    }

    #[test]
    fn a_promotion_follows_first() {
        let here = [
            local("b/r", &[("1", 10)], None, None),
            local("b/r/c", &[("1", 12)], Some(11), Some(10)),
            local("b/r/x", &[("0", 11), ("1", 13)], None, Some(10)),
        ];
        let sent = package(&[
            ("a", &[("1", 10), ("2", 20)], None, 0),
            ("a/c", &[("0", 11), ("1", 12), ("2", 22)], None, 10),
            ("a/x", &[("1", 13), ("2", 23)], Some(11), 10),
        ]);
        assert_eq!(steps(&here, &sent, true), [Step::Promote("b/r/c".into())]);
    }

    #[test]
    fn other_names_are_given_once() {
        let pid = std::process::id();
        assert_eq!(other_name("b/r/x", "b/r", 1), Some(format!("b/r/recv-{pid}-1")));
        assert_eq!(other_name("b/r/x@a", "b/r", 2), Some(format!("b/r/x@recv-{pid}-2")));
        for kept in ["b/r", "b/r/recv-1-1", "b/r/x@recv-1-2"] {
            assert_eq!(other_name(kept, "b/r", 3), None);
        }
    }
}
