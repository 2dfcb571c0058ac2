//! What the uberblock rings of a pool's devices show, to notice that another host writes there.
//!
//! Nothing is written here; two looks are the same only when no byte of any ring changed that both could read.

use std::collections::BTreeMap;

use futures::future::join_all;
use platter_checksum::sha256;
use platter_ondisk::label::{
    VDEV_LABELS, label_offset, uberblock_offset, uberblock_slot_size, uberblock_slots, usable_size,
};
use platter_ondisk::uberblock::Uberblock;

use crate::labels::LabelTarget;

/// A label's ring.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ring {
    /// Hash of all slots but the last.
    rest: [u64; 4],
    /// The slot of the heartbeat.
    last: Vec<u8>,
}

/// One look at the rings.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By leaf guid and label.
    rings: BTreeMap<(u64, usize), Ring>,
    /// The newest uberblock in any of them.
    pub best: Option<Uberblock>,
}

impl Seen {
    /// Whether a later look shows the same, as far as both could read.
    pub fn is_still(&self, later: &Self) -> bool {
        self.rings.iter().all(|(place, ring)| later.rings.get(place).is_none_or(|now| now == ring))
    }

    /// What the heartbeat's slot of one ring (leaf guid and label) holds from now on; `None` when that is not known.
    pub fn expect_last(&mut self, place: (u64, usize), slot: Option<Vec<u8>>) {
        match (slot, self.rings.get_mut(&place)) {
            (Some(slot), Some(ring)) => ring.last = slot,
            (None, _) => drop(self.rings.remove(&place)),
            (Some(_), None) => {}
        }
    }
}

/// Reads the rings. What cannot be read is left out.
pub async fn look(targets: &[LabelTarget]) -> Seen {
    let looks = targets.iter().map(|target| async move {
        let (size, ashift) = (usable_size(target.device.size()), target.ashift);
        let slot = uberblock_slot_size(ashift) as usize;
        let mut rings = Vec::new();
        for label in 0..VDEV_LABELS {
            let start = label_offset(size, label) + uberblock_offset(ashift, 0);
            let Ok(bytes) = target.device.read(start, slot * uberblock_slots(ashift) as usize).await else { continue };
            let slots = bytes.chunks_exact(slot).enumerate();
            let valid =
                slots.filter_map(|(at, bytes)| Uberblock::read_slot(bytes, start + (at * slot) as u64, sha256).ok());
            let best = valid.max_by(|a, b| a.compare(b));
            let (rest, last) = bytes.split_at(bytes.len() - slot);
            rings.push(((target.guid.0, label), Ring { rest: sha256(rest), last: last.to_vec() }, best));
        }
        rings
    });
    let mut seen = Seen::default();
    for (place, ring, best) in join_all(looks).await.into_iter().flatten() {
        seen.rings.insert(place, ring);
        if let Some(best) = best.filter(|best| seen.best.as_ref().is_none_or(|seen| best.compare(seen).is_gt())) {
            seen.best = Some(best);
        }
    }
    seen
}
