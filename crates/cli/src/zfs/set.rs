//! `zfs set` and `zfs inherit`.

use std::collections::BTreeMap;

use platter_api::messages::{ErrorBody, IdQuota, SetDatasetProperties, SetIdQuota};
use platter_api::properties;

use super::create::add_property;
use super::list::WRITTEN;
use super::select::{complaint, openable};
use crate::getopt::{Grammar, parse};
use crate::ids;
use crate::props::zfs;
use crate::session::{Done, Failure, Session, complain, complain_all, refused, usage};

/// Fails unless something may be called so, a snapshot too.
fn is_name(name: &str) -> Result<(), Failure> {
    complaint(name).map_or(Ok(()), |reason| Err(refused(format!("cannot open '{name}': {reason}"))))
}

/// Sends one request for each data set; complains and goes on.
fn for_each(session: &mut Session, names: &[String], template: &SetDatasetProperties) -> Done {
    let mut code = 0;
    for name in names {
        let opened = if name.contains('@') { is_name(name) } else { openable(name) };
        if let Err(failure) = opened {
            code = code.max(complain_or(Err(failure))?);
            continue;
        }
        let call = SetDatasetProperties { name: name.clone(), ..template.clone() };
        match session.ask(call) {
            Ok(outcome) => {
                let said = complain_all(&outcome.problems);
                // It has its new place, whether it could be mounted there or not (`changelist_postfix`).
                code = code.max(if template.properties.contains_key("mountpoint") { 0 } else { said });
            }
            Err(body) => {
                complain(&body);
                code = 1;
            }
        }
    }
    Ok(code)
}

/// Splits the words of `zfs set` into settings and data sets.
fn settings(words: &[String]) -> Result<(BTreeMap<String, String>, Vec<String>), Failure> {
    match words {
        [] => return Err(usage("missing arguments")),
        [only] if only.contains('=') => return Err(usage("missing dataset name(s)")),
        [_] => return Err(usage("missing property=value argument(s)")),
        _ => {}
    }
    let start = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
    if words[start..].iter().any(|word| word.contains('=')) {
        return Err(usage("invalid argument order"));
    }
    if start == words.len() {
        return Err(usage("missing dataset name(s)"));
    }
    if start == 0 {
        return Err(usage("missing property=value argument(s)"));
    }
    let mut properties = BTreeMap::new();
    for word in &words[..start] {
        add_property(&mut properties, word)?;
    }
    Ok((properties, words[start..].to_vec()))
}

/// Runs `zfs set`.
pub fn set(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "u", long: &[] }, words).map_err(usage)?;
    let (mut properties, names) = settings(&parsed.operands)?;
    let refuse = |reason: String| refused(format!("cannot set property for '{}': {reason}", names[0]));
    let quotas = ids::take_quotas(&mut properties).map_err(refuse)?;
    let mut named = BTreeMap::new();
    for (property, value) in properties {
        // Columns are short names here too (`zfs set recsize=1M`).
        let name = zfs::find(&property).map_or(property.clone(), |info| info.name.to_owned());
        if WRITTEN.iter().any(|word| name.starts_with(word)) {
            return Err(refuse(format!("'{name}' is readonly")));
        }
        named.insert(name, Some(value));
    }
    let template = SetDatasetProperties {
        properties: named,
        no_mount: parsed.has("u"),
        command: session.command_line.clone(),
        ..SetDatasetProperties::default()
    };
    let mut code = 0;
    for name in &names {
        // What a property makes impossible must not leave a quota behind.
        let done = if template.properties.is_empty() {
            openable(name).map(|()| 0)
        } else {
            for_each(session, std::slice::from_ref(name), &template)
        };
        let done = match done {
            Ok(0) => set_quotas(session, name, &quotas),
            other => other,
        };
        code = code.max(complain_or(done)?);
    }
    Ok(code)
}

/// A refusal is said, and the command goes on with the next data set.
fn complain_or(done: Done) -> Done {
    match done {
        Err(Failure::Refused(body)) => {
            complain(&body);
            Ok(body.exit_code())
        }
        other => other,
    }
}

fn set_quotas(session: &mut Session, name: &str, quotas: &[IdQuota]) -> Done {
    for quota in quotas {
        let call = SetIdQuota { name: name.to_owned(), quota: quota.clone(), command: session.command_line.clone() };
        session.ask(call)?;
    }
    Ok(0)
}

/// Checks what `zfs inherit` is asked for.
fn inheritable(property: &str, received: bool) -> Result<String, Failure> {
    let Some(info) = zfs::find(property) else {
        return if zfs::is_user_property(property) {
            Ok(property.to_owned())
        } else {
            Err(usage(format!("invalid property '{property}'")))
        };
    };
    let name = info.name;
    if properties::is_read_only(name) {
        return Err(refused(format!("{property} property is read-only")));
    }
    if received && matches!(name, "volsize" | "version") {
        return Err(refused(format!("'{property}' property cannot be reverted to a received value")));
    }
    if !properties::is_inherited(name) && !received {
        let body = ErrorBody::new(format!("'{property}' property cannot be inherited"));
        return Err(Failure::Refused(match name {
            "quota" | "reservation" | "refquota" | "refreservation" => body.hint(format!(
                "use 'zfs set {property}=none' to clear\nuse 'zfs inherit -S {property}' to revert to received value"
            )),
            _ => body,
        }));
    }
    Ok(name.to_owned())
}

/// Runs `zfs inherit`.
pub fn inherit(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "rS", long: &[] }, words).map_err(usage)?;
    let (property, names) = match parsed.operands.as_slice() {
        [] => return Err(usage("missing property argument")),
        [_] => return Err(usage("missing dataset argument")),
        [property, names @ ..] => (inheritable(property, parsed.has("S"))?, names),
    };
    let template = SetDatasetProperties {
        properties: BTreeMap::from([(property, None)]),
        recursive: parsed.has("r"),
        received: parsed.has("S"),
        command: session.command_line.clone(),
        ..SetDatasetProperties::default()
    };
    for_each(session, names, &template)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> Result<(BTreeMap<String, String>, Vec<String>), Failure> {
        settings(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn settings_come_before_data_sets() {
        let (properties, names) = split("a=1 b=x=y tank tank/b").unwrap();
        assert_eq!(properties, BTreeMap::from([("a".into(), "1".into()), ("b".into(), "x=y".into())]));
        assert_eq!(names, ["tank", "tank/b"]);
        assert_eq!(split("a=1").unwrap_err(), usage("missing dataset name(s)"));
        assert_eq!(split("tank").unwrap_err(), usage("missing property=value argument(s)"));
        assert_eq!(split("a=1 tank b=2").unwrap_err(), usage("invalid argument order"));
        assert_eq!(split("").unwrap_err(), usage("missing arguments"));
    }

    #[test]
    fn only_what_can_be_inherited_is_inherited() {
        let inheritable = |property| inheritable(property, false);
        assert_eq!(inheritable("recsize").unwrap(), "recordsize");
        assert_eq!(inheritable("my:own").unwrap(), "my:own");
        for read_only in ["used", "utf8only"] {
            let Err(Failure::Refused(body)) = inheritable(read_only) else { panic!("{read_only}") };
            assert_eq!(body.message, format!("{read_only} property is read-only"));
        }
        assert!(matches!(inheritable("quota"), Err(Failure::Refused(body)) if body.hint.is_some()));
        assert!(super::inheritable("quota", true).is_ok() && super::inheritable("version", true).is_err());
        assert!(matches!(inheritable("nope"), Err(Failure::Usage(_))));
    }
}
