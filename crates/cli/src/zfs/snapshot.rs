//! `zfs snapshot`, `rollback`, `hold`, `release` and `holds`.

use std::collections::BTreeMap;

use platter_api::names::{NAME_MAX, split_snapshot};
use platter_api::snapshots::{GetHolds, HoldSnapshot, RollbackDataset, TakeSnapshots};

use super::create::add_property;
use super::select::{complaint, openable};
use crate::getopt::{Grammar, parse};
use crate::nice;
use crate::out::{out, outln};
use crate::session::{Done, Failure, Session, complain, complain_all, refused, usage};

/// What `zfs snapshot` is asked for.
fn request(words: &[String], command: &str) -> Result<(TakeSnapshots, bool), Failure> {
    let parsed = parse(Grammar { short: "ro:", long: &[] }, words).map_err(usage)?;
    let mut properties = BTreeMap::new();
    for text in parsed.all("o") {
        add_property(&mut properties, text)?;
    }
    if parsed.operands.is_empty() {
        return Err(usage("missing snapshot argument"));
    }
    for name in &parsed.operands {
        let Some((dataset, _)) = split_snapshot(name) else { return Err(usage("")) };
        // As OpenZFS, which says so and then prints its usage.
        if let Some(reason) = complaint(dataset) {
            complain(&platter_api::messages::ErrorBody::new(format!("cannot open '{dataset}': {reason}")));
            return Err(usage(""));
        }
        if let Some(reason) = complaint(name) {
            return Err(refused(format!("cannot create snapshot '{name}': {reason}")));
        }
    }
    let call = TakeSnapshots {
        names: parsed.operands.clone(),
        recursive: parsed.has("r"),
        properties,
        command: command.to_owned(),
    };
    let several = call.recursive || call.names.len() > 1;
    Ok((call, several))
}

/// Runs `zfs snapshot`.
pub fn take(session: &mut Session, words: &[String]) -> Done {
    let (call, several) = request(words, &session.command_line)?;
    match session.ask(call) {
        Ok(outcome) => Ok(complain_all(&outcome.problems)),
        Err(body) => {
            complain(&body);
            if several {
                eprintln!("no snapshots were created");
            }
            Ok(1)
        }
    }
}

/// Runs `zfs rollback`.
pub fn rollback(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "rRf", long: &[] }, words).map_err(usage)?;
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing dataset argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    is_snapshot(name)?;
    let call = RollbackDataset {
        snapshot: name.clone(),
        recursive: parsed.has("r") || parsed.has("R"),
        clones: parsed.has("R"),
        force: parsed.has("f"),
        command: session.command_line.clone(),
    };
    let outcome = session.ask(call)?;
    Ok(complain_all(&outcome.problems))
}

/// Fails unless this is a snapshot's name.
pub(super) fn is_snapshot(name: &str) -> Result<(), Failure> {
    let cannot = |reason: &str| Err(refused(format!("cannot open '{name}': {reason}")));
    match complaint(name) {
        Some(reason) => cannot(&reason),
        None if !name.contains('@') => cannot("missing '@' delimiter in snapshot name"),
        None => Ok(()),
    }
}

/// Runs `zfs hold`.
pub fn hold(session: &mut Session, words: &[String]) -> Done {
    hold_or_release(session, words, false)
}

/// Runs `zfs release`.
pub fn release(session: &mut Session, words: &[String]) -> Done {
    hold_or_release(session, words, true)
}

fn hold_or_release(session: &mut Session, words: &[String], release: bool) -> Done {
    let short = if release { "r" } else { "rt" };
    let parsed = parse(Grammar { short, long: &[] }, words).map_err(usage)?;
    let [tag, names @ ..] = parsed.operands.as_slice() else { return Err(usage("")) };
    if names.is_empty() {
        return Err(usage(""));
    }
    if !release && tag.starts_with('.') {
        return Err(usage("tag may not start with '.'"));
    }
    let mut code = 0;
    for name in names {
        let Some((dataset, own)) = split_snapshot(name) else {
            eprintln!("'{name}' is not a snapshot");
            code = 1;
            continue;
        };
        if let Err(Failure::Refused(body)) = openable(dataset) {
            complain(&body);
            code = 1;
            continue;
        }
        if own.is_empty() || name.len() > NAME_MAX {
            eprintln!("cannot {} snapshot '{name}': dataset does not exist", if release { "release" } else { "hold" });
            code = 1;
            continue;
        }
        let call = HoldSnapshot {
            name: name.clone(),
            tag: tag.clone(),
            recursive: parsed.has("r"),
            release,
            command: session.command_line.clone(),
        };
        match session.ask(call) {
            Ok(outcome) => code = code.max(complain_all(&outcome.problems)),
            Err(body) => {
                complain(&body);
                code = 1;
            }
        }
    }
    Ok(code)
}

/// Runs `zfs holds`.
pub fn holds(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "rHp", long: &[] }, words).map_err(usage)?;
    if parsed.operands.is_empty() {
        return Err(usage(""));
    }
    let (mut rows, mut code) = (Vec::new(), 0);
    for name in &parsed.operands {
        if !name.contains('@') {
            eprintln!("'{name}' is not a snapshot");
            code = 1;
            continue;
        }
        match session.ask(GetHolds { name: name.clone(), recursive: parsed.has("r") }) {
            Ok(found) => rows.extend(found.holds),
            Err(body) => {
                complain(&body);
                code = 1;
            }
        }
    }
    out!("{}", held(&rows, parsed.has("H"), parsed.has("p")));
    if rows.is_empty() {
        eprintln!("no datasets available");
    }
    Ok(code)
}

/// The table of tags (`print_holds`, `cmd/zfs/zfs_main.c`).
fn held(rows: &[(String, BTreeMap<String, u64>)], scripted: bool, literal: bool) -> String {
    let name_width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let tag_width = rows.iter().flat_map(|(_, tags)| tags.keys().map(String::len)).max().unwrap_or(0);
    let line = |name: &str, tag: &str, time: &str| match scripted {
        true => format!("{name}\t{tag}\t{time}\n"),
        false => format!("{name:name_width$}  {tag:tag_width$}  {time}\n"),
    };
    let mut text = if scripted { String::new() } else { line("NAME", "TAG", "TIMESTAMP") };
    for (name, tags) in rows {
        for (tag, time) in tags {
            let time = if literal { time.to_string() } else { nice::held(*time) };
            text.push_str(&line(name, tag, &time));
        }
    }
    text
}

/// What `zfs destroy -v` and `-p` say goes.
pub(super) fn named(names: &[String], parsable: bool, dry_run: bool) {
    for name in names {
        match (parsable, dry_run) {
            (true, _) => outln!("destroy\t{name}"),
            (false, true) => outln!("would destroy {name}"),
            (false, false) => outln!("will destroy {name}"),
        }
    }
}

/// What `zfs destroy -v` and `-p` say of snapshots.
pub(super) fn destroyed(names: &[String], reclaimed: u64, parsable: bool, dry_run: bool) {
    named(names, parsable, dry_run);
    match (parsable, dry_run) {
        (true, _) => outln!("reclaim\t{reclaimed}"),
        (false, true) => outln!("would reclaim {}", nice::bytes(reclaimed)),
        (false, false) => outln!("will reclaim {}", nice::bytes(reclaimed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<(TakeSnapshots, bool), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        request(&words, "zfs snapshot").map_err(|failure| match failure {
            Failure::Usage(message) => message,
            Failure::Refused(body) => body.message,
        })
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let (call, several) = asked("-r -o my:own=x tank/a@b").unwrap();
        assert!(call.recursive && several && call.names == ["tank/a@b"]);
        assert_eq!(call.properties["my:own"], "x");
        assert!(!asked("tank@a").unwrap().1 && asked("tank@a tank/b@a").unwrap().1);
        for (line, reason) in [
            ("", "missing snapshot argument"),
            ("tank", ""),
            ("-x tank@a", "invalid option 'x'"),
            ("tank@a@b", "multiple '@' and/or '#' delimiters in name"),
            ("tank@a*", "invalid character '*' in name"),
        ] {
            let error = asked(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn tags_are_listed_as_openzfs_lists_them() {
        let rows = [("tank@a".to_owned(), BTreeMap::from([("keep".to_owned(), 7), ("x".to_owned(), 8)]))];
        assert_eq!(held(&rows, true, true), "tank@a\tkeep\t7\ntank@a\tx\t8\n");
        assert_eq!(held(&rows, false, true), "NAME    TAG   TIMESTAMP\ntank@a  keep  7\ntank@a  x     8\n");
    }
}
