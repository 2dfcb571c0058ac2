//! What a full stream has against what a directory has.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use platter_ondisk::znode::device_for_users;
use platter_stream::ObjectId;
use platter_stream::attributes::FileAttributes;

use crate::error::{ArchiveError, Result, other, unreadable};
use crate::tree::{Part, Tree};

// Linux's numbers.
const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFBLK: u32 = 0o060_000;
const S_IFCHR: u32 = 0o020_000;
/// In the topmost directory of a file system, and in no stream.
const CONTROL: &[u8] = b".zfs";
/// Bytes that are looked at together.
const AT_ONCE: u64 = 1 << 20;

/// Where they differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Only the stream has it.
    Missing(Named),
    /// Only the directory has it.
    Added(Named),
    /// Both have it; in what it is different.
    Changed(Named, Vec<&'static str>),
}

/// A file or directory by its path, without a slash in front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The path; empty of the topmost directory.
    pub path: Vec<u8>,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A pair that is to be looked at: what the stream has, and where the directory has it.
struct Pair {
    object: ObjectId,
    at: PathBuf,
    path: Vec<u8>,
    is_directory: bool,
}

impl Pair {
    fn named(&self) -> Named {
        Named { path: self.path.clone(), is_directory: self.is_directory }
    }

    /// What is called `name` in it.
    fn below(&self, name: &[u8], is_directory: bool) -> Named {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Named { path, is_directory }
    }
}

struct Comparison<'a> {
    tree: &'a Tree,
    /// The file system of the directory: what others show in it is not its own.
    device: u64,
    tell: &'a mut dyn FnMut(Difference),
}

/// Compares what the stream in the file `path` has with what the directory `with` has; each difference is handed to
/// `tell`.
///
/// # Errors
/// It is no full stream of a file system, or damaged; something cannot be read.
pub fn diff(path: &Path, with: &Path, tell: &mut dyn FnMut(Difference)) -> Result<()> {
    let tree = Tree::of(path)?;
    let root = fs::metadata(with).map_err(unreadable(with))?;
    let mut comparison = Comparison { tree: &tree, device: root.dev(), tell };
    let root = tree.root()?;
    let mut pairs = vec![Pair { object: root, at: with.to_owned(), path: Vec::new(), is_directory: true }];
    // A directory that is in itself would be looked at for ever.
    let mut seen = BTreeSet::from([root]);
    while let Some(pair) = pairs.pop() {
        let below = comparison.pair(&pair)?;
        if let Some(twice) = below.iter().find(|below| below.is_directory && !seen.insert(below.object)) {
            let text = format!("directory '{}' is in it twice", String::from_utf8_lossy(&twice.path));
            return Err(other(path, text));
        }
        pairs.extend(below.into_iter().rev());
    }
    Ok(())
}

impl Comparison<'_> {
    /// Compares what a pair is and, of directories, which names are in them; the pairs below.
    fn pair(&mut self, pair: &Pair) -> Result<Vec<Pair>> {
        let theirs = self.tree.attributes(pair.object)?;
        let own = fs::symlink_metadata(&pair.at).map_err(unreadable(&pair.at))?;
        let mut how = attributes_differ(&theirs, &own);
        let kind = theirs.mode & S_IFMT;
        if kind != own.mode() & S_IFMT {
            how = vec!["kind"];
        } else if kind == S_IFREG && (theirs.size != own.size() || !self.same_contents(pair, theirs.size)?) {
            how.push("contents");
        } else if matches!(kind, S_IFBLK | S_IFCHR) {
            if u64::from(device_for_users(theirs.device)) != own.rdev() {
                how.push("device");
            }
        } else if kind == S_IFLNK {
            let target = fs::read_link(&pair.at).map_err(unreadable(&pair.at))?;
            if theirs.target.as_deref() != Some(target.as_os_str().as_bytes()) {
                how.push("target");
            }
        }
        if !how.is_empty() {
            (self.tell)(Difference::Changed(pair.named(), how));
        }
        let is_shared = kind == S_IFDIR && own.mode() & S_IFMT == S_IFDIR && own.dev() == self.device;
        if is_shared { self.names(pair) } else { Ok(Vec::new()) }
    }

    fn names(&mut self, pair: &Pair) -> Result<Vec<Pair>> {
        let mut own: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for entry in fs::read_dir(&pair.at).map_err(unreadable(&pair.at))? {
            let entry = entry.map_err(unreadable(&pair.at))?;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            own.insert(entry.file_name().as_bytes().to_vec(), is_directory);
        }
        if pair.path.is_empty() {
            own.remove(CONTROL);
        }
        let mut below = Vec::new();
        for entry in self.tree.entries(pair.object)? {
            let is_directory = entry.kind == platter_stream::contents::EntryKind::Directory;
            let named = pair.below(&entry.name, is_directory);
            match own.remove(&entry.name) {
                Some(_) => {
                    let at = pair.at.join(OsStr::from_bytes(&entry.name));
                    below.push(Pair { object: entry.object, at, path: named.path, is_directory });
                }
                None => (self.tell)(Difference::Missing(named)),
            }
        }
        for (name, is_directory) in own {
            (self.tell)(Difference::Added(pair.below(&name, is_directory)));
        }
        Ok(below)
    }

    fn same_contents(&self, pair: &Pair, size: u64) -> Result<bool> {
        let mut file = File::open(&pair.at).map_err(unreadable(&pair.at))?;
        let (mut own, mut same, mut at) = (Vec::new(), true, 0);
        self.tree.parts(&self.tree.one_file(pair.object)?, 0, size, |part| {
            let length = match part {
                Part::Bytes(bytes) => bytes.len() as u64,
                Part::Zeros(count) => count,
            };
            if same {
                let compared = match part {
                    Part::Bytes(bytes) => has_bytes(&mut file, &mut own, at, bytes),
                    Part::Zeros(count) => has_zeros(&mut file, &mut own, at, count),
                };
                same = compared.map_err(unreadable(&pair.at))?;
            }
            at += length;
            Ok::<(), ArchiveError>(())
        })?;
        Ok(same)
    }
}

/// Whether `bytes` are at offset `at`; `own` is for what is read.
fn has_bytes(file: &mut File, own: &mut Vec<u8>, at: u64, bytes: &[u8]) -> std::io::Result<bool> {
    file.seek(SeekFrom::Start(at))?;
    own.resize(bytes.len(), 0);
    let read = read_full(file, own)?;
    Ok(own[..read] == *bytes)
}

/// Whether `count` zeros are at offset `at`. Holes are passed over: reading a terabyte of nothing takes an hour.
fn has_zeros(file: &mut File, own: &mut Vec<u8>, mut at: u64, count: u64) -> std::io::Result<bool> {
    let end = at + count;
    if file.metadata()?.len() < end {
        return Ok(false);
    }
    while at < end {
        at = match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but holes comes.
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            // A file system that knows of no holes.
            Err(_) => at,
        };
        let length = AT_ONCE.min(end.saturating_sub(at)) as usize;
        file.seek(SeekFrom::Start(at))?;
        own.resize(length, 0);
        let read = read_full(file, own)?;
        if read < length || own.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        at += length as u64;
    }
    Ok(true)
}

/// Reads until `bytes` are full or the file ends; how many there are.
fn read_full(file: &mut File, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

fn attributes_differ(theirs: &FileAttributes, own: &Metadata) -> Vec<&'static str> {
    let mut how = Vec::new();
    if theirs.mode & !S_IFMT != own.mode() & !S_IFMT {
        how.push("mode");
    }
    if (theirs.uid, theirs.gid) != (own.uid(), own.gid()) {
        how.push("owner");
    }
    let [_, changed, ..] = theirs.times;
    if changed.map(|word| word as i64) != [own.mtime(), own.mtime_nsec()] {
        how.push("time");
    }
    how
}
