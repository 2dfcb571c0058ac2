//! Whether somebody may do what he asks for, by what the data sets allow to him.
//!
//! Invariants:
//! - an operation of a guest is done within its pool's lock, in which it was found that he may do it: nothing that it
//!   is about is another thing by then. What takes long holds no lock: streams are asked about where they begin, and a
//!   comparison changes nothing;
//! - where a pool delegates nothing (`delegation=off`), nothing is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_api::ask::Operation;
use platter_api::messages::{ErrorBody, ErrorKind};
use platter_api::report::PropertyValue;
use platter_dsl::permissions::{self, Asker as Guest, Granted};
use platter_schedule::Slot;

use super::clones::text;
use super::dependents::Dependents;
use super::mounts::{no_such_dataset, pool_of};
use super::snapshots::meant;
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::denied;
use crate::engine::PoolHandle;
use crate::secpolicy::{Need, Place, Policy, policy};

/// What was read of a pool to answer one question.
struct Look<'a> {
    pool: &'a Arc<dyn PoolHandle>,
    guest: &'a Guest,
    granted: BTreeMap<String, Granted>,
}

/// Names of a data set and those above it, from the bottom.
fn line(name: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(above, _)| above))
}

impl Look<'_> {
    async fn load(&mut self, dataset: &str) -> Answer<()> {
        for name in line(dataset) {
            if !self.granted.contains_key(name) {
                let what = format!("cannot open '{name}'");
                let granted = self.pool.granted(name).await.map_err(|error| failed(&what, error))?;
                self.granted.insert(name.to_owned(), granted);
            }
        }
        Ok(())
    }

    /// Whether a permission is had at a data set, or at what is below it, or is its snapshot.
    async fn has(&mut self, dataset: &str, is_below: bool, permission: &str) -> Answer<bool> {
        self.load(dataset).await?;
        let granted = line(dataset).filter_map(|name| self.granted.get(name));
        Ok(permissions::allows(granted, is_below, self.guest, permission))
    }

    /// Whether a permission will be had at a data set that is made below `above`.
    async fn will_have(&mut self, above: &str, permission: &str) -> Answer<bool> {
        self.load(above).await?;
        let all: Vec<&Granted> = line(above).filter_map(|name| self.granted.get(name)).collect();
        let made = permissions::at_creation(all.iter().copied(), self.guest.uid);
        Ok(permissions::allows(std::iter::once(&made).chain(all), false, self.guest, permission))
    }
}

/// A refusal, in OpenZFS's words.
pub(super) fn denied(what: &str) -> ErrorBody {
    ErrorBody::of_kind(ErrorKind::Denied, format!("{what}: permission denied"))
}

/// The nearest data set above `name` that is there, and whether that is the one right above it.
fn nearest(names: &BTreeSet<String>, name: &str) -> Option<(String, bool)> {
    let found = line(name).skip(1).find(|above| names.contains(*above))?;
    Some((found.to_owned(), line(name).nth(1) == Some(found)))
}

impl Daemon {
    /// Does an operation for somebody else than the owner, when he may do it.
    ///
    /// # Errors
    /// He may not; what `work` says.
    pub async fn on_behalf<T>(
        &self,
        guest: &Guest,
        operation: &Operation,
        work: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        let needs = match policy(operation, guest.uid) {
            Policy::Everybody | Policy::AsItGoes => return work.await,
            Policy::Owner => return Err(denied::refusal(operation)),
            Policy::Delegated(needs) => needs,
        };
        let pool = needs.iter().find_map(|need| need.place.name()).map(|name| pool_of(name).to_owned());
        let pool = pool.ok_or_else(|| denied::refusal(operation))?;
        if let Operation::DiffSnapshots(_) = operation {
            // It takes long, and changes nothing.
            self.permit(guest, &needs, || denied::refusal(operation)).await?;
            return work.await;
        }
        let permitted = async {
            self.permit(guest, &needs, || denied::refusal(operation)).await?;
            self.leave_mounts_alone(operation)?;
            Self::leave_scheduled_names_alone(operation)?;
            assert!(self.locks.now(&pool).is_none(), "nobody else changes anything until it is done");
            work.await
        };
        self.locks.within(&pool, permitted).await
    }

    /// Whether it is worth waiting for the pool: whoever may not anyway hears so at once.
    ///
    /// # Errors
    /// He may not.
    pub async fn permit_at_first(&self, guest: &Guest, operation: &Operation) -> Answer<()> {
        match policy(operation, guest.uid) {
            Policy::Everybody | Policy::AsItGoes => Ok(()),
            Policy::Owner => Err(denied::refusal(operation)),
            Policy::Delegated(needs) => self.permit(guest, &needs, || denied::refusal(operation)).await,
        }
    }

    /// Whether somebody may do all that, or is told `refusal`.
    ///
    /// # Errors
    /// He may not, or what it is about is not there.
    pub(super) async fn permit(&self, guest: &Guest, needs: &[Need], refusal: impl Fn() -> ErrorBody) -> Answer<()> {
        if needs.is_empty() {
            // What takes nothing is everybody's; this was about nothing.
            return Err(refusal());
        }
        let mut looks: BTreeMap<String, (Arc<dyn PoolHandle>, BTreeMap<String, Granted>)> = BTreeMap::new();
        for need in needs {
            let Some(name) = need.place.name() else { return Err(refusal()) };
            let pool_name = pool_of(name).to_owned();
            if !looks.contains_key(&pool_name) {
                let pool = self.pool_with(name)?;
                if !delegates(&pool).await? {
                    return Err(refusal());
                }
                looks.insert(pool_name.clone(), (pool, BTreeMap::new()));
            }
            let Some((pool, granted)) = looks.get_mut(&pool_name) else { return Err(refusal()) };
            let mut look = Look { pool, guest, granted: std::mem::take(granted) };
            let allowed = self.allowed(&mut look, need).await;
            *granted = look.granted;
            if !allowed? {
                return Err(refusal());
            }
        }
        Ok(())
    }

    async fn allowed(&self, look: &mut Look<'_>, need: &Need) -> Answer<bool> {
        let permission = &need.permission;
        let pool = look.pool.clone();
        match &need.place {
            Place::Nowhere => Ok(false),
            Place::At(name) => {
                let dataset = name.split(['@', '#']).next().unwrap_or_default();
                look.has(dataset, name.contains('@'), permission).await
            }
            Place::Tree(name) => {
                let names = self.data_sets(&pool, name, true).await?;
                self.at_all(look, permission, names.iter().map(|name| (name.as_str(), false))).await
            }
            Place::Above(name) => {
                let (above, is_last) = self.above(&pool, name).await?;
                Ok(look.has(&above, false, permission).await?
                    && (is_last || look.has(&above, true, permission).await?))
            }
            Place::New(name) => match self.above(&pool, name).await? {
                (above, true) => look.will_have(&above, permission).await,
                (above, false) => look.has(&above, true, permission).await,
            },
            Place::Snapshots(name, which, recursive) => {
                // What is named and not there is nothing that anybody needs rights for, but at the data set itself.
                let found = self.named_snapshots(&pool, name, which, *recursive).await?;
                let of = |snapshot: &String| snapshot.split('@').next().unwrap_or_default().to_owned();
                let datasets: BTreeSet<String> = found.iter().map(of).chain([name.clone()]).collect();
                self.at_all(look, permission, datasets.iter().map(|name| (name.as_str(), true))).await
            }
            Place::Inside(name) => {
                let names = self.data_sets(&pool, name, true).await?;
                for dataset in names {
                    let has_some = !self.own_snapshots(&pool, &dataset).await?.is_empty();
                    if has_some && !look.has(&dataset, true, permission).await? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Place::Dependents(name) => self.at_dependents(look, permission, std::slice::from_ref(name)).await,
            Place::DependentsOfSnapshots(name, which, recursive) => {
                let names = self.named_snapshots(&pool, name, which, *recursive).await?;
                self.at_dependents(look, permission, &names).await
            }
            Place::DependentsOfNewer(name) => {
                let newer = self.newer(&pool, name).await?;
                self.at_dependents(look, permission, &newer).await
            }
            Place::NewerThan(name) => {
                let dataset = name.split('@').next().unwrap_or_default();
                let nothing =
                    self.newer(&pool, name).await?.is_empty() && self.newer_bookmarks(&pool, name).await?.is_empty();
                Ok(nothing || look.has(dataset, true, permission).await?)
            }
            Place::Origin(name) => {
                let reports = self.reports(&pool, &format!("cannot open '{name}'")).await?;
                let report = reports.iter().find(|report| report.name == *name).ok_or_else(|| no_such_dataset(name))?;
                match text(report, "origin").and_then(|origin| origin.split_once('@')) {
                    Some((dataset, _)) => look.has(dataset, true, permission).await,
                    // What is no clone is told by who promotes it.
                    None => Ok(true),
                }
            }
        }
    }

    async fn at_all<'a>(
        &self,
        look: &mut Look<'_>,
        permission: &str,
        places: impl Iterator<Item = (&'a str, bool)>,
    ) -> Answer<bool> {
        for (dataset, is_below) in places {
            if !look.has(dataset, is_below, permission).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// These snapshots, as far as they are there.
    async fn named_snapshots(
        &self,
        pool: &Arc<dyn PoolHandle>,
        name: &str,
        which: &str,
        recursive: bool,
    ) -> Answer<Vec<String>> {
        let mut found = Vec::new();
        for dataset in self.data_sets(pool, name, recursive).await? {
            let all = self.own_snapshots(pool, &dataset).await?;
            let own: Vec<&str> = all.iter().filter_map(|name| Some(name.split_once('@')?.1)).collect();
            found.extend(meant(&own, which).into_iter().map(|own| format!("{dataset}@{own}")));
        }
        Ok(found)
    }

    /// A data set's snapshots that are newer than this one.
    async fn newer(&self, pool: &Arc<dyn PoolHandle>, snapshot: &str) -> Answer<Vec<String>> {
        let all = self.own_snapshots(pool, snapshot.split('@').next().unwrap_or_default()).await?;
        Ok(all.into_iter().skip_while(|other| other != snapshot).skip(1).collect())
    }

    /// At everything that depends on these. What is mounted of that is not to be had: nothing is unmounted for a guest.
    async fn at_dependents(&self, look: &mut Look<'_>, permission: &str, names: &[String]) -> Answer<bool> {
        if names.is_empty() {
            return Ok(true);
        }
        let pool = look.pool.clone();
        let what = format!("cannot open '{}'", pool.name());
        let reports = self.reports(&pool, &what).await?;
        let all = Dependents::of(&pool, &reports, names, &what).await?;
        let found: Vec<String> = names.iter().flat_map(|name| all.seen_from(name)).collect();
        if found.iter().any(|name| self.mounted(name).is_some()) {
            return Ok(false);
        }
        let places = found.iter().map(|name| match name.split_once('@') {
            Some((dataset, _)) => (dataset, true),
            None => (name.as_str(), false),
        });
        self.at_all(look, permission, places).await
    }

    async fn own_snapshots(&self, pool: &Arc<dyn PoolHandle>, dataset: &str) -> Answer<Vec<String>> {
        let names = pool.snapshot_names(dataset).await;
        names.map_err(|error| failed(&format!("cannot open '{dataset}'"), error))
    }

    /// The nearest data set above one that is to be made, and whether that is right above it.
    async fn above(&self, pool: &Arc<dyn PoolHandle>, name: &str) -> Answer<(String, bool)> {
        let lineage = pool.lineage(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        let names: BTreeSet<String> = lineage.into_iter().map(|report| report.name).collect();
        nearest(&names, name).ok_or_else(|| ErrorBody::new(format!("cannot create '{name}': missing dataset name")))
    }

    /// Refuses names that are the schedules': what has one may make another one surplus.
    fn leave_scheduled_names_alone(operation: &Operation) -> Answer<()> {
        let names: Vec<&String> = match operation {
            Operation::TakeSnapshots(call) => call.names.iter().collect(),
            Operation::RenameSnapshot(call) => vec![&call.to],
            _ => Vec::new(),
        };
        let is_theirs = |name: &&&String| {
            let own = name.split_once('@').map_or(name.as_str(), |(_, own)| own);
            Slot::named(own).is_some()
        };
        match names.iter().find(is_theirs) {
            Some(name) => Err(denied(&format!("cannot use the name '{name}', which is the schedule's"))),
            None => Ok(()),
        }
    }

    /// Refuses what would unmount something: that takes root, as in OpenZFS on Linux. What goes back to a snapshot is
    /// mounted again where it was.
    fn leave_mounts_alone(&self, operation: &Operation) -> Answer<()> {
        let moves = |property: &String| ["mountpoint", "canmount"].contains(&property.as_str());
        let tops: Vec<&String> = match operation {
            Operation::DestroyDataset(call) => vec![&call.name],
            Operation::RenameDataset(call) if !call.no_mount => vec![&call.from],
            Operation::SetDatasetProperties(call) if !call.no_mount && call.properties.keys().any(moves) => {
                vec![&call.name]
            }
            _ => Vec::new(),
        };
        let mounted = tops.into_iter().flat_map(|name| self.mounted_under(name)).find_map(|name| self.mounted(&name));
        match mounted {
            Some(active) => Err(denied(&format!("cannot unmount '{}'", active.at.display()))),
            None => Ok(()),
        }
    }

    /// Which of these needs a guest does not meet; none of the owner's.
    pub(super) async fn lacking(&self, asker: &Asker, needs: Vec<Need>) -> Vec<Need> {
        let Asker::Guest(guest) = asker else { return Vec::new() };
        let mut lacking = Vec::new();
        for need in needs {
            if self.permit(guest, std::slice::from_ref(&need), || denied("")).await.is_err() {
                lacking.push(need);
            }
        }
        lacking
    }

    /// As [`permit`](Self::permit), of whoever asks: the owner may do everything.
    ///
    /// # Errors
    /// He may not: `what` is what he wanted.
    pub(super) async fn permit_asker(&self, asker: &Asker, needs: &[Need], what: &str) -> Answer<()> {
        match asker {
            Asker::Owner => Ok(()),
            Asker::Guest(guest) => self.permit(guest, needs, || denied(what)).await,
        }
    }

    /// Whether somebody may do what is part of another operation of his, within the pool's lock or not.
    ///
    /// # Errors
    /// He may not.
    pub(super) async fn permit_part(&self, asker: &Asker, operation: &Operation) -> Answer<()> {
        match asker {
            Asker::Owner => Ok(()),
            Asker::Guest(guest) => {
                self.permit_at_first(guest, operation).await?;
                self.leave_mounts_alone(operation)
            }
        }
    }
}

/// Whether the pool delegates anything (property `delegation`).
async fn delegates(pool: &Arc<dyn PoolHandle>) -> Answer<bool> {
    let properties =
        pool.properties().await.map_err(|error| failed(&format!("cannot open '{}'", pool.name()), error))?;
    let value = properties.get("delegation").map(|property| &property.value);
    Ok(!matches!(value, Some(PropertyValue::Text(text)) if text == "off"))
}

impl Place {
    /// A name in the pool where it is.
    fn name(&self) -> Option<&str> {
        match self {
            Self::At(name) | Self::Tree(name) | Self::Above(name) | Self::New(name) => Some(name),
            Self::Snapshots(name, ..) | Self::Inside(name) | Self::NewerThan(name) | Self::Origin(name) => Some(name),
            Self::Dependents(name) | Self::DependentsOfNewer(name) | Self::DependentsOfSnapshots(name, ..) => {
                Some(name)
            }
            Self::Nowhere => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_is_found() {
        let names: BTreeSet<String> = ["t", "t/a"].map(str::to_owned).into();
        assert_eq!(nearest(&names, "t/a/b"), Some(("t/a".to_owned(), true)));
        assert_eq!(nearest(&names, "t/a/b/c"), Some(("t/a".to_owned(), false)));
        assert_eq!(nearest(&names, "t/x"), Some(("t".to_owned(), true)));
        assert_eq!(nearest(&names, "t"), None);
        assert_eq!(nearest(&names, "u/x"), None);
    }
}
