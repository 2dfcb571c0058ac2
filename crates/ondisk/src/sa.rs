//! System attributes: how a file's attributes lie in its dnode's bonus and in the spill block
//! (`include/sys/sa_impl.h`, `module/zfs/sa.c`).
//!
//! ```text
//!  0       4       6       8                      header size
//! +-------+-------+-------+-------+---- - - ------+-----------+---
//! | magic | info  | len 0 | len 1 | ... padding   | attribute | ...
//! +-------+-------+-------+-------+---- - - ------+-----------+---
//!          info: bits 0-9 layout number, bits 10-15 header size in units of 8 bytes
//! ```
//!
//! Invariants:
//! - which attributes follow, and in which order, is the layout's business (data set's `LAYOUTS` ZAP); one length
//!   stands in the header for each attribute of variable size, in the layout's order; every attribute starts at a
//!   multiple of 8;
//! - the header is 8 bytes long while at most one length is needed, and grows in steps of 8;
//! - a buffer written on a machine of the other byte order is recognised by its magic number and turned by the
//!   functions that the data set's `REGISTRY` ZAP names.

use std::borrow::Cow;
use std::ops::Range;

use crate::ace;
use crate::error::Error;
use crate::le::{put_u16, u16_at};

/// `SA_MAGIC`.
pub const SA_MAGIC: u32 = 0x2F_505A;
/// Name of the registry's entry in the SA master node.
pub const SA_REGISTRY: &str = "REGISTRY";
/// Name of the layouts' entry in the SA master node.
pub const SA_LAYOUTS: &str = "LAYOUTS";
/// Layout numbers are 10 bits wide.
pub const SA_LAYOUT_MAX: u16 = 1023;
/// The first layout number a data set gives out (0 is the legacy znode, 1 the empty buffer).
pub const SA_LAYOUT_FIRST: u16 = 2;
/// Room that a spill block's pointer takes at the end of the bonus area, in bytes.
pub const SPILL_POINTER_SIZE: usize = 128;
/// Largest spill block in bytes (`SPA_OLD_MAXBLOCKSIZE`).
pub const SPILL_SIZE_MAX: usize = 128 << 10;

const WHAT: &str = "system attributes";

/// How an attribute's bytes are turned (`sa_bswap_type_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrByteswap {
    /// Array of 64-bit integers.
    Uint64,
    /// Array of 32-bit integers.
    Uint32,
    /// Array of 16-bit integers.
    Uint16,
    /// Bytes: nothing to turn.
    Uint8,
    /// A list of access control entries.
    Acl,
}

impl AttrByteswap {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Uint64,
            1 => Self::Uint32,
            2 => Self::Uint16,
            3 => Self::Uint8,
            4 => Self::Acl,
            _ => return None,
        })
    }

    fn turn(self, bytes: &mut [u8]) {
        let width = match self {
            Self::Uint64 => 8,
            Self::Uint32 => 4,
            Self::Uint16 => 2,
            Self::Uint8 => return,
            Self::Acl => return turn_acl(bytes),
        };
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}

/// Turns access control entries of version 1 (`zfs_ace_byteswap`): type and flags of 2 bytes, mask of 4, and for those
/// that name somebody 8 bytes of id (32 more bytes for object entries).
fn turn_acl(bytes: &mut [u8]) {
    let mut at = 0;
    while at + 8 <= bytes.len() {
        bytes[at..at + 2].reverse();
        bytes[at + 2..at + 4].reverse();
        bytes[at + 4..at + 8].reverse();
        let size = ace::size(u16_at(bytes, at), u16_at(bytes, at + 2));
        if size > 8 && at + 16 <= bytes.len() {
            bytes[at + 8..at + 16].reverse();
        }
        at += size;
    }
}

/// What the registry says about one attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrShape {
    /// The attribute's number in this data set.
    pub number: u16,
    /// Its size in bytes; 0 when each file has its own.
    pub length: u16,
    /// How it is turned.
    pub byteswap: AttrByteswap,
}

impl AttrShape {
    /// The registry's value for the attribute.
    pub fn to_registry(self) -> u64 {
        (u64::from(self.length) << 24) | ((self.byteswap as u64) << 16) | u64::from(self.number)
    }

    /// From the registry's value.
    pub fn from_registry(value: u64) -> Result<Self, Error> {
        let byteswap = AttrByteswap::from_number((value >> 16) as u8)
            .ok_or_else(|| Error::field("attribute registry", "bswap", (value >> 16) & 0xff))?;
        Ok(Self { number: value as u16, length: (value >> 24) as u16, byteswap })
    }
}

/// Size in bytes of a header that stores `variable` lengths.
pub const fn header_size(variable: usize) -> usize {
    8 + (variable.saturating_sub(1) * 2).next_multiple_of(8)
}

const _: () = assert!(header_size(0) == 8 && header_size(1) == 8 && header_size(2) == 16 && header_size(6) == 24);

/// What a buffer's header says whatever its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaHeader {
    /// Number of the layout.
    pub layout: u16,
    /// Bytes before the first attribute.
    pub size: usize,
    /// Whether a machine of the other byte order wrote the buffer.
    pub turned: bool,
}

impl SaHeader {
    /// The header of `bytes`; `None` when they are too few or have another magic number (as one that was never filled).
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let head: [u8; 6] = bytes.get(..6)?.try_into().ok()?;
        let magic = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let turned = magic == SA_MAGIC.swap_bytes();
        let info = half(&head, 4, turned);
        let is_one = turned || magic == SA_MAGIC;
        is_one.then_some(Self { layout: info & 0x3ff, size: usize::from(info >> 10) * 8, turned })
    }
}

fn half(bytes: &[u8], at: usize, turned: bool) -> u16 {
    let word = u16_at(bytes, at);
    if turned { word.swap_bytes() } else { word }
}

/// A decoded bonus or spill buffer.
#[derive(Clone, Debug)]
pub struct SaBuffer<'a> {
    /// The buffer in native byte order.
    pub bytes: Cow<'a, [u8]>,
    /// Its layout number.
    pub layout: u16,
    /// Each attribute's number and place in `bytes`, in order.
    pub attributes: Vec<(u16, Range<usize>)>,
}

impl<'a> SaBuffer<'a> {
    /// Decodes `bytes` with the data set's tables: `layout` gives a layout's attributes, `shape` an attribute's shape.
    ///
    /// # Errors
    /// A wrong magic number, an unknown layout or attribute, an attribute that leaves the buffer.
    pub fn decode<'t>(
        bytes: &'a [u8],
        layout: impl Fn(u16) -> Option<&'t [u16]>,
        shape: impl Fn(u16) -> Option<AttrShape>,
    ) -> Result<Self, Error> {
        Error::need(WHAT, bytes, 8)?;
        let magic = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        if magic == 0 {
            // A dnode whose bonus was never filled.
            return Ok(Self { bytes: Cow::Borrowed(bytes), layout: 1, attributes: Vec::new() });
        }
        let bad_magic = Error::BadMagic { what: WHAT, found: u64::from(magic) };
        let SaHeader { layout: number, size, turned } = SaHeader::of(bytes).ok_or(bad_magic)?;
        let attributes = layout(number).ok_or_else(|| Error::field(WHAT, "layout", number))?;
        let mut shapes = Vec::with_capacity(attributes.len());
        for &attribute in attributes {
            shapes.push(shape(attribute).ok_or_else(|| Error::field(WHAT, "attribute", attribute))?);
        }
        let start = header_size(shapes.iter().filter(|s| s.length == 0).count());
        if size != start {
            return Err(Error::field(WHAT, "header size", (size / 8) as u64));
        }
        Error::need(WHAT, bytes, start)?;
        let places = Vec::with_capacity(shapes.len());
        let mut buffer = Self { bytes: Cow::Borrowed(bytes), layout: number, attributes: places };
        let (mut at, mut lengths) = (start, 0);
        for shape in &shapes {
            let length = if shape.length == 0 {
                lengths += 1;
                half(bytes, 4 + 2 * lengths, turned)
            } else {
                shape.length
            };
            let end = at + usize::from(length);
            Error::need(WHAT, bytes, end)?;
            if turned {
                shape.byteswap.turn(&mut buffer.bytes.to_mut()[at..end]);
            }
            buffer.attributes.push((shape.number, at..end));
            at = end.next_multiple_of(8);
        }
        Ok(buffer)
    }
}

/// One attribute on its way into a buffer.
#[derive(Clone, Copy, Debug)]
pub struct SaValue<'a> {
    /// Whether its length must be stored (the registry says 0).
    pub variable: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// How many of `values`, counted from the front, stay in a bonus of `capacity` bytes; the others go to the spill block,
/// whose pointer then takes the bonus's last [`SPILL_POINTER_SIZE`] bytes (`sa_find_sizes`).
pub fn fit(values: &[SaValue<'_>], capacity: usize) -> usize {
    let fits = |room: usize| {
        let (mut end, mut variable) = (0usize, 0usize);
        values
            .iter()
            .position(|value| {
                variable += usize::from(value.variable);
                end = end.next_multiple_of(8) + value.bytes.len();
                header_size(variable) + end > room
            })
            .unwrap_or(values.len())
    };
    if fits(capacity) == values.len() { values.len() } else { fits(capacity.saturating_sub(SPILL_POINTER_SIZE)) }
}

/// A buffer with `values` under layout `layout`.
///
/// # Errors
/// When the layout number or a length does not fit its field, or the result would exceed a spill block.
pub fn encode(layout: u16, values: &[SaValue<'_>]) -> Result<Vec<u8>, Error> {
    let length: usize = values.iter().map(|value| value.bytes.len().next_multiple_of(8)).sum();
    let mut writer = SaWriter::new(layout, values.iter().filter(|v| v.variable).count(), length.min(SPILL_SIZE_MAX))?;
    for value in values {
        writer.value(value.variable, |out| out.extend_from_slice(value.bytes))?;
    }
    writer.finish()
}

/// The bytes of a bonus or spill buffer as they come into being: attribute after attribute, in the layout's order.
#[derive(Debug)]
pub struct SaWriter {
    out: Vec<u8>,
    /// Variable attributes so far.
    lengths: usize,
    /// All of them.
    variable: usize,
}

impl SaWriter {
    /// For `variable` attributes without a fixed length among those of `layout`, and about `length` bytes of values.
    ///
    /// # Errors
    /// When the layout number or the size of the header does not fit its field.
    pub fn new(layout: u16, variable: usize, length: usize) -> Result<Self, Error> {
        let start = header_size(variable);
        if layout > SA_LAYOUT_MAX {
            return Err(Error::field(WHAT, "layout", layout));
        }
        if start / 8 > 63 {
            return Err(Error::field(WHAT, "header size", start as u64));
        }
        let mut out = Vec::with_capacity(start + length);
        out.resize(start, 0);
        out[..4].copy_from_slice(&SA_MAGIC.to_le_bytes());
        put_u16(&mut out, 4, layout | ((start / 8) as u16) << 10);
        Ok(Self { out, lengths: 0, variable })
    }

    /// The next attribute, whose bytes `give` appends.
    ///
    /// # Errors
    /// When its length does not fit the field for it.
    pub fn value(&mut self, variable: bool, give: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        let from = self.out.len().next_multiple_of(8);
        self.out.resize(from, 0);
        give(&mut self.out);
        let length = self.out.len() - from;
        let length = u16::try_from(length).map_err(|_| Error::field(WHAT, "attribute length", length as u64))?;
        if variable {
            self.lengths += 1;
            assert!(self.lengths <= self.variable, "the header has room for {} lengths", self.variable);
            put_u16(&mut self.out, 4 + 2 * self.lengths, length);
        }
        Ok(())
    }

    /// All of it.
    ///
    /// # Errors
    /// When it would exceed a spill block.
    pub fn finish(self) -> Result<Vec<u8>, Error> {
        assert_eq!(self.lengths, self.variable, "the header has the length of each attribute of variable size");
        if self.out.len() > SPILL_SIZE_MAX {
            return Err(Error::field(WHAT, "total size", self.out.len() as u64));
        }
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(number: u16) -> Option<AttrShape> {
        // Even attributes: fixed, 8 bytes times (number/2 % 4 + 1). Odd ones: variable. 100 and above: unknown.
        (number < 100).then(|| AttrShape {
            number,
            length: if number.is_multiple_of(2) { 8 * (number / 2 % 4 + 1) } else { 0 },
            byteswap: if number.is_multiple_of(2) { AttrByteswap::Uint64 } else { AttrByteswap::Uint8 },
        })
    }

    fn attributes() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
        proptest::collection::vec((0u16..100, proptest::collection::vec(any::<u8>(), 0..90)), 0..20).prop_map(|list| {
            let mut seen = std::collections::BTreeSet::new();
            list.into_iter()
                .filter(|(number, _)| seen.insert(*number))
                .map(|(number, mut bytes)| {
                    let length = usize::from(shape(number).expect("known").length);
                    if length > 0 {
                        bytes.resize(length, 7);
                    }
                    (number, bytes)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded_in_both_byte_orders(list in attributes(), layout in 2u16..1024) {
            let values: Vec<_> = list
                .iter()
                .map(|(n, b)| SaValue { variable: n % 2 == 1, bytes: b })
                .collect();
            let numbers: Vec<u16> = list.iter().map(|(n, _)| *n).collect();
            let encoded = encode(layout, &values).unwrap();
            let find = |n: u16| (n == layout).then_some(&numbers[..]);
            let decoded = SaBuffer::decode(&encoded, find, shape).unwrap();
            prop_assert_eq!(decoded.layout, layout);
            for ((number, bytes), (found, place)) in list.iter().zip(&decoded.attributes) {
                prop_assert_eq!(number, found);
                prop_assert_eq!(place.start % 8, 0);
                prop_assert_eq!(&bytes[..], &decoded.bytes[place.clone()]);
            }
            let mut turned = encoded.clone();
            turned[..4].reverse();
            let header = usize::from(u16_at(&encoded, 4) >> 10) * 8;
            turned[4..header].chunks_exact_mut(2).for_each(<[u8]>::reverse);
            for (number, place) in &decoded.attributes {
                shape(*number).unwrap().byteswap.turn(&mut turned[place.clone()]);
            }
            let again = SaBuffer::decode(&turned, find, shape).unwrap();
            for ((_, bytes), (_, place)) in list.iter().zip(&again.attributes) {
                prop_assert_eq!(&bytes[..], &again.bytes[place.clone()]);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), magic: bool) {
            if magic && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&SA_MAGIC.to_le_bytes());
            }
            let numbers = [1u16, 2, 3, 5, 8];
            let _ = SaBuffer::decode(&bytes, |n| (n > 4).then_some(&numbers[..]), shape);
        }

        #[test]
        fn what_fits_leaves_room_for_the_spill_pointer(list in attributes(), capacity in 192usize..1000) {
            let values: Vec<_> = list
                .iter()
                .map(|(n, b)| SaValue { variable: n % 2 == 1, bytes: b })
                .collect();
            let kept = fit(&values, capacity);
            let size = encode(2, &values[..kept]).unwrap().len();
            let room = if kept == values.len() { capacity } else { capacity - SPILL_POINTER_SIZE };
            prop_assert!(kept == 0 || size <= room);
        }
    }

    #[test]
    fn registry_values_are_those_of_openzfs() {
        // ZPL_ATIME: two 64-bit words, attribute 0; ZPL_DACL_ACES: variable, ACL, attribute 19.
        let atime = AttrShape { number: 0, length: 16, byteswap: AttrByteswap::Uint64 };
        assert_eq!(atime.to_registry(), 0x10_000000);
        let aces = AttrShape { number: 19, length: 0, byteswap: AttrByteswap::Acl };
        assert_eq!(aces.to_registry(), 0x0004_0013);
        for shape in [atime, aces] {
            assert_eq!(AttrShape::from_registry(shape.to_registry()).unwrap(), shape);
        }
        assert!(AttrShape::from_registry(9 << 16).is_err());
    }

    #[test]
    fn header_sizes_are_those_of_openzfs() {
        assert_eq!([0, 1, 2, 5, 6].map(header_size), [8, 8, 16, 16, 24]);
    }
}
