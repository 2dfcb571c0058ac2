//! Extended attributes of a file as a log record carries them (`lr_attr_t`, `include/sys/zil.h`; the bits:
//! `include/sys/xvattr.h`).
//!
//! ```text
//! 0        4                      4*(n+1)      +8       +24            +56
//! | n      | n words: which are   | their      | creation | scan stamp or |
//! |        | given                | values     | time     | project       |
//! ```

use crate::error::Error;
use crate::le::{put_words, words_at};

/// Words in the mask that OpenZFS writes (`XVA_MAPSIZE`).
pub const MASK_WORDS: usize = 3;
/// More than this is no mask.
const MASK_WORDS_MAX: usize = 64;
/// Values, creation time and scan stamp, in bytes (`lr_attr_end_t`).
const TAIL: usize = 8 + 16 + 32;

/// Bits of [`Attributes::mask`] and [`Attributes::values`] (`XAT0_*`).
#[allow(missing_docs)]
pub mod bits {
    pub const CREATE_TIME: u64 = 0x1;
    pub const ARCHIVE: u64 = 0x2;
    pub const SYSTEM: u64 = 0x4;
    pub const READONLY: u64 = 0x8;
    pub const HIDDEN: u64 = 0x10;
    pub const NOUNLINK: u64 = 0x20;
    pub const IMMUTABLE: u64 = 0x40;
    pub const APPENDONLY: u64 = 0x80;
    pub const NODUMP: u64 = 0x100;
    pub const OPAQUE: u64 = 0x200;
    pub const AV_QUARANTINED: u64 = 0x400;
    pub const AV_MODIFIED: u64 = 0x800;
    pub const AV_SCANSTAMP: u64 = 0x1000;
    pub const REPARSE: u64 = 0x2000;
    pub const OFFLINE: u64 = 0x8000;
    pub const SPARSE: u64 = 0x1_0000;
    pub const PROJINHERIT: u64 = 0x2_0000;
    pub const PROJID: u64 = 0x4_0000;
}

/// See the module text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which attributes are given: the words of the mask.
    pub mask: Vec<u32>,
    /// The values of those that are on or off.
    pub values: u64,
    /// Creation time: seconds and nanoseconds.
    pub create_time: [u64; 2],
    /// The virus scanner's stamp, or the project in its first eight bytes.
    pub stamp: [u8; 32],
}

impl Attributes {
    /// Decodes them from the start of `bytes` and returns how many bytes they take.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), Error> {
        const WHAT: &str = "log record's attributes";
        Error::need(WHAT, bytes, 4)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let words = word(0) as usize;
        if words == 0 || words > MASK_WORDS_MAX {
            return Err(Error::field(WHAT, "lr_attr_masksize", words as u64));
        }
        let tail = 4 + 4 * words;
        Error::need(WHAT, bytes, tail + TAIL)?;
        let [values, seconds, nanoseconds] = words_at::<3>(bytes, tail);
        let stamp = bytes[tail + 24..tail + TAIL].try_into().expect("32 bytes");
        let mask = (1..=words).map(|i| word(4 * i)).collect();
        Ok((Self { mask, values, create_time: [seconds, nanoseconds], stamp }, tail + TAIL))
    }

    /// Appends them to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.mask.len() as u32).to_le_bytes());
        self.mask.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        let at = out.len();
        out.resize(at + 24, 0);
        put_words(out, at, &[self.values, self.create_time[0], self.create_time[1]]);
        out.extend_from_slice(&self.stamp);
    }

    /// Whether attribute `bit` (one of [`bits`]) is given.
    pub fn has(&self, bit: u64) -> bool {
        u64::from(self.mask.first().copied().unwrap_or(0)) & bit != 0
    }

    /// The value of attribute `bit`, if it is given.
    pub fn value(&self, bit: u64) -> Option<bool> {
        self.has(bit).then_some(self.values & bit != 0)
    }

    /// The project, if it is given.
    pub fn project(&self) -> Option<u64> {
        self.has(bits::PROJID).then(|| u64::from_le_bytes(self.stamp[..8].try_into().expect("eight bytes")))
    }
}
