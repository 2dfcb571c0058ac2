//! One finished command: its exit code and what it said, with assertions that quote the whole of it on failure.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::data;

/// Result of a command that ended.
#[derive(Clone)]
pub struct Run {
    /// The command line, for messages.
    pub command: String,
    /// Exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// Everything it wrote to stdout.
    pub stdout: String,
    /// Everything it wrote to stderr.
    pub stderr: String,
}

impl Run {
    /// Runs `command` to its end.
    ///
    /// Output goes through files and not pipes, so that a daemon started by the command which keeps them open cannot
    /// hang the test (the `commands_release_their_output` test asks for that separately).
    ///
    /// # Panics
    /// When the program cannot be started or does not end within `limit`.
    pub fn of(command: &mut Command, limit: Duration) -> Run {
        Self::until(command, limit, None)
    }

    /// Runs `command` to its end, or until stdout has the text `enough`: then it is killed and counts as having ended
    /// well. For a program that has said all that matters long before it ends.
    ///
    /// # Panics
    /// As [`of`](Self::of).
    pub fn until(command: &mut Command, limit: Duration, enough: Option<&str>) -> Run {
        let shown = show(command);
        let mut out = tempfile::tempfile().expect("a temporary file for stdout");
        let mut err = tempfile::tempfile().expect("a temporary file for stderr");
        command.stdin(Stdio::null());
        command.stdout(out.try_clone().expect("a second handle of stdout"));
        command.stderr(err.try_clone().expect("a second handle of stderr"));
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        let (status, late) = loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break (status, false);
            }
            if enough.is_some_and(|enough| has_said(&out, enough)) {
                let _ = child.kill();
                let _ = child.wait();
                break (ExitStatus::default(), false);
            }
            if start.elapsed() > limit {
                let _ = child.kill();
                break (child.wait().expect("a killed child ends"), true);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        };
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let run = Run { command: shown, code, stdout: read_back(&mut out), stderr: read_back(&mut err) };
        assert!(!late, "killed after {limit:?}:\n{run}");
        run
    }

    /// Asserts exit code 0.
    #[track_caller]
    pub fn ok(self) -> Run {
        assert!(self.code == 0, "expected exit code 0\n{self}");
        assert!(!self.panicked(), "panicked\n{self}");
        self
    }

    /// Asserts that it failed as OpenZFS's commands fail: exit code 1 (error) or 2 (usage), a reason on stderr, no
    /// panic.
    #[track_caller]
    pub fn refused(self) -> Run {
        assert!(self.code == 1 || self.code == 2, "expected exit code 1 or 2\n{self}");
        assert!(!self.stderr.trim().is_empty(), "expected a reason on stderr\n{self}");
        assert!(!self.panicked(), "panicked\n{self}");
        self
    }

    /// Asserts that stdout or stderr contains `text` (upper and lower case are the same).
    #[track_caller]
    pub fn says(self, text: &str) -> Run {
        assert!(self.mentions(text), "expected to read {text:?}\n{self}");
        self
    }

    /// Asserts that at least one of `texts` is said: for messages whose wording may vary but whose subject may not.
    #[track_caller]
    pub fn says_one_of(self, texts: &[&str]) -> Run {
        assert!(texts.iter().any(|text| self.mentions(text)), "expected to read one of {texts:?}\n{self}");
        self
    }

    /// Asserts that neither stdout nor stderr contains `text`.
    #[track_caller]
    pub fn says_not(self, text: &str) -> Run {
        assert!(!self.mentions(text), "expected not to read {text:?}\n{self}");
        self
    }

    /// Whether stdout or stderr contains `text` (upper and lower case are the same).
    pub fn mentions(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.stdout.to_lowercase().contains(&text) || self.stderr.to_lowercase().contains(&text)
    }

    fn panicked(&self) -> bool {
        self.stderr.contains("panicked at") || self.stdout.contains("panicked at")
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "$ {}\n[exit code {}]\n--- stdout\n{}\n--- stderr\n{}",
            self.command,
            self.code,
            shortened(&self.stdout),
            shortened(&self.stderr)
        )
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn show(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Whether `text` is among what was written so far. The file's position is the writer's too: it is left alone.
fn has_said(out: &File, text: &str) -> bool {
    let length = out.metadata().map_or(0, |metadata| metadata.len() as usize);
    let mut bytes = vec![0; length];
    out.read_exact_at(&mut bytes, 0).is_ok() && String::from_utf8_lossy(&bytes).contains(text)
}

fn read_back(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().expect("a temporary file can be rewound");
    file.read_to_end(&mut bytes).expect("a temporary file can be read");
    data::printable(&bytes)
}

/// Start and end of a long text: zdb can print megabytes.
fn shortened(text: &str) -> String {
    const EACH_CHARS: usize = 3000;
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= 2 * EACH_CHARS {
        return text.to_owned();
    }
    let head: String = chars[..EACH_CHARS].iter().collect();
    let tail: String = chars[chars.len() - EACH_CHARS..].iter().collect();
    format!("{head}\n[... {} characters left out ...]\n{tail}", chars.len() - 2 * EACH_CHARS)
}
