//! The pool's blocks: the allocator, the vdevs and the cache behind [`crate::BlockStore`].
//!
//! Invariants:
//! - a block is inserted into the cache only after its checksum matched or its write succeeded;
//! - allocation and freeing happen in the syncing group only; frees of sync pass 2 and later go to a list that the next
//!   group works off (`zfs_sync_pass_deferred_free`), so that sync converges;
//! - a write that failed on more devices than redundancy covers suspends the pool and is tried again when it is
//!   resumed; when the pool is stopped instead it is an error, never dropped: no uberblock will point to it.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use platter_checksum::{Checksums, SALT_SIZE, Words};
use platter_hooks::Cpu;
use platter_ondisk::{BlkPtr, Checksum, Txg};
use platter_vdev::{AllocationClass, Priority, TopVdev};
use tokio::sync::{Notify, Semaphore};

use crate::allocator::Allocator;
use crate::born::{BLOCKS_MAX, Born};
use crate::cache::BlockCache;
use crate::compressed::CompressedBefore;
use crate::error::{Result, ZioError};
use crate::l2arc::L2arc;
use crate::large::Large;
use crate::map_reader::MapReader;
use crate::policy::Bookmark;
use crate::suspension::{FailMode, Suspension};
use crate::syncing::is_syncing;
use crate::vdev_table::VdevTable;

/// Blocks being compressed or written at one time.
const WRITES_IN_FLIGHT: usize = 512;

/// A block that no copy or parity could restore, as reported to the pool's error log.
pub type DamageListener = Box<dyn Fn(Bookmark, &BlkPtr) + Send + Sync>;

/// Shared state of [`Store`].
pub struct StoreState {
    /// Top-level vdevs by index; holes in the numbering are `None`.
    pub vdevs: VdevTable,
    /// Space.
    pub allocator: Mutex<Allocator>,
    /// Contents.
    pub cache: BlockCache,
    /// What cache devices have of it.
    pub l2arc: L2arc,
    /// The pass of the running sync, 1-based; 0 outside.
    pub pass: AtomicU32,
    /// Freed in pass 2 or later.
    pub late_frees: Mutex<Vec<BlkPtr>>,
    /// First error of a free (a double free): the sync fails on it.
    pub free_error: Mutex<Option<ZioError>>,
    /// log2 of the smallest allocation over all vdevs (`spa_min_alloc`).
    pub min_ashift: u32,
    /// Bytes that were found wrong and rewritten since the pool was opened.
    pub repaired_bytes: AtomicU64,
    /// The part of these that was read by a walk ([`Priority::Scrub`](crate::Priority)), until a scan counts it as its.
    pub repaired_by_walks: AtomicU64,
    /// Blocks larger than this are written as gang blocks (`metaslab_force_ganging`, for tests); bytes.
    pub force_ganging: AtomicU64,
    on_damage: Mutex<Option<DamageListener>>,
    /// Whether I/O that no device can do waits.
    pub(crate) suspension: Arc<Suspension>,
    pub(crate) born: Mutex<Born>,
    /// Blocks of a group that are remembered before they are made durable (tests make it small).
    pub born_max: AtomicUsize,
    /// Held by the writer that makes them durable.
    pub(crate) settling: tokio::sync::Mutex<()>,
    /// The salted checksums, once the salt is known. The MOS itself, where the salt is, never needs them.
    checksums: OnceLock<Checksums>,
    cpu: OnceLock<Cpu>,
    pub(crate) write_slots: Semaphore,
    pub(crate) compressed_before: CompressedBefore,
    /// Memory of large blocks that are read or written.
    pub large: Large,
    /// Held while a space map is read or written.
    pub(crate) maps: tokio::sync::Mutex<()>,
    pub(crate) map_reader: OnceLock<Arc<dyn MapReader>>,
    /// Told when a metaslab is no longer disabled.
    pub(crate) enabled: Notify,
}

/// Handle to the pool's blocks; cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) state: Arc<StoreState>,
}

impl Store {
    /// A store over `vdevs` with `cache_bytes` of cache. The allocator starts empty: groups are added when space maps
    /// are loaded.
    pub fn new(vdevs: Vec<Option<Arc<TopVdev>>>, cache_bytes: u64) -> Self {
        let min_ashift = vdevs.iter().flatten().map(|v| u32::from(v.ashift())).min().unwrap_or(9);
        Self {
            state: Arc::new(StoreState {
                vdevs: VdevTable::new(vdevs),
                allocator: Mutex::default(),
                cache: BlockCache::new(cache_bytes),
                l2arc: L2arc::default(),
                pass: AtomicU32::new(0),
                late_frees: Mutex::default(),
                free_error: Mutex::default(),
                min_ashift,
                repaired_bytes: AtomicU64::new(0),
                repaired_by_walks: AtomicU64::new(0),
                force_ganging: AtomicU64::new(u64::MAX),
                on_damage: Mutex::new(None),
                suspension: Arc::default(),
                born: Mutex::default(),
                born_max: AtomicUsize::new(BLOCKS_MAX),
                settling: tokio::sync::Mutex::default(),
                checksums: OnceLock::new(),
                cpu: OnceLock::new(),
                write_slots: Semaphore::new(WRITES_IN_FLIGHT),
                compressed_before: CompressedBefore::default(),
                large: Large::default(),
                maps: tokio::sync::Mutex::default(),
                map_reader: OnceLock::new(),
                enabled: Notify::new(),
            }),
        }
    }

    /// Hands over who is told about heavy computation; the first call counts.
    pub fn set_cpu(&self, cpu: Cpu) {
        for vdev in self.state.vdevs.iter().flatten() {
            vdev.set_cpu(cpu.clone());
        }
        let _ = self.state.cpu.set(cpu);
    }

    /// Who is told about heavy computation.
    pub fn cpu(&self) -> &Cpu {
        self.state.cpu.get().unwrap_or(&Cpu::FREE)
    }

    /// The shared state.
    pub fn state(&self) -> &StoreState {
        &self.state
    }

    /// Whether I/O that no device can do waits.
    pub fn suspension(&self) -> &Arc<Suspension> {
        &self.state.suspension
    }

    /// The top-level vdev with this number; none when the pool has no such vdev, or no longer.
    pub fn top(&self, vdev: u32) -> Option<&Arc<TopVdev>> {
        self.state.vdevs.get(vdev as usize).and_then(Option::as_ref)
    }

    /// Whether enough of some copy's devices can be used.
    pub(crate) fn is_reachable(&self, bp: &BlkPtr) -> bool {
        bp.dvas().any(|dva| self.top(dva.vdev).is_none_or(|vdev| vdev.condition().is_usable()))
    }

    /// Whether a read that devices failed waits until they are back. A reader is told of an error on a device that
    /// can be used; one that is gone is waited for, unless property `failmode` is `continue`.
    pub(crate) fn waits_for_devices(&self, bp: &BlkPtr, priority: Priority) -> bool {
        match priority {
            _ if is_syncing() => true,
            // A scrub would otherwise call everything lost.
            Priority::Scrub => self.state.suspension.is_suspended() || !self.is_reachable(bp),
            _ => self.state.suspension.mode() != Some(FailMode::Continue) && !self.is_reachable(bp),
        }
    }

    /// Hands over the pool's salt, without which blocks with a salted checksum can be neither verified nor written. The
    /// first call counts: a pool's salt never changes.
    pub fn set_salt(&self, salt: [u8; SALT_SIZE]) {
        let known = self.state.checksums.get_or_init(|| Checksums::new(salt));
        debug_assert_eq!(known.salt(), &salt, "a pool's salt never changes");
    }

    /// Whether the pool's salt is known.
    pub fn has_salt(&self) -> bool {
        self.state.checksums.get().is_some()
    }

    /// Whether blocks with checksum `kind` can be verified.
    pub(crate) fn can_verify(&self, kind: Checksum) -> bool {
        platter_checksum::is_known(kind)
            && (!platter_checksum::needs_salt(kind) || self.state.checksums.get().is_some())
    }

    /// Whether a block's checksum tells right from wrong.
    pub(crate) fn can_tell(&self, bp: &BlkPtr) -> bool {
        let kind = bp.checksum_kind();
        !matches!(kind, Checksum::OFF | Checksum::NOPARITY) && self.can_verify(kind)
    }

    /// The checksum of `bytes` as this machine writes it; `None` for an unknown kind, or a salted one without salt.
    pub(crate) fn checksum(&self, kind: Checksum, bytes: &[u8]) -> Option<Words> {
        match self.state.checksums.get() {
            Some(checksums) => checksums.compute(kind, bytes),
            None => platter_checksum::compute(kind, bytes),
        }
    }

    /// The checksum of `bytes` in the byte order of the writer of `bp`.
    pub(crate) fn checksum_of(&self, bp: &BlkPtr, bytes: &[u8]) -> Option<Words> {
        match (bp.is_little_endian(), self.state.checksums.get()) {
            (true, _) => self.checksum(bp.checksum_kind(), bytes),
            (false, Some(checksums)) => checksums.compute_swapped(bp.checksum_kind(), bytes),
            (false, None) => platter_checksum::compute_swapped(bp.checksum_kind(), bytes),
        }
    }

    /// Calls `listener` for every block that could not be restored.
    pub fn set_damage_listener(&self, listener: DamageListener) {
        *self.state.on_damage.lock() = Some(listener);
    }

    /// Starts sync pass `pass` (1-based); 0 ends the sync.
    pub fn set_pass(&self, pass: u32) {
        self.state.pass.store(pass, Ordering::Relaxed);
    }

    /// Frees of later passes, to be put on the deferred list.
    pub fn take_late_frees(&self) -> Vec<BlkPtr> {
        std::mem::take(&mut *self.state.late_frees.lock())
    }

    /// The first failed free since the last call.
    pub fn take_free_error(&self) -> Option<ZioError> {
        self.state.free_error.lock().take()
    }

    /// Flushes every device's write cache, so that group `txg` can be committed. What a device may have missed of the
    /// group, its dirty time log says afterwards. A log device that is gone holds nothing of it.
    ///
    /// # Errors
    /// When more devices failed than redundancy covers.
    pub async fn flush(&self, txg: Txg) -> Result<()> {
        let needed = |vdev: &&Arc<TopVdev>| vdev.class() != AllocationClass::Log || vdev.condition().is_usable();
        let flushes = self.state.vdevs.iter().flatten().filter(needed).map(|vdev| vdev.flush(txg));
        for flushed in futures::future::join_all(flushes).await {
            flushed.map_err(|e| ZioError::Io(e.to_string()))?;
        }
        Ok(())
    }

    /// Whether a block is known to be nobody's, or its place to be another's.
    pub(crate) fn is_freed(&self, bp: &BlkPtr) -> bool {
        self.state().allocator.lock().is_freed(bp)
    }

    /// Tells the listener about a lost block.
    pub(crate) fn report_damage(&self, bookmark: Bookmark, bp: &BlkPtr) {
        if let Some(listener) = &*self.state.on_damage.lock() {
            listener(bookmark, bp);
        }
    }
}

/// How a block's scrub went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubbedBlock {
    /// Bytes rewritten.
    pub repaired: u64,
    /// Bytes that should have been rewritten and could not.
    pub unrepaired: u64,
}
