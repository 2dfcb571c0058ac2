//! `mounts.json`: which mounts there are, for the daemon that comes after one that was killed.
//!
//! A line for each mount that is made, and one when it is gone again: with thousands of mounts, writing all of them for
//! each would take longer than mounting. What is gone is left out when the file is written anew, now and then.
//!
//! Invariants:
//! - a mount is in the file before the kernel has it;
//! - the file is open from the start, so that noting a mount takes no descriptor. Nothing of it has to outlive the
//!   machine, as no mount does: it is not flushed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::home::{self, Home, waiting};

/// Lines of mounts that are gone, beside as many as there are of others, before the file is written anew.
const STALE_MAX: usize = 1000;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The mount point.
    at: PathBuf,
    /// What is mounted there, by its data set's name; none any more when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dataset: Option<String>,
}

/// The mounts of a daemon that is not there any more, by mount point.
pub fn read(home: &Home) -> BTreeMap<PathBuf, String> {
    let text = String::from_utf8(home::read(&home.mounts_file()).unwrap_or_default()).unwrap_or_default();
    let is_line = text.lines().next().is_some_and(|first| serde_json::from_str::<Line>(first).is_ok());
    // One object for all, over many lines, was how it was written first.
    if !is_line && let Ok(whole) = serde_json::from_str(&text) {
        return whole;
    }
    let mut mounts = BTreeMap::new();
    // The last line may be a part of one.
    for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
        match line.dataset {
            Some(dataset) => mounts.insert(line.at, dataset),
            None => mounts.remove(&line.at),
        };
    }
    mounts
}

/// Forgets all of them.
pub fn forget(home: &Home) {
    let _ = std::fs::remove_file(home.mounts_file());
}

/// The file as the daemon writes it.
#[derive(Debug)]
pub struct MountsFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: Option<File>,
    mounts: BTreeMap<PathBuf, String>,
    lines: usize,
}

impl MountsFile {
    /// That of `home`, without mounts. Nothing is noted where it cannot be written, which is logged.
    pub fn open(home: &Home) -> Self {
        let path = home.mounts_file();
        let file = create(&path).inspect_err(|error| complain(&path, error)).ok();
        Self { path, state: Mutex::new(State { file, mounts: BTreeMap::new(), lines: 0 }) }
    }

    /// Notes what is about to be mounted.
    pub fn add(&self, at: &Path, dataset: &str) {
        self.note(at, Some(dataset));
    }

    /// Notes that nothing is mounted there any more.
    pub fn remove(&self, at: &Path) {
        self.note(at, None);
    }

    fn note(&self, at: &Path, dataset: Option<&str>) {
        waiting(|| self.write_note(at, dataset));
    }

    fn write_note(&self, at: &Path, dataset: Option<&str>) {
        let mut state = self.state.lock();
        match dataset {
            Some(dataset) => state.mounts.insert(at.to_owned(), dataset.to_owned()),
            None => state.mounts.remove(at),
        };
        let written = if state.file.is_none() || state.lines >= 2 * state.mounts.len() + STALE_MAX {
            self.write_anew(&mut state)
        } else {
            state.lines += 1;
            let line = Line { at: at.to_owned(), dataset: dataset.map(str::to_owned) };
            text(&line).and_then(|text| state.file.as_mut().map_or(Ok(()), |file| file.write_all(text.as_bytes())))
        };
        match written {
            Ok(()) => debug_assert!(state.lines >= state.mounts.len(), "each mount has a line"),
            Err(error) => complain(&self.path, &error),
        }
    }

    fn write_anew(&self, state: &mut State) -> std::io::Result<()> {
        let mut all = String::new();
        for (at, dataset) in &state.mounts {
            all += &text(&Line { at: at.clone(), dataset: Some(dataset.clone()) })?;
        }
        let temporary = self.path.with_extension("new");
        let mut file = create(&temporary)?;
        file.write_all(all.as_bytes())?;
        std::fs::rename(&temporary, &self.path)?;
        (state.file, state.lines) = (Some(file), state.mounts.len());
        Ok(())
    }
}

fn text(line: &Line) -> std::io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

fn create(path: &Path) -> std::io::Result<File> {
    // Whoever reads a line has it whole: it is written at once, at the end.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    home::open(path, OpenOptions::new().append(true).create_new(true))
}

fn complain(path: &Path, error: &std::io::Error) {
    tracing::error!("cannot write '{}': {error}", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_is_known_after_a_crash_and_the_file_stays_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().to_path_buf()).expect("a short path");
        let file = MountsFile::open(&home);
        for number in 0..5000 {
            let at = PathBuf::from(format!("/tank/d {number}\n"));
            file.add(&at, &format!("tank/d{number}"));
            if number % 50 != 0 {
                file.remove(&at);
            }
        }
        let lines = std::fs::read_to_string(home.mounts_file()).expect("readable").lines().count();
        assert!(lines <= 2 * 100 + STALE_MAX, "{lines} lines");
        // Killed while it wrote a line.
        OpenOptions::new()
            .append(true)
            .open(home.mounts_file())
            .and_then(|mut file| file.write_all(b"{\"at\":\"/ta"))
            .expect("written");
        let found = read(&home);
        assert_eq!(found.len(), 100);
        assert_eq!(found[Path::new("/tank/d 50\n")], "tank/d50");
        forget(&home);
        assert!(read(&home).is_empty());
    }

    #[test]
    fn what_an_older_daemon_wrote_is_understood() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().to_path_buf()).expect("a short path");
        std::fs::write(home.mounts_file(), "{\n  \"/tank\": \"tank\",\n  \"/a b\": \"tank/a\"\n}").expect("written");
        assert_eq!(read(&home).len(), 2);
        std::fs::write(home.mounts_file(), "{\"at\":\"/tank\",\"dataset\":\"tank\"}\n").expect("written");
        assert_eq!(read(&home), BTreeMap::from([("/tank".into(), "tank".into())]));
    }
}
