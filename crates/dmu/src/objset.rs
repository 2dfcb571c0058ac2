//! An object set: the meta-dnode and all objects in it (`module/zfs/dmu_objset.c`, `module/zfs/dmu_object.c`).

use std::sync::Arc;

use parking_lot::RwLock;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::{BlockStore, Result, SpaceAccounting, Tx, TxgGate};

use crate::dnode::{Dnode, NewDnode};

/// How blocks of this object set are written; from the dataset's properties, already resolved (no "inherit"/"on").
#[derive(Clone, Debug)]
pub struct WriteProperties {
    /// `enum zio_checksum` for data (7 = fletcher4, 8 = sha256).
    pub checksum: u8,
    /// `enum zio_compress` for data (2 = off, 15 = lz4).
    pub compression: u8,
    /// Level for gzip/zstd.
    pub compression_level: i32,
    /// Data copies, 1..=3.
    pub copies: u8,
    /// Data block size in bytes for new files.
    pub record_size: u32,
    /// Copies of metadata blocks to add to `copies` (1: two copies for datasets; the MOS uses 3 in all).
    pub is_mos: bool,
    /// Whether embedded block pointers may be written (feature `embedded_data`).
    pub embedded_data: bool,
    /// Default dnode size for new objects, in bytes (512 = legacy).
    pub dnode_size: u32,
}

/// What an object set needs from its surroundings.
#[derive(Clone)]
pub struct ObjsetParams {
    /// The pool's blocks.
    pub store: Arc<dyn BlockStore>,
    /// Where births and deaths are booked.
    pub accounting: Arc<dyn SpaceAccounting>,
    /// Transaction groups.
    pub gate: Arc<TxgGate>,
    /// Dataset object number in the MOS (0 for the MOS itself); the objset part of bookmarks.
    pub id: ObjectId,
    /// Initial write properties.
    pub properties: WriteProperties,
    /// Whether changes are refused.
    pub read_only: bool,
}

/// An open object set.
pub struct Objset {
    params: ObjsetParams,
    properties: RwLock<WriteProperties>,
}

impl Objset {
    /// Opens the object set whose root block is `root`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn open(params: ObjsetParams, root: BlkPtr) -> Result<Arc<Self>> {
        let _ = (params, root);
        todo!()
    }

    /// A new, empty object set of `kind` (`dmu_objset_type_t`: 1 meta, 2 ZFS), dirty in `tx`'s group.
    pub fn create(params: ObjsetParams, kind: u64, tx: &Tx) -> Arc<Self> {
        let properties = RwLock::new(params.properties.clone());
        let _ = (kind, tx);
        Arc::new(Self { params, properties })
    }

    /// The surroundings it was opened with.
    pub fn params(&self) -> &ObjsetParams {
        &self.params
    }

    /// `dmu_objset_type_t`.
    pub fn kind(&self) -> u64 {
        todo!()
    }

    /// The current write properties.
    pub fn properties(&self) -> WriteProperties {
        self.properties.read().clone()
    }

    /// Changes how later blocks are written.
    pub fn set_properties(&self, properties: WriteProperties) {
        *self.properties.write() = properties;
    }

    /// The root pointer of the last synced state (a hole before the first sync).
    pub fn root(&self) -> BlkPtr {
        todo!()
    }

    /// The object `object`.
    ///
    /// # Errors
    /// [`platter_zio::ZioError::NotFound`] when it is not allocated.
    pub async fn dnode(self: &Arc<Self>, object: ObjectId) -> Result<Arc<Dnode>> {
        let _ = object;
        todo!()
    }

    /// Allocates an object at a free number.
    pub async fn allocate(self: &Arc<Self>, tx: &Tx, new: NewDnode) -> Result<Arc<Dnode>> {
        let _ = (tx, new);
        todo!()
    }

    /// Allocates the object with this very number.
    pub async fn claim(self: &Arc<Self>, tx: &Tx, object: ObjectId, new: NewDnode) -> Result<Arc<Dnode>> {
        let _ = (tx, object, new);
        todo!()
    }

    /// Frees an object with all its blocks.
    pub async fn free_object(self: &Arc<Self>, tx: &Tx, object: ObjectId) -> Result<()> {
        let _ = (tx, object);
        todo!()
    }

    /// The next allocated object after `after`, or `None`.
    pub async fn next_object(self: &Arc<Self>, after: ObjectId) -> Result<Option<ObjectId>> {
        let _ = after;
        todo!()
    }

    /// Number of allocated objects as of the last sync (from the meta-dnode's fill count).
    pub fn object_count(&self) -> u64 {
        todo!()
    }

    /// Joins the open group for a change that frees more than it writes; works on a full pool.
    ///
    /// # Errors
    /// [`platter_zio::ZioError::Suspended`] once the pool stopped.
    pub async fn begin_net_free(&self) -> Result<Tx> {
        self.params.gate.begin_net_free().await
    }

    /// Joins the open transaction group (throttled).
    pub async fn begin(&self) -> Result<Tx> {
        self.params.gate.begin().await
    }

    /// Whether anything was changed in `txg` and not yet synced.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        let _ = txg;
        todo!()
    }

    /// Sync context: writes everything changed in `txg` and returns the new root pointer. May be called again for the
    /// same group in a later pass when more was dirtied (the MOS converges that way). `pass` starts at 1.
    pub async fn sync(self: &Arc<Self>, txg: Txg, pass: u32) -> Result<BlkPtr> {
        let _ = (txg, pass);
        todo!()
    }
}
