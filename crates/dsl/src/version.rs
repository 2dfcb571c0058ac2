//! What a pool's format has, by its version (`SPA_VERSION_*` in `include/sys/fs/zfs.h`): 1 to 28 grew in a line, 5000
//! means feature flags.
//!
//! Each question about an older format is asked here by the name of what it is about, so that no other module compares
//! version numbers. A pool is written exactly as its version allows: what came later is neither made nor touched.

use platter_dmu::Format;
use platter_ondisk::Compression;
use platter_ondisk::objset::OBJSET_PHYS_SIZE_V2;

/// A pool's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolVersion(pub u64);

impl PoolVersion {
    /// Feature flags (`SPA_VERSION_FEATURES`): what new pools get.
    pub const FEATURES: Self = Self(5000);
    /// The newest version without feature flags (`SPA_VERSION_BEFORE_FEATURES`).
    pub const BEFORE_FEATURES: Self = Self(28);
    /// The oldest one read and written: since then the space of users is counted, all data sets descend from the origin
    /// snapshot and every directory has its breakdown (`SPA_VERSION_USERSPACE`).
    pub const OLDEST: Self = Self(15);

    /// Whether this program knows the format.
    pub fn is_supported(self) -> bool {
        (Self::OLDEST..=Self::BEFORE_FEATURES).contains(&self) || self == Self::FEATURES
    }

    /// Feature flags and what OpenZFS only makes beside them: ZAPs of vdevs, births of holes.
    pub fn has_features(self) -> bool {
        self >= Self::FEATURES
    }

    /// `raidz3` (`SPA_VERSION_RAIDZ3`).
    pub fn has_raidz3(self) -> bool {
        self.0 >= 17
    }

    /// Compression `zle` (`SPA_VERSION_ZLE_COMPRESSION`).
    pub fn has_zle(self) -> bool {
        self.0 >= 20
    }

    /// Properties that came with a stream stand beside others (`SPA_VERSION_RECVD_PROPS`).
    pub fn has_received_properties(self) -> bool {
        self.0 >= 22
    }

    /// System attributes (`SPA_VERSION_SA`).
    pub fn has_system_attributes(self) -> bool {
        self.0 >= 24
    }

    /// Permissions that are delegated to users (`SPA_VERSION_DELEGATED_PERMS`).
    pub fn has_delegation(self) -> bool {
        self.0 >= 8
    }

    /// Holds on snapshots, and destroying them later (`SPA_VERSION_USERREFS`).
    pub fn has_holds(self) -> bool {
        self.0 >= 18
    }

    /// The intent log may go on while a snapshot is taken (`SPA_VERSION_FAST_SNAP`).
    pub fn has_fast_snapshots(self) -> bool {
        self.0 >= 27
    }

    /// Compact intent log blocks (`SPA_VERSION_SLIM_ZIL`).
    pub fn has_slim_zil(self) -> bool {
        self.0 >= 23
    }

    /// Only systems other than Linux have logs in such pools: ZFS for Linux began with version 28.
    pub fn is_before_linux(self) -> bool {
        self.0 < 28
    }

    /// The state of a scrub in one entry of the pool directory (`SPA_VERSION_SCAN`).
    pub fn has_scan(self) -> bool {
        self.0 >= 25
    }

    /// Deadlists sorted by birth, lists of block pointers with sub-lists, `$FREE`, and the clones of a directory
    /// (`SPA_VERSION_DEADLISTS`, `SPA_VERSION_DIR_CLONES`). Before, a deadlist is one plain list.
    pub fn has_deadlists(self) -> bool {
        self.0 >= 26
    }

    /// The newest version of file systems in such a pool (`zfs_zpl_version_map`).
    pub fn zpl_version_max(self) -> u64 {
        match self.0 {
            24.. => 5,
            15.. => 4,
            9.. => 3,
            _ => 1,
        }
    }

    /// The pool version that file systems of version `zpl` need (`zfs_spa_version_map`).
    pub fn needed_by_zpl(zpl: u64) -> u64 {
        match zpl {
            5.. => 24,
            4 => 15,
            3 => 9,
            _ => 1,
        }
    }

    /// What the structures of object sets may be. Software from before feature flags knows lzjb, indirect blocks of up
    /// to 16 KiB and heads without project totals; `lz4` says whether that feature is enabled.
    pub fn format(self, lz4: bool) -> Format {
        let compression = if lz4 { Compression::LZ4 } else { Compression::LZJB };
        if self.has_features() {
            Format { compression, ..Format::default() }
        } else {
            Format { compression, indirect_shift_max: 14, head_size: OBJSET_PHYS_SIZE_V2 }
        }
    }
}

impl std::fmt::Display for PoolVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_between_the_last_numbered_one_and_feature_flags_do_not_exist() {
        let known: Vec<u64> = (0..6000).filter(|&v| PoolVersion(v).is_supported()).collect();
        assert_eq!(known, (15..=28).chain([5000]).collect::<Vec<_>>());
    }

    #[test]
    fn a_file_system_version_fits_exactly_the_pools_that_have_it() {
        for zpl in 3..=5 {
            let pool = PoolVersion::needed_by_zpl(zpl);
            assert!(PoolVersion(pool).zpl_version_max() >= zpl);
            assert!(PoolVersion(pool - 1).zpl_version_max() < zpl);
        }
    }
}
