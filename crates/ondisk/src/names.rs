//! The names under which things are found: entries of the MOS's directory, keys of configuration lists, of vdev ZAPs
//! and of dataset ZAPs. Constants have OpenZFS's names without their prefix (`include/sys/dmu.h`,
//! `include/sys/fs/zfs.h`,
//! `include/sys/dsl_dir.h`, `include/sys/dsl_dataset.h`).

/// Entries of object 1 of the MOS (`DMU_POOL_*`). `POOL_DIRECTORY_OBJECT` names that object.
pub mod pool_directory {
    /// Object with the packed configuration list.
    pub const CONFIG: &str = "config";
    /// ZAP: feature to reference count, features needed to write.
    pub const FEATURES_FOR_WRITE: &str = "features_for_write";
    /// ZAP: feature to reference count, features needed to read.
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    /// ZAP: feature to description.
    pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
    /// ZAP: feature to the group that enabled it.
    pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
    /// The root DSL directory.
    pub const ROOT_DATASET: &str = "root_dataset";
    /// bpobj of frees put off to the next group.
    pub const SYNC_BPOBJ: &str = "sync_bplist";
    /// Errors of the scan under way.
    pub const ERRLOG_SCRUB: &str = "errlog_scrub";
    /// Errors of the last scan.
    pub const ERRLOG_LAST: &str = "errlog_last";
    /// Object with the packed list of spares.
    pub const SPARES: &str = "spares";
    /// 1 when sizes are deflated.
    pub const DEFLATE: &str = "deflate";
    /// The command history.
    pub const HISTORY: &str = "history";
    /// ZAP of pool properties.
    pub const PROPS: &str = "pool_props";
    /// Object with the packed list of cache devices.
    pub const L2CACHE: &str = "l2cache";
    /// ZAP of holds that end with the import.
    pub const TMP_USERREFS: &str = "tmp_userrefs";
    /// ZAP of dedup statistics.
    pub const DDT_STATS: &str = "DDT-statistics";
    /// Pool version at creation.
    pub const CREATION_VERSION: &str = "creation_version";
    /// Scrub or resilver state (`crate::dsl::ScanPhys`).
    pub const SCAN: &str = "scan";
    /// Error scrub state.
    pub const ERRORSCRUB: &str = "error_scrub";
    /// Group up to which the last scrub went.
    pub const LAST_SCRUBBED_TXG: &str = "last_scrubbed_txg";
    /// bpobj of blocks of destroyed datasets still to be freed.
    pub const FREE_BPOBJ: &str = "free_bpobj";
    /// bptree of destroyed datasets still to be freed.
    pub const BPTREE_OBJ: &str = "bptree_obj";
    /// The bpobj that all empty deadlist entries share.
    pub const EMPTY_BPOBJ: &str = "empty_bpobj";
    /// Key of the salted checksums.
    pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";
    /// ZAP of the ZAPs of all vdevs.
    pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
    /// State of a device removal.
    pub const REMOVING: &str = "com.delphix:removing";
    /// bpobj of obsolete parts of removed devices.
    pub const OBSOLETE_BPOBJ: &str = "com.delphix:obsolete_bpobj";
    /// State of condensing a removed device.
    pub const CONDENSING_INDIRECT: &str = "com.delphix:condensing_indirect";
    /// The checkpoint's uberblock.
    pub const ZPOOL_CHECKPOINT: &str = "com.delphix:zpool_checkpoint";
    /// ZAP: group to log space map.
    pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
    /// ZAP of livelists of deleted clones.
    pub const DELETED_CLONES: &str = "com.delphix:deleted_clones";
    /// Groups by minute.
    pub const TXG_LOG_TIME_MINUTES: &str = "com.klarasystems:txg_log_time:minutes";
    /// Groups by day.
    pub const TXG_LOG_TIME_DAYS: &str = "com.klarasystems:txg_log_time:days";
    /// Groups by month.
    pub const TXG_LOG_TIME_MONTHS: &str = "com.klarasystems:txg_log_time:months";
}

/// Keys of configuration lists that are stored (`ZPOOL_CONFIG_*`).
pub mod config {
    /// On-disk version.
    pub const VERSION: &str = "version";
    /// The pool's name.
    pub const POOL_NAME: &str = "name";
    /// [`super::pool_state`].
    pub const POOL_STATE: &str = "state";
    /// Group that wrote the list.
    pub const POOL_TXG: &str = "txg";
    /// The pool's identity.
    pub const POOL_GUID: &str = "pool_guid";
    /// Group that added the vdev.
    pub const CREATE_TXG: &str = "create_txg";
    /// Identity of the leaf's top-level vdev.
    pub const TOP_GUID: &str = "top_guid";
    /// The vdev tree (in a label: of one top-level vdev).
    pub const VDEV_TREE: &str = "vdev_tree";
    /// [`super::vdev_type`].
    pub const TYPE: &str = "type";
    /// Child vdevs.
    pub const CHILDREN: &str = "children";
    /// Index among the siblings.
    pub const ID: &str = "id";
    /// The vdev's identity.
    pub const GUID: &str = "guid";
    /// Mapping object of a removed vdev.
    pub const INDIRECT_OBJECT: &str = "com.delphix:indirect_object";
    /// Births object of a removed vdev.
    pub const INDIRECT_BIRTHS: &str = "com.delphix:indirect_births";
    /// The vdev removed before this one.
    pub const PREV_INDIRECT_VDEV: &str = "com.delphix:prev_indirect_vdev";
    /// Path of the device.
    pub const PATH: &str = "path";
    /// Device identity.
    pub const DEVID: &str = "devid";
    /// Index of a distributed spare.
    pub const SPARE_ID: &str = "spareid";
    /// Object with the space map objects.
    pub const METASLAB_ARRAY: &str = "metaslab_array";
    /// log2 of the metaslab size.
    pub const METASLAB_SHIFT: &str = "metaslab_shift";
    /// log2 of the sector size.
    pub const ASHIFT: &str = "ashift";
    /// Allocatable bytes.
    pub const ASIZE: &str = "asize";
    /// Smallest allocation.
    pub const MIN_ALLOC: &str = "min_alloc";
    /// Largest allocation.
    pub const MAX_ALLOC: &str = "max_alloc";
    /// Space map of the dirty time log.
    pub const DTL: &str = "DTL";
    /// Enclosure path.
    pub const VDEV_ENC_SYSFS_PATH: &str = "vdev_enc_sysfs_path";
    /// Whether the device is a whole disk.
    pub const WHOLE_DISK: &str = "whole_disk";
    /// A rotating disk.
    pub const VDEV_ROTATIONAL: &str = "rotational";
    /// The device was not there.
    pub const NOT_PRESENT: &str = "not_present";
    /// Hot spares.
    pub const SPARES: &str = "spares";
    /// In the label of a hot spare: the pool that listed it was destroyed. Ours; OpenZFS passes over it.
    pub const SPARE_RELEASED: &str = "platter:released";
    /// The leaf is a hot spare.
    pub const IS_SPARE: &str = "is_spare";
    /// Parity columns.
    pub const NPARITY: &str = "nparity";
    /// An expansion is under way.
    pub const RAIDZ_EXPANDING: &str = "raidz_expanding";
    /// Groups in which expansions ended.
    pub const RAIDZ_EXPAND_TXGS: &str = "raidz_expand_txgs";
    /// Host that wrote the list.
    pub const HOSTID: &str = "hostid";
    /// That host's name.
    pub const HOSTNAME: &str = "hostname";
    /// When the pool was loaded.
    pub const LOADED_TIME: &str = "initial_load_time";
    /// The spare is to be detached.
    pub const UNSPARE: &str = "unspare";
    /// Physical path of the device.
    pub const PHYS_PATH: &str = "phys_path";
    /// Holds intent logs.
    pub const IS_LOG: &str = "is_log";
    /// Cache devices.
    pub const L2CACHE: &str = "l2cache";
    /// Indices of top-level vdevs that are gone.
    pub const HOLE_ARRAY: &str = "hole_array";
    /// Number of top-level vdevs.
    pub const VDEV_CHILDREN: &str = "vdev_children";
    /// A top-level vdev that is gone.
    pub const IS_HOLE: &str = "is_hole";
    /// State of a split.
    pub const SPLIT: &str = "splitcfg";
    /// Identity before a split.
    pub const ORIG_GUID: &str = "orig_guid";
    /// Identity of the pool split off.
    pub const SPLIT_GUID: &str = "split_guid";
    /// Vdevs of a split.
    pub const SPLIT_LIST: &str = "guid_list";
    /// Nothing is allocated here.
    pub const NONALLOCATING: &str = "non_allocating";
    /// Being removed.
    pub const REMOVING: &str = "removing";
    /// Group up to which a resilver has to go.
    pub const RESILVER_TXG: &str = "resilver_txg";
    /// Group up to which a rebuild has to go.
    pub const REBUILD_TXG: &str = "rebuild_txg";
    /// Free text.
    pub const COMMENT: &str = "comment";
    /// When the list was written.
    pub const TIMESTAMP: &str = "timestamp";
    /// The `bootfs` property.
    pub const BOOTFS: &str = "bootfs";
    /// Features needed to read the MOS.
    pub const FEATURES_FOR_READ: &str = "features_for_read";
    /// A known error of the pool.
    pub const ERRATA: &str = "errata";
    /// ZAP of the root vdev.
    pub const VDEV_ROOT_ZAP: &str = "com.klarasystems:vdev_zap_root";
    /// ZAP of the top-level vdev.
    pub const VDEV_TOP_ZAP: &str = "com.delphix:vdev_zap_top";
    /// ZAP of the leaf.
    pub const VDEV_LEAF_ZAP: &str = "com.delphix:vdev_zap_leaf";
    /// Every vdev has a ZAP.
    pub const HAS_PER_VDEV_ZAPS: &str = "com.delphix:has_per_vdev_zaps";
    /// To be resilvered after the resilver under way.
    pub const RESILVER_DEFER: &str = "com.datto:resilver_defer";
    /// Path of the cache file.
    pub const CACHEFILE: &str = "cachefile";
    /// What the vdev is for ([`super::allocation_bias`]).
    pub const ALLOCATION_BIAS: &str = "alloc_bias";
    /// When a vdev grew.
    pub const EXPANSION_TIME: &str = "expansion_time";
    /// The `compatibility` property.
    pub const COMPATIBILITY: &str = "compatibility";
    /// Taken offline by hand.
    pub const OFFLINE: &str = "offline";
    /// Faulted by hand.
    pub const FAULTED: &str = "faulted";
    /// Degraded by hand.
    pub const DEGRADED: &str = "degraded";
    /// The device went away.
    pub const REMOVED: &str = "removed";
    /// Field-replaceable unit.
    pub const FRU: &str = "fru";
    /// Why it is not healthy.
    pub const AUX_STATE: &str = "aux_state";
    /// Data columns of a draid group.
    pub const DRAID_NDATA: &str = "draid_ndata";
    /// Distributed spares.
    pub const DRAID_NSPARES: &str = "draid_nspares";
    /// Groups of a draid slice.
    pub const DRAID_NGROUPS: &str = "draid_ngroups";
    /// Children of one draid.
    pub const DRAID_NCHILDREN: &str = "draid_nchildren";
}

/// `VDEV_TYPE_*`.
pub mod vdev_type {
    /// The root of the tree.
    pub const ROOT: &str = "root";
    /// A mirror.
    pub const MIRROR: &str = "mirror";
    /// A mirror of old and new while a device is replaced.
    pub const REPLACING: &str = "replacing";
    /// RAID-Z.
    pub const RAIDZ: &str = "raidz";
    /// Distributed RAID.
    pub const DRAID: &str = "draid";
    /// Distributed spare.
    pub const DRAID_SPARE: &str = "dspare";
    /// A disk.
    pub const DISK: &str = "disk";
    /// A file.
    pub const FILE: &str = "file";
    /// Not found at import.
    pub const MISSING: &str = "missing";
    /// Removed log or removed vdev slot.
    pub const HOLE: &str = "hole";
    /// A mirror with a hot spare.
    pub const SPARE: &str = "spare";
    /// Not a type on disk.
    pub const LOG: &str = "log";
    /// Not a type on disk.
    pub const L2CACHE: &str = "l2cache";
    /// A removed vdev.
    pub const INDIRECT: &str = "indirect";
}

/// Keys of top-level vdev ZAPs (`VDEV_TOP_ZAP_*`).
pub mod vdev_top_zap {
    /// Space map of obsolete parts of a removed vdev.
    pub const INDIRECT_OBSOLETE_SM: &str = "com.delphix:indirect_obsolete_sm";
    /// Obsolete counts are exact.
    pub const OBSOLETE_COUNTS_ARE_PRECISE: &str = "com.delphix:obsolete_counts_are_precise";
    /// Space map of what the checkpoint holds.
    pub const POOL_CHECKPOINT_SM: &str = "com.delphix:pool_checkpoint_sm";
    /// Object with the group of each metaslab whose changes are only in log space maps.
    pub const MS_UNFLUSHED_PHYS_TXGS: &str = "com.delphix:ms_unflushed_phys_txgs";
    /// State of a sequential rebuild.
    pub const VDEV_REBUILD_PHYS: &str = "org.openzfs:vdev_rebuild";
    /// What the vdev is for.
    pub const ALLOCATION_BIAS: &str = "org.zfsonlinux:allocation_bias";
    /// State of an expansion.
    pub const RAIDZ_EXPAND_STATE: &str = "org.openzfs:raidz_expand_state";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_START_TIME: &str = "org.openzfs:raidz_expand_start_time";
    /// Seconds since 1970.
    pub const RAIDZ_EXPAND_END_TIME: &str = "org.openzfs:raidz_expand_end_time";
    /// Bytes copied so far.
    pub const RAIDZ_EXPAND_BYTES_COPIED: &str = "org.openzfs:raidz_expand_bytes_copied";
}

/// Keys of leaf vdev ZAPs (`VDEV_LEAF_ZAP_*`).
pub mod vdev_leaf_zap {
    /// Where initializing goes on.
    pub const INITIALIZE_LAST_OFFSET: &str = "com.delphix:next_offset_to_initialize";
    /// Its state.
    pub const INITIALIZE_STATE: &str = "com.delphix:vdev_initialize_state";
    /// When that changed.
    pub const INITIALIZE_ACTION_TIME: &str = "com.delphix:vdev_initialize_action_time";
    /// What it writes.
    pub const INITIALIZE_VALUE: &str = "org.openzfs:vdev_initialize_value";
    /// Where trimming goes on.
    pub const TRIM_LAST_OFFSET: &str = "org.zfsonlinux:next_offset_to_trim";
    /// Its state.
    pub const TRIM_STATE: &str = "org.zfsonlinux:vdev_trim_state";
    /// When that changed.
    pub const TRIM_ACTION_TIME: &str = "org.zfsonlinux:vdev_trim_action_time";
    /// Bytes per second.
    pub const TRIM_RATE: &str = "org.zfsonlinux:vdev_trim_rate";
    /// Only what was never written.
    pub const TRIM_PARTIAL: &str = "org.zfsonlinux:vdev_trim_partial";
    /// Secure erase.
    pub const TRIM_SECURE: &str = "org.zfsonlinux:vdev_trim_secure";
}

/// `VDEV_ALLOC_BIAS_*`.
pub mod allocation_bias {
    /// Values of the bias: log.
    pub const LOG: &str = "log";
    /// Values of the bias: special.
    pub const SPECIAL: &str = "special";
    /// Values of the bias: dedup.
    pub const DEDUP: &str = "dedup";
}

/// Keys of a DSL directory that is also a ZAP (`DD_FIELD_*`).
pub mod dsl_dir_field {
    /// File systems below, for limits.
    pub const FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
    /// Snapshots below, for limits.
    pub const SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
    /// The encryption key object.
    pub const CRYPTO_KEY_OBJ: &str = "com.datto:crypto_key_obj";
    /// The clone's livelist.
    pub const LIVELIST: &str = "com.delphix:livelist";
    /// When the snapshots last changed.
    pub const SNAPSHOTS_CHANGED: &str = "com.ixsystems:snapshots_changed";
}

/// Keys of a DSL dataset that is also a ZAP (`DS_FIELD_*`); besides these, the guid of each per-dataset feature that is
/// active here.
pub mod dsl_dataset_field {
    /// ZAP of bookmarks.
    pub const BOOKMARK_NAMES: &str = "com.delphix:bookmarks";
    /// Has large dnodes.
    pub const LARGE_DNODE: &str = "org.zfsonlinux:large_dnode";
    /// State of a resumable receive.
    pub const RESUME_FROMGUID: &str = "com.delphix:resume_fromguid";
    /// State of a resumable receive.
    pub const RESUME_TONAME: &str = "com.delphix:resume_toname";
    /// State of a resumable receive.
    pub const RESUME_TOGUID: &str = "com.delphix:resume_toguid";
    /// State of a resumable receive.
    pub const RESUME_OBJECT: &str = "com.delphix:resume_object";
    /// State of a resumable receive.
    pub const RESUME_OFFSET: &str = "com.delphix:resume_offset";
    /// State of a resumable receive.
    pub const RESUME_BYTES: &str = "com.delphix:resume_bytes";
    /// State of a resumable receive.
    pub const RESUME_LARGEBLOCK: &str = "com.delphix:resume_largeblockok";
    /// State of a resumable receive.
    pub const RESUME_EMBEDOK: &str = "com.delphix:resume_embedok";
    /// State of a resumable receive.
    pub const RESUME_COMPRESSOK: &str = "com.delphix:resume_compressok";
    /// State of a resumable receive.
    pub const RESUME_RAWOK: &str = "com.datto:resume_rawok";
    /// Deadlist of remapped blocks.
    pub const REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
    /// State of a resumable receive.
    pub const RESUME_REDACT_BOOKMARK_SNAPS: &str = "com.delphix:resume_redact_book_snaps";
    /// Identity of the set of initialization vectors.
    pub const IVSET_GUID: &str = "com.datto:ivset_guid";
    /// Was received raw.
    pub const RAW_RECEIVED: &str = "org.openzfs:raw_received";
}

/// Children of the root directory that are no datasets.
pub mod special_dir {
    /// Space of the MOS.
    pub const MOS: &str = "$MOS";
    /// Its snapshot of the same name is the origin of all datasets.
    pub const ORIGIN: &str = "$ORIGIN";
    /// Space still being freed.
    pub const FREE: &str = "$FREE";
    /// Space lost by a destroy that met errors.
    pub const LEAK: &str = "$LEAK";
}

/// Suffixes of property names in a properties ZAP (`module/zfs/dsl_prop.c`).
pub mod property_suffix {
    /// Inherited explicitly, although a received value is there.
    pub const INHERIT: &str = "$inherit";
    /// The received value.
    pub const RECVD: &str = "$recvd";
    /// A value that older software does not know, where the plain name has the default (`ZPROP_IUV_SUFFIX`).
    pub const IUV: &str = "$iuv";
}

/// `DMU_POOL_DIRECTORY_OBJECT`: the MOS's directory.
pub const POOL_DIRECTORY_OBJECT: crate::ObjectId = crate::ObjectId(1);

/// `pool_state_t`, as far as it is stored.
pub mod pool_state {
    /// In use.
    pub const ACTIVE: u64 = 0;
    /// Exported.
    pub const EXPORTED: u64 = 1;
    /// Destroyed.
    pub const DESTROYED: u64 = 2;
    /// A hot spare's label.
    pub const SPARE: u64 = 3;
    /// A cache device's label.
    pub const L2CACHE: u64 = 4;
}

/// Name of the object that holds a dedup table, in the MOS's directory (`DMU_POOL_DDT`), such as
/// `DDT-sha256-zap-unique`.
pub fn dedup_table(checksum: &str, table_type: &str, class: &str) -> String {
    format!("DDT-{checksum}-{table_type}-{class}")
}

/// Name of the directory of a checksum's dedup tables (`DMU_POOL_DDT_DIR`).
pub fn dedup_directory(checksum: &str) -> String {
    format!("DDT-{checksum}")
}

/// Name of a dedup log (`DMU_POOL_DDT_LOG`).
pub fn dedup_log(checksum: &str, number: u32) -> String {
    format!("DDT-log-{checksum}-{number}")
}
