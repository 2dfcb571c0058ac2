//! `zfs diff`.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;

use platter_api::snapshots::{Became, DiffEntry, DiffHeader, DiffSnapshots};
use platter_daemon::guest_pipe::Way;

use super::select::complaint;
use crate::getopt::{Grammar, parse};
use crate::out::write_bytes;
use crate::session::{Done, Failure, Session, refused, usage};

/// How it is printed.
#[derive(Clone, Copy, Debug, Default)]
struct Style {
    /// With the kind of each file (`-F`).
    kinds: bool,
    /// Tabs alone (`-H`).
    scripted: bool,
    /// With the time of change (`-t`).
    times: bool,
    /// Names as they are (`-h`).
    plain: bool,
}

/// Bytes that are printed at once, or a little more.
const LINES_MAX: usize = 64 << 10;

fn of(from: String, to: String) -> DiffSnapshots {
    DiffSnapshots { from, to, ..DiffSnapshots::default() }
}

/// Which two are compared, by full name (`get_snapshot_names`, `lib/libzfs/libzfs_diff.c`).
fn wanted(from: &str, to: Option<&str>) -> Result<DiffSnapshots, Failure> {
    let Some(to) = to else {
        let badly = |reason: &str| refused(format!("Badly formed snapshot name {from}: {reason}"));
        return match (complaint(from), from.split_once('@')) {
            (Some(reason), _) => Err(badly(&reason)),
            (None, None) => Err(badly("missing '@' delimiter in snapshot name")),
            (None, Some((dataset, _))) => Ok(of(from.to_owned(), dataset.to_owned())),
        };
    };
    let (from_set, from_own) = from.split_once('@').map_or((from, None), |(set, own)| (set, Some(own)));
    let (to_set, to_own) = to.split_once('@').map_or((to, None), |(set, own)| (set, Some(own)));
    let is_named = from_own.is_some_and(|own| !own.is_empty()) && to_own.is_none_or(|own| !own.is_empty());
    if !is_named || from_set.is_empty() && to_set.is_empty() {
        return Err(refused("Unable to determine which snapshots to compare: invalid name"));
    }
    let full = |set: &str, other: &str, own: Option<&str>| {
        let set = if set.is_empty() { other } else { set };
        own.map_or_else(|| set.to_owned(), |own| format!("{set}@{own}"))
    };
    Ok(of(full(from_set, to_set, from_own), full(to_set, from_set, to_own)))
}

/// A path of an answer, in which what is no printable character of ASCII is a backslash and four octal digits, as it
/// is in the file system.
fn as_it_is(path: &str) -> Vec<u8> {
    let (bytes, mut out, mut at) = (path.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 5).filter(|_| bytes[at] == b'\\');
        let value = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 5 } else { 1 };
    }
    out
}

/// A line of the output.
fn line(header: &DiffHeader, entry: &DiffEntry, style: Style) -> Vec<u8> {
    let path = |path: &str| {
        let path = format!("{}{path}", header.mounted_at);
        if style.plain { as_it_is(&path) } else { path.into_bytes() }
    };
    let mut text = Vec::new();
    if style.times {
        text.extend(format!("{:>10}.{:09}\t", entry.seconds, entry.nanoseconds).bytes());
    }
    let letter = match entry.became {
        Became::Added => '+',
        Became::Removed => '-',
        Became::Modified | Became::Links(_) => 'M',
        Became::Renamed(_) => 'R',
    };
    text.extend(format!("{letter}\t").bytes());
    if style.kinds {
        text.extend(format!("{}\t", entry.kind).bytes());
    }
    text.extend(path(&entry.path));
    match &entry.became {
        Became::Links(more) => text.extend(format!("\t({more:+})").bytes()),
        Became::Renamed(to) => {
            text.extend_from_slice(if style.scripted { b"\t" } else { b" -> " });
            text.extend(path(to));
        }
        Became::Added | Became::Removed | Became::Modified => {}
    }
    text.push(b'\n');
    text
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "FHth", long: &[] }, words).map_err(usage)?;
    let (from, to) = match parsed.operands.as_slice() {
        [] => return Err(usage("must provide at least one snapshot name")),
        [from] => (from, None),
        [from, to] => (from, Some(to.as_str())),
        _ => return Err(usage("too many arguments")),
    };
    if from.starts_with('@') && to.is_none() {
        return Err(usage(""));
    }
    let style =
        Style { kinds: parsed.has("F"), scripted: parsed.has("H"), times: parsed.has("t"), plain: parsed.has("h") };
    let call = wanted(from, to)?;
    let failed = |error: std::io::Error| refused(format!("Unable to obtain diffs: {error}"));
    let (told, teller) = std::io::pipe().map_err(failed)?;
    let printing = std::thread::spawn(move || print(BufReader::new(told), style));
    let asked = session.stream((teller.as_fd(), Way::Out), |descriptor| DiffSnapshots { descriptor, ..call }, |_| {});
    drop(teller);
    let printed = printing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    asked?;
    printed.map(|()| 0).map_err(failed)
}

/// Prints what the daemon tells, as it comes.
fn print(mut told: BufReader<impl Read>, style: Style) -> std::io::Result<()> {
    let mut text = Vec::new();
    if told.read_until(b'\n', &mut text)? == 0 {
        return Ok(());
    }
    let header: DiffHeader = serde_json::from_slice(&text)?;
    let mut lines = Vec::new();
    loop {
        text.clear();
        let is_end = told.read_until(b'\n', &mut text)? == 0;
        if !is_end {
            lines.extend(line(&header, &serde_json::from_slice::<DiffEntry>(&text)?, style));
        }
        // What came together is printed together.
        if is_end || lines.len() >= LINES_MAX || told.buffer().is_empty() {
            write_bytes(&lines);
            lines.clear();
        }
        if is_end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_given_in_part() {
        let full = |from: &str, to: Option<&str>| match wanted(from, to) {
            Ok(call) => format!("{} {}", call.from, call.to),
            Err(Failure::Usage(message)) => message,
            Err(Failure::Refused(body)) => body.message,
        };
        assert_eq!(full("t/a@x", None), "t/a@x t/a");
        assert_eq!(full("t/a@x", Some("@y")), "t/a@x t/a@y");
        assert_eq!(full("@x", Some("t/a@y")), "t/a@x t/a@y");
        assert_eq!(full("@x", Some("t/a")), "t/a@x t/a");
        assert_eq!(full("t/a@x", Some("t/b")), "t/a@x t/b");
        assert_eq!(full("t/a", None), "Badly formed snapshot name t/a: missing '@' delimiter in snapshot name");
        for (from, to) in [("t/a", "t/a@x"), ("t/a@x", "t/a@"), ("@x", "@y"), ("t/a@", "t/a@y")] {
            assert_eq!(full(from, Some(to)), "Unable to determine which snapshots to compare: invalid name");
        }
    }

    #[test]
    fn differences_are_printed_as_openzfs_prints_them() {
        let entry = |became: Became, path: &str| DiffEntry {
            became,
            kind: 'F',
            seconds: 1_700_000_000,
            nanoseconds: 5,
            path: path.to_owned(),
        };
        let header = DiffHeader { mounted_at: "/t".into() };
        let said = |entry: &DiffEntry, style| String::from_utf8(line(&header, entry, style)).unwrap();
        let all = Style { kinds: true, times: true, ..Style::default() };
        assert_eq!(said(&entry(Became::Added, "/a\\0040b"), Style::default()), "+\t/t/a\\0040b\n");
        assert_eq!(said(&entry(Became::Removed, "/a"), all), "1700000000.000000005\t-\tF\t/t/a\n");
        let renamed = entry(Became::Renamed("/b".into()), "/a");
        assert_eq!(said(&renamed, Style::default()), "R\t/t/a -> /t/b\n");
        assert_eq!(said(&renamed, Style { scripted: true, ..Style::default() }), "R\t/t/a\t/t/b\n");
        assert_eq!(said(&entry(Became::Links(1), "/a"), Style::default()), "M\t/t/a\t(+1)\n");
        let plain = Style { plain: true, ..Style::default() };
        assert_eq!(said(&entry(Became::Modified, "/a\\0040\\0134"), plain), "M\t/t/a \\\n");
    }
}
