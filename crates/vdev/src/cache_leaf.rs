//! A leaf as a cache device: what lies on it counts offsets from the device's start (`zio_read_phys` and
//! `zio_write_phys` as `module/zfs/arc.c` calls them), goes through the leaf's queue, and is counted as any other's.

use platter_buffer::{Buf, BufMut};
use platter_device::ReadSlot;
use platter_ondisk::label::VDEV_LABEL_START_SIZE;

use crate::error::Result;
use crate::leaf::Leaf;
use crate::priority::Priority;
use crate::queue::finish;

impl Leaf {
    /// Reads `length` bytes of a cache device at an offset from its start, behind the labels.
    ///
    /// # Errors
    /// The leaf cannot be used; the device's own.
    pub async fn read_cached(&self, offset: u64, length: usize, priority: Priority) -> Result<BufMut> {
        assert!(offset >= VDEV_LABEL_START_SIZE, "nothing of a cache lies in the labels");
        let (assembly, slot) = ReadSlot::whole(length);
        self.read_data(offset - VDEV_LABEL_START_SIZE, slot, priority).await?;
        Ok(finish(assembly))
    }

    /// Writes to a cache device at an offset from its start, between the labels.
    ///
    /// # Errors
    /// The leaf cannot be used; it ends before; the device's own.
    pub async fn write_cached(&self, offset: u64, data: Buf, priority: Priority) -> Result<()> {
        assert!(offset >= VDEV_LABEL_START_SIZE, "nothing of a cache lies in the labels");
        self.write_data(offset - VDEV_LABEL_START_SIZE, vec![data], priority).await
    }
}
