//! `zfs destroy`.

use platter_api::messages::DestroyDataset;
use platter_api::snapshots::DestroySnapshots;

use super::select::{complaint, openable};
use super::snapshot::{destroyed, named};
use crate::getopt::{Grammar, Parsed, parse};
use crate::session::{Done, Session, complain_all, refused, usage};

/// Destroys snapshots of a data set: names and ranges, which need not be valid names.
fn snapshots(session: &mut Session, parsed: &Parsed, dataset: &str, which: &str) -> Done {
    openable(dataset)?;
    let call = DestroySnapshots {
        dataset: dataset.to_owned(),
        which: which.to_owned(),
        recursive: parsed.has("r") || parsed.has("R"),
        defer: parsed.has("d"),
        clones: parsed.has("R"),
        dry_run: parsed.has("n"),
        command: session.command_line.clone(),
    };
    let dry_run = call.dry_run;
    let answer = session.ask(call)?;
    if parsed.has("v") || parsed.has("p") {
        destroyed(&answer.destroyed, answer.reclaimed, parsed.has("p"), dry_run);
        named(&answer.dependents, parsed.has("p"), dry_run);
    }
    Ok(complain_all(&answer.problems))
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "vpndfrR", long: &[] }, words).map_err(usage)?;
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing dataset argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    if let Some((dataset, which)) = name.split_once('@') {
        return snapshots(session, &parsed, dataset, which);
    }
    if let Some(reason) = complaint(name) {
        return Err(refused(format!("cannot open '{name}': {reason}")));
    }
    if name.contains('#') {
        return super::bookmark::destroy(session, name);
    }
    if parsed.has("d") {
        return Err(refused(format!("cannot open '{name}': missing '@' delimiter in snapshot name")));
    }
    let call = DestroyDataset {
        name: name.clone(),
        recursive: parsed.has("r") || parsed.has("R"),
        clones: parsed.has("R"),
        force: parsed.has("f"),
        dry_run: parsed.has("n"),
        command: session.command_line.clone(),
    };
    let dry_run = call.dry_run;
    let answer = session.ask(call)?;
    if parsed.has("v") || parsed.has("p") {
        named(&answer.destroyed, parsed.has("p"), dry_run);
    }
    Ok(complain_all(&answer.outcome.problems))
}
