//! A mounted file system.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_dmu::{Objset, Tx};
use platter_ondisk::ObjectId;

use crate::attr::*;
use crate::error::Result;
use crate::options::{CreateOptions, MountOptions, SpaceInfo};

/// A mounted file system.
pub struct Zpl {
    _private: (),
}

#[allow(unused_variables, reason = "bodies follow")]
impl Zpl {
    /// Fills the new object set `os` with an empty file system, all within `tx`.
    pub async fn create_filesystem(os: &Arc<Objset>, tx: &Tx, options: &CreateOptions) -> platter_zio::Result<()> {
        todo!()
    }

    /// Mounts the file system in `os`. A writable one first frees what was unlinked but open at the last crash.
    pub async fn mount(
        os: Arc<Objset>,
        options: MountOptions,
        clock: Arc<dyn WallClock>,
        space: Arc<dyn SpaceInfo>,
    ) -> Result<Arc<Self>> {
        todo!()
    }

    /// Writes what is still only in memory (access times) and waits until everything is on stable storage.
    pub async fn unmount(&self) -> Result<()> {
        todo!()
    }

    /// The root directory.
    pub fn root(&self) -> ObjectId {
        todo!()
    }

    /// Why changes are refused; `None` when they are not.
    pub fn read_only_reason(&self) -> Option<String> {
        todo!()
    }

    /// Changes how access times are kept (`zfs set atime=`).
    pub fn set_atime(&self, mode: crate::options::AtimeMode) {
        todo!()
    }

    /// The object called `name` in directory `parent`; `.` and `..` work too.
    pub async fn lookup(&self, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        todo!()
    }

    /// Attributes.
    pub async fn getattr(&self, object: ObjectId) -> Result<Attr> {
        todo!()
    }

    /// Changes attributes and returns the new ones.
    pub async fn setattr(&self, object: ObjectId, change: SetAttr) -> Result<Attr> {
        todo!()
    }

    /// Makes a regular file.
    pub async fn create(&self, parent: ObjectId, name: &[u8], new: NewFile) -> Result<Attr> {
        todo!()
    }

    /// Makes a directory.
    pub async fn mkdir(&self, parent: ObjectId, name: &[u8], new: NewFile) -> Result<Attr> {
        todo!()
    }

    /// Makes a fifo, socket, device node (`rdev` in Linux's user-space encoding) or regular file.
    pub async fn mknod(&self, parent: ObjectId, name: &[u8], kind: FileKind, rdev: u32, new: NewFile) -> Result<Attr> {
        todo!()
    }

    /// Makes a symbolic link to `target`.
    pub async fn symlink(&self, parent: ObjectId, name: &[u8], target: &[u8], new: NewFile) -> Result<Attr> {
        todo!()
    }

    /// A symbolic link's target.
    pub async fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        todo!()
    }

    /// Gives `object` one more name.
    pub async fn link(&self, object: ObjectId, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        todo!()
    }

    /// Removes a name that is not a directory's.
    pub async fn unlink(&self, parent: ObjectId, name: &[u8]) -> Result<()> {
        todo!()
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, parent: ObjectId, name: &[u8]) -> Result<()> {
        todo!()
    }

    /// Moves `parent`/`name` to `new_parent`/`new_name`, replacing what is there as POSIX says.
    pub async fn rename(
        &self,
        parent: ObjectId,
        name: &[u8],
        new_parent: ObjectId,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        todo!()
    }

    /// Counts `object` as open once more: while it is, unlinking its last name does not free it.
    pub async fn open(&self, object: ObjectId) -> Result<Attr> {
        todo!()
    }

    /// Takes back one [`open`](Self::open); the last one frees an unlinked object.
    pub async fn release(&self, object: ObjectId) -> Result<()> {
        todo!()
    }

    /// Up to `length` bytes from `offset`, as pieces of cached blocks; fewer at the end of the file.
    pub async fn read(&self, object: ObjectId, offset: u64, length: u64) -> Result<Vec<Buf>> {
        todo!()
    }

    /// Writes `data` at `offset` (or, with `append`, at the end) and returns the bytes written.
    pub async fn write(&self, object: ObjectId, offset: u64, data: &[u8], append: bool) -> Result<usize> {
        todo!()
    }

    /// Up to `limit` entries after `cursor` (0 starts), `.` and `..` included. An empty answer is the end.
    pub async fn readdir(
        &self,
        object: ObjectId,
        cursor: u64,
        limit: usize,
        with_attributes: bool,
    ) -> Result<Vec<DirEntry>> {
        todo!()
    }

    /// Waits until everything done to `object` so far is on stable storage.
    pub async fn fsync(&self, object: ObjectId) -> Result<()> {
        todo!()
    }

    /// Waits until everything done so far is on stable storage.
    pub async fn sync(&self) -> Result<()> {
        todo!()
    }

    /// Sizes for `df`.
    pub fn statfs(&self) -> StatFs {
        todo!()
    }

    /// The next data or hole at or after `offset` (`SEEK_DATA`, `SEEK_HOLE`), at block granularity.
    pub async fn seek(&self, object: ObjectId, offset: u64, what: SeekFor) -> Result<u64> {
        todo!()
    }

    /// `fallocate`.
    pub async fn fallocate(&self, object: ObjectId, what: Fallocate, offset: u64, length: u64) -> Result<()> {
        todo!()
    }

    /// Path of `object` from the root of the file system, `/` first.
    pub async fn object_path(&self, object: ObjectId) -> Result<String> {
        todo!()
    }
}

/// [`Zpl::object_path`] for a file system that is not mounted. What cannot be named comes back as
/// `???<object 0x..>` like OpenZFS prints it.
pub async fn object_path(os: &Arc<Objset>, object: ObjectId) -> platter_zio::Result<String> {
    let _ = (os, object);
    todo!()
}
