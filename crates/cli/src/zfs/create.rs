//! `zfs create`.

use std::collections::BTreeMap;

use platter_api::messages::CreateDataset;
use platter_api::numbers;
use platter_api::request::NewVolume;

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
    well_formed(name, "cannot create")?;
    let parents = parsed.options.iter().filter(|given| given.name == "p").count();
    let parsable = parsed.has("P");
    let volume = match parsed.last("V") {
        Some(size) => Some(volume(size, parsed.last("b"), parsed.has("s"), &mut properties)?),
        None => None,
    };
    let given = properties.clone();
    let quotas =
        ids::take_quotas(&mut properties).map_err(|reason| refused(format!("cannot create '{name}': {reason}")))?;
    let call = CreateDataset {
        name: name.clone(),
        volume,
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

/// The volume that is asked for; what of it was given with `-o` is taken out of `properties`.
fn volume(
    size: &str,
    block: Option<&str>,
    sparse: bool,
    properties: &mut BTreeMap<String, String>,
) -> Result<NewVolume, Failure> {
    let number = |what: &str, text: &str| {
        numbers::parse(text).map_err(|reason| refused(format!("bad {what} '{text}': {reason}")))
    };
    if block.is_some() && properties.contains_key("volblocksize") {
        return Err(refused("property 'volblocksize' specified multiple times"));
    }
    if properties.contains_key("volsize") {
        return Err(refused("property 'volsize' specified multiple times"));
    }
    let size = number("volume size", size)?;
    let given = properties.remove("volblocksize");
    let block_size = block.or(given.as_deref()).map(|text| number("volume block size", text)).transpose()?;
    Ok(NewVolume { size, block_size, sparse })
}

/// What `-v` and `-P` print, of a volume with what was worked out.
fn report(wanted: &Wanted, worked_out: &[(String, u64)]) -> String {
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
    let of_size = |name: &str| name.starts_with("vol");
    let numbers = |wanted: bool| worked_out.iter().filter(move |(name, _)| of_size(name) == wanted);
    let shown = |(name, number): &(String, u64)| (name.clone(), number.to_string());
    let given = wanted.given.iter().filter(|(name, _)| !worked_out.iter().any(|(other, _)| other == *name));
    let given = given.map(|(name, value)| (name.clone(), value.clone()));
    for (property, value) in numbers(true).map(shown).chain(given).chain(numbers(false).map(shown)) {
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
    if !answer.warning.is_empty() {
        eprintln!("{}", answer.warning);
    }
    // With -p it may have been there: then nothing is said.
    if wanted.verbose && !answer.created.is_empty() {
        out!("{}", report(&wanted, &answer.worked_out));
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
        let said = |line: &str| report(&made(line).unwrap(), &[]);
        assert_eq!(said("-v -o atime=off tank/a"), "create tank/a\n\tatime=off\n");
        assert_eq!(said("-nvp tank/a"), "would create ancestors of tank/a\nwould create tank/a\n");
        assert_eq!(said("-pP -o atime=off tank/a"), "create_ancestors\ttank/a\ncreate\ttank/a\nproperty\tatime\toff\n");
    }

    #[test]
    fn a_volume_has_a_size_and_is_said_with_what_was_worked_out() {
        let wanted = made("-s -b 8K -V 1G -o compression=lz4 tank/v").unwrap();
        assert_eq!(wanted.call.volume, Some(NewVolume { size: 1 << 30, block_size: Some(8 << 10), sparse: true }));
        assert_eq!(made("-V 1M -o volblocksize=4K t/v").unwrap().call.volume.unwrap().block_size, Some(4 << 10));
        let numbers = [("volsize", 1 << 30), ("volblocksize", 8192), ("refreservation", 7)];
        let numbers = numbers.map(|(name, number)| (name.to_owned(), number));
        let text = "create\ttank/v\nproperty\tvolsize\t1073741824\nproperty\tvolblocksize\t8192\n\
                    property\tcompression\tlz4\nproperty\trefreservation\t7\n";
        assert_eq!(report(&made("-P -b 8K -V 1G -o compression=lz4 tank/v").unwrap(), &numbers), text);
    }

    #[test]
    fn nonsense_is_refused() {
        let table = [
            ("", "missing filesystem argument"),
            ("a b", "too many arguments"),
            ("-V 1Q tank/v", "bad volume size '1Q': invalid numeric suffix 'Q'"),
            ("-V 1G -b x tank/v", "bad volume block size 'x': bad numeric value 'x'"),
            ("-V 1G -b 8K -o volblocksize=4K tank/v", "specified multiple times"),
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
