//! What still fits into the pool: the space that is left, and the most that all unfinished groups may take of it
//! (`dsl_dir_tempreserve_space`, `module/zfs/dsl_dir.c`; `spa_get_worst_case_asize`, `module/zfs/spa_misc.c`).
//!
//! Invariants:
//! - what a group was promised is counted until its space is taken off `Room`, not until its blocks are written: in
//!   between it would count nowhere, and the next group would be promised the same space again;
//! - a transaction under way counts with the most that it may make dirty, and what it made dirty counts from then on:
//!   so nothing is dirty that had no room;
//! - whoever only frees may use half of the reserve, and one such change alone three quarters: what a group needs
//!   besides (the MOS, space maps) has the rest.

use platter_ondisk::Txg;

/// Space that may still be allocated, in deflated bytes, freed space that is held back for some groups left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// By writers: the whole reserve is left.
    pub writers: u64,
    /// By what frees more than it writes: half of the reserve is left.
    pub frees: u64,
    /// By one such change at a time: a quarter of the reserve is left.
    pub last: u64,
    /// Bytes that were freed and become available within the next groups.
    pub maturing: u64,
}

impl Room {
    /// Room for everything.
    pub const ENDLESS: Self = Self { writers: u64::MAX, frees: u64::MAX, last: u64::MAX, maturing: 0 };
}

/// Whether a transaction may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fits,
    /// What is promised to others, or held back, stands against it.
    Later,
    /// Nothing that could become free does.
    Never,
}

/// A part of the room that one write may ask for at most: the others have some too.
const SHARE: u64 = 8;

#[derive(Debug)]
pub(crate) struct Promises {
    room: Room,
    /// By `txg & 3`.
    groups: [u64; 4],
    /// Of transactions under way.
    held: u64,
}

fn slot(txg: Txg) -> usize {
    (txg.0 & 3) as usize
}

impl Promises {
    pub(crate) fn new() -> Self {
        Self { room: Room::ENDLESS, groups: [0; 4], held: 0 }
    }

    pub(crate) fn set_room(&mut self, room: Room) {
        assert!(room.writers <= room.frees && room.frees <= room.last, "who frees may use the reserve: {room:?}");
        self.room = room;
    }

    fn pending(&self) -> u64 {
        self.groups.iter().fold(self.held, |sum, group| sum.saturating_add(*group))
    }

    /// Whether a transaction that may need `most` bytes can begin now.
    pub(crate) fn admit(&self, most: u64, net_free: bool) -> Verdict {
        let pending = self.pending();
        let below = if net_free { self.room.frees } else { self.room.writers };
        let fits = pending < below && pending.saturating_add(most) <= self.room.frees;
        let alone = net_free && pending == 0 && self.room.last > 0;
        match () {
            () if fits || alone => Verdict::Fits,
            () if pending > 0 || self.room.maturing > 0 => Verdict::Later,
            () => Verdict::Never,
        }
    }

    /// Most that one transaction should ask for, so that it can begin at all.
    pub(crate) fn share(&self) -> u64 {
        self.room.frees / SHARE
    }

    pub(crate) fn hold(&mut self, most: u64) {
        debug_assert!(self.held.checked_add(most).is_some(), "more is promised than can be counted");
        self.held = self.held.saturating_add(most);
    }

    pub(crate) fn release(&mut self, most: u64) {
        debug_assert!(self.held >= most || std::thread::panicking(), "a transaction gives back what it held, once");
        self.held = self.held.saturating_sub(most);
    }

    /// Group `txg` may need `most` bytes more.
    pub(crate) fn add(&mut self, txg: Txg, most: u64) {
        let group = &mut self.groups[slot(txg)];
        *group = group.saturating_add(most);
    }

    /// Group `txg` is on disk and its space taken off the room, or it is only opened.
    pub(crate) fn clear(&mut self, txg: Txg) {
        self.groups[slot(txg)] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promises(writers: u64, frees: u64, maturing: u64) -> Promises {
        let mut promises = Promises::new();
        promises.set_room(Room { writers, frees, last: frees + 10, maturing });
        promises
    }

    /// Space was taken off a group's account as its blocks were written, while the room was only looked at anew when
    /// the group had ended: meanwhile the next one was promised the same space.
    #[test]
    fn what_is_promised_counts_until_the_room_is_known_anew() {
        let mut promises = promises(100, 150, 0);
        promises.add(Txg(4), 90);
        assert_eq!(promises.admit(20, false), Verdict::Fits);
        promises.add(Txg(5), 20);
        assert_eq!(promises.admit(1, false), Verdict::Later);
        promises.set_room(Room { writers: 10, frees: 60, last: 70, maturing: 0 });
        assert_eq!(promises.admit(1, false), Verdict::Later, "group 4 counts twice, never not at all");
        promises.clear(Txg(4));
        assert_eq!(promises.admit(1, false), Verdict::Later);
        promises.set_room(Room { writers: 0, frees: 40, last: 50, maturing: 0 });
        promises.clear(Txg(5));
        assert_eq!(promises.admit(1, false), Verdict::Never);
        assert_eq!(promises.admit(1, true), Verdict::Fits);
    }

    #[test]
    fn transactions_under_way_count_with_the_most_they_may_need() {
        let mut promises = promises(100, 150, 0);
        promises.hold(100);
        assert_eq!(promises.admit(1, false), Verdict::Later);
        promises.release(100);
        assert_eq!(promises.admit(150, false), Verdict::Fits);
        assert_eq!(promises.admit(151, false), Verdict::Never);
    }

    #[test]
    fn what_frees_goes_on_alone_when_all_else_is_full() {
        let mut promises = promises(0, 0, 0);
        assert_eq!(promises.admit(1000, false), Verdict::Never);
        assert_eq!(promises.admit(1000, true), Verdict::Fits);
        promises.add(Txg(4), 1);
        assert_eq!(promises.admit(1000, true), Verdict::Later);
        promises.set_room(Room { writers: 0, frees: 0, last: 0, maturing: 7 });
        promises.clear(Txg(4));
        assert_eq!(promises.admit(1, true), Verdict::Later);
        assert_eq!(promises.admit(1, false), Verdict::Later);
    }
}
