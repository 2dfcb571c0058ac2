//! What a scan proves about the devices, and so may take off their lists (`vdev_dtl_reassess` in `module/zfs/vdev.c`).
//!
//! A scan reads every block that a device may lack, and rewrites what it lacks. For a device this proves something only
//! when it was there the whole time: one that came while the scan ran, or went away and came back, missed what had been
//! read before.
//!
//! Invariants:
//! - only what was on a device's list when the scan began is ever taken off it, and only of groups that were complete
//!   then;
//! - a device keeps what could not be rewritten on it, what nobody could read, what may lie below a block that nobody
//!   could read, and what a log holds that waits for its data set to be mounted;
//! - lists shrink only after a flush that came after the last repair;
//! - a scan that goes on after an import goes by the lists that were written down with its place. A device that is not
//!   among them, or that misses more than what stands there, is not proven complete by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_hooks::Canary;
use platter_ondisk::{Guid, Txg};
use platter_vdev::{Leaf, MissingRanges, Opening};

/// Ranges that are written down for one device; more of them count as none, so that the place stays small.
const RANGES_MAX: usize = 64;

/// What may be taken off the lists of devices, by their guid.
type Provable = BTreeMap<u64, MissingRanges>;

/// A device that has been there since the scan began.
#[derive(Clone, Debug)]
struct Member {
    opening: Opening,
    /// What its list loses when all goes well.
    provable: MissingRanges,
}

/// The devices that a scan brings up to date.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    members: BTreeMap<u64, Member>,
    /// Groups with blocks that could not be read, or may not have been seen.
    unproven: MissingRanges,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conclusion {
    /// Some device still misses what a further scan can give it.
    pub again: bool,
    /// Devices that refused what was to be written on them, by name.
    pub failed: Vec<String>,
}

impl Roster {
    /// The devices that are there when a scan of everything up to group `through` begins.
    pub fn begin(leaves: &[Arc<Leaf>], through: Txg) -> Self {
        Self::of(leaves, |leaf| {
            leaf.stats().begin_scan();
            let provable = leaf.begin_scan().through(through);
            // The list grows meanwhile, and shrinks only at the end of a scan.
            debug_assert!(is_within(provable.clone(), &leaf.missing()), "a scan would prove what nobody lacks");
            provable
        })
    }

    /// The devices with which a scan goes on, of which `stored` was written down.
    pub fn revive(leaves: &[Arc<Leaf>], stored: &Provable) -> Self {
        Self::of(leaves, |leaf| {
            leaf.begin_scan();
            stored.get(&leaf.guid().0).cloned().unwrap_or_default()
        })
    }

    fn of(leaves: &[Arc<Leaf>], provable: impl Fn(&Arc<Leaf>) -> MissingRanges) -> Self {
        let mut members = BTreeMap::new();
        for leaf in leaves {
            if let Some(opening) = leaf.opening() {
                members.insert(leaf.guid().0, Member { opening, provable: provable(leaf) });
            }
        }
        Self { members, unproven: MissingRanges::new() }
    }

    /// Whether this scan is making up for everything that `leaf` misses.
    pub fn covers(&self, leaf: &Leaf) -> bool {
        let member = self.members.get(&leaf.guid().0).filter(|member| Some(member.opening) == leaf.opening());
        member.is_some_and(|member| is_within(leaf.missing(), &member.provable))
    }

    /// What these devices lack that the scan gives them.
    pub fn lacking(&self, guids: &[Guid]) -> MissingRanges {
        let mut lacking = MissingRanges::new();
        for member in guids.iter().filter_map(|guid| self.members.get(&guid.0)) {
            member.provable.iter().for_each(|(first, last)| lacking.note_range(first, last));
        }
        lacking
    }

    /// The first group that any device lacks; none when nobody lacks anything.
    pub fn first(&self) -> Option<Txg> {
        self.members.values().filter_map(|member| member.provable.first()).min()
    }

    /// A block of group `birth` could not be read.
    pub fn note_lost(&mut self, birth: Txg) {
        self.unproven.note(birth);
    }

    /// A block of group `birth` that leads to others could not be read: those are as old as it is, or older.
    pub fn note_hidden(&mut self, birth: Txg) {
        self.unproven.note_range(Txg(0), birth);
    }

    /// What a later run of this scan, which begins at its place, may build on.
    pub fn provable(&self, leaves: &[Arc<Leaf>]) -> Provable {
        let here = leaves.iter().filter_map(|leaf| {
            let member = self.members.get(&leaf.guid().0)?;
            let mut provable = member.provable.clone();
            provable.subtract(&self.unproven);
            provable.subtract(&leaf.noted());
            let holds = leaf.opening() == Some(member.opening) && !provable.is_empty();
            holds.then_some((leaf.guid().0, provable))
        });
        here.collect()
    }

    /// The scan, which covered everything up to group `through`, is at its end, and its repairs are stable.
    pub fn conclude(&self, leaves: &[Arc<Leaf>], through: Txg) -> Conclusion {
        let mut conclusion = Conclusion::default();
        for leaf in leaves.iter().filter(|leaf| leaf.is_usable()) {
            let member = self.members.get(&leaf.guid().0).filter(|member| Some(member.opening) == leaf.opening());
            let Some(member) = member else {
                if Canary::LatecomerForgotten.sings() {
                    // With its notes: those of the time when it was away would keep the list as it is.
                    leaf.forget(&leaf.begin_scan().through(through));
                }
                conclusion.again |= !leaf.missing().is_empty();
                continue;
            };
            let mut proven = member.provable.clone();
            proven.subtract(&self.unproven);
            let rest = leaf.forget(&proven);
            if !rest.noted.through(through).is_empty() {
                conclusion.failed.push(leaf.name());
                continue;
            }
            conclusion.again |= !is_within(rest.missing, &self.unproven);
        }
        conclusion
    }
}

fn is_within(mut ranges: MissingRanges, whole: &MissingRanges) -> bool {
    ranges.subtract(whole);
    ranges.is_empty()
}

/// Whether `stored` has everything that devices which are there miss: then a scan may go on where it was.
pub fn is_enough(leaves: &[Arc<Leaf>], stored: &Provable) -> bool {
    let none = MissingRanges::new();
    let mut here = leaves.iter().filter(|leaf| leaf.is_usable());
    here.all(|leaf| is_within(leaf.missing(), stored.get(&leaf.guid().0).unwrap_or(&none)))
}

/// As it is written down behind the place of a scan: the number of devices; for each its guid and the number of its
/// ranges; for each of these the first and the last group.
pub fn encode(provable: &Provable) -> Vec<u64> {
    let short = || provable.iter().filter(|(_, ranges)| ranges.iter().count() <= RANGES_MAX);
    let mut words = vec![short().count() as u64];
    for (guid, ranges) in short() {
        words.extend([*guid, ranges.iter().count() as u64]);
        words.extend(ranges.iter().flat_map(|(first, last)| [first.0, last.0]));
    }
    words
}

/// Reads what [`encode`] wrote; anything else says nothing about any device.
pub fn decode(words: &[u64]) -> Provable {
    try_decode(words).unwrap_or_default()
}

fn try_decode(words: &[u64]) -> Option<Provable> {
    let mut words = words.iter().copied();
    let mut provable = Provable::new();
    for _ in 0..words.next()? {
        let (guid, count) = (words.next()?, words.next()?);
        let mut ranges = MissingRanges::new();
        for _ in 0..count {
            let (first, last) = (words.next()?, words.next()?);
            ranges.note_range(Txg(first), Txg(last));
        }
        provable.insert(guid, ranges);
    }
    words.next().is_none().then_some(provable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_is_read_back_and_nothing_else_is_believed() {
        let mut ranges = MissingRanges::new();
        ranges.note_range(Txg(4), Txg(9));
        ranges.note(Txg(12));
        let provable = Provable::from([(7, ranges.clone()), (u64::MAX, MissingRanges::new())]);
        let words = encode(&provable);
        assert_eq!(decode(&words), provable);
        for cut in 0..words.len() {
            assert_eq!(decode(&words[..cut]), Provable::new(), "cut after {cut} words");
        }
        assert_eq!(decode(&[words.clone(), vec![0]].concat()), Provable::new());
        assert_eq!(decode(&[u64::MAX, 1, u64::MAX, 5, 6]), Provable::new());
        // Too many to be worth it: as if the device had not been there.
        (0..100).for_each(|group| ranges.note(Txg(20 + 2 * group)));
        assert_eq!(decode(&encode(&Provable::from([(7, ranges)]))), Provable::new());
    }
}
