//! Pool properties (`module/zcommon/zpool_prop.c`, `spa_sync_props`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::zap::{Zap, ZapValue};
use platter_ondisk::features::Feature;
use platter_ondisk::{ObjectId, ObjectType};

use platter_zio::FailMode;

use crate::config::PoolConfig;
use crate::core::Core;
use platter_api::pool_properties::{self, Access, PoolProperty, Values};
use platter_api::properties;
use platter_api::report::Properties;
use platter_api::report::Property;
use platter_api::report::PropertySource;
use platter_api::report::PropertyValue;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::features::CREATED;
use platter_dsl::freeing;
use platter_dsl::mos;
use platter_dsl::stored_property::StoredProperty;
use platter_dsl::version::PoolVersion;

/// The `compatibility` property is a pair of the configuration (`ZPOOL_CONFIG_COMPATIBILITY`).
const COMPATIBILITY: &str = "compatibility";

/// Features asked for at creation.
#[derive(Debug, Default)]
pub struct FeatureChoice {
    /// Guids not to enable.
    pub disabled: BTreeSet<Feature>,
    /// Guids to enable with all they need, whatever else is disabled.
    pub enabled: BTreeSet<Feature>,
}

/// Checks one property.
///
/// # Errors
/// Unknown property, read-only property, bad value, value without effect in this version.
pub fn parse(name: &str, value: &str) -> Result<StoredProperty> {
    if properties::is_user(name) {
        properties::check_user(name, value)?;
        return Ok(StoredProperty::Text(value.to_owned()));
    }
    let property = pool_properties::by_name(name);
    let values = match property.map(|property| (property.access, property.values)) {
        Some((Access::Settable, Values::Words { settable, .. })) => settable,
        Some((Access::Settable, _)) => &[],
        Some((Access::ReadOnly, _)) => return Err(PoolError::invalid(format!("property '{name}' is read-only"))),
        Some((Access::NotYet | Access::Hidden, _)) | None => {
            return Err(PoolError::invalid(format!("property '{name}' is not a valid pool property")));
        }
    };
    match name {
        "ashift" => {
            let ashift: u64 =
                value.parse().map_err(|_| PoolError::invalid(format!("bad numeric value '{value}' for 'ashift'")))?;
            if ashift != 0 && !(9..=16).contains(&ashift) {
                return Err(PoolError::invalid(format!(
                    "property 'ashift' number {ashift} is invalid, only values between 9 and 16 are allowed"
                )));
            }
            Ok(StoredProperty::Number(ashift))
        }
        "comment" => {
            if value.len() > 32 || !value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
                return Err(PoolError::invalid("comment may only have up to 32 printable characters"));
            }
            Ok(StoredProperty::Text(value.to_owned()))
        }
        // Whether its files can be read and what is in them, the command has checked: they are on its side.
        "compatibility" if value.len() < 1024 => Ok(StoredProperty::Text(value.to_owned())),
        "compatibility" => Err(PoolError::invalid("property 'compatibility' is too long")),
        "cachefile" if value == "none" || value.is_empty() => Ok(StoredProperty::Text(value.to_owned())),
        "cachefile" => Err(PoolError::Unsupported(format!(
            "property 'cachefile' cannot be set to '{value}': the daemon keeps its own list of pools"
        ))),
        _ if values.contains(&value) => Ok(StoredProperty::Text(value.to_owned())),
        _ if property.is_some_and(|property| property.number_of(value).is_some()) => Err(without_effect(name, value)),
        _ => Err(PoolError::invalid(format!("'{name}' must be one of '{}'", values.join(" | ")))),
    }
}

fn without_effect(name: &str, value: &str) -> PoolError {
    PoolError::Unsupported(format!("property '{name}' cannot be set to '{value}': this version does not act on it yet"))
}

/// Sorts out `zpool create -o`: ashift (0: detect), properties to store, feature choice, version.
///
/// # Errors
/// As [`parse`]; unknown features.
pub fn parse_for_create(
    given: &BTreeMap<String, String>,
) -> Result<(u64, BTreeMap<String, StoredProperty>, FeatureChoice, PoolVersion)> {
    let (mut ashift, mut stored, mut choice) = (0, BTreeMap::new(), FeatureChoice::default());
    let mut version = PoolVersion::FEATURES;
    for (name, value) in given {
        if let Some(feature) = name.strip_prefix("feature@") {
            choose_feature(&mut choice, feature, value)?;
            continue;
        }
        if name == "version" {
            version = parse_version(value)?;
            continue;
        }
        match (parse(name, value)?, &**name) {
            (StoredProperty::Number(n), "ashift") => {
                ashift = n;
                stored.insert(name.clone(), StoredProperty::Number(n));
            }
            (value, _) => {
                stored.insert(name.clone(), value);
            }
        }
    }
    let feature = given.keys().find(|name| name.starts_with("feature@"));
    if let Some(feature) = feature.filter(|_| !version.has_features()) {
        return Err(PoolError::invalid(format!("'{feature}' property can not be set in a pool of version {version}")));
    }
    Ok((ashift, stored, choice, version))
}

/// Checks a pool version that is to be created or upgraded to.
///
/// # Errors
/// No number, or a version that this program does not know.
pub fn parse_version(value: &str) -> Result<PoolVersion> {
    let number = value.parse().map_err(|_| PoolError::invalid(format!("bad numeric value '{value}' for 'version'")))?;
    let version = PoolVersion(number);
    if version.is_supported() {
        return Ok(version);
    }
    let (oldest, newest) = (PoolVersion::OLDEST, PoolVersion::BEFORE_FEATURES);
    Err(PoolError::invalid(format!(
        "property 'version' number {number} is invalid.\nThis program writes versions {oldest} to {newest} and {}, \
         which means feature flags",
        PoolVersion::FEATURES
    )))
}

fn choose_feature(choice: &mut FeatureChoice, name: &str, value: &str) -> Result<()> {
    let feature = Feature::by_name(name).ok_or_else(|| PoolError::invalid(format!("invalid feature '{name}'")))?;
    match value {
        "enabled" if CREATED.contains(&feature) => {
            choice.enabled.insert(feature);
            Ok(())
        }
        "enabled" => Err(PoolError::Unsupported(format!("feature '{name}' cannot be written by this version"))),
        "disabled" => {
            choice.disabled.insert(feature);
            Ok(())
        }
        _ => Err(PoolError::invalid(format!("property 'feature@{name}' can only be set to 'enabled' or 'disabled'"))),
    }
}

/// Whether this value takes a property away: a user property has no empty value (`man/man8/zpool-set.8`).
fn is_removed(name: &str, value: &StoredProperty) -> bool {
    name.contains(':') && matches!(value, StoredProperty::Text(text) if text.is_empty())
}

/// Stores a property in the MOS and in memory.
///
/// # Errors
/// Out of space, device errors.
pub async fn store(core: &Arc<Core>, tx: &Tx, name: &str, value: StoredProperty) -> platter_dmu::Result<()> {
    if name == "comment" {
        if let StoredProperty::Text(text) = &value {
            core.config.write().comment = (!text.is_empty()).then(|| text.clone());
        }
        core.dsl.dirty_config();
        core.pool_properties.write().insert(name.to_owned(), value);
        return Ok(());
    }
    if name == "compatibility" {
        if let StoredProperty::Text(text) = &value {
            let other = &mut core.config.write().other;
            other.remove(COMPATIBILITY);
            if !text.is_empty() && text != "off" {
                other.add_str(COMPATIBILITY, &**text);
            }
        }
        core.dsl.dirty_config();
        return Ok(());
    }
    let mut object = core.dsl.objects.lock().properties;
    if !object.is_some() {
        object = mos::create_zap(&core.dsl.mos, tx, ObjectType::POOL_PROPS, core.random()).await?;
        core.dsl.directory.put_u64(tx, mos::PROPS.as_bytes(), object.0).await?;
        core.dsl.objects.lock().properties = object;
    }
    if let ("failmode", StoredProperty::Text(text)) = (name, &value) {
        // Nothing waits before the pool is open.
        let suspension = core.dsl.store.suspension();
        if let Some(mode) = FailMode::parse(text).filter(|_| suspension.mode().is_some()) {
            suspension.set_mode(mode);
        }
    }
    // Words are stored by number, as OpenZFS does.
    let word = |text: &String| pool_properties::by_name(name).and_then(|property| property.number_of(text));
    let zap_value = match &value {
        StoredProperty::Number(n) => number(*n),
        StoredProperty::Text(text) => match word(text) {
            Some(place) => number(place),
            None => ZapValue { integer_size: 1, integers: text.bytes().chain([0]).map(u64::from).collect() },
        },
    };
    if is_removed(name, &value) {
        Zap::open(&core.dsl.mos, object).await?.remove(tx, name.as_bytes()).await?;
        core.pool_properties.write().remove(name);
        return Ok(());
    }
    if name != "cachefile" {
        Zap::open(&core.dsl.mos, object).await?.put(tx, name.as_bytes(), &zap_value).await?;
    }
    core.pool_properties.write().insert(name.to_owned(), value);
    Ok(())
}

fn number(n: u64) -> ZapValue {
    ZapValue { integer_size: 8, integers: vec![n] }
}

/// Loads the stored properties of an existing pool.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(
    os: &Arc<platter_dmu::Objset>,
    object: ObjectId,
) -> platter_dmu::Result<BTreeMap<String, StoredProperty>> {
    let mut properties = BTreeMap::new();
    if !object.is_some() {
        return Ok(properties);
    }
    for entry in Zap::open(os, object).await?.all().await? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let first = entry.value.integers.first().copied().unwrap_or(0);
        let word = pool_properties::by_name(&name).and_then(|property| property.word_of(first));
        let value = match word {
            Some(word) => StoredProperty::Text(word.into()),
            None if entry.value.integer_size == 1 => {
                let bytes: Vec<u8> = entry.value.integers.iter().map(|&n| n as u8).take_while(|&b| b != 0).collect();
                StoredProperty::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            None => StoredProperty::Number(first),
        };
        properties.insert(name, value);
    }
    Ok(properties)
}

/// What a property is that nobody set.
fn default_of(name: &str) -> &'static str {
    pool_properties::by_name(name).map_or("-", |property| property.default)
}

/// Property `failmode`.
pub fn fail_mode(core: &Core) -> String {
    match core.pool_properties.read().get("failmode") {
        Some(StoredProperty::Text(word)) => word.clone(),
        _ => default_of("failmode").to_owned(),
    }
}

/// Properties as they are gathered.
#[derive(Default)]
struct Report(Properties);

impl Report {
    fn put(&mut self, name: &str, value: PropertyValue, source: PropertySource) {
        self.0.insert(name.to_owned(), Property { value, source });
    }

    fn number(&mut self, name: &str, value: u64) {
        self.put(name, PropertyValue::Number(value), PropertySource::None);
    }

    fn word(&mut self, name: &str, value: &str) {
        self.put(name, PropertyValue::Text(value.to_owned()), PropertySource::None);
    }

    /// What somebody may have set: `default` otherwise.
    fn setting(&mut self, name: &str, set: Option<&str>, default: &str) {
        let source = if set.is_some() { PropertySource::Local } else { PropertySource::Default };
        self.put(name, PropertyValue::Text(set.unwrap_or(default).to_owned()), source);
    }
}

/// All properties as `zpool get all` shows them. `health` is the root vdev's state.
pub fn report(core: &Core, health: &str) -> Properties {
    let mut report = Report::default();
    let config = core.config.read().clone();
    report.word("health", health);
    report_space(core, &config, &mut report);
    report_settings(core, &config, &mut report);
    report_fixed(core, &config, &mut report);
    if PoolVersion(config.version).has_features() {
        for info in platter_ondisk::features::FEATURES {
            let state = if core.dsl.features.is_active(info.feature) {
                "active"
            } else if core.dsl.features.is_enabled(info.feature) {
                "enabled"
            } else {
                "disabled"
            };
            report.setting(&format!("feature@{}", info.name), Some(state), state);
        }
    }
    report.0
}

fn report_space(core: &Core, config: &PoolConfig, report: &mut Report) {
    let (allocated, size, fragmentation) = {
        let allocator = core.dsl.store.state().allocator.lock();
        let groups = allocator.groups();
        let fragmentation = groups.iter().filter_map(|g| g.fragmentation()).max().unwrap_or(0);
        (allocator.allocated(), allocator.size(), fragmentation)
    };
    report.number("size", size);
    report.number("capacity", (allocated * 100).checked_div(size).unwrap_or(0));
    report.number("free", size.saturating_sub(allocated));
    report.number("allocated", allocated);
    report.number("fragmentation", fragmentation);
    let grown = |top: &platter_vdev::TopVdev| {
        let shift = config.vdev_tree.children.iter().find(|c| c.id == top.id()).map_or(0, |c| c.metaslab_shift);
        top.expandable() >> shift << shift
    };
    report.number("expandsize", core.dsl.store.state().vdevs.iter().flatten().map(|top| grown(top)).sum());
    let (freeing, leaked) = freeing::space(&core.dsl);
    report.number("freeing", freeing);
    report.number("leaked", leaked);
}

/// What somebody can set, here or when the pool is imported.
fn report_settings(core: &Core, config: &PoolConfig, report: &mut Report) {
    let altroot = core.dsl.altroot.as_ref().map(|p| p.display().to_string());
    report.setting("altroot", altroot.as_deref(), "-");
    let (features, version) = (PoolVersion(config.version).has_features(), config.version.to_string());
    report.setting("version", (!features).then_some(version.as_str()), "-");
    report.setting("compatibility", config.other.get_str(COMPATIBILITY), default_of("compatibility"));
    report.setting("comment", config.comment.as_deref(), default_of("comment"));
    let stored = core.pool_properties.read();
    let is_word = |property: &PoolProperty| matches!(property.values, Values::Words { .. });
    let settable = pool_properties::TABLE.iter().filter(|property| property.access == Access::Settable);
    for property in settable.filter(|property| is_word(property) || property.name == "cachefile") {
        let set = match stored.get(property.name) {
            Some(StoredProperty::Text(value)) => Some(value.as_str()),
            _ => None,
        };
        report.setting(property.name, set, property.default);
    }
    let ashift = match stored.get("ashift") {
        Some(StoredProperty::Number(n)) => *n,
        _ => 0,
    };
    let source = if ashift == 0 { PropertySource::Default } else { PropertySource::Local };
    report.put("ashift", PropertyValue::Number(ashift), source);
    for (name, value) in stored.iter().filter(|(name, _)| name.contains(':')) {
        if let StoredProperty::Text(value) = value {
            report.setting(name, Some(value), "-");
        }
    }
}

/// What never changes while the pool is imported, or is the same for all pools.
fn report_fixed(core: &Core, config: &PoolConfig, report: &mut Report) {
    let features = PoolVersion(config.version).has_features();
    report.number("guid", config.guid.0);
    report.number("load_guid", config.guid.0);
    report.word("readonly", if core.dsl.read_only { "on" } else { "off" });
    report.setting("bootfs", None, "-");
    report.word("checkpoint", "-");
    report.number("maxblocksize", if features { 16 << 20 } else { 128 << 10 });
    report.number("maxdnodesize", 512);
    report.number("dedupratio", 100);
    report.number("dedup_table_size", 0);
    report.put("dedupditto", PropertyValue::Number(0), PropertySource::Default);
    report.put("dedup_table_quota", PropertyValue::Number(u64::MAX), PropertySource::Default);
    report.number("last_scrubbed_txg", core.scan.lock().last_scrubbed.0);
    report.number("bcloneused", 0);
    report.number("bclonesaved", 0);
    report.number("bcloneratio", 100);
}
