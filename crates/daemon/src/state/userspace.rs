//! What users, groups and projects use and may use. The pool's lock is held throughout: a file system that is not
//! mounted is opened for the purpose, and there is one handle for that and for a mount.

use platter_api::report::DatasetKind;
use std::sync::Arc;

use super::mounts::{no_such_dataset, pool_of};
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::engine::PoolHandle;
use crate::secpolicy;
use platter_api::messages::{ErrorBody, IdQuota, IdUsage, Outcome, SetIdQuota, Userspace, Whose};

impl Daemon {
    /// The pool of file system `name`, or of the snapshot of one.
    async fn file_system(&self, name: &str) -> Answer<Arc<dyn PoolHandle>> {
        if name.contains('@') {
            self.snapshot_view(name).await?;
        }
        let name = name.split('@').next().unwrap_or_default();
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        let reports = pool.datasets().await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        let report = reports.iter().find(|report| report.name == name).ok_or_else(|| no_such_dataset(name))?;
        if report.kind != DatasetKind::Filesystem {
            return Err(ErrorBody::new("operation is only applicable to filesystems and their snapshots"));
        }
        Ok(pool)
    }

    /// `zfs userspace` and its kin. A guest is told of himself and his groups, and of others what he may see
    /// (`zfs_secpolicy_userspace_one`, `zfs_secpolicy_userspace_many`).
    pub async fn userspace(&self, name: &str, whose: Whose, asker: &Asker) -> Answer<Userspace> {
        let _lock = self.turn(pool_of(name), &format!("cannot get used/quota for {name}")).await?;
        let pool = self.file_system(name).await?;
        let usage = self.mounter.usage(&pool, name, whose).await;
        let usage = usage.map_err(|reason| ErrorBody::new(format!("cannot get used/quota for {name}: {reason}")))?;
        Ok(Userspace { usage: self.visible(usage, name, whose, asker).await })
    }

    /// What `asker` may see of it.
    async fn visible(&self, usage: Vec<IdUsage>, name: &str, whose: Whose, asker: &Asker) -> Vec<IdUsage> {
        let Asker::Guest(guest) = asker else { return usage };
        let mut sees = [false; 4];
        for (sees, kind) in sees.iter_mut().zip(["used", "quota", "objused", "objquota"]) {
            *sees = self.lacking(asker, vec![secpolicy::of_usage(whose, kind, name)]).await.is_empty();
        }
        let is_own = |id: u64| match whose {
            Whose::User => id == u64::from(guest.uid),
            Whose::Group => guest.is_member(id),
            Whose::Project => false,
        };
        let [used, quota, objects_used, objects_quota] = sees;
        let shown = usage.into_iter().filter(|usage| is_own(usage.id) || sees.contains(&true));
        shown
            .map(|usage| match is_own(usage.id) {
                true => usage,
                false => IdUsage {
                    id: usage.id,
                    used: if used { usage.used } else { 0 },
                    quota: if quota { usage.quota } else { 0 },
                    objects_used: usage.objects_used.filter(|_| objects_used),
                    objects_quota: if objects_quota { usage.objects_quota } else { 0 },
                },
            })
            .collect()
    }

    /// `zfs set userquota@…` and its kin.
    pub async fn set_id_quota(&self, call: &SetIdQuota) -> Answer<Outcome> {
        let name = &call.name;
        let _lock = self.turn(pool_of(name), &format!("cannot set property for '{name}'")).await?;
        let pool = self.file_system(name).await?;
        self.set_id_quotas(&pool, name, std::slice::from_ref(&call.quota))
            .await
            .map_err(|reason| ErrorBody::new(format!("cannot set property for '{name}': {reason}")))?;
        if let Some(active) = self.mounted(name) {
            active.mounted.lock().await.reload_quotas().await;
        }
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// Sets quotas in a file system's object set; the error is the reason only.
    pub(super) async fn set_id_quotas(
        &self,
        pool: &Arc<dyn PoolHandle>,
        name: &str,
        quotas: &[IdQuota],
    ) -> Result<(), String> {
        for quota in quotas {
            self.mounter.set_quota(pool, name, quota).await?;
        }
        Ok(())
    }
}
