//! A disk without time: a fork of an image that answers at once.

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::error::Operation;
use platter_device::{BlockDevice, DeviceError, Geometry, ReadSlot, TrimKind, TrimSupport, check_range};

use platter_model::disk::Image;

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
        let length = slots.iter().map(|slot| slot.len()).sum();
        let checked = check_range(|| self.name(), Operation::Read, offset, length, self.size);
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
        let length = data.iter().map(|buf| buf.len()).sum();
        check_range(|| self.name(), Operation::Write, offset, length, self.size)?;
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

    fn trim_support(&self) -> TrimSupport {
        TrimSupport { plain: true, secure: false }
    }

    async fn trim(&self, offset: u64, length: u64, _kind: TrimKind) -> Result<(), DeviceError> {
        check_range(|| self.name(), Operation::Trim, offset, length as usize, self.size)?;
        self.image.lock().discard(offset, length);
        Ok(())
    }
}
