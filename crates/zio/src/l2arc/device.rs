//! One cache device: reading a block from it, and writing what waits.
//!
//! Invariants:
//! - whoever reads waits for [`READ_MAX`] at most, and for nothing where the device has much to do or was silent just
//!   now: the pool's own devices have every block;
//! - a round of writes that fails leaves nothing behind that could be found;
//! - a device with too many errors is given up, and asked for nothing more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use platter_buffer::{Buf, BufMut};
use platter_checksum::sha256;
use platter_ondisk::l2arc::{HEADER_OFFSET, LogEntry};
use platter_ondisk::label::VDEV_LABEL_START_SIZE;
use platter_ondisk::{Compression, Guid};
use platter_vdev::{Condition, Leaf, Priority, VdevAux, VdevError, VdevState};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::feed::Candidate;
use super::index::Place;
use super::ring::Written;
use crate::cache::Key;

/// For how long a reader waits for a cache device.
const READ_MAX: Duration = Duration::from_millis(200);
/// For how long a device that did not answer in time is not asked: at first, and at most.
const SILENCE_LEAST: Duration = Duration::from_secs(2);
const SILENCE_MOST: Duration = Duration::from_secs(60);
/// Bytes being read at a time, in units of [`READ_UNIT`]; who comes beyond them reads from the pool.
const READS_MAX: usize = 32 << 10;
const READ_UNIT: u32 = 1 << 10;
/// So many errors within so long are too many (`io_n` and `io_t` of `zfs-diagnosis`, `cmd/zed/agents`).
const ERRORS_MAX: usize = 10;
const ERRORS_WITHIN: Duration = Duration::from_secs(600);
/// What is written at once, bytes: what is small is joined.
const CHUNK: usize = 1 << 20;

/// When a device answered, and when it did not.
#[derive(Default)]
struct Silence {
    answered: Option<Instant>,
    until: Option<Instant>,
    last: Duration,
}

/// A cache device of a pool.
pub struct CacheDevice {
    /// What the index calls it.
    pub(crate) number: u32,
    pool: AtomicU64,
    pub(super) leaf: Arc<Leaf>,
    pub(super) ashift: u32,
    /// A ring that ends before this many bytes has no log.
    pub(super) logged_least: u64,
    reads: Arc<Semaphore>,
    silence: Mutex<Silence>,
    errors: Mutex<VecDeque<Instant>>,
    /// Nothing more is read from it or written there.
    has_left: AtomicBool,
    /// Its log is read, or it has none: only then is it written to.
    pub(super) is_ready: AtomicBool,
    allocated: AtomicU64,
    size: AtomicU64,
    /// Held while it is written, and while its log is read.
    pub(super) written: tokio::sync::Mutex<Option<Written>>,
}

/// A block that a round has placed.
pub(crate) type Placed = (Key, Place);

impl CacheDevice {
    pub(super) fn new(number: u32, pool: Guid, leaf: Arc<Leaf>, ashift: u32, logged_least: u64) -> Self {
        Self {
            number,
            pool: AtomicU64::new(pool.0),
            leaf,
            ashift,
            logged_least,
            reads: Arc::new(Semaphore::new(READS_MAX)),
            silence: Mutex::default(),
            errors: Mutex::default(),
            has_left: AtomicBool::new(false),
            is_ready: AtomicBool::new(false),
            allocated: AtomicU64::new(0),
            size: AtomicU64::new(0),
            written: tokio::sync::Mutex::default(),
        }
    }

    /// The pool whose blocks it has.
    pub(super) fn pool(&self) -> Guid {
        Guid(self.pool.load(Ordering::Relaxed))
    }

    pub(super) fn set_pool(&self, pool: Guid) {
        self.pool.store(pool.0, Ordering::Relaxed);
    }

    /// The leaf behind it.
    pub fn leaf(&self) -> &Arc<Leaf> {
        &self.leaf
    }

    /// Bytes for blocks and their log; 0 until it was opened.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Bytes of them in use.
    pub fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Whether it is written to: its log has been read.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Whether it is a pool's no more.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    pub(super) fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
    }

    /// The state of a device on which nothing is known to lie.
    pub(super) fn nothing(&self) -> Written {
        Written::nothing(self.ashift, VDEV_LABEL_START_SIZE + self.leaf.asize(), self.logged_least)
    }

    pub(super) fn show(&self, written: &Written) {
        let ring = written.ring();
        self.size.store(ring.end - ring.start, Ordering::Relaxed);
        self.allocated.store(written.allocated(), Ordering::Relaxed);
    }

    /// Reads what lies at a place, if the device has it soon.
    pub(super) async fn read(self: &Arc<Self>, place: Place, priority: Priority) -> Option<Buf> {
        if self.has_left() || !self.leaf.is_usable() || self.is_silent() {
            return None;
        }
        let units = place.psize.div_ceil(READ_UNIT);
        let permit = self.reads.clone().try_acquire_many_owned(units).ok()?;
        let device = self.clone();
        // Whoever waits may go on without it: it ends by itself.
        let reading = tokio::spawn(async move {
            let _permit = permit;
            let padded = u64::from(place.psize).next_multiple_of(1 << device.ashift) as usize;
            device.noted(device.leaf.read_cached(place.offset, padded, priority).await)
        });
        match tokio::time::timeout(READ_MAX, reading).await {
            Ok(read) => {
                *self.silence.lock() = Silence { answered: Some(Instant::now()), ..Silence::default() };
                let bytes: BufMut = read.ok().flatten()?;
                Some(bytes.freeze().slice(..place.psize as usize))
            }
            Err(_) => {
                self.note_silence();
                None
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.silence.lock().until.is_some_and(|until| Instant::now() < until)
    }

    /// It did not answer in time. If it answered nobody else meanwhile it is left alone for a while, longer each time.
    fn note_silence(&self) {
        let mut silence = self.silence.lock();
        let now = Instant::now();
        if silence.answered.is_some_and(|answered| now - answered < READ_MAX) {
            return;
        }
        if silence.until.is_none_or(|until| now >= until) {
            silence.last = (silence.last * 2).clamp(SILENCE_LEAST, SILENCE_MOST);
            silence.until = Some(now + silence.last);
        }
    }

    /// Counts a transfer that failed; the device is given up when there were too many.
    pub(super) fn noted<T>(&self, result: Result<T, VdevError>) -> Option<T> {
        let error = match result {
            Ok(done) => return Some(done),
            Err(VdevError::Unavailable { .. }) => return None,
            Err(error) => error,
        };
        let mut errors = self.errors.lock();
        let now = Instant::now();
        while errors.front().is_some_and(|&first| now - first > ERRORS_WITHIN) {
            errors.pop_front();
        }
        errors.push_back(now);
        if errors.len() >= ERRORS_MAX && self.leaf.is_usable() {
            errors.clear();
            let detail = format!("cache device with too many errors, the last: {error}");
            self.leaf.close(Condition::new(VdevState::Faulted, VdevAux::ErrorExceeded).with_detail(detail));
        }
        None
    }

    /// Writes blocks and, as often as there are enough, a log block; then the header. Answers what lies where now. What
    /// is given up for it is told to `give_up` before anything is written.
    pub(super) async fn write(&self, blocks: Vec<Candidate>, give_up: impl Fn(u64, u64)) -> Option<Vec<Placed>> {
        let mut held = self.written.lock().await;
        let written = held.as_mut()?;
        let bytes = blocks.iter().map(|block| written.asize(block.stored.len() as u64)).sum();
        let distance = written.needed(blocks.len() as u64, bytes);
        assert!(distance <= written.round_max(u64::MAX), "a round is a part of the ring");
        for (from, to) in written.make_room(distance) {
            give_up(from, to);
        }
        let mark = written.mark();
        match self.write_blocks(written, blocks).await {
            Some(placed) => {
                self.write_header(written).await;
                self.show(written);
                Some(placed)
            }
            None => {
                written.go_back(mark);
                None
            }
        }
    }

    async fn write_blocks(&self, written: &mut Written, blocks: Vec<Candidate>) -> Option<Vec<Placed>> {
        let mut chunk = Chunk { at: written.ring().hand, bytes: Vec::new() };
        let mut placed = Vec::with_capacity(blocks.len());
        for block in blocks {
            let bp = &block.bp;
            let entry = LogEntry {
                dva: bp.dva(0),
                birth: bp.physical_birth(),
                lsize: bp.lsize(),
                psize: bp.psize(),
                compression: if bp.compression() == Compression::ON { Compression::LZ4 } else { bp.compression() },
                is_metadata: bp.level() > 0 || bp.object_type().is_metadata(),
                is_protected: bp.is_protected(),
                offset: 0,
            };
            let offset = written.place(entry);
            let psize = u32::try_from(bp.psize()).expect("blocks have 16 MiB at most");
            placed.push((block.key, Place { device: self.number, offset, psize }));
            chunk.add(&block.stored, written.asize(bp.psize()));
            self.write_if(&mut chunk, CHUNK).await?;
            if let Some(log) = written.close_log() {
                let size = log.len() as u64;
                chunk.add(&log, size);
            }
        }
        self.write_if(&mut chunk, 1).await?;
        assert_eq!(chunk.at, written.ring().hand, "all that was placed is written");
        Some(placed)
    }

    /// Writes what has gathered if it is `least` bytes long.
    async fn write_if(&self, chunk: &mut Chunk, least: usize) -> Option<()> {
        if chunk.bytes.len() < least {
            return Some(());
        }
        if self.has_left() {
            return None;
        }
        let bytes = Buf::copy_from(&std::mem::take(&mut chunk.bytes));
        let (at, length) = (chunk.at, bytes.len() as u64);
        self.noted(self.leaf.write_cached(at, bytes, Priority::AsyncWrite).await)?;
        chunk.at += length;
        Some(())
    }

    /// Writes the header as of now. One that could not be written leads to what was there before, which is as good: the
    /// blocks tell themselves.
    pub(super) async fn write_header(&self, written: &Written) {
        let header = written.header(self.pool(), self.leaf.guid()).encode(self.ashift, sha256);
        self.noted(self.leaf.write_cached(HEADER_OFFSET, Buf::copy_from(&header), Priority::AsyncWrite).await);
    }
}

/// What gathers to be written at once.
struct Chunk {
    at: u64,
    bytes: Vec<u8>,
}

impl Chunk {
    /// Adds bytes, with zeros behind them up to `size`.
    fn add(&mut self, bytes: &[u8], size: u64) {
        let end = self.bytes.len() + size as usize;
        assert!(bytes.len() as u64 <= size, "a block fits where it is placed");
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(end, 0);
    }
}
