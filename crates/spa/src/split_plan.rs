//! Which devices `zpool split` takes, and what the new pool is made of (`zpool_vdev_split`,
//! `lib/libzfs/libzfs_pool.c`; `spa_vdev_split_mirror`, `module/zfs/spa.c`).

use std::path::PathBuf;

use platter_api::report::VdevReport;
use platter_dsl::error::{PoolError, Result};
use platter_ondisk::Guid;

use crate::config::VdevConfig;
use crate::vdev_names::vdev_name;

/// Whether nothing of a top-level vdev goes along: its number stays taken.
fn stays(top: &VdevConfig) -> bool {
    top.is_log || top.kind == "hole"
}

/// The top-level vdevs that have a place in the new pool: those behind the last one that goes along have none.
fn numbered(root: &VdevConfig) -> &[VdevConfig] {
    let count = root.children.iter().rposition(|top| !stays(top)).map_or(0, |last| last + 1);
    &root.children[..count]
}

/// The child that leaves each top-level vdev, by number; none where nothing goes along. `named` are the leaves that
/// each name on the command line means.
///
/// # Errors
/// In OpenZFS's words: not all are mirrors; names that mean nothing here, or two sides of one mirror.
pub fn choose(root: &VdevConfig, named: &[Vec<Guid>]) -> Result<Vec<Option<VdevConfig>>> {
    let (mut chosen, mut found) = (Vec::new(), 0);
    for top in numbered(root) {
        if stays(top) {
            chosen.push(None);
            continue;
        }
        if top.kind != "mirror" {
            return Err(PoolError::invalid("Source pool must be composed only of mirrors"));
        }
        let is_named = |child: &&VdevConfig| named.iter().any(|guids| guids.contains(&child.guid));
        let one = top.children.iter().find(is_named);
        found += usize::from(one.is_some());
        chosen.push(one.or(top.children.last()).cloned());
    }
    if found != named.len() {
        return Err(PoolError::invalid("Device list must include at most one disk from each mirror"));
    }
    if chosen.is_empty() {
        return Err(PoolError::invalid("Source pool must be composed only of mirrors"));
    }
    Ok(chosen)
}

/// What `split -n` shows of the new pool.
pub fn layout(name: &str, chosen: &[Option<VdevConfig>]) -> VdevReport {
    let report = |vdev: &VdevConfig| VdevReport {
        name: vdev_name(vdev, "", vdev.path.as_ref().map(PathBuf::from).as_ref()),
        kind: vdev.kind.clone(),
        guid: vdev.guid.0,
        path: vdev.path.clone(),
        ..VdevReport::default()
    };
    VdevReport {
        name: name.to_owned(),
        kind: "root".into(),
        children: chosen.iter().flatten().map(report).collect(),
        ..VdevReport::default()
    }
}

/// What a new pool has of the old one, and what it leaves.
#[derive(Debug, PartialEq)]
pub struct Division {
    /// Its top-level vdevs: the devices that left, and holes.
    pub tops: Vec<VdevConfig>,
    /// Leaves of mirrors whose other side it has.
    pub left: Vec<VdevConfig>,
    /// Top-level vdevs of which it has nothing.
    pub left_tops: Vec<VdevConfig>,
}

/// Divides the vdevs that a pool had in the group with which the new one begins. Each device that leaves has what its
/// mirror had: space maps, sizes, and the mirror's ZAP beside its own.
///
/// # Errors
/// A mirror of which none leaves, or one that is not there any more.
pub fn divide(root: &VdevConfig, leaving: &[Guid]) -> Result<Division> {
    let mut division = Division { tops: Vec::new(), left: Vec::new(), left_tops: Vec::new() };
    for top in &root.children {
        if stays(top) {
            division.tops.push(VdevConfig::hole(top.id));
            division.left_tops.extend((top.kind != "hole").then(|| top.clone()));
            continue;
        }
        let side = top.children.iter().find(|child| child.is_leaf() && leaving.contains(&child.guid));
        let Some(side) = side.filter(|_| top.kind == "mirror") else {
            return Err(PoolError::Busy("the pool's devices changed meanwhile: try again".into()));
        };
        division.left.extend(top.leaves().into_iter().filter(|leaf| leaf.guid != side.guid).cloned());
        division.tops.push(VdevConfig {
            id: top.id,
            metaslab_array: top.metaslab_array,
            metaslab_shift: top.metaslab_shift,
            ashift: top.ashift,
            asize: top.asize,
            top_zap: top.top_zap,
            ..side.clone()
        });
    }
    division.tops.truncate(numbered(root).len());
    Ok(division)
}

#[cfg(test)]
mod tests {
    use platter_ondisk::ObjectId;

    use super::*;

    fn leaf(id: u64, guid: u64) -> VdevConfig {
        let path = Some(format!("/d{guid}"));
        VdevConfig {
            kind: "file".into(),
            id,
            guid: Guid(guid),
            path,
            leaf_zap: ObjectId(guid),
            ..VdevConfig::default()
        }
    }

    fn mirror(id: u64, guids: &[u64]) -> VdevConfig {
        VdevConfig {
            kind: "mirror".into(),
            id,
            guid: Guid(1000 + id),
            ashift: 12,
            asize: 1 << 30,
            top_zap: ObjectId(2000 + id),
            metaslab_array: ObjectId(3000 + id),
            children: (0..).zip(guids).map(|(id, guid)| leaf(id, *guid)).collect(),
            ..VdevConfig::default()
        }
    }

    fn log(id: u64) -> VdevConfig {
        VdevConfig { is_log: true, ..leaf(id, 500 + id) }
    }

    fn root(children: Vec<VdevConfig>) -> VdevConfig {
        VdevConfig { kind: "root".into(), guid: Guid(1), children, ..VdevConfig::default() }
    }

    fn chosen(root: &VdevConfig, named: &[u64]) -> std::result::Result<Vec<u64>, String> {
        let named: Vec<Vec<Guid>> = named.iter().map(|guid| vec![Guid(*guid)]).collect();
        let chosen = choose(root, &named).map_err(|error| error.to_string())?;
        Ok(chosen.iter().map(|vdev| vdev.as_ref().map_or(0, |vdev| vdev.guid.0)).collect())
    }

    #[test]
    fn the_last_side_of_each_mirror_leaves_where_no_other_is_named() {
        let pool = root(vec![mirror(0, &[10, 11]), log(1), mirror(2, &[20, 21, 22]), VdevConfig::hole(3), log(4)]);
        assert_eq!(chosen(&pool, &[]), Ok(vec![11, 0, 22]));
        assert_eq!(chosen(&pool, &[20]), Ok(vec![11, 0, 20]));
        assert_eq!(chosen(&pool, &[20, 10]), Ok(vec![10, 0, 20]));
        let twice = Err("Device list must include at most one disk from each mirror".to_owned());
        for bad in [&[20, 21][..], &[20, 20], &[20, 99], &[501]] {
            assert_eq!(chosen(&pool, bad), twice, "{bad:?}");
        }
    }

    #[test]
    fn only_mirrors_are_split() {
        let only = Err("Source pool must be composed only of mirrors".to_owned());
        assert_eq!(chosen(&root(vec![leaf(0, 10)]), &[]), only);
        assert_eq!(chosen(&root(vec![mirror(0, &[10, 11]), leaf(1, 12)]), &[]), only);
        assert_eq!(chosen(&root(vec![log(0)]), &[]), only);
    }

    #[test]
    fn what_leaves_has_what_its_mirror_had_and_the_rest_is_left() {
        let pool = root(vec![mirror(0, &[10, 11]), log(1), mirror(2, &[20, 21, 22]), VdevConfig::hole(3), log(4)]);
        let Division { tops, left, left_tops } = divide(&pool, &[Guid(11), Guid(20)]).expect("it can be divided");
        let shown: Vec<_> = tops.iter().map(|top| (top.id, top.kind.as_str(), top.guid.0)).collect();
        assert_eq!(shown, [(0, "file", 11), (1, "hole", 0), (2, "file", 20)]);
        let second = &tops[2];
        assert_eq!((second.top_zap, second.leaf_zap), (ObjectId(2002), ObjectId(20)));
        assert_eq!((second.metaslab_array, second.ashift, second.asize), (ObjectId(3002), 12, 1 << 30));
        assert_eq!(left.iter().map(|leaf| leaf.guid.0).collect::<Vec<_>>(), [10, 21, 22]);
        assert_eq!(left_tops.iter().map(|top| top.id).collect::<Vec<_>>(), [1, 4]);
        assert!(divide(&pool, &[Guid(11)]).is_err(), "of each mirror one leaves");
    }
}
