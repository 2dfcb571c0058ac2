//! The simulator: the real engine on simulated disks under a virtual clock. Every failure replays from its seed.
#![forbid(unsafe_code)]

pub mod crash;
pub mod full;
pub mod images;
pub mod life;
pub mod volume;
pub mod world;
