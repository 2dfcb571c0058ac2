//! A store over devices in memory, without the pool around it.

use std::sync::Arc;

use async_trait::async_trait;
use platter_device::BlockDevice;
use platter_ondisk::{Checksum, Compression, ObjectId, ObjectType, Txg};
use platter_vdev::{DeviceOpener, OpenError, TopVdev, VdevKind, VdevSpec};
use platter_zio::{Bookmark, WritePolicy};
use platter_zio::{Geometry, Group, Metaslab, Store};

/// Bytes of a device.
pub const DEVICE_BYTES: u64 = 128 << 20;
const METASLAB_SHIFT: u32 = 24;

/// Opens a device that is there already.
struct One<D>(Arc<D>);

#[async_trait]
impl<D: BlockDevice + 'static> DeviceOpener for One<D> {
    async fn open(&self, _spec: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(self.0.clone())
    }
}

/// A store with a top-level vdev for each device, of which the first four metaslabs are used.
#[allow(dead_code, reason = "not every test needs both")]
pub async fn store_over<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Store {
    store_with(devices, 4).await
}

/// A store with a top-level vdev for each device, of which so many metaslabs of 16 MiB are used.
pub async fn store_with<D: BlockDevice + 'static>(devices: &[Arc<D>], metaslabs: u64) -> Store {
    let mut vdevs = Vec::new();
    for (id, device) in devices.iter().enumerate() {
        let mut spec = VdevSpec::leaf(VdevKind::File, format!("d{id}"));
        (spec.id, spec.ashift) = (id as _, 9);
        vdevs.push(Some(Arc::new(TopVdev::open(&spec, &One(device.clone()), true).await.expect("open"))));
    }
    let store = Store::new(vdevs.clone(), 1 << 20);
    for (id, vdev) in vdevs.into_iter().flatten().enumerate() {
        let metaslabs = (0..metaslabs).map(|i| Metaslab::new(i, i << METASLAB_SHIFT, 1 << METASLAB_SHIFT)).collect();
        let geometry: Arc<dyn Geometry> = vdev;
        store.state().allocator.lock().add_group(Group::new(id as u32, geometry, metaslabs, METASLAB_SHIFT, 1));
    }
    store
}

/// A plain block of a file, of transaction group 5.
pub fn policy() -> WritePolicy {
    WritePolicy {
        txg: Txg(5),
        bookmark: Bookmark { objset: ObjectId(1), object: ObjectId(2), level: 0, blkid: 0 },
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        level: 0,
        checksum: Checksum::FLETCHER_4,
        compression: Compression::OFF,
        compression_level: 0,
        copies: 1,
        fill: 1,
        embed: false,
        hole: false,
        passing: false,
    }
}

/// What the sync of a group does with the changes.
#[allow(dead_code, reason = "not every test ends groups")]
pub fn end_group(store: &Store, txg: u64) {
    let mut allocator = store.state().allocator.lock();
    for group in allocator.groups_mut() {
        group.change_active(|metaslab| {
            let (allocated, freed) = metaslab.take_changes();
            metaslab.note_logged(&allocated, &freed);
        });
    }
    allocator.finish(Txg(txg));
}
