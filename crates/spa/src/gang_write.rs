//! Gang blocks: when no free run is long enough for a block, it is written in up to three parts behind a header
//! (`zio_write_gang_block`, `module/zfs/zio.c`).
//!
//! Invariants:
//! - a gang block is complete or not there: when a part cannot be placed, everything allocated for it is given back;
//! - the header has one copy more than the block; each part has as many copies as the block would have had;
//! - the allocated size in the block's addresses is that of the header and of all parts, while freeing the header
//!   itself gives back only the header's size.

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::types::{checksum, compression, object_type};
use platter_ondisk::{BlkPtr, Dva, gang};
use platter_zio::{Priority, Result, WritePolicy, ZioError};

use crate::store::Store;

/// Nesting beyond this means that there is no space worth the name.
const DEPTH_MAX: u32 = 4;
/// Parts behind one header.
const PARTS: usize = 3;

/// Writes `payload` as a gang block. `bp` describes it, checksum included; its addresses are filled in.
pub(crate) fn write<'a>(
    store: &'a Store,
    bp: BlkPtr,
    payload: Buf,
    policy: &'a WritePolicy,
    unit: u64,
    depth: u32,
) -> BoxFuture<'a, Result<BlkPtr>> {
    async move {
        if depth > DEPTH_MAX || payload.len() as u64 <= unit {
            return Err(ZioError::NoSpace);
        }
        let copies = (policy.copies + 1).min(3);
        let headers = store.state().allocator.lock().allocate(gang::HEADER_SIZE as u64, copies)?;
        let mut written = Vec::with_capacity(PARTS);
        match write_parts(store, &payload, policy, unit, depth, &mut written).await {
            Ok(()) => finish(store, bp, &headers, &written, policy).await,
            Err(error) => {
                for part in &written {
                    undo(store, part);
                }
                for dva in &headers {
                    store.state().allocator.lock().unallocate(dva);
                }
                Err(error)
            }
        }
    }
    .boxed()
}

/// Gives back a part that was written for nothing. Parts that are gangs themselves keep their space until the next
/// import finds it unreferenced; that is a leak of space, never of data, and needs a pool without any room to happen.
fn undo(store: &Store, part: &BlkPtr) {
    for dva in part.dvas().filter(|dva| !dva.gang) {
        store.state().allocator.lock().unallocate(&dva);
    }
}

async fn write_parts(
    store: &Store,
    payload: &Buf,
    policy: &WritePolicy,
    unit: u64,
    depth: u32,
    written: &mut Vec<BlkPtr>,
) -> Result<()> {
    let part = (payload.len() as u64).div_ceil(PARTS as u64).next_multiple_of(unit) as usize;
    let mut at = 0;
    while at < payload.len() {
        let end = (at + part).min(payload.len());
        let bytes = payload.slice(at..end);
        let size = bytes.len() as u64;
        let mut bp = BlkPtr::describe(size, size, compression::OFF, policy.checksum, object_type::NONE, 0, policy.txg);
        if policy.checksum != checksum::OFF {
            let words = platter_checksum::compute(policy.checksum, &bytes)
                .ok_or_else(|| ZioError::Invalid(format!("checksum {} cannot be written", policy.checksum)))?;
            bp.set_checksum(words);
        }
        let placed = store.state().allocator.lock().allocate(size, policy.copies);
        let bp = match placed {
            Ok(dvas) => {
                for (index, dva) in dvas.iter().enumerate() {
                    bp.set_dva(index, *dva);
                }
                written.push(bp);
                write_copies(store, &dvas, &bytes, policy).await?;
                at = end;
                continue;
            }
            Err(ZioError::NoSpace) => write(store, bp, bytes, policy, unit, depth + 1).await?,
            Err(error) => return Err(error),
        };
        written.push(bp);
        at = end;
    }
    Ok(())
}

async fn finish(
    store: &Store,
    mut bp: BlkPtr,
    headers: &[Dva],
    parts: &[BlkPtr],
    policy: &WritePolicy,
) -> Result<BlkPtr> {
    for (index, header) in headers.iter().enumerate() {
        // Each address of the block accounts for its header and for the parts' copies of the same number.
        let below: u64 = parts.iter().map(|part| part.dvas().nth(index).map_or(0, |dva| dva.asize)).sum();
        bp.set_dva(index, Dva { asize: header.asize + below, gang: true, ..*header });
    }
    let verifier = gang::verifier(&bp.dva(0), bp.physical_birth());
    let bytes = Buf::copy_from(&gang::build(gang::HEADER_SIZE, parts, verifier, platter_checksum::sha256));
    write_copies(store, headers, &bytes, policy).await?;
    Ok(bp)
}

/// Writes every copy; one that succeeds is enough.
async fn write_copies(store: &Store, dvas: &[Dva], bytes: &Buf, policy: &WritePolicy) -> Result<()> {
    let mut failure = None;
    let mut good = 0;
    for dva in dvas {
        let vdev = store.state().vdevs.get(dva.vdev as usize).and_then(Option::as_ref);
        let vdev = vdev.ok_or_else(|| ZioError::corrupt("address", format!("no vdev {}", dva.vdev)))?;
        match vdev.write(dva.offset, bytes.clone(), policy.txg, Priority::AsyncWrite).await {
            Ok(()) => good += 1,
            Err(error) => failure = Some(ZioError::Io(error.to_string())),
        }
    }
    match failure {
        Some(error) if good == 0 => Err(error),
        _ => Ok(()),
    }
}
