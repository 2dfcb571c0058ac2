//! Pools that are filled until nothing goes in, again and again, in every layout: what a group grows by on its way to
//! disk depends on sectors, parity, copies and record sizes, and must have been promised to its writers before.
//!
//! Held at all times, whatever the seed:
//! - only a call that needs room is refused, with `ENOSPC`; a sync never is;
//! - removing and shortening always work;
//! - what was acknowledged is read back after an export and an import.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};
use platter_device::BlockDevice;
use platter_ondisk::ObjectId;
use platter_spa::Pool;
use platter_zpl::{NewFile, SetAttr, SetXattr, Zpl, ZplError};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::crash::explore::alone;
use crate::crash::fork::Fork;
use crate::world::{self, FOLDER, SimDevices, StandingClock};
use platter_model::disk::Image;

const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
const NO_SPACE: i32 = 28;
/// Refusals in a row after which a pool is called full.
const REFUSALS: usize = 12;
/// Writers beside each other.
const WRITERS: usize = 4;

/// A pool to be filled.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The top-level vdevs: parity and children; a parity of 0 is a mirror, or a single disk.
    pub vdevs: Vec<(u8, usize)>,
    /// MiB of each disk.
    pub disk_mib: u64,
    /// log2 of the sector size.
    pub ashift: u32,
    /// Properties of the file system.
    pub properties: BTreeMap<String, String>,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (parity, children) in &self.vdevs {
            match parity {
                0 => write!(f, "mirror of {children} ")?,
                parity => write!(f, "raidz{parity} of {children} ")?,
            }
        }
        write!(f, "x {} MiB, ashift {}", self.disk_mib, self.ashift)?;
        self.properties.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))
    }
}

fn below(random: &mut ChaCha20Rng, limit: usize) -> usize {
    random.next_u64() as usize % limit.max(1)
}

fn pick<'a, T: ?Sized>(random: &mut ChaCha20Rng, of: &[&'a T]) -> &'a T {
    of[below(random, of.len())]
}

impl Shape {
    /// The shape that belongs to a seed.
    fn of(random: &mut ChaCha20Rng) -> Self {
        const LAYOUTS: [&[(u8, usize)]; 12] = [
            &[(0, 1)],
            &[(0, 1), (0, 1)],
            &[(0, 1), (0, 1), (0, 1)],
            &[(0, 2)],
            &[(0, 3), (0, 3)],
            &[(1, 2)],
            &[(1, 3)],
            &[(1, 5)],
            &[(2, 4)],
            &[(2, 6)],
            &[(3, 5)],
            &[(0, 2), (2, 5)],
        ];
        let vdevs = LAYOUTS[below(random, LAYOUTS.len())].to_vec();
        let data: usize = vdevs.iter().map(|(parity, children)| children.saturating_sub((*parity).into()).max(1)).sum();
        let ashift = 9 + below(random, 8) as u32;
        let total = 64 << below(random, 2);
        let disk_mib = (total / data as u64).max(64).max(if ashift > 13 { 96 } else { 64 });
        let mut properties = BTreeMap::new();
        let mut set = |name: &str, value: &str| properties.insert(name.to_owned(), value.to_owned());
        set("recordsize", pick(random, &["512", "512", "1K", "4K", "8K", "32K", "128K", "1M"]));
        set("copies", pick(random, &["1", "1", "2", "3"]));
        set("compression", pick(random, &["off", "off", "lz4", "zstd", "zle"]));
        set("xattr", pick(random, &["sa", "dir"]));
        set("redundant_metadata", pick(random, &["all", "all", "most", "none"]));
        Self { vdevs, disk_mib, ashift, properties }
    }

    fn request(&self) -> CreateRequest {
        let mut next = 0;
        let vdevs = self.vdevs.iter().map(|&(parity, children)| {
            let paths: Vec<_> = (next..next + children).map(SimDevices::path).collect();
            next += children;
            match (parity, children) {
                (0, 1) => VdevRequest::Leaf(paths[0].clone()),
                (0, _) => VdevRequest::Mirror(paths),
                (parity, _) => VdevRequest::Raidz { parity, children: paths },
            }
        });
        CreateRequest {
            name: "tank".into(),
            vdevs: vdevs.collect(),
            force: true,
            pool_properties: [("ashift".to_owned(), self.ashift.to_string())].into(),
            dataset_properties: self.properties.clone(),
            ..CreateRequest::default()
        }
    }
}

/// What a history came to.
#[derive(Clone, Debug)]
pub struct Filled {
    /// The pool.
    pub shape: Shape,
    /// Times that a call was told that there is no room.
    pub refusals: u64,
    /// Files made.
    pub files: u64,
    /// Bytes available, of those that were when it was empty, when it was full first.
    pub left: (u64, u64),
    /// The disks as they were left.
    pub disks: Vec<Image>,
}

/// A file of the model, or a folder; its seed says what is in it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    object: ObjectId,
    seed: u64,
    length: u64,
    is_folder: bool,
}

/// Bytes `at..at + length` of a file's contents: noise, or something of which a part compresses.
fn contents(seed: u64, at: u64, length: usize) -> Vec<u8> {
    let word = |index: u64| {
        let state = (index ^ seed.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let state = (state ^ (state >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        if seed.is_multiple_of(3) && index % 64 < 24 { 0 } else { state ^ (state >> 32) }
    };
    let (first, skip) = (at / 8, (at % 8) as usize);
    let words = first..first + (skip + length).div_ceil(8) as u64;
    let mut bytes: Vec<u8> = words.flat_map(|index| word(index).to_le_bytes()).collect();
    bytes.drain(..skip);
    bytes.truncate(length);
    bytes
}

struct Filler {
    zpl: Arc<Zpl>,
    random: ChaCha20Rng,
    names: BTreeMap<String, Entry>,
    next: u64,
    refusals: u64,
    last: String,
}

/// `None` when there was no room.
fn room<T>(what: &str, result: Result<T, ZplError>) -> Result<Option<T>, String> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.errno() == NO_SPACE => Ok(None),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

impl Filler {
    async fn make(&mut self, is_folder: bool) -> Result<Option<String>, String> {
        let name = format!("{}{}", if is_folder { "d" } else { "f" }, self.next);
        self.next += 1;
        let root = self.zpl.root();
        let made = if is_folder {
            self.zpl.mkdir(root, name.as_bytes(), NEW).await
        } else {
            self.zpl.create(root, name.as_bytes(), NEW).await
        };
        let Some(attr) = room("create", made)? else { return Ok(None) };
        let entry = Entry { object: attr.object, seed: self.random.next_u64(), length: 0, is_folder };
        self.names.insert(name.clone(), entry);
        Ok(Some(name))
    }

    /// Appends up to `length` bytes; whether they all went in.
    async fn append(&mut self, name: &str, length: usize) -> Result<bool, String> {
        let entry = self.names[name];
        let bytes = contents(entry.seed, entry.length, length);
        let written = room("write", self.zpl.write(entry.object, entry.length, &bytes, false).await)?.unwrap_or(0);
        self.names.get_mut(name).expect("it is there").length += written as u64;
        Ok(written == length)
    }

    fn some_name(&mut self) -> Option<String> {
        let index = below(&mut self.random, self.names.len());
        self.names.keys().nth(index).cloned()
    }

    /// Writers at several files at one time, none of which knows of the others.
    async fn crowd(&mut self) -> Result<bool, String> {
        let mut files = Vec::new();
        for _ in 0..WRITERS {
            files.extend(self.make(false).await?);
        }
        let length = 1 << (9 + below(&mut self.random, 12));
        let entries: Vec<Entry> = files.iter().map(|name| self.names[name]).collect();
        let zpl = &self.zpl;
        let written = join_all(entries.iter().map(|entry| async move {
            let bytes = contents(entry.seed, 0, length);
            room("write", zpl.write(entry.object, 0, &bytes, false).await)
        }))
        .await;
        let mut all = files.len() == WRITERS;
        for (name, written) in files.iter().zip(written) {
            let written = written?.unwrap_or(0);
            all &= written == length;
            self.names.get_mut(name).expect("it is there").length = written as u64;
        }
        Ok(all)
    }

    /// One call that needs room, of this kind; whether there was enough.
    async fn step(&mut self, kind: usize) -> Result<bool, String> {
        match kind {
            // One long file, in writes of all sizes.
            0 => {
                let name = match self.names.contains_key(&self.last) {
                    true => self.last.clone(),
                    false => match self.make(false).await? {
                        Some(name) => name,
                        None => return Ok(false),
                    },
                };
                self.last = name.clone();
                let order = 9 + 2 * below(&mut self.random, 6);
                let length = 1 + below(&mut self.random, 1 << order);
                self.append(&name, length).await
            }
            1 => {
                let Some(name) = self.make(false).await? else { return Ok(false) };
                let length = below(&mut self.random, 3000);
                self.append(&name, length).await
            }
            2 => Ok(self.make(true).await?.is_some()),
            3 => {
                let Some(name) = self.make(false).await? else { return Ok(false) };
                let object = self.names[&name].object;
                let value = contents(1, 0, 1 + below(&mut self.random, 6000));
                let how = SetXattr::Any;
                Ok(room("setxattr", self.zpl.setxattr(object, b"user.x", &value, how, false).await)?.is_some())
            }
            4 => self.crowd().await,
            // What is there is overwritten with the same bytes: that needs room too, for a while.
            _ => {
                let Some(name) = self.some_name() else { return Ok(true) };
                let entry = self.names[&name];
                if entry.is_folder || entry.length == 0 {
                    return Box::pin(self.step(1)).await;
                }
                let at = self.random.next_u64() % entry.length;
                let length = (entry.length - at).min(40_000) as usize;
                let bytes = contents(entry.seed, at, length);
                Ok(room("overwrite", self.zpl.write(entry.object, at, &bytes, false).await)?.is_some())
            }
        }
    }

    /// Goes on until the pool is full.
    async fn fill(&mut self, pool: &Pool, kinds: &[usize]) -> Result<(), String> {
        let mut refused = 0;
        for step in 0..400_000 {
            let kind = kinds[below(&mut self.random, kinds.len())];
            if self.step(kind).await? {
                refused = 0;
            } else {
                refused += 1;
                self.refusals += 1;
            }
            if refused >= REFUSALS {
                return Ok(());
            }
            match below(&mut self.random, 400) {
                0 => sync(pool).await?,
                1..4 => {
                    if let Some(name) = self.some_name() {
                        let object = self.names[&name].object;
                        self.zpl.fsync(object).await.map_err(|error| format!("fsync: {error}"))?;
                    }
                }
                _ => {}
            }
            if step % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        Err("never full".into())
    }

    /// Removes about this part of what there is, in percent; some of it is shortened first.
    async fn remove(&mut self, percent: usize) -> Result<(), String> {
        let names: Vec<String> = self.names.keys().cloned().collect();
        for name in names {
            if below(&mut self.random, 100) >= percent {
                continue;
            }
            let entry = self.names[&name];
            if !entry.is_folder && below(&mut self.random, 4) == 0 {
                let size = entry.length / 2;
                let change = SetAttr { size: Some(size), ..SetAttr::default() };
                let shortened = self.zpl.setattr(entry.object, change).await;
                shortened.map_err(|error| format!("shortening {name} to {size}: {error}"))?;
                self.names.get_mut(&name).expect("it is there").length = size;
            }
            let root = self.zpl.root();
            let gone = match entry.is_folder {
                true => self.zpl.rmdir(root, name.as_bytes()).await,
                false => self.zpl.unlink(root, name.as_bytes()).await,
            };
            gone.map_err(|error| format!("removing {name}: {error}"))?;
            self.names.remove(&name);
        }
        Ok(())
    }

    async fn verify(&self) -> Result<(), String> {
        for (name, entry) in self.names.iter().filter(|(_, entry)| !entry.is_folder) {
            let attr = self.zpl.lookup(self.zpl.root(), name.as_bytes()).await;
            let object = attr.map_err(|error| format!("{name}: {error}"))?.object;
            let mut at = 0;
            while at < entry.length {
                let length = (entry.length - at).min(1 << 20);
                let read =
                    self.zpl.read(object, at, length).await.map_err(|error| format!("reading {name}: {error}"))?;
                let read: Vec<u8> = read.iter().flat_map(|buf| buf.iter().copied()).collect();
                if read != contents(entry.seed, at, length as usize) {
                    return Err(format!("{name} at {at}: other bytes than were written"));
                }
                at += length;
            }
        }
        Ok(())
    }
}

async fn sync(pool: &Pool) -> Result<(), String> {
    pool.sync().await.map_err(|error| format!("sync: {error}"))
}

/// Fills the pool of a seed, empties it and fills it again, `rounds` times.
///
/// # Errors
/// What did not hold, with the pool's shape.
pub fn fill(seed: u64, rounds: usize) -> Result<Filled, String> {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    let shape = Shape::of(&mut random);
    fill_shape(&shape, random, rounds).map_err(|error| format!("seed {seed}, {shape}: {error}"))
}

/// As [`fill`], for a pool of one's own choice.
///
/// # Errors
/// What did not hold.
pub fn fill_this(shape: &Shape, seed: u64, rounds: usize) -> Result<Filled, String> {
    let random = ChaCha20Rng::seed_from_u64(seed);
    fill_shape(shape, random, rounds).map_err(|error| format!("{shape}: {error}"))
}

fn fill_shape(shape: &Shape, mut random: ChaCha20Rng, rounds: usize) -> Result<Filled, String> {
    let devices = Arc::new(SimDevices::default());
    let disks: usize = shape.vdevs.iter().map(|(_, children)| children).sum();
    let forks: Vec<Arc<Fork>> =
        (0..disks).map(|id| Arc::new(Fork::new(format!("d{id}"), shape.disk_mib << 20, Image::default()))).collect();
    for (id, fork) in forks.iter().enumerate() {
        devices.insert(id, fork.clone() as Arc<dyn BlockDevice>);
    }
    let host = random.next_u64();
    let mut filled = Filled { shape: shape.clone(), refusals: 0, files: 0, left: (0, 0), disks: Vec::new() };
    alone(async {
        let environment = world::environment(host, devices.clone(), Arc::new(StandingClock));
        let mut pool = Pool::create(environment, shape.request()).await.map_err(|error| format!("create: {error}"))?;
        let zpl = world::mount(&pool, "tank", Arc::new(StandingClock)).await?;
        let empty = zpl.statfs().available_bytes();
        let mut filler = Filler { zpl, random, names: BTreeMap::new(), next: 0, refusals: 0, last: String::new() };
        for round in 0..rounds {
            let kinds: &[usize] = [&[0][..], &[1], &[0, 1, 2, 3, 4, 5], &[2, 3], &[4, 0], &[5, 1, 0]]
                [if round == 0 { 0 } else { below(&mut filler.random, 6) }];
            filler.fill(&pool, kinds).await?;
            if round == 0 {
                sync(&pool).await?;
                filled.left = (filler.zpl.statfs().available_bytes(), empty);
            }
            let percent = 10 + below(&mut filler.random, 90);
            filler.remove(percent).await?;
        }
        filler.fill(&pool, &[0, 1, 5]).await?;
        filler.verify().await?;
        // A full pool can be left and opened again.
        filler.zpl.unmount().await.map_err(|error| format!("unmount: {error}"))?;
        let Filler { zpl, random, names, next, refusals, last } = filler;
        drop(zpl);
        pool.dsl().close_filesystem("tank").await.map_err(|error| format!("close: {error}"))?;
        pool.export().await.map_err(|error| format!("export: {error}"))?;
        drop(pool);
        filled.disks = forks.iter().map(|fork| fork.image()).collect();
        let environment = world::environment(host + 1, devices.clone(), Arc::new(StandingClock));
        let request = ImportRequest { pool: "tank".into(), search: vec![FOLDER.into()], ..ImportRequest::default() };
        pool = Pool::import(environment, request).await.map_err(|error| format!("import: {error}"))?;
        let zpl = world::mount(&pool, "tank", Arc::new(StandingClock)).await?;
        let mut filler = Filler { zpl, random, names, next, refusals, last };
        filler.verify().await?;
        filler.remove(100).await?;
        sync(&pool).await?;
        filler.append_after_all().await?;
        (filled.refusals, filled.files) = (filler.refusals, filler.next);
        filler.zpl.unmount().await.map_err(|error| format!("unmount: {error}"))?;
        drop(filler);
        pool.dsl().close_filesystem("tank").await.map_err(|error| format!("close: {error}"))?;
        pool.export().await.map_err(|error| format!("export: {error}"))
    })?;
    Ok(filled)
}

impl Filler {
    /// An emptied pool takes something again.
    async fn append_after_all(&mut self) -> Result<(), String> {
        let Some(name) = self.make(false).await? else { return Err("an emptied pool takes no file".into()) };
        if self.append(&name, 100_000).await? { Ok(()) } else { Err("an emptied pool takes no 100 KB".into()) }
    }
}
