//! Who reads space maps for the allocator.

use futures::future::BoxFuture;
use platter_ondisk::ObjectId;

use crate::allocator::MetaslabId;
use crate::error::Result;
use crate::range_set::RangeSet;

/// A space map that is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapAt {
    /// Whose it is.
    pub id: MetaslabId,
    /// First byte of the metaslab.
    pub start: u64,
    /// Its length.
    pub size: u64,
    /// log2 of the map's unit.
    pub shift: u32,
    /// The object.
    pub object: ObjectId,
    /// Bytes in use.
    pub length: u64,
}

/// Reads space maps: the layer above knows how.
pub trait MapReader: Send + Sync {
    /// The free ranges that a map stands for.
    ///
    /// # Errors
    /// Damage; [`crate::ZioError::Io`] when devices are to blame.
    fn free_ranges(&self, map: MapAt) -> BoxFuture<'_, Result<RangeSet>>;

    /// A metaslab is given up for the reason.
    fn note_damage(&self, id: MetaslabId, reason: &str);
}
