//! Free ranges on demand: allocation, and claiming blocks of a log, load the metaslabs that they need
//! (`metaslab_load`, `module/zfs/metaslab.c`).
//!
//! Invariants:
//! - a space map is read with nothing locked but `maps`, and written with `maps` held, too: so what is read is what the
//!   sums and changes in memory belong to, and two that want the same metaslab read it once;
//! - a map that is damaged costs its metaslab's free space, not the pool: nothing is allocated from it, and what is
//!   freed in it is written behind what the map has.
//!
//! Reading must never allocate: a load that an allocation waits for would wait for an allocation.

use std::sync::Arc;

use platter_ondisk::{BlkPtr, Dva, Txg};

use crate::allocator::{Attempt, MetaslabId};
use crate::error::{Result, ZioError};
use crate::gang_tree;
use crate::log_bias::LogBias;
use crate::map_reader::{MapAt, MapReader};
use crate::metaslab::Ranges;
use crate::range_set::RangeSet;
use crate::store::Store;
use crate::syncing::may_fail;

impl Store {
    /// Hands over who reads space maps; the first call counts.
    pub fn set_map_reader(&self, reader: Arc<dyn MapReader>) {
        let _ = self.state().map_reader.set(reader);
    }

    /// Held while space maps are written.
    pub async fn lock_maps(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.state().maps.lock().await
    }

    /// The map of a metaslab whose ranges are not in memory.
    fn unloaded(&self, id: MetaslabId) -> Option<MapAt> {
        let allocator = self.state().allocator.lock();
        let group = allocator.group(id.vdev)?;
        let metaslab = group.metaslabs().get(id.index)?;
        let Ranges::OnDisk { .. } = metaslab.ranges else { return None };
        Some(MapAt {
            id,
            start: metaslab.start,
            size: metaslab.size,
            shift: group.geometry.unit().trailing_zeros(),
            object: metaslab.space_map,
            length: metaslab.map_length,
        })
    }

    /// Makes the free ranges of a metaslab be in memory, unless its map is damaged or its devices are gone: then it has
    /// nothing to be allocated for now.
    pub async fn load(&self, id: MetaslabId) {
        let _maps = self.lock_maps().await;
        let Some(map) = self.unloaded(id) else { return };
        let read = if map.length == 0 {
            Ok(RangeSet::of(map.start, map.size))
        } else {
            match self.state().map_reader.get() {
                // A map that cannot be read must not hold up the group: there are other metaslabs.
                Some(reader) => may_fail(reader.free_ranges(map)).await,
                None => Err(ZioError::Invalid("nobody can read space maps".into())),
            }
        };
        assert_eq!(self.unloaded(id), Some(map), "a space map is not written while it is read, nor read twice");
        let mut allocator = self.state().allocator.lock();
        let read = match read {
            Err(ZioError::Io(reason)) => {
                tracing::warn!(vdev = id.vdev, metaslab = id.index, reason, "its space map cannot be read for now");
                return allocator.pass_over(id);
            }
            read => read.map_err(|error| error.to_string()),
        };
        allocator.install(id, read);
        let ranges = allocator.group(id.vdev).and_then(|group| group.metaslabs().get(id.index)).map(|m| &m.ranges);
        let Some(Ranges::Damaged(reason)) = ranges.cloned() else { return };
        drop(allocator);
        if let Some(reader) = self.state().map_reader.get() {
            reader.note_damage(id, &reason);
        }
    }

    /// Allocates `copies` places for a block of `psize` bytes.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`]; nothing is allocated then.
    pub(crate) async fn allocate(&self, psize: u64, copies: u8) -> Result<Vec<Dva>> {
        let mut dvas = Vec::with_capacity(usize::from(copies));
        loop {
            let attempt = self.state().allocator.lock().allocate(psize, copies, &mut dvas)?;
            match attempt {
                Attempt::Done(()) => return Ok(dvas),
                Attempt::Unloaded(id) => self.load(id).await,
                Attempt::Disabled => self.enabled().await,
            }
        }
    }

    /// Allocates a log block of `size` bytes in open group `txg`.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`].
    pub async fn allocate_log(&self, size: u64, txg: Txg, bias: LogBias) -> Result<Dva> {
        loop {
            let attempt = self.state().allocator.lock().allocate_log(size, txg, bias)?;
            match attempt {
                Attempt::Done(dva) => return Ok(dva),
                Attempt::Unloaded(id) => self.load(id).await,
                Attempt::Disabled => self.enabled().await,
            }
        }
    }

    /// Marks a block of an intent log found at import as allocated, in the first group to be synced.
    ///
    /// # Errors
    /// When a copy is outside the pool or not free; when its space map is damaged or cannot be read, or a gang block.
    pub async fn claim(&self, bp: &BlkPtr) -> Result<()> {
        if !bp.is_gang() {
            return self.claim_own_space(bp).await;
        }
        for block in gang_tree::blocks(self, bp).await? {
            self.claim_own_space(&block).await?;
        }
        Ok(())
    }

    async fn claim_own_space(&self, bp: &BlkPtr) -> Result<()> {
        let own = self.state().allocator.lock().own_space(bp);
        for dva in own.dvas() {
            let mut has_tried = false;
            loop {
                let attempt = self.state().allocator.lock().claim(&dva)?;
                match attempt {
                    Attempt::Done(()) => break,
                    Attempt::Unloaded(id) if has_tried => {
                        let what = format!("the space map of metaslab {} of vdev {} cannot be read", id.index, id.vdev);
                        return Err(ZioError::Io(what));
                    }
                    Attempt::Unloaded(id) => self.load(id).await,
                    Attempt::Disabled => unreachable!("what is claimed is not handed out"),
                }
                has_tried = true;
            }
        }
        Ok(())
    }

    /// Loads the metaslabs that a block lies in as far as there is memory for them, so that freeing it is noticed when
    /// it is free already. Without the ranges only what became free lately is known; loading them later finds the rest.
    pub async fn load_below(&self, bp: &BlkPtr) {
        let unloaded = self.state().allocator.lock().unloaded_below(bp);
        for id in unloaded {
            let has_room = self.state().allocator.lock().has_room_to_load(id);
            if has_room {
                self.load(id).await;
            }
        }
    }

    /// Whether all of this block is in use, so that it can be freed, as far as is known
    /// ([`load_below`](Self::load_below)). Of a gang block this is its header; what is embedded in its pointer takes no
    /// space.
    pub async fn is_allocated(&self, bp: &BlkPtr) -> bool {
        if bp.is_embedded() {
            return true;
        }
        self.load_below(bp).await;
        self.state().allocator.lock().is_allocated(bp)
    }
}
