//! Blocks on a RAID-Z group: minimal reads, reconstruction, verification, repair (`module/zfs/vdev_raidz.c`).
//!
//! A read asks only the data columns. When some cannot be had, as many parity columns are asked as are needed. When
//! what comes together fails its checksum, everything is read, and every set of columns that redundancy could cover is
//! taken for bad in turn, small sets and suspicious children first, until the rebuilt block passes. When none does,
//! further leaves of children that have several are asked too.
//!
//! Invariants:
//! - a column is *wrong* only when the bytes read differ from those of the block that passed;
//! - columns of children that are known to have missed the block are neither trusted first nor blamed; of a block
//!   without checksum they count for nothing, unless all columns agree: then they are what was once written, since so
//!   many of them were that these alone determine the rest;
//! - repairs write only bytes that passed, or parity computed from them;
//! - a scrub looks at every leaf of a child, also when the block is sound; to those that are known to have missed the
//!   block it writes it without a look, so that their heads need not come by twice.

use futures::future::{join, join_all};
use platter_buffer::{Buf, BufMut};
use platter_hooks::{Canary, CpuWork};

use crate::error::{Result, VdevError};
use crate::extent::{Extent, Verify};
use crate::interior::{Interior, note_lacking};
use crate::outcome::{ReadOutcome, Rewritten, ScrubOutcome};
use crate::priority::Priority;
use crate::purpose::Purpose;
use crate::raidz_attempt::{Attempt, Repairs, generate};
use crate::raidz_map::RaidzMap;
use crate::view::View;

/// A RAID-Z group.
#[derive(Clone, Copy)]
pub(crate) struct Raidz<'a> {
    pub(crate) view: View<'a>,
    /// Parity columns, 1 to 3.
    pub(crate) parity: usize,
}

impl Interior for Raidz<'_> {
    async fn read(self, extent: Extent, priority: Priority, verify: Verify<'_>) -> Result<(Buf, ReadOutcome)> {
        let Self { view, parity: nparity } = self;
        let mut attempt = Attempt::new(view, nparity, extent, priority, verify);
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
        let intact = attempt.failed_columns() <= nparity && !attempt.block.is_empty() && {
            // A failed transfer alone does not call the other columns into question.
            let missing = attempt.absent_data();
            !attempt.failures.is_empty() && attempt.rebuild(&missing) && attempt.passes()
        };
        if !intact && !fetched_all {
            let rest = attempt.unread(|_, _| true);
            attempt.fetch(&rest).await;
        }
        let mut original = attempt.block.to_vec();
        let mut passes = intact || (!attempt.block.is_empty() && attempt.search(&original));
        if !passes && attempt.fetch_others(|_| true).await {
            passes = attempt.search_others(&mut original);
        }
        attempt.charge().await;
        if !passes {
            return Err(attempt.lost());
        }
        let (block, repairs) = attempt.set_right(&original, false, false).await;
        let Repairs { rewritten, bad_children } = repairs;
        Ok((block, ReadOutcome { repaired_bytes: rewritten.done, bad_children, reconstructed: true }))
    }

    async fn scrub(self, extent: Extent, verify: Verify<'_>) -> Result<ScrubOutcome> {
        let Self { view, parity: nparity } = self;
        let mut attempt = Attempt::new(view, nparity, extent, Priority::Scrub, verify);
        let is_known = |stale: bool| !(extent.checked && stale);
        let asked = attempt.unread(|_, stale| is_known(stale));
        attempt.fetch(&asked).await;
        attempt.fetch_others(is_known).await;
        let sound = attempt.is_sound().await;
        if sound && attempt.agree() && !attempt.has_unasked() {
            let examined_bytes = attempt.examined_bytes;
            return Ok(ScrubOutcome { examined_bytes, ..ScrubOutcome::default() });
        }
        let mut original = attempt.block.to_vec();
        let mut passes = match extent.checked {
            _ if sound => true,
            true => attempt.find(&mut original),
            false => attempt.rebuild_unchecked(),
        };
        if !passes && attempt.has_unasked() {
            // Whoever missed it may hold it all the same.
            let rest = attempt.unread(|_, _| true);
            attempt.fetch(&rest).await;
            attempt.fetch_others(|_| true).await;
            original = attempt.block.to_vec();
            passes = attempt.find(&mut original);
        }
        attempt.charge().await;
        if !passes {
            return Err(attempt.lost());
        }
        let examined_bytes = attempt.examined_bytes;
        let (_, Repairs { rewritten: Rewritten { done, failed }, bad_children }) =
            attempt.set_right(&original, sound, true).await;
        Ok(ScrubOutcome { examined_bytes, repaired_bytes: done, unrepaired_bytes: failed, bad_children })
    }

    async fn write(self, offset: u64, data: Buf, purpose: Purpose, priority: Priority) -> Result<()> {
        let Self { view, parity: nparity } = self;
        let psize = data.len() as u64;
        let map = RaidzMap::new(offset, psize, view.frame.ashift, view.children().len(), nparity);
        assert_eq!(map.data().iter().map(|column| column.size).sum::<usize>(), data.len(), "columns are the block");
        let parity: Vec<Buf> = if map.data().len() == 1 {
            // Every parity of one column is that column.
            vec![data.clone(); nparity]
        } else {
            let mut parity: Vec<BufMut> = (0..nparity).map(|_| BufMut::unfilled(map.columns[0].size)).collect();
            generate(&data, &map, &mut parity);
            if Canary::ParityRotated.sings() {
                parity.iter_mut().for_each(|column| column.rotate_left(1));
            }
            view.frame.cpu().charge(CpuWork::Parity(nparity), data.len()).await;
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
            pieces[column].push(Buf::zeroed(1 << view.frame.ashift));
        }
        let columns = map.columns.iter().zip(pieces);
        let writes = columns
            .map(|(place, pieces)| view.children()[place.child].write_for(purpose, place.offset, pieces, priority));
        // Other padding only joins the blocks before and after this one. A write of the intent log waits for nothing
        // more.
        let alone = map.skips.iter().filter(|skip| skip.column.is_none() && priority == Priority::AsyncWrite);
        let padding = alone.map(|skip| view.children()[skip.child].pad(skip.offset, 1 << view.frame.ashift));
        let (written, _) = join(join_all(writes), join_all(padding)).await;
        let (mut lacking, mut errors) = (Vec::new(), Vec::new());
        for (place, result) in map.columns.iter().zip(written) {
            let leaves = view.children()[place.child].leaves();
            match result {
                Ok(failed) => lacking.extend(failed.into_iter().map(|leaf| &leaves[leaf])),
                Err(error) => {
                    lacking.extend(leaves);
                    errors.push(error);
                }
            }
        }
        if errors.len() > nparity {
            let detail = errors.iter().map(|error| error.to_string()).collect::<Vec<_>>().join("; ");
            return Err(VdevError::NoReplicas { vdev: view.name(), offset, psize, detail });
        }
        // Not before: a block that too few children took is written again as a whole, or is nobody's.
        note_lacking(purpose, lacking.into_iter());
        Ok(())
    }
}

/// Goes on with a block without checksum after the least was fetched: only children that have not missed it are asked,
/// as long as they are enough.
async fn read_unchecked(mut attempt: Attempt<'_>) -> Result<(Buf, ReadOutcome)> {
    let original = attempt.block.to_vec();
    // Columns that nobody needed are not asked for: those that were read must determine the rest.
    let nparity = attempt.nparity();
    let absent = attempt.absent_data();
    let parity_read = (0..nparity).filter(|&column| attempt.is_read(column)).count();
    // A leaf may have gone away since it was chosen, and one that missed the block may have answered in its place.
    let enough = absent.len() <= parity_read && !attempt.block.is_empty() && !attempt.has_read_stale();
    if enough && attempt.rebuild(&absent) {
        attempt.charge().await;
        let reconstructed = !absent.is_empty();
        if attempt.failures.is_empty() {
            let mut block = attempt.block;
            block.truncate(attempt.extent.psize as usize);
            return Ok((block.freeze(), ReadOutcome { reconstructed, ..ReadOutcome::default() }));
        }
        let (block, Repairs { rewritten, bad_children }) = attempt.set_right(&original, false, false).await;
        return Ok((block, ReadOutcome { repaired_bytes: rewritten.done, bad_children, reconstructed }));
    }
    let rest = attempt.unread(|_, _| true);
    attempt.fetch(&rest).await;
    let sound = attempt.is_sound().await;
    if !sound && !attempt.rebuild_unchecked() {
        return Err(attempt.lost());
    }
    attempt.charge().await;
    let mut block = attempt.block;
    block.truncate(attempt.extent.psize as usize);
    Ok((block.freeze(), ReadOutcome { reconstructed: !sound, ..ReadOutcome::default() }))
}
