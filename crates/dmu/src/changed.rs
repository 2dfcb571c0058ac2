//! The lists of what the unsynced groups change in an object set, one for each group.

use std::sync::{Arc, Weak};

use platter_ondisk::Txg;

use crate::core::{Core, Dnode};
use crate::dirty::slot_of;

impl Core {
    /// `dnode` is changed in `txg`, and was not before.
    pub(crate) fn register_dirty(&self, txg: Txg, dnode: Arc<Dnode>) {
        let object = dnode.object();
        // Let go of after the list.
        let meta = self.meta.get().and_then(Weak::upgrade);
        let most = {
            let mut dirty = self.dirty.lock();
            let changed = &mut dirty[slot_of(txg)];
            changed.dnodes.push(dnode);
            meta.as_ref().map_or(0, |meta| self.enter_block(&mut changed.blocks, meta, object))
        };
        self.promise(txg, most);
    }

    pub(crate) fn forget_dirty(&self) {
        let changed = std::mem::take(&mut *self.dirty.lock());
        drop(changed);
    }

    /// The objects changed in `txg`, in the order in which they are synced.
    pub(crate) fn take_dirty(&self, txg: Txg) -> Vec<Arc<Dnode>> {
        let mut dirty = std::mem::take(&mut self.dirty.lock()[slot_of(txg)]).dnodes;
        dirty.sort_unstable_by_key(|dnode| dnode.object());
        dirty
    }

    pub(crate) fn any_dirty(&self, txg: Txg) -> bool {
        !self.dirty.lock()[slot_of(txg)].dnodes.is_empty()
    }
}
