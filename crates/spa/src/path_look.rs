//! Looks at paths, given up when nothing answers: a path may lead to a server that is away.

use std::path::Path;
use std::time::Duration;

use platter_device::{DeviceSource, PathKind, Seen};

/// For how long a path is looked at that somebody asks for.
const ASKED_MAX: Duration = Duration::from_secs(5);
/// For how long a path is looked at again and again: whoever is not back by then is seen the next time.
const WATCHED_MAX: Duration = Duration::from_millis(200);

/// What a path leads to: to nothing when there is no answer.
pub async fn look(devices: &dyn DeviceSource, path: &Path) -> Seen {
    tokio::time::timeout(ASKED_MAX, devices.look(path)).await.unwrap_or_else(|_| {
        let reason = format!("it did not answer within {} seconds", ASKED_MAX.as_secs());
        Seen { kind: PathKind::Missing(reason), real: None }
    })
}

/// Whether there is anything at a path, for who looks each second; `None` when there is no answer. No disk is woken up.
pub async fn is_there(devices: &dyn DeviceSource, path: &Path) -> Option<bool> {
    let seen = tokio::time::timeout(WATCHED_MAX, devices.look(path)).await.ok()?;
    Some(!matches!(seen.kind, PathKind::Missing(_)))
}
