//! Serving one mount: the first words with the kernel, then requests on several threads until it is unmounted.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::connection::Connection;
use crate::operation::{self, Request};
use crate::reply::Reply;
use crate::types::InitFlags;
use crate::wire::{self, opcode};

/// Memory page of the kernel, which it counts requests in.
const PAGE: u32 = 4096;

/// What answers the requests of a mount.
pub trait Filesystem: Send + Sync + 'static {
    /// Does what is asked and answers, now or later, here or on another thread. A `reply` to a request that waits for
    /// no answer must be `None`, and is.
    fn serve(&self, request: Request<'_>, reply: Option<Reply>);

    /// The kernel's side is gone: no request will come any more, and none is being served.
    fn gone(&self);
}

/// What is agreed on with the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Threads that serve requests, at least 1.
    pub threads: usize,
    /// Capabilities wanted; what the kernel lacks is done without.
    pub wanted: InitFlags,
    /// Bytes that a read or write may have, a multiple of 4096.
    pub request_max: u32,
    /// Bytes that the kernel may read ahead.
    pub readahead_max: u32,
    /// Requests that nobody waits for in flight.
    pub background_max: u16,
}

/// A mount that is being served.
#[derive(Debug)]
pub struct Session {
    supervisor: JoinHandle<io::Result<()>>,
}

/// What all serving threads share.
struct Server<F> {
    filesystem: F,
    agreed: InitFlags,
    request_max: u32,
}

impl Session {
    /// Agrees with the kernel and starts serving the mount that `device` belongs to.
    ///
    /// # Errors
    /// What the device said; `Unsupported` when the kernel's protocol is too old (before Linux 5.4).
    pub fn start<F: Filesystem>(filesystem: F, device: OwnedFd, config: Config) -> io::Result<Self> {
        let first = Arc::new(Connection::new(device));
        let agreed = handshake(&first, &config)?;
        let mut connections = vec![first.clone()];
        for _ in 1..config.threads {
            // One descriptor for all works too, with more waiting for its lock.
            connections.push(first.cloned().map_or_else(|_| first.clone(), Arc::new));
        }
        let server = Arc::new(Server { filesystem, agreed, request_max: config.request_max });
        let supervisor = Builder::new().name("fuse".into()).spawn(move || supervise(server, connections))?;
        Ok(Self { supervisor })
    }

    /// Whether the mount is gone and its last request answered.
    pub fn is_finished(&self) -> bool {
        self.supervisor.is_finished()
    }

    /// Waits until the mount is gone.
    ///
    /// # Errors
    /// What ended serving, other than unmounting.
    pub fn join(self) -> io::Result<()> {
        self.supervisor.join().unwrap_or_else(|_| Err(io::Error::other("the thread that serves the mount panicked")))
    }
}

fn supervise<F: Filesystem>(server: Arc<Server<F>>, connections: Vec<Arc<Connection>>) -> io::Result<()> {
    let mut outcome = Ok(());
    let mut threads = Vec::new();
    for (index, connection) in connections.into_iter().enumerate() {
        let server = server.clone();
        match Builder::new().name(format!("fuse-{index}")).spawn(move || server.run(&connection)) {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => outcome = Err(error),
            // Fewer will do.
            Err(error) => tracing::warn!("starting a thread to serve a mount: {error}"),
        }
    }
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a serving thread panicked")));
        outcome = outcome.and(ended);
    }
    server.filesystem.gone();
    outcome
}

impl<F: Filesystem> Server<F> {
    fn run(&self, connection: &Arc<Connection>) -> io::Result<()> {
        let mut buffer = vec![0; self.request_max as usize + wire::REQUEST_EXTRA];
        while let Some(length) = connection.receive(&mut buffer)? {
            self.serve(connection, &buffer[..length]);
        }
        Ok(())
    }

    fn serve(&self, connection: &Arc<Connection>, message: &[u8]) {
        let Some((header, body)) = operation::split(message) else {
            tracing::error!("the kernel sent {} bytes that are no request", message.len());
            return;
        };
        let reply = (!operation::is_silent(&header)).then(|| Reply::new(connection.clone(), header.unique));
        let extended = self.agreed.contains(InitFlags::SETXATTR_EXT);
        match operation::parse(&header, body, extended) {
            // A panic would take the thread along, and after a few of them the mount would hang.
            Ok(request) => {
                let served = AssertUnwindSafe(|| self.filesystem.serve(request, reply));
                if std::panic::catch_unwind(served).is_err() {
                    tracing::error!("request {} of node {} panicked; this is a bug", header.opcode, header.nodeid);
                }
            }
            Err(error) => {
                if let Some(reply) = reply {
                    reply.error(error);
                }
            }
        }
    }
}

/// The first request of a mount says what the kernel can; the answer says what is wanted of it.
fn handshake(connection: &Arc<Connection>, config: &Config) -> io::Result<InitFlags> {
    let mut buffer = vec![0; config.request_max as usize + wire::REQUEST_EXTRA];
    loop {
        let gone = || io::Error::new(io::ErrorKind::NotConnected, "it was unmounted before it was served");
        let length = connection.receive(&mut buffer)?.ok_or_else(gone)?;
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's first words are not understood");
        let (header, body) = operation::split(&buffer[..length]).ok_or_else(unknown)?;
        let mut reply = Reply::new(connection.clone(), header.unique);
        if header.opcode != opcode::INIT {
            reply.error(Errno::IO);
            return Err(unknown());
        }
        let (init, more) = wire::InitIn::read_from_prefix(body).map_err(|_| unknown())?;
        if init.major > wire::MAJOR {
            // It will ask again in our version.
            let ours = wire::InitOut { major: wire::MAJOR, minor: wire::MINOR, ..Default::default() };
            reply.say(0, &[ours.as_bytes()]);
            continue;
        }
        if init.major < wire::MAJOR || init.minor < wire::MINOR_LEAST {
            reply.error(Errno::PROTO);
            let said = format!("the kernel speaks FUSE {}.{}; Linux 5.4 or later is needed", init.major, init.minor);
            return Err(io::Error::new(io::ErrorKind::Unsupported, said));
        }
        let (agreed, answer) = agree(&init, more, config);
        reply.say(0, &[answer.as_bytes()]);
        return Ok(agreed);
    }
}

fn agree(init: &wire::InitIn, more: &[u8], config: &Config) -> (InitFlags, wire::InitOut) {
    let offered = InitFlags(init.flags.into());
    let extended = offered.contains(InitFlags::INIT_EXT);
    let high = wire::InitInMore::read_from_prefix(more).map_or(0, |(more, _)| more.flags2);
    let offered = if extended { InitFlags(offered.0 | u64::from(high) << 32) } else { offered };
    let always = InitFlags::BIG_WRITES | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
    let agreed = offered.and(config.wanted | always);
    let answer = wire::InitOut {
        major: wire::MAJOR,
        minor: wire::MINOR,
        max_readahead: init.max_readahead.min(config.readahead_max),
        flags: agreed.0 as u32,
        max_background: config.background_max,
        // Where the kernel calls the mount congested; its own choice is the same part.
        congestion_threshold: config.background_max / 4 * 3,
        max_write: config.request_max,
        // Times are exact to the nanosecond.
        time_gran: 1,
        max_pages: (config.request_max / PAGE).min(u16::MAX.into()) as u16,
        flags2: (agreed.0 >> 32) as u32,
        ..Default::default()
    };
    (agreed, answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_want_is_agreed() {
        let config = Config {
            threads: 1,
            wanted: InitFlags::ASYNC_READ | InitFlags::POSIX_ACL | InitFlags(1 << 33),
            request_max: 1 << 20,
            readahead_max: 1 << 20,
            background_max: 64,
        };
        let offered = InitFlags::ASYNC_READ | InitFlags::MAX_PAGES | InitFlags::INIT_EXT;
        let init = wire::InitIn { major: 7, minor: 40, max_readahead: 128 << 10, flags: offered.0 as u32 };
        let more = wire::InitInMore { flags2: 2, ..Default::default() };
        let (agreed, answer) = agree(&init, more.as_bytes(), &config);
        assert_eq!(agreed, offered | InitFlags(1 << 33));
        assert_eq!((answer.max_readahead, answer.max_pages, answer.flags2), (128 << 10, 256, 2));
        // Without more than 32 flags, what is there is no word of flags.
        let init = wire::InitIn { flags: InitFlags::ASYNC_READ.0 as u32, ..init };
        assert_eq!(agree(&init, more.as_bytes(), &config).0, InitFlags::ASYNC_READ);
    }
}
