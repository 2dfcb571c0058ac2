//! Names in the ZAP of a directory's delegated permissions (`dd_deleg_zapobj`; `module/zfs/dsl_deleg.c`,
//! `zfs_deleg_whokey`, `module/zcommon/zfs_deleg.c`).
//!
//! Each leads to a ZAP of its own, whose names are permissions, or of a key with a capital letter permission sets; what
//! they stand for there is 0. A key is a letter for whom, a letter for where, `$`, and who that is: `ul$1000`, `Gd$4`,
//! `el$`, `c-$`, `s-$@backup`.

use std::fmt;

use crate::error::Error;

/// Longest name of a permission set or a key in bytes, with the terminating zero (`ZFS_MAX_DELEG_NAME`,
/// `ZFS_PERMSET_MAXLEN`).
pub const DELEGATION_NAME_MAX: usize = 256;

/// Where what is allowed to somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// At the data set itself.
    Local,
    /// At those below it, and at snapshots.
    Descendent,
}

impl Reach {
    fn letter(self) -> u8 {
        match self {
            Self::Local => b'l',
            Self::Descendent => b'd',
        }
    }
}

/// To whom something is allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grantee {
    /// The permission set of this name, which begins with `@`: to whoever it is allowed.
    Set(String),
    /// Whoever makes a data set below, there.
    Creator,
    /// The user of this number.
    User(u64, Reach),
    /// The group of this number.
    Group(u64, Reach),
    /// Everybody.
    Everyone(Reach),
}

/// A name in the ZAP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermissionKey {
    /// Who has what it leads to.
    pub grantee: Grantee,
    /// Whether that are permission sets, and not permissions.
    pub of_sets: bool,
}

/// A number as OpenZFS prints it: no sign but that of numbers beyond 2^63, no zero in front.
fn number(text: &str) -> Option<u64> {
    let value = text.parse::<i64>().ok()?.cast_unsigned();
    (value.cast_signed().to_string() == text).then_some(value)
}

/// Whether this is a permission set's name (`permset_namecheck`, `module/zcommon/zfs_namecheck.c`).
pub fn is_permission_set(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    let own = name.strip_prefix('@');
    name.len() < DELEGATION_NAME_MAX && own.is_some_and(|own| !own.is_empty() && own.chars().all(is_valid))
}

impl PermissionKey {
    /// A key as it stands in the ZAP.
    ///
    /// # Errors
    /// It is none that OpenZFS writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let bad = || Error::field("delegated permissions", "whokey", bytes.first().copied().unwrap_or(0));
        let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
        let [kind, place, b'$', ..] = *bytes else { return Err(bad()) };
        if bytes.len() >= DELEGATION_NAME_MAX + 3 {
            return Err(bad());
        }
        let who = &text[3..];
        let reach = match place {
            b'l' => Some(Reach::Local),
            b'd' => Some(Reach::Descendent),
            b'-' => None,
            _ => return Err(bad()),
        };
        let grantee = match (kind.to_ascii_lowercase(), reach, who) {
            (b'u', Some(reach), who) => Grantee::User(number(who).ok_or_else(bad)?, reach),
            (b'g', Some(reach), who) => Grantee::Group(number(who).ok_or_else(bad)?, reach),
            (b'e', Some(reach), "") => Grantee::Everyone(reach),
            (b'c', None, "") => Grantee::Creator,
            (b's', None, who) if is_permission_set(who) => Grantee::Set(who.to_owned()),
            _ => return Err(bad()),
        };
        Ok(Self { grantee, of_sets: kind.is_ascii_uppercase() })
    }
}

impl fmt::Display for PermissionKey {
    /// As it stands in the ZAP.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, place, who) = match &self.grantee {
            Grantee::Set(name) => (b's', b'-', name.clone()),
            Grantee::Creator => (b'c', b'-', String::new()),
            Grantee::User(id, reach) => (b'u', reach.letter(), id.cast_signed().to_string()),
            Grantee::Group(id, reach) => (b'g', reach.letter(), id.cast_signed().to_string()),
            Grantee::Everyone(reach) => (b'e', reach.letter(), String::new()),
        };
        let kind = if self.of_sets { kind.to_ascii_uppercase() } else { kind };
        write!(f, "{}{}${who}", char::from(kind), char::from(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_those_of_openzfs() {
        let key = |grantee, of_sets| PermissionKey { grantee, of_sets };
        let table = [
            ("ul$1000", key(Grantee::User(1000, Reach::Local), false)),
            ("Ud$0", key(Grantee::User(0, Reach::Descendent), true)),
            ("gd$4294967295", key(Grantee::Group(4_294_967_295, Reach::Descendent), false)),
            ("Gl$5", key(Grantee::Group(5, Reach::Local), true)),
            ("el$", key(Grantee::Everyone(Reach::Local), false)),
            ("Ed$", key(Grantee::Everyone(Reach::Descendent), true)),
            ("c-$", key(Grantee::Creator, false)),
            ("C-$", key(Grantee::Creator, true)),
            ("s-$@a b", key(Grantee::Set("@a b".into()), false)),
            ("S-$@x", key(Grantee::Set("@x".into()), true)),
        ];
        for (text, key) in table {
            assert_eq!(PermissionKey::decode(text.as_bytes()).unwrap(), key, "{text}");
            assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn what_says_nothing_is_no_key() {
        let long = format!("s-$@{}", "x".repeat(DELEGATION_NAME_MAX));
        for text in [
            "",
            "u",
            "ul",
            "ul$",
            "ul$x",
            "ul$-",
            "ul$01",
            "ul$+1",
            "ul$ 1",
            "u-$1",
            "ux$1",
            "el$1",
            "e-$",
            "cl$",
            "c-$1",
            "s-$",
            "s-$x",
            "s-$@",
            "s-$@a/b",
            "sl$@a",
            "xl$1",
            "ul:1",
            "ul$99999999999999999999",
            &long,
            "uü$1",
            "ul$١",
        ] {
            assert!(PermissionKey::decode(text.as_bytes()).is_err(), "{text}");
        }
        assert!(PermissionKey::decode(b"ul$\xff").is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_a_key_is_written_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok(key) = PermissionKey::decode(&bytes) {
                prop_assert_eq!(key.to_string().into_bytes(), bytes);
            }
        }

        #[test]
        fn every_number_reads_back(id: u64) {
            let key = PermissionKey { grantee: Grantee::User(id, Reach::Local), of_sets: false };
            prop_assert_eq!(PermissionKey::decode(key.to_string().as_bytes()).unwrap(), key);
        }
    }
}
