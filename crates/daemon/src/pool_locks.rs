//! The locks of pools by their guids, for all daemons of this machine: names of sockets in the kernel ("abstract"
//! ones). They are the same in all mount name spaces and over all file systems, and end with the process that bound
//! them, however it ends. Each network name space has its own: of daemons in different ones, which containers are,
//! only the devices' own locks keep pools apart.
//!
//! Anybody may bind such a name. So only what this user or root has bound counts, a pool has several names, and whoever
//! has bound one looks at all of them: somebody else may have had one that is free now.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use parking_lot::Mutex;
use platter_device::Holder;
use platter_ondisk::Guid;
use platter_spa::pool_locks::{PoolLock, PoolLocks, Refusal};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

/// So many names has a pool.
const NAMES: usize = 8;
/// How many looks at it may be under way. More of them find that it is held, but not by whom.
const BACKLOG: i32 = 4096;

/// The locks; see the module's text.
#[derive(Debug, Default)]
pub struct MachineLocks {
    /// The leaves of the pools that are open here, or were since nobody opened them here again.
    leaves: Mutex<BTreeMap<u64, Noted>>,
}

/// What is known of a pool.
#[derive(Debug)]
struct Noted {
    name: String,
    leaves: BTreeSet<u64>,
}

/// Whose a name is.
enum Owner {
    /// Nobody's, or somebody's who does not listen.
    Nobody,
    /// Root's or this user's.
    Counts(Holder),
    /// Another user's; for a person.
    Stranger(String),
}

/// A name that is bound, listening. What it says of a pool ends with it at once, although a process that is just being
/// started has a copy of the socket until it begins its own program.
struct Bound(OwnedFd);

impl Drop for Bound {
    fn drop(&mut self) {
        // A socket that does not listen any more counts as nobody's; it fails for none that does.
        if let Err(error) = rustix::net::shutdown(&self.0, Shutdown::Both) {
            tracing::warn!("a pool's lock ends a moment later than its pool: {error}");
        }
    }
}

fn address(pool: Guid, name: usize) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("platter/pool/{}/{name}", pool.0).as_bytes())
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Who a process is that has bound a name.
fn process(pid: Option<i32>) -> Holder {
    match pid.filter(|pid| *pid > 0) {
        Some(pid) => Holder::of(pid),
        None => Holder::Unnamed(" (of another name space, so without a pid)"),
    }
}

/// What a person calls another user's process.
fn stranger(pid: i32, user: u32) -> String {
    format!("{} of user {user}", process(Some(pid)))
}

/// Whether what this user has bound is a lock.
fn counts(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// The process that has a name open, and its user.
fn process_of(pool: Guid, name: usize, listening: bool) -> Option<(i32, u32)> {
    let table = std::fs::read_to_string("/proc/net/unix").ok()?;
    let wanted = format!("@platter/pool/{}/{name}", pool.0);
    // What it accepted has its name, too, but does not listen.
    let is_it = |fields: &[&str]| fields.get(3).is_some_and(|flags| (*flags == "00010000") == listening);
    let inode = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.last() == Some(&wanted.as_str()) && is_it(&fields)).then(|| fields[6].to_owned())
    })?;
    let link = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut holders = processes.filter_map(|process| {
        let pid: i32 = process.file_name().to_str()?.parse().ok()?;
        let mut open = std::fs::read_dir(process.path().join("fd")).ok()?.flatten();
        let holds = open.any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == &*link));
        holds.then(|| Some((pid, process.metadata().ok()?.uid()))).flatten()
    });
    holders.next()
}

fn owner(pool: Guid, name: usize) -> rustix::io::Result<Owner> {
    let socket = socket()?;
    match rustix::net::connect(socket.as_fd(), &address(pool, name)?) {
        Ok(()) => {}
        // Nobody takes the looks at it away: ours, or somebody who wants to be taken for us.
        Err(Errno::AGAIN) => {
            return Ok(match process_of(pool, name, true) {
                Some((pid, user)) if counts(user) => Owner::Counts(process(Some(pid))),
                Some((pid, user)) => Owner::Stranger(stranger(pid, user)),
                None => Owner::Counts(Holder::Unnamed(
                    " that cannot be seen from here and keeps the pool's lock busy ('ss -xlp' shows it at \
                     platter/pool/…)",
                )),
            });
        }
        Err(_) => return Ok(Owner::Nobody),
    }
    let peer = tokio::net::UnixStream::from_std(UnixStream::from(socket)).and_then(|stream| stream.peer_cred());
    Ok(match peer {
        Ok(peer) if counts(peer.uid()) => Owner::Counts(process(peer.pid())),
        Ok(peer) => Owner::Stranger(format!("{} of user {}", process(peer.pid()), peer.uid())),
        // Safe rather than sorry.
        Err(_) => Owner::Counts(Holder::SOMEBODY),
    })
}

/// Who has the pool by any of its names but one.
fn search(pool: Guid, own: Option<usize>) -> rustix::io::Result<Option<Holder>> {
    for name in (0..NAMES).filter(|name| Some(*name) != own) {
        if let Owner::Counts(holder) = owner(pool, name)? {
            return Ok(Some(holder));
        }
    }
    Ok(None)
}

/// Takes a lock; who has it, when somebody does.
fn take(pool: Guid) -> rustix::io::Result<Result<PoolLock, Refusal>> {
    for name in 0..NAMES {
        let socket = socket()?;
        match rustix::net::bind(&socket, &address(pool, name)?) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => match owner(pool, name)? {
                Owner::Counts(holder) => return Ok(Err(Refusal::Held(holder))),
                // Who has bound it and does not listen yet looks at the others after us.
                Owner::Nobody | Owner::Stranger(_) => continue,
            },
            Err(error) => return Err(error),
        }
        rustix::net::listen(&socket, BACKLOG)?;
        let socket = Bound(socket);
        return Ok(match search(pool, Some(name))? {
            Some(holder) => Err(Refusal::Held(holder)),
            None => Ok(PoolLock::new(socket)),
        });
    }
    let mut strangers = Vec::new();
    for name in 0..NAMES {
        match owner(pool, name)? {
            Owner::Counts(holder) => return Ok(Err(Refusal::Held(holder))),
            Owner::Nobody => strangers.extend(process_of(pool, name, false).map(|(pid, user)| stranger(pid, user))),
            Owner::Stranger(who) => strangers.push(who),
        }
    }
    strangers.dedup();
    Ok(Err(Refusal::Obstructed(strangers.join(", "))))
}

impl PoolLocks for MachineLocks {
    fn lock(&self, pool: Guid) -> Result<PoolLock, Refusal> {
        let taken = take(pool).unwrap_or_else(|error| {
            // As with a file system that has no locks: the devices' own have to do.
            tracing::warn!("pool {pool} has no lock on this host: {error}");
            Ok(PoolLock::new(()))
        });
        if taken.is_ok() {
            // Another daemon may have added some since.
            self.leaves.lock().remove(&pool.0);
        }
        taken
    }

    fn holder(&self, pool: Guid) -> Option<Holder> {
        search(pool, None).ok().flatten()
    }

    fn note_leaves(&self, pool: Guid, name: &str, leaves: BTreeSet<u64>) {
        self.leaves.lock().insert(pool.0, Noted { name: name.to_owned(), leaves });
    }

    fn pool_with(&self, leaf: Guid) -> Option<String> {
        let noted: Vec<(Guid, String)> = {
            let all = self.leaves.lock();
            let having = all.iter().filter(|(_, noted)| noted.leaves.contains(&leaf.0));
            having.map(|(pool, noted)| (Guid(*pool), noted.name.clone())).collect()
        };
        noted.into_iter().find(|(pool, _)| self.holder(*pool) == Some(Holder::ThisProcess)).map(|(_, name)| name)
    }

    fn holder_of_leaf(&self, pool: Guid, leaf: Option<Guid>) -> Option<Holder> {
        let holder = self.holder(pool)?;
        let is_no_more =
            |leaf: Guid| self.leaves.lock().get(&pool.0).is_some_and(|noted| !noted.leaves.contains(&leaf.0));
        (holder != Holder::ThisProcess || !leaf.is_some_and(is_no_more)).then_some(holder)
    }

    fn is_listed_elsewhere(&self, leaf: Guid, pool: Guid) -> bool {
        self.leaves.lock().iter().any(|(other, noted)| *other != pool.0 && noted.leaves.contains(&leaf.0))
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
        let (locks, pool) = (MachineLocks::default(), guid(1));
        assert_eq!(locks.holder(pool), None);
        let lock = locks.lock(pool).expect("nobody has it");
        assert_eq!(locks.holder(pool), Some(Holder::ThisProcess));
        assert_eq!(locks.lock(pool).expect_err("it is held"), Refusal::Held(Holder::ThisProcess));
        let other = locks.lock(guid(2)).expect("another pool");
        drop(lock);
        assert_eq!(locks.holder(pool), None);
        drop((locks.lock(pool).expect("it was given back"), other));
    }

    /// A process between its fork and its program has copies of all that is open.
    #[tokio::test]
    async fn a_lock_ends_although_a_copy_of_its_socket_is_left() {
        let (locks, pool) = (MachineLocks::default(), guid(6));
        let bound = socket().expect("a socket");
        rustix::net::bind(&bound, &address(pool, 0).expect("a name")).expect("bound");
        rustix::net::listen(&bound, BACKLOG).expect("listening");
        let copy = bound.try_clone().expect("a copy");
        let lock = PoolLock::new(Bound(bound));
        assert_eq!(locks.holder(pool), Some(Holder::ThisProcess));
        drop(lock);
        assert_eq!(locks.holder(pool), None);
        assert!(locks.lock(pool).is_ok(), "by another name");
        drop(copy);
    }

    /// To connect to such a socket is refused, whoever has bound it.
    #[tokio::test]
    async fn a_busy_name_counts_by_who_has_bound_it() {
        let (locks, pool) = (MachineLocks::default(), guid(4));
        let busy = socket().expect("a socket");
        rustix::net::bind(&busy, &address(pool, 0).expect("a name")).expect("bound");
        rustix::net::listen(&busy, 0).expect("listening");
        let waiting: Vec<_> = (0..4).filter_map(|_| owner(pool, 0).ok()).collect();
        let process = process_of(pool, 0, true).expect("this process");
        assert_eq!(process, (std::process::id() as i32, rustix::process::geteuid().as_raw()));
        let found = owner(pool, 0).expect("an answer");
        assert!(matches!(&found, Owner::Counts(Holder::ThisProcess)), "after {} looks", waiting.len());
        assert_eq!(locks.lock(pool).expect_err("it counts"), Refusal::Held(Holder::ThisProcess));
    }

    /// What a disk was a device of is known of the pools that are open here.
    #[tokio::test]
    async fn a_leaf_that_left_its_pool_is_free() {
        let (locks, pool) = (MachineLocks::default(), guid(5));
        assert_eq!(locks.holder_of_leaf(pool, Some(Guid(1))), None);
        let lock = locks.lock(pool).expect("free");
        assert_eq!(locks.holder_of_leaf(pool, Some(Guid(1))), Some(Holder::ThisProcess));
        locks.note_leaves(pool, "tank", [1, 2].into());
        assert_eq!(locks.pool_with(Guid(2)).as_deref(), Some("tank"));
        assert_eq!(locks.pool_with(Guid(3)), None);
        assert_eq!(locks.holder_of_leaf(pool, Some(Guid(1))), Some(Holder::ThisProcess));
        assert_eq!(locks.holder_of_leaf(pool, Some(Guid(3))), None);
        assert_eq!(locks.holder_of_leaf(pool, None), Some(Holder::ThisProcess));
        // Opened again: another daemon may have added it meanwhile.
        drop(lock);
        assert_eq!(locks.pool_with(Guid(2)), None, "nobody has it open");
        let lock = locks.lock(pool).expect("free again");
        assert_eq!(locks.holder_of_leaf(pool, Some(Guid(3))), Some(Holder::ThisProcess));
        drop(lock);
    }

    #[tokio::test]
    async fn a_name_that_nobody_listens_at_is_passed_over_and_does_not_hide_the_holder() {
        let (locks, pool) = (MachineLocks::default(), guid(3));
        let squatter = socket().expect("a socket");
        rustix::net::bind(&squatter, &address(pool, 0).expect("a name")).expect("bound");
        let lock = locks.lock(pool).expect("another name is free");
        drop(squatter);
        assert!(locks.lock(pool).is_err(), "the first name is free, but it is held by the second");
        drop(lock);
        assert!(locks.lock(pool).is_ok());
    }
}
