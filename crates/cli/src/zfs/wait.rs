//! `zfs wait` (`zfs_do_wait`, `cmd/zfs/zfs_main.c`): until what was removed while it was open has been freed.

use std::time::Duration;

use platter_api::messages::ErrorBody;
use platter_api::snapshots::GetDeleteQueue;

use super::select::openable;
use crate::getopt::{Grammar, parse};
use crate::session::{Done, Failure, Session, usage};

/// Time between two looks whether it is over.
const LOOK: Duration = Duration::from_millis(100);
/// All that can be waited for.
const ACTIVITY: &str = "deleteq";

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "t:", long: &[] }, words).map_err(usage)?;
    for word in parsed.all("t").flat_map(|list| list.split(',')) {
        if word != ACTIVITY {
            return Err(usage(format!("invalid activity '{word}'")));
        }
    }
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing 'filesystem' argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    openable(name)?;
    while session.ask(GetDeleteQueue { name: name.clone() })?.files > 0 {
        if !session.sleep(LOOK) {
            return Err(Failure::from(ErrorBody::new("interrupted")));
        }
    }
    Ok(0)
}
