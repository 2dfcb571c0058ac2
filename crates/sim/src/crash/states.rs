//! From what was written to what a crash may leave: for every moment, the writes that flushes had made stable, and any
//! choice among the others.
//!
//! Invariant: which states are made depends only on the events and the limits, and each is made once for each moment of
//! the workload that it can be at.

use std::collections::{BTreeMap, BTreeSet};

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::record::Event;
use platter_model::disk::Image;

/// Bytes that a disk writes as a whole or not at all.
pub const SECTOR: usize = 512;

/// How far the choices go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Up to this many unflushed writes every subset is made.
    pub exhaustive: usize,
    /// With more of them, before each flush: whether each one is lost alone.
    pub each_alone: bool,
    /// And this many random subsets.
    pub random: usize,
    /// Whether the intent log has blocks already when the workload begins. The first `fsync` of a mount waits for its
    /// whole group instead, until the log has a place.
    pub log_begun: bool,
}

impl Limits {
    /// For few workloads.
    pub const WIDE: Self = Self { exhaustive: 5, each_alone: true, random: 8, log_begun: false };
    /// For many workloads.
    pub const NARROW: Self = Self { exhaustive: 3, each_alone: false, random: 4, log_begun: true };
}

/// How much of an unflushed write is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// All of it.
    All,
    /// Its first sectors.
    First(usize),
    /// All but its first sectors.
    From(usize),
}

/// One state of the disks.
#[derive(Clone, Debug)]
pub struct State {
    /// Disks.
    pub images: Vec<Image>,
    /// Says which bytes are different from the beginning's, and how: states with the same bytes have the same key.
    pub key: u128,
    /// Operations that had begun.
    pub begun: usize,
    /// Operations that had returned.
    pub ended: usize,
    /// For a person: which unflushed writes were there.
    pub story: String,
}

#[derive(Clone, Debug)]
struct Pending {
    write: usize,
    disk: usize,
    offset: u64,
    data: Vec<u8>,
    /// A number for each of its sectors.
    numbers: Vec<u128>,
    acknowledged: Option<usize>,
}

/// Sectors that differ from the base, each with a number that stands for its content.
type Changed = BTreeMap<(usize, u64), u128>;

/// Goes through the events and shows each state once.
pub struct Walk<'a> {
    base: &'a [Image],
    durable: Vec<Image>,
    changed: Changed,
    pending: Vec<Pending>,
    begun: usize,
    ended: usize,
    limits: Limits,
    random: ChaCha20Rng,
    seen: BTreeSet<(u128, usize, usize)>,
}

fn sector_number(disk: usize, sector: u64, bytes: &[u8], base: &Image) -> u128 {
    let mut before = [0; SECTOR];
    base.read_at(sector * SECTOR as u64, &mut before);
    if before == bytes {
        return 0;
    }
    let mut hash = blake3::Hasher::new();
    hash.update(&(disk as u64).to_le_bytes());
    hash.update(&sector.to_le_bytes());
    hash.update(bytes);
    u128::from_le_bytes(hash.finalize().as_bytes()[..16].try_into().expect("sixteen bytes"))
}

impl<'a> Walk<'a> {
    /// A walk from the disks' contents before the first event on.
    pub fn new(base: &'a [Image], limits: Limits, seed: u64) -> Self {
        Self {
            base,
            durable: base.to_vec(),
            changed: Changed::new(),
            pending: Vec::new(),
            begun: 0,
            ended: 0,
            limits,
            random: ChaCha20Rng::seed_from_u64(seed),
            seen: BTreeSet::new(),
        }
    }

    /// Shows every state to `each` until it says that it wants no more.
    pub fn run(mut self, events: &[Event], each: &mut dyn FnMut(State) -> bool) {
        for (index, event) in events.iter().enumerate() {
            let go_on = match event {
                Event::Submitted { write, disk, offset, data } => {
                    let numbers = sector_numbers(*disk, *offset, data, &self.base[*disk]);
                    self.pending.push(Pending {
                        write: *write,
                        disk: *disk,
                        offset: *offset,
                        data: data.clone(),
                        numbers,
                        acknowledged: None,
                    });
                    self.after_write(each)
                }
                Event::Acknowledged { write } => {
                    let found = self.pending.iter_mut().find(|pending| pending.write == *write);
                    if let Some(pending) = found {
                        pending.acknowledged = Some(index);
                    }
                    true
                }
                Event::Flushed { disk, began } => self.before_flush(each) && self.flush(*disk, *began, each),
                Event::Began { operation } => {
                    self.begun = operation + 1;
                    true
                }
                Event::Ended { operation } => {
                    self.ended = operation + 1;
                    self.extremes(each)
                }
            };
            if !go_on {
                return;
            }
        }
        self.extremes(each);
    }

    fn flush(&mut self, disk: usize, began: usize, each: &mut dyn FnMut(State) -> bool) -> bool {
        let covered = |pending: &Pending| pending.disk == disk && pending.acknowledged.is_some_and(|at| at < began);
        for pending in std::mem::take(&mut self.pending) {
            if covered(&pending) {
                assert!(pending.offset.is_multiple_of(SECTOR as u64), "whole sectors are written");
                self.durable[disk].write_at(pending.offset, &pending.data);
                note(&mut self.changed, disk, pending.offset / SECTOR as u64, &pending.numbers);
            } else {
                self.pending.push(pending);
            }
        }
        self.extremes(each)
    }

    /// Nothing that is unflushed, and all of it.
    fn extremes(&mut self, each: &mut dyn FnMut(State) -> bool) -> bool {
        let all = self.all();
        self.show(&[], each) && self.show(&all, each)
    }

    fn all(&self) -> Vec<(usize, Part)> {
        (0..self.pending.len()).map(|index| (index, Part::All)).collect()
    }

    fn after_write(&mut self, each: &mut dyn FnMut(State) -> bool) -> bool {
        let newest = self.pending.len() - 1;
        let mut choices: Vec<Vec<(usize, Part)>> = Vec::new();
        if newest < self.limits.exhaustive {
            for subset in 0..1usize << newest {
                let mut chosen: Vec<_> =
                    (0..newest).filter(|bit| subset >> bit & 1 == 1).map(|bit| (bit, Part::All)).collect();
                chosen.push((newest, Part::All));
                choices.push(chosen);
            }
        } else {
            choices.push(self.all());
            choices.push(vec![(newest, Part::All)]);
        }
        let sectors = self.pending[newest].data.len() / SECTOR;
        if sectors > 1 {
            let cut = 1 + self.random.next_u32() as usize % (sectors - 1);
            let before: Vec<_> = (0..newest).map(|index| (index, Part::All)).collect();
            for part in [Part::First(cut), Part::From(cut)] {
                choices.push(before.iter().copied().chain([(newest, part)]).collect());
            }
        }
        choices.iter().all(|choice| self.show(choice, each))
    }

    fn before_flush(&mut self, each: &mut dyn FnMut(State) -> bool) -> bool {
        let count = self.pending.len();
        if count <= self.limits.exhaustive {
            return true;
        }
        let mut choices: Vec<Vec<(usize, Part)>> = Vec::new();
        for missing in (0..count).filter(|_| self.limits.each_alone) {
            choices.push((0..count).filter(|&index| index != missing).map(|index| (index, Part::All)).collect());
        }
        for _ in 0..self.limits.random {
            let bits: Vec<bool> = (0..count).map(|_| self.random.next_u32() & 1 == 1).collect();
            choices.push((0..count).filter(|&index| bits[index]).map(|index| (index, Part::All)).collect());
        }
        choices.iter().all(|choice| self.show(choice, each))
    }

    fn show(&mut self, chosen: &[(usize, Part)], each: &mut dyn FnMut(State) -> bool) -> bool {
        assert!(chosen.is_sorted_by(|(one, _), (next, _)| one < next), "each write is there once, in order");
        let mut changed: Changed = Changed::new();
        let mut applied: Vec<(usize, u64, &[u8])> = Vec::with_capacity(chosen.len());
        for &(index, part) in chosen {
            let pending = &self.pending[index];
            let sectors = match part {
                Part::All => 0..pending.numbers.len(),
                Part::First(sectors) => 0..sectors,
                Part::From(sectors) => sectors..pending.numbers.len(),
            };
            let offset = pending.offset + (sectors.start * SECTOR) as u64;
            note(&mut changed, pending.disk, offset / SECTOR as u64, &pending.numbers[sectors.clone()]);
            let end = pending.data.len().min(sectors.end * SECTOR);
            applied.push((pending.disk, offset, &pending.data[sectors.start * SECTOR..end]));
        }
        let unchanged = self.changed.iter().filter(|(sector, _)| !changed.contains_key(sector));
        let key = unchanged.chain(&changed).fold(0u128, |sum, (_, number)| sum.wrapping_add(*number));
        if !self.seen.insert((key, self.begun, self.ended)) {
            return true;
        }
        let mut images = self.durable.clone();
        for (disk, offset, data) in applied {
            images[disk].write_at(offset, data);
        }
        let story = self.story(chosen);
        each(State { images, key, begun: self.begun, ended: self.ended, story })
    }

    fn story(&self, chosen: &[(usize, Part)]) -> String {
        if chosen.len() == self.pending.len() && chosen.iter().all(|(_, part)| *part == Part::All) {
            return format!("all {} unflushed writes", self.pending.len());
        }
        let name = |(index, part): &(usize, Part)| {
            let pending = &self.pending[*index];
            let what = format!(
                "{} (disk {} at {:#x}, {} bytes)",
                pending.write,
                pending.disk,
                pending.offset,
                pending.data.len()
            );
            match part {
                Part::All => what,
                Part::First(sectors) => format!("first {sectors} sectors of {what}"),
                Part::From(sectors) => format!("all but the first {sectors} sectors of {what}"),
            }
        };
        let there: Vec<String> = chosen.iter().map(name).collect();
        format!("of {} unflushed writes only [{}]", self.pending.len(), there.join(", "))
    }
}

/// Adds the sectors of a write to those that differ from the base.
fn note(changed: &mut Changed, disk: usize, first: u64, numbers: &[u128]) {
    changed.extend((first..).zip(numbers).map(|(sector, number)| ((disk, sector), *number)));
}

fn sector_numbers(disk: usize, offset: u64, data: &[u8], base: &Image) -> Vec<u128> {
    let sectors = (offset / SECTOR as u64..).zip(data.chunks(SECTOR));
    sectors.map(|(sector, bytes)| sector_number(disk, sector, bytes, base)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submitted(write: usize, offset: u64, byte: u8, length: usize) -> Event {
        Event::Submitted { write, disk: 0, offset, data: vec![byte; length] }
    }

    fn contents(events: &[Event]) -> BTreeSet<Vec<u8>> {
        let base = [Image::default()];
        let mut found = BTreeSet::new();
        Walk::new(&base, Limits::WIDE, 1).run(events, &mut |state| {
            let mut bytes = vec![0; 4 * SECTOR];
            state.images[0].read_at(0, &mut bytes);
            found.insert(bytes.chunks(SECTOR).map(|sector| sector[0]).collect());
            true
        });
        found
    }

    #[test]
    fn every_choice_of_unflushed_writes_is_a_state() {
        let events = [submitted(0, 0, 1, SECTOR), submitted(1, 512, 2, SECTOR)];
        let expected = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 2, 0, 0], [1, 2, 0, 0]];
        assert_eq!(contents(&events), expected.map(|state| state.to_vec()).into());
    }

    #[test]
    fn a_flush_keeps_only_what_was_acknowledged_when_it_began() {
        let events = [
            submitted(0, 0, 1, SECTOR),
            submitted(1, 512, 2, SECTOR),
            Event::Acknowledged { write: 0 },
            Event::Acknowledged { write: 1 },
            Event::Flushed { disk: 0, began: 3 },
            submitted(2, 1024, 3, SECTOR),
        ];
        let with_third: Vec<Vec<u8>> = contents(&events).into_iter().filter(|state| state[2] == 3).collect();
        assert_eq!(with_third, [vec![1, 0, 3, 0], vec![1, 2, 3, 0]], "the first is there, the second may be");
    }

    #[test]
    fn a_write_of_several_sectors_can_be_torn() {
        let events = [submitted(0, 0, 1, 2 * SECTOR)];
        assert!(contents(&events).contains(&vec![1, 0, 0, 0]));
        assert!(contents(&events).contains(&vec![0, 1, 0, 0]));
    }

    #[test]
    fn states_with_the_same_bytes_have_the_same_key() {
        let base = [Image::default()];
        let events = [submitted(0, 0, 1, SECTOR), submitted(1, 0, 7, SECTOR), submitted(2, 0, 1, SECTOR)];
        let mut keys: BTreeMap<Vec<u8>, BTreeSet<u128>> = BTreeMap::new();
        Walk::new(&base, Limits::WIDE, 1).run(&events, &mut |state| {
            let mut bytes = vec![0; SECTOR];
            state.images[0].read_at(0, &mut bytes);
            keys.entry(bytes).or_default().insert(state.key);
            true
        });
        assert_eq!(keys.len(), 3);
        assert!(keys.values().all(|keys| keys.len() == 1));
    }
}
