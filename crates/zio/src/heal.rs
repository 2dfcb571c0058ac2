//! A block that neither copies nor parity can give back gets its bytes from elsewhere (`do_corrective_recv`,
//! `module/zfs/dmu_recv.c`).
//!
//! Invariant: what is written where a block is matched its pointer's checksum before, whoever brought it.

use platter_buffer::Buf;
use platter_ondisk::BlkPtr;
use platter_vdev::{Knowledge, Priority};

use crate::copies::vdev_of;
use crate::error::{Result, ZioError};
use crate::gang_tree::{self, GangPart, GangTree};
use crate::lost::Lost;
use crate::policy::Bookmark;
use crate::read::{Copies, ReadZio, stored};
use crate::scrub::scrub_stored;
use crate::store::{ScrubbedBlock, Store};

/// What a look at a block found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It can be read, or nothing can tell that it is wrong.
    Right,
    /// All that is there is wrong.
    Damaged,
    /// Devices are missing that may have it.
    OutOfReach,
}

impl Store {
    /// Looks at every copy of a block, past the cache. What redundancy can give back is repaired; no device is blamed,
    /// and nobody is told of damage.
    ///
    /// # Errors
    /// An encrypted block, one with a checksum of an unknown kind, a pointer that makes no sense.
    pub async fn condition(&self, bp: &BlkPtr, bookmark: Bookmark) -> Result<Condition> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(Condition::Right);
        }
        ReadZio { store: self, bp, bookmark, priority: Priority::Scrub }.check()?;
        Ok(match scrub_stored(self, bp, true, &mut ScrubbedBlock::default()).await {
            Ok(()) => Condition::Right,
            Err(lost) if lost.by_device || lost.doubtful => Condition::OutOfReach,
            Err(_) => Condition::Damaged,
        })
    }

    /// Puts `bytes`, a block as it is stored, where copies of it are wrong, and reads it back. Answers whether these
    /// are its bytes: if not, nothing was written.
    ///
    /// # Errors
    /// It cannot be written, or not be read back; the parts of a gang block cannot be found.
    pub async fn restore(&self, bp: &BlkPtr, bookmark: Bookmark, bytes: &Buf) -> Result<bool> {
        let zio = ReadZio { store: self, bp, bookmark, priority: Priority::SyncRead };
        zio.check()?;
        let copies = Copies::of_block(self, bp, true);
        if bytes.len() as u64 != bp.psize() || !copies.can_tell || !copies.is_right(bytes) {
            return Ok(false);
        }
        let put_back = match bp.is_gang() {
            true => match gang_tree::tree(self, bp, 0).await {
                Ok(tree) => parts(self, &tree, bytes).await,
                Err(lost) => Err(lost),
            },
            false => block(copies, bytes).await,
        };
        put_back.map_err(|lost| zio.damaged(lost))?;
        match stored(self, bp, Priority::SyncRead, true).await {
            Ok(_) => Ok(true),
            Err(lost) => Err(ZioError::Io(format!("{bookmark} was written anew and is wrong again: {lost}"))),
        }
    }
}

/// Writes a block, whose bytes were proven, over each copy of it that is wrong.
async fn block(copies: Copies<'_>, bytes: &Buf) -> std::result::Result<(), Lost> {
    assert!(copies.can_tell && copies.is_right(bytes), "what is written matched its pointer's checksum");
    let mut lost = Lost::default();
    for dva in copies.in_order() {
        vdev_of(copies.store, dva)?;
        if copies.issue(dva, Priority::SyncRead).await.is_ok() {
            continue;
        }
        if copies.repair(dva, bytes, false).await.unrepaired > 0 {
            lost.and(Lost::from(format!("{dva:?} cannot be written")));
        }
    }
    if lost.reason.is_empty() { Ok(()) } else { Err(lost) }
}

/// The same with the parts of a gang block.
async fn parts(store: &Store, tree: &GangTree, bytes: &Buf) -> std::result::Result<(), Lost> {
    if !tree.is_whole() {
        return Err(Lost::from("gang members do not add up".to_owned()));
    }
    let (mut waiting, mut at) = (vec![tree.parts.iter()], 0);
    while let Some(parts) = waiting.last_mut() {
        match parts.next() {
            None => drop(waiting.pop()),
            Some(GangPart::Gang(inner)) => waiting.push(inner.parts.iter()),
            Some(GangPart::Block(bp)) => {
                let end = at + bp.psize() as usize;
                let copies = Copies::of_block(store, bp, true);
                let own = Buf::copy_from(&bytes[at..end]);
                if !copies.can_tell || !copies.is_right(&own) {
                    return Err(Lost::from("a gang member is not a part of its block".to_owned()));
                }
                block(copies, &own).await?;
                at = end;
            }
        }
    }
    Ok(())
}
