//! Bytes from one place to another, where what is not there is passed over: holes of a file stay holes of a file, and
//! of a volume, and zeros of a pipe become some.
//!
//! Invariant: what the target has at the end is what the source has, also where the target had something else before.

use std::fs::File;
use std::io::{ErrorKind, Read, Result};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};

use super::progress::Progress;
use crate::sink::Sink;

/// Bytes that are moved at once.
const CHUNK: usize = 1 << 20;
/// Zeros of a pipe are looked for in pieces of so many bytes.
const PIECE: usize = 64 << 10;

/// Where bytes come from.
pub enum Source {
    /// A file, of which may be asked where it has holes.
    File {
        /// It.
        file: File,
        /// Its bytes.
        size: u64,
        /// How far it is read.
        at: u64,
    },
    /// What comes in a row, to its end.
    Stream(Box<dyn Read>),
}

/// A part of what a source has.
enum Part {
    Data(usize),
    /// So many bytes that are zeros.
    Hole(u64),
    End,
}

impl Source {
    /// A file of `size` bytes.
    pub fn file(file: File, size: u64) -> Self {
        Self::File { file, size, at: 0 }
    }

    /// The file at `path`.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(File::open(path)?)
    }

    /// Standard input.
    ///
    /// # Errors
    /// There is none.
    pub fn input() -> Result<Self> {
        let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        // What somebody has read of a file is not read again.
        let begun = seek(&input, SeekFrom::Current(0)).unwrap_or(0);
        match Self::of(input)? {
            Self::File { file, size, .. } => Ok(Self::File { file, size, at: begun.min(size) }),
            stream => Ok(stream),
        }
    }

    fn of(file: File) -> Result<Self> {
        let metadata = file.metadata()?;
        Ok(if metadata.is_file() { Self::file(file, metadata.len()) } else { Self::Stream(Box::new(file)) })
    }

    /// Bytes that it will give, if that is known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::File { size, at, .. } => Some(size - at),
            Self::Stream(_) => None,
        }
    }

    /// Reads the next part into `buffer`.
    fn next(&mut self, buffer: &mut [u8]) -> Result<Part> {
        match self {
            Self::File { file, size, at } => {
                if *at >= *size {
                    return Ok(Part::End);
                }
                let data = match seek(&*file, SeekFrom::Data(*at)) {
                    Ok(data) => data.min(*size),
                    // Nothing but holes is left.
                    Err(rustix::io::Errno::NXIO) => *size,
                    // It cannot tell.
                    Err(_) => *at,
                };
                if data > *at {
                    let length = data - *at;
                    *at = data;
                    return Ok(Part::Hole(length));
                }
                let end = seek(&*file, SeekFrom::Hole(*at)).unwrap_or(*size).clamp(*at + 1, *size);
                let wanted = usize::try_from(end - *at).unwrap_or(usize::MAX).min(buffer.len());
                file.read_exact_at(&mut buffer[..wanted], *at)?;
                *at += wanted as u64;
                Ok(Part::Data(wanted))
            }
            Self::Stream(stream) => {
                let mut filled = 0;
                while filled < buffer.len() {
                    match stream.read(&mut buffer[filled..]) {
                        Ok(0) => break,
                        Ok(read) => filled += read,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(if filled == 0 { Part::End } else { Part::Data(filled) })
            }
        }
    }
}

/// Runs of pieces of `bytes` that are zeros, or are not.
fn runs(bytes: &[u8]) -> Vec<(&[u8], bool)> {
    let mut runs: Vec<(usize, usize, bool)> = Vec::new();
    for (index, piece) in bytes.chunks(PIECE).enumerate() {
        let (start, zero) = (index * PIECE, piece.iter().all(|byte| *byte == 0));
        match runs.last_mut() {
            Some((_, end, last)) if *last == zero => *end = start + piece.len(),
            _ => runs.push((start, start + piece.len(), zero)),
        }
    }
    runs.into_iter().map(|(start, end, zero)| (&bytes[start..end], zero)).collect()
}

/// Copies all that `source` has to `sink`.
///
/// # Errors
/// Those of either; [`ErrorKind::StorageFull`] when a volume is too small.
pub fn copy(source: &mut Source, sink: &mut Sink, progress: &Progress) -> Result<()> {
    let (mut buffer, size) = (vec![0; CHUNK], source.size());
    let mut done = 0;
    let is_stream = matches!(sink, Sink::Stream(_));
    loop {
        match source.next(&mut buffer)? {
            Part::End => break,
            Part::Hole(length) => {
                sink.hole(length)?;
                done += length;
            }
            Part::Data(length) if is_stream => {
                sink.data(&buffer[..length])?;
                done += length as u64;
            }
            Part::Data(length) => {
                for (bytes, zero) in runs(&buffer[..length]) {
                    if zero { sink.hole(bytes.len() as u64)? } else { sink.data(bytes)? }
                }
                done += length as u64;
            }
        }
        progress.at(done);
    }
    assert!(size.is_none_or(|size| size == done), "all that there is has come");
    sink.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn copied(source: &mut Source, sink: &mut Sink) {
        copy(source, sink, &Progress::new("t", None).quiet()).unwrap();
    }

    #[test]
    fn holes_stay_holes_and_zeros_become_some() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let file = File::create(&from).unwrap();
        file.write_all_at(&[7; 5000], 3 << 20).unwrap();
        file.write_all_at(&vec![0; 2 << 20], 8 << 20).unwrap();
        file.set_len((16 << 20) + 5).unwrap();
        copied(&mut Source::open(&from).unwrap(), &mut Sink::new_file(File::create(&to).unwrap()));
        assert_eq!(std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
        let taken = std::fs::metadata(&to).unwrap().blocks() * 512;
        assert!(taken <= 256 << 10, "{taken} bytes are taken");
    }

    #[test]
    fn a_stream_gets_all_bytes_and_one_gives_them() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to, back) = (dir.path().join("from"), dir.path().join("to"), dir.path().join("back"));
        let file = File::create(&from).unwrap();
        file.write_all_at(&[9; 100_000], 2_500_000).unwrap();
        file.set_len(5_000_001).unwrap();
        copied(&mut Source::open(&from).unwrap(), &mut Sink::Stream(File::create(&to).unwrap()));
        let stream = Source::Stream(Box::new(File::open(&to).unwrap()));
        copied(&mut { stream }, &mut Sink::new_file(File::create(&back).unwrap()));
        assert_eq!(std::fs::read(&to).unwrap(), std::fs::read(&back).unwrap());
        assert_eq!(std::fs::read(&from).unwrap(), std::fs::read(&back).unwrap());
    }

    #[test]
    fn what_was_in_a_volume_makes_way() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&to, vec![1; 4 << 20]).unwrap();
        let file = File::create(&from).unwrap();
        file.write_all_at(&[2; 70_000], 1 << 20).unwrap();
        file.set_len(3 << 20).unwrap();
        let target = File::options().read(true).write(true).open(&to).unwrap();
        copied(&mut Source::open(&from).unwrap(), &mut Sink::volume(target, 1 << 20));
        let (given, found) = (std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
        assert!(found[..1 << 20].iter().all(|byte| *byte == 1) && found[1 << 20..] == given);
        let small = File::options().read(true).write(true).open(&to).unwrap();
        let (mut source, mut sink) = (Source::open(&from).unwrap(), Sink::volume(small, 3 << 20));
        let refused = copy(&mut source, &mut sink, &Progress::new("t", None).quiet()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StorageFull);
    }
}
