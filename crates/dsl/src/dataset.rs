//! Data sets: an object set with its place in the history of snapshots (`module/zfs/dsl_dataset.c`).
//!
//! Invariants: as in `dir`: `phys` in memory is what the bonus will be after the running sync; `referenced` and
//! `unique` follow births and deaths to the byte; a per-dataset feature is listed in the data set's own ZAP exactly
//! while it is in use.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use platter_dmu::zap::{NewZap, Zap, ZapEntry};
use platter_dmu::{NewDnode, Objset, Result, Tx, ZioError};
use platter_ondisk::dsl::{DSL_DATASET_SIZE, DslDatasetPhys, dataset_flags};
use platter_ondisk::features::Feature;
use platter_ondisk::{BlkPtr, Guid, ObjectId, ObjectType, ObjsetPhys, ObjsetType, Txg};
use platter_zil::Zil;
use platter_zio::Store;
use platter_zio::{BlockReader, Bookmark, Priority};

use crate::accounting::Accounting;
use crate::contents::Contents;
use crate::dir::Dir;
use crate::empty_bpobj::empty_bpobj;
use crate::followed::Followed;
use crate::mos_access::MosAccess;
use crate::noted::Noted;
use crate::snapshot::{self, Origin, SnapshotBonus};
use crate::volume_server::Server;
use crate::{deadlist, lives};
use platter_api::report::DatasetKind;

/// Names in snapshot maps compare without case (`U8_TEXTPREP_TOUPPER`).
const NORMALIZE_TO_UPPER: u32 = 2;

/// A data set in memory.
pub struct Dataset {
    /// Its object in the MOS.
    pub object: ObjectId,
    /// Its directory.
    pub dir: Arc<Dir>,
    /// The bonus.
    pub phys: Mutex<DslDatasetPhys>,
    /// Births and deaths not yet applied.
    pub accounting: Arc<Accounting>,
    /// Its bookmarks that follow what is freed.
    pub followed: Mutex<Followed>,
    /// The open object set, while somebody uses it.
    pub objset: Mutex<Option<Arc<Objset>>>,
    /// The open object set's intent log, when it can be written.
    pub zil: Mutex<Option<Arc<Zil>>>,
    /// Per-dataset features in use.
    pub features: Mutex<BTreeSet<Feature>>,
    /// What it is: a file system or a volume.
    pub kind: DatasetKind,
    /// How many have the volume open; held while it is opened or closed, or must not be.
    pub users: Arc<tokio::sync::Mutex<usize>>,
    /// Whoever serves the open volume.
    pub server: Mutex<Option<Weak<dyn Server>>>,
    /// What the contents were made with, once somebody asked.
    pub contents: Mutex<Contents>,
    /// How far a receive into it has come.
    pub noted: Mutex<Noted>,
}

/// What the object set at `root` is. What cannot be read counts as a file system: opening it says what is wrong.
async fn kind_of(store: &Store, object: ObjectId, root: &BlkPtr) -> DatasetKind {
    if root.is_hole() {
        return DatasetKind::Filesystem;
    }
    let bookmark = Bookmark { objset: object, object: ObjectId(0), level: -1, blkid: 0 };
    let read = store.read(root, bookmark, Priority::SyncRead).await;
    match read.ok().and_then(|block| ObjsetPhys::decode(&block).ok()) {
        Some(phys) if phys.object_set_type == ObjsetType::ZVOL => DatasetKind::Volume,
        _ => DatasetKind::Filesystem,
    }
}

impl Dataset {
    /// Loads data set `object` of `dir`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn load(os: &Arc<Objset>, store: &Store, object: ObjectId, dir: Arc<Dir>) -> Result<Arc<Self>> {
        let dnode = os.dnode(object).await?;
        if dnode.info().bonus_type != ObjectType::DSL_DATASET {
            return Err(ZioError::corrupt("data set", format!("object {object} is something else")));
        }
        let phys = DslDatasetPhys::decode(&dnode.bonus())
            .map_err(|e| ZioError::corrupt("data set", format!("object {object}: {e}")))?;
        let mut active = BTreeSet::new();
        if dnode.info().object_type == ObjectType::OTN_ZAP_METADATA {
            for entry in Zap::from_dnode(dnode.clone()).all().await? {
                let feature = Feature::by_guid(&String::from_utf8_lossy(&entry.name));
                active.extend(feature.filter(|feature| feature.info().per_dataset));
            }
        }
        let kind = kind_of(store, object, &phys.bp).await;
        let dataset = Self {
            kind,
            users: Arc::default(),
            server: Mutex::new(None),
            object,
            dir,
            accounting: Arc::new(Accounting::new(store.clone(), phys.prev_snap_txg)),
            phys: Mutex::new(phys),
            followed: Mutex::default(),
            objset: Mutex::new(None),
            zil: Mutex::new(None),
            features: Mutex::new(active),
            contents: Mutex::default(),
            noted: Mutex::default(),
        };
        match Followed::load(os, object).await {
            Ok(followed) => *dataset.followed.lock() = followed,
            // Figures of bookmarks are no reason to refuse a pool.
            Err(error) => tracing::warn!(dataset = %object, %error, "its bookmarks do not follow what is freed"),
        }
        dataset.accounting.set_livelist(lives::load(os, &dataset.dir).await?);
        dataset.book_by_history();
        Ok(Arc::new(dataset))
    }

    /// What dies from now on is booked by the latest snapshot and the bookmarks since, as they are now. To be called in
    /// the task that changes one of them.
    pub fn book_by_history(&self) {
        let latest = self.phys.lock().prev_snap_txg;
        let bookmarks = self.followed.lock().groups_from(latest);
        self.accounting.set_history(latest, bookmarks);
    }

    /// Makes a data set of `kind` in `dir`, descending from the pool's origin snapshot when there is one
    /// (`dsl_dataset_create_sync_dd`).
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn create(
        mos: &MosAccess<'_>,
        store: &Store,
        tx: &Tx,
        (dir, kind): (&Arc<Dir>, DatasetKind),
        origin: Option<&Origin>,
        now: u64,
        mut random: impl FnMut() -> u64,
    ) -> Result<Arc<Self>> {
        let os = mos.os;
        let new = NewDnode::bonus_only(ObjectType::DSL_DATASET, DSL_DATASET_SIZE as u16);
        let dnode = os.allocate(tx, new).await?;
        let object = dnode.object();
        let snapnames = NewZap {
            object_type: ObjectType::DSL_DS_SNAP_MAP,
            normalization: NORMALIZE_TO_UPPER,
            flags: 0,
            bonus_type: ObjectType::NONE,
            bonus_length: 0,
            dnode_size: 0,
            salt: random(),
        };
        let mut phys = DslDatasetPhys {
            dir_obj: dir.object,
            // unique_create() draws 56 bits.
            fsid_guid: random() >> 8,
            guid: Guid(random()),
            snapnames_zapobj: Zap::create(os, tx, None, snapnames).await?.dnode().object(),
            creation_time: now,
            creation_txg: if tx.txg() == TXG_INITIAL { Txg(1) } else { tx.txg() },
            flags: dataset_flags::UNIQUE_ACCURATE,
            ..DslDatasetPhys::default()
        };
        phys.deadlist_obj = deadlist::create(os, tx, mos.version, random()).await?;
        if let Some(origin) = origin {
            phys.prev_snap_obj = origin.snapshot.object;
            phys.prev_snap_txg = origin.snapshot.creation_txg;
            // The same birth groups as the origin's (`dsl_deadlist_clone`), each with an empty list of its own.
            if mos.version.has_deadlists() {
                for &key in origin.deadlist_keys.iter().filter(|&&key| key < origin.snapshot.creation_txg) {
                    let empty = empty_bpobj(mos, tx).await?;
                    deadlist::add_key(os, tx, phys.deadlist_obj, key, empty).await?;
                }
            }
            let mut dir_phys = dir.phys.lock();
            dir_phys.origin_obj = origin.snapshot.object;
        }
        dir.phys.lock().head_dataset_obj = object;
        dnode.set_bonus(tx, ObjectType::DSL_DATASET, &phys.encode())?;
        dir.store(os, tx).await?;
        Ok(Arc::new(Self {
            kind,
            users: Arc::default(),
            server: Mutex::new(None),
            object,
            dir: dir.clone(),
            accounting: Arc::new(Accounting::new(store.clone(), phys.prev_snap_txg)),
            phys: Mutex::new(phys),
            followed: Mutex::default(),
            objset: Mutex::new(None),
            zil: Mutex::new(None),
            features: Mutex::default(),
            contents: Mutex::default(),
            noted: Mutex::default(),
        }))
    }

    /// Bytes written since the previous snapshot (`dsl_dataset_space_written`).
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn written(&self, os: &Arc<Objset>) -> Result<u64> {
        let (referenced, previous, deadlist) = {
            let phys = self.phys.lock();
            (phys.referenced_bytes, phys.prev_snap_obj, phys.deadlist_obj)
        };
        if !previous.is_some() {
            return Ok(referenced);
        }
        let before = SnapshotBonus::load(os, previous).await?.phys.referenced_bytes;
        Ok(referenced.saturating_add(deadlist::space_used(os, deadlist).await?).saturating_sub(before))
    }

    /// The snapshot of it that is called `name`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn snapshot(&self, os: &Arc<Objset>, name: &str) -> Result<Option<SnapshotBonus>> {
        let (names, folded) = {
            let phys = self.phys.lock();
            (phys.snapnames_zapobj, phys.flags & dataset_flags::CI_DATASET != 0)
        };
        match snapshot::lookup(os, names, name, folded).await? {
            Some(object) => SnapshotBonus::load(os, object).await.map(Some),
            None => Ok(None),
        }
    }

    /// Names and numbers of its snapshots, by name.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn snapshot_names(&self, os: &Arc<Objset>) -> Result<Vec<(String, ObjectId)>> {
        let names = self.phys.lock().snapnames_zapobj;
        if !names.is_some() {
            return Ok(Vec::new());
        }
        let entries = Zap::open(os, names).await?.all().await?;
        let named = |entry: &ZapEntry| {
            let object = entry.value.integers.first().copied().unwrap_or(0);
            (String::from_utf8_lossy(&entry.name).into_owned(), ObjectId(object))
        };
        let mut names: Vec<(String, ObjectId)> = entries.iter().map(named).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Writes the bonus back.
    ///
    /// # Errors
    /// Device errors.
    pub async fn store(&self, os: &Arc<Objset>, tx: &Tx) -> Result<()> {
        let bytes = self.phys.lock().encode();
        os.dnode(self.object).await?.set_bonus(tx, ObjectType::DSL_DATASET, &bytes)
    }

    /// What is in memory of it is what the running sync writes: nobody changed it without storing it. To be asked once
    /// nothing of the group is dirty; of what has left memory nothing is said.
    pub fn assert_stored(&self, os: &Arc<Objset>) {
        let Some(stored) = os.dnode_now(self.object) else { return };
        let Ok(stored) = DslDatasetPhys::decode(&stored.bonus()) else { return };
        let phys = self.phys.lock();
        // What is kept of snapshots; in a damaged pool a data set may be said to be one.
        let DslDatasetPhys { num_children, next_clones_obj, unique_bytes, .. } = *phys;
        let stored = DslDatasetPhys { num_children, next_clones_obj, unique_bytes, ..stored };
        assert_eq!(stored, *phys, "data set {}: a change is not stored", self.object);
        drop(phys);
        assert!(self.accounting.is_empty(), "data set {}: births and deaths are not booked", self.object);
    }

    /// Whoever wants the object set gets `os` from now on. None is open yet, since what is dirty in that would be lost.
    pub fn set_open(&self, os: &Arc<Objset>) {
        let mut open = self.objset.lock();
        assert!(open.is_none(), "data set {}: an open object set was opened a second time", self.object);
        *open = Some(os.clone());
    }

    /// The open object set, if any.
    pub fn open_objset(&self) -> Option<Arc<Objset>> {
        self.objset.lock().clone()
    }
}

/// The first group of a new pool (`TXG_INITIAL`).
pub const TXG_INITIAL: Txg = Txg(4);
