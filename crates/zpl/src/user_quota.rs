//! Quotas of users, groups and projects, and what these use (`module/zfs/zfs_quota.c`).
//!
//! The quotas are ZAPs that the master node names: hexadecimal id → bytes, or number of objects. What is used is what
//! the object set's totals say: as of the last sync, so that a quota may be passed by what one group of transactions
//! holds, as in OpenZFS.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::userused::OBJECTS_PREFIX;
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Totals};
use platter_ondisk::znode::MASTER_NODE_OBJECT;
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::{Result, ZioError};

use crate::fs::Zpl;
use crate::quotas::{Quotas, master_entry, quota_zap};
use crate::sa_table::plain_zap;
use crate::salt::Salts;

/// What somebody uses of a file system, and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User, group or project id.
    pub id: u64,
    /// Bytes.
    pub used: u64,
    /// Bytes; 0 for no limit.
    pub quota: u64,
    /// Objects; `None` while they are not counted.
    pub objects_used: Option<u64>,
    /// Objects; 0 for no limit.
    pub objects_quota: u64,
}

/// What each user, group or project uses and may use, by id; nothing while that is not counted
/// (`zfs_userspace_many`, `module/zfs/zfs_quota.c`).
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn usage(os: &Arc<Objset>, whose: Totals) -> Result<Vec<Usage>> {
    if !os.space_is_counted() || whose == Totals::Projects && !os.counts_projects() {
        return Ok(Vec::new());
    }
    let counted = os.objects_are_counted();
    let mut found: BTreeMap<u64, Usage> = BTreeMap::new();
    let mut take = |name: &[u8], value: u64, set: fn(&mut Usage, u64)| {
        let text = String::from_utf8_lossy(name).into_owned();
        // Ids above 32 bits stand for identities of other systems, which have no number here.
        if let Ok(id) = u64::from_str_radix(&text, 16)
            && u32::try_from(id).is_ok()
        {
            let objects_used = counted.then_some(0);
            set(found.entry(id).or_insert(Usage { id, objects_used, ..Usage::default() }), value);
        }
    };
    if let Some(totals) = os.totals(whose) {
        for entry in totals.all().await? {
            let value = entry.value.integers.first().copied().unwrap_or(0);
            match entry.name.strip_prefix(OBJECTS_PREFIX.as_bytes()) {
                Some(id) if counted => take(id, value, |usage, value| usage.objects_used = Some(value)),
                Some(_) => {}
                None => take(&entry.name, value, |usage, value| usage.used = value),
            }
        }
    }
    for objects in [false, true] {
        let Some(quotas) = quota_zap(os, whose, objects).await? else { continue };
        for entry in quotas.all().await? {
            let value = entry.value.integers.first().copied().unwrap_or(0);
            let set: fn(&mut Usage, u64) = match objects {
                true => |usage, value| usage.objects_quota = value,
                false => |usage, value| usage.quota = value,
            };
            take(&entry.name, value, set);
        }
    }
    Ok(found.into_values().collect())
}

/// Sets (0: removes) the quota of `id`, and waits until that is on stable storage. A mounted file system has to
/// [reload](Zpl::reload_quotas) its quotas then.
///
/// # Errors
/// A data set without totals; no space, damage.
pub async fn set_quota(
    os: &Arc<Objset>,
    whose: Totals,
    objects: bool,
    id: u64,
    value: u64,
    salt_seed: u64,
) -> Result<()> {
    let keeps = os.accounting();
    if !keeps.space || objects && !keeps.objects || whose == Totals::Projects && !keeps.projects {
        return Err(ZioError::Invalid("pool must be upgraded to set this property or value".into()));
    }
    let quotas = quota_zap(os, whose, objects).await?;
    let tx = os.begin_net_free().await?;
    let quotas = match quotas {
        Some(quotas) => quotas,
        None => {
            let new = plain_zap(ObjectType::USERGROUP_QUOTA, &Salts::new(salt_seed));
            let quotas = Zap::create(os, &tx, None, new).await?;
            let master = Zap::open(os, ObjectId(MASTER_NODE_OBJECT)).await?;
            master.put_u64(&tx, master_entry(whose, objects).as_bytes(), quotas.dnode().object().0).await?;
            quotas
        }
    };
    if value == 0 {
        quotas.remove_int(&tx, id).await?;
    } else {
        quotas.put_int(&tx, id, value).await?;
    }
    let (gate, txg) = (os.params().gate.clone(), tx.txg());
    drop(tx);
    gate.wait_synced(txg).await
}

impl Zpl {
    /// Takes over quotas that were changed since the file system was mounted.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn reload_quotas(&self) -> Result<()> {
        let quotas = Quotas::load(&self.os).await?;
        *self.quotas.write() = quotas;
        Ok(())
    }

    /// Whether these (a user, a group, a project; in this order) may take more space, and with `new_object` one more
    /// object (`zfs_id_overquota`).
    ///
    /// # Errors
    /// [`ZioError::Quota`] when one of them may not; damage.
    pub(crate) async fn check_quotas(&self, takers: [Option<u64>; 3], new_object: bool) -> Result<()> {
        if new_object {
            self.os.want_count();
        }
        // What is replayed was within its quota once.
        if self.quotas.read().is_empty() || self.is_replaying() {
            return Ok(());
        }
        for (whose, id) in Totals::ALL.into_iter().zip(takers) {
            let Some(id) = id else { continue };
            for objects in [false, true].into_iter().filter(|objects| new_object || !objects) {
                let Some(quota) = self.quota_of(whose, objects, id).await? else { continue };
                let Some(totals) = self.os.totals(whose) else { continue };
                let prefix = if objects { OBJECTS_PREFIX } else { "" };
                let used = totals.get_u64(format!("{prefix}{id:x}").as_bytes()).await?.unwrap_or(0);
                if used >= quota {
                    return Err(ZioError::Quota);
                }
            }
        }
        Ok(())
    }

    /// The quota of `id`, if it has one.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub(crate) async fn quota_of(&self, whose: Totals, objects: bool, id: u64) -> Result<Option<u64>> {
        let zap = self.quotas.read().zaps[whose as usize][usize::from(objects)].clone();
        match zap {
            Some(zap) => zap.get_int(id).await,
            None => Ok(None),
        }
    }
}
