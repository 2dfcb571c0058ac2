//! Reading one block: checks, its stored bytes from whichever copy is right, decompression, byte order (`zio_read`,
//! `module/zfs/zio.c`).

use platter_buffer::{Buf, BufMut};
use platter_hooks::CpuWork;
use platter_ondisk::blkptr::{BLOCK_SIZE_MAX, EMBEDDED_PAYLOAD_MAX};
use platter_ondisk::{BlkPtr, byteswap};
use platter_ondisk::{Compression, ObjectType};
use platter_vdev::Priority;

use crate::copies::{Check, Lost, can_tell, matches};
use crate::error::{Result, ZioError};
use crate::large::Large;
use crate::policy::Bookmark;
use crate::store::{ScrubbedBlock, Store};
use crate::{copies, gang_read};

fn damaged(bookmark: Bookmark, bp: &BlkPtr, detail: impl std::fmt::Display) -> ZioError {
    ZioError::Checksum { bookmark, detail: format!("{bp:?}: {detail}") }
}

/// Refuses pointers whose fields cannot be right before anything is allocated for them.
fn check(store: &Store, bp: &BlkPtr, bookmark: Bookmark) -> Result<()> {
    if bp.lsize() > BLOCK_SIZE_MAX || bp.psize() > BLOCK_SIZE_MAX {
        return Err(damaged(bookmark, bp, "its size is beyond 16 MiB"));
    }
    if bp.is_embedded() {
        if bp.embedded_kind() != 0 || bp.psize() as usize > EMBEDDED_PAYLOAD_MAX {
            return Err(damaged(bookmark, bp, "an embedded pointer of unknown kind"));
        }
        return Ok(());
    }
    // An object set's head is never encrypted, and its MACs lie inside it.
    if bp.is_protected() && bp.object_type() != ObjectType::OBJSET {
        return Err(ZioError::Invalid(format!("block {bookmark} is encrypted: this version cannot read it")));
    }
    if !store.can_verify(bp.checksum_kind()) {
        return Err(ZioError::Invalid(format!(
            "block {bookmark} has checksum number {}, which this version cannot verify",
            bp.checksum_kind()
        )));
    }
    Ok(())
}

fn decode(bp: &BlkPtr, bookmark: Bookmark, stored: Buf) -> Result<Buf> {
    let kind = bp.compression();
    let mut contents = if kind == Compression::OFF {
        if stored.len() as u64 != bp.lsize() {
            return Err(damaged(bookmark, bp, "uncompressed, but its two sizes differ"));
        }
        stored
    } else {
        let mut out = BufMut::unfilled(bp.lsize() as usize);
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

/// See [`crate::BlockStore::read`].
pub(crate) async fn read(store: &Store, bp: &BlkPtr, bookmark: Bookmark, priority: Priority) -> Result<Buf> {
    if bp.is_hole() {
        return Err(ZioError::corrupt("block pointer", format!("{bookmark} is a hole")));
    }
    check(store, bp, bookmark)?;
    if bp.is_embedded() {
        return decode_embedded(bp, bookmark);
    }
    loop {
        let resumptions = store.suspension().resumptions();
        let fetched = if Large::counts(bp.lsize()) {
            // Its memory is others' to wait for: so it goes on though whoever asked for it does not.
            let (store, bp) = (store.clone(), *bp);
            let fetching = tokio::spawn(async move {
                let _memory = store.state().large.read(&store.state().cache, &bp).await;
                fetch(&store, &bp, bookmark, priority).await
            });
            fetching.await.map_err(|e| ZioError::Io(format!("a block reader failed: {e}")))?
        } else {
            fetch(store, bp, bookmark, priority).await
        };
        let lost = match fetched {
            Ok(contents) => return contents,
            Err(lost) => lost,
        };
        if !wait(store, bp, priority, resumptions, &lost).await {
            report(store, bookmark, bp, &lost);
            return Err(damaged(bookmark, bp, lost));
        }
    }
}

/// Reads a block from the devices and caches it.
async fn fetch(
    store: &Store,
    bp: &BlkPtr,
    bookmark: Bookmark,
    priority: Priority,
) -> std::result::Result<Result<Buf>, Lost> {
    let stored = stored(store, bp, priority, false).await?;
    store.cpu().charge(CpuWork::Checksum(bp.checksum_kind().number()), stored.len()).await;
    if bp.compression() != Compression::OFF {
        store.cpu().charge(CpuWork::Decompress(bp.compression().number()), bp.lsize() as usize).await;
    }
    let decoded = if bp.lsize() > 64 << 10 && bp.compression() != Compression::OFF {
        let pointer = *bp;
        let decoding = tokio::spawn(async move { decode(&pointer, bookmark, stored) });
        decoding.await.unwrap_or_else(|e| Err(ZioError::Io(format!("a block reader failed: {e}"))))
    } else {
        decode(bp, bookmark, stored)
    };
    if let Ok(contents) = &decoded {
        store.state().cache.insert(bookmark.objset, bp, contents.clone());
    }
    Ok(decoded)
}

/// The stored bytes of a block, verified. No device is blamed when this is `speculative`.
pub(crate) async fn stored(
    store: &Store,
    bp: &BlkPtr,
    priority: Priority,
    speculative: bool,
) -> std::result::Result<Buf, Lost> {
    if bp.is_gang() {
        gang_read::read(store, bp, priority, speculative, 0).await
    } else {
        let verify = |bytes: &[u8]| matches(store, bp, bytes);
        let check = Check { verify: &verify, can_tell: can_tell(store, bp), speculative };
        copies::read(store, bp, bp.psize(), priority, check).await
    }
}

/// After a read that failed: waits while the pool is suspended, when it is to. Whether to read again.
async fn wait(store: &Store, bp: &BlkPtr, priority: Priority, resumptions: u64, lost: &Lost) -> bool {
    lost.by_device && store.waits_for_devices(bp, priority) && store.suspension().hold(resumptions, &lost.reason).await
}

/// Puts a lost block on the list of errors. What is only out of reach is not lost.
fn report(store: &Store, bookmark: Bookmark, bp: &BlkPtr, lost: &Lost) {
    if !lost.by_device || store.is_reachable(bp) {
        store.report_damage(bookmark, bp);
    }
}

fn decode_embedded(bp: &BlkPtr, bookmark: Bookmark) -> Result<Buf> {
    let mut contents = BufMut::zeroed(bp.lsize() as usize);
    let payload = bp.embedded_payload();
    if bp.compression() == Compression::OFF {
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

/// See [`Store::scrub`].
pub(crate) async fn scrub(store: &Store, bp: &BlkPtr, bookmark: Bookmark) -> Result<ScrubbedBlock> {
    if bp.is_hole() || bp.is_embedded() {
        return Ok(ScrubbedBlock::default());
    }
    // An encrypted block's stored bytes are verified by the first half of its checksum; the rest is its MAC, which
    // needs the key.
    if !bp.is_protected() {
        check(store, bp, bookmark)?;
    }
    let mut done = ScrubbedBlock::default();
    loop {
        let resumptions = store.suspension().resumptions();
        let scrubbed = scrub_stored(store, bp, false, &mut done).await;
        let verified = bp.psize() as usize * bp.dvas().count();
        store.cpu().charge(CpuWork::Checksum(bp.checksum_kind().number()), verified).await;
        let Err(lost) = scrubbed else { return Ok(done) };
        if !wait(store, bp, Priority::Scrub, resumptions, &lost).await {
            report(store, bookmark, bp, &lost);
            return Err(damaged(bookmark, bp, lost));
        }
    }
}

/// Reads every copy of a block with all its redundancy and rewrites what is wrong; no device is blamed when this is
/// `speculative`.
pub(crate) async fn scrub_stored(
    store: &Store,
    bp: &BlkPtr,
    speculative: bool,
    done: &mut ScrubbedBlock,
) -> std::result::Result<(), Lost> {
    if bp.is_gang() {
        return gang_read::scrub(store, bp, speculative, 0, done).await;
    }
    let good = |bytes: &[u8]| {
        if bp.is_protected() {
            let sum = store.checksum_of(bp, bytes);
            return sum.is_none_or(|sum| sum[..2] == bp.checksum()[..2]);
        }
        matches(store, bp, bytes)
    };
    let check = Check { verify: &good, can_tell: can_tell(store, bp), speculative };
    copies::scrub(store, bp, bp.psize(), check, done).await
}

/// Frees every copy of a block; a gang block's members cannot be known without reading, see [`crate::free_gang`].
pub(crate) fn free_all(store: &Store, bp: &BlkPtr) -> Result<()> {
    if bp.is_dedup() || bp.dvas().any(|dva| dva.gang) {
        // Its members, or the table that counts its references, must be read first: that is done with the deferred
        // frees, where awaiting is possible.
        store.state().late_frees.lock().push(*bp);
        return Ok(());
    }
    store.state().allocator.lock().free(bp)
}
