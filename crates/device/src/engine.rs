//! Who carries out a file's transfers.

use std::fs::File;
use std::io;
use std::sync::{Arc, OnceLock};

use tokio::sync::oneshot;

use crate::lease::Lease;
use crate::local;
use crate::pool::Pool;
use crate::ring::Ring;
use crate::transfer::{Op, Work};

/// Who carries out the transfers of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// io_uring, or threads where the kernel has none.
    #[default]
    Auto,
    /// Threads with pread and pwrite.
    Threads,
}

/// Who carries out a device's transfers.
pub(crate) enum Engine {
    /// The ring of the thread that asks, if it has one, else that which all share.
    Ring(&'static Ring),
    /// Threads of the device's own.
    Pool(Pool),
}

impl Engine {
    /// The engine for a device. The ring is for devices whose transfers the kernel submits without waiting for them
    /// (`submits_at_once`): its one thread, and with it every other device, would wait too. FUSE, for one, waits for
    /// its server's answer while the transfer is submitted.
    pub fn get(kind: EngineKind, submits_at_once: bool) -> Self {
        static RING: OnceLock<Option<Ring>> = OnceLock::new();
        if kind != EngineKind::Threads && submits_at_once {
            let ring = RING.get_or_init(|| match Ring::start() {
                Ok(ring) => Some(ring),
                Err(error) => {
                    tracing::info!("io_uring is not available ({error}); using threads for disk I/O");
                    None
                }
            });
            if let Some(ring) = ring {
                return Self::Ring(ring);
            }
        }
        Self::Pool(Pool::default())
    }

    /// Carries a transfer out; gives its memory back with the result. A read that meets the end of the file fails with
    /// `UnexpectedEof`.
    pub async fn run(
        &self,
        file: &Arc<File>,
        offset: u64,
        work: Work,
        lease: Option<Arc<Lease>>,
    ) -> (Work, io::Result<()>) {
        let (reply, answer) = oneshot::channel();
        let op = Op { file: file.clone(), offset, work, lease, reply };
        match self {
            Self::Ring(ring) => {
                if let Err(op) = local::submit(op) {
                    ring.submit(op);
                }
            }
            Self::Pool(pool) => pool.submit(op),
        }
        answer.await.unwrap_or_else(|_| (Work::Flush, Err(io::Error::other("the I/O thread ended"))))
    }
}
