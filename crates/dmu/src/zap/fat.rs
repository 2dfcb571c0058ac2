//! A live fat ZAP: lookups, additions with leaf splits and pointer table growth, removals with leaf merges
//! (`module/zfs/zap_fat.c`).
//!
//! Invariants:
//! - the header's fields in [`Fat`] are those on "disk"; each change of the structure ends with [`Fat::write_header`];
//! - the pointers of a leaf are the `2^(table shift - prefix length)` neighbours that start with its prefix;
//! - a table that another writer left half grown is finished before any pointer changes.

use platter_buffer::Buf;
use platter_ondisk::zap::fat::{ENTRIES_AT, block_shift, embedded_shift, prefix};
use platter_ondisk::zap::leaf_edit::NewEntry;
use platter_ondisk::zap::{
    FLAG_HASH64, FatHeader, Leaf, LeafEntry, LeafMut, Outcome, PointerTable, ZapDamage, cd_limit, cursor, cursor_parts,
    hash_bits,
};
use platter_zio::{Result, Tx, ZioError};

use crate::core::Dnode;
use crate::zap_entries::key::{Key, Naming, damaged, value_bytes, value_from_bytes};
use crate::zap_entries::value::{ZapEntry, ZapValue};

/// Pointers are rewritten in pieces of this many bytes.
const POINTER_PIECE: u64 = 128 << 10;
/// A pointer table of up to so many blocks is believed. A longer one must be less than what the pool has in use for
/// [`SPACE_PER_TABLE_BLOCK`]: behind the 2048 pointers of a 16 KiB block stand hundreds of leaves. Where hashes are
/// short a few hundred names with one hash make the longest table there is, which then compresses to nearly nothing.
const TABLE_BLOCKS_BELIEVED: u64 = 1024;
const SPACE_PER_TABLE_BLOCK: u64 = 16 << 10;
/// Blocks read ahead when a listing starts.
const PREFETCH_BLOCKS: u64 = 512;

/// Whether a table of `2^shift` pointers is never made: two bits of each hash stay unused.
fn longer_than_hashes(shift: u64, flags: u64) -> bool {
    shift + 1 >= u64::from(hash_bits(flags))
}

/// A fat ZAP during one operation.
pub(super) struct Fat<'a> {
    dnode: &'a Dnode,
    header: FatHeader,
    shift: u32,
}

/// What to do when the name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfPresent {
    Fail,
    Replace,
}

impl<'a> Fat<'a> {
    /// Reads the header from block 0.
    pub fn open(dnode: &'a Dnode, block: &[u8]) -> Result<Self> {
        let damaged = damaged(dnode.object());
        let header = FatHeader::decode(block).map_err(&damaged)?;
        let fat = Self { dnode, header, shift: block_shift(block.len()).map_err(&damaged)? };
        let blocks = header.table.blocks;
        let short = !longer_than_hashes(header.table.shift, header.flags) && header.flags & FLAG_HASH64 == 0;
        if !short && blocks > TABLE_BLOCKS_BELIEVED && blocks > dnode.core.store().space_used() / SPACE_PER_TABLE_BLOCK
        {
            return Err(fat.corrupt(format!("a pointer table of {blocks} blocks, more than the pool has use for")));
        }
        Ok(fat)
    }

    /// Makes the object's blocks 0 and 1 an empty fat ZAP. The object's block size must be set already.
    pub async fn format(dnode: &'a Dnode, tx: &Tx, naming: Naming) -> Result<Self> {
        let size = dnode.block_size() as usize;
        let shift = block_shift(size).map_err(damaged(dnode.object()))?;
        let header = FatHeader::new(shift, naming.salt, naming.normalization, naming.flags);
        let mut block = Buf::zeroed(size);
        let bytes = block.make_mut();
        let encoded = header.encode();
        bytes[..encoded.len()].copy_from_slice(&encoded);
        for pointer in bytes[size / 2..].chunks_exact_mut(8) {
            pointer.copy_from_slice(&1u64.to_le_bytes());
        }
        let fat = Self { dnode, header, shift };
        let mut leaf = Buf::zeroed(size);
        LeafMut::format(leaf.make_mut(), 0, 0, naming.normalization != 0).map_err(damaged(dnode.object()))?;
        dnode.write_block(tx, 0, block).await?;
        dnode.write_block(tx, 1, leaf).await?;
        Ok(fat)
    }

    pub fn naming(&self) -> Naming {
        Naming { salt: self.header.salt, normalization: self.header.normalization, flags: self.header.flags }
    }

    pub fn count(&self) -> u64 {
        self.header.entries
    }

    /// Leaves, and the number of the next new block.
    #[cfg(test)]
    pub fn sizes(&self) -> (u64, u64) {
        (self.header.leaves, self.header.free_block)
    }

    fn corrupt(&self, detail: impl std::fmt::Display) -> ZioError {
        ZioError::corrupt("fat ZAP", format!("object {}: {detail}", self.dnode.object()))
    }

    fn damaged(&self) -> impl Fn(platter_ondisk::zap::ZapDamage) -> ZioError + use<> {
        damaged(self.dnode.object())
    }

    async fn read_block(&self, block: u64) -> Result<Buf> {
        let buf = self.dnode.read_metadata(block).await?;
        if buf.len() != 1 << self.shift {
            return Err(self.corrupt(format!("block {block} has {} bytes", buf.len())));
        }
        Ok(buf)
    }

    /// As [`Self::read_block`] when memory has it as it should be.
    fn read_block_now(&self, block: u64) -> Option<Buf> {
        self.dnode.read_block_now(block).filter(|buf| buf.len() == 1 << self.shift)
    }

    async fn write_header(&self, tx: &Tx) -> Result<()> {
        self.dnode.write(tx, 0, &self.header.encode()).await
    }

    async fn write_entry_count(&self, tx: &Tx) -> Result<()> {
        self.dnode.write(tx, ENTRIES_AT as u64, &self.header.entries.to_le_bytes()).await
    }

    async fn pointer(&self, index: u64) -> Result<u64> {
        let (block, at) = self.place_of_pointer(index);
        Ok(pointer_at(&self.read_block(block).await?, at))
    }

    /// The block that has a pointer, and where in it.
    fn place_of_pointer(&self, index: u64) -> (u64, usize) {
        let offset = self.header.pointer_offset(index, self.shift);
        (offset >> self.shift, offset as usize & ((1 << self.shift) - 1))
    }

    async fn set_pointers(&self, tx: &Tx, first: u64, count: u64, block: u64) -> Result<()> {
        let start = self.header.pointer_offset(first, self.shift);
        let piece = block.to_le_bytes().repeat((count * 8).min(POINTER_PIECE) as usize / 8);
        let mut done = 0;
        while done < count * 8 {
            let length = (count * 8 - done).min(POINTER_PIECE);
            self.dnode.write(tx, start + done, &piece[..length as usize]).await?;
            done += length;
        }
        Ok(())
    }

    /// The leaf for `hash`: its block number and bytes, checked.
    async fn leaf(&self, hash: u64) -> Result<(u64, Buf)> {
        let number = self.pointer(self.header.pointer_index(hash)).await?;
        if !self.may_be_leaf(number) {
            return Err(self.corrupt(format!("a pointer to leaf {number} of {}", self.header.free_block)));
        }
        let block = self.read_block(number).await?;
        let leaf = Leaf::open(&block).map_err(self.damaged())?;
        if !self.leads_to(&leaf, hash) {
            return Err(self.corrupt(format!(
                "leaf {number} is for {}-bit prefix {:#x}, hash {hash:#x} led there",
                leaf.prefix_length(),
                leaf.prefix()
            )));
        }
        Ok((number, block))
    }

    fn may_be_leaf(&self, number: u64) -> bool {
        number != 0 && number < self.header.free_block
    }

    fn leads_to(&self, leaf: &Leaf<'_>, hash: u64) -> bool {
        u64::from(leaf.prefix_length()) <= self.header.table.shift && leaf.covers(hash)
    }

    /// As [`Self::get`] when memory has all of it as it should be.
    pub fn get_now(&self, key: &Key) -> Option<Option<ZapValue>> {
        let hash = key.hash?;
        let (block, at) = self.place_of_pointer(self.header.pointer_index(hash));
        let number = pointer_at(&self.read_block_now(block)?, at);
        if !self.may_be_leaf(number) {
            return None;
        }
        let block = self.read_block_now(number)?;
        let leaf = Leaf::open(&block).ok().filter(|leaf| self.leads_to(leaf, hash))?;
        match leaf.lookup(hash, &key.stored, key.integer_size).ok()? {
            Some(entry) => self.entry_value(&leaf, &entry).ok().map(Some),
            None => Some(None),
        }
    }

    fn entry_value(&self, leaf: &Leaf<'_>, entry: &LeafEntry) -> Result<ZapValue> {
        let bytes = leaf.value(entry).map_err(self.damaged())?;
        Ok(value_from_bytes(entry.value_integer_size, &bytes))
    }

    /// The value of `key`.
    pub async fn get(&self, key: &Key) -> Result<Option<ZapValue>> {
        let Some(hash) = key.hash else {
            let name = self.naming().shown(key.stored.clone());
            return Ok(self.scan(|other| other == name).await?.map(|entry| entry.value));
        };
        let (_, block) = self.leaf(hash).await?;
        let leaf = Leaf::open(&block).map_err(self.damaged())?;
        match leaf.lookup(hash, &key.stored, key.integer_size).map_err(self.damaged())? {
            Some(entry) => self.entry_value(&leaf, &entry).map(Some),
            None => Ok(None),
        }
    }

    /// The first entry (in differentiator order) with `key`'s hash whose name satisfies `matches`.
    pub async fn get_matching(&self, key: &Key, matches: impl Fn(&[u8]) -> bool) -> Result<Option<ZapEntry>> {
        let Some(hash) = key.hash else { return self.scan(matches).await };
        let (_, block) = self.leaf(hash).await?;
        let leaf = Leaf::open(&block).map_err(self.damaged())?;
        let naming = self.naming();
        let found = leaf.find(hash, |entry| Ok(matches(&naming.shown(leaf.name(entry, naming.integer_size())?))));
        match found.map_err(self.damaged())? {
            Some(entry) => self.to_entry(&leaf, &entry).map(Some),
            None => Ok(None),
        }
    }

    async fn scan(&self, matches: impl Fn(&[u8]) -> bool) -> Result<Option<ZapEntry>> {
        let mut from = 0;
        loop {
            let entries = self.entries(from, 4096, usize::MAX).await?;
            let Some(last) = entries.last() else { return Ok(None) };
            from = last.cursor;
            if let Some(entry) = entries.into_iter().find(|entry| matches(&entry.name)) {
                return Ok(Some(entry));
            }
        }
    }

    /// Adds or replaces an entry. `cd` fixes a new entry's differentiator.
    pub async fn set(
        &mut self,
        tx: &Tx,
        key: &Key,
        hash: u64,
        cd: Option<u32>,
        value: &ZapValue,
        present: IfPresent,
    ) -> Result<()> {
        let bytes = value_bytes(value)?;
        let new = NewEntry {
            hash,
            cd,
            name: &key.stored,
            name_integer_size: key.integer_size,
            value_integer_size: value.integer_size,
            value: &bytes,
        };
        if !new.fits_in(1 << self.shift).map_err(self.damaged())? {
            return Err(ZioError::Invalid(format!("a ZAP value of {} bytes does not fit one block", bytes.len())));
        }
        loop {
            let (number, block) = self.leaf(hash).await?;
            let leaf = Leaf::open(&block).map_err(self.damaged())?;
            let found = leaf.lookup(hash, &key.stored, key.integer_size).map_err(self.damaged())?;
            if found.is_some() && present == IfPresent::Fail {
                let name = self.naming().shown(key.stored.clone());
                return Err(ZioError::Exists(format!("\"{}\"", String::from_utf8_lossy(&name))));
            }
            drop(block);
            let change = |leaf: &mut LeafMut<'_>| match &found {
                Some(entry) => leaf.update(entry, value.integer_size, &bytes),
                None => leaf.insert(&new),
            };
            match self.change_leaf(tx, number, change).await? {
                Outcome::Done => {
                    if found.is_none() {
                        self.header.entries = self.header.entries.saturating_add(1);
                        self.write_entry_count(tx).await?;
                    }
                    return Ok(());
                }
                Outcome::Full => Box::pin(self.split(tx, hash, number)).await?,
            }
        }
    }

    /// Changes leaf `number` where it lies, unless somebody else looks at it.
    async fn change_leaf<T>(
        &self,
        tx: &Tx,
        number: u64,
        change: impl FnOnce(&mut LeafMut<'_>) -> std::result::Result<T, ZapDamage>,
    ) -> Result<T> {
        let mut outcome = None;
        let on_bytes = |bytes: &mut [u8]| outcome = Some(LeafMut::open(bytes).and_then(|mut leaf| change(&mut leaf)));
        self.dnode.modify(tx, number, on_bytes).await?;
        outcome.expect("a change that was made was called").map_err(self.damaged())
    }

    /// Splits leaf `number`, the one of `hash`, in two by the next bit of its prefix.
    async fn split(&mut self, tx: &Tx, hash: u64, number: u64) -> Result<()> {
        let mut block = self.read_block(number).await?;
        let length = u64::from(Leaf::open(&block).map_err(self.damaged())?.prefix_length());
        while self.header.table.next_block != 0 || length == self.header.table.shift {
            self.grow_table(tx).await?;
        }
        let pointers = 1 << (self.header.table.shift - length - 1);
        let first = (prefix(hash, length as u32 + 1) | 1) * pointers;
        for index in [first, first + pointers - 1] {
            let found = self.pointer(index).await?;
            if found != number {
                return Err(self.corrupt(format!("pointer {index} names leaf {found} instead of {number}")));
            }
        }
        let mut other = Buf::zeroed(block.len());
        {
            let mut leaf = LeafMut::open(block.make_mut()).map_err(self.damaged())?;
            let naming = self.naming();
            leaf.split(other.make_mut(), naming.normalization != 0, naming.integer_size()).map_err(self.damaged())?;
        }
        let sibling = self.header.free_block;
        self.header.free_block += 1;
        self.header.leaves = self.header.leaves.saturating_add(1);
        self.dnode.write_block(tx, number, block).await?;
        self.dnode.write_block(tx, sibling, other).await?;
        self.set_pointers(tx, first, pointers, sibling).await?;
        self.write_header(tx).await
    }

    /// Doubles the pointer table, in a place of its own.
    async fn grow_table(&mut self, tx: &Tx) -> Result<()> {
        let old = self.header.table;
        // More pointers than hash bits would be useless; two bits short of that something else is wrong.
        if longer_than_hashes(old.shift + 1, self.header.flags) {
            return Err(ZioError::NoSpace);
        }
        let (source, source_blocks) = if old.blocks == 0 { (0, 1) } else { (old.block, old.blocks) };
        let blocks = if old.blocks == 0 { 1 } else { old.blocks * 2 };
        let start = if old.next_block != 0 { old.next_block } else { self.header.free_block };
        let mut target = start;
        for number in source..source + source_blocks {
            let block = self.read_block(number).await?;
            let half = block.len() / 2;
            // The embedded table is the second half of its block; other blocks are pointers throughout.
            let halves = if old.blocks == 0 { vec![&block[half..]] } else { vec![&block[..half], &block[half..]] };
            for pointers in halves {
                let mut doubled = Buf::zeroed(block.len());
                for (to, from) in doubled.make_mut().chunks_exact_mut(16).zip(pointers.chunks_exact(8)) {
                    to[..8].copy_from_slice(from);
                    to[8..].copy_from_slice(from);
                }
                self.dnode.write_block(tx, target, doubled).await?;
                target += 1;
            }
        }
        if old.next_block == 0 {
            self.header.free_block += blocks;
        }
        if old.blocks != 0 {
            self.dnode.free_range(tx, old.block << self.shift, old.blocks << self.shift).await?;
        }
        self.header.table = PointerTable { block: start, blocks, shift: old.shift + 1, next_block: 0, copied: 0 };
        debug_assert!(self.header.table.shift == u64::from(embedded_shift(self.shift)) + 1 + blocks.ilog2() as u64);
        self.write_header(tx).await
    }

    /// Removes `key`; whether it was there.
    pub async fn remove(&mut self, tx: &Tx, key: &Key, hash: u64) -> Result<bool> {
        let (number, block) = self.leaf(hash).await?;
        let leaf = Leaf::open(&block).map_err(self.damaged())?;
        let Some(entry) = leaf.lookup(hash, &key.stored, key.integer_size).map_err(self.damaged())? else {
            return Ok(false);
        };
        drop(block);
        let remove = |leaf: &mut LeafMut<'_>| {
            leaf.remove(&entry)?;
            Ok(leaf.view().entry_count() == 0 && leaf.view().prefix_length() > 0)
        };
        let empty = self.change_leaf(tx, number, remove).await?;
        self.header.entries = self.header.entries.saturating_sub(1);
        self.write_entry_count(tx).await?;
        if empty {
            Box::pin(self.merge(tx, hash)).await?;
        }
        Ok(true)
    }

    /// Joins the empty leaf of `hash` with its sibling while that is empty too (`zap_shrink`).
    async fn merge(&mut self, tx: &Tx, hash: u64) -> Result<()> {
        let mut shrunk = false;
        loop {
            let (number, block) = self.leaf(hash).await?;
            let leaf = Leaf::open(&block).map_err(self.damaged())?;
            let length = leaf.prefix_length();
            if leaf.entry_count() != 0 || length == 0 {
                break;
            }
            let sibling_prefix = leaf.prefix() ^ 1;
            let pointers = 1 << (self.header.table.shift - u64::from(length));
            let (first, last) = (sibling_prefix * pointers, sibling_prefix * pointers + pointers - 1);
            if self.pointer(first).await? != self.pointer(last).await? {
                break;
            }
            let (sibling_number, sibling_block) = self.leaf(sibling_prefix << (64 - length)).await?;
            let sibling = Leaf::open(&sibling_block).map_err(self.damaged())?;
            if sibling.prefix_length() != length || sibling.entry_count() != 0 {
                break;
            }
            if self.header.table.next_block != 0 {
                self.grow_table(tx).await?;
                continue;
            }
            // The one with the 0 bit stays.
            let (mut kept, kept_number, gone) = if leaf.prefix() & 1 == 0 {
                (block.clone(), number, sibling_number)
            } else {
                (sibling_block.clone(), sibling_number, number)
            };
            drop((block, sibling_block));
            LeafMut::open(kept.make_mut()).map_err(self.damaged())?.merge();
            self.dnode.write_block(tx, kept_number, kept).await?;
            let gone_prefix = sibling_prefix | 1;
            self.set_pointers(tx, gone_prefix * pointers, pointers, kept_number).await?;
            self.dnode.free_range(tx, gone << self.shift, 1 << self.shift).await?;
            self.header.leaves = self.header.leaves.saturating_sub(1);
            shrunk |= gone + 1 == self.header.free_block;
            self.write_header(tx).await?;
        }
        if shrunk {
            self.header.free_block = self.last_block_in_use().await? + 1;
            self.write_header(tx).await?;
        }
        Ok(())
    }

    async fn last_block_in_use(&self) -> Result<u64> {
        let table = self.header.table;
        let half = 1usize << (self.shift - 1);
        let (mut last, blocks, skip) =
            if table.blocks == 0 { (0, 0..1, half) } else { (0, table.block..table.block + table.blocks, 0) };
        for number in blocks {
            let block = self.read_block(number).await?;
            for pointer in block[skip..].chunks_exact(8) {
                last = last.max(u64::from_le_bytes(pointer.try_into().expect("eight bytes")));
            }
            last = last.max(number);
        }
        if last >= self.header.free_block {
            return Err(self.corrupt(format!("a pointer to leaf {last} of {}", self.header.free_block)));
        }
        Ok(last)
    }

    fn to_entry(&self, leaf: &Leaf<'_>, entry: &LeafEntry) -> Result<ZapEntry> {
        let naming = self.naming();
        let flags = self.header.flags;
        let unused = u64::MAX >> hash_bits(flags);
        if entry.hash & unused != 0 {
            return Err(self.corrupt(format!("an entry has hash {:#x}", entry.hash)));
        }
        let cursor = match entry.cd.checked_add(1).filter(|&cd| cd < cd_limit(flags)) {
            Some(cd) => cursor(entry.hash, cd, flags),
            None => (entry.hash | unused).checked_add(1).map_or(u64::MAX, |hash| cursor(hash, 0, flags)),
        };
        let name = naming.shown(leaf.name(entry, naming.integer_size()).map_err(self.damaged())?);
        Ok(ZapEntry { name, value: self.entry_value(leaf, entry)?, cursor })
    }

    /// Up to `limit` entries after `from`; damage when they take more than `memory` bytes.
    pub async fn entries(&self, from: u64, limit: usize, memory: usize) -> Result<Vec<ZapEntry>> {
        let (mut entries, mut memory) = (Vec::new(), memory);
        if from == u64::MAX {
            return Ok(entries);
        }
        let (mut hash, mut cd) = cursor_parts(from, self.header.flags);
        loop {
            let (_, block) = self.leaf(hash).await?;
            let leaf = Leaf::open(&block).map_err(self.damaged())?;
            for entry in leaf.entries_from(hash, cd).map_err(self.damaged())? {
                if entries.len() == limit {
                    return Ok(entries);
                }
                let entry = self.to_entry(&leaf, &entry)?;
                let size = size_of::<ZapEntry>() + entry.name.len() + 8 * entry.value.integers.len();
                let rest = memory.checked_sub(size);
                memory = rest.ok_or_else(|| self.corrupt("its entries take more memory than there is for them"))?;
                entries.push(entry);
            }
            let length = leaf.prefix_length();
            let rest = if length == 0 { u64::MAX } else { u64::MAX >> length };
            match (hash | rest).checked_add(1) {
                Some(next) if entries.len() < limit => (hash, cd) = (next, 0),
                _ => return Ok(entries),
            }
        }
    }

    /// Blocks worth reading ahead for a full listing.
    pub fn blocks_to_prefetch(&self) -> u64 {
        if self.header.free_block > 2 { self.header.free_block.min(PREFETCH_BLOCKS) } else { 0 }
    }
}

fn pointer_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}
