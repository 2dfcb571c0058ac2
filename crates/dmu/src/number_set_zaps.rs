//! Sets of numbers, kept in ZAPs under their hexadecimal names (`zap_add_int`, `zap_remove_int`), which only the sync
//! changes: a number that joins and leaves within one group never gets there. Most files that are removed pass through
//! the unlinked set like that.
//!
//! No transaction writes to such a ZAP once its object set is in use, so that the sync of a group finds it as the group
//! before left it. (Nothing here can tell: a damaged object set may name any object as a set.)

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_ondisk::{ObjectId, Txg};
use platter_zio::{Result, Tx, ZioError};

use crate::dirty::TXG_SLOTS;
use crate::objset::Objset;
use crate::zap::Zap;

impl Objset {
    /// Puts `number` into the set `set`, in `tx`'s group.
    pub fn join_set(&self, tx: &Tx, set: ObjectId, number: u64) {
        self.sets.note(tx.txg(), set, number, true);
    }

    /// Takes `number` out of the set `set`, in `tx`'s group.
    pub fn leave_set(&self, tx: &Tx, set: ObjectId, number: u64) {
        self.sets.note(tx.txg(), set, number, false);
    }

    /// What is in the set `set`, once the groups that change one are synced. Entries of another shape, which only
    /// damage makes, are left out.
    ///
    /// # Errors
    /// The pool stopped; damage, unreadable blocks.
    pub async fn set_members(self: &Arc<Self>, set: ObjectId) -> Result<BTreeSet<u64>> {
        if (0..TXG_SLOTS as u64).any(|slot| self.sets.is_changed(Txg(slot))) {
            let gate = &self.params().gate;
            gate.wait_synced(gate.open_txg()).await?;
        }
        let entries = Zap::open(self, set).await?.all().await?;
        Ok(entries.iter().filter_map(|entry| entry.value.integers.first().copied()).collect())
    }
}

/// Writes what `txg` changed into the ZAPs, as part of that group.
///
/// Of a set that is damaged the rest is changed, and that is said: it holds back no group. What should have joined it
/// takes up space from then on, what should have left is found to be gone by whoever reads the set.
pub(crate) async fn apply(objset: &Arc<Objset>, txg: Txg) -> Result<()> {
    let tx = Tx::syncing(txg);
    for (set, changes) in objset.sets.take(txg) {
        let all = changes.len();
        let mut failed = 0;
        let mut last = None;
        let zap = Zap::open(objset, set).await;
        for (number, joins) in changes {
            let changed = match &zap {
                Ok(zap) if joins => zap.add_int(&tx, number).await,
                Ok(zap) => zap.remove_int(&tx, number).await.map(drop),
                Err(error) => Err(error.clone()),
            };
            match changed {
                Err(error @ (ZioError::Suspended(..) | ZioError::ReadOnly | ZioError::NoSpace)) => return Err(error),
                Err(error) => (failed, last) = (failed + 1, Some(error)),
                Ok(()) => {}
            }
        }
        if let Some(error) = last {
            tracing::error!(%set, %error, "{failed} of {all} changes of a set of objects cannot be made");
        }
    }
    Ok(())
}
