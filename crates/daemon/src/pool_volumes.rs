//! A pool's volumes as a tree of files, for the mount that shows them.
//!
//! Invariants:
//! - a volume is open in the pool as long as somebody has its file open, and no longer: whatever is to be destroyed or
//!   rolled back is found in use, or closed;
//! - a snapshot that is open is kept.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_api::report::DatasetKind;
use platter_dsl::contents::{self, Contents};
use platter_dsl::dataset::Dataset;
use platter_dsl::in_use::Kept;
use platter_dsl::inheritance::number;
use platter_dsl::volume::{OpenVolume, Server};
use platter_dsl::{DslPool, PoolError, dataset_report, intent};
use platter_fuse::snapshots::Answer;
use platter_fuse::volume_tree::{Item, ItemKind, VolumeTree};
use platter_ondisk::ObjectId;
use platter_spa::Pool;
use platter_zvol::{OpenOptions, UnlimitedSpace, Volume};
use rustix::io::Errno;

use crate::dataset_space::DatasetSpace;

/// `volmode=none`, as it is stored (`ZFS_VOLMODE_NONE`).
const VOLMODE_NONE: u64 = 3;

/// A snapshot that was looked up: its number is all that comes back.
#[derive(Clone)]
struct KnownSnapshot {
    /// The number of its volume.
    volume: ObjectId,
    /// Its own name.
    name: String,
    item: Item,
}

/// What keeps a volume open.
enum Held {
    Head(OpenVolume, Arc<Serving>),
    Snapshot(Kept),
}

struct Served {
    volume: Arc<Volume>,
    held: Held,
    times: u64,
}

/// What the pool tells of a volume that is open.
struct Serving(Arc<Volume>);

impl Server for Serving {
    fn resized(&self, size: u64) -> BoxFuture<'_, ()> {
        Box::pin(self.0.set_size(size))
    }

    fn set_read_only(&self, read_only: bool) {
        self.0.set_read_only(read_only);
    }
}

/// See the module text.
pub struct PoolVolumes {
    pool: Arc<Pool>,
    open: tokio::sync::Mutex<BTreeMap<u64, Served>>,
    snapshots: Mutex<BTreeMap<u64, KnownSnapshot>>,
}

fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn errno(error: &PoolError) -> Errno {
    match error {
        PoolError::Busy(_) => Errno::BUSY,
        PoolError::NotFound(_) => Errno::NOENT,
        _ => Errno::IO,
    }
}

impl PoolVolumes {
    /// Those of `pool`.
    pub fn new(pool: Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { pool, open: tokio::sync::Mutex::default(), snapshots: Mutex::default() })
    }

    fn dsl(&self) -> &Arc<DslPool> {
        self.pool.dsl()
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.dsl().tree.read().datasets.values().any(|dataset| dataset.kind == DatasetKind::Volume)
    }

    /// Does again what a crash left in the logs of volumes, which OpenZFS does at the import, too
    /// (`zvol_os_create_minor`). What fails is tried again when the volume is opened.
    pub async fn replay_logs(&self) {
        if self.dsl().read_only {
            return;
        }
        let volumes: Vec<(String, Arc<Dataset>)> = {
            let tree = self.dsl().tree.read();
            let all = tree.datasets.iter().filter(|(_, dataset)| dataset.kind == DatasetKind::Volume);
            all.map(|(name, dataset)| (name.clone(), dataset.clone())).collect()
        };
        for (name, dataset) in volumes {
            if matches!(intent::waiting(self.dsl(), &dataset).await, Ok(None)) {
                continue;
            }
            let number = dataset.object.0;
            match self.open(number).await {
                Ok(_volume) => self.close(number).await,
                Err(error) => tracing::warn!("the intent log of volume '{name}' is not replayed: {error}"),
            }
        }
    }

    /// The data set of this number, and its name.
    fn dataset(&self, number: u64) -> Option<(String, Arc<Dataset>)> {
        let tree = self.dsl().tree.read();
        let found = tree.datasets.iter().find(|(_, dataset)| dataset.object.0 == number);
        found.map(|(name, dataset)| (name.clone(), dataset.clone()))
    }

    async fn item_of(&self, name: &str, dataset: &Dataset) -> Option<Item> {
        let kind = match dataset.kind {
            DatasetKind::Filesystem => ItemKind::Directory,
            _ if number(&dataset.dir, "volmode") == VOLMODE_NONE => return None,
            _ => {
                let Contents::Volume(size, block_size) = dataset_report::contents_of(self.dsl(), dataset).await else {
                    return None;
                };
                let used = dataset.phys.lock().referenced_bytes;
                ItemKind::Volume { size, block_size, used, read_only: self.is_read_only(dataset) }
            }
        };
        let phys = dataset.phys.lock();
        let (generation, since) = (phys.guid.0, phys.creation_time);
        Some(Item { name: last(name).to_owned(), number: dataset.object.0, generation, since, kind })
    }

    fn is_read_only(&self, dataset: &Dataset) -> bool {
        self.dsl().read_only || number(&dataset.dir, "readonly") != 0
    }

    /// The snapshot of a volume. It is found by its name also where it is not listed, as in `.zfs`.
    async fn snapshot_of(&self, volume: &str, dataset: &Dataset, name: &str) -> Option<Item> {
        if dataset.kind != DatasetKind::Volume {
            return None;
        }
        let bonus = dataset.snapshot(&self.dsl().mos, name).await.ok()??;
        let known = self.snapshots.lock().get(&bonus.snapshot().object.0).cloned();
        if let Some(known) = known.filter(|known| known.name == name && known.volume == dataset.object) {
            return Some(known.item);
        }
        let os = self.dsl().open_snapshot(&format!("{volume}@{name}")).await.ok()?;
        let Contents::Volume(size, block_size) = contents::read(&os, DatasetKind::Volume).await.ok()? else {
            return None;
        };
        let item = Item {
            name: format!("{}@{name}", last(volume)),
            number: bonus.snapshot().object.0,
            generation: bonus.phys.guid.0,
            since: bonus.phys.creation_time,
            kind: ItemKind::Volume { size, block_size, used: bonus.phys.referenced_bytes, read_only: true },
        };
        let known = KnownSnapshot { volume: dataset.object, name: name.to_owned(), item: item.clone() };
        self.snapshots.lock().insert(item.number, known);
        Some(item)
    }

    /// The snapshot of this number that was looked up before, as far as it is still there.
    async fn known_snapshot(&self, number: u64) -> Option<(String, Item)> {
        let known = self.snapshots.lock().get(&number).cloned()?;
        let found = self.dataset(known.volume.0);
        let item = match &found {
            Some((volume, dataset)) => self.snapshot_of(volume, dataset, &known.name).await,
            None => None,
        };
        match item.filter(|item| item.number == number).zip(found) {
            Some((item, (volume, _))) => Some((format!("{volume}@{}", known.name), item)),
            None => {
                self.snapshots.lock().remove(&number);
                None
            }
        }
    }

    async fn begin(&self, number: u64) -> Result<Served, Errno> {
        if let Some((name, _)) = self.known_snapshot(number).await {
            return self.begin_snapshot(&name, number).await;
        }
        let Some((name, dataset)) = self.dataset(number) else { return Err(Errno::STALE) };
        if dataset.kind != DatasetKind::Volume {
            return Err(Errno::ISDIR);
        }
        let dsl = self.dsl();
        let space = Arc::new(DatasetSpace(dsl.filesystem_space(&name).map_err(|error| errno(&error))?));
        let opened = dsl.open_volume(&name).await.map_err(|error| errno(&error))?;
        let options = OpenOptions { read_only: self.is_read_only(&dataset), log: opened.log.clone(), space };
        match Volume::open(opened.objset.clone(), options).await {
            Ok(volume) => {
                let serving = Arc::new(Serving(volume.clone()));
                let weak: std::sync::Weak<dyn Server> = Arc::downgrade(&serving) as _;
                opened.served_by(weak);
                Ok(Served { volume, held: Held::Head(opened, serving), times: 0 })
            }
            Err(error) => {
                tracing::warn!("cannot open volume '{name}': {error}");
                let _ = dsl.close_volume(opened).await;
                Err(Errno::from_raw_os_error(error.errno()))
            }
        }
    }

    async fn begin_snapshot(&self, name: &str, number: u64) -> Result<Served, Errno> {
        let kept = self.dsl().in_use.keep(ObjectId(number));
        let os = self.dsl().open_snapshot(name).await.map_err(|error| errno(&error))?;
        let options = OpenOptions { read_only: true, log: None, space: Arc::new(UnlimitedSpace) };
        let volume = Volume::open(os, options).await.map_err(|error| {
            tracing::warn!("cannot open '{name}': {error}");
            Errno::from_raw_os_error(error.errno())
        })?;
        Ok(Served { volume, held: Held::Snapshot(kept), times: 0 })
    }

    async fn below(&self, folder: u64) -> Vec<Item> {
        let Some((parent, _)) = self.dataset(folder) else { return Vec::new() };
        let inside: Vec<(String, Arc<Dataset>)> = {
            let (tree, prefix) = (self.dsl().tree.read(), format!("{parent}/"));
            let direct = |name: &str| {
                let rest = name.strip_prefix(&prefix);
                rest.is_some_and(|rest| !rest.contains(['/', '%']))
            };
            let found = tree.datasets.iter().filter(|(name, _)| direct(name));
            found.map(|(name, dataset)| (name.clone(), dataset.clone())).collect()
        };
        let mut items = Vec::new();
        for (name, dataset) in inside {
            let Some(item) = self.item_of(&name, &dataset).await else { continue };
            items.push(item);
            if dataset.kind != DatasetKind::Volume || number(&dataset.dir, "snapdev") == 0 {
                continue;
            }
            for (snapshot, _) in dataset.snapshot_names(&self.dsl().mos).await.unwrap_or_default() {
                items.extend(self.snapshot_of(&name, &dataset, &snapshot).await);
            }
        }
        items.sort_by_key(|item| item.number);
        items
    }
}

impl VolumeTree for PoolVolumes {
    fn root(&self) -> u64 {
        let name = self.dsl().name();
        self.dsl().find(name).map_or(0, |root| root.object.0)
    }

    fn space(&self) -> (u64, u64) {
        let (usable, used) = self.dsl().space();
        (used, usable.saturating_sub(used))
    }

    fn item(&self, number: u64) -> Answer<'_, Option<Item>> {
        Box::pin(async move {
            match self.dataset(number) {
                Some((name, dataset)) => self.item_of(&name, &dataset).await,
                None => self.known_snapshot(number).await.map(|(_, item)| item),
            }
        })
    }

    fn parent(&self, number: u64) -> Answer<'_, u64> {
        Box::pin(async move {
            let name = self.dataset(number).map(|(name, _)| name);
            let above = name.as_deref().and_then(|name| name.rsplit_once('/')).map(|(above, _)| above.to_owned());
            above.and_then(|above| self.dsl().find(&above).ok()).map_or(self.root(), |above| above.object.0)
        })
    }

    fn list(&self, folder: u64) -> Answer<'_, Vec<Item>> {
        Box::pin(self.below(folder))
    }

    fn find<'a>(&'a self, folder: u64, name: &'a str) -> Answer<'a, Option<Item>> {
        Box::pin(async move {
            let (parent, _) = self.dataset(folder)?;
            let (volume, snapshot) = match name.split_once('@') {
                Some((volume, snapshot)) => (volume, Some(snapshot)),
                None => (name, None),
            };
            let full_name = format!("{parent}/{volume}");
            let dataset = self.dsl().find(&full_name).ok().filter(|_| !volume.contains(['/', '%']))?;
            let item = self.item_of(&full_name, &dataset).await?;
            match snapshot {
                Some(snapshot) => self.snapshot_of(&full_name, &dataset, snapshot).await,
                None => Some(item),
            }
        })
    }

    fn open(&self, number: u64) -> Answer<'_, Result<Arc<Volume>, Errno>> {
        Box::pin(async move {
            let mut open = self.open.lock().await;
            let served = match open.entry(number) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => place.insert(self.begin(number).await?),
            };
            served.times += 1;
            Ok(served.volume.clone())
        })
    }

    fn close(&self, number: u64) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut open = self.open.lock().await;
            let Some(served) = open.get_mut(&number) else { return };
            assert!(served.times > 0, "what is open was opened");
            served.times -= 1;
            if served.times > 0 {
                return;
            }
            let Some(Served { volume, held, .. }) = open.remove(&number) else { return };
            drop(volume);
            match held {
                Held::Snapshot(kept) => drop(kept),
                Held::Head(opened, serving) => {
                    drop(serving);
                    if let Err(error) = self.dsl().close_volume(opened).await {
                        tracing::warn!("closing a volume: {error}");
                    }
                }
            }
        })
    }
}
