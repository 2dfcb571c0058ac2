//! A file that two paths lead to and that has another number at each: on an overlay, and in the folder below it. No
//! lock of the one file holds for the other.
//!
//! Nothing stays mounted when an [`Overlay`] is dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An overlay on a file system in memory, in no lab's folder: what is mounted there ends with the lab's daemon.
#[derive(Debug)]
pub struct Overlay {
    base: tempfile::TempDir,
}

fn mount(args: &[&str], place: &Path) -> bool {
    let run = Command::new("mount").args(args).arg(place).output();
    run.is_ok_and(|output| output.status.success())
}

impl Overlay {
    /// A new one; none where mounting is not possible.
    pub fn new() -> Option<Self> {
        let base = tempfile::Builder::new().prefix("platter-itest-overlay-").tempdir().ok()?;
        if !mount(&["-t", "tmpfs", "none"], base.path()) {
            return None;
        }
        let overlay = Self { base };
        let base = overlay.base.path();
        for name in ["lower", "upper", "work", "merged"] {
            fs::create_dir(base.join(name)).ok()?;
        }
        let base = base.display();
        let options = format!("lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work");
        mount(&["-t", "overlay", "none", "-o", &options], &overlay.merged()).then_some(overlay)
    }

    /// The overlay. Files are made here.
    pub fn merged(&self) -> PathBuf {
        self.base.path().join("merged")
    }

    /// The folder in which the overlay has them.
    pub fn upper(&self) -> PathBuf {
        self.base.path().join("upper")
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        for place in [self.merged(), self.base.path().to_owned()] {
            let _ = Command::new("umount").arg("-l").arg(place).output();
        }
    }
}
