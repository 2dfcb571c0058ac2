//! What a pool on files needs of its surroundings, always the same: for tests, and for what measures.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_dmu::{Objset, Tx};
use platter_dsl::{FilesystemMaker, FilesystemOptions};
use platter_spa::{Environment, HostId, SystemDevices};
use platter_zpl::{CreateOptions, Zpl};

/// A clock that stands still.
#[derive(Debug)]
pub struct Clock;

impl platter_hooks::WallClock for Clock {
    fn now(&self) -> (u64, u32) {
        (1_700_000_000, 0)
    }
}

/// Fills new file systems, always in the same way.
pub struct Maker;

impl FilesystemMaker for Maker {
    fn make<'a>(
        &'a self,
        os: &'a Arc<Objset>,
        tx: &'a Tx,
        options: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>> {
        async move {
            let options = CreateOptions { version: options.version, salt_seed: 7, ..CreateOptions::default() };
            Zpl::create_filesystem(os, tx, &options).await
        }
        .boxed()
    }
}

/// File systems are made by `maker`, and a group ends after `txg_timeout_seconds` at the latest.
pub fn environment(maker: Arc<dyn FilesystemMaker>, txg_timeout_seconds: u64) -> Environment {
    Environment {
        clock: Arc::new(Clock),
        maker,
        random: platter_dsl::Randomness::seeded([3; 32]),
        hostname: "test".into(),
        host: Arc::new(HostId { id: 0x1234, is_derived: false }),
        cpu: platter_hooks::Cpu::FREE,
        cache_bytes: 64 << 20,
        dirty_bytes_max: 64 << 20,
        metaslab_bytes: 1 << 20,
        devices: Arc::new(SystemDevices::default()),
        pool_locks: Arc::new(platter_spa::pool_locks::NobodyElse),
        multihost_interval_ms: 1000,
        events: Arc::default(),
        held: Arc::default(),
        memory: Arc::default(),
        frees_per_group: Environment::FREES_PER_GROUP,
        livelist_births: 12,
        scan_slice: Environment::SCAN_SLICE,
        scan_round: Environment::SCAN_ROUND,
        livelist_shared: 30,
        trim: platter_spa::TrimLimits::USUAL,
        txg_timeout_seconds,
    }
}
