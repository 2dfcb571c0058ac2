//! Descriptors that this process has from whoever started it.

use std::fs;
use std::io;

/// Has every open descriptor from `first` on closed when another program is executed: what a shell had open (a lock, a
/// file of some mount) is not to stay open for as long as a daemon lives that it happened to start.
///
/// # Errors
/// The system can neither do that by itself (Linux 5.11) nor list the descriptors.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: no memory is handed over, and no descriptor is closed now: who uses one goes on.
    if unsafe { libc::close_range(first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) } == 0 {
        return Ok(());
    }
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(number) = number.filter(|number| *number >= first) {
            // SAFETY: as above; one that was closed meanwhile is an error that does not matter.
            unsafe { libc::fcntl(number as libc::c_int, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_that_is_started_gets_nothing_of_it() {
        let file = tempfile::tempfile().unwrap();
        // As a shell leaves it: without the mark; and with a number that nothing else comes to: `ls` opens one, too.
        let kept = file.as_raw_fd();
        // SAFETY: the number it returns is looked at for errors, and then belongs to nobody else.
        let kept = unsafe { OwnedFd::from_raw_fd(libc::fcntl(kept, libc::F_DUPFD, 500)) };
        assert!(kept.as_raw_fd() >= 500);
        let list = || {
            let output = Command::new("ls").arg("/proc/self/fd").output().unwrap();
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let number = kept.as_raw_fd().to_string();
        assert!(list().contains(&number));
        close_on_exec_from(kept.as_raw_fd().unsigned_abs()).unwrap();
        assert!(!list().contains(&number));
        assert!(rustix::fs::fstat(&kept).is_ok(), "it is open here");
    }
}
