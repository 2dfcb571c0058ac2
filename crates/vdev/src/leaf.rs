//! A leaf vdev: one device, its condition, its queue, its counters and what it has missed.
//!
//! Invariants:
//! - a leaf that is not usable has no device open and takes no I/O;
//! - data addresses are offsets into the allocatable space; only the `physical` functions count from the device's
//!   start;
//! - what it failed to write is in the list of groups it misses; so is what it had taken and not yet flushed when it
//!   was closed or given up, since nobody knows whether that is there;
//! - a transfer that fails is counted and followed by a probe of the labels; a device whose labels cannot be read (or
//!   written, when the pool is) is given up;
//! - a write that fails is tried once more on a device that is kept (`zio_vdev_io_assess`, `module/zfs/zio.c`): what
//!   fails for a moment on several devices would else leave each of them without another part of a group.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use platter_buffer::{Buf, BufMut};
use platter_device::{BlockDevice, DeviceError, Presence, ReadSlot, TrimSupport};
use platter_hooks::Canary;
use platter_ondisk::label::{
    BOOT_ENV_OFFSET, VDEV_LABEL_START_SIZE, VDEV_LABELS, VDEV_PAD_SIZE, label_offset, usable_size,
};
use platter_ondisk::{Guid, Txg};

use crate::error::{Result, VdevError};
use crate::extent::Extent;
use crate::geometry::{self, DEVICE_SIZE_MIN};
use crate::histograms::Histograms;
use crate::lists::{Flush, Lists};
use crate::missing::{MissingRanges, Remainder};
use crate::opener::{DeviceOpener, OpenError};
use crate::priority::{PerClass, Priority};
use crate::purpose::Purpose;
use crate::queue::{Queue, read_whole};
use crate::sit_out::SitOut;
use crate::spec::{VdevKind, VdevSpec};
use crate::state::{Condition, VdevAux, VdevState};
use crate::stats::Stats;
use crate::trouble::LeafTrouble;

/// What is said of a device that cannot be written to, where it has to be.
pub const READ_ONLY: &str = "the device is read-only";

/// Hears of troubles; must not block.
pub type Listener = Box<dyn Fn(&Leaf, &LeafTrouble) + Send + Sync>;

/// One stretch of time during which a leaf's device was open. A device that went away and came back has another: what
/// was known about it must be proven anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening(u64);

struct Inner {
    queue: Option<Arc<Queue>>,
    /// Counts openings and closings.
    opening: u64,
    condition: Condition,
    /// Usable bytes of the device when it was last open, and whether it could be trimmed.
    psize: u64,
    trim_support: TrimSupport,
    path: Option<PathBuf>,
}

impl Inner {
    /// What is true whenever the lock is free. While a leaf is being opened anew its condition is still the old one.
    fn assert_internally_consistent(&self) {
        let is_open = self.queue.is_some();
        assert!(!is_open || self.condition.is_usable(), "a leaf that cannot be used has no device open");
        assert!(!is_open || self.psize > 0, "the size of an open device is known");
    }

    /// Whether the open device is the one behind `queue`: it may have been closed or opened anew.
    fn is_behind(&self, queue: &Arc<Queue>) -> bool {
        self.queue.as_ref().is_some_and(|current| Arc::ptr_eq(current, queue))
    }
}

/// A leaf vdev. See the module text.
pub struct Leaf {
    id: u64,
    guid: AtomicU64,
    kind: VdevKind,
    whole_disk: bool,
    create_txg: Txg,
    writable: bool,
    inner: RwLock<Inner>,
    stats: Stats,
    histograms: Arc<Histograms>,
    lists: Mutex<Lists>,
    pub(crate) sit_out: SitOut,
    /// Whether the device was closed or given up after it had taken writes that no flush has covered yet.
    interrupted: AtomicBool,
    probing: AtomicBool,
    listener: OnceLock<Listener>,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leaf({}, {})", self.name(), self.condition().name())
    }
}

impl Leaf {
    /// Opens the device of a leaf. Never fails: what is wrong is in [`Self::condition`]. `writable` says whether the
    /// pool is; `least_asize` is what the device must offer (0 when unknown).
    pub async fn open(spec: &VdevSpec, opener: &dyn DeviceOpener, writable: bool, least_asize: u64) -> Arc<Self> {
        let leaf = Arc::new(Self {
            id: spec.id,
            guid: AtomicU64::new(spec.guid.0),
            kind: spec.kind.clone(),
            whole_disk: spec.whole_disk,
            create_txg: spec.create_txg,
            writable,
            inner: RwLock::new(Inner {
                queue: None,
                opening: 0,
                condition: Condition::new(VdevState::Closed, VdevAux::None),
                psize: 0,
                trim_support: TrimSupport::default(),
                path: spec.path.clone(),
            }),
            stats: Stats::default(),
            histograms: Arc::default(),
            lists: Mutex::default(),
            sit_out: SitOut::default(),
            interrupted: AtomicBool::new(false),
            probing: AtomicBool::new(false),
            listener: OnceLock::new(),
        });
        leaf.reopen(spec, opener, least_asize).await;
        leaf
    }

    /// Closes the device and opens it anew, as `spec` says now.
    pub async fn reopen(&self, spec: &VdevSpec, opener: &dyn DeviceOpener, least_asize: u64) {
        self.let_go(&mut self.inner.write());
        let (queue, condition) = self.try_open(spec, opener, least_asize).await;
        assert_eq!(queue.is_some(), condition.is_usable(), "a leaf can be used as long as its device is open");
        let mut inner = self.inner.write();
        // Whoever opened it meanwhile may have written there.
        self.let_go(&mut inner);
        if let Some(queue) = &queue {
            inner.psize = usable_size(queue.device().size());
            inner.trim_support = queue.device().trim_support();
            if let Some(path) = queue.device().path() {
                inner.path = Some(path.to_owned());
            }
        }
        inner.condition = condition.clone();
        inner.queue = queue;
        inner.assert_internally_consistent();
        drop(inner);
        self.tell(&LeafTrouble::State(condition));
    }

    /// Tells `listener` what goes wrong from now on. The first call counts.
    pub fn set_listener(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    pub(crate) fn tell(&self, trouble: &LeafTrouble) {
        if let Some(listener) = self.listener.get() {
            listener(self, trouble);
        }
    }

    /// Counts bytes of a block, read for work of class `priority`, that were not what had been written.
    pub(crate) fn note_wrong(&self, extent: Extent, priority: Priority) {
        self.stats.note_checksum_error(priority == Priority::Scrub);
        self.tell(&LeafTrouble::Checksum { offset: extent.offset, size: extent.psize });
    }

    /// Counts a label that a scrub found damaged: so many bytes, so far from the device's beginning.
    pub fn note_wrong_label(&self, offset: u64, size: u64) {
        self.stats.note_checksum_error(true);
        self.tell(&LeafTrouble::Checksum { offset, size });
    }

    async fn try_open(
        &self,
        spec: &VdevSpec,
        opener: &dyn DeviceOpener,
        least_asize: u64,
    ) -> (Option<Arc<Queue>>, Condition) {
        let unusable = |state, aux, detail: String| (None, Condition::new(state, aux).with_detail(detail));
        if spec.faulted {
            let aux = if spec.external { VdevAux::External } else { VdevAux::ErrorExceeded };
            return (None, Condition::new(VdevState::Faulted, aux));
        }
        if spec.offline {
            return (None, Condition::new(VdevState::Offline, VdevAux::None));
        }
        if spec.kind == VdevKind::Missing {
            return (None, Condition::new(VdevState::CantOpen, VdevAux::OpenFailed));
        }
        let device = match opener.open(spec).await {
            Ok(device) => device,
            Err(OpenError::Refused { aux, detail }) => return unusable(VdevState::CantOpen, aux, detail),
            Err(OpenError::Device(error)) if error.is_not_found() && spec.removed => {
                return unusable(VdevState::Removed, VdevAux::None, error.to_string());
            }
            Err(OpenError::Device(error)) => {
                return unusable(VdevState::CantOpen, VdevAux::OpenFailed, error.to_string());
            }
        };
        if device.size() < DEVICE_SIZE_MIN {
            let detail = format!("{} bytes, at least {DEVICE_SIZE_MIN} are needed", device.size());
            return unusable(VdevState::CantOpen, VdevAux::TooSmall, detail);
        }
        let asize = geometry::leaf_asize(usable_size(device.size()));
        if asize < least_asize {
            let detail = format!("the device has shrunk: {asize} allocatable bytes, {least_asize} are needed");
            return unusable(VdevState::CantOpen, VdevAux::BadLabel, detail);
        }
        if self.writable && !device.is_writable() {
            return unusable(VdevState::CantOpen, VdevAux::OpenFailed, READ_ONLY.into());
        }
        let condition = if spec.degraded {
            let aux = if spec.external { VdevAux::External } else { VdevAux::ErrorExceeded };
            Condition::new(VdevState::Degraded, aux)
        } else {
            Condition::HEALTHY
        };
        (Some(Arc::new(Queue::new(device, self.histograms.clone()))), condition)
    }

    /// Closes the device and says why: offline, faulted by the administrator, a label that belongs to something else.
    pub fn close(&self, condition: Condition) {
        assert!(!condition.is_usable(), "a leaf without a device cannot be used");
        let mut inner = self.inner.write();
        inner.condition = condition;
        self.let_go(&mut inner);
        inner.assert_internally_consistent();
    }

    /// Drops the device.
    fn let_go(&self, inner: &mut Inner) {
        inner.opening += 1;
        if inner.queue.take().is_some() {
            self.interrupted.store(true, Ordering::SeqCst);
        }
    }

    /// The present opening, while the leaf can be used.
    pub fn opening(&self) -> Option<Opening> {
        let inner = self.inner.read();
        (inner.queue.is_some() && inner.condition.is_usable()).then_some(Opening(inner.opening))
    }

    /// Index among its siblings.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Identity.
    pub fn guid(&self) -> Guid {
        Guid(self.guid.load(Ordering::Relaxed))
    }

    /// Gives it another identity: that of the mirror whose last side it is.
    pub fn set_guid(&self, guid: Guid) {
        self.guid.store(guid.0, Ordering::Relaxed);
    }

    /// File or disk.
    pub fn kind(&self) -> &VdevKind {
        &self.kind
    }

    /// Whether the pool owns the whole disk.
    pub fn is_whole_disk(&self) -> bool {
        self.whole_disk
    }

    /// The group in which it joined.
    pub fn create_txg(&self) -> Txg {
        self.create_txg
    }

    /// Where the device is, or was last.
    pub fn path(&self) -> Option<PathBuf> {
        self.inner.read().path.clone()
    }

    /// What to call it: its path, else its guid.
    pub fn name(&self) -> String {
        self.path().map_or_else(|| self.guid().to_string(), |path| path.display().to_string())
    }

    /// How far it can be used, and why not further.
    pub fn condition(&self) -> Condition {
        self.inner.read().condition.clone()
    }

    /// Usable bytes of the device (whole labels) when it was last open; 0 when it never was.
    pub fn psize(&self) -> u64 {
        self.inner.read().psize
    }

    /// Looks whether the device has grown, and uses the size that it has then.
    pub async fn look_at_size(&self) {
        let Some(device) = self.device() else { return };
        let size = usable_size(device.look_at_size().await);
        let mut inner = self.inner.write();
        let is_there = inner.queue.as_ref().is_some_and(|queue| Arc::ptr_eq(queue.device(), &device));
        inner.psize = inner.psize.max(if is_there { size } else { 0 });
    }

    /// Whether the device can be trimmed, or could when it was last open.
    pub fn trim_support(&self) -> TrimSupport {
        self.device().map_or_else(|| self.inner.read().trim_support, |device| device.trim_support())
    }

    /// Allocatable bytes of the device.
    pub fn asize(&self) -> u64 {
        geometry::leaf_asize(self.psize())
    }

    /// The open device.
    pub fn device(&self) -> Option<Arc<dyn BlockDevice>> {
        self.inner.read().queue.as_ref().map(|queue| queue.device().clone())
    }

    /// Whether reads and writes go there.
    pub fn is_usable(&self) -> bool {
        let inner = self.inner.read();
        inner.queue.is_some() && inner.condition.is_usable()
    }

    /// Whether the pool may write to it.
    pub fn is_writable(&self) -> bool {
        self.writable && self.is_usable()
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Latencies and sizes of its transfers.
    pub fn histograms(&self) -> &Histograms {
        &self.histograms
    }

    /// Transfers of each class (under way, waiting).
    pub fn queue_depth(&self) -> PerClass<(usize, usize)> {
        self.inner.read().queue.as_ref().map_or_else(PerClass::default, |queue| queue.depth())
    }

    /// Transfers waiting and under way.
    pub fn load(&self) -> usize {
        self.inner.read().queue.as_ref().map_or(0, |queue| queue.load())
    }

    /// The groups whose writes it has missed.
    pub fn missing(&self) -> MissingRanges {
        self.lists.lock().missing.clone()
    }

    /// Replaces the groups whose writes it has missed (from the DTL on disk).
    pub fn set_missing(&self, ranges: MissingRanges) {
        self.lists.lock().missing = ranges;
    }

    /// Notes that it missed (part of) a group's writes, or that a block of that group could not be rewritten on it.
    pub fn note_missing(&self, txg: Txg) {
        self.lists.lock().note(txg);
    }

    /// Whether it can be used and has everything.
    pub fn is_complete(&self) -> bool {
        // What was open with writes that no flush covered gets its list only with the next flush.
        self.is_usable() && self.missing().is_empty() && !self.is_interrupted()
    }

    /// Whether its device was closed or given up since the last flush: what it had taken may be lost, and not listed.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Whether a block born in `txg` may not be there.
    pub fn is_missing(&self, txg: Txg) -> bool {
        self.lists.lock().missing.contains(txg)
    }

    /// Whether what it holds of a block may be from before the block's time.
    pub(crate) fn is_stale_for(&self, extent: Extent) -> bool {
        self.is_missing(extent.birth) && (extent.checked || !Canary::StaleBelieved.sings())
    }

    /// A scan begins that is to make up for what is missing: returns the list as of now, and notes from here on what
    /// the scan must not take for done.
    pub fn begin_scan(&self) -> MissingRanges {
        let mut lists = self.lists.lock();
        lists.noted = MissingRanges::new();
        lists.missing.clone()
    }

    /// Groups of which something was noted since the scan began.
    pub fn noted(&self) -> MissingRanges {
        self.lists.lock().noted.clone()
    }

    /// A scan has made up for the groups in `proven`, except for what was noted since it began. Returns what is left.
    pub fn forget(&self, proven: &MissingRanges) -> Remainder {
        let mut lists = self.lists.lock();
        let mut proven = proven.clone();
        if !Canary::FailedRepairForgotten.sings() {
            proven.subtract(&lists.noted);
        }
        lists.missing.subtract(&proven);
        Remainder { missing: lists.missing.clone(), noted: lists.noted.clone() }
    }

    /// Notes that the leaf lacks the groups `first ..= last`, which are none when `last` is before `first`.
    pub fn note_lacking(&self, first: Txg, last: Txg) {
        self.lists.lock().missing.note_range(first, last);
    }

    /// A flush failed, or came after the device had been closed in between. Only one for a group takes note of all that
    /// may be lost by that.
    pub(crate) fn note_unflushed(&self, end: Flush, failed: bool) {
        let interrupted = match end {
            Flush::Group(_) => self.interrupted.swap(false, Ordering::SeqCst),
            Flush::Log(_) => self.is_interrupted(),
        };
        self.lists.lock().note_unflushed(end, interrupted, failed);
    }

    fn queue(&self) -> Result<Arc<Queue>> {
        self.data_queue(0, 0)
    }

    /// The queue for a write of data, which never reaches into the labels behind it: a tampered pool may say that it is
    /// larger than its devices are.
    pub(crate) fn data_queue(&self, offset: u64, psize: u64) -> Result<Arc<Queue>> {
        let inner = self.inner.read();
        let asize = geometry::leaf_asize(inner.psize);
        match &inner.queue {
            Some(queue) if inner.condition.is_usable() && offset + psize <= asize => return Ok(queue.clone()),
            Some(_) if inner.condition.is_usable() => {}
            _ => {
                drop(inner);
                return Err(self.unavailable());
            }
        }
        drop(inner);
        Err(VdevError::OutOfRange { vdev: self.name(), offset, psize, asize })
    }

    /// The error of using it while it cannot be used.
    pub(crate) fn unavailable(&self) -> VdevError {
        let condition = self.condition();
        let reason = condition.detail.clone().unwrap_or_else(|| condition.name().to_owned());
        VdevError::Unavailable { leaf: self.name(), reason }
    }

    /// Reads at an offset from the device's start (labels).
    ///
    /// # Errors
    /// [`VdevError::Unavailable`] or the device's own.
    pub async fn read_physical(&self, offset: u64, length: usize) -> Result<BufMut> {
        let queue = self.queue()?;
        self.stats.note_read(length as u64);
        match read_whole(&queue, offset, length, Priority::SyncRead).await {
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(self.failed_read(&queue, error).await),
        }
    }

    /// Writes at an offset from the device's start (labels).
    ///
    /// # Errors
    /// [`VdevError::Unavailable`] or the device's own.
    pub async fn write_physical(&self, offset: u64, data: Buf) -> Result<()> {
        self.write_at(offset, vec![data], Priority::SyncWrite).await
    }

    /// Reads `length` bytes of label `index` (0 to 3), from `offset` within the label.
    ///
    /// # Errors
    /// As [`Self::read_physical`].
    pub async fn read_label_area(&self, index: usize, offset: u64, length: usize) -> Result<BufMut> {
        self.queue()?;
        self.read_physical(label_offset(self.psize(), index) + offset, length).await
    }

    /// Writes within label `index`.
    ///
    /// # Errors
    /// As [`Self::write_physical`].
    pub async fn write_label_area(&self, index: usize, offset: u64, data: Buf) -> Result<()> {
        self.queue()?;
        self.write_physical(label_offset(self.psize(), index) + offset, data).await
    }

    /// Makes what was written stable. A leaf that is not usable has nothing to flush.
    ///
    /// # Errors
    /// The device's own.
    pub async fn flush(&self) -> Result<()> {
        let Ok(queue) = self.queue() else { return Ok(()) };
        self.stats.note_flush();
        match queue.device().flush().await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.stats.note_write_error();
                self.after_failure(&queue, &error).await;
                Err(error.into())
            }
        }
    }

    /// Fills `slot` from an offset in the allocatable space.
    pub(crate) async fn read_data(&self, offset: u64, slot: ReadSlot, priority: Priority) -> Result<()> {
        let queue = self.queue()?;
        self.stats.note_read(slot.len() as u64);
        match queue.read(VDEV_LABEL_START_SIZE + offset, slot, priority).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed_read(&queue, error).await),
        }
    }

    /// Writes at an offset in the allocatable space.
    pub(crate) async fn write_data(&self, offset: u64, data: Vec<Buf>, priority: Priority) -> Result<()> {
        let queue = self.data_queue(offset, data.iter().map(|buf| buf.len() as u64).sum())?;
        self.write_through(queue, VDEV_LABEL_START_SIZE + offset, data, priority).await
    }

    /// Writes for `purpose`. Who does not take a block again that it had has lost what was there, and a running scan
    /// must not take it for done; but one that is away was not asked, and still has what it has.
    pub(crate) async fn write_for(
        &self,
        purpose: Purpose,
        offset: u64,
        data: Vec<Buf>,
        priority: Priority,
    ) -> Result<()> {
        let written = self.write_data(offset, data, priority).await;
        if let (Purpose::Again { birth }, Err(error)) = (purpose, &written)
            && (!matches!(error, VdevError::Unavailable { .. }) || self.is_missing(birth))
        {
            self.note_missing(birth);
        }
        written
    }

    /// Lets zeros be written at an offset in the allocatable space where that joins two writes of a group's data.
    pub(crate) async fn pad(&self, offset: u64, length: u64) {
        if let Ok(queue) = self.queue() {
            queue.pad(VDEV_LABEL_START_SIZE + offset, length).await;
        }
    }

    async fn write_at(&self, offset: u64, data: Vec<Buf>, priority: Priority) -> Result<()> {
        self.write_through(self.queue()?, offset, data, priority).await
    }

    async fn write_through(&self, queue: Arc<Queue>, at: u64, data: Vec<Buf>, priority: Priority) -> Result<()> {
        self.stats.note_write(data.iter().map(|buf| buf.len() as u64).sum());
        let Err(error) = self.try_write(&queue, at, data.clone(), priority).await else { return Ok(()) };
        if !self.is_open(&queue) {
            return Err(error);
        }
        self.try_write(&queue, at, data, priority).await
    }

    async fn try_write(&self, queue: &Arc<Queue>, offset: u64, data: Vec<Buf>, priority: Priority) -> Result<()> {
        let Err(error) = queue.write(offset, data, priority).await else { return Ok(()) };
        self.stats.note_write_error();
        self.after_failure(queue, &error).await;
        Err(error.into())
    }

    /// Whether the device behind `queue` is still the leaf's.
    fn is_open(&self, queue: &Arc<Queue>) -> bool {
        self.inner.read().is_behind(queue)
    }

    async fn failed_read(&self, queue: &Arc<Queue>, error: DeviceError) -> VdevError {
        self.stats.note_read_error();
        self.after_failure(queue, &error).await;
        error.into()
    }

    /// Decides after a failed transfer whether the device is still worth using.
    async fn after_failure(&self, queue: &Arc<Queue>, error: &DeviceError) {
        self.tell(&LeafTrouble::Io { reason: error.to_string() });
        if let DeviceError::Gone { reason, .. } = error {
            self.give_up(queue, Condition::new(VdevState::Removed, VdevAux::None).with_detail(reason.clone()));
            return;
        }
        if self.probing.swap(true, Ordering::SeqCst) {
            return;
        }
        let works = self.probe(queue).await;
        self.probing.store(false, Ordering::SeqCst);
        if !works {
            let detail = format!("the labels cannot be accessed after: {error}");
            self.tell(&LeafTrouble::Probe { reason: detail.clone() });
            self.give_up(queue, Condition::new(VdevState::Faulted, VdevAux::ErrorExceeded).with_detail(detail));
        }
    }

    /// Closes the device, unless it was reopened in the meantime.
    pub(crate) fn give_up(&self, queue: &Arc<Queue>, condition: Condition) {
        let mut inner = self.inner.write();
        if inner.is_behind(queue) {
            // Whoever listens says it, with the pool's name.
            tracing::debug!("{}: {}", self.kind, condition.detail.as_deref().unwrap_or(condition.name()));
            inner.condition = condition.clone();
            self.let_go(&mut inner);
            inner.assert_internally_consistent();
            drop(inner);
            self.tell(&LeafTrouble::State(condition));
        }
    }

    /// Whether the boot environment or, failing that, the blank area of some label can be read and, when the pool is
    /// writable, be written with what it holds (`vdev_probe`, which tries the boot environments only: bad sectors
    /// gather there until the disk is given up for them, as only a scrub mends them, and only ours).
    async fn probe(&self, queue: &Arc<Queue>) -> bool {
        let device = queue.device();
        let psize = usable_size(device.size());
        for area in [BOOT_ENV_OFFSET, 0] {
            for index in 0..VDEV_LABELS {
                let offset = label_offset(psize, index) + area;
                let Ok(bytes) = device.read(offset, VDEV_PAD_SIZE as usize).await else { continue };
                if !self.writable || device.write(offset, vec![bytes.freeze()]).await.is_ok() {
                    return true;
                }
            }
        }
        false
    }

    /// A cheap look whether the device is still there; when it is not, it is closed and marked removed. A file that was
    /// deleted works for as long as it is open: it is degraded, and used on, unless it is `dispensable`. Returns
    /// whether its condition changed.
    pub fn check_present(&self, dispensable: impl FnOnce() -> bool) -> bool {
        let Ok(queue) = self.queue() else { return false };
        match queue.device().presence() {
            Presence::Present => false,
            Presence::Unlinked(reason) if !dispensable() => {
                self.degrade(&queue, Condition::new(VdevState::Degraded, VdevAux::None).with_detail(reason))
            }
            Presence::Gone(reason) | Presence::Unlinked(reason) => {
                self.give_up(&queue, Condition::new(VdevState::Removed, VdevAux::None).with_detail(reason));
                true
            }
        }
    }

    /// Something is wrong with it, as `aux` says, and it is used on all the same. Returns whether that is new.
    pub fn distrust(&self, aux: VdevAux) -> bool {
        let condition = Condition::new(VdevState::Degraded, aux);
        self.queue().is_ok_and(|queue| self.degrade(&queue, condition))
    }

    /// Notes what is wrong with a device that is used on. Returns whether that is new.
    fn degrade(&self, queue: &Arc<Queue>, condition: Condition) -> bool {
        let mut inner = self.inner.write();
        if !inner.is_behind(queue) || inner.condition == condition {
            return false;
        }
        inner.condition = condition.clone();
        inner.assert_internally_consistent();
        drop(inner);
        self.tell(&LeafTrouble::State(condition));
        true
    }

    /// Forgets errors, and that it was degraded by them (`zpool clear`). A faulted leaf needs [`Self::reopen`] too.
    pub fn clear_errors(&self) {
        self.stats.clear_errors();
        self.histograms.clear_slow();
        self.end_sit_out();
        let mut inner = self.inner.write();
        if inner.condition.state == VdevState::Degraded {
            inner.condition = Condition::HEALTHY;
        }
    }
}
