//! Limits of devices that properties set: how many errors within how long are too many. They are in each leaf's ZAP
//! (`vdev_props_set_sync` and `vdev_load`, `module/zfs/vdev.c`).
//!
//! Invariant: a limit that cannot be read is none; the device has the usual one.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::faults::{Cause, Limits};
use platter_dmu::Objset;
use platter_dmu::zap::Zap;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::place;

/// What stands for no limit of its own.
const NONE: u64 = u64::MAX;

/// The property of a limit: how many events, or within how many seconds.
fn name(cause: Cause, seconds: bool) -> String {
    format!("{}_{}", cause.name(), if seconds { 't' } else { 'n' })
}

/// The limit that a property is.
fn property(property: &str) -> Option<(Cause, bool)> {
    let all = Cause::ALL.into_iter().flat_map(|cause| [(cause, false), (cause, true)]);
    all.into_iter().find(|(cause, seconds)| name(*cause, *seconds) == property)
}

fn part(limits: &mut Limits, cause: Cause, seconds: bool) -> &mut Option<u64> {
    let both = match cause {
        Cause::Io => &mut limits.io,
        Cause::Checksum => &mut limits.checksum,
        Cause::SlowIo => &mut limits.slow_io,
    };
    if seconds { &mut both.1 } else { &mut both.0 }
}

/// The limits of all leaves that have some, by guid.
pub async fn load(os: &Arc<Objset>, root: &VdevConfig, pool: &str) -> BTreeMap<u64, Limits> {
    let mut all = BTreeMap::new();
    for leaf in root.leaves().into_iter().filter(|leaf| leaf.leaf_zap.is_some()) {
        let read = async {
            let mut limits = Limits::default();
            let zap = Zap::open(os, leaf.leaf_zap).await?;
            for (cause, seconds) in Cause::ALL.into_iter().flat_map(|cause| [(cause, false), (cause, true)]) {
                let stored = zap.get_u64(name(cause, seconds).as_bytes()).await?;
                *part(&mut limits, cause, seconds) = stored.filter(|value| *value != NONE);
            }
            Ok::<_, platter_dmu::ZioError>(limits)
        };
        match read.await {
            Ok(limits) if limits != Limits::default() => _ = all.insert(leaf.guid.0, limits),
            Ok(_) => {}
            Err(error) => tracing::warn!(pool, %error, "device {} has the usual limits of errors", leaf.guid),
        }
    }
    all
}

/// `zpool set` of a device's property.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn set(core: &Arc<Core>, device: &str, property_name: &str, value: &str) -> Result<()> {
    if core.dsl.read_only {
        return Err(PoolError::Unavailable("pool is read-only".into()));
    }
    let Some((cause, seconds)) = property(property_name) else {
        let text = format!("this version cannot set property '{property_name}' of a device");
        return Err(PoolError::Unsupported(text));
    };
    let number = match value {
        "none" => NONE,
        value => platter_api::numbers::parse(value).map_err(PoolError::invalid)?,
    };
    let guid = place::find(core, device).await?.config.guid;
    let check = async move |core: Arc<Core>| match place::with_guid(&core, guid)?.config {
        config if config.leaf_zap.is_some() => Ok(config),
        _ => Err(PoolError::Unsupported("devices of a pool of this version have no properties".into())),
    };
    let name = property_name.to_owned();
    core.checked_task(check, async move |core, tx, config| {
        let zap = Zap::open(&core.dsl.mos, config.leaf_zap).await?;
        zap.put_u64(&tx, name.as_bytes(), number).await?;
        let own = Some(number).filter(|number| *number != NONE);
        assert!(own != Some(NONE), "what stands for no limit is none");
        *part(core.limits.lock().entry(guid.0).or_default(), cause, seconds) = own;
        let event = format!("vdev_guid={guid}: {name}={number}");
        Ok(history::append_event(&core.dsl, &tx, "vdev set", &event).await?)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_have_openzfs_names() {
        assert_eq!(property("checksum_n"), Some((Cause::Checksum, false)));
        assert_eq!(property("slow_io_t"), Some((Cause::SlowIo, true)));
        assert_eq!(property("io"), None);
        let mut limits = Limits::default();
        *part(&mut limits, Cause::Io, true) = Some(60);
        assert_eq!(limits.io, (None, Some(60)));
    }
}
