//! `zfs send`.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use platter_api::streams::{Package, SendStream, SentStream};
use platter_daemon::guest_pipe::Way;
use platter_stream::ResumeToken;

use super::select::openable;
use crate::getopt::{Given, Grammar, Parsed, parse};
use crate::nice;
use crate::session::{Done, Failure, Session, complain, refused, usage};

const GRAMMAR: Grammar = Grammar {
    short: ":i:I:RsDpVvnPLeht:cwbd:SX:U",
    long: &[
        ("replicate", "R"),
        ("skip-missing", "s"),
        ("props", "p"),
        ("parsable", "P"),
        ("dedup", "D"),
        ("proctitle", "V"),
        ("verbose", "v"),
        ("dryrun", "n"),
        ("large-block", "L"),
        ("embed", "e"),
        ("compressed", "c"),
        ("raw", "w"),
        ("backup", "b"),
        ("holds", "h"),
        ("exclude", "X"),
        ("redact", "d"),
        ("saved", "S"),
        ("no-preserve-encryption", "U"),
    ],
};

/// What `zfs send` is asked for, and how it tells of it.
struct Asked {
    call: SendStream,
    verbosity: usize,
    parsable: bool,
    dry_run: bool,
}

/// The full name of an incremental source that is given short.
fn since(given: &str, target: &str) -> String {
    let dataset = target.split('@').next().unwrap_or_default();
    if given.starts_with(['@', '#']) { format!("{dataset}{given}") } else { given.to_owned() }
}

/// The full name of a redaction bookmark: of the data set that is sent, however it is given.
fn redaction(given: &str, target: &str) -> String {
    let dataset = target.split('@').next().unwrap_or_default();
    format!("{dataset}#{}", given.rsplit('#').next().unwrap_or_default())
}

fn asked(words: &[String]) -> Result<Asked, Failure> {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let has = |name: &str| parsed.has(name);
    if has("D") {
        eprintln!(
            "WARNING: deduplicated send is no longer supported.  A regular,\nnon-deduplicated stream will be \
             generated.\n"
        );
    }
    check_operands(&parsed)?;
    let raw = has("w");
    let target = parsed.operands.first().cloned().unwrap_or_default();
    let several = has("R") || has("I");
    let given = parsed.last("i").or(parsed.last("I")).map(|given| {
        if given.contains(['@', '#']) {
            return given.to_owned();
        }
        if several {
            return format!("@{given}");
        }
        eprintln!(
            "Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to avoid \
             ambiguity."
        );
        format!("@{given}")
    });
    let verbosity = parsed.options.iter().filter(|Given { name, .. }| name == "v").count();
    let quiet = verbosity == 0 && (has("P") || has("V"));
    Ok(Asked {
        call: SendStream {
            since: given.map(|given| since(&given, &target)),
            snapshot: target.clone(),
            saved: has("S"),
            large_blocks: has("L") || raw,
            embedded: has("e") || raw,
            compressed: has("c") || raw,
            redact: parsed.last("d").map(|bookmark| redaction(bookmark, &target)),
            token: parsed.last("t").map(str::to_owned),
            package: (several || has("p") || has("b") || has("h")).then(|| package(&parsed)),
            descriptor: None,
        },
        verbosity: if quiet { 1 } else { verbosity },
        parsable: has("P"),
        dry_run: has("n"),
    })
}

/// What a stream of several snapshots has. All of them are sent from the first on.
fn package(parsed: &Parsed) -> Package {
    let has = |name: &str| parsed.has(name);
    let has_from = has("i") || has("I");
    Package {
        all_between: has("I") || has("R") && !has_from,
        replicate: has("R"),
        properties: has("p"),
        backup: has("b"),
        holds: has("h"),
        without: parsed.all("X").flat_map(|list| list.split(',')).map(str::to_owned).collect(),
        skip_missing: has("s"),
    }
}

fn check_operands(parsed: &Parsed) -> Result<(), Failure> {
    let has = |name: &str| parsed.has(name);
    if has("R") || has("I") {
        let given = parsed.last("i").or(parsed.last("I")).unwrap_or_default();
        if given.contains('#') {
            return Err(refused("Error: multiple snapshots cannot be sent from a bookmark."));
        }
    }
    if has("X") && !has("R") {
        return Err(refused("Cannot specify dataset exclusion (-X) on a non-recursive send."));
    }
    let sources = parsed.options.iter().filter(|given| given.name == "i" || given.name == "I").count();
    if sources > 1 {
        return Err(usage(""));
    }
    if has("t") {
        if ["i", "I", "R", "p", "b", "h", "S", "d"].into_iter().any(has) {
            return Err(usage("invalid flags combined with -t"));
        }
        if !parsed.operands.is_empty() {
            return Err(usage("too many arguments"));
        }
    } else if parsed.operands.len() != 1 {
        let what = if parsed.operands.is_empty() { "missing snapshot argument" } else { "too many arguments" };
        return Err(usage(what));
    }
    let is_head = parsed.operands.first().is_some_and(|name| !name.contains('@'));
    if has("S") {
        if ["i", "I", "R", "p", "b", "h", "L", "e", "c", "w", "d"].into_iter().any(has) {
            return Err(usage("incompatible flags combined with saved send flag"));
        }
        if !is_head {
            return Err(usage("saved send must specify the dataset with partially-received state"));
        }
    }
    if has("w") && has("d") {
        return Err(refused("Error: raw sends may not be redacted."));
    }
    if has("d") && (has("R") || has("I")) {
        return Err(refused("Error: multiple snapshots cannot be sent redacted."));
    }
    if has("d") && is_head && !has("t") {
        let name = parsed.operands.first().map_or("", String::as_str);
        return Err(refused(format!("warning: cannot send '{name}': cannot do a redacted send to a filesystem")));
    }
    if is_head && (has("R") || has("I")) {
        return Err(refused("Error: Unsupported flag with filesystem or bookmark."));
    }
    if has("s") && !has("R") {
        return Err(usage("skip-missing flag can only be used in conjunction with replicate"));
    }
    Ok(())
}

/// What `-v` says before (`send_print_verbose`, `estimate_size`, `lib/libzfs/libzfs_sendrecv.c`).
fn announced(sent: &SentStream, parsable: bool) -> String {
    let one = [(sent.snapshot.clone(), sent.since.clone(), sent.estimate)];
    let parts = if sent.parts.is_empty() { &one[..] } else { &sent.parts[..] };
    let mut text = String::new();
    for (snapshot, since, estimate) in parts {
        text.push_str(&match (since, parsable) {
            (Some(since), true) => format!("incremental\t{since}\t{snapshot}\t{estimate}\n"),
            (None, true) => format!("full\t{snapshot}\t{estimate}\n"),
            (Some(since), false) => {
                format!("send from {since} to {snapshot} estimated size is {}\n", nice::bytes(*estimate))
            }
            (None, false) => format!("full send of {snapshot} estimated size is {}\n", nice::bytes(*estimate)),
        });
    }
    let total: u64 = parts.iter().map(|(_, _, estimate)| estimate).sum();
    text.push_str(&match parsable {
        true => format!("size\t{total}\n"),
        false => format!("total estimated size is {}\n", nice::bytes(total)),
    });
    text
}

/// One line of progress.
fn progress(snapshot: &str, bytes: u64, parsable: bool, time: &str) -> String {
    match parsable {
        true => format!("{time}\t{bytes}\t{snapshot}"),
        false => format!("{time}   {:>5}   {snapshot}", nice::bytes(bytes)),
    }
}

/// What `zfs send -t` ends with when it fails, and programs look at (`zfs_send_resume` answers -1).
const RESUMING_FAILED: u8 = 255;

/// Runs `zfs send`.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let asked = asked(words)?;
    let resumes = asked.call.token.is_some();
    match send(session, asked) {
        Err(Failure::Refused(body)) if resumes => {
            complain(&body);
            Ok(RESUMING_FAILED)
        }
        done => done,
    }
}

fn send(session: &mut Session, asked: Asked) -> Done {
    let Asked { call, verbosity, parsable, dry_run } = asked;
    if !dry_run && std::io::stdout().is_terminal() {
        return Err(refused("Error: Stream can not be written to a terminal.\nYou must redirect standard output."));
    }
    match &call.token {
        Some(token) => {
            let token = ResumeToken::parse(token).map_err(|error| {
                let text = error.to_string();
                let text = text.trim_start_matches("invalid stream (").trim_end_matches(')');
                refused(format!("cannot resume send: {text}"))
            })?;
            if verbosity > 0 {
                tell(&format!("resume token contents:\n{}", shown(&token)), dry_run);
            }
        }
        None => {
            openable(call.snapshot.split('@').next().unwrap_or_default())?;
        }
    }
    if dry_run || verbosity > 0 {
        let estimated = session.ask(call.clone())?;
        if verbosity > 0 {
            estimated.younger.iter().for_each(|passed| eprintln!("{passed}"));
            tell(&announced(&estimated, parsable), dry_run);
        }
        if dry_run {
            return Ok(left_out(&estimated));
        }
        if !parsable {
            eprintln!("TIME        SENT   SNAPSHOT {}", estimated.snapshot);
        }
    }
    let name = call.snapshot.clone();
    let stdout = std::io::stdout();
    let begin = |descriptor| SendStream { descriptor: Some(descriptor), ..call };
    let sent = session.stream((stdout.as_fd(), Way::Out), begin, |bytes| {
        if verbosity > 0 {
            let time = chrono::Local::now().format("%H:%M:%S").to_string();
            eprintln!("{}", progress(&name, bytes, parsable, &time));
        }
    })?;
    Ok(left_out(&sent))
}

/// Tells what is not in the stream; the exit code. What was to be passed over is no failure.
fn left_out(sent: &SentStream) -> u8 {
    sent.warnings.iter().chain(&sent.failed).for_each(|warning| eprintln!("{warning}"));
    u8::from(!sent.failed.is_empty())
}

fn tell(text: &str, dry_run: bool) {
    if dry_run {
        crate::out::out!("{text}");
    } else {
        eprint!("{text}");
    }
}

/// A token's list as `nvlist_print` shows it.
fn shown(token: &ResumeToken) -> String {
    let mut text = "nvlist version: 0\n".to_owned();
    for (name, value) in token.to_list().iter() {
        use platter_nvlist::Value;
        match value {
            Value::Uint64(number) => text.push_str(&format!("\t{name} = {number:#x}\n")),
            Value::String(string) => text.push_str(&format!("\t{name} = {string}\n")),
            _ => text.push_str(&format!("\t{name} = 1\n")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Asked, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        asked(&words).map_err(|failure| match failure {
            Failure::Usage(message) => message,
            Failure::Refused(body) => body.message,
        })
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let asked = of("-wvv -i @a tank/x@b").unwrap();
        assert_eq!((asked.call.since.as_deref(), asked.verbosity), (Some("tank/x@a"), 2));
        assert!(asked.call.large_blocks && asked.call.embedded && asked.call.compressed);
        assert_eq!(of("-i #m tank@b").unwrap().call.since.as_deref(), Some("tank#m"));
        assert_eq!(of("-i a tank@b").unwrap().call.since.as_deref(), Some("tank@a"));
        assert_eq!(of("-i other@a tank@b").unwrap().call.since.as_deref(), Some("other@a"));
        for (line, reason) in [
            ("", "missing snapshot argument"),
            ("a@b c@d", "too many arguments"),
            ("-t x -i a", "invalid flags combined with -t"),
            ("-i a -i b t@c", ""),
            ("-i", "missing argument for 'i' option"),
            ("-s t@c", "skip-missing flag can only be used in conjunction with replicate"),
            ("-X a/b t@c", "Cannot specify dataset exclusion (-X) on a non-recursive send."),
        ] {
            let error = of(line).err().unwrap();
            assert_eq!(error, reason, "{line}");
        }
    }

    #[test]
    fn what_is_sent_is_told_as_openzfs_tells_it() {
        let mut sent = SentStream { snapshot: "t@b".into(), estimate: 1 << 20, ..SentStream::default() };
        assert_eq!(announced(&sent, false), "full send of t@b estimated size is 1M\ntotal estimated size is 1M\n");
        sent.since = Some("t@a".into());
        assert_eq!(announced(&sent, true), "incremental\tt@a\tt@b\t1048576\nsize\t1048576\n");
        assert_eq!(progress("t@b", 1 << 20, false, "12:00:00"), "12:00:00      1M   t@b");
    }
}
