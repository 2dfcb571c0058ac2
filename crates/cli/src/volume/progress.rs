//! How far a copy is: a bar with rate and time to go on a terminal, and elsewhere one line at the end.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::nice;

/// See the module text. All of it goes to standard error.
pub struct Progress {
    name: String,
    bar: Option<ProgressBar>,
    began: Instant,
    passed: std::cell::Cell<u64>,
    is_quiet: bool,
}

impl Progress {
    /// Of a copy of `size` bytes, or of nobody knows how many.
    pub fn new(name: &str, size: Option<u64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (bar, template) = match size {
                Some(size) => (
                    ProgressBar::new(size),
                    "{prefix} [{bar:30}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} to go",
                ),
                None => (ProgressBar::new_spinner(), "{prefix} {binary_bytes}, {binary_bytes_per_sec}"),
            };
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            bar.set_prefix(name.to_owned());
            bar
        });
        let (name, began, passed) = (name.to_owned(), Instant::now(), std::cell::Cell::new(0));
        Self { name, bar, began, passed, is_quiet: false }
    }

    /// Without the line at the end.
    pub fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    /// So many bytes are done.
    pub fn at(&self, done: u64) {
        self.passed.set(done);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    /// All are.
    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if !self.is_quiet {
            eprintln!("{}", summary(&self.name, self.passed.get(), self.began.elapsed().as_secs_f64()));
        }
    }
}

/// "tank/v: 1.00G in 2.0s, 512M/s".
fn summary(name: &str, bytes: u64, seconds: f64) -> String {
    let rate = (bytes as f64 / seconds.max(0.001)) as u64;
    format!("{name}: {} in {seconds:.1}s, {}/s", nice::bytes(bytes), nice::bytes(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_at_the_end_has_bytes_time_and_rate() {
        assert_eq!(summary("tank/v", 1 << 30, 2.0), "tank/v: 1G in 2.0s, 512M/s");
        assert_eq!(summary("tank/v", 0, 0.0), "tank/v: 0B in 0.0s, 0B/s");
    }
}
