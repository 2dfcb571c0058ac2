//! Reads on behalf of the sync loop: a group cannot be left half done, so that they wait for devices whatever property
//! `failmode` says (`ZIO_FLAG_MUSTSUCCEED`).

tokio::task_local! {
    static SYNCING: bool;
}

/// Runs `work`, whose reads wait for devices that fail, as its writes do anyway.
pub async fn must_succeed<F: Future>(work: F) -> F::Output {
    SYNCING.scope(true, work).await
}

/// Runs a part of such work whose reads may fail: what cannot be read is known what to do with.
pub async fn may_fail<F: Future>(work: F) -> F::Output {
    SYNCING.scope(false, work).await
}

/// Whether the running task is within [`must_succeed`].
pub(crate) fn is_syncing() -> bool {
    SYNCING.try_with(|must| *must).unwrap_or(false)
}
