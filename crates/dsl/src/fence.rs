//! Who may write a pool, and until when: a pool with property `multihost` is this host's only as long as it has shown
//! lately that it uses it (`mmp_thread`, `module/zfs/mmp.c`).
//!
//! Invariants:
//! - every device that a pool has open for writing was opened through its [`FencedDevices`], so that no block, label,
//!   uberblock or log record goes past the fence;
//! - the time is looked at when the write is handed to the device. A daemon or a device that stood still meanwhile
//!   finds the fence closed, whatever it believed before;
//! - what comes to a closed fence suspends the pool and waits until somebody resumes it; when the pool is stopped
//!   instead, it fails.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use platter_buffer::Buf;
use platter_device::gpt::GptIds;
use platter_device::{BlockDevice, DeviceError, DeviceSource, Geometry, OpenOptions, PathKind, Presence, ReadSlot};
use platter_zio::Suspension;
use tokio::time::Instant;

use crate::multihost::SUSPENDED;

/// As a time: always open.
const ALWAYS: u64 = u64::MAX;

/// See the module text.
#[derive(Debug)]
pub struct Fence {
    origin: Instant,
    /// Nanoseconds after `origin` at which it closes.
    until: AtomicU64,
    suspension: OnceLock<Arc<Suspension>>,
}

impl Fence {
    /// One that is open until [`renew`](Self::renew) is called.
    pub fn new() -> Arc<Self> {
        let (origin, until) = (Instant::now(), AtomicU64::new(ALWAYS));
        Arc::new(Self { origin, until, suspension: OnceLock::new() })
    }

    /// Writes that find it closed suspend this pool from now on; before, they fail.
    pub fn arm(&self, suspension: Arc<Suspension>) {
        let _ = self.suspension.set(suspension);
    }

    /// Open until `limit` after `from`.
    pub fn renew(&self, from: Instant, limit: Duration) {
        let until = (from + limit).saturating_duration_since(self.origin).as_nanos();
        self.until.store(u64::try_from(until).unwrap_or(ALWAYS - 1), Ordering::Release);
    }

    /// Always open from now on: the pool is not shared.
    pub fn remove(&self) {
        self.until.store(ALWAYS, Ordering::Release);
    }

    /// Whether it closes by itself.
    pub fn is_timed(&self) -> bool {
        self.until.load(Ordering::Acquire) != ALWAYS
    }

    /// Whether writes may go to the devices at this moment.
    pub fn is_open(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == ALWAYS || self.origin.elapsed().as_nanos() < u128::from(until)
    }

    /// Waits until writes may go to the devices; `false` when they never may again.
    async fn pass(&self) -> bool {
        while !self.is_open() {
            let Some(suspension) = self.suspension.get() else { return false };
            let resumptions = suspension.resumptions();
            // Looked at again after the number was taken: whoever resumes renews first.
            if !self.is_open() && !suspension.hold(resumptions, SUSPENDED).await {
                return false;
            }
        }
        true
    }
}

/// Devices whose writes have to pass a fence.
#[derive(Debug)]
pub struct FencedDevices {
    inner: Arc<dyn DeviceSource>,
    fence: Arc<Fence>,
}

impl FencedDevices {
    /// What `inner` has, behind `fence`.
    pub fn new(inner: Arc<dyn DeviceSource>, fence: Arc<Fence>) -> Arc<Self> {
        Arc::new(Self { inner, fence })
    }

    fn fenced(&self, device: Arc<dyn BlockDevice>, options: OpenOptions) -> Arc<dyn BlockDevice> {
        match options.writable {
            true => Arc::new(FencedDevice { inner: device, fence: self.fence.clone() }),
            false => device,
        }
    }
}

#[async_trait]
impl DeviceSource for FencedDevices {
    fn kind(&self, path: &Path) -> PathKind {
        self.inner.kind(path)
    }

    fn list(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        self.inner.list(folder, limit)
    }

    async fn survey(&self, folder: &Path, limit: usize) -> Vec<(PathBuf, PathKind)> {
        self.inner.survey(folder, limit).await
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.inner.canonical(path)
    }

    fn is_whole_disk(&self, path: &Path) -> bool {
        self.inner.is_whole_disk(path)
    }

    async fn open_path(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        Ok(self.fenced(self.inner.open_path(path, options).await?, options))
    }

    async fn open_vdev(
        &self,
        path: &Path,
        whole_disk: bool,
        options: OpenOptions,
    ) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        Ok(self.fenced(self.inner.open_vdev(path, whole_disk, options).await?, options))
    }

    async fn label_whole_disk(
        &self,
        path: &Path,
        ids: &GptIds,
        options: OpenOptions,
    ) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        Ok(self.fenced(self.inner.label_whole_disk(path, ids, options).await?, options))
    }
}

#[derive(Debug)]
struct FencedDevice {
    inner: Arc<dyn BlockDevice>,
    fence: Arc<Fence>,
}

#[async_trait]
impl BlockDevice for FencedDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        self.inner.read_into(offset, slots).await
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        if !self.fence.is_open() && !self.fence.pass().await {
            return Err(DeviceError::Gone { device: self.inner.name(), reason: SUSPENDED.into() });
        }
        self.inner.write(offset, data).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush().await
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }
}

#[cfg(test)]
mod tests {
    use platter_device::MemDevice;
    use platter_zio::FailMode;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_comes_too_late_waits_until_the_pool_is_resumed() {
        let (fence, suspension) = (Fence::new(), Arc::new(Suspension::default()));
        suspension.set_mode(FailMode::Wait);
        fence.arm(suspension.clone());
        let inner: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("d", 1 << 20));
        let device = Arc::new(FencedDevice { inner: inner.clone(), fence: fence.clone() });
        fence.renew(Instant::now(), LIMIT);
        device.write(0, vec![Buf::copy_from(&[1; 512])]).await.expect("in time");
        tokio::time::sleep(LIMIT).await;
        let late = tokio::spawn(async move { device.write(0, vec![Buf::copy_from(&[2; 512])]).await });
        suspension.halted().await;
        assert_eq!(inner.read(0, 512).await.expect("read")[0], 1);
        fence.renew(Instant::now(), LIMIT);
        suspension.resume();
        late.await.expect("no panic").expect("written after the resumption");
        assert_eq!(inner.read(0, 512).await.expect("read")[0], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_comes_too_late_fails_when_the_pool_is_stopped_or_not_open_yet() {
        let (fence, suspension) = (Fence::new(), Arc::new(Suspension::default()));
        let inner: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("d", 1 << 20));
        let device = Arc::new(FencedDevice { inner, fence: fence.clone() });
        fence.renew(Instant::now(), LIMIT);
        tokio::time::sleep(LIMIT).await;
        assert!(device.write(0, vec![Buf::copy_from(&[1; 512])]).await.is_err());
        suspension.set_mode(FailMode::Wait);
        fence.arm(suspension.clone());
        let late = tokio::spawn(async move { device.write(0, vec![Buf::copy_from(&[1; 512])]).await });
        suspension.halted().await;
        suspension.stop("exported by force");
        assert!(late.await.expect("no panic").is_err());
    }
}
