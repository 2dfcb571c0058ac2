//! What is done to an open pool: `zpool set`, `sync`, `scrub`, `clear`, and changes of its devices and identity.

use std::path::Path;
use std::sync::Arc;

use platter_api::messages::{ErrorBody, OperatePool};
use platter_api::report::PropertyValue;
use platter_api::request::{Changed, PoolChange, PoolOperation, ScrubAction, VdevRequest};
use platter_dsl::PoolError;

use super::{Answer, Daemon, failed, failed_creation};
use crate::engine::PoolHandle;

/// How a message begins that says what went wrong.
fn attempt(name: &str, operation: &PoolOperation) -> String {
    match operation {
        PoolOperation::Change(change) => match change {
            PoolChange::Add { .. } => format!("cannot add to '{name}'"),
            PoolChange::Online { device, .. } => format!("cannot online {device}"),
            PoolChange::Offline { device, .. } => format!("cannot offline {device}"),
            PoolChange::Fault { device, .. } => format!("cannot fault {device}"),
            PoolChange::Judge { device, .. } => format!("cannot give up {device}"),
            PoolChange::Attach { device, new, replaces: true, .. } => {
                format!("cannot replace {device} with {}", new.display())
            }
            PoolChange::Attach { device, new, .. } => format!("cannot attach {} to {device}", new.display()),
            PoolChange::Remove { device } => format!("cannot remove {device}"),
            PoolChange::Detach { device } => format!("cannot detach {device}"),
            PoolChange::Reguid { .. } => format!("cannot reguid '{name}'"),
            PoolChange::Upgrade { .. } => format!("cannot set property for '{name}'"),
            PoolChange::Reopen => format!("cannot reopen '{name}'"),
            // What is wrong with one device it says itself.
            PoolChange::Free { .. } => "operation failed".to_owned(),
        },
        PoolOperation::Set { .. } => format!("cannot set property for '{name}'"),
        PoolOperation::SetVdev { device, property, .. } => {
            format!("cannot set property {property} for {device} on {name}")
        }
        PoolOperation::Scrub(ScrubAction::Start | ScrubAction::Continue | ScrubAction::Errors) => {
            format!("cannot scrub '{name}'")
        }
        PoolOperation::Scrub(ScrubAction::Pause) => format!("cannot pause scrubbing {name}"),
        PoolOperation::Scrub(ScrubAction::Stop) => format!("cannot cancel scrubbing {name}"),
        PoolOperation::Scrub(ScrubAction::Resilver) => format!("cannot restart resilver on {name}"),
        PoolOperation::Clear { device: Some(device) } => format!("cannot clear errors for {device}"),
        PoolOperation::Clear { device: None } => format!("cannot clear errors for {name}"),
        PoolOperation::Sync { .. } => format!("sync '{name}' failed"),
    }
}

/// The ashift that new vdevs of a pool get when `asked` is given for it, or 0; none, or 0, when their devices say it.
async fn ashift_of(pool: &Arc<dyn PoolHandle>, asked: u64) -> Option<u32> {
    if asked > 0 {
        return u32::try_from(asked).ok();
    }
    match pool.properties().await.ok()?.get("ashift")?.value {
        PropertyValue::Number(ashift) => u32::try_from(ashift).ok(),
        _ => None,
    }
}

impl Daemon {
    /// Does something to an open pool.
    pub async fn operate_pool(&self, call: OperatePool) -> Answer<Changed> {
        let OperatePool { pool: name, operation, command } = call;
        // Changes of devices run one at a time; what else is done to a pool waits for nobody.
        let what = attempt(&name, &operation);
        let _lock = match &operation {
            PoolOperation::Change(_) => Some(self.turn(&name, &what).await?),
            _ => None,
        };
        let pool = self.pool(&name)?;
        self.check_operation(&name, &pool, &operation).await?;
        let error_of = |error: PoolError| match &operation {
            PoolOperation::Change(PoolChange::Add { .. } | PoolChange::Attach { .. }) => failed_creation(&what, error),
            _ => failed(&what, error),
        };
        if matches!(operation, PoolOperation::Sync { .. }) {
            self.settle_mounts(&name).await;
        }
        let mut done = pool.perform(operation.clone()).await.map_err(error_of);
        if let (Ok(changed), PoolOperation::Change(PoolChange::Add { vdevs, ashift, .. })) = (&mut done, &operation) {
            changed.warnings = self.warn_of_sectors(vdevs, ashift_of(&pool, *ashift).await).await;
        }
        match &operation {
            PoolOperation::Change(PoolChange::Add { dry_run: true, .. }) => return done,
            // A device that is back may be back at another path, also when others keep the pool from going on.
            PoolOperation::Clear { .. } => self.follow_devices(&name, &pool).await,
            PoolOperation::Change(_) if done.is_ok() => self.follow_devices(&name, &pool).await,
            _ => {}
        }
        let changed = done?;
        match &operation {
            PoolOperation::Set { property, value } if property == "cachefile" => {
                self.set_forgettable(&name, value == "none");
                self.remember().map_err(ErrorBody::new)?;
            }
            PoolOperation::Sync { .. } => {
                self.mounts_are_synced(&name);
                return Ok(changed);
            }
            _ => {}
        }
        if changed.problems.is_empty() {
            self.log(&pool, &command);
        }
        Ok(changed)
    }

    /// Refuses what the engine, which knows one pool, cannot refuse.
    async fn check_operation(&self, name: &str, pool: &Arc<dyn PoolHandle>, operation: &PoolOperation) -> Answer<()> {
        match operation {
            PoolOperation::Change(PoolChange::Add { vdevs, force, .. }) => {
                self.refuse_own_devices(vdevs, Some(name), *force).await
            }
            PoolOperation::Change(PoolChange::Attach { device, new, replaces, force, .. }) => {
                // Another device may be at the path of the one that it replaces.
                let is_place = || Path::new(device) == new || pool.path_of(device).as_ref() == Some(new);
                if *replaces && (is_place() || self.is_spare_of(name, new).await) {
                    return Ok(());
                }
                self.refuse_own_devices(&[VdevRequest::Leaf(new.clone())], Some(name), *force).await
            }
            PoolOperation::Change(PoolChange::Reguid { guid: Some(guid) }) => {
                // Two pools with one guid would take each other's devices for their own.
                let is_taken = self.pools.read().values().any(|entry| entry.pool.guid() == *guid);
                let taken = || ErrorBody::new(format!("cannot reguid '{name}': a pool with that guid already exists"));
                if is_taken { Err(taken()) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}
