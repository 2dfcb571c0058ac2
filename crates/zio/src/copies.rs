//! The copies of one block (or gang header) are written together.
//!
//! Invariant: a block without checksum is written to all of its addresses or not at all: an old copy could not be told
//! from it.

use platter_buffer::Buf;
use platter_ondisk::{Checksum, Dva};
use platter_vdev::{Priority, TopVdev};

use crate::error::ZioError;
use crate::policy::WritePolicy;
use crate::store::Store;

/// The vdev that an address is on.
///
/// # Errors
/// There is none.
pub(crate) fn vdev_of(store: &Store, dva: Dva) -> Result<&TopVdev, String> {
    store.top(dva.vdev).map(AsRef::as_ref).ok_or_else(|| format!("top-level vdev {} does not exist", dva.vdev))
}

/// Writes the same bytes to every address; one that succeeds is enough, when a checksum will tell it from the others,
/// whose devices have missed the group. When none does the pool is suspended, and they are tried again when it is
/// resumed.
///
/// # Errors
/// [`ZioError::Io`] when the pool was stopped instead; an address on a vdev that does not exist.
pub(crate) async fn write_copies(store: &Store, dvas: &[Dva], bytes: &Buf, policy: &WritePolicy) -> crate::Result<()> {
    let (state, txg) = (store.state(), policy.txg);
    // Of a block without checksum all copies look the same: what an address held before, on all devices alike, would be
    // taken for it.
    let least = if policy.checksum == Checksum::OFF { dvas.len() } else { 1 };
    loop {
        let resumptions = state.suspension.resumptions();
        let writes = dvas.iter().map(|dva| {
            let bytes = bytes.clone();
            async move {
                let vdev = vdev_of(store, *dva).map_err(|what| ZioError::corrupt("block pointer", what))?;
                vdev.write(dva.offset, bytes, txg, Priority::AsyncWrite).await.map_err(|e| ZioError::Io(e.to_string()))
            }
        });
        let results = if dvas.len() == 1 {
            let mut writes = writes;
            vec![writes.next().expect("one copy").await]
        } else {
            futures::future::join_all(writes).await
        };
        if results.iter().filter(|result| result.is_ok()).count() >= least {
            let is_told = policy.checksum != Checksum::OFF || results.iter().all(Result::is_ok);
            assert!(is_told && !dvas.is_empty(), "a block is where its pointer says, or its checksum tells");
            for (dva, _) in dvas.iter().zip(&results).filter(|(_, result)| result.is_err()) {
                store.top(dva.vdev).iter().for_each(|vdev| vdev.note_unwritten(txg));
            }
            return Ok(());
        }
        let error = results.into_iter().find_map(Result::err).unwrap_or(ZioError::Io("no address".into()));
        if !matches!(error, ZioError::Io(_)) || !state.suspension.hold(resumptions, &error.to_string()).await {
            return Err(error);
        }
    }
}
