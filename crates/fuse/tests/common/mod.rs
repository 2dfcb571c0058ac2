//! A file system on blocks in memory, with its sync loop and a mount point.
#![allow(dead_code)]

#[path = "../../../zpl/tests/suite/common/mod.rs"]
mod pool;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use platter_fuse::{Mount, MountOptions, mount};
use platter_hooks::WallClock;
use platter_vfs::{ControlDirectory, ServeOptions, Timestamp, Vfs};
use platter_zio::memory::MemoryStore;
use platter_zpl::{CreateOptions, UnlimitedSpace, Zpl};
use pool::TestPool;

/// The system's.
#[derive(Debug)]
struct Clock;

impl WallClock for Clock {
    fn now(&self) -> (u64, u32) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        (now.as_secs(), now.subsec_nanos())
    }
}

/// A file system, its sync loop and its mount point.
pub struct Fixture {
    pub runtime: tokio::runtime::Runtime,
    pub directory: tempfile::TempDir,
    pub store: Arc<MemoryStore>,
    pub zpl: Arc<Zpl>,
    /// It syncs as long as it lives.
    _pool: Arc<TestPool>,
}

impl Fixture {
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let _ = tracing_subscriber::fmt().with_test_writer().try_init();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (pool, zpl) = runtime.block_on(async {
            let made = CreateOptions { salt_seed: 1, ..CreateOptions::default() };
            let pool = TestPool::of(pool::properties(), made).await;
            let options = platter_zpl::MountOptions::default();
            let zpl = Zpl::mount(pool.os(), options, Arc::new(Clock), Arc::new(UnlimitedSpace)).await.unwrap();
            (pool, zpl)
        });
        let store = pool.store.clone();
        Some(Self { runtime, directory: tempfile::tempdir().unwrap(), store, zpl, _pool: pool })
    }

    pub fn mount(&self) -> Mount {
        let options = MountOptions { source: "tank/media".into(), ..MountOptions::default() };
        mount(self.serve(), self.directory.path(), options, self.runtime.handle().clone()).unwrap()
    }

    /// What a mount serves.
    pub fn serve(&self) -> Arc<Vfs> {
        let since = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        let options =
            ServeOptions { name: "tank/media".into(), since, control: ControlDirectory::Hidden, observer: None };
        Vfs::new(self.zpl.clone(), options, self.runtime.handle().clone())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}
