//! A command's way through a drive: queue, link, cache, medium, link, answer.
//!
//! Invariants:
//! - `current` is what a read sees; it is `stable` (what survives a power cut) with the writes in the cache on top, in
//!   their order; without a write cache the two are the same;
//! - a write that overlaps an older one in the cache goes to the medium after it;
//! - a flush is answered when every write that was acknowledged before it began is stable, unless it lies;
//! - an answer is given once, and the waiter's going away changes nothing about what the drive does;
//! - a drive without time (`Mechanism::Instant`) uses no events: every command is over when `submit` returns.

mod schedule;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use futures::channel::oneshot;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::error::Operation;
use platter_device::{DeviceError, ReadSlot};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::fault::{self, Fate, Fault, FaultCounts, FaultKind, FaultPlan, Target};
use super::flash::Chips;
use super::history::{History, digest};
use super::image::Image;
use super::link::{Link, transfer};
use super::parameters::{Mechanism, Parameters};
use super::spinning::Platters;
use super::supply::PowerSupply;
use crate::clock::{MILLISECOND, Nanos, SECOND, SimClock};

/// Which disk of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u32);

/// Commands that a drive was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Trims.
    pub trims: u64,
    /// Bytes given up.
    pub trimmed_bytes: u64,
}

impl Traffic {
    pub(super) fn count(&mut self, target: Target, length: u64) {
        let (commands, bytes) = match target {
            Target::Read => (&mut self.reads, Some(&mut self.read_bytes)),
            Target::Write => (&mut self.writes, Some(&mut self.written_bytes)),
            Target::Flush => (&mut self.flushes, None),
            Target::Trim => (&mut self.trims, Some(&mut self.trimmed_bytes)),
        };
        *commands += 1;
        if let Some(bytes) = bytes {
            *bytes += length;
        }
    }
}

pub(super) type Outcome = Result<(), DeviceError>;
pub(super) type Answer = (Vec<ReadSlot>, Outcome);

/// What is asked of a drive.
pub(super) enum Request {
    Read(Vec<ReadSlot>),
    Write(Vec<Buf>),
    Flush,
    /// So many bytes.
    Trim(u64),
}

pub(super) struct Command {
    target: Target,
    pub(super) offset: u64,
    length: u64,
    slots: Vec<ReadSlot>,
    pub(super) data: Vec<Buf>,
    fate: Fate,
    /// When a write's data have come over the links.
    across: Nanos,
    delay: Nanos,
    outcome: Outcome,
    reply: oneshot::Sender<Answer>,
}

impl Command {
    pub(super) fn is_write(&self) -> bool {
        self.target == Target::Write
    }
}

/// An acknowledged write that is not yet stable.
pub(super) struct Cached {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) data: Vec<Buf>,
    /// Older writes to the same place.
    after: BTreeSet<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    Read(u64),
    Write(u64),
    Destage(u64),
}

#[derive(Clone, Copy)]
enum Step {
    Ready(u64),
    Done(Job),
    Answer(u64),
}

enum Medium {
    Nothing,
    Platters(Box<Platters>),
    Chips(Box<Chips>),
}

pub(super) struct State {
    pub(super) random: ChaCha20Rng,
    /// Connections made before this one are dead.
    pub(super) connection: u64,
    pub(super) present: bool,
    pub(super) hung: bool,
    pub(super) full: bool,
    pub(super) slow: Nanos,
    pub(super) size: u64,
    pub(super) stable: Image,
    pub(super) current: Image,
    pub(super) cache: BTreeMap<u64, Cached>,
    cached_bytes: u64,
    pub(super) commands: BTreeMap<u64, Command>,
    next: u64,
    /// Not yet taken by the drive, for its queue is full.
    waiting: VecDeque<u64>,
    taken: usize,
    /// Wants the medium.
    jobs: Vec<Job>,
    in_service: usize,
    medium: Medium,
    /// Flushes with the cached writes that they wait for.
    flushes: BTreeMap<u64, BTreeSet<u64>>,
    /// Writes for which the cache has no room yet.
    stalled: VecDeque<u64>,
    /// Came while the drive hung.
    held: Vec<u64>,
    pub(super) faults: Vec<Fault>,
    pub(super) plan: FaultPlan,
    pub(super) counts: FaultCounts,
    /// Sectors (in physical blocks) that cannot be read.
    pub(super) unreadable: BTreeSet<u64>,
    pub(super) traffic: Traffic,
}

pub(super) struct Drive {
    pub(super) id: DiskId,
    pub(super) name: String,
    pub(super) parameters: Parameters,
    pub(super) clock: Arc<SimClock>,
    pub(super) links: Vec<Arc<Link>>,
    pub(super) history: Option<Arc<History>>,
    pub(super) supply: Arc<PowerSupply>,
    pub(super) state: Mutex<State>,
}

/// One trim of so many leaves garbage behind.
const GARBAGE_EVERY: u32 = 4;
/// The longest that a command which was chosen to be slow takes more.
const SLOW_MAX: Nanos = 2 * SECOND;
/// The longest that a drive hangs by itself.
const HANG_MAX: Nanos = 20 * SECOND;

impl State {
    pub(super) fn new(parameters: &Parameters, random: ChaCha20Rng, image: Image) -> Self {
        let physical = u64::from(parameters.geometry.physical_block);
        let medium = match parameters.mechanism {
            Mechanism::Instant => Medium::Nothing,
            Mechanism::Spinning(sheet) => Medium::Platters(Box::new(Platters::new(sheet, parameters.size, physical))),
            Mechanism::Flash(sheet) => Medium::Chips(Box::new(Chips::new(sheet, parameters.size))),
        };
        Self {
            random,
            connection: 0,
            present: true,
            hung: false,
            full: false,
            slow: 0,
            size: parameters.size,
            stable: image.clone(),
            current: image,
            cache: BTreeMap::new(),
            cached_bytes: 0,
            commands: BTreeMap::new(),
            next: 0,
            waiting: VecDeque::new(),
            taken: 0,
            jobs: Vec::new(),
            in_service: 0,
            medium,
            flushes: BTreeMap::new(),
            stalled: VecDeque::new(),
            held: Vec::new(),
            faults: Vec::new(),
            plan: FaultPlan::default(),
            counts: FaultCounts::default(),
            unreadable: BTreeSet::new(),
            traffic: Traffic::default(),
        }
    }

    /// Forgets everything on its way; whoever waits for it learns that the drive is gone.
    pub(super) fn drop_commands(&mut self) {
        self.commands.clear();
        self.cache.clear();
        self.cached_bytes = 0;
        self.waiting.clear();
        self.taken = 0;
        self.jobs.clear();
        self.in_service = 0;
        self.flushes.clear();
        self.stalled.clear();
        self.held.clear();
    }

    /// Where something was there are zeros now, or, if chance wants it, something else.
    pub(super) fn trim(&mut self, offset: u64, length: u64) {
        let before = self.current.clone();
        self.current.discard(offset, length);
        if self.random.next_u32().is_multiple_of(GARBAGE_EVERY) {
            for part in before.stored(offset, length) {
                let mut garbage = vec![0; (part.end - part.start) as usize];
                self.random.fill_bytes(&mut garbage);
                self.current.write_at(part.start, &garbage);
            }
        }
        if self.cache.is_empty() {
            self.stable = self.current.clone();
        }
        if let Medium::Chips(chips) = &mut self.medium {
            chips.trim(offset, length);
        }
    }

    pub(super) fn amplification_percent(&self) -> u64 {
        match &self.medium {
            Medium::Chips(chips) => chips.amplification_percent(),
            _ => 100,
        }
    }
}

/// Puts buffers one after the other into an image.
pub(super) fn store(image: &mut Image, mut offset: u64, data: &[Buf]) {
    for buf in data {
        image.write_at(offset, buf);
        offset += buf.len() as u64;
    }
}

impl Drive {
    pub(super) fn gone(&self, reason: &str) -> DeviceError {
        DeviceError::Gone { device: self.name.clone(), reason: reason.into() }
    }

    fn failed(&self, target: Target, offset: u64, length: u64, errno: i32) -> DeviceError {
        let operation = match target {
            Target::Read => Operation::Read,
            Target::Write => Operation::Write,
            Target::Flush => Operation::Flush,
            Target::Trim => Operation::Trim,
        };
        let source = Arc::new(std::io::Error::from_raw_os_error(errno));
        DeviceError::Io { device: self.name.clone(), operation, offset, length, source }
    }

    fn sectors(&self, offset: u64, length: u64) -> Range<u64> {
        let block = u64::from(self.parameters.geometry.physical_block);
        offset / block..(offset + length).div_ceil(block)
    }

    /// Takes a command; the answer comes through the channel, which closes when the drive goes away before that.
    pub(super) fn submit(
        self: &Arc<Self>,
        connection: u64,
        offset: u64,
        request: Request,
    ) -> Result<oneshot::Receiver<Answer>, (Vec<ReadSlot>, DeviceError)> {
        let (target, slots, data, trimmed) = match request {
            Request::Read(slots) => (Target::Read, slots, Vec::new(), 0),
            Request::Write(data) => (Target::Write, Vec::new(), data, 0),
            Request::Flush => (Target::Flush, Vec::new(), Vec::new(), 0),
            Request::Trim(length) => (Target::Trim, Vec::new(), Vec::new(), length),
        };
        let length = trimmed
            + slots.iter().map(|slot| slot.len() as u64).sum::<u64>()
            + data.iter().map(|buf| buf.len() as u64).sum::<u64>();
        let mut state = self.state.lock();
        if !state.present || state.connection != connection {
            return Err((slots, self.gone("it was disconnected")));
        }
        if !self.supply.carries_one_more() {
            return Err((slots, self.gone("it has no power")));
        }
        if offset.checked_add(length).is_none_or(|end| end > state.size) {
            let size = state.size;
            let operation = if target == Target::Read { Operation::Read } else { Operation::Write };
            let device = self.name.clone();
            return Err((slots, DeviceError::Truncated { device, operation, offset, length, size }));
        }
        let number = state.next;
        state.next += 1;
        state.traffic.count(target, length);
        let fate = self.decide(&mut state, target, offset, length);
        let (reply, receiver) = oneshot::channel();
        let command =
            Command { target, offset, length, slots, data, fate, across: 0, delay: 0, outcome: Ok(()), reply };
        state.commands.insert(number, command);
        if state.hung {
            state.held.push(number);
        } else {
            self.take(&mut state, number);
            self.go_on(&mut state);
        }
        Ok(receiver)
    }

    /// What chance and the faults that wait make of a command, and of the drive meanwhile.
    fn decide(self: &Arc<Self>, state: &mut State, target: Target, offset: u64, length: u64) -> Fate {
        let plan = state.plan;
        if plan.strikes(FaultKind::BitRot, &mut state.random) {
            let place = state.random.next_u64();
            self.rot(state, place);
        }
        if plan.strikes(FaultKind::LatentSectorError, &mut state.random)
            && let Some(place) = state.current.inhabited(state.random.next_u64())
        {
            let sectors = 1 + u64::from(state.random.next_u32() % 8);
            let first = self.sectors(place, 1).start;
            state.unreadable.extend(first..first + sectors);
            state.counts.count(FaultKind::LatentSectorError);
        }
        if !state.hung && plan.strikes(FaultKind::Hang, &mut state.random) {
            state.hung = true;
            state.counts.count(FaultKind::Hang);
            let (drive, clock) = (self.clone(), self.clock.clone());
            let until = clock.now() + state.random.next_u64() % HANG_MAX;
            tokio::spawn(async move {
                clock.sleep_until(until).await;
                drive.release(&mut drive.state.lock());
            });
        }
        fault::decide(&mut state.faults, &plan, &mut state.random, target, offset..offset + length.max(1))
    }

    /// Changes one bit where something is stored.
    pub(super) fn rot(&self, state: &mut State, chance: u64) -> Option<u64> {
        let place = state.current.inhabited(chance >> 3)?;
        for image in [&mut state.current, &mut state.stable] {
            let mut byte = [0];
            image.read_at(place, &mut byte);
            byte[0] ^= 1 << (chance & 7);
            image.write_at(place, &byte);
        }
        state.counts.count(FaultKind::BitRot);
        Some(place)
    }

    /// A drive that hung goes on.
    pub(super) fn release(self: &Arc<Self>, state: &mut State) {
        state.hung = false;
        for number in std::mem::take(&mut state.held) {
            self.take(state, number);
        }
        self.go_on(state);
    }

    fn later(self: &Arc<Self>, state: &State, when: Nanos, step: Step) {
        let (drive, connection) = (self.clone(), state.connection);
        self.clock.call_at(when, move || {
            let mut state = drive.state.lock();
            // Whatever was on its way when the power went is no longer.
            if state.connection == connection && !drive.supply.is_out() {
                drive.step(&mut state, step);
                drive.go_on(&mut state);
            }
        });
    }

    fn take(self: &Arc<Self>, state: &mut State, number: u64) {
        if matches!(state.medium, Medium::Nothing) {
            state.taken += 1;
            self.ready(state, number);
        } else {
            state.waiting.push_back(number);
        }
    }

    /// Takes what waits into the queue, and gives the medium something to do.
    fn go_on(self: &Arc<Self>, state: &mut State) {
        while state.taken < self.parameters.queue_depth.max(1)
            && let Some(number) = state.waiting.pop_front()
        {
            state.taken += 1;
            let command = state.commands.get_mut(&number).expect("it waits");
            let mut when = self.clock.now() + self.parameters.overhead;
            if command.is_write() {
                let (first, last) = transfer(&self.links, when, self.id.0, command.length);
                command.across = last;
                // A cache takes whole commands; the medium begins as soon as there is something to begin with.
                when = if self.parameters.write_cache > 0 { last } else { first };
            }
            self.later(state, when, Step::Ready(number));
        }
        while let Some(job) = self.choose(state) {
            self.start(state, job);
        }
    }

    fn step(self: &Arc<Self>, state: &mut State, step: Step) {
        match step {
            Step::Ready(number) => self.ready(state, number),
            Step::Done(job) => self.done(state, job),
            Step::Answer(number) => self.answer(state, number),
        }
    }

    /// The command, and a write's data, have reached the drive.
    fn ready(self: &Arc<Self>, state: &mut State, number: u64) {
        let Some(command) = state.commands.get(&number) else { return };
        match command.target {
            Target::Read if matches!(state.medium, Medium::Nothing) || self.is_cached(state, command) => {
                self.read_out(state, number);
            }
            Target::Read => state.jobs.push(Job::Read(number)),
            Target::Write if state.full || command.fate.kind == Some(FaultKind::HostFull) => {
                let error = self.failed(Target::Write, command.offset, command.length, 28);
                state.counts.count(FaultKind::HostFull);
                self.answer_with(state, number, Err(error));
            }
            Target::Write if self.parameters.write_cache == 0 && matches!(state.medium, Medium::Nothing) => {
                self.store_now(state, number);
            }
            Target::Write if self.parameters.write_cache == 0 => state.jobs.push(Job::Write(number)),
            Target::Write if state.stalled.is_empty() && self.has_room(state, command.length) => {
                self.accept(state, number);
            }
            Target::Write => state.stalled.push_back(number),
            Target::Flush => self.flush(state, number),
            Target::Trim => {
                let (offset, length) = (command.offset, command.length);
                state.trim(offset, length);
                self.answer_with(state, number, Ok(()));
            }
        }
    }

    fn has_room(&self, state: &State, length: u64) -> bool {
        state.cache.is_empty() || state.cached_bytes.saturating_add(length) <= self.parameters.write_cache
    }

    fn is_cached(&self, state: &State, command: &Command) -> bool {
        let end = command.offset + command.length;
        state.cache.values().any(|cached| cached.offset <= command.offset && end <= cached.offset + cached.length)
    }

    fn flush(self: &Arc<Self>, state: &mut State, number: u64) {
        if state.commands[&number].fate.kind == Some(FaultKind::LyingFlush) {
            if !state.cache.is_empty() {
                state.counts.count(FaultKind::LyingFlush);
            }
            return self.answer_with(state, number, Ok(()));
        }
        if matches!(state.medium, Medium::Nothing) {
            state.cache.clear();
            state.cached_bytes = 0;
            state.stable = state.current.clone();
        }
        let covers: BTreeSet<u64> = state.cache.keys().copied().collect();
        if covers.is_empty() {
            self.answer_with(state, number, Ok(()));
        } else {
            state.flushes.insert(number, covers);
        }
    }

    /// What a write really does to the medium: nothing, a part, the whole, or the whole elsewhere.
    fn strike(&self, state: &mut State, number: u64) -> Option<(u64, u64, Vec<Buf>)> {
        let command = state.commands.get_mut(&number).expect("in progress");
        let (offset, length) = (command.offset, command.length);
        let data = std::mem::take(&mut command.data);
        let Fate { kind, chance } = command.fate;
        let block = u64::from(self.parameters.geometry.logical_block);
        let struck = match kind {
            Some(FaultKind::LostWrite) => None,
            Some(FaultKind::TornWrite) if length > block => {
                let kept = (1 + chance % (length.div_ceil(block) - 1)) * block;
                Some((offset, kept, first_bytes(data, kept)))
            }
            Some(FaultKind::TornWrite) => None,
            Some(FaultKind::MisdirectedWrite) => {
                Some((elsewhere(&state.current, state.size, block, offset, length, chance), length, data))
            }
            _ => Some((offset, length, data)),
        };
        if let Some(kind @ (FaultKind::LostWrite | FaultKind::TornWrite | FaultKind::MisdirectedWrite)) = kind {
            state.counts.count(kind);
        }
        if let Some((offset, length, _)) = &struck {
            for sector in self.sectors(*offset, *length) {
                if state.unreadable.is_empty() {
                    break;
                }
                state.unreadable.remove(&sector);
            }
        }
        struck
    }

    /// Into the cache: the write is acknowledged.
    fn accept(self: &Arc<Self>, state: &mut State, number: u64) {
        self.note_data(state, number);
        if let Some((offset, length, data)) = self.strike(state, number) {
            store(&mut state.current, offset, &data);
            let mut after = BTreeSet::new();
            if !matches!(state.medium, Medium::Nothing) {
                let overlaps =
                    |cached: &Cached| cached.offset < offset + length && offset < cached.offset + cached.length;
                after.extend(state.cache.iter().filter(|(_, cached)| overlaps(cached)).map(|(&number, _)| number));
                state.jobs.push(Job::Destage(number));
            }
            state.cached_bytes += length;
            state.cache.insert(number, Cached { offset, length, data, after });
        }
        self.answer_with(state, number, Ok(()));
    }

    /// Onto the medium: the write is acknowledged and stable.
    fn store_now(self: &Arc<Self>, state: &mut State, number: u64) {
        self.note_data(state, number);
        if let Some((offset, _, data)) = self.strike(state, number) {
            store(&mut state.current, offset, &data);
            store(&mut state.stable, offset, &data);
        }
        self.answer_with(state, number, Ok(()));
    }

    /// The medium has done its part.
    fn done(self: &Arc<Self>, state: &mut State, job: Job) {
        state.in_service -= 1;
        match job {
            Job::Read(number) => self.read_out(state, number),
            Job::Write(number) => self.store_now(state, number),
            Job::Destage(number) => {
                if let Some(cached) = state.cache.remove(&number) {
                    let is_next = cached.after.iter().all(|older| !state.cache.contains_key(older));
                    assert!(is_next, "a write goes to the medium after older ones to the same place");
                    store(&mut state.stable, cached.offset, &cached.data);
                    state.cached_bytes -= cached.length;
                }
                if state.cache.is_empty() {
                    assert_eq!(state.cached_bytes, 0, "what is cached is counted");
                    // The same bytes, now in the same memory.
                    state.stable = state.current.clone();
                }
                self.emptied(state, number);
            }
        }
    }

    /// One write less in the cache: flushes may be over, and others have room.
    fn emptied(self: &Arc<Self>, state: &mut State, number: u64) {
        for covers in state.flushes.values_mut() {
            covers.remove(&number);
        }
        while let Some((&flush, _)) = state.flushes.iter().find(|(_, covers)| covers.is_empty()) {
            state.flushes.remove(&flush);
            self.answer_with(state, flush, Ok(()));
        }
        while let Some(&stalled) = state.stalled.front()
            && self.has_room(state, state.commands[&stalled].length)
        {
            state.stalled.pop_front();
            self.accept(state, stalled);
        }
    }

    /// Fills a read's buffers and sends them to the host.
    fn read_out(self: &Arc<Self>, state: &mut State, number: u64) {
        let command = state.commands.get_mut(&number).expect("in progress");
        let (mut offset, length) = (command.offset, command.length);
        let Fate { kind, chance } = command.fate;
        if kind == Some(FaultKind::MisdirectedRead) {
            let block = u64::from(self.parameters.geometry.logical_block);
            offset = elsewhere(&state.current, state.size, block, offset, length, chance);
            state.counts.count(FaultKind::MisdirectedRead);
        }
        let mut position = offset;
        for slot in &mut command.slots {
            state.current.read_at(position, slot);
            position += slot.len() as u64;
        }
        let unreadable = state.unreadable.range(self.sectors(offset, length)).next().is_some();
        let outcome = if unreadable { Err(self.failed(Target::Read, offset, length, 5)) } else { Ok(()) };
        state.commands.get_mut(&number).expect("in progress").outcome = outcome;
        if matches!(state.medium, Medium::Nothing) {
            return self.answer(state, number);
        }
        let when = transfer(&self.links, self.clock.now(), self.id.0, length).1;
        self.later(state, when, Step::Answer(number));
    }

    fn answer_with(self: &Arc<Self>, state: &mut State, number: u64, outcome: Outcome) {
        state.commands.get_mut(&number).expect("in progress").outcome = outcome;
        self.answer(state, number);
    }

    /// Answers, at once or after the time by which this command or this drive is slow.
    fn answer(self: &Arc<Self>, state: &mut State, number: u64) {
        let Some(command) = state.commands.get_mut(&number) else { return };
        let mut slow = state.slow;
        if command.fate.kind == Some(FaultKind::Slow) {
            slow += MILLISECOND + command.fate.chance % SLOW_MAX;
            state.counts.count(FaultKind::Slow);
        }
        if slow > 0 && command.delay == 0 {
            command.delay = slow;
            command.fate.kind = None;
            let when = self.clock.now() + slow;
            return self.later(state, when, Step::Answer(number));
        }
        let command = state.commands.remove(&number).expect("just found");
        state.taken -= 1;
        self.note(number, &command);
        // Whoever waited may have gone away.
        let _ = command.reply.send((command.slots, command.outcome));
    }

    fn note(&self, number: u64, command: &Command) {
        let Some(history) = &self.history else { return };
        let what = match command.target {
            Target::Read => format!("read {}", digest(command.slots.iter().map(|slot| &slot[..]))),
            Target::Write => "write".into(),
            Target::Flush => "flush".into(),
            Target::Trim => "trim".into(),
        };
        let outcome = match (&command.outcome, command.fate.kind) {
            (Err(_), _) => "failed",
            (Ok(()), Some(kind)) => kind.name(),
            (Ok(()), None) => "ok",
        };
        let (disk, offset, length) = (self.id.0, command.offset, command.length);
        history.note(format!("{} disk {disk} #{number} {what} {offset}+{length} {outcome}", self.clock.now()));
    }

    /// What a write carries, noted before it is given away.
    fn note_data(&self, state: &State, number: u64) {
        if let Some(history) = &self.history {
            let data = digest(state.commands[&number].data.iter().map(|buf| &buf[..]));
            history.note(format!("disk {} #{number} data {data}", self.id.0));
        }
    }
}

fn first_bytes(data: Vec<Buf>, mut bytes: u64) -> Vec<Buf> {
    let mut first = Vec::new();
    for buf in data {
        let take = bytes.min(buf.len() as u64);
        if take > 0 {
            first.push(buf.slice(..take as usize));
        }
        bytes -= take;
    }
    first
}

/// Another place for a misdirected transfer: a near neighbour, or anywhere that something is stored; never the right
/// one.
fn elsewhere(image: &Image, size: u64, block: u64, offset: u64, length: u64, chance: u64) -> u64 {
    let last = size.saturating_sub(length) / block;
    let near = (offset / block + 1 + (chance >> 2) % 64) % (last + 1);
    let far = image.inhabited(chance >> 2).map_or(near, |place| (place / block).min(last));
    let chosen = if chance & 1 == 0 { near } else { far };
    let chosen = if chosen * block == offset { (chosen + 1) % (last + 1) } else { chosen };
    chosen * block
}
