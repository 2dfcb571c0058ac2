//! What the file system must hold: a plain model of files, folders and the pool, changed in the smallest steps that a
//! crash may divide.
//!
//! Invariants:
//! - a step that was lost together with what it needs (the file it writes to was never made) changes nothing;
//! - what a name leads to is there, and has at least as many links as names.

use std::collections::{BTreeMap, BTreeSet};

use super::branches::Branches;

/// The file system that is worked on.
pub const FILESYSTEM: &str = "tank/fs";

/// The volume that is there from the beginning.
pub const VOLUME: &str = "tank/volume";
/// Its bytes at first.
pub const VOLUME_SIZE: usize = 64 << 10;

/// A file, folder or symbolic link of the model.
pub type NodeId = usize;

/// The root folder.
pub const ROOT: NodeId = 0;

/// A name in a folder.
pub type Place = (NodeId, &'static str);

/// The smallest change that is there as a whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A new object under a name.
    Create(Place, NodeId, Content),
    /// One more name for a file.
    Link(Place, NodeId),
    /// A name goes, and its object when it was the last.
    Unlink(Place),
    /// From the first to the second; what was there goes.
    Rename(Place, Place),
    /// Bytes of a file from an offset on.
    Write(NodeId, usize, Vec<u8>),
    /// A file's size.
    Truncate(NodeId, usize),
    /// An extended attribute; `None` takes it away.
    Xattr(NodeId, &'static str, Option<Vec<u8>>),
    /// Permission bits.
    Mode(NodeId, u32),
    /// A data set comes or goes.
    Dataset(&'static str, bool),
    /// Property `compression` of the file system.
    Compression(&'static str),
    /// What the disk that was in no pool is from now on.
    Disk(Role),
    /// A snapshot of the file system.
    Snapshot(&'static str),
    /// A snapshot goes, whosever it is.
    DestroySnapshot(&'static str),
    /// A data set that begins as what a snapshot is: its name, and the snapshot's own.
    Clone(&'static str, &'static str),
    /// The first bytes of a clone's file under a name in its root.
    WriteClone(&'static str, &'static str, Vec<u8>),
    /// A clone goes.
    DestroyClone(&'static str),
    /// A clone and what it was made of change places.
    Promote(&'static str),
    /// The file system becomes what its latest snapshot is.
    Rollback,
    /// Bytes of the volume from an offset on.
    WriteVolume(usize, Vec<u8>),
    /// So many bytes of the volume from an offset on become zeros.
    ClearVolume(usize, usize),
    /// The volume's size.
    ResizeVolume(usize),
}

/// What the disk is that is in no pool at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// In no pool.
    #[default]
    Idle,
    /// A top-level vdev.
    Vdev,
    /// The separate intent log.
    Log,
    /// The log, offline.
    LogOffline,
    /// A cache device.
    Cache,
    /// In the first disk's place.
    Member,
    /// Beside the first disk.
    Side,
    /// A hot spare.
    Spare,
    /// A hot spare that stands in for the first disk.
    StandIn,
    /// In no pool, and labelled as a spare.
    Gone,
    /// In a pool that was split off.
    Twin,
}

/// Which steps must keep their order in the intent log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Names: all file systems' operations on them are logged in order.
    Names,
    /// What concerns one file only, which waits for an `fsync` of that file.
    File(NodeId),
    /// What concerns the volume, which has a log of its own.
    Volume,
    /// Never in the log.
    Pool,
}

impl Step {
    /// Where the step stands in the intent log.
    pub fn stream(&self) -> Stream {
        match self {
            Self::Create(..) | Self::Link(..) | Self::Unlink(_) | Self::Rename(..) => Stream::Names,
            Self::Write(node, ..) | Self::Truncate(node, _) | Self::Xattr(node, ..) | Self::Mode(node, _) => {
                Stream::File(*node)
            }
            Self::Dataset(..) | Self::Compression(_) | Self::Disk(_) => Stream::Pool,
            Self::Snapshot(_) | Self::DestroySnapshot(_) | Self::Clone(..) | Self::WriteClone(..) => Stream::Pool,
            Self::DestroyClone(_) | Self::Promote(_) | Self::Rollback | Self::ResizeVolume(_) => Stream::Pool,
            Self::WriteVolume(..) | Self::ClearVolume(..) => Stream::Volume,
        }
    }
}

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes.
    File(Vec<u8>),
    /// Names.
    Folder(BTreeMap<&'static str, NodeId>),
    /// Where it leads.
    Symlink(Vec<u8>),
}

/// Objects by number.
pub type Nodes = BTreeMap<NodeId, Node>;

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    content: Content,
    mode: u32,
    xattrs: BTreeMap<&'static str, Vec<u8>>,
    links: u32,
}

/// The whole state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    nodes: Nodes,
    volume: Vec<u8>,
    branches: Branches<Nodes>,
    datasets: BTreeSet<&'static str>,
    compression: &'static str,
    role: Role,
    /// Whether the first disk may have others beside it.
    mirrors: bool,
    /// Top-level vdevs at first.
    tops: usize,
}

impl Default for Model {
    fn default() -> Self {
        let root = Node { content: Content::Folder(BTreeMap::new()), mode: 0o755, xattrs: BTreeMap::new(), links: 2 };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            volume: vec![0; VOLUME_SIZE],
            branches: Branches::default(),
            datasets: BTreeSet::new(),
            compression: "on",
            role: Role::Idle,
            mirrors: false,
            tops: 1,
        }
    }
}

/// One object as whoever walks the tree sees it, under one of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `file`, `folder` or `symlink`.
    pub kind: &'static str,
    /// Permission bits.
    pub mode: u32,
    /// Names it has; folders count none.
    pub links: u32,
    /// The first of its paths in alphabetical order: two names of one file have the same.
    pub first_path: String,
    /// Bytes of a file, target of a link.
    pub bytes: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Everything that is compared after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The tree, by path.
    pub tree: BTreeMap<String, Seen>,
    /// Data sets below the pool's root.
    pub datasets: BTreeSet<String>,
    /// Property `compression` of the file system.
    pub compression: String,
    /// Top-level vdevs.
    pub vdevs: usize,
    /// Cache devices.
    pub caches: usize,
    /// Hot spares, those included that stand in for others.
    pub spares: usize,
    /// What the volume holds.
    pub volume: Vec<u8>,
    /// The trees of snapshots and clones, by full name.
    pub others: BTreeMap<String, BTreeMap<String, Seen>>,
}

/// The object under a name of some.
fn find(nodes: &Nodes, place: Place) -> Option<NodeId> {
    match &nodes.get(&place.0)?.content {
        Content::Folder(entries) => entries.get(place.1).copied(),
        _ => None,
    }
}

/// Calls `each` with the path and the number of all that is below a folder.
fn walk(nodes: &Nodes, folder: NodeId, path: &str, each: &mut dyn FnMut(&str, NodeId)) {
    let Some(Content::Folder(entries)) = nodes.get(&folder).map(|node| &node.content) else { return };
    for (name, &node) in entries {
        let path = format!("{path}/{name}");
        each(&path, node);
        walk(nodes, node, &path, each);
    }
}

/// What a walk of them sees.
fn tree(nodes: &Nodes) -> BTreeMap<String, Seen> {
    let (mut tree, mut first) = (BTreeMap::new(), BTreeMap::<NodeId, String>::new());
    walk(nodes, ROOT, "", &mut |path, node| {
        let known = first.entry(node).or_insert_with(|| path.to_owned());
        if *path < **known {
            *known = path.to_owned();
        }
    });
    walk(nodes, ROOT, "", &mut |path, id| {
        let node = &nodes[&id];
        let (kind, bytes) = match &node.content {
            Content::File(bytes) => ("file", bytes.clone()),
            Content::Folder(_) => ("folder", Vec::new()),
            Content::Symlink(target) => ("symlink", target.clone()),
        };
        let xattrs = node.xattrs.iter().map(|(&name, value)| (name.to_owned(), value.clone())).collect();
        let links = if kind == "folder" { 0 } else { node.links };
        let seen = Seen { kind, mode: node.mode, links, first_path: first[&id].clone(), bytes, xattrs };
        tree.insert(path.to_owned(), seen);
    });
    tree
}

impl Model {
    fn entries(&mut self, folder: NodeId) -> Option<&mut BTreeMap<&'static str, NodeId>> {
        match &mut self.nodes.get_mut(&folder)?.content {
            Content::Folder(entries) => Some(entries),
            _ => None,
        }
    }

    /// The object under a name.
    pub fn find(&self, place: Place) -> Option<NodeId> {
        find(&self.nodes, place)
    }

    /// Its snapshots and clones.
    pub fn branches(&self) -> &Branches<Nodes> {
        &self.branches
    }

    /// What an object holds.
    pub fn content(&self, node: NodeId) -> Option<&Content> {
        self.nodes.get(&node).map(|node| &node.content)
    }

    /// Whether an object has an extended attribute.
    pub fn has_xattr(&self, node: NodeId, name: &str) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.xattrs.contains_key(name))
    }

    /// Whether a data set is there.
    pub fn has_dataset(&self, name: &str) -> bool {
        self.datasets.contains(name)
    }

    /// What the volume holds.
    pub fn volume(&self) -> &[u8] {
        &self.volume
    }

    /// What the disk is that is in no pool at first.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Says of how many top-level vdevs the pool is made.
    pub fn set_tops(&mut self, tops: usize) {
        self.tops = tops;
    }

    /// Whether it is a pool of several mirrors.
    pub fn is_of_mirrors(&self) -> bool {
        self.tops > 1
    }

    /// Says whether the first disk may have others beside it.
    pub fn set_mirrors(&mut self, mirrors: bool) {
        self.mirrors = mirrors;
    }

    /// Whether the first disk may have others beside it.
    pub fn has_mirrors(&self) -> bool {
        self.mirrors
    }

    /// A number that no object has had.
    pub fn next_node(&self) -> NodeId {
        self.nodes.keys().next_back().map_or(0, |last| last + 1)
    }

    fn drop_name(&mut self, place: Place) {
        let Some(node) = self.entries(place.0).and_then(|entries| entries.remove(place.1)) else { return };
        if let Some(found) = self.nodes.get_mut(&node) {
            found.links -= 1;
            if found.links == 0 || matches!(found.content, Content::Folder(_)) {
                self.nodes.remove(&node);
            }
        }
    }

    fn create(&mut self, place: Place, node: NodeId, content: &Content) {
        if self.find(place).is_some() || self.nodes.contains_key(&node) {
            return;
        }
        let Some(entries) = self.entries(place.0) else { return };
        entries.insert(place.1, node);
        let mode = if matches!(content, Content::Symlink(_)) { 0o777 } else { 0o640 };
        let made = Node { content: content.clone(), mode, xattrs: BTreeMap::new(), links: 1 };
        self.nodes.insert(node, made);
    }

    fn link(&mut self, place: Place, node: NodeId) {
        if self.find(place).is_some() || !self.nodes.contains_key(&node) {
            return;
        }
        let Some(entries) = self.entries(place.0) else { return };
        entries.insert(place.1, node);
        self.nodes.get_mut(&node).expect("it was there").links += 1;
    }

    /// Makes one step; nothing when what it needs is not there.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Create(place, node, content) => self.create(*place, *node, content),
            Step::Link(place, node) => self.link(*place, *node),
            Step::Unlink(place) => self.drop_name(*place),
            Step::Rename(from, to) => {
                let Some(node) = self.find(*from) else { return };
                if self.entries(to.0).is_none() || self.find(*to) == Some(node) {
                    return;
                }
                self.drop_name(*to);
                self.entries(from.0).expect("it was found there").remove(from.1);
                self.entries(to.0).expect("it is a folder").insert(to.1, node);
            }
            Step::Write(node, offset, data) => {
                if let Some(Node { content: Content::File(bytes), .. }) = self.nodes.get_mut(node) {
                    let end = offset + data.len();
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[*offset..end].copy_from_slice(data);
                }
            }
            Step::Truncate(node, size) => {
                if let Some(Node { content: Content::File(bytes), .. }) = self.nodes.get_mut(node) {
                    bytes.resize(*size, 0);
                }
            }
            Step::Xattr(node, name, value) => {
                let Some(node) = self.nodes.get_mut(node) else { return };
                match value {
                    Some(value) => drop(node.xattrs.insert(name, value.clone())),
                    None => drop(node.xattrs.remove(name)),
                }
            }
            Step::Mode(node, mode) => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.mode = *mode;
                }
            }
            Step::Dataset(name, there) => {
                if *there {
                    self.datasets.insert(name);
                } else {
                    self.datasets.remove(name);
                }
            }
            Step::Compression(value) => self.compression = value,
            Step::Disk(role) => self.role = *role,
            Step::Snapshot(name) => self.branches.take(FILESYSTEM, name, self.nodes.clone()),
            Step::Rollback => {
                if let Some((_, nodes)) = self.branches.latest(FILESYSTEM) {
                    self.nodes = nodes.clone();
                }
            }
            step => self.branch(step),
        }
        if cfg!(debug_assertions) {
            self.assert_internally_consistent();
        }
    }

    /// Makes a step of what is beside the file system.
    fn branch(&mut self, step: &Step) {
        match step {
            Step::DestroySnapshot(name) => self.branches.destroy_snapshot(name),
            Step::Clone(clone, name) => {
                self.branches.make_clone(clone, name);
                self.datasets.insert(clone);
            }
            Step::WriteClone(clone, name, data) => {
                let Some(nodes) = self.branches.clone_mut(clone) else { return };
                let Some(node) = find(nodes, (ROOT, name)) else { return };
                if let Some(Node { content: Content::File(bytes), .. }) = nodes.get_mut(&node) {
                    bytes.resize(bytes.len().max(data.len()), 0);
                    bytes[..data.len()].copy_from_slice(data);
                }
            }
            Step::DestroyClone(clone) => {
                self.branches.destroy_clone(clone);
                self.datasets.remove(clone);
            }
            Step::Promote(clone) => self.branches.promote(clone),
            Step::WriteVolume(offset, data) => {
                // What is behind the end was cut off since.
                let end = self.volume.len().min(offset + data.len());
                let fits = end.saturating_sub(*offset);
                self.volume[end - fits..end].copy_from_slice(&data[..fits]);
            }
            Step::ClearVolume(offset, length) => {
                let end = self.volume.len().min(offset + length);
                self.volume[end.min(*offset)..end].fill(0);
            }
            Step::ResizeVolume(size) => self.volume.resize(*size, 0),
            step => unreachable!("{step:?} is one of the file system"),
        }
    }

    fn assert_internally_consistent(&self) {
        let mut names: BTreeMap<NodeId, u32> = BTreeMap::new();
        for node in self.nodes.values() {
            if let Content::Folder(entries) = &node.content {
                entries.values().for_each(|&named| *names.entry(named).or_default() += 1);
            }
        }
        for (node, count) in names {
            let links = self.nodes.get(&node).map(|node| node.links);
            assert!(links.is_some_and(|links| links >= count), "object {node} has {count} names and {links:?} links");
        }
    }

    /// What a walk of the model sees.
    pub fn view(&self) -> View {
        View {
            tree: tree(&self.nodes),
            datasets: self.datasets.iter().map(|&name| name.to_owned()).collect(),
            compression: self.compression.to_owned(),
            vdevs: self.tops + usize::from(matches!(self.role, Role::Vdev | Role::Log | Role::LogOffline)),
            caches: usize::from(self.role == Role::Cache),
            spares: usize::from(matches!(self.role, Role::Spare | Role::StandIn)),
            volume: self.volume.clone(),
            others: self.branches.all().map(|(name, nodes)| (name, tree(nodes))).collect(),
        }
    }
}

/// What differs between two trees, a line each, for a person; paths begin with `at`.
fn tree_differences(at: &str, a: &BTreeMap<String, Seen>, b: &BTreeMap<String, Seen>) -> Vec<String> {
    let mut lines = Vec::new();
    let paths: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for path in paths {
        match (a.get(path), b.get(path)) {
            (Some(_), None) => lines.push(format!("{at}{path}: should not be there")),
            (None, Some(_)) => lines.push(format!("{at}{path}: is missing")),
            (Some(a), Some(b)) if a != b => lines.push(format!("{at}{path}: {}", difference(a, b))),
            _ => {}
        }
    }
    lines
}

impl View {
    /// What differs from `other`, a line each, for a person.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let mut lines = tree_differences("", &self.tree, &other.tree);
        let names = |view: &Self| view.others.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(other) {
            lines.push(format!("snapshots and clones {:?} instead of {:?}", names(self), names(other)));
        }
        for (name, tree) in &self.others {
            if let Some(other) = other.others.get(name) {
                lines.extend(tree_differences(&format!("{name}: "), tree, other));
            }
        }
        if self.volume != other.volume {
            let at = self.volume.iter().zip(&other.volume).position(|(a, b)| a != b);
            let (a, b) = (self.volume.len(), other.volume.len());
            lines.push(format!("volume of {a} bytes instead of {b}, different from byte {at:?} on"));
        }
        if self.datasets != other.datasets {
            lines.push(format!("data sets {:?} instead of {:?}", self.datasets, other.datasets));
        }
        if self.compression != other.compression {
            lines.push(format!("compression {} instead of {}", self.compression, other.compression));
        }
        if self.vdevs != other.vdevs {
            lines.push(format!("{} top-level vdevs instead of {}", self.vdevs, other.vdevs));
        }
        if (self.caches, self.spares) != (other.caches, other.spares) {
            let ([caches, spares], [all, many]) = ([self.caches, self.spares], [other.caches, other.spares]);
            lines.push(format!("{caches} cache devices and {spares} spares instead of {all} and {many}"));
        }
        lines
    }
}

fn difference(a: &Seen, b: &Seen) -> String {
    if a.bytes != b.bytes {
        let at = a.bytes.iter().zip(&b.bytes).position(|(a, b)| a != b).unwrap_or(a.bytes.len().min(b.bytes.len()));
        return format!("{} bytes instead of {}, different from byte {at} on", a.bytes.len(), b.bytes.len());
    }
    let show = |seen: &Seen| {
        let names: Vec<String> =
            seen.xattrs.iter().map(|(name, value)| format!("{name} ({} bytes)", value.len())).collect();
        format!(
            "{} {:o} with {} names (first {}) and attributes {names:?}",
            seen.kind, seen.mode, seen.links, seen.first_path
        )
    };
    format!("{} instead of {}", show(a), show(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_whose_object_is_lost_change_nothing() {
        let mut model = Model::default();
        let before = model.view();
        for step in [
            Step::Write(7, 10, vec![1]),
            Step::Truncate(7, 3),
            Step::Link((ROOT, "a"), 7),
            Step::Unlink((ROOT, "b")),
            Step::Rename((ROOT, "b"), (ROOT, "c")),
            Step::Create((9, "x"), 8, Content::File(Vec::new())),
        ] {
            model.apply(&step);
            assert_eq!(model.view(), before, "{step:?}");
        }
    }

    #[test]
    fn two_names_of_one_file_are_seen_as_one_file() {
        let mut model = Model::default();
        model.apply(&Step::Create((ROOT, "b"), 1, Content::File(vec![1])));
        model.apply(&Step::Link((ROOT, "a"), 1));
        model.apply(&Step::Write(1, 2, vec![9]));
        let view = model.view();
        assert_eq!((&view.tree["/a"].first_path[..], view.tree["/b"].links), ("/a", 2));
        assert_eq!(view.tree["/a"], view.tree["/b"]);
        assert_eq!(view.tree["/a"].bytes, [1, 0, 9]);
        model.apply(&Step::Rename((ROOT, "b"), (ROOT, "a")));
        assert_eq!(model.view(), view, "renaming one name of a file onto the other does nothing");
        model.apply(&Step::Unlink((ROOT, "b")));
        assert_eq!(model.view().tree["/a"].links, 1);
    }
}
