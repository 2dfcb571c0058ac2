//! The pool's configuration: the nvlist in the labels and in the MOS (`module/zfs/spa_config.c`,
//! `vdev_config_generate` in `module/zfs/vdev_label.c`).
//!
//! Invariants: pairs this version does not know are kept and written back; guids of a tree are unique (what is no
//! device, as the place of one that was removed, may have none); sizes and counts are bounded when parsed, so that a
//! damaged label cannot ask for memory, and no tree is written that would not be read.

use std::collections::BTreeSet;

use platter_nvlist::{NvList, Value};
use platter_ondisk::names::config::{AUX_STATE, HOLE_ARRAY, IS_HOLE, IS_SPARE, SPLIT};
use platter_ondisk::{Guid, ObjectId, Txg};

use platter_dsl::version::PoolVersion;

/// Most children a vdev may have (OpenZFS allows 255 in raidz, 2^24 at the root; more than this is damage).
const CHILDREN_MAX: usize = 4096;
/// Vdevs of a whole tree: several passes look each one up in all of it.
const VDEVS_MAX: usize = 4 * CHILDREN_MAX;
/// A list of more pairs is damage: no version writes a tenth of that, and each is compared with all others.
const PAIRS_MAX: usize = 512;

/// The reason of a verdict for too many errors.
pub const ERRORS: &str = "err_exceeded";
/// The reason of somebody's own verdict (`zpool offline -f`).
pub const EXTERNAL: &str = "external";

/// `pool_state_t` as stored in labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// In use, or not closed properly.
    Active,
    /// Exported.
    Exported,
    /// Destroyed.
    Destroyed,
    /// Anything else (spare, L2 cache, …).
    Other(u64),
}

impl PoolState {
    fn from_number(n: u64) -> Self {
        match n {
            0 => Self::Active,
            1 => Self::Exported,
            2 => Self::Destroyed,
            n => Self::Other(n),
        }
    }

    fn number(self) -> u64 {
        match self {
            Self::Active => 0,
            Self::Exported => 1,
            Self::Destroyed => 2,
            Self::Other(n) => n,
        }
    }
}

/// One vdev of the configuration tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VdevConfig {
    /// `root`, `raidz`, `mirror`, `disk`, `file`, `missing`, `hole`, `indirect`, `draid`, `replacing`, `spare`, …
    pub kind: String,
    /// Index among its siblings.
    pub id: u64,
    /// Identity.
    pub guid: Guid,
    /// Last known path of a leaf.
    pub path: Option<String>,
    /// Whether OpenZFS partitioned the whole disk itself.
    pub whole_disk: Option<u64>,
    /// Parity of a raidz.
    pub nparity: Option<u64>,
    /// Object listing the metaslabs' space maps; top-level vdevs.
    pub metaslab_array: ObjectId,
    /// log2 of the metaslab size; top-level vdevs.
    pub metaslab_shift: u64,
    /// log2 of the sector size; top-level vdevs.
    pub ashift: u64,
    /// Allocatable bytes (parity included); top-level vdevs.
    pub asize: u64,
    /// Whether it holds intent logs only.
    pub is_log: bool,
    /// Whether no new blocks are put on it; top-level vdevs.
    pub non_allocating: bool,
    /// Group in which it was added.
    pub create_txg: u64,
    /// Space map of the groups it missed; leaves.
    pub dtl: ObjectId,
    /// Its ZAP as a leaf.
    pub leaf_zap: ObjectId,
    /// Its ZAP as a top-level vdev.
    pub top_zap: ObjectId,
    /// Taken offline by hand.
    pub offline: bool,
    /// Taken offline by hand until the next import only; never stored.
    pub offline_for_now: bool,
    /// Declared faulted.
    pub faulted: bool,
    /// Declared degraded: its errors are too many, and it is used all the same.
    pub degraded: bool,
    /// Declared removed.
    pub removed: bool,
    /// Not present when the pool was last written.
    pub not_present: bool,
    /// Children.
    pub children: Vec<VdevConfig>,
    /// Everything else, kept as it was.
    pub other: NvList,
}

/// Names that [`VdevConfig`] parses into fields.
const KNOWN: [&str; 22] = [
    "type",
    "id",
    "guid",
    "path",
    "whole_disk",
    "nparity",
    "metaslab_array",
    "metaslab_shift",
    "ashift",
    "asize",
    "is_log",
    "non_allocating",
    "create_txg",
    "DTL",
    "com.delphix:vdev_zap_leaf",
    "com.delphix:vdev_zap_top",
    "offline",
    "faulted",
    "degraded",
    "removed",
    "not_present",
    "children",
];

/// Whether a verdict is one that outlives the pool's being open. Without a reason it was given for no longer than that
/// (`vdev_alloc`, `module/zfs/vdev.c`).
fn is_lasting(list: &NvList) -> bool {
    matches!(list.get_str(AUX_STATE), Some(ERRORS | EXTERNAL))
}

/// The vdevs that were met in a tree so far.
#[derive(Default)]
struct Known {
    count: usize,
    guids: BTreeSet<Guid>,
}

impl Known {
    fn add(&mut self, guid: Guid) -> Result<(), String> {
        self.count += 1;
        if self.count > VDEVS_MAX {
            return Err(format!("there are more than {VDEVS_MAX} vdevs"));
        }
        // One device in many places would be opened, and have its space maps loaded, for each of them.
        if guid.0 != 0 && !self.guids.insert(guid) {
            return Err(format!("vdev {guid} is there twice"));
        }
        Ok(())
    }
}

impl VdevConfig {
    /// The tree is one that would be read again.
    fn assert_internally_consistent(&self) {
        let mut known = Known::default();
        self.walk(&mut |vdev| assert_eq!(known.add(vdev.guid), Ok(()), "the vdev tree is not one that can be read"));
    }

    /// Parses a vdev tree.
    ///
    /// # Errors
    /// What is missing or out of bounds.
    pub fn parse(list: &NvList) -> Result<Self, String> {
        Self::parse_at(list, 0, &mut Known::default())
    }

    fn parse_at(list: &NvList, depth: u32, known: &mut Known) -> Result<Self, String> {
        if depth > 8 {
            return Err("the vdev tree is nested too deeply".into());
        }
        if list.len() > PAIRS_MAX {
            return Err(format!("a vdev has {} properties", list.len()));
        }
        let kind = list.get_str("type").ok_or("a vdev has no type")?.to_owned();
        let number = |name: &str| list.get_u64(name).unwrap_or(0);
        let guid = Guid(number("guid"));
        if guid.0 == 0 && kind != "hole" && kind != "missing" {
            return Err(format!("a vdev of type {kind} has no guid"));
        }
        known.add(guid)?;
        let ashift = number("ashift");
        if ashift > 16 {
            return Err(format!("vdev {guid}: ashift {ashift} is out of range"));
        }
        let metaslab_shift = number("metaslab_shift");
        if metaslab_shift > 50 {
            return Err(format!("vdev {guid}: metaslab_shift {metaslab_shift} is out of range"));
        }
        let children = list.get_list_array("children").unwrap_or(&[]);
        if children.len() > CHILDREN_MAX {
            return Err(format!("vdev {guid} has {} children", children.len()));
        }
        let children =
            children.iter().map(|child| Self::parse_at(child, depth + 1, known)).collect::<Result<Vec<_>, _>>()?;
        let nparity = list.get_u64("nparity");
        if kind == "raidz" && !nparity.is_some_and(|p| (1..=3).contains(&p) && (p as usize) < children.len()) {
            return Err(format!("raidz vdev {guid}: parity {nparity:?} with {} children", children.len()));
        }
        let mut other = NvList::new();
        for (name, value) in list.iter().filter(|(name, _)| !KNOWN.contains(name)) {
            other.add(name, value.clone());
        }
        Ok(Self {
            kind,
            id: number("id"),
            guid,
            path: list.get_str("path").map(str::to_owned),
            whole_disk: list.get_u64("whole_disk"),
            nparity,
            metaslab_array: ObjectId(number("metaslab_array")),
            metaslab_shift,
            ashift,
            asize: number("asize"),
            is_log: number("is_log") != 0,
            non_allocating: number("non_allocating") != 0,
            create_txg: number("create_txg"),
            dtl: ObjectId(number("DTL")),
            leaf_zap: ObjectId(number("com.delphix:vdev_zap_leaf")),
            top_zap: ObjectId(number("com.delphix:vdev_zap_top")),
            offline: number("offline") != 0,
            offline_for_now: false,
            faulted: number("faulted") != 0 && is_lasting(list),
            degraded: number("degraded") != 0,
            removed: number("removed") != 0,
            not_present: number("not_present") != 0,
            children,
            other,
        })
    }

    /// What stands in the numbering for a top-level vdev that was removed (`vdev_hole_ops`, `module/zfs/vdev.c`).
    pub fn hole(id: u64) -> Self {
        let mut other = NvList::new();
        other.add_u64(IS_HOLE, 1);
        Self { kind: "hole".into(), id, other, ..Self::default() }
    }

    /// The nvlist, with the ZAP objects when it is for the MOS (labels leave them out). `depth` is 0 for the root of
    /// the whole pool, 1 for a top-level vdev, more below.
    pub fn to_nvlist(&self, for_mos: bool, depth: u32) -> NvList {
        let mut list = NvList::new();
        list.add_str("type", &*self.kind).add_u64("id", self.id).add_u64("guid", self.guid.0);
        if let Some(nparity) = self.nparity {
            list.add_u64("nparity", nparity);
        }
        if let Some(path) = &self.path {
            list.add_str("path", &**path);
        }
        if let Some(whole_disk) = self.whole_disk {
            list.add_u64("whole_disk", whole_disk);
        }
        if depth == 1 {
            list.add_u64("metaslab_array", self.metaslab_array.0)
                .add_u64("metaslab_shift", self.metaslab_shift)
                .add_u64("ashift", self.ashift)
                .add_u64("asize", self.asize)
                .add_u64("is_log", u64::from(self.is_log));
            if self.non_allocating {
                list.add_u64("non_allocating", 1);
            }
        }
        if self.dtl.is_some() {
            list.add_u64("DTL", self.dtl.0);
        }
        if self.create_txg != 0 {
            list.add_u64("create_txg", self.create_txg);
        }
        if for_mos {
            if self.leaf_zap.is_some() {
                list.add_u64("com.delphix:vdev_zap_leaf", self.leaf_zap.0);
            }
            if self.top_zap.is_some() {
                list.add_u64("com.delphix:vdev_zap_top", self.top_zap.0);
            }
        }
        for (name, set) in [
            ("offline", self.offline),
            ("faulted", self.faulted),
            ("degraded", self.degraded),
            ("removed", self.removed),
            ("not_present", self.not_present),
        ] {
            if set {
                list.add_u64(name, 1);
            }
        }
        for (name, value) in self.other.iter() {
            list.add(name, value.clone());
        }
        if !self.children.is_empty() {
            list.add_list_array(
                "children",
                self.children.iter().map(|child| child.to_nvlist(for_mos, depth + 1)).collect(),
            );
        }
        list
    }

    /// Whether it has no children by nature.
    pub fn is_leaf(&self) -> bool {
        matches!(&*self.kind, "disk" | "file")
    }

    /// Sum of the guids of this vdev and all below, for the uberblock.
    pub fn guid_sum(&self) -> u64 {
        self.children.iter().fold(self.guid.0, |sum, child| sum.wrapping_add(child.guid_sum()))
    }

    /// This vdev and all below, depth first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        visit(self);
        for child in &self.children {
            child.walk(visit);
        }
    }

    /// This vdev and all below, to change.
    pub fn walk_mut(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        visit(self);
        for child in &mut self.children {
            child.walk_mut(visit);
        }
    }

    /// All leaves.
    pub fn leaves(&self) -> Vec<&Self> {
        let mut leaves = Vec::new();
        self.walk(&mut |vdev| {
            if vdev.is_leaf() {
                leaves.push(vdev);
            }
        });
        leaves
    }
}

/// A whole pool configuration.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// `spa_version`.
    pub version: u64,
    /// Name.
    pub name: String,
    /// The name in labels and MOS, when the pool has another one in memory only (`-t`).
    pub stored_name: Option<String>,
    /// State at the time of writing.
    pub state: PoolState,
    /// Group in which it was written.
    pub txg: Txg,
    /// Pool guid.
    pub guid: Guid,
    /// Host that wrote it.
    pub hostid: Option<u64>,
    /// Its name.
    pub hostname: Option<String>,
    /// Comment property.
    pub comment: Option<String>,
    /// Features that must be understood to read the MOS.
    pub features_for_read: Vec<String>,
    /// Whether vdevs have ZAPs in the MOS. OpenZFS makes them in old pools too, other software of that time does not.
    pub has_vdev_zaps: bool,
    /// Number of top-level vdevs.
    pub vdev_children: u64,
    /// Which of them were removed, as it was found; what is written tells of `vdev_tree`.
    pub holes: Vec<u64>,
    /// In labels: the guid of the top-level vdev the tree describes.
    pub top_guid: Option<Guid>,
    /// In labels: the guid of the device itself.
    pub device_guid: Option<Guid>,
    /// In labels the top-level vdev, in the MOS the root.
    pub vdev_tree: VdevConfig,
    /// Everything else.
    pub other: NvList,
}

const POOL_KNOWN: [&str; 16] = [
    "version",
    "name",
    "state",
    "txg",
    "pool_guid",
    "hostid",
    "hostname",
    "comment",
    "features_for_read",
    "vdev_children",
    HOLE_ARRAY,
    "top_guid",
    "guid",
    // Of one device's label.
    IS_SPARE,
    "vdev_tree",
    "com.delphix:has_per_vdev_zaps",
];

impl PoolConfig {
    /// Parses a configuration.
    ///
    /// # Errors
    /// What is missing or out of bounds.
    pub fn parse(list: &NvList) -> Result<Self, String> {
        let need = |name: &str| list.get_u64(name).ok_or_else(|| format!("the configuration has no {name}"));
        if list.len() > PAIRS_MAX {
            return Err(format!("the configuration has {} properties", list.len()));
        }
        let features = list.get_list("features_for_read");
        if let Some(many) = features.map(NvList::len).filter(|&many| many > PAIRS_MAX) {
            return Err(format!("the configuration names {many} features"));
        }
        let tree = list.get_list("vdev_tree").ok_or("the configuration has no vdev tree")?;
        let mut other = NvList::new();
        for (name, value) in list.iter().filter(|(name, _)| !POOL_KNOWN.contains(name)) {
            other.add(name, value.clone());
        }
        let vdev_children = list.get_u64("vdev_children").unwrap_or(1);
        if vdev_children > CHILDREN_MAX as u64 {
            return Err(format!("{vdev_children} top-level vdevs"));
        }
        Ok(Self {
            version: need("version")?,
            name: list.get_str("name").ok_or("the configuration has no pool name")?.to_owned(),
            stored_name: None,
            state: PoolState::from_number(need("state")?),
            txg: Txg(need("txg")?),
            guid: Guid(need("pool_guid")?),
            hostid: list.get_u64("hostid"),
            hostname: list.get_str("hostname").map(str::to_owned),
            comment: list.get_str("comment").map(str::to_owned),
            features_for_read: features
                .map(|features| features.iter().map(|(name, _)| name.to_owned()).collect())
                .unwrap_or_default(),
            has_vdev_zaps: list.contains("com.delphix:has_per_vdev_zaps"),
            vdev_children,
            holes: list.get_u64_array(HOLE_ARRAY).map(<[u64]>::to_vec).unwrap_or_default(),
            top_guid: list.get_u64("top_guid").map(Guid),
            device_guid: list.get_u64("guid").map(Guid),
            vdev_tree: VdevConfig::parse(tree)?,
            other,
        })
    }

    fn common(&self, txg: Txg) -> NvList {
        let mut list = NvList::new();
        list.add_u64("version", self.version)
            .add_str("name", self.stored_name.as_deref().unwrap_or(&self.name))
            .add_u64("state", self.state.number())
            .add_u64("txg", txg.0)
            .add_u64("pool_guid", self.guid.0);
        if !self.other.contains("errata") {
            list.add_u64("errata", 0);
        }
        if let Some(comment) = &self.comment {
            list.add_str("comment", &**comment);
        }
        if let Some(hostid) = self.hostid.filter(|&id| id != 0) {
            list.add_u64("hostid", hostid);
        }
        if let Some(hostname) = &self.hostname {
            list.add_str("hostname", &**hostname);
        }
        for (name, value) in self.other.iter() {
            list.add(name, value.clone());
        }
        list
    }

    fn add_features(&self, list: &mut NvList) {
        if !PoolVersion(self.version).has_features() {
            return;
        }
        let mut features = NvList::new();
        for name in &self.features_for_read {
            features.add_flag(&**name);
        }
        list.add_list("features_for_read", features);
    }

    /// How many top-level vdevs there are, and which of them were removed (`vdev_top_config_generate`,
    /// `module/zfs/vdev_label.c`).
    fn add_numbering(&self, list: &mut NvList) {
        let tops = &self.vdev_tree.children;
        let holes: Vec<u64> = tops.iter().filter(|top| top.kind == "hole").map(|top| top.id).collect();
        if !holes.is_empty() {
            list.add_u64_array(HOLE_ARRAY, holes);
        }
        list.add_u64("vdev_children", tops.len() as u64);
    }

    /// The nvlist for the MOS; `self.vdev_tree` is the root.
    pub fn to_mos_nvlist(&self, txg: Txg) -> NvList {
        if cfg!(debug_assertions) {
            self.vdev_tree.assert_internally_consistent();
        }
        let mut list = self.common(txg);
        if self.has_vdev_zaps {
            list.add("com.delphix:has_per_vdev_zaps", Value::Boolean);
        }
        self.add_numbering(&mut list);
        list.add_list("vdev_tree", self.vdev_tree.to_nvlist(true, 0));
        self.add_features(&mut list);
        list
    }

    /// The nvlist for the label of leaf `leaf` below top-level vdev `top` of the root `self.vdev_tree`.
    pub fn to_label_nvlist(&self, txg: Txg, top: &VdevConfig, leaf: Guid) -> NvList {
        let mut list = self.common(txg);
        // Only the MOS has which devices leave (`spa_config_generate`).
        list.remove(SPLIT);
        list.add_u64("top_guid", top.guid.0).add_u64("guid", leaf.0);
        let is_spare = top.leaves().iter().any(|own| own.guid == leaf && own.other.get_u64(IS_SPARE) == Some(1));
        if is_spare {
            // Without it nobody lets another pool list a spare that is in use (`zpool_in_use`, lib/libzfs).
            list.add_u64(IS_SPARE, 1);
        }
        self.add_numbering(&mut list);
        list.add_list("vdev_tree", top.to_nvlist(false, 1));
        self.add_features(&mut list);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(guid: u64) -> NvList {
        let mut list = NvList::new();
        list.add_str("type", "disk").add_u64("guid", guid);
        list
    }

    fn root(tops: Vec<NvList>) -> NvList {
        let mut list = NvList::new();
        list.add_str("type", "root").add_u64("guid", 1).add_list_array("children", tops);
        list
    }

    // The same top-level vdev a thousand times: its device was opened and its space maps were loaded for each.
    #[test]
    fn a_vdev_is_in_one_place() {
        assert!(VdevConfig::parse(&root(vec![leaf(2), leaf(3)])).is_ok());
        assert!(VdevConfig::parse(&root(vec![leaf(2), leaf(2)])).is_err());
        assert!(VdevConfig::parse(&root(vec![leaf(1)])).is_err());
        let mut hole = NvList::new();
        hole.add_str("type", "hole").add_u64("guid", 0);
        assert!(VdevConfig::parse(&root(vec![hole.clone(), leaf(2), hole])).is_ok(), "holes are no vdevs");
    }

    // libzfs lets another pool list a spare that is in use only when its label says so beside the guid.
    #[test]
    fn the_label_of_a_spare_in_use_says_so_and_no_other_label_does() {
        let mut spare = leaf(3);
        spare.add_u64(IS_SPARE, 1);
        let mut top = NvList::new();
        top.add_str("type", "spare").add_u64("guid", 9).add_list_array("children", vec![leaf(2), spare]);
        let mut list = NvList::new();
        for name in ["version", "state", "txg", "pool_guid", "vdev_children"] {
            list.add_u64(name, 1);
        }
        list.add_str("name", "tank").add_u64(IS_SPARE, 1).add_list("vdev_tree", root(vec![top]));
        let config = PoolConfig::parse(&list).expect("a configuration");
        let label = |leaf| config.to_label_nvlist(Txg(7), &config.vdev_tree.children[0], Guid(leaf));
        assert_eq!(label(3).get_u64(IS_SPARE), Some(1));
        assert_eq!(label(2).get_u64(IS_SPARE), None, "what one label says is not the pool's");
        assert_eq!(config.to_mos_nvlist(Txg(7)).get_u64(IS_SPARE), None);
    }

    // Each list was short enough, but there were CHILDREN_MAX of them below each other, and several passes look each
    // vdev up in the whole tree.
    #[test]
    fn a_tree_has_a_bounded_number_of_vdevs() {
        let mirror = |first: u64, children: u64| {
            let mut list = NvList::new();
            list.add_str("type", "mirror").add_u64("guid", first);
            list.add_list_array("children", (1..children).map(|child| leaf(first + child)).collect());
            list
        };
        let tree = |mirrors: u64| root((0..mirrors).map(|number| mirror(2 + number * 1024, 1024)).collect());
        assert!(VdevConfig::parse(&tree(15)).is_ok());
        assert!(VdevConfig::parse(&tree(17)).is_err());
    }

    #[test]
    fn features_of_a_label_are_as_few_as_its_other_pairs() {
        let config = |features: u64| {
            let mut named = NvList::new();
            named.flags = 0;
            for number in 0..features {
                named.add_flag(format!("org.example:{number}"));
            }
            let mut list = NvList::new();
            list.add_u64("version", 5000).add_str("name", "tank").add_u64("state", 0).add_u64("txg", 4);
            list.add_u64("pool_guid", 1)
                .add_list("features_for_read", named)
                .add_list("vdev_tree", root(vec![leaf(2)]));
            PoolConfig::parse(&list)
        };
        assert!(config(PAIRS_MAX as u64).is_ok());
        assert!(config(PAIRS_MAX as u64 + 1).is_err());
    }
}
