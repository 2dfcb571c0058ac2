//! Which features this version creates pools with, writes and reads.

use std::collections::BTreeSet;

use platter_ondisk::features::Feature;

/// Features that a pool gets when Platter creates it, in the order they are enabled (dependencies first).
pub const CREATED: [Feature; 29] = [
    Feature::AsyncDestroy,
    Feature::EmptyBpobj,
    Feature::Lz4Compress,
    Feature::SpacemapHistogram,
    Feature::EnabledTxg,
    Feature::HoleBirth,
    Feature::ExtensibleDataset,
    Feature::EmbeddedData,
    Feature::Bookmarks,
    Feature::LargeBlocks,
    Feature::ZstdCompress,
    Feature::FsSsLimit,
    Feature::LargeDnode,
    Feature::BookmarkV2,
    Feature::RedactionBookmarks,
    Feature::RedactedDatasets,
    Feature::BookmarkWritten,
    Feature::UserobjAccounting,
    Feature::ProjectQuota,
    Feature::Sha512,
    Feature::Skein,
    Feature::Edonr,
    Feature::Blake3,
    Feature::SpacemapV2,
    Feature::LogSpacemap,
    Feature::Livelist,
    Feature::DeviceRebuild,
    Feature::Zilsaxattr,
    Feature::HeadErrlog,
];

/// Further features that may be active in a pool that is opened for writing: what they changed on disk is kept as it
/// is.
const WRITABLE_TOO: [Feature; 5] = [
    Feature::ResilverDefer,
    Feature::AvzV2,
    Feature::MultiVdevCrashDump,
    Feature::AllocationClasses,
    Feature::Longname,
];

/// Further features that may be active in a pool that is opened read-only.
const READABLE_TOO: [Feature; 2] = [Feature::Encryption, Feature::BlockCloning];

/// Whether a pool in which the feature of this name on disk is active can be written.
pub fn is_writable(guid: &str) -> bool {
    Feature::by_guid(guid).is_some_and(|feature| CREATED.contains(&feature) || WRITABLE_TOO.contains(&feature))
}

/// Whether a pool in which the feature of this name on disk is active can be read.
pub fn is_readable(guid: &str) -> bool {
    is_writable(guid) || Feature::by_guid(guid).is_some_and(|feature| READABLE_TOO.contains(&feature))
}

/// The features of a new pool when `disabled` ones are left out, with what depends on them, and `enabled` ones are
/// asked for by name, with what they depend on; in the order of [`CREATED`].
pub fn chosen(disabled: &BTreeSet<Feature>, enabled: &BTreeSet<Feature>) -> Vec<Feature> {
    let needs = |feature: Feature| feature.info().depends.iter().copied();
    let mut chosen: BTreeSet<Feature> = CREATED.into_iter().filter(|feature| !disabled.contains(feature)).collect();
    // Dependencies are one or two steps deep; both loops end when nothing changes.
    loop {
        let before = chosen.len();
        chosen =
            chosen.iter().copied().filter(|&feature| needs(feature).all(|needed| chosen.contains(&needed))).collect();
        if chosen.len() == before {
            break;
        }
    }
    chosen.extend(enabled);
    loop {
        let needed: Vec<Feature> = chosen.iter().flat_map(|&feature| needs(feature)).collect();
        let before = chosen.len();
        chosen.extend(needed);
        if chosen.len() == before {
            return CREATED.into_iter().filter(|feature| chosen.contains(feature)).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_come_and_go_with_what_they_need() {
        let none = BTreeSet::new();
        assert_eq!(chosen(&none, &none), CREATED);
        let without = chosen(&BTreeSet::from([Feature::SpacemapV2]), &none);
        assert!(!without.contains(&Feature::LogSpacemap) && without.contains(&Feature::HoleBirth));
        let all = CREATED.iter().copied().collect();
        let only = chosen(&all, &BTreeSet::from([Feature::LargeBlocks]));
        assert_eq!(only, [Feature::ExtensibleDataset, Feature::LargeBlocks]);
    }
}
