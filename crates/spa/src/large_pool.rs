//! What the import of a large, fragmented pool takes (`bench/metaslabs.md`). The pool is a sparse file of 1 PiB; the
//! space maps of its metaslabs are made up: each is 60 % full, its free space in runs of 128 KiB. Those of the first
//! hundreds are there as a whole, of the others only the headers: an import reads no more.

use std::path::PathBuf;
use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::ObjectType;
use platter_ondisk::spacemap::{MapType, SpaceMapPhys};
use platter_zio::{Histogram, MetaslabId};
use tokio::time::Instant;

use crate::Pool;
use crate::core::Core;
use crate::space_maps::{self, BLOCK_SIZE, Tail, VdevMaps};
use crate::test_environment::environment;
use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};

const SIZE: u64 = 1 << 50;
/// A run that is in use, and the free one behind it, in sectors.
const RUNS: (u64, u64) = (384, 256);
/// Metaslabs that the pool itself is in.
const OWN: u64 = 64;
/// Metaslabs whose maps are there as a whole.
const WHOLE: u64 = 256;
/// Metaslabs that one group describes.
const AT_ONCE: u64 = 2048;

/// Where the pool is: a file system that takes files of 1 PiB (tmpfs).
fn folder() -> PathBuf {
    PathBuf::from(std::env::var("PLATTER_LARGE_POOL").unwrap_or_else(|_| "/dev/shm/platter-large".into()))
}

/// Peak memory of this process so far, MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("a figure");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") >> 10
}

/// Describes a metaslab of `size` bytes that was never written to.
async fn make_up(core: &Arc<Core>, tx: &Tx, maps: &VdevMaps, index: u64, size: u64) -> platter_dmu::Result<()> {
    let pairs = (size >> maps.ashift) / (RUNS.0 + RUNS.1);
    let object = space_maps::create(&core.dsl.mos, tx, maps.format, BLOCK_SIZE).await?;
    let allocated = ((pairs * RUNS.0) << maps.ashift) as i64;
    let free = (0..pairs).map(|_| RUNS.1 << maps.ashift).chain([size - ((pairs * (RUNS.0 + RUNS.1)) << maps.ashift)]);
    let histogram = Some(Histogram::of(free, maps.ashift).buckets);
    if index < OWN + WHOLE {
        let tail = Tail { object, at: 0, allocated, histogram };
        space_maps::append(&core.dsl.mos, tx, maps.format, tail, |writer| {
            for pair in 0..pairs {
                writer.segment(MapType::Alloc, None, pair * (RUNS.0 + RUNS.1), RUNS.0);
            }
        })
        .await?;
    } else {
        let dnode = core.dsl.mos.dnode(object).await?;
        let length = pairs * 8;
        dnode.write(tx, length - 8, &[0; 8]).await?;
        let phys = SpaceMapPhys { object: object.0, length, allocated, histogram };
        dnode.set_bonus(tx, ObjectType::SPACE_MAP_HEADER, &phys.encode())?;
    }
    core.dsl.mos.dnode(maps.array).await?.write(tx, index * 8, &object.0.to_le_bytes()).await
}

#[tokio::test]
#[ignore = "makes a pool of 1 PiB in a sparse file for the next one"]
async fn a_pool_of_a_pebibyte_is_made_up() {
    std::fs::create_dir_all(folder()).expect("a folder");
    let disk = folder().join("disk");
    std::fs::File::create(&disk).and_then(|file| file.set_len(SIZE)).expect("a sparse file");
    let vdevs = vec![VdevRequest::Leaf(disk)];
    let request = CreateRequest { name: "large".into(), vdevs, ..CreateRequest::default() };
    let pool = Pool::create(environment(1), request).await.expect("created");
    let (count, size) = {
        let allocator = pool.core.dsl.store.state().allocator.lock();
        let metaslabs = allocator.groups()[0].metaslabs();
        (metaslabs.len() as u64, metaslabs[0].size)
    };
    for first in (OWN..count).step_by(AT_ONCE as usize) {
        let described = pool.core.task(async move |core, tx| {
            let maps = space_maps::vdev_maps(&core)[0];
            for index in first..(first + AT_ONCE).min(count) {
                make_up(&core, &tx, &maps, index, size).await?;
            }
            Ok(())
        });
        described.await.expect("described");
    }
    pool.stop("it is made up");
}

#[tokio::test]
#[ignore = "imports the pool that the former made"]
async fn a_pool_of_a_pebibyte_is_imported() {
    let (before, began) = (peak(), Instant::now());
    let request =
        ImportRequest { pool: "large".into(), search: vec![folder()], force: true, ..ImportRequest::default() };
    let pool = Pool::import(environment(2), request).await.expect("imported");
    let (took, peak_of_import) = (began.elapsed(), peak());
    let allocator = &pool.core.dsl.store.state().allocator;
    let (count, allocated, size) = {
        let allocator = allocator.lock();
        (allocator.groups()[0].metaslabs().len(), allocator.allocated(), allocator.size())
    };
    let began = Instant::now();
    let fragmentation = allocator.lock().groups()[0].fragmentation();
    let looked = began.elapsed();
    println!(
        "{count} metaslabs, {} % of {} TiB allocated, fragmentation {fragmentation:?} (told in {looked:?})",
        allocated * 100 / size,
        size >> 40
    );
    println!("import: {took:?}, peak memory {peak_of_import} MiB ({before} MiB before)");
    let began = Instant::now();
    for txg in 0..10 {
        pool.core.dsl.dirty_config();
        pool.sync().await.unwrap_or_else(|error| panic!("group {txg}: {error}"));
    }
    println!("a group: {:?}", began.elapsed() / 10);
    // What each map costs that is read, and so what all of them cost that were read at an import once.
    allocator.lock().set_budget(u64::MAX);
    let (began, before) = (Instant::now(), peak());
    let mut runs = 0;
    for index in OWN..OWN + WHOLE {
        pool.core.dsl.store.load(MetaslabId { vdev: 0, index: index as usize }).await;
        let allocator = allocator.lock();
        let metaslab = &allocator.groups()[0].metaslabs()[index as usize];
        assert!(metaslab.is_loaded(), "{:?}", metaslab.ranges);
        runs += metaslab.runs();
    }
    let took = began.elapsed();
    println!(
        "{WHOLE} maps with {runs} free runs: {took:?}, {} MiB; all {count}: {:?}, {} GiB",
        peak() - before,
        took * (count as u32) / WHOLE as u32,
        ((peak() - before) * count as u64 / WHOLE) >> 10
    );
    pool.stop("it was only looked at");
}
