//! A guest's standard output or input as what the daemon takes of him: a pipe without a name. Where it is something
//! else, this process passes the bytes on, with the guest's own rights.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the daemon.
    Out,
    /// To it.
    In,
}

/// What is handed over, and who passes bytes on.
pub struct Passed {
    handed: OwnedFd,
    passing: Option<std::thread::JoinHandle<io::Result<u64>>>,
    way: Way,
}

impl Passed {
    /// For `own`, which the command has open.
    ///
    /// # Errors
    /// No more descriptors can be had.
    pub fn new(own: BorrowedFd<'_>, way: Way) -> io::Result<Self> {
        let own = own.try_clone_to_owned()?;
        if is_anonymous(&own)? {
            return Ok(Self { handed: own, passing: None, way });
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let (handed, from, to) = match way {
            Way::Out => (write, read, own),
            Way::In => (read, own, write),
        };
        let passing = std::thread::spawn(move || io::copy(&mut File::from(from), &mut File::from(to)));
        Ok(Self { handed, passing: Some(passing), way })
    }

    /// What is handed over.
    pub fn handed(&self) -> BorrowedFd<'_> {
        self.handed.as_fd()
    }

    /// Waits until what the daemon wrote is where it belongs. What it did not read nobody waits for.
    ///
    /// # Errors
    /// It could not be written.
    pub fn finish(self) -> io::Result<()> {
        let Self { handed, passing, way } = self;
        drop(handed);
        match passing.filter(|_| way == Way::Out).map(std::thread::JoinHandle::join) {
            None => Ok(()),
            Some(Ok(passed)) => passed.map(drop),
            Some(Err(_)) => Err(io::Error::other("the thread that passes bytes on died")),
        }
    }
}

/// Whether it is a pipe without a name.
fn is_anonymous(fd: &OwnedFd) -> io::Result<bool> {
    let (own, _) = pipe_with(PipeFlags::CLOEXEC)?;
    let (known, found) = (rustix::fs::fstat(&own)?, rustix::fs::fstat(fd)?);
    let is_fifo = rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Fifo;
    Ok(is_fifo && found.st_dev == known.st_dev)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn a_file_is_read_and_written_by_the_one_who_has_it_open() {
        let mut file = tempfile::tempfile().unwrap();
        let passed = Passed::new(file.as_fd(), Way::Out).unwrap();
        File::from(passed.handed().try_clone_to_owned().unwrap()).write_all(b"stream").unwrap();
        passed.finish().unwrap();
        file.rewind().unwrap();
        let passed = Passed::new(file.as_fd(), Way::In).unwrap();
        let mut text = String::new();
        File::from(passed.handed().try_clone_to_owned().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "stream");
        passed.finish().unwrap();
    }

    #[test]
    fn a_pipe_is_handed_over_as_it_is() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        for (end, way) in [(&read, Way::In), (&write, Way::Out)] {
            assert!(Passed::new(end.as_fd(), way).unwrap().passing.is_none());
        }
    }
}
