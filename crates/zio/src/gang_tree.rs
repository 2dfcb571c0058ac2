//! Which blocks make up a gang block: a header that names up to three parts, which may be gangs themselves
//! (`zio_gang_tree_*`, `module/zfs/zio.c`).

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_ondisk::BlkPtr;
use platter_vdev::Priority;

use crate::error::{Result, ZioError};
use crate::lost::Lost;
use crate::read::{check_gang_part, gang_parts};
use crate::store::Store;

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
        for part in gang_parts(store, bp, Priority::SyncRead, false).await? {
            check_gang_part(&part, bp.psize() - tree.bytes(), depth)?;
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
