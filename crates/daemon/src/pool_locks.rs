//! The locks of pools by their guids, for all daemons of this machine: names of sockets in the kernel ("abstract"
//! ones). They are the same in all mount name spaces and over all file systems, and end with the process that bound
//! them, however it ends. Each network name space has its own: of daemons in different ones, which containers are,
//! only the devices' own locks keep pools apart.
//!
//! Anybody may bind such a name. So only what this user or root has bound counts, a pool has several names, and whoever
//! has bound one looks at all of them: somebody else may have had one that is free now.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use platter_dsl::pool_locks::{PoolLock, PoolLocks};
use platter_ondisk::Guid;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// So many names has a pool.
const NAMES: usize = 8;
/// How many looks at it may be under way. More of them find that it is held, but not by whom.
const BACKLOG: i32 = 4096;

/// The locks; see the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineLocks;

/// Whose a name is.
enum Owner {
    /// Nobody's, or somebody's who does not listen.
    Nobody,
    /// Root's or this user's; for a person.
    Counts(String),
    /// Another user's.
    Stranger,
}

fn address(pool: Guid, name: usize) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("platter/pool/{}/{name}", pool.0).as_bytes())
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// What a person calls a process.
fn name_of(pid: Option<i32>) -> String {
    match pid {
        Some(pid) if pid == std::process::id() as i32 => "this daemon".into(),
        Some(pid) if pid > 0 => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_else(|_| "unknown".into());
            format!("another process ({}, pid {pid})", name.trim())
        }
        _ => "another process (of another name space, so without a pid)".into(),
    }
}

fn owner(pool: Guid, name: usize) -> rustix::io::Result<Owner> {
    let socket = socket()?;
    match rustix::net::connect(socket.as_fd(), &address(pool, name)?) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Ok(Owner::Counts("another process".into())),
        Err(_) => return Ok(Owner::Nobody),
    }
    let peer = tokio::net::UnixStream::from_std(UnixStream::from(socket)).and_then(|stream| stream.peer_cred());
    Ok(match peer {
        Ok(peer) if peer.uid() == 0 || peer.uid() == rustix::process::geteuid().as_raw() => {
            Owner::Counts(name_of(peer.pid()))
        }
        Ok(_) => Owner::Stranger,
        // Safe rather than sorry.
        Err(_) => Owner::Counts("another process".into()),
    })
}

/// Who has the pool by any of its names but one.
fn search(pool: Guid, own: Option<usize>) -> rustix::io::Result<Option<String>> {
    for name in (0..NAMES).filter(|name| Some(*name) != own) {
        if let Owner::Counts(holder) = owner(pool, name)? {
            return Ok(Some(holder));
        }
    }
    Ok(None)
}

/// Takes a lock; who has it, when somebody does.
fn take(pool: Guid) -> rustix::io::Result<Result<PoolLock, String>> {
    for name in 0..NAMES {
        let socket = socket()?;
        match rustix::net::bind(&socket, &address(pool, name)?) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => match owner(pool, name)? {
                Owner::Counts(holder) => return Ok(Err(holder)),
                // Who has bound it and does not listen yet looks at the others after us.
                Owner::Nobody | Owner::Stranger => continue,
            },
            Err(error) => return Err(error),
        }
        rustix::net::listen(&socket, BACKLOG)?;
        return Ok(match search(pool, Some(name))? {
            Some(holder) => Err(holder),
            None => Ok(PoolLock::new(socket)),
        });
    }
    Ok(Err("processes of other users have taken all names of its lock, and maybe one".into()))
}

impl PoolLocks for MachineLocks {
    fn lock(&self, pool: Guid) -> Result<PoolLock, String> {
        take(pool).unwrap_or_else(|error| {
            // As with a file system that has no locks: the devices' own have to do.
            tracing::warn!("pool {pool} has no lock on this host: {error}");
            Ok(PoolLock::new(()))
        })
    }

    fn holder(&self, pool: Guid) -> Option<String> {
        search(pool, None).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guid that no other test process uses.
    fn guid(number: u64) -> Guid {
        Guid(u64::from(std::process::id()) << 8 | number)
    }

    #[tokio::test]
    async fn a_pool_has_one_holder_at_a_time() {
        let (locks, pool) = (MachineLocks, guid(1));
        assert_eq!(locks.holder(pool), None);
        let lock = locks.lock(pool).expect("nobody has it");
        assert_eq!(locks.holder(pool).as_deref(), Some("this daemon"));
        assert_eq!(locks.lock(pool).expect_err("it is held"), "this daemon");
        let other = locks.lock(guid(2)).expect("another pool");
        drop(lock);
        assert_eq!(locks.holder(pool), None);
        drop((locks.lock(pool).expect("it was given back"), other));
    }

    #[tokio::test]
    async fn a_name_that_nobody_listens_at_is_passed_over_and_does_not_hide_the_holder() {
        let (locks, pool) = (MachineLocks, guid(3));
        let squatter = socket().expect("a socket");
        rustix::net::bind(&squatter, &address(pool, 0).expect("a name")).expect("bound");
        let lock = locks.lock(pool).expect("another name is free");
        drop(squatter);
        assert!(locks.lock(pool).is_err(), "the first name is free, but it is held by the second");
        drop(lock);
        assert!(locks.lock(pool).is_ok());
    }
}
