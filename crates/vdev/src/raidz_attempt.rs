//! One block of a RAID-Z group being read: which columns have come, from which leaf, what can be made of them, and what
//! is to be set right.

use futures::future::join_all;
use platter_buffer::{Buf, BufMut};
use platter_device::{Assembly, ReadSlot};
use platter_hooks::CpuWork;

use crate::child::Answer;
use crate::error::VdevError;
use crate::extent::{Extent, Verify};
use crate::leaf::Leaf;
use crate::outcome::Rewritten;
use crate::priority::Priority;
use crate::queue::finish;
use crate::raidz_map::RaidzMap;
use crate::state::VdevState;
use crate::view::View;

/// Among how many columns whose leaves differ it is tried out which leaf is right: each doubles the work.
const DIFFERING_MAX: usize = 4;

/// What is known of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// Not asked for yet. `stale`: its child missed the block's group.
    Unread { stale: bool },
    /// Bytes are there, right or wrong.
    Read { stale: bool },
    /// The child failed to deliver it.
    Failed,
    /// The child cannot be used.
    Absent,
}

/// A block being read.
pub(crate) struct Attempt<'a> {
    view: View<'a>,
    pub(crate) extent: Extent,
    priority: Priority,
    verify: Verify<'a>,
    map: RaidzMap,
    columns: Vec<Column>,
    /// The leaf that each column which was read is from, by index in its child.
    sources: Vec<usize>,
    /// What further leaves hold.
    others: Vec<Other>,
    /// Leaves that failed to deliver: the column, and the index in its child.
    failed: Vec<(usize, usize)>,
    /// The data columns one after the other: the block, padded to sectors.
    pub(crate) block: BufMut,
    parity: Vec<Option<BufMut>>,
    /// What failed transfers said.
    pub(crate) failures: Vec<String>,
    pub(crate) examined_bytes: u64,
    /// Columns computed from others, whether they passed or not, that nobody has been charged for.
    uncharged: usize,
}

/// What a leaf holds besides the one that a column was read from.
struct Other {
    column: usize,
    /// Its index in the child.
    leaf: usize,
    /// Whether it missed the block's group.
    stale: bool,
    bytes: BufMut,
}

/// How a block is set right.
#[derive(Clone, Copy)]
struct SettingRight {
    /// Whether what was read of data and parity agreed.
    sound: bool,
    /// Whether a scrub does it, which asks everybody but those that are known to have missed the block.
    by_scrub: bool,
}

/// What came of setting right a block that passed.
pub(crate) struct Repairs {
    pub(crate) rewritten: Rewritten,
    pub(crate) bad_children: Vec<usize>,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(view: View<'a>, parity: usize, extent: Extent, priority: Priority, verify: Verify<'a>) -> Self {
        let map = RaidzMap::new(
            extent.offset,
            view.frame.padded(extent.psize),
            view.frame.ashift,
            view.children().len(),
            parity,
        );
        let columns = map.columns.iter().map(|column| {
            let child = &view.children()[column.child];
            let stale = child.is_stale(extent);
            if child.is_usable() { Column::Unread { stale } } else { Column::Absent }
        });
        Self {
            columns: columns.collect(),
            sources: vec![0; map.columns.len()],
            others: Vec::new(),
            failed: Vec::new(),
            block: BufMut::zeroed(0),
            parity: (0..parity).map(|_| None).collect(),
            failures: Vec::new(),
            examined_bytes: 0,
            uncharged: 0,
            view,
            extent,
            priority,
            verify,
            map,
        }
    }

    pub(crate) fn nparity(&self) -> usize {
        self.map.parity
    }

    pub(crate) fn is_read(&self, column: usize) -> bool {
        matches!(self.columns[column], Column::Read { .. })
    }

    /// Whether what was read of some column may be from before the block's time.
    pub(crate) fn has_read_stale(&self) -> bool {
        self.columns.contains(&STALE)
    }

    /// Data columns without bytes.
    pub(crate) fn absent_data(&self) -> Vec<usize> {
        (self.nparity()..self.columns.len()).filter(|&column| !self.is_read(column)).collect()
    }

    /// Reads columns, all at once. Data columns can be read before the block exists or, into it, afterwards.
    pub(crate) async fn fetch(&mut self, wanted: &[usize]) {
        if wanted.is_empty() {
            return;
        }
        let sizes: Vec<usize> = wanted.iter().map(|&column| self.map.columns[column].size).collect();
        // The first fetch reads straight into the block; later ones into a buffer of their own.
        let first = self.block.is_empty();
        let (block, mut data_slots) = if first {
            let sizes: Vec<usize> = self.map.data().iter().map(|column| column.size).collect();
            let (block, slots) = Assembly::carve(&sizes);
            (Some(block), slots.into_iter().map(Some).collect::<Vec<_>>())
        } else {
            (None, Vec::new())
        };
        let mut buffers = Vec::with_capacity(wanted.len());
        let mut reads = Vec::with_capacity(wanted.len());
        for (&column, &size) in wanted.iter().zip(&sizes) {
            let slot = match column.checked_sub(self.nparity()) {
                Some(data) if first => {
                    buffers.push(None);
                    data_slots[data].take().expect("a column is asked for once")
                }
                _ => {
                    let (assembly, slot) = ReadSlot::whole(size);
                    buffers.push(Some(assembly));
                    slot
                }
            };
            let place = self.map.columns[column];
            reads.push(self.view.children()[place.child].read_data(place.offset, slot, self.priority, self.extent));
        }
        let results = join_all(reads).await;
        drop(data_slots);
        if let Some(block) = block {
            self.block = finish(block);
        }
        for (((&column, size), buffer), read) in wanted.iter().zip(sizes).zip(buffers).zip(results) {
            for (leaf, error) in read.failed {
                self.failed.push((column, leaf));
                self.failures.push(error.to_string());
            }
            let Some(Answer { leaf, stale, bytes }) = read.answer else {
                self.columns[column] = Column::Failed;
                continue;
            };
            self.columns[column] = Column::Read { stale };
            self.sources[column] = leaf;
            self.examined_bytes += size as u64;
            match bytes.or_else(|| buffer.map(finish)) {
                Some(bytes) if column < self.nparity() => self.parity[column] = Some(bytes),
                Some(bytes) => {
                    let start = self.map.data_start(column);
                    self.block[start..start + size].copy_from_slice(&bytes);
                }
                None => {}
            }
        }
    }

    /// Whether a leaf was asked for its column, by index in its child.
    fn is_asked(&self, column: usize, leaf: usize) -> bool {
        let is_source = self.is_read(column) && leaf == self.sources[column];
        let is_other = || self.others.iter().any(|other| (other.column, other.leaf) == (column, leaf));
        is_source || self.failed.contains(&(column, leaf)) || is_other()
    }

    /// The usable leaves that were not asked: the column, the index in its child, and whether it missed the block.
    fn unasked(&self) -> impl Iterator<Item = (usize, usize, &'a Leaf, bool)> {
        let columns = self.map.columns.iter().enumerate();
        let leaves = columns.flat_map(move |(column, place)| {
            let leaves = self.view.children()[place.child].leaves().iter().enumerate();
            leaves.map(move |(index, leaf)| (column, index, &**leaf, leaf.is_stale_for(self.extent)))
        });
        leaves.filter(move |(column, index, leaf, _)| leaf.is_usable() && !self.is_asked(*column, *index))
    }

    /// Whether there is a leaf that could be asked.
    pub(crate) fn has_unasked(&self) -> bool {
        self.unasked().next().is_some()
    }

    /// Reads from further leaves what they hold of columns that were asked for, where `accept` takes one that missed
    /// the block or did not. Returns whether there are some.
    pub(crate) async fn fetch_others(&mut self, accept: impl Fn(bool) -> bool) -> bool {
        let is_there = |column: usize| matches!(self.columns[column], Column::Read { .. } | Column::Failed);
        let wanted = self.unasked().filter(|(column, _, _, stale)| is_there(*column) && accept(*stale));
        let asked = wanted.map(|(column, index, leaf, stale)| {
            let place = self.map.columns[column];
            let (assembly, slot) = ReadSlot::whole(place.size);
            let (offset, priority) = (place.offset, self.priority);
            async move { (column, index, stale, leaf.read_data(offset, slot, priority).await.map(|()| assembly)) }
        });
        let asked: Vec<_> = asked.collect();
        for (column, leaf, stale, read) in join_all(asked).await {
            match read {
                Ok(assembly) => {
                    let bytes = finish(assembly);
                    self.examined_bytes += bytes.len() as u64;
                    self.others.push(Other { column, leaf, stale, bytes });
                }
                Err(error) => {
                    self.failed.push((column, leaf));
                    self.failures.push(error.to_string());
                }
            }
        }
        !self.others.is_empty()
    }

    /// The bytes of a column as they are now.
    fn bytes(&self, column: usize) -> &[u8] {
        match self.parity.get(column) {
            Some(parity) => parity.as_deref().unwrap_or(&[]),
            None => {
                let start = self.map.data_start(column);
                &self.block[start..start + self.map.columns[column].size]
            }
        }
    }

    /// Whether all leaves that were asked delivered, and all of a child the same.
    pub(crate) fn agree(&self) -> bool {
        self.failed.is_empty() && self.others.iter().all(|other| other.bytes[..] == *self.bytes(other.column))
    }

    /// Columns that no leaf delivered.
    pub(crate) fn failed_columns(&self) -> usize {
        self.columns.iter().filter(|&&column| column == Column::Failed).count()
    }

    pub(crate) fn unread(&self, accept: impl Fn(usize, bool) -> bool) -> Vec<usize> {
        let pick = |(column, state): (usize, &Column)| match state {
            Column::Unread { stale } if accept(column, *stale) => Some(column),
            _ => None,
        };
        self.columns.iter().enumerate().filter_map(pick).collect()
    }

    /// The columns that this read does without because their children sit out: none while anything is missing of the
    /// vdev, or when they are more than parity makes up for. A scrub reads all of them.
    fn sitting_out(&self) -> Vec<usize> {
        let children = self.view.children();
        let sits = |column: &usize| children[self.map.columns[*column].child].sits_out();
        let sitting: Vec<usize> = (0..self.columns.len()).filter(sits).collect();
        let is_whole = || {
            children.iter().all(|child| child.condition().state == VdevState::Healthy)
                && self.columns.iter().all(|column| *column == Column::Unread { stale: false })
        };
        let is_possible =
            !sitting.is_empty() && self.priority != Priority::Scrub && sitting.len() <= self.nparity() && is_whole();
        if is_possible { sitting } else { Vec::new() }
    }

    /// Reads the data columns, and as much parity as is needed for those that cannot be had or sit out.
    pub(crate) async fn fetch_least(&mut self) {
        let nparity = self.nparity();
        let sitting = self.sitting_out();
        let sits = |column: usize| sitting.contains(&column);
        let mut wanted = self.unread(|column, stale| column >= nparity && !stale && !sits(column));
        let mut absent = self.columns.len() - nparity - wanted.len();
        loop {
            let parity = self.unread(|column, stale| column < nparity && !stale && !sits(column));
            wanted.extend(parity.into_iter().take(absent));
            if wanted.is_empty() {
                return;
            }
            self.fetch(&wanted).await;
            wanted.clear();
            let parity_read = (0..nparity).filter(|&column| self.is_read(column)).count();
            absent = self.absent_data().len().saturating_sub(parity_read);
        }
    }

    /// Recomputes data columns from the rest, trusting no column in `bad` (sorted). Returns whether there was enough.
    pub(crate) fn rebuild(&mut self, bad: &[usize]) -> bool {
        let nparity = self.nparity();
        let missing: Vec<usize> = bad.iter().filter_map(|&column| column.checked_sub(nparity)).collect();
        if missing.is_empty() {
            return true;
        }
        self.uncharged += missing.len();
        let parity: Vec<Option<&[u8]>> = self
            .parity
            .iter()
            .enumerate()
            .map(|(column, bytes)| bytes.as_deref().filter(|_| !bad.contains(&column)))
            .collect();
        let mut data = split(&mut self.block, &self.map);
        platter_parity::reconstruct(&mut data, &parity, &missing).is_ok()
    }

    pub(crate) async fn charge(&mut self) {
        let columns = std::mem::take(&mut self.uncharged);
        if columns > 0 {
            self.view.frame.cpu().charge(CpuWork::Rebuild(columns), self.block.len()).await;
        }
    }

    pub(crate) fn passes(&self) -> bool {
        self.verify.is_right(&self.block[..self.extent.psize as usize])
    }

    /// Finds a block that passes among what was read, as [`Self::search`] and [`Self::search_others`] do.
    pub(crate) fn find(&mut self, original: &mut Vec<u8>) -> bool {
        !self.block.is_empty() && (self.search(original) || self.search_others(original))
    }

    /// Finds out which columns are wrong by trying. Everything that can be read has been. On success the block passes
    /// and `original` holds what the data columns held before.
    pub(crate) fn search(&mut self, original: &[u8]) -> bool {
        let absent: Vec<usize> = (0..self.columns.len()).filter(|&column| !self.is_read(column)).collect();
        let Some(spare) = self.nparity().checked_sub(absent.len()) else { return false };
        let mut suspects: Vec<usize> = (0..self.columns.len()).filter(|&column| self.is_read(column)).collect();
        suspects.sort_by_cached_key(|&column| {
            let stale = self.columns[column] == Column::Read { stale: true };
            let errors = self.source(column).stats().snapshot().checksum_errors;
            (!stale, std::cmp::Reverse(errors))
        });
        for count in 0..=spare {
            let found = for_combinations(suspects.len(), count, &mut |chosen| {
                let mut bad: Vec<usize> =
                    absent.iter().copied().chain(chosen.iter().map(|&index| suspects[index])).collect();
                bad.sort_unstable();
                if bad.iter().all(|&column| column < self.nparity()) && count > 0 {
                    // Only parity is suspected: the data stays what it is.
                    return false;
                }
                if self.rebuild(&bad) && self.passes() {
                    return true;
                }
                self.restore(original, &bad);
                false
            });
            if found {
                return true;
            }
        }
        false
    }

    /// The leaf that a column was read from.
    fn source(&self, column: usize) -> &'a Leaf {
        &self.view.children()[self.map.columns[column].child].leaves()[self.sources[column]]
    }

    /// As [`Self::search`], after that has failed, with what the [others](Self::fetch_others) hold.
    pub(crate) fn search_others(&mut self, original: &mut Vec<u8>) -> bool {
        let differs = |other: &&Other| self.is_read(other.column) && other.bytes[..] != *self.bytes(other.column);
        let mut differing: Vec<usize> = self.others.iter().filter(differs).map(|other| other.column).collect();
        differing.dedup();
        differing.truncate(DIFFERING_MAX);
        !differing.is_empty() && self.search_leaves(&differing, original)
    }

    /// Searches with each choice of leaves for these columns.
    fn search_leaves(&mut self, differing: &[usize], original: &mut Vec<u8>) -> bool {
        let Some((&column, rest)) = differing.split_first() else { return self.search(original) };
        if self.search_leaves(rest, original) {
            return true;
        }
        for index in (0..self.others.len()).filter(|&index| self.others[index].column == column).collect::<Vec<_>>() {
            self.swap(index, original);
            if self.search_leaves(rest, original) {
                return true;
            }
            self.swap(index, original);
        }
        false
    }

    /// Exchanges what a column was read as for what another leaf holds.
    fn swap(&mut self, index: usize, original: &mut [u8]) {
        let other = &mut self.others[index];
        let Column::Read { stale } = &mut self.columns[other.column] else { return };
        std::mem::swap(stale, &mut other.stale);
        std::mem::swap(&mut self.sources[other.column], &mut other.leaf);
        match self.parity.get_mut(other.column) {
            Some(parity) => {
                if let Some(parity) = parity {
                    std::mem::swap(parity, &mut other.bytes);
                }
            }
            None => {
                let start = self.map.data_start(other.column);
                let range = start..start + other.bytes.len();
                original[range.clone()].swap_with_slice(&mut other.bytes);
                self.block[range.clone()].copy_from_slice(&original[range]);
            }
        }
    }

    /// Of a block without checksum: computes every column that is not there, or may be from before the block's time,
    /// from the others. Returns whether these were enough.
    pub(crate) fn rebuild_unchecked(&mut self) -> bool {
        let fresh = Column::Read { stale: false };
        let bad: Vec<usize> = (0..self.columns.len()).filter(|&column| self.columns[column] != fresh).collect();
        bad.len() <= self.nparity() && !self.block.is_empty() && self.rebuild(&bad)
    }

    /// Puts back what an attempt to rebuild the columns `bad` has changed.
    fn restore(&mut self, original: &[u8], bad: &[usize]) {
        for &column in bad.iter().filter(|&&column| column >= self.map.parity) {
            let start = self.map.data_start(column);
            let range = start..start + self.map.columns[column].size;
            self.block[range.clone()].copy_from_slice(&original[range]);
        }
    }

    /// Whether every column was read, and none is wrong.
    pub(crate) async fn is_sound(&self) -> bool {
        if !(0..self.columns.len()).all(|column| self.is_read(column)) || !self.passes() {
            return false;
        }
        let right = self.right_parity().await;
        self.parity.iter().zip(&right).all(|(read, right)| read.as_deref() == Some(&right[..]))
    }

    /// The parity columns of the block as it is.
    async fn right_parity(&self) -> Vec<BufMut> {
        let longest = self.map.columns[0].size;
        let mut parity: Vec<BufMut> = (0..self.nparity()).map(|_| BufMut::unfilled(longest)).collect();
        generate(&self.block, &self.map, &mut parity);
        self.view.frame.cpu().charge(CpuWork::Parity(self.nparity()), self.block.len()).await;
        parity
    }

    /// The leaves of a column that need `right` written to them, and counts those that should have had it. `is_wrong`
    /// says so of what the column was read as; whether the block is `sound`, parity included, matters without checksum:
    /// else nothing tells which of two leaves that should have it is right.
    fn wrong_leaves(&self, column: usize, is_wrong: bool, right: &[u8], how: SettingRight) -> Vec<&'a Leaf> {
        let mut wrong = Vec::new();
        for (index, leaf) in self.view.children()[self.map.columns[column].child].leaves().iter().enumerate() {
            let other = self.others.iter().find(|other| (other.column, other.leaf) == (column, index));
            let (needs_it, should_have_it) = match (self.columns[column], other) {
                _ if self.failed.contains(&(column, index)) => (true, false),
                (Column::Read { stale }, _) if index == self.sources[column] => (is_wrong, !stale),
                (_, Some(other)) => {
                    let provable = self.extent.checked || other.stale || how.sound;
                    (provable && other.bytes[..] != *right, !other.stale)
                }
                // Nobody asked it: a scrub because it is known to lack it; and what its sibling lacks it may lack too.
                (_, None) => {
                    let lacks = is_wrong || how.by_scrub && leaf.is_stale_for(self.extent);
                    (lacks && leaf.is_usable(), false)
                }
            };
            if needs_it {
                wrong.push(&**leaf);
                if should_have_it && self.blames() {
                    leaf.note_wrong(self.extent, self.priority);
                }
            }
        }
        wrong
    }

    /// Whether a device is to blame for wrong bytes.
    fn blames(&self) -> bool {
        !self.extent.speculative && self.verify.is_in_use()
    }

    /// The block has passed; `original` is what the data columns held as read, and `sound` says whether they and parity
    /// agreed. Counts what was wrong and rewrites it.
    pub(crate) async fn set_right(&mut self, original: &[u8], sound: bool, by_scrub: bool) -> (Buf, Repairs) {
        let nparity = self.nparity();
        debug_assert!(!self.extent.checked || self.passes(), "only bytes that passed are written");
        assert_eq!(original.len(), self.block.len(), "what was read is compared with what is right, byte by byte");
        let parity = self.right_parity().await;
        let block = std::mem::replace(&mut self.block, BufMut::zeroed(0)).freeze();
        let parity: Vec<Buf> = parity.into_iter().map(BufMut::freeze).collect();
        let mut repairs = Repairs { rewritten: Rewritten::default(), bad_children: Vec::new() };
        let mut writes = Vec::new();
        for (column, place) in self.map.columns.iter().enumerate() {
            let right = if column < nparity {
                parity[column].clone()
            } else {
                let start = self.map.data_start(column);
                block.slice(start..start + place.size)
            };
            let is_wrong = match (self.columns[column], column.checked_sub(nparity)) {
                (Column::Read { .. }, None) => self.parity[column].as_deref() != Some(&right[..]),
                (Column::Read { .. }, Some(_)) => {
                    let start = self.map.data_start(column);
                    original[start..start + place.size] != right[..]
                }
                (Column::Failed, _) => true,
                (Column::Unread { .. }, _) if by_scrub => true,
                (Column::Unread { .. } | Column::Absent, _) => continue,
            };
            assert_eq!(right.len(), place.size, "a column is written where it lies and no further");
            let wrong = self.wrong_leaves(column, is_wrong, &right, SettingRight { sound, by_scrub });
            if !wrong.is_empty() {
                repairs.bad_children.push(place.child);
            }
            let (birth, size) = (self.extent.birth, right.len() as u64);
            for leaf in wrong {
                writes.push(self.view.rewrite(leaf, place.offset, birth, right.clone(), size, by_scrub));
            }
        }
        if self.verify.is_in_use() {
            repairs.rewritten = join_all(writes).await.into_iter().sum();
        }
        repairs.bad_children.sort_unstable();
        (block.slice(..self.extent.psize as usize), repairs)
    }

    /// The block cannot be had. A wrong column cannot be told from a right one then, so each child that delivered is
    /// counted, as OpenZFS does.
    pub(crate) fn lost(&self) -> VdevError {
        let (vdev, Extent { offset, psize, .. }) = (self.view.name(), self.extent);
        let read = (0..self.columns.len()).filter(|&column| self.is_read(column));
        let absent = self.columns.len() - read.clone().count();
        if absent > self.nparity() {
            let away = self.map.columns.iter().zip(&self.columns).filter(|(_, state)| **state == Column::Absent);
            let mut reasons: Vec<String> = away
                .map(|(place, _)| {
                    let child = &self.view.children()[place.child];
                    format!("{} is {}", child.name(), child.condition().name())
                })
                .collect();
            reasons.extend(self.failures.iter().cloned());
            return VdevError::NoReplicas { vdev, offset, psize, detail: reasons.join("; ") };
        }
        if !self.extent.checked {
            let stale = self.map.columns.iter().zip(&self.columns).filter(|(_, state)| **state == STALE);
            let names: Vec<String> = stale.map(|(place, _)| self.view.children()[place.child].name()).collect();
            let (birth, names) = (self.extent.birth, names.join(", "));
            let detail = format!("{names} missed group {birth}, and there is no checksum to tell what they hold");
            return match absent == 0 && self.failures.is_empty() {
                true => VdevError::Doubtful { vdev, offset, psize, detail },
                false => VdevError::NoReplicas { vdev, offset, psize, detail },
            };
        }
        let blames = self.blames();
        for column in read {
            if self.columns[column] == (Column::Read { stale: false }) && blames {
                self.source(column).note_wrong(self.extent, self.priority);
            }
        }
        for other in self.others.iter().filter(|other| !other.stale && blames) {
            self.view.children()[self.map.columns[other.column].child].leaves()[other.leaf]
                .note_wrong(self.extent, self.priority);
        }
        let detail = match absent {
            0 => format!("more than {} of its {} columns are damaged", self.nparity(), self.columns.len()),
            _ => format!("{absent} of its {} columns cannot be read, others are damaged", self.columns.len()),
        };
        VdevError::Checksum { vdev, offset, psize, detail }
    }
}

/// Bytes that may be from before the block's time.
const STALE: Column = Column::Read { stale: true };

/// The block's data columns as slices.
fn split<'b>(block: &'b mut [u8], map: &RaidzMap) -> Vec<&'b mut [u8]> {
    let mut rest = block;
    map.data()
        .iter()
        .map(|column| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(column.size);
            rest = after;
            part
        })
        .collect()
}

/// Computes parity columns over a block.
pub(crate) fn generate(block: &[u8], map: &RaidzMap, parity: &mut [BufMut]) {
    let mut rest = block;
    let data: Vec<&[u8]> = map
        .data()
        .iter()
        .map(|column| {
            let (part, after) = rest.split_at(column.size);
            rest = after;
            part
        })
        .collect();
    let mut out: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[..]).collect();
    platter_parity::generate(map.parity, &data, &mut out);
}

/// Calls `try_one` with each way to choose `count` of `0..total`, in lexicographic order, until it returns true.
fn for_combinations(total: usize, count: usize, try_one: &mut dyn FnMut(&[usize]) -> bool) -> bool {
    if count > total {
        return false;
    }
    let mut chosen: Vec<usize> = (0..count).collect();
    loop {
        if try_one(&chosen) {
            return true;
        }
        let Some(index) = (0..count).rev().find(|&index| chosen[index] < total - count + index) else { return false };
        chosen[index] += 1;
        for next in index + 1..count {
            chosen[next] = chosen[next - 1] + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_come_once_each_in_order() {
        let mut seen = Vec::new();
        assert!(!for_combinations(4, 2, &mut |chosen| {
            seen.push(chosen.to_vec());
            false
        }));
        assert_eq!(seen, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        let mut count = 0;
        for_combinations(3, 0, &mut |chosen| {
            count += 1;
            !chosen.is_empty()
        });
        assert_eq!(count, 1);
        assert!(!for_combinations(2, 3, &mut |_| true));
    }
}
