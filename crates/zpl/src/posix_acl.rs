//! POSIX access control lists as Linux keeps them in extended attributes (`include/uapi/linux/posix_acl_xattr.h`,
//! acl(5)): a version and entries of tag, permissions and id, all little-endian.
//!
//! Invariant: a list in memory has exactly one entry for owner, group and others each, in the order owner, named users,
//! group, named groups, mask, others, and a mask as soon as it names anybody.

/// The attribute with the list that decides access.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the list that new files of a directory get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_SIZE: usize = 4;
const ENTRY_SIZE: usize = 8;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One entry; permissions are the three bits of a mode's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// Whom an entry speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclWho {
    /// The file's owner.
    Owner,
    /// This user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// This group.
    Group(u32),
    /// All but the owner and others: nobody of them gets more than this.
    Mask,
    /// Everybody of whom no other entry speaks.
    Others,
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixAcl(Vec<Entry>);

impl PosixAcl {
    /// From an attribute's value; `None` for anything that is not a complete and ordered list.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_SIZE>()?;
        if u32::from_le_bytes(*header) != VERSION || !rest.len().is_multiple_of(ENTRY_SIZE) {
            return None;
        }
        let entries = rest.chunks_exact(ENTRY_SIZE).map(|bytes| Entry {
            tag: u16::from_le_bytes([bytes[0], bytes[1]]),
            permissions: u16::from_le_bytes([bytes[2], bytes[3]]),
            id: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        });
        let acl = Self(entries.collect());
        acl.is_valid().then_some(acl)
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let names_somebody = count(USER) + count(GROUP) > 0;
        let known = OWNER | USER | GROUP_OWNER | GROUP | MASK | OTHER;
        self.0.iter().all(|entry| entry.permissions <= 7 && entry.tag.is_power_of_two() && entry.tag & known != 0)
            && self.0.is_sorted_by_key(|entry| entry.tag)
            && [OWNER, GROUP_OWNER, OTHER].into_iter().all(|tag| count(tag) == 1)
            && count(MASK) <= 1
            && (count(MASK) == 1 || !names_somebody)
    }

    /// Whom the list speaks of and what each may do, as the three bits of a mode's class, in the list's order.
    pub fn entries(&self) -> impl Iterator<Item = (AclWho, u32)> {
        self.0.iter().map(|entry| {
            let who = match entry.tag {
                OWNER => AclWho::Owner,
                USER => AclWho::User(entry.id),
                GROUP_OWNER => AclWho::OwningGroup,
                GROUP => AclWho::Group(entry.id),
                MASK => AclWho::Mask,
                _ => AclWho::Others,
            };
            (who, u32::from(entry.permissions))
        })
    }

    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.permissions.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// Whether a mode says as much.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The nine permission bits that show this list: the mask, where there is one, stands for the group's.
    pub fn mode(&self) -> u32 {
        let class = self.group_class();
        self.0.iter().fold(0, |mode, entry| {
            let permissions = u32::from(entry.permissions);
            match entry.tag {
                OWNER => mode | permissions << 6,
                OTHER => mode | permissions,
                tag if tag == class => mode | permissions << 3,
                _ => mode,
            }
        })
    }

    /// The tag of the entry that the mode's group bits stand for.
    fn group_class(&self) -> u16 {
        if self.0.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OWNER }
    }

    /// The list after `chmod(mode)`.
    pub fn with_mode(mut self, mode: u32) -> Self {
        let class = self.group_class();
        for entry in &mut self.0 {
            let bits = match entry.tag {
                OWNER => mode >> 6,
                OTHER => mode,
                tag if tag == class => mode >> 3,
                _ => continue,
            };
            entry.permissions = (bits & 7) as u16;
        }
        debug_assert!(self.is_valid(), "a changed mode leaves the list complete");
        self
    }

    /// What a new file gets from its directory's default list when its maker asks for `mode`: at most what both allow.
    pub fn inherited(self, mode: u32) -> Self {
        let allowed = self.mode() & mode;
        self.with_mode(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> PosixAcl {
        PosixAcl(entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect())
    }

    const NONE: u32 = u32::MAX;

    #[test]
    fn a_list_survives_its_encoding_and_a_wrong_one_is_refused() {
        let full = acl(&[(OWNER, 7, NONE), (USER, 6, 5), (GROUP_OWNER, 5, NONE), (MASK, 6, NONE), (OTHER, 0, NONE)]);
        assert_eq!(PosixAcl::decode(&full.encode()), Some(full.clone()));
        assert_eq!(full.mode(), 0o760);
        assert!(!full.is_minimal());
        let bytes = full.encode();
        assert_eq!(PosixAcl::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(PosixAcl::decode(&[]), None);
        for wrong in [
            acl(&[(OWNER, 7, NONE), (GROUP_OWNER, 5, NONE)]),
            acl(&[(OWNER, 7, NONE), (USER, 6, 5), (GROUP_OWNER, 5, NONE), (OTHER, 0, NONE)]),
            acl(&[(GROUP_OWNER, 5, NONE), (OWNER, 7, NONE), (OTHER, 0, NONE)]),
            acl(&[(OWNER, 8, NONE), (GROUP_OWNER, 5, NONE), (OTHER, 0, NONE)]),
            acl(&[(OWNER, 7, NONE), (OWNER, 7, NONE), (GROUP_OWNER, 5, NONE), (OTHER, 0, NONE)]),
            acl(&[(OWNER, 7, NONE), (GROUP_OWNER, 5, NONE), (OTHER, 0, NONE), (0x40, 0, NONE)]),
        ] {
            assert_eq!(PosixAcl::decode(&wrong.encode()), None, "{wrong:?}");
        }
    }

    #[test]
    fn chmod_changes_the_mask_and_creation_takes_the_lesser() {
        let full = acl(&[(OWNER, 7, NONE), (USER, 6, 5), (GROUP_OWNER, 5, NONE), (MASK, 6, NONE), (OTHER, 4, NONE)]);
        let changed = full.clone().with_mode(0o541);
        assert_eq!(
            changed,
            acl(&[(OWNER, 5, NONE), (USER, 6, 5), (GROUP_OWNER, 5, NONE), (MASK, 4, NONE), (OTHER, 1, NONE)])
        );
        assert_eq!(full.inherited(0o666).mode(), 0o664);
        let minimal = acl(&[(OWNER, 7, NONE), (GROUP_OWNER, 5, NONE), (OTHER, 5, NONE)]);
        assert_eq!(minimal.inherited(0o640).mode(), 0o640);
    }
}
