//! Reading one block: each copy in turn, gang blocks, decompression, repair of copies that were wrong
//! (`zio_read`, `zio_gang_*`, `module/zfs/zio.c`).

use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::{Buf, BufMut};
use platter_ondisk::blkptr::{BLOCK_SIZE_MAX, EMBEDDED_PAYLOAD_MAX};
use platter_ondisk::types::{checksum, compression};
use platter_ondisk::{BlkPtr, Dva, byteswap, gang};
use platter_vdev::Extent;
use platter_zio::{Bookmark, Priority, Result, ZioError};

use crate::store::{ScrubbedBlock, Store};

/// Gang blocks inside gang blocks: more than this is damage.
const GANG_DEPTH_MAX: u32 = 8;

fn damaged(bookmark: Bookmark, bp: &BlkPtr, detail: impl std::fmt::Display) -> ZioError {
    ZioError::Checksum { bookmark, detail: format!("{bp:?}: {detail}") }
}

/// Refuses pointers whose fields cannot be right before anything is allocated for them.
fn check(bp: &BlkPtr, bookmark: Bookmark) -> Result<()> {
    if bp.lsize() > BLOCK_SIZE_MAX || bp.psize() > BLOCK_SIZE_MAX {
        return Err(damaged(bookmark, bp, "its size is beyond 16 MiB"));
    }
    if bp.is_embedded() {
        if bp.embedded_kind() != 0 || bp.psize() as usize > EMBEDDED_PAYLOAD_MAX {
            return Err(damaged(bookmark, bp, "an embedded pointer of unknown kind"));
        }
        return Ok(());
    }
    if bp.is_protected() {
        return Err(ZioError::Invalid(format!("block {bookmark} is encrypted: this version cannot read it")));
    }
    if !platter_checksum::is_supported(bp.checksum_kind()) {
        return Err(ZioError::Invalid(format!(
            "block {bookmark} has checksum number {}, which this version cannot verify",
            bp.checksum_kind()
        )));
    }
    Ok(())
}

fn matches(bp: &BlkPtr, bytes: &[u8]) -> bool {
    if bp.checksum_kind() == checksum::OFF {
        return true;
    }
    let sum = if bp.is_little_endian() {
        platter_checksum::compute(bp.checksum_kind(), bytes)
    } else {
        platter_checksum::compute_swapped(bp.checksum_kind(), bytes)
    };
    sum == Some(bp.checksum())
}

/// The stored bytes of one copy, verified; gang blocks are put together.
fn read_copy<'a>(
    store: &'a Store,
    bp: &'a BlkPtr,
    dva: Dva,
    priority: Priority,
    depth: u32,
) -> BoxFuture<'a, std::result::Result<Buf, String>> {
    async move {
        let vdev = store.state().vdevs.get(dva.vdev as usize).and_then(Option::as_ref);
        let vdev = vdev.ok_or_else(|| format!("top-level vdev {} does not exist", dva.vdev))?;
        if !dva.gang {
            let (bytes, outcome) = vdev
                .read(extent(bp, dva, bp.psize()), priority, &|bytes: &[u8]| matches(bp, bytes))
                .await
                .map_err(|e| e.to_string())?;
            store.state().repaired_bytes.fetch_add(outcome.repaired_bytes, Ordering::Relaxed);
            return Ok(bytes);
        }
        if depth >= GANG_DEPTH_MAX {
            return Err("gang blocks nest too deeply".into());
        }
        let verifier = gang::verifier(&bp.dva(0), bp.physical_birth());
        let (header, _) = vdev
            .read(extent(bp, dva, gang::HEADER_SIZE as u64), priority, &|b: &[u8]| {
                gang::verify(b, verifier, platter_checksum::sha256)
            })
            .await
            .map_err(|e| format!("gang header: {e}"))?;
        let parts = gang::pointers(&header);
        let mut whole = BufMut::zeroed(bp.psize() as usize);
        let mut at = 0;
        for part in parts.iter().filter(|part| !part.is_hole()) {
            let mut last = String::from("no copy");
            let mut found = None;
            for dva in part.dvas() {
                match read_copy(store, part, dva, priority, depth + 1).await {
                    Ok(bytes) => {
                        found = Some(bytes);
                        break;
                    }
                    Err(e) => last = e,
                }
            }
            let bytes = found.ok_or_else(|| format!("gang member: {last}"))?;
            let end = at + bytes.len();
            whole.get_mut(at..end).ok_or("gang members are longer than the block")?.copy_from_slice(&bytes);
            at = end;
        }
        if at == whole.len() && matches(bp, &whole) {
            Ok(whole.freeze())
        } else {
            Err("gang members do not add up".into())
        }
    }
    .boxed()
}

fn decode(bp: &BlkPtr, bookmark: Bookmark, stored: Buf) -> Result<Buf> {
    let kind = bp.compression();
    let mut contents = if kind == compression::OFF {
        if stored.len() as u64 != bp.lsize() {
            return Err(damaged(bookmark, bp, "uncompressed, but its two sizes differ"));
        }
        stored
    } else {
        let mut out = BufMut::zeroed(bp.lsize() as usize);
        platter_compress::decompress(kind, &stored, &mut out).map_err(|e| damaged(bookmark, bp, e))?;
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

/// See [`platter_zio::BlockStore::read`].
pub(crate) async fn read(store: &Store, bp: &BlkPtr, bookmark: Bookmark, priority: Priority) -> Result<Buf> {
    if bp.is_hole() {
        return Err(ZioError::corrupt("block pointer", format!("{bookmark} is a hole")));
    }
    check(bp, bookmark)?;
    if bp.is_embedded() {
        return decode_embedded(bp, bookmark);
    }
    let mut reasons = Vec::new();
    let mut wrong = Vec::new();
    for dva in bp.dvas() {
        match read_copy(store, bp, dva, priority, 0).await {
            Ok(stored) => {
                for bad in wrong {
                    rewrite(store, bp, bad, &stored, false).await;
                }
                let contents = if bp.lsize() > 64 << 10 && bp.compression() != compression::OFF {
                    let pointer = *bp;
                    let decoding = tokio::spawn(async move { decode(&pointer, bookmark, stored) });
                    decoding.await.map_err(|e| ZioError::Io(format!("a block reader failed: {e}")))??
                } else {
                    decode(bp, bookmark, stored)?
                };
                store.state().cache.insert(bp, contents.clone());
                return Ok(contents);
            }
            Err(reason) => {
                reasons.push(reason);
                if !dva.gang {
                    wrong.push(dva);
                }
            }
        }
    }
    store.report_damage(bookmark, bp);
    Err(damaged(bookmark, bp, reasons.join("; ")))
}

fn decode_embedded(bp: &BlkPtr, bookmark: Bookmark) -> Result<Buf> {
    let mut contents = BufMut::zeroed(bp.lsize() as usize);
    let payload = bp.embedded_payload();
    if bp.compression() == compression::OFF {
        let length = payload.len().min(contents.len());
        contents[..length].copy_from_slice(&payload[..length]);
    } else {
        platter_compress::decompress(bp.compression(), &payload, &mut contents)
            .map_err(|e| damaged(bookmark, bp, e))?;
    }
    let mut contents = contents.freeze();
    if !bp.is_little_endian() {
        byteswap::byteswap(bp.object_type(), contents.make_mut());
    }
    Ok(contents)
}

/// A copy's place on its vdev.
fn extent(bp: &BlkPtr, dva: Dva, psize: u64) -> Extent {
    Extent { offset: dva.offset, psize, birth: bp.physical_birth() }
}

/// Puts good bytes over a copy that was wrong. A failure is counted by the vdev; the block still has a good copy.
async fn rewrite(store: &Store, bp: &BlkPtr, dva: Dva, good: &Buf, by_scrub: bool) {
    if let Some(vdev) = store.state().vdevs.get(dva.vdev as usize).and_then(Option::as_ref)
        && vdev.repair(extent(bp, dva, bp.psize()), good.clone(), by_scrub).await.is_ok()
    {
        store.state().repaired_bytes.fetch_add(good.len() as u64, Ordering::Relaxed);
    }
}

/// See [`Store::scrub`].
pub(crate) async fn scrub(store: &Store, bp: &BlkPtr, bookmark: Bookmark) -> Result<ScrubbedBlock> {
    if bp.is_hole() || bp.is_embedded() {
        return Ok(ScrubbedBlock::default());
    }
    // An encrypted block's stored bytes are verified by the first half of its checksum; the rest is its MAC, which
    // needs the key.
    if !bp.is_protected() {
        check(bp, bookmark)?;
    }
    let good = |bytes: &[u8]| {
        if bp.is_protected() {
            let sum = platter_checksum::compute(bp.checksum_kind(), bytes);
            return sum.is_none_or(|sum| sum[..2] == bp.checksum()[..2]);
        }
        matches(bp, bytes)
    };
    let mut done = ScrubbedBlock::default();
    let (mut wrong, mut reasons, mut healthy) = (Vec::new(), Vec::<String>::new(), false);
    for dva in bp.dvas() {
        if dva.gang {
            match read_copy(store, bp, dva, Priority::Scrub, 0).await {
                Ok(_) => healthy = true,
                Err(reason) => reasons.push(reason),
            }
            continue;
        }
        let Some(vdev) = store.state().vdevs.get(dva.vdev as usize).and_then(Option::as_ref) else {
            reasons.push(format!("top-level vdev {} does not exist", dva.vdev));
            continue;
        };
        match vdev.scrub(extent(bp, dva, bp.psize()), &good).await {
            Ok(outcome) => {
                done.repaired += outcome.repaired_bytes;
                healthy = true;
            }
            Err(e) => {
                reasons.push(e.to_string());
                wrong.push(dva);
            }
        }
    }
    if !healthy {
        store.report_damage(bookmark, bp);
        return Err(damaged(bookmark, bp, reasons.join("; ")));
    }
    if !wrong.is_empty() {
        let sound = bp.dvas().filter(|dva| !wrong.contains(dva));
        for dva in sound {
            if let Ok(bytes) = read_copy(store, bp, dva, Priority::Scrub, 0).await {
                for &bad in &wrong {
                    rewrite(store, bp, bad, &bytes, true).await;
                    done.repaired += bytes.len() as u64;
                }
                break;
            }
        }
    }
    Ok(done)
}

/// Frees every copy of a block; a gang block's members cannot be known without reading, see [`free_gang`].
pub(crate) fn free_all(store: &Store, bp: &BlkPtr) -> Result<()> {
    if bp.dvas().any(|dva| dva.gang) {
        // Its members must be read first: that is done with the deferred frees, where awaiting is possible.
        store.state().late_frees.lock().push(*bp);
        return Ok(());
    }
    store.state().allocator.lock().free(bp)
}

/// Frees a gang block: its header and, after reading it, its members.
///
/// # Errors
/// When a header cannot be read: its members then stay allocated, which is a leak and must be reported.
pub fn free_gang<'a>(store: &'a Store, bp: &'a BlkPtr) -> BoxFuture<'a, Result<()>> {
    async move {
        let verifier = gang::verifier(&bp.dva(0), bp.physical_birth());
        let mut header = Err(ZioError::corrupt("gang block", format!("{bp:?} has no header")));
        for dva in bp.dvas().filter(|dva| dva.gang) {
            let Some(vdev) = store.state().vdevs.get(dva.vdev as usize).and_then(Option::as_ref) else { continue };
            let verify = |b: &[u8]| gang::verify(b, verifier, platter_checksum::sha256);
            let read = vdev.read(extent(bp, dva, gang::HEADER_SIZE as u64), Priority::SyncRead, &verify).await;
            header = read.map_err(|e| ZioError::Io(format!("gang header of {bp:?}: {e}")));
            // All copies say the same: the parts are freed once.
            if header.is_ok() {
                break;
            }
        }
        for part in gang::pointers(&header?.0).iter().filter(|part| !part.is_hole()) {
            if part.is_gang() {
                free_gang(store, part).await?;
            } else {
                store.state().allocator.lock().free(part)?;
            }
        }
        store.state().allocator.lock().free_gang_header(bp)
    }
    .boxed()
}
