//! What is remembered of the blocks of the group that is being written; see `durable`.

use platter_ondisk::BlkPtr;

/// Blocks that are remembered before they are made durable (32 MiB of pointers).
pub(crate) const BLOCKS_MAX: usize = 1 << 18;
/// Blocks written since the last group was committed, or since the list was full.
#[derive(Debug)]
pub(crate) struct Born {
    pub(crate) blocks: Vec<BlkPtr>,
    /// How often the pool had been resumed when the first of them began to be written.
    pub(crate) resumptions: u64,
}

impl Default for Born {
    fn default() -> Self {
        Self { blocks: Vec::new(), resumptions: u64::MAX }
    }
}
