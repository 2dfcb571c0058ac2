//! A writer that stores through a shared mapping (a program of its own, `mapped.py`), with a record of what was stored
//! and of what was acknowledged as stable.
//!
//! What the record means: each page is filled with one version after the other. After a crash each eight bytes of it
//! have one that the page had when it was last synced, or since: a page may be on its way while it is filled. What
//! nobody stored reads as zeros, as does a page's first version.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::Promises;
use crate::data::Rng;

const PROGRAM: &str = include_str!("mapped.py");
const PAGE: usize = 4096;
const PAGES: u64 = 300;

/// One such writer with its file and its record.
pub struct MappedWriter {
    path: PathBuf,
    promises: Promises,
    rng: Rng,
    /// What each page may have, the newest last.
    pages: Vec<Vec<u64>>,
    version: u64,
    /// The program, while it waits for work.
    program: Option<Program>,
    /// Syncs that were acknowledged after something was stored.
    pub acknowledged: u64,
}

/// The program, which ends with this.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &PathBuf) -> io::Result<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", PROGRAM]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let input = child.stdin.take().ok_or_else(gone)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(gone)?);
        Ok(Self { child, input, output })
    }

    /// Fails when the file system under the mapping has died.
    fn tell(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input, "{line}")?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        if answer.trim_end() == line { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl MappedWriter {
    /// A writer of the file `path`, which it makes: nothing but a hole.
    ///
    /// # Panics
    /// When the file cannot be made.
    pub fn new(path: PathBuf, promises: Promises, seed: u64) -> Self {
        let file = File::create_new(&path).expect("a file can be made");
        file.set_len(PAGES * PAGE as u64).expect("it can be made longer");
        file.sync_all().expect("it can be synced");
        let pages = vec![vec![0]; PAGES as usize];
        Self { path, promises, rng: Rng::new(seed), pages, version: 0, program: None, acknowledged: 0 }
    }

    /// Starts the program, which may take longer than a file system lives, and returns when the file is mapped.
    ///
    /// # Panics
    /// When it does not start.
    pub fn prepare(&mut self) {
        let mut program = Program::start(&self.path).expect("python3 starts");
        program.tell("fsync").expect("the file is mapped");
        self.program = Some(program);
    }

    /// Works, once prepared, until something fails, which is the file system's death, or `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) {
        let Some(mut program) = self.program.take() else { return };
        while !stop.load(Ordering::Relaxed) {
            if self.step(&mut program).is_err() {
                break;
            }
        }
    }

    fn step(&mut self, program: &mut Program) -> io::Result<()> {
        for _ in 0..1 + self.rng.below(20) {
            let page = self.rng.below(PAGES);
            self.version += 1;
            self.pages[page as usize].push(self.version);
            program.tell(&format!("{page} {}", self.version))?;
        }
        program.tell(if self.rng.below(2) == 0 { "msync" } else { "fsync" })?;
        if self.promises != Promises::Nothing {
            for versions in &mut self.pages {
                versions.drain(..versions.len() - 1);
            }
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// Compares what is there with what may be there, and takes it as the new beginning.
    ///
    /// # Panics
    /// When something is lost.
    pub fn check(&mut self, when: &str) {
        let at = self.path.display();
        let found = fs::read(&self.path).unwrap_or_else(|error| panic!("{when}: {at} cannot be read: {error}"));
        assert_eq!(found.len(), PAGES as usize * PAGE, "{when}: {at}");
        for (number, (bytes, versions)) in found.chunks_exact(PAGE).zip(&mut self.pages).enumerate() {
            let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
            let mut there: Vec<u64> = words.collect();
            there.sort_unstable();
            there.dedup();
            let lost = there.iter().find(|version| !versions.contains(version));
            assert!(lost.is_none(), "{when}: page {number} of {at} has {there:?}, and may have {versions:?}");
            *versions = there;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_page_is_noticed() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut writer = MappedWriter::new(dir.path().join("mapped"), Promises::Synced, 1);
        let mut program = Program::start(&writer.path).expect("python3 starts");
        writer.step(&mut program).expect("it works");
        writer.check("at first");
        let page = writer.pages.iter().position(|versions| versions[0] != 0).expect("something was stored");
        let file = File::options().write(true).open(&writer.path).expect("the file");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 8], (page * PAGE) as u64).expect("written");
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.check("afterwards"))).is_err());
    }
}
