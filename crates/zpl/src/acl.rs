//! The access control list every file carries. A trivial one says the same as the permission bits; OpenZFS writes it
//! for each new file and after each `chmod`, and so does this (`zfs_acl_chmod`, `acl_trivial_access_masks` in
//! `module/os/linux/zfs/zfs_acl.c`).

use platter_ondisk::ace;
use platter_ondisk::znode::{ZnodeAcl, flags};

/// Entries in the encoding of version 1, with their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acl {
    pub count: u64,
    pub entries: Vec<u8>,
}

impl Acl {
    fn push(&mut self, kind: u16, who: u16, mask: u32) {
        self.entries.extend_from_slice(&kind.to_le_bytes());
        self.entries.extend_from_slice(&who.to_le_bytes());
        self.entries.extend_from_slice(&mask.to_le_bytes());
        self.count += 1;
    }

    /// The list that says what `mode` says.
    pub fn trivial(mode: u64, directory: bool) -> Self {
        let write = ace::WRITE_DATA | ace::APPEND_DATA | if directory { ace::DELETE_CHILD } else { 0 };
        // (mask, bit within a class) for read, write and execute.
        let rights = [(ace::READ_DATA, 4), (write, 2), (ace::EXECUTE, 1)];
        let masks = |wanted: &dyn Fn(u64, u64, u64) -> bool| {
            let bits = |class: u32, bit: u64| mode >> class & bit;
            rights.iter().filter(|&&(_, b)| wanted(bits(6, b), bits(3, b), bits(0, b))).fold(0, |all, &(m, _)| all | m)
        };
        // Entries are looked at in order, and "everyone" includes the owner and the group: what a narrower class lacks
        // while a wider one has it must be denied first, and what the owner keeps in spite of such a denial must be
        // allowed before that.
        let owner_first = masks(&|u, g, o| u != 0 && g == 0 && o != 0);
        let deny_owner = masks(&|u, g, o| u == 0 && (g != 0 || o != 0));
        let deny_group = masks(&|_, g, o| g == 0 && o != 0);
        let read_all = ace::READ_ACL | ace::READ_ATTRIBUTES | ace::READ_NAMED_ATTRS | ace::SYNCHRONIZE;
        let owner_only = ace::WRITE_ATTRIBUTES | ace::WRITE_OWNER | ace::WRITE_ACL | ace::WRITE_NAMED_ATTRS;

        let mut acl = Self::default();
        for (mask, kind, who) in [
            (owner_first, ace::ALLOW, ace::OWNER),
            (deny_owner, ace::DENY, ace::OWNER),
            (deny_group, ace::DENY, ace::OWNING_GROUP),
        ] {
            if mask != 0 {
                acl.push(kind, who, mask);
            }
        }
        acl.push(ace::ALLOW, ace::OWNER, masks(&|u, _, _| u != 0) | owner_only | read_all);
        acl.push(ace::ALLOW, ace::OWNING_GROUP, masks(&|_, g, _| g != 0) | read_all);
        acl.push(ace::ALLOW, ace::EVERYONE, masks(&|_, _, o| o != 0) | read_all);
        acl
    }

    /// From entries of 12 bytes (who, mask, flags, kind), at most `count`: what a user hands in (`ace_t`), what log
    /// records hold, and what the first version of file systems stored.
    pub fn from_old_entries(bytes: &[u8], count: usize) -> Self {
        let mut out = Self::default();
        for old in bytes.chunks_exact(12).take(count) {
            let half = |at: usize| u16::from_le_bytes([old[at], old[at + 1]]);
            let word = |at: usize| u32::from_le_bytes([old[at], old[at + 1], old[at + 2], old[at + 3]]);
            out.push(half(10), half(8), word(4));
            if ace::size(half(10), half(8)) > 8 {
                out.entries.extend_from_slice(&u64::from(word(0)).to_le_bytes());
            }
        }
        out
    }

    /// The permission bits that the list amounts to for a file of this owner and group (`zfs_mode_compute`).
    pub fn mode(&self, uid: u64, gid: u64) -> u64 {
        let mut evaluation = Evaluation { seen: 0, allowed: 0 };
        let mut rest = &self.entries[..];
        while let Some((head, _)) = rest.split_first_chunk::<8>() {
            let kind = u16::from_le_bytes([head[0], head[1]]);
            let entry_flags = u16::from_le_bytes([head[2], head[3]]);
            let mask = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            let size = ace::size(kind, entry_flags);
            let who = rest.get(8..16).filter(|_| size > 8).map(|b| u64::from_le_bytes(b.try_into().expect("eight")));
            rest = rest.get(size..).unwrap_or_default();
            if entry_flags & ace::INHERIT_ONLY != 0 || !matches!(kind, ace::ALLOW | ace::DENY) {
                continue;
            }
            let classes: &[u32] = match (entry_flags & ace::TYPE_FLAGS, who) {
                (ace::OWNER, _) => &[6],
                (0, Some(who)) if who == uid => &[6],
                (ace::OWNING_GROUP, _) => &[3],
                (ace::IDENTIFIER_GROUP, Some(who)) if who == gid => &[3],
                (ace::EVERYONE, _) => &[6, 3, 0],
                _ => &[],
            };
            evaluation.decide(classes, mask, kind == ace::ALLOW);
        }
        evaluation.allowed
    }

    /// From a legacy znode whose entries lie inside it; `None` when it has none.
    pub fn from_legacy(acl: &ZnodeAcl, external: Option<&[u8]>) -> Option<Self> {
        let bytes = external.unwrap_or(&acl.data);
        if acl.version == 0 {
            let out = Self::from_old_entries(bytes, acl.size as usize);
            return (out.count > 0).then_some(out);
        }
        let entries = bytes.get(..acl.size as usize)?.to_vec();
        (acl.count > 0).then(|| Self { count: u64::from(acl.count), entries })
    }
}

/// What a list means: rights of the owner, the group and everyone else, one after the other.
struct Evaluation {
    seen: u64,
    allowed: u64,
}

impl Evaluation {
    /// An entry speaks for the classes at these shifts; the first one to speak about a right decides.
    fn decide(&mut self, shifts: &[u32], mask: u32, allows: bool) {
        for (right, bit) in [(ace::READ_DATA, 4u64), (ace::WRITE_DATA, 2), (ace::EXECUTE, 1)] {
            for shift in shifts.iter().filter(|_| mask & right != 0) {
                let bit = bit << shift;
                if self.seen & bit == 0 && allows {
                    self.allowed |= bit;
                }
                self.seen |= bit;
            }
        }
    }
}

/// The file flags that follow from a trivial list for `mode`.
pub(crate) fn trivial_flags(mode: u64) -> u64 {
    flags::ACL_TRIVIAL | if mode & 0o111 == 0o111 { flags::NO_EXECS_DENIED } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rights each class has under a list of abstract entries, evaluated as NFSv4 says.
    fn evaluate(acl: &Acl, class: u16) -> u64 {
        let (mut allowed, mut decided) = (0u32, 0u32);
        for entry in acl.entries.chunks_exact(8) {
            let kind = u16::from_le_bytes([entry[0], entry[1]]);
            let who = u16::from_le_bytes([entry[2], entry[3]]);
            let mask = u32::from_le_bytes(entry[4..8].try_into().unwrap());
            if who == class || who == ace::EVERYONE {
                if kind == ace::ALLOW {
                    allowed |= mask & !decided;
                }
                decided |= mask;
            }
        }
        let has = |mask: u32, bit: u64| if allowed & mask == mask { bit } else { 0 };
        has(ace::READ_DATA, 4) | has(ace::WRITE_DATA | ace::APPEND_DATA, 2) | has(ace::EXECUTE, 1)
    }

    #[test]
    fn a_trivial_list_says_what_the_mode_says() {
        for mode in 0..0o1000u64 {
            for directory in [false, true] {
                let acl = Acl::trivial(mode, directory);
                assert_eq!(acl.entries.len() as u64, 8 * acl.count);
                assert!((3..=6).contains(&acl.count));
                assert_eq!(evaluate(&acl, ace::OWNER), mode >> 6 & 7, "{mode:o}");
                assert_eq!(evaluate(&acl, ace::OWNING_GROUP), mode >> 3 & 7, "{mode:o}");
                assert_eq!(evaluate(&acl, ace::EVERYONE), mode & 7, "{mode:o}");
            }
        }
    }

    #[test]
    fn a_list_amounts_to_the_mode_it_was_made_from() {
        for mode in 0..0o1000u64 {
            assert_eq!(Acl::trivial(mode, false).mode(1, 2), mode, "{mode:o}");
        }
        // A right for another user is nobody's of the three; one for the owner by number is the owner's.
        let mut acl = Acl::default();
        for (who, mask) in [(7u64, ace::WRITE_DATA), (1, ace::READ_DATA)] {
            acl.push(ace::ALLOW, 0, mask);
            acl.entries.extend_from_slice(&who.to_le_bytes());
        }
        acl.push(ace::ALLOW, ace::EVERYONE | ace::INHERIT_ONLY, ace::EXECUTE);
        assert_eq!(acl.mode(1, 2), 0o400);
        // Cut short: what is not there says nothing.
        acl.entries.truncate(12);
        assert_eq!(acl.mode(1, 2), 0);
    }

    #[test]
    fn usual_modes_take_three_entries() {
        // The masks that zdb shows for a file of mode 644 made by OpenZFS.
        let acl = Acl::trivial(0o644, false);
        let masks: Vec<u32> =
            acl.entries.chunks_exact(8).map(|e| u32::from_le_bytes(e[4..8].try_into().unwrap())).collect();
        assert_eq!(masks, [0x1e_019f, 0x12_0089, 0x12_0089]);
    }

    #[test]
    fn old_entries_become_new_ones() {
        let mut data = [0u8; 72];
        data[4..8].copy_from_slice(&7u32.to_le_bytes());
        data[8..10].copy_from_slice(&ace::OWNER.to_le_bytes());
        data[12..16].copy_from_slice(&500u32.to_le_bytes());
        data[16..20].copy_from_slice(&1u32.to_le_bytes());
        let old = ZnodeAcl { external: 0, size: 2, version: 0, count: 24, data };
        let new = Acl::from_legacy(&old, None).unwrap();
        assert_eq!((new.count, new.entries.len()), (2, 8 + 16));
        assert_eq!(new.entries[16..24], 500u64.to_le_bytes());
    }
}
