//! Notices that blocks near each other are missing, and says which to fetch with them: files that were made together
//! are looked up together, in whatever order, and their dnodes and names lie side by side.
//!
//! One missing block says nothing: in a large file system the next one is far away. A second one in the same group
//! does, while the first is remembered.

/// Blocks of a group, together 512 KiB of the usual 16 KiB.
const GROUP: u64 = 32;
/// Groups remembered with one missing block.
const REMEMBERED: usize = 32;

/// Where blocks of an object were missing lately.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// Groups with one block that was missing; the oldest is overwritten first.
    groups: [Option<u64>; REMEMBERED],
    next: usize,
}

impl Neighbours {
    /// Block `blkid` was missing; the blocks to be fetched with it, if any.
    pub fn missed(&mut self, blkid: u64) -> Option<std::ops::Range<u64>> {
        let group = blkid / GROUP;
        if let Some(known) = self.groups.iter_mut().find(|known| **known == Some(group)) {
            // What is fetched is not missing; if it does not stay, the same begins anew.
            *known = None;
            return Some(group * GROUP..group.saturating_add(1).saturating_mul(GROUP));
        }
        self.groups[self.next] = Some(group);
        self.next = (self.next + 1) % REMEMBERED;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_miss_nearby_fetches_the_group_once() {
        let mut neighbours = Neighbours::default();
        assert_eq!(neighbours.missed(70), None);
        assert_eq!(neighbours.missed(5), None);
        assert_eq!(neighbours.missed(95), Some(64..96));
        assert_eq!(neighbours.missed(64), None);
        assert_eq!(neighbours.missed(u64::MAX), None);
        assert!(neighbours.missed(u64::MAX).is_some_and(|range| range.contains(&(u64::MAX - 1))));
    }

    #[test]
    fn blocks_far_from_each_other_fetch_nothing() {
        let mut neighbours = Neighbours::default();
        assert!((0..10_000).all(|at| neighbours.missed(at * 1000).is_none()));
    }
}
