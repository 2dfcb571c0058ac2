//! Volumes on real pools over files: what was written is there after a crash, a rollback, an export and an import, and
//! zdb finds what OpenZFS would have made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use platter_api::report::PropertyValue;
use platter_api::request::{CreateRequest, ImportRequest, NewVolume, Setting, VdevRequest};
use platter_dsl::volume::{OpenVolume, Server};
use platter_spa::Pool;
use platter_zvol::{Keeper, OpenOptions, SeekFor, UnlimitedSpace, Volume, VolumeError};

#[path = "../../zpl/tests/suite/environment.rs"]
mod environment;

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 16 << 10;
/// Groups end only when somebody asks.
const NEVER: u64 = 100_000;

fn environment() -> platter_spa::Environment {
    environment::environment(Arc::new(environment::Maker), NEVER)
}

struct Fixture {
    folder: tempfile::TempDir,
    pool: Arc<Pool>,
}

struct Opened {
    volume: Arc<Volume>,
    open: OpenVolume,
    _serving: Arc<Serving>,
}

struct Serving(Arc<Volume>);

impl Server for Serving {
    fn resized(&self, size: u64) -> futures::future::BoxFuture<'_, ()> {
        Box::pin(self.0.set_size(size))
    }

    fn set_read_only(&self, read_only: bool) {
        self.0.set_read_only(read_only);
    }
}

impl Fixture {
    async fn new(disks: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let children: Vec<PathBuf> = (0..disks)
            .map(|index| {
                let path = folder.path().join(format!("d{index}"));
                std::fs::File::create(&path).unwrap().set_len(256 * MIB).unwrap();
                path
            })
            .collect();
        let vdev = match disks {
            1 => VdevRequest::Leaf(children[0].clone()),
            _ => VdevRequest::Raidz { parity: 1, children },
        };
        let request = CreateRequest { name: "tank".into(), vdevs: vec![vdev], ..CreateRequest::default() };
        let pool = Pool::create(environment(), request).await.unwrap();
        Self { folder, pool }
    }

    async fn make(&self, name: &str, size: u64, sparse: bool) {
        let asked = NewVolume { size, block_size: Some(BLOCK), sparse };
        self.pool.dsl().create_volume(name, &asked, &BTreeMap::new()).await.unwrap();
    }

    async fn open(&self, name: &str) -> Opened {
        open(&self.pool, name).await
    }

    async fn close(&self, opened: Opened) {
        let Opened { volume, open, .. } = opened;
        drop(volume);
        self.pool.dsl().close_volume(open).await.unwrap();
    }

    async fn number(&self, property: &str) -> u64 {
        match self.pool.dsl().dataset("tank/v").await.unwrap().properties[property].value {
            PropertyValue::Number(number) => number,
            ref other => panic!("{other:?}"),
        }
    }

    async fn set(&self, property: &str, value: &str) -> Result<(), String> {
        let settings = [(property.to_owned(), Setting::Value(value.to_owned()))];
        self.pool.dsl().set_dataset_properties("tank/v", &settings).await.map_err(|error| error.to_string())
    }
}

async fn open(pool: &Arc<Pool>, name: &str) -> Opened {
    let open = pool.dsl().open_volume(name).await.unwrap();
    let options = OpenOptions { read_only: false, log: open.log.clone(), space: Arc::new(UnlimitedSpace) };
    let volume = Volume::open(open.objset.clone(), options).await.unwrap();
    let serving = Arc::new(Serving(volume.clone()));
    let server: std::sync::Weak<dyn Server> = Arc::downgrade(&serving) as _;
    open.served_by(server);
    Opened { volume, open, _serving: serving }
}

async fn import(folder: &Path) -> Arc<Pool> {
    let search = vec![folder.to_owned()];
    let request = ImportRequest { pool: "tank".into(), search, force: true, ..ImportRequest::default() };
    Pool::import(environment(), request).await.unwrap()
}

/// The disks as they are at this moment, elsewhere.
fn copied(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let done = Command::new("cp").arg("--sparse=always").arg(entry.path()).arg(copy.path()).status().unwrap();
        assert!(done.success());
    }
    copy
}

/// What zdb says; `None` when it is not installed.
fn zdb(folder: &Path, words: &[&str]) -> Option<String> {
    let output = Command::new("zdb").args(["-e", "-p"]).arg(folder).args(words).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    Some(text)
}

fn judge(folder: &Path) {
    match zdb(folder, &["-bcc", "tank"]) {
        Some(text) => assert!(text.contains("No leaks"), "{text}"),
        None => eprintln!("skipped: zdb is not installed"),
    }
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

async fn read(volume: &Volume, offset: u64, length: u64) -> Vec<u8> {
    volume.read(offset, length, Keeper::Nobody).await.unwrap().iter().flat_map(|piece| piece.to_vec()).collect()
}

async fn write(volume: &Volume, offset: u64, data: &[u8]) {
    assert_eq!(volume.write(offset, data, Keeper::Nobody).await.unwrap(), data.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_as_openzfs_makes_it_and_holds_what_was_written() {
    let fixture = Fixture::new(3).await;
    fixture.make("tank/v", 64 * MIB, true).await;
    let opened = fixture.open("tank/v").await;
    let volume = &opened.volume;
    assert_eq!((volume.size(), volume.block_size()), (64 * MIB, BLOCK as u32));
    let mut model = vec![0; (64 * MIB) as usize];
    for (at, length) in [(0, 3 << 20), (5 * MIB + 100, 1000), (9 * MIB - 5, 10), (63 * MIB, 1 << 20), (7, 1)] {
        let data = random(at + 1, length);
        write(volume, at, &data).await;
        model[at as usize..at as usize + length].copy_from_slice(&data);
    }
    assert!(read(volume, 0, 64 * MIB).await == model);
    volume.clear(MIB + 5, MIB).await.unwrap();
    model[(MIB + 5) as usize..(2 * MIB + 5) as usize].fill(0);
    assert!(read(volume, 0, 100 * MIB).await == model);
    assert_eq!(volume.seek(0, SeekFor::Hole).await.unwrap(), MIB + BLOCK);
    assert_eq!(volume.seek(MIB + BLOCK, SeekFor::Data).await.unwrap(), 2 * MIB);
    assert_eq!(volume.seek(64 * MIB - 1, SeekFor::Hole).await.unwrap(), 64 * MIB);
    assert!(matches!(volume.seek(64 * MIB, SeekFor::Data).await, Err(VolumeError::NoSuchOffset)));
    // At the end.
    assert_eq!(volume.write(64 * MIB - 3, b"12345", Keeper::Nobody).await.unwrap(), 3);
    assert!(matches!(volume.write(64 * MIB, b"1", Keeper::Nobody).await, Err(VolumeError::BehindEnd)));
    model[(64 * MIB - 3) as usize..].copy_from_slice(b"123");
    assert!(volume.read(64 * MIB, 5, Keeper::Nobody).await.unwrap().is_empty());
    assert!(fixture.pool.dsl().destroy_dataset("tank/v").await.is_err_and(|e| e.to_string().contains("busy")));
    fixture.close(opened).await;
    fixture.pool.export().await.unwrap();
    judge(fixture.folder.path());
    if let Some(text) = zdb(fixture.folder.path(), &["-dddd", "tank/v"]) {
        for said in ["zvol object", "zvol prop", "size = 67108864", "16K", "ZVOL"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
    let pool = import(fixture.folder.path()).await;
    let again = open(&pool, "tank/v").await;
    assert!(read(&again.volume, 0, 64 * MIB).await == model);
    let Opened { volume, open, .. } = again;
    drop(volume);
    pool.dsl().close_volume(open).await.unwrap();
    pool.dsl().destroy_dataset("tank/v").await.unwrap();
    pool.export().await.unwrap();
    judge(fixture.folder.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_reserved_for_a_volume_is_what_openzfs_reserves() {
    let fixture = Fixture::new(1).await;
    fixture.make("tank/v", 64 * MIB, false).await;
    // 4096 blocks under 4 indirect ones and 1 above, 7 of the meta-dnode, each twice.
    let of = |blocks: u64, above: u64| blocks * BLOCK + (((7 + above) * 2) << 17);
    assert_eq!(fixture.number("refreservation").await, of(4096, 4 + 1));
    assert!(fixture.number("usedbyrefreservation").await > 60 * MIB);
    fixture.set("volsize", "96M").await.unwrap();
    assert_eq!((fixture.number("volsize").await, fixture.number("refreservation").await), (96 * MIB, of(6144, 6 + 1)));
    fixture.set("refreservation", "none").await.unwrap();
    fixture.set("volsize", "32M").await.unwrap();
    assert_eq!((fixture.number("volsize").await, fixture.number("refreservation").await), (32 * MIB, 0));
    fixture.set("refreservation", "auto").await.unwrap();
    assert_eq!(fixture.number("refreservation").await, of(2048, 2 + 1));
    assert!(
        fixture.set("volsize", "100K").await.unwrap_err().contains("must be a multiple of volume block size (16K)")
    );
    assert!(fixture.set("volsize", "0").await.unwrap_err().contains("'volsize' cannot be zero"));
    assert!(fixture.set("volsize", "1T").await.unwrap_err().contains("size is greater than available space"));
    assert!(fixture.set("volblocksize", "8K").await.unwrap_err().contains("'volblocksize' is readonly"));
    assert!(fixture.set("atime", "off").await.unwrap_err().contains("does not apply to datasets of this type"));
    fixture.set("readonly", "on").await.unwrap();
    assert!(fixture.set("volsize", "64M").await.unwrap_err().contains("dataset is read-only"));
    let none = BTreeMap::new();
    let refused = async |size: u64, block_size: u64| {
        let asked = NewVolume { size, block_size: Some(block_size), sparse: true };
        fixture.pool.dsl().create_volume("tank/w", &asked, &none).await.unwrap_err().to_string()
    };
    assert!(refused(0, BLOCK).await.contains("volume size cannot be zero"));
    assert!(refused(MIB, 5000).await.contains("'volblocksize' must be power of 2 from 512B to 16M"));
    let large = NewVolume { size: 1 << 40, block_size: None, sparse: false };
    let full = fixture.pool.dsl().create_volume("tank/w", &large, &none).await.unwrap_err().to_string();
    assert!(full.contains("out of space"), "{full}");
    let below = fixture.pool.dsl().create_dataset("tank/v/below", &none).await.unwrap_err().to_string();
    assert!(below.contains("parent is not a filesystem"), "{below}");
    fixture.pool.export().await.unwrap();
    judge(fixture.folder.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fsync_said_is_there_after_a_crash() {
    let fixture = Fixture::new(3).await;
    fixture.make("tank/v", 16 * MIB, true).await;
    let opened = fixture.open("tank/v").await;
    let volume = &opened.volume;
    let first = random(1, 300_000);
    write(volume, 1000, &first).await;
    // The first one makes the log, in a group.
    volume.fsync().await.unwrap();
    fixture.pool.sync().await.unwrap();
    let mut model = vec![0; (16 * MIB) as usize];
    model[1000..301_000].copy_from_slice(&first);
    // From here on only the log has it.
    let second = random(2, 200_000);
    write(volume, 250_000, &second).await;
    model[250_000..450_000].copy_from_slice(&second);
    volume.clear(2 * BLOCK + 7, 5 * BLOCK).await.unwrap();
    model[(2 * BLOCK + 7) as usize..(7 * BLOCK + 7) as usize].fill(0);
    write(volume, 40_000, b"over the hole").await;
    model[40_000..40_013].copy_from_slice(b"over the hole");
    volume.fsync().await.unwrap();
    let lost = random(3, 1000);
    write(volume, 8 * MIB, &lost).await;
    let copy = copied(fixture.folder.path());
    if let Some(text) = zdb(copy.path(), &["-iii", "tank"]) {
        assert!(text.contains("TX_WRITE") && text.contains("TX_TRUNCATE"), "{text}");
    }
    let pool = import(copy.path()).await;
    let again = open(&pool, "tank/v").await;
    let found = read(&again.volume, 0, 16 * MIB).await;
    let different = found.iter().zip(&model).position(|(found, model)| found != model);
    assert_eq!(different, None);
    let Opened { volume: second, open, .. } = again;
    drop(second);
    pool.dsl().close_volume(open).await.unwrap();
    pool.export().await.unwrap();
    judge(copy.path());
    fixture.close(opened).await;
    fixture.pool.export().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sizes_snapshots_clones_and_rollbacks_are_right() {
    let fixture = Fixture::new(3).await;
    fixture.make("tank/v", 8 * MIB, true).await;
    let dsl = fixture.pool.dsl();
    let opened = fixture.open("tank/v").await;
    let data = random(5, (8 * MIB) as usize);
    write(&opened.volume, 0, &data).await;
    dsl.take_snapshots(&["tank/v@one".to_owned()], &BTreeMap::new()).await.unwrap();
    // Smaller while it is open: what is cut off is gone when it grows again.
    fixture.set("volsize", "2M").await.unwrap();
    assert_eq!(opened.volume.size(), 2 * MIB);
    assert!(matches!(opened.volume.write(2 * MIB, b"x", Keeper::Nobody).await, Err(VolumeError::BehindEnd)));
    fixture.set("volsize", "12M").await.unwrap();
    let found = read(&opened.volume, 0, 12 * MIB).await;
    let kept = (2 * MIB) as usize;
    assert!(found[..kept] == data[..kept] && found[kept..].iter().all(|byte| *byte == 0) && found.len() == 12 << 20);
    fixture.set("readonly", "on").await.unwrap();
    assert!(matches!(opened.volume.write(0, b"x", Keeper::Nobody).await, Err(VolumeError::ReadOnly)));
    assert!(matches!(opened.volume.clear(0, 5).await, Err(VolumeError::ReadOnly)));
    fixture.set("readonly", "off").await.unwrap();
    write(&opened.volume, 0, b"changed").await;
    assert!(dsl.rollback_dataset("tank/v", "one").await.is_err_and(|error| error.to_string().contains("busy")));
    fixture.close(opened).await;
    dsl.clone_snapshot("tank/v@one", "tank/c", &BTreeMap::new()).await.unwrap();
    dsl.rollback_dataset("tank/v", "one").await.unwrap();
    assert_eq!(fixture.number("volsize").await, 8 * MIB);
    for name in ["tank/v", "tank/c"] {
        let opened = fixture.open(name).await;
        assert!(read(&opened.volume, 0, 20 * MIB).await == data, "{name}");
        fixture.close(opened).await;
    }
    let os = dsl.open_snapshot("tank/v@one").await.unwrap();
    let options = OpenOptions { read_only: false, log: None, space: Arc::new(UnlimitedSpace) };
    let snapshot = Volume::open(os, options).await.unwrap();
    assert!(read(&snapshot, 0, 20 * MIB).await == data);
    assert!(matches!(snapshot.write(0, b"x", Keeper::Nobody).await, Err(VolumeError::ReadOnly)));
    drop(snapshot);
    dsl.promote_dataset("tank/c").await.unwrap();
    dsl.destroy_dataset("tank/v").await.unwrap();
    fixture.pool.export().await.unwrap();
    judge(fixture.folder.path());
}

/// A change of the small volume below: what, from where, how much, with which bytes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write(u64, u64, u64),
    Clear(u64, u64),
    Sync,
    Fsync,
    Snapshot,
    Resize(u64),
}

fn change(step: u64) -> Change {
    let dice = random(step + 1000, 24);
    let number = |at: usize| u64::from_le_bytes(dice[at..at + 8].try_into().unwrap());
    let (offset, length) = (number(8) % (3 * MIB), 1 + number(16) % 100_000);
    match number(0) % 20 {
        0 => Change::Sync,
        1 | 2 => Change::Fsync,
        3 => Change::Snapshot,
        4 => Change::Resize(MIB + offset / BLOCK * BLOCK),
        5..=8 => Change::Clear(offset, length * 3),
        _ => Change::Write(offset, length, step),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_changes_in_any_order_are_there_after_a_crash() {
    let fixture = Fixture::new(3).await;
    fixture.make("tank/v", 4 * MIB, true).await;
    let opened = fixture.open("tank/v").await;
    let mut model = vec![0u8; (4 * MIB) as usize];
    for step in 0..240 {
        match change(step) {
            Change::Write(offset, length, seed) if offset < model.len() as u64 => {
                let data = random(seed, length as usize);
                let end = model.len().min((offset + length) as usize);
                let fits = end - offset as usize;
                assert_eq!(opened.volume.write(offset, &data, Keeper::Caller).await.unwrap(), fits);
                model[offset as usize..end].copy_from_slice(&data[..fits]);
            }
            Change::Write(..) => {}
            Change::Clear(offset, length) => {
                opened.volume.clear(offset, length).await.unwrap();
                let end = model.len().min((offset + length) as usize);
                model[end.min(offset as usize)..end].fill(0);
            }
            Change::Sync => fixture.pool.sync().await.unwrap(),
            Change::Fsync => opened.volume.fsync().await.unwrap(),
            Change::Snapshot => {
                let name = format!("tank/v@s{step}");
                fixture.pool.dsl().take_snapshots(&[name], &BTreeMap::new()).await.unwrap();
            }
            Change::Resize(size) => {
                fixture.set("volsize", &size.to_string()).await.unwrap();
                model.resize(size as usize, 0);
            }
        }
        if step % 20 == 19 {
            assert!(read(&opened.volume, 0, 8 * MIB).await == model, "step {step}");
        }
        if step % 60 == 59 {
            opened.volume.fsync().await.unwrap();
            let copy = copied(fixture.folder.path());
            let pool = import(copy.path()).await;
            let again = open(&pool, "tank/v").await;
            assert!(read(&again.volume, 0, 8 * MIB).await == model, "after a crash in step {step}");
            let Opened { volume, open, .. } = again;
            drop(volume);
            pool.dsl().close_volume(open).await.unwrap();
            pool.export().await.unwrap();
            judge(copy.path());
        }
    }
    fixture.close(opened).await;
    fixture.pool.export().await.unwrap();
    judge(fixture.folder.path());
}
