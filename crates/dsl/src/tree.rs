//! Loading the tree of data sets from the MOS (`dsl_pool_open`, `dmu_objset_find`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result, ZioError};
use platter_ondisk::{ObjectId, Txg};
use platter_zio::Store;

use crate::dataset::Dataset;
use crate::deadlist;
use crate::dir::{Dir, FREE_DIR, LEAK_DIR, MOS_DIR, ORIGIN_DIR};
use crate::mos;
use crate::snapshot::{Origin, Snapshot, SnapshotBonus};

/// Deeper trees are damage (a directory that contains itself): names are at most 255 bytes long.
const DEPTH_MAX: usize = 128;

/// Data sets and directories by name and object.
#[derive(Default)]
pub struct Tree {
    /// Every visible file system or volume by full name (the pool's own name first).
    pub datasets: BTreeMap<String, Arc<Dataset>>,
    /// `$MOS`.
    pub mos_dir: Option<Arc<Dir>>,
    /// `$FREE`.
    pub free_dir: Option<Arc<Dir>>,
    /// `$LEAK`, once something was leaked.
    pub leak_dir: Option<Arc<Dir>>,
    /// The root directory.
    pub root_dir: Option<Arc<Dir>>,
    /// The snapshot that new data sets descend from.
    pub origin: Option<Origin>,
    /// Every snapshot that holds anything: needed for scrubbing what only snapshots hold.
    pub snapshots: Vec<Snapshot>,
}

impl Tree {
    /// Whether this is the pool's own origin, which is nobody's.
    pub fn is_own_origin(&self, snapshot: ObjectId) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.snapshot.object == snapshot)
    }

    /// The data set whose directory is this object, with its name.
    pub fn dataset_in(&self, dir: ObjectId) -> Option<(String, Arc<Dataset>)> {
        let found = self.datasets.iter().find(|(_, dataset)| dataset.dir.object == dir);
        found.map(|(name, dataset)| (name.clone(), dataset.clone()))
    }
}

/// Loads every directory and head data set of the pool called `pool`.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(os: &Arc<Objset>, store: &Store, directory: &Zap, pool: &str) -> Result<Tree> {
    let root = directory
        .get_u64(mos::ROOT_DATASET.as_bytes())
        .await?
        .ok_or_else(|| ZioError::corrupt("pool directory", "it has no root data set"))?;
    let root_dir = Dir::load(os, ObjectId(root), None, String::new()).await?;
    let mut tree = Tree { root_dir: Some(root_dir.clone()), ..Tree::default() };
    let mut work = vec![(root_dir.clone(), pool.to_owned(), 0usize)];
    let mut seen = Seen::default();
    seen.directory(root_dir.object, pool)?;
    seen.parts_of(&root_dir)?;
    let mut snapshots = BTreeSet::new();
    while let Some((dir, name, depth)) = work.pop() {
        if depth > DEPTH_MAX {
            return Err(ZioError::corrupt("DSL directory", format!("{name}: nested too deeply")));
        }
        let (head, children) = {
            let phys = dir.phys.lock();
            (phys.head_dataset_obj, phys.child_dir_zapobj)
        };
        if head.is_some() {
            let dataset = Dataset::load(os, store, head, dir.clone()).await?;
            collect_snapshots(os, &mut tree, &mut snapshots, &dataset).await?;
            tree.datasets.insert(name.clone(), dataset);
        }
        if !children.is_some() {
            continue;
        }
        for entry in Zap::open(os, children).await?.all().await? {
            let child = String::from_utf8_lossy(&entry.name).into_owned();
            let object = ObjectId(entry.value.integers.first().copied().unwrap_or(0));
            // Before anything of it is loaded: a few KiB of names would load the same large one again and again.
            seen.directory(object, &child)?;
            let loaded = Dir::load(os, object, Some(dir.clone()), child.clone()).await?;
            seen.parts_of(&loaded)?;
            match (&*child, depth) {
                (MOS_DIR, 0) => tree.mos_dir = Some(loaded),
                (FREE_DIR, 0) => tree.free_dir = Some(loaded),
                (LEAK_DIR, 0) => tree.leak_dir = Some(loaded),
                (ORIGIN_DIR, 0) => tree.origin = load_origin(os, store, loaded).await?,
                _ => work.push((loaded, format!("{name}/{child}"), depth + 1)),
            }
        }
    }
    Ok(tree)
}

/// What was met on the way through the tree. A directory has one parent, and what belongs to it belongs to no other:
/// met again, the tree loops, or a few of its objects stand for very many.
#[derive(Default)]
struct Seen {
    directories: BTreeSet<ObjectId>,
    parts: BTreeSet<ObjectId>,
}

impl Seen {
    fn directory(&mut self, object: ObjectId, name: &str) -> Result<()> {
        if self.directories.insert(object) {
            return Ok(());
        }
        Err(ZioError::corrupt("DSL directory", format!("object {object} ({name}) has two places")))
    }

    /// Its head data set and its ZAPs.
    fn parts_of(&mut self, dir: &Dir) -> Result<()> {
        let phys = dir.phys.lock();
        for object in [phys.head_dataset_obj, phys.props_zapobj, phys.child_dir_zapobj] {
            if object.is_some() && !self.parts.insert(object) {
                let what = format!("object {object} of directory {} belongs to another one too", dir.object);
                return Err(ZioError::corrupt("DSL directory", what));
            }
        }
        Ok(())
    }
}

/// The snapshot `$ORIGIN@$ORIGIN` with its head's deadlist keys.
async fn load_origin(os: &Arc<Objset>, store: &Store, dir: Arc<Dir>) -> Result<Option<Origin>> {
    let head = dir.phys.lock().head_dataset_obj;
    if !head.is_some() {
        return Ok(None);
    }
    let head = Dataset::load(os, store, head, dir).await?;
    let (snapshot, deadlist_object) = {
        let phys = head.phys.lock();
        (phys.prev_snap_obj, phys.deadlist_obj)
    };
    if !snapshot.is_some() {
        return Ok(None);
    }
    let snapshot = SnapshotBonus::load(os, snapshot).await?.snapshot();
    let deadlist_keys = deadlist::keys(os, deadlist_object).await?.into_iter().map(|(key, _)| key).collect();
    Ok(Some(Origin { snapshot, deadlist_keys }))
}

/// Follows a head's chain of snapshots back to its origin.
async fn collect_snapshots(
    os: &Arc<Objset>,
    tree: &mut Tree,
    seen: &mut BTreeSet<ObjectId>,
    dataset: &Arc<Dataset>,
) -> Result<()> {
    let (mut object, mut newer) = {
        let phys = dataset.phys.lock();
        (phys.prev_snap_obj, Txg(u64::MAX))
    };
    while object.is_some() && seen.insert(object) {
        let bonus = SnapshotBonus::load(os, object).await?;
        let phys = &bonus.phys;
        // Snapshots get older along the chain; anything else is a cycle.
        if phys.creation_txg >= newer {
            return Err(ZioError::corrupt("snapshot", format!("object {object}: the chain of snapshots turns back")));
        }
        newer = phys.creation_txg;
        if !phys.bp.is_hole() {
            tree.snapshots.push(bonus.snapshot());
        }
        object = phys.prev_snap_obj;
    }
    Ok(())
}
