//! Every structure of the OpenZFS on-disk format as a plain, checked type with its codec.
//!
//! Decoders take untrusted bytes, return [`Error`] and never panic. Encoders write what the decoder reads,
//! little-endian. Blocks written by a big-endian machine are turned first (`byteswap`); labels and uberblocks carry
//! their byte order in themselves.
#![forbid(unsafe_code)]

pub mod ace;
pub mod blkptr;
pub mod byteswap;
pub mod checksum;
pub mod compression;
pub mod dnode;
pub mod dsl;
pub mod embedded;
pub mod error;
pub mod features;
pub mod gang;
pub mod ids;
pub mod l2arc;
pub mod label;
mod le;
pub mod names;
pub mod object_type;
pub mod objset;
pub mod objset_type;
pub mod rebuild;
pub mod sa;
pub mod sector;
pub mod spacemap;
pub mod uberblock;
pub mod zap;
pub mod zil;
pub mod znode;
pub mod zvol;

pub use blkptr::{BlkPtr, Dva};
pub use checksum::Checksum;
pub use compression::Compression;
pub use dnode::DnodePhys;
pub use error::Error;
pub use ids::{Guid, ObjectId, Txg};
pub use object_type::ObjectType;
pub use objset::ObjsetPhys;
pub use objset_type::ObjsetType;
pub use sector::Sectors;
pub use uberblock::Uberblock;
