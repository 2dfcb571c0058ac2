//! A disk over an image, which counts what is written.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Geometry, ReadSlot};
use platter_ondisk::label::{UBERBLOCK_RING_OFFSET, UBERBLOCK_RING_SIZE, VDEV_LABELS, label_offset};

use crate::crash::fork::Fork;
use platter_model::disk::Image;

/// See the module text.
#[derive(Debug)]
pub struct ImageDevice {
    disk: Fork,
    writes: AtomicU64,
    beats: AtomicU64,
}

impl ImageDevice {
    /// A disk of `size` bytes.
    pub fn new(name: String, size: u64, image: Image) -> Self {
        Self { disk: Fork::new(name, size, image), writes: AtomicU64::new(0), beats: AtomicU64::new(0) }
    }

    /// How many writes of single uberblocks it took.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// How many other writes it took.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// What it holds.
    pub fn image(&self) -> Image {
        self.disk.image()
    }
}

#[async_trait]
impl BlockDevice for ImageDevice {
    fn name(&self) -> String {
        self.disk.name()
    }

    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn is_writable(&self) -> bool {
        self.disk.is_writable()
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        self.disk.read_into(offset, slots).await
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        self.disk.write(offset, data).await?;
        let is_beat = (0..VDEV_LABELS).any(|label| {
            let ring = label_offset(self.size(), label) + UBERBLOCK_RING_OFFSET;
            (ring..ring + UBERBLOCK_RING_SIZE).contains(&offset)
        });
        let counter = if is_beat { &self.beats } else { &self.writes };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.disk.flush().await
    }
}
