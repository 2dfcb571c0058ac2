//! Where the unit tests of this crate work: files of this machine, a clock that stands still, file systems without
//! anything in them.

use std::sync::Arc;

use futures::future::BoxFuture;
use platter_device::SystemDevices;
use platter_dmu::{Objset, Tx};

use crate::{Environment, HostId};
use platter_dsl::{FilesystemMaker, FilesystemOptions};

#[derive(Debug)]
struct Clock;

impl platter_hooks::WallClock for Clock {
    fn now(&self) -> (u64, u32) {
        (1_700_000_000, 0)
    }
}

struct Empty;

impl FilesystemMaker for Empty {
    fn make<'a>(
        &'a self,
        _: &'a Arc<Objset>,
        _: &'a Tx,
        _: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

/// A machine whose random numbers follow from `seed`.
pub fn environment(seed: u8) -> Environment {
    Environment {
        clock: Arc::new(Clock),
        maker: Arc::new(Empty),
        random: platter_dsl::Randomness::seeded([seed; 32]),
        hostname: "test".into(),
        host: Arc::new(HostId { id: 0x1234, is_derived: false }),
        cpu: platter_hooks::Cpu::FREE,
        cache_bytes: 256 << 20,
        dirty_bytes_max: 256 << 20,
        metaslab_bytes: 64 << 20,
        devices: Arc::new(SystemDevices::default()),
        pool_locks: Arc::new(crate::pool_locks::NobodyElse),
        multihost_interval_ms: 1000,
        events: Arc::default(),
        held: Arc::default(),
        memory: Arc::default(),
        frees_per_group: Environment::FREES_PER_GROUP,
        livelist_births: Environment::LIVELIST_BIRTHS,
        scan_slice: Environment::SCAN_SLICE,
        scan_round: Environment::SCAN_ROUND,
        livelist_shared: Environment::LIVELIST_SHARED,
        txg_timeout_seconds: 5,
        trim: crate::TrimLimits::USUAL,
    }
}
