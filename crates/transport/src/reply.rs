//! Answers.

use std::io::IoSlice;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::connection::Connection;
use crate::lease::Lease;
use crate::mount::Way;
use crate::types::{FileAttr, NodeId, OpenFlags};
use crate::wire::{self, validity};

/// More pieces than this are put together before they are sent (`UIO_MAXIOV` less the header).
const PIECES_MAX: usize = 1000;
/// Up to as many parts are sent without a list in memory of its own.
const PARTS_FEW: usize = 8;
const NOTHING: [&[u8]; 0] = [];

/// The right to answer one request, once. Dropped unanswered it says `EIO`.
#[derive(Debug)]
pub struct Reply {
    way: Way,
    unique: u64,
    answered: bool,
}

/// A node that an answer names, and how long the kernel may trust that.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The node; 0 says that there is no such name.
    pub node: NodeId,
    /// Tells nodes apart that had the same number at different times.
    pub generation: u64,
    /// What it is like.
    pub attr: FileAttr,
    /// How long the name may be trusted.
    pub entry_ttl: Duration,
    /// How long the attributes may be trusted.
    pub attr_ttl: Duration,
}

/// The value of an extended attribute, or just its length.
#[derive(Debug)]
pub enum XattrAnswer<'a> {
    /// Length in bytes.
    Size(u32),
    /// The value itself.
    Value(&'a [u8]),
}

impl From<&Entry> for wire::EntryOut {
    fn from(entry: &Entry) -> Self {
        let (entry_valid, entry_valid_nsec) = validity(entry.entry_ttl);
        let (attr_valid, attr_valid_nsec) = validity(entry.attr_ttl);
        Self {
            nodeid: entry.node.0,
            generation: entry.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: (&entry.attr).into(),
        }
    }
}

fn open_out(flags: OpenFlags) -> wire::OpenOut {
    // The number comes back with each request for what was opened.
    wire::OpenOut { fh: flags.0.into(), open_flags: flags.0, backing_id: 0 }
}

impl Reply {
    pub(crate) fn new(way: Way, unique: u64) -> Self {
        Self { way, unique, answered: false }
    }

    /// Done, without more to say.
    pub fn ok(self) {
        self.send(&NOTHING);
    }

    /// Failed.
    pub fn error(mut self, error: Errno) {
        self.say(-error.raw_os_error(), &NOTHING);
    }

    /// Bytes that lie in several places (contents of a file, the target of a link).
    pub fn data<T: AsRef<[u8]>>(self, pieces: &[T]) {
        if pieces.len() > PIECES_MAX {
            let joined = pieces.iter().flat_map(|piece| piece.as_ref()).copied().collect::<Vec<u8>>();
            return self.send(&[&joined]);
        }
        self.send(pieces);
    }

    /// A node.
    pub fn entry(self, entry: &Entry) {
        self.send_struct(&wire::EntryOut::from(entry));
    }

    /// A node that was made and opened.
    pub fn created(self, entry: &Entry, flags: OpenFlags) {
        self.send(&[wire::EntryOut::from(entry).as_bytes(), open_out(flags).as_bytes()]);
    }

    /// Attributes, and how long they may be trusted.
    pub fn attr(self, attr: &FileAttr, ttl: Duration) {
        let (attr_valid, attr_valid_nsec) = validity(ttl);
        self.send_struct(&wire::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: attr.into() });
    }

    /// Attributes as statx(2) tells them, with the time of birth.
    pub fn statx(self, attr: &FileAttr, ttl: Duration) {
        let (attr_valid, attr_valid_nsec) = validity(ttl);
        self.send_struct(&wire::StatxOut { attr_valid, attr_valid_nsec, stat: attr.into(), ..Default::default() });
    }

    /// Opened.
    pub fn opened(self, flags: OpenFlags) {
        self.send_struct(&open_out(flags));
    }

    /// So many bytes were written.
    pub fn written(self, bytes: u32) {
        self.send_struct(&wire::WriteOut { size: bytes, padding: 0 });
    }

    /// So many bytes were copied; `wide` as in the request.
    pub fn copied(self, bytes: u64, wide: bool) {
        if wide {
            return self.send_struct(&wire::CopyFileRangeOut { bytes_copied: bytes });
        }
        self.written(bytes.min(u32::MAX.into()) as u32);
    }

    /// The size of the file system: blocks of `block_size` bytes, all and available ones; files, all and free ones;
    /// bytes that a name may have.
    pub fn statfs(self, block_size: u32, blocks: u64, available: u64, files: u64, files_free: u64, name_max: u32) {
        self.send_struct(&wire::StatfsOut {
            blocks,
            bfree: available,
            bavail: available,
            files,
            ffree: files_free,
            bsize: block_size,
            namelen: name_max,
            frsize: block_size,
            ..Default::default()
        });
    }

    /// An extended attribute, or a list of their names.
    pub fn xattr(self, answer: XattrAnswer<'_>) {
        match answer {
            XattrAnswer::Size(size) => self.send_struct(&wire::GetxattrOut { size, padding: 0 }),
            XattrAnswer::Value(value) => self.send(&[value]),
        }
    }

    /// The offset that was sought.
    pub fn offset(self, offset: u64) {
        self.send_struct(&wire::LseekOut { offset });
    }

    /// What an ioctl hands back.
    pub fn ioctl(self, data: &[u8]) {
        self.send(&[wire::IoctlOut::default().as_bytes(), data]);
    }

    /// Entries of a directory.
    pub fn directory(self, entries: &Directory) {
        self.send(&[&entries.bytes]);
    }

    fn send_struct<T: IntoBytes + Immutable>(self, answer: &T) {
        self.send(&[answer.as_bytes()]);
    }

    fn send<T: AsRef<[u8]>>(mut self, parts: &[T]) {
        self.say(0, parts);
    }

    pub(crate) fn say<T: AsRef<[u8]>>(&mut self, error: i32, parts: &[T]) {
        debug_assert!(!self.answered, "a request is answered once");
        self.answered = true;
        let unique = self.unique;
        match &mut self.way {
            Way::Device(connection) => write(connection, error, unique, parts),
            Way::Ring(lease) => {
                if !Lease::answer(lease, error, unique, parts) {
                    tracing::warn!("an answer is larger than the kernel has room for; this is a bug");
                    Lease::answer(lease, -Errno::IO.raw_os_error(), unique, &NOTHING);
                }
            }
        }
    }
}

/// Writes an answer to `/dev/fuse`, from where its bytes lie.
fn write<T: AsRef<[u8]>>(connection: &Connection, error: i32, unique: u64, parts: &[T]) {
    let length = size_of::<wire::OutHeader>() + parts.iter().map(|part| part.as_ref().len()).sum::<usize>();
    let header = wire::OutHeader { len: length as u32, error, unique };
    let slice = |index: usize| match index.checked_sub(1).and_then(|index| parts.get(index)) {
        _ if index == 0 => IoSlice::new(header.as_bytes()),
        Some(part) => IoSlice::new(part.as_ref()),
        None => IoSlice::new(&[]),
    };
    let sent = if parts.len() < PARTS_FEW {
        let slices: [_; PARTS_FEW] = std::array::from_fn(slice);
        connection.send(&slices[..=parts.len()])
    } else {
        connection.send(&(0..=parts.len()).map(slice).collect::<Vec<_>>())
    };
    match sent {
        // NOENT: whoever asked was interrupted and does not wait any more; NODEV, NOTCONN: the mount is gone.
        Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED) => {}
        Err(refused) => {
            tracing::warn!("the kernel refused an answer of {length} bytes: {refused}");
            let header = wire::OutHeader { len: 16, error: -Errno::IO.raw_os_error(), unique };
            let _ = connection.send(&[IoSlice::new(header.as_bytes())]);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            self.say(-Errno::IO.raw_os_error(), &NOTHING);
        }
    }
}

/// Directory entries, in a buffer of the size that the kernel asked for.
#[derive(Debug)]
pub struct Directory {
    bytes: Vec<u8>,
    limit: usize,
}

impl Directory {
    /// For at most `size` bytes.
    pub fn new(size: u32) -> Self {
        Self { bytes: Vec::new(), limit: size as usize }
    }

    /// Adds a name. `cursor` is where to go on after it, `mode` has the type. Returns whether it had no room.
    #[must_use]
    pub fn add(&mut self, node: NodeId, cursor: u64, mode: u32, name: &[u8]) -> bool {
        self.push(None, node, cursor, mode, name)
    }

    /// Adds a name with its attributes. Returns whether it had no room.
    #[must_use]
    pub fn add_entry(&mut self, entry: &Entry, cursor: u64, name: &[u8]) -> bool {
        self.push(Some(entry.into()), entry.attr.node, cursor, entry.attr.mode, name)
    }

    fn push(&mut self, entry: Option<wire::EntryOut>, node: NodeId, cursor: u64, mode: u32, name: &[u8]) -> bool {
        let entry = entry.as_ref().map_or(&[][..], |entry| entry.as_bytes());
        let length = (entry.len() + size_of::<wire::Dirent>() + name.len()).next_multiple_of(8);
        if self.bytes.len() + length > self.limit {
            return true;
        }
        let kind = mode >> 12 & 0xf;
        let end = self.bytes.len() + length;
        self.bytes.extend_from_slice(entry);
        let head = wire::Dirent { ino: node.0, off: cursor, namelen: name.len() as u32, kind };
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_entries_are_padded_and_stop_at_the_limit() {
        let mut entries = Directory::new(64);
        assert!(!entries.add(NodeId(5), 1, 0o040_755, b"abc"));
        assert_eq!(entries.bytes.len(), 32);
        assert!(!entries.add(NodeId(6), 2, 0o100_644, b"12345678"));
        assert_eq!(entries.bytes.len(), 64);
        assert!(entries.add(NodeId(7), 3, 0o100_644, b"x"));
        assert_eq!(entries.bytes[16..20], 3u32.to_ne_bytes());
        assert_eq!(entries.bytes[20..24], 4u32.to_ne_bytes());
        assert_eq!(entries.bytes[24..32], *b"abc\0\0\0\0\0");
    }
}
