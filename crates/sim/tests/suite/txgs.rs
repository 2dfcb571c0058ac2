//! What a pool remembers of its transaction groups, held against the disks' own counters and the virtual clock.

use std::sync::Arc;
use std::time::Duration;

use platter_api::report::{Detail, VdevReport};
use platter_api::request::{CreateRequest, VdevRequest};
use platter_api::txgs::GROUPS_MAX;
use platter_api::txgs::TxgReport;
use platter_device::BlockDevice;
use platter_model::clock;
use platter_model::disk::{DiskId, Parameters, SimDisk};
use platter_sim::world::{self, SimDevices};
use platter_spa::Pool;
use platter_zpl::NewFile;

/// Uberblocks of a group on each disk, one in each of its labels, and their bytes with sectors of 4 KiB.
const UBERBLOCKS: u64 = 4;
const UBERBLOCK: u64 = 4096;
const DISKS: u64 = 3;

/// A raidz pool on disks that turn, and what writes to it.
struct Bench {
    clock: Arc<clock::SimClock>,
    disks: Vec<SimDisk>,
    pool: Arc<Pool>,
}

impl Bench {
    async fn new(clock: Arc<clock::SimClock>) -> Self {
        let devices = Arc::new(SimDevices::default());
        let parameters = Parameters::published_curve().sized(4 << 30);
        let disks: Vec<SimDisk> = (0..DISKS as u32).map(|id| SimDisk::new(&clock, 1, DiskId(id), parameters)).collect();
        for (number, disk) in disks.iter().enumerate() {
            devices.insert(number, Arc::new(disk.clone()) as Arc<dyn BlockDevice>);
        }
        let children = (0..disks.len()).map(SimDevices::path).collect();
        let request = CreateRequest {
            name: "tank".into(),
            vdevs: vec![VdevRequest::Raidz { parity: 1, children }],
            pool_properties: [("ashift".to_owned(), "12".to_owned())].into(),
            ..CreateRequest::default()
        };
        let environment = world::environment(1, devices, clock.clone());
        let pool = Pool::create(environment, request).await.expect("created");
        Self { clock, disks, pool }
    }

    /// Write operations and bytes written, as the pool's own counters have it.
    async fn counted(&self) -> (u64, u64) {
        fn sum(vdev: &VdevReport) -> (u64, u64) {
            match vdev.children.as_slice() {
                [] => (vdev.counts.write_ops, vdev.counts.write_bytes),
                children => children.iter().map(sum).fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1)),
            }
        }
        sum(&self.pool.report(Detail::default()).await.expect("a report").vdevs)
    }

    /// Writes that the disks were given, and their bytes.
    fn transferred(&self) -> (u64, u64) {
        let of = |disk: &SimDisk| (disk.traffic().writes, disk.traffic().written_bytes);
        self.disks.iter().map(of).fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    }
}

/// A megabyte that does not compress (splitmix64).
fn noise(seed: u64) -> Vec<u8> {
    let words = (1..=1_u64 << 17).map(|n| {
        let state = (n + (seed << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        state ^ (state >> 31)
    });
    words.flat_map(u64::to_le_bytes).collect()
}

/// A few groups of growing size.
fn history() -> Vec<TxgReport> {
    clock::run(|clock| async move {
        let bench = Bench::new(clock).await;
        let zpl = world::mount(&bench.pool, "tank", bench.clock.clone()).await.expect("mounted");
        bench.pool.sync().await.expect("synced");
        let before = bench.pool.txgs(0).synced;
        let (counted, transferred) = (bench.counted().await, bench.transferred());
        for (number, name) in [b"a", b"b", b"c"].into_iter().enumerate() {
            let new = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
            let file = zpl.create(zpl.root(), name, new).await.expect("created");
            for at in 0..number + 1 {
                let bytes = noise(at as u64);
                zpl.write(file.object, (at as u64) << 20, &bytes, false).await.expect("written");
            }
            bench.clock.sleep(Duration::from_millis(700)).await;
            bench.pool.sync().await.expect("synced");
        }
        let groups = bench.pool.txgs(before).groups;
        let now = bench.counted().await;
        let written: u64 = groups.iter().map(|group| group.written_bytes).sum();
        let writes: u64 = groups.iter().map(|group| group.writes).sum();
        assert_eq!(written, now.1 - counted.1);
        // The pool's counters have each piece; neighbours travelled as one.
        assert!(writes < now.0 - counted.0);
        // Disks get the uberblocks too. The labels' lists did not change.
        let stable = groups.iter().filter(|group| group.passes > 0).count() as u64;
        let (disk_writes, disk_written) = bench.transferred();
        assert_eq!(writes + stable * DISKS * UBERBLOCKS, disk_writes - transferred.0);
        assert_eq!(written + stable * DISKS * UBERBLOCKS * UBERBLOCK, disk_written - transferred.1);
        zpl.unmount().await.expect("unmounted");
        drop(zpl);
        bench.pool.export().await.expect("exported");
        groups
    })
}

#[test]
fn groups_tell_what_the_disks_did_and_how_long_it_took() {
    let groups = history();
    assert!(groups.len() >= 3, "{groups:?}");
    assert!(groups.windows(2).all(|pair| pair[0].txg + 1 == pair[1].txg), "{groups:?}");
    for pair in groups.windows(2) {
        // The next group is open from the moment the one before is closed.
        let opened = |group: &TxgReport| u128::from(group.opened.0) * 1_000_000_000 + u128::from(group.opened.1);
        assert_eq!(opened(&pair[0]) + u128::from(pair[0].open_ns), opened(&pair[1]), "{pair:?}");
        assert!(pair[1].open_ns >= pair[0].quiesce_ns + pair[0].spa_sync_ns(), "{pair:?}");
    }
    for (megabytes, group) in (1..).zip(groups.iter().filter(|group| group.dirty_bytes > 0)) {
        let dirty = megabytes << 20;
        assert!((dirty..dirty + (1 << 20)).contains(&group.dirty_bytes), "{group:?}");
        // Two disks of data, one of parity.
        assert!(group.written_bytes > dirty * 3 / 2 && group.written_bytes < dirty * 3, "{group:?}");
        assert!(group.passes >= 2 && group.writes > 0, "{group:?}");
        assert!(group.open_ns >= 700_000_000, "{group:?}");
        // No faster than the disks, and a turn for each of the flushes' uberblocks.
        let seconds = group.spa_sync_ns() as f64 / 1e9;
        assert!((group.written_bytes as f64) < seconds * DISKS as f64 * 62e6, "{group:?}");
        assert!(group.flush_ns > 4_000_000, "{group:?}");
    }
}

#[test]
fn the_same_seed_takes_the_same_time() {
    assert_eq!(history(), history());
}

#[test]
fn only_the_latest_groups_are_remembered() {
    clock::run(|clock| async move {
        let bench = Bench::new(clock).await;
        for _ in 0..GROUPS_MAX + 5 {
            bench.pool.sync().await.expect("synced");
        }
        let report = bench.pool.txgs(0);
        assert_eq!(report.groups.len(), GROUPS_MAX);
        assert_eq!(report.groups.last().map(|group| group.txg), Some(report.synced));
        assert_eq!(bench.pool.txgs(report.synced).groups, []);
        // Whoever has just waited for a group finds it here.
        bench.pool.sync().await.expect("synced");
        assert!(bench.pool.txgs(report.synced).groups.len() == 1);
        bench.pool.export().await.expect("exported");
    });
}
