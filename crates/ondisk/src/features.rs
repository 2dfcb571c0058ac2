//! The feature flags of OpenZFS (`module/zcommon/zfeature_common.c`, `include/zfeature_common.h`): what a pool of version 5000
//! may contain. This table knows all of them; which ones can be read or written is decided above.
//!
//! A feature is *enabled* when its guid is in one of the MOS's two feature ZAPs (`features_for_write` for those that are
//! [`FeatureInfo::readonly_compat`], else `features_for_read`), and *active* when its count there is not 0.

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
    FeatureInfo {
        feature: AsyncDestroy,
        guid: "com.delphix:async_destroy",
        name: "async_destroy",
        description: "Destroying a dataset goes on in the background.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: EmptyBpobj,
        guid: "com.delphix:empty_bpobj",
        name: "empty_bpobj",
        description: "Empty deadlist entries share one object.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: Lz4Compress,
        guid: "org.illumos:lz4_compress",
        name: "lz4_compress",
        description: "LZ4 compression.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: true,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: MultiVdevCrashDump,
        guid: "com.joyent:multi_vdev_crash_dump",
        name: "multi_vdev_crash_dump",
        description: "Crash dumps to pools of several vdevs.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: SpacemapHistogram,
        guid: "com.delphix:spacemap_histogram",
        name: "spacemap_histogram",
        description: "Space maps carry a histogram of free runs.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: EnabledTxg,
        guid: "com.delphix:enabled_txg",
        name: "enabled_txg",
        description: "The group that enabled each feature is recorded.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: HoleBirth,
        guid: "com.delphix:hole_birth",
        name: "hole_birth",
        description: "Holes remember their birth, for exact incremental sends.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: true,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[EnabledTxg],
    },
    FeatureInfo {
        feature: ExtensibleDataset,
        guid: "com.delphix:extensible_dataset",
        name: "extensible_dataset",
        description: "Datasets can carry further fields.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: EmbeddedData,
        guid: "com.delphix:embedded_data",
        name: "embedded_data",
        description: "Very compressible blocks live in their pointer.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: true,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: Bookmarks,
        guid: "com.delphix:bookmarks",
        name: "bookmarks",
        description: "Bookmarks of snapshots.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: FsSsLimit,
        guid: "com.joyent:filesystem_limits",
        name: "filesystem_limits",
        description: "Limits on the number of file systems and snapshots.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: LargeBlocks,
        guid: "org.open-zfs:large_blocks",
        name: "large_blocks",
        description: "Blocks over 128 KiB.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: LargeDnode,
        guid: "org.zfsonlinux:large_dnode",
        name: "large_dnode",
        description: "Dnodes over 512 bytes.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: Sha512,
        guid: "org.illumos:sha512",
        name: "sha512",
        description: "SHA-512/256 checksums.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: Skein,
        guid: "org.illumos:skein",
        name: "skein",
        description: "Skein checksums.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: Edonr,
        guid: "org.illumos:edonr",
        name: "edonr",
        description: "Edon-R checksums.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: UserobjAccounting,
        guid: "org.zfsonlinux:userobj_accounting",
        name: "userobj_accounting",
        description: "Objects are counted per user and group.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: Encryption,
        guid: "com.datto:encryption",
        name: "encryption",
        description: "Encrypted datasets.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset, BookmarkV2],
    },
    FeatureInfo {
        feature: ProjectQuota,
        guid: "org.zfsonlinux:project_quota",
        name: "project_quota",
        description: "Space and objects are counted per project.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: DeviceRemoval,
        guid: "com.delphix:device_removal",
        name: "device_removal",
        description: "Top-level vdevs can be removed.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: ObsoleteCounts,
        guid: "com.delphix:obsolete_counts",
        name: "obsolete_counts",
        description: "Mappings of removed vdevs shrink as their blocks are freed.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset, DeviceRemoval],
    },
    FeatureInfo {
        feature: PoolCheckpoint,
        guid: "com.delphix:zpool_checkpoint",
        name: "zpool_checkpoint",
        description: "The whole pool can be rewound to a checkpoint.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: SpacemapV2,
        guid: "com.delphix:spacemap_v2",
        name: "spacemap_v2",
        description: "Space map entries of two words.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: true,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: AllocationClasses,
        guid: "org.zfsonlinux:allocation_classes",
        name: "allocation_classes",
        description: "Vdevs for special allocation classes.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: ResilverDefer,
        guid: "com.datto:resilver_defer",
        name: "resilver_defer",
        description: "A new resilver waits for the one under way.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: BookmarkV2,
        guid: "com.datto:bookmark_v2",
        name: "bookmark_v2",
        description: "Larger bookmarks.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset, Bookmarks],
    },
    FeatureInfo {
        feature: RedactionBookmarks,
        guid: "com.delphix:redaction_bookmarks",
        name: "redaction_bookmarks",
        description: "Bookmarks that hold redaction lists.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[BookmarkV2, ExtensibleDataset, Bookmarks],
    },
    FeatureInfo {
        feature: RedactedDatasets,
        guid: "com.delphix:redacted_datasets",
        name: "redacted_datasets",
        description: "Datasets received redacted.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: true,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: BookmarkWritten,
        guid: "com.delphix:bookmark_written",
        name: "bookmark_written",
        description: "Space written since a bookmark is known.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[BookmarkV2, ExtensibleDataset, Bookmarks],
    },
    FeatureInfo {
        feature: LogSpacemap,
        guid: "com.delphix:log_spacemap",
        name: "log_spacemap",
        description: "Metaslab changes are logged for the whole pool and flushed later.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[SpacemapV2],
    },
    FeatureInfo {
        feature: Livelist,
        guid: "com.delphix:livelist",
        name: "livelist",
        description: "Clones are deleted faster.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: DeviceRebuild,
        guid: "org.openzfs:device_rebuild",
        name: "device_rebuild",
        description: "Sequential rebuild of mirrors and draid.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: ZstdCompress,
        guid: "org.freebsd:zstd_compress",
        name: "zstd_compress",
        description: "Zstandard compression.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: Draid,
        guid: "org.openzfs:draid",
        name: "draid",
        description: "Distributed RAID with distributed spares.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: Zilsaxattr,
        guid: "org.openzfs:zilsaxattr",
        name: "zilsaxattr",
        description: "Extended attributes kept as system attributes are logged.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: HeadErrlog,
        guid: "com.delphix:head_errlog",
        name: "head_errlog",
        description: "Error logs per dataset.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: true,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: Blake3,
        guid: "org.openzfs:blake3",
        name: "blake3",
        description: "BLAKE3 checksums.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: BlockCloning,
        guid: "com.fudosecurity:block_cloning",
        name: "block_cloning",
        description: "Blocks are cloned through a reference table.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: AvzV2,
        guid: "com.klarasystems:vdev_zaps_v2",
        name: "vdev_zaps_v2",
        description: "The root vdev has a ZAP.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: RedactionListSpill,
        guid: "com.delphix:redaction_list_spill",
        name: "redaction_list_spill",
        description: "Redaction lists of more snapshots.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[RedactionBookmarks],
    },
    FeatureInfo {
        feature: RaidzExpansion,
        guid: "org.openzfs:raidz_expansion",
        name: "raidz_expansion",
        description: "RAID-Z vdevs can be widened.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: FastDedup,
        guid: "com.klarasystems:fast_dedup",
        name: "fast_dedup",
        description: "Logged deduplication tables with a quota.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: Longname,
        guid: "org.zfsonlinux:longname",
        name: "longname",
        description: "File names up to 1023 bytes.",
        readonly_compat: false,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: LargeMicrozap,
        guid: "com.klarasystems:large_microzap",
        name: "large_microzap",
        description: "Micro ZAPs over 128 KiB.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset, LargeBlocks],
    },
    FeatureInfo {
        feature: DynamicGangHeader,
        guid: "com.klarasystems:dynamic_gang_header",
        name: "dynamic_gang_header",
        description: "Gang headers as large as a sector.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: true,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: BlockCloningEndian,
        guid: "com.truenas:block_cloning_endian",
        name: "block_cloning_endian",
        description: "The cloning table is readable in both byte orders.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[],
    },
    FeatureInfo {
        feature: PhysicalRewrite,
        guid: "com.truenas:physical_rewrite",
        name: "physical_rewrite",
        description: "Rewriting a block keeps its logical birth.",
        readonly_compat: true,
        mos: false,
        activate_on_enable: false,
        per_dataset: true,
        no_upgrade: false,
        is_array: false,
        depends: &[ExtensibleDataset],
    },
    FeatureInfo {
        feature: DraidFailDomains,
        guid: "com.seagate:draid_failure_domains",
        name: "draid_failure_domains",
        description: "draid knows failure domains.",
        readonly_compat: false,
        mos: true,
        activate_on_enable: false,
        per_dataset: false,
        no_upgrade: false,
        is_array: false,
        depends: &[Draid],
    },
];

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
            assert!(info.guid.ends_with(&format!(":{}", info.name)), "{}", info.guid);
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
