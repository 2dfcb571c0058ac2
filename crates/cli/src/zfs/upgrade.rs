//! `zfs upgrade`: which versions file systems have. Moving one to a newer version is not possible yet.

use platter_api::messages::DatasetView;
use platter_api::report::{DatasetKind, PropertyValue};

use super::select::{Reach, collect, types};
use crate::getopt::{Grammar, parse};
use crate::out::out;
use crate::session::{Done, Session, usage};

/// Newest version of file systems (`ZPL_VERSION`).
const NEWEST: u64 = 5;

const VERSIONS: &str = "\
The following filesystem versions are supported:

VER  DESCRIPTION
---  --------------------------------------------------------
 1   Initial ZFS filesystem version
 2   Enhanced directory entries
 3   Case insensitive and filesystem user identifier (FUID)
 4   userquota, groupquota properties
 5   System attributes

For more information on a particular version, including supported releases,
see the ZFS Administration Guide.

";

const OLD: &str = "\
The following filesystems are out of date, and can be upgraded.  After being
upgraded, these filesystems (and any 'zfs send' streams generated from
subsequent snapshots) will no longer be accessible by older software versions.

";

const NEW: &str = "\
The following filesystems are formatted using a newer software version and
cannot be accessed on the current system.

";

fn version(view: &DatasetView) -> u64 {
    match view.report.properties.get("version").map(|property| &property.value) {
        Some(PropertyValue::Text(text)) => text.parse().unwrap_or(0),
        Some(PropertyValue::Number(number)) => *number,
        None => 0,
    }
}

/// What `zfs upgrade` alone prints.
fn list(views: &[DatasetView]) -> String {
    let mut text = format!("This system is currently running ZFS filesystem version {NEWEST}.\n\n");
    let mut all_current = true;
    let of = |wanted: fn(u64) -> bool| views.iter().filter(move |view| wanted(version(view)));
    for (wanted, heading) in
        [((|version| (1..NEWEST).contains(&version)) as fn(u64) -> bool, OLD), (|v| v > NEWEST, NEW)]
    {
        let rows: String = of(wanted).map(|view| format!("{:2}   {}\n", version(view), view.report.name)).collect();
        if !rows.is_empty() {
            all_current = false;
            text.push_str(&format!("{heading}\nVER  FILESYSTEM\n---  ------------\n{rows}"));
        }
    }
    if all_current {
        text.push_str("All filesystems are formatted with the current version.\n");
    }
    text
}

/// Lines about the file systems that were to be upgraded to `wanted`, how many have that version, and how many cannot
/// have it.
fn judge(views: &[DatasetView], wanted: u64) -> (String, u64, u64) {
    let (mut text, mut same, mut failed) = (String::new(), 0, 0);
    for view in views {
        let (name, version) = (&view.report.name, version(view));
        if version == wanted {
            same += 1;
            continue;
        }
        failed += 1;
        text.push_str(&match version > wanted {
            true => format!("{name}: can not be downgraded; it is already at version {version}\n"),
            false => format!("{name}: can not be upgraded; this version cannot do it yet, OpenZFS can\n\n"),
        });
    }
    (text, same, failed)
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "rvV:a", long: &[] }, words).map_err(usage)?;
    let wanted = match parsed.last("V") {
        None => 0,
        Some("current") => NEWEST,
        Some(text) => match text.parse() {
            Ok(version @ 1..=NEWEST) => version,
            _ => return Err(usage(format!("invalid version {text}"))),
        },
    };
    let (all, names) = (parsed.has("a"), &parsed.operands);
    let nothing_named = !all && names.is_empty();
    if nothing_named && (parsed.has("r") || wanted != 0)
        || parsed.has("v") && (parsed.has("r") || !nothing_named || wanted != 0)
        || all && !names.is_empty()
    {
        return Err(usage(""));
    }
    if parsed.has("v") {
        out!("{VERSIONS}");
        return Ok(0);
    }
    let filesystems = types(None, &[DatasetKind::Filesystem])?;
    let reach = Reach::parse(parsed.has("r"), None)?;
    let (views, code) = collect(session, names, reach, &filesystems)?;
    if nothing_named {
        out!("{}", list(&views));
        return Ok(code);
    }
    let (text, same, failed) = judge(&views, if wanted == 0 { NEWEST } else { wanted });
    out!("{text}0 filesystems upgraded\n");
    if same > 0 {
        out!("{same} filesystems already at this version\n");
    }
    Ok(code.max(u8::from(failed > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zfs::list::tests::example;
    use platter_api::report::{Property, PropertySource};

    fn with_version(name: &str, version: &str) -> DatasetView {
        let mut view = example(name, 1, 100);
        let value = PropertyValue::Text(version.into());
        view.report.properties.insert("version".into(), Property { value, source: PropertySource::None });
        view
    }

    #[test]
    fn old_file_systems_are_listed_as_openzfs_lists_them() {
        let text = list(&[with_version("tank", "5"), with_version("tank/old", "3")]);
        assert!(text.ends_with("\nVER  FILESYSTEM\n---  ------------\n 3   tank/old\n"), "{text}");
        let text = list(&[with_version("tank", "5")]);
        assert!(text.ends_with("version 5.\n\nAll filesystems are formatted with the current version.\n"), "{text}");
    }

    #[test]
    fn what_cannot_be_upgraded_is_counted_as_failed() {
        let views = [with_version("tank", "5"), with_version("tank/old", "4")];
        let (text, same, failed) = judge(&views, 5);
        assert_eq!((same, failed), (1, 1));
        assert!(text.starts_with("tank/old: can not be upgraded"), "{text}");
        let (text, same, failed) = judge(&views, 4);
        assert_eq!((text.as_str(), same, failed), ("tank: can not be downgraded; it is already at version 5\n", 1, 1));
    }
}
