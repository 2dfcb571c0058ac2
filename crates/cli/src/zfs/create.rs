//! `zfs create`.

use std::collections::BTreeMap;

use platter_daemon::api::{CreateDataset, CreatedDataset};

use super::select::well_formed;
use crate::getopt::{Grammar, parse};
use crate::out::outln;
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

fn request(words: &[String], command_line: &str) -> Result<(CreateDataset, bool, bool), Failure> {
    let parsed = parse(GRAMMAR, words).map_err(usage)?;
    if parsed.has("V") {
        return Err(refused("zfs create -V: volumes are not supported yet"));
    }
    if parsed.has("s") || parsed.has("b") {
        return Err(usage("'-s' and '-b' can only be used when creating a volume"));
    }
    let name = match parsed.operands.as_slice() {
        [] => return Err(usage("missing filesystem argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    well_formed(name, "cannot create")?;
    if name.contains(['@', '#']) {
        return Err(refused(format!("cannot create '{name}': snapshot delimiter '@' is not expected here")));
    }
    let mut properties = BTreeMap::new();
    for text in parsed.all("o") {
        add_property(&mut properties, text)?;
    }
    let parsable = parsed.has("P");
    let call = CreateDataset {
        name: name.clone(),
        properties,
        parents: parsed.has("p"),
        mount: !parsed.has("u"),
        dry_run: parsed.has("n"),
        command: command_line.to_owned(),
    };
    Ok((call, parsed.has("v") || parsable, parsable))
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let (call, verbose, parsable) = request(words, &session.command_line)?;
    let answer: CreatedDataset = session.post("/v1/datasets", &call)?;
    if verbose {
        for name in &answer.created {
            match (parsable, call.dry_run) {
                (true, _) => outln!("create\t{name}"),
                (false, true) => outln!("would create {name}"),
                (false, false) => outln!("create {name}"),
            }
        }
        for (property, value) in &call.properties {
            if parsable {
                outln!("property\t{property}\t{value}");
            } else {
                outln!("\t{property}={value}");
            }
        }
    }
    Ok(complain_all(&answer.outcome.problems))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(line: &str) -> Result<(CreateDataset, bool, bool), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        request(&words, "zfs create").map_err(|failure| match failure {
            Failure::Usage(message) => message,
            Failure::Refused(body) => body.message,
        })
    }

    #[test]
    fn a_command_line_becomes_a_request() {
        let (call, verbose, parsable) = made("-pu -o compression=lz4 -o recordsize=1M tank/a/b").unwrap();
        assert!(call.parents && !call.mount && !verbose && !parsable);
        assert_eq!(call.properties["recordsize"], "1M");
        assert_eq!(call.name, "tank/a/b");
    }

    #[test]
    fn nonsense_is_refused() {
        let table = [
            ("", "missing filesystem argument"),
            ("a b", "too many arguments"),
            ("-V 1G tank/v", "volumes are not supported yet"),
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
