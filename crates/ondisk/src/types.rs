//! The numbers that name things in the format: object types (`include/sys/dmu.h`, table in `module/zfs/dmu.c`),
//! compressions and checksums (`include/sys/zio.h`, `include/sys/zio_compress.h`), object set kinds
//! (`include/sys/fs/zfs.h`).
//!
//! They stay plain `u8`/`u64` because a pool may carry numbers that this version does not know; whoever needs a known
//! one matches on the constants.

/// `dmu_object_type_t`: what an object's blocks (or bonus) hold. Types from 0x80 up are not enumerated: they say
/// themselves how to byte-swap them and whether they are metadata ([`new_type`]).
pub mod object_type {
    /// A free dnode.
    pub const NONE: u8 = 0;
    /// Object directory.
    pub const OBJECT_DIRECTORY: u8 = 1;
    /// Object array.
    pub const OBJECT_ARRAY: u8 = 2;
    /// Packed nvlist.
    pub const PACKED_NVLIST: u8 = 3;
    /// Packed nvlist size.
    pub const PACKED_NVLIST_SIZE: u8 = 4;
    /// Bpobj.
    pub const BPOBJ: u8 = 5;
    /// Bpobj header.
    pub const BPOBJ_HDR: u8 = 6;
    /// SPA space map header.
    pub const SPACE_MAP_HEADER: u8 = 7;
    /// SPA space map.
    pub const SPACE_MAP: u8 = 8;
    /// ZIL intent log.
    pub const INTENT_LOG: u8 = 9;
    /// DMU dnode.
    pub const DNODE: u8 = 10;
    /// DMU objset.
    pub const OBJSET: u8 = 11;
    /// DSL directory.
    pub const DSL_DIR: u8 = 12;
    /// DSL directory child map.
    pub const DSL_DIR_CHILD_MAP: u8 = 13;
    /// DSL dataset snap map.
    pub const DSL_DS_SNAP_MAP: u8 = 14;
    /// DSL props.
    pub const DSL_PROPS: u8 = 15;
    /// DSL dataset.
    pub const DSL_DATASET: u8 = 16;
    /// ZFS znode.
    pub const ZNODE: u8 = 17;
    /// ZFS V0 ACL.
    pub const OLDACL: u8 = 18;
    /// ZFS plain file.
    pub const PLAIN_FILE_CONTENTS: u8 = 19;
    /// ZFS directory.
    pub const DIRECTORY_CONTENTS: u8 = 20;
    /// ZFS master node.
    pub const MASTER_NODE: u8 = 21;
    /// ZFS delete queue.
    pub const UNLINKED_SET: u8 = 22;
    /// Zvol object.
    pub const ZVOL: u8 = 23;
    /// Zvol prop.
    pub const ZVOL_PROP: u8 = 24;
    /// Other uint8[].
    pub const PLAIN_OTHER: u8 = 25;
    /// Other uint64[].
    pub const UINT64_OTHER: u8 = 26;
    /// Other ZAP.
    pub const ZAP_OTHER: u8 = 27;
    /// Persistent error log.
    pub const ERROR_LOG: u8 = 28;
    /// SPA history.
    pub const SPA_HISTORY: u8 = 29;
    /// SPA history offsets.
    pub const SPA_HISTORY_OFFSETS: u8 = 30;
    /// Pool properties.
    pub const POOL_PROPS: u8 = 31;
    /// DSL permissions.
    pub const DSL_PERMS: u8 = 32;
    /// ZFS ACL.
    pub const ACL: u8 = 33;
    /// ZFS SYSACL.
    pub const SYSACL: u8 = 34;
    /// FUID table.
    pub const FUID: u8 = 35;
    /// FUID table size.
    pub const FUID_SIZE: u8 = 36;
    /// DSL dataset next clones.
    pub const NEXT_CLONES: u8 = 37;
    /// Scan work queue.
    pub const SCAN_QUEUE: u8 = 38;
    /// ZFS user/group/project used.
    pub const USERGROUP_USED: u8 = 39;
    /// ZFS user/group/project quota.
    pub const USERGROUP_QUOTA: u8 = 40;
    /// Snapshot refcount tags.
    pub const USERREFS: u8 = 41;
    /// DDT ZAP algorithm.
    pub const DDT_ZAP: u8 = 42;
    /// DDT statistics.
    pub const DDT_STATS: u8 = 43;
    /// System attributes.
    pub const SA: u8 = 44;
    /// SA master node.
    pub const SA_MASTER_NODE: u8 = 45;
    /// SA attr registration.
    pub const SA_ATTR_REGISTRATION: u8 = 46;
    /// SA attr layouts.
    pub const SA_ATTR_LAYOUTS: u8 = 47;
    /// Scan translations.
    pub const SCAN_XLATE: u8 = 48;
    /// Only in memory: a pointer made from a dedup table entry.
    pub const DEDUP: u8 = 49;
    /// DSL deadlist map.
    pub const DEADLIST: u8 = 50;
    /// DSL deadlist map hdr.
    pub const DEADLIST_HDR: u8 = 51;
    /// DSL dir clones.
    pub const DSL_CLONES: u8 = 52;
    /// Bpobj subobj.
    pub const BPOBJ_SUBOBJ: u8 = 53;
    /// Number of enumerated types; no type below 0x80 is valid from here on.
    pub const NUMTYPES: u8 = 54;

    /// `DMU_OT_NEWTYPE`: the type describes itself.
    pub const NEWTYPE: u8 = 0x80;
    /// `DMU_OT_METADATA` bit of a self-describing type.
    pub const METADATA: u8 = 0x40;
    /// `DMU_OT_ENCRYPTED` bit of a self-describing type.
    pub const ENCRYPTED: u8 = 0x20;
    /// `DMU_OT_BYTESWAP_MASK`: the bits of a self-describing type that hold its [`super::Byteswap`].
    pub const BYTESWAP_MASK: u8 = 0x1f;

    use super::{Byteswap, new_type};
    /// `DMU_OTN_UINT8_DATA`.
    pub const OTN_UINT8_DATA: u8 = new_type(Byteswap::Uint8, false, false);
    /// `DMU_OTN_UINT8_METADATA`.
    pub const OTN_UINT8_METADATA: u8 = new_type(Byteswap::Uint8, true, false);
    /// `DMU_OTN_UINT8_ENC_DATA`.
    pub const OTN_UINT8_ENC_DATA: u8 = new_type(Byteswap::Uint8, false, true);
    /// `DMU_OTN_UINT8_ENC_METADATA`.
    pub const OTN_UINT8_ENC_METADATA: u8 = new_type(Byteswap::Uint8, true, true);
    /// `DMU_OTN_UINT16_DATA`.
    pub const OTN_UINT16_DATA: u8 = new_type(Byteswap::Uint16, false, false);
    /// `DMU_OTN_UINT16_METADATA`.
    pub const OTN_UINT16_METADATA: u8 = new_type(Byteswap::Uint16, true, false);
    /// `DMU_OTN_UINT16_ENC_DATA`.
    pub const OTN_UINT16_ENC_DATA: u8 = new_type(Byteswap::Uint16, false, true);
    /// `DMU_OTN_UINT16_ENC_METADATA`.
    pub const OTN_UINT16_ENC_METADATA: u8 = new_type(Byteswap::Uint16, true, true);
    /// `DMU_OTN_UINT32_DATA`.
    pub const OTN_UINT32_DATA: u8 = new_type(Byteswap::Uint32, false, false);
    /// `DMU_OTN_UINT32_METADATA`.
    pub const OTN_UINT32_METADATA: u8 = new_type(Byteswap::Uint32, true, false);
    /// `DMU_OTN_UINT32_ENC_DATA`.
    pub const OTN_UINT32_ENC_DATA: u8 = new_type(Byteswap::Uint32, false, true);
    /// `DMU_OTN_UINT32_ENC_METADATA`.
    pub const OTN_UINT32_ENC_METADATA: u8 = new_type(Byteswap::Uint32, true, true);
    /// `DMU_OTN_UINT64_DATA`.
    pub const OTN_UINT64_DATA: u8 = new_type(Byteswap::Uint64, false, false);
    /// `DMU_OTN_UINT64_METADATA`.
    pub const OTN_UINT64_METADATA: u8 = new_type(Byteswap::Uint64, true, false);
    /// `DMU_OTN_UINT64_ENC_DATA`.
    pub const OTN_UINT64_ENC_DATA: u8 = new_type(Byteswap::Uint64, false, true);
    /// `DMU_OTN_UINT64_ENC_METADATA`.
    pub const OTN_UINT64_ENC_METADATA: u8 = new_type(Byteswap::Uint64, true, true);
    /// `DMU_OTN_ZAP_DATA`.
    pub const OTN_ZAP_DATA: u8 = new_type(Byteswap::Zap, false, false);
    /// `DMU_OTN_ZAP_METADATA`.
    pub const OTN_ZAP_METADATA: u8 = new_type(Byteswap::Zap, true, false);
    /// `DMU_OTN_ZAP_ENC_DATA`.
    pub const OTN_ZAP_ENC_DATA: u8 = new_type(Byteswap::Zap, false, true);
    /// `DMU_OTN_ZAP_ENC_METADATA`.
    pub const OTN_ZAP_ENC_METADATA: u8 = new_type(Byteswap::Zap, true, true);
}

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

    /// The function of an object type, or `None` when the type is not valid.
    pub fn of(object_type: u8) -> Option<Self> {
        if object_type & object_type::NEWTYPE != 0 {
            Self::ALL.get(usize::from(object_type & object_type::BYTESWAP_MASK)).copied()
        } else {
            TYPES.get(usize::from(object_type)).map(|info| info.byteswap)
        }
    }
}

/// `DMU_OT(byteswap, metadata, encrypted)`: a self-describing type.
pub const fn new_type(byteswap: Byteswap, metadata: bool, encrypted: bool) -> u8 {
    object_type::NEWTYPE
        | if metadata { object_type::METADATA } else { 0 }
        | if encrypted { object_type::ENCRYPTED } else { 0 }
        | byteswap as u8
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
const TYPES: [TypeInfo; object_type::NUMTYPES as usize] = [
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

/// `DMU_OT_IS_VALID`.
pub fn is_valid(object_type: u8) -> bool {
    Byteswap::of(object_type).is_some()
}

/// `DMU_OT_IS_METADATA`: whether level-0 blocks of this type count as metadata (more copies, cached differently).
/// An unknown type counts as metadata.
pub fn is_metadata(object_type: u8) -> bool {
    if object_type & object_type::NEWTYPE != 0 {
        object_type & object_type::METADATA != 0
    } else {
        TYPES.get(usize::from(object_type)).is_none_or(|info| info.metadata)
    }
}

/// `DMU_OT_IS_METADATA_CACHED`: whether blocks of this type are few and hot (pool and dataset directories).
pub fn is_metadata_cached(object_type: u8) -> bool {
    if object_type & object_type::NEWTYPE != 0 {
        object_type & object_type::METADATA != 0
    } else {
        TYPES.get(usize::from(object_type)).is_some_and(|info| info.dbuf_metadata_cache)
    }
}

/// `DMU_OT_IS_ENCRYPTED`: whether blocks (or bonus buffers) of this type are encrypted in an encrypted dataset.
pub fn is_encrypted(object_type: u8) -> bool {
    if object_type & object_type::NEWTYPE != 0 {
        object_type & object_type::ENCRYPTED != 0
    } else {
        TYPES.get(usize::from(object_type)).is_some_and(|info| info.encrypt)
    }
}

/// `DMU_OT_HAS_FILL`: whether the fill count of this type's level-0 pointers may differ from 1. Such blocks are never
/// embedded in their pointer.
pub fn has_fill(object_type: u8) -> bool {
    object_type == object_type::DNODE || object_type == object_type::OBJSET
}

/// The type's name as zdb prints it.
pub fn type_name(object_type: u8) -> &'static str {
    if object_type & object_type::NEWTYPE == 0 {
        return TYPES.get(usize::from(object_type)).map_or("unknown", |info| info.name);
    }
    let metadata = object_type & object_type::METADATA != 0;
    match (Byteswap::of(object_type), metadata) {
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

/// `enum zio_compress`.
pub mod compression {
    /// Take the parent's setting (never in a block pointer).
    pub const INHERIT: u8 = 0;
    /// The default algorithm (never in a block pointer).
    pub const ON: u8 = 1;
    /// Stored as it is.
    pub const OFF: u8 = 2;
    /// LZJB.
    pub const LZJB: u8 = 3;
    /// All zeros.
    pub const EMPTY: u8 = 4;
    /// gzip, level 1.
    pub const GZIP_1: u8 = 5;
    /// gzip, level 2.
    pub const GZIP_2: u8 = 6;
    /// gzip, level 3.
    pub const GZIP_3: u8 = 7;
    /// gzip, level 4.
    pub const GZIP_4: u8 = 8;
    /// gzip, level 5.
    pub const GZIP_5: u8 = 9;
    /// gzip, level 6.
    pub const GZIP_6: u8 = 10;
    /// gzip, level 7.
    pub const GZIP_7: u8 = 11;
    /// gzip, level 8.
    pub const GZIP_8: u8 = 12;
    /// gzip, level 9.
    pub const GZIP_9: u8 = 13;
    /// Zero-length encoding.
    pub const ZLE: u8 = 14;
    /// LZ4.
    pub const LZ4: u8 = 15;
    /// Zstandard.
    pub const ZSTD: u8 = 16;
    /// One more than the last.
    pub const FUNCTIONS: u8 = 17;
}

/// `enum zio_checksum`.
pub mod checksum {
    /// Take the parent's setting (never in a block pointer).
    pub const INHERIT: u8 = 0;
    /// The default algorithm (never in a block pointer).
    pub const ON: u8 = 1;
    /// None.
    pub const OFF: u8 = 2;
    /// SHA-256 inside the block, seeded by its place.
    pub const LABEL: u8 = 3;
    /// SHA-256 inside the gang header, seeded by its pointer.
    pub const GANG_HEADER: u8 = 4;
    /// Fletcher-2 inside a log block, old chain at the end.
    pub const ZILOG: u8 = 5;
    /// Fletcher-2.
    pub const FLETCHER_2: u8 = 6;
    /// Fletcher-4.
    pub const FLETCHER_4: u8 = 7;
    /// SHA-256.
    pub const SHA256: u8 = 8;
    /// Fletcher-4 inside a log block, chain at the start.
    pub const ZILOG2: u8 = 9;
    /// None, and no parity either (dump devices).
    pub const NOPARITY: u8 = 10;
    /// SHA-512/256.
    pub const SHA512: u8 = 11;
    /// Skein, keyed with the pool's salt.
    pub const SKEIN: u8 = 12;
    /// Edon-R, keyed with the pool's salt.
    pub const EDONR: u8 = 13;
    /// BLAKE3, keyed with the pool's salt.
    pub const BLAKE3: u8 = 14;
    /// One more than the last.
    pub const FUNCTIONS: u8 = 15;
}

/// `dmu_objset_type_t`: what an object set holds.
pub mod objset_type {
    /// Nothing yet.
    pub const NONE: u64 = 0;
    /// The pool's own objects (MOS).
    pub const META: u64 = 1;
    /// A file system.
    pub const ZFS: u64 = 2;
    /// A volume.
    pub const ZVOL: u64 = 3;
    /// For OpenZFS's own tests.
    pub const OTHER: u64 = 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_where_the_format_has_them() {
        assert_eq!(object_type::DNODE, 10);
        assert_eq!(object_type::OBJSET, 11);
        assert_eq!(object_type::PLAIN_FILE_CONTENTS, 19);
        assert_eq!(object_type::DIRECTORY_CONTENTS, 20);
        assert_eq!(object_type::SA, 44);
        assert_eq!(object_type::BPOBJ_SUBOBJ, 53);
        assert_eq!(object_type::OTN_UINT64_METADATA, 0xc3);
        assert_eq!(object_type::OTN_ZAP_METADATA, 0xc4);
        assert_eq!(object_type::OTN_UINT8_METADATA, 0xc0);
    }

    #[test]
    fn file_contents_are_data_and_directories_metadata() {
        assert!(!is_metadata(object_type::PLAIN_FILE_CONTENTS));
        assert!(is_metadata(object_type::DIRECTORY_CONTENTS));
        assert!(is_metadata(object_type::OTN_ZAP_METADATA));
        assert!(!is_metadata(object_type::OTN_ZAP_DATA));
    }

    #[test]
    fn only_known_types_are_valid() {
        assert!(is_valid(0) && is_valid(53) && !is_valid(54) && !is_valid(0x7f));
        assert!(is_valid(0x80) && is_valid(0xc9) && !is_valid(0x8a) && !is_valid(0xff));
    }
}
