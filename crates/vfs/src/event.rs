//! What is told of each operation when it has ended, for statistics and audit.

use platter_ondisk::ObjectId;

use crate::error::VfsError;

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// A name in a directory is looked up.
    Lookup,
    /// Attributes are asked for.
    GetAttr,
    /// Attributes are changed.
    SetAttr,
    /// File flags or the project are changed.
    SetFlags,
    /// Space is asked for.
    StatFs,
    /// A symbolic link's target is read.
    ReadLink,
    /// A pipe, a socket, a device node or an empty file is made.
    Mknod,
    /// A directory is made.
    Mkdir,
    /// A symbolic link is made.
    Symlink,
    /// A file gets one more name.
    Link,
    /// A name is removed.
    Unlink,
    /// A directory is removed.
    Rmdir,
    /// A name is moved.
    Rename,
    /// A file is made and opened.
    Create,
    /// A file without a name is made and opened.
    TmpFile,
    /// A file is opened.
    Open,
    /// A directory is opened.
    OpenDir,
    /// A file or directory is closed.
    Release,
    /// Contents are read.
    Read,
    /// Contents are written.
    Write,
    /// A range is allocated or emptied.
    Fallocate,
    /// Contents are written anew as they are.
    Rewrite,
    /// Contents are copied from file to file.
    CopyRange,
    /// Data or a hole is looked for.
    Seek,
    /// An object is made stable.
    Fsync,
    /// All there is is made stable.
    SyncFs,
    /// A directory is listed.
    ReadDir,
    /// An extended attribute is read.
    GetXattr,
    /// The names of extended attributes are asked for.
    ListXattr,
    /// An extended attribute is set.
    SetXattr,
    /// An extended attribute is removed.
    RemoveXattr,
    /// What was removed is freed, now that nobody knows it any more.
    Reap,
    /// All that a server had open or knew is given back, as it has gone away.
    GiveBack,
}

impl Operation {
    /// What logs call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::GetAttr => "getattr",
            Self::SetAttr => "setattr",
            Self::SetFlags => "setting file flags",
            Self::StatFs => "statfs",
            Self::ReadLink => "readlink",
            Self::Mknod => "mknod",
            Self::Mkdir => "mkdir",
            Self::Symlink => "symlink",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Rmdir => "rmdir",
            Self::Rename => "rename",
            Self::Create => "create",
            Self::TmpFile => "tmpfile",
            Self::Open => "open",
            Self::OpenDir => "opendir",
            Self::Release => "release",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fallocate => "fallocate",
            Self::Rewrite => "rewrite",
            Self::CopyRange => "copy_file_range",
            Self::Seek => "lseek",
            Self::Fsync => "fsync",
            Self::SyncFs => "syncfs",
            Self::ReadDir => "readdir",
            Self::GetXattr => "getxattr",
            Self::ListXattr => "listxattr",
            Self::SetXattr => "setxattr",
            Self::RemoveXattr => "removexattr",
            Self::Reap => "freeing what was removed",
            Self::GiveBack => "giving back what was open when its mount went away",
        }
    }
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What was done.
    pub operation: Operation,
    /// With which object: the file, or the directory whose entry it was.
    pub object: ObjectId,
    /// Bytes read, written or copied; 0 for all else.
    pub bytes: u64,
    /// How it ended.
    pub outcome: Result<(), &'a VfsError>,
}

/// Who wants to hear of each operation. It is told on the thread that serves, before the answer: it must not wait.
pub trait Observer: Send + Sync {
    /// An operation has ended.
    fn ended(&self, event: &Event<'_>);
}
