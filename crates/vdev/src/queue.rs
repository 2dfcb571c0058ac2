//! A leaf's queue: how many transfers of each class run at once, in which order, and which are joined
//! (`module/zfs/vdev_queue.c`).
//!
//! Invariants:
//! - at most as many transfers of a class are with the device as its rules say ([`crate::priority`]), so that a scrub
//!   does not starve a reader;
//! - a transfer that finds its class idle goes to the device at once, on the caller's own task; beyond those that go at
//!   once, writes of a group's data go only when they make a large transfer together with their neighbours;
//! - waiting transfers of a class leave in ascending order of offset, wrapping around; neighbours leave as one transfer
//!   of up to [`JOIN_MAX`] bytes, reads across gaps of up to [`READ_GAP_MAX`] bytes;
//! - padding is written only between two writes that it joins, and is over when it is left out;
//! - a trim travels alone: whoever asks for it has joined what can be joined;
//! - what is fetched ahead of a reader is passed over [`PASSED_MAX`] times at most;
//! - a joined transfer that fails is repeated piece by piece, so that each waiter gets its own result;
//! - no lock is held across an await.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{Assembly, BlockDevice, DeviceError, ReadSlot, TrimKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::histograms::Histograms;
use crate::priority::{Direction, PerClass, Priority};

/// Most bytes of a joined transfer (`zfs_vdev_aggregation_limit`).
const JOIN_MAX: u64 = 1 << 20;
/// Most bytes read for nothing between two joined reads (`zfs_vdev_read_gap_limit`).
const READ_GAP_MAX: u64 = 32 << 10;
/// How often others may leave before a read ahead that came earlier. These come in no strict order, and one that is
/// passed over waits until the rest has left; but a reader wants them in theirs.
const PASSED_MAX: u64 = 2;
/// Most pieces of a joined transfer; the kernel takes 1024 segments, and a write may have a few for each piece.
const PIECES_MAX: usize = 200;

type Reply = oneshot::Sender<Result<(), DeviceError>>;

enum Io {
    Read(ReadSlot),
    Write(Vec<Buf>),
    /// Bytes that nobody reads: zeros, where they join two writes.
    Padding,
    Trim(TrimKind),
}

struct Pending {
    offset: u64,
    length: u64,
    io: Io,
    /// When it came.
    arrived: Instant,
    /// Batches of its class that had left when it came.
    left_before: u64,
    reply: Reply,
}

impl Pending {
    fn end(&self) -> u64 {
        self.offset + self.length
    }

    fn is_read(&self) -> bool {
        matches!(self.io, Io::Read(_))
    }

    fn is_padding(&self) -> bool {
        matches!(self.io, Io::Padding)
    }

    fn is_trim(&self) -> bool {
        matches!(self.io, Io::Trim(_))
    }
}

#[derive(Default)]
struct Class {
    active: usize,
    /// Bytes that wait.
    waiting: u64,
    /// By offset and order of arrival.
    pending: BTreeMap<(u64, u64), Pending>,
    /// Whether none may be passed over too often; then the offset of each, by order of arrival.
    in_turn: bool,
    oldest: BTreeMap<u64, u64>,
    /// Where the last batch ended.
    position: u64,
    /// Batches that have left.
    left: u64,
}

struct State {
    classes: PerClass<Class>,
    arrivals: u64,
}

impl Default for State {
    fn default() -> Self {
        let class = |class: Priority| Class { in_turn: class.rules().in_turn, ..Class::default() };
        Self { classes: PerClass::from_fn(class), arrivals: 0 }
    }
}

impl Class {
    fn add(&mut self, order: u64, pending: Pending) {
        self.waiting += pending.length;
        if self.in_turn {
            self.oldest.insert(order, pending.offset);
        }
        self.pending.insert((pending.offset, order), pending);
    }

    fn remove(&mut self, key: (u64, u64)) -> Pending {
        self.oldest.remove(&key.1);
        let pending = self.pending.remove(&key).expect("just found");
        self.waiting = self.waiting.checked_sub(pending.length).expect("what waits is counted");
        debug_assert!(self.waiting > 0 || self.pending.values().all(|pending| pending.length == 0));
        pending
    }

    /// The first one that was passed over too often, with what waits close before it.
    fn passed_over(&self) -> Option<(u64, u64)> {
        let (&order, &offset) = self.oldest.first_key_value()?;
        let mut first = (offset, order);
        let oldest = &self.pending[&first];
        if self.left - oldest.left_before < PASSED_MAX {
            return None;
        }
        for (&key, before) in self.pending.range(..first).rev() {
            let is_close = before.end() + READ_GAP_MAX >= first.0 && oldest.end() - before.offset <= JOIN_MAX;
            if !is_close || before.is_read() != oldest.is_read() {
                break;
            }
            first = key;
        }
        Some(first)
    }

    /// The next to leave. Padding before it is over: nothing before it could be joined to it.
    fn next_to_leave(&mut self) -> Option<Pending> {
        loop {
            let in_order = || self.pending.range((self.position, 0)..).next().or_else(|| self.pending.iter().next());
            let key = self.passed_over().or_else(|| in_order().map(|(&key, _)| key))?;
            let next = self.remove(key);
            if !next.is_padding() {
                return Some(next);
            }
        }
    }

    /// The next transfers that travel as one; none when none waits.
    fn next_batch(&mut self) -> Vec<Pending> {
        let Some(first) = self.next_to_leave() else { return Vec::new() };
        self.left += 1;
        let (begin, is_read) = (first.offset, first.is_read());
        let mut end = first.end();
        let mut batch = vec![first];
        let gap_max = if is_read { READ_GAP_MAX } else { 0 };
        while batch.len() < PIECES_MAX && !batch[0].is_trim() {
            let Some((&key, next)) = self.pending.range((end, 0)..).next() else { break };
            if next.is_read() != is_read || next.offset - end > gap_max || next.end() - begin > JOIN_MAX {
                break;
            }
            end = next.end();
            batch.push(self.remove(key));
        }
        self.position = end;
        // The first is none.
        while batch.last().is_some_and(Pending::is_padding) {
            batch.pop();
        }
        debug_assert!(batch.len() == 1 || batch[batch.len() - 1].end() - begin <= JOIN_MAX);
        debug_assert!(batch.iter().all(|pending| pending.is_read() == is_read));
        debug_assert!(batch.is_sorted_by(|one, next| one.end() <= next.offset && next.offset - one.end() <= gap_max));
        batch
    }
}

/// The queue in front of one open device. Offsets are the device's.
pub(crate) struct Queue {
    device: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    /// Where waiting transfers are carried out: the runtime that opened the device. Callers may come from elsewhere (a
    /// front end's thread, a short-lived runtime) and must not take others' transfers along when they end.
    runtime: Option<Handle>,
    /// Latencies and sizes.
    histograms: Arc<Histograms>,
}

/// Holds a place among the active transfers of a class; leaving it lets waiting ones go.
struct ActivePlace<'a> {
    queue: &'a Arc<Queue>,
    class: Priority,
}

impl Drop for ActivePlace<'_> {
    fn drop(&mut self) {
        let batch = self.queue.next_batch(self.class);
        self.queue.send_off(self.class, batch);
    }
}

impl Queue {
    pub fn new(device: Arc<dyn BlockDevice>, histograms: Arc<Histograms>) -> Self {
        Self { device, state: Mutex::default(), runtime: Handle::try_current().ok(), histograms }
    }

    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Transfers waiting and under way.
    pub fn load(&self) -> usize {
        self.state.lock().classes.iter().map(|class| class.active + class.pending.len()).sum()
    }

    /// Transfers of each class: (under way, waiting).
    pub fn depth(&self) -> PerClass<(usize, usize)> {
        self.state.lock().classes.each_ref().map(|class| (class.active, class.pending.len()))
    }

    pub async fn read(self: &Arc<Self>, offset: u64, slot: ReadSlot, priority: Priority) -> Result<(), DeviceError> {
        self.submit(offset, slot.len() as u64, Io::Read(slot), priority).await
    }

    pub async fn write(self: &Arc<Self>, offset: u64, data: Vec<Buf>, priority: Priority) -> Result<(), DeviceError> {
        let length = data.iter().map(|buf| buf.len() as u64).sum();
        self.submit(offset, length, Io::Write(data), priority).await
    }

    /// Lets zeros be written here if that joins two writes of data that wait. Over when that is done or decided
    /// against; whether it succeeded does not matter.
    pub async fn pad(self: &Arc<Self>, offset: u64, length: u64) {
        let _ = self.submit(offset, length, Io::Padding, Priority::AsyncWrite).await;
    }

    /// Gives bytes up.
    pub async fn trim(self: &Arc<Self>, offset: u64, length: u64, kind: TrimKind) -> Result<(), DeviceError> {
        self.submit(offset, length, Io::Trim(kind), Priority::Trim).await
    }

    async fn submit(self: &Arc<Self>, offset: u64, length: u64, io: Io, class: Priority) -> Result<(), DeviceError> {
        let rules = class.rules();
        let arrived = Instant::now();
        // One lock for the look and the entry, in a scope without an await: the future has to be `Send`.
        let queued = {
            let mut state = self.state.lock();
            if state.classes[class].active < rules.at_once {
                if matches!(io, Io::Padding) {
                    return Ok(());
                }
                state.classes[class].active += 1;
                Err(io)
            } else {
                state.arrivals += 1;
                let order = state.arrivals;
                let (reply, answer) = oneshot::channel();
                let class = &mut state.classes[class];
                let left_before = class.left;
                class.add(order, Pending { offset, length, io, arrived, left_before, reply });
                let one_more = class.active < rules.active_max && class.waiting >= JOIN_MAX;
                let batch = if one_more {
                    class.active += 1;
                    assert!(class.active <= rules.active_max, "too many transfers are with the device");
                    class.next_batch()
                } else {
                    Vec::new()
                };
                Ok((answer, batch))
            }
        };
        let answer = match queued {
            Ok((answer, batch)) => {
                self.send_off(class, batch);
                answer
            }
            Err(io) => {
                let _place = ActivePlace { queue: self, class };
                self.histograms.note_size(class, length, false);
                let (direction, result) = match io {
                    Io::Read(slot) => (Direction::Read, self.device.read_into(offset, vec![slot]).await.1),
                    Io::Write(data) => (Direction::Write, self.device.write(offset, data).await),
                    Io::Trim(kind) => {
                        let result = self.device.trim(offset, length, kind).await;
                        self.histograms.note_trim(Duration::ZERO, arrived.elapsed());
                        return result;
                    }
                    Io::Padding => unreachable!("padding never goes alone"),
                };
                self.histograms.note_latency(class, direction, Duration::ZERO, arrived.elapsed());
                return result;
            }
        };
        answer.await.unwrap_or_else(|_| {
            Err(DeviceError::Gone { device: self.device.name(), reason: "its queue was closed".into() })
        })
    }

    /// The next transfers of a class that travel as one. When there are none, the caller's place is given up.
    fn next_batch(&self, class: Priority) -> Vec<Pending> {
        let mut state = self.state.lock();
        let class = &mut state.classes[class];
        let batch = class.next_batch();
        if batch.is_empty() {
            class.active = class.active.checked_sub(1).expect("whoever looks for more has a place");
        }
        batch
    }

    /// Carries out a batch, which has a place among the active ones, and what waits after it, on the runtime.
    fn send_off(self: &Arc<Self>, class: Priority, batch: Vec<Pending>) {
        if batch.is_empty() {
            return;
        }
        // Without a runtime (it is being shut down) the waiters learn that their transfers were dropped.
        if let Some(runtime) = self.runtime.clone().or_else(|| Handle::try_current().ok()) {
            runtime.spawn(self.clone().work(class, batch));
        } else {
            self.state.lock().classes[class].active -= 1;
        }
    }

    /// Carries out batches of a class until none waits.
    async fn work(self: Arc<Self>, class: Priority, mut batch: Vec<Pending>) {
        while !batch.is_empty() {
            self.carry_out(class, batch).await;
            batch = self.next_batch(class);
        }
    }

    /// Carries out a batch: transfers of one kind, in order and close to each other.
    async fn carry_out(&self, class: Priority, batch: Vec<Pending>) {
        let joined_bytes = batch[batch.len() - 1].end() - batch[0].offset;
        self.histograms.note_size(class, joined_bytes, batch.len() > 1);
        match batch[0].io {
            Io::Read(_) => self.read_batch(class, batch).await,
            Io::Trim(kind) => self.trim_one(batch, kind).await,
            Io::Write(_) | Io::Padding => self.write_batch(class, batch).await,
        }
    }

    async fn trim_one(&self, batch: Vec<Pending>, kind: TrimKind) {
        assert_eq!(batch.len(), 1, "a trim travels alone");
        let started = Instant::now();
        for Pending { offset, length, arrived, reply, .. } in batch {
            // Whoever asked for it kept the range free, and is gone: by now somebody else may have it.
            if reply.is_closed() {
                continue;
            }
            let result = self.device.trim(offset, length, kind).await;
            self.histograms.note_trim(started - arrived, started.elapsed());
            let _ = reply.send(result);
        }
    }

    async fn read_batch(&self, class: Priority, batch: Vec<Pending>) {
        let (begin, started) = (batch[0].offset, Instant::now());
        let mut slots = Vec::with_capacity(2 * batch.len());
        let mut waiters = Vec::with_capacity(batch.len());
        let mut end = begin;
        for pending in batch {
            let Io::Read(slot) = pending.io else { unreachable!("a batch is of one kind") };
            let gap = (pending.offset > end).then(|| ReadSlot::whole((pending.offset - end) as usize).1);
            end = pending.offset + pending.length;
            waiters.push((pending.offset, gap.is_some(), pending.arrived, pending.reply));
            slots.extend(gap);
            slots.push(slot);
        }
        let alone = waiters.len() == 1;
        let (slots, result) = self.device.read_into(begin, slots).await;
        let mut slots = slots.into_iter();
        for (offset, has_gap, arrived, reply) in waiters {
            if has_gap {
                slots.next();
            }
            let result = match (slots.next(), &result) {
                (Some(slot), Err(_)) if !alone => self.device.read_into(offset, vec![slot]).await.1,
                // The slot is gone before its waiter hears of it and takes the buffer apart.
                (slot, _) => {
                    drop(slot);
                    result.clone()
                }
            };
            self.histograms.note_latency(class, Direction::Read, started - arrived, started.elapsed());
            let _ = reply.send(result);
        }
    }

    async fn write_batch(&self, class: Priority, batch: Vec<Pending>) {
        let (begin, started) = (batch[0].offset, Instant::now());
        let mut data = Vec::with_capacity(2 * batch.len());
        let mut waiters = Vec::with_capacity(batch.len());
        let is_between = !batch[0].is_padding() && !batch[batch.len() - 1].is_padding();
        assert!(is_between, "padding is written between two writes");
        let mut end = begin;
        for pending in batch {
            assert_eq!(pending.offset, end, "what is written as one lies in one piece");
            end = pending.end();
            let pieces = match pending.io {
                Io::Write(pieces) => pieces,
                Io::Padding => {
                    data.push(Buf::zeroed(pending.length as usize));
                    Vec::new()
                }
                Io::Read(_) | Io::Trim(_) => unreachable!("a batch is of one kind"),
            };
            data.extend(pieces.iter().cloned());
            waiters.push((pending.offset, pieces, pending.arrived, pending.reply));
        }
        let alone = waiters.len() == 1;
        let result = self.device.write(begin, data).await;
        for (offset, pieces, arrived, reply) in waiters {
            if pieces.is_empty() {
                let _ = reply.send(Ok(()));
                continue;
            }
            let result =
                if result.is_err() && !alone { self.device.write(offset, pieces).await } else { result.clone() };
            self.histograms.note_latency(class, Direction::Write, started - arrived, started.elapsed());
            let _ = reply.send(result);
        }
    }
}

/// Reads `length` bytes into a buffer of their own.
pub(crate) async fn read_whole(
    queue: &Arc<Queue>,
    offset: u64,
    length: usize,
    priority: Priority,
) -> Result<platter_buffer::BufMut, DeviceError> {
    let (assembly, slot) = ReadSlot::whole(length);
    queue.read(offset, slot, priority).await?;
    Ok(finish(assembly))
}

/// Takes a filled buffer out of its assembly.
pub(crate) fn finish(assembly: Assembly) -> platter_buffer::BufMut {
    assembly.finish().expect("every transfer of this buffer is over")
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use platter_device::{Fault, FaultDevice, FaultKind, Geometry, MemDevice};

    use super::*;

    /// Lets others run before it answers, as a disk does: only then do transfers wait in the queue.
    #[derive(Debug)]
    struct Unhurried(Arc<dyn BlockDevice>);

    #[async_trait]
    impl BlockDevice for Unhurried {
        fn name(&self) -> String {
            self.0.name()
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
        async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
            tokio::task::yield_now().await;
            self.0.read_into(offset, slots).await
        }
        async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
            tokio::task::yield_now().await;
            self.0.write(offset, data).await
        }
        async fn flush(&self) -> Result<(), DeviceError> {
            self.0.flush().await
        }
        async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<(), DeviceError> {
            tokio::task::yield_now().await;
            self.0.trim(offset, length, kind).await
        }
    }

    #[tokio::test]
    async fn a_trim_that_nobody_waits_for_any_more_is_not_carried_out() {
        let (_, queue) = device();
        let places = [0, 1 << 20, 2 << 20];
        for offset in places {
            queue.write(offset, vec![Buf::copy_from(&[7; 4096])], Priority::SyncWrite).await.expect("write");
        }
        let trim = |offset| queue.trim(offset, 4096, TrimKind::Plain);
        let (mut first, mut second, mut third) = (Box::pin(trim(0)), Box::pin(trim(1 << 20)), Box::pin(trim(2 << 20)));
        for trim in [&mut first, &mut second, &mut third] {
            assert!(futures::poll!(trim).is_pending());
        }
        // It was waiting for its turn.
        drop(third);
        first.await.expect("trimmed");
        second.await.expect("trimmed");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        for (offset, byte) in places.into_iter().zip([0, 0, 7]) {
            assert_eq!(queue.device().read(offset, 4096).await.expect("read")[..], [byte; 4096], "{offset}");
        }
    }

    fn device() -> (Arc<FaultDevice>, Arc<Queue>) {
        let device = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("m", 64 << 20))));
        (device.clone(), Arc::new(Queue::new(Arc::new(Unhurried(device)), Arc::default())))
    }

    async fn write_sectors(queue: &Arc<Queue>, count: u64) -> Vec<Result<(), DeviceError>> {
        let writes = (0..count).map(|index| {
            let data = vec![Buf::copy_from(&[index as u8; 4096])];
            queue.write(index * 4096, data, Priority::AsyncWrite)
        });
        futures::future::join_all(writes).await
    }

    #[tokio::test]
    async fn what_is_read_ahead_is_not_passed_over_for_long() {
        let offsets = [50u64, 60, 70, 80, 10, 90, 99].map(|at| at << 20);
        let order_of = |in_turn: bool| {
            let mut class = Class { in_turn, position: 50 << 20, ..Class::default() };
            for (order, offset) in (0..).zip(offsets) {
                let (reply, _) = oneshot::channel();
                let io = Io::Read(ReadSlot::whole(4096).1);
                let (arrived, left_before) = (Instant::now(), class.left);
                class.add(order, Pending { offset, length: 4096, io, arrived, left_before, reply });
            }
            std::iter::from_fn(|| class.next_batch().first().map(|first| first.offset >> 20)).collect::<Vec<_>>()
        };
        assert_eq!(order_of(false), [50, 60, 70, 80, 90, 99, 10]);
        // After two by their places, those that came first.
        assert_eq!(order_of(true), [50, 60, 70, 80, 10, 90, 99]);
    }

    #[tokio::test]
    async fn waiting_neighbours_travel_together() {
        let (device, queue) = device();
        assert!(write_sectors(&queue, 1000).await.iter().all(Result::is_ok));
        let (_, writes, _) = device.transfers();
        assert!(writes <= 10 + 10, "{writes} transfers for 1000 neighbours");
        let reads = (0..500u64).map(|index| {
            let queue = queue.clone();
            async move {
                // Every other sector: the gaps are read along.
                let bytes = read_whole(&queue, index * 8192, 4096, Priority::SyncRead).await.expect("read");
                assert!(bytes.iter().all(|&byte| byte == (2 * index) as u8));
            }
        });
        futures::future::join_all(reads).await;
        let (reads, _, _) = device.transfers();
        assert!(reads <= 10 + 10, "{reads} transfers for 500 near neighbours");
        assert_eq!(queue.load(), 0);
        // Every waiter is in the latencies; what travelled together is one size.
        let seen = queue.histograms.snapshot();
        let sum = |histogram: &[u64]| histogram.iter().sum::<u64>();
        assert_eq!((sum(&seen.total[0]), sum(&seen.total[1])), (500, 1000));
        assert_eq!((sum(&seen.queue[Priority::SyncRead]), sum(&seen.queue[Priority::AsyncWrite])), (500, 1000));
        assert_eq!(sum(&seen.individual[Priority::AsyncWrite]) + sum(&seen.aggregated[Priority::AsyncWrite]), writes);
        assert!(sum(&seen.aggregated[Priority::AsyncWrite]) > 0 && sum(&seen.individual[Priority::AsyncRead]) == 0);
    }

    #[tokio::test]
    async fn a_bad_sector_fails_only_its_own_waiter() {
        let (device, queue) = device();
        device.inject(Fault { kind: FaultKind::WriteError, offset: 4096 * 77, length: 1, times: u64::MAX });
        device.inject(Fault { kind: FaultKind::ReadError, offset: 4096 * 99, length: 1, times: u64::MAX });
        let results = write_sectors(&queue, 200).await;
        let failed: Vec<usize> = (0..200).filter(|&index| results[index].is_err()).collect();
        assert_eq!(failed, [77]);
        let reads = (0..200u64).map(|index| read_whole(&queue, index * 4096, 4096, Priority::Scrub));
        let results = futures::future::join_all(reads).await;
        let failed: Vec<usize> = (0..200).filter(|&index| results[index].is_err()).collect();
        assert_eq!(failed, [99]);
    }

    #[tokio::test]
    async fn padding_is_written_only_where_it_joins_writes() {
        for is_bad in [false, true] {
            let (device, queue) = device();
            let stale = vec![Buf::copy_from(&[0xee; 4096 * 302])];
            queue.write(0, stale, Priority::AsyncWrite).await.expect("write");
            if is_bad {
                device.inject(Fault { kind: FaultKind::WriteError, offset: 4096 * 150, length: 1, times: u64::MAX });
            }
            let before = device.transfers().1;
            // Data at 1, 3, ..., 299; padding at 0, 2, ..., 298, and at 301, which touches no data.
            let writes = (0..150u64).map(|index| {
                let data = vec![Buf::copy_from(&[index as u8; 4096])];
                queue.write((2 * index + 1) * 4096, data, Priority::AsyncWrite)
            });
            let padding = (0..150).map(|index| 2 * index).chain([301]).map(|sector| queue.pad(sector * 4096, 4096));
            let (padding, writes) = (futures::future::join_all(padding), futures::future::join_all(writes));
            let (written, _) = futures::future::join(writes, padding).await;
            assert!(written.iter().all(Result::is_ok), "bad padding fails nobody");
            assert_eq!(queue.load(), 0);
            let transfers = device.transfers().1 - before;
            assert!(is_bad || transfers <= 4, "{transfers} transfers for 150 writes with padding between");
            let bytes = read_whole(&queue, 0, 4096 * 302, Priority::SyncRead).await.expect("read");
            let sector = |index: usize| &bytes[index * 4096..][..4096];
            assert!((0..150).all(|index| sector(2 * index + 1).iter().all(|&byte| byte == index as u8)));
            for index in [0, 301] {
                assert!(sector(index).iter().all(|&byte| byte == 0xee), "padding at an end was written");
            }
            let latencies: u64 = queue.histograms.snapshot().total[1].iter().sum();
            assert_eq!(latencies, 151, "nobody waits for padding");
        }
    }

    #[expect(clippy::disallowed_methods, reason = "threads without a runtime are what this is about")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn callers_outside_a_runtime_are_served() {
        let (_, queue) = device();
        let threads: Vec<_> = (0..40u64)
            .map(|index| {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    futures::executor::block_on(read_whole(&queue, index * 4096, 4096, Priority::AsyncRead))
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("thread").expect("read");
        }
    }

    #[tokio::test]
    async fn dropped_waiters_leave_no_place_occupied() {
        let (_, queue) = device();
        for _ in 0..100 {
            let many = futures::future::join_all((0..50).map(|i| read_whole(&queue, i * 4096, 4096, Priority::Scrub)));
            let _ = futures::future::select(Box::pin(many), Box::pin(tokio::task::yield_now())).await;
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(queue.load(), 0);
        assert!(write_sectors(&queue, 100).await.iter().all(Result::is_ok));
    }
}
