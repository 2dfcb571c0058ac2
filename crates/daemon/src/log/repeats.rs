//! Lines that repeat are counted instead of written: a disk that fails says so with every read.
//!
//! Invariants:
//! - the first [`PASS`] lines of a kind within a window are written, the others counted; when the window ends one line
//!   tells how many there were, so that none is lost without a trace;
//! - a kind is what a line says without its numbers, and whom it is about (pool, vdev, file system): two disks are two
//!   kinds;
//! - memory is bounded: of more than [`KINDS_MAX`] kinds at one time the others are all written.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// How long lines of a kind are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// Lines of a kind that are written in each window.
const PASS: u32 = 5;
/// Kinds that are counted at one time.
const KINDS_MAX: usize = 256;
/// Bytes of a line that the summary repeats.
const SAMPLE_BYTES_MAX: usize = 400;
/// Lines about lines.
const TARGET: &str = "platter::repeated";
/// Fields that say whom a line is about. Files are not among them: a disk that fails damages many.
const ABOUT: [&str; 7] = ["pool", "vdev", "fs", "dataset", "class", "user", "what"];

/// Lines of one kind in the window that runs.
#[derive(Debug)]
struct Kind {
    since: Instant,
    seen: u32,
    level: Level,
    sample: String,
}

/// Kinds by the hash of what they say.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    kinds: Arc<Mutex<BTreeMap<u64, Kind>>>,
}

/// What a window's end has to tell.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    level: Level,
    text: String,
}

impl Repeats {
    /// Whether a line of this kind is written.
    fn admits(&self, now: Instant, kind: u64, level: Level, sample: impl FnOnce() -> String) -> bool {
        let mut kinds = self.kinds.lock();
        if let Some(known) = kinds.get_mut(&kind) {
            known.seen = known.seen.saturating_add(1);
            if known.seen == PASS + 1 {
                known.sample = sample();
            }
            return known.seen <= PASS;
        }
        if kinds.len() < KINDS_MAX {
            kinds.insert(kind, Kind { since: now, seen: 1, level, sample: String::new() });
        }
        debug_assert!(kinds.len() <= KINDS_MAX);
        true
    }

    /// Ends the windows that are over by `now`, or all.
    fn due(&self, now: Instant, all: bool) -> Vec<Summary> {
        let mut kinds = self.kinds.lock();
        let mut over = Vec::new();
        kinds.retain(|_, kind| {
            let age = now.saturating_duration_since(kind.since);
            if !all && age < WINDOW {
                return true;
            }
            if let Some(more) = kind.seen.checked_sub(PASS).filter(|more| *more > 0) {
                let text = format!("… and {more} more like it in {} s: {}", age.as_secs().max(1), kind.sample);
                over.push(Summary { level: kind.level, text });
            }
            false
        });
        over
    }

    /// Writes what the windows that are over have counted; of all windows when `all`.
    pub fn tell(&self, all: bool) {
        for Summary { level, text } in self.due(Instant::now(), all) {
            match level {
                Level::ERROR => tracing::error!(target: TARGET, "{text}"),
                Level::WARN => tracing::warn!(target: TARGET, "{text}"),
                _ => tracing::info!(target: TARGET, "{text}"),
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _ctx: Context<'_, S>) -> bool {
        let about = event.metadata();
        // Who asks for details gets all of them.
        if *about.level() > Level::INFO || about.target() == TARGET {
            return true;
        }
        let mut said = Said::default();
        event.record(&mut said);
        let mut hasher = DefaultHasher::new();
        about.callsite().hash(&mut hasher);
        (&said.message_without_numbers, &said.about).hash(&mut hasher);
        self.admits(Instant::now(), hasher.finish(), *about.level(), || said.sample())
    }
}

/// What a line says.
#[derive(Default)]
struct Said {
    message: String,
    message_without_numbers: String,
    /// Whom it is about: " pool=tank vdev=/dev/sda".
    about: String,
    more: String,
}

impl Said {
    fn sample(&self) -> String {
        let mut text = format!("{}{}{}", self.message, self.about, self.more);
        let mut end = SAMPLE_BYTES_MAX.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
            self.message_without_numbers = without_numbers(&self.message);
        } else {
            let to = if ABOUT.contains(&field.name()) { &mut self.about } else { &mut self.more };
            let _ = write!(to, " {}={value:?}", field.name());
        }
    }
}

/// The text with each number made one sign.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        if !sign.is_ascii_digit() {
            out.push(sign);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_counted_and_told_once_at_its_end() {
        let (repeats, start) = (Repeats::default(), Instant::now());
        let admitted =
            (0..417).filter(|n| repeats.admits(start, 1, Level::WARN, || format!("read {n} failed"))).count();
        assert_eq!(admitted as u32, PASS);
        assert!(repeats.admits(start, 2, Level::WARN, String::new), "another kind is not held back");
        assert_eq!(repeats.due(start + WINDOW / 2, false), []);
        let told = repeats.due(start + WINDOW, false);
        let text = "… and 412 more like it in 10 s: read 5 failed".to_owned();
        assert_eq!(told, [Summary { level: Level::WARN, text }]);
        assert_eq!(repeats.due(start + WINDOW, true), [], "told once");
        assert!(repeats.admits(start + WINDOW, 1, Level::WARN, String::new), "a new window begins");
    }

    #[test]
    fn memory_is_bounded_and_what_does_not_fit_is_written() {
        let (repeats, start) = (Repeats::default(), Instant::now());
        for kind in 0..10_000 {
            assert!(repeats.admits(start, kind, Level::INFO, String::new));
        }
        assert_eq!(repeats.kinds.lock().len(), KINDS_MAX);
        assert!((0..100).all(|_| repeats.admits(start, 9_999, Level::INFO, String::new)));
        assert_eq!(repeats.due(start + WINDOW, false), []);
        assert!(repeats.kinds.lock().is_empty());
    }

    #[test]
    fn numbers_do_not_make_a_kind_and_those_it_is_about_do() {
        use tracing_subscriber::prelude::*;
        let (repeats, lines) = (Repeats::default(), Lines::default());
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(repeats.clone()).with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for offset in 0..100 {
                for vdev in ["d0", "d1"] {
                    tracing::warn!(pool = "tank", vdev, offset, "reading block {offset} failed");
                }
            }
            repeats.tell(true);
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
        assert_eq!((count("vdev=\"d0\""), count("vdev=\"d1\"")), (PASS as usize + 1, PASS as usize + 1), "{text}");
        assert_eq!(count("… and 95 more like it"), 2, "{text}");
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
}
