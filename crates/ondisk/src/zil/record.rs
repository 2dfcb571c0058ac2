//! The intent log's records (`lr_*_t`, `include/sys/zil.h`; who writes what: `module/zfs/zfs_log.c`).
//!
//! ```text
//! 0       8        16     24          32
//! | type  | length | txg  | sequence  | fields of the type, names ended by zero bytes, padding to 8 bytes
//! ```
//!
//! Invariants:
//! - a record that was decoded has all its parts inside its length, and names without zero bytes;
//! - `encode` gives a whole number of 64-bit words, and what it gives decodes to the same record.

use crate::blkptr::{BLKPTR_SIZE, BlkPtr};
use crate::error::Error;
use crate::ids::Txg;
use crate::le::words_at;

use super::attributes::Attributes;
pub use super::set;

/// Size of what all records begin with, in bytes (`lr_t`).
pub const HEADER_SIZE: usize = 32;
/// Size of a write record without data, in bytes (`lr_write_t`).
pub const WRITE_SIZE: usize = HEADER_SIZE + 32 + BLKPTR_SIZE;

/// `TX_CI`: names in the record compare without case.
pub(super) const CASE_INSENSITIVE: u64 = 1 << 63;
/// Bits of an object number that are one (`DN_MAX_OBJECT_SHIFT`); the dnode's slots less one stand in the top byte.
const OBJECT_BITS: u32 = 48;
pub(super) const SLOTS_SHIFT: u32 = 56;
/// `ATTR_XVATTR`: attributes follow a [`SetAttr`].
pub(super) const XVATTR: u64 = 1 << 31;
/// An owner with an index of a domain (`FUID_INDEX`).
const DOMAIN_SHIFT: u32 = 32;
/// Size of an entry of an old access control list, in bytes (`ace_t`).
pub(super) const OLD_ACE_SIZE: usize = 12;

const WHAT: &str = "log record";

/// `TX_*`.
#[allow(missing_docs)]
pub mod types {
    pub const CREATE: u64 = 1;
    pub const MKDIR: u64 = 2;
    pub const MKXATTR: u64 = 3;
    pub const SYMLINK: u64 = 4;
    pub const REMOVE: u64 = 5;
    pub const RMDIR: u64 = 6;
    pub const LINK: u64 = 7;
    pub const RENAME: u64 = 8;
    pub const WRITE: u64 = 9;
    pub const TRUNCATE: u64 = 10;
    pub const SETATTR: u64 = 11;
    pub const ACL_V0: u64 = 12;
    pub const ACL: u64 = 13;
    pub const CREATE_ACL: u64 = 14;
    pub const CREATE_ATTR: u64 = 15;
    pub const CREATE_ACL_ATTR: u64 = 16;
    pub const MKDIR_ACL: u64 = 17;
    pub const MKDIR_ATTR: u64 = 18;
    pub const MKDIR_ACL_ATTR: u64 = 19;
    pub const WRITE2: u64 = 20;
    pub const SETSAXATTR: u64 = 21;
    pub const RENAME_EXCHANGE: u64 = 22;
    pub const RENAME_WHITEOUT: u64 = 23;
    pub const CLONE_RANGE: u64 = 24;
}

/// What all records begin with (`lr_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordHeader {
    /// The group of the change: once that is on disk the record is done with.
    pub txg: Txg,
    /// Number in the log, counted from 1.
    pub sequence: u64,
}

/// An object that a record makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewObject {
    /// Its number, below 2^48.
    pub object: u64,
    /// Dnode slots it takes, 1 to 256.
    pub slots: u16,
    /// `st_mode` with the type.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// The group it was made in.
    pub generation: u64,
    /// When it was made: seconds and nanoseconds.
    pub create_time: [u64; 2],
    /// Device number as stored.
    pub rdev: u64,
}

/// What a [`Create`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// A file, or anything else that is neither of the others.
    File,
    /// A directory.
    Directory,
    /// The hidden directory of the parent's extended attributes.
    XattrDirectory,
    /// A symbolic link to this.
    Symlink(Vec<u8>),
}

/// An access control list in a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedAcl {
    /// Number of entries.
    pub count: u64,
    /// Flags of the list.
    pub flags: u64,
    /// The entries as users hand them in, 12 bytes each (`ace_t`).
    pub entries: Vec<u8>,
    /// Owners from domains that the entries name.
    pub owners: Vec<u64>,
    /// Names of those domains.
    pub domains: Vec<Vec<u8>>,
}

/// A new name with a new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// What it is.
    pub made: Made,
    /// Names compare without case.
    pub any_case: bool,
    /// The directory.
    pub parent: u64,
    /// The object.
    pub new: NewObject,
    /// Attributes given at creation.
    pub attributes: Option<Attributes>,
    /// Access control list given at creation (files and directories).
    pub acl: Option<LoggedAcl>,
    /// Domains of owner and group, when they come from one (without `acl`, which has its own).
    pub domains: Vec<Vec<u8>>,
    /// The name.
    pub name: Vec<u8>,
}

/// How a [`Record::Rename`] moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenameKind {
    /// What had the new name is gone.
    Replace,
    /// What had the new name has the old one now.
    Exchange,
    /// A whiteout has the old name now.
    Whiteout(NewObject),
}

/// The data of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteData {
    /// In the record (at most [`Write::length`] bytes matter).
    Inline(Vec<u8>),
    /// In a block of the pool (or a hole).
    Block(Box<BlkPtr>),
}

/// `TX_WRITE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file.
    pub object: u64,
    /// First byte written.
    pub offset: u64,
    /// Bytes written.
    pub length: u64,
    /// The bytes.
    pub data: WriteData,
}

/// `TX_SETATTR`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// The file.
    pub object: u64,
    /// Which of the fields count: the bits of the system that wrote the record ([`set`]).
    pub mask: u64,
    /// `st_mode`.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last read: seconds and nanoseconds.
    pub atime: [u64; 2],
    /// Last change of contents: seconds and nanoseconds.
    pub mtime: [u64; 2],
    /// Further attributes.
    pub attributes: Option<Attributes>,
    /// Domains of owner and group, when they come from one.
    pub domains: Vec<Vec<u8>>,
}

/// One record without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A new object with a name.
    Create(Box<Create>),
    /// A name is gone (`directory`: an empty directory's).
    Remove {
        /// Names compare without case.
        any_case: bool,
        /// `TX_RMDIR`.
        directory: bool,
        /// Where the name was.
        parent: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// An object has one more name.
    Link {
        /// Names compare without case.
        any_case: bool,
        /// Where the name is.
        parent: u64,
        /// The object.
        object: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// An object has another name.
    Rename {
        /// Names compare without case.
        any_case: bool,
        /// How.
        kind: RenameKind,
        /// The old name's directory.
        from: u64,
        /// The new name's directory.
        to: u64,
        /// The old name.
        name: Vec<u8>,
        /// The new name.
        new_name: Vec<u8>,
    },
    /// Bytes were written.
    Write(Write),
    /// A block on its way to disk already was written; only the size may have to grow (`TX_WRITE2`).
    Grow {
        /// The file.
        object: u64,
        /// First byte written.
        offset: u64,
        /// Bytes written.
        length: u64,
    },
    /// A range was freed (`length` 0: up to the end, which is moved there).
    Truncate {
        /// The file.
        object: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Attributes were set.
    SetAttr(Box<SetAttr>),
    /// An access control list in the first encoding was set.
    OldAcl {
        /// The file.
        object: u64,
        /// Entries of 12 bytes.
        entries: Vec<u8>,
    },
    /// An access control list was set.
    Acl {
        /// The file.
        object: u64,
        /// The list.
        acl: LoggedAcl,
    },
    /// An extended attribute among the system attributes was set, or (no value) removed.
    SetXattr {
        /// The file.
        object: u64,
        /// Name of the attribute.
        name: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Blocks were cloned into a range.
    Clone {
        /// The file.
        object: u64,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Block size of the file, in bytes.
        block_size: u64,
        /// The blocks.
        blocks: Vec<BlkPtr>,
    },
}

/// Reads a record's parts one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn words<const N: usize>(&mut self) -> Result<[u64; N], Error> {
        let bytes = self.bytes(8 * N)?;
        Ok(words_at(bytes, 0))
    }

    fn word(&mut self) -> Result<u64, Error> {
        Ok(self.words::<1>()?[0])
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let rest = &self.bytes[self.at..];
        Error::need(WHAT, rest, length)?;
        self.at += length;
        Ok(&rest[..length])
    }

    /// A length from the record, in bytes.
    fn length(&self, field: &'static str, value: u64, unit: usize) -> Result<usize, Error> {
        let bytes = usize::try_from(value).ok().and_then(|value| value.checked_mul(unit));
        bytes.filter(|&bytes| bytes <= self.bytes.len()).ok_or(Error::field(WHAT, field, value))
    }

    /// Bytes up to the next zero byte, which is skipped.
    fn name(&mut self) -> Result<Vec<u8>, Error> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&b| b == 0).ok_or(Error::field(WHAT, "name", rest.len() as u64))?;
        self.at += end + 1;
        Ok(rest[..end].to_vec())
    }

    fn names(&mut self, count: u64) -> Result<Vec<Vec<u8>>, Error> {
        let count = self.length("lr_domcnt", count, 1)?;
        (0..count).map(|_| self.name()).collect()
    }

    fn attributes(&mut self) -> Result<Attributes, Error> {
        let (attributes, length) = Attributes::decode(&self.bytes[self.at..])?;
        self.at += length;
        Ok(attributes)
    }

    fn new_object(&mut self) -> Result<NewObject, Error> {
        let [object, mode, uid, gid, generation, seconds, nanoseconds, rdev] = self.words()?;
        Ok(NewObject {
            object: object_of(object),
            slots: ((object >> SLOTS_SHIFT) + 1) as u16,
            mode,
            uid,
            gid,
            generation,
            create_time: [seconds, nanoseconds],
            rdev,
        })
    }
}

pub(super) fn object_of(word: u64) -> u64 {
    word & ((1 << OBJECT_BITS) - 1)
}

/// How many domain names follow for an owner and a group (`zfs_replay_domain_cnt`).
fn domain_count(uid: u64, gid: u64) -> u64 {
    let (owner, group) = (uid >> DOMAIN_SHIFT, gid >> DOMAIN_SHIFT);
    u64::from(owner != 0) + u64::from(group != 0 && group != owner)
}

/// The records of a block, each with its header; ends with the first error.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<(RecordHeader, Record), Error>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let decoded = decode(rest);
        match decoded {
            Ok((header, record, length)) => {
                rest = &rest[length..];
                Some(Ok((header, record)))
            }
            Err(error) => {
                rest = &[];
                Some(Err(error))
            }
        }
    })
}

/// Decodes the record at the start of `bytes` and returns its length too.
///
/// # Errors
/// An unknown type, or parts that leave the record.
pub fn decode(bytes: &[u8]) -> Result<(RecordHeader, Record, usize), Error> {
    Error::need(WHAT, bytes, HEADER_SIZE)?;
    let [kind, length, txg, sequence] = words_at::<4>(bytes, 0);
    let length = match usize::try_from(length) {
        Ok(bytes_long) if (HEADER_SIZE..=bytes.len()).contains(&bytes_long) => bytes_long,
        _ => return Err(Error::field(WHAT, "lrc_reclen", length)),
    };
    let mut reader = Reader { bytes: &bytes[..length], at: HEADER_SIZE };
    let record = decode_body(kind & !CASE_INSENSITIVE, kind & CASE_INSENSITIVE != 0, &mut reader)?;
    Ok((RecordHeader { txg: Txg(txg), sequence }, record, length))
}

fn decode_body(kind: u64, any_case: bool, reader: &mut Reader<'_>) -> Result<Record, Error> {
    Ok(match kind {
        types::CREATE
        | types::MKDIR
        | types::MKXATTR
        | types::SYMLINK
        | types::CREATE_ATTR
        | types::MKDIR_ATTR
        | types::CREATE_ACL
        | types::CREATE_ACL_ATTR
        | types::MKDIR_ACL
        | types::MKDIR_ACL_ATTR => Record::Create(Box::new(decode_create(kind, any_case, reader)?)),
        types::REMOVE | types::RMDIR => {
            Record::Remove { any_case, directory: kind == types::RMDIR, parent: reader.word()?, name: reader.name()? }
        }
        types::LINK => {
            let [parent, object] = reader.words()?;
            Record::Link { any_case, parent, object, name: reader.name()? }
        }
        types::RENAME | types::RENAME_EXCHANGE | types::RENAME_WHITEOUT => {
            let [from, to] = reader.words()?;
            let kind = match kind {
                types::RENAME => RenameKind::Replace,
                types::RENAME_EXCHANGE => RenameKind::Exchange,
                _ => RenameKind::Whiteout(reader.new_object()?),
            };
            Record::Rename { any_case, kind, from, to, name: reader.name()?, new_name: reader.name()? }
        }
        types::WRITE => decode_write(reader)?,
        types::WRITE2 => {
            let [object, offset, length] = reader.words()?;
            Record::Grow { object: object_of(object), offset, length }
        }
        types::TRUNCATE => {
            let [object, offset, length] = reader.words()?;
            Record::Truncate { object: object_of(object), offset, length }
        }
        types::SETATTR => Record::SetAttr(Box::new(decode_setattr(reader)?)),
        types::ACL_V0 => {
            let [object, count] = reader.words()?;
            let length = reader.length("lr_aclcnt", count, OLD_ACE_SIZE)?;
            Record::OldAcl { object: object_of(object), entries: reader.bytes(length)?.to_vec() }
        }
        types::ACL => {
            let object = object_of(reader.word()?);
            let fields = reader.words::<5>()?;
            Record::Acl { object, acl: decode_acl(fields, reader)? }
        }
        types::SETSAXATTR => {
            let [object, size] = reader.words()?;
            let name = reader.name()?;
            let size = reader.length("lr_size", size, 1)?;
            Record::SetXattr { object: object_of(object), name, value: reader.bytes(size)?.to_vec() }
        }
        types::CLONE_RANGE => {
            let [object, offset, length, block_size, count] = reader.words()?;
            let bytes = reader.length("lr_nbps", count, BLKPTR_SIZE)?;
            let blocks = reader.bytes(bytes)?.chunks_exact(BLKPTR_SIZE).map(BlkPtr::decode).collect();
            Record::Clone { object: object_of(object), offset, length, block_size, blocks }
        }
        _ => return Err(Error::field(WHAT, "lrc_txtype", kind)),
    })
}

fn decode_create(kind: u64, any_case: bool, reader: &mut Reader<'_>) -> Result<Create, Error> {
    use types::*;
    let parent = reader.word()?;
    let new = reader.new_object()?;
    let has_acl = matches!(kind, CREATE_ACL | CREATE_ACL_ATTR | MKDIR_ACL | MKDIR_ACL_ATTR);
    let has_attributes = matches!(kind, CREATE_ATTR | CREATE_ACL_ATTR | MKDIR_ATTR | MKDIR_ACL_ATTR);
    let fields = if has_acl { Some(reader.words::<5>()?) } else { None };
    let attributes = if has_attributes { Some(reader.attributes()?) } else { None };
    let acl = fields.map(|fields| decode_acl(fields, reader)).transpose()?;
    let own_domains = acl.is_none() && kind != SYMLINK;
    let domains = if own_domains { reader.names(domain_count(new.uid, new.gid))? } else { Vec::new() };
    let name = reader.name()?;
    let made = match kind {
        MKDIR | MKDIR_ATTR | MKDIR_ACL | MKDIR_ACL_ATTR => Made::Directory,
        MKXATTR => Made::XattrDirectory,
        SYMLINK => Made::Symlink(reader.name()?),
        _ => Made::File,
    };
    Ok(Create { made, any_case, parent, new, attributes, acl, domains, name })
}

/// The list after its five fields: count, domains, owners, bytes, flags.
fn decode_acl(fields: [u64; 5], reader: &mut Reader<'_>) -> Result<LoggedAcl, Error> {
    let [count, domains, owners, bytes, flags] = fields;
    let length = reader.length("lr_acl_bytes", bytes, 1)?;
    let entries = reader.bytes(length.next_multiple_of(8))?[..length].to_vec();
    let owners = reader.length("lr_fuidcnt", owners, 8)?;
    let owners = reader.bytes(owners)?.chunks_exact(8).map(|word| words_at::<1>(word, 0)[0]).collect();
    Ok(LoggedAcl { count, flags, entries, owners, domains: reader.names(domains)? })
}

fn decode_write(reader: &mut Reader<'_>) -> Result<Record, Error> {
    let [object, offset, length, _] = reader.words()?;
    let bp = BlkPtr::decode(reader.bytes(BLKPTR_SIZE)?);
    let data = if reader.bytes.len() == WRITE_SIZE {
        WriteData::Block(Box::new(bp))
    } else {
        let bytes = reader.length("lr_length", length, 1)?;
        WriteData::Inline(reader.bytes(bytes)?.to_vec())
    };
    Ok(Record::Write(Write { object: object_of(object), offset, length, data }))
}

fn decode_setattr(reader: &mut Reader<'_>) -> Result<SetAttr, Error> {
    let [object, mask, mode, uid, gid, size] = reader.words()?;
    let (atime, mtime) = (reader.words()?, reader.words()?);
    let attributes = if mask & XVATTR != 0 { Some(reader.attributes()?) } else { None };
    // Only those of what is set: the rest of owner and group are leftovers.
    let given = |bit: u64, id: u64| if mask & bit != 0 { id } else { 0 };
    let domains = reader.names(domain_count(given(set::UID, uid), given(set::GID, gid)))?;
    let mask = mask & !XVATTR;
    Ok(SetAttr { object: object_of(object), mask, mode, uid, gid, size, atime, mtime, attributes, domains })
}

const _: () = assert!(WRITE_SIZE == 192);
