//! A contiguous part of another device: a partition, seen without the kernel's help.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use platter_buffer::Buf;

use crate::block_device::{BlockDevice, Geometry, Presence, TrimKind, TrimSupport, check_range};
use crate::error::{Operation, Result};
use crate::lease::Lease;
use crate::slot::ReadSlot;

/// Bytes `start .. start + size` of `inner` as a device of their own.
#[derive(Debug)]
pub struct WindowDevice {
    inner: Arc<dyn BlockDevice>,
    start: u64,
    size: u64,
    path: PathBuf,
}

impl WindowDevice {
    /// A window; `path` is what the part is called (the partition's node, whether or not it exists).
    ///
    /// # Errors
    /// [`crate::DeviceError::Truncated`] when the window leaves `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>, start: u64, size: u64, path: impl Into<PathBuf>) -> Result<Self> {
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        check_range(|| inner.name(), Operation::Read, start, length, inner.size())?;
        Ok(Self { inner, start, size, path: path.into() })
    }
}

#[async_trait]
impl BlockDevice for WindowDevice {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
        let total = slots.iter().map(|slot| slot.len()).sum();
        if let Err(error) = check_range(|| self.name(), Operation::Read, offset, total, self.size) {
            return (slots, Err(error));
        }
        self.inner.read_into(self.start + offset, slots).await
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
        let total = data.iter().map(|buf| buf.len()).sum();
        check_range(|| self.name(), Operation::Write, offset, total, self.size)?;
        self.inner.write(self.start + offset, data).await
    }

    async fn flush(&self) -> Result<()> {
        self.inner.flush().await
    }

    fn trim_support(&self) -> TrimSupport {
        self.inner.trim_support()
    }

    async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<()> {
        let within = usize::try_from(length).unwrap_or(usize::MAX);
        check_range(|| self.name(), Operation::Trim, offset, within, self.size)?;
        self.inner.trim(self.start + offset, length, kind).await
    }

    fn obey(&self, lease: &Arc<Lease>) {
        self.inner.obey(lease);
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }
}
