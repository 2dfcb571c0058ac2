//! What one file system must hold, and what it may hold after a crash.
//!
//! Names change in one order, each file's contents in another (that is how the intent log keeps them). Of both, the
//! model remembers every state since the last one that is known to be stable. After a crash the names are as they were
//! after some number of changes, not fewer than an `fsync` or `sync` has acknowledged; and so is each file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A file, whatever it is called.
pub type FileId = usize;

/// What is under a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// A file.
    File(FileId),
    /// A folder.
    Folder,
    /// A symbolic link with its target.
    Symlink(String),
}

/// Paths (`a`, `a/b`) with what is there.
pub type Names = BTreeMap<String, Node>;

/// A file's contents and what hangs on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Its extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// A file as a change left it.
#[derive(Clone, Debug, Default)]
struct State {
    contents: Contents,
    /// The bytes that the change wrote; empty for other changes.
    written: Range<usize>,
}

/// What was found under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file with its number of links.
    File(Contents, u32),
    /// A folder.
    Folder,
    /// A symbolic link.
    Symlink(String),
}

/// Whatever was found, by path.
pub type Tree = BTreeMap<String, Found>;

/// See the module text.
#[derive(Clone, Debug)]
pub struct Files {
    /// States of the names, oldest first; never empty.
    names: Vec<Names>,
    /// The oldest state that may still be found.
    names_least: usize,
    /// States of each file, oldest first; never empty.
    contents: BTreeMap<FileId, (Vec<State>, usize)>,
    /// Files that have had a second name at some time.
    linked: BTreeSet<FileId>,
    next: FileId,
}

impl Default for Files {
    fn default() -> Self {
        Self { names: vec![Names::new()], names_least: 0, contents: BTreeMap::new(), linked: BTreeSet::new(), next: 0 }
    }
}

impl Files {
    /// The names as they are.
    pub fn names(&self) -> &Names {
        self.names.last().expect("never empty")
    }

    /// A file as it is.
    pub fn file(&self, id: FileId) -> &Contents {
        &self.contents[&id].0.last().expect("never empty").contents
    }

    /// Changes names: an attempt, which may or may not have happened if a crash comes now.
    pub fn change_names(&mut self, change: impl FnOnce(&mut Names)) {
        let mut names = self.names().clone();
        change(&mut names);
        self.names.push(names);
    }

    /// Takes back the last attempt at names, which was refused.
    pub fn refuse_names(&mut self) {
        self.names.pop();
    }

    /// A new file's number; it begins empty.
    pub fn new_file(&mut self) -> FileId {
        self.next += 1;
        self.contents.insert(self.next, (vec![State::default()], 0));
        self.next
    }

    /// A file gets a second name.
    pub fn link(&mut self, id: FileId, path: String) {
        self.linked.insert(id);
        self.change_names(|names| drop(names.insert(path, Node::File(id))));
    }

    /// Whether a file has never had a second name. Which folder a file is in is stored once, as in OpenZFS: of one that
    /// lost one of two names, the other may not be found from its number.
    pub fn has_one_name(&self, id: FileId) -> bool {
        !self.linked.contains(&id)
    }

    /// Changes a file otherwise than by writing: an attempt.
    pub fn change_file(&mut self, id: FileId, change: impl FnOnce(&mut Contents)) {
        self.change(id, 0..0, change);
    }

    /// Writes to a file: an attempt.
    pub fn write_file(&mut self, id: FileId, position: usize, bytes: &[u8]) {
        let written = position..position + bytes.len();
        self.change(id, written.clone(), |contents| {
            let all = Arc::make_mut(&mut contents.bytes);
            all.resize(all.len().max(written.end), 0);
            all[written].copy_from_slice(bytes);
        });
    }

    fn change(&mut self, id: FileId, written: Range<usize>, change: impl FnOnce(&mut Contents)) {
        let mut contents = self.file(id).clone();
        change(&mut contents);
        self.contents.get_mut(&id).expect("it exists").0.push(State { contents, written });
    }

    /// Takes back the last attempt at a file.
    pub fn refuse_file(&mut self, id: FileId) {
        self.contents.get_mut(&id).expect("it exists").0.pop();
    }

    /// An `fsync` of a file returned.
    pub fn fsynced(&mut self, id: FileId) {
        self.names_least = self.names.len() - 1;
        let (states, least) = self.contents.get_mut(&id).expect("it exists");
        *least = states.len() - 1;
    }

    /// Everything so far is stable: only the present states may be found from now on.
    pub fn synced(&mut self) {
        self.names.drain(..self.names.len() - 1);
        self.names_least = 0;
        let names = self.names().clone();
        self.contents.retain(|id, (states, least)| {
            states.drain(..states.len() - 1);
            *least = 0;
            names.values().any(|node| *node == Node::File(*id))
        });
    }

    /// Compares with what was found while nothing had crashed.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, tree: &Tree) -> Result<(), String> {
        let last = |id: FileId| {
            let states = self.contents[&id].0.as_slice();
            &states[states.len() - 1..]
        };
        self.fit(self.names(), tree, &last).map(|_| ())
    }

    /// Compares with what was found after a crash, and takes it for the new stable state.
    ///
    /// # Errors
    /// Why none of the allowed states is what was found.
    pub fn check_after_crash(&mut self, tree: &Tree) -> Result<(), String> {
        let mut differences = Vec::new();
        for index in (self.names_least..self.names.len()).rev() {
            let allowed = |id: FileId| {
                let (states, least) = &self.contents[&id];
                &states[*least..]
            };
            match self.fit(&self.names[index], tree, &allowed) {
                Ok(chosen) => {
                    self.names = vec![self.names[index].clone()];
                    self.names_least = 0;
                    let stable = |contents| (vec![State { contents, written: 0..0 }], 0);
                    self.contents = chosen.into_iter().map(|(id, contents)| (id, stable(contents))).collect();
                    return Ok(());
                }
                Err(difference) => differences.push(difference),
            }
        }
        let all = differences.len();
        differences.truncate(3);
        Err(format!("none of {all} allowed states of the names fits: {}", differences.join("; or ")))
    }

    fn fit<'a>(
        &'a self,
        names: &Names,
        tree: &Tree,
        allowed: &dyn Fn(FileId) -> &'a [State],
    ) -> Result<BTreeMap<FileId, Contents>, String> {
        if let Some(path) = names.keys().find(|path| !tree.contains_key(*path)) {
            return Err(format!("{path} is missing"));
        }
        if let Some(path) = tree.keys().find(|path| !names.contains_key(*path)) {
            return Err(format!("{path} should not be there"));
        }
        let mut chosen = BTreeMap::new();
        for (path, node) in names {
            match (node, &tree[path]) {
                (Node::Folder, Found::Folder) => {}
                (Node::Symlink(want), Found::Symlink(got)) if want == got => {}
                (Node::File(id), Found::File(got, links)) => {
                    let want = names.values().filter(|other| *other == node).count();
                    if want != *links as usize {
                        return Err(format!("{path} has {links} links instead of {want}"));
                    }
                    let states = allowed(*id);
                    let is_part = |pair: &[State]| is_part_of_a_write(&pair[0].contents, &pair[1].contents, got);
                    let is_there = states.iter().any(|state| state.contents == *got)
                        || states.windows(2).any(is_part)
                        || (0..states.len()).any(|done| is_logged_late(states, done, got));
                    if !is_there {
                        return Err(difference(path, states, got));
                    }
                    chosen.insert(*id, got.clone());
                }
                (want, _) => return Err(format!("{path} is not {want:?}")),
            }
        }
        Ok(chosen)
    }
}

/// Whether `got` is what is left of the write that made `after` of `before`, of which only the first part came to the
/// disk: as many transactions as it takes for each to have room, which on a nearly full pool is one for each block.
fn is_part_of_a_write(before: &Contents, after: &Contents, got: &Contents) -> bool {
    let (old, new, found) = (before.bytes.as_slice(), after.bytes.as_slice(), got.bytes.as_slice());
    if before.xattrs != got.xattrs || new.len() < old.len() {
        return false;
    }
    let written = new.iter().zip(found).take_while(|(new, found)| new == found).count();
    if found.len() > old.len() {
        written == found.len()
    } else {
        found.len() == old.len() && found[written..] == old[written..]
    }
}

/// Whether `got` is the state `done` with newer bytes where older writes were. The intent log has a write's place only,
/// and reads what is there when it is committed, as OpenZFS does (`zfs_get_data`, `module/zfs/zfs_vnops.c`): if a newer
/// write has changed it by then, its bytes are logged in the older one's record, and the crash may come between both.
/// Records are read in their order, so that none has newer bytes than the one after it.
fn is_logged_late(states: &[State], done: usize, got: &Contents) -> bool {
    let want = &states[done].contents;
    if want.xattrs != got.xattrs || want.bytes.len() != got.bytes.len() {
        return false;
    }
    let mut differs: Vec<bool> = want.bytes.iter().zip(got.bytes.iter()).map(|(want, got)| want != got).collect();
    let mut replayed = vec![false; differs.len()];
    let mut newest = states.len() - 1;
    for index in (1..=done).rev() {
        let written = &states[index].written;
        let end = written.end.min(differs.len());
        let visible: Vec<usize> = (written.start.min(end)..end).filter(|&at| !replayed[at]).collect();
        let has = |state: &State| visible.iter().all(|&at| state.contents.bytes.get(at) == Some(&got.bytes[at]));
        let Some(read) = (index..=newest).rev().find(|&read| has(&states[read])) else { continue };
        newest = read;
        for at in visible {
            (replayed[at], differs[at]) = (true, false);
        }
    }
    !differs.contains(&true)
}

fn difference(path: &str, states: &[State], got: &Contents) -> String {
    let want = &states[states.len() - 1].contents;
    let sizes: Vec<usize> = states.iter().rev().map(|state| state.contents.bytes.len()).collect();
    let place = want.bytes.iter().zip(got.bytes.iter()).position(|(a, b)| a != b);
    let attributes = if want.xattrs == got.xattrs { "" } else { ", other attributes" };
    format!(
        "{path} has {} bytes and is in none of {} allowed states (latest first, bytes: {sizes:?}), first difference \
         from the latest at {place:?}{attributes}",
        got.bytes.len(),
        states.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bytes: &[u8]) -> Found {
        Found::File(Contents { bytes: Arc::new(bytes.to_vec()), xattrs: BTreeMap::new() }, 1)
    }

    fn write(files: &mut Files, id: FileId, bytes: &[u8]) {
        files.change_file(id, |contents| contents.bytes = Arc::new(bytes.to_vec()));
    }

    #[test]
    fn after_a_crash_what_was_fsynced_must_be_there_and_the_rest_may() {
        let mut files = Files::default();
        let (a, b) = (files.new_file(), files.new_file());
        files.change_names(|names| drop(names.insert("a".into(), Node::File(a))));
        write(&mut files, a, b"one");
        files.fsynced(a);
        write(&mut files, a, b"two");
        files.change_names(|names| drop(names.insert("b".into(), Node::File(b))));
        let tree = |a: &[u8], b: Option<&[u8]>| -> Tree {
            let mut tree = Tree::from([("a".into(), found(a))]);
            tree.extend(b.map(|b| ("b".to_owned(), found(b))));
            tree
        };
        for allowed in [tree(b"one", None), tree(b"two", None), tree(b"one", Some(b"")), tree(b"two", Some(b""))] {
            files.clone().check_after_crash(&allowed).expect("allowed");
        }
        for wrong in [Tree::new(), tree(b"", None), tree(b"two", Some(b"x")), tree(b"owe", None)] {
            assert!(files.clone().check_after_crash(&wrong).is_err(), "{wrong:?}");
        }
        files.synced();
        assert!(files.clone().check_after_crash(&tree(b"one", Some(b""))).is_err());
        files.check(&tree(b"two", Some(b""))).expect("as it is");
    }

    #[test]
    fn what_was_refused_is_not_allowed() {
        let mut files = Files::default();
        let a = files.new_file();
        files.change_names(|names| drop(names.insert("a".into(), Node::File(a))));
        files.refuse_names();
        assert!(files.check_after_crash(&Tree::from([("a".into(), found(b""))])).is_err());
    }

    #[test]
    fn an_older_write_may_have_been_logged_with_newer_bytes() {
        let mut files = Files::default();
        let a = files.new_file();
        files.change_names(|names| drop(names.insert("a".into(), Node::File(a))));
        files.write_file(a, 0, b"..........");
        files.synced();
        files.write_file(a, 6, b"abcd");
        files.write_file(a, 0, b"ABC");
        files.write_file(a, 3, b"DEF");
        files.write_file(a, 6, b"GHIJ");
        let tree = |bytes: &[u8]| Tree::from([("a".to_owned(), found(bytes))]);
        for late in [&b"......GHIJ"[..], b"ABC...GHIJ", b"ABC...abcd", b"ABCDEFGHIJ"] {
            files.clone().check_after_crash(&tree(late)).expect("read late");
        }
        for wrong in [&b"...DEF...."[..], b"...DEFabcd", b"......GHcd", b"ABC...GHI.", b"...DEFGHIJ"] {
            assert!(files.clone().check_after_crash(&tree(wrong)).is_err(), "{wrong:?}");
        }
        files.fsynced(a);
        assert!(files.check_after_crash(&tree(b"ABC...GHIJ")).is_err(), "all four were acknowledged");
    }

    #[test]
    fn a_part_of_a_write_is_allowed_from_its_beginning() {
        let mut files = Files::default();
        let a = files.new_file();
        files.change_names(|names| drop(names.insert("a".into(), Node::File(a))));
        files.synced();
        write(&mut files, a, b"old and");
        write(&mut files, a, b"new and longer");
        let tree = |bytes: &[u8]| Tree::from([("a".to_owned(), found(bytes))]);
        for part in [&b"old and"[..], b"ned and", b"new and", b"new and lo", b"new and longer"] {
            files.clone().check_after_crash(&tree(part)).expect("a part");
        }
        for wrong in [&b"new"[..], b"old ane", b"old and lo", b"new and lonX", b"newXand"] {
            assert!(files.clone().check_after_crash(&tree(wrong)).is_err(), "{wrong:?}");
        }
    }
}
