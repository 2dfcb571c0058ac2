//! Feature flags of a pool: which are enabled, which are in use (`module/zfs/zfeature.c`).
//!
//! Invariants:
//! - a feature is enabled when it has an entry in one of the two count ZAPs, and active when its count is above zero;
//! - the counts in memory equal the ZAPs' after every sync;
//! - a pool is opened for writing only when every active feature is in [`WRITABLE`], and at all only when every active
//!   feature that is not read-only compatible is in [`READABLE`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Objset, Result, Tx, ZioError};
use platter_ondisk::ObjectId;
use platter_ondisk::features::{FEATURES, FeatureInfo};
use platter_ondisk::types::object_type;

use crate::mos;

/// Features that a pool gets when Platter creates it, in the order they are enabled (dependencies first).
pub const CREATED: [&str; 21] = [
    "com.delphix:async_destroy",
    "com.delphix:empty_bpobj",
    "org.illumos:lz4_compress",
    "com.delphix:spacemap_histogram",
    "com.delphix:enabled_txg",
    "com.delphix:hole_birth",
    "com.delphix:extensible_dataset",
    "com.delphix:embedded_data",
    "org.open-zfs:large_blocks",
    "org.freebsd:zstd_compress",
    "com.joyent:filesystem_limits",
    "org.zfsonlinux:large_dnode",
    "org.zfsonlinux:userobj_accounting",
    "org.zfsonlinux:project_quota",
    "org.illumos:sha512",
    "org.illumos:skein",
    "org.illumos:edonr",
    "org.openzfs:blake3",
    "com.delphix:spacemap_v2",
    "com.delphix:log_spacemap",
    "org.openzfs:zilsaxattr",
];

/// Further features that may be active in a pool that is opened for writing: what they changed on disk is kept as it
/// is.
const WRITABLE_TOO: [&str; 7] = [
    "org.openzfs:device_rebuild",
    "com.datto:resilver_defer",
    "com.klarasystems:vdev_zaps_v2",
    "com.joyent:multi_vdev_crash_dump",
    "com.delphix:head_errlog",
    "org.zfsonlinux:allocation_classes",
    "org.zfsonlinux:longname",
];

/// Further features that may be active in a pool that is opened read-only.
const READABLE_TOO: [&str; 6] = [
    "com.delphix:bookmarks",
    "com.datto:bookmark_v2",
    "com.datto:encryption",
    "com.delphix:livelist",
    "com.fudosecurity:block_cloning",
    "com.delphix:bookmark_written",
];

/// Whether a pool in which `guid` is active can be written.
pub fn is_writable(guid: &str) -> bool {
    CREATED.contains(&guid) || WRITABLE_TOO.contains(&guid)
}

/// Whether a pool in which `guid` is active can be read.
pub fn is_readable(guid: &str) -> bool {
    is_writable(guid) || READABLE_TOO.contains(&guid)
}

/// The features of a new pool when `disabled` ones are left out, with what depends on them, and `enabled` ones are
/// asked for by name, with what they depend on; in the order of [`CREATED`].
pub fn chosen(disabled: &BTreeSet<&'static str>, enabled: &BTreeSet<&'static str>) -> Vec<&'static str> {
    let needs = |guid: &str| -> Vec<&'static str> {
        let depends = lookup(guid).map_or(&[][..], |info| info.depends);
        depends
            .iter()
            .filter_map(|needed| FEATURES.iter().find(|info| info.feature == *needed))
            .map(|i| i.guid)
            .collect()
    };
    let mut chosen: BTreeSet<&'static str> = CREATED.iter().copied().filter(|guid| !disabled.contains(guid)).collect();
    // Dependencies are one or two steps deep; both loops end when nothing changes.
    loop {
        let before = chosen.len();
        chosen =
            chosen.iter().copied().filter(|guid| needs(guid).iter().all(|needed| chosen.contains(needed))).collect();
        if chosen.len() == before {
            break;
        }
    }
    chosen.extend(enabled);
    loop {
        let needed: Vec<&'static str> = chosen.iter().flat_map(|guid| needs(guid)).collect();
        let before = chosen.len();
        chosen.extend(needed);
        if chosen.len() == before {
            return CREATED.iter().copied().filter(|guid| chosen.contains(guid)).collect();
        }
    }
}

/// A feature's description in the format's table.
pub fn lookup(guid: &str) -> Option<&'static FeatureInfo> {
    FEATURES.iter().find(|feature| feature.guid == guid)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    count: u64,
    for_read: bool,
}

/// The pool's features.
pub struct Features {
    /// None before a pool has feature flags.
    zaps: Mutex<Option<Zaps>>,
    states: Mutex<BTreeMap<String, State>>,
}

/// Where a pool keeps its features.
#[derive(Clone)]
struct Zaps {
    for_read: Zap,
    for_write: Zap,
    descriptions: Zap,
    enabled_txg: Option<Zap>,
}

impl Features {
    /// Makes the three ZAPs in a pool that has none yet (`spa_feature_create_zap_objects`).
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn create(
        &self,
        os: &Arc<Objset>,
        directory: &Zap,
        tx: &Tx,
        mut salt: impl FnMut() -> u64,
    ) -> Result<()> {
        let mut zaps = Vec::new();
        for name in [mos::FEATURES_FOR_READ, mos::FEATURES_FOR_WRITE, mos::FEATURE_DESCRIPTIONS] {
            let object = mos::create_zap(os, tx, object_type::OTN_ZAP_METADATA, salt()).await?;
            directory.put_u64(tx, name.as_bytes(), object.0).await?;
            zaps.push(Zap::open(os, object).await?);
        }
        let descriptions = zaps.pop().expect("three");
        let for_write = zaps.pop().expect("three");
        let for_read = zaps.pop().expect("three");
        *self.zaps.lock() = Some(Zaps { for_read, for_write, descriptions, enabled_txg: None });
        Ok(())
    }

    /// The features of a pool from before feature flags: none.
    pub fn none() -> Self {
        Self { zaps: Mutex::new(None), states: Mutex::default() }
    }

    /// Loads the features of an existing pool with feature flags.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn load(os: &Arc<Objset>, directory: &Zap) -> Result<Self> {
        let open = async |name: &str| -> Result<Zap> {
            let object = directory
                .get_u64(name.as_bytes())
                .await?
                .ok_or_else(|| ZioError::corrupt("pool directory", format!("it has no {name}")))?;
            Zap::open(os, ObjectId(object)).await
        };
        let mut zaps = Zaps {
            for_read: open(mos::FEATURES_FOR_READ).await?,
            for_write: open(mos::FEATURES_FOR_WRITE).await?,
            descriptions: open(mos::FEATURE_DESCRIPTIONS).await?,
            enabled_txg: None,
        };
        if directory.get_u64(mos::FEATURE_ENABLED_TXG.as_bytes()).await?.is_some() {
            zaps.enabled_txg = Some(open(mos::FEATURE_ENABLED_TXG).await?);
        }
        let mut states = BTreeMap::new();
        for (zap, for_read) in [(&zaps.for_read, true), (&zaps.for_write, false)] {
            for entry in zap.all().await? {
                let count = entry.value.integers.first().copied().unwrap_or(0);
                states.insert(String::from_utf8_lossy(&entry.name).into_owned(), State { count, for_read });
            }
        }
        Ok(Self { zaps: Mutex::new(Some(zaps)), states: Mutex::new(states) })
    }

    fn zaps(&self) -> Result<Zaps> {
        self.zaps.lock().clone().ok_or_else(|| ZioError::Invalid("the pool is from before feature flags".into()))
    }

    /// Whether the feature may be used.
    pub fn is_enabled(&self, guid: &str) -> bool {
        self.states.lock().contains_key(guid)
    }

    /// Whether the feature is in use.
    pub fn is_active(&self, guid: &str) -> bool {
        self.states.lock().get(guid).is_some_and(|state| state.count > 0)
    }

    /// Every enabled feature with its count.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.states.lock().iter().map(|(guid, state)| (guid.clone(), state.count)).collect()
    }

    /// Active features that must be understood for reading (`true`) or only for writing (`false`).
    pub fn active(&self) -> Vec<(String, bool)> {
        let states = self.states.lock();
        states.iter().filter(|(_, s)| s.count > 0).map(|(guid, s)| (guid.clone(), s.for_read)).collect()
    }

    /// The features that go into labels: needed to read the MOS at all.
    pub fn for_labels(&self) -> Vec<String> {
        let states = self.states.lock();
        let needed = |guid: &str| lookup(guid).is_some_and(|f| f.mos);
        states.iter().filter(|(guid, s)| s.count > 0 && needed(guid)).map(|(guid, _)| guid.clone()).collect()
    }

    /// Enables a feature and what it depends on.
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn enable(
        &self,
        os: &Arc<Objset>,
        directory: &Zap,
        tx: &Tx,
        guid: &str,
        mut salt: impl FnMut() -> u64,
    ) -> Result<()> {
        if self.is_enabled(guid) {
            return Ok(());
        }
        let feature = lookup(guid).ok_or_else(|| ZioError::NotFound(format!("feature '{guid}'")))?;
        let text: Vec<u64> = feature.description.bytes().chain([0]).map(u64::from).collect();
        self.zaps()?.descriptions.put(tx, guid.as_bytes(), &ZapValue { integer_size: 1, integers: text }).await?;
        let count = u64::from(feature.activate_on_enable);
        self.set(tx, guid, count, !feature.readonly_compat).await?;
        if guid == "com.delphix:enabled_txg" {
            let object = mos::create_zap(os, tx, object_type::OTN_ZAP_METADATA, salt()).await?;
            directory.put_u64(tx, mos::FEATURE_ENABLED_TXG.as_bytes(), object.0).await?;
            let zap = Zap::open(os, object).await?;
            if let Some(zaps) = &mut *self.zaps.lock() {
                zaps.enabled_txg = Some(zap);
            }
            self.set(tx, guid, 1, false).await?;
        }
        if let Some(zap) = self.zaps()?.enabled_txg {
            zap.put_u64(tx, guid.as_bytes(), tx.txg().0).await?;
        }
        Ok(())
    }

    async fn set(&self, tx: &Tx, guid: &str, count: u64, for_read: bool) -> Result<()> {
        let zaps = self.zaps()?;
        let zap = if for_read { &zaps.for_read } else { &zaps.for_write };
        zap.put_u64(tx, guid.as_bytes(), count).await?;
        self.states.lock().insert(guid.to_owned(), State { count, for_read });
        Ok(())
    }

    /// Adds `by` uses (negative: takes them off) of an enabled feature; a feature that is not enabled is left alone.
    ///
    /// # Errors
    /// Device errors, damage.
    pub async fn adjust(&self, tx: &Tx, guid: &str, by: i64) -> Result<()> {
        let state = self.states.lock().get(guid).copied();
        let Some(state) = state else { return Ok(()) };
        self.set(tx, guid, state.count.saturating_add_signed(by), state.for_read).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_come_and_go_with_what_they_need() {
        let none = BTreeSet::new();
        assert_eq!(chosen(&none, &none), CREATED);
        let without = chosen(&BTreeSet::from(["com.delphix:spacemap_v2"]), &none);
        assert!(!without.contains(&"com.delphix:log_spacemap") && without.contains(&"com.delphix:hole_birth"));
        let all = CREATED.iter().copied().collect();
        let only = chosen(&all, &BTreeSet::from(["org.open-zfs:large_blocks"]));
        assert_eq!(only, ["com.delphix:extensible_dataset", "org.open-zfs:large_blocks"]);
    }
}
