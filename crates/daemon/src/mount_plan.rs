//! Where file systems belong: resolution of `mountpoint` and `canmount` (OpenZFS: `zfs_prop_get`, `libzfs_mount.c`).
//!
//! True here: the plan is a pure function of the reports and the roots; parents come before children,
//! because a child's mount point usually lies inside its parent's file system.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use platter_api::properties;
use platter_api::report::{DatasetKind, DatasetReport, Property, PropertySource, PropertyValue};

/// What mount points lie below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// The pool's alternate root: of all mount points.
    pub altroot: Option<PathBuf>,
    /// The folder of the ordinary user whose daemon it is: of those that nobody chose, as `/tank` is not his to make.
    pub own: Option<OwnFolder>,
}

/// Where an ordinary user's file systems belong when nobody said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFolder {
    /// The folder.
    pub path: PathBuf,
    /// Whether one mount may lie inside another. Where only he may enter his mounts, `fusermount3` cannot, and what is
    /// below a data set is mounted beside it.
    pub nested: bool,
}

impl OwnFolder {
    /// The default mount point of data set `name`: `tank/media`, or `tank+media` ('+' is in no data set's name).
    pub fn place(&self, name: &str) -> PathBuf {
        if self.nested { self.path.join(name) } else { self.path.join(name.replace('/', "+")) }
    }
}

/// Where a file system belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mountpoint {
    /// An absolute path, the alternate root included.
    Path(PathBuf),
    /// Mounted by hand (`legacy`).
    Legacy,
    /// Nowhere.
    None,
}

impl Mountpoint {
    /// As `zfs get mountpoint` shows it.
    pub fn shown(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Legacy => "legacy".to_owned(),
            Self::None => "none".to_owned(),
        }
    }
}

/// Whether it is mounted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanMount {
    /// Yes.
    On,
    /// Never.
    Off,
    /// Only when asked for by name.
    NoAuto,
}

/// The text of a property, whatever its form.
pub fn text(property: &Property) -> String {
    match &property.value {
        PropertyValue::Number(number) => number.to_string(),
        PropertyValue::Text(text) => text.clone(),
    }
}

/// `canmount` of a data set.
pub fn canmount(report: &DatasetReport) -> CanMount {
    match report.properties.get("canmount").map(text).as_deref() {
        Some("off") => CanMount::Off,
        Some("noauto") => CanMount::NoAuto,
        _ => CanMount::On,
    }
}

/// `readonly` of a data set.
pub fn read_only(report: &DatasetReport) -> bool {
    of_a_mount(report, "readonly").as_deref() == Some("on")
}

/// Whether it is encrypted and its key is not loaded.
pub fn is_locked(report: &DatasetReport) -> bool {
    report.properties.get("keystatus").map(text).as_deref() == Some("unavailable")
}

/// Whether a receive fills it that is not finished.
pub fn is_unfinished(report: &DatasetReport) -> bool {
    report.properties.contains_key("inconsistent")
}

/// Whether blocks were left out of it when it was received.
pub fn is_redacted(report: &DatasetReport) -> bool {
    report.properties.contains_key("redact_snaps")
}

/// Resolves `mountpoint` of `name`: the nearest of itself and its ancestors that has the property set decides, and what
/// follows that one's name is appended; with none set it is `/` and the whole name, or in an ordinary user's own
/// folder.
pub fn resolve(name: &str, reports: &BTreeMap<String, DatasetReport>, roots: &Roots) -> Mountpoint {
    let altroot = roots.altroot.as_deref();
    let mut owner = name;
    loop {
        if let Some(value) = reports.get(owner).and_then(|report| local_mountpoint(owner, report)) {
            let rest = name[owner.len()..].trim_start_matches('/');
            return place(&value, rest, altroot);
        }
        match owner.rfind('/') {
            Some(cut) => owner = &owner[..cut],
            None => {
                return match &roots.own {
                    Some(own) if altroot.is_none() => Mountpoint::Path(own.place(name)),
                    _ => place("/", name, altroot),
                };
            }
        }
    }
}

/// Whether the data set's own property says where it is mounted.
pub fn is_chosen(name: &str, report: &DatasetReport) -> bool {
    local_mountpoint(name, report).is_some()
}

fn local_mountpoint(owner: &str, report: &DatasetReport) -> Option<String> {
    let property = report.properties.get("mountpoint")?;
    let here = match &property.source {
        PropertySource::Local | PropertySource::Temporary | PropertySource::Received => true,
        PropertySource::Inherited(from) => from == owner,
        PropertySource::None | PropertySource::Default => false,
    };
    here.then(|| text(property))
}

fn place(value: &str, rest: &str, altroot: Option<&Path>) -> Mountpoint {
    match value {
        "none" => Mountpoint::None,
        "legacy" => Mountpoint::Legacy,
        path => {
            let mut place = altroot.map_or_else(|| PathBuf::from("/"), Path::to_path_buf);
            for part in [path, rest] {
                let part = part.trim_matches('/');
                if !part.is_empty() {
                    place.push(part);
                }
            }
            Mountpoint::Path(place)
        }
    }
}

/// The reports by name.
pub fn by_name(reports: &[DatasetReport]) -> BTreeMap<String, DatasetReport> {
    reports.iter().map(|report| (report.name.clone(), report.clone())).collect()
}

/// File systems that are mounted by themselves, in the order to mount them.
pub fn automatic(reports: &[DatasetReport], roots: &Roots) -> Vec<(String, PathBuf)> {
    let map = by_name(reports);
    let mut plan: Vec<(String, PathBuf)> = map
        .values()
        .filter(|report| {
            report.kind == DatasetKind::Filesystem
                && canmount(report) == CanMount::On
                && !is_locked(report)
                && !is_unfinished(report)
                && !is_redacted(report)
        })
        .filter_map(|report| match resolve(&report.name, &map, roots) {
            Mountpoint::Path(path) => Some((report.name.clone(), path)),
            Mountpoint::Legacy | Mountpoint::None => None,
        })
        .collect();
    // By path first: a mount point inside another's is mounted after it even when the data sets are not related.
    plan.sort_by(|a, b| a.1.components().cmp(b.1.components()).then_with(|| a.0.cmp(&b.0)));
    plan
}

/// Properties that a mount is made of and that never change.
pub const FIXED: [&str; 2] = ["casesensitivity", "normalization"];

/// A property that a mount is made of.
///
/// # Panics
/// In debug builds, for a property that a mount would not follow: it is neither fixed nor marked so in the table of
/// properties.
pub fn of_a_mount(report: &DatasetReport, name: &str) -> Option<String> {
    let is_known = FIXED.contains(&name) || properties::followed_by_mounts().any(|known| known == name);
    debug_assert!(is_known, "mounts do not follow '{name}'");
    report.properties.get(name).map(text)
}

/// A file system of which nothing is known but this property.
pub fn with_mountpoint(name: &str, mountpoint: Option<&str>) -> DatasetReport {
    let property =
        |value: &str| Property { value: PropertyValue::Text(value.to_owned()), source: PropertySource::Local };
    DatasetReport {
        name: name.to_owned(),
        kind: DatasetKind::Filesystem,
        properties: mountpoint.map(|value| ("mountpoint".to_owned(), property(value))).into_iter().collect(),
        received: BTreeMap::new(),
        read_only_reason: None,
    }
}

/// Words of `zfs mount -o`, the property that each stands for, and its value.
const OPTIONS: [(&str, &str, &str); 13] = [
    ("ro", "readonly", "on"),
    ("rw", "readonly", "off"),
    ("atime", "atime", "on"),
    ("noatime", "atime", "off"),
    ("relatime", "relatime", "on"),
    ("norelatime", "relatime", "off"),
    ("dev", "devices", "on"),
    ("nodev", "devices", "off"),
    ("suid", "setuid", "on"),
    ("nosuid", "setuid", "off"),
    ("exec", "exec", "on"),
    ("noexec", "exec", "off"),
    ("noxattr", "xattr", "off"),
];

/// While a file system is mounted with options of its own, its properties show them as temporary
/// (`get_numeric_property`, `lib/libzfs/libzfs_dataset.c`).
pub fn show_options(report: &mut DatasetReport, options: &[String]) {
    for (_, property, value) in options.iter().filter_map(|given| OPTIONS.iter().find(|(word, _, _)| word == given)) {
        let Some(shown) = report.properties.get_mut(*property) else { continue };
        if text(shown) != *value {
            *shown = Property { value: PropertyValue::Text((*value).to_owned()), source: PropertySource::Temporary };
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn dataset(name: &str, properties: &[(&str, &str, PropertySource)]) -> DatasetReport {
        DatasetReport {
            name: name.to_owned(),
            kind: DatasetKind::Filesystem,
            properties: properties
                .iter()
                .map(|(name, value, source)| {
                    let value = PropertyValue::Text((*value).to_owned());
                    ((*name).to_owned(), Property { value, source: source.clone() })
                })
                .collect(),
            received: BTreeMap::new(),
            read_only_reason: None,
        }
    }

    fn local(name: &str, mountpoint: &str) -> DatasetReport {
        dataset(name, &[("mountpoint", mountpoint, PropertySource::Local)])
    }

    fn inherits(name: &str, from: &str) -> DatasetReport {
        dataset(name, &[("mountpoint", "/somewhere", PropertySource::Inherited(from.to_owned()))])
    }

    fn shown(name: &str, reports: &[DatasetReport], altroot: Option<&str>) -> String {
        let roots = Roots { altroot: altroot.map(PathBuf::from), own: None };
        resolve(name, &by_name(reports), &roots).shown()
    }

    #[test]
    fn without_a_setting_the_name_is_the_place() {
        let reports = [dataset("tank", &[("mountpoint", "/", PropertySource::Default)]), dataset("tank/a", &[])];
        assert_eq!(shown("tank", &reports, None), "/tank");
        assert_eq!(shown("tank/a", &reports, None), "/tank/a");
        assert_eq!(shown("tank/a", &reports, Some("/mnt")), "/mnt/tank/a");
    }

    // An ordinary user's first command said that '/tank' cannot be mounted.
    #[test]
    fn an_ordinary_users_defaults_are_in_his_folder_and_what_he_chose_is_not() {
        let reports =
            [dataset("tank", &[]), dataset("tank/a", &[]), local("tank/b", "/srv"), inherits("tank/b/c", "tank/b")];
        let shown = |name: &str, altroot: Option<&str>, nested: bool| {
            let own = Some(OwnFolder { path: "/home/me".into(), nested });
            resolve(name, &by_name(&reports), &Roots { altroot: altroot.map(PathBuf::from), own }).shown()
        };
        assert_eq!(shown("tank", None, false), "/home/me/tank");
        assert_eq!(shown("tank/a", None, true), "/home/me/tank/a");
        assert_eq!(shown("tank/a", None, false), "/home/me/tank+a");
        assert_eq!(shown("tank/b/c", None, false), "/srv/c");
        assert_eq!(shown("tank/a", Some("/mnt"), false), "/mnt/tank/a");
    }

    #[test]
    fn the_nearest_setting_decides_and_the_rest_of_the_name_follows() {
        let reports = [
            local("tank", "/srv"),
            inherits("tank/a", "tank"),
            local("tank/a/b", "/data/"),
            inherits("tank/a/b/c", "tank/a/b"),
        ];
        assert_eq!(shown("tank/a", &reports, None), "/srv/a");
        assert_eq!(shown("tank/a/b", &reports, None), "/data");
        assert_eq!(shown("tank/a/b/c", &reports, Some("/r")), "/r/data/c");
    }

    #[test]
    fn a_root_mountpoint_does_not_double_slashes() {
        let reports = [local("tank", "/"), inherits("tank/a", "tank")];
        assert_eq!(shown("tank", &reports, None), "/");
        assert_eq!(shown("tank/a", &reports, None), "/a");
        assert_eq!(shown("tank", &reports, Some("/mnt")), "/mnt");
        assert_eq!(shown("tank/a", &reports, Some("/")), "/a");
    }

    #[test]
    fn none_and_legacy_are_inherited_too() {
        let reports = [local("tank", "none"), inherits("tank/a", "tank"), local("tank/b", "legacy")];
        assert_eq!(shown("tank/a", &reports, Some("/mnt")), "none");
        assert_eq!(shown("tank/b", &reports, None), "legacy");
        assert!(automatic(&reports, &Roots::default()).is_empty());
    }

    #[test]
    fn options_of_a_mount_show_as_temporary_properties() {
        let mut report =
            dataset("tank", &[("exec", "on", PropertySource::Default), ("atime", "on", PropertySource::Local)]);
        show_options(&mut report, &["noexec".to_owned(), "atime".to_owned(), "ro".to_owned()]);
        let shown = |name: &str| (text(&report.properties[name]), report.properties[name].source.clone());
        assert_eq!(shown("exec"), ("off".to_owned(), PropertySource::Temporary));
        assert_eq!(shown("atime"), ("on".to_owned(), PropertySource::Local));
        assert!(!report.properties.contains_key("readonly"));
    }

    #[test]
    fn parents_come_first_and_canmount_is_obeyed() {
        let mut off = local("tank/off", "/x");
        off.properties.insert(
            "canmount".into(),
            Property { value: PropertyValue::Text("off".into()), source: PropertySource::Local },
        );
        let mut noauto = local("tank/noauto", "/y");
        noauto.properties.insert(
            "canmount".into(),
            Property { value: PropertyValue::Text("noauto".into()), source: PropertySource::Local },
        );
        let reports = [local("tank/inner", "/a/b"), local("tank/zz", "/a"), off, noauto, local("tank", "/t")];
        let plan: Vec<String> = automatic(&reports, &Roots::default()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(plan, ["tank/zz", "tank/inner", "tank"]);
    }
}
