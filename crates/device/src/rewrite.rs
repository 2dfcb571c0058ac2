//! Asking a file system to write a file's blocks anew (`ZFS_IOC_REWRITE` in OpenZFS's `include/sys/fs/zfs.h`). It is
//! here, with the other ioctls that have no safe wrapper elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `zfs_rewrite_args_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RewriteArguments {
    offset: u64,
    length: u64,
    flags: u64,
    argument: u64,
}

const _: () = assert!(size_of::<RewriteArguments>() == 32);
const REWRITE: Opcode = opcode::write::<RewriteArguments>(0x83, 3);

/// Has `length` bytes from `offset` on written anew; what the file holds stays as it is.
///
/// # Errors
/// What the file system answers: `ENOTTY` from one that has no such thing.
pub fn rewrite(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let arguments = RewriteArguments { offset, length, flags: 0, argument: 0 };
    // SAFETY: the command reads a `zfs_rewrite_args_t`, which `Setter` passes and keeps alive during the call.
    unsafe { ioctl(file.as_fd(), Setter::<REWRITE, RewriteArguments>::new(arguments)) }?;
    Ok(())
}
