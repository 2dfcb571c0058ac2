//! An operation as a word with its arguments, as a workload names it.

use std::fmt;

use crate::crash::operation::Operation;

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |f: &mut fmt::Formatter<'_>, verb: &str| f.write_str(verb);
        match self {
            Self::Create(name) => write!(f, "create {}", name.0),
            Self::Mkdir(name) => write!(f, "mkdir {}", name.0),
            Self::Rmdir(name) => write!(f, "rmdir {}", name.0),
            Self::Symlink(name) => write!(f, "symlink {}", name.0),
            Self::Append(name, length) => write!(f, "append {} {length}", name.0),
            Self::Overwrite(name, offset, length) => write!(f, "overwrite {} {offset} {length}", name.0),
            Self::Truncate(name, size) => write!(f, "truncate {} {size}", name.0),
            Self::Punch(name, offset, length) => write!(f, "punch {} {offset} {length}", name.0),
            Self::Rename(from, to) => write!(f, "rename {} {}", from.0, to.0),
            Self::Link(name, to) => write!(f, "link {} {}", name.0, to.0),
            Self::Unlink(name) => write!(f, "unlink {}", name.0),
            Self::SetXattr(name, length) => write!(f, "setxattr {} {length}", name.0),
            Self::RemoveXattr(name) => write!(f, "removexattr {}", name.0),
            Self::Chmod(name) => write!(f, "chmod {}", name.0),
            Self::Fsync(name) => write!(f, "fsync {}", name.0),
            Self::Sync => plain(f, "sync"),
            Self::SetProperty => plain(f, "set-property"),
            Self::CreateDataset => plain(f, "create-dataset"),
            Self::DestroyDataset => plain(f, "destroy-dataset"),
            Self::Disk(operation) => plain(f, operation.name()),
            Self::Scrub => plain(f, "scrub"),
            Self::Snapshot(name) => write!(f, "snapshot {name}"),
            Self::DestroySnapshot(name) => write!(f, "destroy-snapshot {name}"),
            Self::Clone(name) => write!(f, "clone {name}"),
            Self::WriteClone => plain(f, "write-clone"),
            Self::DestroyClone(name) => write!(f, "destroy-clone {name}"),
            Self::Promote(name) => write!(f, "promote {name}"),
            Self::Rollback => plain(f, "rollback"),
            Self::Bookmark(name) => write!(f, "bookmark {name}"),
            Self::DestroyBookmarks(name) => write!(f, "destroy-bookmarks {name}"),
            Self::Trim => plain(f, "trim"),
            Self::WriteVolume(offset, length) => write!(f, "write-volume {offset} {length}"),
            Self::StableVolume(offset, length) => write!(f, "stable-volume {offset} {length}"),
            Self::ClearVolume(offset, length) => write!(f, "clear-volume {offset} {length}"),
            Self::FsyncVolume => plain(f, "fsync-volume"),
            Self::ResizeVolume(size) => write!(f, "resize-volume {size}"),
        }
    }
}
