//! Random steps with snapshots, bookmarks, clones, promotions and destroys on real pools, held against kept copies of
//! every file, and against what a walk of all trees finds of each one's blocks. OpenZFS's zdb finds no leak on the way
//! and in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_api::report::{DatasetReport, Detail, PropertyValue};
use platter_api::request::{CreateRequest, ImportRequest, Setting, VdevRequest};
use platter_dmu::bpobj::Bpobj;
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_dmu::{Bookmark, ZioError};
use platter_dsl::PoolError;
use platter_dsl::dataset::{Dataset, TXG_INITIAL};
use platter_dsl::snapshot::SnapshotBonus;
use platter_dsl::used_space::SpaceChange;
use platter_dsl::{accounting, deadlist};
use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::features::Feature;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_spa::Pool;
use platter_zio::BlockStore;
use platter_zpl::{MountOptions, NewFile, UnlimitedSpace, Zpl};

use crate::environment::{Clock, Maker};
use crate::snapshots::{Dice, Files, contents, judge, settle};

/// Data sets at most, and levels of them.
const SETS: usize = 7;
const DEPTH: usize = 4;

/// Which block it is: its place, or of one that is in its pointer what it is, and the group in which it was born.
type Identity = (u64, u64, Txg);

/// Every block of a tree with what it takes.
type Tree = BTreeMap<Identity, SpaceChange>;

struct Blocks {
    pool: Arc<Pool>,
    found: Mutex<Tree>,
}

impl Visitor for Blocks {
    fn block<'a>(&'a self, at: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        if !bp.is_hole() {
            let (vdev, offset) = match bp.is_embedded() {
                true => (u64::MAX - bp.birth().0, at.object.0 << 32 | at.blkid << 4 | at.level as u64),
                false => (u64::from(bp.dva(0).vdev), bp.dva(0).offset),
            };
            self.found
                .lock()
                .insert((vdev, offset, bp.birth()), accounting::space(self.pool.dsl().store.dsize(bp), bp));
        }
        async { Visit::Continue }.boxed()
    }

    fn damaged<'a>(&'a self, at: Bookmark, _bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        panic!("{at}: {error}")
    }
}

async fn blocks(pool: &Arc<Pool>, object: ObjectId, root: &BlkPtr) -> Tree {
    let blocks = Blocks { pool: pool.clone(), found: Mutex::default() };
    let store: Arc<dyn BlockStore> = Arc::new(pool.dsl().store.clone());
    visit(&store, object, root, None, &blocks).await.unwrap();
    blocks.found.into_inner()
}

/// A snapshot of the model.
#[derive(Clone)]
struct Snap {
    id: u64,
    name: String,
    files: Files,
    deferred: bool,
}

/// A bookmark of the model.
struct Mark {
    name: String,
    txg: Txg,
}

/// A data set of the model.
struct Set {
    files: Files,
    marks: Vec<Mark>,
    /// The oldest first.
    snaps: Vec<Snap>,
    /// The snapshot that it is a clone of.
    origin: Option<u64>,
    zpl: Option<Arc<Zpl>>,
}

struct Forest {
    pool: Arc<Pool>,
    folder: tempfile::TempDir,
    sets: BTreeMap<String, Set>,
    dice: Dice,
    counter: u64,
    /// How often each kind of step did something.
    done: BTreeMap<&'static str, u32>,
}

fn environment() -> platter_spa::Environment {
    crate::environment::environment(Arc::new(Maker), 5)
}

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A number that `zfs get` shows.
fn number(report: &DatasetReport, property: &str) -> u64 {
    match report.properties[property].value {
        PropertyValue::Number(number) => number,
        ref other => panic!("{property} of {}: {other:?}", report.name),
    }
}

fn text(report: &DatasetReport, property: &str) -> String {
    match report.properties.get(property).map(|property| &property.value) {
        Some(PropertyValue::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

/// What some blocks take together.
fn sum<'a>(blocks: impl IntoIterator<Item = &'a SpaceChange>) -> SpaceChange {
    blocks.into_iter().fold(SpaceChange::default(), |mut sum, block| {
        sum += *block;
        sum
    })
}

/// What `tree` has and none of the others.
fn without<'a>(tree: &'a Tree, others: &'a [&Tree]) -> impl Iterator<Item = (&'a Identity, &'a SpaceChange)> {
    tree.iter().filter(move |(place, _)| others.iter().all(|other| !other.contains_key(place)))
}

impl Forest {
    async fn new(seed: u64, version: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d0");
        std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        let mut pool_properties = given(&[("ashift", "9")]);
        pool_properties.extend(version.map(|version| ("version".to_owned(), version.to_owned())));
        let vdevs = vec![VdevRequest::Leaf(path)];
        let request = CreateRequest { name: "tank".into(), vdevs, pool_properties, ..CreateRequest::default() };
        let pool = Pool::create(environment(), request).await.unwrap();
        if version.is_none() {
            // From now on they are counted.
            let limits =
                ["filesystem_limit", "snapshot_limit"].map(|name| (name.into(), Setting::Value("9999".into())));
            pool.dsl().set_dataset_properties("tank", &limits).await.unwrap();
        }
        let dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut forest = Self { pool, folder, sets: BTreeMap::new(), dice, counter: 0, done: BTreeMap::new() };
        forest.create().await;
        forest
    }

    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    /// A data set by chance.
    fn any(&mut self) -> String {
        let at = self.dice.roll(self.sets.len() as u64) as usize;
        self.sets.keys().nth(at).unwrap().clone()
    }

    fn fresh(&mut self) -> String {
        self.counter += 1;
        let above = match self.dice.roll(2) {
            0 => "tank".to_owned(),
            _ if self.sets.is_empty() => "tank".to_owned(),
            _ => self.any(),
        };
        let above = if above.matches('/').count() < DEPTH { above } else { "tank".to_owned() };
        format!("{above}/d{}", self.counter)
    }

    async fn create(&mut self) {
        let name = self.fresh();
        self.pool.dsl().create_dataset(&name, &given(&[("recordsize", "8K")])).await.unwrap();
        let set = Set { files: Files::new(), marks: Vec::new(), snaps: Vec::new(), origin: None, zpl: None };
        self.sets.insert(name, set);
        self.did("create");
    }

    async fn zpl(&mut self, name: &str) -> Arc<Zpl> {
        let set = self.sets.get_mut(name).unwrap();
        if set.zpl.is_none() {
            let os = self.pool.dsl().open_filesystem(name).await.unwrap();
            let space = Arc::new(UnlimitedSpace);
            set.zpl = Some(Zpl::mount(os, MountOptions::default(), Arc::new(Clock), space).await.unwrap());
        }
        set.zpl.clone().unwrap()
    }

    async fn unmount(&mut self, name: &str) {
        if let Some(zpl) = self.sets.get_mut(name).unwrap().zpl.take() {
            zpl.unmount().await.unwrap();
            drop(zpl);
            self.pool.dsl().close_filesystem(name).await.unwrap();
        }
    }

    async fn unmount_all(&mut self) {
        for name in self.sets.keys().cloned().collect::<Vec<_>>() {
            self.unmount(&name).await;
        }
    }

    async fn write(&mut self) {
        let set = self.any();
        let zpl = self.zpl(&set).await;
        let name = format!("f{}", self.dice.roll(5));
        let object = match self.sets[&set].files.contains_key(&name) {
            true => zpl.lookup(zpl.root(), name.as_bytes()).await.unwrap().object,
            false => {
                let new = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
                zpl.create(zpl.root(), name.as_bytes(), new).await.unwrap().object
            }
        };
        let (at, length) = (self.dice.roll(120_000), 1 + self.dice.roll(40_000));
        let key = self.dice.roll(u64::MAX);
        let data: Vec<u8> = (0..length).map(|n| (n.wrapping_mul(key) >> 13) as u8).collect();
        zpl.write(object, at, &data, false).await.unwrap();
        let file = self.sets.get_mut(&set).unwrap().files.entry(name).or_default();
        file.resize(file.len().max((at + length) as usize), 0);
        file[at as usize..(at + length) as usize].copy_from_slice(&data);
    }

    async fn unlink(&mut self) {
        let set = self.any();
        let Some(name) = self.sets[&set].files.keys().next().cloned() else { return };
        let zpl = self.zpl(&set).await;
        zpl.unlink(zpl.root(), name.as_bytes()).await.unwrap();
        self.sets.get_mut(&set).unwrap().files.remove(&name);
    }

    async fn take(&mut self) {
        let set = self.any();
        // Few names, so that two data sets have some of the same.
        let name = format!("s{}", self.dice.roll(12));
        if self.sets[&set].snaps.iter().any(|snap| snap.name == name) {
            return;
        }
        let refused = self.pool.dsl().take_snapshots(&[format!("{set}@{name}")], &BTreeMap::new()).await.unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        self.counter += 1;
        let id = self.counter;
        let set = self.sets.get_mut(&set).unwrap();
        set.snaps.push(Snap { id, name, files: set.files.clone(), deferred: false });
        self.did("take");
    }

    async fn mark(&mut self) {
        let set = self.any();
        if self.sets[&set].snaps.is_empty() || !self.pool.dsl().features.is_enabled(Feature::BookmarkWritten) {
            return;
        }
        let at = self.dice.roll(self.sets[&set].snaps.len() as u64) as usize;
        let snap = format!("{set}@{}", self.sets[&set].snaps[at].name);
        self.counter += 1;
        let name = format!("m{}", self.counter);
        self.pool.dsl().create_bookmark(&snap, &format!("{set}#{name}")).await.unwrap();
        let txg = Txg(number(&self.pool.dsl().snapshot(&snap).await.unwrap(), "createtxg"));
        self.sets.get_mut(&set).unwrap().marks.push(Mark { name, txg });
        self.did("mark");
    }

    async fn destroy_mark(&mut self) {
        let set = self.any();
        let there = self.sets[&set].marks.len() as u64;
        if there > 0 {
            let at = self.dice.roll(there) as usize;
            let mark = self.sets.get_mut(&set).unwrap().marks.remove(at);
            self.pool.dsl().destroy_bookmark(&format!("{set}#{}", mark.name)).await.unwrap();
            self.did("destroy mark");
        }
    }

    fn clones(&self, id: u64) -> Vec<String> {
        self.sets.iter().filter(|(_, set)| set.origin == Some(id)).map(|(name, _)| name.clone()).collect()
    }

    /// The data set of a snapshot.
    fn owner(&self, id: u64) -> (String, usize) {
        let found = self
            .sets
            .iter()
            .find_map(|(name, set)| Some((name.clone(), set.snaps.iter().position(|snap| snap.id == id)?)));
        found.expect("it is somebody's")
    }

    async fn destroy_snapshots(&mut self) {
        let set = self.any();
        let there = self.sets[&set].snaps.len();
        if there == 0 {
            return;
        }
        let first = self.dice.roll(there as u64) as usize;
        let count = (1 + self.dice.roll(3) as usize).min(there - first);
        let defer = self.dice.roll(3) == 0;
        let doomed: Vec<Snap> = self.sets[&set].snaps[first..first + count].to_vec();
        let names: Vec<String> = doomed.iter().map(|snap| format!("{set}@{}", snap.name)).collect();
        let cloned: BTreeSet<u64> =
            doomed.iter().filter(|snap| !self.clones(snap.id).is_empty()).map(|snap| snap.id).collect();
        let refused = self.pool.dsl().destroy_snapshots(&names, defer).await.unwrap();
        assert_eq!(!refused.is_empty(), !defer && !cloned.is_empty(), "{refused:?}");
        if !refused.is_empty() {
            assert!(refused.iter().all(|(_, reason)| reason.to_string() == "snapshot is cloned"), "{refused:?}");
            return;
        }
        let gone: BTreeSet<u64> = doomed.iter().map(|snap| snap.id).filter(|id| !cloned.contains(id)).collect();
        let set = self.sets.get_mut(&set).unwrap();
        set.snaps.retain(|snap| !gone.contains(&snap.id));
        set.snaps.iter_mut().filter(|snap| cloned.contains(&snap.id)).for_each(|snap| snap.deferred = true);
        self.did(if cloned.is_empty() { "destroy snapshots" } else { "defer" });
    }

    async fn clone_one(&mut self) {
        let set = self.any();
        if self.sets[&set].snaps.is_empty() || self.sets.len() >= SETS {
            return;
        }
        let at = self.dice.roll(self.sets[&set].snaps.len() as u64) as usize;
        let snap = self.sets[&set].snaps[at].clone();
        let name = self.fresh();
        let origin = format!("{set}@{}", snap.name);
        self.pool.dsl().clone_snapshot(&origin, &name, &given(&[("recordsize", "8K")])).await.unwrap();
        let clone = Set { files: snap.files, marks: Vec::new(), snaps: Vec::new(), origin: Some(snap.id), zpl: None };
        self.sets.insert(name, clone);
        self.did("clone");
    }

    async fn promote(&mut self) {
        let name = self.any();
        let promoted = self.pool.dsl().promote_dataset(&name).await;
        let Some(origin) = self.sets[&name].origin else {
            assert_eq!(promoted.unwrap_err().to_string(), "not a cloned filesystem");
            return;
        };
        let (old, at) = self.owner(origin);
        let taken: BTreeSet<&String> = self.sets[&name].snaps.iter().map(|snap| &snap.name).collect();
        let conflict = self.sets[&old].snaps[..=at].iter().rev().find(|snap| taken.contains(&snap.name));
        if let Some(snap) = conflict {
            let last = &self.sets[&old].snaps[at].name;
            let said = format!("conflicting snapshot '{}' from parent '{old}@{last}'", snap.name);
            let error = promoted.unwrap_err();
            assert!(matches!(error, PoolError::Exists(_)) && error.to_string() == said, "{error}");
            self.did("conflict");
            return;
        }
        promoted.unwrap();
        let origin_name = format!("{name}@{}", self.sets[&old].snaps[at].name);
        let taken = Txg(number(&self.pool.dsl().snapshot(&origin_name).await.unwrap(), "createtxg"));
        let old = self.sets.get_mut(&old).unwrap();
        let mut moved: Vec<Snap> = old.snaps.drain(..=at).collect();
        let marks = old.marks.extract_if(.., |mark| mark.txg <= taken).collect::<Vec<_>>();
        let above = old.origin.replace(origin);
        let clone = self.sets.get_mut(&name).unwrap();
        moved.append(&mut clone.snaps);
        clone.snaps = moved;
        clone.marks.extend(marks);
        clone.origin = above;
        self.did("promote");
    }

    async fn rollback(&mut self) {
        let name = self.any();
        let Some(last) = self.sets[&name].snaps.last().cloned() else { return };
        self.unmount(&name).await;
        self.pool.dsl().rollback_dataset(&name, &last.name).await.unwrap();
        let report = self.pool.dsl().snapshot(&format!("{name}@{}", last.name)).await.unwrap();
        let set = self.sets.get_mut(&name).unwrap();
        set.files = last.files;
        set.marks.retain(|mark| mark.txg.0 <= number(&report, "createtxg"));
        self.did("rollback");
    }

    async fn destroy(&mut self) {
        let name = self.any();
        if self.sets.len() < 2 {
            return;
        }
        let below = format!("{name}/");
        let (dsl, set) = (self.pool.dsl().clone(), &self.sets[&name]);
        if !set.snaps.is_empty() || self.sets.keys().any(|other| other.starts_with(&below)) {
            let error = dsl.check_destroy(&name).await.unwrap_err();
            assert_eq!(error.to_string(), "filesystem has children");
            return;
        }
        self.unmount(&name).await;
        dsl.destroy_dataset(&name).await.unwrap();
        let origin = self.sets.remove(&name).unwrap().origin;
        self.did("destroy");
        let Some(origin) = origin.filter(|&origin| self.clones(origin).is_empty()) else { return };
        let (owner, at) = self.owner(origin);
        let snaps = &mut self.sets.get_mut(&owner).unwrap().snaps;
        if snaps[at].deferred {
            snaps.remove(at);
            self.did("destroy with origin");
        }
    }

    async fn rename(&mut self) {
        let (old, new) = (self.any(), self.fresh());
        if new.starts_with(&format!("{old}/")) {
            return;
        }
        self.pool.dsl().rename_dataset(&old, &new).await.unwrap();
        let below = |name: &String| *name == old || name.starts_with(&format!("{old}/"));
        let moving: Vec<String> = self.sets.keys().filter(|name| below(name)).cloned().collect();
        for name in moving {
            let set = self.sets.remove(&name).unwrap();
            self.sets.insert(format!("{new}{}", &name[old.len()..]), set);
        }
        self.did("rename");
    }

    /// Leaves the pool to zdb.
    async fn reimport(&mut self) {
        self.unmount_all().await;
        self.pool.scrub_wait().await.unwrap();
        let report = self.pool.report(Detail { errors: true, extended: false }).await.unwrap();
        assert_eq!((report.scan.errors, report.errors.len()), (0, 0), "a scrub found nothing wrong");
        settle(&self.pool).await;
        self.scrub_all().await;
        self.pool.export().await.unwrap();
        judge(self.folder.path());
        let search = vec![self.folder.path().to_owned()];
        let request = ImportRequest { pool: "tank".into(), search, ..ImportRequest::default() };
        self.pool = Pool::import(environment(), request).await.unwrap();
    }

    /// A scrub of what does not change sees every block once.
    async fn scrub_all(&mut self) {
        let _ = self.pool.scrub_start().await;
        self.pool.scrub_wait().await.unwrap();
        let report = self.pool.report(Detail::default()).await.unwrap();
        assert_eq!(report.scan.errors, 0);
        let (seen, there) = (report.scan.examined, report.scan.to_examine);
        assert!(seen <= there && there - seen < 2 << 20, "of {there} bytes the scrub saw {seen}");
    }

    /// Contents and space figures of everything.
    async fn compare(&mut self) {
        self.pool.sync().await.unwrap();
        for name in self.sets.keys().cloned().collect::<Vec<_>>() {
            let zpl = self.zpl(&name).await;
            let files = &self.sets[&name].files;
            assert!(contents(&zpl, files.keys()).await == *files, "{name} differs");
        }
        // Reading changes nothing, but mounting may have.
        self.pool.sync().await.unwrap();
        let dsl = self.pool.dsl().clone();
        let mut trees: BTreeMap<u64, (DslDatasetPhys, Tree)> = BTreeMap::new();
        for (name, set) in &self.sets {
            for snap in &set.snaps {
                let os = dsl.open_snapshot(&format!("{name}@{}", snap.name)).await.unwrap();
                let bonus = SnapshotBonus::load(&dsl.mos, os.params().id).await.unwrap().phys;
                let zpl = Zpl::mount(os.clone(), MountOptions::default(), Arc::new(Clock), Arc::new(UnlimitedSpace));
                let found = contents(&zpl.await.unwrap(), snap.files.keys()).await;
                assert!(found == snap.files, "{name}@{} differs", snap.name);
                let tree = blocks(&self.pool, os.params().id, &bonus.bp).await;
                trees.insert(snap.id, (bonus, tree));
            }
        }
        let reports = dsl.snapshots(None).await.unwrap();
        let reports: BTreeMap<String, DatasetReport> =
            reports.into_iter().map(|report| (report.name.clone(), report)).collect();
        let count: usize = self.sets.values().map(|set| set.snaps.len()).sum();
        assert_eq!(reports.len(), count, "no others are there");
        let mut used: BTreeMap<String, u64> = BTreeMap::new();
        // Those below first.
        for name in self.sets.keys().rev() {
            let below = format!("{name}/");
            let children =
                used.iter().filter(|(other, _)| other.strip_prefix(&below).is_some_and(|rest| !rest.contains('/')));
            let children: u64 = children.map(|(_, used)| used).sum();
            let all = self.compare_one(name, &trees, &reports, children).await;
            used.insert(name.clone(), all);
        }
        for name in self.sets.keys().cloned().collect::<Vec<_>>() {
            let Some(list) = dsl.find(&name).unwrap().accounting.livelist() else { continue };
            match deadlist::keys(&dsl.mos, list.object).await.unwrap().len() {
                0 => self.did("a new livelist"),
                1 => self.did("a short livelist"),
                _ => self.did("a long livelist"),
            }
        }
    }

    /// The figures of one data set and its snapshots; what it uses with all below, which use `children` bytes.
    async fn compare_one(
        &self,
        name: &str,
        trees: &BTreeMap<u64, (DslDatasetPhys, Tree)>,
        reports: &BTreeMap<String, DatasetReport>,
        children: u64,
    ) -> u64 {
        let (dsl, set, nothing) = (self.pool.dsl(), &self.sets[name], Tree::new());
        let head = dsl.find(name).unwrap();
        let phys = head.phys.lock().clone();
        let own = blocks(&self.pool, head.object, &phys.bp).await;
        let origin = set.origin.map_or(&nothing, |origin| &trees[&origin].1);
        let mut before = origin;
        for (at, snap) in set.snaps.iter().enumerate() {
            let (bonus, tree) = &trees[&snap.id];
            let next = set.snaps.get(at + 1).map_or(&own, |next| &trees[&next.id].1);
            let report = &reports[&format!("{name}@{}", snap.name)];
            let unique = sum(without(tree, &[before, next]).map(|(_, size)| size)).used as u64;
            assert_eq!(bonus.unique_bytes, unique, "unique, of {}", report.name);
            let written = sum(without(tree, &[before]).map(|(_, size)| size)).used as u64;
            assert_eq!(number(report, "written"), written, "written, of {}", report.name);
            assert_eq!(number(report, "used"), unique);
            assert_eq!(number(report, "referenced"), sum(tree.values()).used as u64);
            assert_eq!(number(report, "logicalreferenced"), sum(tree.values()).uncompressed as u64);
            assert_eq!(text(report, "clones"), self.clones(snap.id).join(","));
            assert_eq!(text(report, "defer_destroy"), if snap.deferred { "on" } else { "off" }, "{}", report.name);
            before = tree;
        }
        let report = dsl.dataset(name).await.unwrap();
        let origin_name = set.origin.map(|origin| {
            let (owner, at) = self.owner(origin);
            format!("{owner}@{}", self.sets[&owner].snaps[at].name)
        });
        assert_eq!(text(&report, "origin"), origin_name.unwrap_or_default());
        assert_eq!(phys.referenced_bytes, sum(own.values()).used as u64, "referenced, of {name}");
        assert_eq!(phys.compressed_bytes, sum(own.values()).compressed as u64, "compressed, of {name}");
        let written = sum(without(&own, &[before]).map(|(_, size)| size)).used as u64;
        assert_eq!((phys.unique_bytes, number(&report, "written")), (written, written), "unique, of {name}");
        let by_head = sum(without(&own, &[origin]).map(|(_, size)| size));
        let mut others = Tree::new();
        for snap in &set.snaps {
            others.extend(without(&trees[&snap.id].1, &[origin, &own]));
        }
        let by_snapshots = sum(others.values());
        assert_eq!(number(&report, "usedbydataset"), by_head.used as u64, "usedbydataset, of {name}");
        assert_eq!(number(&report, "usedbysnapshots"), by_snapshots.used as u64, "usedbysnapshots, of {name}");
        assert_eq!(number(&report, "usedbychildren"), children, "usedbychildren, of {name}");
        let all = (by_head.used + by_snapshots.used) as u64 + children;
        assert_eq!(number(&report, "used"), all, "used, of {name}");
        if !self.sets.keys().any(|other| other.starts_with(&format!("{name}/"))) {
            let logical = (by_head.uncompressed + by_snapshots.uncompressed) as u64;
            assert_eq!(number(&report, "logicalused"), logical, "logicalused, of {name}");
        }
        self.compare_counts(name, &report);
        let is_listed = self.compare_livelist(&head, &own, origin).await;
        assert!(set.origin.is_some() || !is_listed, "{name} is no clone");
        self.compare_marks(name, trees, &own).await;
        all
    }

    /// What lives on the livelist of `head`, if it has one: what it has of its own, but for payload in pointers.
    async fn compare_livelist(&self, head: &Dataset, own: &Tree, origin: &Tree) -> bool {
        let (dsl, mut live) = (self.pool.dsl(), BTreeMap::new());
        let Some(list) = head.accounting.livelist() else { return false };
        let keys = deadlist::keys(&dsl.mos, list.object).await.unwrap();
        for (_, list) in &keys {
            for bp in Bpobj::open(&dsl.mos, *list).await.unwrap().live().await.unwrap() {
                let identity = (u64::from(bp.dva(0).vdev), bp.dva(0).offset, bp.birth());
                assert!(live.insert(identity, accounting::space(dsl.store.dsize(&bp), &bp)).is_none(), "{bp:?} twice");
            }
        }
        let by_walk: BTreeMap<_, _> =
            without(own, &[origin]).filter(|(_, size)| size.used > 0).map(|(place, size)| (*place, *size)).collect();
        assert_eq!(live, by_walk, "the livelist of {}", head.object);
        let (told, sum) = (deadlist::space(&dsl.mos, list.object).await.unwrap(), sum(live.values()));
        assert_eq!((told.used as i64, told.comp as i64), (sum.used, sum.compressed), "its totals");
        true
    }

    /// What was written since bookmarks, whose snapshots may be gone, and where the deadlist parts for their sake.
    async fn compare_marks(&self, name: &str, trees: &BTreeMap<u64, (DslDatasetPhys, Tree)>, own: &Tree) {
        let (dsl, set) = (self.pool.dsl(), &self.sets[name]);
        let since = |tree: &Tree, txg: Txg| sum(tree.iter().filter(|(at, _)| at.2 > txg).map(|(_, size)| size)).used;
        let mut names: Vec<String> = dsl.bookmarks(name).await.unwrap().into_iter().map(|mark| mark.name).collect();
        let mut expected: Vec<String> = set.marks.iter().map(|mark| mark.name.clone()).collect();
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "bookmarks of {name}");
        for snap in &set.snaps {
            let txg = trees[&snap.id].0.creation_txg;
            let full = [format!("{name}@{}", snap.name)];
            let told = dsl.written_since(name, &full).await.unwrap();
            assert_eq!(told, [Some(since(own, txg) as u64)], "written since {}", full[0]);
        }
        for mark in &set.marks {
            let full = [format!("{name}#{}", mark.name)];
            let told = dsl.written_since(name, &full).await.unwrap();
            assert_eq!(told, [Some(since(own, mark.txg) as u64)], "written since {}", full[0]);
            for snap in &set.snaps {
                let (bonus, tree) = &trees[&snap.id];
                let told = dsl.written_since(&format!("{name}@{}", snap.name), &full).await.unwrap();
                let written = since(tree, mark.txg) as u64;
                let is_later = bonus.creation_txg > mark.txg;
                assert_eq!(told, [is_later.then_some(written)], "{name}@{} since {}", snap.name, full[0]);
            }
        }
        let (list, latest) = {
            let head = dsl.find(name).unwrap();
            let phys = head.phys.lock();
            (phys.deadlist_obj, phys.prev_snap_txg)
        };
        let wanted: BTreeSet<Txg> = set
            .snaps
            .iter()
            .map(|snap| trees[&snap.id].0.creation_txg)
            .chain(set.marks.iter().map(|mark| mark.txg))
            .filter(|&txg| txg < latest)
            .collect();
        if deadlist::is_plain(&dsl.mos, list).await.unwrap() || set.snaps.is_empty() {
            return;
        }
        let origin = set.origin.map_or(Txg(0), |origin| trees[&origin].0.creation_txg);
        // Two snapshots that every pool has, and which are nobody's, were taken in its first groups.
        let keys = deadlist::keys(&dsl.mos, list).await.unwrap().into_iter().map(|(key, _)| key);
        let own: BTreeSet<Txg> = keys.filter(|&key| key > origin && key > TXG_INITIAL).collect();
        assert_eq!(own, wanted, "where the deadlist of {name} parts");
    }

    fn compare_counts(&self, name: &str, report: &DatasetReport) {
        let counted = number(report, "snapshot_count");
        if counted == u64::MAX {
            return;
        }
        let below = format!("{name}/");
        let among: Vec<(&String, &Set)> =
            self.sets.iter().filter(|(other, _)| *other == name || other.starts_with(&below)).collect();
        let snapshots: usize = among.iter().map(|(_, set)| set.snaps.len()).sum();
        assert_eq!(counted, snapshots as u64, "snapshot_count, of {name}");
        assert_eq!(number(report, "filesystem_count"), among.len() as u64 - 1, "filesystem_count, of {name}");
    }

    async fn steps(&mut self, count: u32) {
        for step in 0..count {
            match self.dice.roll(34) {
                0..=10 => self.write().await,
                11 => self.unlink().await,
                12..=15 => self.take().await,
                16..=17 => self.destroy_snapshots().await,
                18..=20 => self.clone_one().await,
                21..=23 => self.promote().await,
                24 => self.rollback().await,
                25..=26 => self.destroy().await,
                27 => self.rename().await,
                28 if self.sets.len() < SETS => self.create().await,
                30..=32 => self.mark().await,
                33 => self.destroy_mark().await,
                _ => self.pool.sync().await.unwrap(),
            }
            if step % 20 == 7 {
                // It goes on while snapshots and clones come and go.
                let _ = self.pool.scrub_start().await;
            }
            if step % 12 == 11 {
                self.compare().await;
            }
            if step % 60 == 59 {
                self.reimport().await;
                self.compare().await;
            }
        }
    }

    /// Destroys everything; nothing is left of it.
    async fn end(mut self) {
        self.compare().await;
        self.unmount_all().await;
        let dsl = self.pool.dsl().clone();
        // What is a clone goes before what it was made of, and what is below before what is above.
        while !self.sets.is_empty() {
            let free = self.sets.iter().find(|(name, set)| {
                let below = format!("{name}/");
                let has_children = self.sets.keys().any(|other| other.starts_with(&below));
                !has_children && set.snaps.iter().all(|snap| self.clones(snap.id).is_empty())
            });
            let Some(name) = free.map(|(name, _)| name.clone()) else {
                // A clone lies above its own origin.
                let name = self.sets.iter().find(|(_, set)| set.origin.is_some()).map(|(name, _)| name.clone());
                let (old, new) = (name.expect("there is a clone"), format!("tank/moved{}", self.counter));
                self.counter += 1;
                let deepest = self.sets.keys().rfind(|other| other.starts_with(&format!("{old}/"))).cloned();
                let old = deepest.unwrap_or(old);
                dsl.rename_dataset(&old, &new).await.unwrap();
                let set = self.sets.remove(&old).unwrap();
                self.sets.insert(new, set);
                continue;
            };
            let names: Vec<String> =
                self.sets[&name].snaps.iter().map(|snap| format!("{name}@{}", snap.name)).collect();
            assert!(dsl.destroy_snapshots(&names, false).await.unwrap().is_empty());
            dsl.destroy_dataset(&name).await.unwrap();
            let origin = self.sets.remove(&name).unwrap().origin;
            if let Some(origin) = origin.filter(|&origin| self.clones(origin).is_empty()) {
                let (owner, at) = self.owner(origin);
                let snaps = &mut self.sets.get_mut(&owner).unwrap().snaps;
                if snaps[at].deferred {
                    snaps.remove(at);
                }
            }
        }
        assert!(dsl.snapshots(None).await.unwrap().is_empty());
        assert!(!dsl.features.is_active(Feature::BookmarkWritten) && !dsl.features.is_active(Feature::BookmarkV2));
        settle(&self.pool).await;
        self.pool.force_group().await.unwrap();
        assert!(!dsl.features.is_active(Feature::Livelist), "no livelist is left");
        self.pool.export().await.unwrap();
        judge(self.folder.path());
    }
}

async fn run(seed: u64, version: Option<&str>, steps: u32) -> BTreeMap<&'static str, u32> {
    let mut forest = Forest::new(seed, version).await;
    forest.steps(steps).await;
    let done = forest.done.clone();
    forest.end().await;
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_keep_what_was_and_count_it() {
    let mut done: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 1..=4 {
        run(seed, None, 180).await.into_iter().for_each(|(what, count)| *done.entry(what).or_default() += count);
    }
    for what in [
        "clone",
        "promote",
        "conflict",
        "rollback",
        "destroy",
        "destroy with origin",
        "defer",
        "rename",
        "mark",
        "a short livelist",
        "a long livelist",
    ] {
        assert!(done.contains_key(what), "{what} was not done: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_do_clones_in_old_pools() {
    for (seed, version) in [(5, "28"), (6, "26"), (7, "18"), (8, "15")] {
        run(seed, Some(version), 60).await;
    }
}

/// The same at length: 10 000 steps of new pools, 1 000 of old ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make test-snapshots"]
async fn clones_keep_what_was_at_length() {
    for seed in 0..50 {
        println!("seed {}: {:?}", seed + 100, run(seed + 100, None, 200).await);
    }
    for (seed, version) in [(5, "28"), (6, "26"), (7, "18"), (8, "15")] {
        println!("seed {}, version {version}: {:?}", seed + 200, run(seed + 200, Some(version), 250).await);
    }
}
