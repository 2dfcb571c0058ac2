//! Reading a fat ZAP's leaf block (`include/sys/zap_leaf.h`).
//!
//! ```text
//!   0  block type  u64   ZBT_LEAF
//!   8  zero        u64
//!  16  prefix      u64   the hash bits that all entries here share
//!  24  magic       u32   0x2AB1EAF
//!  28  free        u16   free chunks
//!  30  entries     u16
//!  32  prefix len  u16   number of those bits
//!  34  free list   u16   first free chunk
//!  36  flags       u8    1: chains are sorted by cd
//!  37  zero        11 bytes
//!  48  hash table  size / 32 × u16: first entry chunk of each bucket
//!      chunks      24 bytes each, to the end of the block
//!
//!  entry chunk:  252, value integer size u8, next entry u16, name chunk u16, name integers u16,
//!                value chunk u16, value integers u16, cd u32, hash u64
//!  array chunk:  251, 21 bytes, next chunk u16
//!  free chunk:   253, 21 bytes of zeros, next free chunk u16
//! ```
//!
//! Chunk number 0xffff ends a chain. Names are stored with their terminating zero, which counts as an integer; the
//! bucket is given by the hash bits right below the prefix.

use crate::le::{u16_at, u32_at, u64_at};
use crate::zap::block_kind::BLOCK_TYPE_LEAF;
use crate::zap::damage::ZapDamage;
use crate::zap::fat::{block_shift, prefix};

/// `ZAP_LEAF_MAGIC`.
pub const MAGIC: u32 = 0x2AB_1EAF;
/// Bytes of a chunk.
pub const CHUNK_SIZE: usize = 24;
/// Payload bytes of an array chunk.
pub const ARRAY_BYTES: usize = CHUNK_SIZE - 3;
/// The number that ends a chain of chunks.
pub const CHAIN_END: u16 = 0xffff;
/// `ZLF_ENTRIES_CDSORTED`: the entries of a bucket are sorted by their differentiator.
pub const FLAG_SORTED: u8 = 1;
/// A leaf with fewer free chunks than this will soon split (`ZAP_LEAF_LOW_WATER`).
pub const LOW_WATER: u16 = 20;

pub(super) const TYPE_FREE: u8 = 253;
pub(super) const TYPE_ENTRY: u8 = 252;
pub(super) const TYPE_ARRAY: u8 = 251;
pub(super) const HASH_AT: usize = 48;
/// Where an array or free chunk keeps the number of the next one.
pub(super) const NEXT_AT: usize = CHUNK_SIZE - 2;
/// Where an entry chunk keeps the number of the next one.
pub(super) const ENTRY_NEXT_AT: usize = 2;

const _: () = assert!(HASH_AT == 2 * CHUNK_SIZE);

/// Sizes that follow from the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// log2 of the number of buckets.
    pub hash_shift: u32,
    /// Chunks in the block.
    pub chunks: u16,
    /// Byte offset of chunk 0.
    pub chunks_at: usize,
}

impl Layout {
    /// The layout of a leaf of `size` bytes.
    ///
    /// # Errors
    /// `size` is no fat ZAP's block size.
    pub fn of(size: usize) -> Result<Self, ZapDamage> {
        let hash_shift = block_shift(size)? - 5;
        let chunks = (size - (2 << hash_shift)) / CHUNK_SIZE - 2;
        Ok(Self { hash_shift, chunks: chunks as u16, chunks_at: HASH_AT + (2 << hash_shift) })
    }

    /// Number of buckets.
    pub fn buckets(&self) -> usize {
        1 << self.hash_shift
    }

    /// Byte offset of chunk `index`.
    pub fn chunk_at(&self, index: u16) -> usize {
        self.chunks_at + usize::from(index) * CHUNK_SIZE
    }
}

/// Chunks that an array of `bytes` bytes takes.
pub const fn array_chunks(bytes: usize) -> usize {
    bytes.div_ceil(ARRAY_BYTES)
}

/// An entry chunk's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafEntry {
    /// The chunk it is in.
    pub chunk: u16,
    /// Size of the value's integers in bytes: 1, 2, 4 or 8.
    pub value_integer_size: u8,
    /// The next entry of the bucket.
    pub next: u16,
    /// First chunk of the name.
    pub name_chunk: u16,
    /// Integers in the name: bytes, the terminating zero included, or words.
    pub name_integers: u16,
    /// First chunk of the value.
    pub value_chunk: u16,
    /// Integers in the value.
    pub value_integers: u16,
    /// Tells names of equal hash apart; unique among them.
    pub cd: u32,
    /// The name's hash.
    pub hash: u64,
}

impl LeafEntry {
    /// Bytes of the value.
    pub fn value_length(&self) -> usize {
        usize::from(self.value_integers) * usize::from(self.value_integer_size)
    }
}

/// A checked view of a leaf block.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: Layout,
}

impl<'a> Leaf<'a> {
    /// Checks the block's type, magic and size.
    ///
    /// # Errors
    /// It is no leaf.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ZapDamage> {
        let layout = Layout::of(bytes.len())?;
        let leaf = Self { bytes, layout };
        let (kind, magic) = (u64_at(bytes, 0), u32_at(bytes, 24));
        if kind != BLOCK_TYPE_LEAF || magic != MAGIC {
            return Err(ZapDamage::new("ZAP leaf", format!("block type {kind:#x}, magic {magic:#x}")));
        }
        if leaf.prefix_length() > 48 || leaf.free_chunks() > layout.chunks || leaf.entry_count() > layout.chunks {
            return Err(leaf.damage(format!(
                "prefix of {} bits, {} chunks free, {} entries",
                leaf.prefix_length(),
                leaf.free_chunks(),
                leaf.entry_count()
            )));
        }
        Ok(leaf)
    }

    pub(super) fn damage(&self, detail: impl Into<String>) -> ZapDamage {
        ZapDamage::new("ZAP leaf", detail)
    }

    /// Sizes of its parts.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The hash bits that all entries share.
    pub fn prefix(&self) -> u64 {
        u64_at(self.bytes, 16)
    }

    /// How many bits the prefix has.
    pub fn prefix_length(&self) -> u32 {
        u32::from(u16_at(self.bytes, 32))
    }

    /// Free chunks.
    pub fn free_chunks(&self) -> u16 {
        u16_at(self.bytes, 28)
    }

    /// Entries.
    pub fn entry_count(&self) -> u16 {
        u16_at(self.bytes, 30)
    }

    /// Whether the entries of each bucket are known to be sorted by differentiator.
    pub fn is_sorted(&self) -> bool {
        self.bytes[36] & FLAG_SORTED != 0
    }

    /// Whether entries with this hash belong here.
    pub fn covers(&self, hash: u64) -> bool {
        prefix(hash, self.prefix_length()) == self.prefix()
    }

    /// The bucket of `hash`.
    pub(super) fn bucket(&self, hash: u64) -> usize {
        let shift = 64 - self.layout.hash_shift - self.prefix_length();
        (hash >> shift) as usize & (self.layout.buckets() - 1)
    }

    pub(super) fn bucket_at(&self, bucket: usize) -> usize {
        HASH_AT + 2 * bucket
    }

    /// The bytes of chunk `index`, which must be of `kind`.
    pub(super) fn chunk(&self, index: u16, kind: u8) -> Result<&'a [u8], ZapDamage> {
        if index >= self.layout.chunks {
            return Err(self.damage(format!("chunk {index} of {}", self.layout.chunks)));
        }
        let at = self.layout.chunk_at(index);
        let chunk = &self.bytes[at..at + CHUNK_SIZE];
        if chunk[0] != kind {
            return Err(self.damage(format!("chunk {index} has type {} instead of {kind}", chunk[0])));
        }
        Ok(chunk)
    }

    /// The entry in chunk `index`.
    ///
    /// # Errors
    /// No such chunk, no entry, or a value shape that does not exist.
    pub fn entry(&self, index: u16) -> Result<LeafEntry, ZapDamage> {
        let chunk = self.chunk(index, TYPE_ENTRY)?;
        let entry = LeafEntry {
            chunk: index,
            value_integer_size: chunk[1],
            next: u16_at(chunk, ENTRY_NEXT_AT),
            name_chunk: u16_at(chunk, 4),
            name_integers: u16_at(chunk, 6),
            value_chunk: u16_at(chunk, 8),
            value_integers: u16_at(chunk, 10),
            cd: u32_at(chunk, 12),
            hash: u64_at(chunk, 16),
        };
        if !matches!(entry.value_integer_size, 1 | 2 | 4 | 8) {
            return Err(self.damage(format!("entry {index} has integers of {} bytes", entry.value_integer_size)));
        }
        Ok(entry)
    }

    /// Walks the entries of one bucket, stopping with damage when the chain is longer than the block.
    fn walk(
        &self,
        bucket: usize,
        mut visit: impl FnMut(&LeafEntry) -> Result<bool, ZapDamage>,
    ) -> Result<(), ZapDamage> {
        let mut next = u16_at(self.bytes, self.bucket_at(bucket));
        for _ in 0..=self.layout.chunks {
            if next == CHAIN_END {
                return Ok(());
            }
            let entry = self.entry(next)?;
            if visit(&entry)? {
                return Ok(());
            }
            next = entry.next;
        }
        Err(self.damage(format!("the entries of bucket {bucket} form a ring")))
    }

    /// The first entry with this hash for which `matches` says yes.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn find(
        &self,
        hash: u64,
        mut matches: impl FnMut(&LeafEntry) -> Result<bool, ZapDamage>,
    ) -> Result<Option<LeafEntry>, ZapDamage> {
        let mut found = None;
        self.walk(self.bucket(hash), |entry| {
            if entry.hash == hash && matches(entry)? {
                found = Some(*entry);
            }
            Ok(found.is_some())
        })?;
        Ok(found)
    }

    /// The entry with exactly this hash and name; `name` as stored (with its terminating zero, or big-endian words).
    ///
    /// # Errors
    /// A damaged chain.
    pub fn lookup(&self, hash: u64, name: &[u8], integer_size: usize) -> Result<Option<LeafEntry>, ZapDamage> {
        self.find(hash, |entry| {
            Ok(usize::from(entry.name_integers) * integer_size == name.len()
                && self.array_equals(entry.name_chunk, name)?)
        })
    }

    /// The lowest differentiator that no entry with this hash has.
    pub(super) fn unused_cd(&self, hash: u64) -> Result<u32, ZapDamage> {
        let mut used = Vec::new();
        self.walk(self.bucket(hash), |entry| {
            if entry.hash == hash {
                used.push(entry.cd);
            }
            Ok(false)
        })?;
        used.sort_unstable();
        used.dedup();
        Ok(used.iter().zip(0u32..).take_while(|(cd, index)| *cd == index).count() as u32)
    }

    fn array_equals(&self, first: u16, bytes: &[u8]) -> Result<bool, ZapDamage> {
        let mut next = first;
        for part in bytes.chunks(ARRAY_BYTES) {
            let chunk = self.chunk(next, TYPE_ARRAY)?;
            if &chunk[1..=part.len()] != part {
                return Ok(false);
            }
            next = u16_at(chunk, NEXT_AT);
        }
        Ok(true)
    }

    /// The `length` bytes of the array that starts in chunk `first`.
    ///
    /// # Errors
    /// A chain that ends too early, or an array longer than the block.
    pub fn array(&self, first: u16, length: usize) -> Result<Vec<u8>, ZapDamage> {
        if length > self.bytes.len() {
            return Err(self.damage(format!("an array of {length} bytes")));
        }
        let mut bytes = Vec::with_capacity(length);
        let mut next = first;
        while bytes.len() < length {
            let chunk = self.chunk(next, TYPE_ARRAY)?;
            bytes.extend_from_slice(&chunk[1..=ARRAY_BYTES.min(length - bytes.len())]);
            next = u16_at(chunk, NEXT_AT);
        }
        Ok(bytes)
    }

    /// An entry's name as stored: with its terminating zero (`integer_size` 1) or as big-endian words (8).
    ///
    /// # Errors
    /// A damaged chain.
    pub fn name(&self, entry: &LeafEntry, integer_size: usize) -> Result<Vec<u8>, ZapDamage> {
        self.array(entry.name_chunk, usize::from(entry.name_integers) * integer_size)
    }

    /// An entry's value: its integers, big-endian.
    ///
    /// # Errors
    /// A damaged chain.
    pub fn value(&self, entry: &LeafEntry) -> Result<Vec<u8>, ZapDamage> {
        self.array(entry.value_chunk, entry.value_length())
    }

    /// All entries at or after (`hash`, `cd`) in the order of (hash, cd).
    ///
    /// # Errors
    /// A damaged chain.
    pub fn entries_from(&self, hash: u64, cd: u32) -> Result<Vec<LeafEntry>, ZapDamage> {
        let mut entries = Vec::new();
        // Every entry, name and value has chunks of its own: more than there are means that some are shared, and a
        // block of a few KiB would unfold to megabytes.
        let mut chunks = usize::from(self.layout.chunks);
        // Buckets are in hash order too, so earlier ones hold nothing wanted.
        let first = if self.covers(hash) { self.bucket(hash) } else { 0 };
        for bucket in first..self.layout.buckets() {
            self.walk(bucket, |entry| {
                let own = 1 + array_chunks(entry.name_integers.into()) + array_chunks(entry.value_length());
                chunks = chunks.checked_sub(own).ok_or_else(|| self.damage("its entries share chunks"))?;
                if (entry.hash, entry.cd) >= (hash, cd) {
                    entries.push(*entry);
                }
                Ok(false)
            })?;
        }
        entries.sort_unstable_by_key(|entry| (entry.hash, entry.cd));
        Ok(entries)
    }
}
