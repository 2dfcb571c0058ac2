//! Long-lived tasks of a pool, each under watch: one that panics stops the pool with its reason, as an error in a group
//! does, and whoever waits is told. Unwatched, it would leave a pool that looks healthy and hangs for ever.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::task::JoinHandle;

use crate::pool::DslPool;

/// How the reason of a pool begins that stopped because of a bug.
pub const INTERNAL: &str = "internal error: ";

/// Starts a task that works for the pool. It does not keep the pool's state alive by being watched.
pub fn spawn(
    dsl: &Arc<DslPool>,
    what: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let weak = Arc::downgrade(dsl);
    tokio::spawn(async move {
        let Err(panic) = AssertUnwindSafe(task).catch_unwind().await else { return };
        let reason = format!("{INTERNAL}{what} panicked: {}", words(&*panic));
        let Some(dsl) = weak.upgrade() else { return tracing::error!("{reason}") };
        tracing::error!(pool = dsl.name(), reason, "this is a bug; the pool is stopped");
        dsl.halt_for_good(&reason);
        if let Some(listener) = dsl.listener() {
            listener.stopped();
        }
    })
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
