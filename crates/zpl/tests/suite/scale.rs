//! Costs grow with what is done, not with what is there: large directories and long files.

use std::time::Duration;

use crate::common::{TestPool, mounted, properties};
use platter_zpl::{MountOptions, NewFile};
use tokio::time::Instant;

const FILE: NewFile = NewFile { mode: 0o644, umask: 0, uid: 1, gid: 2, open: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creating_in_a_large_directory_costs_no_more_than_in_a_small_one() {
    let (pool, zpl) = mounted().await;
    let root = zpl.root();
    const STEP: usize = 10_000;
    let mut times = Vec::new();
    for step in 0..3 {
        let start = Instant::now();
        for i in 0..STEP {
            zpl.create(root, format!("file number {}", step * STEP + i).as_bytes(), FILE).await.unwrap();
        }
        times.push(start.elapsed());
    }
    eprintln!("{STEP} files each: {times:?}");
    assert!(times[2] < times[0] * 4 + Duration::from_secs(1), "{times:?}");
    for with_attributes in [false, true] {
        let start = Instant::now();
        let (mut cursor, mut found) = (0, 0);
        loop {
            let entries = zpl.readdir(root, cursor, 100, with_attributes).await.unwrap();
            let Some(last) = entries.last() else { break };
            cursor = last.cursor;
            found += entries.len();
        }
        assert_eq!(found, 3 * STEP + 2);
        eprintln!("listing (attributes: {with_attributes}): {:?}", start.elapsed());
        assert!(start.elapsed() < times[0] * 4 + Duration::from_secs(1));
    }
    let zpl = pool.reopen(zpl).await;
    let mut times = Vec::new();
    for step in 0..3 {
        let start = Instant::now();
        for i in 0..STEP {
            zpl.unlink(root, format!("file number {}", step * STEP + i).as_bytes()).await.unwrap();
        }
        times.push(start.elapsed());
    }
    eprintln!("unlinking {STEP} each: {times:?}");
    assert_eq!(zpl.getattr(root).await.unwrap().size, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sequential_writing_and_reading_keep_their_pace() {
    let mut properties = properties();
    properties.record_size = 1 << 20;
    let pool = TestPool::new(properties).await;
    let zpl = pool.mount().await;
    for chunk in [4 << 10, 128 << 10, 1 << 20] {
        let file = zpl.create(zpl.root(), format!("f{chunk}").as_bytes(), FILE).await.unwrap().object;
        let data = vec![7; chunk];
        let total = 64 << 20;
        let mut times = Vec::new();
        for half in [0, total / 2] {
            let start = Instant::now();
            for at in (half..half + total / 2).step_by(chunk) {
                assert_eq!(zpl.write(file, at as u64, &data, false).await.unwrap(), chunk);
            }
            times.push(start.elapsed());
        }
        assert!(times[1] < times[0] * 4 + Duration::from_secs(1), "{times:?}");
        zpl.sync().await.unwrap();
        let start = Instant::now();
        let mut read = 0;
        for at in (0..total).step_by(chunk) {
            read += zpl.read(file, at as u64, chunk as u64).await.unwrap().iter().map(|b| b.len()).sum::<usize>();
        }
        assert_eq!(read, total);
        eprintln!("{chunk}: write {times:?}, read {:?} for {total} bytes", start.elapsed());
    }
}

/// What is made and never looked at again leaves memory as soon as it is on stable storage, also when more comes all
/// the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_holds_few_files_however_many_are_made() {
    const KEPT: usize = 256;
    const PIECE: usize = 500;
    let pool = TestPool::new(properties()).await;
    let zpl = pool.mount_with(MountOptions { znodes_max: KEPT, salt_seed: 3, ..MountOptions::default() }).await;
    let mut most = 0;
    for piece in 0..30 {
        for i in 0..PIECE {
            zpl.create(zpl.root(), format!("{piece}-{i}").as_bytes(), FILE).await.unwrap();
        }
        most = most.max(zpl.in_memory());
        zpl.sync().await.unwrap();
    }
    // Those of the group that is open, of the one before, and what waits for newcomers to make it leave.
    assert!((PIECE..KEPT + 3 * PIECE).contains(&most), "{most}");
    for piece in [0, 29] {
        zpl.lookup(zpl.root(), format!("{piece}-7").as_bytes()).await.unwrap();
    }
}
