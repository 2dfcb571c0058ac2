//! Where births and deaths of blocks are booked.

use platter_ondisk::{BlkPtr, Txg};

/// Where an object set's block births and deaths are booked (`dsl_dataset_block_born/kill`).
pub trait SpaceAccounting: Send + Sync + 'static {
    /// A block was written in the syncing group `txg`.
    fn born(&self, txg: Txg, bp: &BlkPtr);
    /// A block is no longer referenced by the head in group `txg`: free it now, or put it on a deadlist when a
    /// snapshot still needs it. Called with holes and embedded pointers too (embedded ones count logical space).
    fn kill(&self, txg: Txg, bp: &BlkPtr);
}
