//! Clones: making them, and letting one change places with what it was made of.
//!
//! Invariant: a mount shows in `.zfs/snapshot` what its data set's snapshots are after any of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::messages::{ErrorBody, Outcome};
use platter_api::names::check_dataset;
use platter_api::report::{DatasetReport, PropertyValue};
use platter_api::request::DatasetOperation;
use platter_api::snapshots::{CloneSnapshot, PromoteDataset};
use platter_dsl::PoolError;

use super::datasets::{for_parents, missing_parents};
use super::mounts::{no_such_dataset, pool_of};
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::engine::PoolHandle;
use crate::mount_plan;
use crate::mounter::HowToMount;

/// The text of a property.
pub(super) fn text<'a>(report: &'a DatasetReport, property: &str) -> Option<&'a str> {
    match report.properties.get(property).map(|property| &property.value) {
        Some(PropertyValue::Text(text)) => Some(text),
        _ => None,
    }
}

impl Daemon {
    /// `zfs clone`.
    pub async fn clone_snapshot(&self, call: &CloneSnapshot, asker: &Asker) -> Answer<Outcome> {
        let (snapshot, name) = (&call.snapshot, &call.name);
        let what = format!("cannot create '{name}'");
        let _lock = self.turn(pool_of(snapshot), &what).await?;
        let pool = self.pool(pool_of(snapshot)).map_err(|_| no_such_dataset(snapshot))?;
        let cannot_open = |error| failed(&format!("cannot open '{snapshot}'"), error);
        let origin = pool.snapshot(snapshot).await.map_err(cannot_open)?;
        check_dataset(name).map_err(|reason| failed(&what, PoolError::from(reason)))?;
        if !name.contains('/') {
            if call.parents && self.pool(name).is_ok() {
                return Ok(Outcome::default());
            }
            return Err(ErrorBody::new(format!("{what}: missing dataset name")));
        }
        if self.pool(pool_of(name)).is_err() {
            return Err(ErrorBody::new(format!("{what}: no such pool '{}'", pool_of(name))));
        }
        if pool_of(name) != pool_of(snapshot) {
            return Err(ErrorBody::new(format!("{what}: source and target pools differ")));
        }
        let map = mount_plan::by_name(&pool.lineage(name).await.map_err(|error| failed(&what, error))?);
        if map.contains_key(name) && call.parents {
            return Ok(Outcome::default());
        }
        let parents = missing_parents(&map, name);
        if !parents.is_empty() && !call.parents {
            return Err(ErrorBody::new(format!("{what}: parent does not exist"))
                .hint("use 'zfs clone -p' to create the missing parents too"));
        }
        if !call.quotas.is_empty() && origin.properties.contains_key("volsize") {
            return Err(ErrorBody::new(format!("{what}: quotas of users and groups do not apply to volumes")));
        }
        let mut properties = call.properties.clone();
        if !origin.properties.contains_key("volsize") {
            self.distrust_clone(asker, name, &mut properties).await;
        }
        let clone = DatasetOperation::Clone {
            snapshot: origin.name.clone(),
            name: name.clone(),
            properties,
            creator: Some(asker.creator()),
        };
        if parents.is_empty() {
            pool.check(&clone).await.map_err(|error| failed(&what, error))?;
        }
        let mut outcome = Outcome::default();
        let properties = for_parents(call.parents_unmounted);
        outcome.problems = self.make_missing(&pool, parents, &properties, &what, asker).await?;
        pool.perform_on_dataset(clone).await.map_err(|error| failed(&what, error))?;
        if !call.quotas.is_empty()
            && let Err(reason) = self.set_id_quotas(&pool, name, &call.quotas).await
        {
            // A clone that fails leaves nothing.
            let destroy = DatasetOperation::Destroy { name: name.clone() };
            pool.perform_on_dataset(destroy).await.map_err(|error| failed(&what, error))?;
            return Err(ErrorBody::new(format!("{what}: {reason}")));
        }
        self.show_volumes(pool_of(name), false).await;
        self.log(&pool, &call.command);
        if !asker.may_mount() {
            outcome.problems.extend(self.left_unmounted(&pool, name).await.filter(|_| call.mount));
        } else if call.mount
            && let Err(error) = self.mount_dataset(name, false, &HowToMount::default()).await
        {
            outcome.problems.push(format!("{}\nfilesystem successfully created, but not mounted", error.message));
        }
        // As OpenZFS, which says so and ends well all the same.
        Ok(outcome)
    }

    /// `zfs promote`.
    pub async fn promote_dataset(&self, call: &PromoteDataset) -> Answer<Outcome> {
        let name = &call.name;
        let what = format!("cannot promote '{name}'");
        let _lock = self.turn(pool_of(name), &what).await?;
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        let reports = self.reports(&pool, &format!("cannot open '{name}'")).await?;
        let report = reports.iter().find(|report| report.name == *name).ok_or_else(|| no_such_dataset(name))?;
        let Some(origin) = text(report, "origin") else {
            return Err(ErrorBody::new(format!("{what}: not a cloned filesystem")));
        };
        let promote = DatasetOperation::Promote { name: name.clone() };
        // What is refused takes no snapshot away from a mount.
        pool.check(&promote).await.map_err(|error| failed(&what, error))?;
        let old = origin.split('@').next().unwrap_or_default();
        let all = pool.snapshot_names(old).await.map_err(|error| failed(&what, error))?;
        let last = all.iter().position(|snapshot| snapshot == origin).map_or(0, |at| at + 1);
        let shown = self.shown(&pool, &all[..last]).await;
        pool.perform_on_dataset(promote).await.map_err(|error| failed(&what, error))?;
        self.close_shown(&shown);
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// The origin of clone `name`, when that waits to be destroyed with its last clone, as the mounts show it.
    pub(super) async fn waiting_origin(&self, pool: &Arc<dyn PoolHandle>, name: &str) -> BTreeMap<String, Vec<u64>> {
        let reports = pool.lineage(name).await.unwrap_or_default();
        let report = reports.iter().find(|report| report.name == *name);
        let Some(origin) = report.and_then(|report| text(report, "origin")) else { return BTreeMap::new() };
        match pool.snapshot(origin).await {
            Ok(snapshot) if text(&snapshot, "defer_destroy") == Some("on") => {
                self.shown(pool, &[origin.to_owned()]).await
            }
            _ => BTreeMap::new(),
        }
    }
}
