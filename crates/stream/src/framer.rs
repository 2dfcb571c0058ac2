//! The bytes of a stream that is being made (`dump_record`, `module/zfs/dmu_send.c`).

use platter_nvlist::Endian;
use platter_ondisk::Guid;

use crate::encode::encode;
use crate::record::{RECORD_SIZE, Record, SUM_AT};
use crate::running_sum::RunningSum;

/// Gives records their bytes, each with the checksum of all before it.
pub struct Framer {
    sum: RunningSum,
    stream: Guid,
    order: Endian,
    bytes: u64,
}

impl Framer {
    /// Of a stream of the snapshot with this guid.
    pub fn new(stream: Guid) -> Self {
        Self::in_order(stream, Endian::Little)
    }

    /// As [`Self::new`], as a machine of this byte order would write it.
    pub fn in_order(stream: Guid, order: Endian) -> Self {
        Self { sum: RunningSum::new(order), stream, order, bytes: 0 }
    }

    /// The record's bytes, which `payload` follows in the stream.
    ///
    /// # Panics
    /// The payload is not as long as the record says.
    pub fn frame(&mut self, record: &Record, payload: &[u8]) -> [u8; RECORD_SIZE] {
        assert_eq!(record.payload_length(), payload.len() as u64, "a record says how long its payload is");
        let mut bytes = encode(record, self.stream, self.order);
        self.sum.add(&bytes[..SUM_AT]);
        if !matches!(record, Record::Begin(_)) {
            for (place, word) in bytes[SUM_AT..].chunks_exact_mut(8).zip(self.sum.words()) {
                place.copy_from_slice(&match self.order {
                    Endian::Little => word.to_le_bytes(),
                    Endian::Big => word.to_be_bytes(),
                });
            }
        }
        self.sum.add(&bytes[SUM_AT..]);
        self.sum.add(payload);
        self.bytes += (RECORD_SIZE + payload.len()) as u64;
        bytes
    }

    /// The last record, which says what the checksum of all before it is.
    pub fn end(&mut self) -> [u8; RECORD_SIZE] {
        let sum = self.sum.words();
        self.frame(&Record::End(sum), &[])
    }

    /// The record after a package's list: as [`end`](Self::end), without a stream and a checksum of its own
    /// (`send_conclusion_record`, `lib/libzfs/libzfs_sendrecv.c`).
    pub fn conclusion(&self) -> [u8; RECORD_SIZE] {
        encode(&Record::End(self.sum.words()), Guid(0), self.order)
    }

    /// The record after the last stream of a package.
    pub fn package_end() -> [u8; RECORD_SIZE] {
        encode(&Record::End([0; 4]), Guid(0), Endian::Little)
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
