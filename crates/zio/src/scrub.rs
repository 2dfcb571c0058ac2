//! Scrubbing one block: every copy is read with all its redundancy, and what is wrong is rewritten from what is right
//! (`dsl_scan_scrub_cb`, `module/zfs/dsl_scan.c`; `zio_read` with `ZIO_FLAG_SCRUB`). The stages are those of reading
//! ([`crate::read`]) without those that make contents of what is stored.
//!
//! Invariant: a block that is good is good in every copy, or what could not be repaired is counted.

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_hooks::CpuWork;
use platter_ondisk::BlkPtr;
use platter_vdev::Priority;

use crate::copies::vdev_of;
use crate::error::Result;
use crate::lost::Lost;
use crate::policy::Bookmark;
use crate::read::{Copies, Proof, ReadZio, check_gang_part, gang_parts};
use crate::store::{ScrubbedBlock, Store};

impl Store {
    /// Reads every copy (and all parity) of a block, repairs what is wrong, and says how it went.
    ///
    /// # Errors
    /// [`crate::ZioError::Checksum`] when no copy is good.
    pub async fn scrub(&self, bp: &BlkPtr, bookmark: Bookmark) -> Result<ScrubbedBlock> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(ScrubbedBlock::default());
        }
        let zio = ReadZio { store: self, bp, bookmark, priority: Priority::Scrub };
        // Of an encrypted block the stored bytes can be verified without the key.
        if !bp.is_protected() {
            zio.check()?;
        }
        let mut done = ScrubbedBlock::default();
        loop {
            let resumptions = self.suspension().resumptions();
            let scrubbed = scrub_stored(self, bp, false, &mut done).await;
            let verified = bp.psize() as usize * bp.dvas().count();
            self.cpu().charge(CpuWork::Checksum(bp.checksum_kind().number()), verified).await;
            let Err(lost) = scrubbed else { return Ok(done) };
            if !zio.wait(resumptions, &lost).await {
                return Err(zio.report(&lost));
            }
        }
    }
}

/// Reads every copy of a block with all its redundancy and rewrites what is wrong; no device is blamed when this is
/// `speculative`.
///
/// # Errors
/// What was wrong with each copy, when none can be had.
pub(crate) async fn scrub_stored(
    store: &Store,
    bp: &BlkPtr,
    speculative: bool,
    done: &mut ScrubbedBlock,
) -> std::result::Result<(), Lost> {
    if bp.is_gang() {
        return gang(store, bp, speculative, 0, done).await;
    }
    let proof = if bp.is_protected() { Proof::HalfChecksum } else { Proof::Checksum };
    copies(Copies::of_block(store, bp, speculative).proven_by(proof), done).await
}

/// Reads every copy with all its redundancy and rewrites what is wrong.
///
/// # Errors
/// When no copy can be had: what was wrong with each.
pub(crate) async fn copies(copies: Copies<'_>, done: &mut ScrubbedBlock) -> std::result::Result<(), Lost> {
    let (mut lost, mut wrong, mut sound) = (Lost::default(), Vec::new(), Vec::new());
    for dva in copies.in_order() {
        let scrubbed = match vdev_of(copies.store, dva) {
            Ok(vdev) => vdev.scrub(copies.extent(dva), &copies).await.map_err(Lost::from),
            Err(reason) => Err(Lost::from(reason)),
        };
        match scrubbed {
            Ok(outcome) => {
                done.repaired += outcome.repaired_bytes;
                done.unrepaired += outcome.unrepaired_bytes;
                let unproven = !copies.can_tell && !sound.is_empty() && copies.is_doubtful(dva);
                if unproven { wrong.push(dva) } else { sound.push(dva) }
            }
            Err(reason) => {
                lost.and(reason);
                wrong.push(dva);
            }
        }
    }
    if wrong.is_empty() && !sound.is_empty() {
        return Ok(());
    }
    for dva in sound {
        if let Ok(bytes) = copies.issue(dva, Priority::Scrub).await {
            for bad in wrong {
                let ScrubbedBlock { repaired, unrepaired } = copies.repair(bad, &bytes, true).await;
                assert!(repaired == 0 || unrepaired == 0, "a copy is repaired as a whole");
                done.repaired += repaired;
                done.unrepaired += unrepaired;
            }
            return Ok(());
        }
    }
    Err(lost.or_no_address())
}

/// Scrubs header and parts of a gang block, every copy of each.
fn gang<'a>(
    store: &'a Store,
    bp: &'a BlkPtr,
    speculative: bool,
    depth: u32,
    done: &'a mut ScrubbedBlock,
) -> BoxFuture<'a, std::result::Result<(), Lost>> {
    async move {
        let header = copies(Copies::of_gang_header(store, bp, speculative), done).await;
        header.map_err(|lost| lost.of("gang header"))?;
        let mut lost = Lost::default();
        let mut left = bp.psize();
        for part in gang_parts(store, bp, Priority::Scrub, speculative).await? {
            check_gang_part(&part, left, depth)?;
            left -= part.psize();
            let scrubbed = if part.is_gang() {
                gang(store, &part, speculative, depth + 1, done).await
            } else {
                copies(Copies::of_block(store, &part, speculative), done).await
            };
            // The other parts are worth repairing even when one is lost.
            if let Err(part) = scrubbed {
                lost.and(part.of("gang member"));
            }
        }
        if left > 0 {
            lost.and(Lost::from("gang members do not add up".to_owned()));
        }
        if lost.reason.is_empty() { Ok(()) } else { Err(lost) }
    }
    .boxed()
}
