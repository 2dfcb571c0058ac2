//! Cutting a mount's connection from our side, through the kernel's control file system (`fs/fuse/control.c`).
//!
//! Invariant: only the connection that was asked for is cut, never one that has its number by now.

use std::fs::File;
use std::io::{self, Write};

use platter_transport::Kernel;
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Ends a connection, whoever keeps it alive: everybody who uses the file system gets errors from then on. `device` is
/// its number, `major:minor`.
///
/// # Errors
/// What keeps us from it; for an ordinary user that the control file system is not mounted.
pub(crate) fn cut(device: &str, kernel: &Kernel) -> io::Result<()> {
    let (_, minor) = device.split_once(':').ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut control = control_file(minor, "abort", OFlags::WRONLY)?;
    // The number of a connection that is gone goes to another; but as ours is here now, this is its file, and stays so.
    if kernel.is_connected() {
        control.write_all(b"1")?;
    }
    Ok(())
}

/// How many requests of a connection are not answered yet; `None` when that cannot be told.
pub(crate) fn unanswered(device: &str) -> Option<u64> {
    use std::io::Read;
    let (_, minor) = device.split_once(':')?;
    let mut text = String::new();
    control_file(minor, "waiting", OFlags::RDONLY).ok()?.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn control_file(minor: &str, name: &str, access: OFlags) -> io::Result<File> {
    // A number, so that the path leads to one connection's file and to nothing else.
    assert!(!minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit()), "'{minor}' is no device's number");
    // Only what exists is opened: without the control file system there is a plain directory.
    let path = format!("/sys/fs/fuse/connections/{minor}/{name}");
    if let Ok(file) = open(path, access | OFlags::CLOEXEC, Mode::empty()) {
        return Ok(file.into());
    }
    // Nobody mounted it (containers). One of our own, attached nowhere, shows the same.
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok(openat(&mount, format!("{minor}/{name}"), access | OFlags::CLOEXEC, Mode::empty())?.into())
}
