//! Names and numbers of users, groups and projects. Names are looked up with `getent`, which knows what this system
//! knows (files, LDAP and so on).

use std::collections::BTreeMap;
use std::process::Command;

use platter_api::messages::{IdQuota, Whose};
use platter_api::numbers;

/// A property such as `userquota@joe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdProperty {
    /// Everything before the `@`.
    pub kind: &'static str,
    /// Whose.
    pub whose: Whose,
    /// Number of the user, group or project.
    pub id: u64,
}

/// Kinds of such properties (`zfs_userquota_prop_prefixes`).
const KINDS: [(&str, Whose); 12] = [
    ("userused", Whose::User),
    ("userquota", Whose::User),
    ("userobjused", Whose::User),
    ("userobjquota", Whose::User),
    ("groupused", Whose::Group),
    ("groupquota", Whose::Group),
    ("groupobjused", Whose::Group),
    ("groupobjquota", Whose::Group),
    ("projectused", Whose::Project),
    ("projectquota", Whose::Project),
    ("projectobjused", Whose::Project),
    ("projectobjquota", Whose::Project),
];

/// Whether a name is such a property's.
pub fn is_id_property(name: &str) -> bool {
    name.split_once('@').is_some_and(|(kind, _)| KINDS.iter().any(|(known, _)| *known == kind))
}

/// Finds out what a property such as `userquota@joe` means; `None` when it is none.
///
/// # Errors
/// OpenZFS's words for a name that nobody has.
pub fn parse(name: &str) -> Option<Result<IdProperty, String>> {
    let (kind, who) = name.split_once('@')?;
    let &(kind, whose) = KINDS.iter().find(|(known, _)| *known == kind)?;
    let id = number(whose, who).ok_or_else(|| format!("'{name}' has an invalid user/group name"));
    Some(id.map(|id| IdProperty { kind, whose, id }))
}

/// Takes the quotas of users, groups and projects out of properties that are to be set.
///
/// # Errors
/// The reason: a name that nobody has, a number that is none, what cannot be set.
pub fn take_quotas(properties: &mut BTreeMap<String, String>) -> Result<Vec<IdQuota>, String> {
    let named: Vec<String> = properties.keys().filter(|name| is_id_property(name)).cloned().collect();
    let mut quotas = Vec::new();
    for name in named {
        let Some(property) = parse(&name) else { continue };
        let property = property?;
        if !property.kind.ends_with("quota") {
            return Err(format!("'{name}' is readonly"));
        }
        let value = properties.remove(&name).unwrap_or_default();
        let value = if value == "none" { 0 } else { numbers::parse(&value)? };
        let objects = property.kind.contains("obj");
        quotas.push(IdQuota { whose: property.whose, id: property.id, objects, value });
    }
    Ok(quotas)
}

fn database(whose: Whose) -> Option<&'static str> {
    match whose {
        Whose::User => Some("passwd"),
        Whose::Group => Some("group"),
        Whose::Project => None,
    }
}

/// `name:password:number:…`
fn entry(whose: Whose, key: &str) -> Option<(String, u64)> {
    let output = Command::new("getent").arg(database(whose)?).arg("--").arg(key).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut fields = text.lines().next()?.split(':');
    let name = fields.next()?.to_owned();
    Some((name, fields.nth(1)?.parse().ok()?))
}

fn number(whose: Whose, who: &str) -> Option<u64> {
    if let Ok(id) = who.parse::<u32>() {
        return Some(u64::from(id));
    }
    if who.is_empty() { None } else { entry(whose, who).map(|(_, id)| id) }
}

/// The number of a user or group that this system knows, by name or number.
pub fn known(whose: Whose, who: &str) -> Option<u64> {
    if who.is_empty() { None } else { entry(whose, who).map(|(_, id)| id) }
}

/// The name of a user or group, if it has one.
pub fn name(whose: Whose, id: u64) -> Option<String> {
    entry(whose, &id.to_string()).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_users_are_told_from_others() {
        let found = parse("userquota@root").unwrap().unwrap();
        assert_eq!(found, IdProperty { kind: "userquota", whose: Whose::User, id: 0 });
        assert_eq!(parse("groupobjused@12").unwrap().unwrap().id, 12);
        assert!(parse("userquota@nobody-has-this-name").unwrap().is_err());
        assert!(parse("projectquota@x").unwrap().is_err());
        assert!(parse("written@snap").is_none() && parse("used").is_none());
        assert_eq!(name(Whose::User, 0).as_deref(), Some("root"));
    }
}
