//! Mounts that a killed daemon left behind: the folder is there, but every access to it fails with "transport
//! endpoint is not connected". A new daemon of the same home takes them away before it mounts anything.
//!
//! Only mounts that this home recorded in `mounts.json`, that are of a FUSE type and whose source is the recorded
//! data set are touched; the home's lock guarantees that their daemon is dead.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::home::{Home, read};
use crate::mounts_file;

/// Longest wait for a killed daemon to end.
const DYING_LIMIT: Duration = Duration::from_secs(5);

/// One line of `/proc/self/mountinfo`, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemMount {
    /// Where.
    pub mountpoint: PathBuf,
    /// File system type (`fuse.platter`).
    pub kind: String,
    /// Source (the data set's name).
    pub source: String,
}

/// All mounts of this process's name space; empty when the system does not tell.
pub fn system_mounts() -> Vec<SystemMount> {
    // One name that is no UTF-8 must not hide all others.
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    parse_mountinfo(&String::from_utf8_lossy(&text))
}

fn parse_mountinfo(text: &str) -> Vec<SystemMount> {
    text.lines()
        .filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mountpoint = PathBuf::from(unescape(front.split(' ').nth(4)?));
            let mut back = back.split(' ');
            let (kind, source) = (back.next()?.to_owned(), unescape(back.next()?));
            Some(SystemMount { mountpoint, kind, source })
        })
        .collect()
}

/// Undoes the kernel's `\040` for blanks and the like.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|digits| {
            bytes[at] == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)) && digits[0] <= b'3'
        });
        if let Some(digits) = octal {
            out.push(digits.iter().fold(0, |value, digit| value * 8 + (digit - b'0')));
            at += 4;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Lets a killed daemon of this home end. One of its threads may have been waiting for an answer of its own mount
/// (while it made a mount point inside, say) when it was killed: that thread waits on, and with it stay lock, socket
/// and mount, so that nobody can start another and whoever asks waits forever. Cutting its mounts off ends the wait.
pub fn release_dying(home: &Home) {
    let pid = read(&home.lock_file()).ok().and_then(|text| String::from_utf8_lossy(&text).trim().parse::<u32>().ok());
    let Some(pid) = pid.filter(|&pid| is_dying(pid)) else { return };
    let recorded = mounts_file::read(home);
    for path in dead_among(&recorded, &system_mounts()) {
        // It says "busy" and cuts the connection all the same.
        let _ = rustix::mount::unmount(&path, rustix::mount::UnmountFlags::FORCE);
    }
    let start = Instant::now();
    while is_dying(pid) && start.elapsed() < DYING_LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether the process was killed and has threads that do not end.
pub(crate) fn is_dying(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    killed_with_threads(&status)
}

/// As [`is_dying`], from the text of `/proc/PID/status`.
fn killed_with_threads(status: &str) -> bool {
    const KILL: u64 = 1 << 8;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let pending = |name: &str| u64::from_str_radix(field(name), 16).is_ok_and(|signals| signals & KILL != 0);
    let threads: u32 = field("Threads:").parse().unwrap_or(0);
    field("State:").starts_with('Z') && threads > 1 || pending("SigPnd:") || pending("ShdPnd:")
}

/// Takes away what the previous daemon of this home left mounted; tells what it removed.
pub fn clean(home: &Home) -> Vec<PathBuf> {
    let mut dead = dead_among(&mounts_file::read(home), &system_mounts());
    // Inner mounts first.
    dead.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    dead.retain(|path| match detach(path) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!("cannot remove the dead mount {}: {error}", path.display());
            false
        }
    });
    mounts_file::forget(home);
    dead
}

fn dead_among(recorded: &BTreeMap<PathBuf, String>, present: &[SystemMount]) -> Vec<PathBuf> {
    present
        .iter()
        .filter(|mount| mount.kind.starts_with("fuse"))
        .filter(|mount| recorded.get(&mount.mountpoint).is_some_and(|dataset| *dataset == mount.source))
        .map(|mount| mount.mountpoint.clone())
        .collect()
}

fn detach(path: &Path) -> Result<(), String> {
    match rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(error) => {
            for program in ["fusermount3", "fusermount"] {
                let status = std::process::Command::new(program).arg("-uz").arg(path).status();
                if status.is_ok_and(|status| status.success()) {
                    return Ok(());
                }
            }
            Err(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 22 0:45 / /tank/my\\040files rw,nosuid shared:7 - fuse.platter tank/my\\040files rw,user_id=0
91 22 0:46 / /other rw - fuse.sshfs host:/ rw
92 22 0:47 / /tank rw - ext4 tank rw
";

    #[test]
    fn mountinfo_is_read_with_its_escapes() {
        let mounts = parse_mountinfo(MOUNTINFO);
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].mountpoint, Path::new("/tank/my files"));
        assert_eq!((mounts[1].kind.as_str(), mounts[1].source.as_str()), ("fuse.platter", "tank/my files"));
    }

    /// A daemon killed while it opened its pool hung in a request to its own mount, and every later command with it.
    #[test]
    fn a_killed_process_whose_threads_stay_is_told_from_others() {
        let status = |state: &str, threads: u32, pending: &str| {
            format!(
                "Name:\tplatter\nState:\t{state}\nThreads:\t{threads}\nSigPnd:\t0000000000000000\nShdPnd:\t{pending}\n"
            )
        };
        let none = "0000000000000000";
        assert!(killed_with_threads(&status("Z (zombie)", 2, none)));
        assert!(killed_with_threads(&status("D (disk sleep)", 1, "0000000000000100")));
        assert!(!killed_with_threads(&status("Z (zombie)", 1, none)));
        assert!(!killed_with_threads(&status("S (sleeping)", 9, none)));
        assert!(!killed_with_threads(""));
        assert!(!is_dying(std::process::id()));
    }

    #[test]
    fn only_recorded_fuse_mounts_of_the_same_source_are_dead() {
        let recorded: BTreeMap<PathBuf, String> = [
            ("/tank/my files".into(), "tank/my files".into()),
            ("/other".into(), "tank/x".into()),
            ("/tank".into(), "tank".into()),
        ]
        .into();
        assert_eq!(dead_among(&recorded, &parse_mountinfo(MOUNTINFO)), [PathBuf::from("/tank/my files")]);
    }
}
