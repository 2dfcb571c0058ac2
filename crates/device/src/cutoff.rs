//! What stands between a pool and its devices: a way to part from them at once, whatever they do, and the lease that
//! says until when they may be written.
//!
//! Invariants:
//! - every device that a pool has open was opened through its cutoff, so that no block, label, uberblock or log record
//!   goes past it;
//! - a write that finds the lease ended waits for its [`Renewal`], or fails when there is none: a daemon or a device
//!   that stood still meanwhile writes nothing, whatever it believed before;
//! - while an import is not sure yet, what is written stays in memory ([`crate::held`]);
//! - once it is down nothing is begun on a device behind the cutoff, and whoever waits for a transfer there is told.
//!   So it is with a single device that was parted from;
//! - what the kernel has already taken cannot be called back: such a transfer keeps its file, and with it the device's
//!   lock, until it is over. So nobody opens the device for writing before the last late write has landed;
//! - a transfer is counted from before it begins until its waiter is told or gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;
use tokio::sync::Notify;

use crate::block_device::{BlockDevice, Count, Geometry, Presence, TrafficCount, TrimKind, TrimSupport};
use crate::disk::Holding;
use crate::error::{DeviceError, Result};
use crate::file::OpenOptions;
use crate::held::{self, Exempt, Held, Room};
use crate::holder::Holder;
use crate::lease::Lease;
use crate::looks::Seen;
use crate::partition::Partition;
use crate::path_kind::PathKind;
use crate::slot::ReadSlot;
use crate::source::DeviceSource;

/// How often devices are looked at while somebody wants to know whether one hangs.
const LOOK: Duration = Duration::from_millis(250);

/// Transfers of one kind.
#[derive(Debug, Default)]
struct Counted {
    under_way: AtomicU64,
    /// Transfers that came to an end, well or not.
    ended: AtomicU64,
}

impl Counted {
    fn count(&self) -> Count {
        Count { under_way: self.under_way.load(Ordering::Relaxed), ended: self.ended.load(Ordering::Relaxed) }
    }
}

/// What is going on with one device.
#[derive(Debug, Default)]
struct Traffic {
    reads: Counted,
    /// Writes, flushes and trims: where these hang, reads may end all the same.
    writes: Counted,
    /// Why, once it was parted from.
    parted: OnceLock<String>,
    fell: Notify,
}

impl Traffic {
    fn part(&self, reason: &str) {
        let _ = self.parted.set(reason.to_owned());
        self.fell.notify_waiters();
    }

    /// Waits until it is parted from.
    async fn parted(&self) {
        let mut fell = std::pin::pin!(self.fell.notified());
        fell.as_mut().enable();
        if self.parted.get().is_none() {
            fell.await;
        }
    }
}

/// For how long each device with transfers under way has ended none, and how many it has ended, by the traffic's place
/// in memory.
#[derive(Debug, Default)]
pub struct Idleness(BTreeMap<usize, (u64, Duration)>);

/// Whoever a write waits for that came after the lease had ended.
#[async_trait]
pub trait Renewal: Send + Sync + Debug {
    /// Waits until the lease holds again; the error says why it never will.
    async fn renewed(&self, lease: &Lease) -> std::result::Result<(), String>;
}

/// Between a pool and its devices. See the module text.
#[derive(Debug, Default)]
pub struct Cutoff {
    /// Why, once it is down.
    down: OnceLock<String>,
    fell: Notify,
    devices: Mutex<Vec<(String, Weak<Traffic>)>>,
    lease: Arc<Lease>,
    renewal: OnceLock<Arc<dyn Renewal>>,
    /// For what devices that are opened now hold back, if they do.
    holding: Mutex<Option<Arc<Room>>>,
    /// Those that fall with it.
    beside: Mutex<Vec<Weak<Cutoff>>>,
}

impl Cutoff {
    /// Devices as `inner` opens them, behind this cutoff.
    pub fn around(self: &Arc<Self>, inner: Arc<dyn DeviceSource>) -> Arc<dyn DeviceSource> {
        Arc::new(CutoffSource { inner, cutoff: self.clone() })
    }

    /// One for devices that nobody waits for: they are written under the same lease, are parted from at the same time,
    /// and a write that comes too late fails; but none of them counts as one that hangs.
    pub fn for_what_can_be_missed(self: &Arc<Self>) -> Arc<Self> {
        let other = Arc::new(Self { lease: self.lease.clone(), ..Self::default() });
        self.beside.lock().push(Arc::downgrade(&other));
        if let Some(reason) = self.down.get() {
            other.fall(reason);
        }
        other
    }

    /// Until when the devices may be written.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// What writes wait for from now on that come too late; before, they fail.
    pub fn wait_for(&self, renewal: Arc<dyn Renewal>) {
        let _ = self.renewal.set(renewal);
    }

    /// Devices that are opened from now on hold back what is written until they are flushed, up to so many bytes for
    /// all of them together, but for what is exempt.
    pub fn hold_back(&self, bytes: u64, exempt: Exempt) {
        *self.holding.lock() = Some(Room::new(bytes, exempt));
    }

    /// Nothing is held back any more.
    pub fn let_through(&self) {
        if let Some(room) = self.holding.lock().take() {
            room.close();
        }
    }

    /// Parts from the devices, for good.
    pub fn fall(&self, reason: &str) {
        let _ = self.down.set(reason.to_owned());
        self.fell.notify_waiters();
        for traffic in self.devices.lock().iter().filter_map(|(_, traffic)| traffic.upgrade()) {
            traffic.part(reason);
        }
        for other in self.beside.lock().iter().filter_map(Weak::upgrade) {
            other.fall(reason);
        }
    }

    /// Whether it is down.
    pub fn is_down(&self) -> bool {
        self.down.get().is_some()
    }

    /// Waits until it is down.
    pub async fn fallen(&self) {
        let mut fell = std::pin::pin!(self.fell.notified());
        fell.as_mut().enable();
        if !self.is_down() {
            fell.await;
        }
    }

    /// A device that has had transfers under way for `limit` and ended none, as far as who asks each `time`
    /// has `seen`.
    pub fn silent(&self, seen: &mut Idleness, time: Duration, limit: Duration) -> Option<String> {
        let mut now = BTreeMap::new();
        let mut silent = None;
        for (name, traffic) in self.devices.lock().iter() {
            let Some(traffic) = traffic.upgrade() else { continue };
            let (reads, writes) = (traffic.reads.count(), traffic.writes.count());
            if reads.under_way + writes.under_way == 0 {
                continue;
            }
            let (place, ended) = (Arc::as_ptr(&traffic) as usize, reads.ended + writes.ended);
            let idle = match seen.0.get(&place) {
                Some((before, idle)) if *before == ended => *idle + time,
                _ => Duration::ZERO,
            };
            if idle >= limit {
                silent.get_or_insert_with(|| name.clone());
            }
            now.insert(place, (ended, idle));
        }
        seen.0 = now;
        silent
    }

    /// Waits until some device is [`silent`](Self::silent) for `limit`; tells its name.
    pub async fn hangs(&self, limit: Duration) -> String {
        let mut seen = Idleness::default();
        loop {
            if let Some(name) = self.silent(&mut seen, LOOK, limit) {
                return name;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// `inner` behind this cutoff.
    pub fn guard(self: &Arc<Self>, inner: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        inner.obey(&self.lease);
        let traffic = Arc::new(Traffic::default());
        let mut devices = self.devices.lock();
        devices.retain(|(_, traffic)| traffic.strong_count() > 0);
        devices.push((inner.name(), Arc::downgrade(&traffic)));
        // With the list locked: who falls now sees it there, or has fallen before.
        if let Some(reason) = self.down.get() {
            traffic.part(reason);
        }
        drop(devices);
        let held = Held::new(self.holding.lock().clone());
        Arc::new(CutoffDevice { inner, traffic, cutoff: self.clone(), held })
    }
}

#[derive(Debug)]
struct CutoffSource {
    inner: Arc<dyn DeviceSource>,
    cutoff: Arc<Cutoff>,
}

#[async_trait]
impl DeviceSource for CutoffSource {
    fn kind(&self, path: &Path) -> PathKind {
        self.inner.kind(path)
    }

    fn list(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        self.inner.list(folder, limit)
    }

    async fn entries(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        self.inner.entries(folder, limit).await
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.inner.canonical(path)
    }

    async fn look(&self, path: &Path) -> Seen {
        self.inner.look(path).await
    }

    async fn disk_of(&self, path: &Path) -> Option<Holding> {
        self.inner.disk_of(path).await
    }

    fn is_whole_disk(&self, path: &Path) -> bool {
        self.inner.is_whole_disk(path)
    }

    async fn writer(&self, path: &Path) -> Option<Holder> {
        self.inner.writer(path).await
    }

    async fn file_systems_below(&self, path: &Path) -> BTreeSet<String> {
        self.inner.file_systems_below(path).await
    }

    async fn open_path(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn BlockDevice>> {
        self.inner.open_path(path, options).await.map(|device| self.cutoff.guard(device))
    }

    async fn open_vdev(&self, path: &Path, whole_disk: bool, options: OpenOptions) -> Result<Arc<dyn BlockDevice>> {
        self.inner.open_vdev(path, whole_disk, options).await.map(|device| self.cutoff.guard(device))
    }
}

#[derive(Debug)]
struct CutoffDevice {
    inner: Arc<dyn BlockDevice>,
    traffic: Arc<Traffic>,
    cutoff: Arc<Cutoff>,
    held: Held,
}

/// One transfer on its way.
struct Passage<'a>(&'a Counted);

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let before = self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0 || std::thread::panicking(), "a transfer is counted once");
    }
}

impl CutoffDevice {
    fn cut_off(&self) -> DeviceError {
        let reason = self.traffic.parted.get().cloned().unwrap_or_default();
        DeviceError::Gone { device: self.inner.name(), reason }
    }

    /// Waits until the device may be written.
    async fn pass_lease(&self) -> Result<()> {
        while !self.cutoff.lease.holds() {
            let Some(renewal) = self.cutoff.renewal.get() else { return Err(DeviceError::TooLate(self.name())) };
            let renewed = renewal.renewed(&self.cutoff.lease).await;
            renewed.map_err(|reason| DeviceError::Gone { device: self.name(), reason })?;
        }
        Ok(())
    }

    /// Carries a transfer out, unless the device was parted from or is meanwhile.
    async fn pass<T>(&self, kind: &Counted, transfer: impl Future<Output = T> + Send) -> Option<T> {
        if self.traffic.parted.get().is_some() {
            return None;
        }
        kind.under_way.fetch_add(1, Ordering::Relaxed);
        let passage = Passage(kind);
        let outcome = tokio::select! {
            biased;
            outcome = transfer => Some(outcome),
            () = self.traffic.parted() => None,
        };
        kind.ended.fetch_add(1, Ordering::Relaxed);
        drop(passage);
        outcome
    }
}

impl CutoffDevice {
    /// Keeps a write for later, unless there is no room: then what was kept goes first.
    async fn keep(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
        let Some(data) = self.held.keep(offset, data).await else { return Ok(()) };
        self.catch_up().await?;
        self.write_now(offset, data).await
    }

    /// Writes what was held back.
    async fn catch_up(&self) -> Result<()> {
        let mut release = self.held.let_go().await;
        debug_assert!(self.held.is_active() || release.pieces.is_empty(), "what is held is let go once");
        for (offset, data) in std::mem::take(&mut release.pieces) {
            self.write_now(offset, data).await?;
        }
        release.done();
        Ok(())
    }

    async fn write_now(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
        let lease = &self.cutoff.lease;
        if !lease.is_timed() {
            return self
                .pass(&self.traffic.writes, self.inner.write(offset, data))
                .await
                .unwrap_or_else(|| Err(self.cut_off()));
        }
        loop {
            self.pass_lease().await?;
            match self.pass(&self.traffic.writes, self.inner.write(offset, data.clone())).await {
                // It ended on the way. Once it is renewed the pool is still as this host left it, and the write right.
                Some(Err(DeviceError::TooLate(_))) => {}
                Some(outcome) => return outcome,
                None => return Err(self.cut_off()),
            }
        }
    }
}

#[async_trait]
impl BlockDevice for CutoffDevice {
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

    async fn look_at_size(&self) -> u64 {
        self.inner.look_at_size().await
    }

    fn announce(&self, partitions: &[&Partition]) {
        self.inner.announce(partitions);
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
        let newer = match self.held.is_active() {
            true => self.held.within(offset, slots.iter().map(|slot| slot.len() as u64).sum()).await,
            false => Vec::new(),
        };
        let Some((mut slots, read)) = self.pass(&self.traffic.reads, self.inner.read_into(offset, slots)).await else {
            // The transfer may still fill them: they stay with it.
            return (Vec::new(), Err(self.cut_off()));
        };
        held::lay_over(&newer, offset, &mut slots);
        (slots, read)
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
        match self.held.is_active() && !self.held.exempts(offset, self.size()) {
            true => self.keep(offset, data).await,
            false => self.write_now(offset, data).await,
        }
    }

    async fn flush(&self) -> Result<()> {
        if self.held.is_active() {
            self.catch_up().await?;
        }
        self.pass(&self.traffic.writes, self.inner.flush()).await.unwrap_or_else(|| Err(self.cut_off()))
    }

    fn trim_support(&self) -> TrimSupport {
        self.inner.trim_support()
    }

    async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<()> {
        if self.held.is_active() {
            self.catch_up().await?;
        }
        loop {
            if self.cutoff.lease.is_timed() {
                self.pass_lease().await?;
            }
            match self.pass(&self.traffic.writes, self.inner.trim(offset, length, kind)).await {
                // As of a write: nothing was given up yet, and the place is still as free as it was.
                Some(Err(DeviceError::TooLate(_))) if self.cutoff.lease.is_timed() => {}
                Some(outcome) => return outcome,
                None => return Err(self.cut_off()),
            }
        }
    }

    fn obey(&self, lease: &Arc<Lease>) {
        self.inner.obey(lease);
    }

    fn traffic(&self) -> Option<TrafficCount> {
        Some(TrafficCount { reads: self.traffic.reads.count(), writes: self.traffic.writes.count() })
    }

    fn part(&self, reason: &str) {
        self.traffic.part(reason);
    }

    fn presence(&self) -> Presence {
        self.inner.presence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    /// Ends no write until it is let.
    #[derive(Debug)]
    struct Hanging {
        inner: MemDevice,
        let_go: Notify,
        written: AtomicU64,
    }

    #[async_trait]
    impl BlockDevice for Hanging {
        fn name(&self) -> String {
            "hanging".into()
        }
        fn size(&self) -> u64 {
            self.inner.size()
        }
        fn geometry(&self) -> Geometry {
            self.inner.geometry()
        }
        fn is_writable(&self) -> bool {
            true
        }
        async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
            self.inner.read_into(offset, slots).await
        }
        async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
            self.let_go.notified().await;
            self.written.fetch_add(1, Ordering::Relaxed);
            self.inner.write(offset, data).await
        }
        async fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    /// A cache device was behind no cutoff: a host that had lost its pool wrote there as soon as it saw it again.
    #[tokio::test(start_paused = true)]
    async fn what_can_be_missed_obeys_the_same_lease_and_holds_nobody_up() {
        let cutoff = Arc::new(Cutoff::default());
        cutoff.wait_for(Arc::new(Renewing::default()));
        let other = cutoff.for_what_can_be_missed();
        let device = other.guard(Arc::new(MemDevice::new("missed", 1 << 20)));
        let write = || device.write(0, vec![Buf::copy_from(&[1; 512])]);
        write().await.expect("no lease is limited");
        cutoff.lease().renew(tokio::time::Instant::now(), Duration::from_secs(1));
        write().await.expect("in time");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(matches!(write().await, Err(DeviceError::TooLate(_))), "nobody renews it for a cache");

        cutoff.lease().remove();
        let hanging =
            Hanging { inner: MemDevice::new("d", 1 << 20), let_go: Notify::new(), written: AtomicU64::new(0) };
        let hanging = other.guard(Arc::new(hanging));
        let writing = tokio::spawn({
            let hanging = hanging.clone();
            async move { hanging.write(0, vec![Buf::copy_from(&[1; 512])]).await }
        });
        let seen = tokio::time::timeout(Duration::from_secs(60), cutoff.hangs(Duration::from_secs(5))).await;
        assert!(seen.is_err(), "it is nobody's to wait for");
        cutoff.fall("the pool is left");
        assert!(matches!(writing.await.expect("it ends"), Err(DeviceError::Gone { .. })));
        assert!(write().await.is_err() && cutoff.for_what_can_be_missed().is_down());
    }

    /// Renews, and counts.
    #[derive(Debug, Default)]
    struct Renewing(AtomicU64);

    #[async_trait]
    impl Renewal for Renewing {
        async fn renewed(&self, lease: &Lease) -> std::result::Result<(), String> {
            self.0.fetch_add(1, Ordering::Relaxed);
            lease.renew(tokio::time::Instant::now(), Duration::from_secs(1));
            Ok(())
        }
    }

    /// Lets the lease end while the first write is on its way.
    #[derive(Debug)]
    struct Queued(MemDevice, AtomicU64);

    #[async_trait]
    impl BlockDevice for Queued {
        fn name(&self) -> String {
            "queued".into()
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn is_writable(&self) -> bool {
            true
        }
        async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
            self.0.read_into(offset, slots).await
        }
        async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<()> {
            if self.1.fetch_add(1, Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_secs(2)).await;
                return Err(DeviceError::TooLate(self.name()));
            }
            self.0.write(offset, data).await
        }
        async fn flush(&self) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_lease_ends_on_its_way_comes_again_once_it_is_renewed() {
        let (cutoff, renewing) = (Arc::new(Cutoff::default()), Arc::new(Renewing::default()));
        let device = cutoff.guard(Arc::new(Queued(MemDevice::new("m", 1 << 20), AtomicU64::new(0))));
        cutoff.wait_for(renewing.clone());
        cutoff.lease().renew(tokio::time::Instant::now(), Duration::from_secs(1));
        device.write(0, vec![Buf::copy_from(&[7; 512])]).await.expect("renewed");
        assert_eq!((renewing.0.load(Ordering::Relaxed), device.read(0, 512).await.expect("read")[0]), (1, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn one_device_is_parted_from_and_the_others_go_on() {
        let (inner, let_go, written) = (MemDevice::new("m", 1 << 20), Notify::new(), AtomicU64::new(0));
        let cutoff = Arc::new(Cutoff::default());
        let hanging = cutoff.guard(Arc::new(Hanging { inner, let_go, written }));
        let other = cutoff.guard(Arc::new(MemDevice::new("other", 1 << 20)));
        let waiting = tokio::spawn({
            let hanging = hanging.clone();
            async move { hanging.write(0, vec![Buf::zeroed(512)]).await }
        });
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(
            hanging.traffic(),
            Some(TrafficCount { writes: Count { under_way: 1, ended: 0 }, ..TrafficCount::default() })
        );
        hanging.part("it does not answer");
        let told = waiting.await.expect("a task").expect_err("parted from").to_string();
        assert!(told.contains("it does not answer"), "{told}");
        assert!(hanging.flush().await.is_err() && hanging.read(0, 512).await.is_err(), "for good");
        assert_eq!(hanging.traffic().expect("counted").writes, Count { under_way: 0, ended: 1 });
        other.write(0, vec![Buf::zeroed(512)]).await.expect("nobody parted from it");
        cutoff.fall("given up");
        assert!(
            other.flush().await.is_err() && cutoff.guard(Arc::new(MemDevice::new("new", 512))).flush().await.is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_device_that_hangs_is_noticed_and_parted_from() {
        let (inner, let_go, written) = (MemDevice::new("m", 1 << 20), Notify::new(), AtomicU64::new(0));
        let hanging = Arc::new(Hanging { inner, let_go, written });
        let cutoff = Arc::new(Cutoff::default());
        let device = cutoff.guard(hanging.clone());
        let write = |offset| {
            let device = device.clone();
            tokio::spawn(async move { device.write(offset, vec![Buf::zeroed(512)]).await })
        };
        let limit = Duration::from_secs(5);
        assert!(tokio::time::timeout(limit * 10, cutoff.hangs(limit)).await.is_err(), "nothing is under way");
        let slow = write(0);
        // One that is slow ends something now and then.
        let pushed = tokio::time::timeout(limit * 10, async {
            loop {
                tokio::time::sleep(limit / 2).await;
                write(512);
                hanging.let_go.notify_one();
            }
        });
        tokio::select! {
            biased;
            _ = pushed => {}
            name = cutoff.hangs(limit) => panic!("{name} is slow, but goes on"),
        }
        assert_eq!(cutoff.hangs(limit).await, "hanging");
        let landed = hanging.written.load(Ordering::Relaxed);
        cutoff.fall("given up");
        let waiting = write(1024);
        let refused = waiting.await.expect("a task").expect_err("cut off").to_string();
        assert!(refused.contains("given up"), "{refused}");
        let _ = slow.await.expect("whoever waited is told");
        assert!(device.read(0, 512).await.is_err() && device.flush().await.is_err());
        (0..10).for_each(|_| hanging.let_go.notify_one());
        tokio::task::yield_now().await;
        assert_eq!(hanging.written.load(Ordering::Relaxed), landed, "no write came late");
    }
}
