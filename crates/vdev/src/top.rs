//! A top-level vdev: the unit among which a pool stripes its blocks.
//!
//! Invariants:
//! - every address is checked against the vdev's size before a device sees it;
//! - a write that returns success has reached enough children that the block can be read now; children that missed it
//!   have the group in their dirty time log;
//! - each operation works on the children that there were when it began; who exchanges them waits for it;
//! - nothing here holds a lock across an await.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::join_all;
use parking_lot::RwLock;
use platter_buffer::{Buf, BufMut};
use platter_hooks::{Canary, Cpu};
use platter_ondisk::label::{VDEV_LABEL_END_SIZE, VDEV_LABEL_START_SIZE};
use platter_ondisk::{Guid, Sectors, Txg};

use crate::allocation_class::AllocationClass;
use crate::error::{Result, VdevError};
use crate::extent::{Extent, Verify};
use crate::geometry::{self, ASHIFT_RANGE, Layout};
use crate::interior::Interior;
use crate::leaf::Leaf;
use crate::lists::Flush;
use crate::mirror::Mirror;
use crate::opener::DeviceOpener;
use crate::outcome::{ReadOutcome, ScrubOutcome};
use crate::priority::Priority;
use crate::purpose::Purpose;
use crate::raidz::Raidz;
use crate::shape::{self, Arrangement, Gone, Shape};
use crate::slow_child::{self, Watch};
use crate::spec::{VdevKind, VdevSpec};
use crate::state::Condition;
use crate::stats::Stats;
use crate::turns::Turns;
use crate::view::{Frame, View};

/// Greatest size of a block, in bytes (`SPA_MAXBLOCKSIZE`).
const PSIZE_MAX: u64 = 16 << 20;

/// The present shape, and what tells when nobody uses it any more.
#[derive(Debug)]
struct Current {
    shape: Arc<Shape>,
    gone: Gone,
}

/// A top-level vdev. See the module text.
#[derive(Debug)]
pub struct TopVdev {
    frame: Frame,
    class: AllocationClass,
    create_txg: Txg,
    current: RwLock<Current>,
    stats: Stats,
    pub(crate) turns: Turns,
    watch: Watch,
}

impl TopVdev {
    /// Opens a top-level vdev and its leaves, also those below `replacing` and `spare` vdevs. Leaves that cannot be
    /// opened do not make this fail (see [`Self::condition`]). An `ashift` or `asize` of 0 in `spec` is a new vdev's:
    /// it is worked out from the devices.
    ///
    /// # Errors
    /// [`VdevError::Unsupported`] and [`VdevError::Config`]; for a new vdev also [`VdevError::Unavailable`] when some
    /// leaf cannot be opened.
    pub async fn open(spec: &VdevSpec, opener: &dyn DeviceOpener, writable: bool) -> Result<Self> {
        let leaf_specs = shape::leaf_specs(spec)?;
        let layout = Layout::of(&spec.kind, leaf_specs.len())?;
        let least_asize = least_child_asize(spec, layout, leaf_specs.len());
        let opening = leaf_specs.iter().flatten().map(|leaf| Leaf::open(leaf, opener, writable, least_asize));
        let mut leaves = join_all(opening).await.into_iter();
        let children = leaf_specs.iter().map(|child| leaves.by_ref().take(child.len()).collect()).collect();
        let (shape, gone) = Shape::new(Arrangement { guid: spec.guid, kind: spec.kind.clone(), children })?;
        let (ashift, asize) = if spec.ashift == 0 || spec.asize == 0 {
            for leaf in &shape.leaves {
                if !leaf.is_usable() {
                    let condition = leaf.condition();
                    let reason = condition.detail.unwrap_or_else(|| "cannot open".into());
                    return Err(VdevError::Unavailable { leaf: leaf.name(), reason });
                }
            }
            let sectors = shape.leaves.iter().filter_map(|leaf| leaf.device()).map(|device| {
                let geometry = device.geometry();
                (geometry.logical_ashift(), geometry.physical_ashift())
            });
            let ashift = if spec.ashift == 0 { geometry::best_ashift(sectors) } else { spec.ashift };
            (ashift, shape.asize())
        } else {
            (spec.ashift, spec.asize)
        };
        if !ASHIFT_RANGE.contains(&ashift) {
            return Err(VdevError::Config(format!("ashift {ashift} of {}-{} is not possible", spec.kind, spec.id)));
        }
        Ok(Self {
            frame: Frame { id: spec.id, ashift, asize: AtomicU64::new(asize), writable, cpu: OnceLock::new() },
            class: spec.class,
            create_txg: spec.create_txg,
            current: RwLock::new(Current { shape, gone }),
            stats: Stats::default(),
            turns: Turns::default(),
            watch: Watch::default(),
        })
    }

    /// Hands over who is told about computing parity; the first call counts.
    pub fn set_cpu(&self, cpu: Cpu) {
        let _ = self.frame.cpu.set(cpu);
    }

    /// The present shape. What keeps it delays an exchange.
    pub(crate) fn shape(&self) -> Arc<Shape> {
        self.current.read().shape.clone()
    }

    /// The leaves as they are arranged now.
    pub fn arrangement(&self) -> Arrangement {
        self.shape().arrangement()
    }

    /// Arranges the leaves anew, and waits until the last operation on the old arrangement is over: after that nobody
    /// reads or writes a leaf that is no longer part of it. Operations that begin meanwhile go by the new one. One
    /// exchange at a time; who stops waiting does not know when the old one is no longer used.
    ///
    /// A leaf that joins lacks what was written so far, and what is being written: all groups up to the last that may
    /// be open must be on its list *before* the call. Before a leaf that leaves is given away it is to be looked at
    /// once more whether the others have everything: a block that was being written may have reached it alone.
    ///
    /// # Errors
    /// [`VdevError::Unsupported`]; [`VdevError::Config`] when blocks would have to move: the columns of a RAID-Z stay,
    /// a mirror may get and lose sides. Nothing has changed then.
    pub async fn exchange(&self, new: Arrangement) -> Result<()> {
        let (shape, gone) = Shape::new(new)?;
        let old = {
            let mut current = self.current.write();
            if !current.shape.places_blocks_as(&shape) {
                let (from, to) = (&current.shape, &shape);
                let (from_count, to_count) = (from.children.len(), to.children.len());
                let text = format!("a {} of {from_count} cannot become a {} of {to_count}", from.kind, to.kind);
                return Err(VdevError::Config(text));
            }
            std::mem::replace(&mut *current, Current { shape, gone })
        };
        drop(old.shape);
        // It only ever ends with an error: the sender goes with the shape.
        let _ = old.gone.await;
        Ok(())
    }

    /// Index in the pool.
    pub fn id(&self) -> u64 {
        self.frame.id
    }

    /// Identity.
    pub fn guid(&self) -> Guid {
        self.current.read().shape.guid()
    }

    /// Type.
    pub fn kind(&self) -> VdevKind {
        self.current.read().shape.kind.clone()
    }

    /// How blocks are spread over the children.
    pub fn layout(&self) -> Layout {
        self.current.read().shape.layout
    }

    /// log2 of the allocation unit in bytes.
    pub fn ashift(&self) -> u8 {
        self.frame.ashift
    }

    /// Allocatable bytes, parity included.
    pub fn asize(&self) -> u64 {
        self.frame.asize()
    }

    /// Bytes by which it could grow on its devices as they are now; all leaves must be there for it to be known.
    pub fn expandable(&self) -> u64 {
        let shape = self.shape();
        if !shape.leaves.iter().all(|leaf| leaf.is_usable()) {
            return 0;
        }
        shape.asize().saturating_sub(self.frame.asize())
    }

    /// Uses all that its devices have now (`vdev_expand`, `module/zfs/vdev.c`). Returns the size, which never becomes
    /// less.
    pub fn expand(&self) -> u64 {
        let asize = self.asize() + self.expandable();
        self.frame.asize.fetch_max(asize, Ordering::Relaxed).max(asize)
    }

    /// Bytes that a device must have to take the place of a leaf (labels included; `vdev_get_min_asize`).
    pub fn replacement_size(&self, metaslab_shift: u64) -> u64 {
        let used = self.frame.asize() >> metaslab_shift.min(63) << metaslab_shift.min(63);
        let shape = self.shape();
        let child = match shape.layout {
            Layout::Single => used,
            layout => layout.child_asize(shape.children.len(), self.frame.asize()),
        };
        child + VDEV_LABEL_START_SIZE + VDEV_LABEL_END_SIZE
    }

    /// What kind of blocks it is for.
    pub fn class(&self) -> AllocationClass {
        self.class
    }

    /// The group in which it joined the pool.
    pub fn create_txg(&self) -> Txg {
        self.create_txg
    }

    /// The leaves as of now, in order, with those of nested vdevs; a single disk is its own leaf.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.shape().leaves.clone()
    }

    /// How many children blocks are spread over: the leaves of a replacing vdev below RAID-Z are one.
    pub fn width(&self) -> usize {
        self.current.read().shape.children.len()
    }

    /// `raidz1-0`, `mirror-2`; a single device's own name.
    pub fn name(&self) -> String {
        View { frame: &self.frame, shape: &self.shape() }.name()
    }

    /// Space that a block of `psize` bytes takes here, bytes.
    pub fn asize_for(&self, psize: u64) -> u64 {
        self.current.read().shape.asize_for(self.frame.ashift, psize)
    }

    /// See [`Layout::deflate_ratio`].
    pub fn deflate_ratio(&self) -> u64 {
        let current = self.current.read();
        current.shape.layout.deflate_ratio(current.shape.children.len(), self.frame.ashift)
    }

    /// Bytes that count as used of `asize` allocated ones (`vdev_deflated_space`).
    pub fn deflate(&self, asize: u64) -> u64 {
        Sectors::within(asize).0 * self.deflate_ratio()
    }

    /// Counters of the vdev as a whole: blocks, not transfers. (A single device's I/O is counted in its leaf too.)
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The vdev's condition, from its children's (`vdev_propagate_state`).
    pub fn condition(&self) -> Condition {
        self.shape().condition()
    }

    /// Looks whether the devices are still there. Cheap; to be called once in a transaction group. Returns whether
    /// something changed.
    pub fn check_present(&self) -> bool {
        // Every leaf is looked at, also after the first that is gone.
        let leaves = self.leaves();
        leaves.iter().filter(|leaf| leaf.check_present(|| self.can_do_without(leaf))).count() > 0
    }

    /// Whether the others have everything without one of the leaves.
    pub fn can_do_without(&self, leaf: &Leaf) -> bool {
        let shape = self.shape();
        shape.layout != Layout::Single && shape.has_without(|other| std::ptr::eq(other, leaf) || !other.is_complete())
    }

    /// Whether everything can be had without believing a leaf that missed something.
    pub fn has_everything(&self) -> bool {
        self.shape().has_without(|leaf| !leaf.is_complete())
    }

    /// Opens one leaf anew, as `spec` (the leaf's) says now: after `zpool online`, `zpool clear`, a return.
    pub async fn reopen_leaf(&self, leaf: &Leaf, spec: &VdevSpec, opener: &dyn DeviceOpener) {
        let least = self.least_leaf_asize();
        leaf.reopen(spec, opener, least).await;
    }

    /// Allocatable bytes that the device of each leaf must offer.
    pub fn least_leaf_asize(&self) -> u64 {
        let shape = self.shape();
        shape.layout.child_asize(shape.children.len(), self.frame.asize())
    }

    /// Whether children that are much slower than the others are found and sit out (property `autosit`). What is no
    /// RAID-Z group has none.
    pub fn set_autosit(&self, is_on: bool) {
        self.watch.set_on(is_on);
    }

    /// Whether so many children sit out, the one with this leaf aside, that it must not: as many as there is parity.
    pub fn has_sitting_out_without(&self, leaf: &Leaf) -> bool {
        slow_child::has_sitting_out_without(&self.shape(), leaf)
    }

    /// Forgets errors here and below (`zpool clear`).
    pub fn clear_errors(&self) {
        self.stats.clear_errors();
        self.leaves().iter().for_each(|leaf| leaf.clear_errors());
    }

    pub(crate) fn check(&self, shape: &Shape, offset: u64, psize: u64) -> Result<()> {
        let end = offset.checked_add(shape.asize_for(self.frame.ashift, psize.min(PSIZE_MAX)));
        let aligned = offset.is_multiple_of(1 << self.frame.ashift);
        if psize == 0 || psize > PSIZE_MAX || !aligned || end.is_none_or(|end| end > self.frame.asize()) {
            return Err(VdevError::OutOfRange {
                vdev: View { frame: &self.frame, shape }.name(),
                offset,
                psize,
                asize: self.frame.asize(),
            });
        }
        Ok(())
    }

    /// Whether so many children missed group `birth`, or are not there, that a block of it cannot be had without
    /// believing one of those that missed it.
    pub fn is_doubtful(&self, birth: Txg) -> bool {
        !self.can_do_without_group(birth, &[])
    }

    /// Whether a block of group `birth` can be had without these leaves, those that missed it and those that are not
    /// there.
    pub fn can_do_without_group(&self, birth: Txg, leaves: &[Guid]) -> bool {
        let lacks = |leaf: &Leaf| !leaf.is_usable() || leaf.is_missing(birth) || leaves.contains(&leaf.guid());
        self.shape().has_without(lacks)
    }

    /// Reads a block with as few transfers as possible, and with as many as needed: what fails `verify` is taken from
    /// another copy or rebuilt from every combination of parity; what is proven wrong is counted and rewritten.
    ///
    /// # Errors
    /// [`VdevError::OutOfRange`], [`VdevError::NoReplicas`], [`VdevError::Checksum`].
    pub async fn read(&self, extent: Extent, priority: Priority, verify: Verify<'_>) -> Result<(Buf, ReadOutcome)> {
        let shape = self.shape();
        self.check(&shape, extent.offset, extent.psize)?;
        self.stats.note_read(extent.psize);
        let view = View { frame: &self.frame, shape: &shape };
        let result = match shape.layout {
            Layout::Single | Layout::Mirror => Mirror(view).read(extent, priority, verify).await,
            Layout::Raidz { parity } => Raidz { view, parity }.read(extent, priority, verify).await,
        };
        if let Ok((bytes, _)) = &result {
            assert_eq!(bytes.len() as u64, extent.psize, "a read returns the block that was asked for");
            debug_assert!(
                verify.is_right(bytes) || Canary::ChecksumUnverified.sings(),
                "what a read returns has passed"
            );
            if let Layout::Raidz { parity } = shape.layout {
                self.watch.look(&shape, parity);
            }
        }
        self.note_failure(extent, verify, &result);
        result
    }

    /// Reads every copy or column of a block, parity included and from every leaf of a child, and rewrites whatever is
    /// wrong.
    ///
    /// # Errors
    /// As [`Self::read`]: the block is lost.
    pub async fn scrub(&self, extent: Extent, verify: Verify<'_>) -> Result<ScrubOutcome> {
        let shape = self.shape();
        self.check(&shape, extent.offset, extent.psize)?;
        let view = View { frame: &self.frame, shape: &shape };
        let result = match shape.layout {
            Layout::Single | Layout::Mirror => Mirror(view).scrub(extent, verify).await,
            Layout::Raidz { parity } => Raidz { view, parity }.scrub(extent, verify).await,
        };
        self.note_failure(extent, verify, &result);
        if let Ok(outcome) = &result {
            self.stats.note_read(outcome.examined_bytes);
        }
        result
    }

    fn note_failure<T>(&self, extent: Extent, verify: Verify<'_>, result: &Result<T>) {
        match result {
            Ok(_) => {}
            _ if extent.speculative || !verify.is_in_use() => {}
            Err(VdevError::Checksum { .. }) => self.stats.note_checksum_error(false),
            Err(VdevError::NoReplicas { .. } | VdevError::Doubtful { .. }) => self.stats.note_read_error(),
            _ => {}
        }
    }

    /// Writes a block in group `txg`. Bytes up to the next sector boundary become zeros. Children that did not take it
    /// have missed the group, unless it failed as a whole: whoever relies on another copy of it then says so with
    /// [`Self::note_unwritten`].
    ///
    /// # Errors
    /// [`VdevError::OutOfRange`]; [`VdevError::NoReplicas`] when too few children took it for it to be readable.
    pub async fn write(&self, offset: u64, data: Buf, txg: Txg, priority: Priority) -> Result<()> {
        let shape = self.shape();
        self.write_in(&shape, offset, data, Purpose::New { txg }, priority).await
    }

    async fn write_in(
        &self,
        shape: &Shape,
        offset: u64,
        data: Buf,
        purpose: Purpose,
        priority: Priority,
    ) -> Result<()> {
        let psize = data.len() as u64;
        self.check(shape, offset, psize)?;
        self.stats.note_write(psize);
        let data = self.pad(data);
        let _turn = self.turns.write((offset, data.len() as u64)).await;
        let view = View { frame: &self.frame, shape };
        let result = match shape.layout {
            Layout::Single | Layout::Mirror => Mirror(view).write(offset, data, purpose, priority).await,
            Layout::Raidz { parity } => Raidz { view, parity }.write(offset, data, purpose, priority).await,
        };
        if result.is_err() {
            self.stats.note_write_error();
        }
        result
    }

    /// Rewrites a block whose right contents are known from elsewhere (another copy of it on another vdev). Returns
    /// how many bytes were written: none when the pool is open for reading only.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn repair(&self, extent: Extent, data: Buf, by_scrub: bool) -> Result<u64> {
        if !self.frame.writable {
            return Ok(0);
        }
        let priority = if by_scrub { Priority::Scrub } else { Priority::AsyncWrite };
        let shape = self.shape();
        self.write_in(&shape, extent.offset, data, Purpose::Again { birth: extent.birth }, priority).await?;
        self.stats.note_repair(extent.psize, by_scrub);
        Ok(extent.psize)
    }

    /// A block of group `txg` counts although too few children took this copy of it.
    pub fn note_unwritten(&self, txg: Txg) {
        self.leaves().iter().for_each(|leaf| leaf.note_missing(txg));
    }

    fn pad(&self, data: Buf) -> Buf {
        let length = self.frame.padded(data.len() as u64) as usize;
        if length == data.len() {
            return data;
        }
        let mut padded = BufMut::zeroed(length);
        padded[..data.len()].copy_from_slice(&data);
        padded.freeze()
    }

    /// Makes everything that was written in group `txg` stable. A leaf that fails to, or that was given up since it
    /// took its writes, may have lost any of them: the group goes to its dirty time log. A child fails when all its
    /// leaves do.
    ///
    /// # Errors
    /// [`VdevError::NoReplicas`] when more children failed than redundancy covers; the failures are counted.
    pub async fn flush(&self, txg: Txg) -> Result<()> {
        self.flush_for(Flush::Group(txg)).await
    }

    /// Makes blocks of an intent log stable that were allocated in group `txg`, which may be long ago. What else a leaf
    /// may have lost is listed with the next [group](Self::flush).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn flush_log(&self, txg: Txg) -> Result<()> {
        self.flush_for(Flush::Log(txg)).await
    }

    async fn flush_for(&self, end: Flush) -> Result<()> {
        let shape = self.shape();
        let flushes = join_all(shape.children.iter().map(|child| child.flush(end))).await;
        let failures: Vec<String> =
            flushes.into_iter().filter_map(|flushed| flushed.err()).map(|e| e.to_string()).collect();
        if failures.len() > shape.redundancy() {
            let detail = format!("flush: {}", failures.join("; "));
            let vdev = View { frame: &self.frame, shape: &shape }.name();
            return Err(VdevError::NoReplicas { vdev, offset: 0, psize: 0, detail });
        }
        Ok(())
    }
}

/// What each leaf must offer for the configured size; the last, partial metaslab does not count.
fn least_child_asize(spec: &VdevSpec, layout: Layout, children: usize) -> u64 {
    let metaslab = 1u64 << spec.metaslab_shift.min(63);
    layout.child_asize(children, spec.asize / metaslab * metaslab)
}
