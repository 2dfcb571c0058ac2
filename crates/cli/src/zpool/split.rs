//! `zpool split`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use platter_api::pool_properties;
use platter_api::properties;
use platter_api::request::VdevRequest;
use platter_api::splits::{SplitPool, SplitRequest};

use super::names::Naming;
use super::{layout, vdev_spec};
use crate::getopt::{Grammar, Parsed, parse};
use crate::out::{out, outln};
use crate::session::{Done, Failure, Session, complain_all, refused, usage};

const GRAMMAR: Grammar = Grammar { short: ":gLR:lno:P", long: &[] };

/// Words that begin a group of devices (`is_grouping`, `cmd/zpool/zpool_vdev.c`).
fn is_grouping(word: &str) -> bool {
    let numbered =
        |kind: &str| word.strip_prefix(kind).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    numbered("raidz")
        || word
            .strip_prefix("draid")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit() || c == ':'))
        || matches!(word, "mirror" | "spare" | "log" | "cache" | "special" | "dedup")
}

/// Adds what `-o` or `-R` says; what is no property makes no sense.
fn add(list: &mut BTreeMap<String, String>, name: &str, value: &str) -> Result<(), Failure> {
    let is_known =
        pool_properties::by_name(name).is_some() || properties::is_user(name) || name.starts_with("feature@");
    if !is_known {
        return Err(usage(format!("property '{name}' is not a valid pool or vdev property")));
    }
    match list.insert(name.to_owned(), value.to_owned()) {
        Some(_) => Err(usage(format!("property '{name}' specified multiple times"))),
        None => Ok(()),
    }
}

/// The devices that are to leave, as the engine finds them.
fn devices(words: &[String]) -> Result<Vec<PathBuf>, Failure> {
    if let Some(word) = words.iter().find(|word| is_grouping(word)) {
        return Err(refused(format!("Cannot use '{word}' as a device for splitting")));
    }
    let mut devices = Vec::new();
    for word in words {
        match vdev_spec::parse(std::slice::from_ref(word), true) {
            Ok(mut vdevs) => devices.extend(vdevs.pop().iter().flat_map(VdevRequest::leaves).cloned()),
            Err(Failure::Refused(body)) => {
                return Err(refused(format!("{}\nUnable to build a pool from the specified devices", body.message)));
            }
            Err(other) => return Err(other),
        }
    }
    Ok(devices)
}

/// What a command line asks for, with everything checked that needs no daemon.
fn request(parsed: &Parsed, command_line: &str) -> Result<SplitPool, Failure> {
    let (mut list, mut mount_options) = (BTreeMap::new(), None);
    for given in &parsed.options {
        match (given.name.as_str(), given.argument.split_once('=')) {
            ("R", _) => add(&mut list, "altroot", &given.argument)?,
            ("o", Some((name, value))) => add(&mut list, name, value)?,
            ("o", None) => mount_options = Some(given.argument.clone()),
            _ => {}
        }
    }
    let imports = parsed.has("R");
    if mount_options.is_some() && !imports {
        return Err(usage("setting mntopts is only valid when importing the pool"));
    }
    if parsed.has("l") && !imports {
        return Err(usage("loading keys is only valid when importing the pool"));
    }
    let (pool, new_name, words) = match parsed.operands.as_slice() {
        [] => return Err(usage("Missing pool name")),
        [_] => return Err(usage("Missing new pool name")),
        [pool, new_name, words @ ..] => (pool, new_name, words),
    };
    let read_only = match mount_options {
        None => false,
        Some(options) if options == "ro" => true,
        Some(options) => {
            return Err(refused(format!("zpool split -o {options}: mount options are not supported yet")));
        }
    };
    let altroot = list.remove("altroot");
    if let Some(root) = altroot.as_ref().filter(|root| !root.starts_with('/')) {
        return Err(refused(format!("Unable to split {pool}: bad alternate root '{root}'")));
    }
    Ok(SplitPool {
        pool: pool.clone(),
        request: SplitRequest {
            new_name: new_name.clone(),
            devices: devices(words)?,
            properties: list,
            dry_run: parsed.has("n"),
        },
        altroot: altroot.filter(|_| imports).map(PathBuf::from),
        read_only,
        command: command_line.to_owned(),
    })
}

/// `zpool split [-gLnPl] [-R altroot] [-o mntopts] [-o property=value] <pool> <newpool> [<device> ...]`.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    let call = request(&parsed, &session.command_line)?;
    session.check_places(&call.request.devices)?;
    let (dry_run, new_name) = (call.request.dry_run, call.request.new_name.clone());
    let done = session.ask(call)?;
    if dry_run {
        outln!("would create '{new_name}' with the following layout:\n");
        out!("{}", layout::tree_named(&done.split.layout, Naming::from(&parsed)));
        return Ok(0);
    }
    let code = complain_all(&done.outcome.problems);
    if complain_all(&done.unmounted) != 0 {
        // The split itself went well, and OpenZFS's exit code says that.
        eprintln!("Split was successful, but some datasets could not be mounted");
        eprintln!("Try doing 'zpool import' with a different altroot");
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &str) -> Result<SplitPool, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        request(&parse(GRAMMAR, &words).map_err(usage)?, "zpool split")
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let call = made("-o comment=x -R /mnt -o ro -l tank new").unwrap();
        assert_eq!((call.pool.as_str(), call.request.new_name.as_str()), ("tank", "new"));
        assert_eq!(call.request.properties, BTreeMap::from([("comment".to_owned(), "x".to_owned())]));
        assert_eq!((call.altroot, call.read_only), (Some(PathBuf::from("/mnt")), true));
        let call = made("-gLnP -o altroot=/x tank new").unwrap();
        assert!(call.request.dry_run && call.altroot.is_none(), "only -R imports");
    }

    /// As in OpenZFS's test `zpool_split_cliargs`.
    #[test]
    fn nonsense_is_refused_before_any_daemon_is_asked() {
        let table = [
            ("-f tank new", 2, "invalid option 'f'"),
            ("-Pp tank new", 2, "invalid option 'p'"),
            ("-l tank new", 2, "loading keys is only valid when importing the pool"),
            ("-o ro tank new", 2, "setting mntopts is only valid when importing the pool"),
            ("tank", 2, "Missing new pool name"),
            ("", 2, "Missing pool name"),
            ("-R", 2, "missing argument for 'R' option"),
            ("-o comment=a -o comment=b tank new", 2, "specified multiple times"),
            ("-o propname=x tank new", 2, "not a valid pool or vdev property"),
            ("-R dir tank new", 1, "Unable to split tank: bad alternate root 'dir'"),
            ("tank new mirror /a /b", 1, "Cannot use 'mirror' as a device for splitting"),
            ("tank new /no/such/file", 1, "Unable to build a pool from the specified devices"),
        ];
        for (line, code, expected) in table {
            let (found, message) = match made(line).unwrap_err() {
                Failure::Usage(message) => (2, message),
                Failure::Refused(body) => (1, body.message),
            };
            assert!(found == code && message.contains(expected), "{line}: {found} {message}");
        }
    }
}
