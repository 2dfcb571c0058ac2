//! Who is at the other end of a Unix socket, as the kernel knows it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most groups that a process has (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 1 << 16;
/// Room for those that most have.
const GROUPS: usize = 64;

/// Supplementary groups of whoever connected, at the time when he did.
///
/// # Errors
/// The kernel does not tell (before Linux 4.13).
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut room = GROUPS;
    loop {
        let mut groups: Vec<libc::gid_t> = vec![0; room];
        let bytes = room * size_of::<libc::gid_t>();
        let mut length = libc::socklen_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `length` bytes to the vector, which has as many, and the length that it
        // would need to `length`; both live until the call is over.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let needed = length as usize / size_of::<libc::gid_t>();
        if result == 0 {
            groups.truncate(needed);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || needed <= room || needed > GROUPS_MAX {
            return Err(error);
        }
        room = needed;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn groups_are_those_of_the_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let mut own: Vec<u32> = line.split_whitespace().map(|group| group.parse().unwrap()).collect();
        let mut told = groups(one.as_fd()).unwrap();
        own.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, own);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(groups(file.as_fd()).is_err());
    }
}
