//! `zfs rename`.

use platter_api::messages::RenameDataset;
use platter_api::snapshots::RenameSnapshot;

use super::select::{complaint, openable, well_formed};
use crate::getopt::{Grammar, Parsed, parse};
use crate::session::{Done, Failure, Session, complain_all, refused, usage};

/// What is to be renamed.
#[derive(Debug)]
enum Wanted {
    Dataset(RenameDataset),
    Snapshot(RenameSnapshot),
}

/// A snapshot's new name may be given in full, or without the data set's (`zfs_rename`, `lib/libzfs`).
fn snapshot(parsed: &Parsed, from: &str, to: &str, command_line: &str) -> Result<RenameSnapshot, Failure> {
    if let Some(reason) = complaint(from) {
        return Err(refused(format!("cannot open '{from}': {reason}")));
    }
    let dataset = from.split('@').next().unwrap_or_default();
    let full = match to.split_once('@') {
        None => format!("{dataset}@{to}"),
        Some(("", own)) => format!("{dataset}@{own}"),
        Some((other, _)) if other == dataset => to.to_owned(),
        Some(_) => return Err(refused(format!("cannot rename to '{to}': snapshots must be part of same dataset"))),
    };
    if let Some(reason) = complaint(&full) {
        return Err(refused(format!("cannot rename to '{full}': {reason}")));
    }
    let recursive = parsed.has("r");
    Ok(RenameSnapshot { from: from.to_owned(), to: full, recursive, command: command_line.to_owned() })
}

fn request(words: &[String], command_line: &str) -> Result<Wanted, Failure> {
    let parsed = parse(Grammar { short: "pruf", long: &[] }, words).map_err(usage)?;
    let (from, to) = match parsed.operands.as_slice() {
        [] => return Err(usage("missing source dataset argument")),
        [_] => return Err(usage("missing target dataset argument")),
        [from, to] => (from, to),
        _ => return Err(usage("too many arguments")),
    };
    if parsed.has("r") && parsed.has("p") {
        return Err(usage("-p and -r options are mutually exclusive"));
    }
    if parsed.has("u") && parsed.has("p") {
        return Err(usage("-u and -p options are mutually exclusive"));
    }
    if parsed.has("r") && !from.contains('@') {
        return Err(usage("source dataset for recursive rename must be a snapshot"));
    }
    if parsed.has("p") || parsed.has("u") {
        openable(from)?;
    }
    if from.contains('@') {
        return snapshot(&parsed, from, to, command_line).map(Wanted::Snapshot);
    }
    openable(from)?;
    well_formed(to, "cannot rename to")?;
    let parents = parsed.options.iter().filter(|given| given.name == "p").count();
    Ok(Wanted::Dataset(RenameDataset {
        from: from.clone(),
        to: to.clone(),
        parents: parents > 0,
        parents_unmounted: parents > 1,
        force: parsed.has("f"),
        no_mount: parsed.has("u"),
        command: command_line.to_owned(),
    }))
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let outcome = match request(words, &session.command_line)? {
        Wanted::Dataset(call) => session.ask(call)?,
        Wanted::Snapshot(call) => session.ask(call)?,
    };
    Ok(complain_all(&outcome.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_a_request_or_is_refused() {
        let made = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            request(&words, "zfs rename").map_err(|failure| match failure {
                Failure::Usage(message) => message,
                Failure::Refused(body) => body.message,
            })
        };
        let Ok(Wanted::Dataset(call)) = made("-pf tank/a tank/b/c") else { panic!("it is a file system's") };
        assert!(call.parents && call.force && !call.no_mount);
        assert_eq!((call.from.as_str(), call.to.as_str()), ("tank/a", "tank/b/c"));
        for to in ["tank/a@t", "@t", "t"] {
            let Ok(Wanted::Snapshot(call)) = made(&format!("-r tank/a@s {to}")) else { panic!("{to}") };
            assert!(call.recursive && call.to == "tank/a@t", "{to}");
        }
        let table = [
            ("tank/a", "missing target dataset argument"),
            ("-u -p a b", "mutually exclusive"),
            ("tank/a@s tank/b@t", "snapshots must be part of same dataset"),
            ("-r tank/a tank/b", "must be a snapshot"),
            ("-r -p tank/a@s tank/b@s", "-p and -r options are mutually exclusive"),
            ("tank/a tank/b@s", "snapshot delimiter '@' is not expected here"),
            ("-p tank/a@s tank/a@t", "cannot open 'tank/a@s': snapshot delimiter '@' is not expected here"),
            ("tank/ tank/b", "cannot open 'tank/': trailing slash in name"),
            ("a b c", "too many arguments"),
            ("tank/a tank/b/", "trailing slash"),
        ];
        for (line, expected) in table {
            let error = made(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
