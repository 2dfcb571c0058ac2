//! Which clone has a livelist, and what was born and died in it since that was last brought up to date.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result};
use platter_ondisk::features::Feature;
use platter_ondisk::names::dsl_dir_field;
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, Txg};

use crate::dir::Dir;
use crate::snapshot::SnapshotBonus;

/// The feature that a pool needs for them.
pub const FEATURE: Feature = Feature::Livelist;

/// A clone's livelist, while it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Livelist {
    /// Its object in the MOS.
    pub object: ObjectId,
    /// Blocks born after this group, that of the clone's origin, are on it.
    pub origin: Txg,
}

/// What was born in a clone, and what died, since its livelist was last brought up to date.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// In the order of their births.
    pub born: Vec<BlkPtr>,
    /// In the order of their deaths.
    pub died: Vec<BlkPtr>,
}

impl Lives {
    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.born.is_empty() && self.died.is_empty()
    }
}

/// The livelist of the data set in `dir`, if it has one.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(mos: &Arc<Objset>, dir: &Dir) -> Result<Option<Livelist>> {
    let origin = dir.phys.lock().origin_obj;
    let dnode = mos.dnode(dir.object).await?;
    if !origin.is_some() || dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    let Some(object) = Zap::from_dnode(dnode).get_u64(dsl_dir_field::LIVELIST.as_bytes()).await? else {
        return Ok(None);
    };
    let origin = SnapshotBonus::load(mos, origin).await?.phys.creation_txg;
    Ok(Some(Livelist { object: ObjectId(object), origin }))
}
