//! How each block of an object set is written (`dmu_write_policy`, `module/zfs/dmu.c`).

use platter_ondisk::{Checksum, Compression, DnodePhys, ObjectId, ObjectType, Txg};
use platter_zio::{Bookmark, WritePolicy};

use crate::blocktree::SPILL_BLKID;
use crate::properties::{RedundantMetadata, WriteProperties};

/// Copies a pointer can name.
const COPIES_MAX: u8 = 3;

/// What kind of block is to be written.
#[derive(Clone, Copy)]
pub(crate) enum BlockKind {
    /// A block of the object's tree.
    Tree { level: u8, blkid: u64 },
    /// The object's spill block.
    Spill,
}

/// Checksums that are good enough for metadata (`ZCHECKSUM_FLAG_METADATA`); others give way to fletcher4.
fn checksum_for_metadata(wanted: Checksum) -> Checksum {
    match wanted {
        Checksum::FLETCHER_4
        | Checksum::SHA256
        | Checksum::SHA512
        | Checksum::SKEIN
        | Checksum::EDONR
        | Checksum::BLAKE3 => wanted,
        _ => Checksum::FLETCHER_4,
    }
}

/// A dnode's own choice over the object set's.
fn select_checksum(own: Checksum, inherited: Checksum) -> Checksum {
    match own {
        Checksum::INHERIT => inherited,
        Checksum::ON => Checksum::FLETCHER_4,
        other => other,
    }
}

/// A dnode's own choice over the object set's; `on` is the default algorithm.
fn select_compression(own: Compression, inherited: Compression, on: Compression) -> Compression {
    match own {
        Compression::INHERIT => inherited,
        Compression::ON => on,
        other => other,
    }
}

/// Metadata on which many files depend (`DMU_OT_IS_CRITICAL`).
fn is_critical(object_type: ObjectType, level: u8) -> bool {
    object_type.is_metadata()
        && (object_type != ObjectType::DNODE || level > 0)
        && !matches!(object_type, ObjectType::DIRECTORY_CONTENTS | ObjectType::SA)
}

/// Copies of a block; `metadata` is its object's type and its level, and whether it is a spill block.
pub(crate) fn copies(properties: &WriteProperties, metadata: Option<(ObjectType, u8, bool)>) -> u8 {
    if properties.is_mos {
        return COPIES_MAX;
    }
    let more = metadata.is_some_and(|(object_type, level, spill)| match properties.redundant_metadata {
        RedundantMetadata::All => true,
        // zfs_redundant_metadata_most_ditto_level
        RedundantMetadata::Most => level >= 2 || object_type.is_metadata() || spill,
        RedundantMetadata::Some => is_critical(object_type, level),
        RedundantMetadata::None => false,
    });
    (properties.copies + u8::from(more)).clamp(1, COPIES_MAX)
}

/// The policy for a block of object `object`, described by `dnode`, filled `fill` times.
pub(crate) fn for_block(
    properties: &WriteProperties,
    txg: Txg,
    objset: ObjectId,
    object: ObjectId,
    dnode: &DnodePhys,
    kind: BlockKind,
    fill: u64,
) -> WritePolicy {
    let (level, blkid, block_type) = match kind {
        BlockKind::Tree { level, blkid } => (level, blkid, dnode.object_type),
        BlockKind::Spill => (0, SPILL_BLKID, dnode.bonus_type),
    };
    let metadata = level > 0 || dnode.object_type.is_metadata() || matches!(kind, BlockKind::Spill);
    let (checksum, compression) = if metadata {
        (checksum_for_metadata(properties.checksum), properties.format.compression)
    } else {
        (
            select_checksum(dnode.checksum, properties.checksum),
            select_compression(dnode.compression, properties.compression, properties.format.compression),
        )
    };
    WritePolicy {
        txg,
        bookmark: Bookmark { objset, object, level: level as i8, blkid },
        object_type: block_type,
        level,
        checksum,
        compression,
        compression_level: properties.compression_level,
        copies: copies(properties, metadata.then_some((dnode.object_type, level, matches!(kind, BlockKind::Spill)))),
        fill,
        embed: properties.embedded_data && level == 0 && !block_type.has_fill(),
        // Removing a spill block is explicit; a written one has a header and is never all zeros.
        hole: level == 0 && compression != Compression::OFF && matches!(kind, BlockKind::Tree { .. }),
        passing: false,
    }
}

/// The policy for the object set's own block.
pub(crate) fn for_head(properties: &WriteProperties, txg: Txg, objset: ObjectId, fill: u64) -> WritePolicy {
    WritePolicy {
        txg,
        bookmark: Bookmark { objset, object: ObjectId(0), level: -1, blkid: 0 },
        object_type: ObjectType::OBJSET,
        level: 0,
        checksum: checksum_for_metadata(properties.checksum),
        compression: properties.format.compression,
        compression_level: 0,
        copies: copies(properties, Some((ObjectType::OBJSET, 0, false))),
        fill,
        embed: false,
        hole: false,
        passing: false,
    }
}
