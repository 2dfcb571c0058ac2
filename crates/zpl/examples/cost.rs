//! Makes a pool in a file in FOLDER and reads blocks of 16 KiB, or creates files, COUNT times: what one of them costs
//! is the difference of two runs of different lengths under `valgrind --tool=cachegrind` (`bench/cost.sh`).
//!
//! Usage: `cost cached|uncached|create COUNT FOLDER`.

#[path = "../tests/suite/environment.rs"]
mod environment;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use platter_api::request::{CreateRequest, VdevRequest};
use platter_spa::{Environment, Pool};
use platter_zpl::{MountOptions, NewFile, UnlimitedSpace, Zpl};

use environment::{Clock, Maker, environment};

const BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 2048;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (what, count, folder) =
        (arguments[1].as_str(), arguments[2].parse::<u64>().expect("a number"), Path::new(&arguments[3]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(what, count, folder));
    std::process::exit(0);
}

async fn run(what: &str, count: u64, folder: &Path) {
    let path = folder.join(format!("cost-{}", std::process::id()));
    std::fs::File::create(&path).expect("a file in the folder").set_len(256 << 20).expect("a sparse file");
    // All that is read stays in memory, and no group ends by itself meanwhile.
    let roomy =
        Environment { cache_bytes: 256 << 20, dirty_bytes_max: 256 << 20, ..environment(Arc::new(Maker), 36000) };
    let request = CreateRequest {
        name: "tank".into(),
        vdevs: vec![VdevRequest::Leaf(path.clone())],
        pool_properties: BTreeMap::from([("ashift".into(), "12".into())]),
        history: "zpool create tank".into(),
        ..CreateRequest::default()
    };
    let pool = Pool::create(roomy, request).await.expect("it works");
    let keeps = if what == "uncached" { "metadata" } else { "all" };
    let properties = [("recordsize", "16K"), ("compression", "off"), ("primarycache", keeps)];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    pool.dsl().create_dataset("tank/fs", &properties).await.expect("it works");
    let os = pool.dsl().open_filesystem("tank/fs").await.expect("it works");
    let zpl =
        Zpl::mount(os, MountOptions::default(), Arc::new(Clock), Arc::new(UnlimitedSpace)).await.expect("it works");
    let new = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
    if what == "create" {
        for index in 0..count {
            zpl.create(zpl.root(), format!("file{index}").as_bytes(), new).await.expect("it works");
        }
    } else {
        let file = zpl.create(zpl.root(), b"file", new).await.expect("it works").object;
        let mut block = vec![0u8; BLOCK as usize];
        for index in 0..BLOCKS {
            block.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at as u64 * 31 + index) as u8);
            zpl.write(file, index * BLOCK, &block, false).await.expect("it works");
        }
        pool.sync().await.expect("it works");
        // The first reads of all: what stays in memory is there then.
        for index in 0..BLOCKS {
            zpl.read(file, index * BLOCK, BLOCK).await.expect("it works");
        }
        let (mut random, mut sum) = (1u64, 0u64);
        for _ in 0..count {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (random >> 33) % BLOCKS;
            let pieces = zpl.read(file, index * BLOCK, BLOCK).await.expect("it works");
            assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<usize>(), BLOCK as usize);
            sum += u64::from(pieces[0][0]);
        }
        println!("{sum}");
    }
    let _ = std::fs::remove_file(&path);
}
