//! Space maps (`include/sys/space_map.h`, `module/zfs/space_map.c`): a log of allocations and frees of one metaslab
//! (or, in a log space map, of all vdevs), appended in 64-bit words.
//!
//! ```text
//! debug      | 10 | action (2) | sync pass (10) | txg (50)     |
//! one word   | 0 | offset (47) | type (1) | run - 1 (15)       |
//! two words  | 11 | 0 (2) | run - 1 (36) | vdev (24) |  and  | type (1) | offset (63) |
//! ```
//!
//! Offsets and runs are in units of the map's shift, from the map's start. An entry of two words never lies across the
//! end of a block: a debug entry of zeros fills the gap. Two-word entries exist only with the feature `spacemap_v2`.

use crate::error::Error;
use crate::le::{put_words, u64_at, words_at};

/// Buckets of the histogram.
pub const SPACE_MAP_HISTOGRAM_SIZE: usize = 32;
/// Size of the header without histogram, in bytes.
pub const SPACE_MAP_SIZE_V0: usize = 24;
/// Size of the header with histogram (feature `spacemap_histogram`).
pub const SPACE_MAP_SIZE: usize = 64 + 8 * SPACE_MAP_HISTOGRAM_SIZE;
const _: () = assert!(SPACE_MAP_SIZE == 320);

/// Offsets from here on need two words.
pub const ONE_WORD_OFFSET_END: u64 = 1 << 47;
/// Longest run of a one-word entry.
pub const ONE_WORD_RUN_MAX: u64 = 1 << 15;
/// Offsets from here on cannot be written.
pub const TWO_WORD_OFFSET_END: u64 = 1 << 63;
/// Longest run of a two-word entry.
pub const TWO_WORD_RUN_MAX: u64 = 1 << 36;
/// Vdev ids from here on cannot be written.
pub const VDEV_END: u32 = 1 << 24;

/// `space_map_phys_t`: the bonus of a space map's object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceMapPhys {
    /// The object's own number; not needed.
    pub object: u64,
    /// Bytes of entries.
    pub length: u64,
    /// Bytes allocated according to the entries.
    pub allocated: i64,
    /// Bucket `i` counts free runs of 2^i up to 2^(i+1) units; the last bucket counts longer ones by how many times
    /// they would fill it. `None` in old pools.
    pub histogram: Option<[u64; SPACE_MAP_HISTOGRAM_SIZE]>,
}

impl SpaceMapPhys {
    /// The header of an empty map in object `object`.
    pub fn new(object: u64, with_histogram: bool) -> Self {
        let histogram = with_histogram.then_some([0; SPACE_MAP_HISTOGRAM_SIZE]);
        Self { object, histogram, ..Self::default() }
    }

    /// Decodes a bonus of 24 or at least 320 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("space map", bytes, SPACE_MAP_SIZE_V0)?;
        Ok(Self {
            object: u64_at(bytes, 0),
            length: u64_at(bytes, 8),
            allocated: u64_at(bytes, 16) as i64,
            histogram: (bytes.len() >= SPACE_MAP_SIZE).then(|| words_at(bytes, 64)),
        })
    }

    /// The bonus: 320 bytes with a histogram, 24 without.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; if self.histogram.is_some() { SPACE_MAP_SIZE } else { SPACE_MAP_SIZE_V0 }];
        put_words(&mut out, 0, &[self.object, self.length, self.allocated as u64]);
        if let Some(histogram) = &self.histogram {
            put_words(&mut out, 64, histogram);
        }
        out
    }
}

/// The histogram of these free runs, each in units (0 is skipped).
pub fn histogram(runs: impl IntoIterator<Item = u64>) -> [u64; SPACE_MAP_HISTOGRAM_SIZE] {
    let mut buckets = [0u64; SPACE_MAP_HISTOGRAM_SIZE];
    for run in runs.into_iter().filter(|&run| run > 0) {
        let log = run.ilog2() as usize;
        let bucket = log.min(SPACE_MAP_HISTOGRAM_SIZE - 1);
        buckets[bucket] = buckets[bucket].saturating_add(1 << (log - bucket));
    }
    buckets
}

/// `maptype_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapType {
    /// The run was allocated.
    Alloc,
    /// The run was freed.
    Free,
}

impl MapType {
    fn from_bit(word: u64, bit: u32) -> Self {
        if word >> bit & 1 == 0 { Self::Alloc } else { Self::Free }
    }

    fn bit(self) -> u64 {
        u64::from(self == Self::Free)
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// What follows was written in this pass of this group. With group 0 it only fills a block's end.
    Debug {
        /// Kind of the segments that follow, 0 to 3; informative.
        action: u8,
        /// Sync pass, modulo 1024.
        sync_pass: u16,
        /// Group, modulo 2^50.
        txg: u64,
    },
    /// A run changed hands.
    Segment(Segment),
}

/// A run of units that was allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which of the two.
    pub kind: MapType,
    /// The top-level vdev; only in two-word entries of log space maps (others hold [`VDEV_END`] masked, which reads as
    /// vdev 0; a metaslab's own map has no use for it).
    pub vdev: Option<u32>,
    /// First unit.
    pub offset: u64,
    /// Units, at least 1.
    pub run: u64,
}

const PREFIX_DEBUG: u64 = 2;
const PREFIX_TWO_WORDS: u64 = 3;

fn bits(word: u64, low: u32, count: u32) -> u64 {
    word >> low & ((1 << count) - 1)
}

/// The entries in `bytes`: whole blocks of a map, or the used part of its last block. Reading stops after an error.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = Result<Entry, Error>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        let result = entry(&bytes[at..]);
        at = match &result {
            Ok((_, size)) => at + size,
            Err(_) => bytes.len(),
        };
        Some(result.map(|(entry, _)| entry))
    })
}

/// The entry at the start of `bytes` and its size in bytes.
fn entry(bytes: &[u8]) -> Result<(Entry, usize), Error> {
    const WHAT: &str = "space map";
    Error::need(WHAT, bytes, 8)?;
    let word = u64_at(bytes, 0);
    match word >> 62 {
        PREFIX_DEBUG => {
            let action = bits(word, 60, 2) as u8;
            let sync_pass = bits(word, 50, 10) as u16;
            Ok((Entry::Debug { action, sync_pass, txg: bits(word, 0, 50) }, 8))
        }
        PREFIX_TWO_WORDS => {
            Error::need(WHAT, bytes, 16)?;
            let second = u64_at(bytes, 8);
            let segment = Segment {
                kind: MapType::from_bit(second, 63),
                vdev: Some(bits(word, 0, 24) as u32),
                offset: bits(second, 0, 63),
                run: bits(word, 24, 36) + 1,
            };
            Ok((Entry::Segment(segment), 16))
        }
        _ => {
            let segment = Segment {
                kind: MapType::from_bit(word, 15),
                vdev: None,
                offset: bits(word, 16, 47),
                run: bits(word, 0, 15) + 1,
            };
            Ok((Entry::Segment(segment), 8))
        }
    }
}

/// Collects the bytes to append to a map.
#[derive(Debug)]
pub struct SpaceMapWriter {
    /// Bytes in the map before.
    start: u64,
    block_size: u64,
    two_words: bool,
    bytes: Vec<u8>,
}

impl SpaceMapWriter {
    /// For a map that is `length` bytes long, in blocks of `block_size` bytes; `spacemap_v2` says whether that feature
    /// is active.
    pub fn new(length: u64, block_size: u64, spacemap_v2: bool) -> Self {
        assert!(length.is_multiple_of(8) && block_size.is_multiple_of(16) && block_size > 0);
        Self { start: length, block_size, two_words: spacemap_v2, bytes: Vec::new() }
    }

    fn put(&mut self, word: u64) {
        self.bytes.extend_from_slice(&word.to_le_bytes());
    }

    /// Length of the map with what was added so far, in bytes.
    pub fn length(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Adds the debug entry that precedes the segments of one kind in one sync pass.
    pub fn debug(&mut self, action: MapType, sync_pass: u64, txg: u64) {
        self.put(PREFIX_DEBUG << 62 | action.bit() << 60 | bits(sync_pass, 0, 10) << 50 | bits(txg, 0, 50));
    }

    /// Adds a run of units, as many entries as it needs. `vdev` is given in a log space map only.
    ///
    /// # Panics
    /// When the run is empty or lies where no entry reaches.
    pub fn segment(&mut self, kind: MapType, vdev: Option<u32>, mut offset: u64, mut run: u64) {
        let wide = self.two_words && (vdev.is_some() || offset >= ONE_WORD_OFFSET_END || run > ONE_WORD_RUN_MAX);
        let end = if wide { TWO_WORD_OFFSET_END } else { ONE_WORD_OFFSET_END };
        assert!(run > 0, "an entry has at least one unit");
        assert!(vdev.is_none_or(|vdev| vdev < VDEV_END && self.two_words), "only two-word entries name a vdev");
        while run > 0 {
            assert!(offset < end, "no entry reaches unit {offset}");
            let piece = run.min(if wide { TWO_WORD_RUN_MAX } else { ONE_WORD_RUN_MAX });
            if wide {
                if (self.length() + 8).is_multiple_of(self.block_size) {
                    self.put(PREFIX_DEBUG << 62);
                }
                // "No vdev" is 2^24, of which the field keeps the low 24 bits: zero.
                self.put(PREFIX_TWO_WORDS << 62 | (piece - 1) << 24 | u64::from(vdev.unwrap_or(0)));
                self.put(kind.bit() << 63 | offset);
            } else {
                self.put(offset << 16 | kind.bit() << 15 | (piece - 1));
            }
            offset += piece;
            run -= piece;
        }
    }

    /// The bytes to write at the map's old length.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn any_segment() -> impl Strategy<Value = Segment> {
        let offset = prop_oneof![0..1u64 << 20, 0..ONE_WORD_OFFSET_END - (1 << 20), 0..1u64 << 62];
        let run = prop_oneof![1..100u64, 1..1u64 << 20, 1..1u64 << 40];
        (any::<bool>(), prop::option::of(0..VDEV_END), offset, run).prop_map(|(free, vdev, offset, run)| Segment {
            kind: if free { MapType::Free } else { MapType::Alloc },
            vdev,
            offset,
            run,
        })
    }

    /// Joins what the writer had to split.
    fn joined(bytes: &[u8]) -> Vec<Segment> {
        let mut all: Vec<Segment> = Vec::new();
        for entry in entries(bytes) {
            if let Entry::Segment(next) = entry.unwrap() {
                match all.last_mut() {
                    Some(last) if last.kind == next.kind && last.offset + last.run == next.offset => {
                        last.run += next.run;
                    }
                    _ => all.push(next),
                }
            }
        }
        all
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_no_entry_crosses_a_block(
            segments in vec(any_segment(), 1..40), start in 0..200u64,
        ) {
            let mut writer = SpaceMapWriter::new(start * 8, 128, true);
            writer.debug(MapType::Alloc, 3, 77);
            for s in &segments {
                writer.segment(s.kind, s.vdev, s.offset, s.run);
            }
            prop_assert_eq!(writer.length() % 8, 0);
            let bytes = writer.finish();
            // Read block by block, as a reader must be able to.
            let first = (128 - (start * 8 % 128) as usize).min(bytes.len());
            let blocks = std::iter::once(&bytes[..first]).chain(bytes[first..].chunks(128));
            let by_block: Vec<_> = blocks.flat_map(entries).collect::<Result<_, _>>().unwrap();
            let at_once: Vec<_> = entries(&bytes).collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&by_block, &at_once);
            prop_assert_eq!(at_once[0], Entry::Debug { action: 0, sync_pass: 3, txg: 77 });

            let units = |segments: &[Segment]| segments.iter().map(|s| u128::from(s.run)).sum::<u128>();
            prop_assert_eq!(units(&joined(&bytes)), units(&segments));
        }

        #[test]
        fn one_segment_reads_back_as_it_was(s in any_segment()) {
            let mut writer = SpaceMapWriter::new(0, 4096, true);
            writer.segment(s.kind, s.vdev, s.offset, s.run);
            let read = joined(&writer.finish());
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!((read[0].kind, read[0].offset, read[0].run), (s.kind, s.offset, s.run));
            if s.vdev.is_some() {
                prop_assert_eq!(read[0].vdev, s.vdev);
            }
        }

        #[test]
        fn without_the_feature_only_one_word_entries_are_written(offset in 0..1u64 << 40, run in 1..1u64 << 20) {
            let mut writer = SpaceMapWriter::new(8, 512, false);
            writer.segment(MapType::Alloc, None, offset, run);
            let bytes = writer.finish();
            prop_assert_eq!(bytes.len() as u64, run.div_ceil(ONE_WORD_RUN_MAX) * 8);
            prop_assert_eq!(joined(&bytes), vec![Segment { kind: MapType::Alloc, vdev: None, offset, run }]);
        }

        #[test]
        fn any_bytes_read_or_fail(bytes in vec(any::<u8>(), 0..300)) {
            let read = entries(&bytes).take_while(Result::is_ok).count();
            prop_assert!(read <= bytes.len() / 8);
            let _ = SpaceMapPhys::decode(&bytes);
        }

        #[test]
        fn the_header_reads_back(object: u64, length: u64, allocated: i64, words: Option<[u64; 32]>) {
            let phys = SpaceMapPhys { object, length, allocated, histogram: words };
            prop_assert_eq!(SpaceMapPhys::decode(&phys.encode()).unwrap(), phys);
        }
    }

    #[test]
    fn small_segments_take_one_word() {
        let mut writer = SpaceMapWriter::new(0, 4096, true);
        writer.segment(MapType::Alloc, None, 5, ONE_WORD_RUN_MAX);
        assert_eq!(writer.length(), 8);
        writer.segment(MapType::Alloc, None, 5, ONE_WORD_RUN_MAX + 1);
        assert_eq!(writer.length(), 24);
    }

    #[test]
    fn the_last_bucket_counts_by_size() {
        let buckets = histogram([1, 1, 3, 1 << 31, 1 << 33, 0]);
        assert_eq!((buckets[0], buckets[1], buckets[31]), (2, 1, 5));
    }

    /// Found by fuzzing: a run that begins at the last offset of one word and reaches beyond was refused. Only its
    /// first unit has to be within reach, as OpenZFS has it.
    #[test]
    fn a_run_may_reach_beyond_the_last_one_word_offset() {
        let mut writer = SpaceMapWriter::new(0, 4096, true);
        let segment = Segment { kind: MapType::Alloc, vdev: None, offset: ONE_WORD_OFFSET_END - 1, run: 2 };
        writer.segment(segment.kind, segment.vdev, segment.offset, segment.run);
        assert_eq!(joined(&writer.finish()), [segment]);
    }
}
