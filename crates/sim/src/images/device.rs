//! A disk over an image, which counts what is written.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Geometry, Operation, ReadSlot, check_range};
use platter_ondisk::label::{UBERBLOCK_RING_OFFSET, UBERBLOCK_RING_SIZE, VDEV_LABELS, label_offset};

use crate::disk::Image;

/// See the module text.
#[derive(Debug)]
pub struct ImageDevice {
    name: String,
    size: u64,
    image: Mutex<Image>,
    writes: AtomicU64,
    beats: AtomicU64,
}

impl ImageDevice {
    /// A disk of `size` bytes.
    pub fn new(name: String, size: u64, image: Image) -> Self {
        Self { name, size, image: Mutex::new(image), writes: AtomicU64::new(0), beats: AtomicU64::new(0) }
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
        self.image.lock().clone()
    }
}

#[async_trait]
impl BlockDevice for ImageDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn geometry(&self) -> Geometry {
        Geometry::FILE
    }

    fn is_writable(&self) -> bool {
        true
    }

    async fn read_into(&self, offset: u64, mut slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        let total = slots.iter().map(|slot| slot.len()).sum();
        let checked = check_range(|| self.name(), Operation::Read, offset, total, self.size);
        if checked.is_ok() {
            let (image, mut position) = (self.image.lock(), offset);
            for slot in &mut slots {
                image.read_at(position, slot);
                position += slot.len() as u64;
            }
        }
        (slots, checked)
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        let total = data.iter().map(|buf| buf.len()).sum();
        check_range(|| self.name(), Operation::Write, offset, total, self.size)?;
        let is_beat = (0..VDEV_LABELS).any(|label| {
            let ring = label_offset(self.size, label) + UBERBLOCK_RING_OFFSET;
            (ring..ring + UBERBLOCK_RING_SIZE).contains(&offset)
        });
        let counter = if is_beat { &self.beats } else { &self.writes };
        counter.fetch_add(1, Ordering::Relaxed);
        let (mut image, mut position) = (self.image.lock(), offset);
        for buf in data {
            image.write_at(position, &buf);
            position += buf.len() as u64;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
