//! Where something is mounted: a folder that is found once and stays the one that is meant, whatever its path leads to
//! a moment later.
//!
//! Invariant: root follows no link that anybody else can lay or move. A user in whose folder something is mounted could
//! otherwise have it mounted over any other.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Most links on the way (`MAXSYMLINKS` of Linux).
const LINKS_MAX: usize = 40;
/// Write permission of the group and of others.
const WRITABLE: u32 = 0o022;
/// Only owners remove and rename (`S_ISVTX`).
const STICKY: u32 = 0o1000;

/// A folder.
#[derive(Debug)]
pub struct Place {
    folder: OwnedFd,
    path: PathBuf,
}

fn open(at: Option<&OwnedFd>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match at {
        Some(folder) => rustix::fs::openat(folder, name, flags, Mode::empty()),
        None => rustix::fs::openat(CWD, name, flags, Mode::empty()),
    }
}

fn is_trusted(found: &Stat) -> bool {
    found.st_uid == 0 || found.st_uid == rustix::process::geteuid().as_raw()
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

impl Place {
    /// Finds the folder at an absolute path.
    ///
    /// # Errors
    /// It is not there, or is no folder; it lies behind a link that others can lay.
    pub fn find(path: &Path) -> io::Result<Self> {
        Self::walk(path, false)
    }

    /// As [`find`](Self::find), and makes it, and those above it, where they are not there.
    ///
    /// # Errors
    /// As [`find`](Self::find); it cannot be made.
    pub fn make(path: &Path) -> io::Result<Self> {
        Self::walk(path, true)
    }

    fn walk(path: &Path, makes: bool) -> io::Result<Self> {
        let root = || open(None, OsStr::new("/"));
        let (mut folder, mut rest, mut links) = (root()?, parts(path), 0);
        while let Some(name) = rest.pop_front() {
            let found = match open(Some(&folder), &name) {
                Err(Errno::NOENT) if makes => {
                    match rustix::fs::mkdirat(&folder, &name, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    open(Some(&folder), &name)?
                }
                other => other?,
            };
            let about = rustix::fs::fstat(&found)?;
            if FileType::from_raw_mode(about.st_mode) != FileType::Symlink {
                folder = found;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            let around = rustix::fs::fstat(&folder)?;
            let is_fixed = around.st_mode & WRITABLE == 0 || around.st_mode & STICKY != 0;
            if !(is_trusted(&about) && is_trusted(&around) && is_fixed) {
                let name = Path::new(&name).display().to_string();
                return Err(io::Error::other(format!("'{name}' is a link that others can lay there")));
            }
            let target = rustix::fs::readlinkat(&found, "", Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                folder = root()?;
            }
            let mut ahead = parts(&target);
            ahead.append(&mut rest);
            rest = ahead;
        }
        let about = rustix::fs::fstat(&folder)?;
        if FileType::from_raw_mode(about.st_mode) != FileType::Directory {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        assert!(links <= LINKS_MAX, "who follows links for ever gets nowhere");
        let real = std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))?;
        Ok(Self { folder, path: real })
    }

    /// Its path without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads there as long as this lives.
    pub fn fixed(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn a_folder_is_found_behind_ones_own_links_and_stays_the_same() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("a/../a", root.join("link")).unwrap();
        let place = Place::find(&root.join("link/b")).unwrap();
        assert_eq!(place.path(), root.join("a/b"));
        let number = fs::metadata(root.join("a/b")).unwrap().ino();
        fs::rename(root.join("a/b"), root.join("moved")).unwrap();
        symlink("/", root.join("a/b")).unwrap();
        assert_eq!(fs::metadata(place.fixed()).unwrap().ino(), number);
        assert!(Place::find(&root.join("none")).is_err());
        assert_eq!(Place::make(&root.join("link/new/er")).unwrap().path(), root.join("a/new/er"));
        fs::write(root.join("file"), "").unwrap();
        assert!(Place::find(&root.join("file")).is_err());
        symlink("loop", root.join("loop")).unwrap();
        assert!(Place::find(&root.join("loop")).is_err());
    }

    #[test]
    fn a_link_of_somebody_elses_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        symlink("/tmp", root.join("link")).unwrap();
        Place::find(&root.join("link")).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Place::find(&root.join("link")).is_err(), "others could lay it");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o1777)).unwrap();
        Place::find(&root.join("link")).unwrap();
        if rustix::process::geteuid().is_root() {
            lchown(root.join("link"), Some(65_534), None).unwrap();
            assert!(Place::find(&root.join("link")).is_err(), "it is somebody else's");
            assert!(Place::make(&root.join("link/new")).is_err());
        }
    }
}
