//! Reading one block, in the stages of [`read`] (`zio_read`, `zio_vdev_io_assess`, `module/zfs/zio.c`).
//!
//! ```text
//! embedded? ─► cached? ─► check ─► admit ─► cache device? ─► gang? ─► choose a copy ─► issue, verify
//!                                              │                │         ▲                │   └─► repair the copies
//!                                              │                │         └─ the next one ─┤       that were wrong
//!                                              │                └─ its header, then each   ▼
//!                                              │                   of its parts        (decrypt) ─► decompress ─► keep
//!                                              └──────────────────────────────────────────▲
//! ```
//! What the devices cannot deliver now is waited for, where the pool waits at all, and read anew; what no device has is
//! reported. What comes between verifying and decompressing one day (decryption) is a stage as these are: until then
//! `check` refuses encrypted blocks.
//!
//! Invariants:
//! - what is returned matched the pointer's checksum and is as long as the pointer says;
//! - a copy is rewritten only with bytes that matched the checksum;
//! - of a block without checksum, no copy on devices that missed its group is believed while another is there;
//! - damage cannot make this read without end: nesting is bounded, and parts that are longer than their block end it.

use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::{Buf, BufMut};
use platter_hooks::{Canary, CpuWork};
use platter_ondisk::blkptr::{BLOCK_SIZE_MAX, DVAS_PER_BLKPTR, EMBEDDED_PAYLOAD_MAX};
use platter_ondisk::{BlkPtr, Checksum, Compression, Dva, ObjectType, byteswap, gang};
use platter_vdev::{Extent, Knowledge, Priority, Verify};

use crate::block_store::BlockReader;
use crate::cache::BlockCache;
use crate::copies::vdev_of;
use crate::error::{Result, ZioError};
use crate::in_flight::Memory;
use crate::l2arc::Origin;
use crate::large::Large;
use crate::lost::Lost;
use crate::policy::Bookmark;
use crate::store::{ScrubbedBlock, Store};

/// Gang blocks inside gang blocks: more than this is damage.
const GANG_DEPTH_MAX: u32 = 8;
/// Blocks beyond this are decompressed in a task of their own, bytes: others need not wait for it.
const DECODED_HERE_MAX: u64 = 64 << 10;

impl BlockReader for Store {
    fn cache(&self) -> &BlockCache {
        &self.state().cache
    }

    fn read<'a>(&'a self, bp: &'a BlkPtr, bookmark: Bookmark, priority: Priority) -> BoxFuture<'a, Result<Buf>> {
        read(ReadZio { store: self, bp, bookmark, priority }).boxed()
    }

    fn ahead_max(&self) -> Memory {
        self.state().large.ahead_max()
    }
}

async fn read(zio: ReadZio<'_>) -> Result<Buf> {
    if let Some(contents) = zio.embedded()? {
        return Ok(contents);
    }
    if let Some(contents) = zio.cached() {
        return Ok(contents);
    }
    zio.check()?;
    loop {
        let resumptions = zio.store.suspension().resumptions();
        let lost = match zio.admit_and_fetch().await {
            Ok(contents) => return Ok(contents),
            Err(Failure::Final(error)) => return Err(error),
            Err(Failure::Lost(lost)) => lost,
        };
        if !zio.wait(resumptions, &lost).await {
            return Err(zio.report(&lost));
        }
    }
}

/// A block on its way from the devices.
#[derive(Clone, Copy)]
pub(crate) struct ReadZio<'a> {
    pub(crate) store: &'a Store,
    pub(crate) bp: &'a BlkPtr,
    pub(crate) bookmark: Bookmark,
    pub(crate) priority: Priority,
}

/// Why an attempt brought no contents.
enum Failure {
    /// No copy was right. It may be there once a device is back.
    Lost(Lost),
    /// To read it again would not help.
    Final(ZioError),
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<ZioError> for Failure {
    fn from(error: ZioError) -> Self {
        Self::Final(error)
    }
}

fn reader_failed(error: &tokio::task::JoinError) -> ZioError {
    ZioError::Io(format!("a block reader failed: {error}"))
}

impl ReadZio<'_> {
    /// Damage of the block as an error.
    pub(crate) fn damaged(&self, detail: impl std::fmt::Display) -> ZioError {
        ZioError::Checksum { bookmark: self.bookmark, detail: format!("{:?}: {detail}", self.bp) }
    }

    /// The contents that are in the pointer itself. A hole has none, and nobody asks for them.
    fn embedded(&self) -> Result<Option<Buf>> {
        let bp = self.bp;
        if bp.is_hole() {
            return Err(ZioError::corrupt("block pointer", format!("{} is a hole", self.bookmark)));
        }
        if !bp.is_embedded() {
            return Ok(None);
        }
        self.check_sizes()?;
        if bp.embedded_kind() != 0 || bp.psize() as usize > EMBEDDED_PAYLOAD_MAX {
            return Err(self.damaged("an embedded pointer of unknown kind"));
        }
        let mut contents = BufMut::zeroed(bp.lsize() as usize);
        let payload = bp.embedded_payload();
        if bp.compression() == Compression::OFF {
            let length = payload.len().min(contents.len());
            contents[..length].copy_from_slice(&payload[..length]);
        } else {
            platter_compress::decompress(bp.compression(), &payload, &mut contents).map_err(|e| self.damaged(e))?;
        }
        let mut contents = contents.freeze();
        if !bp.is_little_endian() {
            byteswap::byteswap(bp.object_type(), contents.make_mut());
        }
        Ok(Some(contents))
    }

    /// The contents that memory has.
    fn cached(&self) -> Option<Buf> {
        self.store.state().cache.get(self.bp)
    }

    fn check_sizes(&self) -> Result<()> {
        if self.bp.lsize() > BLOCK_SIZE_MAX || self.bp.psize() > BLOCK_SIZE_MAX {
            return Err(self.damaged("its size is beyond 16 MiB"));
        }
        Ok(())
    }

    /// Refuses pointers whose fields cannot be right before anything is allocated for them, and what cannot be read.
    pub(crate) fn check(&self) -> Result<()> {
        let (bp, bookmark) = (self.bp, self.bookmark);
        self.check_sizes()?;
        // An object set's head is never encrypted, and its MACs lie inside it.
        if bp.is_protected() && bp.object_type() != ObjectType::OBJSET {
            return Err(ZioError::Invalid(format!("block {bookmark} is encrypted: this version cannot read it")));
        }
        if !self.store.can_verify(bp.checksum_kind()) {
            return Err(ZioError::Invalid(format!(
                "block {bookmark} has checksum number {}, which this version cannot verify",
                bp.checksum_kind()
            )));
        }
        Ok(())
    }

    /// Reads the block from the devices; a large one when there is memory for it.
    async fn admit_and_fetch(&self) -> std::result::Result<Buf, Failure> {
        if !Large::counts(self.bp.lsize()) {
            return self.fetch().await;
        }
        // Its memory is others' to wait for: so it goes on though whoever asked for it does not.
        let (store, bp, bookmark, priority) = (self.store.clone(), *self.bp, self.bookmark, self.priority);
        let fetching = tokio::spawn(async move {
            let _memory = store.state().large.read(&store.state().cache, &bp).await;
            ReadZio { store: &store, bp: &bp, bookmark, priority }.fetch().await
        });
        fetching.await.map_err(|error| reader_failed(&error))?
    }

    /// Reads the block from a cache device or, where none has it, from the pool's devices, and caches it.
    async fn fetch(&self) -> std::result::Result<Buf, Failure> {
        let (store, bp) = (self.store, self.bp);
        let (l2arc, can_tell) = (&store.state().l2arc, store.can_tell(bp));
        let is_right = |bytes: &[u8]| matches(store, bp, bytes);
        let near = if can_tell { l2arc.read(bp, self.priority, &is_right).await } else { None };
        let stored = match near {
            Some(stored) => stored,
            None => stored(store, bp, self.priority, false).await.inspect(|stored| {
                if can_tell {
                    l2arc.offer(&store.state().cache, self.bookmark.objset, bp, stored, Origin::Read);
                }
            })?,
        };
        self.charge(stored.len()).await;
        let contents = self.decompress(stored).await?;
        self.keep(&contents);
        Ok(contents)
    }

    /// The time that verifying and decompressing take.
    async fn charge(&self, stored: usize) {
        let (cpu, bp) = (self.store.cpu(), self.bp);
        cpu.charge(CpuWork::Checksum(bp.checksum_kind().number()), stored).await;
        if bp.compression() != Compression::OFF {
            cpu.charge(CpuWork::Decompress(bp.compression().number()), bp.lsize() as usize).await;
        }
    }

    /// The contents, in this machine's byte order.
    async fn decompress(&self, stored: Buf) -> Result<Buf> {
        let is_work = self.bp.lsize() > DECODED_HERE_MAX && self.bp.compression() != Compression::OFF;
        if !is_work {
            return self.decompressed(stored);
        }
        let (store, bp, bookmark, priority) = (self.store.clone(), *self.bp, self.bookmark, self.priority);
        let decoding =
            tokio::spawn(async move { ReadZio { store: &store, bp: &bp, bookmark, priority }.decompressed(stored) });
        decoding.await.unwrap_or_else(|error| Err(reader_failed(&error)))
    }

    fn decompressed(&self, stored: Buf) -> Result<Buf> {
        let bp = self.bp;
        let mut contents = if bp.compression() == Compression::OFF {
            if stored.len() as u64 != bp.lsize() {
                return Err(self.damaged("uncompressed, but its two sizes differ"));
            }
            stored
        } else {
            let mut out = BufMut::unfilled(bp.lsize() as usize);
            platter_compress::decompress(bp.compression(), &stored, &mut out).map_err(|e| self.damaged(e))?;
            out.freeze()
        };
        if !bp.is_little_endian() {
            if bp.level() > 0 {
                byteswap::byteswap_indirect(contents.make_mut());
            } else {
                byteswap::byteswap(bp.object_type(), contents.make_mut());
            }
        }
        Ok(contents)
    }

    /// Caches the contents.
    fn keep(&self, contents: &Buf) {
        assert_eq!(contents.len() as u64, self.bp.lsize(), "a block is as long as its pointer says");
        self.store.state().cache.insert(self.bookmark.objset, self.bp, contents.clone());
    }

    /// After an attempt that failed: waits while the pool is suspended, when it is to. Whether to read again.
    pub(crate) async fn wait(&self, resumptions: u64, lost: &Lost) -> bool {
        let store = self.store;
        lost.by_device
            && store.waits_for_devices(self.bp, self.priority)
            && store.suspension().hold(resumptions, &lost.reason).await
    }

    /// Puts a lost block on the list of errors. What is only out of reach is not lost, nor what was freed while it was
    /// read; a scan, which does not look at what was freed, has such a block reported all the same: the pool's space
    /// maps are wrong then.
    pub(crate) fn report(&self, lost: &Lost) -> ZioError {
        if self.priority != Priority::Scrub && self.store.is_freed(self.bp) {
            return self.damaged(lost);
        }
        if !lost.by_device || self.store.is_reachable(self.bp) {
            self.store.report_damage(self.bookmark, self.bp);
        }
        self.damaged(lost)
    }
}

/// The stored bytes of a block, verified: of the first copy that is right, or put together from the parts of a gang
/// block. No device is blamed when this is `speculative`.
///
/// # Errors
/// What was wrong with each copy.
pub(crate) async fn stored(
    store: &Store,
    bp: &BlkPtr,
    priority: Priority,
    speculative: bool,
) -> std::result::Result<Buf, Lost> {
    if bp.is_gang() {
        gang(store, bp, priority, speculative, 0).await
    } else {
        Copies::of_block(store, bp, speculative).read(priority).await
    }
}

/// How right bytes are told from wrong ones.
#[derive(Clone, Copy)]
pub(crate) enum Proof<'a> {
    /// By the pointer's checksum. A block without one is taken as it is.
    Checksum,
    /// By the first half of the pointer's checksum: the rest of it is an encrypted block's MAC, which needs the key.
    HalfChecksum,
    /// By what a gang block's header says of itself.
    GangHeader,
    /// As whoever asks says.
    Given(Verify<'a>),
}

/// What lies at the addresses of a pointer: the stored bytes of a block, or the header of a gang block.
#[derive(Clone, Copy)]
pub(crate) struct Copies<'a> {
    pub(crate) store: &'a Store,
    bp: &'a BlkPtr,
    /// Bytes of each.
    size: u64,
    proof: Proof<'a>,
    /// Whether the proof can tell: a block without checksum passes whatever it holds.
    pub(crate) can_tell: bool,
    /// Whether the block may well not be there: then no device is blamed.
    speculative: bool,
}

impl<'a> Copies<'a> {
    /// A block's, which is no gang block.
    pub(crate) fn of_block(store: &'a Store, bp: &'a BlkPtr, speculative: bool) -> Self {
        let can_tell = store.can_tell(bp);
        Self { store, bp, size: bp.psize(), proof: Proof::Checksum, can_tell, speculative }
    }

    /// A gang block's headers.
    pub(crate) fn of_gang_header(store: &'a Store, bp: &'a BlkPtr, speculative: bool) -> Self {
        Self { store, bp, size: gang::HEADER_SIZE as u64, proof: Proof::GangHeader, can_tell: true, speculative }
    }

    /// A log block's, which may well not be there.
    pub(crate) fn of_log_block(store: &'a Store, bp: &'a BlkPtr, verify: Verify<'a>) -> Self {
        Self { store, bp, size: bp.psize(), proof: Proof::Given(verify), can_tell: true, speculative: true }
    }

    /// The same, recognised in another way.
    pub(crate) fn proven_by(self, proof: Proof<'a>) -> Self {
        Self { proof, ..self }
    }

    /// A copy's place on its vdev.
    pub(crate) fn extent(&self, dva: Dva) -> Extent {
        let &Self { bp, size, can_tell: checked, speculative, .. } = self;
        Extent { offset: dva.offset, psize: size, birth: bp.physical_birth(), speculative, checked }
    }

    /// Chooses: the addresses in the order in which to ask them, those last whose devices may have missed the block
    /// when nothing but that can tell.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = Dva> + Send + use<> {
        let mut dvas = [None; DVAS_PER_BLKPTR];
        dvas.iter_mut().zip(self.bp.dvas()).for_each(|(place, dva)| *place = Some(dva));
        if !self.can_tell {
            dvas.sort_by_key(|dva| dva.is_none_or(|dva| self.is_doubtful(dva)));
        }
        dvas.into_iter().flatten()
    }

    /// Whether what a copy's devices hold may be from before the block's time.
    pub(crate) fn is_doubtful(&self, dva: Dva) -> bool {
        self.store.top(dva.vdev).is_none_or(|vdev| vdev.is_doubtful(self.bp.physical_birth()))
    }

    /// The bytes of the first copy that is right; copies found wrong on the way are repaired.
    ///
    /// # Errors
    /// What was wrong with each copy.
    pub(crate) async fn read(&self, priority: Priority) -> std::result::Result<Buf, Lost> {
        let (mut lost, mut wrong) = (Lost::default(), Vec::new());
        for dva in self.in_order() {
            match self.issue(dva, priority).await {
                Ok(bytes) => {
                    for bad in wrong {
                        let ScrubbedBlock { repaired, .. } = self.repair(bad, &bytes, false).await;
                        self.note_repaired(priority, repaired);
                    }
                    return Ok(bytes);
                }
                Err(reason) => {
                    lost.and(reason);
                    wrong.push(dva);
                }
            }
        }
        Err(lost.or_no_address())
    }

    /// The bytes of one copy, verified: its vdev looks at them, as it may have them twice or be able to rebuild them.
    pub(crate) async fn issue(&self, dva: Dva, priority: Priority) -> std::result::Result<Buf, Lost> {
        let vdev = vdev_of(self.store, dva)?;
        let (bytes, outcome) = vdev.read(self.extent(dva), priority, self).await?;
        self.store.state().repaired_bytes.fetch_add(outcome.repaired_bytes, Ordering::Relaxed);
        self.note_repaired(priority, outcome.repaired_bytes);
        Ok(bytes)
    }

    /// What a walk reads it mends by reading: whoever walks finds nothing wrong there any more.
    fn note_repaired(&self, priority: Priority, bytes: u64) {
        if priority == Priority::Scrub {
            self.store.state().repaired_by_walks.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Puts good bytes over a copy that was wrong, unless the block has been freed. A failure is counted by the vdev,
    /// which then has the block's group among those that it misses; the block still has a good copy.
    pub(crate) async fn repair(&self, dva: Dva, good: &Buf, by_scrub: bool) -> ScrubbedBlock {
        let failed = ScrubbedBlock { repaired: 0, unrepaired: self.size };
        let Ok(vdev) = vdev_of(self.store, dva) else { return failed };
        let place = Extent { checked: true, ..self.extent(dva) };
        assert_eq!(good.len() as u64, place.psize, "a copy is replaced as a whole");
        debug_assert!(self.is_right(good) || Canary::ChecksumUnverified.sings(), "only bytes that passed are written");
        if !self.is_in_use() {
            return ScrubbedBlock::default();
        }
        let Ok(repaired) = vdev.repair(place, good.clone(), by_scrub).await else { return failed };
        self.store.state().repaired_bytes.fetch_add(repaired, Ordering::Relaxed);
        ScrubbedBlock { repaired, unrepaired: 0 }
    }
}

impl Knowledge for Copies<'_> {
    fn is_right(&self, bytes: &[u8]) -> bool {
        let &Self { store, bp, .. } = self;
        match self.proof {
            Proof::Checksum => matches(store, bp, bytes),
            Proof::HalfChecksum => store.checksum_of(bp, bytes).is_none_or(|sum| sum[..2] == bp.checksum()[..2]),
            Proof::GangHeader => gang::verify(bytes, gang_verifier(bp), platter_checksum::sha256),
            Proof::Given(verify) => verify.is_right(bytes),
        }
    }

    /// Who reads a block has to keep it from being freed, and most do; a read ahead, or one of a disk that answers
    /// late, may still come to a place that is another block's by now. What a log has is read before anything is freed,
    /// and before it is allocated again.
    fn is_in_use(&self) -> bool {
        let &Self { store, bp, speculative, .. } = self;
        speculative || Canary::FreedSetRight.sings() || !store.is_freed(bp)
    }
}

/// Whether `bytes` are what the pointer says. A block without checksum is taken as it is.
fn matches(store: &Store, bp: &BlkPtr, bytes: &[u8]) -> bool {
    matches!(bp.checksum_kind(), Checksum::OFF | Checksum::NOPARITY)
        || store.checksum_of(bp, bytes) == Some(bp.checksum())
}

fn gang_verifier(bp: &BlkPtr) -> [u64; 4] {
    gang::verifier(&bp.dva(0), bp.physical_birth())
}

/// The stored bytes of a gang block, verified, put together from its parts. Wrong copies met on the way are repaired;
/// devices are blamed for them unless this is `speculative`.
fn gang<'a>(
    store: &'a Store,
    bp: &'a BlkPtr,
    priority: Priority,
    speculative: bool,
    depth: u32,
) -> BoxFuture<'a, std::result::Result<Buf, Lost>> {
    async move {
        let mut whole = BufMut::zeroed(bp.psize() as usize);
        let mut at = 0;
        for part in gang_parts(store, bp, priority, speculative).await? {
            check_gang_part(&part, bp.psize() - at as u64, depth)?;
            let bytes = if part.is_gang() {
                gang(store, &part, priority, speculative, depth + 1).await
            } else {
                Copies::of_block(store, &part, speculative).read(priority).await
            };
            let bytes = bytes.map_err(|lost| lost.of("gang member"))?;
            whole[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
        }
        if at == whole.len() && matches(store, bp, &whole) {
            Ok(whole.freeze())
        } else {
            Err(Lost::from("gang members do not add up".to_owned()))
        }
    }
    .boxed()
}

/// The parts of a gang block in order, without the unused places.
///
/// # Errors
/// No copy of its header is right.
pub(crate) async fn gang_parts(
    store: &Store,
    bp: &BlkPtr,
    priority: Priority,
    speculative: bool,
) -> std::result::Result<Vec<BlkPtr>, Lost> {
    let header = Copies::of_gang_header(store, bp, speculative).read(priority).await;
    let header = header.map_err(|lost| lost.of("gang header"))?;
    Ok(gang::pointers(&header).into_iter().filter(|part| !part.is_hole()).collect())
}

/// Refuses a part that cannot belong to a block of `whole` bytes, before anything is allocated for it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_gang_part(part: &BlkPtr, whole: u64, depth: u32) -> std::result::Result<(), String> {
    if depth >= GANG_DEPTH_MAX {
        return Err("gang blocks nest too deeply".into());
    }
    if part.is_embedded() || part.psize() == 0 || part.psize() > whole {
        return Err(format!("a gang member that makes no sense: {part:?}"));
    }
    Ok(())
}
