//! What else must fit where a signature alone proves little: some are two bytes long, or bytes that anything may begin
//! with. Each check gets the place of its signature.
//!
//! No check may fail for what the system's own programs make: in doubt something is found.

use crate::sector::SECTOR;
use crate::signatures::image::Image;

pub(super) fn always(_: &Image, _: u64) -> bool {
    true
}

fn is_power(number: u32, least: u32, most: u32) -> bool {
    number.is_power_of_two() && (least..=most).contains(&number)
}

pub(super) fn luks(image: &Image, at: u64) -> bool {
    matches!(image.be16(at + 6), 1 | 2)
}

/// The second header of version 2 says where it is.
pub(super) fn luks_copy(image: &Image, at: u64) -> bool {
    image.be16(at + 6) == 2 && image.be64(at + 256) == at
}

/// What a FAT made by Windows begins with is no BitLocker volume for that.
pub(super) fn bitlocker_to_go(image: &Image, _: u64) -> bool {
    image.has(424, b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01")
}

/// Version, the kind of the block, the algorithm of its checksum.
pub(super) fn core_storage(image: &Image, at: u64) -> bool {
    image.le16(8) == 1 && image.le16(10) == 0x10 && image.le32(at + 2) == 1
}

/// A label stands in one of the first four sectors, and says in which.
pub(super) fn lvm2(image: &Image, at: u64) -> bool {
    image.has(at + 24, b"LVM2 001") && image.le64(at + 8) == at / SECTOR
}

pub(super) fn lvm1(image: &Image, at: u64) -> bool {
    matches!(image.le16(at + 2), 1 | 2)
}

/// Version 0.90, of the byte order of whoever made it: the array's member ends before it.
pub(super) fn md_old(image: &Image, at: u64) -> bool {
    let little = image.has(at, b"\xfc\x4e\x2b\xa9");
    let number = |at| if little { image.le32(at) } else { image.be32(at) };
    number(at + 4) == 0 && u64::from(number(at + 32)) << 10 <= at
}

/// Version 1 says in which sector it is.
pub(super) fn md(image: &Image, at: u64) -> bool {
    image.le32(at + 4) == 1 && image.le64(at + 144) == at / SECTOR
}

pub(super) fn adaptec(image: &Image, at: u64) -> bool {
    image.be32(at - 256) == 0x37FC_4D1E
}

/// The words before the checksum and it add up to nothing.
pub(super) fn silicon(image: &Image, at: u64) -> bool {
    let begin = at - 0x60;
    (0..=0x13E).step_by(2).fold(0u16, |sum, word| sum.wrapping_add(image.le16(begin + word))) == 0
}

pub(super) fn jmicron(image: &Image, at: u64) -> bool {
    let sum = (0..128).step_by(2).fold(0u16, |sum, word| sum.wrapping_add(image.le16(at + word)));
    sum <= 1 && image.u8(at + 0x30) <= 5
}

pub(super) fn via(image: &Image, at: u64) -> bool {
    (0..50).fold(0u8, |sum, byte| sum.wrapping_add(image.u8(at + byte))) == image.u8(at + 50)
}

pub(super) fn swap(image: &Image, _: u64) -> bool {
    (image.le32(1024) == 1 || image.be32(1024) == 1) && image.le32(1028) != 0
}

const EXT: u64 = 1024;
const HAS_JOURNAL: u32 = 0x4;
const JOURNAL_DEVICE: u32 = 0x8;
/// What ext2 and ext3 know of the features without which a file system may (only) be read, and may not be.
const EXT2_READ_ONLY: u32 = 0x7;
const EXT2_INCOMPATIBLE: u32 = 0x12;
const EXT3_INCOMPATIBLE: u32 = 0x16;

fn ext_features(image: &Image) -> (u32, u32, u32) {
    (image.le32(EXT + 0x5c), image.le32(EXT + 0x60), image.le32(EXT + 0x64))
}

pub(super) fn jbd(image: &Image, _: u64) -> bool {
    ext_features(image).1 & JOURNAL_DEVICE != 0 && image.le32(EXT + 4) > 0 && image.le32(EXT + 0x18) <= 6
}

/// Inodes, blocks, their size and how many of them make a group.
pub(super) fn ext(image: &Image, _: u64) -> bool {
    image.le32(EXT) > 0 && image.le32(EXT + 4) > 0 && image.le32(EXT + 0x18) <= 6 && image.le32(EXT + 0x20) > 0
}

fn ext_before_4(image: &Image, at: u64, incompatible: u32) -> bool {
    let (_, needs, reads) = ext_features(image);
    ext(image, at) && needs & !incompatible == 0 && reads & !EXT2_READ_ONLY == 0
}

pub(super) fn ext2(image: &Image, at: u64) -> bool {
    ext_features(image).0 & HAS_JOURNAL == 0 && ext_before_4(image, at, EXT2_INCOMPATIBLE)
}

pub(super) fn ext3(image: &Image, at: u64) -> bool {
    ext_features(image).0 & HAS_JOURNAL != 0 && ext_before_4(image, at, EXT3_INCOMPATIBLE)
}

/// Sizes of blocks and sectors, blocks, allocation groups.
pub(super) fn xfs(image: &Image, _: u64) -> bool {
    let sector = u32::from(image.be16(102));
    is_power(image.be32(4), 512, 65536) && is_power(sector, 512, 32768) && image.be64(8) > 0 && image.be32(88) > 0
}

/// A record of a log in one of the first 512 sectors, and no file system.
pub(super) fn xfs_log(image: &Image, _: u64) -> bool {
    let record = |at: u64| {
        image.has(at, b"\xfe\xed\xba\xbe")
            && matches!(image.be32(at + 8), 1 | 2)
            && image.be32(at + 12) > 0
            && matches!(image.be32(at + 300), 1..=3)
    };
    let sectors = || (0..512).map(|sector| sector * SECTOR);
    sectors().any(record) && !sectors().any(|at| image.has(at, b"XFSB"))
}

/// The superblock says where it is.
pub(super) fn btrfs(image: &Image, at: u64) -> bool {
    image.le64(at - 0x10) == at - 0x40
}

/// A jump, zeros where FAT has its parameters, the boot sector's end.
pub(super) fn exfat(image: &Image, _: u64) -> bool {
    image.has(0, b"\xeb\x76\x90")
        && image.has(11, &[0; 53])
        && image.le16(0x1fe) == 0xAA55
        && matches!(image.u8(108), 9..=12)
        && matches!(image.u8(110), 1 | 2)
}

/// Bytes of a sector, no reserved sectors, no FATs.
pub(super) fn ntfs(image: &Image, _: u64) -> bool {
    is_power(u32::from(image.le16(0x0b)), 256, 4096)
        && image.le16(0x0e) == 0
        && image.u8(0x10) == 0
        && image.u8(0x0d) != 0
}

pub(super) fn fat(image: &Image, _: u64) -> bool {
    let media = image.u8(0x15);
    let sectors = match image.le16(0x13) {
        0 => image.le32(0x20),
        few => u32::from(few),
    };
    is_power(u32::from(image.le16(0x0b)), 512, 4096)
        && image.u8(0x0d).is_power_of_two()
        && image.le16(0x0e) > 0
        && image.u8(0x10) > 0
        && (media >= 0xf8 || media == 0xf0)
        && (image.le16(0x16) > 0 || image.le32(0x24) > 0)
        && sectors > 0
}

/// A boot sector without FAT's name; OS/2 writes one before its other file systems.
pub(super) fn fat_without_name(image: &Image, at: u64) -> bool {
    image.le16(0x1fe) == 0xAA55 && !image.has(0x36, b"JFS     ") && !image.has(0x36, b"HPFS    ") && fat(image, at)
}

pub(super) fn hfs_plus(image: &Image, at: u64) -> bool {
    is_power(image.be32(at + 40), 512, 1 << 30)
}

/// An HFS+ inside of an HFS.
pub(super) fn hfs_around_plus(image: &Image, at: u64) -> bool {
    hfs(image, at) && (image.has(at + 124, b"H+") || image.has(at + 124, b"HX"))
}

pub(super) fn hfs(image: &Image, at: u64) -> bool {
    let block = image.be32(at + 20);
    block > 0 && u64::from(block).is_multiple_of(SECTOR)
}

/// Among the descriptors, of 2 KiB each as on a disc or of a disk's sector, is UDF's.
pub(super) fn udf(image: &Image, at: u64) -> bool {
    let is_udf = |at: u64| image.has(at, b"NSR02") || image.has(at, b"NSR03");
    [2048, 4096].into_iter().any(|size| (0..16).any(|descriptor| is_udf(at + descriptor * size)))
}

pub(super) fn squashfs(image: &Image, at: u64) -> bool {
    image.le16(at + 28) >= 4
}

pub(super) fn jfs(image: &Image, at: u64) -> bool {
    1u32.checked_shl(u32::from(image.le16(at + 20))) == Some(image.le32(at + 16))
}

/// The format's number: 1309 was GFS's.
pub(super) fn gfs2(image: &Image, at: u64) -> bool {
    image.be32(at + 24) != 1309
}

/// The superblock's revision, its length and the size of blocks.
pub(super) fn nilfs2(image: &Image, at: u64) -> bool {
    image.le32(at - 6) == 2 && matches!(image.le16(at + 2), 24..=1024) && image.le32(at + 14) <= 6
}

/// The spare superblock behind it has a signature too.
pub(super) fn hpfs(image: &Image, at: u64) -> bool {
    image.has(at + 0x200, b"\x49\x18\x91\xf9")
}

/// Three bytes, which random data would have once in sixteen million times: what is around them must not be random.
pub(super) fn alone_in_its_sector(image: &Image, at: u64) -> bool {
    image.bytes(at + 8, 256).is_some_and(|bytes| bytes.iter().filter(|byte| **byte == 0).count() > 128)
}

/// UFS has its superblock at one of four places, with one of six numbers, in either byte order.
pub(super) fn ufs(image: &Image, _: u64) -> bool {
    const NUMBERS: [u32; 6] = [0x0001_1954, 0x1954_0119, 0x0019_5612, 0x0009_5014, 0x0061_2195, 0x0523_1994];
    [0, 8 << 10, 64 << 10, 256 << 10].into_iter().any(|begin| {
        let at = begin + 0x55c;
        NUMBERS.contains(&image.le32(at)) || NUMBERS.contains(&image.be32(at))
    })
}

/// Inodes, zones, the first zone of data, the blocks of both bitmaps, the logarithm of a zone's size.
struct Minix {
    inodes: u64,
    zones: u64,
    first: u64,
    inode_maps: u64,
    zone_maps: u64,
    zone_shift: u16,
}

impl Minix {
    /// Each bitmap has room for what it stands for.
    fn fits(&self) -> bool {
        const BITS: u64 = 1024 * 8;
        self.zone_shift == 0
            && self.inodes > 0
            && self.first <= self.zones
            && self.inode_maps * BITS > self.inodes
            && self.zone_maps * BITS > self.zones - self.first
    }
}

fn minix_old(begin: u64, is_second: bool, half: impl Fn(u64) -> u16, whole: impl Fn(u64) -> u32) -> bool {
    let half = |at| u64::from(half(begin + at));
    Minix {
        inodes: half(0),
        zones: if is_second { u64::from(whole(begin + 20)) } else { half(2) },
        inode_maps: half(4),
        zone_maps: half(6),
        first: half(8),
        zone_shift: half(10) as u16,
    }
    .fits()
        && half(18) <= 3
}

pub(super) fn minix(image: &Image, at: u64) -> bool {
    let second = matches!(image.le16(at), 0x2468 | 0x2478);
    minix_old(at - 0x10, second, |at| image.le16(at), |at| image.le32(at))
}

pub(super) fn minix_swapped(image: &Image, at: u64) -> bool {
    let second = matches!(image.be16(at), 0x2468 | 0x2478);
    minix_old(at - 0x10, second, |at| image.be16(at), |at| image.be32(at))
}

fn minix_new(begin: u64, half: impl Fn(u64) -> u16, whole: impl Fn(u64) -> u32) -> bool {
    Minix {
        inodes: u64::from(whole(begin)),
        zones: u64::from(whole(begin + 20)),
        inode_maps: u64::from(half(begin + 6)),
        zone_maps: u64::from(half(begin + 8)),
        first: u64::from(half(begin + 10)),
        zone_shift: half(begin + 12),
    }
    .fits()
}

pub(super) fn minix3(image: &Image, at: u64) -> bool {
    minix_new(at - 0x18, |at| image.le16(at), |at| image.le32(at))
}

pub(super) fn minix3_swapped(image: &Image, at: u64) -> bool {
    minix_new(at - 0x18, |at| image.be16(at), |at| image.be32(at))
}
