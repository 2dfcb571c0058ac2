//! A leaf's queue: how many transfers of each class run at once, in which order, and which are joined
//! (`module/zfs/vdev_queue.c`).
//!
//! Invariants:
//! - at most as many transfers of a class are with the device as its rules say ([`crate::priority`]), and of the
//!   background fewer while others use the device ([`crate::yielding`]), so that a scrub does not starve a reader;
//! - a transfer that finds its class idle goes to the device at once, on the caller's own task; beyond those that go at
//!   once, writes of a group's data go only when they make a large transfer together with their neighbours;
//! - waiting transfers of a class leave in ascending order of offset, wrapping around; neighbours leave as one transfer
//!   of up to [`JOIN_MAX`] bytes, reads across gaps of up to [`READ_GAP_MAX`](crate::queue_class::READ_GAP_MAX) bytes;
//! - padding is written only between two writes that it joins, and is over when it is left out;
//! - a trim travels alone: whoever asks for it has joined what can be joined;
//! - what is fetched ahead of a reader is passed over [`PASSED_MAX`](crate::queue_class::PASSED_MAX) times at most;
//! - a joined transfer that fails is repeated piece by piece, so that each waiter gets its own result;
//! - no lock is held across an await.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::{Assembly, BlockDevice, DeviceError, ReadSlot, TrimKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::histograms::Histograms;
use crate::priority::{Direction, PerClass, Priority, Stance};
use crate::queue_class::{Class, Io, JOIN_MAX, Pending};
use crate::yielding::Yielding;

struct State {
    classes: PerClass<Class>,
    arrivals: u64,
    yielding: Yielding,
}

impl Default for State {
    fn default() -> Self {
        let class = |class: Priority| Class { in_turn: class.rules().in_turn, ..Class::default() };
        Self { classes: PerClass::from_fn(class), arrivals: 0, yielding: Yielding::default() }
    }
}

impl State {
    /// Whether one more of a class may go to the device as soon as it comes; it does then.
    fn goes_at_once(&mut self, class: Priority) -> bool {
        let (rules, now) = (class.rules(), Instant::now());
        let limit = match rules.stance {
            Stance::Background => self.yielding.limit(now, rules.at_once),
            Stance::Awaited | Stance::Beside => rules.at_once,
        };
        let goes = self.classes[class].active < limit;
        if goes {
            self.classes[class].active += 1;
            self.begins(class, now);
        }
        goes
    }

    /// Notes that one goes to the device.
    fn begins(&mut self, class: Priority, now: Instant) {
        match class.rules().stance {
            Stance::Awaited => self.yielding.other_begins(now),
            Stance::Background => self.yielding.background_begins(now),
            Stance::Beside => {}
        }
    }

    /// One of a class has ended, after so long: the next that travel in its place; none when none waits, or when it
    /// makes way.
    fn next_in_place(&mut self, class: Priority, took: Duration) -> Vec<Pending> {
        let (rules, now) = (class.rules(), Instant::now());
        if rules.stance == Stance::Awaited {
            self.yielding.other_ends(now, took);
        }
        let makes_way = rules.stance == Stance::Background
            && self.classes[class].active > self.yielding.limit(now, rules.active_max);
        let batch = if makes_way { Vec::new() } else { self.classes[class].next_batch() };
        if batch.is_empty() {
            let active = &mut self.classes[class].active;
            *active = active.checked_sub(1).expect("whoever looks for more has a place");
        } else {
            self.begins(class, now);
        }
        batch
    }

    /// A batch of the background that waits and may go now.
    fn background_batch(&mut self) -> Option<(Priority, Vec<Pending>)> {
        let now = Instant::now();
        for class in Priority::ALL {
            let rules = class.rules();
            let waiting = &self.classes[class];
            let is_background = rules.stance == Stance::Background && !waiting.pending.is_empty();
            if is_background && waiting.active < self.yielding.limit(now, rules.active_max) {
                self.classes[class].active += 1;
                let batch = self.classes[class].next_batch();
                assert!(!batch.is_empty(), "what waits in the background is no padding");
                self.begins(class, now);
                return Some((class, batch));
            }
        }
        None
    }

    /// Whether something of the background waits that nobody will look after.
    fn leaves_waiting(&self) -> bool {
        // One that is with the device makes place for the next when it ends, and so do others.
        let waits = |class: &Priority| {
            let Class { active, pending, .. } = &self.classes[*class];
            class.rules().stance == Stance::Background && *active == 0 && !pending.is_empty()
        };
        !self.yielding.is_watched && !self.yielding.has_others() && Priority::ALL.iter().any(waits)
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
    since: Instant,
}

impl Drop for ActivePlace<'_> {
    fn drop(&mut self) {
        let batch = self.queue.next_batch(self.class, self.since.elapsed());
        self.queue.send_off(self.class, batch);
        self.queue.look_after_background();
    }
}

impl Queue {
    /// The queue of a device that was opened.
    ///
    /// # Panics
    /// When the runtime has no timers: what makes way for others waits for one.
    pub fn new(device: Arc<dyn BlockDevice>, histograms: Arc<Histograms>) -> Self {
        let runtime = Handle::try_current().ok();
        if runtime.is_some() {
            // Otherwise only the first wait would tell, in a task of its own, and the background would stand for ever.
            drop(tokio::time::sleep(Duration::ZERO));
        }
        Self { device, state: Mutex::default(), runtime, histograms }
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
            if matches!(io, Io::Padding) && state.classes[class].active < rules.at_once {
                return Ok(());
            }
            if state.goes_at_once(class) {
                Err(io)
            } else {
                state.arrivals += 1;
                let order = state.arrivals;
                let (reply, answer) = oneshot::channel();
                let waiting = &mut state.classes[class];
                let left_before = waiting.left;
                waiting.add(order, Pending { offset, length, io, arrived, left_before, reply });
                let one_more = rules.stance != Stance::Background
                    && waiting.active < rules.active_max
                    && waiting.waiting >= JOIN_MAX;
                let batch = if one_more {
                    waiting.active += 1;
                    assert!(waiting.active <= rules.active_max, "too many transfers are with the device");
                    let batch = waiting.next_batch();
                    state.begins(class, arrived);
                    batch
                } else {
                    Vec::new()
                };
                Ok((answer, batch))
            }
        };
        let answer = match queued {
            Ok((answer, batch)) => {
                self.send_off(class, batch);
                if rules.stance == Stance::Background {
                    self.look_after_background();
                }
                answer
            }
            Err(io) => {
                let _place = ActivePlace { queue: self, class, since: arrived };
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
    fn next_batch(&self, class: Priority, took: Duration) -> Vec<Pending> {
        self.state.lock().next_in_place(class, took)
    }

    /// Sends what waits in the background and may go; of what may not, somebody looks again when it is calm.
    fn look_after_background(self: &Arc<Self>) {
        loop {
            let (next, is_left) = {
                let mut state = self.state.lock();
                let next = state.background_batch();
                let is_left = next.is_none() && state.leaves_waiting();
                state.yielding.is_watched |= is_left;
                (next, is_left)
            };
            match next {
                Some((class, batch)) => self.send_off(class, batch),
                None if is_left => return self.watch(),
                None => return,
            }
        }
    }

    /// Looks again when nobody else has used the device for a moment, until nothing waits.
    fn watch(self: &Arc<Self>) {
        let Some(runtime) = self.runtime.clone().or_else(|| Handle::try_current().ok()) else { return };
        let queue = Arc::downgrade(self);
        runtime.spawn(async move {
            let mut pause = Duration::ZERO;
            loop {
                tokio::time::sleep(pause).await;
                let Some(queue) = queue.upgrade() else { return };
                while let Some((class, batch)) = { queue.state.lock().background_batch() } {
                    queue.send_off(class, batch);
                }
                let mut state = queue.state.lock();
                state.yielding.is_watched = false;
                if !state.leaves_waiting() {
                    return;
                }
                state.yielding.is_watched = true;
                pause = state.yielding.until_calm(Instant::now());
            }
        });
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
            let started = Instant::now();
            self.carry_out(class, batch).await;
            batch = self.next_batch(class, started.elapsed());
            self.look_after_background();
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

    /// Serves one after the other, each as slowly.
    #[derive(Debug)]
    struct OneArm(Arc<dyn BlockDevice>, tokio::sync::Mutex<()>);

    #[async_trait]
    impl BlockDevice for OneArm {
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
            let _arm = self.1.lock().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.0.read_into(offset, slots).await
        }
        async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
            self.0.write(offset, data).await
        }
        async fn flush(&self) -> Result<(), DeviceError> {
            self.0.flush().await
        }
        async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<(), DeviceError> {
            self.0.trim(offset, length, kind).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_scrub_makes_way_for_a_reader_and_comes_to_its_end() {
        let arm = OneArm(Arc::new(MemDevice::new("m", 64 << 20)), tokio::sync::Mutex::default());
        let queue = Arc::new(Queue::new(Arc::new(arm), Arc::default()));
        let scrubs = (0..200u64).map(|index| {
            let queue = queue.clone();
            tokio::spawn(async move { read_whole(&queue, index * 100_000, 4096, Priority::Scrub).await.map(drop) })
        });
        let scrubs: Vec<_> = scrubs.collect();
        tokio::task::yield_now().await;
        let begin = Instant::now();
        for _ in 0..40 {
            read_whole(&queue, 32 << 20, 4096, Priority::SyncRead).await.expect("read");
        }
        let took = begin.elapsed();
        assert!(took < Duration::from_millis(40 * 10 * 3 / 2), "40 reads of 10 ms took {took:?}");
        let done = scrubs.iter().filter(|scrub| scrub.is_finished()).count();
        assert!((8..=16).contains(&done), "{done} of a scrub beside 40 reads");
        for scrub in scrubs {
            scrub.await.expect("no panic").expect("read");
        }
        let all = begin.elapsed();
        assert!(all < Duration::from_millis(240 * 10 + 100), "240 reads of 10 ms took {all:?}");
        assert!(!queue.state.lock().leaves_waiting());
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
