//! Groups of more blocks than are remembered: they are made durable on the way, and what a device lost is noticed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Fault, FaultDevice, FaultKind, MemDevice};
use platter_ondisk::types::{checksum, compression, object_type};
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_spa::{Geometry, Group, Metaslab, Store};
use platter_vdev::{DeviceOpener, TopVdev, VdevKind, VdevSpec};
use platter_zio::{BlockStore, Bookmark, FailMode, Result, WritePolicy};

struct One(Arc<FaultDevice>);

#[async_trait]
impl DeviceOpener for One {
    async fn open(&self, _spec: &VdevSpec) -> std::result::Result<Arc<dyn BlockDevice>, DeviceError> {
        Ok(self.0.clone())
    }
}

const METASLAB_SHIFT: u32 = 24;

/// A pool of one device that remembers 8 blocks of a group, in its first pass.
async fn rig() -> (Store, Arc<FaultDevice>) {
    let device = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("d0", 128 << 20))));
    let mut spec = VdevSpec::leaf(VdevKind::File, "d0");
    spec.ashift = 9;
    let vdev = Arc::new(TopVdev::open(&spec, &One(device.clone()), true).await.expect("open"));
    let store = Store::new(vec![Some(vdev.clone())], 1 << 20);
    let metaslabs = (0..4).map(|i| Metaslab::new(i, i << METASLAB_SHIFT, 1 << METASLAB_SHIFT)).collect();
    let geometry: Arc<dyn Geometry> = vdev;
    store.state().allocator.lock().add_group(Group::new(0, geometry, metaslabs, METASLAB_SHIFT, 1));
    store.state().born_max.store(8, Ordering::Relaxed);
    store.suspension().set_mode(FailMode::Wait);
    store.set_pass(1);
    (store, device)
}

async fn write(store: &Store, number: u8) -> Result<BlkPtr> {
    let policy = WritePolicy {
        txg: Txg(5),
        bookmark: Bookmark { objset: ObjectId(1), object: ObjectId(2), level: 0, blkid: number.into() },
        object_type: object_type::PLAIN_FILE_CONTENTS,
        level: 0,
        checksum: checksum::FLETCHER_4,
        compression: compression::OFF,
        compression_level: 0,
        copies: 1,
        fill: 1,
        embed: false,
        hole: false,
    };
    store.write(Buf::copy_from(&[number; 4096]), policy, &BlkPtr::default()).await
}

/// The pool is suspended and resumed, as by a device that was away.
async fn suspend_and_resume(store: &Store) {
    let suspension = store.suspension().clone();
    let held = tokio::spawn({
        let suspension = suspension.clone();
        async move { suspension.hold(suspension.resumptions(), "away").await }
    });
    suspension.halted().await;
    assert!(suspension.resume());
    assert!(held.await.expect("a task"));
}

#[tokio::test]
async fn a_group_of_more_blocks_than_are_remembered_survives_a_suspension() {
    // It could not be read back once, and the pool stopped for good, although no device had lost anything.
    let (store, device) = rig().await;
    let before = device.transfers().2;
    for number in 0..20 {
        write(&store, number).await.expect("written");
    }
    assert_eq!(device.transfers().2 - before, 2, "a flush for each 8 blocks");
    suspend_and_resume(&store).await;
    let reads = device.transfers().0;
    for number in 20..28 {
        write(&store, number).await.expect("written");
    }
    assert_eq!(device.transfers().0 - reads, 8, "four of before the suspension and four of after it are read back");
    store.verify_born().await.expect("nothing was lost");
}

#[tokio::test]
async fn what_a_device_lost_is_noticed_when_the_list_is_full_and_at_the_end() {
    for more in [8, 2] {
        let (store, device) = rig().await;
        device.inject(Fault::everywhere(FaultKind::LostWrite));
        for number in 0..3 {
            write(&store, number).await.expect("the device says so");
        }
        device.heal();
        suspend_and_resume(&store).await;
        let mut outcome = Ok(());
        for number in 3..3 + more {
            outcome = outcome.and(write(&store, number).await.map(drop));
        }
        let error = outcome.and(store.verify_born().await).expect_err("three blocks are lost");
        assert!(error.to_string().contains("the devices lost"), "{error}");
    }
}
