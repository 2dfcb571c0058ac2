//! What is done in the directory `.zfs/snapshot` of a mount, on its way to whoever takes, destroys and renames
//! snapshots: the mount knows its pool, and not the daemon with its locks and its other mounts.

use std::sync::OnceLock;

use platter_fuse::snapshots::{ChangeRefused, SnapshotChange};
use tokio::sync::{mpsc, oneshot};

/// Requests that wait at most; more wait to be sent.
const WAITING: usize = 16;

/// One of them.
#[derive(Debug)]
pub struct SnapshotRequest {
    /// The data set that is mounted.
    pub dataset: String,
    /// What is to be done.
    pub change: SnapshotChange,
    /// Where the answer is awaited.
    pub answer: oneshot::Sender<Result<(), ChangeRefused>>,
}

/// Where mounts send them.
#[derive(Debug, Default)]
pub struct SnapshotRequests {
    sender: OnceLock<mpsc::Sender<SnapshotRequest>>,
}

impl SnapshotRequests {
    /// Everything that is sent from now on arrives here; once.
    pub fn listen(&self) -> Option<mpsc::Receiver<SnapshotRequest>> {
        let (sender, receiver) = mpsc::channel(WAITING);
        self.sender.set(sender).ok().map(|()| receiver)
    }

    /// Has it done.
    ///
    /// # Errors
    /// What the daemon says; forbidden where nobody listens.
    pub async fn send(&self, dataset: String, change: SnapshotChange) -> Result<(), ChangeRefused> {
        let sender = self.sender.get().ok_or(ChangeRefused::Forbidden)?;
        let (answer, answered) = oneshot::channel();
        let request = SnapshotRequest { dataset, change, answer };
        sender.send(request).await.map_err(|_| ChangeRefused::Failed)?;
        answered.await.unwrap_or(Err(ChangeRefused::Failed))
    }
}
