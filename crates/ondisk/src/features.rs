//! The feature flags of OpenZFS (`module/zcommon/zfeature_common.c`, `include/zfeature_common.h`): what a pool of
//! version 5000 may contain. This table knows all of them; which ones can be read or written is decided above.
//!
//! A feature is *enabled* when its guid is in one of the MOS's two feature ZAPs (`features_for_write` for those that
//! are [`FeatureInfo::readonly_compat`], else `features_for_read`), and *active* when its count there is not 0.

/// A feature, in OpenZFS's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    /// Destroying a dataset goes on in the background.
    AsyncDestroy,
    /// Empty deadlist entries share one object.
    EmptyBpobj,
    /// LZ4 compression.
    Lz4Compress,
    /// Crash dumps to pools of several vdevs.
    MultiVdevCrashDump,
    /// Space maps carry a histogram of free runs.
    SpacemapHistogram,
    /// The group that enabled each feature is recorded.
    EnabledTxg,
    /// Holes remember their birth, for exact incremental sends.
    HoleBirth,
    /// Datasets can carry further fields.
    ExtensibleDataset,
    /// Very compressible blocks live in their pointer.
    EmbeddedData,
    /// Bookmarks of snapshots.
    Bookmarks,
    /// Limits on the number of file systems and snapshots.
    FsSsLimit,
    /// Blocks over 128 KiB.
    LargeBlocks,
    /// Dnodes over 512 bytes.
    LargeDnode,
    /// SHA-512/256 checksums.
    Sha512,
    /// Skein checksums.
    Skein,
    /// Edon-R checksums.
    Edonr,
    /// Objects are counted per user and group.
    UserobjAccounting,
    /// Encrypted datasets.
    Encryption,
    /// Space and objects are counted per project.
    ProjectQuota,
    /// Top-level vdevs can be removed.
    DeviceRemoval,
    /// Mappings of removed vdevs shrink as their blocks are freed.
    ObsoleteCounts,
    /// The whole pool can be rewound to a checkpoint.
    PoolCheckpoint,
    /// Space map entries of two words.
    SpacemapV2,
    /// Vdevs for special allocation classes.
    AllocationClasses,
    /// A new resilver waits for the one under way.
    ResilverDefer,
    /// Larger bookmarks.
    BookmarkV2,
    /// Bookmarks that hold redaction lists.
    RedactionBookmarks,
    /// Datasets received redacted.
    RedactedDatasets,
    /// Space written since a bookmark is known.
    BookmarkWritten,
    /// Metaslab changes are logged for the whole pool and flushed later.
    LogSpacemap,
    /// Clones are deleted faster.
    Livelist,
    /// Sequential rebuild of mirrors and draid.
    DeviceRebuild,
    /// Zstandard compression.
    ZstdCompress,
    /// Distributed RAID with distributed spares.
    Draid,
    /// Extended attributes kept as system attributes are logged.
    Zilsaxattr,
    /// Error logs per dataset.
    HeadErrlog,
    /// BLAKE3 checksums.
    Blake3,
    /// Blocks are cloned through a reference table.
    BlockCloning,
    /// The root vdev has a ZAP.
    AvzV2,
    /// Redaction lists of more snapshots.
    RedactionListSpill,
    /// RAID-Z vdevs can be widened.
    RaidzExpansion,
    /// Logged deduplication tables with a quota.
    FastDedup,
    /// File names up to 1023 bytes.
    Longname,
    /// Micro ZAPs over 128 KiB.
    LargeMicrozap,
    /// Gang headers as large as a sector.
    DynamicGangHeader,
    /// The cloning table is readable in both byte orders.
    BlockCloningEndian,
    /// Rewriting a block keeps its logical birth.
    PhysicalRewrite,
    /// draid knows failure domains.
    DraidFailDomains,
}

/// What OpenZFS lays down about a feature.
#[derive(Debug)]
pub struct FeatureInfo {
    /// The feature.
    pub feature: Feature,
    /// Its name on disk: reversed domain, colon, short name.
    pub guid: &'static str,
    /// Its name for people: `feature@NAME`.
    pub name: &'static str,
    /// What it is, for people and for the MOS's `feature_descriptions`.
    pub description: &'static str,
    /// Whoever lacks it may still read the pool.
    pub readonly_compat: bool,
    /// It is needed to read the MOS, so the labels name it when it is active.
    pub mos: bool,
    /// Active as soon as it is enabled.
    pub activate_on_enable: bool,
    /// Each dataset that uses it says so itself.
    pub per_dataset: bool,
    /// `zpool upgrade` leaves it alone.
    pub no_upgrade: bool,
    /// A dataset's entry is an array of 64-bit numbers rather than one flag.
    pub is_array: bool,
    /// Features that must be enabled before.
    pub depends: &'static [Feature],
}

use Feature::*;

/// All features, in the order of [`Feature`].
pub static FEATURES: &[FeatureInfo] = &[
    row(AsyncDestroy, "com.delphix:async_destroy", "Destroying a dataset goes on in the background.", READ_ONLY, &[]),
    row(EmptyBpobj, "com.delphix:empty_bpobj", "Empty deadlist entries share one object.", READ_ONLY, &[]),
    row(Lz4Compress, "org.illumos:lz4_compress", "LZ4 compression.", ON_ENABLE, &[]),
    row(MultiVdevCrashDump, "com.joyent:multi_vdev_crash_dump", "Crash dumps to pools of several vdevs.", 0, &[]),
    row(
        SpacemapHistogram,
        "com.delphix:spacemap_histogram",
        "Space maps carry a histogram of free runs.",
        READ_ONLY,
        &[],
    ),
    row(EnabledTxg, "com.delphix:enabled_txg", "The group that enabled each feature is recorded.", READ_ONLY, &[]),
    row(
        HoleBirth,
        "com.delphix:hole_birth",
        "Holes remember their birth, for exact incremental sends.",
        MOS | ON_ENABLE,
        &[EnabledTxg],
    ),
    row(ExtensibleDataset, "com.delphix:extensible_dataset", "Datasets can carry further fields.", 0, &[]),
    row(
        EmbeddedData,
        "com.delphix:embedded_data",
        "Very compressible blocks live in their pointer.",
        MOS | ON_ENABLE,
        &[],
    ),
    row(Bookmarks, "com.delphix:bookmarks", "Bookmarks of snapshots.", READ_ONLY, &[ExtensibleDataset]),
    row(
        FsSsLimit,
        "com.joyent:filesystem_limits",
        "Limits on the number of file systems and snapshots.",
        READ_ONLY,
        &[ExtensibleDataset],
    ),
    row(LargeBlocks, "org.open-zfs:large_blocks", "Blocks over 128 KiB.", PER_DATASET, &[ExtensibleDataset]),
    row(LargeDnode, "org.zfsonlinux:large_dnode", "Dnodes over 512 bytes.", PER_DATASET, &[ExtensibleDataset]),
    row(Sha512, "org.illumos:sha512", "SHA-512/256 checksums.", PER_DATASET, &[ExtensibleDataset]),
    row(Skein, "org.illumos:skein", "Skein checksums.", PER_DATASET, &[ExtensibleDataset]),
    row(Edonr, "org.illumos:edonr", "Edon-R checksums.", PER_DATASET, &[ExtensibleDataset]),
    row(
        UserobjAccounting,
        "org.zfsonlinux:userobj_accounting",
        "Objects are counted per user and group.",
        READ_ONLY | PER_DATASET,
        &[ExtensibleDataset],
    ),
    row(Encryption, "com.datto:encryption", "Encrypted datasets.", PER_DATASET, &[ExtensibleDataset, BookmarkV2]),
    row(
        ProjectQuota,
        "org.zfsonlinux:project_quota",
        "Space and objects are counted per project.",
        READ_ONLY | PER_DATASET,
        &[ExtensibleDataset],
    ),
    row(DeviceRemoval, "com.delphix:device_removal", "Top-level vdevs can be removed.", MOS, &[]),
    row(
        ObsoleteCounts,
        "com.delphix:obsolete_counts",
        "Mappings of removed vdevs shrink as their blocks are freed.",
        READ_ONLY,
        &[ExtensibleDataset, DeviceRemoval],
    ),
    row(
        PoolCheckpoint,
        "com.delphix:zpool_checkpoint",
        "The whole pool can be rewound to a checkpoint.",
        READ_ONLY,
        &[],
    ),
    row(SpacemapV2, "com.delphix:spacemap_v2", "Space map entries of two words.", READ_ONLY | ON_ENABLE, &[]),
    row(
        AllocationClasses,
        "org.zfsonlinux:allocation_classes",
        "Vdevs for special allocation classes.",
        READ_ONLY,
        &[],
    ),
    row(ResilverDefer, "com.datto:resilver_defer", "A new resilver waits for the one under way.", READ_ONLY, &[]),
    row(BookmarkV2, "com.datto:bookmark_v2", "Larger bookmarks.", 0, &[ExtensibleDataset, Bookmarks]),
    row(
        RedactionBookmarks,
        "com.delphix:redaction_bookmarks",
        "Bookmarks that hold redaction lists.",
        0,
        &[BookmarkV2, ExtensibleDataset, Bookmarks],
    ),
    row(
        RedactedDatasets,
        "com.delphix:redacted_datasets",
        "Datasets received redacted.",
        PER_DATASET | ARRAY,
        &[ExtensibleDataset],
    ),
    row(
        BookmarkWritten,
        "com.delphix:bookmark_written",
        "Space written since a bookmark is known.",
        0,
        &[BookmarkV2, ExtensibleDataset, Bookmarks],
    ),
    row(
        LogSpacemap,
        "com.delphix:log_spacemap",
        "Metaslab changes are logged for the whole pool and flushed later.",
        READ_ONLY,
        &[SpacemapV2],
    ),
    row(Livelist, "com.delphix:livelist", "Clones are deleted faster.", READ_ONLY, &[ExtensibleDataset]),
    row(DeviceRebuild, "org.openzfs:device_rebuild", "Sequential rebuild of mirrors and draid.", READ_ONLY, &[]),
    row(ZstdCompress, "org.freebsd:zstd_compress", "Zstandard compression.", PER_DATASET, &[ExtensibleDataset]),
    row(Draid, "org.openzfs:draid", "Distributed RAID with distributed spares.", MOS, &[]),
    row(
        Zilsaxattr,
        "org.openzfs:zilsaxattr",
        "Extended attributes kept as system attributes are logged.",
        READ_ONLY | PER_DATASET,
        &[ExtensibleDataset],
    ),
    row(HeadErrlog, "com.delphix:head_errlog", "Error logs per dataset.", ON_ENABLE, &[]),
    row(Blake3, "org.openzfs:blake3", "BLAKE3 checksums.", PER_DATASET, &[ExtensibleDataset]),
    row(BlockCloning, "com.fudosecurity:block_cloning", "Blocks are cloned through a reference table.", READ_ONLY, &[]),
    row(AvzV2, "com.klarasystems:vdev_zaps_v2", "The root vdev has a ZAP.", MOS, &[]),
    row(
        RedactionListSpill,
        "com.delphix:redaction_list_spill",
        "Redaction lists of more snapshots.",
        0,
        &[RedactionBookmarks],
    ),
    row(RaidzExpansion, "org.openzfs:raidz_expansion", "RAID-Z vdevs can be widened.", MOS, &[]),
    row(FastDedup, "com.klarasystems:fast_dedup", "Logged deduplication tables with a quota.", READ_ONLY, &[]),
    row(Longname, "org.zfsonlinux:longname", "File names up to 1023 bytes.", PER_DATASET, &[ExtensibleDataset]),
    row(
        LargeMicrozap,
        "com.klarasystems:large_microzap",
        "Micro ZAPs over 128 KiB.",
        READ_ONLY | PER_DATASET,
        &[ExtensibleDataset, LargeBlocks],
    ),
    row(
        DynamicGangHeader,
        "com.klarasystems:dynamic_gang_header",
        "Gang headers as large as a sector.",
        MOS | NO_UPGRADE,
        &[],
    ),
    row(
        BlockCloningEndian,
        "com.truenas:block_cloning_endian",
        "The cloning table is readable in both byte orders.",
        READ_ONLY,
        &[],
    ),
    row(
        PhysicalRewrite,
        "com.truenas:physical_rewrite",
        "Rewriting a block keeps its logical birth.",
        READ_ONLY | PER_DATASET,
        &[ExtensibleDataset],
    ),
    row(DraidFailDomains, "com.seagate:draid_failure_domains", "draid knows failure domains.", MOS, &[Draid]),
];

const READ_ONLY: u8 = 1 << 0;
const MOS: u8 = 1 << 1;
const ON_ENABLE: u8 = 1 << 2;
const PER_DATASET: u8 = 1 << 3;
const NO_UPGRADE: u8 = 1 << 4;
const ARRAY: u8 = 1 << 5;

const fn row(
    feature: Feature,
    guid: &'static str,
    description: &'static str,
    flags: u8,
    depends: &'static [Feature],
) -> FeatureInfo {
    FeatureInfo {
        feature,
        guid,
        name: short_name(guid),
        description,
        readonly_compat: flags & READ_ONLY != 0,
        mos: flags & MOS != 0,
        activate_on_enable: flags & ON_ENABLE != 0,
        per_dataset: flags & PER_DATASET != 0,
        no_upgrade: flags & NO_UPGRADE != 0,
        is_array: flags & ARRAY != 0,
        depends,
    }
}

/// What follows the colon: that is the name of every feature of OpenZFS.
const fn short_name(guid: &'static str) -> &'static str {
    let mut rest = guid.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte == b':' {
            break;
        }
    }
    match std::str::from_utf8(rest) {
        Ok(name) => name,
        Err(_) => panic!("guids are text"),
    }
}

const _: () = {
    let mut i = 0;
    while i < FEATURES.len() {
        assert!(FEATURES[i].feature as usize == i, "the table is in the order of the enum");
        assert!(!(FEATURES[i].readonly_compat && FEATURES[i].mos));
        i += 1;
    }
};

impl Feature {
    /// All features.
    pub fn all() -> impl Iterator<Item = Self> {
        FEATURES.iter().map(|info| info.feature)
    }

    /// What there is to know about it.
    pub fn info(self) -> &'static FeatureInfo {
        &FEATURES[self as usize]
    }

    /// Its name on disk.
    pub fn guid(self) -> &'static str {
        self.info().guid
    }

    /// The feature with this name on disk.
    pub fn by_guid(guid: &str) -> Option<Self> {
        FEATURES.iter().find(|info| info.guid == guid).map(|info| info.feature)
    }

    /// The feature with this name for people.
    pub fn by_name(name: &str) -> Option<Self> {
        FEATURES.iter().find(|info| info.name == name).map(|info| info.feature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_and_names_are_unique_and_found() {
        for feature in Feature::all() {
            let info = feature.info();
            assert_eq!(Feature::by_guid(info.guid), Some(feature));
            assert_eq!(Feature::by_name(info.name), Some(feature));
            assert!(info.guid.len() > info.name.len() + 1 && !info.name.is_empty(), "{}", info.guid);
        }
        assert_eq!(Feature::by_guid("com.example:nothing"), None);
    }

    #[test]
    fn per_dataset_features_depend_on_extensible_dataset() {
        for info in FEATURES.iter().filter(|info| info.per_dataset) {
            assert!(info.depends.contains(&ExtensibleDataset), "{}", info.name);
        }
    }

    #[test]
    fn flags_stand_as_openzfs_has_them() {
        let active: Vec<_> = FEATURES.iter().filter(|info| info.activate_on_enable).map(|info| info.name).collect();
        assert_eq!(active, ["lz4_compress", "hole_birth", "embedded_data", "spacemap_v2", "head_errlog"]);
        let mos: Vec<_> = FEATURES.iter().filter(|info| info.mos).map(|info| info.name).collect();
        assert!(mos.contains(&"device_removal") && mos.contains(&"vdev_zaps_v2") && !mos.contains(&"lz4_compress"));
    }
}
