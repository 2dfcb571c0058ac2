//! `platter schedule`: which data sets get snapshots by themselves (property `platter:snap`), and how that goes.

use chrono::{DateTime, Local};
use platter_api::schedules::{ListSchedules, ScheduleReport};
use serde_json::Value;

use crate::json;
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
    /// A data set, with those below it
    dataset: Option<String>,
}

/// The columns.
const HEADINGS: [&str; 6] = ["DATASET", "SCHEDULE", "KEPT", "NEWEST", "NEXT", "NOTE"];

/// Runs it; the exit code.
pub fn main(arguments: &Arguments) -> u8 {
    exit_code(run(arguments), "schedule")
}

fn run(arguments: &Arguments) -> Done {
    let call = ListSchedules { under: arguments.dataset.clone() };
    let schedules = Session::new("platter schedule".to_owned())?.ask(call)?;
    if arguments.json {
        let mut document = json::schema("platter schedule");
        document.insert("schedules".into(), serde_json::to_value(&schedules).unwrap_or(Value::Null));
        json::print(document);
    } else if arguments.scripted {
        schedules.iter().for_each(|schedule| outln!("{}", row(schedule).join("\t")));
    } else if schedules.is_empty() {
        outln!("no data set has property platter:snap; for example: zfs set platter:snap=hourly:24,daily:30 POOL");
    } else {
        out!("{}", columns(&HEADINGS, &schedules.iter().map(row).collect::<Vec<_>>()));
    }
    Ok(u8::from(schedules.iter().any(|schedule| schedule.problem.is_some())))
}

fn note(schedule: &ScheduleReport) -> String {
    match (&schedule.problem, schedule.received, schedule.prunes) {
        (Some(problem), _, _) => problem.clone(),
        (None, true, true) => "received: only pruned here".to_owned(),
        (None, true, false) => "received: neither taken nor pruned here".to_owned(),
        (None, false, false) => "not pruned".to_owned(),
        (None, false, true) => "-".to_owned(),
    }
}

fn row(schedule: &ScheduleReport) -> [String; 6] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let shown = |seconds: u64| {
        let time = DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
        Some(time.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S").to_string())
    };
    [
        schedule.dataset.clone(),
        schedule.schedule.clone(),
        schedule.kept.to_string(),
        or_dash(schedule.newest.clone()),
        or_dash(schedule.next.and_then(shown)),
        note(schedule),
    ]
}
