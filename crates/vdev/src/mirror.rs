//! Blocks on a mirror, or on a single device (a mirror of one) (`module/zfs/vdev_mirror.c`). Its children are the
//! leaves, also those of nested vdevs.
//!
//! Invariants:
//! - a read asks one child, the least busy one that should have the block, and others only when that one fails;
//! - children that are known to have missed the block come last and are not blamed for what they hold; a scrub writes
//!   it to them without a look at what is there, so that their heads need not come by twice;
//! - of a block without checksum, what such a child holds counts for nothing, unless all children hold the same: the
//!   block was once written to one of them.

use futures::future::join_all;
use platter_buffer::{Buf, BufMut};
use platter_device::ReadSlot;
use platter_hooks::Canary;

use crate::error::{Result, VdevError};
use crate::extent::{Extent, Verify};
use crate::interior::{Interior, note_lacking};
use crate::outcome::{ReadOutcome, Rewritten, ScrubOutcome};
use crate::priority::Priority;
use crate::purpose::Purpose;
use crate::queue::finish;
use crate::view::View;

/// Reads within one stretch of this many bytes go to the same child, so that each child sees runs (1 MiB).
const STRETCH_SHIFT: u32 = 20;

/// A mirror, or a single device.
#[derive(Clone, Copy)]
pub(crate) struct Mirror<'a>(pub(crate) View<'a>);

impl Interior for Mirror<'_> {
    async fn read(self, extent: Extent, priority: Priority, verify: Verify<'_>) -> Result<(Buf, ReadOutcome)> {
        let Self(view) = self;
        let (mut wrong, mut failed, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for child in order(view, extent) {
            if !extent.checked && view.leaves()[child].is_stale_for(extent) {
                // This one and those that follow.
                let agreed = agreed(view, extent, priority, verify).await;
                return agreed
                    .map(|bytes| (bytes, ReadOutcome::default()))
                    .ok_or_else(|| lost(view, extent, 0, failures));
            }
            match ask(view, child, extent, priority, verify).await {
                Answer::Good(bytes) => {
                    let bytes = bytes.freeze();
                    blame(view, extent, &wrong, verify, priority);
                    let reconstructed = !wrong.is_empty() || !failed.is_empty();
                    wrong.append(&mut failed);
                    wrong.sort_unstable();
                    let repaired_bytes = repair(view, extent, &wrong, &bytes, verify, false).await.done;
                    return Ok((bytes, ReadOutcome { repaired_bytes, bad_children: wrong, reconstructed }));
                }
                Answer::Wrong => wrong.push(child),
                Answer::Failed(error) => {
                    failed.push(child);
                    failures.push(error);
                }
            }
        }
        blame(view, extent, &wrong, verify, priority);
        Err(lost(view, extent, wrong.len(), failures))
    }

    async fn scrub(self, extent: Extent, verify: Verify<'_>) -> Result<ScrubOutcome> {
        let Self(view) = self;
        let (mut lacking, asked): (Vec<usize>, Vec<usize>) = order(view, extent)
            .into_iter()
            .partition(|&child| extent.checked && view.leaves()[child].is_stale_for(extent));
        let mut answers = ask_all(view, asked, extent, verify).await;
        if !answers.iter().any(|(_, answer)| matches!(answer, Answer::Good(_))) {
            // Whoever missed it may hold it all the same.
            answers.extend(ask_all(view, std::mem::take(&mut lacking), extent, verify).await);
        }
        if !extent.checked && !set_stale_right(view, extent, &mut answers) {
            let examined_bytes = answers.len() as u64 * extent.psize;
            let agreed =
                answers.len() == view.leaves().len() && unanimous(answers.into_iter().map(|(_, a)| a)).is_some();
            let outcome = ScrubOutcome { examined_bytes, ..ScrubOutcome::default() };
            return if agreed { Ok(outcome) } else { Err(lost(view, extent, 0, Vec::new())) };
        }
        let asked = answers.len();
        let (mut good, mut wrong, mut failed, mut failures) = (None, Vec::new(), Vec::new(), Vec::new());
        for (child, answer) in answers {
            match answer {
                Answer::Good(bytes) => good = Some(bytes),
                Answer::Wrong => wrong.push(child),
                Answer::Failed(error) => {
                    failed.push(child);
                    failures.push(error);
                }
            }
        }
        blame(view, extent, &wrong, verify, Priority::Scrub);
        let Some(good) = good else { return Err(lost(view, extent, wrong.len(), failures)) };
        let examined_bytes = (asked - failed.len()) as u64 * extent.psize;
        wrong.append(&mut failed);
        wrong.append(&mut lacking);
        wrong.sort_unstable();
        let Rewritten { done, failed } = repair(view, extent, &wrong, &good.freeze(), verify, true).await;
        Ok(ScrubOutcome { examined_bytes, repaired_bytes: done, unrepaired_bytes: failed, bad_children: wrong })
    }

    async fn write(self, offset: u64, data: Buf, purpose: Purpose, priority: Priority) -> Result<()> {
        let Self(view) = self;
        let psize = data.len() as u64;
        let sides = if Canary::MirrorHalfWritten.sings() { &view.leaves()[..1] } else { view.leaves() };
        let writes = sides.iter().map(|leaf| leaf.write_for(purpose, offset, vec![data.clone()], priority));
        let results = join_all(writes).await;
        if results.iter().any(|result| result.is_ok()) {
            // Not before: a block that no child took is written again as a whole, or is nobody's.
            let lacking = sides.iter().zip(&results).filter(|(_, result)| result.is_err());
            note_lacking(purpose, lacking.map(|(leaf, _)| leaf));
            return Ok(());
        }
        let failures: Vec<String> =
            results.into_iter().filter_map(|result| result.err()).map(|error| error.to_string()).collect();
        Err(VdevError::NoReplicas { vdev: view.name(), offset, psize, detail: failures.join("; ") })
    }
}

/// What a child answered.
enum Answer {
    Good(BufMut),
    Wrong,
    Failed(String),
}

async fn ask(view: View<'_>, child: usize, extent: Extent, priority: Priority, verify: Verify<'_>) -> Answer {
    let (assembly, slot) = ReadSlot::whole(view.frame.padded(extent.psize) as usize);
    match view.leaves()[child].read_data(extent.offset, slot, priority).await {
        Ok(()) => {
            let mut bytes = finish(assembly);
            bytes.truncate(extent.psize as usize);
            if verify.is_right(&bytes) || Canary::ChecksumUnverified.sings() {
                Answer::Good(bytes)
            } else {
                Answer::Wrong
            }
        }
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// Asks these children at once, for a scrub.
async fn ask_all(view: View<'_>, children: Vec<usize>, extent: Extent, verify: Verify<'_>) -> Vec<(usize, Answer)> {
    let asked = children.iter().map(|&child| ask(view, child, extent, Priority::Scrub, verify));
    let answers = join_all(asked).await;
    children.into_iter().zip(answers).collect()
}

/// Usable children in the order in which to ask them.
fn order(view: View<'_>, extent: Extent) -> Vec<usize> {
    let count = view.leaves().len();
    let preferred = (extent.offset >> STRETCH_SHIFT) as usize % count;
    let mut usable: Vec<usize> = (0..count).filter(|&child| view.leaves()[child].is_usable()).collect();
    if usable.len() > 1 {
        usable.sort_by_cached_key(|&child| {
            let leaf = &view.leaves()[child];
            (leaf.is_stale_for(extent), leaf.load(), (child + count - preferred) % count)
        });
    }
    usable
}

/// Rewrites `bad` children with good data.
async fn repair(
    view: View<'_>,
    extent: Extent,
    bad: &[usize],
    good: &Buf,
    verify: Verify<'_>,
    by_scrub: bool,
) -> Rewritten {
    if !view.frame.writable || bad.is_empty() || !verify.is_in_use() {
        return Rewritten::default();
    }
    assert_eq!(good.len() as u64, extent.psize, "a repair writes a whole block that passed");
    assert!(bad.is_sorted_by(|one, next| one < next), "a child that was wrong did not fail as well");
    let mut padded = BufMut::zeroed(view.frame.padded(extent.psize) as usize);
    padded[..good.len()].copy_from_slice(good);
    let padded = padded.freeze();
    let writes = bad.iter().map(|&child| {
        view.rewrite(&view.leaves()[child], extent.offset, extent.birth, padded.clone(), extent.psize, by_scrub)
    });
    join_all(writes).await.into_iter().sum()
}

/// The error when no child had the block.
fn lost(view: View<'_>, extent: Extent, wrong: usize, failures: Vec<String>) -> VdevError {
    let (vdev, Extent { offset, psize, .. }) = (view.name(), extent);
    if wrong > 0 {
        let detail = format!("{wrong} of {} copies are damaged, the others cannot be read", view.leaves().len());
        VdevError::Checksum { vdev, offset, psize, detail }
    } else if failures.is_empty() {
        let detail = view.leaves().iter().map(|leaf| match leaf.is_usable() && leaf.is_missing(extent.birth) {
            true => format!("{} missed group {}, and there is no checksum to tell", leaf.name(), extent.birth),
            false => format!("{} is {}", leaf.name(), leaf.condition().name()),
        });
        let detail = detail.collect::<Vec<_>>().join(", ");
        match view.leaves().iter().all(|leaf| leaf.is_usable()) {
            true => VdevError::Doubtful { vdev, offset, psize, detail },
            false => VdevError::NoReplicas { vdev, offset, psize, detail },
        }
    } else {
        VdevError::NoReplicas { vdev, offset, psize, detail: failures.join("; ") }
    }
}

/// The bytes of a block without checksum of which no child that should have it can be asked: what every child holds.
async fn agreed(view: View<'_>, extent: Extent, priority: Priority, verify: Verify<'_>) -> Option<Buf> {
    let asked = (0..view.leaves().len()).map(|child| ask(view, child, extent, priority, verify));
    unanimous(join_all(asked).await.into_iter())
}

fn unanimous(answers: impl Iterator<Item = Answer>) -> Option<Buf> {
    let mut common: Option<BufMut> = None;
    for answer in answers {
        let Answer::Good(bytes) = answer else { return None };
        if common.as_ref().is_some_and(|common| common[..] != bytes[..]) {
            return None;
        }
        common = Some(bytes);
    }
    common.map(BufMut::freeze)
}

/// Counts wrong bytes, unless the child is known to have missed the block, or the block is nobody's.
fn blame(view: View<'_>, extent: Extent, wrong: &[usize], verify: Verify<'_>, priority: Priority) {
    if extent.speculative || wrong.is_empty() || !verify.is_in_use() {
        return;
    }
    for &child in wrong {
        let leaf = &view.leaves()[child];
        if !leaf.is_missing(extent.birth) {
            leaf.note_wrong(extent, priority);
        }
    }
}

/// Of a block without checksum: what differs on children that missed it from what another one holds is wrong. `false`
/// when no other one has answered.
fn set_stale_right(view: View<'_>, extent: Extent, answers: &mut [(usize, Answer)]) -> bool {
    let fresh = answers
        .iter()
        .position(|(child, answer)| matches!(answer, Answer::Good(_)) && !view.leaves()[*child].is_stale_for(extent));
    let Some(fresh) = fresh else { return false };
    // Those that should have the block come first.
    let (before, after) = answers.split_at_mut(fresh + 1);
    let Answer::Good(right) = &before[fresh].1 else { return false };
    for (child, answer) in after {
        if matches!(answer, Answer::Good(bytes) if bytes[..] != right[..]) && view.leaves()[*child].is_stale_for(extent)
        {
            *answer = Answer::Wrong;
        }
    }
    true
}
