//! Opens a pool that may be anything, looks at all of it, and uses it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::Detail;
use platter_api::request::ImportRequest;
use platter_api::request::Setting;
use platter_dmu::Totals;
use platter_ondisk::ObjectId;
use platter_spa::Pool;
use platter_zpl::{Fallocate, FileKind, NewFile, SeekFor, SetAttr, SetXattr, Zpl};

use super::device::ImageDevice;
use super::template::{POOL, SIZE, Template};
use crate::world::{self, SimDevices, StandingClock};
use platter_model::clock;
use platter_model::disk::Image;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What was changed.
    pub what: String,
    /// Why it was refused; `None` when it was opened for writing.
    pub refused: Option<String>,
    /// What must not be.
    pub wrong: Option<String>,
}

/// Virtual time that each step may take. Whoever uses a pool that waits for ever waits for ever.
const STEP: Duration = Duration::from_secs(3600);
/// Files and folders that are looked at, at most.
const ENTRIES_MAX: usize = 400;
/// Bytes that are read of each end of a file.
const PART: u64 = 256 << 10;

/// Opens the pool on these disks for reading, then for writing, and uses it.
pub fn visit(_template: &Template, disks: Vec<Image>, seed: u64) -> Verdict {
    let mut verdict = Verdict::default();
    for read_only in [true, false] {
        let outcome = clock::run(|_| once(disks.clone(), seed, read_only));
        if let Err(wrong) = &outcome {
            verdict.wrong = Some(format!("{}: {wrong}", if read_only { "read-only" } else { "read-write" }));
            return verdict;
        }
        verdict.refused = outcome.unwrap_or_default();
    }
    verdict
}

/// Returns why the import was refused, if it was.
async fn once(disks: Vec<Image>, seed: u64, read_only: bool) -> Result<Option<String>, String> {
    let devices = Arc::new(SimDevices::default());
    let disks: Vec<Arc<ImageDevice>> = disks
        .into_iter()
        .enumerate()
        .map(|(number, image)| Arc::new(ImageDevice::new(format!("d{number}"), SIZE, image)))
        .collect();
    for (number, disk) in disks.iter().enumerate() {
        devices.insert(number, disk.clone());
    }
    let mut shared = false;
    for disk in &disks {
        let labels = platter_spa::labels::read(&**disk).await.ok();
        shared |= labels.and_then(|labels| labels.uberblock).is_some_and(|uberblock| uberblock.is_multihost());
    }
    // Of a pool that hosts share others must know before the first group is written.
    let writes =
        |claimed: bool| disks.iter().map(|disk| disk.writes() + if claimed { 0 } else { disk.beats() }).sum::<u64>();
    let mut environment = world::environment(seed, devices, Arc::new(StandingClock));
    // Half of the visits have memory for all free ranges: what is freed twice is to be noticed at once then.
    if seed % 2 == 1 {
        environment.metaslab_bytes = 1 << 20;
    }
    let found = Pool::discover(&environment, &[PathBuf::from(world::FOLDER)], &[]).await;
    // Tampering may have changed the name.
    let name = match found.ok().and_then(|found| found.pools.into_iter().next()) {
        Some(pool) => pool.guid.to_string(),
        None => POOL.to_owned(),
    };
    let request = ImportRequest {
        pool: name,
        search: vec![PathBuf::from(world::FOLDER)],
        force: true,
        properties: read_only.then(|| ("readonly".to_owned(), "on".to_owned())).into_iter().collect(),
        ..ImportRequest::default()
    };
    let imported = tokio::time::timeout(STEP, Pool::import(environment, request)).await;
    let pool = match imported.map_err(|_| "the import took an hour of virtual time")? {
        Ok(pool) => pool,
        Err(error) => {
            return match writes(shared) {
                0 => Ok(Some(error.to_string())),
                count => Err(format!("{count} writes before the import was refused: {error}")),
            };
        }
    };
    let used = tokio::time::timeout(STEP, use_all(&pool, read_only)).await;
    // A pool that met damage stops, and whoever waits then is told so: nothing may wait for ever.
    if used.is_err() && !pool.is_suspended() {
        return Err("using it took an hour of virtual time".into());
    }
    if pool.is_suspended() {
        pool.stop("the visit is over");
    }
    let exported = tokio::time::timeout(STEP, pool.export()).await;
    exported.map_err(|_| "the export took an hour of virtual time")?.ok();
    if read_only && writes(false) > 0 {
        return Err(format!("{} writes to a pool that was opened read-only", writes(false)));
    }
    Ok(None)
}

async fn use_all(pool: &Arc<Pool>, read_only: bool) {
    let name = pool.name();
    let _ = pool.report(Detail::default()).await;
    let _ = pool.properties().await;
    let _ = pool.history().await;
    let mut names = vec![name.clone()];
    names.extend(["a", "a/b", "c"].map(|below| format!("{name}/{below}")));
    for name in &names {
        let _ = pool.dsl().dataset(name).await;
    }
    let _ = pool.dsl().datasets().await;
    let _ = pool.dsl().lineage(&names[2]).await;
    let mut mounts = Vec::new();
    for name in names {
        let Ok(zpl) = world::mount(pool, &name, Arc::new(StandingClock)).await else { continue };
        look(&zpl).await;
        if !read_only {
            write(&zpl).await;
        }
        mounts.push((name, zpl));
    }
    if !read_only {
        let _ = pool.sync().await;
        if pool.scrub_start().await.is_ok() {
            let _ = pool.scrub_wait().await;
        }
        let _ = pool.dsl().create_dataset(&format!("{name}/new"), &Default::default()).await;
        let value = |value: &str| Setting::Value(value.to_owned());
        for (property, setting) in [
            // It counts everything below, for good.
            ("filesystem_limit", value("100")),
            ("quota", value("50M")),
            ("refreservation", value("1M")),
            ("compression", value("gzip")),
            ("quota", Setting::Inherit),
        ] {
            let _ = pool.dsl().set_dataset_properties(&format!("{name}/a"), &[(property.to_owned(), setting)]).await;
        }
        let _ = pool.set_property("comment", "visited").await;
        let _ = pool.clear(None).await;
    }
    for (name, zpl) in mounts {
        let _ = zpl.unmount().await;
        drop(zpl);
        let _ = pool.dsl().close_filesystem(&name).await;
    }
    if !read_only {
        let _ = pool.dsl().rename_dataset(&format!("{name}/c"), &format!("{name}/a/d")).await;
        let _ = pool.dsl().destroy_dataset(&format!("{name}/a/d")).await;
        let _ = pool.dsl().destroy_dataset(&format!("{name}/c")).await;
        let _ = pool.dsl().destroy_dataset(&format!("{name}/a/b")).await;
        let _ = pool.sync().await;
    }
}

async fn look(zpl: &Zpl) {
    let mut waiting: Vec<ObjectId> = vec![zpl.root()];
    let mut seen = 0;
    let _ = zpl.statfs();
    for totals in Totals::ALL {
        let _ = platter_zpl::user_quota::usage(zpl.objset(), totals).await;
    }
    while let Some(object) = waiting.pop() {
        seen += 1;
        let Ok(attr) = zpl.getattr(object).await else { continue };
        let _ = zpl.object_path(object).await;
        if let Ok(names) = zpl.listxattr(object, true).await {
            for name in names.iter().take(20) {
                let _ = zpl.getxattr(object, name).await;
            }
        }
        match attr.kind {
            FileKind::Directory => {
                let mut cursor = 0;
                while let Ok(entries) = zpl.readdir(object, cursor, 100, true).await {
                    let Some(last) = entries.last() else { break };
                    // A directory that goes round is damage like any other; whoever reads it stops by himself.
                    if last.cursor <= cursor || waiting.len() + seen > ENTRIES_MAX {
                        break;
                    }
                    cursor = last.cursor;
                    for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
                        let _ = zpl.lookup(object, &entry.name).await;
                        waiting.push(entry.object);
                    }
                }
            }
            FileKind::Symlink => drop(zpl.readlink(object).await),
            _ => {
                let _ = zpl.read(object, 0, PART).await;
                for what in [SeekFor::Data, SeekFor::Hole] {
                    let _ = zpl.seek(object, 1, what).await;
                }
                let _ = zpl.read(object, attr.size.saturating_sub(PART), PART).await;
            }
        }
        if seen >= ENTRIES_MAX {
            break;
        }
    }
}

async fn write(zpl: &Zpl) {
    let new = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
    let root = zpl.root();
    if let Ok(file) = zpl.create(root, b"written by the visitor", new).await {
        let _ = zpl.write(file.object, 0, &[9; 20_000], false).await;
        let _ = zpl.setxattr(file.object, b"user.visitor", &[1; 100], SetXattr::Any, false).await;
        let _ = zpl.fsync(file.object).await;
    }
    if let Ok(large) = zpl.lookup(root, b"large").await {
        let _ = zpl.write(large.object, 100_000, &[8; 9000], false).await;
        let _ = zpl.write(large.object, large.size, &[8; 9000], false).await;
        let _ = zpl.setxattr(large.object, b"user.short", &[2; 5000], SetXattr::Any, false).await;
        let _ = zpl.removexattr(large.object, b"user.long").await;
        let _ = zpl.fallocate(large.object, Fallocate::PunchHole, 200_000, 100_000).await;
    }
    if let Ok(folder) = zpl.lookup(root, b"folder").await {
        let _ = zpl.unlink(folder.object, b"5-longlonglonglonglong").await;
        let _ = zpl.rename(folder.object, b"0-", root, b"moved", Default::default()).await;
        let _ = zpl.create(folder.object, b"another", new).await;
    }
    let _ = zpl.unlink(root, b"link").await;
    if let Ok(small) = zpl.lookup(root, b"small").await {
        let change = SetAttr { size: Some(0), uid: Some(7), ..SetAttr::default() };
        let _ = zpl.setattr(small.object, change).await;
        let _ = zpl.unlink(root, b"small").await;
    }
    let _ = zpl.sync().await;
}
