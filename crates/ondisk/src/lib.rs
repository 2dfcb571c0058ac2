//! Every structure of the OpenZFS on-disk format as a plain, checked type with its codec.
#![forbid(unsafe_code)]
pub mod blkptr;
pub mod ids;
pub use blkptr::{BlkPtr, Dva};
pub use ids::{Guid, ObjectId, Txg};
