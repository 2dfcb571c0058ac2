//! Numbers at places of a record, in the byte order of the stream.

use platter_nvlist::Endian;

use crate::record::RECORD_SIZE;

/// The record's kind and the length of its payload come first, then what is said below.
const BODY: usize = 8;

/// Reads a record.
pub(crate) struct Fields<'a> {
    pub(crate) bytes: &'a [u8; RECORD_SIZE],
    pub(crate) order: Endian,
}

impl Fields<'_> {
    /// The 64-bit number at `at` of the body.
    pub(crate) fn u64(&self, at: usize) -> u64 {
        let bytes: [u8; 8] = self.bytes[BODY + at..BODY + at + 8].try_into().expect("eight bytes");
        match self.order {
            Endian::Little => u64::from_le_bytes(bytes),
            Endian::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The 32-bit number at `at` of the body.
    pub(crate) fn u32(&self, at: usize) -> u32 {
        self.u32_of_record(BODY + at)
    }

    /// The 32-bit number at `at` of the whole record.
    pub(crate) fn u32_of_record(&self, at: usize) -> u32 {
        let bytes: [u8; 4] = self.bytes[at..at + 4].try_into().expect("four bytes");
        match self.order {
            Endian::Little => u32::from_le_bytes(bytes),
            Endian::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The byte at `at` of the body.
    pub(crate) fn u8(&self, at: usize) -> u8 {
        self.bytes[BODY + at]
    }

    /// The bytes from `at` of the body.
    pub(crate) fn bytes(&self, at: usize, length: usize) -> &[u8] {
        &self.bytes[BODY + at..BODY + at + length]
    }

    /// Four 64-bit words.
    pub(crate) fn words(&self, at: usize) -> [u64; 4] {
        [self.u64(at), self.u64(at + 8), self.u64(at + 16), self.u64(at + 24)]
    }
}

/// Writes a record.
pub(crate) struct FieldsMut<'a> {
    pub(crate) bytes: &'a mut [u8; RECORD_SIZE],
    pub(crate) order: Endian,
}

impl FieldsMut<'_> {
    pub(crate) fn u64(&mut self, at: usize, value: u64) {
        let bytes = match self.order {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        };
        self.bytes[BODY + at..BODY + at + 8].copy_from_slice(&bytes);
    }

    pub(crate) fn u32(&mut self, at: usize, value: u32) {
        self.u32_of_record(BODY + at, value);
    }

    pub(crate) fn u32_of_record(&mut self, at: usize, value: u32) {
        let bytes = match self.order {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        };
        self.bytes[at..at + 4].copy_from_slice(&bytes);
    }

    pub(crate) fn u8(&mut self, at: usize, value: u8) {
        self.bytes[BODY + at] = value;
    }

    pub(crate) fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[BODY + at..BODY + at + value.len()].copy_from_slice(value);
    }

    pub(crate) fn words(&mut self, at: usize, words: [u64; 4]) {
        for (index, word) in words.into_iter().enumerate() {
            self.u64(at + 8 * index, word);
        }
    }
}
