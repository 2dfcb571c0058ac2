//! Which data sets `list` and `get` show: names, paths, recursion, depth, types (OpenZFS: `cmd/zfs/zfs_iter.c`).

use std::collections::BTreeSet;
use std::path::Path;

use platter_daemon::api::{DatasetView, Datasets, ErrorBody, MountEntry};
use platter_daemon::client::encode;

use crate::session::{Failure, Session, complain, refused, usage};

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
}

/// Types of data sets.
///
/// # Errors
/// An unknown type.
pub fn types(list: Option<&str>, default: &[&'static str]) -> Result<BTreeSet<&'static str>, Failure> {
    let Some(list) = list else { return Ok(default.iter().copied().collect()) };
    let mut types = BTreeSet::new();
    for word in list.split(',') {
        match word {
            "filesystem" | "fs" => types.extend(["filesystem"]),
            "volume" | "vol" => types.extend(["volume"]),
            "snapshot" | "snap" => types.extend(["snapshot"]),
            "bookmark" => types.extend(["bookmark"]),
            "all" => types.extend(["filesystem", "volume", "snapshot", "bookmark"]),
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
    types: &BTreeSet<&'static str>,
) -> Result<(Vec<DatasetView>, u8), ErrorBody> {
    let wanted = |view: &DatasetView| types.contains(view.report.kind.as_str());
    if names.is_empty() {
        let all: Datasets = session.get("/v1/datasets")?;
        let limit = if reach.given { reach.depth } else { usize::MAX };
        let near = |view: &DatasetView| level(&view.report.name) <= limit;
        return Ok((all.datasets.into_iter().filter(|view| wanted(view) && near(view)).collect(), 0));
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
        match session.get::<Datasets>(&format!("/v1/datasets?under={}", encode(&name))) {
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
    Ok((found, code))
}

fn level(name: &str) -> usize {
    name.matches(['/', '@']).count()
}

/// A name as given, or the data set mounted at a path as given.
fn named(session: &mut Session, given: &str) -> Result<Result<String, ErrorBody>, ErrorBody> {
    if !given.starts_with('/') && !given.starts_with("./") && !given.starts_with("../") && given != "." {
        return Ok(Ok(given.to_owned()));
    }
    let Ok(path) = Path::new(given).canonicalize() else {
        return Ok(Err(ErrorBody::new(format!("cannot open '{given}': No such file or directory"))));
    };
    let mounts: Vec<MountEntry> = session.get("/v1/mounts")?;
    let inside = mounts.iter().filter(|mount| path.starts_with(&mount.mountpoint));
    let nearest = inside.max_by_key(|mount| mount.mountpoint.components().count());
    Ok(nearest
        .map(|mount| mount.dataset.clone())
        .ok_or_else(|| ErrorBody::new(format!("cannot open '{given}': not a ZFS filesystem"))))
}

/// The full name of a data set as a command takes it; slashes at the ends and empty parts are refused.
///
/// # Errors
/// What is wrong with it.
pub fn well_formed(name: &str, what: &str) -> Result<(), Failure> {
    let complaint = if name.is_empty() {
        "empty name"
    } else if name.starts_with('/') {
        "leading slash in name"
    } else if name.ends_with('/') {
        "trailing slash in name"
    } else if name.contains("//") {
        "empty component or misplaced '@' or '#' delimiter in name"
    } else {
        return Ok(());
    };
    Err(refused(format!("{what} '{name}': {complaint}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_types_are_parsed() {
        assert_eq!(Reach::parse(false, Some("1")).unwrap(), Reach { depth: 1, given: true });
        assert_eq!(Reach::parse(true, None).unwrap(), Reach { depth: usize::MAX, given: true });
        assert!(Reach::parse(true, Some("x")).is_err());
        assert_eq!(types(Some("fs,vol"), &[]).unwrap(), BTreeSet::from(["filesystem", "volume"]));
        assert!(types(Some("file"), &[]).is_err());
        assert_eq!(level("tank/a/b@c"), 3);
    }

    #[test]
    fn malformed_names_are_refused() {
        for name in ["", "/tank", "tank/", "tank//a"] {
            assert!(well_formed(name, "cannot create").is_err(), "{name}");
        }
        assert!(well_formed("tank/a", "cannot create").is_ok());
    }
}
