//! Cutting a mount's connection from our side, through the kernel's control file system (`fs/fuse/control.c`).
//!
//! Invariant: only the connection that was asked for is cut, never one that has its number by now.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use platter_transport::Kernel;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Ends a connection, whoever keeps it alive: everybody who uses the file system gets errors from then on. `device` is
/// its number, `major:minor`.
///
/// # Errors
/// What keeps us from it; for an ordinary user that the control file system is not mounted.
pub(crate) fn cut(device: &str, kernel: &Kernel) -> io::Result<()> {
    let (_, minor) = device.split_once(':').ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let mut control = control_file(minor)?;
    // The number of a connection that is gone goes to another; but as ours is here now, this is its file, and stays so.
    if kernel.is_connected() {
        control.write_all(b"1")?;
    }
    Ok(())
}

fn control_file(minor: &str) -> io::Result<File> {
    // Only what exists is opened: without the control file system there is a plain directory.
    if let Ok(file) = OpenOptions::new().write(true).open(format!("/sys/fs/fuse/connections/{minor}/abort")) {
        return Ok(file);
    }
    // Nobody mounted it (containers). One of our own, attached nowhere, shows the same.
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok(openat(&mount, format!("{minor}/abort"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}
