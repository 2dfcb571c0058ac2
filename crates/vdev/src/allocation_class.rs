//! What kind of blocks a top-level vdev is for.

/// What kind of blocks is put on a top-level vdev (the classes of metaslabs, `include/sys/metaslab_impl.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocationClass {
    /// What data sets and the pool itself hold, and blocks of intent logs while no other vdev takes them.
    #[default]
    Normal,
    /// Blocks of intent logs only.
    Log,
}
