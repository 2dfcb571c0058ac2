//! Lists in the MOS: a packed nvlist in an object, its length in the bonus (`spa_sync_nvlist`, `load_nvlist` in
//! `module/zfs/spa.c`). Above all the configuration, with the vdevs' ZAPs that it names (`vdev_construct_zaps`).

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{NewDnode, Objset, Result, Tx, ZioError};
use platter_nvlist::NvList;
use platter_ondisk::{ObjectId, ObjectType};

use crate::core::Core;
use platter_dsl::mos;

/// Block size of the object (`SPA_CONFIG_BLOCKSIZE`).
const BLOCK_SIZE: u32 = 1 << 14;
/// A longer configuration is damage.
const LENGTH_MAX: u64 = 16 << 20;

/// Makes the configuration object of a new pool.
///
/// # Errors
/// Out of space, device errors.
pub async fn create(os: &Arc<Objset>, directory: &Zap, tx: &Tx) -> Result<ObjectId> {
    create_list(os, directory, tx, mos::CONFIG).await
}

/// Makes an object for a list, and names it in the pool directory.
///
/// # Errors
/// Out of space, device errors.
pub async fn create_list(os: &Arc<Objset>, directory: &Zap, tx: &Tx, name: &str) -> Result<ObjectId> {
    let new = NewDnode {
        bonus_type: ObjectType::PACKED_NVLIST_SIZE,
        bonus_length: 8,
        ..NewDnode::plain(ObjectType::PACKED_NVLIST, BLOCK_SIZE)
    };
    let object = os.allocate(tx, new).await?.object();
    directory.put_u64(tx, name.as_bytes(), object.0).await?;
    Ok(object)
}

/// Reads the configuration.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn read(os: &Arc<Objset>, object: ObjectId) -> Result<NvList> {
    read_list(os, object, "pool configuration").await
}

/// Reads a list; `what` it is for, in errors.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn read_list(os: &Arc<Objset>, object: ObjectId, what: &'static str) -> Result<NvList> {
    let dnode = os.dnode(object).await?;
    let bonus = dnode.bonus();
    let length = bonus.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).unwrap_or(0);
    let info = dnode.info();
    let stored = info.max_blkid.saturating_add(1).saturating_mul(u64::from(info.block_size));
    if length == 0 || length > LENGTH_MAX.min(stored) {
        return Err(ZioError::corrupt(what, format!("its length is {length}")));
    }
    let mut bytes = vec![0; length as usize];
    dnode.read(0, &mut bytes).await?;
    NvList::decode(&bytes).map_err(|e| ZioError::corrupt(what, e.to_string()))
}

/// Writes the configuration as of `tx`'s group.
///
/// # Errors
/// Out of space, device errors.
pub async fn write(core: &Core, tx: &Tx) -> Result<()> {
    if core.dsl.version().has_features() || core.config.read().has_vdev_zaps {
        make_vdev_zaps(core, tx).await?;
    }
    let object = core.dsl.objects.lock().config;
    let bytes = {
        let mut config = core.config.write();
        config.features_for_read = core.dsl.features.for_labels();
        config.txg = tx.txg();
        config.to_mos_nvlist(tx.txg()).encode_xdr()
    };
    write_list(&core.dsl.mos, tx, object, &bytes).await
}

/// Writes a list, packed as `bytes`.
///
/// # Errors
/// Out of space, device errors.
pub async fn write_list(os: &Arc<Objset>, tx: &Tx, object: ObjectId, bytes: &[u8]) -> Result<()> {
    let dnode = os.dnode(object).await?;
    dnode.write(tx, 0, bytes).await?;
    dnode.set_bonus(tx, ObjectType::PACKED_NVLIST_SIZE, &(bytes.len() as u64).to_le_bytes())
}

/// Makes the ZAPs of vdevs that lack them.
async fn make_vdev_zaps(core: &Core, tx: &Tx) -> Result<()> {
    let os = &core.dsl.mos;
    let map = match core.dsl.directory.get_u64(mos::VDEV_ZAP_MAP.as_bytes()).await? {
        Some(object) => ObjectId(object),
        None => {
            let object = mos::create_zap(os, tx, ObjectType::OTN_ZAP_METADATA, core.random()).await?;
            core.dsl.directory.put_u64(tx, mos::VDEV_ZAP_MAP.as_bytes(), object.0).await?;
            object
        }
    };
    let map = Zap::open(os, map).await?;
    let tree = core.config.read().vdev_tree.clone();
    let (mut tops, mut leaves) = (BTreeMap::new(), BTreeMap::new());
    for top in &tree.children {
        if !top.top_zap.is_some() && !matches!(&*top.kind, "hole" | "missing") {
            tops.insert(top.guid, make_vdev_zap(core, tx, &map).await?);
        }
        for leaf in top.leaves().into_iter().filter(|leaf| !leaf.leaf_zap.is_some()) {
            leaves.insert(leaf.guid, make_vdev_zap(core, tx, &map).await?);
        }
    }
    let mut config = core.config.write();
    config.has_vdev_zaps = true;
    // What was written there meanwhile, a path or an acquittal, stays.
    for top in &mut config.vdev_tree.children {
        top.top_zap = tops.get(&top.guid).copied().unwrap_or(top.top_zap);
        top.walk_mut(&mut |vdev| {
            if vdev.is_leaf() {
                vdev.leaf_zap = leaves.get(&vdev.guid).copied().unwrap_or(vdev.leaf_zap);
            }
        });
    }
    Ok(())
}

async fn make_vdev_zap(core: &Core, tx: &Tx, map: &Zap) -> Result<ObjectId> {
    let zap = mos::create_zap(&core.dsl.mos, tx, ObjectType::OTN_ZAP_METADATA, core.random()).await?;
    map.add_int(tx, zap.0).await?;
    Ok(zap)
}
