//! Records in memory (`itx_t`, `zil_itx_assign`, `zil_async_to_sync`).
//!
//! Invariants:
//! - a group's list for commits is in the order in which the changes were made, but for changes of single objects,
//!   which come in when they are asked for: after everything they build on, and in their own order;
//! - lists of groups that are on disk are dropped at the latest when their place is needed.

use std::collections::{BTreeMap, BTreeSet};

use platter_ondisk::Txg;
use platter_ondisk::zil::record::{Record, Write, set};

/// Groups that can be open or on their way to disk at one time.
pub(crate) const SLOTS: usize = 4;

/// A change to be remembered.
#[derive(Clone, Debug)]
pub enum Note {
    /// A change of names: part of every commit.
    Namespace(Record),
    /// A change of one object: part of the commits of that object.
    Object(u64, Record),
    /// Bytes were written to an object: part of its commits; the bytes are read then.
    Data {
        /// The object.
        object: u64,
        /// Its generation, to tell reuses of its number apart.
        generation: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

impl Note {
    /// The one object it is about.
    fn object(&self) -> Option<u64> {
        match self {
            Self::Namespace(_) => None,
            Self::Object(object, _) | Self::Data { object, .. } => Some(*object),
        }
    }

    /// Bytes of data that come with it.
    pub(crate) fn data_bytes(&self) -> u64 {
        match self {
            Self::Data { length, .. } | Self::Namespace(Record::Write(Write { length, .. })) => *length,
            _ => 0,
        }
    }

    /// The file whose size it sets.
    pub(crate) fn sets_size_of(&self) -> Option<u64> {
        match self {
            Self::Object(object, Record::SetAttr(change)) if change.mask & set::SIZE != 0 => Some(*object),
            Self::Object(object, Record::Truncate { length: 0, .. }) => Some(*object),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Group {
    txg: Txg,
    for_commit: Vec<Note>,
    /// Objects with changes of their own in `for_commit`: a list of a hundred thousand removals is not searched for
    /// each of the files that are gone.
    promoted: BTreeSet<u64>,
    by_object: BTreeMap<u64, Vec<Note>>,
}

/// The records of all groups that are not on disk.
#[derive(Default)]
pub(crate) struct Itxs {
    groups: [Option<Group>; SLOTS],
}

impl Itxs {
    fn group(&mut self, txg: Txg) -> &mut Group {
        let slot = &mut self.groups[(txg.0 as usize) % SLOTS];
        if slot.as_ref().is_none_or(|group| group.txg != txg) {
            debug_assert!(slot.as_ref().is_none_or(|group| group.txg < txg), "a group that is on disk is open again");
            *slot = Some(Group { txg, ..Group::default() });
        }
        slot.as_mut().expect("just set")
    }

    pub fn add(&mut self, txg: Txg, note: Note) {
        let group = self.group(txg);
        match note.object() {
            None => group.for_commit.push(note),
            Some(object) => group.by_object.entry(object).or_default().push(note),
        }
    }

    fn oldest_first(&mut self) -> Vec<&mut Group> {
        let mut groups: Vec<&mut Group> = self.groups.iter_mut().flatten().collect();
        groups.sort_by_key(|group| group.txg);
        groups
    }

    /// Changes of `object` (of all objects without one) become part of the next commit.
    pub fn promote(&mut self, object: Option<u64>) {
        for group in self.oldest_first() {
            match object {
                Some(object) => {
                    if let Some(notes) = group.by_object.remove(&object) {
                        group.promoted.insert(object);
                        group.for_commit.extend(notes);
                    }
                }
                None => {
                    let all = std::mem::take(&mut group.by_object);
                    group.promoted.extend(all.keys());
                    group.for_commit.extend(all.into_values().flatten());
                }
            }
        }
    }

    /// `object` is gone: its changes concern nobody.
    pub fn forget(&mut self, object: u64) {
        for group in self.groups.iter_mut().flatten() {
            group.by_object.remove(&object);
            if group.promoted.remove(&object) {
                group.for_commit.retain(|note| note.object() != Some(object));
            }
        }
    }

    /// What the next commit has to write: everything of groups after `synced`, oldest first.
    pub fn take(&mut self, synced: Txg) -> Vec<(Txg, Note)> {
        let mut batch = Vec::new();
        for group in self.oldest_first() {
            let notes = std::mem::take(&mut group.for_commit);
            group.promoted.clear();
            if group.txg > synced {
                batch.extend(notes.into_iter().map(|note| (group.txg, note)));
            }
        }
        batch
    }

    /// Group `txg` is on disk.
    pub fn clean(&mut self, txg: Txg) {
        for slot in &mut self.groups {
            if slot.as_ref().is_some_and(|group| group.txg <= txg) {
                *slot = None;
            }
        }
    }

    /// Whether nothing is remembered.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.groups.iter().flatten().all(|group| group.for_commit.is_empty() && group.by_object.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truncate(object: u64, offset: u64) -> Note {
        Note::Object(object, Record::Truncate { object, offset, length: 0 })
    }

    fn removal(name: &str) -> Note {
        let name = name.as_bytes().to_vec();
        Note::Namespace(Record::Remove { any_case: false, directory: false, parent: 1, name })
    }

    fn shape(batch: &[(Txg, Note)]) -> Vec<String> {
        let text = |note: &Note| match note {
            Note::Namespace(Record::Remove { name, .. }) => String::from_utf8_lossy(name).into_owned(),
            Note::Object(object, Record::Truncate { offset, .. }) => format!("{object}@{offset}"),
            other => format!("{other:?}"),
        };
        batch.iter().map(|(txg, note)| format!("{} {}", txg.0, text(note))).collect()
    }

    #[test]
    fn a_commit_of_one_object_takes_all_names_and_no_other_objects_changes() {
        let mut itxs = Itxs::default();
        itxs.add(Txg(5), truncate(7, 1));
        itxs.add(Txg(5), removal("a"));
        itxs.add(Txg(6), truncate(7, 2));
        itxs.add(Txg(6), truncate(8, 3));
        itxs.add(Txg(6), removal("b"));
        itxs.promote(Some(7));
        assert_eq!(shape(&itxs.take(Txg(4))), ["5 a", "5 7@1", "6 b", "6 7@2"]);
        assert!(itxs.take(Txg(4)).is_empty(), "once");
        itxs.promote(None);
        assert_eq!(shape(&itxs.take(Txg(4))), ["6 8@3"]);
        assert!(itxs.is_empty());
    }

    #[test]
    fn what_is_on_disk_or_gone_is_not_written() {
        let mut itxs = Itxs::default();
        itxs.add(Txg(5), removal("a"));
        itxs.add(Txg(6), truncate(7, 2));
        itxs.add(Txg(6), truncate(8, 2));
        itxs.add(Txg(6), truncate(9, 2));
        itxs.forget(8);
        itxs.promote(None);
        itxs.forget(9);
        assert_eq!(shape(&itxs.take(Txg(5))), ["6 7@2"]);
        itxs.add(Txg(6), removal("c"));
        itxs.clean(Txg(6));
        assert!(itxs.is_empty());
        // The slot of a group four later is the same.
        itxs.add(Txg(7), removal("d"));
        itxs.add(Txg(11), removal("e"));
        assert_eq!(shape(&itxs.take(Txg(7))), ["11 e"]);
    }
}
