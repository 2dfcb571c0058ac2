//! A disk without time: a fork of an image that answers at once.

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::error::Operation;
use platter_device::{BlockDevice, DeviceError, Geometry, ReadSlot};

use crate::disk::Image;

/// An image as a device.
#[derive(Debug)]
pub struct Fork {
    name: String,
    size: u64,
    image: Mutex<Image>,
}

impl Fork {
    /// A disk of `size` bytes that holds `image`.
    pub fn new(name: impl Into<String>, size: u64, image: Image) -> Self {
        Self { name: name.into(), size, image: Mutex::new(image) }
    }

    /// What it holds now.
    pub fn image(&self) -> Image {
        self.image.lock().clone()
    }

    fn check(&self, operation: Operation, offset: u64, length: usize) -> Result<(), DeviceError> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(DeviceError::Truncated {
                device: self.name.clone(),
                operation,
                offset,
                length: length as u64,
                size: self.size,
            }),
        }
    }
}

#[async_trait]
impl BlockDevice for Fork {
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
        let checked = self.check(Operation::Read, offset, slots.iter().map(|slot| slot.len()).sum());
        if checked.is_ok() {
            let (image, mut at) = (self.image.lock(), offset);
            for slot in &mut slots {
                image.read_at(at, slot);
                at += slot.len() as u64;
            }
        }
        (slots, checked)
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        self.check(Operation::Write, offset, data.iter().map(|buf| buf.len()).sum())?;
        let (mut image, mut at) = (self.image.lock(), offset);
        for buf in data {
            image.write_at(at, &buf);
            at += buf.len() as u64;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}
