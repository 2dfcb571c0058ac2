//! What can go wrong between a file system and its mount point, and what to do about it.

use std::path::PathBuf;

use crate::mount::HELPER;

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
    /// The process may not mount, and there is no helper that may.
    #[error(
        "cannot mount at {}: permission denied; run as root (in a container with CAP_SYS_ADMIN), or install \
         fusermount3 (package fuse3){}",
        mountpoint.display(),
        if *shared { " and allow user_allow_other in /etc/fuse.conf" } else { "" }
    )]
    NotAllowed {
        /// Where it was to be mounted.
        mountpoint: PathBuf,
        /// Whether other users were to see it.
        shared: bool,
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
    /// Another file system is mounted at the same place, over this one.
    #[error(
        "cannot unmount {path}: busy: something is mounted over it: {by}; unmount that first (umount {path})",
        path = mountpoint.display()
    )]
    Covered {
        /// The mount point.
        mountpoint: PathBuf,
        /// What is mounted over it: source and type.
        by: String,
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

/// The result of mounting and unmounting.
pub type Result<T> = std::result::Result<T, FuseError>;
