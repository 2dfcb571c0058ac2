//! `zpool history`.

use std::fmt::Write;

use platter_api::messages::GetHistory;
use platter_api::report::HistoryEntry;

use super::pools::{each, names};
use crate::getopt::{Grammar, parse};
use crate::nice;
use crate::out::out;
use crate::session::{Done, Session, usage};

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "li", long: &[] }, words).map_err(usage)?;
    let (long, internal) = (parsed.has("l"), parsed.has("i"));
    if parsed.operands.is_empty() && names(session, &[])?.is_empty() {
        eprintln!("no pools available");
        return Ok(0);
    }
    each(session, &parsed.operands, |session, name| {
        let entries = session.ask(GetHistory { pool: name.to_owned() })?;
        out!("{}", text(name, &entries, long, internal));
        Ok(())
    })
}

fn text(pool: &str, entries: &[HistoryEntry], long: bool, internal: bool) -> String {
    let mut out = format!("History for '{pool}':\n");
    for entry in entries.iter().filter(|entry| internal || !entry.internal) {
        let _ = write!(out, "{}", nice::history(entry.time));
        match entry.txg {
            Some(txg) if entry.internal => {
                let _ = write!(out, " [txg:{txg}] {}", entry.text);
            }
            _ => {
                let _ = write!(out, " {}", entry.text);
            }
        }
        if long {
            out.push_str(" [");
            if let Some((user, host, zone)) = &entry.who {
                let _ = write!(out, "user {user} ");
                if let Some(name) = user_name(*user) {
                    let _ = write!(out, "({name}) ");
                }
                let _ = write!(out, "on {host}");
                if !zone.is_empty() {
                    let _ = write!(out, ":{zone}");
                }
            }
            out.push(']');
        }
        out.push('\n');
    }
    out.push('\n');
    out
}

fn user_name(user: u64) -> Option<String> {
    let text = std::fs::read_to_string("/etc/passwd").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_shown_as_openzfs_shows_them() {
        let entry = |text: &str, internal, txg| HistoryEntry {
            time: 1_795_218_000,
            text: text.into(),
            internal,
            who: Some((4_000_000_000, "host".into(), "linux".into())),
            txg,
        };
        let entries = [entry("zpool create tank d0", false, None), entry("create tank/a (68)", true, Some(9))];
        let time = nice::history(1_795_218_000);
        assert_eq!(
            text("tank", &entries, false, false),
            format!("History for 'tank':\n{time} zpool create tank d0\n\n")
        );
        assert_eq!(
            text("tank", &entries, true, true),
            format!(
                "History for 'tank':\n{time} zpool create tank d0 [user 4000000000 on host:linux]\n\
                 {time} [txg:9] create tank/a (68) [user 4000000000 on host:linux]\n\n"
            )
        );
    }
}
