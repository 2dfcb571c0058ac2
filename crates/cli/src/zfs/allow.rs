//! `zfs allow` and `zfs unallow` (`zfs_do_allow_unallow_impl`, `cmd/zfs/zfs_main.c`).

use std::collections::{BTreeMap, BTreeSet};

use platter_api::delegation::{Allow, ByKey, GetPermissions, PERMISSIONS, Unallow, property_permissions};
use platter_api::messages::Whose;

use super::select::openable;
use crate::getopt::{Grammar, parse};
use crate::ids;
use crate::out::out;
use crate::session::{Done, Failure, Session, complain_all, usage};

/// Usage of `zfs allow`.
pub const ALLOW: &str = "\tallow <filesystem|volume>\n\
     \tallow [-ldug] <\"everyone\"|user|group>[,...] <perm|@setname>[,...]\n\
     \t    <filesystem|volume>\n\tallow [-ld] -e <perm|@setname>[,...] <filesystem|volume>\n\
     \tallow -c <perm|@setname>[,...] <filesystem|volume>\n\
     \tallow -s @setname <perm|@setname>[,...] <filesystem|volume>\n";

/// Usage of `zfs unallow`.
pub const UNALLOW: &str = "\tunallow [-rldug] <\"everyone\"|user|group>[,...]\n\
     \t    [<perm|@setname>[,...]] <filesystem|volume>\n\
     \tunallow [-rld] -e [<perm|@setname>[,...]] <filesystem|volume>\n\
     \tunallow [-r] -c [<perm|@setname>[,...]] <filesystem|volume>\n\
     \tunallow [-r] -s @setname [<perm|@setname>[,...]] <filesystem|volume>\n";

/// Width of the line above what a data set allows.
const WIDTH: usize = 70;

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// To be shown what is allowed.
    Shown(String),
    /// To be told what can be.
    Help,
    Changed {
        name: String,
        /// By key, without the difference between permissions and sets; nothing stands for all.
        names: Vec<(Key, Option<Vec<String>>)>,
        recursive: bool,
    },
}

/// For whom, where, and who that is (`ul$1000`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    kind: char,
    place: char,
    who: String,
}

impl Key {
    fn text(&self, of_sets: bool) -> String {
        let kind = if of_sets { self.kind.to_ascii_uppercase() } else { self.kind };
        format!("{kind}{}${}", self.place, self.who)
    }
}

fn wrong<T>(message: &str) -> Result<T, Failure> {
    Err(usage(format!("zfs: error: {message}")))
}

/// The operands behind those that say for whom: permissions, which `unallow` may be given without, and the data set.
fn operands(words: &[String], un: bool) -> Result<(Option<Vec<String>>, String), Failure> {
    match words {
        [name] if un => Ok((None, name.clone())),
        [permissions, name] => {
            let list = permissions.strip_suffix(',').unwrap_or(permissions);
            Ok((Some(list.split(',').map(str::to_owned).collect()), name.clone()))
        }
        _ => wrong("wrong number of parameters"),
    }
}

/// Numbers of the users and groups in a list, each with the letter of its kind.
fn users_and_groups(list: &str, only: Option<Whose>) -> Result<Vec<(char, u64)>, Failure> {
    let mut found = Vec::new();
    for who in list.strip_suffix(',').unwrap_or(list).split(',') {
        let number = who.parse::<u32>().ok().map(u64::from);
        let user = || ids::known(Whose::User, who);
        let group = || ids::known(Whose::Group, who);
        found.push(match only {
            Some(Whose::User) => match user().or(number) {
                Some(id) => ('u', id),
                None => return wrong(&format!("invalid user {who}")),
            },
            Some(_) => match group().or(number) {
                Some(id) => ('g', id),
                None => return wrong(&format!("invalid group {who}")),
            },
            None => match (user(), group()) {
                (Some(id), _) => ('u', id),
                (None, Some(id)) => ('g', id),
                (None, None) => return wrong(&format!("invalid user/group {who}")),
            },
        });
    }
    Ok(found)
}

fn wanted(words: &[String], un: bool) -> Result<Wanted, Failure> {
    let parsed =
        parse(Grammar { short: if un { "ldugecsrh" } else { "ldugecsh" }, long: &[] }, words).map_err(usage)?;
    let has = |option: &str| parsed.has(option);
    let count = |options: &[&str]| options.iter().filter(|option| has(option)).count();
    let words = &parsed.operands[..];
    if count(&["u", "g", "e"]) > 1 {
        return wrong("-u, -g, and -e are mutually exclusive");
    }
    if has("h") {
        let alone = words.is_empty() && parsed.options.len() == 1;
        return if alone { Ok(Wanted::Help) } else { Err(usage("")) };
    }
    let recursive = has("r");
    let places = match (has("l"), has("d")) {
        (true, false) => "l",
        (false, true) => "d",
        _ => "ld",
    };
    let changed = |who: Vec<(char, String)>, places: &str, rest: &[String]| {
        let (names, name) = operands(rest, un)?;
        let keys = who.into_iter().flat_map(|(kind, who)| {
            let keys: Vec<Key> = places.chars().map(|place| Key { kind, place, who: who.clone() }).collect();
            keys
        });
        Ok(Wanted::Changed { name, names: keys.map(|key| (key, names.clone())).collect(), recursive })
    };
    let everyone = |rest: &[String]| changed(vec![('e', String::new())], places, rest);
    if has("s") {
        if count(&["c", "u", "g", "e"]) > 0 {
            return wrong("invalid options combined with -s");
        }
        return match words {
            [set, rest @ ..] if set.starts_with('@') => changed(vec![('s', set.clone())], "-", rest),
            [_, _, ..] => wrong("invalid set name: missing '@' prefix"),
            _ => wrong("wrong number of parameters"),
        };
    }
    if has("c") {
        if count(&["u", "g", "e", "l", "d"]) > 0 {
            return wrong("invalid options combined with -c");
        }
        return changed(vec![('c', String::new())], "-", words);
    }
    if has("e") {
        return everyone(words);
    }
    match words {
        [first, rest @ ..] if first == "everyone" && count(&["u", "g"]) == 0 => everyone(rest),
        [name] if !un => Ok(Wanted::Shown(name.clone())),
        [who, rest @ ..] => {
            operands(rest, un)?;
            let only = if has("u") { Some(Whose::User) } else { has("g").then_some(Whose::Group) };
            let who = users_and_groups(who, only)?.into_iter().map(|(kind, id)| (kind, id.to_string())).collect();
            changed(who, places, rest)
        }
        [] => wrong("wrong number of parameters"),
    }
}

/// Permissions and sets under keys of their own.
fn granted(names: Vec<(Key, Option<Vec<String>>)>) -> ByKey {
    let mut granted = ByKey::new();
    for (key, names) in names {
        for name in names.unwrap_or_default() {
            granted.entry(key.text(name.starts_with('@'))).or_default().insert(name);
        }
    }
    granted
}

fn revoked(names: Vec<(Key, Option<Vec<String>>)>) -> BTreeMap<String, Option<BTreeSet<String>>> {
    let everything = names.iter().filter(|(_, names)| names.is_none());
    let everything: Vec<String> = everything.flat_map(|(key, _)| [key.text(false), key.text(true)]).collect();
    let some = granted(names).into_iter().map(|(key, names)| (key, Some(names)));
    some.chain(everything.into_iter().map(|key| (key, None))).collect()
}

/// Runs `zfs allow`.
pub fn allow(session: &mut Session, words: &[String]) -> Done {
    let command = session.command_line.clone();
    match wanted(words, false)? {
        Wanted::Help => help(ALLOW),
        Wanted::Shown(name) => {
            openable(&name)?;
            let found = session.ask(GetPermissions { name })?;
            for (dataset, by_key) in &found.datasets {
                out!("{}", shown(dataset, by_key, ids::name));
            }
        }
        Wanted::Changed { name, names, .. } => {
            openable(&name)?;
            return Ok(complain_all(&session.ask(Allow { name, granted: granted(names), command })?.problems));
        }
    }
    Ok(0)
}

/// Runs `zfs unallow`.
pub fn unallow(session: &mut Session, words: &[String]) -> Done {
    let command = session.command_line.clone();
    match wanted(words, true)? {
        Wanted::Help | Wanted::Shown(_) => help(UNALLOW),
        Wanted::Changed { name, names, recursive } => {
            openable(&name)?;
            let call = Unallow { name, revoked: revoked(names), recursive, command };
            return Ok(complain_all(&session.ask(call)?.problems));
        }
    }
    Ok(0)
}

fn help(usage: &str) {
    out!("usage:\n{usage}\nThe following permissions are supported:\n\n");
    out!("{:<16} {}\n", "NAME", "TYPE");
    for name in PERMISSIONS {
        let is_other = name == "userprop" || name.ends_with("quota") || name.ends_with("used");
        out!("{name:<16} {}\n", if is_other { "other" } else { "subcommand" });
    }
    for name in property_permissions() {
        out!("{name:<16} property\n");
    }
}

/// What somebody is allowed, and where: at the data set itself, and below.
type Names = BTreeMap<String, (bool, bool)>;

/// What a data set allows, as OpenZFS prints it; `name_of` tells a user's or group's name.
fn shown(dataset: &str, by_key: &ByKey, name_of: impl Fn(Whose, u64) -> Option<String>) -> String {
    let mut all: BTreeMap<(usize, String), Names> = BTreeMap::new();
    for (key, names) in by_key {
        let (Some(kind), Some(place), Some(who)) = (key.get(..1), key.get(1..2), key.get(3..)) else { continue };
        let Some(weight) = "scuge".find(&kind.to_ascii_lowercase()) else { continue };
        let own = all.entry((weight, who.to_owned())).or_default();
        for name in names {
            let places = own.entry(name.clone()).or_default();
            (places.0, places.1) = (places.0 || place == "l", places.1 || place == "d");
        }
    }
    let heading = format!("---- Permissions on {dataset} ");
    let mut text = format!("{heading:-<WIDTH$}\n");
    for (weight, title) in [(0, "Permission sets:\n"), (1, "Create time permissions:\n")] {
        let of_kind: Vec<_> = all.iter().filter(|((kind, _), _)| *kind == weight).collect();
        text.push_str(if of_kind.is_empty() { "" } else { title });
        for ((_, who), names) in of_kind {
            let names: Vec<&str> = names.keys().map(String::as_str).collect();
            let who = if who.is_empty() { String::new() } else { format!("{who} ") };
            text.push_str(&format!("\t{who}{}\n", names.join(",")));
        }
    }
    let named = |whose: Whose, id: &str| {
        let id = id.parse::<u64>().unwrap_or(0);
        name_of(whose, id).unwrap_or_else(|| format!("(unknown: {id})"))
    };
    for (title, places) in [
        ("Local permissions:\n", (true, false)),
        ("Descendent permissions:\n", (false, true)),
        ("Local+Descendent permissions:\n", (true, true)),
    ] {
        let mut lines = String::new();
        for ((weight, who), names) in all.iter().filter(|((weight, _), _)| *weight > 1) {
            let names: Vec<&str> = names.iter().filter(|(_, own)| **own == places).map(|(name, _)| &**name).collect();
            if names.is_empty() {
                continue;
            }
            let who = match weight {
                2 => format!("user {}", named(Whose::User, who)),
                3 => format!("group {}", named(Whose::Group, who)),
                _ => "everyone".to_owned(),
            };
            lines.push_str(&format!("\t{who} {}\n", names.join(",")));
        }
        if !lines.is_empty() {
            text.push_str(title);
            text.push_str(&lines);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str, un: bool) -> Result<(String, BTreeMap<String, Option<BTreeSet<String>>>), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match wanted(&words, un) {
            Ok(Wanted::Changed { name, names, .. }) => Ok((name, revoked(names))),
            Ok(other) => Err(format!("{other:?}")),
            Err(Failure::Usage(message)) => Err(message),
            Err(Failure::Refused(body)) => Err(body.message),
        }
    }

    #[test]
    fn command_lines_become_keys() {
        let table = [
            ("root snapshot,@set t/a", "ud$0 snapshot;ul$0 snapshot;Ud$0 @set;Ul$0 @set"),
            ("-l -u 4000000000 send, t/a", "ul$4000000000 send"),
            ("-d -g root,5 send t/a", "gd$0 send;gd$5 send"),
            ("everyone send t/a", "ed$ send;el$ send"),
            ("-le send,mount t/a", "el$ mount,send"),
            ("-c destroy,@x t/a", "c-$ destroy;C-$ @x"),
            ("-s @x send,@y t/a", "s-$@x send;S-$@x @y"),
        ];
        for (line, expected) in table {
            let (name, keys) = asked(line, false).unwrap();
            let mut keys: Vec<String> = keys
                .into_iter()
                .map(|(key, names)| {
                    let names: Vec<String> = names.unwrap_or_default().into_iter().collect();
                    format!("{key} {}", names.join(","))
                })
                .collect();
            let mut expected: Vec<&str> = expected.split(';').collect();
            keys.sort();
            expected.sort_unstable();
            assert_eq!(
                (name.as_str(), keys),
                ("t/a", expected.iter().map(|key| (*key).to_owned()).collect()),
                "{line}"
            );
        }
        let (_, all) = asked("-ld root t/a", true).unwrap();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), ["Ud$0", "Ul$0", "ud$0", "ul$0"].map(|key| (key.into(), None)));
        assert!(asked("-c t/a", true).is_ok() && asked("-e t/a", true).is_ok() && asked("-s @x t/a", true).is_ok());
    }

    #[test]
    fn nonsense_is_refused() {
        let table = [
            ("-ue send t/a", "mutually exclusive"),
            ("-sc @x send t/a", "combined with -s"),
            ("-s x send t/a", "missing '@' prefix"),
            ("-cl send t/a", "combined with -c"),
            ("", "wrong number"),
            ("-e send", "wrong number"),
            ("root send t/a more", "wrong number"),
            ("nobody-has-this-name send t/a", "invalid user/group nobody-has-this-name"),
            ("-u nobody-has-this-name send t/a", "invalid user nobody"),
            ("-x send t/a", "invalid option 'x'"),
        ];
        for (line, said) in table {
            let error = asked(line, false).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
        assert_eq!(asked("t/a", false).unwrap_err(), "Shown(\"t/a\")");
    }

    #[test]
    fn it_is_shown_as_openzfs_shows_it() {
        let names = |list: &str| list.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
        let by_key: ByKey = [
            ("ul$7", "send,hold"),
            ("ud$7", "send"),
            ("Ud$7", "@x"),
            ("gl$8", "send"),
            ("el$", "snapshot"),
            ("ed$", "snapshot"),
            ("c-$", "destroy,mount"),
            ("s-$@x", "clone,create"),
            ("S-$@x", "@y"),
        ]
        .into_iter()
        .map(|(key, list)| (key.to_owned(), names(list)))
        .collect();
        let name_of = |whose: Whose, id: u64| (whose == Whose::User).then(|| format!("joe{id}"));
        let text = "---- Permissions on tank/a -------------------------------------------\n\
                    Permission sets:\n\t@x @y,clone,create\nCreate time permissions:\n\tdestroy,mount\n\
                    Local permissions:\n\tuser joe7 hold\n\tgroup (unknown: 8) send\n\
                    Descendent permissions:\n\tuser joe7 @x\n\
                    Local+Descendent permissions:\n\tuser joe7 send\n\teveryone snapshot\n";
        assert_eq!(shown("tank/a", &by_key, name_of), text);
    }
}
