//! btrfs on loop devices over files on the same disk: the kernel's own file system with redundancy and checksums.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags};

use super::{FileSystem, Layout, Scrub, Shape, drop_caches, is_mounted, timed};
use crate::error::{Result, While, said};
use crate::leftovers;
use crate::program::{find, output, patiently};

const LIMIT: Duration = Duration::from_secs(600);

/// btrfs.
pub struct Btrfs {
    mount: PathBuf,
    devices: Option<PathBuf>,
    loops: Vec<PathBuf>,
}

impl Btrfs {
    /// Mounted below `work`.
    pub fn new(work: &Path) -> Self {
        Self { mount: work.join("mnt-btrfs"), devices: None, loops: Vec::new() }
    }

    /// Attaches `file`, past the page cache where the file's own file system can do that.
    fn attach(&mut self, file: &Path) -> Result<()> {
        let attach = |direct: &str| {
            let mut command = Command::new("losetup");
            command.args(["--find", "--show", "--sector-size", "4096", direct]).arg(file);
            output(&mut command, LIMIT, false)
        };
        let device = PathBuf::from(attach("--direct-io=on").or_else(|_| attach("--direct-io=off"))?.trim());
        leftovers::note_loop(&device, true);
        self.loops.push(device);
        Ok(())
    }

    fn mount(&self) -> Result<()> {
        // All members are named: what the kernel remembers of earlier ones at the same loop devices does not matter.
        let members: Vec<String> = self.loops.iter().map(|device| format!("device={}", device.display())).collect();
        let Some(first) = self.loops.first() else { return said("there is no btrfs") };
        let data = std::ffi::CString::new(members.join(",")).expect("no zero byte in it");
        rustix::mount::mount(first, &self.mount, "btrfs", MountFlags::NOATIME, data.as_c_str())
            .on(|| format!("mounting btrfs at {}", self.mount.display()))
    }

    fn unmount(&self) -> Result<()> {
        patiently(|| {
            let unmounted = rustix::mount::unmount(&self.mount, UnmountFlags::empty());
            unmounted.on(|| format!("unmounting {}", self.mount.display()))
        })
    }

    fn release(&mut self) {
        let forget = !self.loops.is_empty();
        if forget {
            let mut command = Command::new("btrfs");
            let _ = output(command.args(["device", "scan", "--forget"]).args(&self.loops), LIMIT, false);
        }
        self.loops.drain(..).for_each(|device| leftovers::detach_loop(&device));
        self.devices.take().iter().for_each(|folder| super::remove_folder(folder));
    }
}

impl FileSystem for Btrfs {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn missing(&self) -> Option<String> {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let is_known = known.lines().any(|line| line.trim().ends_with("btrfs"));
        let program = ["mkfs.btrfs", "btrfs", "losetup"].into_iter().find(|program| find(program).is_none());
        match program {
            Some(program) => Some(format!("no program {program}")),
            // It may be a module that is loaded by the first mount.
            None if !is_known && !Path::new("/lib/modules").exists() => Some("the kernel has no btrfs".into()),
            None => None,
        }
    }

    fn has(&self, layout: Layout) -> bool {
        matches!(layout, Layout::Raidz1 | Layout::Mirror)
    }

    fn create(&mut self, shape: &Shape) -> Result<()> {
        let files = shape.make_files("dev-btrfs")?;
        self.devices = Some(shape.under.join("dev-btrfs"));
        for file in &files {
            self.attach(file)?;
        }
        let (data, metadata) = if shape.layout == Layout::Mirror { ("raid1", "raid1") } else { ("raid5", "raid1") };
        let mut mkfs = Command::new("mkfs.btrfs");
        mkfs.args(["--force", "--quiet", "--nodiscard", "--data", data, "--metadata", metadata]).args(&self.loops);
        output(&mut mkfs, LIMIT, false)?;
        std::fs::create_dir_all(&self.mount).on(|| format!("making {}", self.mount.display()))?;
        self.mount()
    }

    fn mountpoint(&self) -> PathBuf {
        self.mount.clone()
    }

    fn cold(&mut self) -> Result<Duration> {
        self.unmount()?;
        drop_caches()?;
        timed(|| self.mount())
    }

    fn server(&self) -> Option<u32> {
        None
    }

    fn scrub(&mut self) -> Result<Scrub> {
        let start = Instant::now();
        let mut command = Command::new("btrfs");
        output(command.args(["scrub", "start", "-B"]).arg(&self.mount), LIMIT, false)?;
        let elapsed = start.elapsed();
        let mut usage = Command::new("btrfs");
        let report = output(usage.args(["filesystem", "usage", "--raw"]).arg(&self.mount), LIMIT, false)?;
        let Some(bytes) = used_bytes(&report) else { return said("btrfs filesystem usage says no Used") };
        Ok(Scrub { bytes, elapsed })
    }

    fn destroy(&mut self) -> Result<()> {
        if is_mounted(&self.mount) {
            self.unmount()?;
        }
        self.release();
        Ok(())
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        if is_mounted(&self.mount) {
            let _ = rustix::mount::unmount(&self.mount, UnmountFlags::DETACH);
        }
        self.release();
    }
}

/// Bytes on the devices that are in use, from `btrfs filesystem usage --raw`.
fn used_bytes(report: &str) -> Option<u64> {
    let line = report.lines().find_map(|line| line.trim().strip_prefix("Used:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_bytes_are_those_of_all_devices() {
        let report = "Overall:\n    Device size:\t 10\n    Used:\t\t\t  1234\n\nData,RAID5: Size:9, Used:8\n";
        assert_eq!(used_bytes(report), Some(1234));
        assert_eq!(used_bytes(""), None);
    }
}
