//! `platter disks`: what disks there are, how they write, and in which pools they are.

use platter_api::disks::{DiskReport, ListDisks};
use serde_json::{Map, Value};

use crate::json;
use crate::nice;
use crate::out::{out, outln};
use crate::session::{Done, Session, exit_code};
use crate::table::columns;

/// Words of the command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// As JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// Without headings, columns divided by tabs
    #[arg(short = 'H')]
    scripted: bool,
}

/// The columns.
const HEADINGS: [&str; 9] = ["DISK", "SIZE", "SECTOR", "KIND", "BUS", "CACHE", "TEMP", "POOL", "MODEL"];

/// Runs it; the exit code.
pub fn main(arguments: &Arguments) -> u8 {
    exit_code(run(arguments), "disks")
}

fn run(arguments: &Arguments) -> Done {
    let disks = Session::new("platter disks".to_owned())?.ask(ListDisks {})?;
    if arguments.json {
        json::print(document(&disks));
    } else if arguments.scripted {
        disks.iter().for_each(|disk| outln!("{}", row(disk).join("\t")));
    } else {
        out!("{}", text(&disks));
    }
    Ok(0)
}

/// "512/4096": what it transfers, and what it writes at once; with a mark where that is not what it says.
fn sectors(disk: &DiskReport) -> String {
    match disk.known_sector {
        Some(known) if known > disk.physical_sector => format!("{}/{known}*", disk.logical_sector),
        _ => format!("{}/{}", disk.logical_sector, disk.physical_sector),
    }
}

fn row(disk: &DiskReport) -> [String; 9] {
    let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned());
    let kind = match (disk.rotational, disk.removable) {
        (_, true) => "removable",
        (true, false) => "hdd",
        (false, false) => "ssd",
    };
    let cache = disk.write_cache.map(|has| if has { "write back" } else { "write through" }.to_owned());
    let pools: Vec<String> = disk
        .pools
        .iter()
        .map(|labelled| if labelled.open { labelled.pool.clone() } else { format!("({})", labelled.pool) })
        .collect();
    let vendor = disk.vendor.as_deref().filter(|vendor| *vendor != "ATA");
    let model: Vec<&str> = vendor.into_iter().chain(disk.model.as_deref()).collect();
    [
        disk.path.clone(),
        nice::bytes(disk.size),
        sectors(disk),
        kind.to_owned(),
        or_dash(disk.transport.clone()),
        or_dash(cache),
        or_dash(disk.temperature.map(|degrees| format!("{degrees}C"))),
        or_dash(Some(pools.join(","))),
        or_dash(Some(model.join(" "))),
    ]
}

fn text(disks: &[DiskReport]) -> String {
    let mut text = columns(&HEADINGS, &disks.iter().map(row).collect::<Vec<_>>());
    if disks.iter().any(|disk| sectors(disk).ends_with('*')) {
        text.push_str("* known by its model: it says something else\n");
    }
    text
}

fn document(disks: &[DiskReport]) -> json::Object {
    let by_path: Map<String, Value> =
        disks.iter().map(|disk| (disk.path.clone(), serde_json::to_value(disk).unwrap_or_default())).collect();
    let mut document = json::schema("platter disks");
    document.insert("disks".into(), by_path.into());
    document
}

#[cfg(test)]
mod tests {
    use platter_api::disks::Labelled;

    use super::*;

    fn disks() -> Vec<DiskReport> {
        let labelled = |pool: &str, open| Labelled { path: "/dev/sda1".into(), pool: pool.into(), open };
        vec![
            DiskReport {
                path: "/dev/sda".into(),
                vendor: Some("ATA".into()),
                model: Some("WDC WD20EARS-00M".into()),
                size: 2_000_398_934_016,
                logical_sector: 512,
                physical_sector: 512,
                known_sector: Some(4096),
                rotational: true,
                write_cache: Some(true),
                transport: Some("sata".into()),
                temperature: Some(38),
                pools: vec![labelled("tank", true), labelled("old", false)],
                ..DiskReport::default()
            },
            DiskReport {
                path: "/dev/vda".into(),
                size: 1 << 30,
                logical_sector: 512,
                physical_sector: 4096,
                ..Default::default()
            },
        ]
    }

    #[test]
    fn a_disk_is_one_line() {
        let expected = "\
DISK      SIZE   SECTOR     KIND  BUS   CACHE       TEMP  POOL        MODEL
/dev/sda  1.82T  512/4096*  hdd   sata  write back  38C   tank,(old)  WDC WD20EARS-00M
/dev/vda     1G  512/4096   ssd   -     -           -     -           -
* known by its model: it says something else
";
        assert_eq!(text(&disks()), expected.replace("   1G", "1G   "));
        assert_eq!(row(&disks()[1]).join("\t"), "/dev/vda\t1G\t512/4096\tssd\t-\t-\t-\t-\t-");
    }

    #[test]
    fn json_has_all_of_it() {
        let document = document(&disks());
        let disk = &document["disks"]["/dev/sda"];
        assert_eq!((&disk["known_sector"], &disk["pools"][1]["open"]), (&Value::from(4096), &Value::from(false)));
    }
}
