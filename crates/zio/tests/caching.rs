//! What of an object set's blocks is remembered (property `primarycache`).

use std::sync::Arc;

use platter_buffer::Buf;
use platter_device::{FaultDevice, MemDevice};
use platter_ondisk::{BlkPtr, ObjectId, ObjectType};
use platter_zio::{BlockReader, BlockStore, Bookmark, Priority, WritePolicy};
use platter_zio::{Caching, Store};

use crate::common::{DEVICE_BYTES, policy, store_over};

mod common;

fn bookmark(objset: u64, level: i8) -> Bookmark {
    Bookmark { objset: ObjectId(objset), object: ObjectId(2), level, blkid: 0 }
}

/// Writes a block, and reads it twice; how many reads reached the device.
async fn reads(store: &Store, device: &FaultDevice, objset: u64, object_type: ObjectType, level: u8) -> u64 {
    let bp = written(store, objset, object_type, level).await;
    read_twice(store, device, objset, &bp).await
}

async fn written(store: &Store, objset: u64, object_type: ObjectType, level: u8) -> BlkPtr {
    let policy = WritePolicy { bookmark: bookmark(objset, level as i8), object_type, level, ..policy() };
    store.write(Buf::copy_from(&[7; 4096]), policy, &BlkPtr::default()).await.expect("written")
}

/// Reads a block twice; how many reads reached the device.
async fn read_twice(store: &Store, device: &FaultDevice, objset: u64, bp: &BlkPtr) -> u64 {
    let before = device.transfers().0;
    for _ in 0..2 {
        let found = store.read(bp, bookmark(objset, bp.level() as i8), Priority::SyncRead).await.expect("read");
        assert_eq!(&found[..], &[7; 4096]);
    }
    device.transfers().0 - before
}

#[tokio::test]
async fn each_object_set_is_remembered_as_its_property_says() {
    let device = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("d0", DEVICE_BYTES))));
    let store = store_over(std::slice::from_ref(&device)).await;
    let cache = &store.state().cache;
    cache.set_caching(ObjectId(20), Caching::Metadata);
    cache.set_caching(ObjectId(30), Caching::Nothing);
    let (file, folder) = (ObjectType::PLAIN_FILE_CONTENTS, ObjectType::DIRECTORY_CONTENTS);
    // Object set, type, level, reads of the device.
    for (objset, kind, level, expected) in [
        (10, file, 0, 0),
        (10, folder, 0, 0),
        (20, file, 0, 2),
        (20, file, 1, 0),
        (20, folder, 0, 0),
        (30, file, 0, 2),
        (30, file, 1, 2),
        (30, folder, 0, 2),
    ] {
        assert_eq!(reads(&store, &device, objset, kind, level).await, expected, "{objset}, {kind}, {level}");
    }
    assert!(store.cache().keeps_data(ObjectId(10)) && !store.cache().keeps_data(ObjectId(20)));
    cache.set_caching(ObjectId(30), Caching::All);
    assert_eq!(reads(&store, &device, 30, file, 0).await, 0);
}

#[tokio::test]
async fn what_is_no_longer_worth_remembering_is_forgotten() {
    // What was in the cache when the property was lowered stayed there once, for as long as it was read.
    let device = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("d0", DEVICE_BYTES))));
    let store = store_over(std::slice::from_ref(&device)).await;
    let (file, folder) = (ObjectType::PLAIN_FILE_CONTENTS, ObjectType::DIRECTORY_CONTENTS);
    let mut blocks = Vec::new();
    for (objset, kind) in [(10, file), (20, file), (20, folder)] {
        blocks.push((objset, written(&store, objset, kind, 0).await));
    }
    for (caching, expected) in [
        (Caching::All, [0, 0, 0]),
        (Caching::Metadata, [0, 2, 0]),
        (Caching::Nothing, [0, 2, 2]),
        (Caching::All, [0, 1, 1]),
    ] {
        store.state().cache.set_caching(ObjectId(20), caching);
        for ((objset, bp), expected) in blocks.iter().zip(expected) {
            assert_eq!(read_twice(&store, &device, *objset, bp).await, expected, "{objset}, {caching:?}");
        }
    }
}
