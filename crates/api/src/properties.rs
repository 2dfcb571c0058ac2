//! Native properties of data sets: what they are called, what they may be, how they are stored
//! (`module/zcommon/zfs_prop.c`).
//!
//! Invariants: a value is checked here once, at the edge; what is stored is a number for numeric and enumerated
//! properties and text for the rest, as OpenZFS stores it; a property that would have no effect in this version is
//! refused.

use std::collections::BTreeMap;

use crate::block_properties::{CHECKSUMS, COMPRESSIONS};
use crate::error::{Refused, Result};
use crate::names::NAME_MAX;
use crate::numbers;
use crate::property_kind::Kind;
use crate::schedule;
use crate::stored_property::StoredProperty;

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
    /// Whether volumes have it, too.
    pub of_volumes: bool,
    /// Whether snapshots have it, too.
    pub of_snapshots: bool,
    /// Whether a file system is mounted by it, so that a mount that lives follows it or is made anew.
    pub followed_by_mounts: bool,
    /// Whether a data set gets it when it is made and keeps it for ever.
    pub set_once: bool,
}

impl Native {
    const fn of_volumes(self) -> Self {
        Self { of_volumes: true, ..self }
    }

    const fn of_snapshots(self) -> Self {
        Self { of_snapshots: true, ..self }
    }

    const fn followed_by_mounts(self) -> Self {
        Self { followed_by_mounts: true, ..self }
    }

    const fn set_once(self) -> Self {
        Self { set_once: true, ..self }
    }
}

const CACHES: Kind = Kind::Index(&[("none", 0), ("metadata", 1), ("all", 2)]);

/// A checksum, with `ZIO_CHECKSUM_VERIFY` (256) where data is compared too.
const DEDUP: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("verify", 1 | 256),
    ("sha256", 8),
    ("sha256,verify", 8 | 256),
    ("sha512", 11),
    ("sha512,verify", 11 | 256),
    ("skein", 12),
    ("skein,verify", 12 | 256),
    ("edonr,verify", 13 | 256),
    ("blake3", 14),
    ("blake3,verify", 14 | 256),
]);

const ON_OFF: Kind = Kind::Index(&[("off", 0), ("on", 1)]);

const fn native(name: &'static str, kind: Kind, default: u64, inherits: bool, settable: bool) -> Native {
    Native {
        name,
        kind,
        default,
        inherits,
        settable,
        of_volumes: false,
        of_snapshots: false,
        followed_by_mounts: false,
        set_once: false,
    }
}

/// All native properties that OpenZFS lets one set on a file system, in the order of `zfs get all`.
pub const NATIVES: &[Native] = &[
    native("quota", Kind::Bytes, 0, false, true),
    native("reservation", Kind::Bytes, 0, false, true).of_volumes(),
    native("recordsize", Kind::RecordSize, 128 << 10, true, true),
    native("mountpoint", Kind::Mountpoint, 0, true, true),
    native("sharenfs", Kind::Text, 0, true, false),
    native("checksum", CHECKSUMS, 1, true, true).of_volumes(),
    native("compression", COMPRESSIONS, 1, true, true).of_volumes(),
    native("atime", ON_OFF, 1, true, true).followed_by_mounts(),
    native("devices", ON_OFF, 1, true, true).followed_by_mounts().of_snapshots(),
    native("exec", ON_OFF, 1, true, true).followed_by_mounts().of_snapshots(),
    native("setuid", ON_OFF, 1, true, true).followed_by_mounts().of_snapshots(),
    native("readonly", ON_OFF, 0, true, true).of_volumes().followed_by_mounts(),
    native("zoned", ON_OFF, 0, true, false),
    native("snapdir", Kind::Index(&[("hidden", 0), ("visible", 1), ("disabled", 2)]), 0, true, true)
        .followed_by_mounts(),
    native(
        "aclmode",
        Kind::Index(&[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)]),
        0,
        true,
        false,
    ),
    native(
        "aclinherit",
        // "secure" is what "restricted" was called once.
        Kind::Index(&[
            ("discard", 0),
            ("noallow", 1),
            ("restricted", 4),
            ("passthrough", 3),
            ("passthrough-x", 5),
            ("secure", 4),
        ]),
        4,
        true,
        false,
    ),
    native("canmount", Kind::Index(&[("off", 0), ("on", 1), ("noauto", 2)]), 1, false, true),
    native("xattr", Kind::Index(&[("off", 0), ("on", 2), ("sa", 2), ("dir", 1)]), 2, true, true)
        .followed_by_mounts()
        .of_snapshots(),
    native("copies", Kind::Index(&[("1", 1), ("2", 2), ("3", 3)]), 1, true, true).of_volumes(),
    native("vscan", ON_OFF, 0, true, false),
    native("nbmand", ON_OFF, 0, true, false).of_snapshots(),
    native("sharesmb", Kind::Text, 0, true, false),
    native("refquota", Kind::Bytes, 0, false, true),
    native("refreservation", Kind::Bytes, 0, false, true).of_volumes(),
    native("primarycache", CACHES, 2, true, true).of_volumes().of_snapshots(),
    native("secondarycache", CACHES, 2, true, true).of_volumes().of_snapshots(),
    native("logbias", Kind::Index(&[("latency", 0), ("throughput", 1)]), 0, true, true).of_volumes(),
    native("dedup", DEDUP, 2, true, false).of_volumes(),
    native("sync", Kind::Index(&[("standard", 0), ("always", 1), ("disabled", 2)]), 0, true, true).of_volumes(),
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
        true,
    ),
    native("relatime", ON_OFF, 1, true, true).followed_by_mounts(),
    native("redundant_metadata", Kind::Index(&[("all", 0), ("most", 1), ("some", 2), ("none", 3)]), 0, true, true)
        .of_volumes(),
    native("overlay", ON_OFF, 1, true, true),
    native("filesystem_limit", Kind::Count, u64::MAX, false, true),
    native("snapshot_limit", Kind::Count, u64::MAX, false, true).of_volumes(),
    native("volmode", Kind::Index(&[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)]), 0, true, true)
        .of_volumes(),
    native("snapdev", Kind::Index(&[("hidden", 0), ("visible", 1)]), 0, true, true).of_volumes(),
    native("mlslabel", Kind::Text, 0, true, false).of_volumes().of_snapshots(),
    native("context", Kind::Text, 0, false, false).of_volumes().of_snapshots(),
    native("fscontext", Kind::Text, 0, false, false).of_volumes().of_snapshots(),
    native("defcontext", Kind::Text, 0, false, false).of_volumes().of_snapshots(),
    native("rootcontext", Kind::Text, 0, false, false).of_volumes().of_snapshots(),
    native("special_small_blocks", Kind::SmallBlocks, 0, true, false),
    native("prefetch", CACHES, 2, true, false).of_volumes().of_snapshots(),
    native("direct", Kind::Index(&[("disabled", 0), ("standard", 1), ("always", 2)]), 1, true, false),
    native("longname", ON_OFF, 0, true, false),
    native("encryption", Kind::Index(&[("off", 2), ("on", 1)]), 2, true, false).of_volumes().of_snapshots().set_once(),
    native("keylocation", Kind::Text, 0, false, false).of_volumes(),
    native("keyformat", Kind::Index(&[("none", 0), ("raw", 1), ("hex", 2), ("passphrase", 3)]), 0, false, false)
        .of_volumes()
        .set_once(),
    native("pbkdf2iters", Kind::Bytes, 0, false, false).of_volumes().set_once(),
    native(
        "acltype",
        Kind::Index(&[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)]),
        0,
        true,
        true,
    )
    .followed_by_mounts()
    .of_snapshots(),
];

/// A file system's version: unlike the others in [`AT_CREATION`] it can be raised.
const VERSION: &str = "version";

/// Properties that a file system gets when it is made and keeps for ever, with their values as stored.
pub const AT_CREATION: &[(&str, Kind)] = &[
    (VERSION, Kind::Index(&[("5", 5), ("current", 0), ("1", 1), ("2", 2), ("3", 3), ("4", 4)])),
    ("utf8only", ON_OFF),
    ("normalization", Kind::Index(&[("none", 0), ("formD", NFD), ("formKC", NFKC), ("formC", NFC), ("formKD", NFKD)])),
    ("casesensitivity", Kind::Index(&[("sensitive", 0), ("insensitive", 1), ("mixed", 2)])),
];

/// `U8_TEXTPREP_NFD` and its kin (`include/sys/u8_textprep.h`): canonical and compatible decomposition, composition.
pub const NFD: u64 = 0x10;
/// See [`NFD`].
pub const NFKD: u64 = 0x20;
/// See [`NFD`].
pub const NFC: u64 = 0x40 | NFD;
/// See [`NFD`].
pub const NFKC: u64 = 0x40 | NFKD;

/// Longest name of a user property in bytes, less the terminating zero (`ZAP_MAXNAMELEN`).
pub(crate) const USER_NAME_MAX: usize = 255;
/// Longest value of a user property in bytes, less the terminating zero (`ZAP_MAXVALUELEN`).
pub(crate) const USER_VALUE_MAX: usize = 8191;
/// Longest mount point in bytes, less the terminating zero (`MAXPATHLEN`).
const PATH_MAX: usize = 4095;

/// Statistics and facts, which nobody can set.
const STATISTICS: [&str; 30] = [
    "name",
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
    "origin",
    "filesystem_count",
    "snapshot_count",
    "snapshots_changed",
    "userrefs",
    "defer_destroy",
    "clones",
    "receive_resume_token",
    "redact_snaps",
    "encryptionroot",
    "keystatus",
];

/// Whether nobody can set the native property called `name` on a data set that is there.
pub fn is_read_only(name: &str) -> bool {
    let at_creation = AT_CREATION.iter().any(|(known, _)| *known == name && name != VERSION);
    STATISTICS.contains(&name) || at_creation || name == "volblocksize" || find(name).is_some_and(|n| n.set_once)
}

/// Whether data sets take the native property called `name` from their parent.
pub fn is_inherited(name: &str) -> bool {
    find(name).is_some_and(|native| native.inherits && !native.set_once)
}

/// Names of the properties that a mount follows while it lives.
pub fn followed_by_mounts() -> impl Iterator<Item = &'static str> {
    NATIVES.iter().filter(|native| native.followed_by_mounts).map(|native| native.name)
}

/// The native property called `name`, by long or short name.
pub fn find(name: &str) -> Option<&'static Native> {
    let long = match name {
        "recsize" => "recordsize",
        "compress" => "compression",
        "reserv" => "reservation",
        "refreserv" => "refreservation",
        "rdonly" => "readonly",
        "dnsize" => "dnodesize",
        "fslimit" => "filesystem_limit",
        "sslimit" => "snapshot_limit",
        "redund_md" => "redundant_metadata",
        other => other,
    };
    NATIVES.iter().find(|native| native.name == long)
}

/// Whether `name` is a user property's: it has a colon.
pub fn is_user(name: &str) -> bool {
    name.contains(':')
}

/// Whether all characters are those of user properties' names (`zprop_valid_char`).
pub(crate) fn has_user_characters(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:_".contains(c))
}

/// Checks a user property of a data set or a pool (`zfs_prop_user`, `zprop_valid_char`).
///
/// # Errors
/// A name or value that is too long, a character that no name has.
pub fn check_user(name: &str, value: &str) -> Result<()> {
    if name.len() > USER_NAME_MAX {
        return Err(Refused::invalid(format!("property name '{name}' is too long")));
    }
    if value.len() > USER_VALUE_MAX {
        return Err(Refused::invalid("property value too long"));
    }
    if !has_user_characters(name) {
        return Err(Refused::invalid(format!("invalid property '{name}'")));
    }
    schedule::check(name, value)
}

/// Checks a value and turns it into what is stored; the property's full name is returned with it.
///
/// # Errors
/// Unknown property, value out of range, property without effect in this version.
pub fn parse(name: &str, value: &str) -> Result<(String, StoredProperty)> {
    if is_user(name) {
        check_user(name, value)?;
        return Ok((name.to_owned(), StoredProperty::Text(value.to_owned())));
    }
    if name == VERSION {
        return Err(Refused::Unsupported("this version cannot upgrade file systems yet: OpenZFS can".into()));
    }
    if STATISTICS.contains(&name) || AT_CREATION.iter().any(|(known, _)| *known == name) {
        return Err(Refused::invalid(format!("'{name}' is readonly")));
    }
    if let Some(reason) = of_volumes(name) {
        return Err(Refused::invalid(reason));
    }
    let native = find(name).ok_or_else(|| Refused::invalid(format!("invalid property '{name}'")))?;
    let stored = match native.kind {
        Kind::Index(values) => StoredProperty::Number(index_value(native.name, values, value)?),
        Kind::RecordSize => {
            let bytes = number_value(native.name, value)?;
            if !bytes.is_power_of_two() || !(512..=16 << 20).contains(&bytes) {
                return Err(Refused::invalid(format!("'{}' must be power of 2 from 512B to 16M", native.name)));
            }
            StoredProperty::Number(bytes)
        }
        Kind::Bytes => {
            let bytes = number_value(native.name, value)?;
            if bytes == 0 && value != "none" && matches!(native.name, "quota" | "refquota") {
                return Err(Refused::invalid("use 'none' to disable quota/refquota"));
            }
            StoredProperty::Number(bytes)
        }
        Kind::Count if value == "none" => StoredProperty::Number(u64::MAX),
        Kind::Count => StoredProperty::Number(number_value(native.name, value)?),
        Kind::SmallBlocks => {
            let bytes = number_value(native.name, value)?;
            if bytes > 16 << 20 {
                let reason = format!("invalid '{}' property: must be between zero and 16M", native.name);
                return Err(Refused::invalid(reason));
            }
            StoredProperty::Number(bytes)
        }
        Kind::Mountpoint => StoredProperty::Text(mountpoint_value(native.name, value)?),
        Kind::Text => StoredProperty::Text(value.to_owned()),
    };
    let unwritable = native.name == "acltype" && matches!(&stored, StoredProperty::Number(2));
    if !native.settable || unwritable {
        let default = match &stored {
            StoredProperty::Number(n) => *n == native.default,
            StoredProperty::Text(text) => text == default_text(native.name),
        };
        if default {
            return Ok((native.name.to_owned(), stored));
        }
        return Err(Refused::Unsupported(format!(
            "property '{}' cannot be set to '{value}': {}",
            native.name,
            no_effect(native.name)
        )));
    }
    Ok((native.name.to_owned(), stored))
}

/// What a text property is when nobody set it.
pub fn default_text(name: &str) -> &'static str {
    match name {
        "sharenfs" | "sharesmb" => "off",
        _ => "none",
    }
}

/// The number that a word stands for.
///
/// # Errors
/// It stands for none.
pub fn index_value(name: &str, values: &[(&str, u64)], value: &str) -> Result<u64> {
    let found = values.iter().find(|(text, _)| *text == value);
    found
        .map(|&(_, number)| number)
        .ok_or_else(|| Refused::invalid(format!("'{name}' must be one of '{}'", numbers::choices(name, values))))
}

/// The number that a text stands for, where "none" is 0.
fn number_value(name: &str, value: &str) -> Result<u64> {
    match value {
        "none" => Ok(0),
        "auto" if name == "refreservation" => Err(Refused::invalid("'refreservation=auto' only allowed on volumes")),
        "auto" => Err(Refused::invalid(format!("'auto' is invalid value for '{name}'"))),
        _ => numbers::parse(value).map_err(Refused::invalid),
    }
}

/// A mount point as it is stored: without a slash at its end.
fn mountpoint_value(name: &str, value: &str) -> Result<String> {
    if !value.starts_with('/') && value != "none" && value != "legacy" {
        return Err(Refused::invalid(format!("'{name}' must be an absolute path, 'none', or 'legacy'")));
    }
    if value.len() > PATH_MAX || value.split('/').any(|part| part.len() > NAME_MAX) {
        return Err(Refused::invalid(format!("component of '{name}' is too long")));
    }
    let trimmed = if value.len() > 1 { value.trim_end_matches('/') } else { value };
    Ok(if trimmed.is_empty() { "/".into() } else { trimmed.to_owned() })
}

/// Why a property that only volumes or snapshots have cannot be set.
fn of_volumes(name: &str) -> Option<String> {
    matches!(name, "volsize" | "volblocksize" | "volthreading")
        .then(|| format!("'{name}' does not apply to datasets of this type"))
}

/// Why a property would have no effect.
fn no_effect(name: &str) -> &'static str {
    match name {
        "acltype" | "aclinherit" | "aclmode" => "Linux checks POSIX lists only, and this is about NFSv4 lists",
        "nbmand" => "Linux has had no mandatory locks since version 5.15",
        "special_small_blocks" => "this version has no special vdevs yet",
        "sharenfs" | "sharesmb" => "this version shares nothing over the network yet",
        "encryption" | "keyformat" | "keylocation" | "pbkdf2iters" => "this version does not encrypt yet",
        "context" | "fscontext" | "defcontext" | "rootcontext" | "mlslabel" => "file systems have no labels here",
        "vscan" => "there is no virus scanner to ask",
        "zoned" => "Linux has no zones",
        _ => "this version does not act on it yet",
    }
}

/// Checks a set of properties.
///
/// # Errors
/// As [`parse`].
pub fn parse_all(given: &BTreeMap<String, String>) -> Result<BTreeMap<String, StoredProperty>> {
    given.iter().map(|(name, value)| parse(name, value)).collect()
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
    fn one_table_says_what_can_be_set_and_what_is_inherited() {
        for name in ["used", "utf8only", "encryption", "volblocksize", "name"] {
            assert!(is_read_only(name) && !is_inherited(name), "{name}");
        }
        for name in ["quota", "canmount", "version", "volsize", "keylocation", "filesystem_limit"] {
            assert!(!is_read_only(name) && !is_inherited(name), "{name}");
        }
        for name in ["atime", "mountpoint", "compression"] {
            assert!(!is_read_only(name) && is_inherited(name), "{name}");
        }
        let followed: Vec<&str> = followed_by_mounts().collect();
        assert_eq!(
            followed,
            ["atime", "devices", "exec", "setuid", "readonly", "snapdir", "xattr", "relatime", "acltype"]
        );
        assert!(NATIVES.iter().all(|native| !STATISTICS.contains(&native.name)));
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
            ("quota", "10X"),
            ("filesystem_limit", "many"),
            ("special_small_blocks", "32K"),
            ("special_small_blocks", "32M"),
            ("quota", "0"),
            ("refreservation", "auto"),
            ("volsize", "1G"),
            ("utf8only", "on"),
            ("checksum", "md5"),
        ] {
            let text = parse(name, value).unwrap_err().to_string();
            assert!(text.contains(name) || text.contains("numeric"), "{text}");
        }
    }
}
