//! What can go wrong between a file system and its mount point, and what to do about it.

use std::path::PathBuf;

use crate::options::HELPER;

/// A failed mount or unmount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FuseError {
    /// The kernel's side of FUSE is not there.
    #[error(
        "cannot mount: /dev/fuse is missing; load the kernel module (modprobe fuse), or in a container pass the \
         device in (for example: --device /dev/fuse --cap-add SYS_ADMIN)"
    )]
    NoDevice,
    /// Root may not mount here.
    #[error("cannot mount at {}: permission denied; in a container it takes CAP_SYS_ADMIN", .0.display())]
    NotAllowed(PathBuf),
    /// The machine does not let this user show his mounts to others.
    #[error("cannot mount at {}: others may see it only with user_allow_other in /etc/fuse.conf", .0.display())]
    NotShared(PathBuf),
    /// An ordinary user's helper cannot be started.
    #[error("cannot mount at {}: cannot start {HELPER}: {}", mountpoint.display(), start_advice(source))]
    Helper {
        /// Where it was to be mounted.
        mountpoint: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The mount point lies in another file system that only its owner may enter, which the helper is not.
    #[error(
        "cannot mount at {}: it lies inside another mount of yours, which {HELPER} may not enter; give it a mount \
         point outside (zfs set mountpoint=), or allow user_allow_other in /etc/fuse.conf",
        .0.display()
    )]
    Nested(PathBuf),
    /// Each mount takes a descriptor, and what is left is kept for everything else.
    #[error(
        "cannot mount at {}: the daemon may have {limit} files open, each mounted file system takes one, and the last \
         {kept} are kept for devices and commands; raise its hard limit ('ulimit -Hn', or 'LimitNOFILE=' of its \
         service) and start it anew",
        mountpoint.display()
    )]
    NoDescriptors {
        /// Where it was to be mounted.
        mountpoint: PathBuf,
        /// Descriptors that the process may have.
        limit: u64,
        /// Those that are kept.
        kept: u64,
    },
    /// The mount point is no directory.
    #[error("cannot mount at {}: {source}", mountpoint.display())]
    BadMountpoint {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel refused to mount, or the first words with it failed.
    #[error("cannot mount {what} at {}: {source}", mountpoint.display())]
    Mount {
        /// The file system.
        what: String,
        /// The mount point.
        mountpoint: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Files are open, or a process has its working directory in it.
    #[error(
        "cannot unmount {path}: it is in use (fuser -vm {path} shows by whom; -f unmounts nevertheless)",
        path = .0.display()
    )]
    Busy(PathBuf),
    /// Another file system is mounted at the same place or on a folder above it, over this one.
    #[error(
        "cannot unmount {path}: busy: something is mounted over it: {by}; unmount that first (umount {place})",
        path = mountpoint.display(),
        place = place.display()
    )]
    Covered {
        /// The mount point.
        mountpoint: PathBuf,
        /// What is mounted over it: source and type.
        by: String,
        /// Where that is mounted.
        place: PathBuf,
    },
    /// The mount point is free, but the file system is still mounted elsewhere.
    #[error(
        "cannot unmount {path}: it is gone from there, but a bind mount, another mount name space (a container, \
         systemd's PrivateMounts) or a request without end keeps it alive; unmount it there too, or use -f",
        path = .0.display()
    )]
    StillMounted(PathBuf),
    /// The kernel refused to unmount.
    #[error("cannot unmount {}: {source}", mountpoint.display())]
    Unmount {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// Why a program cannot be started, with the way out of it.
pub(crate) fn start_advice(error: &std::io::Error) -> String {
    let known = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    let advice = match known {
        Some(rustix::io::Errno::NOENT) => "it is not there: install it (package fuse3), or run as root",
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            "it may not be executed: look at its permissions and at those of its folder"
        }
        Some(rustix::io::Errno::AGAIN) => "this user has too many processes: raise the limit (ulimit -u)",
        Some(rustix::io::Errno::MFILE) => "the daemon has too many files open: raise the limit (ulimit -n)",
        Some(rustix::io::Errno::NFILE) => "the machine has too many files open: raise fs.file-max",
        Some(rustix::io::Errno::NOMEM) => "there is not enough memory",
        _ => return error.to_string(),
    };
    advice.to_owned()
}

/// The result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, FuseError>;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    // Whatever kept fusermount3 from being started, the advice was to install it.
    #[test]
    fn each_cause_has_its_own_advice() {
        let advice = |errno: Errno| start_advice(&std::io::Error::from(errno));
        for (errno, words) in [
            (Errno::NOENT, "install it"),
            (Errno::ACCESS, "permissions"),
            (Errno::AGAIN, "ulimit -u"),
            (Errno::MFILE, "ulimit -n"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::NOMEM, "memory"),
            (Errno::NOEXEC, "Exec format error"),
        ] {
            assert!(advice(errno).contains(words), "{errno}: {}", advice(errno));
            assert_eq!(advice(errno).contains("install"), errno == Errno::NOENT);
        }
    }
}
