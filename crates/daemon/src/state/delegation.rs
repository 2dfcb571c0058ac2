//! `zfs allow` and `zfs unallow`.

use platter_api::delegation::{Allow, ByKey, GetPermissions, Permissions, Unallow};
use platter_api::messages::Outcome;
use platter_api::request::DatasetOperation;
use platter_dsl::permissions::Granted;

use super::mounts::{no_such_dataset, pool_of};
use super::{Answer, Daemon, failed};

/// As it travels.
fn by_key(granted: Granted) -> ByKey {
    granted.into_iter().map(|(key, names)| (key.to_string(), names)).collect()
}

impl Daemon {
    /// What is allowed at a data set and above it.
    pub async fn permissions(&self, call: &GetPermissions) -> Answer<Permissions> {
        let pool = self.pool_with(&call.name)?;
        let cannot_open = |error| failed(&format!("cannot open '{}'", call.name), error);
        let mut lineage = pool.lineage(&call.name).await.map_err(cannot_open)?;
        if lineage.last().is_none_or(|last| last.name != call.name) {
            return Err(no_such_dataset(&call.name));
        }
        lineage.reverse();
        let mut found = Permissions::default();
        for report in lineage {
            let granted = pool.granted(&report.name).await.map_err(cannot_open)?;
            if !granted.is_empty() {
                found.datasets.push((report.name, by_key(granted)));
            }
        }
        Ok(found)
    }

    /// `zfs allow`.
    pub async fn allow(&self, call: &Allow) -> Answer<Outcome> {
        let name = &call.name;
        let _lock = self.turn(pool_of(name), &format!("cannot set permissions on '{name}'")).await?;
        let pool = self.pool_with(name)?;
        let allow = DatasetOperation::Allow { name: name.clone(), granted: call.granted.clone() };
        let what = format!("cannot set permissions on '{name}'");
        pool.perform_on_dataset(allow).await.map_err(|error| failed(&what, error))?;
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// `zfs unallow`.
    pub async fn unallow(&self, call: &Unallow) -> Answer<Outcome> {
        let name = &call.name;
        let _lock = self.turn(pool_of(name), &format!("cannot set permissions on '{name}'")).await?;
        let pool = self.pool_with(name)?;
        for target in self.data_sets(&pool, name, call.recursive).await? {
            let what = format!("cannot set permissions on '{target}'");
            let unallow = DatasetOperation::Unallow { name: target, revoked: call.revoked.clone() };
            pool.perform_on_dataset(unallow).await.map_err(|error| failed(&what, error))?;
        }
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }
}
