//! `zfs redact`.

use platter_api::streams::Redact;

use super::select::openable;
use crate::getopt::{Grammar, parse};
use crate::session::{Done, Session, complain_all, usage};

/// Runs `zfs redact`.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "", long: &[] }, words).map_err(usage)?;
    let [snapshot, bookmark, others @ ..] = parsed.operands.as_slice() else { return Err(usage("too few arguments")) };
    if others.is_empty() {
        return Err(usage("too few arguments"));
    }
    openable(snapshot.split('@').next().unwrap_or_default())?;
    let call = Redact {
        snapshot: snapshot.clone(),
        bookmark: bookmark.clone(),
        others: others.to_vec(),
        command: session.command_line.clone(),
    };
    Ok(complain_all(&session.ask(call)?.problems))
}
