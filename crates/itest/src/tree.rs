//! A picture of a directory tree: everything a user can see of it, for comparing before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::data;

/// Longer files (a sparse one of 4 TiB is in a reference pool) are compared by everything but their contents.
pub const HASHED_MAX: u64 = 4 << 30;

/// What kind of thing a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// Largest file that is read: the reference pools hold a sparse one of a tebibyte.
pub const HASH_BYTES_MAX: u64 = 16 << 30;

/// One path of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, with set-uid, set-gid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count.
    pub nlink: u64,
    /// Size in bytes (of a directory: whatever the file system says, not compared).
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i128,
    /// SHA-256 of a file's content; none for a file over [`HASH_BYTES_MAX`].
    pub sha256: Option<String>,
    /// Target of a symbolic link.
    pub target: Option<String>,
    /// Extended attributes: the value in hexadecimal digits, one over 256 bytes as `sha256:LENGTH:HASH`.
    pub xattrs: BTreeMap<String, String>,
    /// Another file system is mounted here: the attributes are that one's and the tree does not go on below.
    pub mounted: bool,
}

/// Relative path (with bytes that are not UTF-8 as `\xNN`) → entry; the root itself is `.`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tree(pub BTreeMap<String, Entry>);

impl Tree {
    /// Puts files whose names begin with `seed` into a mounted file system, and reads all that is there then.
    ///
    /// # Panics
    /// When there is no room for them.
    #[track_caller]
    pub fn filled(mount: &Path, seed: u64) -> Tree {
        for number in 0..8 {
            let bytes = data::mixed(seed + number, 700_000, 60_000);
            fs::write(mount.join(format!("{seed}-{number}")), bytes).expect("a file can be written");
        }
        Tree::of(mount)
    }

    /// Reads the tree below `root` with every byte in it.
    ///
    /// # Panics
    /// When anything cannot be read.
    #[track_caller]
    pub fn of(root: &Path) -> Tree {
        match Tree::read(root, &BTreeSet::new()) {
            Ok(tree) => tree,
            Err(error) => panic!("cannot read the tree {}: {error}", root.display()),
        }
    }

    /// As [`Tree::of`], without the relative paths in `leave_out` (children of such a directory are left out too).
    ///
    /// # Errors
    /// The first one met, with its path.
    pub fn read(root: &Path, leave_out: &BTreeSet<String>) -> io::Result<Tree> {
        let mut tree = Tree::default();
        let device = fs::symlink_metadata(root)?.dev();
        let mut todo = vec![(String::from("."), root.to_path_buf())];
        while let Some((relative, path)) = todo.pop() {
            if leave_out.contains(&relative) {
                continue;
            }
            let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let meta = fs::symlink_metadata(&path).map_err(with_path)?;
            let kind = match meta.mode() & 0o170_000 {
                0o100_000 => Kind::File,
                0o040_000 => Kind::Dir,
                0o120_000 => Kind::Link,
                _ => Kind::Other,
            };
            let sha256 = match kind {
                Kind::File if meta.len() > HASHED_MAX => None,
                Kind::File if meta.len() <= HASH_BYTES_MAX => {
                    Some(fs::File::open(&path).and_then(data::sha256_of).map_err(with_path)?)
                }
                _ => None,
            };
            let target = match kind {
                Kind::Link => Some(fs::read_link(&path).map_err(with_path)?.to_string_lossy().into_owned()),
                _ => None,
            };
            let mounted = meta.dev() != device;
            if kind == Kind::Dir && !mounted {
                for child in fs::read_dir(&path).map_err(with_path)? {
                    let child = child.map_err(with_path)?;
                    let name = data::printable(child.file_name().as_bytes());
                    let relative = if relative == "." { name } else { format!("{relative}/{name}") };
                    todo.push((relative, child.path()));
                }
            }
            let entry = Entry {
                kind,
                mode: meta.mode() & 0o7777,
                uid: meta.uid(),
                gid: meta.gid(),
                nlink: meta.nlink(),
                size: meta.len(),
                mtime_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
                sha256,
                target,
                xattrs: if mounted { BTreeMap::new() } else { xattrs(&path).map_err(with_path)? },
                mounted,
            };
            tree.0.insert(relative, entry);
        }
        Ok(tree)
    }

    /// Paths of the regular files.
    pub fn files(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.0.iter().filter(|(_, entry)| entry.kind == Kind::File)
    }

    /// Asserts that both trees are the same, naming each path that differs.
    #[track_caller]
    pub fn assert_same(&self, after: &Tree, when: &str) {
        let mut report = String::new();
        for path in self.0.keys().chain(after.0.keys()).collect::<BTreeSet<_>>() {
            match (self.0.get(path), after.0.get(path)) {
                (Some(before), Some(now)) if before.same(now) => {}
                (Some(before), Some(now)) => {
                    let _ = writeln!(report, "{path}\n    before {before:?}\n    after  {now:?}");
                }
                (Some(_), None) => {
                    let _ = writeln!(report, "{path}: gone");
                }
                (None, _) => {
                    let _ = writeln!(report, "{path}: appeared");
                }
            }
            if report.len() > 8000 {
                report.push_str("...\n");
                break;
            }
        }
        assert!(report.is_empty(), "the tree differs {when}:\n{report}");
    }
}

/// All extended attributes of what is at `path` itself; none where the file system has none.
fn xattrs(path: &Path) -> io::Result<BTreeMap<String, String>> {
    const SHOWN_MAX: usize = 256;
    let mut buffer = vec![0u8; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut buffer[..]) {
        Err(rustix::io::Errno::NOTSUP) => return Ok(BTreeMap::new()),
        other => other?,
    };
    let names: Vec<Vec<u8>> =
        buffer[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    let mut found = BTreeMap::new();
    for name in names {
        let length = rustix::fs::lgetxattr(path, &name[..], &mut buffer[..])?;
        let value = &buffer[..length];
        let shown = if length <= SHOWN_MAX {
            value.iter().map(|byte| format!("{byte:02x}")).collect()
        } else {
            format!("sha256:{length}:{}", data::sha256(value))
        };
        found.insert(data::printable(&name), shown);
    }
    Ok(found)
}

impl Entry {
    fn same(&self, other: &Entry) -> bool {
        let mut other = other.clone();
        if self.kind == Kind::Dir {
            other.size = self.size;
        }
        *self == other
    }
}
