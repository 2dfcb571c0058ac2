//! Where a mount gets the volumes from that it shows as files.

use std::sync::Arc;

use platter_transport::Errno;
use platter_vfs::volume::Volume;

use crate::snapshots::Answer;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its own part of its name.
    pub name: String,
    /// Its number, which nothing else has while it is there.
    pub number: u64,
    /// Tells it from what had the number at another time.
    pub generation: u64,
    /// Since when it is there, in seconds since the epoch.
    pub since: u64,
    /// What it is.
    pub kind: ItemKind,
}

/// What there is in such a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A file system, in which others may be.
    Directory,
    /// A volume, or a snapshot of one.
    Volume {
        /// Bytes that it has.
        size: u64,
        /// Bytes of its blocks.
        block_size: u64,
        /// Bytes that it takes.
        used: u64,
        /// Whether it cannot be written.
        read_only: bool,
    },
}

/// A pool's file systems as folders, with its volumes as files.
pub trait VolumeTree: Send + Sync + 'static {
    /// The number of the topmost folder.
    fn root(&self) -> u64;

    /// Bytes that are used and that are free.
    fn space(&self) -> (u64, u64);

    /// What is numbered so.
    fn item(&self, number: u64) -> Answer<'_, Option<Item>>;

    /// What the folder of this number is in; the topmost is in itself.
    fn parent(&self, number: u64) -> Answer<'_, u64>;

    /// What the folder of this number has, by number.
    fn list(&self, folder: u64) -> Answer<'_, Vec<Item>>;

    /// What is called `name` in the folder of this number.
    fn find<'a>(&'a self, folder: u64, name: &'a str) -> Answer<'a, Option<Item>>;

    /// Opens the volume of this number, once more if it is open; what it is opened with is given back with
    /// [`close`](Self::close).
    fn open(&self, number: u64) -> Answer<'_, Result<Arc<Volume>, Errno>>;

    /// Gives a volume back.
    fn close(&self, number: u64) -> Answer<'_, ()>;
}
