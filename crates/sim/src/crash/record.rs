//! A witness of everything that a pool sends to its disks, with the moments at which operations began and ended.
//!
//! Invariant: a flush covers exactly the writes of its disk that had been acknowledged when it began. Writes are
//! acknowledged a while after they were submitted, in an order that the seed chooses, so that an engine which flushes
//! too early is found out.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Geometry, ReadSlot, TrimKind, TrimSupport};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::fork::Fork;
use platter_model::disk::Image;

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A write was handed to a disk.
    Submitted {
        /// Number of the write, from 0 on.
        write: usize,
        /// The disk.
        disk: usize,
        /// Where to, in bytes.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// The disk acknowledged a write.
    Acknowledged {
        /// Its number.
        write: usize,
    },
    /// A flush was acknowledged.
    Flushed {
        /// The disk.
        disk: usize,
        /// Number of the event before which writes must have been acknowledged to be covered.
        began: usize,
    },
    /// An operation of the workload began.
    Began {
        /// Its number.
        operation: usize,
    },
    /// An operation of the workload returned.
    Ended {
        /// Its number.
        operation: usize,
    },
}

/// Bytes of a trim that are noted at most.
const NOTED: u64 = 64 << 10;

#[derive(Debug, Default)]
struct State {
    events: Vec<Event>,
    writes: usize,
    on: bool,
}

/// What happened, in order. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<State>>);

impl Log {
    /// Begins to remember.
    pub fn start(&self) {
        self.0.lock().on = true;
    }

    /// Adds a mark of the workload.
    pub fn mark(&self, event: Event) {
        self.0.lock().events.push(event);
    }

    /// Everything so far; remembers nothing more.
    pub fn take(&self) -> Vec<Event> {
        let mut state = self.0.lock();
        state.on = false;
        std::mem::take(&mut state.events)
    }
}

/// A disk whose writes and flushes go to a [`Log`].
#[derive(Debug)]
pub struct RecordedDisk {
    disk: usize,
    inner: Fork,
    log: Log,
    random: Mutex<ChaCha20Rng>,
}

impl RecordedDisk {
    /// Disk `disk` of a simulation.
    pub fn new(disk: usize, inner: Fork, log: Log, seed: u64) -> Self {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        random.set_stream(disk as u64);
        Self { disk, inner, log, random: Mutex::new(random) }
    }

    /// What it holds now.
    pub fn image(&self) -> Image {
        self.inner.image()
    }

    /// A write of a few sectors takes as long as a few other tasks.
    async fn wait(&self) {
        let turns = self.random.lock().next_u32() % 4;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }
}

#[async_trait]
impl BlockDevice for RecordedDisk {
    fn name(&self) -> String {
        self.inner.name()
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

    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        self.inner.read_into(offset, slots).await
    }

    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        let number = {
            let mut state = self.log.0.lock();
            let write = state.writes;
            if state.on {
                let data = data.iter().flat_map(|buf| buf.iter().copied()).collect();
                state.events.push(Event::Submitted { write, disk: self.disk, offset, data });
            }
            state.writes += 1;
            write
        };
        let written = self.inner.write(offset, data).await;
        self.wait().await;
        let mut state = self.log.0.lock();
        if state.on {
            state.events.push(Event::Acknowledged { write: number });
        }
        written
    }

    fn trim_support(&self) -> TrimSupport {
        self.inner.trim_support()
    }

    /// What is stored there becomes zeros or anything, as the seed chooses. Of what a crash leaves of that the end of
    /// the range is noted at most, and not always: what was there before is as good, and each write has its own states.
    async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<(), DeviceError> {
        let choice = self.random.lock().next_u32();
        let parts = self.inner.image().stored(offset, length);
        self.inner.trim(offset, length, kind).await?;
        if choice & 1 == 0 {
            for part in &parts {
                let mut garbage = vec![0; (part.end - part.start) as usize];
                self.random.lock().fill_bytes(&mut garbage);
                self.inner.write(part.start, vec![Buf::copy_from(&garbage)]).await?;
            }
        }
        match parts.last().filter(|_| choice & 2 == 0) {
            Some(part) => {
                let from = part.start.max(part.end.saturating_sub(NOTED));
                let bytes = self.inner.read(from, (part.end - from) as usize).await?;
                self.write(from, vec![bytes.freeze()]).await
            }
            None => Ok(()),
        }
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let began = self.log.0.lock().events.len();
        self.wait().await;
        let mut state = self.log.0.lock();
        if state.on {
            assert!(began <= state.events.len(), "a flush began while this was recorded");
            state.events.push(Event::Flushed { disk: self.disk, began });
        }
        Ok(())
    }
}
