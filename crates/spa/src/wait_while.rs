//! Waiting for what another task does.

use std::sync::Arc;

use tokio::sync::Notify;

/// Waits until `condition` holds no more; whoever changes what it looks at rings `changed`.
pub async fn wait_while(changed: Arc<Notify>, condition: impl Fn() -> bool) {
    loop {
        let mut rung = std::pin::pin!(changed.notified());
        // From here on no ring is missed.
        rung.as_mut().enable();
        if !condition() {
            return;
        }
        rung.await;
    }
}
