//! Properties of vdevs: what they are called, what they may be, how they are stored (`vdev_prop_init`,
//! `module/zcommon/zpool_prop.c`; vdevprops(7)).
//!
//! Invariants: a value is checked here once, at the edge; numbers and words are stored as numbers, the rest as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Refused, Result};
use crate::faults::{Cause, Limits};
use crate::numbers;
use crate::properties::{USER_NAME_MAX, USER_VALUE_MAX, has_user_characters, is_user};
use crate::stored_property::StoredProperty;

/// Text for whoever looks at a vdev.
pub const COMMENT: &str = "comment";
/// Whether new blocks are put on a top-level vdev.
pub const ALLOCATING: &str = "allocating";
/// Whether a failed request of a device is tried again below the pool.
pub const FAILFAST: &str = "failfast";
/// Whether children of a RAID-Z group that are much slower than the others sit out of reads.
pub const AUTOSIT: &str = "autosit";
/// Whether a device sits out of reads; never stored.
pub const SIT_OUT: &str = "sit_out";

/// What stands for no limit.
pub const NO_LIMIT: u64 = u64::MAX;

/// Properties that tell something and cannot be set.
const FACTS: [&str; 41] = [
    "name",
    "capacity",
    "state",
    "guid",
    "asize",
    "psize",
    "ashift",
    "size",
    "free",
    "allocated",
    "expandsize",
    "fragmentation",
    "parity",
    "devid",
    "physpath",
    "encpath",
    "fru",
    "parent",
    "children",
    "numchildren",
    "read_errors",
    "write_errors",
    "checksum_errors",
    "initialize_errors",
    "trim_errors",
    "slow_ios",
    "null_ops",
    "read_ops",
    "write_ops",
    "free_ops",
    "claim_ops",
    "trim_ops",
    "null_bytes",
    "read_bytes",
    "write_bytes",
    "free_bytes",
    "claim_bytes",
    "trim_bytes",
    "removing",
    "raidz_expanding",
    "trim_support",
];

/// Properties that OpenZFS sets, and this version does not.
const NOT_YET: [&str; 2] = ["path", "bootsize"];

/// What a vdev's ZAP has of properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevProperties {
    /// Numbers and words, as stored, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u64>,
    /// The comment and user properties.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, String>,
}

impl VdevProperties {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.texts.is_empty()
    }

    /// Whether a property whose words are `on`, which is the default, and `off` is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.numbers.get(name) != Some(&0)
    }

    /// Whether a property whose default is `off` was turned on.
    pub fn was_turned_on(&self, name: &str) -> bool {
        self.numbers.get(name) == Some(&1)
    }

    /// The limit that is called so; none when it is the policy's.
    pub fn limit(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied().filter(|number| *number != NO_LIMIT)
    }

    /// Limits of errors; where this vdev has none of its own, those of the vdev `above`.
    pub fn limits(&self, above: Option<&Self>) -> Limits {
        let one = |cause: Cause, seconds| {
            let name = limit_name(cause, seconds);
            self.limit(&name).or_else(|| above.and_then(|above| above.limit(&name)))
        };
        let both = |cause| (one(cause, false), one(cause, true));
        Limits { checksum: both(Cause::Checksum), io: both(Cause::Io), slow_io: both(Cause::SlowIo) }
    }

    /// Notes a value that was stored.
    pub fn note(&mut self, name: &str, value: &StoredProperty) {
        match value {
            StoredProperty::Number(number) => _ = self.numbers.insert(name.to_owned(), *number),
            StoredProperty::Text(text) if text.is_empty() && is_user(name) => _ = self.texts.remove(name),
            StoredProperty::Text(text) => _ = self.texts.insert(name.to_owned(), text.clone()),
        }
        let is_both = self.numbers.contains_key(name) && self.texts.contains_key(name);
        assert!(!is_both, "a property is stored as a number or as text");
    }
}

/// What a limit is called: how many events, or within how many seconds.
pub fn limit_name(cause: Cause, seconds: bool) -> String {
    format!("{}_{}", cause.name(), if seconds { 't' } else { 'n' })
}

/// All limits' names.
pub fn limit_names() -> impl Iterator<Item = String> {
    Cause::ALL.into_iter().flat_map(|cause| [false, true].map(|seconds| limit_name(cause, seconds)))
}

/// Whether a name may be that of a user property (`vdev_prop_user`).
pub fn is_user_name(name: &str) -> bool {
    is_user(name) && has_user_characters(name)
}

/// Whether such a text may be stored under this name: what a disk has is held against it, too.
pub fn is_possible_text(name: &str, value: &str) -> bool {
    (name == COMMENT || is_user_name(name)) && name.len() <= USER_NAME_MAX && value.len() <= USER_VALUE_MAX
}

/// Checks a value that somebody sets, and turns it into what is stored.
///
/// # Errors
/// In OpenZFS's words, what is wrong with it.
pub fn parse(name: &str, value: &str) -> Result<StoredProperty> {
    let invalid = |text: String| Err(Refused::invalid(text));
    if FACTS.contains(&name) {
        return invalid(format!("'{name}' is readonly"));
    }
    if NOT_YET.contains(&name) {
        return Err(Refused::Unsupported(format!("this version cannot set property '{name}' of a device")));
    }
    match name {
        COMMENT if value.len() > USER_VALUE_MAX => invalid(format!("'{name}' is too long")),
        COMMENT => Ok(StoredProperty::Text(value.to_owned())),
        ALLOCATING | FAILFAST | AUTOSIT | SIT_OUT => match value {
            "on" => Ok(StoredProperty::Number(1)),
            "off" => Ok(StoredProperty::Number(0)),
            _ => invalid(format!("'{name}' must be one of 'on | off'")),
        },
        _ if limit_names().any(|limit| limit == name) => match value {
            "none" => Ok(StoredProperty::Number(NO_LIMIT)),
            "auto" => invalid(format!("'auto' is invalid value for '{name}'")),
            _ => numbers::parse(value).map(StoredProperty::Number).map_err(Refused::Invalid),
        },
        _ if is_user_name(name) && name.len() > USER_NAME_MAX => invalid(format!("property name '{name}' is too long")),
        _ if is_user_name(name) && value.len() > USER_VALUE_MAX => {
            invalid(format!("property value for '{name}' is too long"))
        }
        _ if is_user_name(name) => Ok(StoredProperty::Text(value.to_owned())),
        _ => invalid(format!("invalid property: '{name}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, value: &str) -> String {
        parse(name, value).expect_err("it is refused").to_string()
    }

    #[test]
    fn values_are_checked_in_openzfs_s_words() {
        let number = |name, value| parse(name, value).expect("a value");
        assert_eq!(number("allocating", "off"), StoredProperty::Number(0));
        assert_eq!(number("io_n", "1K"), StoredProperty::Number(1024));
        assert_eq!(number("slow_io_t", "none"), StoredProperty::Number(NO_LIMIT));
        assert_eq!(number("comment", ""), StoredProperty::Text(String::new()));
        assert_eq!(refusal("failfast", "yes"), "'failfast' must be one of 'on | off'");
        assert_eq!(refusal("size", "1"), "'size' is readonly");
        assert_eq!(refusal("nothing", "1"), "invalid property: 'nothing'");
        assert_eq!(refusal("Org:x", "1"), "invalid property: 'Org:x'");
        assert_eq!(refusal("io_n", "auto"), "'auto' is invalid value for 'io_n'");
        assert_eq!(refusal("comment", &"x".repeat(8192)), "'comment' is too long");
        assert!(parse("comment", &"x".repeat(8191)).is_ok());
        assert!(refusal("org:x", &"x".repeat(8192)).ends_with("is too long"));
        assert!(refusal(&format!("org:{}", "x".repeat(252)), "v").ends_with("is too long"));
        assert!(parse(&format!("org:{}", "x".repeat(251)), "v").is_ok());
    }

    #[test]
    fn limits_are_a_device_s_own_or_those_of_the_vdev_above() {
        let of = |pairs: &[(&str, u64)]| VdevProperties {
            numbers: pairs.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect(),
            ..VdevProperties::default()
        };
        let (own, above) =
            (of(&[("io_n", 3), ("io_t", NO_LIMIT)]), of(&[("io_n", 5), ("io_t", 60), ("checksum_n", 7)]));
        let limits = own.limits(Some(&above));
        assert_eq!((limits.io, limits.checksum), ((Some(3), Some(60)), (Some(7), None)));
        assert_eq!(own.limits(None).io, (Some(3), None));
    }

    #[test]
    fn an_empty_user_property_is_gone_and_an_empty_comment_is_not() {
        let mut properties = VdevProperties::default();
        properties.note("org:x", &StoredProperty::Text("1".into()));
        properties.note("org:x", &StoredProperty::Text(String::new()));
        assert!(properties.is_empty());
        properties.note(COMMENT, &StoredProperty::Text(String::new()));
        assert_eq!(properties.texts.get(COMMENT).map(String::as_str), Some(""));
    }
}
