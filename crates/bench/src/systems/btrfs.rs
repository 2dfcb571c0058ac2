//! What only btrfs has, of the kernel's file systems: several devices, redundancy and a scrub.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Layout, Scrub};
use crate::error::{Result, said};
use crate::program::output;

const LIMIT: Duration = Duration::from_secs(600);

/// The words of `mkfs` for a layout.
pub fn mkfs(layout: Layout) -> [&'static str; 7] {
    let (data, metadata) = if layout == Layout::Mirror { ("raid1", "raid1") } else { ("raid5", "raid1") };
    ["--force", "--quiet", "--nodiscard", "--data", data, "--metadata", metadata]
}

/// The mount options: all members are named, so that what the kernel remembers of earlier ones at the same loop
/// devices does not matter.
pub fn mount_options(devices: &[PathBuf]) -> String {
    devices.iter().map(|device| format!("device={}", device.display())).collect::<Vec<_>>().join(",")
}

/// Makes the kernel forget members that are about to go.
pub fn forget(devices: &[PathBuf]) {
    if !devices.is_empty() {
        let mut command = Command::new("btrfs");
        let _ = output(command.args(["device", "scan", "--forget"]).args(devices), LIMIT, false);
    }
}

/// Reads and checks everything.
///
/// # Errors
/// What `btrfs` said.
pub fn scrub(mount: &Path) -> Result<Scrub> {
    let start = Instant::now();
    let mut command = Command::new("btrfs");
    output(command.args(["scrub", "start", "-B"]).arg(mount), LIMIT, false)?;
    let elapsed = start.elapsed();
    let mut usage = Command::new("btrfs");
    let report = output(usage.args(["filesystem", "usage", "--raw"]).arg(mount), LIMIT, false)?;
    let Some(bytes) = used_bytes(&report) else { return said("btrfs filesystem usage says no Used") };
    Ok(Scrub { bytes, elapsed })
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
