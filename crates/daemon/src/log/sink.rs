//! Where the log's lines go: a file that is bounded in size, the terminal, or the journal.
//!
//! Invariants:
//! - the file and the one before it (`.1`) have [`FILE_BYTES_MAX`] each at most, but for a line that is longer by
//!   itself;
//! - a line is in one of the two as a whole; the file before ends where the file begins, so that changing from one to
//!   the other loses nothing;
//! - lines that could not be written (a full disk) are counted, and the next that can be is preceded by their number;
//! - who logs waits for nothing: a thread of its own writes. A pool must go on when the file system of the log hangs.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

use crate::home;

/// Bytes of the log's file, and of the one before it.
pub const FILE_BYTES_MAX: u64 = 8 << 20;

/// Bytes of the note about lines that were lost, at most.
const NOTE_BYTES_MAX: u64 = 64;

/// Lines that may wait to be written. More are counted as lost.
const WAITING_MAX: usize = 4096;

/// Takes the log's lines.
#[derive(Clone, Debug)]
pub struct Sink {
    queue: SyncSender<Message>,
    /// Lines that found the queue full, since the last that did not.
    lost: Arc<AtomicU64>,
    journal: bool,
}

enum Message {
    /// A line, or several of one event, and how many were lost before it.
    Line(Vec<u8>, u64),
    /// Whoever waits for what was logged until now.
    Written(Sender<()>),
}

#[derive(Debug)]
enum Output {
    Stderr,
    File(Bounded),
}

impl Output {
    fn write_all(mut self, queue: &Receiver<Message>) {
        for message in queue {
            match (message, &mut self) {
                // Nobody can be told that standard error is gone.
                (Message::Line(line, _), Self::Stderr) => drop(io::stderr().write_all(&line)),
                (Message::Line(line, lost), Self::File(file)) => {
                    file.lost += lost;
                    file.write(&line);
                }
                (Message::Written(waiting), _) => drop(waiting.send(())),
            }
        }
    }
}

impl Sink {
    /// To `file`, or else to standard error, which may be the journal.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn new(file: Option<&Path>) -> io::Result<Self> {
        let output = match file {
            Some(path) => Output::File(Bounded::open(path, FILE_BYTES_MAX, true)?),
            None => Output::Stderr,
        };
        let journal = file.is_none() && stderr_is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref());
        Self::start(output, journal)
    }

    fn start(output: Output, journal: bool) -> io::Result<Self> {
        let (queue, lines) = sync_channel(WAITING_MAX);
        std::thread::Builder::new().name("log-writer".into()).spawn(move || output.write_all(&lines))?;
        Ok(Self { queue, lost: Arc::default(), journal })
    }

    /// Waits until what was logged is written, at most so long.
    pub fn wait(&self, limit: Duration) {
        let (sender, written) = channel();
        if self.queue.try_send(Message::Written(sender)).is_ok() {
            let _ = written.recv_timeout(limit);
        }
    }

    /// Whether lines go to the journal, which adds the time itself.
    pub fn is_journal(&self) -> bool {
        self.journal
    }

    fn write(&self, level: Level, line: &[u8]) {
        let line = if self.journal { for_journal(level, line) } else { line.to_vec() };
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if self.queue.try_send(Message::Line(line, lost)).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

impl<'a> MakeWriter<'a> for Sink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { sink: self, level: Level::INFO }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line<'a> {
        Line { sink: self, level: *about.level() }
    }
}

/// One line on its way.
pub struct Line<'a> {
    sink: &'a Sink,
    level: Level,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(self.level, bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether `JOURNAL_STREAM` names what standard error is (systemd.exec(5)): the variable is inherited by programs whose
/// standard error is something else.
fn stderr_is_journal(variable: Option<&str>) -> bool {
    let Some((device, inode)) = variable.and_then(|text| text.split_once(':')) else { return false };
    let Ok(found) = rustix::fs::fstat(io::stderr()) else { return false };
    (device.parse(), inode.parse()) == (Ok(found.st_dev), Ok(found.st_ino))
}

/// The lines with the level as the journal takes it (`<4>`, sd-daemon(3)).
fn for_journal(level: Level, lines: &[u8]) -> Vec<u8> {
    let number = match level {
        Level::ERROR => '3',
        Level::WARN => '4',
        Level::INFO => '6',
        _ => '7',
    };
    let mut out = Vec::with_capacity(lines.len() + 3);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(format!("<{number}>").as_bytes());
        out.extend_from_slice(line);
    }
    out
}

/// A file that starts anew when it is full.
#[derive(Debug)]
struct Bounded {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
    /// Lines that could not be written.
    lost: u64,
    /// Whether standard error is the file too (what the system and panics write there).
    is_stderr: bool,
}

fn open(path: &Path) -> io::Result<File> {
    home::open(path, OpenOptions::new().create(true).append(true))
}

impl Bounded {
    fn open(path: &Path, limit: u64, is_stderr: bool) -> io::Result<Self> {
        let file = open(path)?;
        let bounded = Self { path: path.to_owned(), size: file.metadata()?.size(), file, limit, lost: 0, is_stderr };
        bounded.take_stderr();
        Ok(bounded)
    }

    fn take_stderr(&self) {
        if self.is_stderr {
            let _ = rustix::stdio::dup2_stderr(&self.file);
        }
    }

    fn write(&mut self, line: &[u8]) {
        if self.size > 0 && self.size + line.len() as u64 > self.limit {
            self.start_anew();
        }
        if self.lost > 0 {
            let note = format!("({} lines could not be written here)\n", self.lost);
            if self.file.write_all(note.as_bytes()).is_ok() {
                self.size += note.len() as u64;
                self.lost = 0;
            }
        }
        match self.file.write_all(line) {
            Ok(()) => self.size += line.len() as u64,
            Err(_) => self.lost += 1,
        }
        // A note about lost lines is shorter than any line that matters.
        debug_assert!(self.size <= self.limit.max(line.len() as u64) + NOTE_BYTES_MAX);
    }

    /// Keeps the file as the one before, in place of the one that was that. When that cannot be done the file goes on,
    /// and it is tried again after as much again.
    fn start_anew(&mut self) {
        let mut before = self.path.clone().into_os_string();
        before.push(".1");
        self.size = 0;
        if std::fs::rename(&self.path, before).is_ok()
            && let Ok(file) = open(&self.path)
        {
            self.file = file;
            self.take_stderr();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_bounded_and_no_line_is_lost_when_it_starts_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.log");
        std::fs::write(&path, "of an earlier daemon\n").unwrap();
        let file = Bounded::open(&path, 4000, false).unwrap();
        let sink = Sink::start(Output::File(file), false).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let before = folder.path().join("daemon.log.1");
        let mut last = 0;
        for round in 0..20 {
            // Four threads at a time, so that changing the file meets other lines.
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let sink = &sink;
                    scope.spawn(move || {
                        for n in 0..10 {
                            sink.write(
                                Level::INFO,
                                format!("{:05} {}\n", (round * 4 + thread) * 10 + n, "x".repeat(40)).as_bytes(),
                            );
                        }
                    });
                }
            });
            last += 40;
            sink.wait(Duration::from_secs(60));
            let (old, new) = (read(&before), read(&path));
            assert!(old.len() <= 4000 && new.len() <= 4000, "{} {}", old.len(), new.len());
            let mut numbers: Vec<usize> =
                old.lines().chain(new.lines()).filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
            let kept = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), kept, "no line is there twice");
            assert!(kept > 80 || kept == last, "round {round}: {kept} of {last}");
            // What this round wrote is there as a whole.
            assert!((last - 40..last).all(|n| numbers.contains(&n)), "round {round}: {numbers:?}");
        }
        assert!(!read(&before).contains("earlier"), "one file is kept, not all");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_at_the_logs_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("daemon.log"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(Bounded::open(&link, 4000, false).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn the_journal_gets_levels_and_only_the_journal() {
        assert_eq!(for_journal(Level::WARN, b"one\ntwo\n"), b"<4>one\n<4>two\n");
        assert_eq!(for_journal(Level::ERROR, b"x\n"), b"<3>x\n");
        assert_eq!(for_journal(Level::DEBUG, b"x\n"), b"<7>x\n");
        let own = rustix::fs::fstat(io::stderr()).unwrap();
        assert!(stderr_is_journal(Some(&format!("{}:{}", own.st_dev, own.st_ino))));
        for other in [None, Some(""), Some("1"), Some("0:0"), Some("x:y")] {
            assert!(!stderr_is_journal(other), "{other:?}");
        }
    }
}
