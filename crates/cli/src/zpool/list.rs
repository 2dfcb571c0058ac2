//! `zpool list`.

use platter_api::messages::PoolView;
use platter_api::report::PropertySource;
use platter_api::report::{Detail, VdevReport};
use serde_json::Value;

use super::names::Naming;
use super::pools::{Repeat, Timestamp, views};
use crate::getopt::{Grammar, parse};
use crate::json::{self, Object};
use crate::nice;
use crate::out::{out, outln};
use crate::props::select::{self, Selection, Wanted};
use crate::props::{Shown, pool};
use crate::session::{Done, Session, usage};
use crate::table;

const GRAMMAR: Grammar = Grammar {
    short: ":gjHLo:pPT:v",
    long: &[("json", "j"), ("json-int", "json-int"), ("json-pool-key-guid", "json-pool-key-guid")],
};

const DEFAULT: &str = "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

/// Whether a name that is no native property may stand in a list of pool properties.
pub(super) fn is_other(name: &str) -> bool {
    name.contains(':')
        || name.starts_with("unsupported@")
        || name.strip_prefix("feature@").is_some_and(|feature| !feature.is_empty())
}

/// What and how to list.
#[derive(Clone, Debug)]
struct Style {
    columns: Vec<Wanted>,
    verbose: bool,
    scripted: bool,
    literal: bool,
    naming: Naming,
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let as_int = parsed.has("json-int");
    let style = Style {
        columns: Vec::new(),
        verbose: parsed.has("v"),
        scripted: parsed.has("H"),
        literal: parsed.has("p") || as_int,
        naming: Naming::from(&parsed),
    };
    for (option, name) in [("json-int", "'--json-int'"), ("json-pool-key-guid", "'json-pool-key-guid'")] {
        if parsed.has(option) && !parsed.has("j") {
            return Err(usage(format!("{name} only works with '-j' option")));
        }
    }
    let timestamp = Timestamp::parse(parsed.last("T"))?;
    let mut pools = parsed.operands.clone();
    let repeat = Repeat::take(&mut pools)?;
    let selection = select::parse(parsed.last("o").unwrap_or(DEFAULT), pool::find, is_other).map_err(usage)?;
    let mut round = 0;
    loop {
        let (found, code) = views(session, &pools, Detail::default())?;
        if found.is_empty() {
            if pools.is_empty() && !style.scripted && !parsed.has("j") {
                outln!("no pools available");
            }
            return Ok(code);
        }
        let mut style = style.clone();
        style.columns = match &selection {
            Selection::Listed(columns) => columns.clone(),
            Selection::All => pool::find("name").map(Wanted::Native).into_iter().chain(pool::all(&found)).collect(),
        };
        if parsed.has("j") {
            let mut object = json::schema("zpool list");
            if let Some(timestamp) = timestamp {
                object.insert("time".into(), if as_int { Value::from(nice::now()) } else { timestamp.now().into() });
            }
            object.insert(
                "pools".into(),
                Value::Object(as_json(&found, &style, as_int, parsed.has("json-pool-key-guid"))),
            );
            json::print(object);
        } else {
            if let Some(timestamp) = timestamp {
                outln!("{}", timestamp.now());
            }
            out!("{}", text(&found, &style, round == 0 || style.verbose));
        }
        round += 1;
        if !repeat.again(session, round) {
            return Ok(code);
        }
    }
}

fn row(view: &PoolView, style: &Style) -> Vec<String> {
    style
        .columns
        .iter()
        .map(|column| pool::value(view, column, style.literal).unwrap_or_else(Shown::nothing).value)
        .collect()
}

fn text(pools: &[PoolView], style: &Style, heading: bool) -> String {
    let rows: Vec<Vec<String>> = pools.iter().map(|view| row(view, style)).collect();
    let mut widths = table::widths(&style.columns, &rows, style.literal);
    if style.verbose
        && let Some(first) = widths.first_mut()
    {
        let names =
            pools.iter().map(|view| style.naming.width(&view.report.vdevs, 0).max(view.report.name.chars().count()));
        *first = names.max().unwrap_or(0).max(9);
    }
    let mut out = String::new();
    if heading && !style.scripted {
        out.push_str(&table::list(&style.columns, &widths, &[], false));
    }
    for (view, row) in pools.iter().zip(rows) {
        out.push_str(&list_row(style, &widths, row));
        if style.verbose {
            for child in view.report.vdevs.ordinary() {
                add_vdev(&mut out, child, 2, style, &widths);
            }
            if view.report.vdevs.logs().next().is_some() {
                out.push_str(&list_class("logs", style, &widths));
                view.report.vdevs.logs().for_each(|log| add_vdev(&mut out, log, 2, style, &widths));
            }
            if !view.report.caches.is_empty() {
                out.push_str(&list_class("cache", style, &widths));
                view.report.caches.iter().for_each(|cache| add_vdev(&mut out, cache, 2, style, &widths));
            }
            if !view.report.spares.is_empty() {
                out.push_str(&list_class("spare", style, &widths));
                view.report.spares.iter().for_each(|spare| add_vdev(&mut out, spare, 2, style, &widths));
            }
        }
    }
    out
}

fn list_row(style: &Style, widths: &[usize], row: Vec<String>) -> String {
    let cells: Vec<_> = row
        .into_iter()
        .zip(style.columns.iter().zip(widths))
        .map(|(text, (column, width))| (text, *width, column.right_aligned()))
        .collect();
    table::line(&cells, style.scripted) + "\n"
}

/// The line above the devices of a class of their own (`print_line`).
fn list_class(name: &str, style: &Style, widths: &[usize]) -> String {
    let mut line =
        if style.scripted { name.to_owned() } else { format!("{name:<w$}", w = widths.first().copied().unwrap_or(0)) };
    for column in style.columns.iter().filter(|column| column.name() != "name") {
        match style.scripted {
            true => line.push_str("\t-"),
            false => line.push_str(&format!("  {:>width$}", "-", width = column.width())),
        }
    }
    line + "\n"
}

/// The properties of a vdev that a column asks for; `None` for the name.
fn vdev_cell(vdev: &VdevReport, column: &Wanted, literal: bool) -> Option<String> {
    let top_level = vdev.size != 0;
    let number = |value: u64| if literal { value.to_string() } else { nice::num(value) };
    let nothing = || "-".to_owned();
    Some(match column.name() {
        "name" => return None,
        "size" if vdev.physical_size != 0 => number(vdev.physical_size),
        "size" if top_level => number(vdev.size),
        "allocated" if top_level => number(vdev.allocated),
        "free" if top_level => number(vdev.size.saturating_sub(vdev.allocated)),
        "expandsize" if vdev.expand_size != 0 => number(vdev.expand_size),
        "fragmentation" => match vdev.fragmentation {
            Some(percent) if top_level && literal => percent.to_string(),
            Some(percent) if top_level => format!("{percent}%"),
            _ => nothing(),
        },
        "capacity" if top_level => {
            let permyriad = (u128::from(vdev.allocated) * 10_000 / u128::from(vdev.size)) as u64;
            let percent = permyriad as f64 / 100.0;
            match permyriad {
                _ if literal => (permyriad / 100).to_string(),
                0..1000 => format!("{percent:.2}%"),
                1000..10_000 => format!("{percent:.1}%"),
                _ => format!("{percent:3.0}%"),
            }
        }
        "health" => vdev.state.clone(),
        _ => nothing(),
    })
}

fn add_vdev(out: &mut String, vdev: &VdevReport, depth: usize, style: &Style, widths: &[usize]) {
    let name = style.naming.name(vdev);
    if style.scripted {
        out.push('\t');
        out.push_str(&name);
    } else {
        let width = widths.first().map_or(0, |width| width.saturating_sub(depth));
        out.push_str(&format!("{:depth$}{name:<width$}", ""));
    }
    for column in &style.columns {
        let Some(text) = vdev_cell(vdev, column, style.literal) else { continue };
        if style.scripted {
            out.push('\t');
            out.push_str(&text);
        } else {
            out.push_str(&format!("  {text:>width$}", width = column.width()));
        }
    }
    out.push('\n');
    for child in &vdev.children {
        add_vdev(out, child, depth + 2, style, widths);
    }
}

fn as_json(pools: &[PoolView], style: &Style, as_int: bool, by_guid: bool) -> Object {
    let mut all = Object::new();
    for view in pools {
        let mut object = json::pool_info(view, true, as_int);
        let mut properties = Object::new();
        for column in style.columns.iter().filter(|column| column.name() != "name") {
            let shown = pool::value(view, column, style.literal).unwrap_or_else(Shown::nothing);
            properties.insert(column.name().to_owned(), json::property(&shown, as_int));
        }
        object.insert("properties".into(), Value::Object(properties));
        if style.verbose {
            let named = |vdev| (style.naming.name(vdev), Value::Object(vdev_json(vdev, style, as_int)));
            let vdevs: Object = view.report.vdevs.ordinary().map(named).collect();
            object.insert("vdevs".into(), Value::Object(vdevs));
            let apart: [(&str, Object); 3] = [
                ("logs", view.report.vdevs.logs().map(named).collect()),
                ("l2cache", view.report.caches.iter().map(named).collect()),
                ("spares", view.report.spares.iter().map(named).collect()),
            ];
            for (class, vdevs) in apart {
                if !vdevs.is_empty() {
                    object.insert(class.into(), Value::Object(vdevs));
                }
            }
        }
        let key = if by_guid { view.report.guid.to_string() } else { view.report.name.clone() };
        all.insert(key, Value::Object(object));
    }
    all
}

fn vdev_json(vdev: &VdevReport, style: &Style, as_int: bool) -> Object {
    let mut object = super::status_json::vdev_info(vdev, &style.naming, as_int);
    let mut properties = Object::new();
    for column in &style.columns {
        if let Some(value) = vdev_cell(vdev, column, style.literal) {
            let shown = Shown { value, source: PropertySource::None };
            properties.insert(column.name().to_owned(), json::property(&shown, as_int));
        }
    }
    object.insert("properties".into(), Value::Object(properties));
    if !vdev.children.is_empty() {
        let children: Object = vdev
            .children
            .iter()
            .map(|child| (style.naming.name(child), Value::Object(vdev_json(child, style, as_int))))
            .collect();
        object.insert("vdevs".into(), Value::Object(children));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zpool::status::tests::example;

    fn style(columns: &str, verbose: bool, scripted: bool) -> Style {
        let Selection::Listed(columns) = select::parse(columns, pool::find, is_other).unwrap() else { panic!() };
        Style { columns, verbose, scripted, literal: false, naming: Naming::default() }
    }

    #[test]
    fn the_table_is_laid_out_as_openzfs_lays_it_out() {
        let pools = [example()];
        let expected = "\
NAME    SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT
refz1   576M   145M   431M        -         -    24%    25%  2.00x    ONLINE  -
";
        assert_eq!(text(&pools, &style(DEFAULT, false, false), true), expected);
        assert_eq!(text(&pools, &style("name,size,health", false, true), true), "refz1\t576M\tONLINE\n");
    }

    #[test]
    fn vdevs_follow_their_pool() {
        let pools = [example()];
        let expected = "\
NAME           SIZE  ALLOC   FREE    CAP    HEALTH
refz1          576M   145M   431M    25%    ONLINE
  raidz1-0     576M   145M   431M  25.1%    ONLINE
    /disk/d0   128M      -      -      -    ONLINE
    /disk/d1   128M      -      -      -    ONLINE
    /disk/d2   128M      -      -      -    ONLINE
    /disk/d3   128M      -      -      -    ONLINE
    /disk/d4   128M      -      -      -    ONLINE
";
        assert_eq!(text(&pools, &style("name,size,alloc,free,cap,health", true, false), true), expected);
    }

    #[test]
    fn json_has_openzfs_schema() {
        let object = as_json(&[example()], &style("name,size,health", false, false), false, false);
        let expected = serde_json::json!({
            "refz1": {
                "name": "refz1", "type": "POOL", "state": "ONLINE", "pool_guid": "17881871464930842434", "txg": "288",
                "spa_version": "5000", "zpl_version": "5",
                "properties": {
                    "size": { "value": "576M", "source": { "type": "NONE", "data": "-" } },
                    "health": { "value": "ONLINE", "source": { "type": "NONE", "data": "-" } }
                }
            }
        });
        assert_eq!(Value::Object(object), expected);
    }
}
