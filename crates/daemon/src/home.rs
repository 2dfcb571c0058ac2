//! `PLATTER_HOME`: the folder that makes a daemon separate from every other.
//!
//! | file | role |
//! |---|---|
//! | `daemon.sock` | the API's socket, owner only |
//! | `daemon.lock` | locked exclusively while a daemon lives; holds its pid |
//! | `daemon.log` | what it logs when it runs in the background |
//! | `pools.json` | pools to open at the next start |
//! | `mounts.json` | mount points in use, to clean up after a crash |

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::api::ErrorBody;

/// Longest path a Unix socket can have on Linux (`sun_path` is 108 bytes with its final NUL).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where a daemon keeps what it must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
}

impl Home {
    /// The home that the environment names: `PLATTER_HOME`, else `/var/lib/platter` for root, else
    /// `$XDG_STATE_HOME/platter`, else `~/.local/state/platter`.
    ///
    /// # Errors
    /// When none of these is known or the socket's path would be too long.
    pub fn from_environment() -> Result<Self, ErrorBody> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = if let Some(path) = var("PLATTER_HOME") {
            path
        } else if rustix::process::geteuid().is_root() {
            PathBuf::from("/var/lib/platter")
        } else if let Some(state) = var("XDG_STATE_HOME") {
            state.join("platter")
        } else if let Some(home) = var("HOME") {
            home.join(".local/state/platter")
        } else {
            return Err(ErrorBody::new("no folder for the daemon is known").hint("set PLATTER_HOME"));
        };
        let path = std::path::absolute(&path)
            .map_err(|error| ErrorBody::new(format!("PLATTER_HOME '{}': {error}", path.display())))?;
        Self::at(path)
    }

    /// A home in this folder (absolute), which need not exist yet.
    ///
    /// # Errors
    /// When its socket's path would be longer than a Unix socket's may be.
    pub fn at(path: PathBuf) -> Result<Self, ErrorBody> {
        let home = Self { path };
        let socket = home.socket();
        let length = socket.as_os_str().len();
        if length > SOCKET_PATH_BYTES_MAX {
            return Err(ErrorBody::new(format!(
                "the socket's path '{}' has {length} bytes; a Unix socket's path has at most {SOCKET_PATH_BYTES_MAX}",
                socket.display()
            ))
            .hint("set PLATTER_HOME to a folder with a shorter path"));
        }
        Ok(home)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The API's socket.
    pub fn socket(&self) -> PathBuf {
        self.path.join("daemon.sock")
    }

    /// The lock file.
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("daemon.lock")
    }

    /// The log of a daemon in the background.
    pub fn log_file(&self) -> PathBuf {
        self.path.join("daemon.log")
    }

    /// The list of pools to open.
    pub fn pools_file(&self) -> PathBuf {
        self.path.join("pools.json")
    }

    /// The list of mount points in use.
    pub fn mounts_file(&self) -> PathBuf {
        self.path.join("mounts.json")
    }

    /// Makes the folder, for its owner only.
    ///
    /// # Errors
    /// When it cannot be made or belongs to somebody else.
    pub fn create(&self) -> Result<(), ErrorBody> {
        let fail = |reason: String| {
            ErrorBody::new(format!("cannot use PLATTER_HOME '{}': {reason}", self.path.display()))
                .hint("set PLATTER_HOME to a folder that you own")
        };
        if !self.path.is_dir() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.path)
                .map_err(|error| fail(error.to_string()))?;
        }
        let owner = std::fs::metadata(&self.path).map_err(|error| fail(error.to_string()))?.uid();
        let me = rustix::process::geteuid();
        if owner != me.as_raw() && !me.is_root() {
            return Err(fail(format!("it belongs to user {owner}")));
        }
        Ok(())
    }

    /// Takes the lock that makes this process the home's daemon. Dropping it (or ending) gives it back.
    ///
    /// # Errors
    /// `Ok(None)` when another process has it; an error when the file cannot be used.
    pub fn lock(&self) -> Result<Option<HomeLock>, ErrorBody> {
        let path = self.lock_file();
        let fail = |error: std::io::Error| ErrorBody::new(format!("cannot use '{}': {error}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => return Ok(None),
            Err(error) => return Err(fail(error.into())),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
        writeln!(file, "{}", std::process::id()).map_err(fail)?;
        Ok(Some(HomeLock { _file: file }))
    }

    /// Pid of the daemon that holds the lock; `None` when nobody does.
    pub fn daemon_pid(&self) -> Option<u32> {
        let mut file = File::open(self.lock_file()).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            // Nobody holds it: what the file says is old. Closing the file gives the shared lock back.
            Ok(()) => None,
            Err(_) => {
                let mut text = String::new();
                file.read_to_string(&mut text).ok()?;
                Some(text.trim().parse().unwrap_or(0))
            }
        }
    }
}

/// Held for as long as this process is the home's daemon.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

/// Replaces a small file so that a crash leaves either the old or the new content, never a part.
///
/// # Errors
/// Whatever writing gives.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&temporary, path)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_cannot_lock_the_same_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().to_path_buf()).unwrap();
        home.create().unwrap();
        assert_eq!(home.daemon_pid(), None);
        let lock = home.lock().unwrap().expect("free");
        assert!(home.lock().unwrap().is_none());
        assert_eq!(home.daemon_pid(), Some(std::process::id()));
        drop(lock);
        assert!(home.lock().unwrap().is_some());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_the_way_out() {
        let error = Home::at(PathBuf::from(format!("/{}", "x".repeat(100)))).unwrap_err();
        assert!(error.message.contains("at most 107"), "{error}");
        assert!(error.hint.unwrap().contains("PLATTER_HOME"));
        assert!(Home::at(PathBuf::from(format!("/{}", "x".repeat(94)))).is_ok());
    }
}
