//! `zfs bookmark`, and `zfs destroy` of one.

use platter_api::streams::{CreateBookmark, DestroyBookmark};

use super::select::complaint;
use crate::getopt::{Grammar, parse};
use crate::session::{Done, Session, complain_all, refused, usage};

/// The bookmark's full name, given with or without the data set's.
fn full(bookmark: &str, source: &str) -> String {
    let dataset = source.split(['@', '#']).next().unwrap_or_default();
    if bookmark.starts_with('#') { format!("{dataset}{bookmark}") } else { bookmark.to_owned() }
}

/// Runs `zfs bookmark`.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "", long: &[] }, words).map_err(usage)?;
    let (source, bookmark) = match parsed.operands.as_slice() {
        [] => return Err(usage("missing source argument")),
        [_] => return Err(usage("missing bookmark argument")),
        [source, bookmark] => (source, bookmark),
        _ => return Err(usage("too many arguments")),
    };
    if !source.contains(['@', '#']) {
        return Err(refused(format!("invalid source name '{source}': must contain a '@' or '#'\nusage:\n")));
    }
    if !bookmark.contains('#') {
        return Err(refused(format!("invalid bookmark name '{bookmark}': must contain a '#'")));
    }
    let source = if source.starts_with(['@', '#']) { full_source(source, bookmark) } else { source.clone() };
    let bookmark = full(bookmark, &source);
    for name in [&source, &bookmark] {
        let plain = name.replacen('#', "@", 1);
        if let Some(reason) = complaint(&plain) {
            return Err(refused(format!("cannot create bookmark '{bookmark}': {reason}")));
        }
    }
    let call = CreateBookmark { source, bookmark, command: session.command_line.clone() };
    Ok(complain_all(&session.ask(call)?.problems))
}

/// A source that is given short, of the bookmark's data set.
fn full_source(source: &str, bookmark: &str) -> String {
    format!("{}{source}", bookmark.split('#').next().unwrap_or_default())
}

/// `zfs destroy` of the bookmark of this name.
pub(super) fn destroy(session: &mut Session, name: &str) -> Done {
    let call = DestroyBookmark { bookmark: name.to_owned(), command: session.command_line.clone() };
    Ok(complain_all(&session.ask(call)?.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_short() {
        assert_eq!(full("#b", "tank/x@a"), "tank/x#b");
        assert_eq!(full("tank/y#b", "tank/x@a"), "tank/y#b");
        assert_eq!(full_source("@a", "tank/x#b"), "tank/x@a");
    }
}
