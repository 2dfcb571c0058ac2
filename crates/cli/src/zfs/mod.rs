//! `zfs`: which command is which file.

mod allow;
mod bookmark;
mod clone;
mod create;
mod destroy;
mod diff;
mod get;
mod list;
mod mount;
mod project;
mod property_help;
mod receive;
mod redact;
mod rename;
mod rewrite;
mod select;
mod send;
mod set;
mod snapshot;
mod upgrade;
mod userspace;
mod wait;

use crate::getopt::{Grammar, parse};
use crate::mount_zfs;
use crate::session::{Done, Session, refused, usage};
use crate::usage::{Entry, Usage};

type Run = fn(&mut Session, &[String]) -> Done;

/// Commands with their usage, as OpenZFS prints it.
pub static USAGE: Usage = Usage {
    program: "zfs",
    entries: &[
        Entry::command("version", "\tversion [-j]\n"),
        Entry::GAP,
        Entry::command("create", "\tcreate [-Pnpuv] [-o property=value] ... <filesystem>\n"),
        Entry::command(
            "destroy",
            "\tdestroy [-fnprv] <filesystem>\n\
             \tdestroy [-dnprv] <filesystem|volume>@<snap>[%<snap>][,...]\n\
             \tdestroy <filesystem|volume>#<bookmark>\n",
        ),
        Entry::GAP,
        Entry::command("snapshot", "\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...\n"),
        Entry::command("rollback", "\trollback [-rRf] <snapshot>\n"),
        Entry::command("redact", "\tredact <snapshot> <bookmark> <redaction_snapshot> ...\n"),
        Entry::command("bookmark", "\tbookmark <snapshot|bookmark> <newbookmark>\n"),
        Entry::command("clone", "\tclone [-p[p]u] [-o property=value] ... <snapshot> <filesystem|volume>\n"),
        Entry::command("promote", "\tpromote <clone-filesystem>\n"),
        Entry::command(
            "rename",
            "\trename [-f] <filesystem> <filesystem>\n\trename -p[p] [-f] <filesystem> <filesystem>\n\
             \trename -u [-f] <filesystem> <filesystem>\n\trename -r <snapshot> <snapshot>\n",
        ),
        Entry::GAP,
        Entry::command(
            "list",
            "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...\n\
             \t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...\n",
        )
        .with(property_help::text),
        Entry::GAP,
        Entry::command("set", "\tset [-u] <property=value> ... <filesystem|volume|snapshot> ...\n")
            .with(property_help::text),
        Entry::command(
            "get",
            "\tget [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]\n\
             \t    [-t type[,...]] [-s source[,...]]\n\
             \t    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...\n",
        )
        .with(property_help::text),
        Entry::command("inherit", "\tinherit [-rS] <property> <filesystem|volume|snapshot> ...\n")
            .with(property_help::text),
        Entry::command("upgrade", "\tupgrade [-v]\n\tupgrade [-r] [-V version] <-a | filesystem ...>\n"),
        Entry::GAP,
        Entry::command(
            "userspace",
            "\tuserspace [-Hinp] [-o field[,...]] [-s field] ...\n\
             \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n",
        ),
        Entry::command(
            "groupspace",
            "\tgroupspace [-Hinp] [-o field[,...]] [-s field] ...\n\
             \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n",
        ),
        Entry::command(
            "projectspace",
            "\tprojectspace [-Hp] [-o field[,...]] [-s field] ...\n\t    [-S field] ... <filesystem|snapshot|path>\n",
        ),
        Entry::GAP,
        Entry::command(
            "project",
            "\tproject [-d|-r] <directory|file ...>\n\tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\
             \tproject -C [-k] [-r] <directory ...>\n\tproject [-p id] [-r] [-s] <directory ...>\n",
        ),
        Entry::GAP,
        Entry::command("diff", "\tdiff [-FHth] <snapshot> [snapshot|filesystem]\n"),
        Entry::command(
            "send",
            "\tsend [-DLPcenpvVw] [-i|-I snapshot]\n\
             \t    [-R [-X dataset[,dataset]...]]     <snapshot>\n\
             \tsend [-DnvPLecw] [-i snapshot|bookmark] <filesystem|volume|snapshot>\n\
             \tsend [-DnPpVvLec] [-i bookmark|snapshot] --redact <bookmark> <snapshot>\n\
             \tsend [-nVvPe] -t <receive_resume_token>\n\
             \tsend [-PnVv] --saved filesystem\n",
        ),
        Entry::command(
            "receive",
            "\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\
             \t    <filesystem|volume|snapshot>\n\
             \treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ... \n\
             \t    [-d | -e] <filesystem>\n\
             \treceive -A <filesystem|volume>\n",
        ),
        Entry::GAP,
        Entry::command("hold", "\thold [-r] <tag> <snapshot> ...\n"),
        Entry::command("holds", "\tholds [-rHp] <snapshot> ...\n"),
        Entry::command("release", "\trelease [-r] <tag> <snapshot> ...\n"),
        Entry::GAP,
        Entry::command("rewrite", "\trewrite [-rvx] [-o <offset>] [-l <length>] <directory|file ...>\n"),
        Entry::command("wait", "\twait [-t <activity>] <filesystem>\n"),
        Entry::command("mount", "\tmount [-j]\n\tmount [-flvO] [-o opts] <-a|-R filesystem|filesystem>\n"),
        Entry::command("unmount", "\tunmount [-fu] <-a | filesystem|mountpoint>\n"),
        Entry::GAP,
        Entry::command("allow", allow::ALLOW),
        Entry::command("unallow", allow::UNALLOW),
    ],
    footer: "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n\n\
             For the property list, run: zfs set|get\n\n\
             For further help on a command or topic, run: zfs help [<topic>]\n",
    later: &["program", "share", "unshare", "load-key", "unload-key", "change-key", "jail", "unjail", "zone", "unzone"],
};

/// Other names of commands.
fn canonical(name: &str) -> &str {
    match name {
        "umount" => "unmount",
        "snap" => "snapshot",
        "recv" => "receive",
        other => other,
    }
}

/// What a command that is not there would need.
fn why_later(name: &str) -> &'static str {
    match name {
        "share" | "unshare" => "it shares nothing over the network yet",
        "load-key" | "unload-key" | "change-key" => "it does not encrypt yet",
        "program" => "it runs no channel programs yet",
        "jail" | "unjail" | "zone" | "unzone" => "data sets cannot be given to containers",
        "rewrite" => "it cannot rewrite files in place yet",
        "wait" => "it does not tell what is still being freed",
        _ => "it does not do this with snapshots yet",
    }
}

fn find(name: &str) -> Option<Run> {
    Some(match name {
        "version" => version,
        "allow" => allow::allow,
        "unallow" => allow::unallow,
        "create" => create::run,
        "destroy" => destroy::run,
        "list" => list::run,
        "get" => get::run,
        "set" => set::set,
        "inherit" => set::inherit,
        "upgrade" => upgrade::run,
        "rename" => rename::run,
        "snapshot" => snapshot::take,
        "rollback" => snapshot::rollback,
        "clone" => clone::clone,
        "promote" => clone::promote,
        "diff" => diff::run,
        "wait" => wait::run,
        "rewrite" => rewrite::run,
        "bookmark" => bookmark::run,
        "redact" => redact::run,
        "send" => send::run,
        "receive" => receive::run,
        "hold" => snapshot::hold,
        "holds" => snapshot::holds,
        "release" => snapshot::release,
        "userspace" => userspace::users,
        "groupspace" => userspace::groups,
        "projectspace" => userspace::projects,
        "project" => project::run,
        "mount" => mount::mount,
        "unmount" => mount::unmount,
        _ => return None,
    })
}

/// Runs `zfs` with the words after its name; the exit code.
pub fn main(words: &[String]) -> u8 {
    if words.first().is_some_and(|first| find(first).is_none()) && mount_zfs::is_meant(words) {
        return mount_zfs::main(words);
    }
    let mut words = words.to_vec();
    if let Some(first) = words.first_mut()
        && (first == "umount" || first == "snap")
    {
        *first = canonical(first).to_owned();
    }
    USAGE.run(&words, |session, name, rest| match find(canonical(name)) {
        Some(run) => run(session, rest),
        None if USAGE.later.contains(&canonical(name)) => {
            let reason = why_later(canonical(name));
            Err(refused(format!("zfs {name}: not supported by platter {}: {reason}", env!("CARGO_PKG_VERSION"))))
        }
        None if name.contains('=') => {
            let mut all = vec![name.to_owned()];
            all.extend_from_slice(rest);
            set::set(session, &all)
        }
        None => Err(usage(format!("unrecognized command '{name}'"))),
    })
}

fn version(_session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "j", long: &[("json", "j")] }, words).map_err(usage)?;
    if !parsed.operands.is_empty() {
        return Err(usage("too many arguments"));
    }
    crate::zpool::print_version("zfs version", parsed.has("j"));
    Ok(0)
}
