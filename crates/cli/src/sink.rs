//! Where bytes go of which many are zeros: into a file they become holes, of a volume they are given back.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

/// Zeros that are written at a time where nothing else goes.
const CHUNK: usize = 1 << 20;

/// Where bytes go.
pub enum Sink {
    /// A file that is empty at first.
    New {
        /// It.
        file: File,
        /// Where the next byte goes.
        at: u64,
    },
    /// A volume: what becomes zeros is freed.
    Volume {
        /// Its file.
        file: File,
        /// Where the next byte goes.
        at: u64,
    },
    /// What takes bytes in a row.
    Stream(File),
}

impl Sink {
    /// A file that is empty.
    pub fn new_file(file: File) -> Self {
        Self::New { file, at: 0 }
    }

    /// A volume, from `offset` on.
    pub fn volume(file: File, offset: u64) -> Self {
        Self::Volume { file, at: offset }
    }

    /// Standard output: a file that it was redirected to gets holes.
    ///
    /// # Errors
    /// There is none.
    pub fn output() -> Result<Self> {
        let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
        let metadata = output.metadata()?;
        let is_appended = rustix::fs::fcntl_getfl(&output)?.contains(rustix::fs::OFlags::APPEND);
        match metadata.is_file() && metadata.len() == 0 && !is_appended {
            true => Ok(Self::new_file(output)),
            false => Ok(Self::Stream(output)),
        }
    }

    /// These bytes come next.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn data(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::New { file, at } | Self::Volume { file, at } => {
                file.write_all_at(bytes, *at)?;
                *at += bytes.len() as u64;
                Ok(())
            }
            Self::Stream(file) => file.write_all(bytes),
        }
    }

    /// So many zeros come next.
    ///
    /// # Errors
    /// As above; a volume is too small.
    pub fn hole(&mut self, length: u64) -> Result<()> {
        match self {
            Self::New { at, .. } => *at += length,
            Self::Volume { file, at } => {
                if at.saturating_add(length) > file.metadata()?.len() {
                    return Err(Error::from(ErrorKind::StorageFull));
                }
                fallocate(&*file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *at, length)?;
                *at += length;
            }
            Self::Stream(file) => {
                let zeros = vec![0; CHUNK];
                let mut left = length;
                while left > 0 {
                    let piece = left.min(CHUNK as u64);
                    file.write_all(&zeros[..piece as usize])?;
                    left -= piece;
                }
            }
        }
        Ok(())
    }

    /// All bytes have come; what is written is stable.
    ///
    /// # Errors
    /// As above.
    pub fn end(&mut self) -> Result<()> {
        match self {
            Self::New { file, at } => file.set_len(*at).and_then(|()| file.sync_all()),
            Self::Volume { file, .. } => file.sync_all(),
            Self::Stream(file) => file.flush(),
        }
    }
}
