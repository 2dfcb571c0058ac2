//! More damage than redundancy covers: the end of a life.
//!
//! Every sector that holds a certain file's bytes is destroyed, on whatever disk it lies. What cannot be had any more
//! must be an error and be listed under the right file; never wrong bytes, and no other file may suffer.

use std::collections::BTreeSet;

use platter_device::BlockDevice;
use platter_ondisk::ObjectId;
use platter_zpl::Zpl;

use super::files::{FileId, Node};
use super::machine::report;
use super::story::Story;
use platter_model::disk::FaultKind;

const SECTOR: usize = 512;
/// A file must have this many bytes to be worth destroying: several columns of a stripe.
const LEAST: usize = 64 << 10;

/// Bytes that a sector is recognised by.
const KEY: usize = 64;

fn key(sector: &[u8]) -> [u8; KEY] {
    sector[..KEY].try_into().expect("a sector has more")
}

fn candidate(story: &Story) -> Option<(String, String, FileId)> {
    // What snapshots and clones share would be lost in each of them.
    let is_alone = |name: &String| !story.snapshots.shares(name);
    let all = story.filesystems.iter().filter(|(name, filesystem)| !filesystem.unchecked && is_alone(name));
    for (name, filesystem) in all {
        for (path, node) in filesystem.files.names() {
            if let Node::File(id) = node
                && filesystem.files.file(*id).bytes.len() >= LEAST
                && filesystem.files.has_one_name(*id)
            {
                return Some((name.clone(), path.clone(), *id));
            }
        }
    }
    None
}

async fn find(zpl: &Zpl, path: &str) -> Result<(ObjectId, u64), String> {
    let (mut object, mut size) = (zpl.root(), 0);
    for name in path.split('/') {
        let attr = zpl.lookup(object, name.as_bytes()).await.map_err(|error| format!("{path}: {error}"))?;
        (object, size) = (attr.object, attr.size);
    }
    Ok((object, size))
}

/// Destroys all sectors that begin with one of these keys, on all disks.
fn destroy(story: &Story, keys: &BTreeSet<[u8; KEY]>) {
    let mut destroyed = 0;
    for disk in &story.machine.disks {
        let image = disk.image();
        let mut sector = vec![0; SECTOR];
        for offset in image.places(SECTOR as u64).filter(|offset| *offset < disk.size()) {
            image.read_at(offset, &mut sector);
            if keys.contains(&key(&sector)) {
                disk.damage(offset..offset + SECTOR as u64);
                destroyed += 1;
            }
        }
    }
    story.note(&format!("{destroyed} sectors destroyed"));
}

/// Destroys a file and looks what becomes of it; nothing when no file is large enough, or in a life without bit rot.
pub(super) async fn too_much(story: &mut Story) -> Result<(), String> {
    if !story.may(FaultKind::BitRot) {
        return Ok(());
    }
    let Some((dataset, path, id)) = candidate(story) else { return Ok(()) };
    story.note(&format!("{dataset}/{path} is destroyed"));
    story.export().await?;
    let bytes = story.filesystems[&dataset].files.file(id).bytes.clone();
    // Sectors that say nothing (zeros, patterns) may be anybody's.
    let telling = |sector: &&[u8]| sector.len() == SECTOR && sector[..KEY].iter().collect::<BTreeSet<_>>().len() > 32;
    let keys: BTreeSet<[u8; KEY]> = bytes.chunks(SECTOR).filter(telling).map(key).collect();
    destroy(story, &keys);
    story.import().await?;
    let zpl = story.filesystems[&dataset].zpl.clone().expect("just mounted");
    let (object, size) = find(&zpl, &path).await?;
    let mut lost = 0;
    for offset in (0..size).step_by(4096) {
        let length = (size - offset).min(4096);
        match zpl.read(object, offset, length).await {
            Ok(parts) => {
                let got: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                if got != bytes[offset as usize..][..length as usize] {
                    return Err(format!("WRONG: {dataset}/{path} at {offset} after it was destroyed"));
                }
            }
            Err(error) if error.errno() == 5 => lost += 1,
            Err(error) => return Err(format!("{dataset}/{path} at {offset}: {error} instead of an I/O error")),
        }
    }
    let pool = story.pool.clone().expect("just imported");
    for (when, scrubbed) in [("after reading", false), ("after a scrub", true)] {
        if scrubbed {
            pool.scrub_start().await.map_err(|error| format!("scrub: {error}"))?;
            pool.scrub_wait().await.map_err(|error| format!("scrub: {error}"))?;
        }
        let report = report(&pool).await?;
        let named: Vec<(&str, u64)> = report.errors.iter().map(|e| (e.dataset.as_str(), e.object)).collect();
        let want = if lost > 0 { vec![(dataset.as_str(), object.0)] } else { Vec::new() };
        // Where cache devices had all of it, only a scrub finds what the disks lost.
        let is_found_later = scrubbed && lost == 0 && !report.caches.is_empty() && named == [(&*dataset, object.0)];
        if named != want && !is_found_later {
            return Err(format!("{when}: the list of errors is {named:?} instead of {want:?}"));
        }
    }
    if lost > 0 {
        let name = zpl.object_path(object).await.map_err(|error| format!("its name: {error}"))?;
        if name.trim_start_matches('/') != path {
            return Err(format!("what was lost is called {name} instead of {path}"));
        }
    }
    story.outcome.losses += lost;
    // All others are as they were. (This one has a state of its own now: it is not compared.)
    let filesystem = story.filesystems.get_mut(&dataset).expect("it is mounted");
    let parent = path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let folder = if parent.is_empty() { zpl.root() } else { find(&zpl, &parent).await?.0 };
    let name = path.rsplit('/').next().expect("a path has a last part");
    zpl.unlink(folder, name.as_bytes()).await.map_err(|error| format!("unlinking what was lost: {error}"))?;
    filesystem.files.change_names(|names| drop(names.remove(&path)));
    drop(zpl);
    story.verify(false).await
}
