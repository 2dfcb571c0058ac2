//! `zpool get <property[,...]> <pool> <vdev ...>`: properties of vdevs.

use platter_api::messages::PoolView;
use platter_api::report::{Detail, VdevReport};
use serde_json::Value;

use super::list::is_other;
use super::names::Naming;
use super::pools::view;
use super::status_json::vdev_info;
use crate::json::{self, Object};
use crate::out::out;
use crate::props::select::{self, Selection, Wanted};
use crate::props::vdev::{self, VdevPlace};
use crate::session::{Failure, Session, usage};
use crate::table::{self, Field, GetRow, GetStyle, GetWidths};

/// The root vdev's name on the command line.
pub(super) const ROOT: &str = "root-0";

/// How to show them.
#[derive(Clone, Debug)]
pub(super) struct Style {
    /// Exact numbers.
    pub literal: bool,
    /// Numbers in JSON as numbers.
    pub as_int: bool,
    /// JSON.
    pub json: bool,
    /// Without headings.
    pub scripted: bool,
    /// Columns.
    pub fields: Vec<Field>,
}

/// Runs it; the first of `words` is a pool, the others are its vdevs (or `all-vdevs`, `root`).
pub(super) fn run(session: &mut Session, properties: &str, words: &[String], style: &Style) -> Result<u8, Failure> {
    let [pool, vdevs @ ..] = words else { return Err(usage("missing pool name")) };
    let selection = select::parse(properties, vdev::find, is_other).map_err(usage)?;
    let view = view(session, pool, Detail::default())?;
    let everything = places(&view);
    let mut chosen = Vec::new();
    for word in vdevs {
        let matching = everything.iter().filter(|(name, place)| is_meant(word, name, place));
        let before = chosen.len();
        chosen.extend(matching);
        if chosen.len() == before {
            return Err(usage(format!("Expected a list of vdevs in \"{pool}\", but got:\n\t{word}\n")));
        }
    }
    if style.json {
        let mut object = json::schema("zpool get");
        object.insert("vdevs".into(), Value::Object(as_json(&chosen, &selection, style)));
        json::print(object);
    } else {
        out!("{}", text(&chosen, &selection, style));
    }
    Ok(0)
}

/// Whether a pool has the vdev that a word means.
pub(super) fn has(view: &PoolView, word: &str) -> bool {
    let beside = view.report.spares.iter().chain(&view.report.caches);
    let beside = beside.map(|vdev| VdevPlace { vdev, parent: None, children: Vec::new() });
    let all = places(view).into_iter().chain(beside.map(|place| (Naming::default().name(place.vdev), place)));
    word != "all-vdevs" && all.into_iter().any(|(name, place)| is_meant(word, &name, &place))
}

/// Every vdev under its name, parents first.
fn places(view: &PoolView) -> Vec<(String, VdevPlace<'_>)> {
    fn name(vdev: &VdevReport) -> String {
        if vdev.kind == "root" { ROOT.to_owned() } else { Naming::default().name(vdev) }
    }
    fn add<'a>(found: &mut Vec<(String, VdevPlace<'a>)>, vdev: &'a VdevReport, parent: Option<String>) {
        let own = name(vdev);
        let children = vdev.children.iter().map(name).collect();
        found.push((own.clone(), VdevPlace { vdev, parent, children }));
        for child in &vdev.children {
            add(found, child, Some(own.clone()));
        }
    }
    let mut found = Vec::new();
    add(&mut found, &view.report.vdevs, None);
    found
}

fn is_meant(word: &str, name: &str, place: &VdevPlace<'_>) -> bool {
    let path = place.vdev.path.as_deref().unwrap_or("");
    word == "all-vdevs"
        || (word == "root" && name == ROOT)
        || word == name
        || word == place.vdev.guid.to_string()
        || (!path.is_empty() && (path == word || path.rsplit('/').next() == Some(word)))
}

/// What is shown of a vdev.
fn wanted_of(vdev: &VdevReport, selection: &Selection) -> Vec<Wanted> {
    match selection {
        Selection::Listed(wanted) => wanted.clone(),
        Selection::All => vdev::all(vdev),
    }
}

fn text(chosen: &[&(String, VdevPlace<'_>)], selection: &Selection, style: &Style) -> String {
    let mut rows = Vec::new();
    let mut least = GetWidths::default();
    for (name, place) in chosen {
        least.name = least.name.max(name.chars().count());
        for property in wanted_of(place.vdev, selection) {
            let Some(shown) = vdev::value(place, &property, style.literal) else { continue };
            least.property = least.property.max(property.name().len());
            least.value = least.value.max(property.width_for(std::iter::once(shown.value.as_str()), style.literal));
            rows.push(GetRow { name: name.clone(), property: property.name().to_owned(), shown, received: None });
        }
    }
    let style = GetStyle { fields: style.fields.clone(), scripted: style.scripted, sources: Vec::new() };
    table::get(&rows, &style, least)
}

fn as_json(chosen: &[&(String, VdevPlace<'_>)], selection: &Selection, style: &Style) -> Object {
    let one = |(name, place): &&(String, VdevPlace<'_>)| {
        let mut object = vdev_info(place.vdev, &Naming::default(), style.as_int);
        object.insert("name".into(), name.clone().into());
        let properties: Object = wanted_of(place.vdev, selection)
            .iter()
            .filter_map(|property| {
                let shown = vdev::value(place, property, style.literal)?;
                Some((property.name().to_owned(), json::property(&shown, style.as_int)))
            })
            .collect();
        object.insert("properties".into(), properties.into());
        (name.clone(), Value::Object(object))
    };
    chosen.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;

    #[test]
    fn a_vdev_is_meant_by_its_name_its_path_and_the_path_s_end() {
        let view = example();
        let all = places(&view);
        let count = |word: &str| all.iter().filter(|(name, place)| is_meant(word, name, place)).count();
        assert_eq!([count("all-vdevs"), count("root"), count("raidz1-0"), count("d3"), count("77")], [7, 1, 1, 1, 1]);
        assert_eq!(count("nothing"), 0);
        let chosen: Vec<_> = all.iter().filter(|(name, place)| is_meant("d0", name, place)).collect();
        let selection = select::parse("state,parent,path", vdev::find, is_other).expect("a list");
        let fields = Field::DEFAULT.to_vec();
        let style = Style { literal: false, as_int: false, json: false, scripted: true, fields };
        assert_eq!(
            text(&chosen, &selection, &style),
            "/disk/d0\tstate\tONLINE\t-\n/disk/d0\tparent\traidz1-0\t-\n/disk/d0\tpath\t/disk/d0\t-\n"
        );
    }
}
