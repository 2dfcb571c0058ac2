//! Ctrl-C: work stops at its next step, so that everything is undone on the way out; what hangs is ended by force.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::{leftovers, switch};

static WANTED: AtomicBool = AtomicBool::new(false);
/// How long undoing may take before force is used.
const PATIENCE: Duration = Duration::from_secs(60);

/// Listens for SIGINT, SIGTERM and SIGHUP. Everything of this run is mounted and lies below `folders`.
pub fn listen(folders: Vec<PathBuf>) {
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds else { return };
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
            WANTED.store(true, Ordering::Relaxed);
            eprintln!("\ninterrupted: cleaning up");
            tokio::select! { _ = interrupt.recv() => {}, () = tokio::time::sleep(PATIENCE) => {} }
        });
        // A file system that hangs keeps its users; without its server their system calls return.
        folders.iter().for_each(|folder| leftovers::end_by_force(folder));
        switch::put_back();
        std::process::exit(130);
    });
}

/// Whether to stop.
///
/// # Errors
/// [`BenchError::Interrupted`] when somebody asked for it.
pub fn check() -> Result<()> {
    if WANTED.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}
