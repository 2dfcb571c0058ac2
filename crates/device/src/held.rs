//! Writes that a device is given later, by the next flush: what an import writes before it is sure.
//!
//! Invariants:
//! - until every block of an import's first group is there, and with it everything that the group had to read was read
//!   and understood, nothing of it reaches a device. An import that is refused before that leaves the devices as they
//!   were, whatever it was that damage hid in;
//! - reads see what is held back;
//! - what whoever asks for this [exempts](Room::new) goes through at once: labels and uberblocks, since the pool's own
//!   come after that flush, and a host that shares the pool (`multihost`) must be seen by others before anything else;
//! - what is held is bounded. An import that writes more is written as any other group is, and only what the uberblocks
//!   lead to is as it was when it is refused then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use platter_buffer::Buf;

use crate::slot::ReadSlot;

/// Bytes that go to the device in one piece, about.
const PIECE: u64 = 1 << 20;
/// And buffers, at most: a system call takes no more than 1024.
const PIECE_BUFFERS: usize = 256;

/// Tells by offset and the device's size whether a write is not held back.
pub type Exempt = fn(u64, u64) -> bool;

/// How much may still be held, for all devices of a pool together.
#[derive(Debug)]
pub struct Room {
    left: AtomicU64,
    exempt: Exempt,
}

impl Room {
    /// Room for so many bytes.
    pub fn new(bytes: u64, exempt: Exempt) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes), exempt })
    }

    /// There is none for anybody any more.
    pub fn close(&self) {
        self.left.store(0, Ordering::Release);
    }

    /// Takes some of it. Once there was too little there is none for anybody.
    fn take(&self, bytes: u64) -> bool {
        let taken = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes));
        if taken.is_err() {
            self.close();
        }
        taken.is_ok()
    }
}

/// What one device's writers believe to be written.
#[derive(Debug)]
pub struct Held {
    /// Cleared once and for all when everything was handed to the device.
    active: AtomicBool,
    room: Option<Arc<Room>>,
    /// By offset; nothing overlaps.
    writes: tokio::sync::Mutex<BTreeMap<u64, Buf>>,
}

/// Lays what was held back over what was read at `offset`.
pub fn lay_over(newer: &[(u64, Buf)], offset: u64, slots: &mut [ReadSlot]) {
    let mut at = offset;
    for slot in slots {
        let end = at + slot.len() as u64;
        for (start, buf) in newer {
            let (from, to) = (at.max(*start), end.min(start + buf.len() as u64));
            if from < to {
                let part = &buf[(from - start) as usize..(to - start) as usize];
                slot[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
            }
        }
        at = end;
    }
}

/// Puts `buf` in the place of whatever was there.
fn insert(writes: &mut BTreeMap<u64, Buf>, offset: u64, buf: Buf) {
    let end = offset + buf.len() as u64;
    let covered: Vec<u64> = overlapping(writes, offset, end).map(|(&start, _)| start).collect();
    for start in covered {
        let old = writes.remove(&start).expect("just found");
        if start < offset {
            writes.insert(start, Buf::copy_from(&old[..(offset - start) as usize]));
        }
        if start + old.len() as u64 > end {
            writes.insert(end, Buf::copy_from(&old[(end - start) as usize..]));
        }
    }
    debug_assert_eq!(overlapping(writes, offset, end).count(), 0, "nothing that is held overlaps");
    writes.insert(offset, buf);
}

fn overlapping(writes: &BTreeMap<u64, Buf>, from: u64, to: u64) -> impl Iterator<Item = (&u64, &Buf)> {
    let before = writes.range(..from).next_back().filter(|(start, buf)| *start + buf.len() as u64 > from);
    before.into_iter().chain(writes.range(from..to))
}

impl Held {
    /// Holds back as much as there is room for; nothing without one.
    pub fn new(room: Option<Arc<Room>>) -> Self {
        Self { active: AtomicBool::new(room.is_some()), room, writes: tokio::sync::Mutex::default() }
    }

    /// Whether anything may be held.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Whether a write is not to be held back.
    pub fn exempts(&self, offset: u64, size: u64) -> bool {
        self.room.as_ref().is_none_or(|room| (room.exempt)(offset, size))
    }

    /// Keeps what is written, or gives it back when it is to be written now: after all that was kept.
    pub async fn keep(&self, offset: u64, data: Vec<Buf>) -> Option<Vec<Buf>> {
        let mut writes = self.writes.lock().await;
        let length = data.iter().map(|buf| buf.len() as u64).sum();
        if !self.is_active() || !self.room.as_ref().is_some_and(|room| room.take(length)) {
            return Some(data);
        }
        let mut at = offset;
        for buf in data.into_iter().filter(|buf| !buf.is_empty()) {
            let length = buf.len() as u64;
            insert(&mut writes, at, buf);
            at += length;
        }
        None
    }

    /// What is held of `length` bytes at `offset`.
    pub async fn within(&self, offset: u64, length: u64) -> Vec<(u64, Buf)> {
        let writes = self.writes.lock().await;
        overlapping(&writes, offset, offset + length).map(|(&start, buf)| (start, buf.clone())).collect()
    }

    /// Begins to let everything go. Who writes or reads meanwhile waits.
    pub async fn let_go(&self) -> Release<'_> {
        let writes = self.writes.lock().await;
        let mut pieces: Vec<(u64, u64, Vec<Buf>)> = Vec::new();
        for (&start, buf) in &*writes {
            let length = buf.len() as u64;
            match pieces.last_mut() {
                Some((first, end, bufs)) if *end == start && bufs.len() < PIECE_BUFFERS && *end - *first < PIECE => {
                    bufs.push(buf.clone());
                    *end += length;
                }
                _ => pieces.push((start, start + length, vec![buf.clone()])),
            }
        }
        let is_whole = |(start, end, bufs): &(u64, u64, Vec<Buf>)| {
            bufs.len() <= PIECE_BUFFERS && bufs.iter().map(|buf| buf.len() as u64).sum::<u64>() == end - start
        };
        assert!(pieces.iter().all(is_whole), "what is written as one lies in one piece");
        let pieces = pieces.into_iter().map(|(start, _, bufs)| (start, bufs)).collect();
        Release { held: self, writes, pieces }
    }
}

/// What was held, on its way to the device. Unless it is [done](Self::done) all of it stays held, to be tried again.
pub struct Release<'a> {
    held: &'a Held,
    writes: tokio::sync::MutexGuard<'a, BTreeMap<u64, Buf>>,
    /// Offsets and what is to be written there, in the order of the device.
    pub pieces: Vec<(u64, Vec<Buf>)>,
}

impl Release<'_> {
    /// Everything is with the device: from now on nothing is held, unless this was a flush before the first write.
    pub fn done(mut self) {
        let room = self.held.room.as_ref().is_some_and(|room| room.left.load(Ordering::Acquire) > 0);
        if !self.writes.is_empty() || !room {
            self.writes.clear();
            self.held.active.store(false, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(value: u8, length: usize) -> Buf {
        Buf::copy_from(&vec![value; length])
    }

    #[tokio::test]
    async fn what_is_held_is_read_and_written_as_it_was_written_last() {
        let held = Held::new(Some(Room::new(1 << 20, |_, _| false)));
        assert_eq!(held.keep(4096, vec![bytes(1, 1024), bytes(2, 1024)]).await, None);
        assert_eq!(held.keep(4608, vec![bytes(3, 1024)]).await, None);
        let (assembly, slot) = ReadSlot::whole(2048);
        let mut slots = vec![slot];
        slots[0].fill(9);
        lay_over(&held.within(4000, 2048).await, 4000, &mut slots);
        drop(slots);
        let read = assembly.finish().expect("all slots are gone");
        let runs = [(9, 96), (1, 512), (3, 1024), (2, 416)];
        let expected: Vec<u8> = runs.iter().flat_map(|&(value, length)| vec![value; length]).collect();
        assert_eq!(read[..], expected[..]);
        let release = held.let_go().await;
        let lengths = |bufs: &[Buf]| bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>();
        let pieces: Vec<_> = release.pieces.iter().map(|(offset, bufs)| (*offset, lengths(bufs))).collect();
        assert_eq!(pieces, [(4096, vec![512, 1024, 512])]);
        release.done();
        assert!(!held.is_active());
    }

    #[tokio::test]
    async fn a_device_that_refuses_gets_everything_again_and_an_early_flush_ends_nothing() {
        let held = Held::new(Some(Room::new(1 << 20, |_, _| false)));
        held.let_go().await.done();
        assert!(held.is_active(), "nothing was written yet");
        held.keep(8192, vec![bytes(1, 512)]).await;
        drop(held.let_go().await);
        assert!(held.is_active());
        let release = held.let_go().await;
        assert_eq!(release.pieces.len(), 1);
        release.done();
        assert!(held.let_go().await.pieces.is_empty());
    }

    #[tokio::test]
    async fn who_finds_no_room_ends_it_for_all_devices() {
        let room = Room::new(1000, |_, _| false);
        let (one, other) = (Held::new(Some(room.clone())), Held::new(Some(room)));
        assert_eq!(one.keep(0, vec![bytes(1, 600)]).await, None);
        assert!(other.keep(0, vec![bytes(1, 600)]).await.is_some());
        assert!(one.keep(600, vec![bytes(1, 100)]).await.is_some(), "there was room for this, but it is over");
    }
}
