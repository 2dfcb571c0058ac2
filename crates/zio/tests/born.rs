//! Groups of more blocks than are remembered: they are made durable on the way, and what a device lost is noticed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use platter_buffer::Buf;
use platter_device::{Fault, FaultDevice, FaultKind, MemDevice};
use platter_ondisk::{BlkPtr, Checksum};
use platter_zio::Store;
use platter_zio::{BlockStore, FailMode, Result};

use crate::common::{DEVICE_BYTES, policy, store_over};

mod common;

/// A pool of one device that remembers 8 blocks of a group, in its first pass.
async fn rig() -> (Store, Arc<FaultDevice>) {
    let device = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("d0", DEVICE_BYTES))));
    let store = store_over(std::slice::from_ref(&device)).await;
    store.state().born_max.store(8, Ordering::Relaxed);
    store.suspension().set_mode(FailMode::Wait);
    store.set_pass(1);
    (store, device)
}

async fn write(store: &Store, number: u8) -> Result<BlkPtr> {
    let mut policy = policy();
    policy.bookmark.blkid = number.into();
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

/// One of two copies failed as a whole and was given up, as if a checksum told them apart. What all devices held there
/// before agreed, and was read instead of the block for ever after (found by the simulator).
#[tokio::test]
async fn of_a_block_without_checksum_every_copy_is_written() {
    let devices: Vec<Arc<FaultDevice>> = (0..2)
        .map(|number| Arc::new(FaultDevice::new(Arc::new(MemDevice::new(format!("d{number}"), DEVICE_BYTES)))))
        .collect();
    let store = store_over(&devices).await;
    store.suspension().set_mode(FailMode::Wait);
    // The data area only: the labels still work, so that the device is kept.
    let (offset, length) = (4 << 20, 64 << 20);
    devices[0].inject(Fault { kind: FaultKind::WriteError, offset, length, times: 2 });
    let mut policy = policy();
    (policy.checksum, policy.copies) = (Checksum::OFF, 2);
    let data = Buf::copy_from(&[7; 4096]);
    let writing = tokio::spawn({
        let (store, policy, data) = (store.clone(), policy.clone(), data.clone());
        async move { store.write(data, policy, &BlkPtr::default()).await }
    });
    let halted = tokio::time::timeout(Duration::from_secs(20), store.suspension().halted());
    halted.await.expect("a copy that was not written counts as one");
    assert!(store.suspension().resume());
    let bp = writing.await.expect("a task").expect("written");
    assert_eq!(bp.dvas().count(), 2);
    for dva in bp.dvas() {
        let mut alone = BlkPtr::describe(
            bp.lsize(),
            bp.psize(),
            bp.compression(),
            bp.checksum_kind(),
            bp.object_type(),
            bp.level(),
            bp.birth(),
        );
        alone.set_dva(0, dva);
        let held = store.read_log(&alone, &|_: &[u8]| true).await.expect("read").expect("a block");
        assert_eq!(held, data, "{dva:?}");
    }
    let leaves = devices.iter().enumerate().map(|(number, _)| store.top(number as u32).expect("a vdev").leaves());
    assert!(leaves.flatten().all(|leaf| leaf.missing().is_empty()), "nothing was missed in the end");
    // With a checksum one is enough; the other device has missed the group then.
    devices[0].inject(Fault { kind: FaultKind::WriteError, offset, length, times: 2 });
    (policy.checksum, policy.bookmark.blkid) = (Checksum::FLETCHER_4, 1);
    let bp = store.write(data.clone(), policy, &BlkPtr::default()).await.expect("written");
    let missed = |number: u32| store.top(number).expect("a vdev").leaves()[0].is_missing(bp.birth());
    assert_eq!((missed(0), missed(1)), (true, false));
}
