//! Loop devices over files.
//!
//! A loop device is given back when its [`Loop`] is dropped.

use std::path::Path;
use std::process::Command;

/// A loop device; its path.
#[derive(Debug)]
pub struct Loop(pub String);

impl Loop {
    /// One over `file`, with its partitions; none where that cannot be had.
    pub fn over(file: &Path) -> Option<Self> {
        Self::made_with(&["-P"], file)
    }

    /// One that takes no writes.
    pub fn read_only(file: &Path) -> Option<Self> {
        Self::made_with(&["-r"], file)
    }

    fn made_with(options: &[&str], file: &Path) -> Option<Self> {
        let output = Command::new("losetup").args(options).args(["-f", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.success() && !name.is_empty()).then_some(Self(name))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}
