//! What is done to the files of one file system, one thing after the other; and how they are read back.
//!
//! Invariant: the model knows of an attempt before the engine does, so that a crash in between finds both ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_ondisk::ObjectId;
use platter_spa::Pool;
use platter_zpl::{Attr, FileKind, NewFile, RenameFlags, SetAttr, SetXattr, Zpl, ZplError};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::files::{Contents, FileId, Files, Found, Node, Tree};

/// Files never grow beyond this many bytes.
const FILE_MAX: usize = 600 << 10;
/// A write is done in pieces that no record's boundary divides: each is there as a whole or not at all.
const PIECE: usize = 4 << 10;
/// Names in one file system.
const NAMES_MAX: usize = 24;

/// What was done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Operations.
    pub operations: u64,
    /// Bytes written.
    pub written: u64,
    /// Bytes read back and compared.
    pub verified: u64,
}

impl Done {
    /// Adds another's numbers.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.written += other.written;
        self.verified += other.verified;
    }
}

/// A mounted file system with its model.
pub struct Mounted<'a> {
    /// The file system.
    pub zpl: &'a Arc<Zpl>,
    /// What it must hold.
    pub files: &'a mut Files,
    /// Chance.
    pub random: &'a mut ChaCha20Rng,
    /// What was done.
    pub done: Done,
}

fn below(random: &mut ChaCha20Rng, limit: usize) -> usize {
    random.next_u64() as usize % limit.max(1)
}

const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };

/// The folder and the last part of a path.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

impl Mounted<'_> {
    async fn find(&self, path: &str) -> Result<Attr, ZplError> {
        let mut attr = self.zpl.getattr(self.zpl.root()).await?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            attr = self.zpl.lookup(attr.object, name.as_bytes()).await?;
        }
        Ok(attr)
    }

    async fn folder(&self, path: &str) -> Result<ObjectId, ZplError> {
        Ok(self.find(split(path).0).await?.object)
    }

    fn some(&mut self, accept: impl Fn(&Node) -> bool) -> Option<(String, Node)> {
        let all: Vec<_> = self.files.names().iter().filter(|(_, node)| accept(node)).collect();
        let index = below(self.random, all.len());
        all.get(index).map(|(path, node)| ((*path).clone(), (*node).clone()))
    }

    fn some_file(&mut self) -> Option<(String, FileId)> {
        let (path, node) = self.some(|node| matches!(node, Node::File(_)))?;
        let Node::File(id) = node else { return None };
        Some((path, id))
    }

    /// A path that is free: in the root or in a folder.
    fn free_path(&mut self) -> Option<String> {
        if self.files.names().len() >= NAMES_MAX {
            return None;
        }
        let folder = match below(self.random, 3) {
            0 => self.some(|node| *node == Node::Folder).map(|(path, _)| path),
            _ => None,
        };
        let name = format!("n{}", below(self.random, 60));
        let path = folder.map_or(name.clone(), |folder| format!("{folder}/{name}"));
        (!self.files.names().contains_key(&path) && path.matches('/').count() < 3).then_some(path)
    }

    /// Does something; what, chance decides.
    ///
    /// # Errors
    /// What the engine said that it should not have said.
    pub async fn step(&mut self, pool: &Pool) -> Result<(), String> {
        self.done.operations += 1;
        let choice = below(self.random, 100);
        let result = match choice {
            0..15 => self.create().await,
            15..20 => self.make_folder().await,
            20..50 => self.write().await,
            50..57 => self.truncate().await,
            57..63 => self.rename().await,
            63..67 => self.link().await,
            67..74 => self.unlink().await,
            74..80 => self.set_xattr().await,
            80..92 => self.fsync().await,
            92..96 => self.read().await,
            96..98 => {
                pool.sync().await.map_err(|error| format!("sync: {error}"))?;
                self.files.synced();
                Ok(())
            }
            _ => self.symlink().await,
        };
        result.map_err(|error| format!("operation {choice}: {error}"))
    }

    fn names(&mut self, result: Result<(), ZplError>) -> Result<(), String> {
        self.refused(result, |files| files.refuse_names())
    }

    fn refused(&mut self, result: Result<(), ZplError>, back: impl FnOnce(&mut Files)) -> Result<(), String> {
        match result {
            Err(error) if error.errno() == NO_SPACE => {
                back(self.files);
                Ok(())
            }
            other => other.map_err(|error| error.to_string()),
        }
    }

    async fn create(&mut self) -> Result<(), String> {
        let Some(path) = self.free_path() else { return Ok(()) };
        let id = self.files.new_file();
        self.files.change_names(|names| drop(names.insert(path.clone(), Node::File(id))));
        let made = async {
            let folder = self.folder(&path).await?;
            self.zpl.create(folder, split(&path).1.as_bytes(), NEW).await.map(|_| ())
        };
        let made = made.await;
        self.names(made)
    }

    async fn make_folder(&mut self) -> Result<(), String> {
        let Some(path) = self.free_path() else { return Ok(()) };
        self.files.change_names(|names| drop(names.insert(path.clone(), Node::Folder)));
        let made = async {
            let folder = self.folder(&path).await?;
            self.zpl.mkdir(folder, split(&path).1.as_bytes(), NewFile { mode: 0o755, ..NEW }).await.map(|_| ())
        };
        let made = made.await;
        self.names(made)
    }

    async fn symlink(&mut self) -> Result<(), String> {
        let Some(path) = self.free_path() else { return Ok(()) };
        let target = format!("target {}", self.random.next_u32());
        self.files.change_names(|names| drop(names.insert(path.clone(), Node::Symlink(target.clone()))));
        let made = async {
            let folder = self.folder(&path).await?;
            self.zpl.symlink(folder, split(&path).1.as_bytes(), target.as_bytes(), NEW).await.map(|_| ())
        };
        let made = made.await;
        self.names(made)
    }

    async fn write(&mut self) -> Result<(), String> {
        let Some((path, id)) = self.some_file() else { return Ok(()) };
        let object = self.find(&path).await.map_err(|error| error.to_string())?.object;
        let size = self.files.file(id).bytes.len();
        // Mostly at the end or over what is there, sometimes beyond, leaving a hole.
        let offset = match below(self.random, 10) {
            0..5 => size,
            5..9 => below(self.random, size + 1),
            _ => size + below(self.random, 50_000),
        };
        let longest = [200, 5_000, 40_000, 200_000][below(self.random, 4)];
        let length = (1 + below(self.random, longest)).min(FILE_MAX.saturating_sub(offset));
        let mut data = vec![0; length];
        match below(self.random, 6) {
            0 => {}
            1 => data.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index / 100) as u8),
            _ => self.random.fill_bytes(&mut data),
        }
        let mut at = 0;
        while at < length {
            let position = offset + at;
            let mut piece = (PIECE - position % PIECE).min(length - at);
            self.files.write_file(id, position, &data[at..at + piece]);
            let written = self.zpl.write(object, position as u64, &data[at..at + piece], false).await;
            let full = written.as_ref().is_err_and(|error| error.errno() == NO_SPACE);
            if let Ok(count) = written
                && count < piece
            {
                // There was room for so much: the rest is another write.
                assert!(count > 0, "nothing was written, and nothing said against it");
                piece = count;
                self.files.refuse_file(id);
                self.files.write_file(id, position, &data[at..at + piece]);
            }
            self.refused(written.map(|_| ()), |files| files.refuse_file(id))?;
            if full {
                break;
            }
            self.done.written += piece as u64;
            at += piece;
        }
        Ok(())
    }

    async fn truncate(&mut self) -> Result<(), String> {
        let Some((path, id)) = self.some_file() else { return Ok(()) };
        let object = self.find(&path).await.map_err(|error| error.to_string())?.object;
        let size = self.files.file(id).bytes.len();
        let size =
            if below(self.random, 5) == 0 { size + below(self.random, 9_000) } else { below(self.random, size + 1) };
        self.files.change_file(id, |contents| Arc::make_mut(&mut contents.bytes).resize(size, 0));
        let change = SetAttr { size: Some(size as u64), ..SetAttr::default() };
        let result = self.zpl.setattr(object, change).await.map(|_| ());
        self.refused(result, |files| files.refuse_file(id))
    }

    async fn set_xattr(&mut self) -> Result<(), String> {
        let Some((path, id)) = self.some_file() else { return Ok(()) };
        let object = self.find(&path).await.map_err(|error| error.to_string())?.object;
        let name = format!("user.x{}", below(self.random, 3));
        let known = self.files.file(id).xattrs.contains_key(&name);
        let result = if known && below(self.random, 3) == 0 {
            self.files.change_file(id, |contents| drop(contents.xattrs.remove(&name)));
            self.zpl.removexattr(object, name.as_bytes()).await
        } else {
            let mut value = vec![0; 1 + below(self.random, 300)];
            self.random.fill_bytes(&mut value);
            self.files.change_file(id, |contents| drop(contents.xattrs.insert(name.clone(), value.clone())));
            self.zpl.setxattr(object, name.as_bytes(), &value, SetXattr::default(), false).await
        };
        self.refused(result, |files| files.refuse_file(id))
    }

    async fn rename(&mut self) -> Result<(), String> {
        let Some((from, id)) = self.some_file() else { return Ok(()) };
        // Onto another file, now and then.
        let over = if below(self.random, 4) == 0 { self.some_file() } else { None };
        let to = match over {
            Some((_, other)) if other == id => return Ok(()),
            Some((path, _)) => path,
            None => match self.free_path() {
                Some(path) => path,
                None => return Ok(()),
            },
        };
        self.files.change_names(|names| {
            let node = names.remove(&from).expect("it was there");
            names.insert(to.clone(), node);
        });
        let renamed = async {
            let (old, new) = (self.folder(&from).await?, self.folder(&to).await?);
            let (from, to) = (split(&from).1.as_bytes(), split(&to).1.as_bytes());
            self.zpl.rename(old, from, new, to, RenameFlags::default()).await
        };
        let renamed = renamed.await;
        self.names(renamed)
    }

    async fn link(&mut self) -> Result<(), String> {
        let Some((from, id)) = self.some_file() else { return Ok(()) };
        let Some(to) = self.free_path() else { return Ok(()) };
        self.files.link(id, to.clone());
        let linked = async {
            let (object, folder) = (self.find(&from).await?.object, self.folder(&to).await?);
            self.zpl.link(object, folder, split(&to).1.as_bytes()).await.map(|_| ())
        };
        let linked = linked.await;
        self.names(linked)
    }

    async fn unlink(&mut self) -> Result<(), String> {
        let Some((path, node)) = self.some(|_| true) else { return Ok(()) };
        let below_it = format!("{path}/");
        if self.files.names().keys().any(|other| other.starts_with(&below_it)) {
            return Ok(());
        }
        self.files.change_names(|names| drop(names.remove(&path)));
        let gone = async {
            let folder = self.folder(&path).await?;
            let name = split(&path).1.as_bytes();
            if node == Node::Folder { self.zpl.rmdir(folder, name).await } else { self.zpl.unlink(folder, name).await }
        };
        let gone = gone.await;
        self.names(gone)
    }

    async fn fsync(&mut self) -> Result<(), String> {
        let Some((path, id)) = self.some_file() else { return Ok(()) };
        let object = self.find(&path).await.map_err(|error| error.to_string())?.object;
        self.zpl.fsync(object).await.map_err(|error| error.to_string())?;
        self.files.fsynced(id);
        Ok(())
    }

    async fn read(&mut self) -> Result<(), String> {
        let Some((path, id)) = self.some_file() else { return Ok(()) };
        let attr = self.find(&path).await.map_err(|error| error.to_string())?;
        let got = contents(self.zpl, &attr).await?;
        self.done.verified += got.bytes.len() as u64;
        if got == *self.files.file(id) { Ok(()) } else { Err(format!("{path} does not hold what was written")) }
    }
}

/// `ENOSPC`.
const NO_SPACE: i32 = 28;

/// A file with all its bytes and attributes.
async fn contents(zpl: &Zpl, attr: &Attr) -> Result<Contents, String> {
    let say = |error: ZplError| format!("reading object {}: {error}", attr.object);
    let mut bytes = Vec::with_capacity(attr.size as usize);
    for part in zpl.read(attr.object, 0, attr.size).await.map_err(say)? {
        bytes.extend_from_slice(&part);
    }
    let mut xattrs = BTreeMap::new();
    for name in zpl.listxattr(attr.object, true).await.map_err(say)? {
        let value = zpl.getxattr(attr.object, &name).await.map_err(say)?;
        xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    Ok(Contents { bytes: Arc::new(bytes), xattrs })
}

/// Everything in a file system.
///
/// # Errors
/// What could not be read.
pub async fn walk(zpl: &Zpl) -> Result<Tree, String> {
    let mut tree = Tree::new();
    let mut folders = vec![(String::new(), zpl.root())];
    while let Some((path, folder)) = folders.pop() {
        let entries = zpl.readdir(folder, 0, 10_000, false).await.map_err(|error| format!("folder {path}: {error}"))?;
        for entry in entries.iter().filter(|entry| !matches!(&entry.name[..], b"." | b"..")) {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let attr = zpl.lookup(folder, &entry.name).await.map_err(|error| format!("{path}/{name}: {error}"))?;
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            let found = match attr.kind {
                FileKind::Directory => {
                    folders.push((path.clone(), attr.object));
                    Found::Folder
                }
                FileKind::Symlink => {
                    let target = zpl.readlink(attr.object).await.map_err(|error| format!("{path}: {error}"))?;
                    Found::Symlink(String::from_utf8_lossy(&target).into_owned())
                }
                _ => {
                    let all = contents(zpl, &attr).await.map_err(|error| format!("{path}: {error}"))?;
                    Found::File(all, attr.links)
                }
            };
            tree.insert(path, found);
        }
    }
    Ok(tree)
}

/// Bytes of all files in a tree.
pub fn size(tree: &Tree) -> u64 {
    let bytes = |found: &Found| if let Found::File(contents, _) = found { contents.bytes.len() as u64 } else { 0 };
    tree.values().map(bytes).sum()
}
