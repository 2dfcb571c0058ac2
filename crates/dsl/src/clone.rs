//! `zfs clone`: a data set that begins as what a snapshot is (`dsl_dataset_clone_check`, `dsl_dataset_clone_sync`,
//! `dsl_dataset_create_sync_dd`, `module/zfs/dsl_dataset.c`).
//!
//! ```text
//!   … ──── origin ──── next ──── … ──── head
//!             └──────── clone's head
//! ```
//! The clone's head has the origin's root, and references what it references; alone it has nothing. What it gives up of
//! that goes on its deadlist, whose entries part where the snapshots up to the origin begin.
//!
//! Invariants:
//! - nothing is born in a clone in the group of its origin: it would be taken to be in the origin;
//! - a clone is counted in its origin's `num_children`, and listed in `next_clones_obj` and the directory's `clones`.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::delegation::Creator;
use platter_api::names;
use platter_api::properties;
use platter_dmu::Tx;
use platter_ondisk::dsl::dataset_flags;
use platter_ondisk::{ObjectId, Txg};

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::named_snapshot::{self, NamedSnapshot};
use crate::pool::DslPool;
use crate::snapshot::{Origin, SnapshotBonus};
use crate::stored_property::StoredProperty;
use crate::{
    deadlist, deadlist_merge, effects, encryption, history, intent, livelist, new_dataset, origin, version_limits,
    zapify,
};

/// A clone that can be made.
struct Plan {
    site: new_dataset::Site,
    origin: NamedSnapshot,
}

/// Whether a clone of `snapshot` called `name` can be made with these properties.
async fn plan(
    dsl: &DslPool,
    snapshot: &str,
    name: &str,
    properties: &BTreeMap<String, StoredProperty>,
) -> Result<(Plan, SnapshotBonus)> {
    let origin = named_snapshot::find(dsl, snapshot).await?;
    let origin = origin.ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
    if encryption::of(&dsl.mos, &origin.head.dir).await?.is_some() {
        return Err(PoolError::Unsupported("it is encrypted, and this version does not encrypt yet".into()));
    }
    let site = new_dataset::check(dsl, name, origin.head.kind, properties).await?;
    for (property, value) in properties {
        effects::check_applies(dsl, origin.head.kind, property, Some(value))?;
    }
    let bonus = SnapshotBonus::load(&dsl.mos, origin.object).await?;
    if let Some(StoredProperty::Number(refquota)) = properties.get("refquota")
        && *refquota != 0
        && *refquota < bonus.phys.referenced_bytes
    {
        return Err(PoolError::invalid("size is less than current used or reserved space"));
    }
    // What the task will need of the MOS, so that damage is known of before anything changes.
    let list = origin.head.phys.lock().deadlist_obj;
    deadlist::keys(&dsl.mos, list).await?;
    let clones = origin.head.dir.phys.lock().clones;
    for object in [bonus.phys.next_clones_obj, clones].into_iter().filter(|object| object.is_some()) {
        dsl.mos.dnode(object).await?;
    }
    Ok((Plan { site, origin }, bonus))
}

/// As [`plan`], in group `txg`; `None` when not in this one.
async fn check(
    dsl: &DslPool,
    snapshot: &str,
    name: &str,
    properties: &BTreeMap<String, StoredProperty>,
    txg: Txg,
) -> Result<Option<Plan>> {
    let (plan, bonus) = plan(dsl, snapshot, name, properties).await?;
    Ok((bonus.phys.creation_txg < txg).then_some(plan))
}

/// Makes the clone. When that fails and all that was made is removed again, the inner error says why. Within a task.
async fn make(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    name: &str,
    plan: Plan,
    properties: BTreeMap<String, StoredProperty>,
    creator: Option<Creator>,
) -> Result<Result<()>> {
    let Plan { site, origin } = plan;
    let (now, random) = (dsl.now(), || dsl.random());
    let parent = Some(site.above.dir.clone());
    let dir = Dir::create(&dsl.mos, &dsl.directory, tx, parent, &site.last, now, random).await?;
    let made = match fill(dsl, tx, name, (&dir, creator), &origin, properties).await {
        Ok(made) => made,
        Err(error) => return new_dataset::undo(dsl, tx, name, &dir, error).await,
    };
    let text = format!("{name} ({}) origin={} ({})", made.object, origin.full_name, origin.object);
    history::append_event(dsl, tx, "clone", &text).await?;
    Ok(Ok(()))
}

/// All that makes a clone of the new directory `dir`.
async fn fill(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    name: &str,
    (dir, creator): (&Arc<Dir>, Option<Creator>),
    origin: &NamedSnapshot,
    properties: BTreeMap<String, StoredProperty>,
) -> Result<Arc<Dataset>> {
    new_dataset::prepare(dsl, tx, dir, &properties, creator).await?;
    let dataset = head(dsl, tx, dir, &origin.head, origin.object).await?;
    livelist::create(dsl, tx, &dataset).await?;
    new_dataset::settle(dsl, tx, name, &dataset, &properties).await?;
    intent::forget(dsl, tx, &dataset).await?;
    Ok(dataset)
}

/// Makes the head, in the new directory `dir`, of a clone of snapshot `origin`, which is `of`'s. Within a task, in a
/// later group than the snapshot's.
///
/// # Errors
/// Out of device errors, damage.
pub async fn head(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dir: &Arc<Dir>,
    of: &Dataset,
    origin: ObjectId,
) -> platter_zio::Result<Arc<Dataset>> {
    let from = SnapshotBonus::load(&dsl.mos, origin).await?;
    assert!(from.phys.creation_txg < tx.txg(), "what is born in the clone would be taken to be in its origin");
    let list = of.phys.lock().deadlist_obj;
    let deadlist_keys = deadlist_merge::births(&dsl.mos, list, origin).await?;
    let descent = Origin { snapshot: from.snapshot(), deadlist_keys };
    let access = dsl.access();
    let made =
        Dataset::create(&access, &dsl.store, tx, (dir, of.kind), Some(&descent), dsl.now(), || dsl.random()).await?;
    {
        let mut phys = made.phys.lock();
        phys.referenced_bytes = from.phys.referenced_bytes;
        phys.compressed_bytes = from.phys.compressed_bytes;
        phys.uncompressed_bytes = from.phys.uncompressed_bytes;
        phys.bp = from.phys.bp;
        phys.flags |= from.phys.flags & (dataset_flags::INCONSISTENT | dataset_flags::CI_DATASET);
    }
    made.store(&dsl.mos, tx).await?;
    zapify::copy(dsl, tx, origin, made.object).await?;
    origin::attach(&access, tx, origin, Some(&of.dir), made.object, || dsl.random()).await?;
    // With what it is, a file system or a volume, and with its features.
    Dataset::load(&dsl.mos, &dsl.store, made.object, dir.clone()).await
}

impl DslPool {
    /// The properties of a clone that is to be made. What is chosen when a file system is made, a clone has from its
    /// origin.
    fn parse_clone(&self, given: &BTreeMap<String, String>) -> Result<BTreeMap<String, StoredProperty>> {
        let properties = properties::parse_all(given)?;
        version_limits::check_all(&properties, self.version(), &self.features)?;
        Ok(properties)
    }

    /// Whether a clone of a snapshot, called `name`, could be made.
    ///
    /// # Errors
    /// As [`clone_snapshot`](Self::clone_snapshot).
    pub async fn check_clone(&self, snapshot: &str, name: &str, given: &BTreeMap<String, String>) -> Result<()> {
        names::check_dataset(name)?;
        let properties = self.parse_clone(given)?;
        plan(self, snapshot, name, &properties).await.map(drop)
    }

    /// `zfs clone`: makes the data set `name`, whose parent is there, of a snapshot.
    ///
    /// # Errors
    /// Bad name or property, it exists, no parent, no such snapshot, no a limit is reached; the pool is
    /// read-only or stopped; damage.
    pub async fn clone_snapshot(
        self: &Arc<Self>,
        snapshot: &str,
        name: &str,
        given: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.clone_snapshot_of(snapshot, name, given, None).await
    }

    /// As [`clone_snapshot`](Self::clone_snapshot), for somebody.
    ///
    /// # Errors
    /// As [`clone_snapshot`](Self::clone_snapshot).
    pub async fn clone_snapshot_of(
        self: &Arc<Self>,
        snapshot: &str,
        name: &str,
        given: &BTreeMap<String, String>,
        creator: Option<Creator>,
    ) -> Result<()> {
        names::check_dataset(name)?;
        let properties = self.parse_clone(given)?;
        loop {
            let (origin, wanted, asked) = (snapshot.to_owned(), name.to_owned(), properties.clone());
            let (made, given) = (name.to_owned(), properties.clone());
            let check = async move |dsl: Arc<Self>, txg: Txg| check(&dsl, &origin, &wanted, &asked, txg).await;
            let make = async move |dsl: Arc<Self>, tx: Tx, plan: Option<Plan>| match plan {
                Some(plan) => make(&dsl, &tx, &made, plan, given, creator).await.map(Some),
                None => Ok(None),
            };
            if let Some(made) = self.checked_task_in_group(check, make).await? {
                made?;
                break;
            }
        }
        // A log that is forgotten was opened for that.
        self.close_filesystem(name).await
    }
}
