//! `platter faults`: which devices have failed or seem to, what was done about it, and what their owner should do now.

use platter_api::faults::{DeviceRecord, GetFaults, HoldDevice, LineKind, PoolFaults};
use serde_json::{Map, json};

use crate::json;
use crate::nice;
use crate::out::{out, outln};
use crate::session::{Done, Session, exit_code};

/// Words of the command.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// As JSON
    #[arg(short = 'j', long)]
    json: bool,
    /// Only this pool
    #[arg(value_name = "POOL")]
    pool: Option<String>,
}

/// What is to be done with a device.
#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Do nothing with a device by itself: no verdict is carried out, and no spare stands in
    Hold {
        /// Path, last part of the path, or guid
        device: String,
        /// The pool, where several have such a device
        #[arg(long)]
        pool: Option<String>,
    },
    /// Treat a device as others are treated again
    Release {
        /// Path, last part of the path, or guid
        device: String,
        /// The pool, where several have such a device
        #[arg(long)]
        pool: Option<String>,
    },
}

/// Runs it; the exit code.
pub fn main(arguments: &Arguments) -> u8 {
    exit_code(run(arguments), "faults")
}

fn run(arguments: &Arguments) -> Done {
    let mut session = Session::new("platter faults".to_owned())?;
    let hold = match arguments.action.clone() {
        Some(Action::Hold { device, pool }) => Some(HoldDevice { device, pool, hold: true }),
        Some(Action::Release { device, pool }) => Some(HoldDevice { device, pool, hold: false }),
        None => None,
    };
    if let Some(call) = hold {
        let what = if call.hold { "held" } else { "not held" };
        let device = session.ask(call)?.name.unwrap_or_default();
        outln!("{device} is {what} from now on");
        return Ok(0);
    }
    let pools = session.ask(GetFaults { pool: arguments.pool.clone() })?;
    if arguments.json {
        json::print(document(&pools));
    } else {
        out!("{}", text(&pools));
    }
    Ok(0)
}

fn text(pools: &[PoolFaults]) -> String {
    let failing: Vec<&PoolFaults> = pools.iter().filter(|pool| !pool.devices.is_empty()).collect();
    if failing.is_empty() {
        return "nothing is known of failing devices\n".to_owned();
    }
    let of_pool = |pool: &&PoolFaults| {
        let devices: Vec<String> = pool.devices.iter().map(of_device).collect();
        format!("  pool: {}\n{}", pool.pool, devices.join(""))
    };
    failing.iter().map(of_pool).collect::<Vec<_>>().join("\n")
}

fn of_device(device: &DeviceRecord) -> String {
    let state = device.state.map_or("not part of the pool", |state| state.name());
    let held = if device.held { ", held" } else { "" };
    let mut text = format!("device: {} ({state}{held}), guid {}\n", device.device, device.guid);
    for line in &device.lines {
        let kind = match line.kind {
            LineKind::Seen => "seen",
            LineKind::Verdict => "verdict",
            LineKind::Done => "done",
        };
        text.push_str(&format!("\t{}  {kind:<7}  {}\n", nice::ctime(line.time), line.text));
    }
    text.push_str(&format!("action: {}\n", device.action));
    text
}

fn document(pools: &[PoolFaults]) -> json::Object {
    let mut by_name = Map::new();
    for pool in pools {
        let mut devices = Map::new();
        // What was replaced may have had the path of what is there now, which has it here, too.
        let (there, gone): (Vec<_>, Vec<_>) = pool.devices.iter().partition(|device| device.state.is_some());
        for device in there.into_iter().chain(gone) {
            let is_taken = devices.contains_key(&device.device);
            let key = if is_taken { &device.guid } else { &device.device };
            devices.insert(key.clone(), serde_json::to_value(device).unwrap_or_default());
        }
        by_name.insert(pool.pool.clone(), json!({ "name": pool.pool, "devices": devices }));
    }
    let mut document = json::schema("platter faults");
    document.insert("pools".into(), by_name.into());
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_api::faults::{DeviceState, RecordLine};

    fn pools() -> Vec<PoolFaults> {
        let line = |kind, text: &str| RecordLine { time: 1_795_218_000, kind, text: text.to_owned() };
        let lines = vec![line(LineKind::Seen, "12 I/O errors"), line(LineKind::Verdict, "too many errors")];
        let device = DeviceRecord {
            guid: "7".into(),
            device: "/dev/sdb".into(),
            state: Some(DeviceState::Faulted),
            held: true,
            lines,
            action: "Replace it.".into(),
        };
        vec![
            PoolFaults { pool: "sound".into(), devices: Vec::new() },
            PoolFaults { pool: "tank".into(), devices: vec![device] },
        ]
    }

    #[test]
    fn each_device_has_what_was_seen_and_what_to_do() {
        let time = nice::ctime(1_795_218_000);
        let expected = format!(
            "  pool: tank\ndevice: /dev/sdb (FAULTED, held), guid 7\n\t{time}  seen     12 I/O errors\n\t{time}  \
             verdict  too many errors\naction: Replace it.\n"
        );
        assert_eq!(text(&pools()), expected);
        assert_eq!(text(&pools()[..1]), "nothing is known of failing devices\n");
    }

    #[test]
    fn json_has_the_same() {
        let document = document(&pools());
        let device = &document["pools"]["tank"]["devices"]["/dev/sdb"];
        assert_eq!((&device["state"], &device["lines"][1]["kind"]), (&json!("FAULTED"), &json!("verdict")));
        assert_eq!(document["pools"]["sound"]["devices"], json!({}));
    }

    #[test]
    fn what_was_replaced_at_the_same_path_is_in_json_too() {
        let mut pools = pools();
        let there = pools[1].devices[0].clone();
        pools[1].devices.insert(0, DeviceRecord { guid: "6".into(), state: None, ..there });
        let devices = document(&pools)["pools"]["tank"]["devices"].clone();
        assert_eq!((&devices["/dev/sdb"]["guid"], &devices["6"]["guid"]), (&json!("7"), &json!("6")));
    }
}
