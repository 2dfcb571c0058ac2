//! One mount from its first words with the kernel until it is unmounted; between them threads that all mounts share
//! serve its requests ([`crate::serve`]).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::config::Config;
use crate::connection::Connection;
use crate::handshake::handshake;
use crate::readers::Readers;
use crate::rings::{self, Rings, Turn};
use crate::serve::{Filesystem, Kernel, Server};
use crate::wire;

/// A mount that is being served.
#[derive(Debug)]
pub struct Session {
    end: Arc<End>,
}

/// How serving ended, once it has.
#[derive(Debug, Default)]
struct End {
    outcome: Mutex<Option<io::Result<()>>>,
    told: Condvar,
}

impl Session {
    /// Agrees with the kernel and starts serving the mount that `device` belongs to. What takes longer than a moment is
    /// done in tasks of `runtime`, which must outlive the mount.
    ///
    /// # Errors
    /// What the device said; `Unsupported` when the kernel's protocol is too old (before Linux 5.4).
    pub fn start<F: Filesystem>(filesystem: F, device: OwnedFd, config: Config, runtime: Handle) -> io::Result<Self> {
        let readers = Readers::get(config.threads)?;
        let first = Arc::new(Connection::new(device));
        let payload = config.request_max as usize;
        let length = payload + wire::REQUEST_EXTRA;
        let mut rings = None;
        let agreed = handshake(&first, &config, || {
            let Some(turn) = Turn::take(payload) else { return false };
            let all = Rings::get().inspect_err(|error| tracing::warn!("FUSE over io_uring: {error}"));
            rings = all.ok().map(|all| (all, turn));
            rings.is_some()
        })?;
        let server = Arc::new(Server { filesystem, agreed, runtime });
        server.filesystem.started(Kernel::new(&first, agreed));
        let end = Arc::new(End::default());
        let (own, tell) = (server.clone(), end.clone());
        if let Some((rings, turn)) = rings {
            let gone = Box::new(move |outcome| {
                drop(turn);
                finish_elsewhere(own, tell, outcome);
            });
            rings.add(first, server, payload, length, gone)?;
        } else {
            readers.add(first, server, length, Box::new(move |outcome| finish_elsewhere(own, tell, outcome)))?;
        }
        Ok(Self { end })
    }

    /// Whether the mount is gone and its last request answered.
    pub fn is_finished(&self) -> bool {
        self.end.outcome.lock().is_some()
    }

    /// Waits until the mount is gone.
    ///
    /// # Errors
    /// What ended serving, other than unmounting.
    pub fn join(self) -> io::Result<()> {
        let mut outcome = self.end.outcome.lock();
        loop {
            match outcome.take() {
                Some(outcome) => return outcome,
                None => self.end.told.wait(&mut outcome),
            }
        }
    }
}

/// Waits for what is still done for a mount that is gone, and says that it is.
fn finish<F: Filesystem>(server: &Arc<Server<F>>, end: &End, outcome: io::Result<()>) {
    // Tasks that have answered may still have something to put away.
    server.runtime.block_on(async {
        while Arc::strong_count(server) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    server.filesystem.gone();
    *end.outcome.lock() = Some(outcome);
    end.told.notify_all();
}

/// As [`finish`], on a thread that may wait: those that serve must not.
fn finish_elsewhere<F: Filesystem>(server: Arc<Server<F>>, end: Arc<End>, outcome: io::Result<()>) {
    let runtime = server.runtime.clone();
    let work = Arc::new(Mutex::new(Some((server, end, outcome))));
    let own = work.clone();
    let finish = move || {
        rings::leave();
        let taken = own.lock().take();
        if let Some((server, end, outcome)) = taken {
            finish(&server, &end, outcome);
        }
    };
    if let Err(error) = Builder::new().name("fuse-end".into()).spawn(finish.clone()) {
        tracing::debug!("starting a thread for a mount's end: {error}");
        runtime.spawn_blocking(finish);
    }
}
