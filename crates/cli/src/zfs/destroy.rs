//! `zfs destroy`.

use platter_api::messages::DestroyDataset;

use super::select::complaint;
use crate::getopt::{Grammar, parse};
use crate::out::outln;
use crate::session::{Done, Session, complain_all, refused, usage};

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "vpndfrR", long: &[] }, words).map_err(usage)?;
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing dataset argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    if let Some(reason) = complaint(name) {
        return Err(refused(format!("cannot open '{name}': {reason}")));
    }
    if name.contains(['@', '#']) {
        return Err(refused(format!("cannot destroy '{name}': this version has no snapshots and bookmarks yet")));
    }
    if parsed.has("d") {
        return Err(refused(format!("cannot open '{name}': missing '@' delimiter in snapshot name")));
    }
    let call = DestroyDataset {
        name: name.clone(),
        recursive: parsed.has("r") || parsed.has("R"),
        force: parsed.has("f"),
        dry_run: parsed.has("n"),
        command: session.command_line.clone(),
    };
    let dry_run = call.dry_run;
    let answer = session.ask(call)?;
    if parsed.has("v") || parsed.has("p") {
        for name in &answer.destroyed {
            match (parsed.has("p"), dry_run) {
                (true, _) => outln!("destroy\t{name}"),
                (false, true) => outln!("would destroy {name}"),
                (false, false) => outln!("will destroy {name}"),
            }
        }
    }
    Ok(complain_all(&answer.outcome.problems))
}
