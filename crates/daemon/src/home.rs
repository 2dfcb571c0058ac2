//! `PLATTER_HOME`: the folder that makes a daemon separate from every other.
//!
//! | file | role |
//! |---|---|
//! | `daemon.sock` | the API's socket, owner only |
//! | `public.sock` | the API for everybody: what only reads, and what data sets allow to other users |
//! | `stream.sock` | where commands hand over descriptors, owner only |
//! | `guests.sock` | the same for everybody |
//! | `daemon.lock` | locked exclusively while a daemon lives; holds its pid |
//! | `daemon.ended` | pid of the last daemon that ended in order |
//! | `daemon.log` | what it logs when it runs in the background; `daemon.log.1` is the file before |
//! | `pools.json` | pools to open at the next start |
//! | `mounts.json` | mount points in use, to clean up after a crash |
//! | `faults.json` | what is known of failing devices, and which of them their owner holds |
//! | `notify.json` | who is told of them |
//!
//! Invariants:
//! - nobody but the caller (and root) can put anything there: a home of somebody else's is refused, and root refuses
//!   one that others can change, in its folder or above it (`sudo -E` takes the caller's `PLATTER_HOME` along);
//! - no link is followed where one of these files is meant, and only a plain file is opened.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use platter_api::messages::ErrorBody;

/// Longest path a Unix socket can have on Linux (`sun_path` is 108 bytes with its final NUL).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Pid of the last daemon that ended in order.
const ENDED: &str = "daemon.ended";

/// The home of root's daemon.
const SYSTEM: &str = "/var/lib/platter";

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
            PathBuf::from(SYSTEM)
        } else if let Some(state) = var("XDG_STATE_HOME") {
            state.join("platter")
        } else if let Some(home) = var("HOME") {
            home.join(".local/state/platter")
        } else {
            return Err(ErrorBody::new("no folder for the daemon is known").hint("set PLATTER_HOME"));
        };
        let path = std::path::absolute(&path)
            .map_err(|error| ErrorBody::new(format!("PLATTER_HOME '{}': {error}", path.display())))?;
        let home = Self::at(path)?;
        home.check()?;
        Ok(home)
    }

    /// The home whose daemon commands ask: that of the environment, but for an ordinary user who has none of his own
    /// and sets no `PLATTER_HOME` the system's, when its daemon answers.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn of_commands() -> Result<Self, ErrorBody> {
        let own = Self::from_environment()?;
        let chosen = std::env::var_os("PLATTER_HOME").is_some_and(|value| !value.is_empty());
        if chosen || rustix::process::geteuid().is_root() || own.lock_file().exists() {
            return Ok(own);
        }
        let system = Self::at(PathBuf::from(SYSTEM))?;
        let answers = std::os::unix::net::UnixStream::connect(system.public_socket()).is_ok();
        Ok(if answers { system } else { own })
    }

    /// The user whose home it is, when that is somebody else and this process is not root's: commands may look and not
    /// change.
    pub fn other_owner(&self) -> Option<u32> {
        let me = rustix::process::geteuid();
        let owner = std::fs::metadata(&self.path).ok()?.uid();
        (owner != me.as_raw() && !me.is_root()).then_some(owner)
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

    /// The socket for descriptors, as long as the API's.
    pub fn descriptors_socket(&self) -> PathBuf {
        self.path().join("stream.sock")
    }

    /// The socket for descriptors of other users, as long as the API's.
    pub fn guests_socket(&self) -> PathBuf {
        self.path().join("guests.sock")
    }

    /// The API's socket for everybody.
    pub fn public_socket(&self) -> PathBuf {
        self.path.join("public.sock")
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

    /// Where volumes are files, in a folder for each pool.
    pub fn volumes(&self) -> PathBuf {
        self.path.join("volumes")
    }

    /// What is known of failing devices.
    pub fn faults_file(&self) -> PathBuf {
        self.path.join("faults.json")
    }

    /// Who is told of them.
    pub fn notify_file(&self) -> PathBuf {
        self.path.join("notify.json")
    }

    /// Makes the folder. Others may pass through it to the public socket, and see nothing else: all other files in it
    /// are their owner's only.
    ///
    /// # Errors
    /// When it cannot be made or belongs to somebody else.
    pub fn create(&self) -> Result<(), ErrorBody> {
        if !self.path.is_dir() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&self.path)
                .and_then(|()| std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o711)))
                .map_err(|error| self.unusable(error.to_string()).hint("set PLATTER_HOME to a folder that you own"))?;
        }
        self.check()?;
        let owner = std::fs::metadata(&self.path).map_err(|error| self.unusable(error.to_string()))?.uid();
        if owner != rustix::process::geteuid().as_raw() {
            return Err(self
                .unusable(format!("it belongs to user {owner}"))
                .hint("set PLATTER_HOME to a folder that you own"));
        }
        Ok(())
    }

    fn unusable(&self, reason: String) -> ErrorBody {
        ErrorBody::new(format!("cannot use PLATTER_HOME '{}': {reason}", self.path.display()))
    }

    /// Checks that the folder (when there is one), what leads there and what the daemon keeps in it are nobody else's
    /// to change.
    ///
    /// # Errors
    /// What is, whose it is, and what to do.
    pub fn check(&self) -> Result<(), ErrorBody> {
        let me = rustix::process::geteuid();
        let fail = |reason: String| {
            self.unusable(reason).hint(if me.is_root() {
                "what lies there can make root write elsewhere: set PLATTER_HOME to a folder that only root can change"
            } else {
                "set PLATTER_HOME to a folder that you own"
            })
        };
        // Others' folders above are a user's own business; root may have been sent there.
        let above =
            self.path.ancestors().skip(1).filter(|_| me.is_root()).map(|path| (path.to_owned(), Relation::Above));
        let real = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let real_above =
            real.ancestors().skip(1).filter(|_| me.is_root()).map(|path| (path.to_owned(), Relation::Above));
        let home = [(self.path.clone(), Relation::Above), (real.clone(), Relation::Home)];
        let lists = [self.pools_file(), self.mounts_file(), self.faults_file(), self.notify_file()];
        let kept = [self.lock_file(), self.log_file(), self.socket()].into_iter().chain(lists);
        let kept = kept.map(|path| (path, Relation::Inside));
        for (path, place) in above.chain(real_above).chain(home).chain(kept) {
            match std::fs::symlink_metadata(&path) {
                Ok(found) => judge(&found, place, me).map_err(|why| {
                    fail(match path == self.path {
                        true => format!("it {why}"),
                        false => format!("'{}' {why}", path.display()),
                    })
                })?,
                // What cannot even be looked at cannot be used either: that fails where it is tried.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {}
                Err(error) => return Err(fail(format!("'{}': {error}", path.display()))),
            }
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
        let mut file = open(&path, OpenOptions::new().read(true).write(true).create(true)).map_err(fail)?;
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
        let mut file = open(&self.lock_file(), OpenOptions::new().read(true)).ok()?;
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

/// What a path has to do with a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    /// It leads there.
    Above,
    /// It is the folder.
    Home,
    /// It is a file of the daemon's.
    Inside,
}

/// Fails, with the reason, when others than `me` and root can change what `found` describes.
fn judge(found: &Metadata, place: Relation, me: rustix::process::Uid) -> Result<(), String> {
    const BY_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let (kind, mode) = (found.file_type(), found.mode());
    if found.uid() != 0 && found.uid() != me.as_raw() {
        return Err(format!("belongs to user {}", found.uid()));
    }
    if place == Relation::Inside && !kind.is_file() && !kind.is_socket() {
        return Err("is no plain file; remove it if you do not know how it came there".into());
    }
    if place == Relation::Inside && kind.is_file() && found.nlink() > 1 {
        return Err("has a second name elsewhere; remove it if you do not know how it came there".into());
    }
    // In a folder such as /tmp, everybody's names are their own.
    let guarded = kind.is_symlink() || place == Relation::Above && mode & STICKY != 0;
    if me.is_root() && mode & BY_OTHERS != 0 && !guarded {
        return Err(format!("can be changed by others (mode {:o}); 'chmod go-w' keeps them out", mode & 0o7777));
    }
    Ok(())
}

/// Opens a file of a home's as `how` says, for its owner only when it is made. What is no plain file is refused, and
/// not waited for; a link is not followed.
///
/// # Errors
/// Whatever opening gives.
pub(crate) fn open(path: &Path, how: &mut OpenOptions) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = how.mode(0o600).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no plain file"));
    }
    debug_assert!(!path.is_symlink(), "it would not have been opened: {}", path.display());
    Ok(file)
}

/// The content of a small file of a home's.
///
/// # Errors
/// Whatever reading gives.
pub(crate) fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path, OpenOptions::new().read(true))?.read_to_end(&mut content)?;
    Ok(content)
}

/// Held for as long as this process is the home's daemon.
#[derive(Debug)]
pub struct HomeLock {
    _file: File,
}

impl Home {
    /// Notes that the daemon with this pid has answered all that it was asked, or never heard it, and ends.
    pub fn note_orderly_end(&self, pid: u32) {
        if let Err(error) = replace_file(&self.path.join(ENDED), pid.to_string().as_bytes()) {
            tracing::debug!("cannot note the end in order: {error}");
        }
    }

    /// Whether the daemon with this pid [ended so](Self::note_orderly_end), as far as is still known.
    pub fn ended_in_order(&self, pid: u32) -> bool {
        pid != 0 && read(&self.path.join(ENDED)).is_ok_and(|text| text == pid.to_string().as_bytes())
    }

    /// A daemon begins that may have the number of one that has ended.
    pub fn forget_orderly_end(&self, pid: u32) {
        if self.ended_in_order(pid) {
            let _ = std::fs::remove_file(self.path.join(ENDED));
        }
    }

    /// Whether a file can be written in it.
    ///
    /// # Errors
    /// What keeps it from that: a message.
    pub fn check_room(&self) -> Result<(), String> {
        let probe = self.path.join(format!("probe.{}", std::process::id()));
        let written = open(&probe, OpenOptions::new().write(true).create(true).truncate(true))
            .and_then(|mut file| file.write_all(&[0; 512]));
        let _ = std::fs::remove_file(&probe);
        written.map_err(|error| format!("cannot write in '{}': {error}", self.path.display()))
    }
}

/// Writes something of a home's, whose file system may hang, without holding up what else the daemon's threads do.
pub(crate) fn waiting<T>(write: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(write),
        _ => write(),
    }
}

/// Replaces a small file so that a crash leaves either the old or the new content, never a part.
///
/// # Errors
/// Whatever writing gives.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("new");
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = open(&temporary, OpenOptions::new().write(true).create_new(true))?;
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

    /// `sudo -E platter …` with a `PLATTER_HOME` of another user's: links that lay there made root create and overwrite
    /// files elsewhere.
    #[test]
    fn what_others_could_have_put_there_is_refused() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = dir.path().join(name);
            std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            path
        };
        let refused = |path: PathBuf, why: &str| {
            let home = Home::at(path).unwrap();
            for error in [home.check().unwrap_err(), home.create().unwrap_err()] {
                assert!(error.message.contains(why), "{error}");
                assert!(error.hint.unwrap().contains("only root can change"));
            }
        };
        let foreign = make("foreign");
        std::fs::create_dir(foreign.join("below")).unwrap();
        chown(&foreign, Some(65534), None).unwrap();
        refused(foreign.clone(), "it belongs to user 65534");
        refused(foreign.join("below"), "belongs to user 65534");
        refused(foreign.join("not/there/yet"), "belongs to user 65534");
        let open = make("open");
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o770)).unwrap();
        refused(open.clone(), "can be changed by others");
        // Through a link to a folder of root's, which somebody else could lead elsewhere.
        let target = make("target");
        symlink(&target, foreign.join("link")).unwrap();
        refused(foreign.join("link"), "belongs to user 65534");
        symlink(&target, dir.path().join("own-link")).unwrap();
        Home::at(dir.path().join("own-link")).unwrap().create().unwrap();
        // What lies inside, of a folder that was somebody else's before.
        let victim = dir.path().join("victim");
        for (name, why) in [("daemon.log", "is no plain file"), ("pools.json", "is no plain file")] {
            let home = make(&format!("with-{name}"));
            symlink(&victim, home.join(name)).unwrap();
            refused(home.clone(), why);
            assert!(super::open(&home.join(name), OpenOptions::new().write(true).create(true)).is_err());
            replace_file(&home.join(name), b"{}").unwrap();
            assert!(!victim.exists() && std::fs::symlink_metadata(home.join(name)).unwrap().is_file());
        }
        let home = make("hard");
        std::fs::write(&victim, "").unwrap();
        std::fs::hard_link(&victim, home.join("daemon.lock")).unwrap();
        refused(home, "has a second name elsewhere");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_with_the_way_out() {
        let error = Home::at(PathBuf::from(format!("/{}", "x".repeat(100)))).unwrap_err();
        assert!(error.message.contains("at most 107"), "{error}");
        assert!(error.hint.unwrap().contains("PLATTER_HOME"));
        assert!(Home::at(PathBuf::from(format!("/{}", "x".repeat(94)))).is_ok());
    }
}
