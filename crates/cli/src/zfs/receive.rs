//! `zfs receive`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Instant;

use platter_api::properties::{find, is_read_only, is_user};
use platter_api::streams::{AbortReceive, ReceiveStream, ReceivedName};
use platter_daemon::guest_pipe::Way;

use super::create::add_property;
use super::select::{complaint, openable};
use crate::getopt::{Grammar, parse};
use crate::nice;
use crate::out::outln;
use crate::session::{Done, Failure, Session, complain_all, refused, usage};

/// What `zfs receive` is asked for.
enum Asked {
    Abort(String),
    Receive { call: ReceiveStream, verbose: bool },
}

/// A property's full name.
fn plain(name: &str) -> String {
    find(name).map_or(name, |native| native.name).to_owned()
}

/// The properties of `-x` (`parsepropname`, `cmd/zfs/zfs_main.c`; `zfs_receive_checkprops`).
fn left_out<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<String>, Failure> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if name.contains('=') {
            return Err(usage("invalid character '=' in property argument"));
        }
        let plain = plain(name);
        if all.contains(&plain) {
            return Err(usage(format!("property '{name}' specified multiple times")));
        }
        if !is_user(&plain) && (find(&plain).is_none() || is_read_only(&plain)) {
            return Err(refused(format!("cannot receive: invalid property '{name}'")));
        }
        all.push(plain);
    }
    Ok(all)
}

fn asked(words: &[String], command: &str) -> Result<Asked, Failure> {
    let parsed = parse(Grammar { short: ":o:x:dehMnuvFsAc", long: &[] }, words).map_err(usage)?;
    let has = |name: &str| parsed.has(name);
    let (mut properties, mut origin) = (BTreeMap::new(), None);
    let without = left_out(parsed.all("x"))?;
    for text in parsed.all("o") {
        match text.strip_prefix("origin=") {
            Some(name) => origin = Some(name.to_owned()),
            None => add_property(&mut properties, text)?,
        }
    }
    if let Some(name) = properties.keys().find(|name| without.contains(&plain(name))) {
        return Err(usage(format!("property '{name}' specified multiple times")));
    }
    if has("d") && has("e") {
        return Err(usage("invalid option combination: -d and -e are mutually exclusive"));
    }
    let target = match parsed.operands.as_slice() {
        [] => return Err(usage("missing snapshot argument")),
        [target] => target.clone(),
        _ => return Err(usage("too many arguments")),
    };
    if has("A") {
        let others = parsed.options.iter().any(|given| given.name != "A");
        if others {
            return Err(usage("invalid option with -A"));
        }
        return Ok(Asked::Abort(target));
    }
    if let Some(reason) = complaint(&target) {
        return Err(refused(format!("cannot receive: {reason}")));
    }
    let named = match (has("d"), has("e")) {
        (true, _) => ReceivedName::WithoutPool,
        (_, true) => ReceivedName::Tail,
        _ => ReceivedName::Own,
    };
    let call = ReceiveStream {
        target,
        named,
        force: has("F"),
        heal: has("c"),
        resumable: has("s"),
        unmounted: has("u"),
        dry_run: has("n"),
        without_holds: has("h"),
        properties,
        without,
        origin,
        descriptor: String::new(),
        command: command.to_owned(),
    };
    Ok(Asked::Receive { call, verbose: has("v") })
}

/// Runs `zfs receive`.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let (call, verbose) = match asked(words, &session.command_line)? {
        Asked::Abort(target) => {
            openable(&target)?;
            let call = AbortReceive { target, command: session.command_line.clone() };
            return Ok(complain_all(&session.ask(call)?.problems));
        }
        Asked::Receive { call, verbose } => (call, verbose),
    };
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(refused(
            "Error: Backup stream can not be read from a terminal.\nYou must redirect standard input.",
        ));
    }
    let (begun, dry_run) = (Instant::now(), call.dry_run);
    let received =
        session.stream((stdin.as_fd(), Way::In), |descriptor| ReceiveStream { descriptor, ..call }, |_| {})?;
    for part in received.parts.iter().filter(|_| verbose) {
        let kind = if part.incremental { "incremental" } else { "full" };
        let doing = if dry_run { "would receive" } else { "receiving" };
        let corrective = if part.healed.is_some() { "corrective " } else { "" };
        outln!("{doing} {corrective}{kind} stream of {} into {}", part.sent_as, part.snapshot);
        if part.was_there {
            outln!("snap {} already exists; ignoring", part.snapshot);
        } else if !dry_run {
            let seconds = begun.elapsed().as_secs_f64().max(1e-9);
            let rate = nice::bytes((part.bytes as f64 / seconds) as u64);
            outln!("received {} stream in {seconds:.2} seconds ({rate}/sec)", nice::bytes(part.bytes));
            if let Some(healed) = part.healed {
                outln!("{healed} damaged blocks healed");
            }
        }
    }
    Ok(complain_all(&received.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Asked, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        asked(&words, "zfs receive").map_err(|failure| match failure {
            Failure::Usage(message) => message,
            Failure::Refused(body) => body.message,
        })
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let Ok(Asked::Receive { call, verbose }) = of("-Fuvs -o compression=off -d tank/x") else { panic!() };
        assert!(call.force && call.unmounted && call.resumable && verbose && !call.dry_run);
        assert_eq!((call.named, &*call.properties["compression"]), (ReceivedName::WithoutPool, "off"));
        assert!(matches!(of("-A tank/x"), Ok(Asked::Abort(name)) if name == "tank/x"));
        for (line, reason) in [
            ("", "missing snapshot argument"),
            ("a b", "too many arguments"),
            ("-d -e a", "invalid option combination: -d and -e are mutually exclusive"),
            ("-A -v a", "invalid option with -A"),
        ] {
            assert_eq!(of(line).err().unwrap(), reason, "{line}");
        }
    }
}
