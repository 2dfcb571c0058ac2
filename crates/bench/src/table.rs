//! The tables that are printed.

use std::fmt::Write;

use crate::results::{Failure, Line, Report};
use crate::stats::ratio;
use crate::systems::THROUGH_DEVICE;
use crate::targets::{Verdict, over_raw};

const HEADS: [&str; 13] = [
    "case",
    "system",
    "median",
    "min..max",
    "Platter/it",
    "it/raw",
    "it/previous",
    "CPU server",
    "CPU machine",
    "peak MiB",
    "p50 us",
    "p99 us",
    "",
];

/// What the columns mean.
const LEGEND: &str = "\
Ratios: above 1 is better, also where less is better. it/raw: next to the raw device less what redundancy takes.
it/previous: next to the committed results. CPU server: user and system seconds of the serving process with all its
threads; CPU machine: seconds in which the machine's processors were not idle, of everybody (for a file system of the
kernel there is no other); both for each GiB of data, where no data moves for each 1000 operations.
ext4 and xfs: one device of the same capacity, without redundancy and without checksums of data.
A round that failed is not part of the median; why it failed was said when it did.
";

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

/// A number with as many places as it needs.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The cells of a line, but for the case's name.
fn row(report: &Report, previous: Option<&Report>, line: &Line) -> Vec<String> {
    let (least, greatest) = crate::stats::spread(&line.values);
    let maybe = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
    let ours = report.line(&line.case, "platter").filter(|ours| ours.system != line.system);
    let before = previous.and_then(|previous| previous.line(&line.case, &line.system));
    vec![
        line.system.clone(),
        format!("{} {}", number(line.median), line.unit.name()),
        format!("{}..{}", number(least), number(greatest)),
        times(ours.and_then(|ours| ours.over(line))),
        times(over_raw(report, line)),
        times(before.and_then(|before| line.over(before))),
        maybe(line.server_cpu),
        maybe(line.machine_cpu),
        line.peak_memory.map_or_else(|| "-".into(), |bytes| (bytes >> 20).to_string()),
        maybe(line.p50_us),
        maybe(line.p99_us),
        report.failure(&line.case, &line.system).map(failed).unwrap_or_default(),
    ]
}

fn failed(failure: &Failure) -> String {
    format!("failed {} of {}", failure.failed, failure.rounds)
}

/// The cells of a case that never ended on a system.
fn failed_row(failure: &Failure) -> Vec<String> {
    let mut row = vec![failure.system.clone(), failed(failure)];
    row.resize(HEADS.len() - 1, String::new());
    row
}

/// A table whose columns stand below each other.
pub fn lines_up(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([heads[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let heads: Vec<String> = heads.iter().map(|&head| head.to_owned()).collect();
    let mut text = String::new();
    for row in [&heads].into_iter().chain(rows) {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            // Words on the left, numbers on the right.
            if column < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// Everything that was measured, next to what was measured before.
pub fn results(report: &Report, previous: Option<&Report>) -> String {
    let mut rows = Vec::new();
    for case in report.cases() {
        let lines = report.lines.iter().filter(|line| line.case == case).map(|line| row(report, previous, line));
        let without = |failure: &&Failure| failure.case == case && report.line(case, &failure.system).is_none();
        let failures = report.failures.iter().filter(without).map(failed_row);
        for (index, mut cells) in lines.chain(failures).enumerate() {
            cells.insert(0, if index == 0 { case.to_owned() } else { String::new() });
            rows.push(cells);
        }
    }
    let mut text = lines_up(&HEADS, &rows);
    let _ = write!(text, "\n{LEGEND}");
    if previous.is_some_and(|previous| previous.setting != report.setting) {
        text.push_str("The previous results are from another machine or other options: it/previous says little.\n");
    }
    text
}

/// Platter over io_uring next to Platter through `/dev/fuse`, if it was measured both ways.
pub fn ways(report: &Report) -> Option<String> {
    let row = |case: &&str| {
        let (ring, device) = (report.line(case, "platter")?, report.line(case, THROUGH_DEVICE)?);
        let value = |line: &Line| format!("{} {}", number(line.median), line.unit.name());
        let server = ring.server_cpu.zip(device.server_cpu).and_then(|(ring, device)| ratio(ring, device, false));
        let name = (*case).to_owned();
        Some(vec![name, value(ring), value(device), times(ring.over_by_round(device)), times(server)])
    };
    let rows: Vec<Vec<String>> = report.cases().iter().filter_map(row).collect();
    let heads = ["case", "over io_uring", "through /dev/fuse", "times better, by round", "CPU server, times"];
    (!rows.is_empty()).then(|| lines_up(&heads, &rows))
}

/// What had to be reached and what was.
pub fn targets(verdicts: &[Verdict]) -> String {
    let rows: Vec<Vec<String>> = verdicts
        .iter()
        .map(|verdict| {
            let word = if verdict.holds() { "reached" } else { "SHORT" };
            let (wanted, reached) = (format!("{:.2}", verdict.wanted), format!("{:.2}", verdict.reached));
            vec![verdict.case.clone(), verdict.against.clone(), wanted, reached, word.to_owned()]
        })
        .collect();
    lines_up(&["case", "Platter next to", "at least", "is", ""], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Sample, Unit};

    #[test]
    fn a_table_has_ratios_to_peers_and_to_the_past() {
        let line = |system: &str, value| Line::of(system, &[Sample::plain("mail", Unit::Operations, value)]);
        let lines = [line("platter", 200.0), line("zfs-fuse", 100.0)].into_iter().flatten().collect();
        let failures = vec![
            Failure { case: "mail".into(), system: "zfs-fuse".into(), failed: 1, rounds: 2 },
            Failure { case: "mail".into(), system: "btrfs".into(), failed: 2, rounds: 2 },
        ];
        let report = Report { lines, failures, ..Report::default() };
        let previous = Report { lines: line("platter", 400.0).into_iter().collect(), ..Report::default() };
        let text = results(&report, Some(&previous));
        let cells: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[1][..8], ["mail", "platter", "200", "op/s", "200..200", "-", "-", "0.50"]);
        assert_eq!(cells[2][..7], ["zfs-fuse", "100", "op/s", "100..100", "2.00", "-", "-"]);
        assert!(cells[2].ends_with(&["failed", "1", "of", "2"]));
        assert_eq!(cells[3], ["btrfs", "failed", "2", "of", "2"]);
    }

    #[test]
    fn the_two_ways_are_compared_round_by_round() {
        let line = |system: &str, values: &[f64]| {
            let samples: Vec<_> = values.iter().map(|&value| Sample::plain("stat", Unit::Operations, value)).collect();
            Line::of(system, &samples)
        };
        let both = [line("platter", &[10.0, 200.0, 30.0]), line(THROUGH_DEVICE, &[5.0, 50.0, 60.0])];
        let report = Report { lines: both.into_iter().flatten().collect(), ..Report::default() };
        let text = ways(&report).expect("measured both ways");
        assert!(text.lines().nth(1).is_some_and(|row| row.trim_end_matches([' ', '-']).ends_with("2.00")), "{text}");
        assert_eq!(ways(&Report { lines: line("platter", &[1.0]).into_iter().collect(), ..Report::default() }), None);
        let uneven = [line("platter", &[1.0, 2.0]), line(THROUGH_DEVICE, &[1.0])].map(|line| line.expect("values"));
        assert_eq!(uneven[0].over_by_round(&uneven[1]), None);
    }

    #[test]
    fn numbers_are_as_long_as_they_need() {
        assert_eq!([1234.5, 12.345, 0.012_345].map(number), ["1234", "12.35", "0.0123"]);
    }
}
