//! Writing records; see [`super::record`].

use crate::blkptr::BLKPTR_SIZE;
use crate::le::put_words;

use super::record::{CASE_INSENSITIVE, OLD_ACE_SIZE, SLOTS_SHIFT, XVATTR, object_of, types};
use super::record::{Create, LoggedAcl, Made, NewObject, Record, RecordHeader, RenameKind, SetAttr, Write, WriteData};

fn push_words(out: &mut Vec<u8>, words: &[u64]) {
    let at = out.len();
    out.resize(at + 8 * words.len(), 0);
    put_words(out, at, words);
}

fn push_name(out: &mut Vec<u8>, name: &[u8]) {
    out.extend_from_slice(name);
    out.push(0);
}

fn push_object(out: &mut Vec<u8>, new: &NewObject) {
    let object = object_of(new.object) | u64::from(new.slots.max(1) - 1) << SLOTS_SHIFT;
    let [seconds, nanoseconds] = new.create_time;
    push_words(out, &[object, new.mode, new.uid, new.gid, new.generation, seconds, nanoseconds, new.rdev]);
}

fn acl_fields(acl: &LoggedAcl) -> [u64; 5] {
    [acl.count, acl.domains.len() as u64, acl.owners.len() as u64, acl.entries.len() as u64, acl.flags]
}

fn push_acl(out: &mut Vec<u8>, acl: &LoggedAcl) {
    let padded = acl.entries.len().next_multiple_of(8);
    out.extend_from_slice(&acl.entries);
    out.resize(out.len() + padded - acl.entries.len(), 0);
    push_words(out, &acl.owners);
    acl.domains.iter().for_each(|name| push_name(out, name));
}

impl Record {
    /// `TX_*` with the flag for names without case.
    fn kind(&self) -> u64 {
        use types::*;
        let flag = |any_case: &bool| if *any_case { CASE_INSENSITIVE } else { 0 };
        match self {
            Self::Create(create) => {
                let kind = match (&create.made, create.acl.is_some(), create.attributes.is_some()) {
                    (Made::File, false, false) => CREATE,
                    (Made::File, false, true) => CREATE_ATTR,
                    (Made::File, true, false) => CREATE_ACL,
                    (Made::File, true, true) => CREATE_ACL_ATTR,
                    (Made::Directory, false, false) => MKDIR,
                    (Made::Directory, false, true) => MKDIR_ATTR,
                    (Made::Directory, true, false) => MKDIR_ACL,
                    (Made::Directory, true, true) => MKDIR_ACL_ATTR,
                    (Made::XattrDirectory, ..) => MKXATTR,
                    (Made::Symlink(_), ..) => SYMLINK,
                };
                kind | flag(&create.any_case)
            }
            Self::Remove { any_case, directory: true, .. } => RMDIR | flag(any_case),
            Self::Remove { any_case, directory: false, .. } => REMOVE | flag(any_case),
            Self::Link { any_case, .. } => LINK | flag(any_case),
            Self::Rename { any_case, kind, .. } => {
                let kind = match kind {
                    RenameKind::Replace => RENAME,
                    RenameKind::Exchange => RENAME_EXCHANGE,
                    RenameKind::Whiteout(_) => RENAME_WHITEOUT,
                };
                kind | flag(any_case)
            }
            Self::Write(_) => WRITE,
            Self::Grow { .. } => WRITE2,
            Self::Truncate { .. } => TRUNCATE,
            Self::SetAttr(_) => SETATTR,
            Self::OldAcl { .. } => ACL_V0,
            Self::Acl { .. } => ACL,
            Self::SetXattr { .. } => SETSAXATTR,
            Self::Clone { .. } => CLONE_RANGE,
        }
    }

    /// Appends the record with its header to `out`.
    pub fn encode(&self, header: RecordHeader, out: &mut Vec<u8>) {
        let start = out.len();
        push_words(out, &[self.kind(), 0, header.txg.0, header.sequence]);
        match self {
            Self::Create(create) => push_create(out, create),
            Self::Remove { parent, name, .. } => {
                push_words(out, &[*parent]);
                push_name(out, name);
            }
            Self::Link { parent, object, name, .. } => {
                push_words(out, &[*parent, *object]);
                push_name(out, name);
            }
            Self::Rename { kind, from, to, name, new_name, .. } => {
                push_words(out, &[*from, *to]);
                if let RenameKind::Whiteout(new) = kind {
                    push_object(out, new);
                }
                push_name(out, name);
                push_name(out, new_name);
            }
            Self::Write(write) => push_write(out, write),
            Self::Grow { object, offset, length } => {
                push_words(out, &[*object, *offset, *length, 0]);
                out.resize(out.len() + BLKPTR_SIZE, 0);
            }
            Self::Truncate { object, offset, length } => push_words(out, &[*object, *offset, *length]),
            Self::SetAttr(change) => push_change(out, change),
            Self::OldAcl { object, entries } => {
                push_words(out, &[*object, (entries.len() / OLD_ACE_SIZE) as u64]);
                out.extend_from_slice(entries);
            }
            Self::Acl { object, acl } => {
                push_words(out, &[*object]);
                push_words(out, &acl_fields(acl));
                push_acl(out, acl);
            }
            Self::SetXattr { object, name, value } => {
                push_words(out, &[*object, value.len() as u64]);
                push_name(out, name);
                out.extend_from_slice(value);
            }
            Self::Clone { object, offset, length, block_size, blocks } => {
                push_words(out, &[*object, *offset, *length, *block_size, blocks.len() as u64]);
                for bp in blocks {
                    let at = out.len();
                    out.resize(at + BLKPTR_SIZE, 0);
                    bp.encode(&mut out[at..]);
                }
            }
        }
        let length = (out.len() - start).next_multiple_of(8);
        out.resize(start + length, 0);
        put_words(out, start + 8, &[length as u64]);
    }

    /// Name of the record's type (`TX_...`), for messages.
    pub fn type_name(&self) -> &'static str {
        const NAMES: [&str; 25] = [
            "TX_COMMIT",
            "TX_CREATE",
            "TX_MKDIR",
            "TX_MKXATTR",
            "TX_SYMLINK",
            "TX_REMOVE",
            "TX_RMDIR",
            "TX_LINK",
            "TX_RENAME",
            "TX_WRITE",
            "TX_TRUNCATE",
            "TX_SETATTR",
            "TX_ACL_V0",
            "TX_ACL",
            "TX_CREATE_ACL",
            "TX_CREATE_ATTR",
            "TX_CREATE_ACL_ATTR",
            "TX_MKDIR_ACL",
            "TX_MKDIR_ATTR",
            "TX_MKDIR_ACL_ATTR",
            "TX_WRITE2",
            "TX_SETSAXATTR",
            "TX_RENAME_EXCHANGE",
            "TX_RENAME_WHITEOUT",
            "TX_CLONE_RANGE",
        ];
        NAMES[(self.kind() & !CASE_INSENSITIVE) as usize]
    }
}

fn push_create(out: &mut Vec<u8>, create: &Create) {
    push_words(out, &[create.parent]);
    push_object(out, &create.new);
    let plain = matches!(create.made, Made::XattrDirectory | Made::Symlink(_));
    let acl = create.acl.as_ref().filter(|_| !plain);
    if let Some(acl) = acl {
        push_words(out, &acl_fields(acl));
    }
    if let Some(attributes) = create.attributes.as_ref().filter(|_| !plain) {
        attributes.encode(out);
    }
    if let Some(acl) = acl {
        push_acl(out, acl);
    } else {
        create.domains.iter().for_each(|name| push_name(out, name));
    }
    push_name(out, &create.name);
    if let Made::Symlink(target) = &create.made {
        push_name(out, target);
    }
}

fn push_write(out: &mut Vec<u8>, write: &Write) {
    push_words(out, &[write.object, write.offset, write.length, 0]);
    let at = out.len();
    out.resize(at + BLKPTR_SIZE, 0);
    match &write.data {
        // Without data it would be taken for one with a block.
        WriteData::Inline(data) if data.is_empty() => push_words(out, &[0]),
        WriteData::Inline(data) => out.extend_from_slice(data),
        WriteData::Block(bp) => bp.encode(&mut out[at..]),
    }
}

fn push_change(out: &mut Vec<u8>, change: &SetAttr) {
    let mask = change.mask & !XVATTR | if change.attributes.is_some() { XVATTR } else { 0 };
    push_words(out, &[change.object, mask, change.mode, change.uid, change.gid, change.size]);
    push_words(out, &change.atime);
    push_words(out, &change.mtime);
    if let Some(attributes) = &change.attributes {
        attributes.encode(out);
    }
    change.domains.iter().for_each(|name| push_name(out, name));
}
