//! The parts of a device where signatures are: its beginning, its end, and some places between.
//!
//! Invariant: a place that was not read, or could not be, reads as nothing; no part reaches beyond the device.

use crate::block_device::BlockDevice;

/// Bytes at the beginning that are read as a whole: beyond them lie only backups.
const HEAD: u64 = 320 << 10;
/// Bytes at the end: vendors of array controllers put their notes up to 3087 sectors before it.
const TAIL: u64 = 2 << 20;
/// Places between, each of 4 KiB: copies of LUKS headers, of VMFS and bcachefs.
const BETWEEN: [u64; 5] = [512 << 10, 1 << 20, 2 << 20, (2 << 20) + 4096, 4 << 20];
/// Bytes of these.
const PIECE: u64 = 4096;

/// See the module text.
#[derive(Clone, Debug, Default)]
pub struct Image {
    size: u64,
    /// Offset and bytes, without overlaps that differ.
    parts: Vec<(u64, Vec<u8>)>,
}

impl Image {
    /// An image of a device of `size` bytes from some of its parts.
    pub fn new(size: u64, parts: Vec<(u64, Vec<u8>)>) -> Self {
        Self { size, parts }
    }

    /// Reads what is needed of a device.
    pub async fn read(device: &dyn BlockDevice) -> Self {
        let size = device.size();
        let mut image = Self { size, parts: Vec::new() };
        let tail = size.saturating_sub(TAIL) / PIECE * PIECE;
        let ranges = [(0, HEAD), (tail, size - tail)].into_iter().chain(BETWEEN.map(|at| (at, PIECE)));
        for (at, length) in ranges {
            let length = length.min(size.saturating_sub(at));
            if length == 0 || image.bytes(at, length as usize).is_some() {
                continue;
            }
            match device.read(at, length as usize).await {
                Ok(bytes) => image.parts.push((at, bytes.to_vec())),
                // A sector that cannot be read does not hide what is beside it.
                Err(_) => {
                    for at in (at..at + length).step_by(PIECE as usize) {
                        let length = PIECE.min(size - at) as usize;
                        if let Ok(bytes) = device.read(at, length).await {
                            image.parts.push((at, bytes.to_vec()));
                        }
                    }
                }
            }
        }
        let is_inside = |(at, bytes): &(u64, Vec<u8>)| at + bytes.len() as u64 <= size;
        assert!(image.parts.iter().all(is_inside), "no part reaches beyond the device");
        image
    }

    /// Size of the device in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// `length` bytes at `at`.
    pub fn bytes(&self, at: u64, length: usize) -> Option<&[u8]> {
        self.parts.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(at.checked_sub(*start)?).ok()?;
            bytes.get(from..from.checked_add(length)?)
        })
    }

    /// Whether these bytes are at `at`.
    pub fn has(&self, at: u64, bytes: &[u8]) -> bool {
        self.bytes(at, bytes.len()) == Some(bytes)
    }

    /// The byte at `at`; 0 where there is none, as for all numbers below.
    pub fn u8(&self, at: u64) -> u8 {
        self.bytes(at, 1).map_or(0, |bytes| bytes[0])
    }

    fn array<const N: usize>(&self, at: u64) -> [u8; N] {
        self.bytes(at, N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    /// A little-endian number.
    pub fn le16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    /// A little-endian number.
    pub fn le32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    /// A little-endian number.
    pub fn le64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    /// A big-endian number.
    pub fn be16(&self, at: u64) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    /// A big-endian number.
    pub fn be32(&self, at: u64) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    /// A big-endian number.
    pub fn be64(&self, at: u64) -> u64 {
        u64::from_be_bytes(self.array(at))
    }
}
