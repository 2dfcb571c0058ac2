//! Native properties of data sets: what they are called, what they may be, how they are stored and inherited
//! (`module/zcommon/zfs_prop.c`, `module/zfs/dsl_prop.c`).
//!
//! Invariants: a value is checked here once, at the edge; what is stored is a number for numeric and enumerated
//! properties and text for the rest, as OpenZFS stores it; a property that would have no effect in this version is
//! refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::WriteProperties;

use crate::core::Core;
use crate::dataset::Dataset;
use crate::dir::{Dir, StoredProperty};
use crate::error::{PoolError, Result};
use crate::report::{Properties, Property, PropertySource, PropertyValue};

/// What values a property takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of these names, stored as its number.
    Index(&'static [(&'static str, u64)]),
    /// `recordsize`: a power of two of bytes.
    RecordSize,
    /// Bytes; "none" is 0.
    Bytes,
    /// A path, `none` or `legacy`.
    Mountpoint,
    /// Free text.
    Text,
}

/// A native property that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    /// Name.
    pub name: &'static str,
    /// Values.
    pub kind: Kind,
    /// Default, as stored (text properties: ignored).
    pub default: u64,
    /// Whether children inherit it.
    pub inherits: bool,
    /// Whether this version acts on it; others are shown and refuse to be changed.
    pub settable: bool,
}

const ON_OFF: Kind = Kind::Index(&[("off", 0), ("on", 1)]);

/// Bits of the compression number; a zstd level stands above them (`SPA_COMPRESSBITS`).
const COMPRESSION_BITS: u32 = 7;

const CHECKSUMS: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("fletcher2", 6),
    ("fletcher4", 7),
    ("sha256", 8),
    ("noparity", 10),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
]);

const COMPRESSIONS: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("lzjb", 3),
    ("gzip", 10),
    ("gzip-1", 5),
    ("gzip-2", 6),
    ("gzip-3", 7),
    ("gzip-4", 8),
    ("gzip-5", 9),
    ("gzip-6", 10),
    ("gzip-7", 11),
    ("gzip-8", 12),
    ("gzip-9", 13),
    ("zle", 14),
    ("lz4", 15),
    ("zstd", 16),
    ("zstd-1", 16 | 1 << 7),
    ("zstd-2", 16 | 2 << 7),
    ("zstd-3", 16 | 3 << 7),
    ("zstd-4", 16 | 4 << 7),
    ("zstd-5", 16 | 5 << 7),
    ("zstd-6", 16 | 6 << 7),
    ("zstd-7", 16 | 7 << 7),
    ("zstd-8", 16 | 8 << 7),
    ("zstd-9", 16 | 9 << 7),
    ("zstd-10", 16 | 10 << 7),
    ("zstd-11", 16 | 11 << 7),
    ("zstd-12", 16 | 12 << 7),
    ("zstd-13", 16 | 13 << 7),
    ("zstd-14", 16 | 14 << 7),
    ("zstd-15", 16 | 15 << 7),
    ("zstd-16", 16 | 16 << 7),
    ("zstd-17", 16 | 17 << 7),
    ("zstd-18", 16 | 18 << 7),
    ("zstd-19", 16 | 19 << 7),
]);

const fn native(name: &'static str, kind: Kind, default: u64, inherits: bool, settable: bool) -> Native {
    Native { name, kind, default, inherits, settable }
}

/// All native properties that OpenZFS lets one set on a file system, in the order of `zfs get all`.
pub const NATIVES: [Native; 33] = [
    native("quota", Kind::Bytes, 0, false, false),
    native("reservation", Kind::Bytes, 0, false, false),
    native("recordsize", Kind::RecordSize, 128 << 10, true, true),
    native("mountpoint", Kind::Mountpoint, 0, true, true),
    native("sharenfs", Kind::Text, 0, true, false),
    native("checksum", CHECKSUMS, 1, true, true),
    native("compression", COMPRESSIONS, 1, true, true),
    native("atime", ON_OFF, 1, true, true),
    native("devices", ON_OFF, 1, true, true),
    native("exec", ON_OFF, 1, true, true),
    native("setuid", ON_OFF, 1, true, true),
    native("readonly", ON_OFF, 0, true, true),
    native("zoned", ON_OFF, 0, true, false),
    native("snapdir", Kind::Index(&[("hidden", 0), ("visible", 1), ("disabled", 2)]), 0, true, false),
    native(
        "aclmode",
        Kind::Index(&[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)]),
        0,
        true,
        false,
    ),
    native(
        "aclinherit",
        Kind::Index(&[("discard", 0), ("noallow", 1), ("restricted", 4), ("passthrough", 3), ("passthrough-x", 5)]),
        4,
        true,
        false,
    ),
    native("canmount", Kind::Index(&[("off", 0), ("on", 1), ("noauto", 2)]), 1, false, true),
    native("xattr", Kind::Index(&[("off", 0), ("on", 2), ("sa", 2), ("dir", 1)]), 2, true, false),
    native("copies", Kind::Index(&[("1", 1), ("2", 2), ("3", 3)]), 1, true, true),
    native("vscan", ON_OFF, 0, true, false),
    native("nbmand", ON_OFF, 0, true, false),
    native("sharesmb", Kind::Text, 0, true, false),
    native("refquota", Kind::Bytes, 0, false, false),
    native("refreservation", Kind::Bytes, 0, false, false),
    native("primarycache", Kind::Index(&[("none", 0), ("metadata", 1), ("all", 2)]), 2, true, false),
    native("secondarycache", Kind::Index(&[("none", 0), ("metadata", 1), ("all", 2)]), 2, true, false),
    native("logbias", Kind::Index(&[("latency", 0), ("throughput", 1)]), 0, true, false),
    native("dedup", Kind::Index(&[("off", 2), ("on", 1)]), 2, true, false),
    native("sync", Kind::Index(&[("standard", 0), ("always", 1), ("disabled", 2)]), 0, true, false),
    native(
        "dnodesize",
        Kind::Index(&[
            ("legacy", 0),
            ("auto", 1),
            ("1k", 1024),
            ("2k", 2048),
            ("4k", 4096),
            ("8k", 8192),
            ("16k", 16384),
        ]),
        0,
        true,
        false,
    ),
    native("relatime", ON_OFF, 1, true, true),
    native("redundant_metadata", Kind::Index(&[("all", 0), ("most", 1), ("some", 2), ("none", 3)]), 0, true, false),
    native("acltype", Kind::Index(&[("off", 0), ("posix", 1), ("nfsv4", 2)]), 0, true, false),
];

/// Read-only names, to tell "cannot be changed" from "no such property".
const READ_ONLY: [&str; 24] = [
    "type",
    "creation",
    "used",
    "available",
    "referenced",
    "compressratio",
    "mounted",
    "refcompressratio",
    "usedbysnapshots",
    "usedbydataset",
    "usedbychildren",
    "usedbyrefreservation",
    "written",
    "logicalused",
    "logicalreferenced",
    "guid",
    "createtxg",
    "objsetid",
    "version",
    "utf8only",
    "normalization",
    "casesensitivity",
    "origin",
    "mlslabel",
];

/// The native property called `name`, by long or short name.
pub fn find(name: &str) -> Option<&'static Native> {
    let long = match name {
        "recsize" => "recordsize",
        "compress" => "compression",
        "reserv" => "reservation",
        "refreserv" => "refreservation",
        "rdonly" => "readonly",
        "dnsize" => "dnodesize",
        other => other,
    };
    NATIVES.iter().find(|native| native.name == long)
}

/// Whether `name` is a user property's: it has a colon.
pub fn is_user(name: &str) -> bool {
    name.contains(':')
}

/// Parses a size such as `128K`, `1M`, `4096`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let value = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
    (value.is_finite() && value >= 0.0 && value < u64::MAX as f64).then_some(value as u64)
}

/// Checks a value and turns it into what is stored; the property's full name is returned with it.
///
/// # Errors
/// Unknown property, value out of range, property without effect in this version.
pub fn parse(name: &str, value: &str) -> Result<(String, StoredProperty)> {
    if is_user(name) {
        if name.len() > 255 || value.len() > 8191 {
            return Err(PoolError::invalid(format!("property '{name}' is too long")));
        }
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+.:_".contains(c);
        if !name.chars().all(valid) {
            return Err(PoolError::invalid(format!("invalid property '{name}'")));
        }
        return Ok((name.to_owned(), StoredProperty::Text(value.to_owned())));
    }
    if READ_ONLY.contains(&name) {
        return Err(PoolError::invalid(format!("property '{name}' is read-only")));
    }
    let native = find(name).ok_or_else(|| PoolError::invalid(format!("invalid property '{name}'")))?;
    let stored = match native.kind {
        Kind::Index(values) => {
            let found = values.iter().find(|(text, _)| *text == value);
            let names: Vec<&str> = values.iter().map(|(text, _)| *text).collect();
            let &(_, number) = found.ok_or_else(|| {
                PoolError::invalid(format!("'{}' must be one of '{}'", native.name, names.join(" | ")))
            })?;
            StoredProperty::Number(number)
        }
        Kind::RecordSize => {
            let bytes = parse_bytes(value)
                .ok_or_else(|| PoolError::invalid(format!("bad numeric value '{value}' for '{}'", native.name)))?;
            if !bytes.is_power_of_two() || !(512..=16 << 20).contains(&bytes) {
                return Err(PoolError::invalid(format!("'{}' must be power of 2 from 512B to 16M", native.name)));
            }
            StoredProperty::Number(bytes)
        }
        Kind::Bytes => {
            let bytes = if value == "none" { Some(0) } else { parse_bytes(value) };
            StoredProperty::Number(
                bytes
                    .ok_or_else(|| PoolError::invalid(format!("bad numeric value '{value}' for '{}'", native.name)))?,
            )
        }
        Kind::Mountpoint => {
            let absolute = value.starts_with('/') && value.len() < 1024;
            if !absolute && value != "none" && value != "legacy" {
                return Err(PoolError::invalid(format!(
                    "'{}' must be an absolute path, 'none', or 'legacy'",
                    native.name
                )));
            }
            let trimmed = if value.len() > 1 { value.trim_end_matches('/') } else { value };
            StoredProperty::Text(if trimmed.is_empty() { "/".into() } else { trimmed.to_owned() })
        }
        Kind::Text => StoredProperty::Text(value.to_owned()),
    };
    let unwritable =
        native.name == "checksum" && matches!(&stored, StoredProperty::Number(n) if !matches!(n, 1 | 2 | 6 | 7 | 8));
    if !native.settable || unwritable {
        if matches!(&stored, StoredProperty::Number(n) if *n == native.default) {
            return Ok((native.name.to_owned(), stored));
        }
        return Err(PoolError::Unsupported(format!(
            "property '{}' cannot be set to '{value}': this version does not act on it yet",
            native.name
        )));
    }
    Ok((native.name.to_owned(), stored))
}

/// Checks a set of properties.
///
/// # Errors
/// As [`parse`].
pub fn parse_all(given: &BTreeMap<String, String>) -> Result<BTreeMap<String, StoredProperty>> {
    given.iter().map(|(name, value)| parse(name, value)).collect()
}

/// The value in force for `dir`, with the directory it was set on (`None`: default).
pub fn lookup(dir: &Arc<Dir>, native: &Native) -> (Option<StoredProperty>, Option<Arc<Dir>>) {
    let mut at = Some(dir.clone());
    while let Some(here) = at {
        if let Some(value) = here.properties.read().get(native.name) {
            return (Some(value.clone()), Some(here.clone()));
        }
        at = if native.inherits { here.parent.clone() } else { None };
    }
    (None, None)
}

/// The number in force for `dir`.
pub fn number(dir: &Arc<Dir>, name: &str) -> u64 {
    let native = find(name).expect("a property of the table");
    match lookup(dir, native).0 {
        Some(StoredProperty::Number(n)) => n,
        _ => native.default,
    }
}

/// How blocks of the data set in `dir` are to be written.
pub fn write_properties(core: &Core, dir: &Arc<Dir>) -> WriteProperties {
    let compression = number(dir, "compression");
    let (kind, level) = (compression & ((1 << COMPRESSION_BITS) - 1), compression >> COMPRESSION_BITS);
    let kind = match kind {
        1 => 15,
        16 if !core.features.is_enabled("org.freebsd:zstd_compress") => 15,
        n => n,
    };
    let checksum = match number(dir, "checksum") {
        1 => 7,
        n => n,
    };
    let mut record_size = number(dir, "recordsize");
    if !core.features.is_enabled("org.open-zfs:large_blocks") {
        record_size = record_size.min(128 << 10);
    }
    WriteProperties {
        checksum: checksum as u8,
        compression: kind as u8,
        compression_level: if kind == 16 && level == 0 { 3 } else { level as i32 },
        copies: number(dir, "copies") as u8,
        record_size: record_size as u32,
        is_mos: false,
        embedded_data: core.features.is_enabled("com.delphix:embedded_data"),
        dnode_size: 512,
    }
}

fn full_name(core: &Core, dir: &Dir) -> String {
    let mut parts = vec![dir.name.clone()];
    let mut at = dir.parent.clone();
    while let Some(here) = at {
        parts.push(here.name.clone());
        at = here.parent.clone();
    }
    parts.pop();
    parts.push(core.name());
    parts.reverse();
    parts.retain(|part| !part.is_empty());
    parts.join("/")
}

fn shown(native: &Native, value: &StoredProperty) -> PropertyValue {
    match (native.kind, value) {
        (Kind::Index(values), StoredProperty::Number(n)) => {
            let name = values.iter().find(|(_, number)| number == n).map(|(text, _)| (*text).to_owned());
            PropertyValue::Text(name.unwrap_or_else(|| n.to_string()))
        }
        (_, StoredProperty::Number(n)) => PropertyValue::Number(*n),
        (_, StoredProperty::Text(text)) => PropertyValue::Text(text.clone()),
    }
}

/// All properties of the data set called `name`, statistics included.
pub fn all(core: &Core, name: &str, dataset: &Dataset) -> Properties {
    let mut properties = Properties::new();
    statistics(core, dataset, &mut properties);
    for native in &NATIVES {
        let (value, from) = lookup(&dataset.dir, native);
        let source = match &from {
            None => PropertySource::Default,
            Some(dir) if dir.object == dataset.dir.object => PropertySource::Local,
            Some(dir) => PropertySource::Inherited(full_name(core, dir)),
        };
        let value = if native.kind == Kind::Mountpoint {
            PropertyValue::Text(mountpoint(core, name, value, from.as_deref()))
        } else if let Some(value) = &value {
            shown(native, value)
        } else if native.kind == Kind::Text {
            PropertyValue::Text("off".into())
        } else {
            shown(native, &StoredProperty::Number(native.default))
        };
        properties.insert(native.name.to_owned(), Property { value, source });
    }
    let mut at = Some(dataset.dir.clone());
    while let Some(dir) = at {
        for (name, value) in dir.properties.read().iter().filter(|(name, _)| is_user(name)) {
            if let StoredProperty::Text(text) = value {
                let source = if dir.object == dataset.dir.object {
                    PropertySource::Local
                } else {
                    PropertySource::Inherited(full_name(core, &dir))
                };
                properties.entry(name.clone()).or_insert(Property { value: PropertyValue::Text(text.clone()), source });
            }
        }
        at = dir.parent.clone();
    }
    properties
}

/// Where a data set is mounted: the inherited path goes on with the names below where it was set.
fn mountpoint(core: &Core, name: &str, value: Option<StoredProperty>, from: Option<&Dir>) -> String {
    let Some((StoredProperty::Text(base), from)) = value.zip(from) else {
        return format!("/{name}");
    };
    if base == "none" || base == "legacy" {
        return base;
    }
    let below = name.strip_prefix(&full_name(core, from)).unwrap_or("");
    if base == "/" && !below.is_empty() { below.to_owned() } else { format!("{base}{below}") }
}

fn statistics(core: &Core, dataset: &Dataset, properties: &mut Properties) {
    let mut put = |name: &str, value: PropertyValue| {
        properties.insert(name.to_owned(), Property { value, source: PropertySource::None });
    };
    let (usable, _) = core.space();
    let pool_used = core.tree.read().root_dir.as_ref().map_or(0, |root| root.phys.lock().used_bytes);
    let available = usable.saturating_sub(pool_used);
    let dir = dataset.dir.phys.lock().clone();
    let phys = dataset.phys.lock().clone();
    let ratio = |logical: u64, physical: u64| {
        if physical == 0 { 100 } else { (u128::from(logical) * 100 / u128::from(physical)) as u64 }
    };
    let number = PropertyValue::Number;
    put("type", PropertyValue::Text(if dataset.is_volume { "volume".into() } else { "filesystem".into() }));
    put("creation", number(phys.creation_time));
    put("used", number(dir.used_bytes));
    put("available", number(available));
    put("referenced", number(phys.referenced_bytes));
    put("compressratio", number(ratio(dir.uncompressed_bytes, dir.compressed_bytes).max(100)));
    put("refcompressratio", number(ratio(phys.uncompressed_bytes, phys.compressed_bytes).max(100)));
    put("usedbysnapshots", number(dir.used_breakdown.snapshots));
    put("usedbydataset", number(dir.used_breakdown.head));
    put("usedbychildren", number(dir.used_breakdown.children + dir.used_breakdown.child_reservations));
    put("usedbyrefreservation", number(dir.used_breakdown.refreservation));
    put("written", number(phys.unique_bytes));
    put("logicalused", number(dir.uncompressed_bytes));
    put("logicalreferenced", number(phys.uncompressed_bytes));
    put("guid", number(phys.guid.0));
    put("createtxg", number(phys.creation_txg.0));
    put("objsetid", number(dataset.object.0));
    put("version", number(5));
    put("utf8only", PropertyValue::Text("off".into()));
    put("normalization", PropertyValue::Text("none".into()));
    put("casesensitivity", PropertyValue::Text("sensitive".into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_stored_as_openzfs_stores_them() {
        assert_eq!(parse("compression", "zstd-3").unwrap().1, StoredProperty::Number(16 | 3 << 7));
        assert_eq!(parse("recsize", "1M").unwrap(), ("recordsize".into(), StoredProperty::Number(1 << 20)));
        assert_eq!(parse("mountpoint", "/a/b/").unwrap().1, StoredProperty::Text("/a/b".into()));
        assert_eq!(parse("com.example:x", "y").unwrap().1, StoredProperty::Text("y".into()));
    }

    #[test]
    fn bad_values_are_refused_by_name() {
        for (name, value) in [
            ("compression", "best"),
            ("recordsize", "100K"),
            ("recordsize", "32M"),
            ("mountpoint", "tank"),
            ("used", "0"),
            ("nonsense", "1"),
            ("quota", "10G"),
            ("checksum", "edonr"),
        ] {
            let text = parse(name, value).unwrap_err().to_string();
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn sizes_are_parsed_with_units() {
        assert_eq!(parse_bytes("128K"), Some(131_072));
        assert_eq!(parse_bytes("1.5M"), Some(1_572_864));
        assert_eq!(parse_bytes("512"), Some(512));
        assert_eq!(parse_bytes("1GiB"), Some(1 << 30));
        assert_eq!(parse_bytes("x"), None);
        assert_eq!(parse_bytes("99999999999E"), None);
    }
}
