//! How long a disk of flash takes.
//!
//! Invariants:
//! - a page is programmed once and then erased with its whole block; what is overwritten or trimmed is garbage until
//!   then, and what is still valid in a block that is to be erased is copied first;
//! - the units (dies on channels) work side by side, each on one thing at a time.

use std::collections::BTreeMap;

use crate::clock::Nanos;

/// The data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flash {
    /// Channels.
    pub channels: u32,
    /// Dies on each channel, which work side by side.
    pub dies: u32,
    /// Reading one page.
    pub read: Nanos,
    /// Programming one page.
    pub program: Nanos,
    /// Erasing one block.
    pub erase: Nanos,
    /// Bytes of a page that is programmed at once (all planes).
    pub page: u64,
    /// Pages in a block that is erased at once.
    pub block_pages: u64,
    /// Space beyond the size, in percent.
    pub spare_percent: u64,
}

/// Bytes that are mapped one by one.
const SLOT: u64 = 4096;
/// Blocks kept free for the collection of garbage itself.
const RESERVE: u64 = 2;

#[derive(Debug, Default)]
struct Block {
    /// The logical slot each position was written with; it is valid when the map still points here.
    slots: Vec<u64>,
    valid: u64,
}

/// The chips and the map from slots to them.
#[derive(Debug)]
pub(super) struct Chips {
    sheet: Flash,
    free_at: Vec<Nanos>,
    /// Where each logical slot is: block and position.
    map: BTreeMap<u64, (u64, u64)>,
    blocks: BTreeMap<u64, Block>,
    blocks_max: u64,
    /// The block being filled.
    open: u64,
    next: u64,
    slots_per_block: u64,
    /// Slots programmed for the host, and those that collecting garbage copied.
    written: (u64, u64),
}

impl Chips {
    pub(super) fn new(sheet: Flash, size: u64) -> Self {
        let units = (sheet.channels * sheet.dies).max(1) as usize;
        let block_bytes = sheet.page.max(SLOT) * sheet.block_pages.max(1);
        let blocks_max = (size + size / 100 * sheet.spare_percent).div_ceil(block_bytes) + RESERVE + 2;
        Self {
            sheet,
            free_at: vec![0; units],
            map: BTreeMap::new(),
            blocks: BTreeMap::from([(0, Block::default())]),
            blocks_max,
            open: 0,
            next: 1,
            slots_per_block: block_bytes / SLOT,
            written: (0, 0),
        }
    }

    fn slots_per_page(&self) -> u64 {
        (self.sheet.page / SLOT).max(1)
    }

    /// Gives a unit `work`, the one that is free first; when it is done.
    fn spend(&mut self, now: Nanos, work: Nanos) -> Nanos {
        let unit = self.free_at.iter_mut().min().expect("at least one unit");
        *unit = (*unit).max(now) + work;
        *unit
    }

    pub(super) fn read(&mut self, now: Nanos, offset: u64, length: u64) -> Nanos {
        let pages = length
            .div_ceil(self.sheet.page)
            .max(1)
            .max((offset + length).div_ceil(self.sheet.page) - offset / self.sheet.page);
        (0..pages).map(|_| self.spend(now, self.sheet.read)).max().unwrap_or(now)
    }

    pub(super) fn write(&mut self, now: Nanos, offset: u64, length: u64) -> Nanos {
        let (first, last) = (offset / SLOT, (offset + length).div_ceil(SLOT));
        let mut done = now;
        if !offset.is_multiple_of(SLOT) || !length.is_multiple_of(SLOT) {
            // Part of a slot: the rest of it comes from where it was.
            done = self.spend(now, self.sheet.read);
        }
        let begin = done;
        for slot in first..last {
            let collected = self.make_room();
            if collected > 0 {
                done = done.max(self.spend(begin, collected));
            }
            self.put(slot);
        }
        self.written.0 += last - first;
        for _ in 0..(last - first).div_ceil(self.slots_per_page()) {
            done = done.max(self.spend(begin, self.sheet.program));
        }
        done
    }

    /// `length` bytes at `offset` are no longer wanted.
    pub(super) fn trim(&mut self, offset: u64, length: u64) {
        for slot in offset.div_ceil(SLOT)..(offset + length) / SLOT {
            self.forget(slot);
        }
    }

    /// Slots programmed, for each slot that the host wrote, in percent.
    pub(super) fn amplification_percent(&self) -> u64 {
        let (host, copied) = self.written;
        ((host + copied) * 100).checked_div(host).unwrap_or(100)
    }

    fn forget(&mut self, slot: u64) {
        if let Some((block, _)) = self.map.remove(&slot)
            && let Some(block) = self.blocks.get_mut(&block)
        {
            block.valid -= 1;
        }
    }

    fn put(&mut self, slot: u64) {
        self.forget(slot);
        if self.blocks[&self.open].slots.len() as u64 >= self.slots_per_block {
            self.open = self.next;
            self.next += 1;
            self.blocks.insert(self.open, Block::default());
        }
        let block = self.blocks.get_mut(&self.open).expect("the open block exists");
        self.map.insert(slot, (self.open, block.slots.len() as u64));
        block.slots.push(slot);
        block.valid += 1;
        assert!(block.slots.len() as u64 <= self.slots_per_block, "a page is programmed once");
        assert!(block.valid <= block.slots.len() as u64, "what is valid was programmed");
    }

    /// Erases blocks until there is a reserve again; how long that takes.
    fn make_room(&mut self) -> Nanos {
        let mut work = 0;
        while self.blocks.len() as u64 + RESERVE > self.blocks_max {
            let closed = self.blocks.iter().filter(|(id, _)| **id != self.open);
            let Some((&victim, _)) = closed.min_by_key(|(id, block)| (block.valid, **id)) else { break };
            let block = self.blocks.remove(&victim).expect("just found");
            if block.valid >= self.slots_per_block {
                // Nothing to gain anywhere: the disk is really full, and overwrites will make garbage.
                self.blocks.insert(victim, block);
                break;
            }
            let mut copied = 0;
            for (position, &slot) in block.slots.iter().enumerate() {
                if self.map.get(&slot) == Some(&(victim, position as u64)) {
                    self.map.remove(&slot);
                    self.put(slot);
                    copied += 1;
                }
            }
            assert_eq!(copied, block.valid, "what is valid in an erased block was copied first");
            self.written.1 += block.valid;
            let pages = block.valid.div_ceil(self.slots_per_page());
            work += pages * (self.sheet.read + self.sheet.program) + self.sheet.erase;
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Parameters;

    const SIZE: u64 = 256 << 20;

    fn chips() -> Chips {
        Chips::new(Parameters::sata_ssd(SIZE).flash().expect("it is flash"), SIZE)
    }

    #[test]
    fn units_work_side_by_side() {
        let mut disk = chips();
        let one = disk.write(0, 0, disk.sheet.page);
        let mut disk = chips();
        let units = u64::from(disk.sheet.channels * disk.sheet.dies);
        assert_eq!(disk.write(0, 0, disk.sheet.page * units), one);
        assert_eq!(disk.write(one, 0, disk.sheet.page * (units + 1)), 3 * one);
    }

    #[test]
    fn random_overwrites_of_a_full_disk_copy_and_trim_helps() {
        let fill = |disk: &mut Chips| {
            for offset in (0..SIZE).step_by(1 << 20) {
                disk.write(0, offset, 1 << 20);
            }
        };
        let overwrite = |disk: &mut Chips| {
            let mut place = 1_u64;
            for _ in 0..100_000 {
                place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                disk.write(0, (place >> 20) % (SIZE / 4 / SLOT) * SLOT, SLOT);
            }
            disk.amplification_percent()
        };
        let mut full = chips();
        fill(&mut full);
        let copied = overwrite(&mut full);
        let mut trimmed = chips();
        fill(&mut trimmed);
        trimmed.trim(SIZE / 2, SIZE / 2);
        let less = overwrite(&mut trimmed);
        assert!(copied > 105 && less < copied, "{copied} {less}");
    }

    #[test]
    fn writing_in_order_copies_nothing() {
        let mut disk = chips();
        for _ in 0..3 {
            for offset in (0..SIZE).step_by(1 << 20) {
                disk.write(0, offset, 1 << 20);
            }
        }
        assert_eq!(disk.amplification_percent(), 100);
    }
}
