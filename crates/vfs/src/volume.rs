//! Volumes, for every protocol that serves disks: one that is open is read, written, cleared and made stable. Nothing
//! is checked here: who has a disk may do with it what he likes.

pub use platter_zvol::{Keeper, SeekFor, Volume, VolumeError};
