//! What happened, command by command: the proof that a seed replays.
//!
//! Invariants:
//! - the hash covers every line ever written, whether or not the line is still kept;
//! - what was marked stays, however many commands follow.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// One simulation's history, shared by its disks and by whoever drives them.
#[derive(Debug)]
pub struct History {
    keep: usize,
    told: bool,
    state: Mutex<State>,
}

/// Most lines of a history: nothing that ends is as long, so what is longer does something for ever.
pub const LINES_MAX: u64 = 5_000_000;

#[derive(Debug, Default)]
struct State {
    hash: Sha256,
    lines: VecDeque<String>,
    /// Marked lines, with how many lines came before each.
    marks: Vec<(u64, String)>,
    total: u64,
}

impl History {
    /// An empty history that keeps its last `keep` lines (`usize::MAX`: all).
    pub fn new(keep: usize) -> Arc<Self> {
        Arc::new(Self { keep, told: false, state: Mutex::default() })
    }

    /// As [`Self::new`], but each marked line is printed to stderr when it happens: for one that does not end.
    pub fn told(keep: usize) -> Arc<Self> {
        Arc::new(Self { keep, told: true, state: Mutex::default() })
    }

    /// Adds a line.
    ///
    /// # Panics
    /// When there are more than [`LINES_MAX`]: it never ends.
    pub fn note(&self, line: String) {
        let mut state = self.state.lock();
        state.hash.update(line.as_bytes());
        state.hash.update(b"\n");
        state.total += 1;
        assert!(state.total <= LINES_MAX, "it never ends: {LINES_MAX} things happened, the last of them '{line}'");
        if self.keep > 0 {
            if state.lines.len() >= self.keep {
                state.lines.pop_front();
            }
            state.lines.push_back(line);
        }
        assert!(state.lines.len() <= self.keep && state.lines.len() as u64 <= state.total, "the last lines are kept");
    }

    /// Adds a line that tells the story: what was done to the machine, and why.
    pub fn mark(&self, line: String) {
        if self.told {
            eprintln!("{line}");
        }
        if self.keep > 0 {
            let mut state = self.state.lock();
            let before = state.total;
            assert!(state.marks.last().is_none_or(|(earlier, _)| *earlier <= before), "marks are in order");
            state.marks.push((before, line.clone()));
        }
        self.note(line);
    }

    /// SHA-256 of all lines so far, each with its newline, in hexadecimal.
    pub fn hash(&self) -> String {
        hexadecimal(&self.state.lock().hash.clone().finalize())
    }

    /// Lines so far.
    pub fn total(&self) -> u64 {
        self.state.lock().total
    }

    /// The lines that are kept, oldest first; before them those of the marked ones that are older.
    pub fn lines(&self) -> Vec<String> {
        let state = self.state.lock();
        let first = state.total - state.lines.len() as u64;
        let older = state.marks.iter().take_while(|(before, _)| *before < first).map(|(_, line)| line);
        older.chain(&state.lines).cloned().collect()
    }
}

/// Eight bytes of a BLAKE3 are enough to tell blocks apart; it costs the least, and every byte that any disk takes or
/// gives goes through it.
pub(super) fn digest<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    let mut hash = blake3::Hasher::new();
    parts.for_each(|part| {
        hash.update(part);
    });
    hexadecimal(&hash.finalize().as_bytes()[..8])
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stay_and_are_told_once_and_in_order() {
        let history = History::new(2);
        history.mark("a".into());
        history.note("1".into());
        history.mark("b".into());
        assert_eq!(history.lines(), ["a", "1", "b"]);
        for number in 2..5 {
            history.note(number.to_string());
        }
        assert_eq!(history.lines(), ["a", "b", "3", "4"]);
        let silent = History::new(0);
        silent.mark("a".into());
        assert!(silent.lines().is_empty());
        assert_eq!(silent.total(), 1);
    }
}
