//! Loop devices over files: what a file system of the kernel is made on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::error::Result;
use crate::leftovers;
use crate::program::output;

const LIMIT: Duration = Duration::from_secs(60);

/// Loop devices of one file system. Dropping them lets go of all.
#[derive(Debug, Default)]
pub struct Loops(Vec<PathBuf>);

impl Loops {
    /// Attaches `file`, past the page cache where the file's own file system can do that.
    ///
    /// # Errors
    /// What `losetup` said.
    pub fn attach(&mut self, file: &Path) -> Result<()> {
        let attach = |direct: &str| {
            let mut command = Command::new("losetup");
            command.args(["--find", "--show", "--sector-size", "4096", direct]).arg(file);
            output(&mut command, LIMIT, false)
        };
        let device = PathBuf::from(attach("--direct-io=on").or_else(|_| attach("--direct-io=off"))?.trim());
        leftovers::note_loop(&device, true);
        self.0.push(device);
        Ok(())
    }

    /// Their paths.
    pub fn devices(&self) -> &[PathBuf] {
        &self.0
    }

    /// Lets go of all.
    pub fn detach(&mut self) {
        self.0.drain(..).for_each(|device| leftovers::detach_loop(&device));
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.detach();
    }
}
