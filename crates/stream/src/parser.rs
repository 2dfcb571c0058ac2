//! The order of a stream that comes in (`receive_read_payload_and_next_header`, `module/zfs/dmu_recv.c`).

use platter_nvlist::Endian;

use crate::begin::Begin;
use crate::decode;
use crate::error::StreamError;
use crate::features::StreamFeatures;
use crate::fields::Fields;
use crate::record::{RECORD_SIZE, Record, SUM_AT};
use crate::running_sum::RunningSum;

/// A record that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub record: Record,
    /// How many bytes follow that belong to it: to be handed to [`Parser::payload`] before the next record.
    pub payload: u32,
}

/// Takes a stream in, one record at a time.
pub struct Parser {
    sum: RunningSum,
    features: StreamFeatures,
    awaited: u32,
    ended: bool,
}

impl Parser {
    /// Of a stream whose first record has these bytes.
    ///
    /// # Errors
    /// It is none, or makes no sense.
    pub fn begin(bytes: &[u8; RECORD_SIZE]) -> Result<(Self, Begin), StreamError> {
        let order = decode::order_of(bytes)?;
        let begin = decode::begin(&Fields { bytes, order })?;
        let mut sum = RunningSum::new(order);
        sum.add(bytes);
        let parser = Self { sum, features: begin.features, awaited: begin.list_length, ended: false };
        Ok((parser, begin))
    }

    /// Whether these bytes are the record after the last stream of a package.
    pub fn is_package_end(bytes: &[u8; RECORD_SIZE]) -> bool {
        let kind = [bytes[0], bytes[1], bytes[2], bytes[3]];
        [u32::from_le_bytes(kind), u32::from_be_bytes(kind)].contains(&crate::record::kind::END)
    }

    /// Whether it comes from a machine of the other byte order: what records carry has to be turned.
    pub fn is_swapped(&self) -> bool {
        self.order() == Endian::Big
    }

    /// The byte order of its numbers.
    pub fn order(&self) -> Endian {
        self.sum.order()
    }

    /// Whether its END was there.
    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The next record. Its checksum, where it has one, is that of all before it.
    ///
    /// # Errors
    /// A checksum that is not right, a record that makes no sense or must not be here.
    pub fn header(&mut self, bytes: &[u8; RECORD_SIZE]) -> Result<Header, StreamError> {
        if self.awaited != 0 || self.ended {
            return StreamError::malformed("a record where none is");
        }
        let fields = Fields { bytes, order: self.order() };
        let before = self.sum.words();
        self.sum.add(&bytes[..SUM_AT]);
        // From before records had checksums: all zeros.
        let said = fields.words(SUM_AT - 8);
        if said != [0; 4] && said != self.sum.words() {
            return Err(StreamError::Checksum);
        }
        self.sum.add(&bytes[SUM_AT..]);
        let record = decode::record(&fields, self.features)?;
        if let Record::End(sum) = record {
            if sum != before {
                return Err(StreamError::Checksum);
            }
            self.ended = true;
        }
        let payload = u32::try_from(record.payload_length()).or_else(|_| StreamError::malformed("a huge payload"))?;
        self.awaited = payload;
        Ok(Header { record, payload })
    }

    /// A record that came in before, once more.
    ///
    /// # Errors
    /// It is not the same any more, and makes no sense.
    pub fn again(&self, bytes: &[u8; RECORD_SIZE]) -> Result<Record, StreamError> {
        decode::record(&Fields { bytes, order: self.order() }, self.features)
    }

    /// The bytes that belong to the last record.
    ///
    /// # Errors
    /// They are not as many as it said.
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        if bytes.len() != self.awaited as usize {
            return StreamError::malformed("a payload of another length");
        }
        self.sum.add(bytes);
        self.awaited = 0;
        Ok(())
    }
}
