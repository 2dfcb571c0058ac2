//! `zpool upgrade`: more features in a pool that has flags, and flags in one that has a version
//! (`spa_sync_upgrades`, `module/zfs/spa.c`; `dsl_pool_upgrade_dir_clones`, `module/zfs/dsl_pool.c`).
//!
//! Everything changes in one task, and so in one group: a crash leaves the old format or the new one. What older
//! structures look like (deadlists that are one list, small heads, logs with trailing chains) stays as it is and is
//! read by its own type, never by the pool's version.

use platter_ondisk::features::Feature;
use std::sync::Arc;

use platter_dmu::bpobj::Bpobj;
use platter_dmu::zap::Zap;
use platter_dmu::{Tx, ZioError};
use platter_ondisk::dsl::DslDirPhys;
use platter_ondisk::{ObjectId, ObjectType};

use crate::core::Core;
use crate::{error_log, salt};
use platter_api::request::Changed;
use platter_dsl::dataset::Dataset;
use platter_dsl::deadlist::BPOBJ_BLOCK;
use platter_dsl::dir::{Dir, FREE_DIR};
use platter_dsl::error::Result;
use platter_dsl::features::CREATED;
use platter_dsl::snapshot::SnapshotBonus;
use platter_dsl::version::PoolVersion;
use platter_dsl::{history, mos};

/// Enables every feature that this version writes and that is among `wanted` (all, without a list), after giving the
/// pool feature flags if it has none.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn run(core: &Arc<Core>, wanted: Option<Vec<String>>) -> Result<Changed> {
    let is_wanted = move |name: &str| wanted.as_ref().is_none_or(|names| names.iter().any(|wanted| wanted == name));
    core.task(async move |core, tx| {
        let old = core.dsl.version();
        let mut changed = Changed::default();
        if !old.has_features() {
            to_flags(&core, &tx, old).await?;
            changed.from_version = Some(old.0);
        }
        for feature in CREATED {
            let info = feature.info();
            if core.dsl.features.is_enabled(feature) || info.no_upgrade || !is_wanted(info.name) {
                continue;
            }
            let needs =
                info.depends.iter().all(|&needed| CREATED.contains(&needed) && core.dsl.features.is_enabled(needed));
            if needs {
                core.dsl.features.enable(&core.dsl.mos, &core.dsl.directory, &tx, feature, || core.random()).await?;
                changed.features.push(info.name.to_owned());
            }
        }
        if !changed.features.is_empty() || changed.from_version.is_some() {
            follow_features(&core, &tx).await?;
        }
        Ok(changed)
    })
    .await
}

/// Lets everything that is open follow the features, some of which were just enabled. A data set activates those that
/// it uses when it is next written.
///
/// # Errors
/// Out of space, device errors.
pub async fn follow_features(core: &Arc<Core>, tx: &Tx) -> platter_zio::Result<()> {
    // Some checksums are salted.
    salt::create_if_missing(&core.dsl.directory, &core.dsl.store, tx, &core.environment).await?;
    core.dsl.mos.set_properties(platter_dsl::mos_properties::mos_properties(core.dsl.version(), &core.dsl.features));
    core.dsl.mos.set_hole_birth(core.dsl.features.is_active(Feature::HoleBirth));
    error_log::write(core, tx).await?;
    core.dsl.dirty_config();
    platter_dsl::effects::follow(&core.dsl);
    platter_dsl::effects::follow_writing(&core.dsl);
    Ok(())
}

/// Brings a pool with a version to feature flags, none of them enabled yet.
async fn to_flags(core: &Arc<Core>, tx: &Tx, old: PoolVersion) -> Result<()> {
    if !old.has_deadlists() {
        let root = core.dsl.tree.read().root_dir.clone();
        let free =
            Dir::create(&core.dsl.mos, &core.dsl.directory, tx, root, FREE_DIR, core.now(), || core.random()).await?;
        let list = Bpobj::create(&core.dsl.mos, tx, BPOBJ_BLOCK).await?;
        core.dsl.directory.put_u64(tx, mos::FREE_BPOBJ.as_bytes(), list.0).await?;
        core.dsl.tree.write().free_dir = Some(free);
        list_clones(core, tx).await?;
    }
    core.dsl.features.create(&core.dsl.mos, &core.dsl.directory, tx, || core.random()).await?;
    core.config.write().version = PoolVersion::FEATURES.0;
    core.dsl.set_version(PoolVersion::FEATURES);
    core.dsl.dirty_config();
    history::append_event(&core.dsl, tx, "upgrade", &format!("version={old} to feature flags")).await?;
    Ok(())
}

/// Lists every clone in the directory of its origin; formally all file systems are clones of `$ORIGIN`'s snapshot.
async fn list_clones(core: &Arc<Core>, tx: &Tx) -> Result<()> {
    let datasets: Vec<Arc<Dataset>> = core.dsl.tree.read().datasets.values().cloned().collect();
    for dataset in &datasets {
        let origin = dataset.dir.phys.lock().origin_obj;
        if !origin.is_some() {
            continue;
        }
        let origin_dir = SnapshotBonus::load(&core.dsl.mos, origin).await?.phys.dir_obj;
        let held = datasets.iter().find(|other| other.dir.object == origin_dir).map(|other| &other.dir);
        let clones = clones_of(core, tx, origin_dir, held).await?;
        Zap::open(&core.dsl.mos, clones).await?.add_int(tx, dataset.object.0).await?;
    }
    Ok(())
}

/// The ZAP of a directory's clones, made if it is not there. `held` is the directory as it is in memory, if it is.
async fn clones_of(core: &Arc<Core>, tx: &Tx, object: ObjectId, held: Option<&Arc<Dir>>) -> Result<ObjectId> {
    let dnode = core.dsl.mos.dnode(object).await?;
    let mut phys = match held {
        Some(dir) => dir.phys.lock().clone(),
        None => DslDirPhys::decode(&dnode.bonus())
            .map_err(|e| ZioError::corrupt("DSL directory", format!("object {object}: {e}")))?,
    };
    if !phys.clones.is_some() {
        phys.clones = mos::create_zap(&core.dsl.mos, tx, ObjectType::DSL_CLONES, core.random()).await?;
        if let Some(dir) = held {
            dir.phys.lock().clones = phys.clones;
        }
        dnode.set_bonus(tx, ObjectType::DSL_DIR, &phys.encode())?;
    }
    Ok(phys.clones)
}
