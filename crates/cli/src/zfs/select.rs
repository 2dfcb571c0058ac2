//! Which data sets `list` and `get` show: names, paths, recursion, depth, types (OpenZFS: `cmd/zfs/zfs_iter.c`).

use platter_api::report::{DatasetKind, PropertyValue};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::Path;

use platter_api::messages::{DatasetView, ErrorBody, ListDatasets, ListMounts};
use platter_api::names::{NAME_MAX, NESTING_MAX, split_snapshot};

use crate::session::{Failure, Session, complain, refused, usage};
use crate::system_text::system_text;

/// How far to go down from what was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Levels below; `usize::MAX` for all.
    pub depth: usize,
    /// Whether `-r` or `-d` was given.
    pub given: bool,
}

impl Reach {
    /// From `-r` and `-d`.
    ///
    /// # Errors
    /// A depth that is no number.
    pub fn parse(recursive: bool, depth: Option<&str>) -> Result<Self, Failure> {
        match depth {
            Some(text) => match text.parse() {
                Ok(depth) => Ok(Self { depth, given: true }),
                Err(_) => Err(usage(format!("{text} is not an integer"))),
            },
            None if recursive => Ok(Self { depth: usize::MAX, given: true }),
            None => Ok(Self { depth: 0, given: false }),
        }
    }

    /// Snapshots or bookmarks alone of named data sets are looked for one level below them.
    pub(super) fn look_below(&mut self, kinds: &BTreeSet<DatasetKind>, names: &[String]) {
        let alone =
            *kinds == BTreeSet::from([DatasetKind::Snapshot]) || *kinds == BTreeSet::from([DatasetKind::Bookmark]);
        if alone && !names.is_empty() && !self.given {
            *self = Self { depth: 1, given: true };
        }
    }
}

/// Types of data sets.
///
/// # Errors
/// An unknown type.
pub fn types(list: Option<&str>, default: &[DatasetKind]) -> Result<BTreeSet<DatasetKind>, Failure> {
    let Some(list) = list else { return Ok(default.iter().copied().collect()) };
    let mut types = BTreeSet::new();
    for word in list.split(',') {
        match word {
            "filesystem" | "fs" => types.extend([DatasetKind::Filesystem]),
            "volume" | "vol" => types.extend([DatasetKind::Volume]),
            "snapshot" | "snap" => types.extend([DatasetKind::Snapshot]),
            "bookmark" => types.extend([DatasetKind::Bookmark]),
            "all" => types.extend(DatasetKind::ALL),
            other => return Err(usage(format!("invalid type '{other}'"))),
        }
    }
    Ok(types)
}

/// The data sets to show, and the exit code that unknown names make.
///
/// # Errors
/// When the daemon cannot be asked at all.
pub fn collect(
    session: &mut Session,
    names: &[String],
    reach: Reach,
    types: &BTreeSet<DatasetKind>,
) -> Result<(Vec<DatasetView>, u8), ErrorBody> {
    let wanted = |view: &DatasetView| types.contains(&view.report.kind);
    let snapshots = types.contains(&DatasetKind::Snapshot) && (names.is_empty() || reach.depth > 0);
    let bookmarks = types.contains(&DatasetKind::Bookmark) && (names.is_empty() || reach.depth > 0);
    if names.is_empty() {
        let all = session.ask(ListDatasets { under: None, snapshots, bookmarks })?;
        let limit = if reach.given { reach.depth } else { usize::MAX };
        let near = |view: &DatasetView| level(&view.report.name) <= limit;
        let mut found: Vec<DatasetView> = all.datasets.into_iter().filter(|view| wanted(view) && near(view)).collect();
        found.sort_by(by_name);
        return Ok((found, 0));
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut code = 0;
    for given in names {
        let name = match named(session, given)? {
            Ok(name) => name,
            Err(body) => {
                complain(&body);
                code = 1;
                continue;
            }
        };
        match session.ask(ListDatasets { under: Some(name.clone()), snapshots, bookmarks }) {
            Ok(answer) => {
                let own = level(&name);
                for view in answer.datasets {
                    let is_self = view.report.name == name;
                    let near = level(&view.report.name).saturating_sub(own) <= reach.depth;
                    // What was named is shown whatever its type, unless types were asked for.
                    if ((is_self && !reach.given) || (near && wanted(&view))) && seen.insert(view.report.name.clone()) {
                        found.push(view);
                    }
                }
            }
            Err(body) => {
                complain(&body);
                code = 1;
            }
        }
    }
    // By name, whatever the order they were asked for in (`zfs_compare`).
    found.sort_by(by_name);
    Ok((found, code))
}

/// By name; a data set before its snapshots, and those by age (`zfs_compare`, `cmd/zfs/zfs_iter.c`).
pub(super) fn by_name(a: &DatasetView, b: &DatasetView) -> Ordering {
    let parts = |view: &DatasetView| {
        let name = &view.report.name;
        let (dataset, own) = match split_snapshot(name).or_else(|| name.split_once('#')) {
            Some((dataset, own)) => (dataset.to_owned(), Some(own.to_owned())),
            None => (view.report.name.clone(), None),
        };
        let born = match view.report.properties.get("createtxg").map(|property| &property.value) {
            Some(PropertyValue::Number(txg)) if own.is_some() => *txg,
            _ => 0,
        };
        (dataset, own.is_some(), born, own)
    };
    parts(a).cmp(&parts(b))
}

fn level(name: &str) -> usize {
    name.matches(['/', '@', '#']).count()
}

/// A name as given, or the data set mounted at a path as given (`zfs_path_to_zhandle`).
pub(super) fn named(session: &mut Session, given: &str) -> Result<Result<String, ErrorBody>, ErrorBody> {
    if !given.starts_with('/') && !given.starts_with("./") {
        return Ok(complaint(given).map_or_else(
            || Ok(given.to_owned()),
            |reason| Err(ErrorBody::new(format!("cannot open '{given}': {reason}"))),
        ));
    }
    let path = match Path::new(given).canonicalize() {
        Ok(path) => path,
        Err(error) => {
            let reason = system_text(&error);
            return Ok(Err(ErrorBody::new(format!("cannot open '{given}': {reason}"))));
        }
    };
    let mounts = session.ask(ListMounts {})?;
    let inside = mounts.iter().filter(|mount| path.starts_with(&mount.mountpoint));
    let nearest = inside.max_by_key(|mount| mount.mountpoint.components().count());
    Ok(nearest
        .map(|mount| mount.dataset.clone())
        .ok_or_else(|| ErrorBody::new(format!("'{given}': not a ZFS filesystem"))))
}

/// Why no data set, snapshot or bookmark can be called so (`entity_namecheck`), in OpenZFS's words.
pub(super) fn complaint(name: &str) -> Option<String> {
    if name.len() > NAME_MAX {
        return Some("name is too long".to_owned());
    }
    if name.starts_with('/') {
        return Some("leading slash in name".to_owned());
    }
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_.: %".contains(c);
    let (mut rest, mut delimited) = (name, false);
    loop {
        let end = rest.find(['/', '@', '#']).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        if part.is_empty() && tail.is_empty() && !name.is_empty() && name.ends_with('/') {
            return Some("trailing slash in name".to_owned());
        }
        if let Some(bad) = part.chars().find(|c| !valid(*c)) {
            return Some(format!("invalid character '{bad}' in name"));
        }
        if !tail.starts_with(['@', '#']) {
            match part {
                "." => return Some("self reference, '.' is found in name".to_owned()),
                ".." => return Some("parent reference, '..' is found in name".to_owned()),
                _ => {}
            }
        } else if delimited {
            return Some("multiple '@' and/or '#' delimiters in name".to_owned());
        } else {
            delimited = true;
        }
        if part.is_empty() {
            return Some("empty component or misplaced '@' or '#' delimiter in name".to_owned());
        }
        if tail.is_empty() {
            return None;
        }
        if tail.starts_with('/') && delimited {
            return Some("trailing slash in name".to_owned());
        }
        rest = &tail[1..];
    }
}

/// Why no file system can be made with this name, in OpenZFS's words (`zfs_validate_name`, `dataset_nestcheck`).
///
/// # Errors
/// `what`, the name and the reason.
pub(super) fn well_formed(name: &str, what: &str) -> Result<(), Failure> {
    let reason = if name.contains('@') {
        Some("snapshot delimiter '@' is not expected here".to_owned())
    } else if name.contains('#') {
        Some("bookmark delimiter '#' is not expected here".to_owned())
    } else if name.contains('%') {
        Some("invalid character '%' in name".to_owned())
    } else if name.matches('/').count() >= NESTING_MAX {
        complaint(name).or_else(|| Some("maximum name nesting depth exceeded".to_owned()))
    } else {
        complaint(name)
    };
    reason.map_or(Ok(()), |reason| Err(refused(format!("{what} '{name}': {reason}"))))
}

/// Why nothing can be found under this name as a file system or volume.
///
/// # Errors
/// "cannot open", the name and the reason.
pub(super) fn openable(name: &str) -> Result<(), Failure> {
    let reason = if name.contains('@') {
        Some("snapshot delimiter '@' is not expected here".to_owned())
    } else if name.contains('#') {
        Some("bookmark delimiter '#' is not expected here".to_owned())
    } else {
        complaint(name)
    };
    reason.map_or(Ok(()), |reason| Err(refused(format!("cannot open '{name}': {reason}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_types_are_parsed() {
        assert_eq!(Reach::parse(false, Some("1")).unwrap(), Reach { depth: 1, given: true });
        assert_eq!(Reach::parse(true, None).unwrap(), Reach { depth: usize::MAX, given: true });
        assert!(Reach::parse(true, Some("x")).is_err());
        assert_eq!(types(Some("fs,vol"), &[]).unwrap(), BTreeSet::from([DatasetKind::Filesystem, DatasetKind::Volume]));
        assert!(types(Some("file"), &[]).is_err());
        assert_eq!(level("tank/a/b@c"), 3);
    }

    #[test]
    fn malformed_names_are_refused_in_openzfs_words() {
        let long = format!("tank/{}", "n".repeat(251));
        let deep = format!("tank{}", "/d".repeat(50));
        let table = [
            ("", "empty component"),
            ("/tank", "leading slash in name"),
            ("tank/", "trailing slash in name"),
            ("tank//a", "empty component or misplaced '@' or '#' delimiter in name"),
            ("tank/a@b", "snapshot delimiter '@' is not expected here"),
            ("tank/a#b", "bookmark delimiter '#' is not expected here"),
            ("tank/a*b", "invalid character '*' in name"),
            ("tank/é", "invalid character 'é' in name"),
            ("tank/a%b", "invalid character '%' in name"),
            ("tank/./a", "self reference, '.' is found in name"),
            ("tank/..", "parent reference, '..' is found in name"),
            (&long, "name is too long"),
            (&deep, "maximum name nesting depth exceeded"),
        ];
        for (name, reason) in table {
            match well_formed(name, "cannot create") {
                Err(Failure::Refused(body)) => assert!(body.message.contains(reason), "{name}: {}", body.message),
                other => panic!("{name}: {other:?}"),
            }
        }
        for name in ["tank/a b", "tank/a:b.c-d_e", &long[..255], &deep[..deep.len() - 2]] {
            assert!(well_formed(name, "cannot create").is_ok(), "{name}");
        }
        for (name, reason) in [
            ("a@b@c", "multiple '@' and/or '#' delimiters in name"),
            ("a@b/c", "trailing slash in name"),
            ("a@", "empty component or misplaced"),
        ] {
            assert!(complaint(name).is_some_and(|found| found.contains(reason)), "{name}");
        }
        assert!(complaint("a@b").is_none() && complaint("a%b").is_none());
    }
}
