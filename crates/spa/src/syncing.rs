//! Reads on behalf of the sync loop: a group cannot be left half done, so that they wait for devices whatever property
//! `failmode` says (`ZIO_FLAG_MUSTSUCCEED`).

tokio::task_local! {
    static SYNCING: ();
}

/// Runs `work`, whose reads wait for devices that fail, as its writes do anyway.
pub async fn must_succeed<F: Future>(work: F) -> F::Output {
    SYNCING.scope((), work).await
}

/// Whether the running task is within [`must_succeed`].
pub(crate) fn is_syncing() -> bool {
    SYNCING.try_with(|()| ()).is_ok()
}
