//! The way to one object in a walk through an object set: which blocks of the meta-dnode lead there.
//!
//! A walk goes from the left, so the first blocks of the meta-dnode that it shows may be above the object's dnode; from
//! that dnode's own block on, they are behind it.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use platter_dmu::changes::SPILL_BLOCK;
use platter_ondisk::ObjectId;
use platter_ondisk::dnode::DNODES_PER_BLOCK;
use platter_zio::Bookmark;

/// Of the blocks of an intent log ([`Bookmark::level`]).
pub const LOG_LEVEL: i8 = -2;

const META: ObjectId = ObjectId(0);

/// Where a walk has come on its way to an object.
#[derive(Debug)]
pub struct ObjectPath {
    object: ObjectId,
    /// Whether the block of its dnode has come, or one behind that.
    has_come: AtomicBool,
    /// The last block that led there.
    leading: Mutex<Option<Bookmark>>,
}

/// After what a walk of an object set has to begin to come to an object soon: all of the object before it was seen.
pub fn before(objset: ObjectId, object: ObjectId) -> Option<Bookmark> {
    let before = Bookmark { objset, object: ObjectId(object.0.saturating_sub(1)), level: 0, blkid: SPILL_BLOCK };
    (object.0 > 1).then_some(before)
}

impl ObjectPath {
    /// At the beginning of a walk.
    pub fn to(object: ObjectId) -> Self {
        Self { object, has_come: AtomicBool::new(false), leading: Mutex::new(None) }
    }

    /// Notes that a block comes, with those of an object in the order of a walk; whether it leads to the object.
    pub fn comes(&self, bookmark: Bookmark) -> bool {
        if bookmark.object != META || bookmark.level <= LOG_LEVEL {
            return false;
        }
        let own = self.object.0 / DNODES_PER_BLOCK as u64;
        let was_before = match bookmark.level {
            0 if bookmark.blkid >= own => !self.has_come.swap(true, Ordering::AcqRel),
            _ => !self.has_come.load(Ordering::Acquire),
        };
        let leads = was_before && (bookmark.level != 0 || bookmark.blkid == own);
        if leads {
            *self.leading.lock() = Some(bookmark);
        }
        leads
    }

    /// Whether a block that has not come yet may lead to the object.
    pub fn may_lead(&self, bookmark: Bookmark) -> bool {
        let is_on_way = match bookmark.level {
            0 => bookmark.blkid == self.object.0 / DNODES_PER_BLOCK as u64,
            _ => bookmark.level > LOG_LEVEL,
        };
        bookmark.object == META && is_on_way && !self.has_come.load(Ordering::Acquire)
    }

    /// Whether the block that came last has something of the object, or leads to it.
    pub fn is_part(&self, bookmark: Bookmark) -> bool {
        bookmark.object == self.object || *self.leading.lock() == Some(bookmark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_the_dnode_leads_nowhere() {
        let block = |level, blkid| Bookmark { objset: ObjectId(54), object: META, level, blkid };
        let path = ObjectPath::to(ObjectId(70));
        assert!([block(-1, 0), block(2, 0), block(1, 0)].into_iter().all(|above| path.comes(above)));
        assert!(!path.comes(block(LOG_LEVEL, 0)) && !path.comes(block(0, 1)));
        assert!(!path.comes(Bookmark { object: ObjectId(69), ..block(0, 0) }));
        // Those that are asked about earlier do not come by that.
        assert!(!path.may_lead(block(0, 3)) && !path.may_lead(block(LOG_LEVEL, 0)) && path.may_lead(block(1, 0)));
        assert!(path.may_lead(block(0, 2)) && !path.may_lead(Bookmark { object: ObjectId(70), ..block(1, 0) }));
        assert!(path.comes(block(0, 2)) && path.is_part(block(0, 2)) && !path.is_part(block(0, 3)));
        assert!(!path.comes(block(0, 2)) && !path.comes(block(0, 3)) && !path.comes(block(1, 1)));
        assert!(!path.may_lead(block(0, 2)) && !path.may_lead(block(1, 1)), "it has come");
        // Its dnode's block is a hole.
        let path = ObjectPath::to(ObjectId(70));
        assert!(!path.comes(block(0, 3)) && !path.comes(block(1, 1)));
    }
}
