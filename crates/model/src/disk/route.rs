//! A host's way to its disks, which can be blocked while the disks go on for other hosts.
//!
//! Invariant: while it is blocked nothing reaches a disk. What was asked meanwhile goes on afterwards, or fails then,
//! as it was blocked.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Geometry, Operation, Presence, ReadSlot, TrimKind, TrimSupport};
use platter_hooks::Watch;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Open,
    /// What waits goes on when it is open again.
    Stalled,
    /// What waits fails when it is open again.
    Cut,
}

/// See the module text.
#[derive(Debug)]
pub struct Route {
    passage: Watch<Passage>,
    delay: Duration,
    writes: Mutex<Writes>,
}

#[derive(Debug, Default)]
struct Writes {
    count: u64,
    last: Option<Instant>,
}

impl Route {
    /// An open one, on which each transfer takes `delay` more.
    pub fn new(delay: Duration) -> Arc<Self> {
        Arc::new(Self { passage: Watch::new(Passage::Open), delay, writes: Mutex::default() })
    }

    /// A disk as seen over this route.
    pub fn to(self: &Arc<Self>, disk: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(Routed { disk, route: self.clone() })
    }

    /// Nothing gets through from now on; what tries fails once the route is open again.
    pub fn cut(&self) {
        self.passage.set(Passage::Cut);
    }

    /// Nothing gets through from now on; what tries goes on once the route is open again.
    pub fn stall(&self) {
        self.passage.set(Passage::Stalled);
    }

    /// Everything gets through again.
    pub fn open(&self) {
        self.passage.set(Passage::Open);
    }

    /// How many writes have reached a disk over this route.
    pub fn writes(&self) -> u64 {
        self.writes.lock().count
    }

    /// When the last of them did.
    pub fn last_write(&self) -> Option<Instant> {
        self.writes.lock().last
    }
}

#[derive(Debug)]
struct Routed {
    disk: Arc<dyn BlockDevice>,
    route: Arc<Route>,
}

impl Routed {
    async fn travel(&self, operation: Operation) -> Result<(), DeviceError> {
        if !self.route.delay.is_zero() {
            tokio::time::sleep(self.route.delay).await;
        }
        let passage = self.route.passage.get();
        if passage == Passage::Open {
            return Ok(());
        }
        self.route.passage.wait_for(|passage| *passage == Passage::Open).await;
        if passage == Passage::Stalled {
            return Ok(());
        }
        let source = Arc::new(std::io::Error::other("the path was cut"));
        Err(DeviceError::Io { device: self.name(), operation, offset: 0, length: 0, source })
    }
}

#[async_trait]
impl BlockDevice for Routed {
    fn name(&self) -> String {
        self.disk.name()
    }

    fn path(&self) -> Option<&Path> {
        self.disk.path()
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

    async fn look_at_size(&self) -> u64 {
        self.disk.look_at_size().await
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        match self.travel(Operation::Read).await {
            Ok(()) => self.disk.read_into(offset, slots).await,
            Err(error) => (slots, Err(error)),
        }
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        self.travel(Operation::Write).await?;
        debug_assert_eq!(self.route.passage.get(), Passage::Open, "nothing reaches a disk while the route is blocked");
        {
            let mut writes = self.route.writes.lock();
            *writes = Writes { count: writes.count + 1, last: Some(Instant::now()) };
        }
        self.disk.write(offset, data).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.travel(Operation::Flush).await?;
        self.disk.flush().await
    }

    fn trim_support(&self) -> TrimSupport {
        self.disk.trim_support()
    }

    async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<(), DeviceError> {
        self.travel(Operation::Trim).await?;
        self.disk.trim(offset, length, kind).await
    }

    fn presence(&self) -> Presence {
        self.disk.presence()
    }
}
