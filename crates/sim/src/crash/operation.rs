//! The operations that short workloads are made of, in the manner of ACE: few files, every kind of change.
//!
//! [`Operation::plan`] does to the model what [`Operation::run`] does to the engine: where they differ, the state after
//! the last crash is no state that may be there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::{Detail, LeafWorkState, VdevReport};
use platter_api::request::Setting;
use platter_api::request::{FreeWork, PoolChange, TrimAction};
use platter_dsl::take_snapshot::Refusals;
use platter_ondisk::ObjectId;
use platter_spa::Pool;
use platter_zpl::{Fallocate, NewFile, RenameFlags, SetAttr, SetXattr, Zpl};

use super::contents::{bytes, pieces};
use super::disks::DiskOperation;
use super::model::{Content, FILESYSTEM, Model, Place, ROOT, Step, VOLUME};
use super::served::Served;
use crate::volume;
use crate::world::{self, StandingClock};

/// A clone that is there from the beginning, and one to be made.
pub const CLONE: &str = "tank/clone";
const MADE: &str = "tank/made";
/// Snapshots that are there from the beginning: the older one, and the origin of all clones.
const FIRST: &str = "first";
const BASE: &str = "base";
/// A snapshot to be taken.
const LATER: &str = "later";
/// A data set that is there from the beginning.
pub const OLD: &str = "tank/old";
/// A data set to be made.
pub const NEW: &str = "tank/new";
/// A path of at most one folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub &'static str);

impl Name {
    fn split(self) -> (Option<&'static str>, &'static str) {
        match self.0.split_once('/') {
            Some((folder, name)) => (Some(folder), name),
            None => (None, self.0),
        }
    }

    /// Where the model has it.
    pub fn place(self, model: &Model) -> Option<Place> {
        match self.split() {
            (None, name) => Some((ROOT, name)),
            (Some(folder), name) => Some((model.find((ROOT, folder))?, name)),
        }
    }

    async fn parent(self, zpl: &Zpl) -> Result<ObjectId, String> {
        match self.split() {
            (None, _) => Ok(zpl.root()),
            (Some(folder), _) => Ok(zpl.lookup(zpl.root(), folder.as_bytes()).await.map_err(text)?.object),
        }
    }

    async fn object(self, zpl: &Zpl) -> Result<ObjectId, String> {
        let parent = self.parent(zpl).await?;
        Ok(zpl.lookup(parent, self.split().1.as_bytes()).await.map_err(text)?.object)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// An empty file.
    Create(Name),
    /// A folder.
    Mkdir(Name),
    /// An empty folder goes.
    Rmdir(Name),
    /// A symbolic link.
    Symlink(Name),
    /// This many bytes behind the end of a file.
    Append(Name, usize),
    /// This many bytes from an offset on.
    Overwrite(Name, usize, usize),
    /// The size of a file.
    Truncate(Name, usize),
    /// A hole of this many bytes from an offset on.
    Punch(Name, usize, usize),
    /// From one name to another.
    Rename(Name, Name),
    /// A further name for the first.
    Link(Name, Name),
    /// A name goes.
    Unlink(Name),
    /// An extended attribute of this many bytes.
    SetXattr(Name, usize),
    /// The extended attribute goes.
    RemoveXattr(Name),
    /// Permission bits.
    Chmod(Name),
    /// `fsync` of a file.
    Fsync(Name),
    /// Everything to stable storage.
    Sync,
    /// `zfs set compression=`.
    SetProperty,
    /// `zfs create`.
    CreateDataset,
    /// `zfs destroy`.
    DestroyDataset,
    /// A disk comes, goes, or takes another one's place.
    Disk(DiskOperation),
    /// `zpool scrub`, to its end.
    Scrub,
    /// `zfs snapshot` of the file system.
    Snapshot(&'static str),
    /// `zfs destroy` of a snapshot, whosever it is.
    DestroySnapshot(&'static str),
    /// `zfs clone` of the snapshot that all clones are made of.
    Clone(&'static str),
    /// The clone that is there is written to.
    WriteClone,
    /// `zfs destroy` of a clone.
    DestroyClone(&'static str),
    /// `zfs promote`.
    Promote(&'static str),
    /// `zfs rollback` of the file system to its latest snapshot.
    Rollback,
    /// `zfs bookmark` of a snapshot, whosever it is.
    Bookmark(&'static str),
    /// `zfs destroy` of all bookmarks of a snapshot.
    DestroyBookmarks(&'static str),
    /// `zpool trim`, to its end.
    Trim,
    /// So many bytes of the volume from an offset on.
    WriteVolume(usize, usize),
    /// The same, stable when it is over.
    StableVolume(usize, usize),
    /// So many bytes of the volume from an offset on are discarded.
    ClearVolume(usize, usize),
    /// `fsync` of the volume.
    FsyncVolume,
    /// `zfs set volsize=`.
    ResizeVolume(usize),
}

/// The attribute's name.
const XATTR: &str = "user.colour";
/// The compression that [`Operation::SetProperty`] asks for.
const COMPRESSION: &str = "gzip-1";
const MODE: u32 = 0o600;
const TARGET: &[u8] = b"A/bar";

/// Changes the permission bits.
async fn chmod(zpl: &Zpl, object: ObjectId) -> Result<(), String> {
    let change = SetAttr { mode: Some(MODE), ..SetAttr::default() };
    zpl.setattr(object, change).await.map(drop).map_err(text)
}

/// Destroys the bookmarks of the snapshot called `own`, whosever they are.
async fn destroy_bookmarks(pool: &Arc<Pool>, own: &str) -> Result<(), String> {
    let dsl = pool.dsl();
    for report in dsl.bookmark_reports(None).await.map_err(text)? {
        if report.name.contains(&format!("#{own}-")) {
            dsl.destroy_bookmark(&report.name).await.map_err(text)?;
        }
    }
    Ok(())
}

/// Scrubs the pool, and waits until that is done.
async fn scrub(pool: &Arc<Pool>) -> Result<(), String> {
    pool.scrub_start().await.map_err(text)?;
    pool.scrub_wait().await.map_err(text)
}

/// The full name of the snapshot that is called `own`, whosever it is.
async fn full_name(pool: &Arc<Pool>, own: &str) -> Result<String, String> {
    let reports = pool.dsl().snapshots(None).await.map_err(text)?;
    let found = reports.into_iter().find(|report| report.name.split('@').nth(1) == Some(own));
    found.map(|report| report.name).ok_or_else(|| format!("no snapshot is called '{own}'"))
}

/// Fails for the first that stands in the way.
fn none_refused(refusals: Refusals) -> Result<(), String> {
    match refusals.into_iter().next() {
        Some((name, reason)) => Err(format!("{name}: {reason}")),
        None => Ok(()),
    }
}

/// Bytes that a clone's file gets: within one block.
const CLONE_BYTES: usize = 3000;
/// That file.
const CLONE_FILE: &str = "foo";

/// Writes to the clone that is there.
async fn write_clone(pool: &Arc<Pool>, data: &[u8]) -> Result<(), String> {
    let zpl = world::mount(pool, CLONE, Arc::new(StandingClock)).await?;
    let object = zpl.lookup(zpl.root(), CLONE_FILE.as_bytes()).await.map_err(text)?.object;
    zpl.write(object, 0, data, false).await.map_err(text)?;
    zpl.unmount().await.map_err(text)?;
    drop(zpl);
    pool.dsl().close_filesystem(CLONE).await.map_err(text)
}

/// Rolls back the file system, which is mounted anew.
async fn rollback(pool: &Arc<Pool>, zpl: &mut Arc<Zpl>) -> Result<(), String> {
    let names = pool.dsl().snapshot_names(FILESYSTEM).await.map_err(text)?;
    let latest = names.last().and_then(|name| name.split('@').nth(1)).ok_or("it has no snapshot")?;
    zpl.unmount().await.map_err(text)?;
    pool.dsl().close_filesystem(FILESYSTEM).await.map_err(text)?;
    pool.dsl().rollback_dataset(FILESYSTEM, latest).await.map_err(text)?;
    *zpl = world::mount(pool, FILESYSTEM, Arc::new(StandingClock)).await?;
    Ok(())
}

/// Trims all devices but those that are offline, which it says, and waits until that is done.
async fn trim(pool: &Arc<Pool>) -> Result<(), String> {
    let work = FreeWork::Trim(TrimAction::Start { rate: 0, secure: false });
    let done = pool.change(PoolChange::Free { work, devices: Vec::new() }).await.map_err(text)?;
    let mut offline = Vec::new();
    add_offline(&pool.report(Detail::default()).await.map_err(text)?.vdevs, &mut offline);
    let is_offline =
        |problem: &String| offline.iter().any(|name| *problem == format!("cannot trim '{name}': invalid device"));
    if let Some(problem) = done.problems.iter().find(|problem| !is_offline(problem)) {
        return Err(problem.clone());
    }
    while is_trimming(&pool.report(Detail::default()).await.map_err(text)?.vdevs) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

fn add_offline(vdev: &VdevReport, names: &mut Vec<String>) {
    if vdev.children.is_empty() && vdev.state == "OFFLINE" {
        names.push(vdev.name.clone());
    }
    vdev.children.iter().for_each(|child| add_offline(child, names));
}

fn is_trimming(vdev: &VdevReport) -> bool {
    vdev.trim.is_some_and(|work| work.state == LeafWorkState::Active) || vdev.children.iter().any(is_trimming)
}

/// Sets the property that is set.
async fn set_compression(pool: &Arc<Pool>) -> Result<(), String> {
    let setting = [("compression".to_owned(), Setting::Value(COMPRESSION.into()))];
    pool.dsl().set_dataset_properties(FILESYSTEM, &setting).await.map_err(text)
}

impl Operation {
    /// The steps that this operation makes as number `index` of a workload, from `model` on; `None` when it cannot be
    /// done there.
    pub fn plan(self, index: usize, model: &Model) -> Option<Vec<Step>> {
        let file = |name: Name| {
            let node = model.find(name.place(model)?)?;
            match model.content(node) {
                Some(Content::File(data)) => Some((node, data.len())),
                _ => None,
            }
        };
        let free = |name: Name| name.place(model).filter(|place| model.find(*place).is_none());
        let make = |name: Name, content: Content| Some(vec![Step::Create(free(name)?, model.next_node(), content)]);
        match self {
            Self::Create(name) => make(name, Content::File(Vec::new())),
            Self::Mkdir(name) => make(name, Content::Folder(Default::default())),
            Self::Symlink(name) => make(name, Content::Symlink(TARGET.to_vec())),
            Self::Rmdir(name) => {
                let place = name.place(model)?;
                match model.content(model.find(place)?) {
                    Some(Content::Folder(entries)) if entries.is_empty() => Some(vec![Step::Unlink(place)]),
                    _ => None,
                }
            }
            Self::Append(name, length) => {
                let (node, size) = file(name)?;
                Some(pieces(|at, data| Step::Write(node, at, data), size, &self.data(index, size, length)))
            }
            Self::Overwrite(name, offset, length) => {
                let (node, _) = file(name)?;
                Some(pieces(|at, data| Step::Write(node, at, data), offset, &self.data(index, offset, length)))
            }
            Self::Truncate(name, size) => Some(vec![Step::Truncate(file(name)?.0, size)]),
            Self::Punch(name, offset, length) => {
                let (node, size) = file(name)?;
                let end = size.min(offset + length);
                (offset < end).then(|| pieces(|at, data| Step::Write(node, at, data), offset, &vec![0; end - offset]))
            }
            Self::Rename(from, to) => {
                let (from, to) = (from.place(model)?, to.place(model)?);
                let node = model.find(from)?;
                if model
                    .find(to)
                    .is_some_and(|there| there == node || !matches!(model.content(there), Some(Content::File(_))))
                {
                    return None;
                }
                Some(vec![Step::Rename(from, to)])
            }
            Self::Link(name, to) => Some(vec![Step::Link(free(to)?, file(name)?.0)]),
            Self::Unlink(name) => file(name).and_then(|_| Some(vec![Step::Unlink(name.place(model)?)])),
            Self::SetXattr(name, length) => {
                Some(vec![Step::Xattr(file(name)?.0, XATTR, Some(self.data(index, 0, length)))])
            }
            Self::RemoveXattr(name) => {
                let (node, _) = file(name)?;
                model.has_xattr(node, XATTR).then(|| vec![Step::Xattr(node, XATTR, None)])
            }
            Self::Chmod(name) => Some(vec![Step::Mode(file(name)?.0, MODE)]),
            Self::Fsync(name) => file(name).map(|_| Vec::new()),
            Self::Sync | Self::Scrub | Self::Trim => Some(Vec::new()),
            Self::SetProperty => Some(vec![Step::Compression(COMPRESSION)]),
            Self::CreateDataset => (!model.has_dataset(NEW)).then(|| vec![Step::Dataset(NEW, true)]),
            Self::DestroyDataset => model.has_dataset(OLD).then(|| vec![Step::Dataset(OLD, false)]),
            Self::Disk(operation) => operation.plan(model),
            Self::Bookmark(name) => model.branches().owner(name).map(|_| Vec::new()),
            Self::DestroyBookmarks(_) => Some(Vec::new()),
            other if other.is_of_volume() => other.plan_volume(index, model),
            other => other.plan_branch(index, model).map(|step| vec![step]),
        }
    }

    /// Whether it is done to the volume.
    fn is_of_volume(self) -> bool {
        matches!(
            self,
            Self::WriteVolume(..)
                | Self::StableVolume(..)
                | Self::ClearVolume(..)
                | Self::FsyncVolume
                | Self::ResizeVolume(_)
        )
    }

    /// As [`plan`](Self::plan), for what is done to the volume.
    fn plan_volume(self, index: usize, model: &Model) -> Option<Vec<Step>> {
        match self {
            Self::WriteVolume(offset, length) | Self::StableVolume(offset, length) => {
                let fits = offset + length <= model.volume().len();
                fits.then(|| pieces(Step::WriteVolume, offset, &self.data(index, offset, length)))
            }
            Self::ClearVolume(offset, length) => Some(vec![Step::ClearVolume(offset, length)]),
            Self::ResizeVolume(size) => Some(vec![Step::ResizeVolume(size)]),
            _ => Some(Vec::new()),
        }
    }

    /// As [`plan`](Self::plan), for what is done to snapshots and clones.
    fn plan_branch(self, index: usize, model: &Model) -> Option<Step> {
        let branches = model.branches();
        match self {
            Self::Snapshot(name) => branches.owner(name).is_none().then_some(Step::Snapshot(name)),
            Self::DestroySnapshot(name) => {
                let is_free = branches.owner(name).is_some() && !branches.is_cloned(name);
                is_free.then_some(Step::DestroySnapshot(name))
            }
            Self::Clone(clone) => {
                let is_possible = branches.owner(BASE).is_some() && !model.has_dataset(clone);
                is_possible.then_some(Step::Clone(clone, BASE))
            }
            Self::WriteClone => {
                let data = self.data(index, 0, CLONE_BYTES);
                model.has_dataset(CLONE).then_some(Step::WriteClone(CLONE, CLONE_FILE, data))
            }
            Self::DestroyClone(clone) => {
                let is_possible = model.has_dataset(clone) && !branches.has_snapshots(clone);
                is_possible.then_some(Step::DestroyClone(clone))
            }
            Self::Promote(clone) => branches.origin(clone).map(|_| Step::Promote(clone)),
            Self::Rollback => branches.latest(FILESYSTEM).map(|_| Step::Rollback),
            other => unreachable!("{other} is done to files or the pool"),
        }
    }

    fn data(self, index: usize, offset: usize, length: usize) -> Vec<u8> {
        bytes(index as u64 + 1, offset, length)
    }

    /// Does it.
    ///
    /// # Errors
    /// What the engine said.
    pub async fn run(self, index: usize, on: &mut Served, spare: usize) -> Result<(), String> {
        let Served { pool, zpl, volume, role } = on;
        match self {
            Self::Disk(operation) => {
                operation.run(pool, spare, *role).await?;
                *role = operation.leads_to();
                Ok(())
            }
            Self::Rollback => rollback(pool, zpl).await,
            Self::WriteVolume(offset, length) => volume.write(offset, &self.data(index, offset, length)).await,
            Self::StableVolume(offset, length) => {
                volume.write(offset, &self.data(index, offset, length)).await?;
                volume.fsync().await
            }
            Self::ClearVolume(offset, length) => volume.clear(offset, length).await,
            Self::FsyncVolume => volume.fsync().await,
            Self::ResizeVolume(size) => volume::resize(pool, VOLUME, size).await,
            other => other.run_mounted(index, pool, zpl).await,
        }
    }

    /// Does it while the file system stays mounted.
    async fn run_mounted(self, index: usize, pool: &Arc<Pool>, zpl: &Zpl) -> Result<(), String> {
        let new = |mode| NewFile { mode, umask: 0, uid: 0, gid: 0, open: false };
        match self {
            Self::Create(name) => {
                zpl.create(name.parent(zpl).await?, name.split().1.as_bytes(), new(0o640)).await.map_err(text)?;
            }
            Self::Mkdir(name) => {
                zpl.mkdir(name.parent(zpl).await?, name.split().1.as_bytes(), new(0o640)).await.map_err(text)?;
            }
            Self::Symlink(name) => {
                let parent = name.parent(zpl).await?;
                zpl.symlink(parent, name.split().1.as_bytes(), TARGET, new(0o777)).await.map_err(text)?;
            }
            Self::Rmdir(name) => {
                zpl.rmdir(name.parent(zpl).await?, name.split().1.as_bytes()).await.map_err(text)?;
            }
            Self::Append(name, length) => {
                let object = name.object(zpl).await?;
                let size = zpl.getattr(object).await.map_err(text)?.size as usize;
                let data = self.data(index, size, length);
                zpl.write(object, size as u64, &data, false).await.map_err(text)?;
            }
            Self::Overwrite(name, offset, length) => {
                let data = self.data(index, offset, length);
                zpl.write(name.object(zpl).await?, offset as u64, &data, false).await.map_err(text)?;
            }
            Self::Truncate(name, size) => {
                let change = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                zpl.setattr(name.object(zpl).await?, change).await.map_err(text)?;
            }
            Self::Punch(name, offset, length) => {
                let object = name.object(zpl).await?;
                zpl.fallocate(object, Fallocate::PunchHole, offset as u64, length as u64).await.map_err(text)?;
            }
            Self::Rename(from, to) => {
                let (old, new) = (from.parent(zpl).await?, to.parent(zpl).await?);
                let (name, target) = (from.split().1.as_bytes(), to.split().1.as_bytes());
                zpl.rename(old, name, new, target, RenameFlags::default()).await.map_err(text)?;
            }
            Self::Link(name, to) => {
                let (object, parent) = (name.object(zpl).await?, to.parent(zpl).await?);
                zpl.link(object, parent, to.split().1.as_bytes()).await.map_err(text)?;
            }
            Self::Unlink(name) => {
                zpl.unlink(name.parent(zpl).await?, name.split().1.as_bytes()).await.map_err(text)?;
            }
            Self::SetXattr(name, length) => {
                let value = self.data(index, 0, length);
                let object = name.object(zpl).await?;
                zpl.setxattr(object, XATTR.as_bytes(), &value, SetXattr::Any, true).await.map_err(text)?;
            }
            Self::RemoveXattr(name) => {
                zpl.removexattr(name.object(zpl).await?, XATTR.as_bytes()).await.map_err(text)?;
            }
            Self::Chmod(name) => chmod(zpl, name.object(zpl).await?).await?,
            Self::Fsync(name) => zpl.fsync(name.object(zpl).await?).await.map_err(text)?,
            Self::Sync => pool.sync().await.map_err(text)?,
            Self::SetProperty => set_compression(pool).await?,
            Self::CreateDataset => pool.dsl().create_dataset(NEW, &Default::default()).await.map_err(text)?,
            Self::DestroyDataset => pool.dsl().destroy_dataset(OLD).await.map_err(text)?,
            Self::Scrub => scrub(pool).await?,
            Self::Trim => trim(pool).await?,
            other => other.run_branch(index, pool).await?,
        }
        Ok(())
    }

    /// Does what is done to snapshots and clones.
    async fn run_branch(self, index: usize, pool: &Arc<Pool>) -> Result<(), String> {
        let (dsl, none) = (pool.dsl(), BTreeMap::new());
        match self {
            Self::Snapshot(name) => {
                let names = [format!("{FILESYSTEM}@{name}")];
                none_refused(dsl.take_snapshots(&names, &none).await.map_err(text)?)
            }
            Self::DestroySnapshot(name) => {
                let names = [full_name(pool, name).await?];
                none_refused(dsl.destroy_snapshots(&names, false).await.map_err(text)?)
            }
            Self::Clone(clone) => {
                let origin = full_name(pool, BASE).await?;
                dsl.clone_snapshot(&origin, clone, &none).await.map_err(text)
            }
            Self::WriteClone => write_clone(pool, &self.data(index, 0, CLONE_BYTES)).await,
            Self::DestroyClone(clone) => dsl.destroy_dataset(clone).await.map_err(text),
            Self::Promote(clone) => dsl.promote_dataset(clone).await.map_err(text),
            Self::Bookmark(name) => {
                let snapshot = full_name(pool, name).await?;
                let dataset = snapshot.split('@').next().unwrap_or_default();
                dsl.create_bookmark(&snapshot, &format!("{dataset}#{name}-{index}")).await.map_err(text)
            }
            Self::DestroyBookmarks(name) => destroy_bookmarks(pool, name).await,
            other => unreachable!("{other} is done to files or the pool"),
        }
    }

    /// All that has been done is on disk when it returns.
    pub fn is_sync(self) -> bool {
        matches!(
            self,
            Self::Sync
                | Self::SetProperty
                | Self::CreateDataset
                | Self::DestroyDataset
                | Self::Disk(_)
                | Self::Scrub
                | Self::Snapshot(_)
                | Self::DestroySnapshot(_)
                | Self::Clone(_)
                | Self::WriteClone
                | Self::DestroyClone(_)
                | Self::Promote(_)
                | Self::Rollback
                | Self::Bookmark(_)
                | Self::DestroyBookmarks(_)
                | Self::Trim
                | Self::ResizeVolume(_)
        )
    }

    /// The operations of the exhaustive sets, one of each kind and variant.
    pub fn all() -> Vec<Self> {
        let (top, nested, new, deep) = (Name("foo"), Name("A/bar"), Name("new"), Name("B/deep"));
        let mut all = vec![
            Self::Create(new),
            Self::Create(deep),
            Self::Mkdir(Name("C")),
            Self::Rmdir(Name("B")),
            Self::Symlink(Name("A/link")),
            Self::Append(top, 3000),
            Self::Append(nested, 20_000),
            Self::Append(new, 9000),
            Self::Overwrite(top, 0, 512),
            Self::Overwrite(nested, 6000, 10_000),
            Self::Truncate(top, 0),
            Self::Truncate(nested, 10_000),
            Self::Truncate(top, 50_000),
            Self::Punch(nested, 4000, 14_000),
            Self::Rename(top, deep),
            Self::Rename(top, nested),
            Self::Rename(nested, new),
            Self::Rename(Name("A"), Name("B/A")),
            Self::Link(top, deep),
            Self::Unlink(top),
            Self::Unlink(nested),
            Self::SetXattr(top, 20),
            Self::SetXattr(nested, 6000),
            Self::RemoveXattr(top),
            Self::Chmod(top),
            Self::Fsync(top),
            Self::Fsync(nested),
            Self::Fsync(new),
            Self::Sync,
            Self::SetProperty,
            Self::CreateDataset,
            Self::DestroyDataset,
            Self::Scrub,
            Self::Snapshot(LATER),
            Self::DestroySnapshot(FIRST),
            Self::DestroySnapshot(BASE),
            Self::DestroySnapshot(LATER),
            Self::Clone(MADE),
            Self::WriteClone,
            Self::DestroyClone(CLONE),
            Self::Promote(CLONE),
            Self::Promote(FILESYSTEM),
            Self::Rollback,
            Self::Bookmark(BASE),
            Self::Bookmark(LATER),
            Self::DestroyBookmarks(FIRST),
            Self::DestroyBookmarks(BASE),
            Self::Trim,
            Self::WriteVolume(5000, 12_000),
            Self::StableVolume(30_000, 9000),
            Self::ClearVolume(4000, 20_000),
            Self::FsyncVolume,
            Self::ResizeVolume(24 << 10),
            Self::ResizeVolume(80 << 10),
        ];
        all.extend(DiskOperation::ALL.map(Self::Disk));
        all
    }

    /// What makes stable what this operation changed; none for the pool's operations, and what changes names alone.
    pub fn keeper(self) -> Option<Self> {
        match self {
            Self::WriteVolume(..) | Self::ClearVolume(..) => Some(Self::FsyncVolume),
            other => other.file().map(Self::Fsync),
        }
    }

    /// The file that is another one afterwards, under the name that it has then; none for folders, names that go, and
    /// the pool's operations.
    pub fn file(self) -> Option<Name> {
        match self {
            Self::Create(name)
            | Self::Append(name, _)
            | Self::Overwrite(name, ..)
            | Self::Truncate(name, _)
            | Self::Punch(name, ..)
            | Self::Rename(_, name)
            | Self::Link(_, name)
            | Self::SetXattr(name, _)
            | Self::RemoveXattr(name)
            | Self::Chmod(name)
            | Self::Fsync(name) => Some(name),
            Self::Mkdir(_)
            | Self::Rmdir(_)
            | Self::Symlink(_)
            | Self::Unlink(_)
            | Self::Sync
            | Self::SetProperty
            | Self::CreateDataset
            | Self::DestroyDataset
            | Self::Disk(_)
            | Self::Scrub
            | Self::Snapshot(_)
            | Self::DestroySnapshot(_)
            | Self::Clone(_)
            | Self::WriteClone
            | Self::DestroyClone(_)
            | Self::Promote(_)
            | Self::Rollback
            | Self::Bookmark(_)
            | Self::DestroyBookmarks(_)
            | Self::Trim
            | Self::WriteVolume(..)
            | Self::StableVolume(..)
            | Self::ClearVolume(..)
            | Self::FsyncVolume
            | Self::ResizeVolume(_) => None,
        }
    }

    /// What every pool holds before a workload begins.
    pub fn base() -> Vec<Self> {
        let (top, nested) = (Name("foo"), Name("A/bar"));
        vec![
            Self::Mkdir(Name("A")),
            Self::Mkdir(Name("B")),
            Self::Create(top),
            Self::Append(top, 6000),
            Self::Create(nested),
            Self::Append(nested, 20_000),
            Self::Snapshot(FIRST),
            Self::Bookmark(FIRST),
            Self::SetXattr(top, 100),
            Self::Overwrite(nested, 3000, 4000),
            Self::Snapshot(BASE),
            Self::Bookmark(BASE),
            Self::Append(nested, 10_000),
            Self::Overwrite(top, 1000, 500),
            Self::Clone(CLONE),
            Self::WriteClone,
            // What the first one wrote dies: that is on the livelist, too.
            Self::WriteClone,
            Self::WriteVolume(0, 45_000),
        ]
    }
}
