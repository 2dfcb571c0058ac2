//! `zfs create`.

use std::collections::BTreeMap;

use platter_api::messages::CreateDataset;

use super::select::well_formed;
use crate::getopt::{Grammar, parse};
use crate::ids;
use crate::out::out;
use crate::session::{Done, Failure, Session, complain_all, refused, usage};

const GRAMMAR: Grammar = Grammar { short: ":PV:b:nso:puv", long: &[] };

/// Splits `name=value`; giving a name twice is refused as in OpenZFS.
pub(super) fn add_property(list: &mut BTreeMap<String, String>, text: &str) -> Result<(), Failure> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(refused("missing property=value argument"));
    };
    if list.insert(name.to_owned(), value.to_owned()).is_some() {
        return Err(refused(format!("property '{name}' specified multiple times")));
    }
    Ok(())
}

#[derive(Debug)]
struct Wanted {
    call: CreateDataset,
    /// All that was given with `-o`.
    given: BTreeMap<String, String>,
    verbose: bool,
    parsable: bool,
}

fn request(words: &[String], command_line: &str) -> Result<Wanted, Failure> {
    let missing = |message: String| match message.starts_with("missing argument for") {
        true => usage("missing size argument"),
        false => usage(message),
    };
    let parsed = parse(GRAMMAR, words).map_err(missing)?;
    let is_volume = parsed.has("V");
    let mut properties = BTreeMap::new();
    for text in parsed.all("o") {
        add_property(&mut properties, text)?;
    }
    if (parsed.has("s") || parsed.has("b")) && !is_volume {
        return Err(usage("'-s' and '-b' can only be used when creating a volume"));
    }
    if parsed.has("u") && is_volume {
        return Err(usage("'-u' can only be used when creating a filesystem"));
    }
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage(format!("missing {} argument", if is_volume { "volume" } else { "filesystem" }))),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    if is_volume {
        return Err(refused(format!("cannot create '{name}': this version has no volumes yet")));
    }
    well_formed(name, "cannot create")?;
    let parents = parsed.options.iter().filter(|given| given.name == "p").count();
    let parsable = parsed.has("P");
    let given = properties.clone();
    let quotas =
        ids::take_quotas(&mut properties).map_err(|reason| refused(format!("cannot create '{name}': {reason}")))?;
    let call = CreateDataset {
        name: name.clone(),
        properties,
        quotas,
        parents: parents > 0,
        parents_unmounted: parents > 1,
        mount: !parsed.has("u"),
        dry_run: parsed.has("n"),
        command: command_line.to_owned(),
    };
    Ok(Wanted { call, given, verbose: parsed.has("v") || parsable, parsable })
}

/// What `-v` and `-P` print.
fn report(wanted: &Wanted) -> String {
    let Wanted { call, parsable, .. } = wanted;
    let name = &call.name;
    let mut text = String::new();
    if call.parents {
        text.push_str(&match (parsable, call.dry_run) {
            (true, _) => format!("create_ancestors\t{name}\n"),
            (false, true) => format!("would create ancestors of {name}\n"),
            (false, false) => format!("create ancestors of {name}\n"),
        });
    }
    text.push_str(&match (parsable, call.dry_run) {
        (true, _) => format!("create\t{name}\n"),
        (false, true) => format!("would create {name}\n"),
        (false, false) => format!("create {name}\n"),
    });
    for (property, value) in &wanted.given {
        text.push_str(&match parsable {
            true => format!("property\t{property}\t{value}\n"),
            false => format!("\t{property}={value}\n"),
        });
    }
    text
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let wanted = request(words, &session.command_line)?;
    let answer = session.ask(wanted.call.clone())?;
    // With -p it may have been there: then nothing is said.
    if wanted.verbose && !answer.created.is_empty() {
        out!("{}", report(&wanted));
    }
    // It exists, and is not where it should be (`zfs_mount_and_share`, `cmd/zfs/zfs_main.c`).
    Ok(complain_all(&answer.outcome.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &str) -> Result<Wanted, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        request(&words, "zfs create").map_err(|failure| match failure {
            Failure::Usage(message) => message,
            Failure::Refused(body) => body.message,
        })
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let wanted = made("-pu -o compression=lz4 -o recordsize=1M tank/a/b").unwrap();
        let call = &wanted.call;
        assert!(call.parents && !call.parents_unmounted && !call.mount && !wanted.verbose && !wanted.parsable);
        assert_eq!(call.properties["recordsize"], "1M");
        assert_eq!(call.name, "tank/a/b");
        assert!(made("-pp tank/a/b").unwrap().call.parents_unmounted);
    }

    #[test]
    fn what_is_made_is_said_in_openzfs_words() {
        let said = |line: &str| report(&made(line).unwrap());
        assert_eq!(said("-v -o atime=off tank/a"), "create tank/a\n\tatime=off\n");
        assert_eq!(said("-nvp tank/a"), "would create ancestors of tank/a\nwould create tank/a\n");
        assert_eq!(said("-pP -o atime=off tank/a"), "create_ancestors\ttank/a\ncreate\ttank/a\nproperty\tatime\toff\n");
    }

    #[test]
    fn nonsense_is_refused() {
        let table = [
            ("", "missing filesystem argument"),
            ("a b", "too many arguments"),
            ("-V 1G tank/v", "this version has no volumes yet"),
            ("-uV 1G tank/v", "'-u' can only be used when creating a filesystem"),
            ("tank/a -o", "missing size argument"),
            ("-x tank/a", "invalid option 'x'"),
            ("-s tank/v", "can only be used when creating a volume"),
            ("-o atime tank/v", "missing property=value argument"),
            ("-o atime=on -o atime=off tank/v", "specified multiple times"),
            ("tank/", "trailing slash in name"),
            ("tank/a@b", "not expected here"),
        ];
        for (line, expected) in table {
            let error = made(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
