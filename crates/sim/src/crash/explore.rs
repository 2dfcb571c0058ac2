//! One workload: recorded once, then every state that a crash may leave is imported and compared.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::{Detail, PropertyValue};
use platter_api::request::{CreateRequest, ImportRequest, NewVolume, VdevRequest};
use platter_device::BlockDevice;
use platter_ondisk::ObjectId;
use platter_ondisk::label::{VDEV_LABEL_END_SIZE, VDEV_LABEL_START_SIZE};
use platter_spa::Pool;
use platter_zpl::{FileKind, MountOptions, SetAttr, SetTime, UnlimitedSpace, Zpl};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::contents::RECORD;
use super::disks::TWIN;
use super::expect::Plan;
use super::fork::Fork;
use super::mended::nothing_was_mended;
use super::model::{FILESYSTEM, Model, Seen, VOLUME, VOLUME_SIZE, View};
use super::operation::{NEW, OLD, Operation};
use super::record::{Event, Log, RecordedDisk};
use super::served::Served;
use super::space;
use super::states::{SECTOR, State};
use crate::world::{self, SimDevices, StandingClock};
use platter_model::disk::Image;

/// Bytes of each disk: the least a pool takes.
pub const DISK_SIZE: u64 = 64 << 20;

/// Groups in which all that a workload destroyed is freed.
const FREEING_MAX: u32 = 10_000;

/// How the pool's disks are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One disk.
    Single,
    /// Two disks with the same.
    Mirror,
    /// Three disks, one of them for parity.
    Raidz1,
    /// Four disks, two mirrors: what is there of several vdevs, or of none. Only looked at when it is asked for.
    Mirrors,
}

impl Layout {
    /// Those that each workload is tried on.
    pub const ALL: [Self; 3] = [Self::Single, Self::Mirror, Self::Raidz1];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Mirrors]).find(|layout| layout.name() == name)
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mirror => "mirror",
            Self::Raidz1 => "raidz1",
            Self::Mirrors => "mirrors",
        }
    }

    /// Top-level vdevs of the pool.
    fn tops(self) -> usize {
        if self == Self::Mirrors { 2 } else { 1 }
    }

    /// Whether one disk may be lost.
    pub fn is_redundant(self) -> bool {
        matches!(self, Self::Mirror | Self::Raidz1)
    }

    /// Disks of the pool; one more waits to be added.
    pub fn disks(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Mirror => 2,
            Self::Raidz1 => 3,
            Self::Mirrors => 4,
        }
    }

    /// Checksums of the file system: a keyed one needs the pool's salt before the intent log can be claimed.
    fn checksum(self) -> &'static str {
        match self {
            Self::Single => "on",
            Self::Mirror | Self::Mirrors => "sha512",
            Self::Raidz1 => "blake3",
        }
    }

    fn vdevs(self) -> Vec<VdevRequest> {
        let paths = |count| (0..count).map(SimDevices::path).collect::<Vec<PathBuf>>();
        match self {
            Self::Single => vec![VdevRequest::Leaf(SimDevices::path(0))],
            Self::Mirror => vec![VdevRequest::Mirror(paths(2))],
            Self::Raidz1 => vec![VdevRequest::Raidz { parity: 1, children: paths(3) }],
            Self::Mirrors => paths(4).chunks(2).map(|pair| VdevRequest::Mirror(pair.to_vec())).collect(),
        }
    }
}

/// Runs one future to its end in a world of its own: paused time, one thread.
///
/// # Errors
/// As `work`; when it takes more than an hour of its own time, which nothing does that does not hang.
pub fn alone<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.map_err(text)?.block_on(async {
        let limit = Duration::from_secs(3600);
        tokio::time::timeout(limit, work).await.map_err(|_| "it hangs: an hour went by".to_owned())?
    })
}

fn devices(images: &[Image]) -> (Arc<SimDevices>, Vec<Arc<Fork>>) {
    let devices = Arc::new(SimDevices::default());
    let forks: Vec<Arc<Fork>> = images
        .iter()
        .enumerate()
        .map(|(index, image)| Arc::new(Fork::new(format!("d{index}"), DISK_SIZE, image.clone())))
        .collect();
    for (index, fork) in forks.iter().enumerate() {
        devices.insert(index, fork.clone() as Arc<dyn BlockDevice>);
    }
    (devices, forks)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A host of its own for each import: two that draw the same numbers would give a new vdev an old one's guid.
const RECORDING: u64 = 1 << 32;
const LOOKING: u64 = 2 << 32;
const LOOKING_AGAIN: u64 = 3 << 32;

async fn import(seed: u64, devices: Arc<SimDevices>) -> Result<Arc<Pool>, String> {
    let request = ImportRequest {
        pool: "tank".into(),
        search: vec![PathBuf::from(world::FOLDER)],
        history: "zpool import tank".into(),
        ..ImportRequest::default()
    };
    let environment = world::environment(seed, devices, Arc::new(StandingClock));
    Pool::import(environment, request).await.map_err(|error| format!("import: {error}"))
}

/// Disks and model before a workload.
#[derive(Clone, Debug)]
pub struct Base {
    /// How the disks are arranged.
    pub layout: Layout,
    /// What they hold; the last is not in the pool.
    pub images: Vec<Image>,
    /// What the file system holds.
    pub model: Model,
}

impl Base {
    /// Makes the pool.
    ///
    /// # Errors
    /// What the engine said.
    pub fn make(layout: Layout, seed: u64) -> Result<Self, String> {
        let (devices, forks) = devices(&vec![Image::default(); layout.disks() + 1]);
        let plan = Plan::new(&Model::default(), &Operation::base(), 100).expect("the base's operations fit together");
        let mut model = plan.end();
        model.set_mirrors(layout != Layout::Raidz1);
        model.set_tops(layout.tops());
        model.apply(&super::model::Step::Dataset(FILESYSTEM, true));
        model.apply(&super::model::Step::Dataset(OLD, true));
        model.apply(&super::model::Step::Dataset(VOLUME, true));
        alone(async {
            let environment = world::environment(seed, devices, Arc::new(StandingClock));
            let request = CreateRequest {
                name: "tank".into(),
                vdevs: layout.vdevs(),
                history: "zpool create tank".into(),
                ..CreateRequest::default()
            };
            let pool = Pool::create(environment, request).await.map_err(text)?;
            let properties = BTreeMap::from([
                ("recordsize".to_owned(), RECORD.to_string()),
                ("checksum".to_owned(), layout.checksum().to_owned()),
            ]);
            pool.dsl().create_dataset(FILESYSTEM, &properties).await.map_err(text)?;
            pool.dsl().create_dataset(OLD, &BTreeMap::new()).await.map_err(text)?;
            let asked = NewVolume { size: VOLUME_SIZE as u64, block_size: Some(RECORD as u64), sparse: true };
            pool.dsl().create_volume(VOLUME, &asked, &BTreeMap::new()).await.map_err(text)?;
            let mut on = Served::new(pool).await?;
            for (index, operation) in Operation::base().into_iter().enumerate() {
                operation.run(100 + index, &mut on, 0).await?;
            }
            on.end().await?.close().await.map_err(text)
        })?;
        Ok(Self { layout, images: forks.iter().map(|fork| fork.image()).collect(), model })
    }
}

/// A workload and what it sent to the disks.
#[derive(Debug)]
pub struct Recorded {
    /// What it did.
    pub plan: Plan,
    /// Disks before the first event.
    pub images: Vec<Image>,
    /// What happened.
    pub events: Vec<Event>,
}

/// Runs a workload and a last sync, on a file system whose intent log has blocks already with `log_begun`; `None` when
/// one of its operations cannot be done where it stands.
///
/// # Errors
/// What the engine said.
pub fn record(base: &Base, operations: &[Operation], seed: u64, log_begun: bool) -> Result<Option<Recorded>, String> {
    let operations: Vec<Operation> = operations.iter().copied().chain([Operation::Sync]).collect();
    let Some(plan) = Plan::new(&base.model, &operations, 0) else { return Ok(None) };
    let (log, devices) = (Log::default(), Arc::new(SimDevices::default()));
    let disks: Vec<Arc<RecordedDisk>> = base
        .images
        .iter()
        .enumerate()
        .map(|(index, image)| {
            let fork = Fork::new(format!("d{index}"), DISK_SIZE, image.clone());
            Arc::new(RecordedDisk::new(index, fork, log.clone(), seed))
        })
        .collect();
    for (index, disk) in disks.iter().enumerate() {
        devices.insert(index, disk.clone() as Arc<dyn BlockDevice>);
    }
    let images = alone(async {
        let pool = import(RECORDING + seed, devices).await?;
        let mut on = Served::new(pool).await?;
        let pool = on.pool.clone();
        if log_begun {
            let root = on.zpl.root();
            let change = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
            on.zpl.setattr(root, change).await.map_err(text)?;
            on.zpl.fsync(root).await.map_err(text)?;
            // The same bytes again.
            let bytes = on.volume.read().await?;
            on.volume.write(0, &bytes[..512]).await?;
            on.volume.fsync().await?;
        }
        // What the import itself writes settles first.
        for _ in 0..3 {
            pool.sync().await.map_err(text)?;
        }
        let images: Vec<Image> = disks.iter().map(|disk| disk.image()).collect();
        log.start();
        for (index, operation) in operations.iter().enumerate() {
            log.mark(Event::Began { operation: index });
            let done = operation.run(index, &mut on, base.layout.disks()).await;
            done.map_err(|error| format!("{operation}: {error}"))?;
            log.mark(Event::Ended { operation: index });
        }
        Ok::<_, String>(images)
    })?;
    Ok(Some(Recorded { plan, images, events: log.take() }))
}

/// What a state turned out to hold.
#[derive(Debug)]
pub struct Found {
    /// The tree and the pool.
    pub view: View,
    /// What the pool that was split off holds, if there is one.
    pub twin: Option<View>,
    /// Disks after a clean export, when asked for.
    pub exported: Option<Vec<Image>>,
}

/// How closely a state is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Imported, mounted (the log is replayed) and compared.
    Compare,
    /// Also: scrubbed, written to, exported, imported again and compared again.
    Thorough,
}

/// What befalls one disk of a redundant pool besides the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hardship {
    /// It is replaced by an empty one.
    Lost,
    /// Many of its sectors rot, labels excepted.
    Rotten,
}

/// Sectors that rot.
const ROTTEN: usize = 200;

/// The disks after `hardship` came over disk `disk`.
pub fn hurt(images: &[Image], disk: usize, hardship: Hardship, seed: u64) -> Vec<Image> {
    let mut images = images.to_vec();
    match hardship {
        Hardship::Lost => images[disk] = Image::default(),
        Hardship::Rotten => {
            let mut random = ChaCha20Rng::seed_from_u64(seed);
            let allocatable = VDEV_LABEL_START_SIZE..DISK_SIZE - VDEV_LABEL_END_SIZE;
            for _ in 0..ROTTEN {
                let Some(place) = images[disk].inhabited(random.next_u64()) else { break };
                let sector = place / SECTOR as u64 * SECTOR as u64;
                if allocatable.contains(&sector) {
                    let mut bytes = [0; SECTOR];
                    random.fill_bytes(&mut bytes);
                    images[disk].write_at(sector, &bytes);
                }
            }
        }
    }
    images
}

/// Imports a state as a new host would and reads everything.
///
/// # Errors
/// Why it could not be imported, mounted or read.
pub fn look(images: &[Image], seed: u64, depth: Depth) -> Result<Found, String> {
    let found = look_at_pool(images, seed, depth)?;
    // Of two pools either may be opened first.
    let twin = look_at_twin(images, seed)?;
    if let Some(exported) = &found.exported
        && look_at_twin(exported, seed)? != twin
    {
        return Err("the pool that was split off is another one when the old pool was opened first".into());
    }
    Ok(Found { twin, ..found })
}

/// Imports the pool that was split off, under the name of the one that it was, and reads everything; `None` when there
/// is none.
fn look_at_twin(images: &[Image], seed: u64) -> Result<Option<View>, String> {
    let (devices, _) = devices(images);
    alone(async {
        let environment = world::environment(LOOKING + seed, devices, Arc::new(StandingClock));
        let request = ImportRequest {
            pool: TWIN.into(),
            new_name: Some("tank".into()),
            search: vec![PathBuf::from(world::FOLDER)],
            ..ImportRequest::default()
        };
        let pool = match Pool::import(environment, request).await {
            Err(error) if error.to_string().contains("no such pool") => return Ok(None),
            pool => pool.map_err(|error| format!("import of {TWIN}: {error}"))?,
        };
        let on = Served::new(pool).await?;
        let seen = view(&on).await?;
        Operation::Create(super::operation::Name("after")).run(900, &mut { on }, 0).await?;
        Ok(Some(seen))
    })
}

fn look_at_pool(images: &[Image], seed: u64, depth: Depth) -> Result<Found, String> {
    let (devices, forks) = devices(images);
    alone(async {
        let pool = import(LOOKING + seed, devices.clone()).await?;
        let mut on = Served::new(pool).await?;
        let view = view(&on).await?;
        let pool = on.pool.clone();
        if depth == Depth::Compare {
            return Ok(Found { view, twin: None, exported: None });
        }
        // A disk that the last uberblock did not reach is resilvered first.
        pool.scrub_wait().await.map_err(text)?;
        nothing_was_mended(&pool).await?;
        pool.scrub_start().await.map_err(text)?;
        pool.scrub_wait().await.map_err(text)?;
        nothing_was_mended(&pool).await?;
        Operation::Create(super::operation::Name("after")).run(900, &mut on, 0).await?;
        on.zpl.unlink(on.zpl.root(), b"after").await.map_err(text)?;
        drop(pool);
        on.end().await?.export().await.map_err(text)?;
        let on = Served::new(import(LOOKING_AGAIN + seed, devices).await?).await?;
        let again = self::view(&on).await?;
        if again != view {
            return Err(format!("after export and import: {}", again.differences(&view).join("; ")));
        }
        nothing_leaked(&on.pool).await?;
        space::check(&on.pool).await?;
        on.end().await?.export().await.map_err(text)?;
        Ok(Found { view, twin: None, exported: Some(forks.iter().map(|fork| fork.image()).collect()) })
    })
}

/// Waits until what was destroyed is freed, all of which must be found.
async fn nothing_leaked(pool: &Arc<Pool>) -> Result<(), String> {
    let left = async |property: &str| -> Result<u64, String> {
        match pool.properties().await.map_err(text)?.get(property).map(|property| &property.value) {
            Some(PropertyValue::Number(bytes)) => Ok(*bytes),
            other => Err(format!("property {property} is {other:?}")),
        }
    };
    let mut groups = 0;
    while left("freeing").await? > 0 {
        pool.sync().await.map_err(text)?;
        groups += 1;
        if groups > FREEING_MAX {
            return Err(format!("after {groups} groups not all is freed"));
        }
    }
    match left("leaked").await? {
        0 => Ok(()),
        bytes => Err(format!("{bytes} bytes of a destroyed data set were not found")),
    }
}

/// Reads a file system.
async fn tree(zpl: &Zpl) -> Result<BTreeMap<String, Seen>, String> {
    let (mut tree, mut objects) = (BTreeMap::<String, Seen>::new(), BTreeMap::<u64, Vec<String>>::new());
    let mut folders = vec![(String::new(), zpl.root())];
    while let Some((path, folder)) = folders.pop() {
        for entry in zpl.readdir(folder, 0, usize::MAX, false).await.map_err(|e| format!("listing {path}/: {e}"))? {
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let seen = see(zpl, entry.object).await.map_err(|error| format!("{path}: {error}"))?;
            if seen.kind == "folder" {
                folders.push((path.clone(), entry.object));
            }
            objects.entry(entry.object.0).or_default().push(path.clone());
            tree.insert(path, seen);
        }
    }
    for paths in objects.values() {
        let first = paths.iter().min().expect("an object that was seen has a path").clone();
        for path in paths {
            tree.get_mut(path).expect("it was seen").first_path = first.clone();
        }
    }
    Ok(tree)
}

/// Reads everything that is compared.
///
/// # Errors
/// What could not be read.
pub async fn view(on: &Served) -> Result<View, String> {
    let Served { pool, zpl, volume, .. } = on;
    let mut view = View { tree: tree(zpl).await?, volume: volume.read().await?, ..View::default() };
    let others = space::others(pool).await?;
    for (name, os) in others.into_iter().filter(|(name, _)| ![OLD, NEW, VOLUME].contains(&&**name)) {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let mounted = Zpl::mount(os, options, Arc::new(StandingClock), Arc::new(UnlimitedSpace)).await;
        let tree = tree(&*mounted.map_err(|error| format!("{name}: {error}"))?).await;
        view.others.insert(name.clone(), tree.map_err(|error| format!("{name}: {error}"))?);
    }
    for dataset in pool.dsl().datasets().await.map_err(text)? {
        if dataset.name == FILESYSTEM {
            let compression = dataset.properties.get("compression").map(|property| property.value.clone());
            let view_compression = compression.map(|value| match value {
                PropertyValue::Text(text) => text,
                PropertyValue::Number(number) => number.to_string(),
            });
            view.compression = view_compression.unwrap_or_default();
        }
        if dataset.name.contains('/') {
            view.datasets.insert(dataset.name);
        }
    }
    let report = pool.report(Detail { errors: false, extended: false }).await.map_err(text)?;
    view.vdevs = report.vdevs.children.len();
    (view.caches, view.spares) = (report.caches.len(), report.spares.len());
    Ok(view)
}

async fn see(zpl: &Zpl, object: ObjectId) -> Result<Seen, String> {
    let attr = zpl.getattr(object).await.map_err(text)?;
    let mut seen = Seen {
        kind: "folder",
        mode: attr.mode,
        links: 0,
        first_path: String::new(),
        bytes: Vec::new(),
        xattrs: BTreeMap::new(),
    };
    match attr.kind {
        FileKind::Directory => return Ok(seen),
        FileKind::Symlink => {
            seen.kind = "symlink";
            seen.bytes = zpl.readlink(object).await.map_err(text)?;
        }
        _ => {
            seen.kind = "file";
            for part in zpl.read(object, 0, attr.size).await.map_err(text)? {
                seen.bytes.extend_from_slice(&part);
            }
        }
    }
    seen.links = attr.links;
    for name in zpl.listxattr(object, true).await.map_err(text)? {
        let value = zpl.getxattr(object, &name).await.map_err(text)?;
        seen.xattrs.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    Ok(seen)
}

/// Compares what a state holds with what it may hold.
///
/// # Errors
/// What is wrong, with the nearest that would have been right.
pub fn check(recorded: &Recorded, state: &State, seed: u64, depth: Depth) -> Result<Found, String> {
    let found = look(&state.images, seed, depth)?;
    compare(recorded, state, &found)?;
    let split = recorded.plan.split();
    if found.twin.is_none() && split.is_some_and(|(index, _)| state.ended > index) {
        return Err("the pool that was split off is not there".into());
    }
    Ok(found)
}

/// The same, after `hardship` came over disk `disk` besides. That may be another state than without it: the only disk
/// that had the newest uberblock may be the one that is lost.
///
/// # Errors
/// As [`check`].
pub fn endure(recorded: &Recorded, state: &State, seed: u64, disk: usize, hardship: Hardship) -> Result<(), String> {
    let images = hurt(&state.images, disk, hardship, seed);
    let found = look(&images, seed, Depth::Compare).and_then(|found| compare(recorded, state, &found));
    found.map_err(|error| format!("disk {disk} {hardship:?}: {error}"))
}

fn compare(recorded: &Recorded, state: &State, found: &Found) -> Result<(), String> {
    if let Some(twin) = &found.twin {
        let split = recorded.plan.split().filter(|(index, _)| state.begun > *index);
        let (_, held) = split.ok_or("a pool was split off that should not be there")?;
        if *twin != held {
            return Err(format!("the pool that was split off differs: {}", twin.differences(&held).join("; ")));
        }
    }
    let allowed = recorded.plan.allowed(state.begun, state.ended);
    if allowed.contains(&found.view) {
        return Ok(());
    }
    let differences = allowed.iter().map(|view| found.view.differences(view)).min_by_key(Vec::len);
    Err(format!("nearest of {} allowed states differs: {}", allowed.len(), differences.unwrap_or_default().join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_dmu::bpobj::Bpobj;
    use platter_dsl::deadlist;

    // What nothing of a base has is not explored.
    #[test]
    fn the_clone_of_a_base_has_a_livelist_on_which_something_died() {
        let base = Base::make(Layout::Single, 1).unwrap();
        let (devices, _) = devices(&base.images);
        let deaths = alone(async {
            let pool = import(LOOKING, devices).await?;
            let dsl = pool.dsl();
            let list =
                dsl.find(crate::crash::operation::CLONE).map_err(text)?.accounting.livelist().ok_or("no livelist")?;
            let mut deaths = 0;
            for (_, part) in deadlist::keys(&dsl.mos, list.object).await.map_err(text)? {
                let part = Bpobj::open(&dsl.mos, part).await.map_err(text)?;
                deaths += part.births_and_deaths().map_err(text)?.1;
            }
            pool.export().await.map_err(text)?;
            Ok(deaths)
        });
        assert!(deaths.unwrap() > 0, "nothing died");
    }
}
