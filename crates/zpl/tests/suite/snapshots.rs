//! Random steps with snapshots on real pools, held against kept copies of every file in every snapshot, and against
//! what a walk of all trees finds of each one's blocks. OpenZFS's zdb finds no leak on the way and in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_api::report::{Detail, PropertyValue};
use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_dmu::{Bookmark, ZioError};
use platter_dsl::snapshot::SnapshotBonus;
use platter_ondisk::{BlkPtr, ObjectId};
use platter_spa::Pool;
use platter_zio::BlockStore;
use platter_zpl::{MountOptions, NewFile, UnlimitedSpace, Zpl};

use crate::environment::{Clock, Maker};

const DATASET: &str = "tank/fs";

/// Contents by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Numbers by chance.
pub struct Dice(pub u64);

impl Dice {
    /// One below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Every block of a tree by its place, with the space that it takes.
struct Blocks {
    pool: Arc<Pool>,
    found: Mutex<BTreeMap<(u64, u64), u64>>,
}

impl Visitor for Blocks {
    fn block<'a>(&'a self, _bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        if !bp.is_embedded() && !bp.is_hole() {
            let place = (u64::from(bp.dva(0).vdev), bp.dva(0).offset);
            self.found.lock().insert(place, self.pool.dsl().store.dsize(bp));
        }
        async { Visit::Continue }.boxed()
    }

    fn damaged<'a>(&'a self, at: Bookmark, _bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        panic!("{at}: {error}")
    }
}

async fn blocks(pool: &Arc<Pool>, object: ObjectId, root: &BlkPtr) -> BTreeMap<(u64, u64), u64> {
    let blocks = Blocks { pool: pool.clone(), found: Mutex::default() };
    let store: Arc<dyn BlockStore> = Arc::new(pool.dsl().store.clone());
    visit(&store, object, root, None, &blocks).await.unwrap();
    blocks.found.into_inner()
}

struct Bench {
    pool: Arc<Pool>,
    zpl: Option<Arc<Zpl>>,
    folder: tempfile::TempDir,
    now: Files,
    /// Snapshots, oldest first, with what they have.
    kept: Vec<(String, Files)>,
    held: BTreeSet<String>,
    dice: Dice,
    named: u64,
}

fn environment() -> platter_spa::Environment {
    crate::environment::environment(Arc::new(Maker), 5)
}

async fn mount(pool: &Arc<Pool>) -> Arc<Zpl> {
    let os = pool.dsl().open_filesystem(DATASET).await.unwrap();
    Zpl::mount(os, MountOptions::default(), Arc::new(Clock), Arc::new(UnlimitedSpace)).await.unwrap()
}

/// Shows the pool in this folder to zdb.
pub fn judge(folder: &Path) {
    let run = std::process::Command::new("zdb").args(["-e", "-p"]).arg(folder).args(["-bcc", "tank"]).output();
    let Ok(output) = run else { return eprintln!("skipped: zdb is not installed") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("No leaks"), "{text}");
    // It also compares each clone's livelist with what the clone has written.
    let run = std::process::Command::new("zdb").args(["-e", "-p"]).arg(folder).args(["-d", "tank"]).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && !text.contains("livelist is incorrect"), "{text}");
}

/// Waits until everything that goes is freed.
pub async fn settle(pool: &Arc<Pool>) {
    for _ in 0..100 {
        pool.force_group().await.unwrap();
        if platter_dsl::freeing::space(pool.dsl()) == (0, 0) {
            return;
        }
    }
    panic!("it is never freed: {:?}", platter_dsl::freeing::space(pool.dsl()));
}

/// All files of a file system.
pub async fn contents(zpl: &Arc<Zpl>, names: impl Iterator<Item = &String>) -> Files {
    let mut files = Files::new();
    for name in names {
        let attr = zpl.lookup(zpl.root(), name.as_bytes()).await.unwrap();
        let read = zpl.read(attr.object, 0, attr.size).await.unwrap();
        files.insert(name.clone(), read.iter().flat_map(|part| part.to_vec()).collect());
    }
    files
}

impl Bench {
    async fn new(seed: u64, version: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d0");
        std::fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
        let mut pool_properties = BTreeMap::from([("ashift".to_owned(), "9".to_owned())]);
        pool_properties.extend(version.map(|version| ("version".to_owned(), version.to_owned())));
        let vdevs = vec![VdevRequest::Leaf(path)];
        let request = CreateRequest { name: "tank".into(), vdevs, pool_properties, ..CreateRequest::default() };
        let pool = Pool::create(environment(), request).await.unwrap();
        let given = BTreeMap::from([("recordsize".to_owned(), "8K".to_owned())]);
        pool.dsl().create_dataset(DATASET, &given).await.unwrap();
        let zpl = Some(mount(&pool).await);
        let dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let (now, kept, held) = (Files::new(), Vec::new(), BTreeSet::new());
        Self { pool, zpl, folder, now, kept, held, dice, named: 0 }
    }

    fn zpl(&self) -> Arc<Zpl> {
        self.zpl.clone().expect("it is mounted")
    }

    async fn unmount(&mut self) {
        if let Some(zpl) = self.zpl.take() {
            zpl.unmount().await.unwrap();
            drop(zpl);
            self.pool.dsl().close_filesystem(DATASET).await.unwrap();
        }
    }

    async fn write(&mut self) {
        let zpl = self.zpl();
        let name = format!("f{}", self.dice.roll(6));
        let object = match self.now.contains_key(&name) {
            true => zpl.lookup(zpl.root(), name.as_bytes()).await.unwrap().object,
            false => {
                let new = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
                zpl.create(zpl.root(), name.as_bytes(), new).await.unwrap().object
            }
        };
        let (at, length) = (self.dice.roll(200_000), 1 + self.dice.roll(60_000));
        let key = self.dice.roll(u64::MAX);
        let data: Vec<u8> = (0..length).map(|n| (n.wrapping_mul(key) >> 13) as u8).collect();
        zpl.write(object, at, &data, false).await.unwrap();
        let file = self.now.entry(name).or_default();
        file.resize(file.len().max((at + length) as usize), 0);
        file[at as usize..(at + length) as usize].copy_from_slice(&data);
    }

    async fn unlink(&mut self) {
        let Some(name) = self.now.keys().next().cloned() else { return };
        let zpl = self.zpl();
        zpl.unlink(zpl.root(), name.as_bytes()).await.unwrap();
        self.now.remove(&name);
    }

    async fn take(&mut self) {
        self.named += 1;
        let name = format!("s{}", self.named);
        let properties = BTreeMap::from([("my:number".to_owned(), self.named.to_string())]);
        let full = format!("{DATASET}@{name}");
        let refused = self.pool.dsl().take_snapshots(&[full], &properties).await.unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        self.kept.push((name, self.now.clone()));
    }

    async fn destroy(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let first = self.dice.roll(self.kept.len() as u64) as usize;
        let count = (1 + self.dice.roll(3) as usize).min(self.kept.len() - first);
        let doomed: Vec<String> = self.kept[first..first + count].iter().map(|(name, _)| name.clone()).collect();
        let names: Vec<String> = doomed.iter().map(|name| format!("{DATASET}@{name}")).collect();
        self.pool.sync().await.unwrap();
        let (free_before, would_free) =
            (self.used("usedbysnapshots").await, self.pool.dsl().snapshots_would_free(&names).await.unwrap());
        let refused = self.pool.dsl().destroy_snapshots(&names, false).await.unwrap();
        let is_held = doomed.iter().any(|name| self.held.contains(name));
        assert_eq!(!refused.is_empty(), is_held, "{refused:?}");
        if is_held {
            return;
        }
        self.kept.drain(first..first + count);
        // What the head still has of it is the head's.
        let freed = free_before - self.used("usedbysnapshots").await;
        assert_eq!(freed, would_free, "what was said to become free is free");
    }

    async fn hold(&mut self) {
        let Some((name, _)) = self.kept.first().cloned() else { return };
        let full = [format!("{DATASET}@{name}")];
        let released = self.held.remove(&name);
        let refused = match released {
            true => self.pool.dsl().release_snapshots(&full, "tag").await.unwrap(),
            false => self.pool.dsl().hold_snapshots(&full, "tag").await.unwrap(),
        };
        assert!(refused.is_empty(), "{refused:?}");
        if !released {
            self.held.insert(name);
        }
    }

    async fn rename(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let at = self.dice.roll(self.kept.len() as u64) as usize;
        self.named += 1;
        let (old, new) = (self.kept[at].0.clone(), format!("r{}", self.named));
        let refused = self.pool.dsl().rename_snapshots(DATASET, &old, &new, false).await.unwrap();
        assert!(refused.is_empty(), "{refused:?}");
        if self.held.remove(&old) {
            self.held.insert(new.clone());
        }
        self.kept[at].0 = new;
    }

    async fn rollback(&mut self) {
        let Some((name, files)) = self.kept.last().cloned() else { return };
        self.unmount().await;
        self.pool.dsl().rollback_dataset(DATASET, &name).await.unwrap();
        self.now = files;
        self.zpl = Some(mount(&self.pool).await);
    }

    async fn used(&self, property: &str) -> u64 {
        match self.pool.dsl().dataset(DATASET).await.unwrap().properties[property].value {
            PropertyValue::Number(number) => number,
            ref other => panic!("{property}: {other:?}"),
        }
    }

    /// Leaves the pool to zdb.
    async fn reimport(&mut self) {
        self.unmount().await;
        self.pool.scrub_wait().await.unwrap();
        let report = self.pool.report(Detail { errors: true, extended: false }).await.unwrap();
        assert_eq!((report.scan.errors, report.errors.len()), (0, 0), "a scrub found nothing wrong");
        settle(&self.pool).await;
        self.pool.export().await.unwrap();
        judge(self.folder.path());
        let search = vec![self.folder.path().to_owned()];
        let request = ImportRequest { pool: "tank".into(), search, ..ImportRequest::default() };
        self.pool = Pool::import(environment(), request).await.unwrap();
        self.zpl = Some(mount(&self.pool).await);
    }

    /// Contents and space figures of everything.
    async fn compare(&self) {
        self.pool.sync().await.unwrap();
        let dsl = self.pool.dsl();
        let reports = dsl.snapshots(Some(DATASET)).await.unwrap();
        let names: Vec<&str> = reports.iter().filter_map(|report| Some(report.name.split_once('@')?.1)).collect();
        assert_eq!(names, self.kept.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
        let head = dsl.find(DATASET).unwrap();
        let phys = head.phys.lock().clone();
        let mut trees = Vec::new();
        for ((name, files), report) in self.kept.iter().zip(&reports) {
            let os = dsl.open_snapshot(&format!("{DATASET}@{name}")).await.unwrap();
            let bonus = SnapshotBonus::load(&dsl.mos, os.params().id).await.unwrap().phys;
            let zpl = Zpl::mount(os.clone(), MountOptions::default(), Arc::new(Clock), Arc::new(UnlimitedSpace));
            let zpl = zpl.await.unwrap();
            assert!(contents(&zpl, files.keys()).await == *files, "{name} differs");
            trees.push((bonus.clone(), blocks(&self.pool, os.params().id, &bonus.bp).await));
            assert_eq!(report.properties["used"].value, PropertyValue::Number(bonus.unique_bytes));
            assert_eq!(report.properties["userrefs"].value, PropertyValue::Number(self.held.contains(name).into()));
        }
        trees.push((phys.clone(), blocks(&self.pool, head.object, &phys.bp).await));
        assert!(contents(&self.zpl(), self.now.keys()).await == self.now, "the head differs");

        let mut owners: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        trees.iter().flat_map(|(_, tree)| tree.keys()).for_each(|place| *owners.entry(*place).or_default() += 1);
        for (phys, tree) in &trees {
            let unique: u64 = tree.iter().filter(|(place, _)| owners[place] == 1).map(|(_, size)| size).sum();
            let object = phys.creation_txg;
            assert_eq!(phys.referenced_bytes, tree.values().sum::<u64>(), "referenced, {object}");
            assert_eq!(phys.unique_bytes, unique, "unique, of {object}");
        }
        let own = &trees.last().unwrap().1;
        let mut others: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        trees.iter().for_each(|(_, tree)| others.extend(tree.iter().filter(|(place, _)| !own.contains_key(place))));
        assert_eq!(self.used("usedbysnapshots").await, others.values().copied().sum::<u64>());
        assert_eq!(self.used("usedbydataset").await, own.values().sum::<u64>());
    }

    async fn steps(&mut self, count: u32) {
        for step in 0..count {
            match self.dice.roll(20) {
                0..=8 => self.write().await,
                9 => self.unlink().await,
                10..=13 => self.take().await,
                14..=15 => self.destroy().await,
                16 => self.hold().await,
                17 => self.rename().await,
                18 => self.rollback().await,
                _ => self.pool.sync().await.unwrap(),
            }
            if step % 20 == 7 {
                // It goes on while snapshots come and go.
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
        let dsl = self.pool.dsl().clone();
        let held: Vec<String> = self.held.iter().map(|name| format!("{DATASET}@{name}")).collect();
        if !held.is_empty() {
            assert!(dsl.destroy_snapshots(&held, true).await.unwrap().is_empty());
            assert!(dsl.release_snapshots(&held, "tag").await.unwrap().is_empty());
        }
        let names: Vec<String> = self.kept.iter().map(|(name, _)| format!("{DATASET}@{name}")).collect();
        assert!(dsl.destroy_snapshots(&names, false).await.unwrap().is_empty());
        assert!(dsl.snapshots(None).await.unwrap().is_empty());
        assert_eq!(self.used("usedbysnapshots").await, 0);
        self.unmount().await;
        dsl.destroy_dataset(DATASET).await.unwrap();
        settle(&self.pool).await;
        self.pool.export().await.unwrap();
        judge(self.folder.path());
    }
}

async fn run(seed: u64, version: Option<&str>, steps: u32) {
    let mut bench = Bench::new(seed, version).await;
    bench.steps(steps).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_keep_what_was_and_count_it() {
    for seed in 1..=3 {
        run(seed, None, 120).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_do_those_of_old_pools() {
    for (seed, version) in [(4, "28"), (5, "26"), (6, "18")] {
        run(seed, Some(version), 60).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_are_taken_together_or_not_at_all() {
    let bench = Bench::new(7, None).await;
    let dsl = bench.pool.dsl();
    let given = |pairs: &[(&str, &str)]| pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    dsl.create_dataset("tank/fs/a", &given(&[("snapshot_limit", "2")])).await.unwrap();
    dsl.create_dataset("tank/fs/a/b", &BTreeMap::new()).await.unwrap();
    let none = BTreeMap::new();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = names(&["tank/fs@x", "tank/fs/a@x", "tank/fs/a/b@x"]);
    assert!(dsl.take_snapshots(&all, &none).await.unwrap().is_empty());
    let reports = dsl.snapshots(None).await.unwrap();
    let of =
        |property: &str| reports.iter().map(|report| report.properties[property].value.clone()).collect::<Vec<_>>();
    assert_eq!(reports.iter().map(|report| report.name.clone()).collect::<Vec<_>>(), all);
    assert!(of("createtxg").windows(2).all(|pair| pair[0] == pair[1]) && of("creation").len() == 3);

    let refused = async |wanted: &[&str]| {
        let refused = dsl.take_snapshots(&names(wanted), &none).await.unwrap();
        refused.into_iter().map(|(name, reason)| format!("{name}: {reason}")).collect::<Vec<_>>()
    };
    assert_eq!(refused(&["tank/fs@y", "tank/fs/a@x"]).await, ["tank/fs/a@x: dataset already exists"]);
    let limit = refused(&["tank/fs@y", "tank/fs/a/b@y"]).await;
    assert!(limit.len() == 1 && limit[0].starts_with("tank/fs/a: out of space"), "{limit:?}");
    assert_eq!(refused(&["tank/fs@y", "tank/fs@z"]).await, ["tank/fs@z: multiple snapshots of same fs not allowed"]);
    assert_eq!(refused(&["tank/no@y"]).await, ["tank/no@y: dataset does not exist"]);
    let long = format!("tank/fs@{}", "n".repeat(250));
    assert_eq!(refused(&[&long]).await, [format!("{long}: name is too long")]);
    let native = given(&[("atime", "off")]);
    let error = dsl.take_snapshots(&names(&["tank/fs@y"]), &native).await.unwrap_err();
    assert_eq!(error.to_string(), "this property can not be modified for snapshots");
    assert_eq!(dsl.snapshots(None).await.unwrap().len(), 3, "what is refused leaves nothing");
    let counts = &dsl.dataset("tank/fs/a").await.unwrap().properties["snapshot_count"];
    assert_eq!(counts.value, PropertyValue::Number(2));
    let gone = dsl.destroy_snapshots(&all, false).await.unwrap();
    assert!(gone.is_empty());
    let counts = &dsl.dataset("tank/fs/a").await.unwrap().properties["snapshot_count"];
    assert_eq!(counts.value, PropertyValue::Number(0));
}
