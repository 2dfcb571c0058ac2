//! A file system on blocks in memory, with a sync loop. The tests of what stands on the file system use it too.
#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platter_dmu::{Objset, ObjsetParams, TxgGate, WriteProperties};
use platter_hooks::WallClock;
use platter_ondisk::{BlkPtr, Checksum, Compression, ObjectId, ObjsetType, Txg};
use platter_zio::memory::MemoryStore;
use platter_zio::{BlockStore, SpaceAccounting};
use platter_zpl::{CreateOptions, MountOptions, SpaceInfo, Timestamp, UnlimitedSpace, Zpl};

/// A clock that moves by a second each time it is asked.
#[derive(Debug, Default)]
pub struct TestClock(AtomicU64);

impl WallClock for TestClock {
    fn now(&self) -> (u64, u32) {
        (1_700_000_000 + self.0.fetch_add(1, Ordering::Relaxed), 123)
    }
}

/// Frees blocks some groups after their death, as a pool does: a reader may be on its way to one when it dies.
#[derive(Default)]
struct FreeLater(parking_lot::Mutex<Vec<(Txg, BlkPtr)>>);

impl FreeLater {
    fn synced(&self, store: &MemoryStore, txg: Txg) {
        for (_, bp) in self.0.lock().extract_if(.., |(death, _)| death.plus(3) <= txg) {
            store.free(txg, &bp);
        }
    }
}

impl SpaceAccounting for FreeLater {
    fn born(&self, _txg: Txg, _bp: &BlkPtr) {}

    fn kill(&self, txg: Txg, bp: &BlkPtr) {
        self.0.lock().push((txg, *bp));
    }
}

pub struct TestPool {
    pub store: Arc<MemoryStore>,
    dead: Arc<FreeLater>,
    pub gate: Arc<TxgGate>,
    pub properties: WriteProperties,
    os: parking_lot::Mutex<Arc<Objset>>,
    syncer: tokio::task::JoinHandle<()>,
}

impl Drop for TestPool {
    fn drop(&mut self) {
        self.syncer.abort();
    }
}

pub fn properties() -> WriteProperties {
    WriteProperties {
        checksum: Checksum::FLETCHER_4,
        compression: Compression::OFF,
        compression_level: 0,
        copies: 1,
        record_size: 128 << 10,
        is_mos: false,
        embedded_data: false,
        dnode_size: 512,
        redundant_metadata: platter_dmu::RedundantMetadata::All,
        format: platter_dmu::Format::default(),
        accounting: platter_dmu::UserAccounting::default(),
    }
}

impl TestPool {
    /// A pool with one new, synced file system.
    pub async fn new(properties: WriteProperties) -> Arc<Self> {
        let now = Timestamp { seconds: 1_600_000_000, nanoseconds: 5 };
        Self::of(properties, CreateOptions { uid: 7, gid: 8, now, salt_seed: 1, ..CreateOptions::default() }).await
    }

    /// A pool with one new file system as `options` say.
    pub async fn of(properties: WriteProperties, options: CreateOptions) -> Arc<Self> {
        let gate = TxgGate::new(Txg(10), 256 << 20);
        let store = Arc::new(MemoryStore::new());
        let dead = Arc::new(FreeLater::default());
        let tx = gate.begin().await.unwrap();
        let os = Objset::create(Self::params(&store, &dead, &gate, &properties), ObjsetType::ZFS, &tx);
        Zpl::create_filesystem(&os, &tx, &options).await.unwrap();
        drop(tx);
        Arc::new_cyclic(|this: &std::sync::Weak<Self>| {
            let (this, waiting) = (this.clone(), gate.clone());
            let syncer = tokio::spawn(async move {
                loop {
                    // Soon after somebody asks, and now and then, as the pool does.
                    let _ = tokio::time::timeout(std::time::Duration::from_millis(20), waiting.wanted()).await;
                    let Some(pool) = this.upgrade() else { return };
                    pool.sync_once().await;
                }
            });
            Self { store, dead, gate, properties, os: parking_lot::Mutex::new(os), syncer }
        })
    }

    fn params(
        store: &Arc<MemoryStore>,
        dead: &Arc<FreeLater>,
        gate: &Arc<TxgGate>,
        properties: &WriteProperties,
    ) -> ObjsetParams {
        ObjsetParams {
            store: store.clone(),
            accounting: dead.clone(),
            gate: gate.clone(),
            id: ObjectId(54),
            properties: properties.clone(),
            read_only: false,
        }
    }

    async fn sync_once(&self) {
        let txg = self.gate.quiesce().await;
        let os = self.os.lock().clone();
        os.sync(txg, 1).await.unwrap();
        self.dead.synced(&self.store, txg);
        self.gate.finish(txg);
    }

    pub fn os(&self) -> Arc<Objset> {
        self.os.lock().clone()
    }

    pub async fn mount(&self) -> Arc<Zpl> {
        self.mount_with(MountOptions { salt_seed: 2, ..MountOptions::default() }).await
    }

    pub async fn mount_with(&self, options: MountOptions) -> Arc<Zpl> {
        Zpl::mount(self.os(), options, Arc::new(TestClock::default()), Arc::new(UnlimitedSpace)).await.unwrap()
    }

    pub async fn mount_limited(&self, space: Arc<dyn SpaceInfo>) -> Arc<Zpl> {
        Zpl::mount(self.os(), MountOptions::default(), Arc::new(TestClock::default()), space).await.unwrap()
    }

    /// Waits until what is dead by now is freed.
    pub async fn settle(&self) {
        for _ in 0..4 {
            self.gate.wait_synced(self.gate.open_txg()).await.unwrap();
        }
    }

    /// Unmounts, opens the object set again from what is in the store, and mounts it.
    pub async fn reopen(&self, zpl: Arc<Zpl>) -> Arc<Zpl> {
        zpl.unmount().await.unwrap();
        drop(zpl);
        self.reload().await;
        self.mount().await
    }

    /// Opens the object set again from its last synced state.
    pub async fn reload(&self) {
        self.gate.wait_synced(self.gate.open_txg()).await.unwrap();
        let root: BlkPtr = self.os().root();
        let os = Objset::open(Self::params(&self.store, &self.dead, &self.gate, &self.properties), root).await.unwrap();
        *self.os.lock() = os;
    }
}

pub async fn mounted() -> (Arc<TestPool>, Arc<Zpl>) {
    let pool = TestPool::new(properties()).await;
    let zpl = pool.mount().await;
    (pool, zpl)
}

pub async fn read_all(zpl: &Zpl, object: ObjectId) -> Vec<u8> {
    let pieces = zpl.read(object, 0, u64::MAX).await.unwrap();
    pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}

pub async fn names(zpl: &Zpl, directory: ObjectId) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = 0;
    loop {
        let entries = zpl.readdir(directory, cursor, 7, false).await.unwrap();
        let Some(last) = entries.last() else { break };
        cursor = last.cursor;
        names.extend(entries.iter().map(|e| String::from_utf8(e.name.clone()).unwrap()));
    }
    names.sort();
    names
}
