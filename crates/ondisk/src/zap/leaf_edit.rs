//! Changing a fat ZAP's leaf block.
//!
//! Invariants:
//! - adding, replacing and removing an entry look first whether all they will touch is sound: one that fails has
//!   changed nothing, so that a block may be changed where it lies. (Dividing a leaf needs copies.)
//!
//! and after each successful change:
//! - every chunk is free, an entry, or in exactly one name or value; the header's counts agree;
//! - the entries of a bucket are sorted by differentiator (which needs no flag to be true);
//! - free chunks are zero but for type and link, so that the block compresses well.

use crate::le::u16_at;
use crate::zap::block_kind::BLOCK_TYPE_LEAF;
use crate::zap::damage::ZapDamage;
use crate::zap::leaf::{
    ARRAY_BYTES, CHAIN_END, CHUNK_SIZE, ENTRY_NEXT_AT, FLAG_SORTED, HASH_AT, Layout, Leaf, LeafEntry, MAGIC, NEXT_AT,
    TYPE_ARRAY, TYPE_ENTRY, TYPE_FREE, array_chunks,
};

/// Whether a leaf had room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The change is made.
    Done,
    /// The leaf must be split first; nothing was changed.
    Full,
}

/// A leaf block being changed.
#[derive(Debug)]
pub struct LeafMut<'a> {
    bytes: &'a mut [u8],
    layout: Layout,
}

/// A new entry, as stored.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry<'a> {
    /// The hash of the name.
    pub hash: u64,
    /// The differentiator; `None` takes the lowest free one.
    pub cd: Option<u32>,
    /// The name with its terminating zero, or big-endian words.
    pub name: &'a [u8],
    /// Bytes of one integer of the name: 1 or 8.
    pub name_integer_size: usize,
    /// Bytes of one integer of the value.
    pub value_integer_size: u8,
    /// The value's integers, big-endian.
    pub value: &'a [u8],
}

impl NewEntry<'_> {
    fn chunks(&self) -> usize {
        1 + array_chunks(self.name.len()) + array_chunks(self.value.len())
    }

    /// Whether an empty leaf of `size` bytes could hold it.
    ///
    /// # Errors
    /// `size` is no fat ZAP's block size.
    pub fn fits_in(&self, size: usize) -> Result<bool, ZapDamage> {
        Ok(self.chunks() <= usize::from(Layout::of(size)?.chunks))
    }
}

impl<'a> LeafMut<'a> {
    /// Checks `bytes` as [`Leaf::open`] does.
    ///
    /// # Errors
    /// It is no leaf.
    pub fn open(bytes: &'a mut [u8]) -> Result<Self, ZapDamage> {
        let layout = Leaf::open(bytes)?.layout();
        Ok(Self { bytes, layout })
    }

    /// Makes `bytes` an empty leaf for the hashes that start with these `prefix_length` bits. `sorted` is to be set in
    /// ZAPs with normalisation flags.
    ///
    /// # Errors
    /// No fat ZAP has blocks of this size.
    pub fn format(bytes: &'a mut [u8], prefix: u64, prefix_length: u32, sorted: bool) -> Result<Self, ZapDamage> {
        let layout = Layout::of(bytes.len())?;
        bytes.fill(0);
        bytes[..8].copy_from_slice(&BLOCK_TYPE_LEAF.to_le_bytes());
        bytes[16..24].copy_from_slice(&prefix.to_le_bytes());
        bytes[24..28].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[36] = if sorted { FLAG_SORTED } else { 0 };
        bytes[HASH_AT..layout.chunks_at].fill(0xff);
        let mut leaf = Self { bytes, layout };
        leaf.set_u16(28, layout.chunks);
        leaf.set_u16(32, prefix_length as u16);
        let chunks = leaf.bytes[layout.chunks_at..].chunks_exact_mut(CHUNK_SIZE);
        for (next, chunk) in (1..=layout.chunks).zip(chunks) {
            let next = if next == layout.chunks { CHAIN_END } else { next };
            chunk[0] = TYPE_FREE;
            chunk[NEXT_AT..].copy_from_slice(&next.to_le_bytes());
        }
        Ok(leaf)
    }

    /// A read-only view.
    pub fn view(&self) -> Leaf<'_> {
        Leaf { bytes: self.bytes, layout: self.layout }
    }

    fn set_u16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn add_u16(&mut self, at: usize, delta: i32) -> Result<(), ZapDamage> {
        let value = u16::try_from(i32::from(u16_at(self.bytes, at)) + delta)
            .map_err(|_| self.view().damage("its counts do not add up"))?;
        self.set_u16(at, value);
        Ok(())
    }

    fn allocate(&mut self) -> Result<u16, ZapDamage> {
        let index = u16_at(self.bytes, 34);
        let next = u16_at(self.view().chunk(index, TYPE_FREE)?, NEXT_AT);
        self.set_u16(34, next);
        self.add_u16(28, -1)?;
        Ok(index)
    }

    fn release(&mut self, index: u16) -> Result<(), ZapDamage> {
        let at = self.layout.chunk_at(index);
        let first_free = u16_at(self.bytes, 34);
        self.bytes[at..at + CHUNK_SIZE].fill(0);
        self.bytes[at] = TYPE_FREE;
        self.set_u16(at + NEXT_AT, first_free);
        self.set_u16(34, index);
        self.add_u16(28, 1)
    }

    fn write_array(&mut self, bytes: &[u8]) -> Result<u16, ZapDamage> {
        let mut first = CHAIN_END;
        let mut link = None;
        for part in bytes.chunks(ARRAY_BYTES) {
            let index = self.allocate()?;
            let at = self.layout.chunk_at(index);
            self.bytes[at..at + CHUNK_SIZE].fill(0);
            self.bytes[at] = TYPE_ARRAY;
            self.bytes[at + 1..at + 1 + part.len()].copy_from_slice(part);
            self.set_u16(at + NEXT_AT, CHAIN_END);
            match link {
                None => first = index,
                Some(link) => self.set_u16(link, index),
            }
            link = Some(at + NEXT_AT);
        }
        Ok(first)
    }

    /// The chunks of an array, in their order.
    fn array(&self, first: u16) -> Result<Vec<u16>, ZapDamage> {
        let mut chain = Vec::new();
        let mut next = first;
        while next != CHAIN_END {
            if chain.len() >= usize::from(self.layout.chunks) {
                return Err(self.view().damage("the chunks of an array form a ring"));
            }
            chain.push(next);
            next = u16_at(self.view().chunk(next, TYPE_ARRAY)?, NEXT_AT);
        }
        Ok(chain)
    }

    /// Looks whether `count` chunks can be taken from the free list.
    fn check_free(&self, count: usize) -> Result<(), ZapDamage> {
        let mut chain = Vec::with_capacity(count);
        let mut next = u16_at(self.bytes, 34);
        for _ in 0..count {
            chain.push(next);
            next = u16_at(self.view().chunk(next, TYPE_FREE)?, NEXT_AT);
        }
        self.check_distinct(chain, "the free chunks form a ring")
    }

    fn check_distinct(&self, mut chunks: Vec<u16>, otherwise: &str) -> Result<(), ZapDamage> {
        chunks.sort_unstable();
        if chunks.windows(2).any(|two| two[0] == two[1]) { Err(self.view().damage(otherwise)) } else { Ok(()) }
    }

    /// Frees the chunks of an array, last first, so that the free list keeps the order the array had.
    fn release_all(&mut self, array: &[u16]) -> Result<(), ZapDamage> {
        array.iter().rev().try_for_each(|&index| self.release(index))
    }

    /// The byte offset of the link that points to the first entry of `hash`'s bucket for which `stop` says yes (or
    /// ends the chain).
    fn link_to(&self, hash: u64, stop: impl Fn(&LeafEntry) -> bool) -> Result<usize, ZapDamage> {
        let leaf = self.view();
        let mut link = leaf.bucket_at(leaf.bucket(hash));
        for _ in 0..=self.layout.chunks {
            let next = u16_at(self.bytes, link);
            if next == CHAIN_END || stop(&leaf.entry(next)?) {
                return Ok(link);
            }
            link = self.layout.chunk_at(next) + ENTRY_NEXT_AT;
        }
        Err(leaf.damage("the entries of a bucket form a ring"))
    }

    /// Adds an entry; the caller made sure that the name is not there and that the hash belongs here.
    ///
    /// # Errors
    /// Damage met on the way.
    pub fn insert(&mut self, new: &NewEntry<'_>) -> Result<Outcome, ZapDamage> {
        if new.chunks() > usize::from(self.view().free_chunks()) {
            return Ok(Outcome::Full);
        }
        let cd = match new.cd {
            Some(cd) => cd,
            None => self.view().unused_cd(new.hash)?,
        };
        self.check_free(new.chunks())?;
        let link = self.link_to(new.hash, |other| other.cd > cd)?;
        self.add_u16(30, 1)?;
        let entry = LeafEntry {
            chunk: self.allocate()?,
            value_integer_size: new.value_integer_size,
            next: u16_at(self.bytes, link),
            name_chunk: self.write_array(new.name)?,
            name_integers: (new.name.len() / new.name_integer_size) as u16,
            value_chunk: self.write_array(new.value)?,
            value_integers: (new.value.len() / usize::from(new.value_integer_size)) as u16,
            cd,
            hash: new.hash,
        };
        self.put_entry(&entry);
        self.set_u16(link, entry.chunk);
        Ok(Outcome::Done)
    }

    /// Writes an entry into its chunk.
    fn put_entry(&mut self, entry: &LeafEntry) {
        let at = self.layout.chunk_at(entry.chunk);
        self.bytes[at..at + 2].copy_from_slice(&[TYPE_ENTRY, entry.value_integer_size]);
        self.set_u16(at + ENTRY_NEXT_AT, entry.next);
        self.set_u16(at + 4, entry.name_chunk);
        self.set_u16(at + 6, entry.name_integers);
        self.set_u16(at + 8, entry.value_chunk);
        self.set_u16(at + 10, entry.value_integers);
        self.bytes[at + 12..at + 16].copy_from_slice(&entry.cd.to_le_bytes());
        self.bytes[at + 16..at + 24].copy_from_slice(&entry.hash.to_le_bytes());
    }

    /// Replaces the value of `entry`, which must come from this leaf as it is now.
    ///
    /// # Errors
    /// Damage met on the way.
    pub fn update(&mut self, entry: &LeafEntry, integer_size: u8, value: &[u8]) -> Result<Outcome, ZapDamage> {
        let old = self.array(entry.value_chunk)?;
        let needed = array_chunks(value.len());
        if needed > usize::from(self.view().free_chunks()) + old.len() {
            return Ok(Outcome::Full);
        }
        self.check_distinct(old.clone(), "the chunks of an array form a ring")?;
        self.check_free(needed.saturating_sub(old.len()))?;
        self.release_all(&old)?;
        let chunk = self.write_array(value)?;
        let at = self.layout.chunk_at(entry.chunk);
        self.bytes[at + 1] = integer_size;
        self.set_u16(at + 8, chunk);
        self.set_u16(at + 10, (value.len() / usize::from(integer_size)) as u16);
        Ok(Outcome::Done)
    }

    /// Removes `entry`, which must come from this leaf as it is now.
    ///
    /// # Errors
    /// Damage met on the way.
    pub fn remove(&mut self, entry: &LeafEntry) -> Result<(), ZapDamage> {
        let link = self.link_to(entry.hash, |other| other.chunk == entry.chunk)?;
        if u16_at(self.bytes, link) != entry.chunk {
            return Err(self.view().damage(format!("entry {} is not in its bucket", entry.chunk)));
        }
        let (value, name) = (self.array(entry.value_chunk)?, self.array(entry.name_chunk)?);
        self.check_distinct([&value[..], &name[..]].concat(), "a name and a value share chunks")?;
        self.add_u16(30, -1)?;
        self.set_u16(link, entry.next);
        self.release_all(&value)?;
        self.release_all(&name)?;
        self.release(entry.chunk)
    }

    /// Divides the entries between this leaf, which keeps those whose next hash bit is 0, and `other` (any bytes of the
    /// same length), which becomes the leaf of those where it is 1. `name_integer_size` is 1 or 8.
    ///
    /// # Errors
    /// Damage met on the way.
    pub fn split<'b>(
        &mut self,
        other: &'b mut [u8],
        sorted: bool,
        name_integer_size: usize,
    ) -> Result<LeafMut<'b>, ZapDamage> {
        let (old_prefix, length) = (self.view().prefix(), self.view().prefix_length() + 1);
        let old = self.bytes.to_vec();
        let old = Leaf::open(&old)?;
        let sorted = sorted || old.is_sorted();
        let mut low = LeafMut::format(self.bytes, old_prefix << 1, length, sorted)?;
        let mut high = LeafMut::format(other, old_prefix << 1 | 1, length, sorted)?;
        for entry in old.entries_from(0, 0)? {
            let is_high = entry.hash >> (64 - length) & 1 == 1;
            if is_high {
                high.append(&old, &entry, name_integer_size)?;
            } else {
                low.append(&old, &entry, name_integer_size)?;
            }
        }
        Ok(high)
    }

    /// Adds an entry of leaf `old`, with its differentiator, to this one, from which nothing was ever removed: its
    /// chunks are taken in their order.
    fn append(&mut self, old: &Leaf<'_>, entry: &LeafEntry, name_integer_size: usize) -> Result<(), ZapDamage> {
        let name_length = usize::from(entry.name_integers) * name_integer_size;
        let needed = 1 + array_chunks(name_length) + array_chunks(entry.value_length());
        let free = usize::from(self.view().free_chunks());
        if needed > free {
            return Err(old.damage("its entries share chunks"));
        }
        let link = self.link_to(entry.hash, |other| other.cd > entry.cd)?;
        let index = self.layout.chunks - free as u16;
        let value_at = index + 1 + array_chunks(name_length) as u16;
        let copy = LeafEntry {
            chunk: index,
            next: u16_at(self.bytes, link),
            name_chunk: self.copy_array(index + 1, old, entry.name_chunk, name_length)?,
            value_chunk: self.copy_array(value_at, old, entry.value_chunk, entry.value_length())?,
            ..*entry
        };
        self.put_entry(&copy);
        self.set_u16(link, index);
        self.add_u16(30, 1)?;
        let first_free = index + needed as u16;
        self.set_u16(28, self.layout.chunks - first_free);
        self.set_u16(34, if first_free == self.layout.chunks { CHAIN_END } else { first_free });
        Ok(())
    }

    /// Copies an array of `length` bytes of leaf `old` into the chunks from `first` on, which are free; returns where
    /// it begins.
    fn copy_array(&mut self, first: u16, old: &Leaf<'_>, from: u16, length: usize) -> Result<u16, ZapDamage> {
        let mut from = from;
        let last = first + array_chunks(length) as u16;
        for (index, done) in (first..last).zip((0..length).step_by(ARRAY_BYTES)) {
            let part = ARRAY_BYTES.min(length - done);
            let chunk = old.chunk(from, TYPE_ARRAY)?;
            let at = self.layout.chunk_at(index);
            self.bytes[at] = TYPE_ARRAY;
            self.bytes[at + 1..=at + part].copy_from_slice(&chunk[1..=part]);
            self.set_u16(at + NEXT_AT, if index + 1 == last { CHAIN_END } else { index + 1 });
            from = u16_at(chunk, NEXT_AT);
        }
        Ok(if length == 0 { CHAIN_END } else { first })
    }

    /// Gives up the last bit of the prefix: the leaf now stands for its former sibling's hashes too. Both must be
    /// empty.
    pub fn merge(&mut self) {
        let leaf = self.view();
        assert!(leaf.entry_count() == 0 && leaf.prefix_length() > 0, "only an empty leaf gives up a prefix bit");
        let (prefix, length) = (leaf.prefix() >> 1, leaf.prefix_length() - 1);
        self.bytes[16..24].copy_from_slice(&prefix.to_le_bytes());
        self.set_u16(32, length as u16);
    }
}
