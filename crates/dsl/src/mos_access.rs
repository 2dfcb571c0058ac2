//! What of the meta object set is kept at hand.

use std::sync::Arc;

use parking_lot::Mutex;
use platter_dmu::Objset;
use platter_dmu::zap::Zap;
use platter_ondisk::ObjectId;

use crate::features::Features;
use crate::version::PoolVersion;

/// Objects of the MOS that the pool keeps at hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct MosObjects {
    /// The configuration nvlist.
    pub config: ObjectId,
    /// The deferred-free list.
    pub deferred: ObjectId,
    /// The history, once there is one.
    pub history: ObjectId,
    /// The shared empty bpobj, while in use.
    pub empty_bpobj: ObjectId,
    /// Pool properties, once one was set.
    pub properties: ObjectId,
    /// The queue of object sets to be freed, while there are any.
    pub bptree: ObjectId,
    /// The list of blocks to be freed, while there are any.
    pub frees: ObjectId,
    /// The ZAP of livelists of destroyed clones, while there are any.
    pub deleted_clones: ObjectId,
}

/// What changes of the MOS need at hand.
pub struct MosAccess<'a> {
    /// The MOS.
    pub os: &'a Arc<Objset>,
    /// Its directory.
    pub directory: &'a Zap,
    /// Feature counts.
    pub features: &'a Features,
    /// Well-known objects.
    pub objects: &'a Mutex<MosObjects>,
    /// The pool's version.
    pub version: PoolVersion,
}
