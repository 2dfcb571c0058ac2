//! Pools to tamper with: small, and each with structures that the others lack.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use platter_api::request::{CreateRequest, VdevRequest};
use platter_device::{BlockDevice, DeviceError};
use platter_ondisk::label::{VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, label_offset, usable_size};
use platter_ondisk::uberblock::Uberblock;
use platter_ondisk::{ObjectId, ObjectType};
use platter_spa::Pool;
use platter_spa::config::VdevConfig;
use platter_spa::labels;
use platter_vdev::{DeviceOpener, OpenError, TopVdev, VdevKind, VdevSpec};
use platter_zpl::{NewFile, SetAttr, SetXattr, Zpl};

use super::blocks::{Block, Blocks};
use super::device::ImageDevice;
use crate::world::{self, SimDevices, StandingClock};
use platter_model::clock;
use platter_model::disk::Image;

/// Bytes of each disk.
pub const SIZE: u64 = 64 << 20;
/// The name of every pool.
pub const POOL: &str = "tank";

/// A pool and all its blocks.
pub struct Template {
    /// What it is.
    pub name: &'static str,
    /// Its disks.
    pub disks: Vec<Image>,
    /// The root of its vdevs, with one top-level vdev.
    pub config: VdevConfig,
    /// The guid of each disk's leaf.
    pub guids: Vec<u64>,
    /// The newest uberblock.
    pub uberblock: Uberblock,
    /// The configuration area of the first disk's label, and how much of it is used.
    pub label: Vec<u8>,
    /// Bytes of it in use.
    pub label_used: usize,
    /// Every block.
    pub blocks: Blocks,
    /// From this offset on there is nothing.
    pub free: u64,
}

struct Plan {
    name: &'static str,
    disks: usize,
    parity: u8,
    pool: &'static [(&'static str, &'static str)],
    root: &'static [(&'static str, &'static str)],
    /// Whether it was exported; else its host died, with records in the intent log.
    exported: bool,
    /// Blocks of more bytes are in parts.
    gang_above: u64,
}

const PLANS: [Plan; 6] = [
    Plan {
        name: "one disk",
        disks: 1,
        parity: 0,
        pool: &[],
        root: &[("compression", "lz4")],
        exported: true,
        gang_above: u64::MAX,
    },
    Plan {
        name: "mirror that crashed",
        disks: 2,
        parity: 0,
        pool: &[("ashift", "12")],
        root: &[("recordsize", "4K"), ("copies", "2"), ("xattr", "sa")],
        exported: false,
        gang_above: u64::MAX,
    },
    Plan {
        name: "raidz that crashed",
        disks: 3,
        parity: 1,
        pool: &[("ashift", "9")],
        root: &[("recordsize", "1K"), ("compression", "gzip"), ("checksum", "sha256"), ("dnodesize", "1k")],
        exported: false,
        gang_above: u64::MAX,
    },
    Plan {
        name: "version 28",
        disks: 2,
        parity: 0,
        pool: &[("version", "28")],
        root: &[],
        exported: true,
        gang_above: u64::MAX,
    },
    Plan {
        name: "gang blocks",
        disks: 1,
        parity: 0,
        pool: &[("ashift", "9")],
        root: &[("compression", "lz4")],
        exported: false,
        gang_above: 8192,
    },
    // Log blocks with the link at their end.
    Plan {
        name: "version 21 that crashed",
        disks: 1,
        parity: 0,
        pool: &[("version", "21")],
        root: &[],
        exported: false,
        gang_above: u64::MAX,
    },
];

impl Template {
    /// Whether a block belongs to the pool's own object set and not to a data set's.
    pub fn is_of_mos(&self, block: &Block) -> bool {
        let (mut block, mut sets) = (block, 0);
        while let Some((above, _)) = block.above {
            block = &self.blocks.all[above];
            sets += usize::from(block.bp.object_type() == ObjectType::OBJSET);
        }
        sets < 2
    }
}

/// Opens the only top-level vdev of a pool.
pub async fn open(config: &VdevConfig, guids: &[u64], devices: &[Arc<dyn BlockDevice>]) -> Vec<TopVdev> {
    struct Opener<'a>(&'a [u64], &'a [Arc<dyn BlockDevice>]);
    #[async_trait]
    impl DeviceOpener for Opener<'_> {
        async fn open(&self, spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
            let place = self.0.iter().position(|&guid| guid == spec.guid.0);
            let gone =
                || DeviceError::Gone { device: spec.guid.to_string(), reason: "it is none of the template's".into() };
            Ok(place.map(|place| self.1[place].clone()).ok_or_else(gone)?)
        }
    }
    fn describe(config: &VdevConfig) -> VdevSpec {
        let mut spec = VdevSpec::new(VdevKind::from_label(&config.kind, config.nparity.unwrap_or(0)));
        (spec.id, spec.guid, spec.ashift) = (config.id, config.guid, config.ashift as u8);
        (spec.asize, spec.metaslab_shift) = (config.asize, config.metaslab_shift as u8);
        spec.children = config.children.iter().map(describe).collect();
        spec
    }
    let opener = Opener(guids, devices);
    vec![TopVdev::open(&describe(config), &opener, true).await.expect("a template's vdev opens")]
}

/// Makes all of them.
pub fn templates() -> Vec<Template> {
    PLANS.iter().map(make).collect()
}

fn make(plan: &Plan) -> Template {
    clock::run(|_| async {
        let devices = Arc::new(SimDevices::default());
        let disks: Vec<Arc<ImageDevice>> = (0..plan.disks)
            .map(|number| Arc::new(ImageDevice::new(format!("d{number}"), SIZE, Image::default())))
            .collect();
        for (number, disk) in disks.iter().enumerate() {
            devices.insert(number, disk.clone());
        }
        let left = fill(plan, devices, &disks).await;
        let images: Vec<Image> = left.unwrap_or_else(|| disks.iter().map(|disk| disk.image()).collect());
        read(plan.name, images).await
    })
}

/// Makes the pool and its files. Returns the disks as they were when the host died, if it did.
async fn fill(plan: &Plan, devices: Arc<SimDevices>, disks: &[Arc<ImageDevice>]) -> Option<Vec<Image>> {
    let paths: Vec<PathBuf> = (0..plan.disks).map(SimDevices::path).collect();
    let vdev = match (plan.disks, plan.parity) {
        (1, _) => VdevRequest::Leaf(paths[0].clone()),
        (_, 0) => VdevRequest::Mirror(paths),
        (_, parity) => VdevRequest::Raidz { parity, children: paths },
    };
    let owned = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let request = CreateRequest {
        name: POOL.into(),
        vdevs: vec![vdev],
        pool_properties: owned(plan.pool),
        dataset_properties: owned(plan.root),
        history: "zpool create".into(),
        ..CreateRequest::default()
    };
    let environment = world::environment(1, devices.clone(), Arc::new(StandingClock));
    let pool = Pool::create(environment, request).await.expect("a template is made");
    pool.force_ganging(plan.gang_above);
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        pool.dsl()
            .create_dataset(name, &owned(&[("atime", "off"), ("quota", "40M")]))
            .await
            .expect("a data set is made");
    }
    let mut mounts = Vec::new();
    for name in [POOL, "tank/a/b"] {
        let zpl = world::mount(&pool, name, Arc::new(StandingClock)).await.expect("it mounts");
        files(&zpl).await;
        mounts.push((name, zpl));
    }
    pool.sync().await.expect("it syncs");
    pool.scrub_start().await.expect("a scrub starts");
    pool.scrub_wait().await.expect("and ends");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let mut left = None;
    if !plan.exported {
        for (_, zpl) in &mounts {
            let attr = zpl.create(zpl.root(), b"in the log", new()).await.expect("a file");
            for round in 0..5 {
                zpl.write(attr.object, round * 3000, &[round as u8 + 1; 3000], false).await.expect("bytes");
                zpl.fsync(attr.object).await.expect("stable");
            }
            log(zpl, attr.object).await;
        }
        left = Some(disks.iter().map(|disk| disk.image()).collect());
    }
    for (name, zpl) in mounts {
        zpl.unmount().await.expect("it unmounts");
        drop(zpl);
        pool.dsl().close_filesystem(name).await.expect("it closes");
    }
    pool.export().await.expect("it exports");
    left
}

/// One record of most types, and data that a record leads to.
async fn log(zpl: &Zpl, file: ObjectId) {
    let root = zpl.root();
    let folder = zpl.mkdir(root, b"logged", new()).await.expect("a folder");
    zpl.symlink(folder.object, b"link", b"folder", new()).await.expect("a link");
    zpl.link(file, folder.object, b"second name").await.expect("a link");
    zpl.rename(folder.object, b"link", root, b"renamed", Default::default()).await.expect("a new name");
    zpl.setxattr(file, b"user.logged", &[3; 40], SetXattr::Any, false).await.expect("an attribute");
    let change = SetAttr { size: Some(9000), mode: Some(0o600), ..SetAttr::default() };
    zpl.setattr(file, change).await.expect("its attributes");
    zpl.unlink(folder.object, b"second name").await.expect("it goes");
    zpl.write(file, 20_000, &vec![5; 200_000], false).await.expect("bytes");
    zpl.fsync(file).await.expect("stable");
}

fn new() -> NewFile {
    NewFile { mode: 0o644, umask: 0, uid: 1, gid: 1, open: false }
}

async fn files(zpl: &Zpl) {
    let root = zpl.root();
    let folder = zpl.mkdir(root, b"folder", new()).await.expect("a folder");
    for number in 0..60 {
        // Enough, and with names long enough, for a ZAP of several blocks.
        let name = format!("{number}-{}", "long".repeat(number % 17));
        let file = zpl.create(folder.object, name.as_bytes(), new()).await.expect("a file");
        zpl.write(file.object, 0, &vec![number as u8; number * 31], false).await.expect("bytes");
    }
    let large = zpl.create(root, b"large", new()).await.expect("a file");
    let noise: Vec<u8> = (0..400_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    zpl.write(large.object, 0, &noise, false).await.expect("bytes");
    zpl.write(large.object, 3 << 20, &noise[..50_000], false).await.expect("bytes behind a hole");
    for (name, length) in [("user.short", 10), ("user.long", 3000)] {
        let value = vec![7; length];
        zpl.setxattr(large.object, name.as_bytes(), &value, SetXattr::Any, false).await.expect("an attribute");
    }
    let small = zpl.create(root, b"small", new()).await.expect("a file");
    // It fits its pointer.
    zpl.write(small.object, 0, &[6; 4000], false).await.expect("bytes");
    zpl.symlink(root, b"link", b"folder/0-", new()).await.expect("a link");
    zpl.unlink(folder.object, b"3-longlonglong").await.expect("it goes");
    zpl.sync().await.expect("it syncs");
}

/// Takes a pool's disks apart.
async fn read(name: &'static str, disks: Vec<Image>) -> Template {
    let devices: Vec<Arc<dyn BlockDevice>> = disks
        .iter()
        .enumerate()
        .map(|(number, image)| {
            Arc::new(ImageDevice::new(format!("d{number}"), SIZE, image.clone())) as Arc<dyn BlockDevice>
        })
        .collect();
    let (mut guids, mut config, mut uberblock) = (Vec::new(), None, None::<Uberblock>);
    for device in &devices {
        let found = labels::read(&**device).await.expect("a template has labels");
        guids.push(found.config().device_guid.expect("a label names its device").0);
        config = Some(found.config().vdev_tree.clone());
        let newest = found.uberblock.expect("a template has an uberblock");
        if uberblock.as_ref().is_none_or(|known| newest.compare(known).is_gt()) {
            uberblock = Some(newest);
        }
    }
    let (config, uberblock) = (config.expect("a disk"), uberblock.expect("a disk"));
    let tops = open(&config, &guids, &devices).await;
    let blocks = Blocks::of(&tops, uberblock.rootbp).await;
    assert!(blocks.all.len() > 50, "{name}: only {} blocks were found", blocks.all.len());
    let end = blocks.all.iter().flat_map(|block| block.bp.dvas()).map(|dva| dva.offset + dva.asize).max();
    // A multiple of every sector size and of every number of columns.
    let unit = 3 << 17;
    let free = (end.unwrap_or(0) + (4 << 20)).min(tops[0].asize() - (8 << 20)) / unit * unit;
    let label = devices[0]
        .read(label_offset(usable_size(SIZE), 0) + VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE as usize - 40)
        .await
        .expect("a label can be read")
        .to_vec();
    let label_used = label.iter().rposition(|&byte| byte != 0).map_or(8, |last| last + 1);
    Template { name, disks, config, guids, uberblock, label, label_used, blocks, free }
}
