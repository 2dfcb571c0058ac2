//! The ZAPs that hold the quotas of users, groups and projects (`module/zfs/zfs_quota.c`).

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Totals};
use platter_ondisk::ObjectId;
use platter_ondisk::znode::MASTER_NODE_OBJECT;
use platter_zio::Result;

/// The master node's entry for a ZAP of quotas (`zfs_userquota_prop_prefixes`).
pub(crate) fn master_entry(whose: Totals, objects: bool) -> &'static str {
    match (whose, objects) {
        (Totals::Users, false) => "userquota@",
        (Totals::Users, true) => "userobjquota@",
        (Totals::Groups, false) => "groupquota@",
        (Totals::Groups, true) => "groupobjquota@",
        (Totals::Projects, false) => "projectquota@",
        (Totals::Projects, true) => "projectobjquota@",
    }
}

pub(crate) async fn quota_zap(os: &Arc<Objset>, whose: Totals, objects: bool) -> Result<Option<Zap>> {
    let master = Zap::open(os, ObjectId(MASTER_NODE_OBJECT)).await?;
    match master.get_u64(master_entry(whose, objects).as_bytes()).await? {
        Some(object) => Ok(Some(Zap::open(os, ObjectId(object)).await?)),
        None => Ok(None),
    }
}

/// The quotas of a mounted file system.
#[derive(Clone, Default)]
pub(crate) struct Quotas {
    /// Users, groups and projects, each bytes and objects.
    pub zaps: [[Option<Zap>; 2]; 3],
}

impl Quotas {
    pub async fn load(os: &Arc<Objset>) -> Result<Self> {
        let mut quotas = Self::default();
        for (places, whose) in quotas.zaps.iter_mut().zip(Totals::ALL) {
            for (place, objects) in places.iter_mut().zip([false, true]) {
                *place = quota_zap(os, whose, objects).await?;
            }
        }
        Ok(quotas)
    }

    pub fn is_empty(&self) -> bool {
        self.zaps.iter().flatten().all(Option::is_none)
    }
}
