//! `zfs set` and `zfs inherit`.

use std::collections::BTreeMap;

use platter_daemon::api::{ErrorBody, Outcome, SetDatasetProperties, SetIdQuota};
use platter_dsl::properties::parse_bytes;

use super::create::add_property;
use super::ids;
use crate::getopt::{Grammar, parse};
use crate::props::zfs;
use crate::session::{Done, Failure, Session, complain, complain_all, refused, usage};

/// Sends one request for each data set; complains and goes on.
fn for_each(session: &mut Session, names: &[String], template: &SetDatasetProperties) -> Done {
    let mut code = 0;
    for name in names {
        let call = SetDatasetProperties { name: name.clone(), ..template.clone() };
        match session.post::<_, Outcome>("/v1/datasets/properties", &call) {
            Ok(outcome) => code = code.max(complain_all(&outcome.problems)),
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
    let (properties, names) = settings(&parsed.operands)?;
    let mut code = 0;
    let mut named = BTreeMap::new();
    let mut quotas = Vec::new();
    for (property, value) in properties {
        // Columns are short names here too (`zfs set recsize=1M`).
        let name = zfs::find(&property).map_or(property.clone(), |info| info.name.to_owned());
        let first = &names[0];
        if let Some(found) = ids::parse(&property) {
            let what = format!("cannot set property for '{first}'");
            let found = found.map_err(|reason| refused(format!("{what}: {reason}")))?;
            if !found.kind.ends_with("quota") {
                return Err(refused(format!("{what}: '{property}' is readonly")));
            }
            let bytes = if value == "none" { Some(0) } else { parse_bytes(&value) };
            let bytes = bytes.ok_or_else(|| refused(format!("{what}: bad numeric value '{value}'")))?;
            quotas.push((found, bytes));
            continue;
        }
        if zfs::is_read_only(&name) {
            return Err(refused(format!("cannot set property for '{first}': '{name}' is readonly")));
        }
        if zfs::find(&name).is_none() && !zfs::is_user_property(&name) {
            return Err(refused(format!("cannot set property for '{first}': invalid property '{name}'")));
        }
        named.insert(name, Some(value));
    }
    for (property, value) in quotas {
        for name in &names {
            let call = SetIdQuota {
                name: name.clone(),
                whose: property.whose,
                id: property.id,
                objects: property.kind.contains("obj"),
                value,
                command: session.command_line.clone(),
            };
            if let Err(body) = session.post::<_, Outcome>("/v1/datasets/idquota", &call) {
                complain(&body);
                code = 1;
            }
        }
    }
    if named.is_empty() {
        return Ok(code);
    }
    let template = SetDatasetProperties {
        properties: named,
        no_mount: parsed.has("u"),
        command: session.command_line.clone(),
        ..SetDatasetProperties::default()
    };
    Ok(code.max(for_each(session, &names, &template)?))
}

/// Checks what `zfs inherit` is asked for.
fn inheritable(property: &str) -> Result<String, Failure> {
    let Some(info) = zfs::find(property) else {
        return if zfs::is_user_property(property) {
            Ok(property.to_owned())
        } else {
            Err(usage(format!("invalid property '{property}'")))
        };
    };
    let name = info.name;
    if zfs::is_read_only(name) {
        return Err(refused(format!("{property} property is read-only")));
    }
    if !zfs::is_inherited(name) {
        let body = ErrorBody::new(format!("'{property}' property cannot be inherited"));
        return Err(Failure::Refused(match name {
            "quota" | "reservation" | "refquota" | "refreservation" => {
                body.hint(format!("use 'zfs set {property}=none' to clear"))
            }
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
        [property, names @ ..] => (inheritable(property)?, names),
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
        assert_eq!(inheritable("recsize").unwrap(), "recordsize");
        assert_eq!(inheritable("my:own").unwrap(), "my:own");
        assert!(matches!(inheritable("used"), Err(Failure::Refused(_))));
        assert!(matches!(inheritable("quota"), Err(Failure::Refused(body)) if body.hint.is_some()));
        assert!(matches!(inheritable("nope"), Err(Failure::Usage(_))));
    }
}
