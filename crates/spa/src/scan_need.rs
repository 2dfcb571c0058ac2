//! What a scan has to look at: a scrub at everything, or at what is new, a resilver at what some device lacks
//! (`dsl_scan_need_resilver` in `module/zfs/dsl_scan.c`).
//!
//! A block lies on the devices of its vdevs, and a device lacks it when the group in which the block was written is on
//! the device's list. A block that leads to others is at least as new as they are. So of a tree whose root is older
//! than everything that anybody lacks nothing needs to be read: what was missed is found in time that goes with what
//! was missed, and not with what the pool holds.

use std::collections::BTreeMap;

use platter_hooks::Canary;
use platter_ondisk::dsl::scan_func;
use platter_ondisk::{BlkPtr, Guid, Txg};
use platter_vdev::MissingRanges;

use crate::core::Core;

/// What a scan has to look at.
#[derive(Clone, Debug)]
pub enum Need {
    /// Everything.
    All,
    /// What is newer than this.
    After(Txg),
    /// What was written in some groups.
    Missed {
        /// The first of them; none when there are none.
        first: Option<Txg>,
        /// They, by the number of the top-level vdev whose devices lack them.
        by_vdev: BTreeMap<u64, MissingRanges>,
    },
}

impl Need {
    /// Of the scan under way.
    pub fn of(core: &Core) -> Self {
        let mut by_vdev = BTreeMap::new();
        {
            let mut scan = core.scan.lock();
            match (scan.phys.func, scan.phys.min_txg) {
                (scan_func::RESILVER, _) => {}
                (_, Txg(0)) => return Self::All,
                (_, after) => return Self::After(after),
            }
            let roster = scan.roster();
            for top in core.dsl.store.state().vdevs.iter().flatten() {
                let guids: Vec<Guid> = top.leaves().iter().map(|leaf| leaf.guid()).collect();
                by_vdev.insert(top.id(), roster.lacking(&guids));
            }
        }
        let first = by_vdev.values().filter_map(MissingRanges::first).min();
        let first = first.map(|first| if Canary::ResilverTooShallow.sings() { first.plus(2) } else { first });
        Self::Missed { first, by_vdev }
    }

    /// Whether `bp`, or what it leads to, may have to be looked at.
    pub fn reaches(&self, bp: &BlkPtr) -> bool {
        match self {
            Self::All => true,
            Self::After(after) => bp.birth().max(bp.physical_birth()) > *after,
            Self::Missed { first, .. } => first.is_some_and(|first| bp.birth().max(bp.physical_birth()) >= first),
        }
    }

    /// Whether the block itself has to be looked at. Of one in pieces nobody knows where they are.
    pub fn wants(&self, bp: &BlkPtr) -> bool {
        match self {
            Self::All => true,
            Self::After(after) => bp.birth().max(bp.physical_birth()) > *after,
            Self::Missed { by_vdev, .. } => {
                let birth = bp.physical_birth();
                let lacks = |vdev: u32| by_vdev.get(&u64::from(vdev)).is_some_and(|lacking| lacking.contains(birth));
                bp.is_gang() || bp.dvas().any(|dva| lacks(dva.vdev))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use platter_ondisk::Dva;

    use super::*;

    fn block(birth: u64, vdevs: &[u32]) -> BlkPtr {
        let mut bp = BlkPtr::default();
        bp.set_birth(Txg(birth));
        for (index, vdev) in vdevs.iter().enumerate() {
            bp.set_dva(index, Dva { vdev: *vdev, offset: 4096, asize: 512, ..Dva::default() });
        }
        bp
    }

    #[test]
    fn only_what_a_device_lacks_is_looked_at_and_what_leads_there() {
        let mut lacking = MissingRanges::new();
        lacking.note_range(Txg(10), Txg(12));
        lacking.note(Txg(20));
        let need = Need::Missed { first: lacking.first(), by_vdev: [(1, lacking)].into() };
        assert!(!need.reaches(&block(9, &[1])) && need.reaches(&block(10, &[0])) && need.reaches(&block(99, &[0])));
        assert!(need.wants(&block(12, &[1])) && need.wants(&block(20, &[0, 1])), "a copy is there");
        assert!(!need.wants(&block(13, &[1])) && !need.wants(&block(20, &[0])), "nobody lacks it");
        assert!(Need::All.wants(&block(1, &[0])) && Need::All.reaches(&block(1, &[0])));
        let nobody = Need::Missed { first: None, by_vdev: BTreeMap::new() };
        assert!(!nobody.reaches(&block(20, &[1])) && !nobody.wants(&block(20, &[1])));
    }
}
