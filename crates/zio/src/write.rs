//! Writing one block: hole or embedded if it can be, else compress, checksum, allocate, write
//! (`zio_write_compress`, `zio_dva_allocate`, `module/zfs/zio.c`).

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use platter_buffer::{Buf, BufMut};
use platter_hooks::CpuWork;
use platter_ondisk::blkptr::{EMBEDDED_PAYLOAD_MAX, SECTOR};
use platter_ondisk::types::{checksum, compression, object_type};
use platter_ondisk::{BlkPtr, Dva};

use crate::copies::write_copies;
use crate::error::{Result, ZioError};
use crate::gang_write;
use crate::policy::WritePolicy;
use crate::store::Store;

/// From this pass on nothing is compressed any more, so that sizes stop changing (`zfs_sync_pass_dont_compress`).
const PASS_WITHOUT_COMPRESSION: u32 = 8;

/// A worker keeps what it compressed to when that is at most one part in so many of what buffers may be kept.
const SCRATCH_PART: usize = 4;

thread_local! {
    /// Where a worker compresses to; what a block then keeps is only as long as the result.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The compressed form of a block, or the block itself.
struct Payload {
    bytes: Buf,
    compression: u8,
    /// Bytes before padding.
    used: usize,
}

fn compress(data: &Buf, policy: &WritePolicy, unit: u64) -> Payload {
    let plain = || Payload { bytes: data.clone(), compression: compression::OFF, used: data.len() };
    if policy.compression == compression::OFF {
        return plain();
    }
    // At least an eighth must be saved (zio_compress_data).
    let limit = data.len() - data.len() / 8;
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < limit {
            scratch.resize(limit, 0);
        }
        let out = &mut scratch[..limit];
        let used = platter_compress::compress(policy.compression, policy.compression_level, data, out);
        let fits = used.map(|used| (used, (used as u64).next_multiple_of(unit) as usize));
        let payload = match fits.filter(|&(used, padded)| padded < data.len() || used <= EMBEDDED_PAYLOAD_MAX) {
            None => plain(),
            Some((used, padded)) => {
                let mut bytes = BufMut::zeroed(padded);
                bytes[..used].copy_from_slice(&out[..used]);
                Payload { bytes: bytes.freeze(), compression: policy.compression, used }
            }
        };
        if scratch.len() > platter_buffer::idle_max() / SCRATCH_PART {
            *scratch = Vec::new();
        }
        payload
    })
}

/// See [`crate::BlockStore::write`].
pub(crate) async fn write(store: &Store, data: Buf, policy: &WritePolicy, previous: &BlkPtr) -> Result<BlkPtr> {
    let state = store.state();
    let lsize = data.len() as u64;
    if lsize == 0 || !lsize.is_multiple_of(SECTOR) {
        return Err(ZioError::Invalid(format!(
            "block {} of {lsize} bytes is not a whole number of sectors",
            policy.bookmark
        )));
    }
    if policy.hole && policy.level == 0 && policy.compression != compression::OFF && platter_compress::is_zero(&data) {
        return Ok(BlkPtr::hole_born(policy.txg, policy.object_type, 0, lsize));
    }
    let pass = state.pass.load(Ordering::Relaxed);
    let mut settled = policy.clone();
    if pass >= PASS_WITHOUT_COMPRESSION {
        settled.compression = compression::OFF;
    }
    let unit = SECTOR.max(1 << state.min_ashift);
    let payload = compress(&data, &settled, unit);
    if settled.compression != compression::OFF {
        store.cpu().charge(CpuWork::Compress(settled.compression), data.len()).await;
    }
    let embeddable = policy.embed
        && policy.level == 0
        && payload.compression != compression::OFF
        && payload.used <= EMBEDDED_PAYLOAD_MAX
        && !matches!(policy.object_type, object_type::DNODE | object_type::OBJSET);
    if embeddable {
        let bytes = &payload.bytes[..payload.used];
        return Ok(BlkPtr::embed(bytes, lsize, payload.compression, policy.object_type, policy.level, policy.txg));
    }
    let payload = if payload.bytes.len() as u64 >= lsize {
        Payload { bytes: data.clone(), compression: compression::OFF, used: data.len() }
    } else {
        payload
    };

    let mut bp = describe(store, policy, lsize, &payload).await?;
    let resumptions = state.suspension.resumptions();
    let (dvas, is_new) = match settle(store, policy, &bp, &payload.bytes, previous, unit).await? {
        Placed::At(dvas) => (dvas, true),
        Placed::Again(dvas) => (dvas, false),
        Placed::Gang(bp) => {
            store.note_born(&bp, resumptions).await?;
            remember(store, policy, &bp, data);
            return Ok(bp);
        }
    };
    for (index, dva) in dvas.iter().enumerate() {
        bp.set_dva(index, *dva);
    }

    if let Err(error) = write_copies(store, &dvas, &payload.bytes, policy).await {
        for dva in dvas.iter().filter(|_| is_new) {
            state.allocator.lock().unallocate(dva);
        }
        return Err(error);
    }
    store.note_born(&bp, resumptions).await?;
    remember(store, policy, &bp, data);
    Ok(bp)
}

/// The pointer of a block that has no place yet.
async fn describe(store: &Store, policy: &WritePolicy, lsize: u64, payload: &Payload) -> Result<BlkPtr> {
    let &WritePolicy { checksum: kind, object_type, level, txg, .. } = policy;
    let psize = payload.bytes.len() as u64;
    let mut bp = BlkPtr::describe(lsize, psize, payload.compression, kind, object_type, level, txg);
    bp.set_fill(policy.fill);
    if kind != checksum::OFF {
        let words = store
            .checksum(kind, &payload.bytes)
            .ok_or_else(|| ZioError::Invalid(format!("checksum number {kind} cannot be written")))?;
        bp.set_checksum(words);
        store.cpu().charge(CpuWork::Checksum(kind), payload.bytes.len()).await;
    }
    Ok(bp)
}

/// Finds a place for a block. One born in this very group is rewritten in place once its size has settled, so that the
/// last passes of a sync stop allocating (`zfs_sync_pass_rewrite`).
async fn settle(
    store: &Store,
    policy: &WritePolicy,
    bp: &BlkPtr,
    bytes: &Buf,
    previous: &BlkPtr,
    unit: u64,
) -> Result<Placed> {
    let in_place = store.state().pass.load(Ordering::Relaxed) >= 2
        && !previous.is_hole()
        && !previous.is_embedded()
        && previous.birth() == policy.txg
        && previous.psize() == bytes.len() as u64;
    match (in_place, previous.is_gang()) {
        (true, false) => Ok(Placed::Again(previous.dvas().collect())),
        (true, true) => match gang_write::rewrite(store, *bp, bytes, policy, previous).await? {
            Some(bp) => Ok(Placed::Gang(bp)),
            None => place(store, bp, bytes, policy, unit).await,
        },
        (false, _) => place(store, bp, bytes, policy, unit).await,
    }
}

fn remember(store: &Store, policy: &WritePolicy, bp: &BlkPtr, data: Buf) {
    if !policy.passing {
        store.state().cache.insert(policy.bookmark.objset, bp, data);
    }
}

/// What became of the search for space.
enum Placed {
    /// The block is to be written there.
    At(Vec<Dva>),
    /// As this, where the group has it already.
    Again(Vec<Dva>),
    /// It has been written in parts: there was no long enough run.
    Gang(BlkPtr),
}

/// Finds space for a block, in parts if need be. Space on devices that are not there is no space, but the pool is not
/// full for that: it is suspended until they are back.
async fn place(store: &Store, bp: &BlkPtr, bytes: &Buf, policy: &WritePolicy, unit: u64) -> Result<Placed> {
    let state = store.state();
    let psize = bytes.len() as u64;
    loop {
        let resumptions = state.suspension.resumptions();
        let forced = psize > state.force_ganging.load(Ordering::Relaxed) && psize > unit;
        let placed = if forced { Err(ZioError::NoSpace) } else { store.allocate(psize, policy.copies).await };
        match placed {
            Ok(dvas) => return Ok(Placed::At(dvas)),
            Err(ZioError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        match gang_write::write(store, *bp, bytes.clone(), policy, unit).await {
            Ok(bp) => return Ok(Placed::Gang(bp)),
            Err(ZioError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        let gone = state.vdevs.iter().flatten().find(|vdev| !vdev.condition().is_usable());
        let Some(gone) = gone else { return Err(ZioError::NoSpace) };
        if !state.suspension.hold(resumptions, &format!("{} cannot be written", gone.name())).await {
            return Err(ZioError::Io(format!("{} cannot be written", gone.name())));
        }
        state.allocator.lock().try_again();
    }
}
