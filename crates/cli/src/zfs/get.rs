//! `zfs get`.

use platter_api::messages::DatasetView;
use platter_api::report::DatasetKind;
use serde_json::Value;

use super::list::{add_asked, is_other};
use super::select::{Reach, collect, types};
use crate::getopt::{Grammar, parse};
use crate::json::{self, Object};
use crate::out::out;
use crate::props::select::{self, Selection, Wanted};
use crate::props::{Shown, source_word, zfs};
use crate::session::{Done, Session, usage};
use crate::table::{self, Field, GetRow, GetStyle, GetWidths};

const GRAMMAR: Grammar = Grammar { short: ":d:o:s:jrt:Hp", long: &[("json", "j"), ("json-int", "json-int")] };

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let as_int = parsed.has("json-int");
    let literal = parsed.has("p") || as_int;
    let fields = match parsed.last("o") {
        Some(list) => Field::parse_list(list, true).map_err(usage)?,
        None => Field::DEFAULT.to_vec(),
    };
    let sources: Vec<String> =
        parsed.last("s").map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default();
    for word in &sources {
        if !["local", "default", "inherited", "received", "temporary", "none"].contains(&word.as_str()) {
            return Err(usage(format!("invalid source '{word}'")));
        }
    }
    let kinds = types(parsed.last("t"), &DatasetKind::ALL)?;
    let mut reach = Reach::parse(parsed.has("r"), parsed.last("d"))?;
    let [properties, names @ ..] = parsed.operands.as_slice() else {
        return Err(usage("missing property argument"));
    };
    if as_int && !parsed.has("j") {
        return Err(usage("'--json-int' only works with '-j' option"));
    }
    reach.look_below(&kinds, names);
    let selection = select::parse(properties, zfs::find, is_other).map_err(usage)?;
    let (mut found, code) = collect(session, names, reach, &kinds)?;
    if let Selection::Listed(wanted) = &selection {
        add_asked(session, &mut found, wanted)?;
    }
    let (wanted, all) = match selection {
        Selection::Listed(wanted) => (wanted, false),
        Selection::All => (zfs::all(&found), true),
    };
    let style = GetStyle { fields, scripted: parsed.has("H"), sources };
    if parsed.has("j") {
        if code == 0 {
            let mut object = json::schema("zfs get");
            object.insert("datasets".into(), as_json(&found, &wanted, all, literal, as_int, &style.sources).into());
            json::print(object);
        }
    } else {
        out!("{}", text(&found, &wanted, all, literal, &style));
    }
    Ok(code)
}

/// A property of a data set; with `all` those it does not have are left out.
fn shown(view: &DatasetView, wanted: &Wanted, all: bool, literal: bool) -> Option<Shown> {
    match zfs::value(view, wanted, literal) {
        Some(shown) => Some(shown),
        None if all => None,
        None => Some(Shown::nothing()),
    }
}

fn text(views: &[DatasetView], wanted: &[Wanted], all: bool, literal: bool, style: &GetStyle) -> String {
    let mut rows = Vec::new();
    let mut least = GetWidths::default();
    for property in wanted {
        least.property = least.property.max(property.name().len());
        least.value = least.value.max(property.width());
    }
    for view in views {
        least.name = least.name.max(view.report.name.chars().count());
        for property in wanted {
            let Some(shown) = shown(view, property, all, literal) else { continue };
            least.value = least.value.max(property.width_for(std::iter::once(shown.value.as_str()), literal));
            let (name, received) = (view.report.name.clone(), zfs::received(view, property, literal));
            rows.push(GetRow { name, property: property.name().to_owned(), shown, received });
        }
    }
    table::get(&rows, style, least)
}

fn as_json(
    views: &[DatasetView],
    wanted: &[Wanted],
    all: bool,
    literal: bool,
    as_int: bool,
    sources: &[String],
) -> Object {
    views
        .iter()
        .filter_map(|view| {
            let properties: Object = wanted
                .iter()
                .filter_map(|property| Some((property.name().to_owned(), shown(view, property, all, literal)?)))
                .filter(|(_, shown)| {
                    sources.is_empty() || sources.iter().any(|word| word == source_word(&shown.source))
                })
                .map(|(name, shown)| (name, json::property(&shown, as_int)))
                .collect();
            if properties.is_empty() {
                return None;
            }
            let mut object = json::dataset_info(view, as_int);
            object.insert("properties".into(), properties.into());
            Some((view.report.name.clone(), Value::Object(object)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zfs::list::tests::{example, listed};

    fn style() -> GetStyle {
        GetStyle { fields: Field::DEFAULT.to_vec(), scripted: false, sources: Vec::new() }
    }

    #[test]
    fn the_table_is_laid_out_as_openzfs_lays_it_out() {
        let views = [example("refz1/acl", 196_320, 100)];
        let expected = "\
NAME       PROPERTY     VALUE           SOURCE
refz1/acl  used         192K            -
refz1/acl  compression  lz4             local
refz1/acl  atime        on              inherited from refz1
refz1/acl  quota        none            default
refz1/acl  volsize      -               -
";
        assert_eq!(text(&views, &listed("used,compression,atime,quota,volsize"), false, false, &style()), expected);
    }

    #[test]
    fn all_leaves_out_what_a_data_set_does_not_have() {
        let views = [example("refz1", 166_951_792, 376)];
        let scripted = GetStyle { scripted: true, ..style() };
        let text = text(&views, &listed("all"), true, true, &scripted);
        assert!(text.starts_with("refz1\ttype\tfilesystem\t-\nrefz1\tused\t166951792\t-\n"), "{text}");
        assert!(text.ends_with("refz1\tcom.example:note\tkept\tlocal\n"), "{text}");
        assert!(!text.contains("volsize"));
    }

    #[test]
    fn sources_filter() {
        let views = [example("refz1", 1, 100)];
        let local = GetStyle { sources: vec!["local".into()], scripted: true, ..style() };
        assert_eq!(
            text(&views, &listed("compression,atime,used"), false, false, &local),
            "refz1\tcompression\tlz4\tlocal\n"
        );
        let object = as_json(&views, &listed("compression,atime"), false, false, false, &local.sources);
        assert_eq!(Value::Object(object)["refz1"]["properties"].as_object().unwrap().len(), 1);
    }
}
