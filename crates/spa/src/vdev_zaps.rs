//! Which object has a vdev's properties, and what is there (`vdev_prop_get_objid` and `vdev_load`,
//! `module/zfs/vdev.c`): the root's ZAP, where the pool has one; a top-level vdev's; for what is below, the leaf's.
//!
//! Invariants:
//! - what is in memory is what the objects have, by object, so that it goes where the object goes when vdevs get
//!   another parent;
//! - what cannot be read, or is more than anybody sets, is passed over: no property keeps a pool from being opened.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_api::faults::Limits;
use platter_api::vdev_properties::{ALLOCATING, AUTOSIT, FAILFAST, VdevProperties, is_possible_text, limit_names};
use platter_dmu::Objset;
use platter_dmu::zap::Zap;
use platter_ondisk::names::config::VDEV_ROOT_ZAP;
use platter_ondisk::{Guid, ObjectId};

use crate::config::VdevConfig;

/// Entries of one ZAP that are looked at.
const ENTRIES_MAX: usize = 1 << 14;
/// Entries that are read at a time.
const PART: usize = 64;
/// Bytes of all names and texts of a pool's vdevs.
const BYTES_MAX: usize = 16 << 20;

/// Properties by the object that has them; vdevs without any are left out.
pub type Stored = BTreeMap<ObjectId, VdevProperties>;

/// Where a vdev is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The whole pool.
    Root,
    /// Blocks are put there.
    Top,
    /// Below a top-level vdev.
    Below,
}

/// A vdev of this guid, and where it is.
pub fn find(tree: &VdevConfig, guid: Guid) -> Option<(VdevConfig, Place)> {
    if tree.guid == guid {
        return Some((tree.clone(), Place::Root));
    }
    if let Some(top) = tree.children.iter().find(|top| top.guid == guid) {
        return Some((top.clone(), Place::Top));
    }
    let mut found = None;
    tree.walk(&mut |vdev| {
        if vdev.guid == guid {
            found = Some((vdev.clone(), Place::Below));
        }
    });
    found
}

/// The object that has a vdev's properties, if it can have some: a nested vdev, or one of an old pool, cannot.
pub fn object(vdev: &VdevConfig, place: Place) -> Option<ObjectId> {
    let object = match place {
        Place::Root => ObjectId(vdev.other.get_u64(VDEV_ROOT_ZAP).unwrap_or(0)),
        Place::Top => vdev.top_zap,
        Place::Below => vdev.leaf_zap,
    };
    object.is_some().then_some(object)
}

/// What is set of a vdev's properties. What earlier versions set of a device that is a top-level vdev by itself is in
/// its ZAP as a leaf.
pub fn of(stored: &Mutex<Stored>, vdev: &VdevConfig, place: Place) -> VdevProperties {
    let stored = stored.lock();
    let mut own = object(vdev, place).and_then(|object| stored.get(&object)).cloned().unwrap_or_default();
    if place == Place::Top
        && let Some(as_leaf) = stored.get(&vdev.leaf_zap)
    {
        as_leaf.numbers.iter().for_each(|(name, number)| _ = own.numbers.entry(name.clone()).or_insert(*number));
    }
    own
}

/// The limits of errors of each leaf that has some, its top-level vdev's where it has none of its own.
pub fn limits(stored: &Mutex<Stored>, root: &VdevConfig) -> BTreeMap<Guid, Limits> {
    let mut limits = BTreeMap::new();
    if stored.lock().is_empty() {
        return limits;
    }
    for top in &root.children {
        let above = of(stored, top, Place::Top);
        for leaf in top.leaves() {
            let own = if leaf.guid == top.guid { above.clone() } else { of(stored, leaf, Place::Below) };
            limits.insert(leaf.guid, own.limits(Some(&above)));
        }
    }
    limits.retain(|_, limits| *limits != Limits::default());
    limits
}

/// Reads the properties of all vdevs.
pub async fn load(os: &Arc<Objset>, root: &VdevConfig, pool: &str) -> Stored {
    let mut objects: Vec<ObjectId> = object(root, Place::Root).into_iter().collect();
    for top in &root.children {
        objects.push(top.top_zap);
        objects.extend(top.leaves().iter().map(|leaf| leaf.leaf_zap));
    }
    let (mut stored, mut room) = (Stored::new(), BYTES_MAX);
    for object in objects.into_iter().filter(|object| object.is_some()) {
        match read(os, object, &mut room).await {
            Ok(properties) if !properties.is_empty() => _ = stored.insert(object, properties),
            Ok(_) => {}
            Err(error) => tracing::warn!(pool, %error, "properties of a vdev, in object {object}, are not known"),
        }
    }
    let texts = stored.values().flat_map(|properties: &VdevProperties| &properties.texts);
    let kept: usize = texts.map(|(name, text)| name.len() + text.len()).sum();
    assert!(kept <= BYTES_MAX, "more is kept than is wanted");
    if room == 0 {
        tracing::warn!(pool, "not all properties of its vdevs are known: they have more than {BYTES_MAX} bytes");
    }
    stored
}

/// Reads what one ZAP has of properties, as long as there is room for it.
async fn read(os: &Arc<Objset>, object: ObjectId, room: &mut usize) -> platter_dmu::Result<VdevProperties> {
    let is_number =
        |name: &str| matches!(name, ALLOCATING | FAILFAST | AUTOSIT) || limit_names().any(|own| own == name);
    let zap = Zap::open(os, object).await?;
    let (mut properties, mut cursor, mut count) = (VdevProperties::default(), 0, 0);
    while count < ENTRIES_MAX {
        let entries = zap.entries(cursor, PART).await?;
        let Some(last) = entries.last() else { break };
        (cursor, count) = (last.cursor, count + entries.len());
        for entry in entries {
            let Ok(name) = String::from_utf8(entry.name) else { continue };
            if let ([number], 8) = (&entry.value.integers[..], entry.value.integer_size) {
                if is_number(&name) {
                    properties.numbers.insert(name, *number);
                }
                continue;
            }
            let Some(text) = entry.value.to_text().filter(|text| is_possible_text(&name, text)) else { continue };
            let size = name.len() + text.len();
            if size > *room {
                *room = 0;
                return Ok(properties);
            }
            *room -= size;
            properties.texts.insert(name, text);
        }
    }
    Ok(properties)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(kind: &str, guid: u64, zaps: (u64, u64), children: Vec<VdevConfig>) -> VdevConfig {
        VdevConfig {
            kind: kind.into(),
            guid: Guid(guid),
            top_zap: ObjectId(zaps.0),
            leaf_zap: ObjectId(zaps.1),
            children,
            ..VdevConfig::default()
        }
    }

    fn stored(pairs: &[(u64, &str, u64)]) -> Mutex<Stored> {
        let mut stored = Stored::new();
        for (object, name, number) in pairs {
            stored.entry(ObjectId(*object)).or_default().numbers.insert((*name).to_owned(), *number);
        }
        Mutex::new(stored)
    }

    #[test]
    fn a_vdev_s_properties_are_where_openzfs_has_them() {
        let mirror = vdev("mirror", 2, (12, 0), vec![vdev("file", 3, (0, 13), vec![])]);
        let mut root = vdev("root", 1, (0, 0), vec![mirror, vdev("file", 4, (14, 15), vec![])]);
        let at = |root: &VdevConfig, guid| find(root, Guid(guid)).map(|(vdev, place)| (place, object(&vdev, place)));
        assert_eq!(at(&root, 1), Some((Place::Root, None)));
        root.other.add_u64(VDEV_ROOT_ZAP, 11);
        assert_eq!(at(&root, 1), Some((Place::Root, Some(ObjectId(11)))));
        assert_eq!(at(&root, 2), Some((Place::Top, Some(ObjectId(12)))));
        assert_eq!(at(&root, 3), Some((Place::Below, Some(ObjectId(13)))));
        assert_eq!(at(&root, 4), Some((Place::Top, Some(ObjectId(14)))), "a device by itself is a top-level vdev");
        assert_eq!(at(&root, 5), None);
    }

    #[test]
    fn limits_come_from_the_leaf_then_from_above_then_from_where_they_once_were() {
        let mirror = vdev("mirror", 2, (12, 0), vec![vdev("file", 3, (0, 13), vec![])]);
        let root = vdev("root", 1, (0, 0), vec![mirror, vdev("file", 4, (14, 15), vec![])]);
        let stored = stored(&[(12, "io_n", 5), (12, "io_t", 50), (13, "io_n", 3), (15, "io_n", 9)]);
        let limits = limits(&stored, &root);
        assert_eq!(limits[&Guid(3)].io, (Some(3), Some(50)));
        assert_eq!(limits[&Guid(4)].io, (Some(9), None));
        stored.lock().entry(ObjectId(14)).or_default().numbers.insert("io_n".into(), 1);
        assert_eq!(super::limits(&stored, &root)[&Guid(4)].io, (Some(1), None));
    }
}
