//! What of an object set's blocks is remembered (property `primarycache`).

use std::sync::Arc;

use async_trait::async_trait;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, FaultDevice, MemDevice};
use platter_ondisk::types::{checksum, compression, object_type};
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_spa::{Caching, Geometry, Group, Metaslab, Store};
use platter_vdev::{DeviceOpener, TopVdev, VdevKind, VdevSpec};
use platter_zio::{BlockStore, Bookmark, Priority, WritePolicy};

struct One(Arc<FaultDevice>);

#[async_trait]
impl DeviceOpener for One {
    async fn open(&self, _spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        Ok(self.0.clone())
    }
}

const METASLAB_SHIFT: u32 = 24;

async fn rig() -> (Store, Arc<FaultDevice>) {
    let device = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("d0", 128 << 20))));
    let mut spec = VdevSpec::leaf(VdevKind::File, "d0");
    spec.ashift = 9;
    let vdev = Arc::new(TopVdev::open(&spec, &One(device.clone()), true).await.expect("open"));
    let store = Store::new(vec![Some(vdev.clone())], 1 << 20);
    let metaslabs = (0..4).map(|i| Metaslab::new(i, i << METASLAB_SHIFT, 1 << METASLAB_SHIFT)).collect();
    let geometry: Arc<dyn Geometry> = vdev;
    store.state().allocator.lock().add_group(Group::new(0, geometry, metaslabs, METASLAB_SHIFT, 1));
    (store, device)
}

fn bookmark(objset: u64, level: i8) -> Bookmark {
    Bookmark { objset: ObjectId(objset), object: ObjectId(2), level, blkid: 0 }
}

/// Writes a block, and reads it twice; how many reads reached the device.
async fn reads(store: &Store, device: &FaultDevice, objset: u64, object_type: u8, level: u8) -> u64 {
    let policy = WritePolicy {
        txg: Txg(5),
        bookmark: bookmark(objset, level as i8),
        object_type,
        level,
        checksum: checksum::FLETCHER_4,
        compression: compression::OFF,
        compression_level: 0,
        copies: 1,
        fill: 1,
        embed: false,
        hole: false,
    };
    let bp = store.write(Buf::copy_from(&[7; 4096]), policy, &BlkPtr::default()).await.expect("written");
    let before = device.transfers().0;
    for _ in 0..2 {
        let found = store.read(&bp, bookmark(objset, level as i8), Priority::SyncRead).await.expect("read");
        assert_eq!(&found[..], &[7; 4096]);
    }
    device.transfers().0 - before
}

#[tokio::test]
async fn each_object_set_is_remembered_as_its_property_says() {
    let (store, device) = rig().await;
    let cache = &store.state().cache;
    cache.set_caching(ObjectId(20), Caching::Metadata);
    cache.set_caching(ObjectId(30), Caching::Nothing);
    let (file, folder) = (object_type::PLAIN_FILE_CONTENTS, object_type::DIRECTORY_CONTENTS);
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
    assert!(store.keeps_data(ObjectId(10)) && !store.keeps_data(ObjectId(20)));
    cache.set_caching(ObjectId(30), Caching::All);
    assert_eq!(reads(&store, &device, 30, file, 0).await, 0);
}
