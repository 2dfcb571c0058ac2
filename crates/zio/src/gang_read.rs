//! Reading, scrubbing and freeing gang blocks: a header that names up to three parts, which may be gangs themselves
//! (`zio_gang_tree_*`, `module/zfs/zio.c`).
//!
//! Invariants:
//! - the copies of a header say the same; each part has copies of its own, and every one of them is repaired like any
//!   block's;
//! - damage cannot make this read without end: nesting is bounded, and parts that are longer than their block end it.

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_buffer::{Buf, BufMut};
use platter_ondisk::{BlkPtr, gang};
use platter_vdev::Priority;

use crate::copies::{self, Check, Lost, can_tell, matches};
use crate::error::{Result, ZioError};
use crate::store::{ScrubbedBlock, Store};

/// Gang blocks inside gang blocks: more than this is damage.
const DEPTH_MAX: u32 = 8;

fn verifier(bp: &BlkPtr) -> [u64; 4] {
    gang::verifier(&bp.dva(0), bp.physical_birth())
}

/// The parts in order, without the unused places.
async fn parts(
    store: &Store,
    bp: &BlkPtr,
    priority: Priority,
    speculative: bool,
) -> std::result::Result<Vec<BlkPtr>, Lost> {
    let verifier = verifier(bp);
    let verify = |bytes: &[u8]| gang::verify(bytes, verifier, platter_checksum::sha256);
    let check = Check { verify: &verify, can_tell: true, speculative };
    let header = copies::read(store, bp, gang::HEADER_SIZE as u64, priority, check).await;
    let header = header.map_err(|lost| lost.of("gang header"))?;
    Ok(gang::pointers(&header).into_iter().filter(|part| !part.is_hole()).collect())
}

/// Refuses a part that cannot belong to a block of `whole` bytes, before anything is allocated for it.
fn check_part(part: &BlkPtr, whole: u64, depth: u32) -> std::result::Result<(), String> {
    if depth >= DEPTH_MAX {
        return Err("gang blocks nest too deeply".into());
    }
    if part.is_embedded() || part.psize() == 0 || part.psize() > whole {
        return Err(format!("a gang member that makes no sense: {part:?}"));
    }
    Ok(())
}

/// The stored bytes of a gang block, verified, put together from its parts. Wrong copies met on the way are repaired;
/// devices are blamed for them unless this is `speculative`.
pub(crate) fn read<'a>(
    store: &'a Store,
    bp: &'a BlkPtr,
    priority: Priority,
    speculative: bool,
    depth: u32,
) -> BoxFuture<'a, std::result::Result<Buf, Lost>> {
    async move {
        let mut whole = BufMut::zeroed(bp.psize() as usize);
        let mut at = 0;
        for part in parts(store, bp, priority, speculative).await? {
            check_part(&part, bp.psize() - at as u64, depth)?;
            let bytes = if part.is_gang() {
                read(store, &part, priority, speculative, depth + 1).await
            } else {
                let verify = |bytes: &[u8]| matches(store, &part, bytes);
                let check = Check { verify: &verify, can_tell: can_tell(store, &part), speculative };
                copies::read(store, &part, part.psize(), priority, check).await
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

/// Scrubs header and parts, every copy of each.
pub(crate) fn scrub<'a>(
    store: &'a Store,
    bp: &'a BlkPtr,
    speculative: bool,
    depth: u32,
    done: &'a mut ScrubbedBlock,
) -> BoxFuture<'a, std::result::Result<(), Lost>> {
    async move {
        let verifier = verifier(bp);
        let verify = |bytes: &[u8]| gang::verify(bytes, verifier, platter_checksum::sha256);
        let check = Check { verify: &verify, can_tell: true, speculative };
        let header = copies::scrub(store, bp, gang::HEADER_SIZE as u64, check, done).await;
        header.map_err(|lost| lost.of("gang header"))?;
        let mut lost = Lost::default();
        let mut left = bp.psize();
        for part in parts(store, bp, Priority::Scrub, speculative).await? {
            check_part(&part, left, depth)?;
            left -= part.psize();
            let scrubbed = if part.is_gang() {
                scrub(store, &part, speculative, depth + 1, done).await
            } else {
                let good = |bytes: &[u8]| matches(store, &part, bytes);
                let check = Check { verify: &good, can_tell: can_tell(store, &part), speculative };
                copies::scrub(store, &part, part.psize(), check, done).await
            };
            // The other parts are worth repairing even when one is lost.
            if let Err(part) = scrubbed {
                lost.and(part.of("gang member"));
            }
        }
        if left > 0 {
            lost.and(Lost::from("gang members do not add up".to_owned()));
        }
        if lost.reason.is_empty() { Ok(()) } else { Err(lost) }
    }
    .boxed()
}

/// A gang block with the pointers that its headers hold.
pub(crate) struct GangTree {
    /// The gang block itself.
    pub bp: BlkPtr,
    /// In the order of the block's bytes.
    pub parts: Vec<GangPart>,
}

/// A part of a gang block.
pub(crate) enum GangPart {
    /// Bytes of the block.
    Block(BlkPtr),
    /// A gang block inside the gang block.
    Gang(GangTree),
}

impl GangPart {
    /// The pointer of the part.
    pub fn bp(&self) -> &BlkPtr {
        match self {
            Self::Block(bp) | Self::Gang(GangTree { bp, .. }) => bp,
        }
    }
}

impl GangTree {
    /// Bytes in all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bp().psize()).sum()
    }

    /// Whether the parts, at each level, are as long together as the block that they are parts of.
    pub fn is_whole(&self) -> bool {
        let is_whole = |part: &GangPart| match part {
            GangPart::Block(_) => true,
            GangPart::Gang(tree) => tree.is_whole(),
        };
        self.bytes() == self.bp.psize() && self.parts.iter().all(is_whole)
    }

    /// The blocks that make it up: the parts, each gang block after its parts.
    fn blocks(&self, found: &mut Vec<BlkPtr>) {
        for part in &self.parts {
            match part {
                GangPart::Block(bp) => found.push(*bp),
                GangPart::Gang(tree) => tree.blocks(found),
            }
        }
        found.push(self.bp);
    }
}

/// Reads the headers of a gang block.
pub(crate) fn tree<'a>(
    store: &'a Store,
    bp: &'a BlkPtr,
    depth: u32,
) -> BoxFuture<'a, std::result::Result<GangTree, Lost>> {
    async move {
        let mut tree = GangTree { bp: *bp, parts: Vec::new() };
        for part in parts(store, bp, Priority::SyncRead, false).await? {
            check_part(&part, bp.psize() - tree.bytes(), depth)?;
            let part = if part.is_gang() {
                GangPart::Gang(self::tree(store, &part, depth + 1).await?)
            } else {
                GangPart::Block(part)
            };
            tree.parts.push(part);
        }
        Ok(tree)
    }
    .boxed()
}

/// The blocks that make up a gang block: the parts, and the gang blocks themselves, of which the headers are meant.
///
/// # Errors
/// When a header cannot be read.
pub(crate) async fn blocks(store: &Store, bp: &BlkPtr) -> Result<Vec<BlkPtr>> {
    let tree = tree(store, bp, 0)
        .await
        .map_err(|reason| ZioError::Io(format!("the members of gang block {bp:?} cannot be known: {reason}")))?;
    let mut blocks = Vec::new();
    tree.blocks(&mut blocks);
    Ok(blocks)
}

/// Frees a gang block: its header and, after reading it, its parts. Nothing is freed unless everything can be.
///
/// # Errors
/// When a header cannot be read; a double free.
pub async fn free_gang(store: &Store, bp: &BlkPtr) -> Result<()> {
    let blocks = blocks(store, bp).await?;
    let mut allocator = store.state().allocator.lock();
    for block in &blocks {
        if block.is_gang() {
            allocator.free_gang_header(block)?;
        } else {
            allocator.free(block)?;
        }
    }
    Ok(())
}
