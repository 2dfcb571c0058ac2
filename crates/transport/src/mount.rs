//! What serving threads know of a mount: how its requests become work, and how long it is there.
//!
//! These types name each other: a request lies in a place of a mount, and the mount's work takes the request along.
//!
//! Invariants:
//! - a request's bytes live as long as its work;
//! - a mount is told once that it is gone: when the kernel has given up all of its places.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::buffers::Borrowed;
use crate::connection::Connection;
use crate::lease::{Lease, Mail, News};
use crate::operation::Body;
use crate::wire::InHeader;

/// What is done for one request.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Told once that a mount is gone, and what ended it otherwise.
pub(crate) type Gone = Box<dyn FnOnce(io::Result<()>) + Send>;

/// What answers for a mount.
pub(crate) trait Serve: Send + Sync {
    /// Work for a request, whose answer goes `way` unless there is none. Its first steps may be taken on a thread that
    /// others wait for.
    fn task(self: Arc<Self>, header: InHeader, message: Message, way: Option<Way>) -> Task;

    /// Where work goes on that waits for something.
    fn runtime(&self) -> &Handle;
}

/// A request's bytes behind its header.
pub(crate) enum Message {
    /// Small ones are copied, so that their place is free for the answer or the next request: first part and rest, and
    /// where that begins.
    Copied(Vec<u8>, usize),
    /// In their place of a ring.
    InPlace(Arc<Lease<Mount>>),
    /// Where they were read to.
    Read(Borrowed, Range<usize>),
}

impl Message {
    /// What follows the request's header.
    pub fn body(&self, header: &InHeader) -> Body<'_> {
        match self {
            Self::Copied(bytes, first) => Body(&bytes[..*first], &bytes[*first..]),
            Self::InPlace(lease) => lease.body(header).unwrap_or_default(),
            Self::Read(buffer, range) => Body(&buffer[range.clone()], &[]),
        }
    }
}

/// How an answer gets to the kernel.
#[derive(Debug)]
pub(crate) enum Way {
    Device(Arc<Connection>),
    Ring(Arc<Lease<Mount>>),
}

/// A mount whose requests come over io_uring.
pub(crate) struct Mount {
    pub connection: Arc<Connection>,
    pub server: Arc<dyn Serve>,
    /// Bytes that a request of `/dev/fuse` may have.
    pub length: usize,
    /// Of the thread that looks at `/dev/fuse`.
    watcher: Arc<Mail<Mount>>,
    /// Places that the kernel has not given up.
    live: AtomicUsize,
    /// What the kernel gave a place up with, other than that the mount is gone; 0 is nothing.
    refused: AtomicI32,
    gone: Mutex<Option<Gone>>,
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mount").field("connection", &self.connection).field("live", &self.live).finish_non_exhaustive()
    }
}

impl Mount {
    /// One with so many places, each of which the kernel will give up once; `watcher` belongs to the thread that looks
    /// at its `/dev/fuse`, from which requests of up to `length` bytes come.
    pub fn new(
        connection: Arc<Connection>,
        server: Arc<dyn Serve>,
        length: usize,
        watcher: Arc<Mail<Mount>>,
        places: usize,
        gone: Gone,
    ) -> Self {
        let (live, refused) = (AtomicUsize::new(places), AtomicI32::new(0));
        Self { connection, server, length, watcher, live, refused, gone: Mutex::new(Some(gone)) }
    }

    /// Whether the kernel has given up all places.
    pub fn is_over(&self) -> bool {
        self.live.load(Ordering::SeqCst) == 0
    }

    /// The kernel has given up one of its places, with this error when it was not for the mount's end.
    pub fn lost_place(self: &Arc<Self>, refused: Option<i32>) {
        if let Some(code) = refused {
            tracing::error!("FUSE over io_uring: {}", io::Error::from_raw_os_error(code));
            self.refused.store(code, Ordering::SeqCst);
        }
        let before = self.live.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a place is given up once");
        if before > 1 {
            return;
        }
        // Mostly its own descriptor tells it.
        self.watcher.put(News::Ended(self.clone()));
        let gone = self.gone.lock().take();
        if let Some(gone) = gone {
            let refused = self.refused.load(Ordering::SeqCst);
            gone(if refused == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(refused)) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::mailbox::Mailbox;

    /// It is never asked.
    struct Nobody;

    impl Serve for Nobody {
        fn task(self: Arc<Self>, _: InHeader, _: Message, _: Option<Way>) -> Task {
            Box::pin(async {})
        }

        fn runtime(&self) -> &Handle {
            unreachable!("it has no tasks")
        }
    }

    fn mount(places: usize, gone: Gone) -> Arc<Mount> {
        let file = File::open("/dev/null").expect("there");
        let connection = Arc::new(Connection::new(file.into()));
        let watcher = Arc::new(Mailbox::new().expect("a descriptor"));
        Arc::new(Mount::new(connection, Arc::new(Nobody), 4096, watcher, places, gone))
    }

    #[test]
    fn a_mount_is_gone_with_its_last_place_and_tells_why() {
        for refused in [None, Some(22)] {
            let (tell, told) = std::sync::mpsc::channel();
            let mount = mount(2, Box::new(move |outcome| tell.send(outcome).expect("somebody waits")));
            mount.lost_place(refused);
            assert!(!mount.is_over() && told.try_recv().is_err());
            mount.lost_place(None);
            assert!(mount.is_over());
            let outcome = told.try_recv().expect("told at once");
            assert_eq!(outcome.err().and_then(|error| error.raw_os_error()), refused);
            assert!(matches!(mount.watcher.take().news[..], [News::Ended(_)]));
        }
    }
}
