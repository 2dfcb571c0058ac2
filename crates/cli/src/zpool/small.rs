//! `zpool` commands of a few lines each: destroy, export, clear, set, sync, version.

use platter_api::messages::{ClosePool, Closing, ErrorKind, ListPools};
use platter_api::report::Detail;
use platter_api::request::PoolOperation;
use serde_json::json;

use super::get_vdev;
use super::pools::{each, view};
use crate::getopt::{Grammar, parse};
use crate::json;
use crate::out::outln;
use crate::session::{Done, Session, refused, usage};

/// With what `zpool set` ends when there is no such vdev (`zpool_do_set`).
const EINVAL: u8 = 22;

/// `zpool destroy [-f] <pool>`.
pub fn destroy(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "f", long: &[] }, words).map_err(usage)?;
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing pool argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    if name.contains('/') {
        return Err(refused(format!(
            "cannot open '{name}': invalid character '/' in pool name\nuse 'zfs destroy' to destroy a dataset"
        )));
    }
    let (pool, closing, force) = (name.clone(), Closing::Destroy, parsed.has("f"));
    session.ask(ClosePool { pool, closing, force, command: session.command_line.clone() })?;
    Ok(0)
}

/// `zpool export [-af] <pool> ...`.
pub fn export(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "afF", long: &[] }, words).map_err(usage)?;
    if parsed.has("F") {
        return Err(refused("zpool export -F: not supported yet"));
    }
    let mut pools = parsed.operands.clone();
    if parsed.has("a") {
        if !pools.is_empty() {
            return Err(usage("too many arguments"));
        }
        pools = session.ask(ListPools {})?.pools;
        if pools.is_empty() {
            return Ok(0);
        }
    } else if pools.is_empty() {
        return Err(usage("missing pool argument"));
    }
    let (closing, force, command) = (Closing::Export, parsed.has("f"), session.command_line.clone());
    each(session, &pools, |session, name| {
        let outcome = session.ask(ClosePool { pool: name.to_owned(), closing, force, command: command.clone() })?;
        // Giving up is what was asked for.
        outcome.problems.iter().for_each(|problem| eprintln!("{problem}"));
        Ok(())
    })
}

/// `zpool clear [-nF] <pool> [device]`.
pub fn clear(session: &mut Session, words: &[String]) -> Done {
    let grammar = Grammar { short: "FnX", long: &[("power", "power")] };
    let parsed = parse(grammar, words).map_err(usage)?;
    if parsed.has("F") || parsed.has("X") {
        return Err(refused("zpool clear -F: rewinding a pool is not supported yet"));
    }
    if parsed.has("n") {
        return Err(usage("-n only meaningful with -F"));
    }
    let (name, device) = match parsed.operands.as_slice() {
        [] => return Err(usage("missing pool name")),
        [name] => (name, None),
        [name, device] => (name, Some(device.clone())),
        _ => return Err(usage("too many arguments")),
    };
    session.operate(name, PoolOperation::Clear { device })?;
    Ok(0)
}

/// `zpool set <property=value> <pool> [vdev]`.
pub fn set(session: &mut Session, words: &[String]) -> Done {
    let (setting, pool, vdev) = match words {
        [first, ..] if first.starts_with('-') => {
            return Err(usage(format!("invalid option '{}'", first.chars().nth(1).unwrap_or(' '))));
        }
        [] => return Err(usage("missing property=value argument")),
        [_] => return Err(usage("missing pool name")),
        [setting, pool] => (setting, pool, None),
        [setting, pool, vdev] => (setting, pool, Some(vdev)),
        _ => return Err(usage("too many pool names")),
    };
    let Some((property, value)) = setting.split_once('=') else {
        return Err(usage("missing value in property=value argument"));
    };
    if let Some(vdev) = vdev {
        return set_vdev(session, pool, vdev, property, value);
    }
    if property == "compatibility" || property.starts_with("feature@") {
        // Bad files are the user's mistake whatever the pool.
        if property == "compatibility" {
            super::compatibility::load(value)?;
        }
        let (found, code) = super::pools::views(session, std::slice::from_ref(pool), Detail::default())?;
        let [view] = found.as_slice() else { return Ok(code) };
        super::compatibility::check_setting(view, property, value)?;
    }
    let operation = PoolOperation::Set { property: property.to_owned(), value: value.to_owned() };
    session.operate(pool, operation)?;
    Ok(0)
}

fn set_vdev(session: &mut Session, pool: &str, vdev: &str, property: &str, value: &str) -> Done {
    let device = if vdev == "root" { get_vdev::ROOT } else { vdev };
    let operation =
        PoolOperation::SetVdev { device: device.to_owned(), property: property.to_owned(), value: value.to_owned() };
    let Err(body) = session.operate(pool, operation) else { return Ok(0) };
    if body.kind == ErrorKind::NotFound && !get_vdev::has(&view(session, pool, Detail::default())?, device) {
        eprintln!("cannot find '{device}' in '{pool}': device not in pool");
        return Ok(EINVAL);
    }
    Err(body.into())
}

/// `zpool sync [pool] ...`.
pub fn sync(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "f", long: &[] }, words).map_err(usage)?;
    each(session, &parsed.operands, |session, name| {
        session.operate(name, PoolOperation::Sync { force: parsed.has("f") }).map(|_| ())
    })
}

/// `zpool version [-j]`.
pub fn version(_session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "j", long: &[("json", "j")] }, words).map_err(usage)?;
    if !parsed.operands.is_empty() {
        return Err(usage("too many arguments"));
    }
    print_version("zpool version", parsed.has("j"));
    Ok(0)
}

/// Prints the version for `zpool version` and `zfs version`.
pub fn print_version(command: &str, as_json: bool) {
    if as_json {
        let mut object = json::schema(command);
        // There is no kernel module: both sides are this program.
        let (userland, kernel) = (crate::usage::version("zfs"), crate::usage::version("zfs-kmod"));
        object.insert("zfs_version".into(), json!({ "userland": userland, "kernel": kernel }));
        json::print(object);
    } else {
        outln!("{}", crate::usage::version_lines());
    }
}
