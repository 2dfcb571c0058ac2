//! The simulated disk as the engine sees it, and what a test may do to it behind the engine's back.
//!
//! Invariants: a [`SimDisk`] is a connection to a drive; all connections see the same drive. A power cut or a
//! disappearance ends every connection for ever: what an engine from before that still tries fails, and never reaches
//! the medium.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Geometry, Presence, ReadSlot, TrimKind, TrimSupport};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::drive::{Answer, DiskId, Drive, Request, State, Traffic};
use super::fault::{Fault, FaultCounts, FaultKind, FaultPlan};
use super::history::History;
use super::image::Image;
use super::link::Link;
use super::parameters::Parameters;
use super::power;
use super::supply::PowerSupply;
use crate::clock::SimClock;

/// A connection to a simulated drive. Cloning gives the same connection, [`connect`](Self::connect) a new one.
#[derive(Clone)]
pub struct SimDisk {
    drive: Arc<Drive>,
    connection: u64,
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("name", &self.drive.name).field("connection", &self.connection).finish()
    }
}

/// What a disk is made of, besides its [`Parameters`].
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The way to the host; disks may share links. Empty: no time.
    pub links: Vec<Arc<Link>>,
    /// Where every command is noted.
    pub history: Option<Arc<History>>,
    /// What the disk holds already.
    pub image: Image,
    /// Where its power comes from, when that can fail.
    pub supply: Option<Arc<PowerSupply>>,
}

impl SimDisk {
    /// A disk full of zeros, without links and history. Everything that chance decides about it follows from `seed` and
    /// `id`.
    pub fn new(clock: &Arc<SimClock>, seed: u64, id: DiskId, parameters: Parameters) -> Self {
        Self::within(clock, seed, id, parameters, Surroundings::default())
    }

    /// A disk in its surroundings.
    pub fn within(
        clock: &Arc<SimClock>,
        seed: u64,
        id: DiskId,
        parameters: Parameters,
        surroundings: Surroundings,
    ) -> Self {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        random.set_stream(u64::from(id.0) + 1);
        let Surroundings { links, history, image, supply } = surroundings;
        let drive = Drive {
            id,
            name: format!("disk{}", id.0),
            parameters,
            clock: clock.clone(),
            links,
            history,
            supply: supply.unwrap_or_default(),
            state: Mutex::new(State::new(&parameters, random, image)),
        };
        Self { drive: Arc::new(drive), connection: 0 }
    }

    /// A new connection to the same drive.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self { drive: self.drive.clone(), connection: self.drive.state.lock().connection }
    }

    /// Which disk it is.
    pub fn id(&self) -> DiskId {
        self.drive.id
    }

    /// What it is.
    pub fn parameters(&self) -> Parameters {
        self.drive.parameters
    }

    /// What reads see: everything acknowledged.
    pub fn image(&self) -> Image {
        self.drive.state.lock().current.clone()
    }

    /// What would survive a power cut in any case.
    pub fn stable_image(&self) -> Image {
        self.drive.state.lock().stable.clone()
    }

    /// Gives the disk other contents. Commands must not be on their way.
    pub fn set_image(&self, image: Image) {
        let mut state = self.drive.state.lock();
        assert!(state.commands.is_empty(), "{}: commands are on their way", self.drive.name);
        state.drop_commands();
        state.stable = image.clone();
        state.current = image;
    }

    /// Adds a fault that waits for a command.
    pub fn inject(&self, fault: Fault) {
        self.drive.state.lock().faults.push(fault);
    }

    /// The faults that happen by chance at present.
    pub fn plan(&self) -> FaultPlan {
        self.drive.state.lock().plan
    }

    /// Sets what goes wrong by chance from now on; the default: nothing.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.drive.state.lock().plan = plan;
    }

    /// How often each fault took effect.
    pub fn fault_counts(&self) -> FaultCounts {
        self.drive.state.lock().counts
    }

    /// Commands given to the drive so far.
    pub fn traffic(&self) -> Traffic {
        self.drive.state.lock().traffic
    }

    /// Pages that flash had to program for each that was written, in percent; 100 for disks that turn.
    pub fn write_amplification_percent(&self) -> u64 {
        self.drive.state.lock().amplification_percent()
    }

    /// Changes one bit somewhere where something is stored; where. `None` for an empty disk.
    pub fn rot(&self) -> Option<u64> {
        let mut state = self.drive.state.lock();
        let chance = state.random.next_u64();
        self.drive.rot(&mut state, chance)
    }

    /// Changes the bytes in `range`, every one of them.
    pub fn damage(&self, range: Range<u64>) {
        let mut state = self.drive.state.lock();
        let mut bytes = vec![0; (range.end - range.start) as usize];
        state.current.read_at(range.start, &mut bytes);
        bytes.iter_mut().for_each(|byte| *byte ^= 0xa5);
        state.current.write_at(range.start, &bytes);
        state.stable.write_at(range.start, &bytes);
        state.counts.count(FaultKind::BitRot);
    }

    /// Puts bytes back that were on the medium once.
    pub fn restore(&self, offset: u64, bytes: &[u8]) {
        let block = u64::from(self.drive.parameters.geometry.physical_block);
        let mut state = self.drive.state.lock();
        state.current.write_at(offset, bytes);
        state.stable.write_at(offset, bytes);
        let sectors = offset / block..(offset + bytes.len() as u64).div_ceil(block);
        state.unreadable.retain(|sector| !sectors.contains(sector));
    }

    /// Makes the sectors of `range` unreadable until they are rewritten.
    pub fn make_unreadable(&self, range: Range<u64>) {
        let block = u64::from(self.drive.parameters.geometry.physical_block);
        let mut state = self.drive.state.lock();
        state.unreadable.extend(range.start / block..range.end.div_ceil(block));
        state.counts.count(FaultKind::LatentSectorError);
    }

    /// All sectors can be read again, as if the drive had put spare ones in their place; their contents stay.
    pub fn make_readable(&self) {
        self.drive.state.lock().unreadable.clear();
    }

    /// Makes every command take `more` time; zero: as usual.
    pub fn set_slow(&self, more: Duration) {
        let mut state = self.drive.state.lock();
        state.slow = more.as_nanos() as u64;
    }

    /// From now on no command is answered, until [`release`](Self::release).
    pub fn hang(&self) {
        let mut state = self.drive.state.lock();
        state.hung = true;
        state.counts.count(FaultKind::Hang);
    }

    /// Answers everything that was asked while the drive hung.
    pub fn release(&self) {
        let mut state = self.drive.state.lock();
        self.drive.release(&mut state);
    }

    /// Pulls the drive out: it loses its power too.
    pub fn disappear(&self) {
        self.drive.state.lock().counts.count(FaultKind::Disappearance);
        self.power_cut();
    }

    /// Cuts the drive's power: what was not flushed is subject to chance, and every connection ends.
    pub fn power_cut(&self) {
        let block = u64::from(self.drive.parameters.geometry.logical_block);
        let mut state = self.drive.state.lock();
        let aftermath = power::cut(&mut state, block);
        state.present = false;
        if let Some(history) = &self.drive.history {
            let (now, disk) = (self.drive.clock.now(), self.drive.id.0);
            history.mark(format!("{now} disk {disk} power cut {aftermath:?}"));
        }
    }

    /// Puts the drive back, with power. [`connect`](Self::connect) again to use it.
    pub fn come_back(&self) {
        self.drive.state.lock().present = true;
    }

    /// Whether the drive is there.
    pub fn is_present(&self) -> bool {
        self.drive.state.lock().present
    }

    /// Makes the drive say that it has another size than it had; never more than it was made with.
    pub fn set_size(&self, size: u64) {
        let mut state = self.drive.state.lock();
        state.size = size.min(self.drive.parameters.size);
        if size != self.drive.parameters.size {
            state.counts.count(FaultKind::WrongSize);
        }
    }

    /// Gives the drive another size, as whoever owns a file or a logical unit does: that is no fault. Never more than
    /// it was made with.
    pub fn resize(&self, size: u64) {
        let most = self.drive.parameters.size;
        assert!(size <= most, "{}: {size} bytes of at most {most}", self.drive.name);
        self.drive.state.lock().size = size;
    }

    /// Whether every write is refused with "no space", as by a file on a full file system.
    pub fn set_full(&self, full: bool) {
        self.drive.state.lock().full = full;
    }

    async fn ask(&self, offset: u64, request: Request) -> Answer {
        match self.drive.submit(self.connection, offset, request) {
            Err((slots, error)) => (slots, Err(error)),
            Ok(receiver) => match receiver.await {
                Ok(answer) => answer,
                Err(oneshot_closed) => {
                    let _: futures::channel::oneshot::Canceled = oneshot_closed;
                    (Vec::new(), Err(self.drive.gone("it lost its power")))
                }
            },
        }
    }
}

#[async_trait]
impl BlockDevice for SimDisk {
    fn name(&self) -> String {
        self.drive.name.clone()
    }

    fn size(&self) -> u64 {
        self.drive.state.lock().size
    }

    fn geometry(&self) -> Geometry {
        self.drive.parameters.geometry
    }

    fn is_writable(&self) -> bool {
        true
    }

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        self.ask(offset, Request::Read(slots)).await
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        self.ask(offset, Request::Write(data)).await.1
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.ask(0, Request::Flush).await.1
    }

    fn trim_support(&self) -> TrimSupport {
        TrimSupport { plain: true, secure: false }
    }

    /// What is read there afterwards is zeros, or something else that the seed chooses where something was.
    async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<(), DeviceError> {
        match kind {
            TrimKind::Plain => self.ask(offset, Request::Trim(length)).await.1,
            TrimKind::Secure => Err(DeviceError::NotTrimmable(self.name())),
        }
    }

    fn presence(&self) -> Presence {
        let state = self.drive.state.lock();
        match state.present && state.connection == self.connection {
            true => Presence::Present,
            false => Presence::Gone("it was disconnected".into()),
        }
    }
}
