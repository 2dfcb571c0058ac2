//! A file system on blocks in memory, with its sync loop and a mount point.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use platter_dmu::{Objset, ObjsetParams, TxgGate, WriteProperties};
use platter_fuse::{Mount, MountOptions, mount};
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::memory::MemoryStore;
use platter_zio::{BlockStore, SpaceAccounting};
use platter_zpl::{CreateOptions, UnlimitedSpace, WallClock, Zpl};

#[derive(Debug)]
struct Clock;

impl WallClock for Clock {
    fn now(&self) -> (u64, u32) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        (now.as_secs(), now.subsec_nanos())
    }
}

/// Frees blocks some groups after their death, as a pool does: a reader may be on its way to one when it dies.
struct FreeLater {
    store: Arc<MemoryStore>,
    dead: Mutex<Vec<(Txg, BlkPtr)>>,
}

impl FreeLater {
    fn synced(&self, txg: Txg) {
        let mut dead = self.dead.lock().unwrap();
        for (_, bp) in dead.extract_if(.., |(death, _)| death.plus(3) <= txg) {
            self.store.free(txg, &bp);
        }
    }
}

impl SpaceAccounting for FreeLater {
    fn born(&self, _txg: Txg, _bp: &BlkPtr) {}

    fn kill(&self, txg: Txg, bp: &BlkPtr) {
        self.dead.lock().unwrap().push((txg, *bp));
    }
}

/// A file system, its sync loop and its mount point.
pub struct Fixture {
    pub runtime: tokio::runtime::Runtime,
    pub directory: tempfile::TempDir,
    pub store: Arc<MemoryStore>,
    pub zpl: Arc<Zpl>,
}

impl Fixture {
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let properties = WriteProperties {
            checksum: 7,
            compression: 2,
            compression_level: 0,
            copies: 1,
            record_size: 128 << 10,
            is_mos: false,
            embedded_data: false,
            dnode_size: 512,
            redundant_metadata: platter_dmu::RedundantMetadata::All,
            format: platter_dmu::Format::default(),
            accounting: platter_dmu::UserAccounting::default(),
        };
        let store = Arc::new(MemoryStore::new());
        let gate = TxgGate::new(Txg(10), 256 << 20);
        let accounting = Arc::new(FreeLater { store: store.clone(), dead: Mutex::default() });
        let params = ObjsetParams {
            store: store.clone(),
            accounting: accounting.clone(),
            gate: gate.clone(),
            id: ObjectId(54),
            properties,
            read_only: false,
        };
        let zpl = runtime.block_on(async {
            let tx = gate.begin().await.unwrap();
            let os = Objset::create(params, 2, &tx);
            Zpl::create_filesystem(&os, &tx, &CreateOptions { salt_seed: 1, ..CreateOptions::default() })
                .await
                .unwrap();
            drop(tx);
            let syncing = os.clone();
            tokio::spawn(async move {
                loop {
                    let _ = tokio::time::timeout(Duration::from_millis(200), gate.wanted()).await;
                    let txg = gate.quiesce().await;
                    syncing.sync(txg, 1).await.unwrap();
                    gate.finish(txg);
                    accounting.synced(txg);
                }
            });
            Zpl::mount(os, platter_zpl::MountOptions::default(), Arc::new(Clock), Arc::new(UnlimitedSpace))
                .await
                .unwrap()
        });
        Some(Self { runtime, directory: tempfile::tempdir().unwrap(), store, zpl })
    }

    pub fn mount(&self) -> Mount {
        let options = MountOptions { source: "tank/media".into(), ..MountOptions::default() };
        mount(self.zpl.clone(), self.directory.path(), options, self.runtime.handle().clone()).unwrap()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
