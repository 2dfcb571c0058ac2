//! The copies of one block (or gang header): written together, read until one is right, or scrubbed all; what is wrong
//! is rewritten from what is right.
//!
//! Invariants:
//! - of a block without checksum, no copy on devices that missed its group is believed while another is there;
//! - so it is written to all of its addresses or not at all: an old copy could not be told from it;
//! - what is written over a wrong copy has passed the block's checksum.

use std::sync::atomic::Ordering;

use platter_buffer::Buf;
use platter_hooks::Canary;
use platter_ondisk::blkptr::DVAS_PER_BLKPTR;
use platter_ondisk::{BlkPtr, Checksum, Dva};
use platter_vdev::{Extent, Priority, TopVdev, VdevError};

use crate::error::ZioError;
use crate::policy::WritePolicy;
use crate::store::{ScrubbedBlock, Store};

/// Why a block cannot be had.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lost {
    /// What was wrong with each copy.
    pub(crate) reason: String,
    /// Whether a device failed or is missing: the block may be there when the device is back.
    pub(crate) by_device: bool,
    /// Whether nothing but a checksum, which it does not have, could tell that it is there.
    pub(crate) doubtful: bool,
}

impl Lost {
    /// Says which part of a block it is.
    pub(crate) fn of(self, what: &str) -> Self {
        Self { reason: format!("{what}: {}", self.reason), ..self }
    }

    /// Adds what is wrong with another copy or part.
    pub(crate) fn and(&mut self, other: Self) {
        if !self.reason.is_empty() {
            self.reason.push_str("; ");
        }
        self.reason.push_str(&other.reason);
        self.by_device |= other.by_device;
        self.doubtful |= other.doubtful;
    }

    fn or_no_address(self) -> Self {
        if self.reason.is_empty() { Self::from("it has no address".to_owned()) } else { self }
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<String> for Lost {
    fn from(reason: String) -> Self {
        Self { reason, ..Self::default() }
    }
}

impl From<VdevError> for Lost {
    fn from(error: VdevError) -> Self {
        use VdevError::{Checksum, Doubtful, OutOfRange};
        let damage = matches!(error, Checksum { .. } | Doubtful { .. } | OutOfRange { .. });
        Self { reason: error.to_string(), by_device: !damage, doubtful: matches!(error, Doubtful { .. }) }
    }
}

/// Whether bytes are what was written.
pub type Verify<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);

/// How the bytes of a block are recognised.
#[derive(Clone, Copy)]
pub(crate) struct Check<'a> {
    /// See [`Verify`].
    pub(crate) verify: Verify<'a>,
    /// Whether that can tell: a block without checksum passes whatever it holds.
    pub(crate) can_tell: bool,
    /// Whether the block may well not be there: then no device is blamed.
    pub(crate) speculative: bool,
}

/// Whether the pointer has a checksum by which right bytes can be told from wrong ones.
pub(crate) fn can_tell(store: &Store, bp: &BlkPtr) -> bool {
    !matches!(bp.checksum_kind(), Checksum::OFF | Checksum::NOPARITY) && store.can_verify(bp.checksum_kind())
}

/// Whether `bytes` are what the pointer says. A block without checksum is taken as it is.
pub(crate) fn matches(store: &Store, bp: &BlkPtr, bytes: &[u8]) -> bool {
    matches!(bp.checksum_kind(), Checksum::OFF | Checksum::NOPARITY)
        || store.checksum_of(bp, bytes) == Some(bp.checksum())
}

/// The vdev that an address is on.
///
/// # Errors
/// There is none.
pub(crate) fn vdev_of(store: &Store, dva: Dva) -> Result<&TopVdev, String> {
    store.top(dva.vdev).map(AsRef::as_ref).ok_or_else(|| format!("top-level vdev {} does not exist", dva.vdev))
}

/// A copy's place on its vdev.
fn extent(bp: &BlkPtr, dva: Dva, size: u64, check: Check<'_>) -> Extent {
    let Check { can_tell: checked, speculative, .. } = check;
    Extent { offset: dva.offset, psize: size, birth: bp.physical_birth(), speculative, checked }
}

/// The addresses of a block, those last whose devices may have missed it when nothing but that can tell.
fn in_order(store: &Store, bp: &BlkPtr, check: Check<'_>) -> impl Iterator<Item = Dva> + Send + use<> {
    let mut dvas = [None; DVAS_PER_BLKPTR];
    dvas.iter_mut().zip(bp.dvas()).for_each(|(place, dva)| *place = Some(dva));
    if !check.can_tell {
        dvas.sort_by_key(|dva| dva.is_none_or(|dva| is_doubtful(store, bp, dva)));
    }
    dvas.into_iter().flatten()
}

fn is_doubtful(store: &Store, bp: &BlkPtr, dva: Dva) -> bool {
    store.top(dva.vdev).is_none_or(|vdev| vdev.is_doubtful(bp.physical_birth()))
}

async fn read_one(
    store: &Store,
    bp: &BlkPtr,
    dva: Dva,
    size: u64,
    priority: Priority,
    check: Check<'_>,
) -> Result<Buf, Lost> {
    let vdev = vdev_of(store, dva)?;
    let (bytes, outcome) = vdev.read(extent(bp, dva, size, check), priority, check.verify).await?;
    store.state().repaired_bytes.fetch_add(outcome.repaired_bytes, Ordering::Relaxed);
    Ok(bytes)
}

/// Puts good bytes over a copy that was wrong. A failure is counted by the vdev, which then has the block's group among
/// those that it misses; the block still has a good copy.
async fn rewrite(store: &Store, bp: &BlkPtr, dva: Dva, good: &Buf, check: Check<'_>, by_scrub: bool) -> ScrubbedBlock {
    debug_assert!((check.verify)(good) || Canary::ChecksumUnverified.sings(), "only bytes that passed are written");
    let size = good.len() as u64;
    let failed = ScrubbedBlock { repaired: 0, unrepaired: size };
    let Ok(vdev) = vdev_of(store, dva) else { return failed };
    let Ok(repaired) =
        vdev.repair(Extent { checked: true, ..extent(bp, dva, size, check) }, good.clone(), by_scrub).await
    else {
        return failed;
    };
    store.state().repaired_bytes.fetch_add(repaired, Ordering::Relaxed);
    ScrubbedBlock { repaired, unrepaired: 0 }
}

/// The `size` bytes at the addresses of `bp` from the first copy that verifies; copies found wrong on the way are
/// rewritten.
///
/// # Errors
/// What was wrong with each copy.
pub(crate) async fn read(
    store: &Store,
    bp: &BlkPtr,
    size: u64,
    priority: Priority,
    check: Check<'_>,
) -> Result<Buf, Lost> {
    let (mut lost, mut wrong) = (Lost::default(), Vec::new());
    for dva in in_order(store, bp, check) {
        match read_one(store, bp, dva, size, priority, check).await {
            Ok(bytes) => {
                for bad in wrong {
                    rewrite(store, bp, bad, &bytes, check, false).await;
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

/// Reads every copy with all its redundancy and rewrites what is wrong.
///
/// # Errors
/// When no copy can be had: what was wrong with each.
pub(crate) async fn scrub(
    store: &Store,
    bp: &BlkPtr,
    size: u64,
    check: Check<'_>,
    done: &mut ScrubbedBlock,
) -> Result<(), Lost> {
    let (mut lost, mut wrong, mut sound) = (Lost::default(), Vec::new(), Vec::new());
    for dva in in_order(store, bp, check) {
        let scrubbed = match vdev_of(store, dva) {
            Ok(vdev) => vdev.scrub(extent(bp, dva, size, check), check.verify).await.map_err(Lost::from),
            Err(reason) => Err(Lost::from(reason)),
        };
        match scrubbed {
            Ok(outcome) => {
                done.repaired += outcome.repaired_bytes;
                done.unrepaired += outcome.unrepaired_bytes;
                let unproven = !check.can_tell && !sound.is_empty() && is_doubtful(store, bp, dva);
                if unproven { wrong.push(dva) } else { sound.push(dva) }
            }
            Err(reason) => {
                lost.and(reason);
                wrong.push(dva);
            }
        }
    }
    if wrong.is_empty() && !sound.is_empty() {
        return Ok(());
    }
    for dva in sound {
        if let Ok(bytes) = read_one(store, bp, dva, size, Priority::Scrub, check).await {
            for bad in wrong {
                let ScrubbedBlock { repaired, unrepaired } = rewrite(store, bp, bad, &bytes, check, true).await;
                done.repaired += repaired;
                done.unrepaired += unrepaired;
            }
            return Ok(());
        }
    }
    Err(lost.or_no_address())
}

/// Writes the same bytes to every address; one that succeeds is enough, when a checksum will tell it from the others,
/// whose devices have missed the group. When none does the pool is suspended, and they are tried again when it is
/// resumed.
///
/// # Errors
/// [`ZioError::Io`] when the pool was stopped instead; an address on a vdev that does not exist.
pub(crate) async fn write_copies(store: &Store, dvas: &[Dva], bytes: &Buf, policy: &WritePolicy) -> crate::Result<()> {
    let (state, txg) = (store.state(), policy.txg);
    // Of a block without checksum all copies look the same: what an address held before, on all devices alike, would be
    // taken for it.
    let least = if policy.checksum == Checksum::OFF { dvas.len() } else { 1 };
    loop {
        let resumptions = state.suspension.resumptions();
        let writes = dvas.iter().map(|dva| {
            let bytes = bytes.clone();
            async move {
                let vdev = vdev_of(store, *dva).map_err(|what| ZioError::corrupt("block pointer", what))?;
                vdev.write(dva.offset, bytes, txg, Priority::AsyncWrite).await.map_err(|e| ZioError::Io(e.to_string()))
            }
        });
        let results = if dvas.len() == 1 {
            let mut writes = writes;
            vec![writes.next().expect("one copy").await]
        } else {
            futures::future::join_all(writes).await
        };
        if results.iter().filter(|result| result.is_ok()).count() >= least {
            let is_told = policy.checksum != Checksum::OFF || results.iter().all(Result::is_ok);
            assert!(is_told && !dvas.is_empty(), "a block is where its pointer says, or its checksum tells");
            for (dva, _) in dvas.iter().zip(&results).filter(|(_, result)| result.is_err()) {
                store.top(dva.vdev).iter().for_each(|vdev| vdev.note_unwritten(txg));
            }
            return Ok(());
        }
        let error = results.into_iter().find_map(Result::err).unwrap_or(ZioError::Io("no address".into()));
        if !matches!(error, ZioError::Io(_)) || !state.suspension.hold(resumptions, &error.to_string()).await {
            return Err(error);
        }
    }
}
