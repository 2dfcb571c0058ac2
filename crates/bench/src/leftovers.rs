//! What a run leaves on the machine while it runs: processes, mounts and loop devices; and how to get rid of them.
//!
//! Invariant: whatever is made is noted here before it is used, so that force finds it too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::Mutex;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

static PROCESSES: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
static LOOPS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Notes a process that serves a mount, or that it is gone.
pub fn note_process(pid: u32, there: bool) {
    let mut all = PROCESSES.lock();
    if there {
        all.insert(pid)
    } else {
        all.remove(&pid)
    };
}

/// Notes a loop device, or that it is gone.
pub fn note_loop(device: &Path, there: bool) {
    let mut all = LOOPS.lock();
    if there {
        assert!(all.insert(device.to_owned()), "{} is noted, and gone without a note", device.display());
    } else {
        all.remove(device);
    }
}

/// Sends a signal to one process.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Mount points below `root`, the last mounted first: a mount may hide earlier ones.
pub fn mounts_below(root: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut found: Vec<PathBuf> = mounts.filter(|path| path.starts_with(root)).collect();
    found.reverse();
    found
}

/// Lets go of a loop device.
pub fn detach_loop(device: &Path) {
    let detached = Command::new("losetup").arg("-d").arg(device).stdout(Stdio::null()).status();
    if !detached.is_ok_and(|status| status.success()) {
        eprintln!("could not detach {}", device.display());
    }
    note_loop(device, false);
}

/// Ends everything that was noted, takes away every mount below `work`, and removes it.
pub fn end_by_force(work: &Path) {
    for &pid in PROCESSES.lock().iter() {
        signal(pid, Signal::KILL);
    }
    for mount in mounts_below(work) {
        if let Err(error) = rustix::mount::unmount(&mount, UnmountFlags::FORCE | UnmountFlags::DETACH) {
            eprintln!("could not unmount {}: {error}", mount.display());
        }
    }
    let loops = LOOPS.lock().clone();
    loops.iter().for_each(|device| detach_loop(device));
    if mounts_below(work).is_empty() {
        let _ = std::fs::remove_dir_all(work);
    }
}
