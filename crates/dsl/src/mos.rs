//! Names in the pool directory (object 1 of the MOS; the `DMU_POOL_*` constants of `include/sys/dmu.h`), and small
//! helpers to reach what they name.

use std::sync::Arc;

use platter_dmu::zap::{NewZap, Zap};
use platter_dmu::{Objset, Result, Tx};
use platter_ondisk::{ObjectId, ObjectType};

pub use platter_ondisk::names::pool_directory::*;

/// The pool directory's object number (`DMU_POOL_DIRECTORY_OBJECT`).
pub const DIRECTORY_OBJECT: ObjectId = ObjectId(1);

/// What the MOS's own blocks are called by (`DMU_META_OBJSET`).
pub const OBJSET: ObjectId = ObjectId(0);

/// A plain ZAP's making, with the salt the caller drew.
pub fn new_zap(object_type: ObjectType, salt: u64) -> NewZap {
    NewZap {
        object_type,
        normalization: 0,
        flags: 0,
        bonus_type: ObjectType::NONE,
        bonus_length: 0,
        dnode_size: 0,
        salt,
    }
}

/// Makes a plain ZAP and returns its number.
///
/// # Errors
/// Out of space, device errors.
pub async fn create_zap(mos: &Arc<Objset>, tx: &Tx, object_type: ObjectType, salt: u64) -> Result<ObjectId> {
    Ok(Zap::create(mos, tx, None, new_zap(object_type, salt)).await?.dnode().object())
}
