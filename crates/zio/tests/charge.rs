//! Heavy computation passes through `cpu.charge`: all of it, with its kind and its bytes.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{BlockDevice, FaultDevice, MemDevice};
use platter_hooks::{Cpu, CpuMeter, CpuWork};
use platter_ondisk::{BlkPtr, Checksum, Compression, ObjectId, ObjectType, Txg};
use platter_vdev::{DeviceOpener, OpenError, TopVdev, VdevKind, VdevSpec};
use platter_zio::{BlockReader, BlockStore, Bookmark, Priority, WritePolicy};
use platter_zio::{Caching, Geometry, Group, Metaslab, Store};

#[derive(Debug)]
struct Disks(Vec<Arc<FaultDevice>>);

#[async_trait]
impl DeviceOpener for Disks {
    async fn open(&self, spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(self.0[spec.id as usize].clone())
    }
}

#[derive(Debug, Default)]
struct Bill(Mutex<Vec<(CpuWork, u64)>>);

impl CpuMeter for Bill {
    fn charge(&self, work: CpuWork, bytes: u64) -> BoxFuture<'_, ()> {
        self.0.lock().push((work, bytes));
        std::future::ready(()).boxed()
    }
}

const METASLAB_SHIFT: u32 = 24;

#[tokio::test]
async fn checksums_compression_and_parity_are_charged_by_kind_and_bytes() {
    let disk = |i: u32| Arc::new(FaultDevice::new(Arc::new(MemDevice::new(format!("d{i}"), 128 << 20))));
    let disks = Disks((0..3).map(disk).collect());
    let leaves = (0..3).map(|id| VdevSpec::leaf(VdevKind::File, format!("d{id}"))).collect();
    let mut spec = VdevSpec::parent(VdevKind::Raidz { parity: 1 }, leaves);
    spec.ashift = 9;
    let vdev = Arc::new(TopVdev::open(&spec, &disks, true).await.expect("open"));
    let store = Store::new(vec![Some(vdev.clone())], 1 << 20);
    let bill = Arc::new(Bill::default());
    store.set_cpu(Cpu::metered(bill.clone()));
    let metaslabs = (0..4).map(|i| Metaslab::new(i, i << METASLAB_SHIFT, 1 << METASLAB_SHIFT)).collect();
    let geometry: Arc<dyn Geometry> = vdev;
    store.state().allocator.lock().add_group(Group::new(0, geometry, metaslabs, METASLAB_SHIFT, 1));
    store.state().cache.set_caching(ObjectId(10), Caching::Nothing);

    let bookmark = Bookmark { objset: ObjectId(10), object: ObjectId(2), level: 0, blkid: 0 };
    let policy = WritePolicy {
        txg: Txg(5),
        bookmark,
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        level: 0,
        checksum: Checksum::SHA256,
        compression: Compression::LZ4,
        compression_level: 0,
        copies: 1,
        fill: 1,
        embed: false,
        hole: false,
        passing: false,
    };
    // Half of it can be compressed.
    let mut data = vec![7; 128 << 10];
    let mut state = 1_u64;
    data[..64 << 10].iter_mut().for_each(|byte| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (state >> 56) as u8;
    });
    let bp = store.write(Buf::copy_from(&data), policy, &BlkPtr::default()).await.expect("written");
    let stored = bp.psize();
    assert!(stored < 128 << 10);
    let sha = CpuWork::Checksum(Checksum::SHA256.number());
    let written = std::mem::take(&mut *bill.0.lock());
    assert_eq!(
        written,
        [(CpuWork::Compress(Compression::LZ4.number()), 128 << 10), (sha, stored), (CpuWork::Parity(1), stored)]
    );

    assert_eq!(&store.read(&bp, bookmark, Priority::SyncRead).await.expect("read")[..], &data[..]);
    let expand = (CpuWork::Decompress(Compression::LZ4.number()), 128 << 10);
    assert_eq!(std::mem::take(&mut *bill.0.lock()), [(sha, stored), expand]);

    store.scrub(&bp, bookmark).await.expect("scrubbed");
    assert_eq!(std::mem::take(&mut *bill.0.lock()), [(CpuWork::Parity(1), stored), (sha, stored)]);

    // A disk with data fails: what it held is computed from the others.
    disks.0[1].disappear();
    assert_eq!(&store.read(&bp, bookmark, Priority::SyncRead).await.expect("read")[..], &data[..]);
    let rebuilt = std::mem::take(&mut *bill.0.lock());
    assert_eq!(rebuilt, [(CpuWork::Rebuild(1), stored), (CpuWork::Parity(1), stored), (sha, stored), expand]);
}
