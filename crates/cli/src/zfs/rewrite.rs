//! `zfs rewrite`: files' blocks are written anew as the data set's properties are today (`zfs_do_rewrite`,
//! `cmd/zfs/zfs_main.c`). It needs no daemon: the mounts that the files are on are asked.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use platter_device::rewrite::rewrite;
use rustix::fs::OFlags;

use crate::getopt::{Grammar, parse};
use crate::out::outln;
use crate::session::{Done, Failure, Session, refused, usage};
use crate::system_text::system_text;

/// Bytes that are asked for at a time, so that somebody who interrupts does not wait long.
const PIECE: u64 = 64 << 20;

/// What is done with each file.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    offset: u64,
    /// Bytes; 0 for all up to the end.
    length: u64,
    recursive: bool,
    verbose: bool,
    /// Whether other file systems below are left out.
    stays: bool,
}

/// strtoll(3) with base 0.
fn number(text: &str) -> Result<u64, Failure> {
    let parsed = match (text.strip_prefix("0x"), text.strip_prefix('0').filter(|rest| !rest.is_empty())) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) => u64::from_str_radix(digits, 8),
        (None, None) => text.parse(),
    };
    parsed.map_err(|_| usage(format!("invalid number '{text}'")))
}

/// Says what failed at a path; the error's number, to exit with.
fn complaint(what: &str, path: &Path, error: &io::Error) -> u8 {
    eprintln!("failed to {what} {}: {}", path.display(), system_text(error));
    error.raw_os_error().and_then(|number| u8::try_from(number).ok()).unwrap_or(1)
}

fn rewrite_file(path: &Path, wanted: Wanted) -> Result<(), u8> {
    let say = |what: &str, error: &io::Error| complaint(what, path, error);
    // What was a file when it was looked at may be something else now.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file: File = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) => return Err(say("open", &error)),
    };
    let size = file.metadata().map_err(|error| say("stat", &error))?.len();
    let end = if wanted.length == 0 { size } else { wanted.offset.saturating_add(wanted.length).min(size) };
    let mut at = wanted.offset;
    while at < end {
        let length = PIECE.min(end - at);
        rewrite(&file, at, length).map_err(|error| say("rewrite", &error))?;
        at += length;
    }
    if wanted.verbose {
        outln!("{}", path.display());
    }
    Ok(())
}

/// All in a folder: files at once, folders later.
fn rewrite_folder(path: &Path, device: u64, wanted: Wanted, later: &mut VecDeque<(PathBuf, u64)>) -> Result<(), u8> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(complaint("opendir", path, &error)),
    };
    let mut worst = Ok(());
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Err(complaint("readdir", path, &error)),
        };
        let path = entry.path();
        let result = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => rewrite_file(&path, wanted),
            Ok(found) if found.is_dir() && (!wanted.stays || found.dev() == device) => {
                later.push_back((path, device));
                Ok(())
            }
            Ok(_) => Ok(()),
            // Removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(complaint("stat", &path, &error)),
        };
        if result.is_err() {
            worst = result;
        }
    }
    worst
}

/// Runs it.
pub fn run(_session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "CPSl:o:rvx", long: &[] }, words).map_err(usage)?;
    for (option, what) in [("P", "physical rewrite"), ("S", "leaving what snapshots share"), ("C", "block cloning")] {
        if parsed.has(option) {
            let version = env!("CARGO_PKG_VERSION");
            return Err(refused(format!("zfs rewrite -{option}: not supported by platter {version}: no {what} yet")));
        }
    }
    let wanted = Wanted {
        offset: parsed.last("o").map_or(Ok(0), number)?,
        length: parsed.last("l").map_or(Ok(0), number)?,
        recursive: parsed.has("r"),
        verbose: parsed.has("v"),
        stays: parsed.has("x"),
    };
    if parsed.operands.is_empty() {
        return Err(usage("missing file or directory target(s)"));
    }
    let (mut later, mut code) = (VecDeque::new(), 0);
    for target in &parsed.operands {
        let path = PathBuf::from(target);
        let result = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => rewrite_file(&path, wanted),
            Ok(found) if found.is_dir() && wanted.recursive => {
                later.push_back((path, found.dev()));
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(complaint("stat", &path, &error)),
        };
        code = result.err().unwrap_or(code);
    }
    while let Some((path, device)) = later.pop_front() {
        code = rewrite_folder(&path, device, wanted, &mut later).err().unwrap_or(code);
    }
    Ok(code)
}
