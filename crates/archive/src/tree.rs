//! The files of a stream that lies in a file. Of directories and files it is remembered where they are, and they are
//! read again there.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use platter_stream::attributes::{AttributeTables, FileAttributes};
use platter_stream::contents::{self, BlockPlace, Directories, EntryKind};
use platter_stream::one_file::{Files, OneFile, Piece};
use platter_stream::{ObjectId, ObjectRecord, ObjectType, Parser, RECORD_SIZE, Record};

use crate::error::{ArchiveError, Result, other, senseless, unreadable};
use crate::reader::{Stream, full};

// Linux's numbers.
const S_IFMT: u32 = 0o170_000;
const S_IFLNK: u32 = 0o120_000;
/// Longest target of a symbolic link (`MAXPATHLEN`).
const LINK_MAX: u64 = 4096;
/// Bytes of nothing that are handed over at a time.
const ZEROS: u64 = 1 << 20;

/// Some bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// So many of which nothing is said: they are zero.
    Zeros(u64),
    /// These.
    Bytes(&'a [u8]),
}

/// What tells whether somebody has changed a file since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    size: u64,
    modified: (i64, i64),
}

impl Version {
    fn of(file: &File) -> std::io::Result<Self> {
        let found = file.metadata()?;
        Ok(Self { size: found.size(), modified: (found.mtime(), found.mtime_nsec()) })
    }
}

/// A stream of which it is known where its directories and files are.
pub struct Tree {
    path: PathBuf,
    file: File,
    /// What the file was when its checksums were looked at.
    kept: Version,
    directories: Directories,
    files: Files,
    tables: AttributeTables,
    parser: Parser,
}

impl Tree {
    /// Reads the whole stream.
    pub fn of(path: &Path) -> Result<Self> {
        let mut stream = full(path)?;
        let (mut directories, mut files) = (Directories::default(), Files::default());
        while let Some((record, at, _)) = stream.record()? {
            let noted = directories.note(&record, at).and_then(|()| files.note(&record, at - RECORD_SIZE as u64));
            noted.map_err(senseless(path))?;
        }
        let Stream { reader, parser, .. } = stream;
        if let Ok(Some(_)) = reader.stream() {
            // All that was asked of the first would be told as if it were of all.
            let text = "it has more than one stream (zfs send -R or -I), and files are found in one alone";
            return Err(other(path, text));
        }
        let file = File::open(path).map_err(unreadable(path))?;
        let kept = Version::of(&file).map_err(unreadable(path))?;
        let tables = AttributeTables::default();
        let mut tree = Self { path: path.to_owned(), file, kept, directories, files, tables, parser };
        let blocks = |object_type| -> Result<Vec<Vec<u8>>> {
            tree.directories.blocks_of_type(object_type).iter().map(|place| tree.block(place)).collect()
        };
        let (registry, layouts) = (blocks(ObjectType::SA_ATTR_REGISTRATION)?, blocks(ObjectType::SA_ATTR_LAYOUTS)?);
        tree.tables = AttributeTables::of(&registry, &layouts).map_err(senseless(path))?;
        Ok(tree)
    }

    /// The contents of a block.
    ///
    /// # Errors
    /// It cannot be read, or is not what was compressed.
    pub fn block(&self, place: &BlockPlace) -> Result<Vec<u8>> {
        let mut payload = vec![0; place.stored];
        self.file.read_exact_at(&mut payload, place.at).map_err(unreadable(&self.path))?;
        place.contents(&payload, self.is_swapped()).map_err(senseless(&self.path))
    }

    /// The topmost directory.
    ///
    /// # Errors
    /// It is not in the stream, or what leads to it makes no sense.
    pub fn root(&self) -> Result<ObjectId> {
        for place in self.directories.blocks_of_master() {
            let found = contents::root(&self.block(&place)?).map_err(senseless(&self.path))?;
            if let Some(root) = found {
                return Ok(root);
            }
        }
        Err(other(&self.path, "its topmost directory is not in it"))
    }

    /// The entries of a directory, by name.
    pub fn entries(&self, directory: ObjectId) -> Result<Vec<contents::Entry>> {
        let mut all = Vec::new();
        for place in self.directories.blocks_of(directory) {
            all.extend(contents::entries(&self.block(&place)?).map_err(senseless(&self.path))?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// What a path leads to.
    pub fn find(&self, path: &str) -> Result<(ObjectId, EntryKind)> {
        let mut at = (self.root()?, EntryKind::Directory);
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            let missing = || other(&self.path, format!("there is no '{path}' in it"));
            if at.1 != EntryKind::Directory {
                return Err(missing());
            }
            let entries = self.entries(at.0)?;
            let found = entries.into_iter().find(|entry| entry.name == name.as_bytes()).ok_or_else(missing)?;
            at = (found.object, found.kind);
        }
        Ok(at)
    }

    /// Fails when the file is another one than it was: what is read now has no checksum that was looked at.
    ///
    /// # Errors
    /// It was changed, or cannot be asked.
    pub fn check_unchanged(&self) -> Result<()> {
        match Version::of(&self.file).map_err(unreadable(&self.path))? == self.kept {
            true => Ok(()),
            false => Err(other(&self.path, "it was changed meanwhile: mount it again")),
        }
    }

    /// Whether it comes from a machine of the other byte order.
    pub fn is_swapped(&self) -> bool {
        self.parser.is_swapped()
    }

    /// How many files and directories there are.
    pub fn count(&self) -> usize {
        self.files.count()
    }

    /// The record at this place of the file, once more.
    fn again(&self, at: u64) -> Result<Record> {
        let mut bytes = [0; RECORD_SIZE];
        self.file.read_exact_at(&mut bytes, at).map_err(unreadable(&self.path))?;
        self.parser.again(&bytes).map_err(senseless(&self.path))
    }

    fn bytes(&self, at: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, at).map_err(unreadable(&self.path))?;
        Ok(bytes)
    }

    /// The record of an object that is a file or a directory, and where what follows it begins.
    fn object(&self, object: ObjectId) -> Result<(ObjectRecord, u64)> {
        let missing = || other(&self.path, format!("object {object} is not in it"));
        let at = self.files.place(object).ok_or_else(missing)?;
        match self.again(at)? {
            Record::Object(record) => Ok((record, at + RECORD_SIZE as u64)),
            _ => Err(missing()),
        }
    }

    /// What a file or directory is.
    pub fn attributes(&self, object: ObjectId) -> Result<FileAttributes> {
        let (record, at) = self.object(object)?;
        let bonus = self.bytes(at, u64::from(record.bonus_length).next_multiple_of(8) as usize)?;
        let decode = |spill: Option<&[u8]>| {
            let found = self.tables.decode(&record, &bonus, spill, self.is_swapped());
            found.map_err(senseless(&self.path))
        };
        let found = decode(None)?;
        if found.mode & S_IFMT != S_IFLNK || found.target.is_some() {
            return Ok(found);
        }
        // What does not fit beside the others is in a block of its own, and in old file systems where contents are.
        let file = self.one_file(object)?;
        let Some((at, length)) = file.spill else {
            let mut target = Vec::new();
            self.read(&file, 0, found.size.min(LINK_MAX), |bytes| {
                target.extend_from_slice(bytes);
                Ok(())
            })?;
            return Ok(FileAttributes { target: Some(target), ..found });
        };
        decode(Some(&self.bytes(at, length)?))
    }

    /// Where a file has its blocks.
    pub fn one_file(&self, object: ObjectId) -> Result<OneFile> {
        let (record, begin) = self.object(object)?;
        let mut file = OneFile::default();
        let mut at = begin + u64::from(record.bonus_length).next_multiple_of(8);
        loop {
            let record = self.again(at)?;
            let payload = at + RECORD_SIZE as u64;
            let is_its = file.note(object, &record, payload).map_err(senseless(&self.path))?;
            if !is_its {
                return Ok(file);
            }
            at = payload.saturating_add(record.payload_length());
        }
    }

    /// Hands over a file's bytes from `from` until `until`, in order, in parts of at most a block.
    ///
    /// # Errors
    /// They cannot be read, or were left out of the stream; what `take` says.
    pub fn parts<E: From<ArchiveError>>(
        &self,
        file: &OneFile,
        from: u64,
        until: u64,
        mut take: impl FnMut(Part<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        for piece in file.pieces(from, until).map_err(senseless(&self.path))? {
            match piece {
                Piece::Block(place, begin, count) => take(Part::Bytes(&self.block(&place)?[begin..begin + count]))?,
                Piece::Zeros(count) => take(Part::Zeros(count))?,
            }
        }
        Ok(())
    }

    /// As [`parts`](Self::parts), all of it as bytes.
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, file: &OneFile, from: u64, until: u64, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let zeros = vec![0; ZEROS.min(until.saturating_sub(from)) as usize];
        self.parts(file, from, until, |part| match part {
            Part::Bytes(bytes) => take(bytes),
            Part::Zeros(mut count) => {
                while count > 0 {
                    let some = count.min(zeros.len() as u64);
                    take(&zeros[..some as usize])?;
                    count -= some;
                }
                Ok(())
            }
        })
    }
}
