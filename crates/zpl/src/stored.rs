//! A file's attributes as they are stored: system attributes, or a znode from before these.
//!
//! What has no file's mode is no file, and refused.

use std::sync::Arc;

use platter_dmu::{Dnode, Objset, ZioError};
use platter_ondisk::ObjectType;
use platter_zio::Result;

use crate::attr::FileKind;
use crate::phys::Phys;
use crate::sa_table::SaTable;
use crate::znode_legacy;

/// Reads the attributes of the object `dnode`.
pub(crate) async fn read(os: &Arc<Objset>, dnode: &Dnode, table: &SaTable) -> Result<Phys> {
    let info = dnode.info();
    let bonus = dnode.bonus();
    let phys = match info.bonus_type {
        ObjectType::SA => {
            let mut phys = Phys::empty();
            phys.absorb(&bonus, table, dnode.object())?;
            if let Some(spill) = dnode.spill().await? {
                phys.absorb(&spill, table, dnode.object())?;
            }
            phys
        }
        ObjectType::ZNODE => Box::pin(znode_legacy::read(os, dnode, &bonus, table)).await?,
        other => {
            return Err(ZioError::NotFound(format!("file: object {} has a bonus of type {other}", dnode.object())));
        }
    };
    if FileKind::from_mode(phys.mode).is_none() {
        return Err(ZioError::corrupt("file", format!("object {} has mode {:#o}", dnode.object(), phys.mode)));
    }
    Ok(phys)
}
