//! `platter stream`: what is in a stream that lies in a file, without receiving it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use platter_api::messages::ListMounts;
use platter_archive::diff::{Difference, Named};
use platter_archive::reader::{Next, Reader};
use platter_archive::tree::{Part, Tree};
use platter_archive::{ArchiveError, mount};
use platter_stream::contents::{self, EntryKind};
use platter_stream::{ResumePoint, ResumeToken};

use crate::out::outln;
use crate::session::{Done, Failure, Session, exit_code, refused};
use crate::sink::Sink;

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
    /// Compare a full stream of a file system with a directory: what is only in the stream (-), only in the directory
    /// (+) or different (M). Exit code 1 when anything is
    Diff {
        /// The file with the stream
        file: PathBuf,
        /// The directory, or the name of a snapshot or file system that is mounted
        with: String,
    },
    /// Show the files of a full stream of a file system in a directory, until that is unmounted or Ctrl-C is pressed
    Mount {
        /// The file with the stream
        file: PathBuf,
        /// An empty directory
        at: PathBuf,
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
        Action::Diff { file, with } => return diff(file, with),
        Action::Mount { file, at } => {
            let began = |files| {
                let (file, at) = (file.display(), at.display());
                eprintln!("{files} files and directories of '{file}' at '{at}'; Ctrl-C or umount ends it");
            };
            mount::show(file, at, began)?;
        }
        Action::Token { file } => outln!("{}", token(file)?.map_or("-".into(), |token| token.encode())),
    }
    Ok(0)
}

impl From<ArchiveError> for Failure {
    fn from(error: ArchiveError) -> Self {
        refused(error.to_string())
    }
}

/// Where what is named so can be looked at: a directory, or a file system or snapshot that is mounted.
fn place(name: &str) -> Result<PathBuf, Failure> {
    let path = Path::new(name);
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    let (dataset, snapshot) = name.split_once('@').map_or((name, None), |(dataset, own)| (dataset, Some(own)));
    let mut session = Session::new(format!("platter stream diff {name}"))?;
    let mounts = session.ask(ListMounts {})?;
    let found = mounts.into_iter().find(|entry| entry.dataset == dataset);
    let found =
        found.ok_or_else(|| refused(format!("'{name}' is no directory, and no file system that is mounted")))?;
    let place = match snapshot {
        Some(own) => found.mountpoint.join(".zfs/snapshot").join(own),
        None => found.mountpoint,
    };
    match place.is_dir() {
        true => Ok(place),
        false => Err(refused(format!("'{name}' cannot be looked at: '{}' is no directory", place.display()))),
    }
}

/// Exit code when something differs, as of diff(1).
const DIFFERENT: u8 = 1;

/// Compares a stream with a directory.
fn diff(path: &Path, with: &str) -> Done {
    let path_of = |named: &Named| {
        format!("/{}{}", printable(&named.path), if named.is_directory && !named.path.is_empty() { "/" } else { "" })
    };
    let mut code = 0;
    platter_archive::diff::diff(path, &place(with)?, &mut |difference| {
        code = DIFFERENT;
        match difference {
            Difference::Missing(named) => outln!("-\t{}", path_of(&named)),
            Difference::Added(named) => outln!("+\t{}", path_of(&named)),
            Difference::Changed(named, how) => outln!("M\t{}\t({})", path_of(&named), how.join(", ")),
        }
    })?;
    Ok(code)
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

fn cat(path: &Path, name: &str) -> Result<(), Failure> {
    let tree = Tree::of(path)?;
    let (object, kind) = tree.find(name)?;
    if kind != EntryKind::File {
        return Err(refused(format!("'{name}' is no regular file")));
    }
    let (file, size) = (tree.one_file(object)?, tree.attributes(object)?.size);
    let cannot_write = |error: std::io::Error| refused(format!("cannot write: {error}"));
    let mut sink = Sink::output().map_err(cannot_write)?;
    tree.parts(&file, 0, size, |part| {
        let written = match part {
            Part::Bytes(bytes) => sink.data(bytes),
            Part::Zeros(count) => sink.hole(count),
        };
        written.map_err(cannot_write)
    })?;
    sink.end().map_err(cannot_write)
}

/// Where a receive of the stream would go on; none when it is whole.
fn token(path: &Path) -> Result<Option<ResumeToken>, Failure> {
    let mut reader = Reader::open(path)?;
    let mut any = false;
    while let Some(mut stream) = reader.stream()? {
        any = true;
        let mut reached = ResumePoint::default();
        loop {
            match stream.advance()? {
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
