//! A stream's records, one after the other, from where it comes from (`receive_read_record`, `module/zfs/dmu_recv.c`).
//! They were checked one by one; at no time is more than one in memory.

use platter_stream::{Begin, Parser, RECORD_SIZE, Record};

use crate::error::{PoolError, Result};
use crate::stream_ends::StreamSource;

/// Reads a stream's first record with its list.
///
/// # Errors
/// It is none; what the source says.
pub async fn read_begin(source: &mut dyn StreamSource) -> Result<(Parser, Begin, Vec<u8>)> {
    let mut bytes = [0; RECORD_SIZE];
    if source.fill(&mut bytes).await? < RECORD_SIZE {
        return Err(PoolError::invalid("invalid stream\n(failed to read first record)"));
    }
    begun(&bytes, source).await
}

async fn begun(bytes: &[u8; RECORD_SIZE], source: &mut dyn StreamSource) -> Result<(Parser, Begin, Vec<u8>)> {
    let (mut parser, begin) = Parser::begin(bytes).map_err(|error| PoolError::Invalid(error.to_string()))?;
    let mut list = Vec::new();
    if begin.list_length > 0 {
        list = payload(source, begin.list_length as usize).await?;
        parser.payload(&list).map_err(|error| PoolError::Invalid(error.to_string()))?;
    }
    Ok((parser, begin, list))
}

/// Reads the first record of the next stream in a package; nothing when that was the last.
///
/// # Errors
/// As [`read_begin`].
pub async fn read_next(source: &mut dyn StreamSource) -> Result<Option<(Parser, Begin, Vec<u8>)>> {
    let mut bytes = [0; RECORD_SIZE];
    if source.fill(&mut bytes).await? < RECORD_SIZE {
        return Err(incomplete());
    }
    match Parser::is_package_end(&bytes) {
        true => Ok(None),
        false => begun(&bytes, source).await.map(Some),
    }
}

/// Reads `length` bytes.
async fn payload(source: &mut dyn StreamSource, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    if source.fill(&mut bytes).await? < length {
        return Err(incomplete());
    }
    Ok(bytes)
}

pub(crate) fn incomplete() -> PoolError {
    PoolError::invalid("incomplete stream")
}

fn refused(error: platter_stream::StreamError) -> PoolError {
    match error {
        platter_stream::StreamError::Checksum => PoolError::invalid("checksum mismatch"),
        platter_stream::StreamError::Unsupported(text) => PoolError::Unsupported(text),
        error => {
            tracing::debug!(%error, "a stream makes no sense");
            PoolError::invalid("invalid backup stream")
        }
    }
}

/// The records behind a stream's first.
pub struct Records<'a> {
    parser: Parser,
    source: &'a mut dyn StreamSource,
    bytes: u64,
}

impl<'a> Records<'a> {
    /// Of the stream that `parser` has begun.
    pub fn new(parser: Parser, source: &'a mut dyn StreamSource) -> Self {
        Self { parser, source, bytes: 0 }
    }

    /// The next record with its payload; none after the last.
    ///
    /// # Errors
    /// It makes no sense, was changed or is missing; what the source says.
    pub async fn next(&mut self) -> Result<Option<(Record, Vec<u8>)>> {
        let mut header = [0; RECORD_SIZE];
        if self.source.fill(&mut header).await? < RECORD_SIZE {
            return Err(incomplete());
        }
        let next = self.parser.header(&header).map_err(refused)?;
        self.bytes += RECORD_SIZE as u64;
        if matches!(next.record, Record::End(_)) {
            return Ok(None);
        }
        let contents = payload(self.source, next.payload as usize).await?;
        self.parser.payload(&contents).map_err(refused)?;
        self.bytes += contents.len() as u64;
        Ok(Some((next.record, contents)))
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
