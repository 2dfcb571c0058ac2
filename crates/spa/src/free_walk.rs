//! The walk over all that is free of a leaf, metaslab after metaslab, which gives it up or writes over it
//! (`vdev_trim_thread` in `module/zfs/vdev_trim.c`, `vdev_initialize_thread` in `module/zfs/vdev_initialize.c`).
//!
//! Invariants:
//! - a range is touched only while nothing is handed out of its metaslab, and after it has rested for the groups that
//!   may be gone back to, also when it was freed before the pool was opened;
//! - nothing is waited for meanwhile but devices, and those not for long: who needs the metaslab's room waits, too.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use platter_api::report::LeafWorkState;
use platter_buffer::{Buf, BufMut};
use platter_ondisk::{Guid, ObjectId};
use platter_vdev::{Leaf, TopVdev, TrimKind, VdevState};
use platter_zio::metaslab::DEFER;
use platter_zio::{MetaslabId, Phase, RangeSet};
use tokio::time::Instant;

use crate::core::Core;
use crate::free_state::{Kind, Work};
use crate::free_work::{self, Change};

/// Trims that may be with one leaf at a time (`zfs_trim_queue_limit`); of these its queue lets some wait.
const TRIMS_AT_ONCE: usize = 10;
/// Bytes written at a time (`zfs_initialize_chunk_size`).
const CHUNK: u64 = 1 << 20;
/// What is written (`zfs_initialize_value`).
const PATTERN: u64 = 0xdead_beef_dead_beee;
/// No metaslab is kept from being used for longer, unless a single transfer takes longer.
pub const TURN: Duration = Duration::from_secs(1);
/// The place is written down so often.
const SAVE: Duration = Duration::from_secs(5);
/// Smallest piece that is given up when nobody is to find what was there (`SPA_MINBLOCKSIZE`).
const SECURE_MIN: u64 = 512;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything is done.
    All,
    /// Somebody wants it to end.
    Stopped,
    /// The leaf, or the pool, cannot be used.
    Gone,
}

/// One walk.
struct Walk {
    core: Arc<Core>,
    top: Arc<TopVdev>,
    leaf: Arc<Leaf>,
    key: (ObjectId, Kind),
    /// Which one of this process's it is.
    number: u64,
    began: Instant,
    /// Bytes since then.
    bytes: u64,
    saved: Instant,
    pattern: Buf,
}

/// Lets the work on a leaf run to its end: which, and the number of who works.
pub async fn run(core: Arc<Core>, top: Arc<TopVdev>, leaf: Arc<Leaf>, (key, number): ((ObjectId, Kind), u64)) {
    let pattern = if key.1 == Kind::Initialize { pattern() } else { Buf::zeroed(0) };
    let now = Instant::now();
    let (began, saved) = (now, now);
    let mut walk = Walk { core: core.clone(), top, leaf: leaf.clone(), key, number, began, bytes: 0, saved, pattern };
    let end = match walk.rest().await {
        None => walk.everything().await,
        Some(end) => end,
    };
    let to = match end {
        End::All => Some(LeafWorkState::Complete),
        End::Gone if leaf.condition().state == VdevState::Faulted => Some(LeafWorkState::Canceled),
        End::Gone | End::Stopped => None,
    };
    if core.dsl.store.suspension().phase() == Phase::Running {
        note_end(&core, leaf, key, to).await;
    }
    core.works.end(key, number);
}

/// Writes down how a walk ended; `to` is what became of the work.
async fn note_end(core: &Arc<Core>, leaf: Arc<Leaf>, key: (ObjectId, Kind), to: Option<LeafWorkState>) {
    let ended = core.task(async move |core, tx| {
        let guid = leaf.guid();
        // Somebody may have given it up while it came to its end.
        let goes_on = core.works.known.lock().get(&key).is_some_and(|work| work.state == LeafWorkState::Active);
        match to.filter(|_| goes_on) {
            Some(_) => free_work::apply(&core, &tx, &[change(guid, key.1, to)]).await?,
            None => free_work::store_place(&core, &tx, guid, key.1).await?,
        }
        Ok(())
    });
    if let Err(error) = ended.await {
        tracing::debug!(pool = core.name(), %error, "the place of a {} is not written down", key.1.name());
    }
}

fn change(leaf: Guid, kind: Kind, to: Option<LeafWorkState>) -> Change {
    Change { leaf, kind, to, rate: 0, secure: false }
}

fn pattern() -> Buf {
    let mut bytes = BufMut::zeroed(CHUNK as usize);
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&PATTERN.to_ne_bytes()));
    bytes.freeze()
}

impl Walk {
    fn work(&self) -> Option<Work> {
        self.core.works.known.lock().get(&self.key).copied().filter(|work| work.runner == Some(self.number))
    }

    /// Why it cannot go on.
    fn obstacle(&self) -> Option<End> {
        match self.work() {
            Some(work) if !work.stopping && work.state == LeafWorkState::Active => {}
            _ => return Some(End::Stopped),
        }
        let is_stopped = matches!(self.core.dsl.store.suspension().phase(), Phase::Stopped(_));
        (is_stopped || !self.leaf.is_usable()).then_some(End::Gone)
    }

    /// Waits as long as the pool's I/O waits.
    async fn wait_for_devices(&self) {
        while self.core.dsl.store.suspension().is_suspended() && self.obstacle().is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The group by which what was freed before the pool was opened has rested.
    fn rested(&self) -> u64 {
        self.core.works.opened.0 + DEFER as u64
    }

    /// Lets what was freed before the pool was opened rest as well: what rests is in memory only, and who opens a pool
    /// takes all that its space maps know as free for rested.
    async fn rest(&self) -> Option<End> {
        while self.core.uberblock.lock().txg.0 < self.rested() {
            if let Some(end) = self.obstacle() {
                return Some(end);
            }
            if self.core.task(async |_, _| Ok(())).await.is_err() {
                return Some(End::Gone);
            }
        }
        None
    }

    async fn everything(&mut self) -> End {
        let mut index = 0;
        loop {
            self.wait_for_devices().await;
            if let Some(end) = self.obstacle() {
                return end;
            }
            let Some(work) = self.work() else { return End::Stopped };
            let Some((bounds, was_used)) = self.metaslab(index) else { return End::All };
            let Some((from, length)) = self.top.on_leaf(self.leaf.guid(), bounds) else { return End::Gone };
            if work.place >= from + length || (work.partial && !was_used) {
                index += 1;
            } else if self.turn(MetaslabId { vdev: self.top.id() as u32, index }, &work).await {
                self.reach(from + length);
                index += 1;
            }
            // Who waited for the room has its turn.
            tokio::task::yield_now().await;
            self.save().await;
            self.keep_to_rate(work.rate).await;
        }
    }

    /// First byte and length of a metaslab in the vdev, and whether it was ever used.
    fn metaslab(&self, index: usize) -> Option<((u64, u64), bool)> {
        let allocator = self.core.dsl.store.state().allocator.lock();
        let metaslab = allocator.group(self.top.id() as u32)?.metaslabs().get(index)?;
        Some(((metaslab.start, metaslab.size), metaslab.space_map.is_some()))
    }

    /// Everything before this byte of the leaf is done.
    fn reach(&self, place: u64) {
        let mut known = self.core.works.known.lock();
        if let Some(work) = known.get_mut(&self.key).filter(|work| work.runner == Some(self.number)) {
            assert!(work.place <= place, "a walk goes on");
            work.place = place;
        }
    }

    /// Works on a metaslab for a while; whether that was all of it.
    async fn turn(&mut self, id: MetaslabId, work: &Work) -> bool {
        // One whose free ranges nobody knows is passed over, as allocation passes it over.
        let Some(disabled) = self.core.dsl.store.disable(id).await else { return true };
        let last = self.core.uberblock.lock().txg;
        assert!(last.0 >= self.rested(), "what group {last:?} can be gone back from may be needed");
        let pieces = self.pieces(disabled.free(), work);
        let at_once = match self.key.1 {
            Kind::Trim if work.rate == 0 => TRIMS_AT_ONCE,
            _ => 1,
        };
        let began = Instant::now();
        let mut parts = pieces.chunks(at_once).peekable();
        while let Some(part) = parts.next() {
            let (first, last) = (part[0], part[part.len() - 1]);
            let done = join_all(part.iter().map(|piece| self.touch(*piece, work.secure))).await;
            if done.contains(&false) && !self.leaf.is_usable() {
                self.reach(first.0.max(work.place));
                return false;
            }
            self.reach(last.0 + last.1);
            self.bytes += part.iter().map(|(_, length)| length).sum::<u64>();
            let is_over = began.elapsed() >= TURN || self.is_too_fast(work.rate) || self.obstacle().is_some();
            if is_over && parts.peek().is_some() {
                return false;
            }
        }
        true
    }

    /// What is still to be done of what is free, on the leaf and in pieces of the right size.
    fn pieces(&self, free: &[(u64, u64)], work: &Work) -> Vec<(u64, u64)> {
        let limits = self.core.environment.trim;
        let (least, most) = match self.key.1 {
            Kind::Trim if work.secure => (SECURE_MIN, limits.extent_bytes_max),
            Kind::Trim => (limits.extent_bytes_min, limits.extent_bytes_max),
            Kind::Initialize => (0, CHUNK),
        };
        pieces(&self.top, self.leaf.guid(), free, work.place, (least, most))
    }

    /// Whether it was done.
    async fn touch(&self, (offset, length): (u64, u64), secure: bool) -> bool {
        let leaf = self.leaf.guid();
        match self.key.1 {
            Kind::Trim => {
                let kind = if secure { TrimKind::Secure } else { TrimKind::Plain };
                self.top.trim(leaf, (offset, length), kind).await.is_ok()
            }
            Kind::Initialize => {
                let data = self.pattern.slice(..length as usize);
                self.top.initialize(leaf, offset, data).await.is_ok()
            }
        }
    }

    fn is_too_fast(&self, rate: u64) -> bool {
        rate > 0 && self.bytes > rate.saturating_mul(self.began.elapsed().as_millis() as u64 + 1) / 1000
    }

    /// Waits until it has not been faster than `rate`, or is to end.
    async fn keep_to_rate(&self, rate: u64) {
        while self.is_too_fast(rate) && self.obstacle().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Writes the place down now and then.
    async fn save(&mut self) {
        if self.saved.elapsed() < SAVE {
            return;
        }
        let (leaf, kind) = (self.leaf.clone(), self.key.1);
        let saved =
            self.core.task(async move |core, tx| Ok(free_work::store_place(&core, &tx, leaf.guid(), kind).await?));
        if let Err(error) = saved.await {
            tracing::debug!(pool = self.core.name(), %error, "the place of a {} is not written down", kind.name());
        }
        self.saved = Instant::now();
    }
}

/// What a leaf has of what is free in its vdev, from byte `place` of it on, in pieces of so many bytes at most; what is
/// in runs of less than the least is left out.
pub fn pieces(
    top: &TopVdev,
    leaf: Guid,
    free: &[(u64, u64)],
    place: u64,
    (least, most): (u64, u64),
) -> Vec<(u64, u64)> {
    let mut own = RangeSet::new();
    for (from, length) in free.iter().filter_map(|range| top.on_leaf(leaf, *range)) {
        let from_here = from.max(place);
        if from + length > from_here {
            own.add(from_here, from + length - from_here).expect("what is apart in the vdev is apart on a leaf");
        }
    }
    let mut pieces = Vec::new();
    for (from, length) in own.iter().filter(|(_, length)| *length >= least) {
        let starts = (from..from + length).step_by(most.max(SECURE_MIN) as usize);
        pieces.extend(starts.map(|start| (start, most.max(SECURE_MIN).min(from + length - start))));
    }
    pieces
}
