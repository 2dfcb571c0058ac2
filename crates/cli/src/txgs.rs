//! `platter txgs`: what the latest transaction groups wrote and where their time went.
//!
//! Invariant: each group is shown once, in its order, however often the daemon is asked.

use std::collections::BTreeMap;

use platter_api::messages::{ErrorBody, ErrorKind, GetTxgs};
use platter_api::{txgs::TxgReport, txgs::TxgsReport};
use serde_json::{Map, Value, json};

use crate::json;
use crate::out::{out, outln};
use crate::session::{Failure, Session, complain, exit_code};
use crate::zpool::pools::{Repeat, names};

/// What the numbers mean, for `--help`.
pub const HELP: &str = "\
Each line is one group:
  1431 MB            written to devices during its sync, parity and copies included
  23723 ms           its sync: from the end of its last writer until it was on stable storage
  avg sz: 127 KB     bytes of a write, on average, neighbours joined as the devices got them
  60 MB/s            what was written by the time it took
  open               time for which writers could join it
  quiesce            time until its last writer had ended
  sync               time of writing its blocks, in so many passes
  flush              time of flushing the devices and of writing labels and uberblock
KB and MB are 1024 and 1048576 bytes. With an interval, groups that finish are shown every INTERVAL seconds.

-H: pool, txg, opened (seconds since the epoch), bytes dirtied by writers, bytes read, bytes written, reads, writes,
nanoseconds open, quiesce, sync and flush, passes.";

/// What may follow the command, for `--help`.
pub const USAGE: &str = "platter txgs [-H | -j] [-p] [POOL]... [INTERVAL [COUNT]]";
/// The heading of lines for a person.
const HEADING: &str = "group     written; sync and flush; average write; rate            time of each phase";
/// Where the phases begin, however short the numbers before them.
const PHRASE_WIDTH: usize = 54;

/// Words of the command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    /// No heading; tabs between exact numbers
    #[arg(short = 'H', long = "script", visible_alias = "scripted", conflicts_with = "json")]
    script: bool,
    /// Exact numbers: bytes and nanoseconds
    #[arg(short = 'p', long)]
    parsable: bool,
    /// As JSON, one document for each round that has something to tell
    #[arg(short = 'j', long)]
    json: bool,
    /// Pools, all by default; then seconds between two rounds, and how many rounds
    #[arg(value_name = "POOL|INTERVAL|COUNT")]
    words: Vec<String>,
}

/// How groups are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Table { exact: bool },
    Script,
    Json,
}

/// Runs it; the exit code.
pub fn main(arguments: &Arguments) -> u8 {
    exit_code(run(arguments), "txgs")
}

fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let mut pools = arguments.words.clone();
    let repeat = Repeat::take(&mut pools)?;
    let style = match (arguments.script, arguments.json) {
        (true, _) => Style::Script,
        (_, true) => Style::Json,
        _ => Style::Table { exact: arguments.parsable },
    };
    let mut session = Session::new("platter txgs".to_owned())?;
    let mut shown = Shown::default();
    let mut round = 0;
    loop {
        let (found, code) = ask(&mut session, &pools, &shown)?;
        if found.is_empty() && (code != 0 || repeat.interval.is_none()) {
            if code == 0 {
                eprintln!("no pools available");
            }
            return Ok(1);
        }
        let named = found.len() > 1;
        let fresh = shown.only_new(found);
        let first = round == 0;
        if first && matches!(style, Style::Table { .. }) {
            outln!("{HEADING}");
        }
        if style == Style::Json {
            if first || fresh.iter().any(|(_, groups)| !groups.is_empty()) {
                json::print(document(&fresh));
            }
        } else {
            out!("{}", lines(&fresh, style, named));
        }
        round += 1;
        if !repeat.again(&session, round) {
            return Ok(code);
        }
    }
}

/// The groups of the pools given, or of all, that are new; complains about pools that are not there. The exit code that
/// makes.
fn ask(session: &mut Session, given: &[String], shown: &Shown) -> Result<(Vec<(String, TxgsReport)>, u8), ErrorBody> {
    let mut found = Vec::new();
    let mut code = 0;
    for name in names(session, given)? {
        let after = shown.last(&name);
        let mut answer = session.ask(GetTxgs { pool: name.clone(), after });
        if answer.as_ref().is_ok_and(|report| report.synced < after) {
            // Another pool has that name now: its groups are all new.
            answer = session.ask(GetTxgs { pool: name.clone(), after: 0 });
        }
        match answer {
            Ok(report) => found.push((name, report)),
            // A pool that was exported since it was listed is no error.
            Err(body) if given.is_empty() && body.kind == ErrorKind::NoSuchPool => {}
            Err(body) => {
                complain(&body);
                code = 1;
            }
        }
    }
    Ok((found, code))
}

/// How far each pool's groups were shown.
#[derive(Debug, Default)]
struct Shown(BTreeMap<String, u64>);

impl Shown {
    fn last(&self, pool: &str) -> u64 {
        self.0.get(pool).copied().unwrap_or(0)
    }

    /// Notes that these are shown. Says when there were more than the daemon remembers.
    fn only_new(&mut self, found: Vec<(String, TxgsReport)>) -> Vec<(String, Vec<TxgReport>)> {
        let mut fresh = Vec::new();
        for (name, report) in found {
            let before = self.0.insert(name.clone(), report.synced);
            if let (Some(before), Some(first)) = (before, report.groups.first())
                && before > 0
                && first.txg > before + 1
            {
                eprintln!("{name}: {} groups came and went unseen", first.txg - before - 1);
            }
            debug_assert!(report.groups.is_sorted_by_key(|group| group.txg), "groups come in their order");
            fresh.push((name, report.groups));
        }
        fresh
    }
}

fn lines(fresh: &[(String, Vec<TxgReport>)], style: Style, named: bool) -> String {
    let mut text = String::new();
    for (pool, groups) in fresh {
        for group in groups {
            match style {
                Style::Script => text.push_str(&script_line(pool, group)),
                Style::Table { exact } => {
                    if named {
                        text.push_str(&format!("{pool}  "));
                    }
                    text.push_str(&line(group, exact));
                }
                Style::Json => {}
            }
            text.push('\n');
        }
    }
    text
}

/// Bytes in a second, when `bytes` took `nanoseconds`.
fn rate(bytes: u64, nanoseconds: u64) -> u64 {
    let each_second = u128::from(bytes) * 1_000_000_000 / u128::from(nanoseconds.max(1));
    u64::try_from(each_second).unwrap_or(u64::MAX)
}

/// "txg 1234  1431 MB; 23723 ms of spa_sync; avg sz: 127 KB; 60 MB/s   open 5000 ms  …".
fn line(group: &TxgReport, exact: bool) -> String {
    let spa_sync = group.spa_sync_ns();
    let average = group.written_bytes / group.writes.max(1);
    let rate = rate(group.written_bytes, spa_sync);
    let time = |nanoseconds: u64| match exact {
        true => format!("{nanoseconds} ns"),
        false => format!("{} ms", nanoseconds / 1_000_000),
    };
    let phrase = match exact {
        true => format!("{} B; {} of spa_sync; avg sz: {average} B; {rate} B/s", group.written_bytes, time(spa_sync)),
        false => format!(
            "{} MB; {} of spa_sync; avg sz: {} KB; {} MB/s",
            group.written_bytes >> 20,
            time(spa_sync),
            average >> 10,
            rate >> 20
        ),
    };
    format!(
        "txg {}  {phrase:<PHRASE_WIDTH$}   open {}  quiesce {}  sync {}  flush {}  {} {}",
        group.txg,
        time(group.open_ns),
        time(group.quiesce_ns),
        time(group.sync_ns),
        time(group.flush_ns),
        group.passes,
        if group.passes == 1 { "pass" } else { "passes" }
    )
}

fn script_line(pool: &str, group: &TxgReport) -> String {
    let numbers = [
        group.txg,
        group.opened.0,
        group.dirty_bytes,
        group.read_bytes,
        group.written_bytes,
        group.reads,
        group.writes,
        group.open_ns,
        group.quiesce_ns,
        group.sync_ns,
        group.flush_ns,
        u64::from(group.passes),
    ];
    numbers.iter().fold(pool.to_owned(), |line, number| format!("{line}\t{number}"))
}

fn document(fresh: &[(String, Vec<TxgReport>)]) -> json::Object {
    let mut pools = Map::new();
    for (name, groups) in fresh {
        let groups: Vec<Value> = groups.iter().map(object).collect();
        pools.insert(name.clone(), json!({ "name": name, "txgs": groups }));
    }
    let mut document = json::schema("platter txgs");
    document.insert("pools".into(), pools.into());
    document
}

fn object(group: &TxgReport) -> Value {
    json!({
        "txg": group.txg,
        "opened": group.opened.0,
        "opened_ns": group.opened.1,
        "dirty_bytes": group.dirty_bytes,
        "read_bytes": group.read_bytes,
        "written_bytes": group.written_bytes,
        "reads": group.reads,
        "writes": group.writes,
        "open_ns": group.open_ns,
        "quiesce_ns": group.quiesce_ns,
        "sync_ns": group.sync_ns,
        "flush_ns": group.flush_ns,
        "passes": group.passes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(txg: u64) -> TxgReport {
        TxgReport {
            txg,
            opened: (1_795_218_000, 42),
            dirty_bytes: 1200 << 20,
            written_bytes: 1431 << 20,
            writes: 11_538,
            read_bytes: 4096,
            reads: 1,
            open_ns: 5_000_900_000,
            quiesce_ns: 12_000,
            sync_ns: 23_600_000_000,
            flush_ns: 123_000_000,
            passes: 3,
        }
    }

    #[test]
    fn a_line_has_the_form_that_people_know() {
        assert_eq!(
            line(&group(1234), false),
            "txg 1234  1431 MB; 23723 ms of spa_sync; avg sz: 127 KB; 60 MB/s   \
             open 5000 ms  quiesce 0 ms  sync 23600 ms  flush 123 ms  3 passes"
        );
        let exact = line(&group(1234), true);
        assert!(exact.starts_with("txg 1234  1500512256 B; 23723000000 ns of spa_sync; avg sz: 130049 B; 632513"));
        assert!(exact.ends_with("flush 123000000 ns  3 passes"), "{exact}");
    }

    #[test]
    fn groups_without_anything_written_are_shown_too() {
        let empty = TxgReport { txg: 7, ..TxgReport::default() };
        assert!(line(&empty, false).starts_with("txg 7  0 MB; 0 ms of spa_sync; avg sz: 0 KB; 0 MB/s "));
    }

    #[test]
    fn scripts_get_exact_numbers() {
        let expected = "tank\t9\t1795218000\t1258291200\t4096\t1500512256\t1\t11538\t5000900000\t12000\t23600000000\t\
                        123000000\t3";
        assert_eq!(script_line("tank", &group(9)), expected);
        let fresh = [("tank".to_owned(), vec![group(9)])];
        assert_eq!(document(&fresh)["pools"]["tank"]["txgs"][0]["written_bytes"], 1_500_512_256_u64);
        assert_eq!(lines(&fresh, Style::Script, true), format!("{expected}\n"));
    }

    #[test]
    fn each_group_is_asked_for_once() {
        let mut shown = Shown::default();
        let answer = |synced, numbers: &[u64]| {
            let groups = numbers.iter().map(|txg| group(*txg)).collect();
            vec![("tank".to_owned(), TxgsReport { synced, groups })]
        };
        assert_eq!(shown.only_new(answer(8, &[7, 8]))[0].1.len(), 2);
        assert_eq!(shown.last("tank"), 8);
        shown.only_new(answer(8, &[]));
        assert_eq!((shown.last("tank"), shown.last("other")), (8, 0));
        // Another pool of that name has come less far.
        assert_eq!(shown.only_new(answer(5, &[4, 5]))[0].1.len(), 2);
        assert_eq!(shown.last("tank"), 5);
    }
}
