//! `zpool online`, `offline`, `reopen`, `reguid` and `labelclear`.

use std::path::PathBuf;

use platter_api::messages::ClearLabel;
use platter_api::request::{Changed, PoolChange, PoolOperation, VdevRequest};

use super::add::ashift;
use super::pools::each;
use super::vdev_spec;
use crate::getopt::{Grammar, Parsed, parse};
use crate::out::outln;
use crate::session::{Done, Failure, Session, complain, refused, usage};

fn change(session: &mut Session, pool: &str, change: PoolChange) -> Result<Changed, Failure> {
    Ok(session.operate(pool, PoolOperation::Change(change))?)
}

/// The pool and its devices.
fn operands(parsed: &Parsed) -> Result<(&String, &[String]), Failure> {
    match parsed.operands.as_slice() {
        [] => Err(usage("missing pool name")),
        [_] => Err(usage("missing device name")),
        [pool, devices @ ..] => Ok((pool, devices)),
    }
}

/// Does something with each device, complains and goes on.
fn each_device(devices: &[String], mut action: impl FnMut(&String) -> Result<(), Failure>) -> Done {
    let mut code = 0;
    for device in devices {
        match action(device) {
            Ok(()) => {}
            Err(Failure::Refused(body)) => {
                complain(&body);
                code = 1;
            }
            Err(other) => return Err(other),
        }
    }
    Ok(code)
}

/// `zpool attach [-fsw] [-o property=value] <pool> <device> <new_device>`.
pub fn attach(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "fo:sw", long: &[] }, words).map_err(usage)?;
    join(session, &parsed, false)
}

/// `zpool replace [-fsw] [-o property=value] <pool> <device> [new_device]`.
pub fn replace(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "fo:sw", long: &[] }, words).map_err(usage)?;
    join(session, &parsed, true)
}

fn join(session: &mut Session, parsed: &Parsed, replaces: bool) -> Done {
    let (pool, given, new) = match parsed.operands.as_slice() {
        [] => return Err(usage("missing pool name argument")),
        [_] => return Err(usage("missing <device> specification")),
        [pool, device] if replaces => (pool, device, device),
        [_, _] => return Err(usage("missing <new_device> specification")),
        [pool, device, new] => (pool, device, new),
        _ => return Err(usage("too many arguments")),
    };
    let new = match vdev_spec::parse(std::slice::from_ref(new), true)?.pop() {
        Some(VdevRequest::Leaf(path)) => path,
        _ => return Err(usage("the new device must be a single one")),
    };
    session.check_places(std::slice::from_ref(&new))?;
    // Without a second name both are at the same path.
    let device = if parsed.operands.len() == 2 { new.display().to_string() } else { given.clone() };
    let (force, sequential) = (parsed.has("f"), parsed.has("s"));
    let attach = PoolChange::Attach { device, new, replaces, force, ashift: ashift(parsed)?, sequential };
    change(session, pool, attach)?;
    if parsed.has("w") {
        let activity = if replaces { "replace" } else { "resilver" };
        return super::wait::run(session, &["-t".to_owned(), activity.to_owned(), pool.clone()]);
    }
    Ok(0)
}

/// `zpool detach <pool> <device>`.
pub fn detach(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "", long: &[] }, words).map_err(usage)?;
    match parsed.operands.as_slice() {
        [] => Err(usage("missing pool name argument")),
        [_] => Err(usage("missing <device> specification")),
        [pool, device] => change(session, pool, PoolChange::Detach { device: device.clone() }).map(|_| 0),
        _ => Err(usage("too many arguments")),
    }
}

/// `zpool remove [-npsw] <pool> <device> ...`.
pub fn remove(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "npsw", long: &[] }, words).map_err(usage)?;
    for (option, what) in
        [("s", "there is no removal to be stopped"), ("n", "what it removes needs no memory when it is gone")]
    {
        if parsed.has(option) {
            return Err(refused(format!(
                "zpool remove -{option}: this version removes hot spares, cache devices and logs only, and {what}"
            )));
        }
    }
    let (pool, devices) = match parsed.operands.as_slice() {
        [] => return Err(usage("missing pool name argument")),
        [_] => return Err(usage("missing device")),
        [pool, devices @ ..] => (pool, devices),
    };
    each_device(devices, |device| change(session, pool, PoolChange::Remove { device: device.clone() }).map(|_| ()))
}

/// `zpool online [-e] <pool> <device> ...`.
pub fn online(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "e", long: &[("power", "power")] }, words).map_err(usage)?;
    if parsed.has("power") {
        return Err(refused("zpool online --power: not supported yet"));
    }
    let expand = parsed.has("e");
    let (pool, devices) = operands(&parsed)?;
    each_device(devices, |device| {
        let changed = change(session, pool, PoolChange::Online { device: device.clone(), expand })?;
        match changed.state.as_deref() {
            Some("ONLINE") | None => {}
            Some(state) => {
                outln!("warning: device '{device}' onlined, but remains in faulted state");
                if let Some(reason) = &changed.reason {
                    outln!("{reason}");
                }
                outln!(
                    "{}",
                    if state == "FAULTED" {
                        "use 'zpool clear' to restore a faulted device"
                    } else {
                        "use 'zpool replace' to replace devices that are no longer present"
                    }
                );
            }
        }
        Ok(())
    })
}

/// `zpool offline [--power]|[[-f][-t]] <pool> <device> ...`.
pub fn offline(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "ft", long: &[("power", "power")] }, words).map_err(usage)?;
    if parsed.has("power") {
        return Err(refused("zpool offline --power: not supported yet"));
    }
    let (pool, devices) = operands(&parsed)?;
    let temporary = parsed.has("t");
    each_device(devices, |device| {
        let device = device.clone();
        let how = match parsed.has("f") {
            true => PoolChange::Fault { device, temporary },
            false => PoolChange::Offline { device, temporary },
        };
        change(session, pool, how).map(|_| ())
    })
}

/// `zpool reopen [-n] [pool] ...`.
pub fn reopen(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "n", long: &[] }, words).map_err(usage)?;
    // -n leaves a running scrub alone, which a reopen here always does.
    each(session, &parsed.operands, |session, name| {
        session.operate(name, PoolOperation::Change(PoolChange::Reopen)).map(|_| ())
    })
}

/// A guid as strtoull(3) reads it: what is negative counts back from 2^64.
fn guid(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(digits) => digits.parse::<u64>().ok().map(u64::wrapping_neg),
        None => text.parse().ok(),
    }
}

/// `zpool reguid [-g guid] <pool>`.
pub fn reguid(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "g:", long: &[] }, words).map_err(usage)?;
    let guid = match parsed.last("g") {
        None => None,
        Some(text) => match guid(text) {
            Some(guid) if guid != 0 => Some(guid),
            _ => return Err(usage(format!("invalid GUID: {text}"))),
        },
    };
    match parsed.operands.as_slice() {
        [] => Err(usage("missing pool name")),
        [pool] => change(session, pool, PoolChange::Reguid { guid }).map(|_| 0),
        _ => Err(usage("too many arguments")),
    }
}

/// `zpool labelclear [-f] <vdev>`.
pub fn labelclear(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "f", long: &[] }, words).map_err(usage)?;
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing vdev name")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    let given = std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name));
    let device = if given.exists() || name.contains('/') { given } else { PathBuf::from("/dev").join(name) };
    if !device.exists() {
        return Err(refused(if name.starts_with('/') {
            format!("failed to open {name}: No such file or directory")
        } else {
            format!("failed to find device {name}, try specifying absolute path instead")
        }));
    }
    session.check_places(std::slice::from_ref(&device))?;
    session.ask(ClearLabel { device, force: parsed.has("f") })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::guid;

    #[test]
    fn a_guid_is_read_as_by_strtoull() {
        let table = [
            ("7", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("--1", None),
            ("0xa", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(guid(text), expected, "{text}");
        }
    }
}
