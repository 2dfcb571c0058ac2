//! Looks at paths, given up when nothing answers: a path may lead to a server that is away.

use std::path::Path;
use std::time::Duration;

use platter_device::{DeviceSource, OpenOptions, PathKind, Seen, Stamp};

/// For how long a path is looked at that somebody asks for.
const ASKED_MAX: Duration = Duration::from_secs(5);
/// For how long a path is looked at again and again: whoever is not back by then is seen the next time.
const WATCHED_MAX: Duration = Duration::from_millis(200);

/// What a path leads to: to nothing when there is no answer.
pub async fn look(devices: &dyn DeviceSource, path: &Path) -> Seen {
    tokio::time::timeout(ASKED_MAX, devices.look(path)).await.unwrap_or_else(|_| {
        let reason = format!("it did not answer within {} seconds", ASKED_MAX.as_secs());
        Seen { kind: PathKind::Missing(reason), real: None, stamp: None }
    })
}

/// For how long a disk is waited for that is to be used.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Bytes that it is asked for: the largest sector.
const ASKED: usize = 1 << 16;

/// Whether a disk that nobody uses can be read, and soon. While it does not answer it counts as used.
pub async fn answers(devices: &dyn DeviceSource, path: &Path) -> bool {
    let answer = async {
        let device = devices.open_path(path, OpenOptions::exclusive()).await.ok()?;
        let bytes = usize::try_from(device.size()).unwrap_or(ASKED).min(ASKED);
        device.read(0, bytes).await.ok()
    };
    tokio::time::timeout(ANSWER_MAX, answer).await.is_ok_and(|answer| answer.is_some())
}

/// What tells the thing at a path from others, for who looks every few seconds; `None` when nothing is there, or there
/// is no answer. No disk is woken up.
pub async fn stamp(devices: &dyn DeviceSource, path: &Path) -> Option<Stamp> {
    tokio::time::timeout(WATCHED_MAX, devices.look(path)).await.ok()?.stamp
}

/// Whether there is anything at a path, for who looks each second; `None` when there is no answer. No disk is woken up.
pub async fn is_there(devices: &dyn DeviceSource, path: &Path) -> Option<bool> {
    let seen = tokio::time::timeout(WATCHED_MAX, devices.look(path)).await.ok()?;
    Some(!matches!(seen.kind, PathKind::Missing(_)))
}
