//! Whether a path means the same to a command and to the daemon that is to act on it: in a container, a chroot or a
//! service with a `/tmp` of its own the daemon would overwrite another file than the one that was named.
//!
//! The command says which file it finds (the numbers of file systems and devices are the same for all processes of a
//! kernel), the daemon looks at the same path.
//!
//! A path is let through only when both sides find the same file there, or both find none.

use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use platter_api::messages::{ErrorBody, FileIdentity, SeenPath};

/// What this process finds at a path; links are followed.
pub fn seen_here(path: &Path) -> SeenPath {
    SeenPath { path: path.to_owned(), file: identity(path) }
}

/// Refuses paths at which this process, the daemon, finds other files than the command that named them. Blocks as
/// the file systems do that are asked.
///
/// # Errors
/// The first path that is another file here.
pub fn check(places: &[SeenPath]) -> Result<(), ErrorBody> {
    for place in places {
        if identity(&place.path) != place.file {
            let pid = std::process::id();
            return Err(ErrorBody::new(format!(
                "cannot use '{}': the daemon (pid {pid}) sees other files than this command, and means another by it",
                place.path.display()
            ))
            .hint(format!("run the command where the daemon runs: nsenter --target {pid} --mount --root zpool ...")));
        }
    }
    Ok(())
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).ok()?;
    Some(FileIdentity {
        file_system: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        device: (found.stx_rdev_major, found.stx_rdev_minor),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_to_be_the_same_file_on_both_sides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let nothing = seen_here(&path);
        assert!(check(std::slice::from_ref(&nothing)).is_ok());
        std::fs::write(&path, "x").unwrap();
        let file = seen_here(&path);
        assert!(check(&[file.clone(), seen_here(Path::new("/"))]).is_ok());
        assert!(check(&[file.clone(), nothing]).unwrap_err().message.contains("means another by it"));
        std::fs::rename(&path, folder.path().join("other")).unwrap();
        assert!(check(std::slice::from_ref(&file)).is_err());
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(check(&[file]).is_ok());
    }
}
