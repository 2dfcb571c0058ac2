//! A daemon that was killed and cannot end: one of its threads waits in the kernel for a device that does not answer.
//! Lock and socket stay with it, so nobody can start another one; whoever asks is told what it waits for.
//!
//! Invariant: no file of it is looked at but by name: a look at one that does not answer would wait with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::dead_mounts::is_dying;
use crate::home::Home;
use platter_api::messages::ErrorBody;

/// So many devices are named.
const NAMED: usize = 4;

/// What to say when the process with this number is such a daemon.
pub fn describe(home: &Home, pid: u32) -> Option<ErrorBody> {
    is_dying(pid).then(|| error(pid, &open_for_writing(home.path(), Path::new(&format!("/proc/{pid}/task")))))
}

fn error(pid: u32, open: &BTreeSet<PathBuf>) -> ErrorBody {
    let names: Vec<String> = open.iter().take(NAMED).map(|path| format!("'{}'", path.display())).collect();
    let more = open.len().saturating_sub(NAMED);
    let devices = match (names.is_empty(), more) {
        (true, _) => "a device".to_owned(),
        (false, 0) => format!("one of its devices ({})", names.join(", ")),
        (false, more) => format!("one of its devices ({} and {more} more)", names.join(", ")),
    };
    ErrorBody::new(format!(
        "the daemon (pid {pid}) was killed and cannot end: the system waits for {devices}, which does not answer"
    ))
    .hint("make it answer, or take it away ('umount -f' of a network or FUSE file system); then go on as usual")
}

/// What its threads have open for writing that is not in its home, nor the kernel's own.
fn open_for_writing(home: &Path, tasks: &Path) -> BTreeSet<PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let mut open = BTreeSet::new();
    for task in entries(tasks) {
        for descriptor in entries(&task.path().join("fd")) {
            let Ok(path) = fs::read_link(descriptor.path()) else { continue };
            let information = task.path().join("fdinfo").join(descriptor.file_name());
            let is_written = fs::read_to_string(information).is_ok_and(|text| may_write(&text));
            let is_system =
                path.starts_with(home) || ["/dev/fuse", "/dev/null"].iter().any(|own| path == Path::new(own));
            if is_written && path.is_absolute() && !is_system {
                open.insert(path);
            }
        }
    }
    debug_assert!(open.iter().all(|path| path.is_absolute() && !path.starts_with(home)));
    open
}

/// From the text of `/proc/PID/fdinfo/N`: the flags are those of open(2), in octal.
fn may_write(text: &str) -> bool {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 0o3 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_for_writing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (device, read) = (dir.path().join("device"), dir.path().join("read"));
        fs::write(&read, "").unwrap();
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        let _open = (fs::File::create(&device), fs::File::open(&read), fs::File::create(home.join("log")));
        let found = open_for_writing(&home, Path::new("/proc/self/task"));
        assert!(found.contains(&device) && !found.contains(&read) && !found.contains(&home.join("log")), "{found:?}");
        let message = error(7, &found.iter().filter(|path| path.starts_with(dir.path())).cloned().collect()).message;
        assert!(message.contains("(pid 7) was killed and cannot end") && message.contains("device'"), "{message}");
        assert!(error(7, &BTreeSet::new()).message.contains("waits for a device, which"));
    }

    #[test]
    fn who_is_alive_is_not_described() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().to_owned()).unwrap();
        assert!(describe(&home, std::process::id()).is_none());
    }
}
