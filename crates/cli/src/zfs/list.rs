//! `zfs list`.

use std::cmp::Ordering;

use std::collections::BTreeMap;

use platter_api::messages::DatasetView;
use platter_api::report::{DatasetKind, Properties, Property, PropertySource, PropertyValue};
use platter_api::snapshots::GetWritten;
use serde_json::Value;

use super::select::{Reach, by_name, collect, types};
use super::userspace;
use crate::getopt::{Grammar, parse};
use crate::ids;
use crate::json::{self, Object};
use crate::out::out;
use crate::props::select::{self, Selection, Wanted};
use crate::props::{Shown, zfs};
use crate::session::{Done, Failure, Session, usage};
use crate::table;

const GRAMMAR: Grammar = Grammar { short: "jHS:d:o:prs:t:", long: &[("json", "j"), ("json-int", "json-int")] };

const DEFAULT: &str = "name,used,available,referenced,mountpoint";

/// Whether a name that is no native property may stand in a list of properties.
pub(super) fn is_other(name: &str) -> bool {
    zfs::is_user_property(name) || WRITTEN.iter().any(|word| name.starts_with(word)) || ids::is_id_property(name)
}

/// What the name of a property begins with that tells how much was written since the snapshot or bookmark named behind
/// it.
pub(super) const WRITTEN: [&str; 2] = ["written@", "written#"];
/// What is before the mark of either.
const WRITTEN_WORD: &str = "written";

/// Gives the data sets those properties that only who asks for them gets.
///
/// # Errors
/// What the daemon answers.
pub(super) fn add_asked(session: &mut Session, views: &mut [DatasetView], wanted: &[Wanted]) -> Result<(), Failure> {
    add_written(session, views, wanted)?;
    add_id_properties(session, views, wanted)
}

fn add_written(session: &mut Session, views: &mut [DatasetView], wanted: &[Wanted]) -> Result<(), Failure> {
    let is_asked = |wanted: &&Wanted| WRITTEN.iter().any(|word| wanted.name().starts_with(word));
    let since = |wanted: &Wanted| wanted.name()[WRITTEN_WORD.len()..].to_owned();
    let since: Vec<String> = wanted.iter().filter(is_asked).map(since).collect();
    if since.is_empty() {
        return Ok(());
    }
    let names = views.iter().map(|view| view.report.name.clone()).collect();
    let written = session.ask(GetWritten { names, since })?.written;
    let mut by_name: BTreeMap<String, Properties> = BTreeMap::new();
    for (name, since, bytes) in written {
        // As OpenZFS has it.
        let property = Property { value: PropertyValue::Number(bytes), source: PropertySource::Local };
        by_name.entry(name).or_default().insert(format!("{WRITTEN_WORD}{since}"), property);
    }
    for view in views {
        view.report.properties.extend(by_name.remove(&view.report.name).unwrap_or_default());
    }
    Ok(())
}

/// Those of users, groups and projects.
fn add_id_properties(session: &mut Session, views: &mut [DatasetView], wanted: &[Wanted]) -> Result<(), Failure> {
    for name in wanted.iter().map(Wanted::name) {
        let Some(property) = ids::parse(name) else { continue };
        let nothing = Property { value: PropertyValue::Text("-".into()), source: PropertySource::None };
        let Ok(property) = property else {
            // Nobody has that name.
            for view in views.iter_mut() {
                view.report.properties.insert(name.to_owned(), nothing.clone());
            }
            continue;
        };
        let has =
            |view: &&mut DatasetView| [DatasetKind::Filesystem, DatasetKind::Snapshot].contains(&view.report.kind);
        for view in views.iter_mut().filter(has) {
            let everybody = match userspace::fetch(session, &view.report.name, property.whose) {
                // One of a volume, which nobody owns.
                Err(_) if view.report.kind == DatasetKind::Snapshot => continue,
                everybody => everybody?,
            };
            let objects = property.kind.contains("obj");
            // Not counted yet: who counts has at least the owner of the root directory.
            if !everybody.iter().any(|usage| !objects || usage.objects_used.is_some()) {
                view.report.properties.insert(name.to_owned(), nothing.clone());
                continue;
            }
            let usage = everybody.into_iter().find(|usage| usage.id == property.id).unwrap_or_default();
            let (number, limit) = match (property.kind.ends_with("quota"), objects) {
                (false, false) => (usage.used, false),
                (false, true) => (usage.objects_used.unwrap_or(0), false),
                (true, false) => (usage.quota, true),
                (true, true) => (usage.objects_quota, true),
            };
            let source = if limit { PropertySource::Local } else { PropertySource::None };
            view.report.properties.insert(name.to_owned(), Property { value: PropertyValue::Number(number), source });
        }
    }
    Ok(())
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let as_int = parsed.has("json-int");
    if as_int && !parsed.has("j") {
        return Err(usage("'--json-int' only works with '-j' option"));
    }
    let literal = parsed.has("p") || as_int;
    let mut fields = parsed.last("o").unwrap_or(DEFAULT);
    let space = fields == "space";
    if space {
        fields = zfs::SPACE;
    }
    // Snapshots are listed only when asked for (OpenZFS: property `listsnapshots`, off by default).
    let kinds = types(parsed.last("t"), &[DatasetKind::Filesystem, DatasetKind::Volume])?;
    let mut reach = Reach::parse(parsed.has("r"), parsed.last("d"))?;
    reach.look_below(&kinds, &parsed.operands);
    let selection = select::parse(fields, zfs::find, is_other).map_err(usage)?;
    let mut sort = Vec::new();
    for given in parsed.options.iter().filter(|given| given.name == "s" || given.name == "S") {
        let name = given.argument.as_str();
        let wanted = match zfs::find(name) {
            Some(info) => Wanted::Native(info),
            None if zfs::is_user_property(name) => Wanted::Other(name.to_owned()),
            None => return Err(usage(format!("invalid property '{name}'"))),
        };
        sort.push((wanted, given.name == "S"));
    }
    let (mut found, code) = collect(session, &parsed.operands, reach, &kinds)?;
    if let Selection::Listed(columns) = &selection {
        add_asked(session, &mut found, columns)?;
    }
    if !sort.is_empty() {
        found.sort_by(|a, b| compare(a, b, &sort));
    }
    let columns = match selection {
        Selection::Listed(columns) => columns,
        Selection::All => zfs::find("name").map(Wanted::Native).into_iter().chain(zfs::all(&found)).collect(),
    };
    if parsed.has("j") {
        if code == 0 {
            let mut object = json::schema("zfs list");
            object.insert("datasets".into(), as_json(&found, &columns, literal, as_int).into());
            json::print(object);
        }
        if found.is_empty() && code == 0 && !parsed.has("H") {
            eprintln!("no datasets available");
        }
        return Ok(code);
    }
    if found.is_empty() {
        if code == 0 && !parsed.has("H") {
            eprintln!("no datasets available");
        }
        return Ok(code);
    }
    out!("{}", text(&found, &columns, literal, parsed.has("H")));
    Ok(code)
}

fn text(views: &[DatasetView], columns: &[Wanted], literal: bool, scripted: bool) -> String {
    let rows: Vec<Vec<String>> = views
        .iter()
        .map(|view| {
            columns
                .iter()
                .map(|column| zfs::value(view, column, literal).unwrap_or_else(Shown::nothing).value)
                .collect()
        })
        .collect();
    let widths = table::widths(columns, &rows, literal);
    table::list(columns, &widths, &rows, scripted)
}

fn as_json(views: &[DatasetView], columns: &[Wanted], literal: bool, as_int: bool) -> Object {
    views
        .iter()
        .map(|view| {
            let mut object = json::dataset_info(view, as_int);
            let properties: Object = columns
                .iter()
                .filter(|column| column.name() != "name")
                .map(|column| {
                    let shown = zfs::value(view, column, literal).unwrap_or_else(Shown::nothing);
                    (column.name().to_owned(), json::property(&shown, as_int))
                })
                .collect();
            object.insert("properties".into(), properties.into());
            (view.report.name.clone(), Value::Object(object))
        })
        .collect()
}

/// A word of an enumerated property sorts by its number, as OpenZFS sorts it.
fn by_number(name: &str, value: &PropertyValue) -> PropertyValue {
    let kind = platter_api::properties::find(name).map(|native| native.kind);
    match (kind, value) {
        (Some(platter_api::property_kind::Kind::Index(words)), PropertyValue::Text(text)) => {
            let number = words.iter().find(|(word, _)| word == text).map(|(_, number)| *number);
            number.map_or_else(|| value.clone(), PropertyValue::Number)
        }
        _ => value.clone(),
    }
}

fn compare(a: &DatasetView, b: &DatasetView, sort: &[(Wanted, bool)]) -> Ordering {
    for (wanted, reverse) in sort {
        let raw = |view: &DatasetView| match wanted.name() {
            "name" => Some(PropertyValue::Text(view.report.name.clone())),
            name => view.report.properties.get(name).map(|property| by_number(name, &property.value)),
        };
        // Those without a value come last, whichever way.
        let order = match (raw(a), raw(b)) {
            (Some(a), Some(b)) => {
                let order = match (a, b) {
                    (PropertyValue::Number(a), PropertyValue::Number(b)) => a.cmp(&b),
                    (PropertyValue::Text(a), PropertyValue::Text(b)) => a.cmp(&b),
                    (PropertyValue::Number(_), PropertyValue::Text(_)) => Ordering::Less,
                    (PropertyValue::Text(_), PropertyValue::Number(_)) => Ordering::Greater,
                };
                if *reverse { order.reverse() } else { order }
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    by_name(a, b)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use platter_api::report::{DatasetKind, DatasetReport};

    /// A data set with the properties that the tests look at.
    pub(in crate::zfs) fn example(name: &str, used: u64, ratio: u64) -> DatasetView {
        let number = |value| Property { value: PropertyValue::Number(value), source: PropertySource::None };
        let text = |value: String, source| Property { value: PropertyValue::Text(value), source };
        DatasetView {
            report: DatasetReport {
                name: name.into(),
                kind: DatasetKind::Filesystem,
                properties: [
                    ("used", number(used)),
                    ("available", number(187_484_048)),
                    ("referenced", number(7_846_256)),
                    ("compressratio", number(ratio)),
                    ("createtxg", number(1)),
                    ("mountpoint", text(format!("/{name}"), PropertySource::Default)),
                    ("compression", text("lz4".into(), PropertySource::Local)),
                    ("atime", text("on".into(), PropertySource::Inherited("refz1".into()))),
                    ("quota", Property { value: PropertyValue::Number(0), source: PropertySource::Default }),
                    ("recordsize", Property { value: PropertyValue::Number(131_072), source: PropertySource::Default }),
                    ("com.example:note", text("kept".into(), PropertySource::Local)),
                ]
                .into_iter()
                .map(|(name, property)| (name.to_owned(), property))
                .collect(),
                received: Default::default(),
                read_only_reason: None,
            },
            mounted_at: None,
        }
    }

    pub(in crate::zfs) fn listed(list: &str) -> Vec<Wanted> {
        match select::parse(list, zfs::find, is_other).unwrap() {
            Selection::Listed(wanted) => wanted,
            Selection::All => zfs::all(&[example("refz1", 0, 100)]),
        }
    }

    #[test]
    fn the_table_is_laid_out_as_openzfs_lays_it_out() {
        let views = [example("refz1", 166_951_792, 376), example("refz1/comp-zstd-fast-10", 994_688, 100)];
        let expected = "\
NAME                      USED  AVAIL  REFER  MOUNTPOINT
refz1                     159M   179M  7.48M  /refz1
refz1/comp-zstd-fast-10   971K   179M  7.48M  /refz1/comp-zstd-fast-10
";
        assert_eq!(text(&views, &listed(DEFAULT), false, false), expected);
        assert_eq!(
            text(&views, &listed("name,used,ratio"), true, true),
            "refz1\t166951792\t3.76\nrefz1/comp-zstd-fast-10\t994688\t1.00\n"
        );
        assert_eq!(
            text(&views[..1], &listed("name,com.example:note,volsize,compression"), false, false),
            "NAME   COM.EXAMPLE:NOTE  VOLSIZE  COMPRESS\nrefz1  kept                    -  lz4\n"
        );
    }

    #[test]
    fn rows_are_sorted_by_the_properties_asked_for() {
        let (a, b) = (example("a", 2, 100), example("b", 1, 100));
        let by = |name: &str, reverse| compare(&a, &b, &[(listed(name).remove(0), reverse)]);
        assert_eq!(by("used", false), Ordering::Greater);
        assert_eq!(by("used", true), Ordering::Less);
        assert_eq!(by("ratio", true), Ordering::Less);
        assert_eq!(by("name", true), Ordering::Greater);
        let mut on = example("on", 1, 100);
        let mut off = example("off", 1, 100);
        for (view, word) in [(&mut on, "on"), (&mut off, "off")] {
            view.report.properties.get_mut("atime").unwrap().value = PropertyValue::Text(word.into());
        }
        let atime = [(listed("atime").remove(0), false)];
        assert_eq!(compare(&off, &on, &atime), Ordering::Less, "off is 0, on is 1");
        let gzip = by_number("compression", &PropertyValue::Text("gzip-9".into()));
        assert_eq!(gzip, PropertyValue::Number(13));
    }

    #[test]
    fn json_has_openzfs_schema() {
        let object = as_json(&[example("refz1", 166_951_792, 376)], &listed("name,used,atime"), true, true);
        let expected = serde_json::json!({
            "refz1": {
                "name": "refz1", "type": "FILESYSTEM", "pool": "refz1", "createtxg": 1,
                "properties": {
                    "used": { "value": 166_951_792, "source": { "type": "NONE", "data": "-" } },
                    "atime": { "value": "on", "source": { "type": "INHERITED", "data": "refz1" } }
                }
            }
        });
        assert_eq!(Value::Object(object), expected);
    }
}
