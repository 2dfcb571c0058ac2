//! `zpool`: which command is which file.

mod add;
mod compatibility;
mod create;
mod devices;
mod events;
mod free_work;
mod get;
mod get_vdev;
mod history;
mod import;
mod iostat;
mod iostat_columns;
mod layout;
mod list;
mod names;
pub(crate) mod pools;
mod scrub;
mod small;
mod split;
pub use small::print_version;
pub(crate) mod status;
mod status_errors;
mod status_json;
mod status_rebuild;
mod status_style;
mod upgrade;
mod vdev_spec;
mod wait;

use crate::session::{Done, Failure, Session, refused, usage};
use crate::usage::{Entry, Usage};

type Run = fn(&mut Session, &[String]) -> Done;

/// Commands with their usage, as OpenZFS prints it.
pub static USAGE: Usage = Usage {
    program: "zpool",
    entries: &[
        Entry::command("version", "\tversion [-j]\n"),
        Entry::GAP,
        Entry::command(
            "create",
            "\tcreate [-fnd] [-o property=value] ... \n\
             \t    [-O file-system-property=value] ... \n\
             \t    [-m mountpoint] [-R root] [-t tempname] <pool> <vdev> ...\n",
        ),
        Entry::command("destroy", "\tdestroy [-f] <pool>\n"),
        Entry::GAP,
        Entry::command(
            "add",
            "\tadd [-fgLnP] [--allow-in-use --allow-replication-mismatch\n\
             \t    --allow-ashift-mismatch] [-o property=value] <pool> <vdev> ...\n",
        ),
        Entry::command("remove", "\tremove [-pw] <pool> <device> ...\n"),
        Entry::GAP,
        Entry::command("labelclear", "\tlabelclear [-f] <vdev>\n"),
        Entry::GAP,
        Entry::command(
            "list",
            "\tlist [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...\n\
             \t    [-T d|u] [pool] [interval [count]]\n",
        ),
        Entry::command(
            "iostat",
            "\tiostat [[-lq]|[-rw]] [-T d | u] [-gHLpPvy] ...\n\
             \t    [[pool ...]|[pool vdev ...]|[vdev ...]]\n\
             \t    [[-n] interval [count]]\n",
        ),
        Entry::command(
            "status",
            "\tstatus [-j [--json-int, --json-flat-vdevs, ...\n\
             \t    --json-pool-key-guid]] [-egiLpPstvx] ...\n\
             \t    [-T d|u] [pool] [interval [count]]\n",
        ),
        Entry::GAP,
        Entry::command("online", "\tonline <pool> <device> ...\n"),
        Entry::command("offline", "\toffline [-ft] <pool> <device> ...\n"),
        Entry::command("clear", "\tclear [-nF] <pool> [device]\n"),
        Entry::GAP,
        Entry::command("attach", "\tattach [-fsw] [-o property=value] <pool> <device> <new-device>\n"),
        Entry::command("detach", "\tdetach <pool> <device>\n"),
        Entry::command("replace", "\treplace [-fsw] [-o property=value] <pool> <device> [new-device]\n"),
        Entry::command(
            "split",
            "\tsplit [-gLnPl] [-R altroot] [-o mntopts]\n\
             \t    [-o property=value] <pool> <newpool> [<device> ...]\n",
        ),
        Entry::GAP,
        Entry::command("reopen", "\treopen [-n] <pool>\n"),
        Entry::GAP,
        Entry::command("initialize", "\tinitialize [-c | -s | -u] [-w] <pool> [<device> ...]\n"),
        Entry::command("resilver", "\tresilver <pool> ...\n"),
        Entry::command("scrub", "\tscrub [-e | -s | -p | -C] [-w] <pool> ...\n"),
        Entry::command("trim", "\ttrim [-dw] [-r <rate>] [-c | -s] <pool> [<device> ...]\n"),
        Entry::GAP,
        Entry::command(
            "import",
            "\timport [-d dir] [-D]\n\
             \timport [-o property=value] ... \n\
             \t    [-d dir] [-D] [-f] [-m] [-N] [-R root] -a\n\
             \timport [-o property=value] ... \n\
             \t    [-d dir] [-D] [-f] [-m] [-N] [-R root] [-t]\n\
             \t    <pool | id> [newpool]\n",
        ),
        Entry::command("export", "\texport [-af] <pool> ...\n"),
        Entry::GAP,
        Entry::command("upgrade", "\tupgrade\n\tupgrade -v\n\tupgrade <-a | pool ...>\n"),
        Entry::command("reguid", "\treguid [-g guid] <pool>\n"),
        Entry::GAP,
        Entry::command("history", "\thistory [-il] [<pool>] ...\n"),
        Entry::command("events", "\tevents [-vHf [pool] | -c]\n"),
        Entry::GAP,
        Entry::command(
            "get",
            "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n\
             \t    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> [vdev] ...\n",
        ),
        Entry::command("set", "\tset <property=value> <pool>\n\tset <vdev_property=value> <pool> <vdev>\n"),
        Entry::command("sync", "\tsync [pool] ...\n"),
        Entry::GAP,
        Entry::command("wait", "\twait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]\n"),
    ],
    footer: "\nFor further help on a command or topic, run: zpool help [<topic>]\n",
    later: &["checkpoint", "prefetch", "ddtprune"],
};

fn find(name: &str) -> Option<Run> {
    Some(match name {
        "version" => small::version,
        "create" => create::run,
        "add" => add::run,
        "remove" => devices::remove,
        "labelclear" => devices::labelclear,
        "online" => devices::online,
        "offline" => devices::offline,
        "attach" => devices::attach,
        "detach" => devices::detach,
        "replace" => devices::replace,
        "split" => split::run,
        "reopen" => devices::reopen,
        "reguid" => devices::reguid,
        "upgrade" => upgrade::run,
        "destroy" => small::destroy,
        "list" => list::run,
        "iostat" => iostat::run,
        "status" => status::run,
        "clear" => small::clear,
        "scrub" => scrub::run,
        "resilver" => scrub::resilver,
        "trim" => free_work::trim,
        "initialize" => free_work::initialize,
        "import" => import::run,
        "export" => small::export,
        "history" => history::run,
        "events" => events::run,
        "get" => get::run,
        "set" => small::set,
        "sync" => small::sync,
        "wait" => wait::run,
        _ => return None,
    })
}

/// Runs `zpool` with the words after its name; the exit code.
pub fn main(words: &[String]) -> u8 {
    USAGE.run(words, |session, name, rest| match find(name) {
        Some(run) => run(session, rest),
        None if name.contains('=') => {
            // `zpool prop=value pool` is short for `zpool set`.
            let mut all = vec![name.to_owned()];
            all.extend_from_slice(rest);
            small::set(session, &all)
        }
        None if USAGE.later.contains(&name) => Err(not_yet(name)),
        None => Err(usage(format!("unrecognized command '{name}'"))),
    })
}

fn not_yet(name: &str) -> Failure {
    refused(format!("zpool {name}: not supported yet by platter {}", env!("CARGO_PKG_VERSION")))
}
