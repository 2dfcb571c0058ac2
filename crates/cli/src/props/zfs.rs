//! Properties of data sets, in the order of `zfs get all`.

use std::collections::BTreeSet;

use platter_api::messages::DatasetView;
use platter_api::report::{Property, PropertySource, PropertyValue};

use super::select::Wanted;
use super::{Info, Kind, Shown};

const fn info(name: &'static str, column: &'static str, kind: Kind) -> Info {
    Info { name, column, kind, visible: true }
}

const fn hidden(name: &'static str, column: &'static str, kind: Kind) -> Info {
    Info { name, column, kind, visible: false }
}

/// All native properties.
pub const TABLE: &[Info] = &[
    hidden("name", "NAME", Kind::Text),
    hidden("inconsistent", "INCONSISTENT", Kind::Number),
    info("type", "TYPE", Kind::Text),
    info("creation", "CREATION", Kind::Creation),
    info("used", "USED", Kind::Bytes),
    info("available", "AVAIL", Kind::Bytes),
    info("referenced", "REFER", Kind::Bytes),
    info("compressratio", "RATIO", Kind::Ratio),
    info("mounted", "MOUNTED", Kind::Word(3)),
    info("origin", "ORIGIN", Kind::Text),
    info("quota", "QUOTA", Kind::BytesOrNone),
    info("reservation", "RESERV", Kind::BytesOrNone),
    info("volsize", "VOLSIZE", Kind::Number),
    info("volblocksize", "VOLBLOCK", Kind::Number),
    info("recordsize", "RECSIZE", Kind::Number),
    info("mountpoint", "MOUNTPOINT", Kind::Text),
    info("sharenfs", "SHARENFS", Kind::Text),
    info("checksum", "CHECKSUM", Kind::Word(9)),
    info("compression", "COMPRESS", Kind::Word(14)),
    info("atime", "ATIME", Kind::Word(3)),
    info("devices", "DEVICES", Kind::Word(3)),
    info("exec", "EXEC", Kind::Word(3)),
    info("setuid", "SETUID", Kind::Word(3)),
    info("readonly", "RDONLY", Kind::Word(3)),
    info("zoned", "ZONED", Kind::Word(3)),
    info("snapdir", "SNAPDIR", Kind::Word(8)),
    info("aclmode", "ACLMODE", Kind::Word(11)),
    info("aclinherit", "ACLINHERIT", Kind::Word(13)),
    info("createtxg", "CREATETXG", Kind::Identifier),
    info("canmount", "CANMOUNT", Kind::Word(6)),
    info("xattr", "XATTR", Kind::Word(3)),
    info("copies", "COPIES", Kind::Word(1)),
    info("version", "VERSION", Kind::Word(7)),
    info("utf8only", "UTF8ONLY", Kind::Word(3)),
    info("normalization", "NORMALIZATION", Kind::Word(6)),
    info("casesensitivity", "CASE", Kind::Word(11)),
    info("vscan", "VSCAN", Kind::Word(3)),
    info("nbmand", "NBMAND", Kind::Word(3)),
    info("sharesmb", "SHARESMB", Kind::Text),
    info("refquota", "REFQUOTA", Kind::BytesOrNone),
    info("refreservation", "REFRESERV", Kind::BytesOrNone),
    info("guid", "GUID", Kind::Identifier),
    info("primarycache", "PRIMARYCACHE", Kind::Word(8)),
    info("secondarycache", "SECONDARYCACHE", Kind::Word(8)),
    info("usedbysnapshots", "USEDSNAP", Kind::Bytes),
    info("usedbydataset", "USEDDS", Kind::Bytes),
    info("usedbychildren", "USEDCHILD", Kind::Bytes),
    info("usedbyrefreservation", "USEDREFRESERV", Kind::Bytes),
    info("defer_destroy", "DEFER_DESTROY", Kind::Word(3)),
    info("userrefs", "USERREFS", Kind::Number),
    info("logbias", "LOGBIAS", Kind::Word(10)),
    info("objsetid", "OBJSETID", Kind::Identifier),
    info("dedup", "DEDUP", Kind::Word(13)),
    info("mlslabel", "MLSLABEL", Kind::Text),
    info("sync", "SYNC", Kind::Word(8)),
    info("dnodesize", "DNSIZE", Kind::Word(6)),
    info("refcompressratio", "REFRATIO", Kind::Ratio),
    info("written", "WRITTEN", Kind::Number),
    info("clones", "CLONES", Kind::Text),
    info("logicalused", "LUSED", Kind::Number),
    info("logicalreferenced", "LREFER", Kind::Number),
    info("volmode", "VOLMODE", Kind::Word(7)),
    info("receive_resume_token", "RESUMETOK", Kind::Text),
    info("filesystem_limit", "FSLIMIT", Kind::CountOrNone),
    info("snapshot_limit", "SSLIMIT", Kind::CountOrNone),
    info("filesystem_count", "FSCOUNT", Kind::CountOrNone),
    info("snapshot_count", "SSCOUNT", Kind::CountOrNone),
    info("snapdev", "SNAPDEV", Kind::Word(7)),
    info("acltype", "ACLTYPE", Kind::Word(8)),
    info("context", "CONTEXT", Kind::Text),
    info("fscontext", "FSCONTEXT", Kind::Text),
    info("defcontext", "DEFCONTEXT", Kind::Text),
    info("rootcontext", "ROOTCONTEXT", Kind::Text),
    info("relatime", "RELATIME", Kind::Word(3)),
    info("redundant_metadata", "REDUND_MD", Kind::Word(4)),
    info("overlay", "OVERLAY", Kind::Word(3)),
    info("encryption", "ENCRYPTION", Kind::Word(11)),
    info("keylocation", "KEYLOCATION", Kind::Text),
    info("keyformat", "KEYFORMAT", Kind::Word(10)),
    info("pbkdf2iters", "PBKDF2ITERS", Kind::Identifier),
    info("encryptionroot", "ENCROOT", Kind::Text),
    info("keystatus", "KEYSTATUS", Kind::Word(11)),
    info("special_small_blocks", "SPECIAL_SMALL_BLOCKS", Kind::Number),
    info("redact_snaps", "RSNAPS", Kind::Text),
    info("snapshots_changed", "SNAPSHOTS_CHANGED", Kind::SnapshotsChanged),
    info("prefetch", "PREFETCH", Kind::Word(8)),
    info("volthreading", "VOLTHREAD", Kind::Word(3)),
    info("direct", "DIRECT", Kind::Word(8)),
    info("longname", "LONGNAME", Kind::Word(3)),
];

/// Columns of `zfs list -o space`.
pub const SPACE: &str = "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren";

/// Finds a property by its name or its column's.
pub fn find(name: &str) -> Option<&'static Info> {
    TABLE.iter().find(|info| info.name == name || info.column.to_ascii_lowercase() == name)
}

/// Whether this is a well-formed user property ("module:property").
pub fn is_user_property(name: &str) -> bool {
    name.contains(':')
        && name.len() < 256
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(&byte))
}

/// Properties of `zfs get all` for these data sets: the native ones and all user properties that any of them has.
pub fn all(datasets: &[DatasetView]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = TABLE.iter().filter(|info| info.visible).map(Wanted::Native).collect();
    let user: BTreeSet<&String> =
        datasets.iter().flat_map(|view| view.report.properties.keys()).filter(|name| name.contains(':')).collect();
    wanted.extend(user.into_iter().map(|name| Wanted::Other(name.clone())));
    wanted
}

/// The value of a property for a data set; `None` when it has none.
pub fn value(view: &DatasetView, wanted: &Wanted, literal: bool) -> Option<Shown> {
    let report = &view.report;
    match wanted.name() {
        "name" => return Some(Shown { value: report.name.clone(), source: PropertySource::None }),
        "type" => return Some(Shown { value: report.kind.name().to_owned(), source: PropertySource::None }),
        // It is told of those only that are.
        "inconsistent" if !report.properties.contains_key("inconsistent") => {
            return Some(Shown { value: "0".to_owned(), source: PropertySource::None });
        }
        _ => {}
    }
    shown(report.properties.get(wanted.name())?, wanted, literal)
}

/// The value of a property that came with a stream; `None` when there is none.
pub fn received(view: &DatasetView, wanted: &Wanted, literal: bool) -> Option<String> {
    let value = view.report.received.get(wanted.name())?.clone();
    shown(&Property { value, source: PropertySource::Received }, wanted, literal).map(|shown| shown.value)
}

fn shown(property: &Property, wanted: &Wanted, literal: bool) -> Option<Shown> {
    match wanted {
        Wanted::Native(info) => Shown::of(info, property, literal),
        Wanted::Other(name) => Some(Shown {
            value: match &property.value {
                PropertyValue::Text(text) => text.clone(),
                PropertyValue::Number(0) if name.contains("quota@") && !literal => "none".to_owned(),
                PropertyValue::Number(number) if literal => number.to_string(),
                PropertyValue::Number(number) if name.contains("obj") => crate::nice::num(*number),
                PropertyValue::Number(number) => crate::nice::bytes(*number),
            },
            source: property.source.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_short_names() {
        assert_eq!(find("avail").unwrap().name, "available");
        assert_eq!(find("refer").unwrap().name, "referenced");
        assert_eq!(find("compressratio").unwrap().column, "RATIO");
        assert!(find("nope").is_none());
    }

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<&str> = TABLE.iter().map(|info| info.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for native in platter_api::properties::NATIVES {
            assert!(names.contains(native.name), "{}", native.name);
        }
    }

    #[test]
    fn user_properties_have_a_colon_and_no_capitals() {
        assert!(is_user_property("com.example:backup"));
        assert!(!is_user_property("backup"));
        assert!(!is_user_property("Com:x"));
    }
}
