//! Delegated permissions as directories keep them (`module/zfs/dsl_deleg.c`): a ZAP of keys, each of which leads to a
//! ZAP of names.
//!
//! Invariants:
//! - a key is there as long as something is allowed by it;
//! - what is read is bounded: a pool whose lists are too long, or lead elsewhere, is told as damaged.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_api::delegation::{self as api, Creator};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Tx, ZioError};
use platter_ondisk::dsl::{DELEGATION_NAME_MAX, PermissionKey, is_permission_set};
use platter_ondisk::{ObjectId, ObjectType};

use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::permissions::{Granted, at_creation};
use crate::pool::DslPool;
use crate::{history, mos, space};

/// Most names that one directory has, in all.
const NAMES_MAX: usize = 1 << 16;

/// Changes of what is allowed: by which key, and what; all that it has, where nothing is named.
pub type Changes = Vec<(PermissionKey, Option<BTreeSet<String>>)>;

fn damaged(what: &str) -> ZioError {
    ZioError::corrupt("delegated permissions", what.to_owned())
}

/// Opens one of the two kinds of maps.
async fn open(os: &Arc<Objset>, object: ObjectId) -> platter_dmu::Result<Zap> {
    let dnode = os.dnode(object).await?;
    if dnode.info().object_type != ObjectType::DSL_PERMS {
        return Err(damaged("they lead to something else"));
    }
    Ok(Zap::from_dnode(dnode))
}

/// The keys of a directory, as they stand there, with the objects to which they lead.
async fn keys(os: &Arc<Objset>, object: ObjectId) -> platter_dmu::Result<Vec<(Vec<u8>, ObjectId)>> {
    if !object.is_some() {
        return Ok(Vec::new());
    }
    let entries = open(os, object).await?.entries(0, NAMES_MAX + 1).await?;
    if entries.len() > NAMES_MAX {
        return Err(damaged("they are too many"));
    }
    let lead = |entry: platter_dmu::zap::ZapEntry| {
        let object = entry.value.integers.first().copied().unwrap_or(0);
        (entry.name, ObjectId(object))
    };
    Ok(entries.into_iter().map(lead).collect())
}

/// The objects to which a directory's keys lead, which go with it.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn objects(os: &Arc<Objset>, dir: &Dir) -> platter_dmu::Result<Vec<ObjectId>> {
    let object = dir.phys.lock().deleg_zapobj;
    let mut objects = Vec::new();
    for (_, names) in keys(os, object).await? {
        open(os, names).await?;
        objects.push(names);
    }
    Ok(objects)
}

/// What a directory allows to whom. A key that says nothing, and a name that is none, allows nothing.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(os: &Arc<Objset>, dir: &Dir) -> platter_dmu::Result<Granted> {
    let object = dir.phys.lock().deleg_zapobj;
    let (mut granted, mut room) = (Granted::new(), NAMES_MAX);
    for (key, names) in keys(os, object).await? {
        let Ok(key) = PermissionKey::decode(&key) else { continue };
        let names = open(os, names).await?.entries(0, room + 1).await?;
        room = room.checked_sub(names.len()).ok_or_else(|| damaged("they are too many"))?;
        let text = |name: Vec<u8>| String::from_utf8(name).ok().filter(|name| name.len() < DELEGATION_NAME_MAX);
        granted.insert(key, names.into_iter().filter_map(|entry| text(entry.name)).collect());
    }
    Ok(granted)
}

/// A directory and those above it.
fn line(dir: &Arc<Dir>) -> Vec<Arc<Dir>> {
    std::iter::successors(Some(dir.clone()), |dir| dir.parent()).collect()
}

/// Whether what a directory and those above it allow can be read: damage is known of before anything changes.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn check_line(dsl: &DslPool, dir: &Arc<Dir>) -> platter_dmu::Result<()> {
    for dir in line(dir) {
        load(&dsl.mos, &dir).await?;
    }
    Ok(())
}

/// The directory's own map, made when it has none. Within a task.
async fn ensure(dsl: &Arc<DslPool>, tx: &Tx, dir: &Dir) -> platter_dmu::Result<Zap> {
    let object = dir.phys.lock().deleg_zapobj;
    if object.is_some() {
        return open(&dsl.mos, object).await;
    }
    let made = mos::create_zap(&dsl.mos, tx, ObjectType::DSL_PERMS, dsl.random()).await?;
    dir.phys.lock().deleg_zapobj = made;
    dir.store(&dsl.mos, tx).await?;
    open(&dsl.mos, made).await
}

/// Allows these names by `key`. Within a task.
async fn add(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    zap: &Zap,
    key: &str,
    names: impl IntoIterator<Item = &String>,
) -> platter_dmu::Result<()> {
    let list = match zap.get_u64(key.as_bytes()).await? {
        Some(object) => open(&dsl.mos, ObjectId(object)).await?,
        None => {
            let made = mos::create_zap(&dsl.mos, tx, ObjectType::DSL_PERMS, dsl.random()).await?;
            zap.add_u64(tx, key.as_bytes(), made.0).await?;
            open(&dsl.mos, made).await?
        }
    };
    for name in names {
        list.put_u64(tx, name.as_bytes(), 0).await?;
    }
    Ok(())
}

/// Whoever makes data set `dir` is allowed there what those above it say. Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn grant_creator(dsl: &Arc<DslPool>, tx: &Tx, dir: &Arc<Dir>, creator: Creator) -> platter_dmu::Result<()> {
    if !dsl.version().has_delegation() {
        return Ok(());
    }
    let mut above = Vec::new();
    for dir in line(dir).into_iter().skip(1) {
        above.push(load(&dsl.mos, &dir).await?);
    }
    let granted = at_creation(&above, creator.uid);
    if granted.is_empty() {
        return Ok(());
    }
    let zap = ensure(dsl, tx, dir).await?;
    for (key, names) in &granted {
        add(dsl, tx, &zap, &key.to_string(), names).await?;
    }
    Ok(())
}

/// Whether this is what may be allowed by a key.
fn check_names(changes: &Changes) -> Result<()> {
    if changes.is_empty() {
        return Err(PoolError::invalid("invalid permission"));
    }
    for (key, names) in changes {
        let is_valid = |name: &String| match key.of_sets {
            true => is_permission_set(name),
            false => api::canonical(name).is_some_and(|known| known == name),
        };
        if names.as_ref().is_some_and(|names| names.is_empty() || !names.iter().all(is_valid)) {
            return Err(PoolError::invalid("invalid permission"));
        }
    }
    Ok(())
}

impl DslPool {
    /// What a data set itself allows to whom.
    ///
    /// # Errors
    /// It does not exist; damage, unreadable blocks.
    pub async fn granted(&self, name: &str) -> Result<Granted> {
        let dataset = self.find(name)?;
        self.unless_suspended(async { Ok(load(&self.mos, &dataset.dir).await?) }).await
    }

    /// `zfs allow`.
    ///
    /// # Errors
    /// It does not exist; a permission that there is not; the pool is too old, read-only or stopped; damage.
    pub async fn allow(self: &Arc<Self>, name: &str, changes: Changes) -> Result<()> {
        check_names(&changes)?;
        let (name, wanted) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| {
            space::check_task(&dsl)?;
            changeable(&dsl, &wanted).await
        };
        let change = async move |dsl: Arc<Self>, tx: Tx, dir: Arc<Dir>| {
            let zap = ensure(&dsl, &tx, &dir).await?;
            for (key, names) in changes {
                let (key, names) = (key.to_string(), names.unwrap_or_default());
                add(&dsl, &tx, &zap, &key, &names).await?;
                for permission in names {
                    note(&dsl, &tx, &dir, &name, "permission update", &format!("{key} {permission}")).await?;
                }
            }
            Ok(())
        };
        self.checked_task(check, change).await
    }

    /// `zfs unallow`.
    ///
    /// # Errors
    /// As [`allow`](Self::allow).
    pub async fn unallow(self: &Arc<Self>, name: &str, changes: Changes) -> Result<()> {
        check_names(&changes)?;
        let (name, wanted) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| changeable(&dsl, &wanted).await;
        let change = async move |dsl: Arc<Self>, tx: Tx, dir: Arc<Dir>| {
            let object = dir.phys.lock().deleg_zapobj;
            if !object.is_some() {
                return Ok(());
            }
            let zap = open(&dsl.mos, object).await?;
            for (key, names) in changes {
                take_away(&dsl, &tx, (&dir, &name), &zap, &key.to_string(), names).await?;
            }
            Ok(())
        };
        self.checked_task(check, change).await
    }
}

/// The directory whose permissions can be changed.
async fn changeable(dsl: &DslPool, name: &str) -> Result<Arc<Dir>> {
    if !dsl.version().has_delegation() {
        return Err(PoolError::Unsupported("pool must be upgraded".into()));
    }
    let dataset = dsl.find(name)?;
    // Damage is known of before anything changes.
    objects(&dsl.mos, &dataset.dir).await?;
    Ok(dataset.dir.clone())
}

async fn note(dsl: &Arc<DslPool>, tx: &Tx, dir: &Dir, name: &str, event: &str, what: &str) -> platter_dmu::Result<()> {
    let head = dir.phys.lock().head_dataset_obj;
    history::append_event(dsl, tx, event, &format!("{name} ({head}) {what}")).await
}

/// Takes names, or all of them, away from `key` of data set `name`. Within a task.
async fn take_away(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    (dir, name): (&Dir, &str),
    zap: &Zap,
    key: &str,
    names: Option<BTreeSet<String>>,
) -> Result<()> {
    let Some(object) = zap.get_u64(key.as_bytes()).await?.map(ObjectId) else { return Ok(()) };
    let list = open(&dsl.mos, object).await?;
    let is_all = names.is_none();
    for permission in names.into_iter().flatten() {
        if list.remove(tx, permission.as_bytes()).await? {
            note(dsl, tx, dir, name, "permission remove", &format!("{key} {permission}")).await?;
        }
    }
    if is_all {
        note(dsl, tx, dir, name, "permission who remove", key).await?;
    }
    if is_all || list.count().await? == 0 {
        zap.remove(tx, key.as_bytes()).await?;
        drop(list);
        dsl.mos.free_object(tx, object).await?;
    }
    Ok(())
}
