//! The processors of a simulated machine: computing takes virtual time there.
//!
//! Invariant: as many things are computed at once as there are cores, each at the rate of its kind; whoever comes later
//! waits for the core that is free first.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_hooks::{CpuMeter, CpuWork};

use crate::clock::{Nanos, SECOND, SimClock};

/// Bytes per second of one core, by kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speeds {
    /// Checksums (`fletcher4`).
    pub fletcher: u64,
    /// Checksums that are hashes.
    pub hash: u64,
    /// Compression by `lz4` and what is as fast.
    pub compress_fast: u64,
    /// Compression by `gzip` and `zstd`.
    pub compress_slow: u64,
    /// Decompression.
    pub decompress: u64,
    /// One column of parity, of the block's bytes.
    pub parity: u64,
    /// One column rebuilt, of the block's bytes.
    pub rebuild: u64,
}

impl Speeds {
    /// A core of about 2020.
    pub const USUAL: Self = Self {
        fletcher: 8_000_000_000,
        hash: 1_500_000_000,
        compress_fast: 600_000_000,
        compress_slow: 100_000_000,
        decompress: 1_500_000_000,
        parity: 8_000_000_000,
        rebuild: 2_000_000_000,
    };

    /// Time for `work` on `bytes`.
    fn time(&self, work: CpuWork, bytes: u64) -> Nanos {
        use platter_ondisk::{Checksum, Compression};
        let (rate, times) = match work {
            CpuWork::Checksum(number) => match Checksum::from_number(number) {
                Checksum::FLETCHER_2 | Checksum::FLETCHER_4 => (self.fletcher, 1),
                _ => (self.hash, 1),
            },
            CpuWork::Compress(number) => match Compression::from_number(number) {
                Compression::LZ4 | Compression::LZJB | Compression::ZLE => (self.compress_fast, 1),
                _ => (self.compress_slow, 1),
            },
            CpuWork::Decompress(_) => (self.decompress, 1),
            CpuWork::Parity(columns) => (self.parity, columns as u64),
            CpuWork::Rebuild(columns) => (self.rebuild, columns as u64),
        };
        bytes * times * SECOND / rate.max(1)
    }
}

/// See the module text.
#[derive(Debug)]
pub struct SimCpu {
    clock: Arc<SimClock>,
    speeds: Speeds,
    free_at: Mutex<Vec<Nanos>>,
}

impl SimCpu {
    /// A machine with so many cores.
    pub fn new(clock: &Arc<SimClock>, cores: usize, speeds: Speeds) -> Arc<Self> {
        Arc::new(Self { clock: clock.clone(), speeds, free_at: Mutex::new(vec![0; cores.max(1)]) })
    }
}

impl CpuMeter for SimCpu {
    fn charge(&self, work: CpuWork, bytes: u64) -> BoxFuture<'_, ()> {
        let done = {
            let mut cores = self.free_at.lock();
            let core = cores.iter_mut().min().expect("at least one core");
            let (now, time) = (self.clock.now(), self.speeds.time(work, bytes));
            let begin = (*core).max(now);
            *core = begin + time;
            debug_assert!(begin == now || cores.iter().all(|core| *core >= begin), "who waits has the first free core");
            begin + time
        };
        self.clock.sleep_until(done).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use platter_ondisk::{Checksum, Compression};

    #[test]
    fn work_takes_its_time_and_cores_share_it() {
        let end = clock::run(|clock| async move {
            let cpu = SimCpu::new(&clock, 2, Speeds::USUAL);
            let hash = CpuWork::Checksum(Checksum::SHA256.number());
            let all = (0..4).map(|_| cpu.charge(hash, 1_500_000));
            futures::future::join_all(all).await;
            let two_rounds = clock.now();
            cpu.charge(CpuWork::Parity(3), 8_000_000).await;
            cpu.charge(CpuWork::Compress(Compression::LZ4.number()), 600).await;
            (two_rounds, clock.now())
        });
        assert_eq!(end, (2_000_000, 2_000_000 + 3_000_000 + 1_000));
    }
}
