//! Files of file systems before version 5: the bonus is a `znode_phys_t` instead of system attributes
//! (`include/sys/zfs_znode.h`, `zfs_mknode` in `module/os/linux/zfs/zfs_znode_os.c`, `module/zfs/zfs_sa.c`).
//!
//! ```text
//! 0                                176                264
//! | times, mode, size, links, ...  | ACL (88 bytes)  | a short symbolic link's target, or a scan stamp | 320
//! ```
//!
//! Invariants:
//! - a znode that is written back differs from what was read only in what was changed: padding, scan stamp and the
//!   access control list, wherever it lies, stay as they are;
//! - a list that was changed lies inside the znode, in the encoding of version 1 (file system version 3 and later);
//! - in a file system of version 5 a znode that is written back becomes system attributes.

use std::sync::Arc;

use platter_dmu::{Dnode, Objset};
use platter_ondisk::ObjectId;
use platter_ondisk::znode::{ZNODE_ACE_SPACE, ZNODE_PHYS_SIZE, ZnodeAcl, ZnodePhys, ZplAttr, flags};
use platter_zio::{Result, ZioError};

use crate::acl::Acl;
use crate::attr::FileKind;
use crate::phys::{LegacyRest, Phys};
use crate::sa_table::{FIXED, SaTable};

/// Oldest version of file systems that is written: since then owners are FUIDs and lists have the present encoding
/// (`ZPL_VERSION_FUID`).
pub(crate) const WRITTEN_OLDEST: u64 = 3;
/// The version whose files have system attributes (`ZPL_VERSION_SA`).
pub(crate) const SA_VERSION: u64 = 5;

/// The encoding of lists that is written (`ZFS_ACL_VERSION_FUID`).
const ACL_VERSION: u16 = 1;
const EMPTY_ACL: ZnodeAcl =
    ZnodeAcl { external: 0, size: 0, version: ACL_VERSION, count: 0, data: [0; ZNODE_ACE_SPACE] };
/// Room for znode and target in the bonus (`DN_OLD_MAX_BONUSLEN`).
const BONUS_MAX: usize = 320;
/// Longest target read: `PATH_MAX`.
const TARGET_MAX: usize = 4096;
/// Most entries of a list (`MAX_ACL_ENTRIES`), each of up to 48 bytes.
const EXTERNAL_MAX: usize = 1024 * 48;

/// Whether a link's target lies in the bonus (else it is the object's data).
pub(crate) fn target_fits(length: usize) -> bool {
    ZNODE_PHYS_SIZE + length <= BONUS_MAX
}

/// Reads the znode in `bonus`.
pub(crate) async fn read(os: &Arc<Objset>, dnode: &Dnode, bonus: &[u8], table: &SaTable) -> Result<Phys> {
    let damaged = |e: platter_ondisk::Error| ZioError::corrupt("znode", format!("object {}: {e}", dnode.object()));
    let old = ZnodePhys::decode(bonus).map_err(damaged)?;
    let mut external = None;
    if old.acl.external != 0 {
        let size = if old.acl.version == 0 { old.acl.size as usize * 12 } else { old.acl.size as usize };
        let mut bytes = vec![0; size.min(EXTERNAL_MAX)];
        os.dnode(ObjectId(old.acl.external)).await?.read(0, &mut bytes).await?;
        external = Some(bytes);
    }
    let mut phys = Phys::empty();
    phys.order = table.numbers_of(&FIXED);
    phys.mode = old.mode;
    phys.size = old.size;
    phys.generation = old.generation;
    phys.uid = old.uid;
    phys.gid = old.gid;
    phys.parent = old.parent;
    phys.flags = if table.is_legacy() { old.flags } else { old.flags & !flags::BONUS_SCANSTAMP };
    phys.links = old.links;
    (phys.atime, phys.mtime, phys.ctime, phys.crtime) = (old.atime, old.mtime, old.ctime, old.crtime);
    phys.external_acl = (old.acl.external != 0).then_some(ObjectId(old.acl.external));
    let kind = phys.kind();
    if matches!(kind, FileKind::BlockDevice | FileKind::CharDevice) {
        phys.rdev = Some(old.rdev);
        phys.order.push(table.number(ZplAttr::Rdev));
    }
    phys.acl = Acl::from_legacy(&old.acl, external.as_deref());
    if phys.acl.is_some() {
        phys.order.extend([ZplAttr::DaclCount, ZplAttr::DaclAces].map(|a| table.number(a)));
    }
    if old.xattr != 0 {
        phys.xattr = Some(old.xattr);
        phys.order.push(table.number(ZplAttr::Xattr));
    }
    let mut tail = &bonus[ZNODE_PHYS_SIZE..];
    if kind == FileKind::Symlink {
        let length = usize::try_from(old.size).unwrap_or(usize::MAX).min(TARGET_MAX);
        let mut target = vec![0; length];
        match bonus.get(ZNODE_PHYS_SIZE..ZNODE_PHYS_SIZE + length) {
            Some(bytes) => {
                target.copy_from_slice(bytes);
                tail = &[];
            }
            None => dnode.read(0, &mut target).await?,
        }
        phys.symlink = Some(target);
        phys.order.push(table.number(ZplAttr::Symlink));
    }
    if table.is_legacy() {
        let rest = LegacyRest { meaning: phys.acl.clone(), acl: old.acl, pad: old.pad, tail: tail.to_vec() };
        phys.legacy = Some(Box::new(rest));
    }
    Ok(phys)
}

/// Lets go of a list's own object once the list is another one; the caller frees it.
pub(crate) fn take_replaced_acl(phys: &mut Phys) -> Option<ObjectId> {
    if let Some(rest) = &mut phys.legacy {
        if rest.meaning == phys.acl {
            return None;
        }
        // What was there is not written back even if the list should become the same again: its object is gone.
        (rest.acl, rest.meaning) = (EMPTY_ACL, None);
    }
    phys.external_acl.take()
}

/// The bonus for `phys`.
///
/// # Errors
/// What only system attributes can hold: attributes of other software, a list of more than 72 bytes that was not there
/// before.
pub(crate) fn encode(phys: &Phys) -> Result<Vec<u8>> {
    if !phys.others.is_empty() {
        return Err(ZioError::Invalid("only a file system of version 5 can hold this attribute".into()));
    }
    let rest = phys.legacy.as_deref();
    let acl = match (rest, &phys.acl) {
        (Some(rest), acl) if *acl == rest.meaning => rest.acl.clone(),
        (_, acl) => embedded(acl.as_ref())?,
    };
    let external = phys.external_acl.map_or(0, |object| object.0);
    assert_eq!(acl.external, external, "a list's own object is freed once the znode does not name it, and not before");
    let znode = ZnodePhys {
        atime: phys.atime,
        mtime: phys.mtime,
        ctime: phys.ctime,
        crtime: phys.crtime,
        generation: phys.generation,
        mode: phys.mode,
        size: phys.size,
        parent: phys.parent,
        links: phys.links,
        xattr: phys.xattr.unwrap_or(0),
        rdev: phys.rdev.unwrap_or(0),
        flags: phys.flags,
        uid: phys.uid,
        gid: phys.gid,
        pad: rest.map_or([0; 4], |rest| rest.pad),
        acl,
    };
    let mut bonus = znode.encode().to_vec();
    match &phys.symlink {
        Some(target) if target_fits(target.len()) => bonus.extend_from_slice(target),
        _ => bonus.extend_from_slice(rest.map_or(&[], |rest| &rest.tail)),
    }
    Ok(bonus)
}

fn embedded(acl: Option<&Acl>) -> Result<ZnodeAcl> {
    let mut out = EMPTY_ACL;
    let Some(acl) = acl else { return Ok(out) };
    let Some(place) = out.data.get_mut(..acl.entries.len()) else {
        return Err(ZioError::Invalid(format!(
            "an access control list of {} bytes does not fit a file of a file system before version 5",
            acl.entries.len()
        )));
    };
    place.copy_from_slice(&acl.entries);
    out.size = acl.entries.len() as u32;
    out.count = acl.count as u16;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Timestamp;

    fn file(mode: u64) -> Phys {
        let now = Timestamp { seconds: 1, nanoseconds: 2 };
        Phys::new(FileKind::Regular, mode, 7, now, None, &SaTable::legacy())
    }

    #[test]
    fn every_trivial_list_fits_a_znode() {
        for mode in 0..0o1000 {
            let znode = ZnodePhys::decode(&encode(&file(mode)).unwrap()).unwrap();
            assert_eq!(Acl::from_legacy(&znode.acl, None), file(mode).acl, "{mode:o}");
            assert_eq!(u64::from(znode.acl.version), 1);
        }
    }

    #[test]
    fn an_unchanged_list_stays_where_and_as_it_is() {
        let acl = ZnodeAcl { external: 99, size: 160, version: 1, count: 10, data: [5; ZNODE_ACE_SPACE] };
        let meaning = Some(Acl { count: 10, entries: vec![1; 160] });
        let mut phys = file(0o644);
        phys.acl = meaning.clone();
        phys.external_acl = Some(ObjectId(99));
        phys.legacy = Some(Box::new(LegacyRest { acl: acl.clone(), meaning, pad: [1, 2, 3, 4], tail: vec![9; 32] }));
        let bonus = encode(&phys).unwrap();
        let znode = ZnodePhys::decode(&bonus).unwrap();
        assert_eq!((znode.acl, znode.pad, &bonus[ZNODE_PHYS_SIZE..]), (acl, [1, 2, 3, 4], &[9; 32][..]));
        assert_eq!(take_replaced_acl(&mut phys), None);

        phys.set_mode(0o600);
        assert_eq!(take_replaced_acl(&mut phys), Some(ObjectId(99)));
        assert_eq!(ZnodePhys::decode(&encode(&phys).unwrap()).unwrap().acl.external, 0);
    }

    #[test]
    fn short_targets_lie_in_the_bonus_and_long_ones_do_not() {
        for (length, size) in [(1, 265), (56, 320), (57, 264), (4000, 264)] {
            let mut phys = file(0o777);
            phys.symlink = Some(vec![b'x'; length]);
            assert_eq!(encode(&phys).unwrap().len(), size);
            assert_eq!(target_fits(length), size > 264);
        }
    }

    #[test]
    fn what_only_system_attributes_hold_is_refused() {
        let mut phys = file(0o644);
        phys.acl = Some(Acl { count: 10, entries: vec![0; 80] });
        assert!(encode(&phys).is_err());
        let mut phys = file(0o644);
        phys.others.push((20, vec![1]));
        assert!(encode(&phys).is_err());
    }
}
