//! Every signature: its name, its place, its bytes (the facts are in util-linux, `libblkid/src/superblocks/`).
//!
//! Invariant: what holds something else inside (an encrypted volume, a member of an array) stands before what it may
//! look like, and of two that share bytes the more special one stands first. A signature of less than four bytes has a
//! check.

use crate::sector::SECTOR;
use crate::signatures::checks::{self, always};
use crate::signatures::image::Image;

/// Where the bytes are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// From the beginning.
    Start(u64),
    /// Before the end of the device's last whole sector of 512 bytes.
    End(u64),
    /// Before the end, when only whole units count: (unit, bytes before the end of the last whole unit).
    Aligned(u64, u64),
}

impl At {
    /// The place on a device of `size` bytes; none when it is too small.
    pub fn on(self, size: u64) -> Option<u64> {
        match self {
            Self::Start(at) => Some(at),
            Self::End(back) => (size / SECTOR * SECTOR).checked_sub(back),
            Self::Aligned(unit, back) => (size / unit * unit).checked_sub(back),
        }
    }
}

/// One signature.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// What it belongs to, as `blkid` calls it.
    pub kind: &'static str,
    /// Where it is.
    pub at: At,
    /// Its bytes.
    pub magic: &'static [u8],
    /// What else must fit, given the place.
    pub check: fn(&Image, u64) -> bool,
}

impl Signature {
    /// Whether the image has it.
    pub fn is_in(&self, image: &Image) -> bool {
        self.at.on(image.size()).is_some_and(|at| image.has(at, self.magic) && (self.check)(image, at))
    }
}

const fn row(kind: &'static str, at: At, magic: &'static [u8]) -> Signature {
    assert!(magic.len() >= 4, "a signature of less than four bytes has a check");
    Signature { kind, at, magic, check: always }
}

const fn checked(kind: &'static str, at: At, magic: &'static [u8], check: fn(&Image, u64) -> bool) -> Signature {
    Signature { kind, at, magic, check }
}

use At::{Aligned, End, Start};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";
const LUKS_COPY: &[u8] = b"SKUL\xba\xbe";
const PROMISE: &[u8] = b"Promise Technology, Inc.";
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";
const LVM2: &[u8] = b"LABELONE";

/// See the module text.
pub const TABLE: &[Signature] = &[
    // Encrypted volumes.
    checked("crypto_LUKS", Start(0), b"LUKS\xba\xbe", checks::luks),
    checked("crypto_LUKS", Start(16 * KIB), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(32 * KIB), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(64 * KIB), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(128 * KIB), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(256 * KIB), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(MIB / 2), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(MIB), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(2 * MIB), LUKS_COPY, checks::luks_copy),
    checked("crypto_LUKS", Start(4 * MIB), LUKS_COPY, checks::luks_copy),
    row("BitLocker", Start(0), b"\xeb\x52\x90-FVE-FS-"),
    row("BitLocker", Start(0), b"\xeb\x58\x90-FVE-FS-"),
    checked("BitLocker", Start(0), b"\xeb\x58\x90MSWIN4.1", checks::bitlocker_to_go),
    checked("cs_fvault2", Start(88), b"CS", checks::core_storage),
    // Members of arrays and volumes.
    checked("LVM2_member", Start(0), LVM2, checks::lvm2),
    checked("LVM2_member", Start(SECTOR), LVM2, checks::lvm2),
    checked("LVM2_member", Start(KIB), LVM2, checks::lvm2),
    checked("LVM2_member", Start(KIB + SECTOR), LVM2, checks::lvm2),
    checked("LVM1_member", Start(0), b"HM", checks::lvm1),
    checked("linux_raid_member", Aligned(64 * KIB, 64 * KIB), MD, checks::md_old),
    checked("linux_raid_member", Aligned(64 * KIB, 64 * KIB), b"\xa9\x2b\x4e\xfc", checks::md_old),
    checked("linux_raid_member", Aligned(4 * KIB, 8 * KIB), MD, checks::md),
    checked("linux_raid_member", Start(0), MD, checks::md),
    checked("linux_raid_member", Start(4 * KIB), MD, checks::md),
    row("bcache", Start(4 * KIB + 24), BCACHE),
    row("bcachefs", Start(4 * KIB + 24), BCACHEFS),
    row("bcachefs", Start(2 * MIB + 24), BCACHEFS),
    row("bcachefs", Aligned(1, MIB - 24), BCACHEFS),
    row("drbd", Aligned(1, 4096 - 60), b"\x83\x74\x02\x6b"),
    row("drbd", Aligned(1, 4096 - 60), b"\x83\x74\x02\x6c"),
    row("drbd", Aligned(1, 4096 - 60), b"\x83\x74\x02\x6d"),
    row("drbdmanage_control_volume", Start(0), b"$DRBDmgr=q"),
    row("drbdproxy_datalog", Start(0), b"DRBDdlh*"),
    row("stratis", Start(SECTOR + 4), STRATIS),
    row("stratis", Start(9 * SECTOR + 4), STRATIS),
    row("vdo", Start(0), b"dmvdo001"),
    row("mpool", Start(0), b"mpoolDev"),
    row("ceph_bluestore", Start(0), b"bluestore block device"),
    row("oracleasm", Start(32), b"ORCLDISK"),
    row("DM_snapshot_cow", Start(0), b"SnAp"),
    row("DM_verity_hash", Start(0), b"verity\0\0"),
    row("DM_integrity", Start(0), b"integrt\0"),
    row("VMFS_volume_member", Start(MIB), b"\x0d\xd0\x01\xc0"),
    row("VMFS", Start(2 * MIB), b"\x5e\xf1\xab\x2f"),
    row("isw_raid_member", End(2 * SECTOR), b"Intel Raid ISM Cfg Sig. "),
    row("nvidia_raid_member", End(2 * SECTOR), b"NVIDIA  "),
    row("lsi_mega_raid_member", End(SECTOR), b"$XIDE$"),
    checked("adaptec_raid_member", End(SECTOR - 256), b"DPTM", checks::adaptec),
    row("ddf_raid_member", End(SECTOR), b"\xde\x11\xde\x11"),
    row("ddf_raid_member", End(257 * SECTOR), b"\xde\x11\xde\x11"),
    checked("silicon_medley_raid_member", End(SECTOR - 0x60), b"\x00\x00\x00\x2f", checks::silicon),
    checked("jmicron_raid_member", End(SECTOR), b"JM", checks::jmicron),
    checked("via_raid_member", End(SECTOR), b"\x55\xaa", checks::via),
    row("hpt45x_raid_member", End(11 * SECTOR), b"\xf3\x16\x78\x5a"),
    row("hpt45x_raid_member", End(11 * SECTOR), b"\xfd\x16\x78\x5a"),
    row("hpt37x_raid_member", Start(4640), b"\xf0\x16\x78\x5a"),
    row("hpt37x_raid_member", Start(4640), b"\xfd\x16\x78\x5a"),
    row("promise_fasttrack_raid_member", End(63 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(255 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(256 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(16 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(399 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(591 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(675 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(735 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(911 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(951 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(974 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(991 * SECTOR), PROMISE),
    row("promise_fasttrack_raid_member", End(3087 * SECTOR), PROMISE),
    // Swap space; its pages may be of several sizes.
    row("swsuspend", Start(0), b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c"),
    checked("swap", Start(0xff6), b"SWAPSPACE2", checks::swap),
    checked("swap", Start(0x1ff6), b"SWAPSPACE2", checks::swap),
    checked("swap", Start(0x3ff6), b"SWAPSPACE2", checks::swap),
    checked("swap", Start(0x7ff6), b"SWAPSPACE2", checks::swap),
    checked("swap", Start(0xfff6), b"SWAPSPACE2", checks::swap),
    row("swap", Start(0xff6), b"SWAP-SPACE"),
    row("swap", Start(0x1ff6), b"SWAP-SPACE"),
    row("swap", Start(0x3ff6), b"SWAP-SPACE"),
    row("swap", Start(0x7ff6), b"SWAP-SPACE"),
    row("swap", Start(0xfff6), b"SWAP-SPACE"),
    row("swsuspend", Start(0xff6), b"S1SUSPEND"),
    row("swsuspend", Start(0xff6), b"S2SUSPEND"),
    row("swsuspend", Start(0xff6), b"ULSUSPEND"),
    row("swsuspend", Start(0xff6), b"LINHIB0001"),
    row("swsuspend", Start(0x1ff6), b"S1SUSPEND"),
    row("swsuspend", Start(0x1ff6), b"S2SUSPEND"),
    row("swsuspend", Start(0x1ff6), b"ULSUSPEND"),
    row("swsuspend", Start(0x1ff6), b"LINHIB0001"),
    row("swsuspend", Start(0x3ff6), b"S1SUSPEND"),
    row("swsuspend", Start(0x3ff6), b"S2SUSPEND"),
    row("swsuspend", Start(0x3ff6), b"ULSUSPEND"),
    row("swsuspend", Start(0x3ff6), b"LINHIB0001"),
    row("swsuspend", Start(0x7ff6), b"S1SUSPEND"),
    row("swsuspend", Start(0x7ff6), b"S2SUSPEND"),
    row("swsuspend", Start(0x7ff6), b"ULSUSPEND"),
    row("swsuspend", Start(0x7ff6), b"LINHIB0001"),
    row("swsuspend", Start(0xfff6), b"S1SUSPEND"),
    row("swsuspend", Start(0xfff6), b"S2SUSPEND"),
    row("swsuspend", Start(0xfff6), b"ULSUSPEND"),
    row("swsuspend", Start(0xfff6), b"LINHIB0001"),
    // File systems.
    checked("ext2", Start(0x438), b"\x53\xef", checks::ext2),
    checked("ext3", Start(0x438), b"\x53\xef", checks::ext3),
    checked("jbd", Start(0x438), b"\x53\xef", checks::jbd),
    checked("ext4", Start(0x438), b"\x53\xef", checks::ext),
    checked("xfs", Start(0), b"XFSB", checks::xfs),
    checked("btrfs", Start(64 * KIB + 0x40), b"_BHRfS_M", checks::btrfs),
    row("f2fs", Start(KIB), b"\x10\x20\xf5\xf2"),
    row("erofs", Start(KIB), b"\xe2\xe1\xf5\xe0"),
    checked("exfat", Start(3), b"EXFAT   ", checks::exfat),
    checked("ntfs", Start(3), b"NTFS    ", checks::ntfs),
    row("ReFS", Start(0), b"\0\0\0ReFS\0"),
    checked("vfat", Start(0x52), b"MSWIN", checks::fat),
    checked("vfat", Start(0x52), b"FAT32   ", checks::fat),
    checked("vfat", Start(0x36), b"MSDOS", checks::fat),
    checked("vfat", Start(0x36), b"FAT16   ", checks::fat),
    checked("vfat", Start(0x36), b"FAT12   ", checks::fat),
    checked("vfat", Start(0x36), b"FAT     ", checks::fat),
    checked("vfat", Start(0), b"\xeb", checks::fat_without_name),
    checked("vfat", Start(0), b"\xe9", checks::fat_without_name),
    row("apfs", Start(32), b"NXSB"),
    checked("hfsplus", Start(KIB), b"H+", checks::hfs_plus),
    checked("hfsplus", Start(KIB), b"HX", checks::hfs_plus),
    checked("hfsplus", Start(KIB), b"BD", checks::hfs_around_plus),
    checked("hfs", Start(KIB), b"BD", checks::hfs),
    checked("udf", Start(32 * KIB + 1), b"BEA01", checks::udf),
    checked("udf", Start(32 * KIB + 1), b"BOOT2", checks::udf),
    checked("udf", Start(32 * KIB + 1), b"CD001", checks::udf),
    checked("udf", Start(32 * KIB + 1), b"CDW02", checks::udf),
    checked("udf", Start(32 * KIB + 1), b"NSR02", checks::udf),
    checked("udf", Start(32 * KIB + 1), b"NSR03", checks::udf),
    checked("udf", Start(32 * KIB + 1), b"TEA01", checks::udf),
    row("iso9660", Start(32 * KIB + 1), b"CD001"),
    row("iso9660", Start(32 * KIB + 9), b"CDROM"),
    checked("squashfs", Start(0), b"hsqs", checks::squashfs),
    row("squashfs3", Start(0), b"hsqs"),
    row("squashfs3", Start(0), b"sqsh"),
    row("cramfs", Start(0), b"\x45\x3d\xcd\x28"),
    row("cramfs", Start(0), b"\x28\xcd\x3d\x45"),
    row("romfs", Start(0), b"-rom1fs-"),
    checked("jfs", Start(32 * KIB), b"JFS1", checks::jfs),
    row("reiserfs", Start(8 * KIB + 0x34), b"ReIsErFs"),
    row("reiserfs", Start(8 * KIB + 20), b"ReIsErFs"),
    row("reiserfs", Start(64 * KIB + 0x34), b"ReIsErFs"),
    row("reiserfs", Start(64 * KIB + 0x34), b"ReIsEr2Fs"),
    row("reiserfs", Start(64 * KIB + 0x34), b"ReIsEr3Fs"),
    row("reiser4", Start(64 * KIB), b"ReIsEr4"),
    checked("gfs2", Start(64 * KIB), b"\x01\x16\x19\x70", checks::gfs2),
    row("gfs", Start(64 * KIB), b"\x01\x16\x19\x70"),
    row("scoutfs_meta", Start(64 * KIB + 4), b"\x8b\x42\x3c\x10"),
    row("ocfs", Start(8 * KIB), b"OracleCFS"),
    row("ocfs2", Start(KIB), b"OCFSV2"),
    row("ocfs2", Start(2 * KIB), b"OCFSV2"),
    row("ocfs2", Start(4 * KIB), b"OCFSV2"),
    row("ocfs2", Start(8 * KIB), b"OCFSV2"),
    checked("nilfs2", Start(KIB + 6), b"\x34\x34", checks::nilfs2),
    checked("nilfs2", End(8 * SECTOR - 6), b"\x34\x34", checks::nilfs2),
    checked("hpfs", Start(8 * KIB), b"\x49\xe8\x95\xf9", checks::hpfs),
    row("befs", Start(0x20), b"BFS1"),
    row("befs", Start(0x20), b"1SFB"),
    row("befs", Start(0x220), b"BFS1"),
    row("befs", Start(0x220), b"1SFB"),
    row("bfs", Start(0), b"\xce\xfa\xad\x1b"),
    row("exfs", Start(0), b"EXFS"),
    row("zonefs", Start(0), b"SFOZ"),
    row("ubi", Start(0), b"UBI#"),
    row("ubifs", Start(0), b"\x31\x18\x10\x06"),
    row("nss", Start(4 * KIB), b"SPB5"),
    row("vxfs", Start(KIB), b"\xf5\xfc\x01\xa5"),
    row("vxfs", Start(8 * KIB), b"\xa5\x01\xfc\xf5"),
    checked("xenix", Start(2 * KIB), b"\x2b\x55\x44", checks::alone_in_its_sector),
    checked("xenix", Start(2 * KIB), b"\x44\x55\x2b", checks::alone_in_its_sector),
    row("sysv", Start(SECTOR + 504), b"\x20\x7e\x18\xfd"),
    row("sysv", Start(SECTOR + 504), b"\xfd\x18\x7e\x20"),
    row("sysv", Start(19 * SECTOR + 504), b"\x20\x7e\x18\xfd"),
    row("sysv", Start(19 * SECTOR + 504), b"\xfd\x18\x7e\x20"),
    row("sysv", Start(31 * SECTOR + 504), b"\x20\x7e\x18\xfd"),
    row("sysv", Start(31 * SECTOR + 504), b"\xfd\x18\x7e\x20"),
    row("sysv", Start(37 * SECTOR + 504), b"\x20\x7e\x18\xfd"),
    row("sysv", Start(37 * SECTOR + 504), b"\xfd\x18\x7e\x20"),
    checked("ufs", Start(0), b"", checks::ufs),
    checked("minix", Start(KIB + 0x10), b"\x7f\x13", checks::minix),
    checked("minix", Start(KIB + 0x10), b"\x8f\x13", checks::minix),
    checked("minix", Start(KIB + 0x10), b"\x68\x24", checks::minix),
    checked("minix", Start(KIB + 0x10), b"\x78\x24", checks::minix),
    checked("minix", Start(KIB + 0x10), b"\x13\x7f", checks::minix_swapped),
    checked("minix", Start(KIB + 0x10), b"\x13\x8f", checks::minix_swapped),
    checked("minix", Start(KIB + 0x10), b"\x24\x68", checks::minix_swapped),
    checked("minix", Start(KIB + 0x10), b"\x24\x78", checks::minix_swapped),
    checked("minix", Start(KIB + 0x18), b"\x5a\x4d", checks::minix3),
    checked("minix", Start(KIB + 0x18), b"\x4d\x5a", checks::minix3_swapped),
    checked("xfs_external_log", Start(0), b"", checks::xfs_log),
];
