//! What `zfs list` and `zfs get` are told about a data set: its settings with their sources, its statistics, and the
//! facts that its contents were made with (`dsl_dataset_stats`, `dsl_dir_stats`, `dsl_prop_get_all`).

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::{Objset, Result};
use platter_ondisk::ObjectType;
use platter_ondisk::dsl::dataset_flags;
use platter_ondisk::features::Feature;
use platter_ondisk::zvol::BLOCK_SIZE_DEFAULT;

use crate::contents::{self, Contents};
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::encryption::{self, Encryption};
use crate::inheritance::lookup;
use crate::pool::DslPool;
use crate::stored_property::{INHERIT, RECEIVED, StoredProperty};
use crate::{effects, named_snapshot, redacted, resume_state, snapshots_changed, space};
use platter_api::properties::{AT_CREATION, NATIVES, Native, default_text, find, is_user};
use platter_api::property_kind::Kind;
use platter_api::report::{DatasetKind, Properties, Property, PropertySource, PropertyValue};

/// The contents' facts, read once.
pub async fn contents_of(dsl: &DslPool, dataset: &Dataset) -> Contents {
    let known = dataset.contents.lock().clone();
    if !matches!(known, Contents::Unknown) {
        return known;
    }
    let os = match dataset.open_objset() {
        Some(os) => Ok(os),
        None => {
            let root = dataset.phys.lock().bp;
            let properties = effects::write_properties(dsl, &dataset.dir);
            let params = dsl.objset_params(dataset.object, dataset.accounting.clone(), properties, true);
            Objset::open(params, root).await
        }
    };
    let read = match os {
        Ok(os) => contents::read(&os, dataset.kind).await,
        Err(error) => Err(error),
    };
    match read {
        Ok(contents) => {
            *dataset.contents.lock() = contents.clone();
            contents
        }
        Err(error) => {
            tracing::debug!(object = %dataset.object, %error, "the contents cannot be looked at");
            Contents::Unknown
        }
    }
}

fn named(values: &[(&str, u64)], number: u64) -> PropertyValue {
    let name = values.iter().find(|(_, known)| *known == number).map(|(text, _)| (*text).to_owned());
    PropertyValue::Text(name.unwrap_or_else(|| number.to_string()))
}

/// As it is shown.
pub fn shown(native: &Native, value: &StoredProperty) -> PropertyValue {
    match (native.kind, value) {
        (Kind::Index(values), StoredProperty::Number(n)) => named(values, *n),
        (_, StoredProperty::Number(n)) => PropertyValue::Number(*n),
        (_, StoredProperty::Text(text)) => PropertyValue::Text(text.clone()),
    }
}

/// The default, as it is shown.
pub fn default(native: &Native) -> PropertyValue {
    match native.kind {
        Kind::Text => PropertyValue::Text(default_text(native.name).into()),
        _ => shown(native, &StoredProperty::Number(native.default)),
    }
}

/// All properties of the data set called `name`, statistics included.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn all(dsl: &DslPool, name: &str, dataset: &Dataset) -> Result<Properties> {
    let mut properties = Properties::new();
    statistics(dsl, dataset, &mut properties).await?;
    for native in NATIVES.iter().filter(|native| dataset.kind != DatasetKind::Volume || native.of_volumes) {
        let (value, from) = lookup(&dataset.dir, native);
        let source = match &from {
            None => PropertySource::Default,
            Some(dir) if dir.object != dataset.dir.object => PropertySource::Inherited(dir.full_name(dsl.name())),
            Some(dir) if dir.own_property(native.name).is_some_and(|(_, received)| received) => {
                PropertySource::Received
            }
            Some(_) => PropertySource::Local,
        };
        let value = if native.kind == Kind::Mountpoint {
            PropertyValue::Text(mountpoint(dsl, name, value, from.as_ref()))
        } else {
            value.map_or_else(|| default(native), |value| shown(native, &value))
        };
        properties.insert(native.name.to_owned(), Property { value, source });
    }
    // How it is encrypted is no property that was set. Looking at each directory's object takes long where there are
    // many, and is for nothing where none is encrypted.
    if dsl.features.is_active(encryption::FEATURE)
        && let Some(encryption) = encryption::of(&dsl.mos, &dataset.dir).await?
    {
        encrypted(dsl, encryption, &mut properties);
    }
    old_limits(dataset, &mut properties);
    receiving(dsl, name, dataset, &mut properties).await?;
    user_properties(dsl, dataset, &mut properties);
    Ok(properties)
}

/// Of what is stored the values that came with streams.
pub fn received(stored: &BTreeMap<String, StoredProperty>) -> BTreeMap<String, PropertyValue> {
    let came = stored.iter().filter_map(|(key, value)| Some((key.strip_suffix(RECEIVED)?, value)));
    came.filter_map(|(name, value)| match (find(name), value) {
        (Some(native), _) => Some((name.to_owned(), shown(native, value))),
        (None, StoredProperty::Text(text)) => Some((name.to_owned(), PropertyValue::Text(text.clone()))),
        (None, StoredProperty::Number(_)) => None,
    })
    .collect()
}

/// What a receive that is not finished says of itself.
async fn receiving(dsl: &DslPool, name: &str, dataset: &Dataset, properties: &mut Properties) -> Result<()> {
    let mut own = |name: &str, value| {
        properties.insert(name.to_owned(), Property { value, source: PropertySource::None });
    };
    if dataset.phys.lock().flags & dataset_flags::INCONSISTENT != 0 {
        own("inconsistent", PropertyValue::Number(1));
    }
    if dsl.features.is_active(Feature::RedactedDatasets)
        && let Some(snaps) = redacted::snapshots_of(dsl, dataset.object).await?
    {
        own("redact_snaps", PropertyValue::Text(redacted::shown(&snaps)));
    }
    if let Some(token) = resume_state::token_for(dsl, name, dataset).await? {
        own("receive_resume_token", PropertyValue::Text(token.encode()));
    }
    Ok(())
}

/// Before pool version 22 (`SPA_VERSION_RECVD_PROPS`) these two were only in the directory itself.
fn old_limits(dataset: &Dataset, properties: &mut Properties) {
    let (quota, reserved) = {
        let phys = dataset.dir.phys.lock();
        (phys.quota, phys.reserved)
    };
    for (name, number) in [("quota", quota), ("reservation", reserved)] {
        if let Some(property) = properties.get_mut(name) {
            property.value = PropertyValue::Number(number);
            if number != 0 && property.source == PropertySource::Default {
                property.source = PropertySource::Local;
            }
        }
    }
}

fn user_properties(dsl: &DslPool, dataset: &Dataset, properties: &mut Properties) {
    let mut at = Some(dataset.dir.clone());
    while let Some(dir) = at {
        let names: std::collections::BTreeSet<String> = dir
            .properties
            .read()
            .keys()
            .filter(|name| is_user(name))
            .map(|name| name.trim_end_matches(RECEIVED).trim_end_matches(INHERIT).to_owned())
            .collect();
        for name in names {
            let Some((StoredProperty::Text(text), received)) = dir.own_property(&name) else { continue };
            let source = match (dir.object == dataset.dir.object, received) {
                (false, _) => PropertySource::Inherited(dir.full_name(dsl.name())),
                (true, true) => PropertySource::Received,
                (true, false) => PropertySource::Local,
            };
            properties.entry(name).or_insert(Property { value: PropertyValue::Text(text), source });
        }
        at = dir.parent();
    }
}

/// Where a data set is mounted: the inherited path goes on with the names below where it was set.
fn mountpoint(dsl: &DslPool, name: &str, value: Option<StoredProperty>, from: Option<&Arc<Dir>>) -> String {
    let Some((StoredProperty::Text(base), from)) = value.zip(from) else {
        return format!("/{name}");
    };
    if base == "none" || base == "legacy" {
        return base;
    }
    let below = name.strip_prefix(&from.full_name(dsl.name())).unwrap_or("");
    if base == "/" && !below.is_empty() { below.to_owned() } else { format!("{base}{below}") }
}

/// How often the one is in the other, in hundredths.
pub fn ratio(logical: u64, physical: u64) -> u64 {
    if physical == 0 { 100 } else { (u128::from(logical) * 100 / u128::from(physical)) as u64 }
}

async fn statistics(dsl: &DslPool, dataset: &Dataset, properties: &mut Properties) -> Result<()> {
    let dir = dataset.dir.phys.lock().clone();
    let phys = dataset.phys.lock().clone();
    let counts = *dataset.dir.counts.lock();
    let mut put = |name: &str, value: PropertyValue| {
        properties.insert(name.to_owned(), Property { value, source: PropertySource::None });
    };
    let parts = dir.used_breakdown;
    let numbers = [
        ("creation", phys.creation_time),
        ("used", dir.used_bytes),
        ("available", space::available(dsl, dataset)),
        ("referenced", phys.referenced_bytes),
        ("compressratio", ratio(dir.uncompressed_bytes, dir.compressed_bytes)),
        ("refcompressratio", ratio(phys.uncompressed_bytes, phys.compressed_bytes)),
        ("usedbysnapshots", parts.snapshots),
        ("usedbydataset", parts.head),
        ("usedbychildren", parts.children + parts.child_reservations),
        ("usedbyrefreservation", parts.refreservation),
        ("written", dataset.written(&dsl.mos).await?),
        ("logicalused", dir.uncompressed_bytes),
        ("logicalreferenced", phys.uncompressed_bytes),
        ("guid", phys.guid.0),
        ("createtxg", phys.creation_txg.0),
        ("objsetid", dataset.object.0),
    ];
    for (name, number) in numbers {
        put(name, PropertyValue::Number(number));
    }
    put("type", PropertyValue::Text(dataset.kind.name().to_owned()));
    if let Some(origin) = origin_name(dsl, &dir).await? {
        put("origin", PropertyValue::Text(origin));
    }
    with_contents(&contents_of(dsl, dataset).await, properties);
    if let Some(seconds) = snapshots_changed::get(dsl, &dataset.dir).await? {
        let source = PropertySource::None;
        properties.insert("snapshots_changed".to_owned(), Property { value: PropertyValue::Number(seconds), source });
    }
    if dataset.kind == DatasetKind::Volume {
        let value = PropertyValue::Text("on".to_owned());
        properties.insert("volthreading".to_owned(), Property { value, source: PropertySource::Default });
    }
    let (filesystems, snapshots) = counts.map_or((u64::MAX, u64::MAX), |c| (c.filesystems, c.snapshots));
    for (name, number) in [("filesystem_count", filesystems), ("snapshot_count", snapshots)] {
        if dataset.kind != DatasetKind::Volume || name == "snapshot_count" {
            let source = if counts.is_some() { PropertySource::None } else { PropertySource::Default };
            properties.insert(name.to_owned(), Property { value: PropertyValue::Number(number), source });
        }
    }
    Ok(())
}

/// Adds what the contents were made with.
pub fn with_contents(contents: &Contents, properties: &mut Properties) {
    let mut put = |name: &str, value: PropertyValue, source: PropertySource| {
        properties.insert(name.to_owned(), Property { value, source });
    };
    match contents {
        Contents::Filesystem(values) => {
            for ((name, kind), value) in AT_CREATION.iter().zip(values) {
                let Kind::Index(names) = kind else { continue };
                put(name, named(names, *value), PropertySource::None);
            }
        }
        Contents::Volume(size, block) => {
            let source = if *block == BLOCK_SIZE_DEFAULT { PropertySource::Default } else { PropertySource::None };
            put("volsize", PropertyValue::Number(*size), PropertySource::Local);
            put("volblocksize", PropertyValue::Number(*block), source);
        }
        Contents::Unknown => {}
    }
}

/// What holds of an encrypted data set. No key is ever loaded.
fn encrypted(dsl: &DslPool, encryption: Encryption, properties: &mut Properties) {
    let root =
        dsl.tree.read().datasets.iter().find(|(_, ds)| ds.dir.object == encryption.root).map(|(name, _)| name.clone());
    let values = [
        ("encryption", encryption.suite),
        ("keyformat", encryption.format),
        ("encryptionroot", root.unwrap_or_default()),
        ("keystatus", "unavailable".to_owned()),
    ];
    for (name, value) in values {
        let value = Property { value: PropertyValue::Text(value), source: PropertySource::None };
        properties.insert(name.to_owned(), value);
    }
    if encryption.iterations != 0 {
        let value = Property { value: PropertyValue::Number(encryption.iterations), source: PropertySource::None };
        properties.insert("pbkdf2iters".to_owned(), value);
    }
}

/// The snapshot that a clone was made from; the pool's own origin is nobody's.
async fn origin_name(dsl: &DslPool, dir: &platter_ondisk::dsl::DslDirPhys) -> Result<Option<String>> {
    if !dir.origin_obj.is_some() || dsl.tree.read().is_own_origin(dir.origin_obj) {
        return Ok(None);
    }
    if dsl.mos.dnode(dir.origin_obj).await?.info().bonus_type != ObjectType::DSL_DATASET {
        return Ok(None);
    }
    Ok(named_snapshot::by_object(dsl, dir.origin_obj).await?.map(|origin| origin.full_name))
}
