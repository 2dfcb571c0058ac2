//! What is allowed to whom at the data sets of a line from one up to the pool's root, and whether that lets somebody do
//! something (`dsl_deleg_access_impl`, `module/zfs/dsl_deleg.c`). Pure functions.
//!
//! Invariants:
//! - what is not allowed in so many words is not allowed: a key or a set that says nothing gives nothing;
//! - a set holds what is said of it at the data set where it is looked up and nowhere below that.

use std::collections::{BTreeMap, BTreeSet};

use platter_ondisk::dsl::{Grantee, PermissionKey, Reach};

/// Permissions and sets by key: what one data set has.
pub type Granted = BTreeMap<PermissionKey, BTreeSet<String>>;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// User number.
    pub uid: u32,
    /// Number of the first group.
    pub gid: u32,
    /// Numbers of the others.
    pub groups: Vec<u32>,
}

impl Asker {
    /// Whether the group is one of his.
    pub fn is_member(&self, group: u64) -> bool {
        std::iter::once(&self.gid).chain(&self.groups).any(|own| u64::from(*own) == group)
    }

    /// Who he is where something is allowed.
    fn grantees(&self, reach: Reach) -> impl Iterator<Item = Grantee> + '_ {
        let groups = std::iter::once(&self.gid).chain(&self.groups);
        let groups = groups.map(move |group| Grantee::Group(u64::from(*group), reach));
        [Grantee::User(u64::from(self.uid), reach), Grantee::Everyone(reach)].into_iter().chain(groups)
    }
}

fn of(granted: &Granted, grantee: Grantee, of_sets: bool) -> Option<&BTreeSet<String>> {
    granted.get(&PermissionKey { grantee, of_sets })
}

/// Whether `permission` is allowed to `asker` by what the data sets of a line have, of which the first is the one that
/// is meant; when that is only above what is meant (a snapshot of it, or what would be made below it), `is_below`.
pub fn allows<'a>(
    line: impl IntoIterator<Item = &'a Granted>,
    is_below: bool,
    asker: &Asker,
    permission: &str,
) -> bool {
    // Sets that are allowed to him, with whether there is nothing more to learn of them.
    let mut sets: BTreeMap<String, bool> = BTreeMap::new();
    let mut reach = if is_below { Reach::Descendent } else { Reach::Local };
    for granted in line {
        for names in asker.grantees(reach).filter_map(|grantee| of(granted, grantee, true)) {
            for name in names {
                sets.entry(name.clone()).or_default();
            }
        }
        loop {
            let (mut found, waiting) =
                (Vec::new(), sets.iter().filter(|(_, is_known)| !**is_known).map(|(name, _)| name.clone()));
            let waiting: Vec<String> = waiting.collect();
            for name in waiting {
                let set = || Grantee::Set(name.clone());
                let (own, others) = (of(granted, set(), false), of(granted, set(), true));
                if own.is_some_and(|own| own.contains(permission)) {
                    return true;
                }
                found.extend(others.into_iter().flatten().cloned());
                if own.is_some() || others.is_some() {
                    sets.insert(name, true);
                }
            }
            let before = sets.len();
            for name in found {
                sets.entry(name).or_default();
            }
            if sets.len() == before {
                break;
            }
        }
        let mut own = asker.grantees(reach).filter_map(|grantee| of(granted, grantee, false));
        if own.any(|permissions| permissions.contains(permission)) {
            return true;
        }
        reach = Reach::Descendent;
    }
    false
}

/// What the user `uid` is allowed at a data set that he makes below the data sets of a line
/// (`dsl_deleg_set_create_perms`).
pub fn at_creation<'a>(line: impl IntoIterator<Item = &'a Granted>, uid: u32) -> Granted {
    let mut made = Granted::new();
    for granted in line {
        for of_sets in [false, true] {
            if let Some(names) = of(granted, Grantee::Creator, of_sets) {
                let grantee = Grantee::User(u64::from(uid), Reach::Local);
                made.entry(PermissionKey { grantee, of_sets }).or_default().extend(names.iter().cloned());
            }
        }
    }
    let is_his = |grantee: &Grantee| *grantee == Grantee::User(u64::from(uid), Reach::Local);
    assert!(made.keys().all(|key| is_his(&key.grantee)), "nobody else gets anything by it");
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(entries: &[(&str, &[&str])]) -> Granted {
        let key = |text: &str| PermissionKey::decode(text.as_bytes()).expect("a key");
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        entries.iter().map(|(text, all)| (key(text), names(all))).collect()
    }

    fn joe() -> Asker {
        Asker { uid: 1000, gid: 100, groups: vec![7, 8] }
    }

    #[test]
    fn nothing_is_allowed_that_is_not_said() {
        assert!(!allows([], false, &joe(), "snapshot"));
        let others = granted(&[("ul$1001", &["snapshot"]), ("gl$9", &["snapshot"]), ("c-$", &["snapshot"])]);
        assert!(!allows([&others], false, &joe(), "snapshot"));
        let set = granted(&[("s-$@all", &["snapshot"])]);
        assert!(!allows([&set], false, &joe(), "snapshot"), "a set is nobody's by itself");
        assert!(!allows([&granted(&[("ul$1000", &["snapshots", "snap"])])], false, &joe(), "snapshot"));
    }

    #[test]
    fn users_groups_and_everyone() {
        for key in ["ul$1000", "gl$100", "gl$7", "gl$8", "el$"] {
            let here = granted(&[(key, &["send"])]);
            assert!(allows([&here], false, &joe(), "send"), "{key}");
            assert!(!allows([&here], false, &joe(), "receive"), "{key}");
        }
    }

    #[test]
    fn local_is_here_and_descendent_is_below() {
        let (none, local) = (Granted::new(), granted(&[("ul$1000", &["send"])]));
        let below = granted(&[("ud$1000", &["send"])]);
        assert!(allows([&local], false, &joe(), "send") && !allows([&local], true, &joe(), "send"));
        assert!(!allows([&none, &local], false, &joe(), "send"));
        assert!(!allows([&below], false, &joe(), "send") && allows([&below], true, &joe(), "send"));
        assert!(allows([&none, &none, &below], false, &joe(), "send"));
    }

    #[test]
    fn sets_hold_what_is_said_of_them_further_up() {
        let here = granted(&[("Ul$1000", &["@a"])]);
        let above =
            granted(&[("s-$@a", &["send"]), ("S-$@a", &["@b"]), ("s-$@b", &["diff"]), ("S-$@b", &["@a", "@c"])]);
        for (permission, allowed) in [("send", true), ("diff", true), ("hold", false)] {
            assert_eq!(allows([&here, &above], false, &joe(), permission), allowed, "{permission}");
        }
        // What is said of it further down does not reach those above.
        let (low, high) = (granted(&[("s-$@a", &["send"])]), granted(&[("Ud$1000", &["@a"])]));
        assert!(!allows([&low, &high], false, &joe(), "send"));
        // The nearest definition is the one that counts.
        let both = granted(&[("Ul$1000", &["@a"]), ("s-$@a", &["hold"])]);
        assert!(!allows([&both, &above], false, &joe(), "send"));
    }

    #[test]
    fn whoever_makes_something_has_it_there() {
        let line = [
            granted(&[("c-$", &["destroy"]), ("ul$5", &["send"])]),
            Granted::new(),
            granted(&[("c-$", &["mount"]), ("C-$", &["@x"])]),
        ];
        let expected = granted(&[("ul$1000", &["destroy", "mount"]), ("Ul$1000", &["@x"])]);
        assert_eq!(at_creation(&line, 1000), expected);
        assert_eq!(at_creation(&line[1..2], 1000), Granted::new());
    }
}
