//! `zpool get`.

use platter_api::messages::PoolView;
use platter_api::report::Detail;
use serde_json::Value;

use super::get_vdev;
use super::list::is_other;
use super::pools::{names, views};
use crate::getopt::{Grammar, parse};
use crate::json::{self, Object};
use crate::out::out;
use crate::props::pool;
use crate::props::select::{self, Selection, Wanted};
use crate::session::{Done, Session, refused, usage};
use crate::table::{self, Field, GetRow, GetStyle, GetWidths};

const GRAMMAR: Grammar = Grammar {
    short: ":jHpo:",
    long: &[("json", "j"), ("json-int", "json-int"), ("json-pool-key-guid", "json-pool-key-guid")],
};

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let as_int = parsed.has("json-int");
    let literal = parsed.has("p") || as_int;
    for (option, name) in [("json-int", "'--json-int'"), ("json-pool-key-guid", "'json-pool-key-guid'")] {
        if parsed.has(option) && !parsed.has("j") {
            return Err(usage(format!("{name} only works with '-j' option")));
        }
    }
    let fields = match parsed.last("o") {
        Some(list) => Field::parse_list(list, false).map_err(usage)?,
        None => Field::DEFAULT.to_vec(),
    };
    let [properties, pools @ ..] = parsed.operands.as_slice() else {
        return Err(usage("missing property argument"));
    };
    if pools.len() > 1 {
        let known = names(session, &[])?;
        if known.contains(&pools[0]) && pools.iter().any(|word| !known.contains(word)) {
            let (json, scripted) = (parsed.has("j"), parsed.has("H"));
            let style = get_vdev::Style { literal, as_int, json, scripted, fields };
            return get_vdev::run(session, properties, pools, &style);
        }
    }
    let selection = select::parse(properties, pool::find, is_other).map_err(usage)?;
    let (found, code) = match views(session, pools, Detail::default()) {
        Ok((found, code)) if code != 0 && found.is_empty() => {
            let first = pools.first().map_or("", String::as_str);
            return Err(refused(format!("Cannot get properties of {first}: no such pool available.")));
        }
        other => other?,
    };
    let wanted = match selection {
        Selection::Listed(wanted) => wanted,
        Selection::All => pool::all(&found),
    };
    if parsed.has("j") {
        let mut object = json::schema("zpool get");
        object
            .insert("pools".into(), as_json(&found, &wanted, literal, as_int, parsed.has("json-pool-key-guid")).into());
        json::print(object);
    } else {
        out!("{}", text(&found, &wanted, literal, fields, parsed.has("H")));
    }
    Ok(code)
}

fn text(pools: &[PoolView], wanted: &[Wanted], literal: bool, fields: Vec<Field>, scripted: bool) -> String {
    let mut rows = Vec::new();
    let mut least = GetWidths::default();
    for view in pools {
        least.name = least.name.max(view.report.name.chars().count());
        for property in wanted {
            let Some(shown) = pool::value(view, property, literal) else { continue };
            least.property = least.property.max(property.name().len());
            least.value = least.value.max(property.width_for(std::iter::once(shown.value.as_str()), literal));
            rows.push(GetRow {
                name: view.report.name.clone(),
                property: property.name().to_owned(),
                shown,
                received: None,
            });
        }
    }
    table::get(&rows, &GetStyle { fields, scripted, sources: Vec::new() }, least)
}

fn as_json(pools: &[PoolView], wanted: &[Wanted], literal: bool, as_int: bool, by_guid: bool) -> Object {
    pools
        .iter()
        .map(|view| {
            let mut object = json::pool_info(view, true, as_int);
            let properties: Object = wanted
                .iter()
                .filter_map(|property| {
                    let shown = pool::value(view, property, literal)?;
                    Some((property.name().to_owned(), json::property(&shown, as_int)))
                })
                .collect();
            object.insert("properties".into(), properties.into());
            let key = if by_guid { view.report.guid.to_string() } else { view.report.name.clone() };
            (key, Value::Object(object))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;

    fn listed(list: &str) -> Vec<Wanted> {
        match select::parse(list, pool::find, is_other).unwrap() {
            Selection::Listed(wanted) => wanted,
            Selection::All => pool::all(&[example()]),
        }
    }

    #[test]
    fn values_and_sources_are_those_of_openzfs() {
        // Lines of the reference pool's manifest (`zpool get -Hp all`).
        let pools = [example()];
        let text = |list: &str| text(&pools, &listed(list), true, Field::DEFAULT.to_vec(), true);
        assert_eq!(
            text("size,capacity,altroot,health,guid,version,ashift,dedupratio,expandsize,feature@lz4_compress"),
            "refz1\tsize\t603979776\t-
refz1\tcapacity\t25\t-
refz1\taltroot\t-\tdefault
refz1\thealth\tONLINE\t-
refz1\tguid\t17881871464930842434\t-
refz1\tversion\t-\tdefault
refz1\tashift\t12\tlocal
refz1\tdedupratio\t2.00\t-
refz1\texpandsize\t-\t-
refz1\tfeature@lz4_compress\tactive\tlocal
"
        );
    }

    #[test]
    fn all_lists_features_in_openzfs_order() {
        let names: Vec<String> = listed("all").iter().map(|wanted| wanted.name().to_owned()).collect();
        assert_eq!(names.first().map(String::as_str), Some("size"));
        let at = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert!(at("last_scrubbed_txg") < at("feature@async_destroy"));
        assert!(at("feature@async_destroy") < at("feature@lz4_compress"));
    }

    #[test]
    fn the_table_has_headings() {
        let pools = [example()];
        assert_eq!(
            text(&pools, &listed("failmode,size"), false, Field::DEFAULT.to_vec(), false),
            "NAME   PROPERTY  VALUE     SOURCE
refz1  failmode  wait      default
refz1  size      576M      -
"
        );
    }
}
