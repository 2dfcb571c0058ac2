//! `platter stream`: what is in a stream that lies in a file, without receiving it and without a daemon.
//!
//! A file is read from its beginning to its end with every checksum looked at; of directories it is remembered where
//! they are, and they are read again there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use platter_nvlist::NvList;
use platter_stream::contents::{self, BlockPlace, Directories, EntryKind};
use platter_stream::{Begin, HeaderKind, ObjectId, Parser, RECORD_SIZE, Record, ResumePoint, ResumeToken, StreamError};

use crate::out::outln;
use crate::session::{Done, Failure, exit_code, refused};

/// Bytes read, and written, at a time.
const AT_ONCE: usize = 1 << 20;

/// What is done.
#[derive(Clone, Debug, Subcommand)]
pub enum Action {
    /// List the files in a full stream of a file system
    Ls {
        /// The file with the stream
        file: PathBuf,
        /// Only what is in this directory, and below
        path: Option<String>,
    },
    /// Write a file of a full stream of a file system to standard output
    Cat {
        /// The file with the stream
        file: PathBuf,
        /// The file's path in the file system
        path: String,
    },
    /// Print the token with which 'zfs send -t' goes on where a stream was cut; '-' when it is whole
    Token {
        /// The file with the stream
        file: PathBuf,
    },
}

/// Runs it.
pub fn main(action: &Action) -> u8 {
    exit_code(run(action), "stream")
}

fn run(action: &Action) -> Done {
    match action {
        Action::Ls { file, path } => list(file, path.as_deref().unwrap_or_default())?,
        Action::Cat { file, path } => cat(file, path)?,
        Action::Token { file } => outln!("{}", token(file)?.map_or("-".into(), |token| token.encode())),
    }
    Ok(0)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    refused(format!("cannot read '{}': {error}", path.display()))
}

fn makes_no_sense(path: &Path, error: &StreamError) -> Failure {
    refused(format!("'{}': {error}", path.display()))
}

/// Reads the records of a file.
struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    at: u64,
}

/// A stream in a file, of one snapshot.
struct Stream<'a> {
    reader: Reader<'a>,
    parser: Parser,
    begin: Begin,
    list: Option<NvList>,
    /// Bytes of it so far.
    bytes: u64,
}

/// What comes next in a stream.
enum Next {
    /// A record, where its payload is in the file, and the payload.
    Record(Record, u64, Vec<u8>),
    /// The stream is whole.
    End,
    /// It was cut, or what follows is damaged.
    Cut(Option<StreamError>),
}

impl<'a> Reader<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        Ok(Self { path, file: BufReader::with_capacity(AT_ONCE, file), at: 0 })
    }

    /// The next bytes; fewer at the file's end.
    fn take(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let read = (&mut self.file).take(length as u64).read_to_end(&mut bytes);
        read.map_err(|error| unreadable(self.path, &error))?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }

    /// The next stream; none behind the last. What stands in front of several is passed over.
    fn stream(mut self) -> Result<Option<Stream<'a>>, Failure> {
        loop {
            let bytes = self.take(RECORD_SIZE)?;
            let Ok(header) = <[u8; RECORD_SIZE]>::try_from(bytes.as_slice()) else { return Ok(None) };
            if Parser::is_package_end(&header) {
                return Ok(None);
            }
            let path = self.path;
            let (mut parser, begin) = Parser::begin(&header).map_err(|error| makes_no_sense(path, &error))?;
            let list = self.take(begin.list_length as usize)?;
            if list.len() < begin.list_length as usize {
                return Ok(None);
            }
            if begin.list_length > 0 {
                parser.payload(&list).map_err(|error| makes_no_sense(path, &error))?;
            }
            if begin.kind == HeaderKind::Substream {
                let list = NvList::decode(&list).ok();
                let bytes = (RECORD_SIZE + begin.list_length as usize) as u64;
                return Ok(Some(Stream { reader: self, parser, begin, list, bytes }));
            }
            self.take(RECORD_SIZE)?;
        }
    }
}

impl Stream<'_> {
    fn next(&mut self) -> Result<Next, Failure> {
        let bytes = self.reader.take(RECORD_SIZE)?;
        let Ok(header) = <[u8; RECORD_SIZE]>::try_from(bytes.as_slice()) else { return Ok(Next::Cut(None)) };
        let next = match self.parser.header(&header) {
            Ok(next) => next,
            Err(error) => return Ok(Next::Cut(Some(error))),
        };
        self.bytes += RECORD_SIZE as u64;
        if matches!(next.record, Record::End(_)) {
            return Ok(Next::End);
        }
        let at = self.reader.at;
        let payload = self.reader.take(next.payload as usize)?;
        if payload.len() < next.payload as usize {
            return Ok(Next::Cut(None));
        }
        if let Err(error) = self.parser.payload(&payload) {
            return Ok(Next::Cut(Some(error)));
        }
        self.bytes += payload.len() as u64;
        Ok(Next::Record(next.record, at, payload))
    }

    /// The next record of a stream that has to be whole.
    fn record(&mut self) -> Result<Option<(Record, u64, Vec<u8>)>, Failure> {
        match self.next()? {
            Next::Record(record, at, payload) => Ok(Some((record, at, payload))),
            Next::End => Ok(None),
            Next::Cut(Some(error)) => Err(makes_no_sense(self.reader.path, &error)),
            Next::Cut(None) => Err(refused(format!("'{}': incomplete stream", self.reader.path.display()))),
        }
    }
}

/// The first stream in a file, which is a full one of a file system.
fn full(path: &Path) -> Result<Stream<'_>, Failure> {
    let none = || refused(format!("'{}': there is no stream in it", path.display()));
    let stream = Reader::open(path)?.stream()?.ok_or_else(none)?;
    if stream.begin.from_guid.0 != 0 {
        let text = "it is incremental, and has only what changed: its files cannot be found";
        return Err(refused(format!("'{}': {text}", path.display())));
    }
    if !stream.begin.is_filesystem() {
        return Err(refused(format!("'{}': it is of a volume, which has no files", path.display())));
    }
    Ok(stream)
}

/// What is known of a stream's directories.
struct Tree<'a> {
    path: &'a Path,
    file: File,
    directories: Directories,
    swapped: bool,
}

impl<'a> Tree<'a> {
    /// Reads the whole stream.
    fn of(path: &'a Path) -> Result<Self, Failure> {
        let mut stream = full(path)?;
        let mut directories = Directories::default();
        while let Some((record, at, _)) = stream.record()? {
            directories.note(&record, at).map_err(|error| makes_no_sense(path, &error))?;
        }
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        Ok(Self { path, file, directories, swapped: stream.parser.is_swapped() })
    }

    fn block(&self, place: &BlockPlace) -> Result<Vec<u8>, Failure> {
        let mut payload = vec![0; place.stored];
        self.file.read_exact_at(&mut payload, place.at).map_err(|error| unreadable(self.path, &error))?;
        place.contents(&payload, self.swapped).map_err(|error| makes_no_sense(self.path, &error))
    }

    fn root(&self) -> Result<ObjectId, Failure> {
        for place in self.directories.blocks_of_master() {
            let found = contents::root(&self.block(&place)?).map_err(|error| makes_no_sense(self.path, &error))?;
            if let Some(root) = found {
                return Ok(root);
            }
        }
        Err(refused(format!("'{}': its topmost directory is not in it", self.path.display())))
    }

    /// The entries of a directory, by name.
    fn entries(&self, directory: ObjectId) -> Result<Vec<contents::Entry>, Failure> {
        let mut all = Vec::new();
        for place in self.directories.blocks_of(directory) {
            all.extend(contents::entries(&self.block(&place)?).map_err(|error| makes_no_sense(self.path, &error))?);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// What a path leads to.
    fn find(&self, path: &str) -> Result<(ObjectId, EntryKind), Failure> {
        let mut at = (self.root()?, EntryKind::Directory);
        for name in path.split('/').filter(|name| !name.is_empty() && *name != ".") {
            let missing = || refused(format!("'{}': there is no '{path}' in it", self.path.display()));
            if at.1 != EntryKind::Directory {
                return Err(missing());
            }
            let entries = self.entries(at.0)?;
            let found = entries.into_iter().find(|entry| entry.name == name.as_bytes()).ok_or_else(missing)?;
            at = (found.object, found.kind);
        }
        Ok(at)
    }
}

/// A name as it is printed: what could do something to a terminal is a backslash and three octal digits.
fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let shown = |c: char| match c {
        '\\' => "\\134".to_owned(),
        c if c.is_control() || c == char::REPLACEMENT_CHARACTER => format!("\\{:03o}", (c as u32).min(0xff)),
        c => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// A directory whose entries are being listed: what its path is, and those that are left.
struct Level {
    prefix: String,
    entries: std::vec::IntoIter<contents::Entry>,
}

fn list(path: &Path, below: &str) -> Result<(), Failure> {
    let tree = Tree::of(path)?;
    let (top, kind) = tree.find(below)?;
    let below = below.trim_matches('/');
    if kind != EntryKind::Directory {
        outln!("{below}");
        return Ok(());
    }
    let prefix = if below.is_empty() { String::new() } else { format!("{below}/") };
    let mut levels = vec![Level { prefix, entries: tree.entries(top)?.into_iter() }];
    // A directory that is in itself would be listed for ever.
    let mut seen = BTreeSet::from([top]);
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.entries.next() else {
            levels.pop();
            continue;
        };
        let name = format!("{}{}", level.prefix, printable(&entry.name));
        if entry.kind != EntryKind::Directory {
            outln!("{name}");
            continue;
        }
        outln!("{name}/");
        if seen.insert(entry.object) {
            levels.push(Level { prefix: format!("{name}/"), entries: tree.entries(entry.object)?.into_iter() });
        }
    }
    Ok(())
}

/// Writes a file's bytes in order, with zeros where nothing is said of them.
struct Output {
    out: std::io::Stdout,
    at: u64,
    size: u64,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|error| refused(format!("cannot write: {error}")))
    }

    fn zeros(&mut self, to: u64) -> Result<(), Failure> {
        let zeros = vec![0; AT_ONCE];
        while self.at < to.min(self.size) {
            let length = (to.min(self.size) - self.at).min(AT_ONCE as u64) as usize;
            self.put(&zeros[..length])?;
        }
        Ok(())
    }

    fn block(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        if offset < self.at || offset >= self.size {
            return Ok(());
        }
        self.zeros(offset)?;
        let length = (self.size - offset).min(bytes.len() as u64) as usize;
        self.put(&bytes[..length])
    }
}

fn cat(path: &Path, name: &str) -> Result<(), Failure> {
    let tree = Tree::of(path)?;
    let (object, kind) = tree.find(name)?;
    if kind != EntryKind::File {
        return Err(refused(format!("'{name}' is no regular file")));
    }
    let mut stream = full(path)?;
    let mut output: Option<Output> = None;
    while let Some((record, at, payload)) = stream.record()? {
        match (&record, &mut output) {
            (Record::Object(found), _) if found.object == object => {
                let size = contents::file_size(found, &payload, tree.swapped);
                let size = size.ok_or_else(|| refused(format!("'{name}': its size is not known")))?;
                output = Some(Output { out: std::io::stdout(), at: 0, size });
            }
            (_, Some(output)) => match contents::block_of(&record, at) {
                Some((of, offset, place)) if of == object => {
                    let block = place.contents(&payload, tree.swapped);
                    output.block(offset, &block.map_err(|error| makes_no_sense(path, &error))?)?;
                }
                _ => {}
            },
            _ => {}
        }
    }
    let missing = || refused(format!("'{}': '{name}' is not in it", path.display()));
    let mut output = output.ok_or_else(missing)?;
    output.zeros(output.size)?;
    output.out.flush().map_err(|error| refused(format!("cannot write: {error}")))
}

/// Where a receive of the stream would go on; none when it is whole.
fn token(path: &Path) -> Result<Option<ResumeToken>, Failure> {
    let mut reader = Reader::open(path)?;
    let mut any = false;
    while let Some(mut stream) = reader.stream()? {
        any = true;
        let mut reached = ResumePoint::default();
        loop {
            match stream.next()? {
                Next::Record(record, ..) => reached.note(&record, stream.bytes),
                Next::End => break,
                Next::Cut(_) => return Ok(Some(reached.token(&stream.begin, stream.list.as_ref()))),
            }
        }
        reader = stream.reader;
    }
    match any {
        true => Ok(None),
        false => Err(refused(format!("'{}': there is no stream in it", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_nothing_to_a_terminal() {
        assert_eq!(printable("grün 1".as_bytes()), "grün 1");
        assert_eq!(printable(b"a\x1b[2J\n\\"), "a\\033[2J\\012\\134");
    }
}
