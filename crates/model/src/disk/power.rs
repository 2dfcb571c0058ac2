//! What a power cut leaves of what was not flushed.
//!
//! Invariants: what is stable stays; of the other writes, in the cache or on their way, any subset survives, each whole
//! or torn at a sector; where survivors overlap, the younger wins. The disk's seed decides.

use std::collections::BTreeMap;

use platter_buffer::Buf;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::drive::{State, store};
use super::fault::FaultKind;

/// What became of the unflushed writes of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Aftermath {
    pub(super) survived: u64,
    pub(super) torn: u64,
    pub(super) lost: u64,
}

/// Cuts the power: decides about every unflushed write and forgets everything else that was on its way.
pub(super) fn cut(state: &mut State, block: u64) -> Aftermath {
    let mut writes: BTreeMap<u64, (u64, Vec<Buf>)> = BTreeMap::new();
    for (number, cached) in std::mem::take(&mut state.cache) {
        writes.insert(number, (cached.offset, cached.data));
    }
    for (number, command) in std::mem::take(&mut state.commands) {
        if command.is_write() && !command.data.is_empty() {
            writes.entry(number).or_insert((command.offset, command.data));
        }
    }
    // Some cuts spare everything or nothing; most a part.
    let spared_percent = [0, 25, 50, 75, 100][state.random.next_u32() as usize % 5];
    let mut aftermath = Aftermath::default();
    let all = writes.len() as u64;
    let mut unfinished = 0;
    let random = &mut state.random;
    for (offset, data) in writes.into_values() {
        let length = data.iter().map(|buf| buf.len() as u64).sum::<u64>();
        if random.next_u32() % 100 < spared_percent {
            store(&mut state.stable, offset, &data);
            aftermath.survived += 1;
            (0..std::mem::take(&mut unfinished)).for_each(|_| state.counts.count(FaultKind::ReorderedWrite));
            continue;
        }
        unfinished += 1;
        if length > block && random.next_u32().is_multiple_of(3) {
            for (from, to) in torn(random, length, block) {
                assert!(from.is_multiple_of(block) && from < to && to <= length, "a write is torn at a sector");
                let mut bytes = Vec::with_capacity(length as usize);
                data.iter().for_each(|buf| bytes.extend_from_slice(buf));
                state.stable.write_at(offset + from, &bytes[from as usize..to as usize]);
            }
            aftermath.torn += 1;
            state.counts.count(FaultKind::TornWrite);
        } else {
            aftermath.lost += 1;
        }
    }
    assert_eq!(aftermath.survived + aftermath.torn + aftermath.lost, all, "each write has one fate");
    state.drop_commands();
    state.current = state.stable.clone();
    state.hung = false;
    state.connection += 1;
    aftermath
}

/// The parts of a torn write that are stored: its beginning, mostly; sometimes any of its sectors.
fn torn(random: &mut ChaCha20Rng, length: u64, block: u64) -> Vec<(u64, u64)> {
    let sectors = length.div_ceil(block);
    if random.next_u32().is_multiple_of(4) {
        let some = (0..sectors).filter(|_| random.next_u32() & 1 == 1);
        some.map(|sector| (sector * block, ((sector + 1) * block).min(length))).collect()
    } else {
        vec![(0, (1 + random.next_u64() % (sectors - 1)) * block)]
    }
}
