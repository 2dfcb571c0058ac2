//! `zfs diff`: what differs between a snapshot and a later one, or what is there now.
//!
//! The snapshot that is taken to compare what is there now goes in any case: at the latest when its pool is imported
//! again.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use platter_api::messages::{ErrorBody, Outcome};
use platter_api::snapshots::{DiffHeader, DiffSnapshots};
use platter_dsl::stream_ends::StreamSink;
use platter_dsl::temporary_holds::TemporarySnapshot;
use platter_dsl::{DslPool, PoolError};
use tokio::sync::mpsc;

use super::mounts::{no_such_dataset, pool_of};
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::descriptors::Handed;
use crate::diff_entries::{diff_entry, printable};
use crate::engine::PoolHandle;
use crate::pipe::Outlet;

/// Differences that wait to be written.
const ENTRIES: usize = 256;
/// When what could not be dropped is tried again; twice as long after each time, up to [`DROP_AGAIN_MAX`].
const DROP_AGAIN: Duration = Duration::from_secs(2);
const DROP_AGAIN_MAX: Duration = Duration::from_secs(60);

/// Drops a snapshot that somebody else reads, or whose pool is suspended, as soon as that is over. The next import does
/// what this does not come to.
async fn drop_later(daemon: Weak<Daemon>, dsl: Weak<DslPool>, taken: TemporarySnapshot) {
    let mut wait = DROP_AGAIN;
    loop {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(DROP_AGAIN_MAX);
        let (Some(daemon), Some(dsl)) = (daemon.upgrade(), dsl.upgrade()) else { return };
        if daemon.drop_taken(&dsl, &taken).await.is_ok() {
            return;
        }
    }
}

/// A line of JSON.
fn line(told: &impl serde::Serialize) -> Result<Vec<u8>, PoolError> {
    let mut text = serde_json::to_vec(told).map_err(|error| PoolError::invalid(error.to_string()))?;
    text.push(b'\n');
    Ok(text)
}

impl Daemon {
    /// `zfs diff`.
    pub async fn diff(self: &Arc<Self>, call: &DiffSnapshots, asker: &Asker) -> Answer<Outcome> {
        // Closed when it fails early, too: its other end would wait for ever.
        let handed = self.handed(&call.descriptor, asker)?;
        let (from, to) = (&call.from, &call.to);
        let dataset = to.split('@').next().unwrap_or_default().to_owned();
        let cannot_open = |name: &str, error| failed(&format!("cannot open '{name}'"), error);
        let pool = self.pool_with(from)?;
        pool.snapshot(from).await.map_err(|error| cannot_open(from, error))?;
        let earlier = "Not an earlier snapshot from the same fs";
        if pool_of(from) != pool_of(to) {
            return Err(ErrorBody::new(format!("{earlier}: invalid name")));
        }
        let lineage = pool.lineage(&dataset).await.map_err(|error| cannot_open(&dataset, error))?;
        if lineage.last().is_none_or(|last| last.name != dataset) {
            return Err(no_such_dataset(&dataset));
        }
        let Some(active) = self.mounted(&dataset) else {
            let reason = "operation not applicable to datasets of this type";
            return Err(ErrorBody::new(format!("Cannot diff an unmounted snapshot: {reason}")));
        };
        let mounted_at = std::os::unix::ffi::OsStrExt::as_bytes(active.at.as_os_str()).to_vec();
        let mounted_at = if mounted_at == b"/" { String::new() } else { printable(&mounted_at) };
        let header = DiffHeader { mounted_at };
        let compared = match to.contains('@') {
            true => {
                pool.snapshot(to).await.map_err(|error| cannot_open(to, error))?;
                self.tell_differences(&pool, (from, to), &header, handed).await
            }
            false => {
                let (now, taken) = self.take_for_diff(&dataset).await?;
                let compared = self.tell_differences(&pool, (from, &now), &header, handed).await;
                self.drop_after_diff(&now, taken).await;
                compared
            }
        };
        compared.map(|()| Outcome::default()).map_err(|error| failed("Unable to obtain diffs", error))
    }

    /// Writes what differs between two snapshots as it is found.
    async fn tell_differences(
        &self,
        pool: &Arc<dyn PoolHandle>,
        (from, to): (&str, &str),
        header: &DiffHeader,
        handed: Handed,
    ) -> Result<(), PoolError> {
        let tell = async |outlet: &mut Outlet| {
            outlet.put(line(header)?).await?;
            let (found, mut entries) = mpsc::channel(ENTRIES);
            let write = async {
                let mut some = Vec::with_capacity(ENTRIES);
                while entries.recv_many(&mut some, ENTRIES).await > 0 {
                    let lines: Vec<Vec<u8>> =
                        some.drain(..).map(|found| line(&diff_entry(found))).collect::<Result<_, _>>()?;
                    outlet.put(lines.concat()).await?;
                }
                Ok(())
            };
            tokio::try_join!(pool.differences(from, to, found), write).map(|_| 0)
        };
        self.let_out(to, handed, tell).await.map(|_| ())
    }

    /// Takes a snapshot of what is there now (`make_temp_snapshot`).
    async fn take_for_diff(&self, dataset: &str) -> Answer<(String, TemporarySnapshot)> {
        let what = format!("Cannot create just-in-time snapshot of '{dataset}'");
        let (_, dsl) = self.streaming(dataset)?;
        let _lock = self.turn(pool_of(dataset), &what).await?;
        let moment = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let whose = format!("zfs-diff-{}", std::process::id());
        let name = format!("{dataset}@{whose}-{:016x}", moment.as_nanos());
        self.flush_mounts(&BTreeSet::from([dataset.to_owned()])).await;
        let taken = dsl.take_temporary_snapshot(&name, &format!("%{whose}")).await;
        taken.map(|taken| (name, taken)).map_err(|error| failed(&what, error))
    }

    /// Drops the snapshot that was made, now or as soon as it can go.
    async fn drop_after_diff(self: &Arc<Self>, name: &str, taken: TemporarySnapshot) {
        let Ok((_, dsl)) = self.streaming(name) else { return };
        if let Err(error) = self.drop_taken(&dsl, &taken).await {
            tracing::warn!("the snapshot '{name}', which was made to compare, stays for now: {error}");
            tokio::spawn(drop_later(Arc::downgrade(self), Arc::downgrade(&dsl), taken));
        }
    }

    /// Drops it, whatever it is called by now, and takes it away from a mount that shows it. Of a pool that was
    /// exported meanwhile nothing is left to do here.
    async fn drop_taken(&self, dsl: &Arc<DslPool>, taken: &TemporarySnapshot) -> Result<(), PoolError> {
        let _lock = self.locks.of(dsl.name()).await;
        let is_same =
            |pool: &Arc<dyn PoolHandle>| pool.engine_pool().is_some_and(|engine| Arc::ptr_eq(engine.dsl(), dsl));
        let Some(pool) = self.pool(dsl.name()).ok().filter(is_same) else { return Ok(()) };
        let name = dsl.name_of_temporary_snapshot(taken).await;
        let shown = self.shown(&pool, name.as_slice()).await;
        dsl.drop_temporary_snapshot(taken).await?;
        self.close_shown(&shown);
        Ok(())
    }
}
