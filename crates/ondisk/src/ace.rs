//! Access control entries: their kinds, permissions and flags, under the names of NFSv4 (`include/sys/acl.h`).
#![allow(missing_docs, reason = "the names are those of NFSv4 and say it")]

pub const ALLOW: u16 = 0;
pub const DENY: u16 = 1;

pub const READ_DATA: u32 = 0x1;
pub const WRITE_DATA: u32 = 0x2;
pub const APPEND_DATA: u32 = 0x4;
pub const READ_NAMED_ATTRS: u32 = 0x8;
pub const WRITE_NAMED_ATTRS: u32 = 0x10;
pub const EXECUTE: u32 = 0x20;
pub const DELETE_CHILD: u32 = 0x40;
pub const READ_ATTRIBUTES: u32 = 0x80;
pub const WRITE_ATTRIBUTES: u32 = 0x100;
pub const READ_ACL: u32 = 0x2_0000;
pub const WRITE_ACL: u32 = 0x4_0000;
pub const WRITE_OWNER: u32 = 0x8_0000;
pub const SYNCHRONIZE: u32 = 0x10_0000;

pub const FILE_INHERIT: u16 = 0x1;
pub const DIRECTORY_INHERIT: u16 = 0x2;
pub const NO_PROPAGATE_INHERIT: u16 = 0x4;
pub const INHERIT_ONLY: u16 = 0x8;
pub const IDENTIFIER_GROUP: u16 = 0x40;
pub const INHERITED: u16 = 0x80;
pub const OWNER: u16 = 0x1000;
pub const GROUP: u16 = 0x2000;
pub const EVERYONE: u16 = 0x4000;
pub const OWNING_GROUP: u16 = GROUP | IDENTIFIER_GROUP;
pub const TYPE_FLAGS: u16 = OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP;

/// Size in bytes of an access control entry of version 1 with this type and these flags (`zfs_ace_fuid_size`).
pub fn size(kind: u16, ace_flags: u16) -> usize {
    match kind {
        // Object entries (types 5 to 8) hold two 16-byte ids more.
        5..=8 => 48,
        ALLOW | DENY if matches!(ace_flags & TYPE_FLAGS, OWNER | OWNING_GROUP | EVERYONE) => 8,
        _ => 16,
    }
}
