//! Blocks on a RAID-Z group: minimal reads, reconstruction, verification, repair (`module/zfs/vdev_raidz.c`).
//!
//! A read asks only the data columns. When some cannot be had, as many parity columns are asked as are needed. When
//! what comes together fails its checksum, everything is read, and every set of columns that redundancy could cover is
//! taken for bad in turn, small sets and suspicious children first, until the rebuilt block passes.
//!
//! Invariants:
//! - a column is *wrong* only when the bytes read differ from those of the block that passed;
//! - columns of children that are known to have missed the block are neither trusted first nor blamed; of a block
//!   without checksum they count for nothing, unless all columns agree: then they are what was once written, since so
//!   many of them were that these alone determine the rest;
//! - repairs write only bytes that passed, or parity computed from them.

use futures::future::{join, join_all};
use platter_buffer::{Buf, BufMut};
use platter_device::{Assembly, ReadSlot};
use platter_ondisk::Txg;
use platter_zio::{Canary, CpuWork, Priority};

use crate::error::{Result, VdevError};
use crate::queue::finish;
use crate::raidz_map::RaidzMap;
use crate::top::{Extent, ReadOutcome, Rewritten, ScrubOutcome, TopVdev, Verify};

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
struct Attempt<'a> {
    top: &'a TopVdev,
    extent: Extent,
    priority: Priority,
    verify: Verify<'a>,
    map: RaidzMap,
    columns: Vec<Column>,
    /// The data columns one after the other: the block, padded to sectors.
    block: BufMut,
    parity: Vec<Option<BufMut>>,
    /// What failed transfers said.
    failures: Vec<String>,
    examined_bytes: u64,
    /// Columns computed from others, whether they passed or not, that nobody has been charged for.
    uncharged: usize,
}

/// What came of setting right a block that passed.
struct Repairs {
    rewritten: Rewritten,
    bad_children: Vec<usize>,
}

impl<'a> Attempt<'a> {
    fn new(top: &'a TopVdev, parity: usize, extent: Extent, priority: Priority, verify: Verify<'a>) -> Self {
        let map = RaidzMap::new(extent.offset, top.padded(extent.psize), top.ashift, top.children.len(), parity);
        let columns = map.columns.iter().map(|column| {
            let stale = top.is_stale(column.child, extent);
            if top.children[column.child].is_usable() { Column::Unread { stale } } else { Column::Absent }
        });
        Self {
            columns: columns.collect(),
            block: BufMut::zeroed(0),
            parity: (0..parity).map(|_| None).collect(),
            failures: Vec::new(),
            examined_bytes: 0,
            uncharged: 0,
            top,
            extent,
            priority,
            verify,
            map,
        }
    }

    fn nparity(&self) -> usize {
        self.map.parity
    }

    fn is_read(&self, column: usize) -> bool {
        matches!(self.columns[column], Column::Read { .. })
    }

    /// Data columns without bytes.
    fn absent_data(&self) -> Vec<usize> {
        (self.nparity()..self.columns.len()).filter(|&column| !self.is_read(column)).collect()
    }

    /// Reads columns, all at once. Data columns can be read before the block exists or, into it, afterwards.
    async fn fetch(&mut self, wanted: &[usize]) {
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
            reads.push(self.top.children[place.child].read_data(place.offset, slot, self.priority));
        }
        let results = join_all(reads).await;
        drop(data_slots);
        if let Some(block) = block {
            self.block = finish(block);
        }
        for (((&column, size), buffer), result) in wanted.iter().zip(sizes).zip(buffers).zip(results) {
            let stale = self.columns[column] == Column::Unread { stale: true };
            match result {
                Ok(()) => {
                    self.columns[column] = Column::Read { stale };
                    self.examined_bytes += size as u64;
                    match buffer.map(finish) {
                        Some(bytes) if column < self.nparity() => self.parity[column] = Some(bytes),
                        Some(bytes) => {
                            let start = self.map.data_start(column);
                            self.block[start..start + size].copy_from_slice(&bytes);
                        }
                        None => {}
                    }
                }
                Err(error) => {
                    self.columns[column] = Column::Failed;
                    self.failures.push(error.to_string());
                }
            }
        }
    }

    fn unread(&self, accept: impl Fn(usize, bool) -> bool) -> Vec<usize> {
        let pick = |(column, state): (usize, &Column)| match state {
            Column::Unread { stale } if accept(column, *stale) => Some(column),
            _ => None,
        };
        self.columns.iter().enumerate().filter_map(pick).collect()
    }

    /// Reads the data columns, and as much parity as is needed for those that cannot be had.
    async fn fetch_least(&mut self) {
        let nparity = self.nparity();
        let mut wanted = self.unread(|column, stale| column >= nparity && !stale);
        let mut absent = self.columns.len() - nparity - wanted.len();
        loop {
            wanted.extend(self.unread(|column, stale| column < nparity && !stale).into_iter().take(absent));
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
    fn rebuild(&mut self, bad: &[usize]) -> bool {
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

    async fn charge(&mut self) {
        let columns = std::mem::take(&mut self.uncharged);
        if columns > 0 {
            self.top.cpu().charge(CpuWork::Rebuild(columns), self.block.len()).await;
        }
    }

    fn passes(&self) -> bool {
        (self.verify)(&self.block[..self.extent.psize as usize])
    }

    /// Finds out which columns are wrong by trying. Everything that can be read has been. On success the block passes
    /// and `original` holds what the data columns held before.
    fn search(&mut self, original: &[u8]) -> bool {
        let absent: Vec<usize> = (0..self.columns.len()).filter(|&column| !self.is_read(column)).collect();
        let Some(spare) = self.nparity().checked_sub(absent.len()) else { return false };
        let mut suspects: Vec<usize> = (0..self.columns.len()).filter(|&column| self.is_read(column)).collect();
        suspects.sort_by_cached_key(|&column| {
            let stale = self.columns[column] == Column::Read { stale: true };
            let errors = self.top.children[self.map.columns[column].child].stats().snapshot().checksum_errors;
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

    /// Of a block without checksum: computes every column that is not there, or may be from before the block's time,
    /// from the others. Returns whether these were enough.
    fn rebuild_unchecked(&mut self) -> bool {
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
    async fn is_sound(&self) -> bool {
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
        self.top.cpu().charge(CpuWork::Parity(self.nparity()), self.block.len()).await;
        parity
    }

    /// The block has passed; `original` is what the data columns held as read. Counts what was wrong and rewrites it.
    async fn set_right(&mut self, original: &[u8], by_scrub: bool) -> (Buf, Repairs) {
        let nparity = self.nparity();
        let parity = self.right_parity().await;
        let block = std::mem::replace(&mut self.block, BufMut::zeroed(0)).freeze();
        let parity: Vec<Buf> = parity.into_iter().map(BufMut::freeze).collect();
        let mut repairs = Repairs { rewritten: Rewritten::default(), bad_children: Vec::new() };
        let mut writes = Vec::new();
        for (column, place) in self.map.columns.iter().enumerate() {
            let leaf = &self.top.children[place.child];
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
                (Column::Unread { .. } | Column::Absent, _) => false,
            };
            if !is_wrong {
                continue;
            }
            repairs.bad_children.push(place.child);
            if self.columns[column] == (Column::Read { stale: false }) && !self.extent.speculative {
                leaf.note_wrong(self.extent);
            }
            let size = right.len() as u64;
            writes.push(self.top.rewrite(place.child, place.offset, self.extent.birth, right, size, by_scrub));
        }
        repairs.rewritten = join_all(writes).await.into_iter().sum();
        repairs.bad_children.sort_unstable();
        (block.slice(..self.extent.psize as usize), repairs)
    }

    /// The block cannot be had. A wrong column cannot be told from a right one then, so each child that delivered is
    /// counted, as OpenZFS does.
    fn lost(&self) -> VdevError {
        let (vdev, Extent { offset, psize, .. }) = (self.top.name(), self.extent);
        let read = (0..self.columns.len()).filter(|&column| self.is_read(column));
        let absent = self.columns.len() - read.clone().count();
        if absent > self.nparity() {
            let away = self.map.columns.iter().zip(&self.columns).filter(|(_, state)| **state == Column::Absent);
            let mut reasons: Vec<String> = away
                .map(|(place, _)| {
                    let leaf = &self.top.children[place.child];
                    format!("{} is {}", leaf.name(), leaf.condition().name())
                })
                .collect();
            reasons.extend(self.failures.iter().cloned());
            return VdevError::NoReplicas { vdev, offset, psize, detail: reasons.join("; ") };
        }
        if !self.extent.checked {
            let stale = self.map.columns.iter().zip(&self.columns).filter(|(_, state)| **state == STALE);
            let names: Vec<String> = stale.map(|(place, _)| self.top.children[place.child].name()).collect();
            let (birth, names) = (self.extent.birth, names.join(", "));
            let detail = format!("{names} missed group {birth}, and there is no checksum to tell what they hold");
            return match absent == 0 && self.failures.is_empty() {
                true => VdevError::Doubtful { vdev, offset, psize, detail },
                false => VdevError::NoReplicas { vdev, offset, psize, detail },
            };
        }
        for column in read {
            if self.columns[column] == (Column::Read { stale: false }) && !self.extent.speculative {
                self.top.children[self.map.columns[column].child].note_wrong(self.extent);
            }
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
fn generate(block: &[u8], map: &RaidzMap, parity: &mut [BufMut]) {
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

pub(crate) async fn read(
    top: &TopVdev,
    nparity: usize,
    extent: Extent,
    priority: Priority,
    verify: Verify<'_>,
) -> Result<(Buf, ReadOutcome)> {
    let mut attempt = Attempt::new(top, nparity, extent, priority, verify);
    attempt.fetch_least().await;
    if !extent.checked {
        return read_unchecked(attempt).await;
    }
    if attempt.failures.is_empty() && !attempt.block.is_empty() {
        let missing = attempt.absent_data();
        let parity_read = (0..nparity).filter(|&column| attempt.is_read(column)).count();
        let passes = missing.len() <= parity_read && attempt.rebuild(&missing) && attempt.passes();
        attempt.charge().await;
        if passes {
            let mut block = attempt.block;
            block.truncate(extent.psize as usize);
            let reconstructed = !missing.is_empty();
            return Ok((block.freeze(), ReadOutcome { reconstructed, ..ReadOutcome::default() }));
        }
    }
    // Something is wrong. Which columns hold what, only their bytes as read can tell: nothing was changed in those.
    let fetched_all = attempt.unread(|_, _| true).is_empty();
    let intact = attempt.failures.len() <= nparity && !attempt.block.is_empty() && {
        // A failed transfer alone does not call the other columns into question.
        let missing = attempt.absent_data();
        !attempt.failures.is_empty() && attempt.rebuild(&missing) && attempt.passes()
    };
    if !intact && !fetched_all {
        let rest = attempt.unread(|_, _| true);
        attempt.fetch(&rest).await;
    }
    let original = attempt.block.to_vec();
    let passes = intact || (!attempt.block.is_empty() && attempt.search(&original));
    attempt.charge().await;
    if !passes {
        return Err(attempt.lost());
    }
    let (block, repairs) = attempt.set_right(&original, false).await;
    let Repairs { rewritten, bad_children } = repairs;
    Ok((block, ReadOutcome { repaired_bytes: rewritten.done, bad_children, reconstructed: true }))
}

/// Goes on with a block without checksum after the least was fetched: only children that have not missed it are asked,
/// as long as they are enough.
async fn read_unchecked(mut attempt: Attempt<'_>) -> Result<(Buf, ReadOutcome)> {
    let original = attempt.block.to_vec();
    // Columns that nobody needed are not asked for: those that were read must determine the rest.
    let nparity = attempt.nparity();
    let absent = attempt.absent_data();
    let parity_read = (0..nparity).filter(|&column| attempt.is_read(column)).count();
    let enough = absent.len() <= parity_read && !attempt.block.is_empty();
    if enough && attempt.rebuild(&absent) {
        attempt.charge().await;
        let reconstructed = !absent.is_empty();
        if attempt.failures.is_empty() {
            let mut block = attempt.block;
            block.truncate(attempt.extent.psize as usize);
            return Ok((block.freeze(), ReadOutcome { reconstructed, ..ReadOutcome::default() }));
        }
        let (block, Repairs { rewritten, bad_children }) = attempt.set_right(&original, false).await;
        return Ok((block, ReadOutcome { repaired_bytes: rewritten.done, bad_children, reconstructed }));
    }
    let rest = attempt.unread(|_, _| true);
    attempt.fetch(&rest).await;
    if !attempt.is_sound().await {
        return Err(attempt.lost());
    }
    let mut block = attempt.block;
    block.truncate(attempt.extent.psize as usize);
    Ok((block.freeze(), ReadOutcome::default()))
}

pub(crate) async fn scrub(top: &TopVdev, nparity: usize, extent: Extent, verify: Verify<'_>) -> Result<ScrubOutcome> {
    let mut attempt = Attempt::new(top, nparity, extent, Priority::Scrub, verify);
    let all = attempt.unread(|_, _| true);
    attempt.fetch(&all).await;
    if attempt.is_sound().await {
        let examined_bytes = attempt.examined_bytes;
        return Ok(ScrubOutcome { examined_bytes, ..ScrubOutcome::default() });
    }
    let original = attempt.block.to_vec();
    let passes = match extent.checked {
        true => !attempt.block.is_empty() && attempt.search(&original),
        false => attempt.rebuild_unchecked(),
    };
    attempt.charge().await;
    if !passes {
        return Err(attempt.lost());
    }
    let examined_bytes = attempt.examined_bytes;
    let (_, Repairs { rewritten: Rewritten { done, failed }, bad_children }) = attempt.set_right(&original, true).await;
    Ok(ScrubOutcome { examined_bytes, repaired_bytes: done, unrepaired_bytes: failed, bad_children })
}

pub(crate) async fn write(
    top: &TopVdev,
    nparity: usize,
    offset: u64,
    data: Buf,
    txg: Txg,
    priority: Priority,
) -> Result<()> {
    let psize = data.len() as u64;
    let map = RaidzMap::new(offset, psize, top.ashift, top.children.len(), nparity);
    let parity: Vec<Buf> = if map.data().len() == 1 {
        // Every parity of one column is that column.
        vec![data.clone(); nparity]
    } else {
        let mut parity: Vec<BufMut> = (0..nparity).map(|_| BufMut::unfilled(map.columns[0].size)).collect();
        generate(&data, &map, &mut parity);
        if Canary::ParityRotated.sings() {
            parity.iter_mut().for_each(|column| column.rotate_left(1));
        }
        top.cpu().charge(CpuWork::Parity(nparity), data.len()).await;
        parity.into_iter().map(BufMut::freeze).collect()
    };
    let mut pieces: Vec<Vec<Buf>> = Vec::with_capacity(map.columns.len());
    for (column, place) in map.columns.iter().enumerate() {
        pieces.push(vec![match parity.get(column) {
            Some(parity) => parity.clone(),
            None => {
                let start = map.data_start(column);
                data.slice(start..start + place.size)
            }
        }]);
    }
    // Padding that follows a column is written along with it, so that neighbouring blocks make one transfer.
    for column in map.skips.iter().filter_map(|skip| skip.column) {
        pieces[column].push(Buf::zeroed(1 << top.ashift));
    }
    let columns = map.columns.iter().zip(pieces);
    let writes = columns.map(|(place, pieces)| top.children[place.child].write_data(place.offset, pieces, priority));
    // Other padding only joins the blocks before and after this one. A write of the intent log waits for nothing more.
    let alone = map.skips.iter().filter(|skip| skip.column.is_none() && priority == Priority::AsyncWrite);
    let padding = alone.map(|skip| top.children[skip.child].pad(skip.offset, 1 << top.ashift));
    let (written, _) = join(join_all(writes), join_all(padding)).await;
    let failed: Vec<(usize, VdevError)> = map
        .columns
        .iter()
        .zip(written)
        .filter_map(|(place, result)| result.err().map(|error| (place.child, error)))
        .collect();
    if failed.len() > nparity {
        let detail = failed.iter().map(|(_, error)| error.to_string()).collect::<Vec<_>>().join("; ");
        return Err(VdevError::NoReplicas { vdev: top.name(), offset, psize, detail });
    }
    // Not before: a block that too few children took is written again as a whole, or is nobody's.
    failed.iter().for_each(|(child, _)| top.children[*child].note_missing(txg));
    Ok(())
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
