//! The daemon's log: what of it is written ([`set_level`]), how often ([`repeats`]) and where to ([`sink`]).
//!
//! Invariants: there is one log in a process; what it writes can be changed while it runs, and what cannot be
//! understood changes nothing.

mod repeats;
mod sink;

use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{EnvFilter, reload};

use self::repeats::Repeats;
use self::sink::Sink;
use platter_api::messages::{ErrorBody, ErrorKind};

/// What is logged when nothing else is asked for, and by the parts that a level does not name.
const DEFAULT: &str = "info";

/// Takes a new filter into use.
type Reload = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

struct Log {
    reload: Reload,
    /// The level as it was given.
    level: Mutex<String>,
    repeats: Repeats,
    sink: Sink,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// How often the log looks for what it has counted long enough.
const LOOK: Duration = Duration::from_secs(1);

/// Starts the log with the level of the environment variable `PLATTER_LOG`, and sends panics to it. It goes to `file`,
/// or else to standard error.
///
/// # Errors
/// When the file cannot be opened.
pub fn start(file: Option<&Path>) -> Result<(), ErrorBody> {
    let wanted = std::env::var("PLATTER_LOG").ok().filter(|text| !text.is_empty());
    let filter = wanted.and_then(|text| EnvFilter::try_new(&text).ok().map(|filter| (text, filter)));
    let (level, filter) = filter.unwrap_or_else(|| (DEFAULT.to_owned(), EnvFilter::new(DEFAULT)));
    let sink = Sink::new(file).map_err(|error| {
        let file = file.unwrap_or(Path::new("standard error"));
        ErrorBody::new(format!("cannot write the log '{}': {error}", file.display()))
    })?;
    let (filter, handle) = reload::Layer::new(filter);
    let repeats = Repeats::default();
    let written = sink.clone();
    let lines = tracing_subscriber::fmt::layer().with_ansi(false);
    // The journal notes the time of each line itself.
    let lines = if sink.is_journal() {
        lines.without_time().with_writer(sink).boxed()
    } else {
        lines.with_writer(sink).boxed()
    };
    if tracing_subscriber::registry().with(filter).with(repeats.clone()).with(lines).try_init().is_ok() {
        let reload = Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()));
        let counted = repeats.clone();
        let is_first = LOG.set(Log { reload, level: Mutex::new(level), repeats, sink: written }).is_ok();
        debug_assert!(is_first, "there is one log in a process");
        let looking = move || loop {
            std::thread::sleep(LOOK);
            counted.tell(false);
        };
        // Without it what was counted is told at the end.
        let _ = std::thread::Builder::new().name("log".into()).spawn(looking);
    }
    std::panic::set_hook(Box::new(|info| {
        // One line in the log, wherever the thread was.
        let _ = writeln!(std::io::stderr(), "{info}\n{}", std::backtrace::Backtrace::force_capture());
    }));
    Ok(())
}

/// How long the process's end waits for what it has logged to be written.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Tells what was counted and not told yet, and has it written, before the process ends.
pub fn finish() {
    if let Some(log) = LOG.get() {
        log.repeats.tell(true);
        log.sink.wait(LAST_WORDS);
    }
}

fn log() -> Result<&'static Log, ErrorBody> {
    LOG.get().ok_or_else(|| ErrorBody::new("this process keeps no log"))
}

/// The level in use.
///
/// # Errors
/// When this process keeps no log.
pub fn level() -> Result<String, ErrorBody> {
    Ok(log()?.level.lock().clone())
}

/// Logs from now on what `text` says: a level, or levels of parts (`platter_spa=debug`), separated by commas. Returns
/// the level in use.
///
/// # Errors
/// When the text is neither, or this process keeps no log.
pub fn set_level(text: &str) -> Result<String, ErrorBody> {
    let level = parse(text)?;
    let log = log()?;
    let mut current = log.level.lock();
    let fail = |reason: String| ErrorBody::new(format!("cannot set the log level to '{text}': {reason}"));
    let filter = EnvFilter::try_new(&level).map_err(|error| fail(error.to_string()))?;
    (log.reload)(filter).map_err(fail)?;
    tracing::info!("the log level is now '{level}', it was '{current}'");
    current.clone_from(&level);
    Ok(level)
}

/// The complete level: parts that are not named go on as always. The filter's own parser takes any word for the name of
/// a part, so that a slip would silence all others.
fn parse(text: &str) -> Result<String, ErrorBody> {
    let is_level =
        |word: &str| !word.is_empty() && word.chars().all(char::is_alphabetic) && word.parse::<LevelFilter>().is_ok();
    let is_part = |word: &str| {
        let plain = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_:".contains(c));
        word.split_once('=').is_some_and(|(name, level)| plain(name) && is_level(level))
    };
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    if let Some(word) = words.iter().find(|word| !is_level(word) && !is_part(word)) {
        let message = format!("cannot set the log level to '{text}': '{word}' is no level");
        return Err(ErrorBody::of_kind(ErrorKind::Malformed, message)
            .hint("levels are off, error, warn, info, debug and trace; of one part only: platter_spa=debug"));
    }
    let all = words.iter().any(|word| is_level(word));
    Ok(if all { words.join(",") } else { format!("{DEFAULT},{}", words.join(",")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_for_all_or_for_some_parts() {
        for (given, complete) in [
            ("debug", "debug"),
            ("off", "off"),
            ("warn, platter_spa=trace", "warn,platter_spa=trace"),
            ("platter_spa=debug", "info,platter_spa=debug"),
            ("platter_spa::sync=debug", "info,platter_spa::sync=debug"),
        ] {
            assert_eq!(parse(given).as_deref(), Ok(complete));
            assert!(EnvFilter::try_new(complete).is_ok(), "{complete}");
        }
    }

    #[test]
    fn what_is_no_level_is_refused() {
        for wrong in ["", "verbose", "platter_dsl", "platter_dsl=loud", "=debug", "debug,", "3", "a b=debug"] {
            let refused = parse(wrong).expect_err(wrong);
            assert_eq!(refused.exit_code(), 2, "{wrong}");
        }
    }
}
