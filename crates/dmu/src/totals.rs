//! Which totals per user, group and project an object set keeps, and how far counting for them has come.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use platter_ondisk::objset::{
    OBJSET_FLAG_PROJECTQUOTA_COMPLETE, OBJSET_FLAG_USERACCOUNTING_COMPLETE, OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE,
    OBJSET_PHYS_SIZE_V2, OBJSET_PHYS_SIZE_V3,
};
use platter_ondisk::{ObjectId, ObjsetType};

/// Which totals an object set keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserAccounting {
    /// Space per user and group (pool version 15).
    pub space: bool,
    /// Objects (feature `userobj_accounting`).
    pub objects: bool,
    /// Projects too (feature `project_quota`).
    pub projects: bool,
}

/// Whose totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Totals {
    /// Users'.
    Users,
    /// Groups'.
    Groups,
    /// Projects'.
    Projects,
}

impl Totals {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Users, Self::Groups, Self::Projects];

    /// The ZAP's object number (`DMU_USERUSED_OBJECT` and so on).
    pub fn object(self) -> ObjectId {
        ObjectId(u64::MAX - self as u64)
    }

    pub(crate) fn of(object: ObjectId) -> Option<Self> {
        Self::ALL.into_iter().find(|totals| totals.object() == object)
    }
}

/// The flags of an object set whose totals are complete.
pub(crate) fn complete_flags(keeps: UserAccounting) -> u64 {
    let space = if keeps.space { OBJSET_FLAG_USERACCOUNTING_COMPLETE } else { 0 };
    let objects = if keeps.objects { OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE } else { 0 };
    let projects = if keeps.projects { OBJSET_FLAG_PROJECTQUOTA_COMPLETE } else { 0 };
    space | objects | projects
}

/// Which objects are in the totals of projects while those are counted for the first time. A dnode does not say so: its
/// flags were set when its user's total was first kept, and that may have been long before.
///
/// OpenZFS has no such thing (`dmu_objset_id_quota_upgrade_cb`): it takes old files off totals they were never in.
#[derive(Debug, Default)]
pub(crate) struct Recount {
    /// One bit per object, 64 of them per entry.
    counted: BTreeMap<u64, u64>,
    /// The first group that counts has been synced.
    pub(crate) begun: bool,
}

impl Recount {
    /// Notes that `object` is (or is no longer) in a total; whether it was.
    pub(crate) fn note(&mut self, object: ObjectId, is_in: bool) -> bool {
        let (word, bit) = (self.counted.entry(object.0 / 64).or_default(), 1 << (object.0 % 64));
        let was = *word & bit != 0;
        *word = if is_in { *word | bit } else { *word & !bit };
        was
    }
}

/// The count of an object set whose totals do not have every object (`Objset::account_everything`).
#[derive(Debug, Default)]
pub(crate) struct Counting {
    /// Held by whoever counts.
    pub(crate) running: tokio::sync::Mutex<()>,
    /// Somebody made an object or gave it to somebody else, so that it is to begin with the group that is open.
    pub(crate) wanted: AtomicBool,
    /// One in the background began, and has not ended well: it is not begun again.
    pub(crate) begun: AtomicBool,
    /// One began, whoever wanted it.
    pub(crate) met: AtomicBool,
    /// It is to end early, because the object set is about to be closed.
    pub(crate) given_up: AtomicBool,
}

/// The totals that an object set of this kind and head size can keep. Its head grows with the first group that has
/// projects to count.
pub(crate) fn possible(keeps: UserAccounting, kind: ObjsetType, size: usize) -> UserAccounting {
    let size = if keeps.projects { size.max(OBJSET_PHYS_SIZE_V3) } else { size };
    let space = keeps.space && kind == ObjsetType::ZFS && size >= OBJSET_PHYS_SIZE_V2;
    UserAccounting {
        space,
        objects: space && keeps.objects,
        projects: space && keeps.projects && size >= OBJSET_PHYS_SIZE_V3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recount_knows_each_object() {
        let mut recount = Recount::default();
        for object in [0, 63, 64, 1 << 40] {
            assert!(!recount.note(ObjectId(object), true));
            assert!(recount.note(ObjectId(object), true));
        }
        assert!(recount.note(ObjectId(63), false) && !recount.note(ObjectId(63), false));
        assert!(recount.note(ObjectId(64), false));
    }
}
