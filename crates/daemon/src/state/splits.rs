//! `zpool split`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use platter_api::messages::{ErrorBody, ImportPool};
use platter_api::request::ImportRequest;
use platter_api::splits::{SplitAnswer, SplitOff, SplitPool};
use platter_dsl::PoolError;

use super::{Answer, Daemon, failed};

impl Daemon {
    /// Makes a pool of one device of each mirror. It is exported then, or imported below another root.
    pub async fn split_pool(&self, call: SplitPool) -> Answer<SplitAnswer> {
        let (request, altroot) = (call.request.clone(), call.altroot.clone());
        let split = self.split_off(call.clone()).await?;
        let done = SplitAnswer { split, ..SplitAnswer::default() };
        // Its own lock is taken by the import: nobody waits for two pools.
        match altroot {
            Some(altroot) if !request.dry_run => self.import_split_off(&call, altroot, done).await,
            _ => Ok(done),
        }
    }

    async fn split_off(&self, call: SplitPool) -> Answer<SplitOff> {
        let SplitPool { pool: name, request, command, .. } = call;
        let what = format!("Unable to split {name}");
        let _lock = self.turn(&name, &what).await?;
        let pool = self.pool(&name)?;
        if request.dry_run {
            return pool.split(request).await.map_err(|error| failed(&what, error));
        }
        let new_lock = self.locks.now(&request.new_name);
        if new_lock.is_none() || self.pool_names().pools.contains(&request.new_name) {
            return Err(failed(&what, PoolError::Exists("pool already exists".into())));
        }
        let datasets: BTreeSet<String> = pool.names_under(&name).await.unwrap_or_default().into_iter().collect();
        self.flush_mounts(&datasets).await;
        let split = pool.split(request).await.map_err(|error| failed(&what, error));
        // Devices that had to come back may be elsewhere.
        self.follow_devices(&name, &pool).await;
        let split = split?;
        self.log(&pool, &command);
        Ok(split)
    }

    async fn import_split_off(&self, call: &SplitPool, altroot: PathBuf, mut done: SplitAnswer) -> Answer<SplitAnswer> {
        let new_name = &call.request.new_name;
        let paths = done.split.layout.children.iter().filter_map(|vdev| vdev.path.as_ref().map(PathBuf::from));
        let mut properties: BTreeMap<String, String> = BTreeMap::new();
        let cachefile = call.request.properties.get("cachefile");
        properties.extend(cachefile.map(|value| ("cachefile".to_owned(), value.clone())));
        properties.extend(call.read_only.then(|| ("readonly".to_owned(), "on".to_owned())));
        let request = ImportRequest {
            pool: done.split.guid.to_string(),
            search: paths.collect(),
            properties,
            altroot: Some(altroot),
            ..ImportRequest::default()
        };
        let imported = self.import_pool(ImportPool { request, mount: true }).await.map_err(|error| ErrorBody {
            message: format!("Split was successful, but '{new_name}' is still exported: {}", error.message),
            ..error
        })?;
        (done.outcome, done.unmounted) = (imported.outcome, imported.unmounted);
        Ok(done)
    }
}
