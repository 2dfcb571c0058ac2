//! `zfs clone` and `zfs promote`.

use std::collections::BTreeMap;

use platter_api::snapshots::{CloneSnapshot, PromoteDataset};

use super::create::add_property;
use super::select::{complaint, openable, well_formed};
use super::snapshot::is_snapshot;
use crate::getopt::{Grammar, parse};
use crate::ids;
use crate::session::{Done, Failure, Session, complain_all, refused, usage};

fn request(words: &[String], command: &str) -> Result<CloneSnapshot, Failure> {
    let parsed = parse(Grammar { short: "o:pu", long: &[] }, words).map_err(usage)?;
    let mut properties = BTreeMap::new();
    for text in parsed.all("o") {
        add_property(&mut properties, text)?;
    }
    let (snapshot, name) = match parsed.operands.as_slice() {
        [] => return Err(usage("missing source dataset argument")),
        [_] => return Err(usage("missing target dataset argument")),
        [snapshot, name] => (snapshot, name),
        _ => return Err(usage("too many arguments")),
    };
    is_snapshot(snapshot)?;
    well_formed(name, "cannot create")?;
    let quotas =
        ids::take_quotas(&mut properties).map_err(|reason| refused(format!("cannot create '{name}': {reason}")))?;
    let parents = parsed.options.iter().filter(|given| given.name == "p").count();
    Ok(CloneSnapshot {
        snapshot: snapshot.clone(),
        name: name.clone(),
        properties,
        quotas,
        parents: parents > 0,
        parents_unmounted: parents > 1,
        mount: !parsed.has("u"),
        command: command.to_owned(),
    })
}

/// Runs `zfs clone`.
pub fn clone(session: &mut Session, words: &[String]) -> Done {
    let call = request(words, &session.command_line)?;
    let outcome = session.ask(call)?;
    // The clone is there, and that is what was asked for (`zfs_do_clone`, `cmd/zfs/zfs_main.c`).
    complain_all(&outcome.problems);
    Ok(0)
}

/// Runs `zfs promote`.
pub fn promote(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "", long: &[] }, words).map_err(usage)?;
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing clone filesystem argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    if let Some(reason) = complaint(name) {
        return Err(refused(format!("cannot open '{name}': {reason}")));
    }
    openable(name)?;
    let outcome = session.ask(PromoteDataset { name: name.clone(), command: session.command_line.clone() })?;
    Ok(complain_all(&outcome.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_becomes_a_request_or_is_refused() {
        let made = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            request(&words, "zfs clone").map_err(|failure| match failure {
                Failure::Usage(message) => message,
                Failure::Refused(body) => body.message,
            })
        };
        let call = made("-p -o atime=off tank/a@s tank/b").unwrap();
        assert!(call.parents && !call.parents_unmounted && call.mount && call.properties["atime"] == "off");
        assert!(made("-ppu tank/a@s tank/b").is_ok_and(|call| call.parents_unmounted && !call.mount));
        let table = [
            ("", "missing source dataset argument"),
            ("tank/a@s", "missing target dataset argument"),
            ("tank/a@s b c", "too many arguments"),
            ("tank/a tank/b", "missing '@' delimiter in snapshot name"),
            ("tank/a@s tank/b@s", "snapshot delimiter '@' is not expected here"),
            ("-x tank/a@s tank/b", "invalid option 'x'"),
            ("-o atime tank/a@s tank/b", "missing property=value argument"),
        ];
        for (line, expected) in table {
            let error = made(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
