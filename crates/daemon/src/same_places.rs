//! Whether a path means the same to a command and to the daemon that is to act on it: in a container, a chroot or a
//! service with a `/tmp` of its own the daemon would overwrite another file than the one that was named.
//!
//! Invariant: a path is let through only when both sides find the same file there, or both find none.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;

use crate::api::ErrorBody;

/// Which file it is: its file system's number, its own, and a device's.
type Identity = (u32, u32, u64, u32, u32);

/// Refuses paths that the daemon with this pid would understand otherwise; `None` is one whose pid is not known here.
///
/// # Errors
/// The first path that is another file there, or that nobody can look up there.
pub fn check(pid: Option<u32>, paths: &[PathBuf]) -> Result<(), ErrorBody> {
    if paths.is_empty() {
        return Ok(());
    }
    let Some(pid) = pid else {
        return Err(refused(
            &paths[0],
            "the daemon lives in another process namespace, and may mean another file by it",
        ));
    };
    let root = File::open(format!("/proc/{pid}/root")).map_err(|error| {
        refused(&paths[0], &format!("what the daemon (pid {pid}) means by it cannot be looked up: {error}"))
    })?;
    for path in paths {
        let theirs = identity_below(&root, path).map_err(|error| {
            refused(path, &format!("what the daemon (pid {pid}) means by it cannot be looked up: {error}"))
        })?;
        if theirs != identity(path) {
            let text = format!("the daemon (pid {pid}) sees other files than this command, and means another by it");
            return Err(refused(path, &text).hint(format!(
                "run the command where the daemon runs: nsenter --target {pid} --mount --root zpool ..."
            )));
        }
    }
    Ok(())
}

fn refused(path: &Path, reason: &str) -> ErrorBody {
    ErrorBody::new(format!("cannot use '{}': {reason}", path.display()))
}

fn of(found: &rustix::fs::Statx) -> Identity {
    (found.stx_dev_major, found.stx_dev_minor, found.stx_ino, found.stx_rdev_major, found.stx_rdev_minor)
}

fn found_or_not(looked: rustix::io::Result<rustix::fs::Statx>) -> rustix::io::Result<Option<Identity>> {
    match looked {
        Ok(found) => Ok(Some(of(&found))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

fn identity(path: &Path) -> Option<Identity> {
    statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok().map(|found| of(&found))
}

/// The file at `path` as a process with that root finds it; `None` when it finds none.
fn identity_below(root: &File, path: &Path) -> rustix::io::Result<Option<Identity>> {
    // Links with absolute targets begin at that root too.
    match openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::IN_ROOT) {
        Ok(file) => found_or_not(statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)),
        // Before Linux 5.6, or where a container's filter does not know it: links lead from our root then.
        Err(Errno::NOSYS | Errno::PERM) => {
            let below = path.strip_prefix("/").unwrap_or(path);
            found_or_not(statx(root, below, AtFlags::empty(), StatxFlags::BASIC_STATS))
        }
        Err(error) => found_or_not(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_to_be_the_same_file_below_both_roots() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("/file", at("link")).unwrap();
        let root = File::open(folder.path()).unwrap();
        let below = |path: &str| identity_below(&root, Path::new(path)).unwrap();
        assert_eq!(below("/file"), identity(&at("file")));
        // Not the machine's own `/file`.
        assert_eq!(below("/link"), identity(&at("file")));
        assert_eq!(below("/nothing"), None);
        assert_ne!(below("/"), identity(Path::new("/")));
    }

    #[test]
    fn who_has_the_same_mounts_and_root_is_believed() {
        let own = std::process::id();
        assert!(check(Some(own), &["/nowhere".into()]).is_ok());
        assert!(check(None, &[]).is_ok());
        let refused = check(None, &["/dev/sda".into()]).unwrap_err();
        assert!(refused.message.contains("another process namespace"), "{}", refused.message);
    }
}
