//! Reading a file with streams from its beginning to its end, with every checksum looked at.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use platter_nvlist::NvList;
use platter_stream::{Begin, HeaderKind, Parser, RECORD_SIZE, Record, StreamError};

use crate::error::{Result, other, senseless, unreadable};

/// Bytes read at a time.
const AT_ONCE: usize = 1 << 20;

/// Reads the records of a file.
pub struct Reader<'a> {
    path: &'a Path,
    file: BufReader<File>,
    at: u64,
}

/// A stream in a file, of one snapshot.
pub struct Stream<'a> {
    /// Where it is read from.
    pub reader: Reader<'a>,
    /// What looks at its records.
    pub parser: Parser,
    /// How it begins.
    pub begin: Begin,
    /// What came with that.
    pub list: Option<NvList>,
    /// Bytes of it so far.
    pub bytes: u64,
}

/// What comes next in a stream.
pub enum Next {
    /// A record, where its payload is in the file, and the payload.
    Record(Record, u64, Vec<u8>),
    /// The stream is whole.
    End,
    /// It was cut, or what follows is damaged.
    Cut(Option<StreamError>),
}

impl<'a> Reader<'a> {
    /// Of this file.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &'a Path) -> Result<Self> {
        let file = File::open(path).map_err(unreadable(path))?;
        Ok(Self { path, file: BufReader::with_capacity(AT_ONCE, file), at: 0 })
    }

    /// The next bytes; fewer at the file's end.
    fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = (&mut self.file).take(length as u64).read_to_end(&mut bytes);
        read.map_err(unreadable(self.path))?;
        self.at += bytes.len() as u64;
        Ok(bytes)
    }

    /// The next stream; none behind the last. What stands in front of several is passed over.
    ///
    /// # Errors
    /// It makes no sense; the file cannot be read.
    pub fn stream(mut self) -> Result<Option<Stream<'a>>> {
        loop {
            let bytes = self.take(RECORD_SIZE)?;
            let Ok(header) = <[u8; RECORD_SIZE]>::try_from(bytes.as_slice()) else { return Ok(None) };
            if Parser::is_package_end(&header) {
                return Ok(None);
            }
            let path = self.path;
            let (mut parser, begin) = Parser::begin(&header).map_err(senseless(path))?;
            let list = self.take(begin.list_length as usize)?;
            if list.len() < begin.list_length as usize {
                return Ok(None);
            }
            if begin.list_length > 0 {
                parser.payload(&list).map_err(senseless(path))?;
            }
            if begin.kind == HeaderKind::Substream {
                let list = NvList::decode(&list).ok();
                let bytes = (RECORD_SIZE + begin.list_length as usize) as u64;
                return Ok(Some(Stream { reader: self, parser, begin, list, bytes }));
            }
            self.take(RECORD_SIZE)?;
        }
    }
}

impl Stream<'_> {
    /// What comes next.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn advance(&mut self) -> Result<Next> {
        let bytes = self.reader.take(RECORD_SIZE)?;
        let Ok(header) = <[u8; RECORD_SIZE]>::try_from(bytes.as_slice()) else { return Ok(Next::Cut(None)) };
        let next = match self.parser.header(&header) {
            Ok(next) => next,
            Err(error) => return Ok(Next::Cut(Some(error))),
        };
        self.bytes += RECORD_SIZE as u64;
        if matches!(next.record, Record::End(_)) {
            return Ok(Next::End);
        }
        let at = self.reader.at;
        let payload = self.reader.take(next.payload as usize)?;
        if payload.len() < next.payload as usize {
            return Ok(Next::Cut(None));
        }
        if let Err(error) = self.parser.payload(&payload) {
            return Ok(Next::Cut(Some(error)));
        }
        self.bytes += payload.len() as u64;
        Ok(Next::Record(next.record, at, payload))
    }

    /// The next record of a stream that has to be whole.
    ///
    /// # Errors
    /// It is not, or makes no sense; the file cannot be read.
    pub fn record(&mut self) -> Result<Option<(Record, u64, Vec<u8>)>> {
        match self.advance()? {
            Next::Record(record, at, payload) => Ok(Some((record, at, payload))),
            Next::End => Ok(None),
            Next::Cut(Some(error)) => Err(senseless(self.reader.path)(error)),
            Next::Cut(None) => Err(other(self.reader.path, "incomplete stream")),
        }
    }
}

/// The first stream in a file, which is a full one of a file system.
///
/// # Errors
/// There is none, or another one; the file cannot be read.
pub fn full(path: &Path) -> Result<Stream<'_>> {
    let none = || other(path, "there is no stream in it");
    let stream = Reader::open(path)?.stream()?.ok_or_else(none)?;
    if stream.begin.from_guid.0 != 0 {
        let text = "it is incremental, and has only what changed: its files cannot be found";
        return Err(other(path, text));
    }
    if !stream.begin.is_filesystem() {
        return Err(other(path, "it is of a volume, which has no files"));
    }
    Ok(stream)
}
