//! The ZFS attribute processor: name → integers maps, micro and fat (`module/zfs/zap*.c`).

use std::sync::Arc;

use platter_ondisk::ObjectId;
use platter_zio::{Result, Tx};

use crate::dnode::Dnode;
use crate::objset::Objset;

/// A value: integers of 1, 2, 4 or 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapValue {
    /// Size of one integer in bytes.
    pub integer_size: u8,
    /// The integers, widened.
    pub integers: Vec<u64>,
}

/// One entry met while iterating.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapEntry {
    /// Name bytes without the terminating zero (for uint64-key ZAPs: the key's big-endian bytes).
    pub name: Vec<u8>,
    /// Its value.
    pub value: ZapValue,
    /// Serialised cursor that resumes *after* this entry (hash and collision differentiator as in
    /// `zap_cursor_serialize`), stable across other entries' insertion and removal.
    pub cursor: u64,
}

/// How to make a ZAP.
#[derive(Clone, Debug)]
pub struct NewZap {
    /// `dmu_object_type_t` (a ZAP type).
    pub object_type: u8,
    /// `u8_textprep` normalisation flags; 0 for none.
    pub normalization: u32,
    /// `zap_flags_t` (ZAP_FLAG_HASH64 1, UINT64_KEY 2, PRE_HASHED_KEY 4); nonzero makes a fat ZAP at once.
    pub flags: u64,
    /// Bonus type and length to allocate with.
    pub bonus_type: u8,
    /// Bonus length in bytes.
    pub bonus_length: u16,
    /// Dnode size in bytes; 0 for the default.
    pub dnode_size: u32,
    /// Salt for the hash; take it from the pool's random generator.
    pub salt: u64,
}

/// An open ZAP. Cheap to clone; operations on one ZAP are serialised inside (readers in parallel).
#[derive(Clone)]
pub struct Zap {
    dnode: Arc<Dnode>,
}

impl Zap {
    /// Makes an empty ZAP in a new object (or with number `object` when given).
    pub async fn create(os: &Arc<Objset>, tx: &Tx, object: Option<ObjectId>, new: NewZap) -> Result<Self> {
        let _ = (os, tx, object, new);
        todo!()
    }

    /// Opens ZAP `object`.
    pub async fn open(os: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        Ok(Self { dnode: os.dnode(object).await? })
    }

    /// Wraps an object already open.
    pub fn from_dnode(dnode: Arc<Dnode>) -> Self {
        Self { dnode }
    }

    /// The object.
    pub fn dnode(&self) -> &Arc<Dnode> {
        &self.dnode
    }

    /// The value of `name`, or `None`.
    pub async fn get(&self, name: &[u8]) -> Result<Option<ZapValue>> {
        let _ = name;
        todo!()
    }

    /// The value of `name` as one 8-byte integer, or `None` when absent (another shape is damage).
    pub async fn get_u64(&self, name: &[u8]) -> Result<Option<u64>> {
        let _ = name;
        todo!()
    }

    /// Adds `name`; an error when it exists.
    pub async fn add(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        let _ = (tx, name, value);
        todo!()
    }

    /// Adds or replaces `name`.
    pub async fn put(&self, tx: &Tx, name: &[u8], value: &ZapValue) -> Result<()> {
        let _ = (tx, name, value);
        todo!()
    }

    /// Adds or replaces `name` with one 8-byte integer.
    pub async fn put_u64(&self, tx: &Tx, name: &[u8], value: u64) -> Result<()> {
        self.put(tx, name, &ZapValue { integer_size: 8, integers: vec![value] }).await
    }

    /// Removes `name`; `false` when it was absent.
    pub async fn remove(&self, tx: &Tx, name: &[u8]) -> Result<bool> {
        let _ = (tx, name);
        todo!()
    }

    /// Up to `limit` entries after `cursor` (0 starts), in hash order.
    pub async fn entries(&self, cursor: u64, limit: usize) -> Result<Vec<ZapEntry>> {
        let _ = (cursor, limit);
        todo!()
    }

    /// All entries.
    pub async fn all(&self) -> Result<Vec<ZapEntry>> {
        self.entries(0, usize::MAX).await
    }

    /// Number of entries.
    pub async fn count(&self) -> Result<u64> {
        todo!()
    }
}
