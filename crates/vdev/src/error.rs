//! Errors of a top-level vdev's reads and writes.

use platter_device::DeviceError;

/// Why a block could not be read from or written to a vdev. Offsets and sizes are in bytes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VdevError {
    /// Every copy was read, every reconstruction tried, and none passed verification.
    #[error("{vdev}: {psize} bytes at {offset:#x} fail their checksum in every reconstruction ({detail})")]
    Checksum {
        /// The top-level vdev's name (`raidz1-0`).
        vdev: String,
        /// Offset within the vdev's allocatable space.
        offset: u64,
        /// Size of the block.
        psize: u64,
        /// What was tried.
        detail: String,
    },
    /// More children are missing or failing than redundancy covers.
    #[error("{vdev}: {psize} bytes at {offset:#x}: {detail}")]
    NoReplicas {
        /// The top-level vdev's name.
        vdev: String,
        /// Offset within the vdev's allocatable space.
        offset: u64,
        /// Size of the block.
        psize: u64,
        /// Which children failed, and how.
        detail: String,
    },
    /// Everything that holds the block can be read, but more of it may be from before its time than redundancy covers,
    /// and there is no checksum to tell.
    #[error("{vdev}: {psize} bytes at {offset:#x}: {detail}")]
    Doubtful {
        /// The top-level vdev's name.
        vdev: String,
        /// Offset within the vdev's allocatable space.
        offset: u64,
        /// Size of the block.
        psize: u64,
        /// Which children missed it.
        detail: String,
    },
    /// An address that does not lie in the vdev: a damaged block pointer.
    #[error("{vdev}: {psize} bytes at {offset:#x} leave the vdev, whose size is {asize:#x}")]
    OutOfRange {
        /// The top-level vdev's name.
        vdev: String,
        /// Offset asked for.
        offset: u64,
        /// Size asked for.
        psize: u64,
        /// The vdev's allocatable size.
        asize: u64,
    },
    /// A leaf cannot be used now; says why.
    #[error("{leaf}: {reason}")]
    Unavailable {
        /// The leaf's name.
        leaf: String,
        /// Why.
        reason: String,
    },
    /// A device's own failure.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A kind of vdev that this version cannot use.
    #[error("{vdev}: vdevs of type '{kind}' are not supported")]
    Unsupported {
        /// The vdev's name.
        vdev: String,
        /// Its type, as in the label.
        kind: String,
    },
    /// A configuration that makes no sense; says what.
    #[error("vdev configuration: {0}")]
    Config(String),
}

/// The result of a vdev operation.
pub type Result<T> = std::result::Result<T, VdevError>;
