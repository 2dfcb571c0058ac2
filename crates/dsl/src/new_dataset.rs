//! `zfs create`: a new file system in a pool that is there.
//!
//! Invariants:
//! - everything that can be checked is checked before anything changes;
//! - what fails all the same leaves nothing: neither in the MOS nor in the tree. Half a data set would be there for
//!   ever, and OpenZFS's tools stumble over it.

use platter_ondisk::ObjsetType;
use platter_ondisk::features::Feature;
use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::{Objset, Tx};

use crate::at_creation::AtCreation;
use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::dataset_report;
use crate::dir::Dir;
use crate::environment::FilesystemOptions;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;
use crate::{delegation, destroy, effects, encryption, history, limits, origin, space, volume};
use effects::COMPRESSION;
use platter_api::delegation::Creator;
use platter_api::report::DatasetKind;

/// What a new data set begins with.
#[derive(Clone, Copy)]
pub enum Made {
    /// A file system with nothing in it.
    Filesystem(AtCreation),
    /// A volume without data.
    Volume(volume::Shape),
}

impl Made {
    /// What it is.
    pub fn kind(self) -> DatasetKind {
        match self {
            Self::Filesystem(_) => DatasetKind::Filesystem,
            Self::Volume(_) => DatasetKind::Volume,
        }
    }
}

/// A data set to be made.
pub struct New {
    /// Its properties, but for those that are chosen for ever.
    pub properties: BTreeMap<String, StoredProperty>,
    /// What it begins with.
    pub made: Made,
    /// Whose it is; nobody's when the pool's owner makes it for himself.
    pub creator: Option<Creator>,
}

/// Where a new data set goes.
pub struct Site {
    /// The file system above.
    pub above: Arc<Dataset>,
    /// Its own part of the name.
    pub last: String,
}

/// Whether a data set of `kind` called `name` can be made with these properties.
///
/// # Errors
/// It exists, no parent, a limit is reached or cannot be kept, no space.
pub async fn check(
    dsl: &DslPool,
    name: &str,
    kind: DatasetKind,
    properties: &BTreeMap<String, StoredProperty>,
) -> Result<Site> {
    if dsl.tree.read().datasets.contains_key(name) {
        return Err(PoolError::Exists("dataset already exists".into()));
    }
    let (parent, last) = name.rsplit_once('/').ok_or_else(|| PoolError::invalid("missing dataset name"))?;
    let above = dsl.tree.read().datasets.get(parent).cloned();
    let above = above.ok_or_else(|| PoolError::NotFound("parent does not exist".into()))?;
    if above.kind == DatasetKind::Volume {
        return Err(PoolError::invalid("parent is not a filesystem"));
    }
    if encryption::of(&dsl.mos, &above.dir).await?.is_some() {
        return Err(PoolError::Unsupported("its parent is encrypted, and this version does not encrypt yet".into()));
    }
    for (property, value) in properties {
        effects::check_applies(dsl, kind, property, Some(value))?;
    }
    let limit = |name: &str| match properties.get(name) {
        Some(StoredProperty::Number(number)) => *number,
        _ => 0,
    };
    space::check_task(dsl)?;
    match space::check_new(dsl, &above.dir, limit) {
        // What is reserved for it was not asked for.
        Err(PoolError::Invalid(_)) if kind == DatasetKind::Volume => return Err(PoolError::invalid("out of space")),
        other => other?,
    }
    limits::check(dsl, &above.dir, 1, None)?;
    delegation::check_line(dsl, &above.dir).await?;
    Ok(Site { above, last: last.to_owned() })
}

/// `zfs create`, within a task, where [`check`] found that it can be made. When that fails and all that was made is
/// removed again, the inner error says why.
///
/// # Errors
/// Out of space, device errors, that left something half made.
pub async fn new_dataset(dsl: &Arc<DslPool>, tx: &Tx, name: &str, site: Site, new: New) -> Result<Result<()>> {
    let Site { above, last } = site;
    let (now, random) = (dsl.now(), || dsl.random());
    let dir = Dir::create(&dsl.mos, &dsl.directory, tx, Some(above.dir.clone()), &last, now, random).await?;
    let made = match fill(dsl, tx, name, &dir, &above, new).await {
        Ok(dataset) => dataset,
        Err(error) => return undo(dsl, tx, name, &dir, error).await,
    };
    history::append_event(dsl, tx, "create", &format!("{name} ({})", made.object)).await?;
    Ok(Ok(()))
}

/// All that makes a data set of the new directory `dir` below `above`.
async fn fill(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    name: &str,
    dir: &Arc<Dir>,
    above: &Arc<Dataset>,
    new: New,
) -> Result<Arc<Dataset>> {
    let New { properties, made, creator } = new;
    prepare(dsl, tx, dir, &properties, creator).await?;
    let dataset = match made {
        Made::Filesystem(asked) => {
            let parent = match dataset_report::contents_of(dsl, above).await {
                Contents::Filesystem(values) => Some(values),
                _ => None,
            };
            let options = FilesystemOptions { owner: creator, ..asked.below(parent) };
            add_filesystem(dsl, tx, dir, &options).await?
        }
        Made::Volume(shape) => add_volume(dsl, tx, dir, shape).await?,
    };
    settle(dsl, tx, name, &dataset, &properties).await?;
    Ok(dataset)
}

/// Whether a property is set on what is there already: it counts what there is.
fn is_limit(property: &str) -> bool {
    space::is_limit(property) || limits::is_count(property)
}

/// What a new directory has before its head is made: what it counts for those above, and its properties but for limits,
/// and what it allows whoever makes it.
///
/// # Errors
/// Out of space, device errors.
pub async fn prepare(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dir: &Arc<Dir>,
    properties: &BTreeMap<String, StoredProperty>,
    creator: Option<Creator>,
) -> platter_zio::Result<()> {
    limits::inherit(dsl, tx, dir).await?;
    if let Some(creator) = creator {
        delegation::grant_creator(dsl, tx, dir, creator).await?;
    }
    for (property, value) in properties.iter().filter(|(property, _)| !is_limit(property)) {
        dir.set_property(&dsl.mos, tx, property, Some(value.clone())).await?;
    }
    Ok(())
}

/// What comes when the head of the new data set called `name` is made: it is found by its name, what its properties ask
/// of the pool is there, and its limits hold.
///
/// # Errors
/// Out of space, device errors.
pub async fn settle(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    name: &str,
    dataset: &Arc<Dataset>,
    properties: &BTreeMap<String, StoredProperty>,
) -> Result<()> {
    dsl.tree.write().datasets.insert(name.to_owned(), dataset.clone());
    effects::activate_feature(dsl, tx, dataset, COMPRESSION, properties.get(COMPRESSION)).await?;
    for (property, value) in properties.iter().filter(|(property, _)| is_limit(property)) {
        set_limit(dsl, tx, name, dataset, property, value).await?;
    }
    Ok(())
}

/// Removes what was made of the data set called `name` in the new directory `dir`, which failed with `error`: that is
/// the inner error then.
///
/// # Errors
/// `error`, when something of it stays behind.
pub async fn undo<T>(dsl: &Arc<DslPool>, tx: &Tx, name: &str, dir: &Arc<Dir>, error: PoolError) -> Result<Result<T>> {
    let half = dir.phys.lock().head_dataset_obj;
    tracing::warn!(pool = dsl.name(), dataset = name, %error, "not created; what was made of it is removed");
    dsl.tree.write().datasets.remove(name);
    if let Err(also) = take_back(dsl, tx, dir).await {
        tracing::error!(pool = dsl.name(), dataset = name, object = half.0, error = %also, "it stays behind");
        return Err(error);
    }
    Ok(Err(error))
}

/// Removes directory `dir`, and its head when that was made.
async fn take_back(dsl: &Arc<DslPool>, tx: &Tx, dir: &Arc<Dir>) -> platter_zio::Result<()> {
    let head = dir.phys.lock().head_dataset_obj;
    if head.is_some() {
        let dataset = Dataset::load(&dsl.mos, &dsl.store, head, dir.clone()).await?;
        destroy::remove_head(dsl, tx, &dataset).await?;
    }
    destroy::remove_dir(dsl, tx, dir).await
}

/// Sets a quota, reservation or `filesystem_limit` on the new data set called `name`.
async fn set_limit(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    name: &str,
    dataset: &Arc<Dataset>,
    property: &str,
    value: &StoredProperty,
) -> Result<()> {
    match value {
        StoredProperty::Number(number) if space::is_limit(property) => {
            space::set(dsl, tx, dataset, property, *number).await
        }
        value => {
            limits::initialize(dsl, tx, name, dataset).await?;
            Ok(dataset.dir.set_property(&dsl.mos, tx, property, Some(value.clone())).await?)
        }
    }
}

/// Makes the head, in the new directory `dir`, of a data set of `kind` that begins with nothing.
///
/// # Errors
/// Out of space, device errors.
pub async fn empty_head(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dir: &Arc<Dir>,
    kind: DatasetKind,
) -> platter_zio::Result<Arc<Dataset>> {
    let (origin, access) = (dsl.tree.read().origin.clone(), dsl.access());
    let made =
        Dataset::create(&access, &dsl.store, tx, (dir, kind), origin.as_ref(), dsl.now(), || dsl.random()).await?;
    if let Some(origin) = &origin {
        origin::attach(&access, tx, origin.snapshot.object, None, made.object, || dsl.random()).await?;
    }
    Ok(made)
}

/// The object set, with nothing in it, of a data set that begins with nothing.
pub fn empty_objset(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset, kind: ObjsetType) -> Arc<Objset> {
    let properties = effects::write_properties(dsl, &dataset.dir);
    let params = dsl.objset_params(dataset.object, dataset.accounting.clone(), properties, false);
    let os = Objset::create(params, kind, tx);
    os.set_hole_birth(dsl.features.is_active(Feature::HoleBirth));
    os
}

/// Makes the head data set of `dir` and fills it as a file system.
///
/// # Errors
/// Out of space, device errors.
pub async fn add_filesystem(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dir: &Arc<Dir>,
    options: &FilesystemOptions,
) -> Result<Arc<Dataset>> {
    let dataset = empty_head(dsl, tx, dir, DatasetKind::Filesystem).await?;
    let os = empty_objset(dsl, tx, &dataset, ObjsetType::ZFS);
    dsl.surroundings.maker.make(&os, tx, options).await?;
    dataset.set_open(&os);
    Ok(dataset)
}

/// Makes the head data set of `dir` and fills it as a volume.
async fn add_volume(dsl: &Arc<DslPool>, tx: &Tx, dir: &Arc<Dir>, shape: volume::Shape) -> Result<Arc<Dataset>> {
    let dataset = empty_head(dsl, tx, dir, DatasetKind::Volume).await?;
    let os = empty_objset(dsl, tx, &dataset, ObjsetType::ZVOL);
    volume::fill(&os, tx, shape, dsl.random()).await?;
    dataset.set_open(&os);
    Ok(dataset)
}
