//! What becomes of writes that come after a pool's lease on its devices has ended: a pool with property `multihost` is
//! this host's only as long as it has shown lately that it uses it (`mmp_thread`, `module/zfs/mmp.c`).
//!
//! A late write suspends the pool and waits until somebody resumes it, who has renewed the lease before; when the pool
//! is stopped instead, it fails.

use std::sync::Arc;

use async_trait::async_trait;
use platter_device::{Lease, Renewal};
use platter_zio::Suspension;

use crate::multihost::SUSPENDED;

/// See the module text.
#[derive(Debug)]
pub struct LateWrites(pub Arc<Suspension>);

#[async_trait]
impl Renewal for LateWrites {
    async fn renewed(&self, lease: &Lease) -> Result<(), String> {
        while !lease.holds() {
            let resumptions = self.0.resumptions();
            // Looked at again after the number was taken: whoever resumes renews first.
            if !lease.holds() && !self.0.hold(resumptions, SUSPENDED).await {
                return Err(SUSPENDED.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use platter_buffer::Buf;
    use platter_device::{BlockDevice, Cutoff, MemDevice};
    use platter_zio::FailMode;
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn leased() -> (Arc<Cutoff>, Arc<Suspension>, Arc<dyn BlockDevice>, Arc<dyn BlockDevice>) {
        let (cutoff, suspension) = (Arc::new(Cutoff::default()), Arc::new(Suspension::default()));
        let inner: Arc<dyn BlockDevice> = Arc::new(MemDevice::new("d", 1 << 20));
        let device = cutoff.guard(inner.clone());
        cutoff.lease().renew(Instant::now(), LIMIT);
        (cutoff, suspension, inner, device)
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_comes_too_late_waits_until_the_pool_is_resumed() {
        let (cutoff, suspension, inner, device) = leased();
        suspension.set_mode(FailMode::Wait);
        cutoff.wait_for(Arc::new(LateWrites(suspension.clone())));
        device.write(0, vec![Buf::copy_from(&[1; 512])]).await.expect("in time");
        tokio::time::sleep(LIMIT).await;
        let late = tokio::spawn(async move { device.write(0, vec![Buf::copy_from(&[2; 512])]).await });
        suspension.halted().await;
        assert_eq!(inner.read(0, 512).await.expect("read")[0], 1);
        cutoff.lease().renew(Instant::now(), LIMIT);
        suspension.resume();
        late.await.expect("no panic").expect("written after the resumption");
        assert_eq!(inner.read(0, 512).await.expect("read")[0], 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_comes_too_late_fails_when_the_pool_is_stopped_or_not_open_yet() {
        let (cutoff, suspension, _inner, device) = leased();
        tokio::time::sleep(LIMIT).await;
        assert!(device.write(0, vec![Buf::copy_from(&[1; 512])]).await.is_err());
        suspension.set_mode(FailMode::Wait);
        cutoff.wait_for(Arc::new(LateWrites(suspension.clone())));
        let late = tokio::spawn(async move { device.write(0, vec![Buf::copy_from(&[1; 512])]).await });
        suspension.halted().await;
        suspension.stop("exported by force");
        assert!(late.await.expect("no panic").is_err());
    }
}
