//! What the file layer keeps on disk: master node names, attribute table, file flags, directory entries, access control
//! entries, and the legacy znode of versions before 5 (`include/sys/zfs_znode.h`, `include/sys/zfs_sa.h`,
//! `include/sys/zfs_acl.h`, `module/zfs/zfs_sa.c`).

use crate::error::Error;
use crate::le::{put_u16, put_u64, u16_at, u64_at, words_at};
use crate::sa::{AttrByteswap, AttrShape};

/// The version this project writes: system attributes (`ZPL_VERSION_SA`).
pub const ZPL_VERSION: u64 = 5;
/// The first version whose directory entries carry the kind (`ZPL_VERSION_DIRENT_TYPE`).
pub const ZPL_VERSION_DIRENT_TYPE: u64 = 2;
/// The object number of the master node (`MASTER_NODE_OBJ`).
pub const MASTER_NODE_OBJECT: u64 = 1;

/// Names in the master node.
pub mod master {
    /// ZPL version.
    pub const VERSION: &str = "VERSION";
    /// Root directory's object.
    pub const ROOT: &str = "ROOT";
    /// Unlinked set's object (`ZFS_UNLINKED_SET`).
    pub const DELETE_QUEUE: &str = "DELETE_QUEUE";
    /// SA master node's object.
    pub const SA_ATTRS: &str = "SA_ATTRS";
    /// Property `utf8only`.
    pub const UTF8ONLY: &str = "utf8only";
    /// Property `normalization`.
    pub const NORMALIZATION: &str = "normalization";
    /// Property `casesensitivity`.
    pub const CASE_SENSITIVITY: &str = "casesensitivity";
}

/// File flags (`z_pflags`).
#[allow(missing_docs, reason = "the names are OpenZFS's and say it")]
pub mod flags {
    pub const XATTR: u64 = 0x1;
    pub const INHERIT_ACE: u64 = 0x2;
    pub const ACL_TRIVIAL: u64 = 0x4;
    pub const ACL_OBJ_ACE: u64 = 0x8;
    pub const ACL_PROTECTED: u64 = 0x10;
    pub const ACL_DEFAULTED: u64 = 0x20;
    pub const ACL_AUTO_INHERIT: u64 = 0x40;
    pub const BONUS_SCANSTAMP: u64 = 0x80;
    pub const NO_EXECS_DENIED: u64 = 0x100;
    pub const READONLY: u64 = 0x1_0000_0000;
    pub const HIDDEN: u64 = 0x2_0000_0000;
    pub const SYSTEM: u64 = 0x4_0000_0000;
    pub const ARCHIVE: u64 = 0x8_0000_0000;
    pub const IMMUTABLE: u64 = 0x10_0000_0000;
    pub const NOUNLINK: u64 = 0x20_0000_0000;
    pub const APPENDONLY: u64 = 0x40_0000_0000;
    pub const NODUMP: u64 = 0x80_0000_0000;
    pub const OPAQUE: u64 = 0x100_0000_0000;
    pub const AV_QUARANTINED: u64 = 0x200_0000_0000;
    pub const AV_MODIFIED: u64 = 0x400_0000_0000;
    pub const REPARSE: u64 = 0x800_0000_0000;
    pub const OFFLINE: u64 = 0x1000_0000_0000;
    pub const SPARSE: u64 = 0x2000_0000_0000;
    pub const PROJINHERIT: u64 = 0x4000_0000_0000;
    pub const PROJID: u64 = 0x8000_0000_0000;
    /// The upper half, which users may change.
    pub const USER: u64 = 0xffff_ffff_0000_0000;
    /// Those that describe the access control list as a whole (`ZFS_ACL_WIDE_FLAGS`).
    pub const ACL_WIDE: u64 =
        ACL_AUTO_INHERIT | ACL_DEFAULTED | ACL_PROTECTED | ACL_TRIVIAL | INHERIT_ACE | ACL_OBJ_ACE;
}

/// The attributes of the file layer (`zpl_attr_t`). Each data set gives them numbers of its own.
#[allow(missing_docs, reason = "the names are OpenZFS's and say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ZplAttr {
    Atime,
    Mtime,
    Ctime,
    Crtime,
    Gen,
    Mode,
    Size,
    Parent,
    Links,
    Xattr,
    Rdev,
    Flags,
    Uid,
    Gid,
    Pad,
    ZnodeAcl,
    DaclCount,
    Symlink,
    Scanstamp,
    DaclAces,
    Dxattr,
    Projid,
}

/// Number of attributes in [`ZplAttr::ALL`].
pub const ZPL_ATTRS: usize = 22;

impl ZplAttr {
    /// All of them in the order of `zfs_attr_table`, which is also that of the numbers a new data set gives them.
    pub const ALL: [Self; ZPL_ATTRS] = [
        Self::Atime,
        Self::Mtime,
        Self::Ctime,
        Self::Crtime,
        Self::Gen,
        Self::Mode,
        Self::Size,
        Self::Parent,
        Self::Links,
        Self::Xattr,
        Self::Rdev,
        Self::Flags,
        Self::Uid,
        Self::Gid,
        Self::Pad,
        Self::ZnodeAcl,
        Self::DaclCount,
        Self::Symlink,
        Self::Scanstamp,
        Self::DaclAces,
        Self::Dxattr,
        Self::Projid,
    ];

    /// How many of them, from the front, have the same number in every data set (`sa_legacy_attrs`).
    pub const LEGACY: usize = 16;

    /// The name in the registry.
    pub fn name(self) -> &'static str {
        match self {
            Self::Atime => "ZPL_ATIME",
            Self::Mtime => "ZPL_MTIME",
            Self::Ctime => "ZPL_CTIME",
            Self::Crtime => "ZPL_CRTIME",
            Self::Gen => "ZPL_GEN",
            Self::Mode => "ZPL_MODE",
            Self::Size => "ZPL_SIZE",
            Self::Parent => "ZPL_PARENT",
            Self::Links => "ZPL_LINKS",
            Self::Xattr => "ZPL_XATTR",
            Self::Rdev => "ZPL_RDEV",
            Self::Flags => "ZPL_FLAGS",
            Self::Uid => "ZPL_UID",
            Self::Gid => "ZPL_GID",
            Self::Pad => "ZPL_PAD",
            Self::ZnodeAcl => "ZPL_ZNODE_ACL",
            Self::DaclCount => "ZPL_DACL_COUNT",
            Self::Symlink => "ZPL_SYMLINK",
            Self::Scanstamp => "ZPL_SCANSTAMP",
            Self::DaclAces => "ZPL_DACL_ACES",
            Self::Dxattr => "ZPL_DXATTR",
            Self::Projid => "ZPL_PROJID",
        }
    }

    /// Size and byte order, with the number that a new data set gives it.
    pub fn shape(self) -> AttrShape {
        let (length, byteswap) = match self {
            Self::Atime | Self::Mtime | Self::Ctime | Self::Crtime => (16, AttrByteswap::Uint64),
            Self::Pad => (32, AttrByteswap::Uint64),
            Self::ZnodeAcl => (88, AttrByteswap::Uint8),
            Self::Symlink | Self::Dxattr => (0, AttrByteswap::Uint8),
            Self::Scanstamp => (32, AttrByteswap::Uint8),
            Self::DaclAces => (0, AttrByteswap::Acl),
            _ => (8, AttrByteswap::Uint64),
        };
        AttrShape { number: self as u16, length, byteswap }
    }
}

/// A device number as stored (Linux kernel: 12 bits major, 20 bits minor; illumos: 32 bits each) in user-space
/// encoding.
pub fn device_for_users(stored: u64) -> u32 {
    let (major, minor) = if stored >> 32 == 0 { (stored >> 20, stored & 0xf_ffff) } else { (stored >> 32, stored) };
    ((minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12) as u32
}

/// A directory entry's value: the kind in the top 4 bits, the object in the low 48.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirentValue {
    /// `DT_*`; 0 when not stored.
    pub kind: u8,
    /// Object number.
    pub object: u64,
}

impl DirentValue {
    /// From the ZAP's integer.
    pub fn decode(value: u64) -> Self {
        Self { kind: (value >> 60) as u8, object: value & 0xffff_ffff_ffff }
    }

    /// The ZAP's integer.
    pub fn encode(self) -> u64 {
        (u64::from(self.kind) << 60) | self.object
    }
}

/// Size of a legacy znode in bytes (`ZFS_OLD_ZNODE_PHYS_SIZE`); a short symbolic link's target follows it.
pub const ZNODE_PHYS_SIZE: usize = 264;
/// Bytes for entries inside a legacy access control list.
pub const ZNODE_ACE_SPACE: usize = 72;

/// A legacy access control list (`zfs_acl_phys_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnodeAcl {
    /// The object that holds the entries when they do not fit here; 0 otherwise.
    pub external: u64,
    /// Bytes of entries (version 1) or number of entries (version 0).
    pub size: u32,
    /// 0: entries of a fixed 12 bytes; 1: as in system attributes.
    pub version: u16,
    /// Number of entries (version 1).
    pub count: u16,
    /// Entries.
    pub data: [u8; ZNODE_ACE_SPACE],
}

/// A legacy znode (`znode_phys_t`).
#[allow(missing_docs, reason = "the fields are those of stat; see ZplAttr")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZnodePhys {
    pub atime: [u64; 2],
    pub mtime: [u64; 2],
    pub ctime: [u64; 2],
    pub crtime: [u64; 2],
    pub generation: u64,
    pub mode: u64,
    pub size: u64,
    pub parent: u64,
    pub links: u64,
    pub xattr: u64,
    pub rdev: u64,
    pub flags: u64,
    pub uid: u64,
    pub gid: u64,
    pub pad: [u64; 4],
    pub acl: ZnodeAcl,
}

impl ZnodePhys {
    /// Decodes a bonus in native byte order.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("legacy znode", bytes, ZNODE_PHYS_SIZE)?;
        let word = |at| u64_at(bytes, at);
        Ok(Self {
            atime: words_at(bytes, 0),
            mtime: words_at(bytes, 16),
            ctime: words_at(bytes, 32),
            crtime: words_at(bytes, 48),
            generation: word(64),
            mode: word(72),
            size: word(80),
            parent: word(88),
            links: word(96),
            xattr: word(104),
            rdev: word(112),
            flags: word(120),
            uid: word(128),
            gid: word(136),
            pad: words_at(bytes, 144),
            acl: ZnodeAcl {
                external: word(176),
                size: u32::from_le_bytes(bytes[184..188].try_into().expect("four bytes")),
                version: u16_at(bytes, 188),
                count: u16_at(bytes, 190),
                data: bytes[192..192 + ZNODE_ACE_SPACE].try_into().expect("checked"),
            },
        })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; ZNODE_PHYS_SIZE] {
        let mut out = [0; ZNODE_PHYS_SIZE];
        let words = [self.atime, self.mtime, self.ctime, self.crtime].concat();
        let rest = [
            self.generation,
            self.mode,
            self.size,
            self.parent,
            self.links,
            self.xattr,
            self.rdev,
            self.flags,
            self.uid,
            self.gid,
        ];
        for (i, word) in words.iter().chain(&rest).chain(&self.pad).enumerate() {
            put_u64(&mut out, 8 * i, *word);
        }
        put_u64(&mut out, 176, self.acl.external);
        out[184..188].copy_from_slice(&self.acl.size.to_le_bytes());
        put_u16(&mut out, 188, self.acl.version);
        put_u16(&mut out, 190, self.acl.count);
        out[192..].copy_from_slice(&self.acl.data);
        out
    }
}

const _: () = assert!(192 + ZNODE_ACE_SPACE == ZNODE_PHYS_SIZE);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_legacy_znode_survives_its_codec(bytes in proptest::collection::vec(any::<u8>(), ZNODE_PHYS_SIZE..400)) {
            let znode = ZnodePhys::decode(&bytes).unwrap();
            prop_assert_eq!(&znode.encode()[..], &bytes[..ZNODE_PHYS_SIZE]);
        }

        #[test]
        fn directory_entries_survive_their_codec(kind in 0u8..16, object in 0u64..1 << 48) {
            let value = DirentValue { kind, object };
            prop_assert_eq!(DirentValue::decode(value.encode()), value);
        }
    }

    #[test]
    fn attribute_numbers_follow_the_table() {
        for (i, attr) in ZplAttr::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(attr.shape().number), i);
        }
        assert_eq!(ZplAttr::ALL[ZplAttr::LEGACY - 1], ZplAttr::ZnodeAcl);
    }

    #[test]
    fn a_short_legacy_znode_is_refused() {
        assert!(ZnodePhys::decode(&[0; ZNODE_PHYS_SIZE - 1]).is_err());
    }
}
