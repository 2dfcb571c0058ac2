//! `zpool trim` and `zpool initialize` (`zpool_do_trim` and `zpool_do_initialize` in `cmd/zpool/zpool_main.c`).

use std::time::Duration;

use platter_api::messages::ErrorBody;
use platter_api::numbers;
use platter_api::report::{Detail, LeafWork, LeafWorkState, VdevReport};
use platter_api::request::{FreeWork, InitializeAction, PoolChange, PoolOperation, TrimAction};

use super::pools::view;
use crate::getopt::{Grammar, Parsed, parse};
use crate::session::{Done, Failure, Session, complain, complain_all, usage};

/// Time between two looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);
/// What the command returns when it fails: -1, as a process can.
const FAILED: u8 = 255;

const TRIM: Grammar = Grammar {
    short: "cdr:sw",
    long: &[("cancel", "c"), ("secure", "d"), ("rate", "r"), ("suspend", "s"), ("wait", "w")],
};

const INITIALIZE: Grammar =
    Grammar { short: "csuw", long: &[("cancel", "c"), ("suspend", "s"), ("uninit", "u"), ("wait", "w")] };

/// `zpool trim [-dw] [-r <rate>] [-c | -s] <pool> [<device> ...]`.
pub fn trim(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(TRIM, words).map_err(usage)?;
    let action = trim_action(&parsed)?;
    let (pool, devices) = operands(&parsed)?;
    let wait = parsed.has("w");
    if wait && !matches!(action, TrimAction::Start { .. }) {
        return Err(usage("-w cannot be used with -c or -s options"));
    }
    run(session, pool, devices, FreeWork::Trim(action), wait)
}

/// Options one after the other, as each may contradict those before it.
fn trim_action(parsed: &Parsed) -> Result<TrimAction, Failure> {
    let (mut cancel, mut suspend, mut rate, mut secure) = (false, false, 0, false);
    for given in &parsed.options {
        match &*given.name {
            "c" if suspend => return Err(usage("-c cannot be combined with other options")),
            "c" => cancel = true,
            "s" if cancel => return Err(usage("-s cannot be combined with other options")),
            "s" => suspend = true,
            "d" if cancel || suspend => return Err(usage("-d cannot be combined with the -c or -s options")),
            "d" => secure = true,
            "r" if cancel || suspend => return Err(usage("-r cannot be combined with the -c or -s options")),
            "r" => {
                let number = numbers::parse(&given.argument);
                rate = number.map_err(|error| usage(format!("invalid value for rate: {error}")))?;
            }
            _ => {}
        }
    }
    Ok(match (cancel, suspend) {
        (true, _) => TrimAction::Cancel,
        (_, true) => TrimAction::Suspend,
        _ => TrimAction::Start { rate, secure },
    })
}

/// `zpool initialize [-c | -s | -u] [-w] <pool> [<device> ...]`.
pub fn initialize(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(INITIALIZE, words).map_err(usage)?;
    let mut action = InitializeAction::Start;
    for given in &parsed.options {
        let other = match &*given.name {
            "c" => InitializeAction::Cancel,
            "s" => InitializeAction::Suspend,
            "u" => InitializeAction::Uninitialize,
            _ => continue,
        };
        if action != InitializeAction::Start && action != other {
            return Err(usage(format!("-{} cannot be combined with other options", given.name)));
        }
        action = other;
    }
    let (pool, devices) = operands(&parsed)?;
    let wait = parsed.has("w");
    if wait && action != InitializeAction::Start {
        // Word for word.
        return Err(usage("-w cannot be used with -c, -sor -u"));
    }
    run(session, pool, devices, FreeWork::Initialize(action), wait)
}

fn operands(parsed: &Parsed) -> Result<(&str, &[String]), Failure> {
    match parsed.operands.as_slice() {
        [] => Err(usage("missing pool name argument")),
        [pool, devices @ ..] => Ok((pool, devices)),
    }
}

fn run(session: &mut Session, pool: &str, devices: &[String], work: FreeWork, wait: bool) -> Done {
    let change = PoolChange::Free { work, devices: devices.to_vec() };
    let done = session.operate(pool, PoolOperation::Change(change)).and_then(|changed| {
        if complain_all(&changed.problems) > 0 {
            return Ok(FAILED);
        }
        if wait {
            self::wait(session, pool, devices, work)?;
        }
        Ok(0)
    });
    done.or_else(|body| {
        complain(&body);
        Ok(FAILED)
    })
}

/// Waits until none of these devices, or of all, is worked on.
fn wait(session: &mut Session, pool: &str, devices: &[String], work: FreeWork) -> Result<(), ErrorBody> {
    let of: fn(&VdevReport) -> Option<LeafWork> = match work {
        FreeWork::Trim(_) => |vdev| vdev.trim,
        FreeWork::Initialize(_) => |vdev| vdev.initialize,
    };
    while is_active(&view(session, pool, Detail::default())?.report.vdevs, devices, of) {
        if !session.sleep(LOOK) {
            // It goes on; only the waiting ends.
            return Err(ErrorBody::new("interrupted"));
        }
    }
    Ok(())
}

fn is_active(vdev: &VdevReport, devices: &[String], of: fn(&VdevReport) -> Option<LeafWork>) -> bool {
    let path = vdev.path.as_deref().unwrap_or("");
    let is_it = |device: &String| {
        *device == vdev.name
            || *device == vdev.guid.to_string()
            || device == path
            || path.rsplit('/').next() == Some(device.rsplit('/').next().unwrap_or(device))
    };
    let is_meant = devices.is_empty() || devices.iter().any(is_it);
    (is_meant && of(vdev).is_some_and(|work| work.state == LeafWorkState::Active))
        || vdev.children.iter().any(|child| is_active(child, devices, of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(line: &str) -> Result<TrimAction, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        trim_action(&parse(TRIM, &words).expect("its grammar"))
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_in_openzfs_words() {
        assert_eq!(action("-d --rate=5M tank"), Ok(TrimAction::Start { rate: 5 << 20, secure: true }));
        assert_eq!(action("-s -s tank"), Ok(TrimAction::Suspend));
        let refused = |line: &str| match action(line) {
            Err(Failure::Usage(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused("-s -c tank"), "-c cannot be combined with other options");
        assert_eq!(refused("-c -r 5 tank"), "-r cannot be combined with the -c or -s options");
        assert!(refused("-r x tank").starts_with("invalid value for rate: "));
    }

    #[test]
    fn a_device_is_waited_for_by_any_of_its_names() {
        let state = LeafWorkState::Active;
        let leaf = VdevReport {
            name: "d0".into(),
            path: Some("/disk/d0".into()),
            guid: 7,
            trim: Some(LeafWork { state, time: 0, done: 0, total: 1 }),
            ..VdevReport::default()
        };
        let root = VdevReport { children: vec![leaf], ..VdevReport::default() };
        for (name, expected) in [("d0", true), ("/disk/d0", true), ("7", true), ("d1", false)] {
            assert_eq!(is_active(&root, &[name.to_owned()], |vdev| vdev.trim), expected, "{name}");
        }
        assert!(is_active(&root, &[], |vdev| vdev.trim) && !is_active(&root, &[], |vdev| vdev.initialize));
    }
}
