//! Feature flags of a pool: which are enabled, which are in use (`module/zfs/zfeature.c`).
//!
//! Invariants:
//! - a feature is enabled when it has an entry in one of the two count ZAPs, always the same, and active when its count
//!   is above zero;
//! - the counts in memory equal the ZAPs' after every sync;
//! - a pool is opened for writing only when every active feature [`is_writable`], and at all only when every active
//!   feature that is not read-only compatible [`is_readable`].

use platter_ondisk::features::Feature;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Objset, Result, Tx, ZioError};
use platter_ondisk::{ObjectId, ObjectType};

pub use platter_api::features::{CREATED, chosen, is_readable, is_writable};

use crate::mos;

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
            let object = mos::create_zap(os, tx, ObjectType::OTN_ZAP_METADATA, salt()).await?;
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
    pub fn is_enabled(&self, feature: Feature) -> bool {
        self.states.lock().contains_key(feature.guid())
    }

    /// Whether the feature is in use.
    pub fn is_active(&self, feature: Feature) -> bool {
        self.states.lock().get(feature.guid()).is_some_and(|state| state.count > 0)
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
        let needed = |guid: &str| Feature::by_guid(guid).is_some_and(|feature| feature.info().mos);
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
        feature: Feature,
        mut salt: impl FnMut() -> u64,
    ) -> Result<()> {
        if self.is_enabled(feature) {
            return Ok(());
        }
        let (guid, info) = (feature.guid(), feature.info());
        let text: Vec<u64> = info.description.bytes().chain([0]).map(u64::from).collect();
        self.zaps()?.descriptions.put(tx, guid.as_bytes(), &ZapValue { integer_size: 1, integers: text }).await?;
        let count = u64::from(info.activate_on_enable);
        self.set(tx, guid, count, !info.readonly_compat).await?;
        if feature == Feature::EnabledTxg {
            let object = mos::create_zap(os, tx, ObjectType::OTN_ZAP_METADATA, salt()).await?;
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
        let before = self.states.lock().insert(guid.to_owned(), State { count, for_read });
        assert!(before.is_none_or(|before| before.for_read == for_read), "{guid}: it would be in both ZAPs");
        Ok(())
    }

    /// Adds `by` uses (negative: takes them off) of an enabled feature; a feature that is not enabled is left alone.
    ///
    /// # Errors
    /// Device errors, damage.
    pub async fn adjust(&self, tx: &Tx, feature: Feature, by: i64) -> Result<()> {
        let guid = feature.guid();
        let state = self.states.lock().get(guid).copied();
        let Some(state) = state else { return Ok(()) };
        self.set(tx, guid, state.count.saturating_add_signed(by), state.for_read).await
    }
}
