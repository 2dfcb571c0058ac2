//! Other programs: finding them, and running them with a limit of time.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result, While, said};
use crate::interrupt;

/// Full path of a program in `PATH` or where system programs are.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}

/// A command for a server, in a session of its own like a daemon. Linux schedules the tasks of a session as a group
/// (`sched_autogroup_enabled`) and wakes a caller in its server's group elsewhere than one in another: a server that
/// shared the session of what measures it would have an advantage over Platter's daemon.
pub fn server(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("setsid");
    command.arg(program);
    command
}

/// Runs `command` and returns what it printed; what it printed before it was ended after `limit` is in the error's
/// place when `partial`.
///
/// # Errors
/// When it does not start, fails, or takes longer than `limit`.
pub fn output(command: &mut Command, limit: Duration, partial: bool) -> Result<String> {
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().on(|| format!("starting {name}"))?;
    let readers = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ]
    // Read by threads of their own: a full pipe would stop the program.
    .map(|pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let start = Instant::now();
    let ended = loop {
        match child.try_wait().on(|| format!("waiting for {name}"))? {
            Some(status) => break Some(status),
            None if start.elapsed() > limit || interrupt::check().is_err() => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    // A server that the program started may keep its pipes open; it was given its own, so this ends.
    let [out, err] = readers.map(|reader| reader.join().unwrap_or_default());
    interrupt::check()?;
    match ended {
        Some(status) if status.success() => Ok(out),
        None if partial => Ok(out),
        None => said(format!("{name} took longer than {} s", limit.as_secs())),
        Some(status) => said(format!("{name}: {status}: {}", err.trim())),
    }
}

/// Tries until it works: a mount is busy for a moment after its last reader is gone.
///
/// # Errors
/// The last one, when all tries failed.
pub fn patiently<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let mut last = None;
    for _ in 0..50 {
        match work() {
            Ok(done) => return Ok(done),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => last = Some(error),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(last.unwrap_or(BenchError::Interrupted))
}

/// Waits until `condition` holds.
///
/// # Errors
/// With `what` when it takes longer than `limit`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        interrupt::check()?;
        if start.elapsed() > limit {
            return said(format!("waited {} s for {what}", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
