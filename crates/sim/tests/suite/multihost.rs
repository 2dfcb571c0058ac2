//! Property `multihost` with two hosts on the same disks: at most one of them has the pool, and the other one writes
//! nothing any more.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::Detail;
use platter_api::request::{CreateRequest, ImportRequest, PoolChange, VdevRequest};
use platter_model::clock;
use platter_model::disk::{DiskId, Parameters, Route, SimDisk};
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::{Environment, HostId, Pool};
use platter_zpl::NewFile;
use tokio::time::Instant;

const SIZE: u64 = 64 << 20;
const DISKS: usize = 2;
const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
/// After so long without a heartbeat a host may not write any more.
const LIMIT: Duration = Duration::from_secs(10);

/// A host with its own path to the disks.
struct Host {
    environment: Environment,
    path: Arc<Route>,
}

impl Host {
    fn new(disks: &[SimDisk], hostid: u64, seed: u64, delay: Duration) -> Self {
        let path = Route::new(delay);
        let devices = Arc::new(SimDevices::default());
        for (number, disk) in disks.iter().enumerate() {
            devices.insert(number, path.to(Arc::new(disk.clone())));
        }
        let host = Arc::new(HostId { id: hostid, is_derived: false });
        let environment =
            Environment { host, ..world::environment(seed * 1000 + hostid, devices, Arc::new(StandingClock)) };
        Self { environment, path }
    }

    async fn create(&self) -> Arc<Pool> {
        let request = CreateRequest {
            name: "tank".into(),
            vdevs: vec![VdevRequest::Mirror((0..DISKS).map(SimDevices::path).collect())],
            ..CreateRequest::default()
        };
        let pool = Pool::create(self.environment.clone(), request).await.expect("created");
        pool.set_property("multihost", "on").await.expect("set");
        pool.sync().await.expect("synced");
        pool
    }

    async fn import(&self) -> Result<Arc<Pool>, String> {
        let request = ImportRequest {
            pool: "tank".into(),
            search: vec![PathBuf::from(world::FOLDER)],
            force: true,
            ..ImportRequest::default()
        };
        Pool::import(self.environment.clone(), request).await.map_err(|error| error.to_string())
    }
}

fn disks(clock: &Arc<clock::SimClock>, seed: u64) -> Vec<SimDisk> {
    (0..DISKS).map(|n| SimDisk::new(clock, seed, DiskId(n as u32), Parameters::instant(SIZE))).collect()
}

/// A pool that multihost had suspended went on writing: nothing looked at the suspension but the wait for groups, and a
/// host whose disks came back after another had taken the pool wrote the rest of its group over the other's.
#[test]
fn a_host_that_was_cut_off_writes_nothing_after_the_limit() {
    for seed in 0..8 {
        clock::run(|clock| async move {
            let disks = disks(&clock, seed);
            let first = Host::new(&disks, 1, seed, Duration::from_micros(100));
            let second = Host::new(&disks, 2, seed, Duration::from_micros(100));
            let pool = first.create().await;
            // Something to write whenever it can: each property is a group.
            let busy = tokio::spawn({
                let pool = pool.clone();
                async move {
                    for round in 0.. {
                        let _ = pool.set_property("comment", &format!("round {round}")).await;
                        tokio::time::sleep(Duration::from_millis(seed * 13 + 1)).await;
                    }
                }
            });
            tokio::time::sleep(Duration::from_millis(2000 + seed * 37)).await;
            assert!(second.import().await.is_err(), "the first host is there");
            first.path.cut();
            let cut = Instant::now();
            let taken = second.import().await.expect("nobody is there");
            taken.set_property("comment", "the second host's").await.expect("set");
            taken.sync().await.expect("synced");
            first.path.open();
            tokio::time::sleep(Duration::from_secs(60)).await;
            let is_late = || first.path.last_write().is_some_and(|at| at > cut + LIMIT);
            assert!(!is_late(), "a host that had lost its pool wrote, seed {seed}");
            assert!(pool.is_suspended());
            let refused = pool.clear(None).await.expect_err("the pool is another host's");
            assert!(refused.to_string().contains("meanwhile"), "{refused}");
            busy.abort();
            pool.stop("exported by force");
            let _ = pool.export().await;
            assert!(!is_late(), "it wrote when it left, seed {seed}");
            taken.export().await.expect("exported");
            let again = first.import().await.expect("it is whole");
            again.scrub_start().await.expect("a scrub");
            again.scrub_wait().await.expect("its end");
            again.export().await.expect("exported");
        });
    }
}

/// Cache devices were opened past the lease: of a round of writes that the cut had stopped, what was left was written
/// as soon as the host saw the device again, although another one had the pool and wrote there.
#[test]
fn a_host_that_was_cut_off_writes_nothing_to_its_cache_device_either() {
    for seed in 0..4 {
        clock::run(|clock| async move {
            let mut disks = disks(&clock, seed);
            disks.push(SimDisk::new(&clock, seed, DiskId(9), Parameters::instant(2 * SIZE)));
            let first = Host::new(&disks, 1, seed, Duration::from_micros(100));
            let second = Host::new(&disks, 2, seed, Duration::from_micros(100));
            let pool = first.create().await;
            let vdevs = vec![VdevRequest::Cache(vec![SimDevices::path(DISKS)])];
            let change = PoolChange::Add { vdevs, force: false, ashift: 0, any_ashift: false, dry_run: false };
            pool.change(change).await.expect("added");
            pool.dsl().create_dataset("tank/fs", &BTreeMap::new()).await.expect("a data set");
            let zpl = world::mount(&pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
            let file = zpl.create(zpl.root(), b"file", NEW).await.expect("a file").object;
            // Until the cut there is always something that waits to be written to the cache device.
            for round in 0..10 + seed {
                zpl.write(file, 0, &[round as u8 + 1; 200 << 10], false).await.expect("written");
                pool.sync().await.expect("synced");
                tokio::time::sleep(Duration::from_millis(330)).await;
            }
            let before = disks[DISKS].traffic().writes;
            assert!(before > 10, "the cache device is in use");
            first.path.cut();
            let cut = Instant::now();
            let taken = second.import().await.expect("nobody is there");
            first.path.open();
            tokio::time::sleep(Duration::from_secs(60)).await;
            let is_late = first.path.last_write().is_some_and(|at| at > cut + LIMIT);
            assert!(!is_late, "a host that had lost its pool wrote, seed {seed}");
            pool.stop("exported by force");
            drop(zpl);
            let _ = pool.export().await;
            taken.export().await.expect("exported");
        });
    }
}

/// Whoever was away for longer than the limit, with nobody else there, goes on after `zpool clear`.
#[test]
fn a_host_whose_disks_come_back_resumes_when_nobody_took_the_pool() {
    clock::run(|clock| async move {
        let disks = disks(&clock, 1);
        let host = Host::new(&disks, 1, 1, Duration::from_micros(100));
        let pool = host.create().await;
        host.path.cut();
        tokio::time::sleep(LIMIT * 3).await;
        host.path.open();
        tokio::time::sleep(LIMIT).await;
        assert!(pool.is_suspended());
        // It was refused, and done nevertheless as soon as the pool went on.
        let refused = pool.scrub_start().await.expect_err("the pool is suspended");
        assert!(refused.to_string().contains("suspended"), "{refused}");
        pool.clear(None).await.expect("nobody else is there");
        pool.set_property("comment", "back").await.expect("set");
        let report = pool.report(Detail::default()).await.expect("a report");
        assert_eq!((report.scan.state.as_str(), report.scan.start_time), ("none", 0), "no scrub began");
        tokio::time::sleep(LIMIT * 3).await;
        assert!(!pool.is_suspended(), "its heartbeat goes on");
        pool.export().await.expect("exported");
    });
}

/// Two hosts that looked at the same moment both saw nobody, and both went on: nothing was written between the look and
/// the first group.
#[test]
fn of_two_hosts_that_import_at_the_same_moment_at_most_one_succeeds() {
    let mut won = 0;
    for seed in 0..40 {
        won += clock::run(|clock| async move {
            let disks = disks(&clock, seed);
            let pool = Host::new(&disks, 9, seed, Duration::ZERO).create().await;
            match seed % 2 {
                0 => pool.export().await.expect("exported"),
                // Its host died.
                _ => {
                    pool.stop("the power failed");
                    let _ = pool.export().await;
                }
            }
            drop(pool);
            let first = Host::new(&disks, 1, seed, Duration::from_millis(seed % 7));
            let second = Host::new(&disks, 2, seed, Duration::from_millis(seed % 5));
            let later = Duration::from_millis((seed / 8) * 700);
            let (one, two) = tokio::join!(first.import(), async {
                tokio::time::sleep(later).await;
                second.import().await
            });
            assert!(one.is_err() || two.is_err(), "both hosts have the pool, seed {seed}");
            let winners = [one, two].into_iter().flatten();
            let mut count = 0;
            for pool in winners {
                pool.export().await.expect("exported");
                count += 1;
            }
            count
        });
    }
    assert!(won > 0, "somebody must be able to import a pool");
}

/// A change that was writing a label when the lease had ended waited for `clear`, which waited for its turn to change
/// devices: nothing could let the pool go on any more. When `clear` came, the device might be somebody else's by then.
#[test]
fn a_device_that_was_to_join_a_suspended_pool_is_left_alone() {
    clock::run(|clock| async move {
        let new = SimDisk::new(&clock, 0, DiskId(DISKS as u32), Parameters::instant(SIZE));
        let disks = [disks(&clock, 0), vec![new]].concat();
        let host = Host::new(&disks, 1, 0, Duration::from_micros(100));
        let pool = host.create().await;
        let attach = || {
            let (pool, new, device) =
                (pool.clone(), SimDevices::path(DISKS), SimDevices::path(0).display().to_string());
            let (replaces, force, ashift, sequential) = (false, false, 0, false);
            let attach = PoolChange::Attach { device, new, replaces, force, ashift, sequential };
            tokio::spawn(async move { pool.change(attach).await })
        };
        let suspended = |error: String| assert!(error.contains("currently suspended"), "{error}");
        host.path.stall();
        // This one has looked at nothing yet when the pool is suspended, and the next one begins when it is.
        let early = attach();
        tokio::time::sleep(LIMIT * 2).await;
        assert!(pool.is_suspended(), "there was no heartbeat");
        host.path.open();
        suspended(early.await.expect("it ends").expect_err("it cannot join").to_string());
        suspended(attach().await.expect("it ends").expect_err("it cannot join").to_string());
        let cleared = tokio::time::timeout(LIMIT * 6, pool.clear(None)).await;
        cleared.expect("clear waits for what waits for it").expect("nobody has the pool");
        tokio::time::sleep(LIMIT).await;
        assert_eq!(disks[DISKS].image().allocated(), 0, "somebody wrote to what is not the pool's");
        attach().await.expect("it ends").expect("the disk has joined");
        pool.export().await.expect("exported");
    });
}
