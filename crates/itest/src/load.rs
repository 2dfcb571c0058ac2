//! A mixed load on a file system that may die at any moment, with a record, kept outside, of what was acknowledged.
//!
//! What the record means: each file has a list of states it may have after a crash. The first one is what was last
//! acknowledged as stable, the others are what was asked for since, in order. `fsync`, a synchronous write, and any
//! change where `sync=always` cut the list down to its last state. A write may stop anywhere: then the file is between
//! two states. A file that replaces another by rename is there whole or not at all, whether it was synced or not.

mod mapped;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::XattrFlags;

pub use self::mapped::MappedWriter;
use crate::data::{self, Rng};

const O_SYNC: i32 = 0o4_010_000;
/// Files of one writer.
const FILES: u64 = 25;
/// Largest file, in bytes.
const LARGEST: usize = 400_000;
/// The attribute that is set, and the files it is set on.
const ATTRIBUTE: &str = "user.platter";
const WITH_ATTRIBUTES: u64 = 4;

/// What property `sync` of the file system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promises {
    /// What was synced stays.
    Synced,
    /// Everything that was answered stays.
    Everything,
    /// Nothing is promised but that files are in a state they once had.
    Nothing,
}

type Bytes = Arc<Vec<u8>>;

/// A state of a file, and how it came from the one before.
#[derive(Clone, Debug)]
enum State {
    /// At once.
    Whole(Option<Bytes>),
    /// The bytes from here on were written, in order, so that the file may be between the states.
    Written { from: usize, to: usize, bytes: Bytes },
}

impl State {
    fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(bytes) => bytes.as_ref(),
            Self::Written { bytes, .. } => Some(bytes),
        }
    }
}

/// Whether `found` is `before` with the first part of a write of `from..to` that leads to `after`.
fn is_between(before: &[u8], after: &[u8], from: usize, to: usize, found: &[u8]) -> bool {
    if found.len() < from || found.get(..from) != before.get(..from) {
        return false;
    }
    let done = found[from..].iter().zip(&after[from..to]).take_while(|(found, after)| found == after).count();
    let upto = from + done;
    if found.len() > before.len() {
        upto == found.len()
    } else {
        found.len() == before.len() && found[upto..] == before[upto..]
    }
}

/// One writer with its folder and its record.
pub struct Writer {
    folder: PathBuf,
    promises: Promises,
    rng: Rng,
    files: BTreeMap<String, Vec<State>>,
    attributes: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    /// Names that may or may not be there.
    temporary: u64,
    /// Changes that were acknowledged as stable.
    pub acknowledged: u64,
}

impl Writer {
    /// A writer in `folder`, which it makes.
    ///
    /// # Panics
    /// When the folder cannot be made.
    pub fn new(folder: PathBuf, promises: Promises, seed: u64) -> Writer {
        fs::create_dir(&folder).expect("the writer's folder can be made");
        let mut writer = Writer {
            folder,
            promises,
            rng: Rng::new(seed),
            files: BTreeMap::new(),
            attributes: BTreeMap::new(),
            temporary: 0,
            acknowledged: 0,
        };
        for number in 0..WITH_ATTRIBUTES {
            let name = format!("x{number}");
            File::create(writer.folder.join(&name)).expect("a file can be made");
            writer.attributes.insert(name, vec![None]);
        }
        writer
    }

    /// Works until something fails, which is the file system's death, or `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if self.step().is_err() {
                break;
            }
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let name = format!("f{}", self.rng.below(FILES));
        let path = self.folder.join(&name);
        let now = self.now(&name);
        match self.rng.below(12) {
            0 | 1 => {
                let flags = if self.rng.below(3) == 0 { O_SYNC } else { 0 };
                self.create(&name, &path, flags)
            }
            2..=4 => self.replace(&name, &path),
            5 => self.remove(&name, &path),
            6 | 7 => self.set_attribute(),
            kind => match now {
                Some(bytes) if kind < 10 => self.write(&name, &path, &bytes),
                Some(bytes) if kind == 10 => self.truncate(&name, &path, &bytes),
                Some(bytes) => self.move_away(&name, &path, bytes),
                None => self.create(&name, &path, 0),
            },
        }
    }

    /// The file's present contents.
    fn now(&self, name: &str) -> Option<Bytes> {
        self.files.get(name).and_then(|states| states.last()).and_then(State::bytes).cloned()
    }

    fn states(&mut self, name: &str) -> &mut Vec<State> {
        self.files.entry(name.to_owned()).or_insert_with(|| vec![State::Whole(None)])
    }

    /// What was done last was answered, by a call that `asks` for stability or does not.
    fn answered(&mut self, name: &str, asks: bool) {
        let stable = match self.promises {
            Promises::Synced => asks,
            Promises::Everything => true,
            Promises::Nothing => false,
        };
        if stable {
            let states = self.states(name);
            let last = states.pop().expect("there is always a state");
            *states = vec![State::Whole(last.bytes().cloned())];
            self.acknowledged += 1;
        }
    }

    fn some_bytes(&mut self) -> Vec<u8> {
        let length = if self.rng.below(6) == 0 { self.rng.below(LARGEST as u64 / 2) } else { self.rng.below(9_000) };
        data::mixed(self.rng.next_u64(), length as usize, 3000)
    }

    fn create(&mut self, name: &str, path: &Path, flags: i32) -> io::Result<()> {
        let bytes = Arc::new(self.some_bytes());
        let states = self.states(name);
        states.push(State::Whole(Some(Bytes::default())));
        states.push(State::Written { from: 0, to: bytes.len(), bytes: bytes.clone() });
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).custom_flags(flags).open(path)?;
        file.write_all(&bytes)?;
        // One of four is left as it is.
        let asks = flags != 0 && !bytes.is_empty() || self.rng.below(4) > 0;
        if asks && flags == 0 {
            file.sync_all()?;
        }
        self.answered(name, asks);
        Ok(())
    }

    fn replace(&mut self, name: &str, path: &Path) -> io::Result<()> {
        let bytes = Arc::new(self.some_bytes());
        self.temporary += 1;
        let temporary = self.folder.join(format!("t{}", self.temporary));
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        if self.rng.below(3) > 0 {
            file.sync_all()?;
        }
        self.states(name).push(State::Whole(Some(bytes)));
        fs::rename(temporary, path)?;
        self.synced_folder(&[name])
    }

    fn remove(&mut self, name: &str, path: &Path) -> io::Result<()> {
        if self.now(name).is_none() {
            return Ok(());
        }
        self.states(name).push(State::Whole(None));
        fs::remove_file(path)?;
        self.synced_folder(&[name])
    }

    /// Gives the file another's name.
    fn move_away(&mut self, name: &str, path: &Path, bytes: Bytes) -> io::Result<()> {
        let other = format!("f{}", self.rng.below(FILES));
        if other == name {
            return Ok(());
        }
        self.states(name).push(State::Whole(None));
        self.states(&other).push(State::Whole(Some(bytes)));
        fs::rename(path, self.folder.join(&other))?;
        self.synced_folder(&[name, &other])
    }

    /// Syncs the folder, mostly, after names changed.
    fn synced_folder(&mut self, names: &[&str]) -> io::Result<()> {
        let asks = self.rng.below(4) > 0;
        if asks {
            File::open(&self.folder)?.sync_all()?;
        }
        names.iter().for_each(|name| self.answered(name, asks));
        Ok(())
    }

    /// Appends, or writes somewhere inside.
    fn write(&mut self, name: &str, path: &Path, before: &Bytes) -> io::Result<()> {
        let new = self.some_bytes();
        let room = LARGEST.saturating_sub(before.len());
        let inside = room < new.len() || self.rng.below(3) == 0;
        let from = if inside { self.rng.below(before.len() as u64 + 1) as usize } else { before.len() };
        let synchronous = self.rng.below(3) == 0;
        let mut after = before.to_vec();
        after.resize(after.len().max(from + new.len()), 0);
        after[from..from + new.len()].copy_from_slice(&new);
        let state = State::Written { from, to: from + new.len(), bytes: Arc::new(after) };
        self.states(name).push(state);
        let flags = if synchronous { O_SYNC } else { 0 };
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        file.write_all_at(&new, from as u64)?;
        let asks = synchronous && !new.is_empty() || self.rng.below(4) > 0;
        if asks && !synchronous {
            file.sync_data()?;
        }
        // A synchronous write makes stable what was written before to the same file, too: it has one log.
        self.answered(name, asks);
        Ok(())
    }

    fn truncate(&mut self, name: &str, path: &Path, before: &Bytes) -> io::Result<()> {
        let length = self.rng.below(before.len() as u64 * 3 / 2 + 10) as usize;
        let mut after = before.to_vec();
        after.resize(length, 0);
        self.states(name).push(State::Whole(Some(Arc::new(after))));
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(length as u64)?;
        let asks = self.rng.below(4) > 0;
        if asks {
            file.sync_all()?;
        }
        self.answered(name, asks);
        Ok(())
    }

    fn set_attribute(&mut self) -> io::Result<()> {
        let name = format!("x{}", self.rng.below(WITH_ATTRIBUTES));
        let path = self.folder.join(&name);
        let length = if self.rng.below(8) == 0 { 20_000 } else { 1 + self.rng.below(500) };
        let value = (self.rng.below(4) > 0).then(|| data::random(self.rng.next_u64(), length as usize));
        let states = self.attributes.get_mut(&name).expect("known");
        let had = states.last().is_some_and(Option::is_some);
        states.push(value.clone());
        match &value {
            Some(value) => rustix::fs::setxattr(&path, ATTRIBUTE, value, XattrFlags::empty())?,
            None if had => rustix::fs::removexattr(&path, ATTRIBUTE)?,
            None => {}
        }
        let asks = self.rng.below(4) > 0;
        if asks {
            File::open(&path)?.sync_all()?;
        }
        if self.promises == Promises::Everything || asks && self.promises == Promises::Synced {
            self.attributes.insert(name, vec![value]);
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// Compares what is there with what may be there, and takes it as the new beginning.
    ///
    /// # Panics
    /// When something is lost.
    pub fn check(&mut self, when: &str) {
        let at = self.folder.display().to_string();
        for (name, states) in &mut self.files {
            let found = match fs::read(self.folder.join(name)) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => panic!("{when}: {at}/{name} cannot be read: {error}"),
            };
            let possible = |index: usize| {
                if states[index].bytes().map(|bytes| &bytes[..]) == found.as_deref() {
                    return true;
                }
                let (Some(found), Some(previous)) = (&found, index.checked_sub(1)) else { return false };
                match (&states[previous], &states[index]) {
                    (before, State::Written { from, to, bytes }) => {
                        before.bytes().is_some_and(|before| is_between(before, bytes, *from, *to, found))
                    }
                    _ => false,
                }
            };
            if !(0..states.len()).any(possible) {
                let shown: Vec<String> =
                    states.iter().map(|state| show(state.bytes().map(|bytes| &bytes[..]))).collect();
                panic!("{when}: {at}/{name} is {}, and may be one of {shown:#?}", show(found.as_deref()));
            }
            *states = vec![State::Whole(found.map(Arc::new))];
        }
        for (name, states) in &mut self.attributes {
            let mut value = vec![0; 1 << 16];
            let found = match rustix::fs::getxattr(self.folder.join(name), ATTRIBUTE, &mut value[..]) {
                Ok(length) => Some(value[..length].to_vec()),
                Err(rustix::io::Errno::NODATA) => None,
                Err(error) => panic!("{when}: the attribute of {at}/{name} cannot be read: {error}"),
            };
            let shown: Vec<String> = states.iter().map(|value| show(value.as_deref())).collect();
            assert!(
                states.contains(&found),
                "{when}: the attribute of {at}/{name} is {}, and may be one of {shown:#?}",
                show(found.as_deref())
            );
            *states = vec![found];
        }
        for entry in fs::read_dir(&self.folder).unwrap_or_else(|error| panic!("{when}: {at}: {error}")) {
            let entry = entry.unwrap_or_else(|error| panic!("{when}: {at}: {error}"));
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('t') {
                fs::remove_file(entry.path()).expect("a temporary file can be removed");
            } else {
                assert!(self.files.contains_key(&name) || self.attributes.contains_key(&name), "{when}: {at}/{name}");
            }
        }
    }
}

fn show(bytes: Option<&[u8]>) -> String {
    bytes.map_or("absent".into(), |bytes| format!("{} bytes with sha256 {:.16}", bytes.len(), data::sha256(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_stopped_anywhere_is_between_and_nothing_else_is() {
        let between = |before: &str, after: &str, from, to, found: &str| {
            is_between(before.as_bytes(), after.as_bytes(), from, to, found.as_bytes())
        };
        // Appending.
        for found in ["old", "oldn", "oldne", "oldnew"] {
            assert!(between("old", "oldnew", 3, 6, found), "{found}");
        }
        for found in ["", "ol", "oldx", "oldnewer", "oldn\0\0"] {
            assert!(!between("old", "oldnew", 3, 6, found), "{found}");
        }
        // Inside.
        for found in ["abcdef", "abXdef", "abXYef"] {
            assert!(between("abcdef", "abXYef", 2, 4, found), "{found}");
        }
        for found in ["abcYef", "abXY", "abXYeg", "xbXYef"] {
            assert!(!between("abcdef", "abXYef", 2, 4, found), "{found}");
        }
        // Over the end.
        for found in ["abc", "aXc", "aXY", "aXYZ", "aXYZW"] {
            assert!(between("abc", "aXYZW", 1, 5, found), "{found}");
        }
        assert!(!between("abc", "aXYZW", 1, 5, "aXcZ"));
    }

    #[test]
    fn a_lost_file_is_noticed() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut writer = Writer::new(dir.path().join("w"), Promises::Synced, 1);
        let path = writer.folder.join("f1");
        while writer.now("f1").is_none() {
            writer.create("f1", &path, O_SYNC).expect("it can be made");
        }
        writer.check("at first");
        fs::write(&path, b"something else").expect("it can be written");
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.check("afterwards"))).is_err());
    }
}
