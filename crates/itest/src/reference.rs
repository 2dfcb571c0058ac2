//! The reference pools made by OpenZFS's kernel module: where they are, fresh copies of them, and their manifests.
//!
//! They are looked for in `PLATTER_REFERENCE_POOLS` and in `../shared/pools` beside the repository, as archives
//! (`NAME.tar.xz`) or as unpacked folders (`NAME/`). Absent pools are a reported skip and never a failure: they are no
//! part of the repository.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Run;
use crate::tree::{Entry, Kind, Tree};

/// A private copy of one reference pool.
pub struct ReferencePool {
    folder: tempfile::TempDir,
    name: String,
}

impl ReferencePool {
    /// A fresh copy of the pool `name`, or `None` and a reported skip.
    pub fn copy(name: &str) -> Option<ReferencePool> {
        let found = places().into_iter().find_map(|place| {
            let archive = place.join(format!("{name}.tar.xz"));
            let unpacked = place.join(name);
            if archive.is_file() { Some(archive) } else { unpacked.join("manifest").is_dir().then_some(unpacked) }
        });
        let Some(source) = found else {
            let _ =
                writeln!(std::io::stderr(), "\nSKIPPED reference pool {name}: not found; set PLATTER_REFERENCE_POOLS");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("platter-itest-ref-").tempdir().expect("a temporary folder");
        let mut command;
        if source.is_dir() {
            command = Command::new("cp");
            command.args(["-r", "--sparse=always"]).arg(&source).arg(folder.path());
        } else {
            command = Command::new("tar");
            command.arg("-xJSf").arg(&source).arg("-C").arg(folder.path());
        }
        Run::of(&mut command, Duration::from_secs(300)).ok();
        let pool = ReferencePool { folder, name: name.to_owned() };
        assert!(pool.manifest_dir().is_dir(), "{} holds no {name}/manifest", source.display());
        Some(pool)
    }

    /// Folder of the disk images (what `-d` and `-p` get).
    pub fn dir(&self) -> PathBuf {
        let nested = self.folder.path().join(&self.name);
        if nested.is_dir() { nested } else { self.folder.path().to_path_buf() }
    }

    /// Name of the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The disk images.
    pub fn disks(&self) -> Vec<PathBuf> {
        let mut disks: Vec<PathBuf> = fs::read_dir(self.dir())
            .expect("the copy can be read")
            .map(|entry| entry.expect("the copy can be read").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "img"))
            .collect();
        disks.sort();
        disks
    }

    fn manifest_dir(&self) -> PathBuf {
        self.dir().join("manifest")
    }

    /// One file of the manifest (`zfs-list.txt`, ...), empty when absent.
    pub fn note(&self, file: &str) -> String {
        fs::read_to_string(self.manifest_dir().join(file)).unwrap_or_default()
    }

    /// Data set or snapshot → what it holds.
    pub fn manifests(&self) -> BTreeMap<String, Tree> {
        self.manifests_in("")
    }

    /// As [`ReferencePool::manifests`] from a subfolder of the manifest: one state of several.
    pub fn manifests_in(&self, state: &str) -> BTreeMap<String, Tree> {
        let mut manifests = BTreeMap::new();
        for entry in fs::read_dir(self.manifest_dir().join(state)).expect("the manifest can be read") {
            let path = entry.expect("the manifest can be read").path();
            let Some(stem) =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".jsonl"))
            else {
                continue;
            };
            manifests.insert(stem.replace('%', "/"), read_manifest(&path));
        }
        let names: Vec<String> = manifests.keys().cloned().collect();
        for name in &names {
            // A child file system was mounted in its parent when the manifest was written.
            if let Some((parent, child)) = name.rsplit_once('/')
                && let Some(entry) = manifests.get_mut(parent).and_then(|tree: &mut Tree| tree.0.get_mut(child))
            {
                entry.mounted = true;
            }
        }
        manifests
    }
}

fn places() -> Vec<PathBuf> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("PLATTER_REFERENCE_POOLS")
        .map(PathBuf::from)
        .into_iter()
        .chain([repository.join("../shared/pools")])
        .filter(|place| place.is_dir())
        .collect()
}

fn read_manifest(path: &Path) -> Tree {
    let file = BufReader::new(fs::File::open(path).expect("the manifest can be opened"));
    let mut tree = Tree::default();
    for line in file.lines() {
        let line = line.expect("the manifest can be read");
        let value: serde_json::Value = serde_json::from_str(&line).expect("each line of a manifest is JSON");
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let number = |name: &str| value[name].as_i64().unwrap_or(0);
        // Years beyond 2262 do not fit in 64 signed bits of nanoseconds.
        let wide = |name: &str| {
            let signed = value[name].as_i64().map(i128::from);
            signed.or(value[name].as_u64().map(i128::from)).unwrap_or(0)
        };
        let kind = match value["type"].as_str() {
            Some("f") => Kind::File,
            Some("d") => Kind::Dir,
            Some("l") => Kind::Link,
            _ => Kind::Other,
        };
        let entry = Entry {
            kind,
            mode: u32::from_str_radix(value["mode"].as_str().unwrap_or("0"), 8).expect("modes are octal"),
            uid: number("uid") as u32,
            gid: number("gid") as u32,
            nlink: number("nlink") as u64,
            size: number("size") as u64,
            mtime_ns: wide("mtime_ns"),
            sha256: text("sha256").filter(|_| number("size") as u64 <= crate::tree::HASHED_MAX),
            target: text("target"),
            xattrs: value["xattrs"].as_object().map_or_else(Default::default, |pairs| {
                let shown = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
                pairs.iter().map(|(name, value)| (name.clone(), shown(value))).collect()
            }),
            mounted: false,
        };
        tree.0.insert(text("path").expect("each line has a path"), entry);
    }
    // The control folder was made visible in one file system; it is no content, but counts as a link of the root.
    if tree.0.remove(".zfs").is_some() {
        tree.0.retain(|path, _| !path.starts_with(".zfs/"));
        if let Some(root) = tree.0.get_mut(".") {
            root.nlink -= 1;
        }
    }
    tree
}
