//! What an object's blocks (or its bonus) hold: `dmu_object_type_t` (`include/sys/dmu.h`, table in `module/zfs/dmu.c`).
//! A pool may carry numbers that this version does not know: they are kept as they are.

/// Number of enumerated types; no type below 0x80 is valid from here on.
const NUMTYPES: u8 = 54;

/// `DMU_OT_NEWTYPE`: the type describes itself.
const NEWTYPE: u8 = 0x80;
/// `DMU_OT_METADATA` bit of a self-describing type.
const METADATA: u8 = 0x40;
/// `DMU_OT_ENCRYPTED` bit of a self-describing type.
const ENCRYPTED: u8 = 0x20;
/// `DMU_OT_BYTESWAP_MASK`: the bits of a self-describing type that hold its [`Byteswap`].
const BYTESWAP_MASK: u8 = 0x1f;

/// `dmu_object_byteswap_t`: how a block of some type is turned from one byte order into the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Byteswap {
    /// Bytes: nothing to turn.
    Uint8 = 0,
    /// Array of 16-bit numbers.
    Uint16 = 1,
    /// Array of 32-bit numbers.
    Uint32 = 2,
    /// Array of 64-bit numbers.
    Uint64 = 3,
    /// ZAP block.
    Zap = 4,
    /// Array of dnodes.
    Dnode = 5,
    /// Object set head.
    Objset = 6,
    /// znode of the days before system attributes.
    Znode = 7,
    /// Version 0 ACL.
    OldAcl = 8,
    /// ACL.
    Acl = 9,
}

impl Byteswap {
    const ALL: [Self; 10] = [
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Zap,
        Self::Dnode,
        Self::Objset,
        Self::Znode,
        Self::OldAcl,
        Self::Acl,
    ];
}

/// `dmu_object_type_t`. Types from 0x80 up are not enumerated: they say themselves how to byte-swap them and whether
/// they are metadata ([`ObjectType::described`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ObjectType(u8);

impl ObjectType {
    /// A free dnode.
    pub const NONE: Self = Self(0);
    /// Object directory.
    pub const OBJECT_DIRECTORY: Self = Self(1);
    /// Object array.
    pub const OBJECT_ARRAY: Self = Self(2);
    /// Packed nvlist.
    pub const PACKED_NVLIST: Self = Self(3);
    /// Packed nvlist size.
    pub const PACKED_NVLIST_SIZE: Self = Self(4);
    /// Bpobj.
    pub const BPOBJ: Self = Self(5);
    /// Bpobj header.
    pub const BPOBJ_HDR: Self = Self(6);
    /// SPA space map header.
    pub const SPACE_MAP_HEADER: Self = Self(7);
    /// SPA space map.
    pub const SPACE_MAP: Self = Self(8);
    /// ZIL intent log.
    pub const INTENT_LOG: Self = Self(9);
    /// DMU dnode.
    pub const DNODE: Self = Self(10);
    /// DMU objset.
    pub const OBJSET: Self = Self(11);
    /// DSL directory.
    pub const DSL_DIR: Self = Self(12);
    /// DSL directory child map.
    pub const DSL_DIR_CHILD_MAP: Self = Self(13);
    /// DSL dataset snap map.
    pub const DSL_DS_SNAP_MAP: Self = Self(14);
    /// DSL props.
    pub const DSL_PROPS: Self = Self(15);
    /// DSL dataset.
    pub const DSL_DATASET: Self = Self(16);
    /// ZFS znode.
    pub const ZNODE: Self = Self(17);
    /// ZFS V0 ACL.
    pub const OLDACL: Self = Self(18);
    /// ZFS plain file.
    pub const PLAIN_FILE_CONTENTS: Self = Self(19);
    /// ZFS directory.
    pub const DIRECTORY_CONTENTS: Self = Self(20);
    /// ZFS master node.
    pub const MASTER_NODE: Self = Self(21);
    /// ZFS delete queue.
    pub const UNLINKED_SET: Self = Self(22);
    /// Zvol object.
    pub const ZVOL: Self = Self(23);
    /// Zvol prop.
    pub const ZVOL_PROP: Self = Self(24);
    /// Other uint8[].
    pub const PLAIN_OTHER: Self = Self(25);
    /// Other uint64[].
    pub const UINT64_OTHER: Self = Self(26);
    /// Other ZAP.
    pub const ZAP_OTHER: Self = Self(27);
    /// Persistent error log.
    pub const ERROR_LOG: Self = Self(28);
    /// SPA history.
    pub const SPA_HISTORY: Self = Self(29);
    /// SPA history offsets.
    pub const SPA_HISTORY_OFFSETS: Self = Self(30);
    /// Pool properties.
    pub const POOL_PROPS: Self = Self(31);
    /// DSL permissions.
    pub const DSL_PERMS: Self = Self(32);
    /// ZFS ACL.
    pub const ACL: Self = Self(33);
    /// ZFS SYSACL.
    pub const SYSACL: Self = Self(34);
    /// FUID table.
    pub const FUID: Self = Self(35);
    /// FUID table size.
    pub const FUID_SIZE: Self = Self(36);
    /// DSL dataset next clones.
    pub const NEXT_CLONES: Self = Self(37);
    /// Scan work queue.
    pub const SCAN_QUEUE: Self = Self(38);
    /// ZFS user/group/project used.
    pub const USERGROUP_USED: Self = Self(39);
    /// ZFS user/group/project quota.
    pub const USERGROUP_QUOTA: Self = Self(40);
    /// Snapshot refcount tags.
    pub const USERREFS: Self = Self(41);
    /// DDT ZAP algorithm.
    pub const DDT_ZAP: Self = Self(42);
    /// DDT statistics.
    pub const DDT_STATS: Self = Self(43);
    /// System attributes.
    pub const SA: Self = Self(44);
    /// SA master node.
    pub const SA_MASTER_NODE: Self = Self(45);
    /// SA attr registration.
    pub const SA_ATTR_REGISTRATION: Self = Self(46);
    /// SA attr layouts.
    pub const SA_ATTR_LAYOUTS: Self = Self(47);
    /// Scan translations.
    pub const SCAN_XLATE: Self = Self(48);
    /// Only in memory: a pointer made from a dedup table entry.
    pub const DEDUP: Self = Self(49);
    /// DSL deadlist map.
    pub const DEADLIST: Self = Self(50);
    /// DSL deadlist map hdr.
    pub const DEADLIST_HDR: Self = Self(51);
    /// DSL dir clones.
    pub const DSL_CLONES: Self = Self(52);
    /// Bpobj subobj.
    pub const BPOBJ_SUBOBJ: Self = Self(53);

    /// `DMU_OTN_UINT8_DATA`.
    pub const OTN_UINT8_DATA: Self = Self::described(Byteswap::Uint8, false, false);
    /// `DMU_OTN_UINT8_METADATA`.
    pub const OTN_UINT8_METADATA: Self = Self::described(Byteswap::Uint8, true, false);
    /// `DMU_OTN_UINT8_ENC_DATA`.
    pub const OTN_UINT8_ENC_DATA: Self = Self::described(Byteswap::Uint8, false, true);
    /// `DMU_OTN_UINT8_ENC_METADATA`.
    pub const OTN_UINT8_ENC_METADATA: Self = Self::described(Byteswap::Uint8, true, true);
    /// `DMU_OTN_UINT16_DATA`.
    pub const OTN_UINT16_DATA: Self = Self::described(Byteswap::Uint16, false, false);
    /// `DMU_OTN_UINT16_METADATA`.
    pub const OTN_UINT16_METADATA: Self = Self::described(Byteswap::Uint16, true, false);
    /// `DMU_OTN_UINT16_ENC_DATA`.
    pub const OTN_UINT16_ENC_DATA: Self = Self::described(Byteswap::Uint16, false, true);
    /// `DMU_OTN_UINT16_ENC_METADATA`.
    pub const OTN_UINT16_ENC_METADATA: Self = Self::described(Byteswap::Uint16, true, true);
    /// `DMU_OTN_UINT32_DATA`.
    pub const OTN_UINT32_DATA: Self = Self::described(Byteswap::Uint32, false, false);
    /// `DMU_OTN_UINT32_METADATA`.
    pub const OTN_UINT32_METADATA: Self = Self::described(Byteswap::Uint32, true, false);
    /// `DMU_OTN_UINT32_ENC_DATA`.
    pub const OTN_UINT32_ENC_DATA: Self = Self::described(Byteswap::Uint32, false, true);
    /// `DMU_OTN_UINT32_ENC_METADATA`.
    pub const OTN_UINT32_ENC_METADATA: Self = Self::described(Byteswap::Uint32, true, true);
    /// `DMU_OTN_UINT64_DATA`.
    pub const OTN_UINT64_DATA: Self = Self::described(Byteswap::Uint64, false, false);
    /// `DMU_OTN_UINT64_METADATA`.
    pub const OTN_UINT64_METADATA: Self = Self::described(Byteswap::Uint64, true, false);
    /// `DMU_OTN_UINT64_ENC_DATA`.
    pub const OTN_UINT64_ENC_DATA: Self = Self::described(Byteswap::Uint64, false, true);
    /// `DMU_OTN_UINT64_ENC_METADATA`.
    pub const OTN_UINT64_ENC_METADATA: Self = Self::described(Byteswap::Uint64, true, true);
    /// `DMU_OTN_ZAP_DATA`.
    pub const OTN_ZAP_DATA: Self = Self::described(Byteswap::Zap, false, false);
    /// `DMU_OTN_ZAP_METADATA`.
    pub const OTN_ZAP_METADATA: Self = Self::described(Byteswap::Zap, true, false);
    /// `DMU_OTN_ZAP_ENC_DATA`.
    pub const OTN_ZAP_ENC_DATA: Self = Self::described(Byteswap::Zap, false, true);
    /// `DMU_OTN_ZAP_ENC_METADATA`.
    pub const OTN_ZAP_ENC_METADATA: Self = Self::described(Byteswap::Zap, true, true);
}

impl ObjectType {
    /// The type with this number, known to this version or not.
    pub const fn from_number(number: u8) -> Self {
        Self(number)
    }

    /// The number as it is stored.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// `DMU_OT(byteswap, metadata, encrypted)`: a self-describing type.
    pub const fn described(byteswap: Byteswap, metadata: bool, encrypted: bool) -> Self {
        Self(NEWTYPE | if metadata { METADATA } else { 0 } | if encrypted { ENCRYPTED } else { 0 } | byteswap as u8)
    }

    /// How its blocks are turned, or `None` when the type is not valid.
    pub fn byteswap(self) -> Option<Byteswap> {
        if self.is_described() {
            Byteswap::ALL.get(usize::from(self.0 & BYTESWAP_MASK)).copied()
        } else {
            self.row().map(|row| row.byteswap)
        }
    }

    /// `DMU_OT_IS_VALID`.
    pub fn is_valid(self) -> bool {
        self.byteswap().is_some()
    }

    /// `DMU_OT_IS_METADATA`: whether level-0 blocks of this type count as metadata (more copies, cached differently).
    /// An unknown type counts as metadata.
    pub fn is_metadata(self) -> bool {
        if self.is_described() { self.0 & METADATA != 0 } else { self.row().is_none_or(|row| row.metadata) }
    }

    /// `DMU_OT_IS_METADATA_CACHED`: whether blocks of this type are few and hot (pool and dataset directories).
    pub fn is_metadata_cached(self) -> bool {
        if self.is_described() { self.0 & METADATA != 0 } else { self.row().is_some_and(|row| row.dbuf_metadata_cache) }
    }

    /// `DMU_OT_IS_ENCRYPTED`: whether blocks (or bonus buffers) of this type are encrypted in an encrypted dataset.
    pub fn is_encrypted(self) -> bool {
        if self.is_described() { self.0 & ENCRYPTED != 0 } else { self.row().is_some_and(|row| row.encrypt) }
    }

    /// `DMU_OT_HAS_FILL`: whether the fill count of this type's level-0 pointers may differ from 1. Such blocks are
    /// never embedded in their pointer.
    pub fn has_fill(self) -> bool {
        self == Self::DNODE || self == Self::OBJSET
    }

    /// The type's name as zdb prints it.
    pub fn name(self) -> &'static str {
        if !self.is_described() {
            return self.row().map_or("unknown", |row| row.name);
        }
        let metadata = self.0 & METADATA != 0;
        match (self.byteswap(), metadata) {
            (Some(Byteswap::Uint8), false) => "bswap uint8 data",
            (Some(Byteswap::Uint8), true) => "bswap uint8 metadata",
            (Some(Byteswap::Uint16), false) => "bswap uint16 data",
            (Some(Byteswap::Uint16), true) => "bswap uint16 metadata",
            (Some(Byteswap::Uint32), false) => "bswap uint32 data",
            (Some(Byteswap::Uint32), true) => "bswap uint32 metadata",
            (Some(Byteswap::Uint64), false) => "bswap uint64 data",
            (Some(Byteswap::Uint64), true) => "bswap uint64 metadata",
            (Some(Byteswap::Zap), false) => "bswap zap data",
            (Some(Byteswap::Zap), true) => "bswap zap metadata",
            _ => "unknown",
        }
    }

    fn is_described(self) -> bool {
        self.0 & NEWTYPE != 0
    }

    /// What the table says of an enumerated type.
    fn row(self) -> Option<&'static TypeInfo> {
        TYPES.get(usize::from(self.0))
    }
}

impl std::fmt::Display for ObjectType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

struct TypeInfo {
    byteswap: Byteswap,
    metadata: bool,
    dbuf_metadata_cache: bool,
    encrypt: bool,
    name: &'static str,
}

const fn row(
    byteswap: Byteswap,
    metadata: bool,
    dbuf_metadata_cache: bool,
    encrypt: bool,
    name: &'static str,
) -> TypeInfo {
    TypeInfo { byteswap, metadata, dbuf_metadata_cache, encrypt, name }
}

/// By type number: byte swap, metadata, worth keeping in a metadata cache, encrypted in an encrypted dataset, name.
const TYPES: [TypeInfo; NUMTYPES as usize] = [
    row(Byteswap::Uint8, true, false, false, "unallocated"),
    row(Byteswap::Zap, true, true, false, "object directory"),
    row(Byteswap::Uint64, true, true, false, "object array"),
    row(Byteswap::Uint8, true, false, false, "packed nvlist"),
    row(Byteswap::Uint64, true, false, false, "packed nvlist size"),
    row(Byteswap::Uint64, true, false, false, "bpobj"),
    row(Byteswap::Uint64, true, false, false, "bpobj header"),
    row(Byteswap::Uint64, true, false, false, "SPA space map header"),
    row(Byteswap::Uint64, true, false, false, "SPA space map"),
    row(Byteswap::Uint64, true, false, true, "ZIL intent log"),
    row(Byteswap::Dnode, true, false, true, "DMU dnode"),
    row(Byteswap::Objset, true, true, false, "DMU objset"),
    row(Byteswap::Uint64, true, true, false, "DSL directory"),
    row(Byteswap::Zap, true, true, false, "DSL directory child map"),
    row(Byteswap::Zap, true, true, false, "DSL dataset snap map"),
    row(Byteswap::Zap, true, true, false, "DSL props"),
    row(Byteswap::Uint64, true, true, false, "DSL dataset"),
    row(Byteswap::Znode, true, false, false, "ZFS znode"),
    row(Byteswap::OldAcl, true, false, true, "ZFS V0 ACL"),
    row(Byteswap::Uint8, false, false, true, "ZFS plain file"),
    row(Byteswap::Zap, true, false, true, "ZFS directory"),
    row(Byteswap::Zap, true, false, false, "ZFS master node"),
    row(Byteswap::Zap, true, false, true, "ZFS delete queue"),
    row(Byteswap::Uint8, false, false, true, "zvol object"),
    row(Byteswap::Zap, true, false, false, "zvol prop"),
    row(Byteswap::Uint8, false, false, true, "other uint8[]"),
    row(Byteswap::Uint64, false, false, true, "other uint64[]"),
    row(Byteswap::Zap, true, false, false, "other ZAP"),
    row(Byteswap::Zap, true, false, false, "persistent error log"),
    row(Byteswap::Uint8, true, false, false, "SPA history"),
    row(Byteswap::Uint64, true, false, false, "SPA history offsets"),
    row(Byteswap::Zap, true, true, false, "Pool properties"),
    row(Byteswap::Zap, true, true, false, "DSL permissions"),
    row(Byteswap::Acl, true, false, true, "ZFS ACL"),
    row(Byteswap::Uint8, true, false, true, "ZFS SYSACL"),
    row(Byteswap::Uint8, true, false, true, "FUID table"),
    row(Byteswap::Uint64, true, false, false, "FUID table size"),
    row(Byteswap::Zap, true, true, false, "DSL dataset next clones"),
    row(Byteswap::Zap, true, false, false, "scan work queue"),
    row(Byteswap::Zap, true, false, true, "ZFS user/group/project used"),
    row(Byteswap::Zap, true, false, true, "ZFS user/group/project quota"),
    row(Byteswap::Zap, true, true, false, "snapshot refcount tags"),
    row(Byteswap::Zap, true, false, false, "DDT ZAP algorithm"),
    row(Byteswap::Zap, true, false, false, "DDT statistics"),
    row(Byteswap::Uint8, true, false, true, "System attributes"),
    row(Byteswap::Zap, true, false, true, "SA master node"),
    row(Byteswap::Zap, true, false, true, "SA attr registration"),
    row(Byteswap::Zap, true, false, true, "SA attr layouts"),
    row(Byteswap::Zap, true, false, false, "scan translations"),
    row(Byteswap::Uint8, false, false, true, "deduplicated block"),
    row(Byteswap::Zap, true, true, false, "DSL deadlist map"),
    row(Byteswap::Uint64, true, true, false, "DSL deadlist map hdr"),
    row(Byteswap::Zap, true, true, false, "DSL dir clones"),
    row(Byteswap::Uint64, true, false, false, "bpobj subobj"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_where_the_format_has_them() {
        assert_eq!(ObjectType::DNODE.number(), 10);
        assert_eq!(ObjectType::OBJSET.number(), 11);
        assert_eq!(ObjectType::PLAIN_FILE_CONTENTS.number(), 19);
        assert_eq!(ObjectType::DIRECTORY_CONTENTS.number(), 20);
        assert_eq!(ObjectType::SA.number(), 44);
        assert_eq!(ObjectType::BPOBJ_SUBOBJ.number(), 53);
        assert_eq!(ObjectType::OTN_UINT64_METADATA.number(), 0xc3);
        assert_eq!(ObjectType::OTN_ZAP_METADATA.number(), 0xc4);
        assert_eq!(ObjectType::OTN_UINT8_METADATA.number(), 0xc0);
    }

    #[test]
    fn file_contents_are_data_and_directories_metadata() {
        assert!(!ObjectType::PLAIN_FILE_CONTENTS.is_metadata());
        assert!(ObjectType::DIRECTORY_CONTENTS.is_metadata());
        assert!(ObjectType::OTN_ZAP_METADATA.is_metadata());
        assert!(!ObjectType::OTN_ZAP_DATA.is_metadata());
    }

    #[test]
    fn only_known_types_are_valid() {
        let is_valid = |number| ObjectType::from_number(number).is_valid();
        assert!(is_valid(0) && is_valid(53) && !is_valid(54) && !is_valid(0x7f));
        assert!(is_valid(0x80) && is_valid(0xc9) && !is_valid(0x8a) && !is_valid(0xff));
    }
}
