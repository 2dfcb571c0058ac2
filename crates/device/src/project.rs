//! A file's project and extended flags, as its file system tells and takes them (`struct fsxattr` and
//! `FS_IOC_FSGETXATTR` in `include/uapi/linux/fs.h`). It is here, with the other ioctls that have no safe wrapper
//! elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `FS_XFLAG_PROJINHERIT`: what is made in the directory belongs to its project.
const INHERIT: u32 = 0x200;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fsxattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

const _: () = assert!(size_of::<Fsxattr>() == 28);
const GET: Opcode = opcode::read::<Fsxattr>(b'X', 31);
const SET: Opcode = opcode::write::<Fsxattr>(b'X', 32);

/// A file's project, with all else that has to be handed back to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileProject(Fsxattr);

impl FileProject {
    /// Asks for a file's or directory's project.
    ///
    /// # Errors
    /// The file system has none.
    pub fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the command writes a `struct fsxattr`, which is what `Getter` makes room for; any bytes are a valid
        // `Fsxattr`.
        let found = unsafe { ioctl(file.as_fd(), Getter::<GET, Fsxattr>::new()) }?;
        Ok(Self(found))
    }

    /// Changes the file's project to this.
    ///
    /// # Errors
    /// The file system refuses; `EDQUOT` when the project has no room.
    pub fn store(self, file: &File) -> io::Result<()> {
        // SAFETY: the command reads a `struct fsxattr`, which `Setter` passes and keeps alive during the call.
        unsafe { ioctl(file.as_fd(), Setter::<SET, Fsxattr>::new(self.0)) }?;
        Ok(())
    }

    /// The project's number.
    pub fn id(&self) -> u32 {
        self.0.project
    }

    /// Whether what is made in the directory belongs to the project too.
    pub fn is_inherited(&self) -> bool {
        self.0.flags & INHERIT != 0
    }

    /// The same with another number.
    pub fn with_id(mut self, id: u32) -> Self {
        self.0.project = id;
        self
    }

    /// The same with or without inheritance.
    pub fn with_inheritance(mut self, on: bool) -> Self {
        self.0.flags = if on { self.0.flags | INHERIT } else { self.0.flags & !INHERIT };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_linuxs() {
        assert_eq!((GET, SET), (0x801c_581f, 0x401c_5820));
    }

    #[test]
    fn only_what_is_changed_changes() {
        let old = Fsxattr { flags: 0x88, extent_size: 1, extents: 2, project: 3, cow_extent_size: 4, padding: [5; 8] };
        let new = FileProject(old).with_id(7).with_inheritance(true);
        assert_eq!((new.id(), new.is_inherited(), new.0.flags), (7, true, 0x288));
        assert_eq!(new.with_id(3).with_inheritance(false), FileProject(old));
    }
}
