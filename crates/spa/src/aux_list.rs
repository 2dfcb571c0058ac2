//! Lists in the MOS of devices that are beside the tree of vdevs, hot spares and cache devices (`spa_load_spares`,
//! `spa_load_l2cache` and `spa_sync_aux_dev` in `module/zfs/spa.c`).

use std::sync::Arc;

use parking_lot::Mutex;
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Tx};
use platter_dsl::error::{PoolError, Result};
use platter_nvlist::NvList;
use platter_ondisk::ObjectId;

use crate::config::VdevConfig;
use crate::config_object;
use crate::core::Core;

/// More of them than a pool may have devices are damage.
const DEVICES_MAX: usize = 4096;

/// One of the lists.
pub struct AuxList {
    /// Its name in the pool directory.
    pub name: &'static str,
    /// What the devices are called in it.
    pub key: &'static str,
    /// What they are.
    pub what: &'static str,
    /// What it is called itself.
    pub called: &'static str,
}

/// The list's object and the devices in it. Damage costs the devices, not the pool; the next list is written into the
/// same object, whatever is in it.
pub async fn load(os: &Arc<Objset>, directory: &Zap, list: &AuxList, pool: &str) -> (ObjectId, Vec<VdevConfig>) {
    let AuxList { name, key, what, called } = list;
    let object = match directory.get_u64(name.as_bytes()).await {
        Ok(object) => ObjectId(object.unwrap_or(0)),
        Err(error) => {
            tracing::warn!(pool, %error, "the pool has no {what} for now: their list cannot be found");
            ObjectId::NONE
        }
    };
    if !object.is_some() {
        return (object, Vec::new());
    }
    let read = async {
        let list = config_object::read_list(os, object, called).await?;
        let mut configs: Vec<VdevConfig> = Vec::new();
        for entry in list.get_list_array(key).unwrap_or(&[]).iter().take(DEVICES_MAX) {
            let config = VdevConfig::parse(entry).map_err(PoolError::Unavailable)?;
            if config.is_leaf() && configs.iter().all(|known| known.guid != config.guid) {
                configs.push(config);
            }
        }
        Ok::<_, PoolError>(configs)
    };
    let configs = read.await.unwrap_or_else(|error| {
        tracing::warn!(pool, %error, "the pool has no {what} for now: their list cannot be read");
        Vec::new()
    });
    (object, configs)
}

/// What every device has in its list.
pub fn entry(config: &VdevConfig) -> NvList {
    let mut entry = NvList::new();
    entry.add_str("type", &*config.kind).add_u64("guid", config.guid.0);
    if let Some(path) = &config.path {
        entry.add_str("path", &**path);
    }
    if let Some(whole_disk) = config.whole_disk {
        entry.add_u64("whole_disk", whole_disk);
    }
    entry
}

/// Writes a list, in the syncing group. `known` is its object, made when there is none.
///
/// # Errors
/// Out of space, device errors.
pub async fn store(core: &Core, tx: &Tx, list: &AuxList, known: &Mutex<ObjectId>, entries: Vec<NvList>) -> Result<()> {
    let (os, directory, object) = (&core.dsl.mos, &core.dsl.directory, *known.lock());
    let object = match object.is_some() {
        true => object,
        false => config_object::create_list(os, directory, tx, list.name).await?,
    };
    *known.lock() = object;
    let mut written = NvList::new();
    written.add_list_array(list.key, entries);
    config_object::write_list(os, tx, object, &written.encode_xdr()).await?;
    Ok(())
}
