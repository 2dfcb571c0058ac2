//! The 128-byte block pointer (`blkptr_t`, `include/sys/spa.h`).
//!
//! A `BlkPtr` keeps its sixteen words as they stand on disk, so that a decode and encode is lossless whatever bits a
//! newer writer set. It has three shapes, told apart by [`BlkPtr::is_embedded`] and [`BlkPtr::is_hole`]: data inside
//! the pointer itself, nothing at all (possibly with a birth time), or up to three copies on disk.

use crate::checksum::Checksum;
use crate::compression::Compression;
use crate::ids::Txg;
use crate::object_type::ObjectType;
use crate::sector::{SECTOR, Sectors};

/// Size of a block pointer on disk, in bytes.
pub const BLKPTR_SIZE: usize = 128;
/// log2 of [`BLKPTR_SIZE`].
pub const BLKPTR_SHIFT: u32 = 7;
/// Copies one pointer can name.
pub const DVAS_PER_BLKPTR: usize = 3;
/// Largest payload of an embedded pointer, in bytes (`BPE_PAYLOAD_SIZE`).
pub const EMBEDDED_PAYLOAD_MAX: usize = 112;
/// Largest block, in bytes (`SPA_MAXBLOCKSIZE`).
pub const BLOCK_SIZE_MAX: u64 = 16 << 20;

const PROP: usize = 6;
const PHYSICAL_BIRTH: usize = 9;
const BIRTH: usize = 10;
const FILL: usize = 11;
const CHECKSUM: usize = 12;
/// The words that carry payload in an embedded pointer: all but the properties and the birth.
const PAYLOAD_WORDS: [usize; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15];

/// One copy's address: top-level vdev, offset from the end of the front labels, allocated size. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dva {
    /// Index of the top-level vdev.
    pub vdev: u32,
    /// Byte offset within the vdev's allocatable space (that is, after `VDEV_LABEL_START_SIZE`).
    pub offset: u64,
    /// Allocated bytes, parity and padding included.
    pub asize: u64,
    /// Whether the address holds a gang header.
    pub gang: bool,
}

impl Dva {
    /// Whether no copy is named here.
    pub fn is_empty(&self) -> bool {
        self.offset == 0 && self.asize == 0 && self.vdev == 0 && !self.gang
    }

    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        Self {
            asize: Sectors(field(words[0], 0, 24)).bytes(),
            vdev: field(words[0], 32, 24) as u32,
            offset: Sectors(field(words[1], 0, 55)).bytes(),
            gang: words[1] >> 63 != 0,
        }
    }

    pub(crate) fn to_words(self) -> [u64; 2] {
        [
            Sectors::of(self.asize).0 & 0xff_ffff | u64::from(self.vdev & 0xff_ffff) << 32,
            Sectors::of(self.offset).0 | u64::from(self.gang) << 63,
        ]
    }
}

fn field(word: u64, low: u32, bits: u32) -> u64 {
    (word >> low) & ((1u64 << bits) - 1)
}

fn set_field(word: &mut u64, low: u32, bits: u32, value: u64) {
    let mask = ((1u64 << bits) - 1) << low;
    *word = (*word & !mask) | ((value << low) & mask);
}

/// A block pointer. See the module text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlkPtr {
    /// The sixteen words in host order.
    pub words: [u64; 16],
}

impl BlkPtr {
    /// A pointer to nothing, never born.
    pub const HOLE: Self = Self { words: [0; 16] };

    /// Decodes little-endian bytes; `bytes` must hold at least 128. Byte-swapped blocks are swapped before this
    /// (`crate::byteswap`).
    pub fn decode(bytes: &[u8]) -> Self {
        let mut words = [0; 16];
        for (word, chunk) in words.iter_mut().zip(bytes[..BLKPTR_SIZE].chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        }
        Self { words }
    }

    /// Writes the pointer, little-endian, to the first 128 bytes of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        for (word, chunk) in self.words.iter().zip(out[..BLKPTR_SIZE].chunks_exact_mut(8)) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Whether the data is inside the pointer.
    pub fn is_embedded(&self) -> bool {
        field(self.words[PROP], 39, 1) == 1
    }

    /// Whether this points to no data (reads as zeros).
    pub fn is_hole(&self) -> bool {
        !self.is_embedded() && self.words[0] == 0 && self.words[1] == 0
    }

    /// Whether the first copy is a gang header.
    pub fn is_gang(&self) -> bool {
        !self.is_embedded() && self.dva(0).gang
    }

    /// Copy `index` (0..3).
    pub fn dva(&self, index: usize) -> Dva {
        Dva::from_words([self.words[2 * index], self.words[2 * index + 1]])
    }

    /// Replaces copy `index`.
    pub fn set_dva(&mut self, index: usize, dva: Dva) {
        let words = dva.to_words();
        self.words[2 * index] = words[0];
        self.words[2 * index + 1] = words[1];
    }

    /// The copies in use, in order; none for a hole or an embedded pointer.
    pub fn dvas(&self) -> impl Iterator<Item = Dva> + '_ {
        let count = if self.is_embedded() { 0 } else { DVAS_PER_BLKPTR };
        (0..count).filter(|&i| self.words[2 * i] != 0 || self.words[2 * i + 1] != 0).map(|i| self.dva(i))
    }

    /// Number of copies.
    pub fn copies(&self) -> usize {
        self.dvas().count()
    }

    /// Logical (uncompressed) size in bytes; 0 for a hole that was never born.
    pub fn lsize(&self) -> u64 {
        if self.is_embedded() {
            field(self.words[PROP], 0, 25) + 1
        } else if self.is_hole() && self.words[PROP] == 0 {
            0
        } else {
            Sectors(field(self.words[PROP], 0, 16) + 1).bytes()
        }
    }

    /// Size in bytes after compression: on disk without parity, or within the pointer.
    pub fn psize(&self) -> u64 {
        if self.is_embedded() {
            field(self.words[PROP], 25, 7) + 1
        } else if self.is_hole() {
            0
        } else {
            Sectors(field(self.words[PROP], 16, 16) + 1).bytes()
        }
    }

    /// Allocated bytes of all copies together (parity and padding included).
    pub fn asize(&self) -> u64 {
        self.dvas().map(|dva| dva.asize).sum()
    }

    /// `enum zio_compress` (`include/sys/zio.h`).
    pub fn compression(&self) -> Compression {
        Compression::from_number(field(self.words[PROP], 32, 7) as u8)
    }

    /// `enum zio_checksum`; meaningless when embedded.
    pub fn checksum_kind(&self) -> Checksum {
        Checksum::from_number(field(self.words[PROP], 40, 8) as u8)
    }

    /// `bp_embedded_type_t`; only for embedded pointers (0 is data).
    pub fn embedded_kind(&self) -> u8 {
        field(self.words[PROP], 40, 8) as u8
    }

    /// `dmu_object_type_t` of the object that owns the block.
    pub fn object_type(&self) -> ObjectType {
        ObjectType::from_number(field(self.words[PROP], 48, 8) as u8)
    }

    /// Level in the object's block tree; 0 is data.
    pub fn level(&self) -> u8 {
        field(self.words[PROP], 56, 5) as u8
    }

    /// Whether the block is encrypted or, for some types, authenticated.
    pub fn is_protected(&self) -> bool {
        field(self.words[PROP], 61, 1) == 1
    }

    /// Whether the block is in a deduplication table.
    pub fn is_dedup(&self) -> bool {
        !self.is_embedded() && field(self.words[PROP], 62, 1) == 1
    }

    /// Whether the block's contents were written by a little-endian machine.
    pub fn is_little_endian(&self) -> bool {
        self.words[PROP] >> 63 == 1
    }

    /// The group in which the pointer was logically born.
    pub fn birth(&self) -> Txg {
        Txg(self.words[BIRTH])
    }

    /// The group in which the block was allocated (differs from [`Self::birth`] for dedup, clones and device removal).
    pub fn physical_birth(&self) -> Txg {
        if self.is_embedded() {
            Txg(0)
        } else if self.words[PHYSICAL_BIRTH] != 0 {
            Txg(self.words[PHYSICAL_BIRTH])
        } else {
            self.birth()
        }
    }

    /// Number of non-hole level-0 blocks (or, for dnode blocks, allocated dnodes) below.
    pub fn fill(&self) -> u64 {
        if self.is_embedded() { 1 } else { self.words[FILL] }
    }

    /// The checksum's four words.
    pub fn checksum(&self) -> [u64; 4] {
        [self.words[CHECKSUM], self.words[CHECKSUM + 1], self.words[CHECKSUM + 2], self.words[CHECKSUM + 3]]
    }

    /// Sets the checksum's words.
    pub fn set_checksum(&mut self, checksum: [u64; 4]) {
        self.words[CHECKSUM..].copy_from_slice(&checksum);
    }

    /// Sets the fill count.
    pub fn set_fill(&mut self, fill: u64) {
        self.words[FILL] = fill;
    }

    /// Sets the logical birth and clears the separate physical one.
    pub fn set_birth(&mut self, birth: Txg) {
        self.words[BIRTH] = birth.0;
        self.words[PHYSICAL_BIRTH] = 0;
    }

    /// A hole that remembers its birth, size, type and level (needed once `hole_birth` is active). `birth` of 0 gives
    /// [`Self::HOLE`].
    pub fn hole_born(birth: Txg, object_type: ObjectType, level: u8, lsize: u64) -> Self {
        let mut bp = Self::HOLE;
        if birth.0 != 0 {
            set_field(&mut bp.words[PROP], 0, 16, Sectors::within(lsize).0 - 1);
            set_field(&mut bp.words[PROP], 48, 8, u64::from(object_type.number()));
            set_field(&mut bp.words[PROP], 56, 5, u64::from(level));
            bp.words[BIRTH] = birth.0;
        }
        bp
    }

    /// A pointer with sizes (bytes), kinds and birth set, native (little-endian) byte order, no copies yet.
    pub fn describe(
        lsize: u64,
        psize: u64,
        compression: Compression,
        checksum: Checksum,
        object_type: ObjectType,
        level: u8,
        birth: Txg,
    ) -> Self {
        assert!(lsize.is_multiple_of(SECTOR) && psize.is_multiple_of(SECTOR) && lsize > 0 && psize > 0);
        let mut bp = Self::HOLE;
        let prop = &mut bp.words[PROP];
        set_field(prop, 0, 16, Sectors::within(lsize).0 - 1);
        set_field(prop, 16, 16, Sectors::of(psize).0 - 1);
        set_field(prop, 32, 7, u64::from(compression.number()));
        set_field(prop, 40, 8, u64::from(checksum.number()));
        set_field(prop, 48, 8, u64::from(object_type.number()));
        set_field(prop, 56, 5, u64::from(level));
        *prop |= 1 << 63;
        bp.words[BIRTH] = birth.0;
        bp
    }

    /// A pointer that carries `payload` (at most 112 bytes, compressed with `compression`) for `lsize` logical bytes.
    pub fn embed(
        payload: &[u8],
        lsize: u64,
        compression: Compression,
        object_type: ObjectType,
        level: u8,
        birth: Txg,
    ) -> Self {
        assert!(!payload.is_empty() && payload.len() <= EMBEDDED_PAYLOAD_MAX && lsize > 0);
        let mut bp = Self::HOLE;
        let mut bytes = [0u8; EMBEDDED_PAYLOAD_MAX];
        bytes[..payload.len()].copy_from_slice(payload);
        for (chunk, &word) in bytes.chunks_exact(8).zip(&PAYLOAD_WORDS) {
            bp.words[word] = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        }
        let prop = &mut bp.words[PROP];
        set_field(prop, 0, 25, lsize - 1);
        set_field(prop, 25, 7, payload.len() as u64 - 1);
        set_field(prop, 32, 7, u64::from(compression.number()));
        set_field(prop, 39, 1, 1);
        set_field(prop, 48, 8, u64::from(object_type.number()));
        set_field(prop, 56, 5, u64::from(level));
        *prop |= 1 << 63;
        bp.words[BIRTH] = birth.0;
        bp
    }

    /// The payload of an embedded pointer, [`Self::psize`] bytes long (clamped to what fits, whatever the pointer
    /// says).
    pub fn embedded_payload(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(EMBEDDED_PAYLOAD_MAX);
        for &word in &PAYLOAD_WORDS {
            bytes.extend_from_slice(&self.words[word].to_le_bytes());
        }
        bytes.truncate((self.psize() as usize).min(EMBEDDED_PAYLOAD_MAX));
        bytes
    }
}

impl std::fmt::Debug for BlkPtr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_hole() {
            return write!(f, "hole(L{} birth={})", self.level(), self.birth());
        }
        if self.is_embedded() {
            return write!(f, "embedded(L{} {}/{} birth={})", self.level(), self.lsize(), self.psize(), self.birth());
        }
        for dva in self.dvas() {
            write!(f, "<{}:{:x}:{:x}{}> ", dva.vdev, dva.offset, dva.asize, if dva.gang { " gang" } else { "" })?;
        }
        let (lsize, psize) = (self.lsize(), self.psize());
        write!(
            f,
            "L{} type={} {lsize:x}L/{psize:x}P birth={} fill={}",
            self.level(),
            self.object_type(),
            self.birth(),
            self.fill()
        )
    }
}
