//! What a new object is made of, and its dnode.

use platter_ondisk::dnode::{DNODE_SIZE, FLAG_USED_BYTES, MAX_INDIRECT_SHIFT};
use platter_ondisk::sector::SECTOR;
use platter_ondisk::{BlkPtr, Checksum, Compression, DnodePhys, ObjectType, Sectors};

/// What a new object is made of.
#[derive(Clone, Debug)]
pub struct NewDnode {
    /// What its blocks hold.
    pub object_type: ObjectType,
    /// Data block size in bytes: a multiple of 512, 512 B..16 MiB.
    pub block_size: u32,
    /// log2 of the indirect block size; 17 (128 KiB) in general.
    pub indirect_shift: u8,
    /// What the bonus holds; `NONE` without one.
    pub bonus_type: ObjectType,
    /// Bonus bytes in use.
    pub bonus_length: u16,
    /// Dnode size in bytes (512..16384); 0 is the smallest (`dmu_object_alloc`, `module/zfs/dmu_object.c`).
    pub dnode_size: u32,
}

impl NewDnode {
    /// An object that is all in its bonus of `bonus_length` bytes, which has the object's own type (a DSL directory or
    /// data set).
    pub fn bonus_only(object_type: ObjectType, bonus_length: u16) -> Self {
        Self { bonus_type: object_type, bonus_length, ..Self::plain(object_type, SECTOR as u32) }
    }

    /// An object of blocks of `block_size` bytes without a bonus, in a dnode of the smallest size.
    pub fn plain(object_type: ObjectType, block_size: u32) -> Self {
        Self {
            object_type,
            block_size,
            indirect_shift: MAX_INDIRECT_SHIFT,
            bonus_type: ObjectType::NONE,
            bonus_length: 0,
            dnode_size: DNODE_SIZE as u32,
        }
    }
}

/// An empty object's dnode.
pub(crate) fn new_phys(
    object_type: ObjectType,
    block_size: u32,
    indirect_shift: u8,
    pointers: usize,
    slots: usize,
) -> DnodePhys {
    DnodePhys {
        object_type,
        indirect_shift,
        levels: 1,
        bonus_type: ObjectType::NONE,
        checksum: Checksum::INHERIT,
        compression: Compression::INHERIT,
        flags: FLAG_USED_BYTES,
        data_block_sectors: Sectors::of(block_size.into()),
        bonus_length: 0,
        extra_slots: slots as u8 - 1,
        max_blkid: 0,
        used: 0,
        blkptrs: vec![BlkPtr::HOLE; pointers],
        bonus: Vec::new(),
        spill: None,
    }
}
